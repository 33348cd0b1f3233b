"""jax.nn.softmax and log_softmax, jax.scipy.special.logsumexp, with where= and b=, beside libsoftmax."""
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

import libsoftmax
from opinions import Difference, Opinion, main

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


def plain(function):
    return lambda x: np.asarray(function(jnp.asarray(x)))


OPINIONS = [
    Opinion("softmax", libsoftmax.softmax, plain(jax.nn.softmax), ("float32", "float64", "float16", "bfloat16")),
    Opinion("log_softmax", libsoftmax.log_softmax, plain(jax.nn.log_softmax)),
    Opinion("logsumexp", libsoftmax.logsumexp, plain(lambda x: logsumexp(x, axis=-1))),
    Opinion("logsumexp, on_inf='limit'", lambda x: libsoftmax.logsumexp(x, on_inf="limit"), plain(lambda x: logsumexp(x, axis=-1))),
    Opinion("softmax with where", lambda x: libsoftmax.masked_softmax(x, where(x)), lambda x: np.asarray(jax.nn.softmax(x, where=where(x)))),
    Opinion("logsumexp with where", lambda x: libsoftmax.logsumexp(np.where(where(x), x, -np.inf).astype(x.dtype)),
            lambda x: np.asarray(logsumexp(x, axis=-1, where=where(x)))),
    Opinion("logsumexp with weights b", weighted, lambda x: np.asarray(logsumexp(x, axis=-1, b=weights(x)))),
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
    main("jax %s" % jax.__version__, OPINIONS, DIFFERENCES)
