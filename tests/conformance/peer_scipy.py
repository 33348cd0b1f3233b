"""scipy.special.softmax, log_softmax and logsumexp (with weights b) beside libsoftmax."""
import numpy as np
import scipy
from scipy import special

import libsoftmax
from peers import Difference, Comparison, main

B = np.array([0.5, 2, 0, 1, 3])


def weights(x):
    return np.resize(B, x.shape[-1]).astype(x.dtype)


def weighted(x):
    """b e^x = e^(x + log b); a weight of 0 is a mask."""
    b = weights(x)
    with np.errstate(divide="ignore"):
        return libsoftmax.logsumexp(np.where(b > 0, x + np.log(b), -np.inf).astype(x.dtype))


COMPARISONS = [
    Comparison("softmax", libsoftmax.softmax, lambda x: special.softmax(x, axis=-1)),
    Comparison("softmax along axis 0", lambda x: libsoftmax.softmax(x, axis=0), lambda x: special.softmax(x, axis=0)),
    Comparison("log_softmax", libsoftmax.log_softmax, lambda x: special.log_softmax(x, axis=-1)),
    Comparison("logsumexp", libsoftmax.logsumexp, lambda x: special.logsumexp(x, axis=-1)),
    Comparison("logsumexp, on_inf='limit'", lambda x: libsoftmax.logsumexp(x, on_inf="limit"), lambda x: special.logsumexp(x, axis=-1)),
    Comparison("logsumexp with weights b", weighted, lambda x: special.logsumexp(x, axis=-1, b=weights(x))),
]

DIFFERENCES = [
    Difference(("softmax", "softmax along axis 0", "log_softmax"), ("-inf only",),
               "nothing is valid: weights are 0 and their logarithms -inf; scipy subtracts -inf from -inf and gives NaN"),
    Difference(("log_softmax",), ("+inf once", "+inf twice"),
               "a row with +inf is NaN as a whole; scipy gives NaN where the +inf is and -inf elsewhere"),
    Difference(("logsumexp", "logsumexp with weights b"), ("+inf once", "+inf twice"),
               "a row with +inf is NaN unless on_inf='limit'; scipy always takes the limit"),
    Difference(("softmax", "log_softmax"), ("no elements",), "rows of no elements have results of no elements; scipy refuses them"),
]

if __name__ == "__main__":
    main("scipy %s" % scipy.__version__, COMPARISONS, DIFFERENCES)
