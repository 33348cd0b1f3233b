"""Attention with automatic gradients: the functions of libsoftmax."""

import torch

from .. import _arrays, _attention as _plain, _core
from .._attention_autograd import ENTRIES, OWN, WHOLE
from . import _eager, _forward, _library

MOST_BATCHES = 4  # axes of batches that a call takes
KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


def _words(params):
    """Parameters of weights as a word, which is what an operator can take."""
    return ";".join(["%s=%s" % (name, value) for name, value in sorted((params or {}).items())])


def _numbers(text):
    def number(value):
        try:
            return float(value)
        except ValueError:
            return value
    return {
        name: number(value) for name, value in (part.split("=") for part in text.split(";") if part)
    } or None


def _pack(entry, settings):
    return [
        _words(settings.get(n)) if n == "params" else type(default)(settings.get(n, default))
        for n, default in entry.settings.items()
    ]


def _unpack(entry, packed):
    return {n: _numbers(value) if n == "params" else value for n, value in zip(entry.settings, packed)}


def _results(entry, made, like):
    made = list(made) if isinstance(made, tuple) else [made]
    return (*made, *(like.new_empty(0) for _ in range(len(entry.results) - len(made))))


def _one(made):
    return made[0] if len(made) == 1 else tuple(made)


def _kernel(entry):
    n = len(entry.tensors)

    def kernel(*args):
        arrays, settings = _library.detached(args[:n]), _unpack(entry, args[n:])
        made = entry.forward(**entry.present(entry.tensors, arrays), **settings, **entry.flagged(settings))
        return _one(_results(entry, made, arrays[0]))
    return kernel


def _real(arrays):
    return torch.float64 if any(a is not None and a.dtype == torch.float64 for a in arrays) else torch.float32


def _fake(entry):
    n = len(entry.tensors)

    def fake(*args):
        first, settings, given = args[0], _unpack(entry, args[n:]), entry.present(entry.tensors, args[:n])
        words = {None: first.dtype, "wide": _real(args[:3]), "int32": torch.int32, "float64": torch.float64}
        made = [
            first.new_empty(0) if s is None else first.new_empty(s[0], dtype=words[s[1]])
            for s in entry.shapes(given, settings)
        ]
        return _one(made)
    return fake


def _setup(entry):
    n = len(entry.tensors)

    def setup(ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.packed = inputs[n:]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(
            *(y for r, y in zip(entry.results, outputs) if r in WHOLE or not y.numel())
        )
        ctx.save_for_backward(*inputs[:n], *outputs)
    return setup


def _backward(entry):
    n, m = len(entry.tensors), len(entry.results)

    def backward(ctx, *upstream):
        saved, found = ctx.saved_tensors, [None] * (n + len(ctx.packed))
        wanted = [
            i for i, name in enumerate(entry.gradients) if ctx.needs_input_grad[entry.tensors.index(name)]
        ]
        given = _upstream(entry, upstream, saved[n])
        if not wanted or not given:
            return tuple(found)
        made = _library.call(
            entry.name + "_backward", *saved[:n], *saved[n : n + m], *given, *ctx.packed, wanted
        )
        for i in wanted:
            like = saved[entry.tensors.index(entry.gradients[i])]
            found[entry.tensors.index(entry.gradients[i])] = _library._autograd.sum_to(
                made[i], like.shape
            ).to(like.dtype)
        return tuple(found)
    return backward


def _split(entry, args):
    n, m = len(entry.tensors), len(entry.results)
    return args[:n], args[n:n + m], args[n + m:n + 2 * m], args[n + 2 * m:-1], args[-1]


def _kernel_backward(entry):
    def kernel(*args):
        arrays, outputs, upstream, packed, wanted = _split(entry, _library.detached_all(args))
        found = iter(entry.gradients_of(arrays, outputs, upstream, _unpack(entry, packed), wanted))
        return _one(
            [next(found) if i in wanted else upstream[0].new_empty(0) for i in range(len(entry.gradients))]
        )
    return kernel


def _fake_backward(entry):
    def fake(*args):
        arrays, _, upstream, packed, wanted = _split(entry, args)
        given, up, made = entry.present(entry.tensors, arrays), upstream[0], []
        for i, name in enumerate(entry.gradients):
            shape, word = entry.gradient_shape(name, given, up) if i in wanted else ((0,), None)
            made.append(
                up.new_empty(
                    shape, dtype=up.dtype if i not in wanted else _real([up]) if word else given[name].dtype
                )
            )
        return _one(made)
    return fake


def _refuse(entry):
    def backward(ctx, *above):
        raise RuntimeError("%s: gradients of gradients are not available" % entry.name)
    return backward


def _in_front(a, dim, own, batch, size):
    """An array with the axis of vmap as the first of its batch, which has all axes. own: how many axes
    are not of the batch; batch: the axes without that of vmap."""
    a = _library.in_front(a, dim, size)
    lead = a.ndim - 1 - own
    a = a.reshape(size, *[1] * (len(batch) - lead), *a.shape[1:])
    return a.expand(size, *batch, *a.shape[a.ndim - own:]) if a.numel() else a


def _own(name):
    """Axes of an array that are not of the batch: of results, and of their gradients, too. None: it has
    no batch."""
    name = name.removeprefix("saved_")
    return OWN.get(name, OWN.get(name[1:]))


def _vmap(entry, name, tensors):
    """vmap: one more axis of the batch, or where there can be none one call after another. tensors: the
    names of the arrays, with those of results and of gradients."""
    count, own = len(tensors), [_own(t) for t in tensors]

    def together(info, in_dims, args):
        given = dict(zip(tensors, args[:count]))
        settings = _unpack(entry, args[count:count + len(entry.settings)])
        ranks = [0 if a is None else a.ndim - (dim is not None) for a, dim in zip(args, in_dims[:count])]
        axes_of_batch = ranks[0] - 3
        apart = any(given.get(n) is not None for n in ("query_offsets", "key_offsets", "block_table"))
        more = any(rank - axes > axes_of_batch for rank, axes in zip(ranks, own) if axes is not None)
        if not 0 <= axes_of_batch < MOST_BATCHES or apart or more or settings.get("dropout"):
            return None
        first = args[0] if in_dims[0] is None else args[0].movedim(in_dims[0], -1)
        batch = first.shape[:axes_of_batch]
        arrays = [
            a if a is None else _in_front(a, dim, axes, batch, info.batch_size)
            for a, dim, axes in zip(args[:count], in_dims, own)
        ]
        return _library.call(name, *arrays, *args[count:])

    def rule(info, in_dims, *args):
        made, size = together(info, in_dims, args), info.batch_size
        if made is None:
            made = _library.one_by_one(name, args[:count], in_dims, args[count:], size)
        else:  # what there is not is empty, once an element
            made = [y if y.ndim > 1 or y.shape[0] else y.new_empty(size, 0) for y in made]
        return _library.in_batches(made)
    return rule


def _register(entry):
    settings = ", ".join(
        "%s %s" % ("str" if n == "params" else KINDS[type(default)], n)
        for n, default in entry.settings.items()
    )
    tensors = ["Tensor%s %s" % ("" if n in entry.required else "?", n) for n in entry.tensors]
    _library._define(
        entry.name,
        tensors,
        settings,
        len(entry.results),
        _kernel(entry),
        _fake(entry),
        _setup(entry),
        _backward(entry),
        _vmap(entry, entry.name, entry.tensors),
        _forward.refused(entry.name),
    )
    names = [*("saved_" + r for r in entry.results), *("d" + r for r in entry.results)]
    more = ["Tensor? " + n for n in names]
    _library._define(
        entry.name + "_backward",
        [*tensors, *more],
        settings + ", int[] wanted",
        len(entry.gradients),
        _kernel_backward(entry),
        _fake_backward(entry),
        lambda ctx, inputs, output: None,
        _refuse(entry),
        _vmap(entry, entry.name + "_backward", [*entry.tensors, *names]),
        _forward.refused(entry.name),
    )


class _Function(torch.autograd.Function):
    """The same without a detour, for plain tensors outside of torch.compile and the like."""

    @staticmethod
    def forward(ctx, entry, settings, *arrays):
        plain = _library.detached(arrays)
        made = entry.forward(**entry.present(entry.tensors, plain), **settings, **entry.flagged(settings))
        outputs = made if isinstance(made, tuple) else (made,)
        ctx.set_materialize_grads(False)
        ctx.entry, ctx.settings = entry, settings
        ctx.mark_non_differentiable(*(y for r, y in zip(entry.results, outputs) if r in WHOLE))
        ctx.save_for_backward(*arrays, *outputs)
        return outputs

    @staticmethod
    def backward(ctx, *upstream):
        entry, n = ctx.entry, len(ctx.entry.tensors)
        if torch.is_grad_enabled():
            _refuse(entry)(ctx, *upstream)
        saved = _library.detached(ctx.saved_tensors)
        arrays, outputs, found = saved[:n], saved[n:], [None] * n
        at = [entry.tensors.index(name) for name in entry.gradients]
        wanted = [i for i, place in enumerate(at) if ctx.needs_input_grad[2 + place]]
        given = _upstream(entry, upstream, outputs[0])
        if wanted and given:
            for i, g in zip(wanted, _gradients(entry, arrays, outputs, given, ctx.settings, wanted)):
                like = arrays[at[i]]
                found[at[i]] = _library._autograd.sum_to(g, like.shape).to(like.dtype)
        return (None, None, *found)


def _gradients(entry, arrays, outputs, given, settings, wanted):
    """Those that are wanted. By the operator under vmap over torch.autograd.grad."""
    if _eager._opens(given):
        return entry.gradients_of(arrays, outputs, _library.detached(given), settings, wanted)
    room = [None] * (len(entry.results) - len(outputs))
    made = _library.call(
        entry.name + "_backward", *arrays, *outputs, *room, *given, *room, *_pack(entry, settings), wanted
    )
    return [made[i] for i in wanted]


def _upstream(entry, upstream, o):
    """The upstream gradients that count, that of the first result always; None if there are none."""
    given = [
        g.resolve_neg() if g is not None and f"d{r}" in entry.given_back else None
        for r, g in zip(entry.results, upstream)
    ]
    if all(g is None for g in given):
        return None
    return [torch.zeros_like(o) if given[0] is None else given[0], *given[1:]]


# ---- plans, as of _eager.py ----


class Back:
    """The long way back of calls of one form. there: the numbers of the tensors that there are;
    wanted: those of the gradients; places: of each gradient among the tensors that there are, -1: none.
    (It knows nothing of the torch.autograd.Function that has it, or both would live for ever.)"""

    def __init__(self, entry, settings, there, wanted, places):
        self.entry, self.settings, self.there, self.wanted, self.places = entry, settings, there, wanted, places

    def backward(self, ctx, upstream):
        entry, saved, count = self.entry, _library.detached(ctx.saved_tensors), len(self.there)
        if torch.is_grad_enabled():
            _refuse(entry)(ctx, upstream)
        arrays, found = [None] * len(entry.tensors), [None] * count
        for i, a in zip(self.there, saved):
            arrays[i] = a
        given = [upstream.resolve_neg(), *[None] * (len(entry.results) - 1)]
        made = _gradients(entry, arrays, saved[count:], given, self.settings, self.wanted)
        for i, g in zip(self.wanted, made):
            found[self.places[i]] = g
        return (None, *found)


def _prepare(name, settings, names, handed):
    return _core.prepare_attention(name, _plain._weights(name, settings), names, handed)


class Recorded:
    """What calls of attention of one form that want gradients have in common."""

    def __init__(self, entry, settings, there, needs):
        self.entry, self.settings, self.there = entry, settings, there
        names = tuple(entry.tensors[i] for i in there)
        wanted = [i for i, n in enumerate(entry.gradients) if needs[entry.tensors.index(n)]]
        at = tuple(names.index(n) if n in names else -1 for n in entry.gradients)
        saved = entry.saved if entry.flagged(settings) else ()
        words = {**entry.settings, **settings, **{"return_" + r: True for r in saved[1:]}}
        forward = _prepare(entry.name, words, names, -1 if saved else 1)
        words.update(("d" + entry.gradients[i], True) for i in wanted)
        back = _prepare(entry.name + "_backward", words, ("d" + entry.results[0], *names, *saved), -1)
        self.apply, self.plan = _eager.planned(
            entry.name, forward, back, len(names), 0, tuple(range(len(names))), tuple(range(len(saved))),
            at[:wanted[-1] + 1], Back(entry, settings, there, wanted, at),
        )


def _recorded(plan, *tensors):
    q, k, v = tensors[:3]
    if q.ndim == k.ndim == v.ndim == 4 and q.shape[0] == k.shape[0] == v.shape[0]:
        return plan.apply(plan.plan, *tensors)
    entry, arrays = plan.entry, dict(zip(plan.there, tensors))
    arrays = entry.spread([arrays.get(i) for i in range(len(entry.tensors))], torch.Tensor.expand)
    return _Function.apply(entry, plan.settings, *arrays)[0]


def _route(entry, arrays, settings, needs):
    """What calls of attention of this form are to do, as of _eager.py. Of them o alone is asked."""
    there = [i for i, a in enumerate(arrays) if a is not None]
    if any(needs):
        return None, _recorded, Recorded(entry, settings, there, needs)
    names = tuple(entry.tensors[i] for i in there)
    return _prepare(entry.name, {**entry.settings, **settings}, names, 1), None, None


def call(entry, arrays, settings, asked, known, args, kwargs, read, wrap=None):
    """A call whose arguments are read, and are kept as a form where that can be. known, args, kwargs,
    read: as of _eager.py. wrap(route): what calls of the same form are to do."""
    entry.check_asked(asked, settings)
    needs = [False] * len(arrays)
    if torch.is_grad_enabled():
        needs = [a is not None and a.requires_grad for a in arrays]
    if any(needs):
        entry.check(settings, arrays, lambda a: a.requires_grad)
    if not _eager.plain(arrays):
        spread = entry.spread(arrays, torch.Tensor.expand)
        return entry.give(_library.call(entry.name, *spread, *_pack(entry, settings)), asked, settings)
    tensors = [a for a in arrays if a is not None]
    if entry.name == "attention" and known is not None and not any(asked):
        found = _eager.places(args, kwargs, read, tensors)
        if found is not None:
            route = _route(entry, arrays, settings, needs)
            _eager.learn(known, args, kwargs, found, wrap(route) if wrap else route)
            return _eager.perform(route, tensors)
    if any(needs):
        made = _Function.apply(entry, settings, *entry.spread(arrays, torch.Tensor.expand))
        return entry.give(made, asked, settings)
    flags = {"return_" + r: True for r, a in zip(entry.results, asked) if a}
    return entry.forward(**entry.present(entry.tensors, _library.detached(arrays)), **settings, **flags)


def _make(entry):
    known = _core.forms()

    def read(args, kwargs):
        return entry.bind(args, kwargs, _tensor)[0]

    def function(*args, **kwargs):
        if not _eager.dynamo():
            made = known(*args, **kwargs)
            if made is not None:
                return made
        arrays, settings, asked = entry.bind(args, kwargs, _tensor)

        return call(entry, arrays, settings, asked, known, args, kwargs, read)
    function.__name__ = function.__qualname__ = entry.name
    function.__doc__, function.__signature__ = entry.forward.__doc__, entry.signature
    return function


def _tensor(value):
    value = value if isinstance(value, torch.Tensor) else torch.as_tensor(_arrays.unmasked(value))
    return (value.long() if value.dtype in (torch.int8, torch.int16) else value).resolve_neg()


FUNCTIONS = {}
for _entry in ENTRIES.values():
    _register(_entry)
    FUNCTIONS[_entry.name] = _make(_entry)
globals().update(FUNCTIONS)

__all__ = [*FUNCTIONS]
