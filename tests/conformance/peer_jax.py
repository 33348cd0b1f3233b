"""jax.nn.softmax and log_softmax, jax.scipy.special.logsumexp, with where= and b=, beside libsoftmax."""
import jax
import numpy as np
from jax.scipy.special import logsumexp

import libsoftmax
from peers import Difference, Comparison, main

jax.config.update("jax_enable_x64", True)


def where(x):
    """Drops every third element of a row, and the second row as a whole."""
    keep = np.broadcast_to(np.arange(x.shape[-1]) % 3 != 1, x.shape).copy()
    keep[1:2] = False
    return keep


def weights(x):
    return np.resize(np.array([0.5, 2, 0, 1, 3]), x.shape[-1]).astype(x.dtype)


def weighted(x):
    """b e^x = e^(x + log b); a weight of 0 is a mask."""
    b = weights(x)
    with np.errstate(divide="ignore"):
        return libsoftmax.logsumexp(np.where(b > 0, x + np.log(b), -np.inf).astype(x.dtype))


def jitted(function, *extra):
    """function(x, extra(x)...) as one program, which compiles faster than its steps do one by one."""
    program = jax.jit(function)
    return lambda x: np.asarray(program(x, *(e(x) for e in extra)))


jax_logsumexp = jitted(lambda x: logsumexp(x, axis=-1))

COMPARISONS = [
    Comparison("softmax", libsoftmax.softmax, jitted(jax.nn.softmax), ("float32", "float64", "float16", "bfloat16")),
    Comparison("log_softmax", libsoftmax.log_softmax, jitted(jax.nn.log_softmax)),
    Comparison("logsumexp", libsoftmax.logsumexp, jax_logsumexp),
    Comparison("logsumexp, on_inf='limit'", lambda x: libsoftmax.logsumexp(x, on_inf="limit"), jax_logsumexp),
    Comparison("softmax with where", lambda x: libsoftmax.masked_softmax(x, where(x)),
            jitted(lambda x, w: jax.nn.softmax(x, where=w), where), ("float32",)),
    Comparison("logsumexp with where", lambda x: libsoftmax.logsumexp(np.where(where(x), x, -np.inf).astype(x.dtype)),
            jitted(lambda x, w: logsumexp(x, axis=-1, where=w), where), ("float32",)),
    Comparison("logsumexp with weights b", weighted, jitted(lambda x, b: logsumexp(x, axis=-1, b=b), weights), ("float32",)),
]

DIFFERENCES = [
    Difference(("softmax", "log_softmax", "softmax with where"), ("-inf only",),
               "nothing is valid: weights are 0 and their logarithms -inf; JAX gives NaN, but 0 where a mask drops everything"),
    Difference(("logsumexp", "logsumexp with where", "logsumexp with weights b"), ("+inf once", "+inf twice"),
               "a row with +inf is NaN unless on_inf='limit'; JAX always takes the limit"),
    Difference(("softmax with where",), ("+inf once", "+inf twice", "NaN"),
               "a row with a NaN, or +inf, that is not masked is NaN as a whole; JAX keeps 0 where the mask drops an element"),
]

if __name__ == "__main__":
    main("jax %s" % jax.__version__, COMPARISONS, DIFFERENCES)
