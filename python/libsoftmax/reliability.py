"""When to believe a prediction, with fit and predict as scikit-learn has them: a probe of a layer, a cascade of models of which the first sure
one answers, and predictions that can be relied on (SDM). Fits can be written to a JSON file.

Rows are anything that numpy.asarray takes, PyTorch tensors among them; results are arrays of NumPy. The settings are the parameters of the
operators that do the work.

>>> cascade = Cascade().fit([[0.9, 0.6, 0.8, 0.5], [0.7, 0.9, 0.9, 0.9]], [[1, 0, 1, 0], [1, 1, 1, 1]])
>>> cascade.predict([[0.95, 0.7], [0.8, 0.8]]).tolist()  # the second model is asked about the second row alone
[0, 1]
"""
from . import _made as _call  # the functions of the operators, by name
from .calibration import _array, _chosen, _Fit, _load, _targets

__all__ = ["Cascade", "Probe", "SDM", "load"]


def _labels(y, name, rows):
    y = _targets(y, name)
    if y.shape != (rows,):
        raise ValueError(f"{name}: shape is {y.shape}, not that of {rows} rows")
    return y


class Probe(_Fit):
    """Logistic regression on features of a layer (Uselis, Oh 2025): weight_, bias_. l2 is 1 / (C n) of scikit-learn."""
    _method, _fitted = "probe", ("weight", "bias")
    _settings = {"l2": 0.001}

    def fit(self, features, y):
        """y: the class of each row, 0 or more; -1: the row does not count."""
        features = _array(features, 2, "features")
        y = _labels(y, "y", len(features))
        if not (y >= 0).any():
            raise ValueError("y: no row counts")
        made = _call["probe_fit"](features, y, classes=int(y.max()) + 1, l2=self.l2, return_loss=True)
        if not made.loss < float("inf"):
            raise ValueError("Probe: features: a number is not finite")
        self.weight_, self.bias_ = made.weight, made.bias
        return self

    def decision_function(self, features):
        """Logits; the product is NumPy's."""
        self._check()
        features = _array(features, 2, "features")
        if features.shape[1] != self.weight_.shape[1]:
            raise ValueError(f"features: shape[1] is {features.shape[1]}, not {self.weight_.shape[1]}")
        return features @ self.weight_.T.astype(features.dtype) + self.bias_.astype(features.dtype)

    def predict_proba(self, features):
        """The probability of each class."""
        return _call["softmax"](self.decision_function(features))

    def predict(self, features):
        """The class of the largest probability, the first of equal ones."""
        return _chosen(self.decision_function(features), "features")

    def score(self, features, y):
        """The share of rows whose class is right, of those that count."""
        features = _array(features, 2, "features")
        y = _labels(y, "y", len(features))
        counts = y >= 0
        if not counts.any():
            raise ValueError("y: no row counts")
        return float((self.predict(features) == y)[counts].mean())


class Cascade(_Fit):
    """Models in a row, cheap ones first: the first that is sure enough answers (Berestizshevsky, Even 2019): threshold_, accuracy_ and
    coverage_ of each. slack: how far the accuracy of what a model answers may be below the best it can have."""
    _method, _fitted = "cascade", ("threshold", "accuracy", "coverage")
    _settings = {"slack": 0.0}

    def fit(self, confidence, correct):
        """confidence, correct: [models, rows], of rows that were held out."""
        import numpy as np
        confidence = _array(confidence, 2, "confidence")
        correct = np.asarray(correct)
        if correct.shape != confidence.shape:
            raise ValueError(f"correct: shape is {correct.shape}, not {confidence.shape}, that of confidence")
        return self._keep(_call["cascade_fit"](confidence, correct != 0, slack=self.slack))

    def _go(self, confidence, **more):
        self._check()
        confidence = _array(confidence, 2, "confidence")
        threshold = self.threshold_.astype(confidence.dtype)
        if len(confidence) != len(threshold):
            raise ValueError(f"confidence: of {len(confidence)} models, not of {len(threshold)}")
        return _call["cascade"](confidence, threshold, **more)

    def predict(self, confidence):
        """Which model answers each row, from 0 on; confidence: [models, rows]."""
        return self._go(confidence).stage

    def choose(self, confidence, answers):
        """The answers of these models; answers: [models, rows, ...]."""
        import numpy as np
        stage, answers = self.predict(confidence), np.asarray(answers)
        if answers.shape[:2] != (len(self.threshold_), len(stage)):
            raise ValueError(f"answers: shape begins with {answers.shape[:2]}, not {(len(self.threshold_), len(stage))}")
        return answers[stage, np.arange(len(stage))]

    def cost(self, confidence, cost=None):
        """The mean cost of a row, of all models that it went through; cost: of each model, 1 without."""
        confidence = _array(confidence, 2, "confidence")
        cost = None if cost is None else _array(cost, 1, "cost").astype(confidence.dtype)
        return float(self._go(confidence, cost=cost).cost)


class SDM(_Fit):
    """Predictions that can be relied on (Schmaltz 2025): softmax as sharp as the training rows near an input warrant, and the region in which
    each class is right with probability alpha: least_, threshold_. most: how many neighbours are counted at most. All of it in double.

    end: "low" or "high" takes the least or the most that the distance, as a quantile, may be (bounds); None takes it as it is."""
    _method = "sdm"
    _fitted = ("bank", "label", "predicted", "known", "similarity", "known_label", "known_rescaled", "least", "threshold")
    _whole = ("label", "predicted", "known_label")
    _settings = {"alpha": 0.95, "most": 2048}

    def fit(self, bank, label, predicted, *, features, logits, y):
        """bank, label, predicted: features, class and predicted class of the rows of training. features, logits, y: of rows that were held
        out, which the distances and the region are taken from."""
        import numpy as np
        self.bank_ = _array(bank, 2, "bank").astype(np.float64)
        self.label_ = _labels(label, "label", len(self.bank_))
        self.predicted_ = _labels(predicted, "predicted", len(self.bank_))
        features, logits = self._rows(features, logits)
        y = self.known_label_ = _labels(y, "y", len(logits))
        classes = logits.shape[1]
        near = self._near(features, logits)
        self.known_, self.similarity_ = near.distance, near.similarity
        quantile = self._quantile(near.distance, classes)
        counts = (y >= 0) & (y < classes)
        if not counts.any():
            raise ValueError("y: no row counts")
        chance = _call["sdm_activation"](logits, d=quantile, q=near.similarity)[np.arange(len(y)), np.where(counts, y, 0)]
        anywhere = np.zeros(classes, logits.dtype)
        self.known_rescaled_ = _call["sdm_region"](logits, near.similarity, quantile, anywhere).rescaled
        region = _call["sdm_region_fit"](self.known_rescaled_, chance, y, classes=classes, alpha=self.alpha)
        self.least_, self.threshold_ = region.least, region.threshold
        return self

    def _rows(self, features, logits):
        features, logits = _array(features, 2, "features"), _array(logits, 2, "logits")
        if len(features) != len(logits):
            raise ValueError(f"logits: of {len(logits)} rows, not of {len(features)}")
        return features.astype(float), logits.astype(float)

    def _near(self, features, logits):
        return _call["sdm_similarity"](features, self.bank_, self.label_, logits.argmax(axis=1), self.predicted_,
                                       classes=logits.shape[1], most=self.most)

    def _quantile(self, distance, classes):
        return _call["sdm_quantile"](distance, self.known_, self.similarity_, self.known_label_, classes=classes).quantile

    def _of(self, features, logits, end=None):
        """logits, similarity, distance as a quantile."""
        if end not in (None, "low", "high"):
            raise ValueError(f"end: is {end!r}, not 'low', 'high' or None")
        self._check()
        features, logits = self._rows(features, logits)
        if logits.shape[1] != len(self.threshold_):
            raise ValueError(f"logits: shape[1] is {logits.shape[1]}, not {len(self.threshold_)}")
        near = self._near(features, logits)
        d = self._quantile(near.distance, logits.shape[1])
        return logits, near.similarity, d if end is None else getattr(self._bounds(logits, near.similarity, d), end)

    def _bounds(self, logits, q, d, **more):
        rescaled = _call["sdm_region"](logits, q, d, self.threshold_).rescaled
        return _call["sdm_bounds"](rescaled, self.known_rescaled_, d, self.known_label_, classes=logits.shape[1], alpha=self.alpha, **more)

    def bounds(self, features, logits):
        """low and high: what the distance of each row, as a quantile, is between with probability alpha, by how many rows that were held out
        are less similar (the inequality of Dvoretzky, Kiefer and Wolfowitz); error: of the class that fewest are of; size: how many, of each
        class."""
        return self._bounds(*self._of(features, logits), return_size=True)

    def predict_proba(self, features, logits, end=None):
        """The probability of each class: flat where the rows of training do not bear a prediction out."""
        logits, q, d = self._of(features, logits, end)
        return _call["sdm_activation"](logits, d=d, q=q)

    def predict(self, features, logits):
        """The class of the largest logit, the first of equal ones."""
        return _chosen(_array(logits, 2, "logits"))

    def accept(self, features, logits, end=None):
        """Whether each prediction can be relied on."""
        logits, q, d = self._of(features, logits, end)
        least = float(self.least_)
        return _call["sdm_region"](logits, q, d, self.threshold_, least=least).accepted != 0

    def score_samples(self, features, logits, end=None):
        """The rescaled similarity min(q, (2 + q)^p): below 1 a row is unlike those of training."""
        logits, q, d = self._of(features, logits, end)
        return _call["sdm_region"](logits, q, d, self.threshold_).rescaled


_METHODS = {kind._method: kind for kind in (Cascade, Probe, SDM)}


def load(path):
    """The fit of a file that save wrote."""
    return _load(path, _METHODS)
