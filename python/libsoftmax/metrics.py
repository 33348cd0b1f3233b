"""Metrics of a set of rows that comes in batches, with update and compute as torchmetrics has them: the numbers of `softmax metrics`.

A few numbers of each row are kept, so a set may be larger than memory, and the metrics are those of the whole set, exactly: sorted, with
ties as the definitions have them, to the bit whatever the batches are. Rows are anything that numpy.asarray takes, PyTorch tensors among them.
Rows may have weights, finite and not below 0: those of weight 0 do not count, whole numbers count copies of a row.

>>> import numpy as np
>>> metrics = ClassificationMetrics(bins=5)
>>> metrics.update(np.log([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]]), [0, 1])
>>> metrics.update(np.log([[0.3, 0.3, 0.4], [0.2, 0.5, 0.3]]), [0, 2])
>>> {name: round(float(value), 6) for name, value in metrics.compute().items() if name in ("accuracy", "log_loss", "classwise_ece")}
{'accuracy': 0.5, 'log_loss': 0.818862, 'classwise_ece': 0.166667}
"""
from . import _made as _call  # the functions of the operators, by name
from .calibration import _array, _targets

__all__ = ["ClassificationMetrics", "OutlierMetrics", "accuracy_at_rejection", "mcnemar"]

_ROW = ("confidence", "loss", "brier", "entropy", "target", "predicted", "rank")


def _weights(weight, rows):
    """Of each row, checked; None without."""
    import numpy as np
    if weight is None:
        return None
    weight = _array(weight, 1, "weight").astype(np.float64)
    if weight.shape != (rows,):
        raise ValueError(f"weight: shape is {weight.shape}, not ({rows},)")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise ValueError(f"weight: row {wrong[0]} is {weight[wrong[0]]}, which has to be finite and not below 0")
    return weight


def _joined(weights, sizes):
    """Those of all batches; None where no batch has any."""
    import numpy as np
    if all(weight is None for weight in weights):
        return None
    return np.concatenate([np.ones(size) if weight is None else weight for weight, size in zip(weights, sizes)])


def _total(x, weight):
    return x.sum() if weight is None else (x * weight).sum()


def _unit(weight):
    """The exponent of the largest weight: only their ratios count, and powers of numbers within 1 stay numbers."""
    import numpy as np
    return 0 if weight is None else int(np.frexp(weight.max())[1])


class ClassificationMetrics:
    """Of logits and the class of each row; a row of the class ignore_index does not count."""

    def __init__(self, *, bins=15, k=5, temperature=1.0, ignore_index=-100):
        self.bins, self.k, self.temperature, self.ignore_index = bins, k, temperature, ignore_index
        self.reset()

    def reset(self):
        """Forgets all rows."""
        self._rows, self._weight = {name: [] for name in _ROW}, []
        self._gap = None  # of each class and bin: the sum of p - [target is the class]

    def update(self, logits, target, weight=None):
        """More rows: logits [n, classes], the class of each, and its weight, 1 without."""
        import numpy as np
        target = _targets(target, "target")
        if isinstance(logits, (list, tuple)) and not logits and target.shape == (0,):
            return
        logits = _array(logits, 2, "logits").astype(np.float64)
        if target.shape != logits.shape[:1]:
            raise ValueError(f"target: shape is {target.shape}, not {logits.shape[:1]}")
        classes = logits.shape[1]
        if self._gap is not None and len(self._gap) != classes:
            raise ValueError(f"logits: {classes} classes, not {len(self._gap)} as before")
        counts, weight = target != self.ignore_index, _weights(weight, len(target))
        if weight is not None:
            counts &= weight > 0
            weight = weight[counts]
        logits, target = logits[counts], target[counts]
        if target.size and not (0 <= target.min() and target.max() < classes):
            wrong = target[(target < 0) | (target >= classes)][0]
            raise ValueError(f"target: {wrong} is not one of the {classes} classes")
        p = _call["softmax"](logits, temperature=self.temperature)
        if np.isnan(p).any():
            raise ValueError(f"logits: row {np.flatnonzero(counts)[np.isnan(p).any(1)][0]} has NaN, +inf or no class that is not -inf")
        if self._gap is None:
            self._gap = np.zeros((classes, self.bins))
        lost = _call["cross_entropy"](logits, target, temperature=self.temperature, return_class=True, return_rank=True)
        values = (_call["msp"](logits, temperature=self.temperature), lost.loss, self._of(logits, "brier_score", target),
                  self._of(logits, "entropy"), target, lost.class_, lost.rank)
        for name, value in zip(_ROW, values):
            self._rows[name].append(value)
        self._weight.append(weight)
        number = _call["histogram_binning"](p, np.arange(self.bins, dtype=np.float64)).astype(np.int64)
        p[np.arange(len(p)), target] -= 1
        if weight is not None:
            p *= weight[:, None]
        np.add.at(self._gap, (np.arange(classes), number), p)  # row after row

    def _of(self, logits, name, *more):
        return _call[name](logits, *more, temperature=self.temperature)

    def merge(self, other):
        """The rows of another one, behind those that there are."""
        if other._gap is None:
            return
        if (self.bins, self.k, self.temperature) != (other.bins, other.k, other.temperature):
            raise ValueError("other: it has other settings")
        if self._gap is not None and self._gap.shape != other._gap.shape:
            raise ValueError(f"other: {len(other._gap)} classes, not {len(self._gap)}")
        for name in _ROW:
            self._rows[name] += other._rows[name]
        self._weight = self._weight + other._weight
        self._gap = other._gap.copy() if self._gap is None else self._gap + other._gap

    def compute(self):
        """A dict with the names of `softmax metrics --json`; NaN of what the rows do not tell."""
        import numpy as np
        if self._gap is None or not sum(map(len, self._rows["loss"])):
            raise ValueError("compute: no rows that count; update comes first")
        row = {name: np.concatenate(parts) for name, parts in self._rows.items()}
        classes, right, confidence = len(self._gap), row["predicted"] == row["target"], row["confidence"]
        weight = _joined(self._weight, map(len, self._rows["loss"]))
        by, unit = {} if weight is None else {"weight": weight}, _unit(weight)
        weight = weight if weight is None else np.ldexp(weight, -unit)
        total = len(right) if weight is None else weight.sum()
        means = {"accuracy": right, "top_k_accuracy": row["rank"] < self.k, "log_loss": row["loss"], "brier": row["brier"],
                 "confidence": confidence, "entropy": row["entropy"]}
        found = {name: _total(value, weight) / total for name, value in means.items()}
        found.update(self._of_classes(row, classes, weight))
        error = _call["calibration_error"](confidence, right, bins=self.bins, return_mce=True, return_rms=True, return_adaptive=True,
                                           return_ks=True, **by)
        parts = _call["brier_decomposition"](confidence, right, bins=self.bins, return_debiased=True, **by)
        found.update(ece=error.ece, mce=error.mce, rms_ce=error.rms, adaptive_ece=error.adaptive, ks=error.ks, debiased_ce=parts.debiased,
                     classwise_ece=np.abs(np.ldexp(self._gap, -unit)).sum() / total / classes,
                     mmce=_call["kernel_calibration_error"](confidence, right, **by).mmce, reliability=parts.reliability,
                     resolution=parts.resolution, uncertainty=parts.uncertainty)
        found.update(_ranking(confidence, right, ("aupr_right", "aupr_wrong"), **by))
        risk = _call["risk_coverage"](confidence, 1.0 - right, return_excess=True, **by)
        found.update(aurc=risk.aurc, e_aurc=risk.excess)
        return {name: np.float64(value) for name, value in found.items()}

    @staticmethod
    def _of_classes(row, classes, weight):
        """As classification_metrics has them, without its table of pairs."""
        import numpy as np
        hits = row["predicted"] == row["target"]
        there, taken, hit = (np.bincount(of, by, classes).astype(float) for of, by in (
            (row["target"], weight), (row["predicted"], weight), (row["target"][hits], weight if weight is None else weight[hits])))
        some, true, n = there + taken > 0, there > 0, there.sum()
        vary = min(true.sum(), (taken > 0).sum()) > 1
        by = (n * n - (taken * taken).sum()) * (n * n - (there * there).sum())
        return {"balanced_accuracy": (hit[true] / there[true]).mean(), "macro_f1": (2 * hit[some] / (there + taken)[some]).mean(),
                "matthews": (hit.sum() * n - (there * taken).sum()) / np.sqrt(by) if vary else 0.0}


class OutlierMetrics:
    """Of scores, large where a row is known, and whether it is: how well they tell."""

    def __init__(self, *, tpr=0.95):
        self.tpr = tpr
        self.reset()

    def reset(self):
        """Forgets all rows."""
        self._score, self._known, self._weight = [], [], []

    def update(self, score, known, weight=None):
        """More rows: the score of each, whether it is known, and its weight, 1 without."""
        import numpy as np
        score, known = _array(score, 1, "score"), np.asarray(known.detach().cpu() if hasattr(known, "detach") else known)
        if known.shape != score.shape:
            raise ValueError(f"known: shape is {known.shape}, not {score.shape}")
        if not np.isin(known, (0, 1)).all():
            raise ValueError(f"known: {known[~np.isin(known, (0, 1))][0]} is neither 0 nor 1")
        self._weight.append(_weights(weight, len(score)))
        self._score.append(score.astype(np.float64))
        self._known.append(known.astype(bool))

    def compute(self):
        """auroc, aupr_in, aupr_out, fpr at the tpr, detection_error; NaN without rows of both kinds."""
        import numpy as np
        if not self._score:
            raise ValueError("compute: no rows; update comes first")
        weight = _joined(self._weight, map(len, self._score))
        by = {} if weight is None else {"weight": weight}
        found = _ranking(np.concatenate(self._score), np.concatenate(self._known), ("aupr_in", "aupr_out"), self.tpr, **by)
        return {("fpr" if name == "fpr95" else name): np.float64(value) for name, value in found.items()}


def _ranking(score, positive, names, tpr=0.95, **by):
    found = _call["ranking_metrics"](score, positive, tpr=tpr, return_average_precision=True, return_average_precision_negative=True,
                                     return_fpr=True, return_detection_error=True, **by)
    two = {"auroc": found.auroc, names[0]: found.average_precision, names[1]: found.average_precision_negative, "fpr95": found.fpr}
    return two if names[0] == "aupr_right" else {**two, "detection_error": found.detection_error}


def accuracy_at_rejection(confidence, right, rate):
    """The share of right rows where the part `rate` of the rows, the least confident, is rejected: among the ceil((1 - rate) n) that stay.
    rate: a number below 1, or several. Rows of equal confidence count as the mean over their orders, as in risk_coverage.

    >>> accuracy_at_rejection([0.9, 0.8, 0.6, 0.4], [True, True, False, True], [0, 0.25, 0.5]).tolist()
    [0.75, 0.6666666666666667, 1.0]
    """
    import numpy as np
    confidence, right, rate = _array(confidence, 1, "confidence"), _rows_right(right, "right"), np.asarray(rate, np.float64)
    if confidence.shape != right.shape or not right.size:
        raise ValueError(f"right: shape is {right.shape}, not {confidence.shape}" if right.size else "right: no rows")
    wrong = rate[~((rate >= 0) & (rate < 1))]
    if wrong.size:
        raise ValueError(f"rate: {wrong.flat[0]} is not from 0 to below 1")
    risk = _call["risk_coverage"](confidence.astype(np.float64), 1.0 - right, return_risk=True).risk
    n = len(right)
    stay = np.maximum(np.ceil((1 - rate) * n - 1e-9 * n).astype(np.int64), 1)
    return 1 - risk[stay - 1]


def mcnemar(first, second):
    """McNemar's exact test of two models on the same rows, each right or not: of the rows that one model alone has right, how likely is a
    division as uneven, either way, by the toss of a coin? (p, first alone, second alone)

    >>> mcnemar([True] * 9 + [False], [False] * 8 + [True] * 2)
    (0.0390625, 8, 1)
    """
    import math
    first, second = _rows_right(first, "first"), _rows_right(second, "second")
    if first.shape != second.shape:
        raise ValueError(f"second: shape is {second.shape}, not {first.shape}")
    alone = int((first & ~second).sum()), int((second & ~first).sum())
    few, n, total, term = min(alone), sum(alone), 1.0, 1.0
    if 2 * few >= n:
        return 1.0, *alone
    if n <= 1000:  # exactly
        return 2 * sum(math.comb(n, i) for i in range(few + 1)) / 2**n, *alone
    for i in range(few, 0, -1):
        term *= i / (n - i + 1)
        total += term
    log_first = math.lgamma(n + 1) - math.lgamma(few + 1) - math.lgamma(n - few + 1) - n * math.log(2)
    return min(1.0, 2 * total * math.exp(log_first)), *alone


def _rows_right(right, name):
    """Whether a model is right, of each row."""
    import numpy as np
    right = _array(right, 1, name)
    wrong = np.flatnonzero((right != 0) & (right != 1))
    if wrong.size:
        raise ValueError(f"{name}: row {wrong[0]} is {right[wrong[0]]}, not right (1) or wrong (0)")
    return right.astype(bool)
