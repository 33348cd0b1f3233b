"""The operators of libsoftmax for JAX: every one that has a gradient, with the arguments it has in
libsoftmax (without out=).

    from libsoftmax.jax import softmax, cross_entropy
    jax.grad(lambda x: cross_entropy(x, classes, reduction="mean"))(x)

Attention, with its gradients, is here too: attention, attention_parallax, attention_local_linear,
attention_additive, attention_tropical, rope.

On the CPU programs call them directly (jax.ffi), elsewhere by jax.pure_callback; they work under jit
and vmap, and differentiate in reverse mode (custom_vjp), once: gradients of gradients are an error.
A loss gives that of every row, or with reduction= the value for all rows. Where there is no gradient,
asking for it is an error."""

import functools as _functools
import json as _json

import jax as _jax
import jax.numpy as _jnp
import numpy as _np

from . import _attention as _plain_attention, _autograd as _shared, _core, _functions
from ._attention_autograd import ENTRIES as _ENTRIES, WHOLE as _WHOLE

_FRAME = _shared.Frame(
    _np.float64,
    lambda value, shape, like: _np.broadcast_to(
        _np.asarray(value, "f8" if like.dtype == "f8" else "f4"), shape
    ),
    lambda n, like: _np.arange(n),
)


def _shape(a):
    """An array without memory of its own, for questions about shapes only."""
    return None if a is None else _np.broadcast_to(_np.zeros((), a.dtype), a.shape)


def _infer(d, arrays, settings, dtype):
    """What the outputs that are asked for look like to pure_callback. dtype: of those that are
    floating and no gradient, None for their own."""
    found = d.infer([_shape(a) for a in arrays], settings)
    return tuple(
        _jax.ShapeDtypeStruct(shape, own if dtype is None or p.integer or p.dx else dtype)
        for (shape, own), p, asked in zip(found, d.op.outputs, d.asked(settings))
        if asked
    )


def _spread(d, settings, outputs):
    """One entry an output: None for those that were not asked for."""
    outputs = iter(outputs)
    return [next(outputs) if asked else None for asked in d.asked(settings)]


# ---- calls out of a compiled program ----
#
# A call is a text, since a program may outlive the process that compiled it: its kind, a name,
# settings, whatever else the kind needs, and which of its arrays there are.


def _on_host(kind, name, settings, more, result, arrays, batch="sequential"):
    """The results of a call of _KINDS. Arrays that are None stay so. batch: what vmap does."""
    given = [a for a in arrays if a is not None]
    call = [kind, name, settings, more, [a is not None for a in arrays]]
    text = _json.dumps(call, default=lambda number: number.item())
    if not result:
        return ()
    if _direct():
        return tuple(_jax.ffi.ffi_call(_TARGET, result, vmap_method=batch)(*given, call=text))

    def callback(*given):
        made = tuple(_np.empty(r.shape, r.dtype) for r in result)
        _decoded(text)([_np.asarray(a) for a in given], made)
        return made
    return _jax.pure_callback(callback, result, *given, vmap_method="sequential")


_TARGET = "libsoftmax"


@_functools.lru_cache(maxsize=None)
def _registered():
    """Whether this JAX can call _core. Others get callbacks."""
    try:
        _jax.ffi.register_ffi_target(_TARGET, _core.xla(), platform="cpu")
    except Exception:  # whatever another version has to say
        return False
    return True


def _direct():
    return _jax.default_backend() == "cpu" and _registered()


_dtype = _functools.lru_cache(maxsize=None)(_jnp.dtype)


def _from_xla(text, given, made):
    """What _core calls. given, made: (memory, name of the dtype, shape)."""
    def arrays(described):
        return [_np.ndarray(shape, _dtype(name), memory) for memory, name, shape in described]
    _decoded(text)(arrays(given), arrays(made))


@_functools.lru_cache(maxsize=4096)
def _decoded(text):
    """function(arrays, results to be filled) of a call."""
    kind, name, settings, more, there = _json.loads(text)
    settings = {n: tuple(value) if isinstance(value, list) else value for n, value in settings.items()}
    function = _KINDS[kind](name, settings, more)

    def call(given, made):
        given = iter(given)
        function([next(given) if t else None for t in there], made)
    return call


def _fill(made, found):
    for y, g in zip(made, found):
        if g is not y:
            y[...] = _shared.sum_to(g, y.shape)


# ---- operators ----


def _forward(name, settings, more):
    d = _OPERATORS[name]
    asked = d.asked(settings)

    def function(arrays, made):
        made = iter(made)
        out = tuple(next(made) if a else None for a in asked)
        d.run(arrays, settings, out=out if len(out) > 1 else out[0])
    return function


def _backward(name, settings, wanted):
    d = _OPERATORS[name]
    n, m = len(d.inputs), len(d.outputs)

    def function(arrays, made):
        out = {"out": tuple(made)} if wanted == [0] else {}  # others may have been broadcast
        _fill(made, d.gradients(arrays[:n], arrays[n:n + m], arrays[n + m:], settings, wanted, _FRAME, **out))
    return function


def _floating(a):
    return a is not None and _jnp.issubdtype(a.dtype, _jnp.floating)


def _batched(d, settings, arrays):
    """(settings, what vmap does): one call with an axis in front of all arrays where rows stay rows,
    and nothing depends on which of them they are; else a call for each element of the batch."""
    x, axis = arrays[0], settings.get("axis", -1)
    asked = [p for p, there in zip(d.op.outputs, d.asked(settings)) if there]
    whole = any(p.dx or p.shape == _shared.SCALAR for p in asked)
    ranks = {_shared.FULL: x.ndim, _shared.ROW: x.ndim - 1}
    if (
        not d.op.rows or whole or "seed" in d.params or not isinstance(axis, int)
        or not -x.ndim <= axis < x.ndim
        or any(a is not None and ranks.get(p.shape) != a.ndim for p, a in zip(d.op.inputs, arrays))
    ):
        return settings, "sequential"
    return {**settings, "axis": axis - x.ndim if axis >= 0 else axis}, "broadcast_all"


def _run(d, settings, dtype, arrays):
    result = _infer(d, arrays, settings, dtype)
    settings, batch = _batched(d, settings, arrays)
    return _on_host("forward", d.name, settings, None, result, arrays, batch)


_STOPPED = "jax.lax.stop_gradient(%s)"  # what to give where there is no gradient


def _moves(a):
    """Whether a gradient of this argument of a forward rule is asked for."""
    return a is not None and a.perturbed and _floating(a.value)


def _values(arguments):
    return [a if a is None else a.value for a in arguments]


def _noted(wanted):
    """Numbers as what a forward rule may leave to the backward rule: a structure without arrays."""
    return tuple(() if i in wanted else None for i in range(max(wanted, default=-1) + 1))


def _wanted(noted):
    return [i for i, mark in enumerate(noted) if mark is not None]


def _cotangents(outputs, upstream):
    """Upstream gradients, None of what has none."""
    zero = _jax.custom_derivatives.SymbolicZero
    return [g if _floating(y) and not isinstance(g, zero) else None for g, y in zip(upstream, outputs)]


def _gradients(d, settings, arrays, outputs, upstream, wanted):
    result = tuple(_jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in wanted)
    settings, batch = _batched(d, settings, arrays)
    all_arrays = [*arrays, *outputs, *upstream]
    found = iter(_on_host("backward", d.name, settings, wanted, result, all_arrays, batch))
    return tuple(next(found) if i in wanted else None for i in range(len(arrays)))


@_functools.lru_cache(maxsize=None)
def _differentiable(d, settings, dtype):
    """The custom_vjp function of an operator with these settings; JAX wants the same function for
    the same settings."""
    settings = dict(settings)

    @_jax.custom_vjp
    def function(*arrays):
        return _run(d, settings, dtype, arrays)

    def forward(*arguments):
        wanted = [i for i, a in enumerate(arguments) if _moves(a)]
        for i in wanted:
            if not d.may_have_gradient(i):
                d.refuse(d.inputs[i], _STOPPED)
        arrays = _values(arguments)
        outputs = _run(d, settings, dtype, arrays)
        return outputs, (arrays, outputs, _noted(wanted))

    def backward(kept, upstream):
        arrays, outputs, wanted = kept[0], _spread(d, settings, kept[1]), _wanted(kept[2])
        upstream = _cotangents(outputs, _spread(d, settings, upstream))
        return _gradients(d, settings, arrays, outputs, upstream, wanted)

    function.defvjp(forward, backward, symbolic_zeros=True)
    return function


def _hidden(d, x, where):
    """x, -inf where an element does not exist."""
    where = _jnp.asarray(where)
    if where.dtype not in ("bool", "uint8"):
        raise TypeError("%s: where: dtype is %s, not bool or uint8" % (d.name, where.dtype))
    fits = all(n in (1, whole) for n, whole in zip(where.shape[::-1], x.shape[::-1]))
    if where.ndim > x.ndim or not fits:
        raise ValueError(
            "%s: where: shape is %s, which does not broadcast to %s" % (d.name, where.shape, x.shape)
        )
    return _jnp.where(where != 0, x, -_jnp.inf)


def _make(d):
    masked = d.op.name in _functions.WHERE

    def function(*args, dtype=None, **kwargs):
        where = kwargs.pop("where", None) if masked else None
        given, settings = d.split(d.bind(args, kwargs), _jnp.asarray)
        if where is not None:
            given[0] = _hidden(d, given[0], where)
        dtype = None if dtype is None else _jnp.dtype(dtype).name
        if dtype == "float64":  # the arithmetic is that of the scores
            given[0] = given[0].astype(dtype)
        elif dtype not in (None, "float32", "float16", "bfloat16"):
            raise TypeError("%s: dtype: %s is none of float16, bfloat16, float32, float64" % (d.name, dtype))
        asked = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in d.ask(settings).items()
        }
        outputs = _spread(d, asked, _differentiable(d, tuple(sorted(asked.items())), dtype)(*given))
        outputs = [
            y if y is None or i in d.differentiable else _jax.lax.stop_gradient(y)
            for i, y in enumerate(outputs)
        ]
        return d.give(outputs, settings)
    return _shared.dress(function, d, _functions.signature(_functions.framework_arguments(d.op, "jax")))


# ---- attention ----


def _struct(entry, found, given, like):
    words = {
        None: like.dtype,
        "int32": "int32",
        "float64": "float64",
        "wide": _real(given.values()),
        "real": _real([like]),
    }
    return _jax.ShapeDtypeStruct(tuple(found[0]), words[found[1]])


def _real(arrays):
    return "float64" if any(a.dtype == "float64" for a in arrays) else "float32"


def _attend(name, settings, more):
    entry = _ENTRIES[name]

    def function(arrays, made):
        found = entry.forward(**entry.present(entry.tensors, arrays), **settings, **entry.flagged(settings))
        _fill(made, found if isinstance(found, tuple) else (found,))
    return function


def _attend_backward(name, settings, wanted):
    entry = _ENTRIES[name]
    n, m = len(entry.tensors), 1 + len(entry.flagged(settings))

    def function(arrays, made):
        _fill(made, entry.gradients_of(arrays[:n], arrays[n:n + m], arrays[n + m:], settings, wanted))
    return function


@_functools.lru_cache(maxsize=None)
def _attention(entry, settings):
    """The custom_vjp function of an entry of attention with these settings."""
    settings = {name: dict(value) if name == "params" else value for name, value in settings}

    @_jax.custom_vjp
    def function(*arrays):
        given = entry.present(entry.tensors, arrays)
        result = tuple(_struct(entry, s, given, arrays[0]) for s in entry.shapes(given, settings) if s)
        return _on_host("attention", entry.name, settings, None, result, arrays)

    def forward(*arguments):
        entry.check(settings, arguments, _moves, _STOPPED)
        moved = {name for name, a in zip(entry.tensors, arguments) if _moves(a)}
        wanted = [i for i, name in enumerate(entry.gradients) if name in moved]
        arrays = _values(arguments)
        outputs = function(*arrays)
        return outputs, (arrays, outputs, _noted(wanted))

    def backward(kept, upstream):
        arrays, outputs, wanted = kept[0], kept[1], _wanted(kept[2])
        given = entry.present(entry.tensors, arrays)
        upstream = [
            g if "d" + r in entry.given_back else None
            for g, r in zip(_cotangents(outputs, upstream), entry.results)
        ]
        if upstream[0] is None:
            upstream[0] = _jnp.zeros(outputs[0].shape, outputs[0].dtype)
        names = [entry.gradients[i] for i in wanted]
        result = tuple(_struct(entry, (given[n].shape, None), given, given[n]) for n in names)
        all_arrays = [*arrays, *outputs, *upstream]
        made = _on_host("attention_backward", entry.name, settings, wanted, result, all_arrays)
        found = dict(zip(names, made))
        return tuple(found.get(name) for name in entry.tensors)

    function.defvjp(forward, backward, symbolic_zeros=True)
    return function


def _make_attention(entry):
    def function(*args, **kwargs):
        arrays, settings, asked = entry.bind(args, kwargs, _jnp.asarray)
        arrays = entry.spread(arrays, _jnp.broadcast_to)
        settings = {
            name: tuple(sorted(value.items())) if name == "params" else value
            for name, value in settings.items()
        }
        outputs = _attention(entry, tuple(sorted(settings.items())))(*arrays)
        outputs = [_jax.lax.stop_gradient(y) if r in _WHOLE else y for y, r in zip(outputs, entry.results)]
        return entry.give(outputs, asked, settings)
    function.__name__ = function.__qualname__ = entry.name
    function.__doc__, function.__signature__ = entry.forward.__doc__, entry.signature
    return function


_KINDS = {
    "forward": _forward,
    "backward": _backward,
    "attention": _attend,
    "attention_backward": _attend_backward,
}
_OPERATORS = _shared.operators()
_made = {name: _make(d) for name, d in _OPERATORS.items()} | {
    name: _make_attention(entry) for name, entry in _ENTRIES.items()
}
globals().update(_made)
__all__ = list(_made)
