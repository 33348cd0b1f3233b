"""What is out of distribution, with fit and predict as scikit-learn's detectors have them: score_samples is large for what is like the rows
of fit, and predict says 1 of rows whose score the share tpr of those rows reaches, -1 of the others. Fits can be written to a JSON file.

Rows are anything that numpy.asarray takes, PyTorch tensors among them; results are arrays of NumPy. The settings are the parameters of the
operators that do the work.

>>> import numpy as np
>>> features = np.array([[0, 0], [1, 0], [0, 1], [5, 5], [6, 5], [5, 6]])
>>> detector = Mahalanobis().fit(features, [0, 0, 0, 1, 1, 1])
>>> detector.predict([[0.5, 0.2], [9, -3]]).tolist()
[1, -1]
"""
from . import _made as _call  # the functions of the operators, by name
from .calibration import _array, _Fit, _load, _targets

__all__ = ["Centroids", "KLMatching", "KNN", "Mahalanobis", "ReAct", "RelativeUncertainty", "TrustScore", "ViM", "load"]


def _classes(y, name="y"):
    y = _targets(y, name)
    if y.ndim != 1 or not y.size or y.min() < 0:
        raise ValueError(f"{name}: not the class, 0 or more, of each row")
    return y


class _Detector(_Fit):
    """What all have: rows -> scores, and the score that tells them apart."""
    _rows = "features"

    def __init__(self, tpr=0.95, **settings):
        super().__init__(**settings)
        self.tpr = tpr

    def get_params(self, deep=True):
        return {"tpr": self.tpr, **super().get_params()}

    def _finish(self, scores):
        """The threshold, from scores of the rows of fit."""
        import numpy as np
        scores = np.sort(scores)
        scores = scores[~np.isnan(scores)]
        if not 0 < self.tpr <= 1:
            raise ValueError(f"{type(self).__name__}: tpr is {self.tpr!r}, not above 0 to 1")
        if not scores.size:
            raise ValueError(f"{type(self).__name__}: no row of fit has a score")
        self.threshold_ = np.float64(scores[scores.size - int(np.ceil(self.tpr * scores.size))])
        return self

    def score_samples(self, rows):
        """A score of each row, large where it is like those of fit; NaN of a row that has none."""
        self._check()
        return self._scores(_array(rows, 2, self._rows))

    def decision_function(self, rows):
        """score_samples less the threshold."""
        return self.score_samples(rows) - self.threshold_

    def predict(self, rows):
        """1 of rows like those of fit, -1 of others and of rows without a score."""
        import numpy as np
        return np.where(self.score_samples(rows) >= self.threshold_, 1, -1)


class KLMatching(_Detector):
    """Probabilities near those that are typical of a class (Hendrycks et al. 2022): template_."""
    _method, _fitted, _rows = "kl_matching", ("template", "threshold"), "logits"

    def fit(self, logits, y=None):
        """y: the class of each row; without, that of its largest logit."""
        logits = _array(logits, 2, "logits")
        self.template_ = _call["kl_matching_fit"](logits, *(() if y is None else (_targets(y, "y"),))).template
        return self._finish(self._scores(logits))

    def _scores(self, logits):
        return _call["kl_matching"](logits, self.template_).score


class Centroids(_Detector):
    """Probabilities near the mean of the rows of fit that were right: mean_, threshold_of_class_."""
    _method, _fitted, _rows = "centroids", ("mean", "threshold_of_class", "threshold"), "logits"

    def fit(self, logits, y):
        """y: the class of each row."""
        logits = _array(logits, 2, "logits")
        made = _call["centroid_fit"](logits, _targets(y, "y"))
        self.mean_, self.threshold_of_class_ = made.mean, made.threshold
        return self._finish(self._scores(logits))

    def _scores(self, logits):
        return _call["centroid_distance"](logits, self.mean_, self.threshold_of_class_).score


class RelativeUncertainty(_Detector):
    """Rel-U (Dadalto et al. 2024), with its sign turned: matrix_."""
    _method, _fitted, _rows = "relative_uncertainty", ("matrix", "threshold"), "logits"
    _settings = {"temperature": 1.0, "lambda_": 0.5}

    def fit(self, logits, y):
        """y: the class of each row."""
        logits = _array(logits, 2, "logits")
        self.matrix_ = _call["relative_uncertainty_fit"](logits, _targets(y, "y"), temperature=self.temperature, lambda_=self.lambda_)
        return self._finish(self._scores(logits))

    def _scores(self, logits):
        return -_call["relative_uncertainty"](logits, self.matrix_, temperature=self.temperature)


class Mahalanobis(_Detector):
    """The distance to the nearest class mean (Lee et al. 2018), relative to that of all rows on request (Ren et al. 2021): mean_, whiten_,
    mean_all_, whiten_all_."""
    _method, _fitted = "mahalanobis", ("mean", "whiten", "mean_all", "whiten_all", "threshold")
    _settings = {"relative": False, "ridge": 1e-6}

    def fit(self, features, y):
        """y: the class of each row."""
        features, y = _array(features, 2, "features"), _classes(y)
        made = _call["mahalanobis_fit"](features, y, classes=int(y.max()) + 1, ridge=self.ridge, return_mean_all=True,
                                        return_whiten_all=True)
        for name in self._fitted[:-1]:
            setattr(self, name + "_", getattr(made, name))
        return self._finish(self._scores(features))

    def _scores(self, features):
        over_all = (self.mean_all_, self.whiten_all_) if self.relative else ()
        return _call["mahalanobis"](features, self.mean_, self.whiten_, *over_all).score


class ViM(_Detector):
    """Virtual-logit matching (Wang et al. 2022) of features before the last layer, whose weight [classes, d] and bias go to fit: origin_,
    residual_, alpha_."""
    _method, _fitted = "vim", ("origin", "residual", "alpha", "weight", "bias", "threshold")
    _settings = {"dim": 0}

    def fit(self, features, y=None, *, weight, bias=None):
        """y is not read."""
        import numpy as np
        features, weight = _array(features, 2, "features"), _array(weight, 2, "weight")
        bias = np.zeros(len(weight), weight.dtype) if bias is None else _array(bias, 1, "bias")
        made = _call["vim_fit"](features, weight, bias, dim=self.dim)
        self.origin_, self.residual_, self.alpha_, self.weight_, self.bias_ = made.origin, made.residual, made.alpha, weight, bias
        return self._finish(self._scores(features))

    def _scores(self, features):
        logits = features @ self.weight_.T + self.bias_
        return _call["vim"](features, self.origin_, self.residual_, logits, alpha=float(self.alpha_)).score


class KNN(_Detector):
    """The distance to the k-th nearest row of fit (Sun et al. 2022): bank_. The threshold is of each row of fit among the others."""
    _method, _fitted = "knn", ("bank", "threshold")
    _settings = {"k": 50, "metric": "distance", "normalise": "yes"}

    def fit(self, features, y=None):
        """y is not read."""
        self.bank_ = _array(features, 2, "features").copy()
        return self._finish(self._score_of(self.bank_, self.k + 1))  # a row is the nearest to itself

    def _scores(self, features):
        return self._score_of(features, self.k)

    def _score_of(self, features, k):
        return _call["knn_score"](features, self.bank_, k=k, metric=self.metric, normalise=self.normalise)


class TrustScore(_Detector):
    """How much farther other classes are than the chosen one (Jiang et al. 2018): bank_, label_. The threshold is of each row of
    fit among the others."""
    _method, _fitted, _whole = "trust", ("bank", "label", "threshold"), ("label",)

    def fit(self, features, y):
        """y: the class of each row."""
        self.bank_, self.label_ = _array(features, 2, "features").copy(), _classes(y)
        return self._finish(self._scores_of_fit())

    def _scores_of_fit(self):
        """Of each row without itself, with its own class as the chosen one; NaN of one that is alone in its class."""
        import numpy as np
        scores = np.full(len(self.bank_), np.nan)
        for label in np.unique(self.label_):
            own = self.label_ == label
            same, others = self.bank_[own], self.bank_[~own]
            if len(same) > 1:
                near = -_call["knn_score"](same, same, k=2, normalise="no")  # a row is the nearest to itself
                far = -_call["knn_score"](same, others, k=1, normalise="no") if len(others) else np.inf
                scores[own] = far / (near + 1e-12)
        return scores

    def score_samples(self, features, chosen):
        """chosen: the class that a model gives to each row."""
        self._check()
        return self._scores(_array(features, 2, "features"), _targets(chosen, "chosen"))

    def decision_function(self, features, chosen):
        """score_samples less the threshold."""
        return self.score_samples(features, chosen) - self.threshold_

    def predict(self, features, chosen):
        """1 of rows whose class is to be trusted, -1 of others."""
        import numpy as np
        return np.where(self.score_samples(features, chosen) >= self.threshold_, 1, -1)

    def _scores(self, features, chosen):
        classes = max(int(self.label_.max()), int(chosen.max(initial=0))) + 1
        return _call["trust_score"](features, self.bank_, self.label_, chosen, classes=classes)


class ReAct(_Fit):
    """Features cut at a percentile of those of fit (Sun et al. 2021), for the last layer: threshold_."""
    _method, _fitted = "react", ("threshold",)
    _settings = {"percentile": 90.0}

    def fit(self, features, y=None):
        """y is not read."""
        self.threshold_ = _call["react_fit"](_array(features, 2, "features"), percentile=self.percentile)
        return self

    def transform(self, features):
        """The new features."""
        self._check()
        return _call["react"](_array(features, 2, "features"), threshold=float(self.threshold_))

    def fit_transform(self, features, y=None):
        """fit, then transform."""
        return self.fit(features).transform(features)


_METHODS = {kind._method: kind for kind in (Centroids, KLMatching, KNN, Mahalanobis, ReAct, RelativeUncertainty, TrustScore, ViM)}


def load(path):
    """The fit of a file that save wrote."""
    return _load(path, _METHODS)
