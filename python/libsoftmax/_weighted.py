"""logsumexp with weights of any sign, as SciPy has it: log |sum b e^x|. Needs NumPy, for the arithmetic
around the operators that do the work: no function of NumPy or of the C library that is free to round as it
likes is used, so that the bits are the same everywhere."""
import math

from . import _arrays

LN2 = math.log(2)


def _log(package, b):
    """The logarithms of numbers from 0 on, in float64: the library has it inside a normal density."""
    import numpy as np
    significand, exponent = np.frexp(b)
    zeros = np.zeros((b.size, 1))
    sigma = np.where((significand > 0) & (b < np.inf), 2 * significand, 1.0)
    density = package.normal_logpdf(zeros, zeros, sigma=sigma.reshape(-1)).reshape(b.shape)
    of_one = float(package.normal_logpdf(np.zeros(1), np.zeros(1), sigma=1.0))
    found = (exponent - 1) * LN2 - (density - of_one)
    return np.where(b > 0, np.where(b < np.inf, found, b), np.where(b == 0, -np.inf, np.nan))


def _row_sums(package, values, weights, axis, shape):
    """The sums of products along the axes, in the order of attention."""
    import numpy as np
    ndim = values.ndim
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = range(ndim) if axis is None else [a % ndim for a in axes]
    order = [d for d in range(ndim) if d not in axes] + sorted(axes)
    rows = math.prod(values.shape[d] for d in order[:ndim - len(axes)])
    values, weights = (a.transpose(order).reshape(rows, 1, 1, -1) for a in (values, weights))
    return package.attention_apply(weights, np.ascontiguousarray(values.transpose(0, 1, 3, 2)),
                                   on_empty="zero").reshape(shape)


def _numpy(x, keep):
    """(x, which elements exist) as arrays of NumPy."""
    import numpy as np
    if isinstance(x, np.ma.MaskedArray):
        return _arrays._apart(x, keep)
    if hasattr(x, "__dlpack__") and not isinstance(x, np.ndarray):
        return np.from_dlpack(x), keep
    return np.asarray(x), keep


def logsumexp(package, plain, x, axis, b, where, keepdims, policies):
    """(logarithm, sign), in float64."""
    import numpy as np
    x, b = np.broadcast_arrays(np.asarray(x, "float64"), np.asarray(1.0 if b is None else b, "float64"))
    where = np.broadcast_to(b != 0 if where is None else (b != 0) & np.asarray(where, bool), x.shape)
    z = np.where(where, x, 0) + _log(package, np.where(where, np.abs(b), 1))
    lse = plain(z, axis=axis, where=where, keepdims=keepdims, **policies)
    on_inf = {k: v for k, v in policies.items() if k == "on_inf"}
    if (where & (b < 0)).any():
        share = _row_sums(package, np.where(where, np.sign(b), 0),
                          package.softmax(z, axis, where=where, **on_inf), axis, lse.shape)
    else:
        share = np.where(lse == -np.inf, 0.0, np.where(np.isnan(lse), np.nan, 1.0))
    lse = np.where(share == 0, -np.inf, lse + np.where(share == 0, 0, _log(package, np.abs(share))))
    return lse, np.sign(share)


def _give(like, found, dtype, out):
    """An array of NumPy as the caller's kind, or in the caller's."""
    import numpy as np
    if out is not None:
        if tuple(out.shape) != found.shape:
            raise ValueError("logsumexp: lse: shape is %r, not %r" % (tuple(out.shape), found.shape))
        np.asarray(out)[...] = found
        return out
    empty, wrap = _arrays.kind(like)
    memory = empty(found.shape, dtype)
    np.asarray(memory)[...] = found
    return wrap(memory) if wrap else memory


def wrap(package, plain):
    """The function of the operator, with b and return_sign."""
    def function(*args, b=None, return_sign=False, **kwargs):
        if b is None and not return_sign:
            return plain(*args, **kwargs)
        import numpy as np
        given = plain.__signature__.bind(*args, **kwargs).arguments
        like, axis, out = given.pop("x"), given.pop("axis", -1), given.pop("out", None)
        x, where = _numpy(like, given.pop("where", None))
        dtype = x.dtype if x.dtype.kind == "f" or x.dtype.name == "bfloat16" else np.dtype("float64")
        keepdims = given.pop("keepdims", False)
        found, sign = logsumexp(package, plain, x, axis, None if b is None else _numpy(b, None)[0], where,
                                keepdims, given)
        if return_sign:
            return _give(like, found, dtype.name, out), _give(like, sign, dtype.name, None)
        return _give(like, np.where(sign < 0, np.nan, found), dtype.name, out)
    return function
