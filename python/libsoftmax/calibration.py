"""Calibration with fit, as scikit-learn has estimators: what was fitted is kept, applied to new rows, and written to a JSON file that
`softmax calibrate apply` reads too.

Rows are anything that numpy.asarray takes, PyTorch tensors among them; results are arrays of NumPy.

>>> import numpy as np
>>> logits = np.array([[2, 0], [3, 1], [1, 0], [0, 4], [1.5, 0], [0, 2]])
>>> scaling = TemperatureScaling().fit(logits, [0, 0, 1, 1, 0, 0])
>>> round(float(scaling.temperature_), 4)
2.0432
>>> scaling.predict_proba(logits)[0].round(4).tolist()
[0.7269, 0.2731]
"""
import json

from . import _made as _call  # the functions of the operators, by name

__all__ = ["BetaCalibration", "ConformalClassifier", "DirichletCalibration", "HistogramBinning", "IsotonicCalibration", "MatrixScaling",
           "PlattScaling", "TemperatureScaling", "VectorScaling", "load"]

FORMAT, VERSION = "softmax-fit", 1


def _array(rows, dims, name):
    import numpy as np
    if hasattr(rows, "detach"):
        rows = rows.detach().cpu()
        rows = rows.float() if str(rows.dtype) in ("torch.float16", "torch.bfloat16") else rows
    rows = np.asarray(rows)
    if rows.dtype.kind not in "fiub":
        raise TypeError(f"{name}: dtype is {rows.dtype}, not a number")
    if rows.ndim != dims:
        raise ValueError(f"{name}: ndim is {rows.ndim}, not {dims}")
    return rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)


def _targets(y, name):
    import numpy as np
    if hasattr(y, "detach"):
        y = y.detach().cpu()
    y = np.asarray(y)
    if y.size and y.dtype.kind not in "iub":
        raise TypeError(f"{name}: dtype is {y.dtype}, not of whole numbers")
    return y.astype(np.int64)


def _chosen(logits, name="logits"):
    """The class of the largest logit of each row, the first of equal ones."""
    import numpy as np
    bad = np.isnan(logits).any(axis=1)
    if bad.any():
        raise ValueError(f"{name}: row {bad.argmax()} has a NaN")
    return logits.argmax(axis=1)


def _plain(numbers):
    """Lists for JSON, where NaN is null, and infinity a word."""
    import numpy as np
    numbers = np.asarray(numbers, np.float64)
    finite = np.where(np.isinf(numbers), np.where(numbers > 0, "inf", "-inf").astype(object), numbers.astype(object))
    return np.where(np.isnan(numbers), None, finite).tolist()


class _Fit:
    """What every fit has: settings that are given, numbers that are fitted (with a _ at the end), and the file of both."""
    _method = None
    _fitted = ()  # names, as the file has them
    _whole = ()  # those of them that are whole numbers
    _settings = {}  # with their defaults

    def __init__(self, **settings):
        for name in settings:
            if name not in self._settings:
                raise TypeError(f"{type(self).__name__}: no setting {name!r}; there are {', '.join(self._settings) or 'none'}")
        for name, default in self._settings.items():
            setattr(self, name, settings.get(name, default))

    def get_params(self, deep=True):
        return {name: getattr(self, name) for name in self._settings}

    def set_params(self, **settings):
        self.__init__(**{**self.get_params(), **settings})
        return self

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def __sklearn_is_fitted__(self):
        return all(hasattr(self, name + "_") for name in self._fitted)

    def _check(self):
        if not self.__sklearn_is_fitted__():
            raise ValueError(f"{type(self).__name__}: fit comes first")

    def _keep(self, result, names=None):
        import numpy as np
        names = names or self._fitted
        if any(not np.all(np.isfinite(getattr(result, name))) for name in names if name != "accuracy"):
            raise ValueError(f"{type(self).__name__}: no row counts, or a number is not finite, or a target is at -inf")
        for name in names:
            setattr(self, name + "_", getattr(result, name))
        return self

    def to_dict(self):
        """The fit as the file has it."""
        self._check()
        numbers = {name: _plain(getattr(self, name + "_")) for name in self._fitted}
        return {"format": FORMAT, "version": VERSION, "method": self._method, "settings": self.get_params(), "fitted": numbers}

    def save(self, path):
        """Writes the fit to a JSON file."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class _Classes(_Fit):
    """A map of logits [n, classes]."""

    def _scaled(self, logits):
        raise NotImplementedError

    def transform(self, logits):
        """The new logits."""
        self._check()
        return self._scaled(_array(logits, 2, "logits"))

    def predict_proba(self, logits):
        """The calibrated probabilities."""
        return _call["softmax"](self.transform(logits))

    def predict(self, logits):
        """The class of the largest probability, the first of equal ones."""
        return _chosen(self.transform(logits))

    def _fit_by(self, operator, logits, y, **settings):
        return self._keep(_call[operator](_array(logits, 2, "logits"), _targets(y, "y"), return_loss=True, return_before=True, **settings),
                          (*self._fitted, "loss", "before"))


class TemperatureScaling(_Classes):
    """The temperature with the least loss (Guo et al. 2017): temperature_, loss_, before_."""
    _method, _fitted = "temperature", ("temperature",)

    def fit(self, logits, y):
        """y: the class of each row; -1: the row does not count."""
        return self._fit_by("temperature_fit", logits, y)

    def _scaled(self, logits):
        return logits / logits.dtype.type(self.temperature_)


class VectorScaling(_Classes):
    """A scale and a bias for each class (Guo et al. 2017): scale_, bias_, loss_, before_."""
    _method, _fitted, _settings = "vector", ("scale", "bias"), {"l2": 0.01, "l2_bias": 0.01}

    def fit(self, logits, y):
        """y: the class of each row; -1: the row does not count."""
        return self._fit_by("vector_scaling_fit", logits, y, **self.get_params())

    def _scaled(self, logits):
        return _call["vector_scaling"](logits, self.scale_, self.bias_)


class MatrixScaling(_Classes):
    """A matrix and a bias (Kull et al. 2019, ODIR): weight_, bias_, loss_, before_."""
    _method, _fitted = "matrix", ("weight", "bias")
    _settings = {"l2": 0.01, "l2_bias": 0.01, "l2_diagonal": 0.001}

    def fit(self, logits, y):
        """y: the class of each row; -1: the row does not count."""
        return self._fit_by("matrix_scaling_fit", self._base(_array(logits, 2, "logits")), y, **self.get_params())

    def _base(self, logits):
        return logits

    def _scaled(self, logits):
        return _call["matrix_scaling"](self._base(logits), self.weight_, self.bias_)


class DirichletCalibration(MatrixScaling):
    """MatrixScaling of the log-probabilities (Kull et al. 2019)."""
    _method = "dirichlet"

    def _base(self, logits):
        return _call["log_softmax"](logits)


class _Binary(_Fit):
    """A map of one number of each row to the probability that it is positive."""
    _input = "score"

    def predict_proba(self, x):
        """The calibrated probability of each row."""
        self._check()
        return self._map(_array(x, 1, self._input))

    transform = predict_proba


class PlattScaling(_Binary):
    """A sigmoid of scores (Platt 1999): slope_, offset_."""
    _method, _fitted = "platt", ("slope", "offset")

    def fit(self, x, y):
        """y: nonzero where the row is positive."""
        return self._keep(_call["platt_fit"](_array(x, 1, "score"), _targets(y, "y") != 0))

    def _map(self, x):
        return _call["platt_scaling"](x, slope=float(self.slope_), offset=float(self.offset_))


class BetaCalibration(_Binary):
    """A map of probabilities (Kull, Silva Filho, Flach 2017): a_, b_, c_."""
    _method, _fitted, _input = "beta", ("a", "b", "c"), "chance"

    def fit(self, x, y):
        """y: nonzero where the row is positive."""
        return self._keep(_call["beta_fit"](_array(x, 1, "chance"), _targets(y, "y") != 0))

    def _map(self, x):
        return _call["beta_scaling"](x, a=float(self.a_), b=float(self.b_), c=float(self.c_))


class IsotonicCalibration(_Binary):
    """The rising curve that is nearest to the values: x_, y_, as long as it has bends."""
    _method, _fitted = "isotonic", ("x", "y")

    def fit(self, x, y, sample_weight=None):
        """y: what each row should be: 0 and 1, or any number."""
        import numpy as np
        x = _array(x, 1, "score")
        y = _array(y, 1, "y").astype(x.dtype)
        weight = None if sample_weight is None else _array(sample_weight, 1, "sample_weight").astype(x.dtype)
        result = _call["isotonic_fit"](x, y, weight)
        count = int(np.asarray(result.count))
        if count == 0:
            raise ValueError("IsotonicCalibration: no rows, or a NaN")
        self.x_, self.y_ = result.x[:count], result.y[:count]
        return self

    def _map(self, x):
        return _call["isotonic"](x, self.x_.astype(x.dtype), self.y_.astype(x.dtype))


class HistogramBinning(_Binary):
    """The accuracy of the bin that a confidence is in (Zadrozny, Elkan 2001): accuracy_; NaN of a bin without rows, whose middle it is."""
    _method, _fitted, _settings, _input = "histogram", ("accuracy",), {"bins": 15, "closed": "right"}, "confidence"

    def fit(self, x, y):
        """y: nonzero where the row is right."""
        x, right = _array(x, 1, "confidence"), _targets(y, "y") != 0
        return self._keep(_call["calibration_error"](x, right, return_accuracy=True, **self.get_params()))

    def _map(self, x):
        return _call["histogram_binning"](x, self.accuracy_.astype(x.dtype), closed=self.closed)


class ConformalClassifier(_Fit):
    """Sets of classes that have the true one with the chosen probability: threshold_."""
    _method, _fitted = "conformal", ("threshold",)
    _settings = {"coverage": 0.9, "method": "least", "penalty": 0.0, "rank": 0}

    def _how(self):
        return {"method": self.method, "penalty": self.penalty, "rank": self.rank}

    def fit(self, logits, y, noise=None):
        """y: the class of each row; -1: it does not count. noise: uniform numbers, for sets of exactly the coverage (adaptive)."""
        logits = _array(logits, 2, "logits")
        return self._keep_threshold(_call["conformal_fit"](logits, _targets(y, "y"), noise, coverage=self.coverage, **self._how()))

    def _keep_threshold(self, threshold):
        if threshold != threshold:
            raise ValueError("ConformalClassifier: a row that counts has a NaN, +inf, or no class")
        self.threshold_ = threshold
        return self

    def predict_set(self, logits, noise=None, empty=False):
        """[n, classes]: True of the classes in the set of a row."""
        self._check()
        result = _call["conformal_sets"](_array(logits, 2, "logits"), noise, threshold=float(self.threshold_),
                                         empty="yes" if empty else "no", **self._how())
        return result.member.astype(bool)


_METHODS = {cls._method: cls for cls in (TemperatureScaling, VectorScaling, MatrixScaling, DirichletCalibration, PlattScaling,
                                         BetaCalibration, IsotonicCalibration, HistogramBinning, ConformalClassifier)}


def _load(path, methods):
    import numpy as np
    with open(path, encoding="utf-8") as file:
        kept = json.load(file)
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        raise ValueError(f"{path}: not a {FORMAT} file")
    if kept.get("version") != VERSION:
        raise ValueError(f"{path}: version is {kept.get('version')!r}, not {VERSION}")
    if kept.get("method") not in methods:
        raise ValueError(f"{path}: method is {kept.get('method')!r}, not one of {', '.join(methods)}")
    fit = methods[kept["method"]](**kept["settings"])
    missing = [name for name in fit._fitted if name not in kept["fitted"]]
    if missing:
        raise ValueError(f"{path}: {missing[0]} of the fit {kept['method']} is missing")
    for name in fit._fitted:
        setattr(fit, name + "_", np.asarray(kept["fitted"][name], np.int64 if name in fit._whole else np.float64))
    return fit


def load(path):
    """The fit of a file that save, or `softmax calibrate fit`, wrote."""
    return _load(path, _METHODS)
