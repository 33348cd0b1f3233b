"""The operators of libsoftmax for JAX: every one that has a gradient, with the arguments it has in libsoftmax (without out=).

    from libsoftmax.jax import softmax
    jax.grad(lambda x: softmax(x)[0, 0])(x)

They run on the host by jax.pure_callback, so under jit and vmap too, and differentiate in reverse mode (custom_vjp), once.
"""
import functools as _functools

import jax as _jax
import jax.numpy as _jnp
import numpy as _np

import libsoftmax as _libsoftmax

from ._autograd import sum_to as _sum_to, wrap as _wrap


def _shape(a):
    """An array without memory of its own, for questions about shapes only."""
    return None if a is None else _np.broadcast_to(_np.zeros((), a.dtype), a.shape)


def _infer(d, arrays, settings):
    """What the outputs that are asked for look like to pure_callback."""
    present = {name: _shape(a) for name, a in zip(d.inputs, arrays) if a is not None}
    found = _libsoftmax.infer(d.op.name, **present, **settings)
    return tuple(_jax.ShapeDtypeStruct(shape, dtype) for (shape, dtype), asked in zip(found, d.asked(settings)) if asked)


def _spread(d, settings, outputs):
    """One entry an output: None for those that were not asked for."""
    outputs = iter(outputs)
    return [next(outputs) if asked else None for asked in d.asked(settings)]


def _on_host(function, result, arrays):
    """function(*arrays) as NumPy arrays on the host. Arrays that are None stay so."""
    def callback(*given):
        given = iter(given)
        return function(*(None if a is None else _np.asarray(next(given)) for a in arrays))
    return _jax.pure_callback(callback, result, *(a for a in arrays if a is not None), vmap_method="sequential")


def _floating(a):
    return a is not None and _jnp.issubdtype(a.dtype, _jnp.floating)


def _run(d, settings, arrays):
    return _on_host(lambda *given: tuple(y for y in d.run(given, settings) if y is not None), _infer(d, arrays, settings), arrays)


def _gradients(d, settings, arrays, outputs, upstream):
    wanted = [i for i, port in enumerate(d.op.inputs) if port.gradient and _floating(arrays[i])]
    result = tuple(_jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in wanted)
    n, m = len(arrays), len(outputs)

    def function(*given):
        found = d.gradients(given[:n], given[n:n + m], given[n + m:], settings, wanted)
        return tuple(_sum_to(g, like.shape).astype(like.dtype) for g, like in zip(found, result))
    found = iter(_on_host(function, result, [*arrays, *outputs, *upstream]))
    return tuple(next(found) if i in wanted else None for i in range(n))


@_functools.lru_cache(maxsize=None)
def _differentiable(d, settings):
    """The custom_vjp function of an operator with these settings; JAX wants the same function for the same settings."""
    settings = dict(settings)

    @_jax.custom_vjp
    def function(*arrays):
        return _run(d, settings, arrays)

    def forward(*arrays):
        outputs = _run(d, settings, arrays)
        return outputs, (arrays, outputs)

    def backward(kept, upstream):
        arrays, outputs = kept[0], _spread(d, settings, kept[1])
        upstream = [g if _floating(y) else None for g, y in zip(_spread(d, settings, upstream), outputs)]
        return _gradients(d, settings, arrays, outputs, upstream)

    function.defvjp(forward, backward)
    return function


def _make(d):
    def function(*args, **kwargs):
        arrays, settings = d.split(args, kwargs, lambda a: isinstance(a, (_jax.Array, _np.ndarray)))
        arrays = [None if a is None else _jnp.asarray(a) for a in arrays]
        return d.give(_spread(d, settings, _differentiable(d, tuple(sorted(settings.items())))(*arrays)))
    return function


_made = _wrap(_make)
globals().update(_made)
__all__ = list(_made)
