"""The operators as operators of torch.library: what torch.compile, torch.export, vmap and fake
tensors see.

Every operator NAME is torch.ops.libsoftmax.NAME(inputs ..., settings ...) with all outputs, empty
ones for those that are not asked for, and NAME_backward its gradient with respect to all inputs
that have one."""

import torch

from .. import _autograd
from .._autograd import FULL, K, ROW, SCALAR, row_axes, row_shape, shapes_of
from . import _double

LIBRARY = torch.library.Library("libsoftmax", "DEF")
SETTINGS = "float[] params, int[] axis, bool keepdims, str on_empty, str on_inf"
FRAME = _autograd.Frame(lambda a: a.double(),
                        lambda value, shape, like: _full(value, shape, like),
                        lambda n, like: torch.arange(n, device=like.device))


def _full(value, shape, like):
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return (
        value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype)
    ).expand(shape)


# ---- settings: words and names for the functions of the package, numbers for torch.library ----


def pack(d, settings):
    """(params, axis, keepdims, on_empty, on_inf) of the settings of a call."""
    params = []
    for name, p in d.params.items():
        value = settings.get(name, p.default)
        if isinstance(value, str):
            if not p.choices or value not in p.choices:
                raise ValueError(
                    "%s: %s: %r is not one of %s"
                    % (d.name, name, value, ", ".join(p.choices or ("a number",)))
                )
            value = p.choices.index(value)
        params.append(float(value))
    axis = settings.get("axis", -1)
    axis = [] if axis is None else list(axis) if isinstance(axis, (tuple, list)) else [axis]
    return (
        params,
        axis,
        bool(settings.get("keepdims", False)),
        settings.get("on_empty", "zero"),
        settings.get("on_inf", "nan"),
    )


def unpack(d, arrays, params, axis, keepdims, on_empty, on_inf):
    given = {name for name, a in zip(d.inputs, arrays) if a is not None}
    settings = {name: value for name, value in zip(d.params, params) if name not in given}
    settings.update(on_empty=on_empty, on_inf=on_inf)
    if "axis" in d.names:
        settings["axis"] = None if not axis else axis[0] if len(axis) == 1 else tuple(axis)
    if keepdims and "keepdims" in d.names:
        settings["keepdims"] = True
    return settings


def ask(d, settings, asked):
    return {
        **settings,
        **{flag: True for i, flag in enumerate(d.flags) if i in asked and d.op.outputs[i].optional},
    }


# ---- shapes ----


def _shape_of(rule, shape, settings, k):
    if rule == SCALAR:
        return ()
    if rule == ROW:
        return row_shape(shape, settings)
    if rule == K and k:
        axes = row_axes(len(shape), settings)
        return (
            tuple(k if d == axes[0] else n for d, n in enumerate(shape))
            if len(axes) == 1
            else (*row_shape(shape, settings), k)
        )
    return tuple(shape)


def dtypes_of(d, x, dtype):
    """The dtype of every output. dtype: of the floating ones that are no gradient, None for that of
    x."""
    own = [
        torch.int64 if p.integer else dtype if dtype is not None and not p.dx else x.dtype
        for p in d.op.outputs
    ]
    return [torch.float32 if p.state and kind.itemsize < 4 else kind for p, kind in zip(d.op.outputs, own)]


def layout_of(d, x, settings):
    """What torch.empty() takes for a result: windows of [N, C, ...] have that of x, if its channels come last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    windows = d.op.inputs[0].dims == "... s*" and settings.get("spatial", 2) == x.ndim - 2
    if windows and last and x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return {"memory_format": last}
    return {}


def _fake(d):
    def fake(*args):
        arrays, (*packed, asked, dtype) = args[:len(d.inputs)], args[len(d.inputs):]
        x, settings = arrays[0], unpack(d, arrays, *packed)
        if not d.op.rows:
            shapes, layout = d.shapes(arrays, settings), layout_of(d, x, settings)
            made = [torch.empty(shape, dtype=kind, device=x.device, **layout) if i in asked else x.new_empty(0, dtype=kind)
                    for i, (shape, kind) in enumerate(zip(shapes, dtypes_of(d, x, dtype)))]
            return made[0] if len(made) == 1 else tuple(made)
        k = int(settings.get("k", 0))
        if not k:
            k = next(
                (
                    a.shape[row_axes(a.ndim, settings)[0]]
                    for a, p in zip(arrays, d.op.inputs)
                    if p.shape == K and a is not None
                ),
                0,
            )
        made = [x.new_empty(_shape_of(p.shape, x.shape, settings, k) if i in asked else (0,), dtype=kind)
                for i, (p, kind) in enumerate(zip(d.op.outputs, dtypes_of(d, x, dtype)))]
        return made[0] if len(made) == 1 else tuple(made)
    return fake


# ---- forward ----


def run(d, arrays, settings, dtype=None, dx=None):
    """The outputs of a call, in the dtype that is asked for. dx: where the gradient of a loss goes."""
    x = arrays[0]
    if dx is None and (dtype is None or dtype == x.dtype):
        return d.run(arrays, settings)
    asked = d.asked(settings)
    shapes, layout = d.infer(arrays, settings), layout_of(d, x, settings)
    made = [
        torch.empty(shape, dtype=kind, **layout) if a and (i != d.dx or dx is None) else None
        for i, ((shape, _), kind, a) in enumerate(zip(shapes, dtypes_of(d, x, dtype), asked))
    ]
    if dx is not None:
        made[d.dx] = dx
    return d.run(arrays, settings, out=made[0] if len(made) == 1 else tuple(made))


def _kernel(d):
    def kernel(*args):
        arrays, (*packed, asked, dtype) = detached(args[:len(d.inputs)]), args[len(d.inputs):]
        outputs = run(d, arrays, ask(d, unpack(d, arrays, *packed), asked), dtype)
        outputs = [y if i in asked else arrays[0].new_empty(0, dtype=kind)
                   for i, (y, kind) in enumerate(zip(outputs, dtypes_of(d, arrays[0], dtype)))]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)
    return kernel


def detached(tensors):
    return [t if t is None or not t.requires_grad else t.detach() for t in tensors]


def _setup(d):
    n = len(d.inputs)

    def setup(ctx, inputs, output):
        outputs = output if isinstance(output, tuple) else (output,)
        asked = inputs[-2]
        ctx.packed, ctx.asked = inputs[n:-2], asked
        ctx.shapes = shapes_of(inputs[:n])
        ctx.dtypes = [None if a is None else a.dtype for a in inputs[:n]]
        ctx.mark_non_differentiable(*(y for i, y in enumerate(outputs) if i not in d.differentiable))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(a if p.saved else None for p, a in zip(d.op.inputs, inputs)),
                              *(y if p.saved and i in asked else None for i, (p, y) in enumerate(zip(d.op.outputs, outputs))))
        if transformed():
            ctx.save_for_forward(*inputs[:n], *outputs)
    return setup


def _backward(d):
    n = len(d.inputs)

    def backward(ctx, *upstream):
        saved = ctx.saved_tensors
        given = [g if g is not None and i in ctx.asked else None for i, g in enumerate(upstream)]
        settings = unpack(d, [None if s is None else () for s in ctx.shapes], *ctx.packed)
        needed = [bool(needs) for needs in ctx.needs_input_grad[:n]]
        found = gradients(d, saved[:n], saved[n:], given, settings, needed, ctx.shapes, ctx.dtypes)
        return (*found, *(None for _ in range(len(ctx.needs_input_grad) - n)))
    return backward


def gradients(d, arrays, outputs, upstream, settings, needed, shapes, dtypes):
    """The gradient of every input that needs one, None for the others: by the operator, which can
    be traced and differentiated again."""
    found = [None] * len(d.inputs)
    if all(g is None for g in upstream):
        return found
    upstream = d.upstream_of_rows(arrays, outputs, upstream, settings, FRAME)
    wanted = [i for i in d.wanted if needed[i]]
    if wanted:
        made = call(
            d.name + "_backward",
            *arrays,
            *outputs,
            *(upstream[i] for i in d.upstream),
            *pack(d, settings),
            wanted,
        )
        for i in wanted:
            g = made[d.wanted.index(i)]
            found[i] = (g if shapes[i] is None else _autograd.sum_to(g, shapes[i])).to(dtypes[i])
    return found


# ---- the gradient, an operator too ----


def split_backward(d, args):
    """(inputs, outputs, upstream: one an output, settings, wanted) of a call of NAME_backward."""
    n, m, u = len(d.inputs), len(d.outputs), len(d.upstream)
    arrays, outputs, given = args[:n], args[n:n + m], iter(args[n + m:n + m + u])
    upstream = [next(given) if i in d.upstream else None for i in range(m)]
    (*packed, wanted) = args[n + m + u:]
    return arrays, outputs, upstream, packed, wanted


def _full_shape(d, arrays, upstream):
    return arrays[0].shape if arrays[0] is not None else upstream[0].shape


def _fake_backward(d):
    def fake(*args):
        arrays, outputs, upstream, packed, wanted = split_backward(d, args)
        settings, full, made = unpack(d, arrays, *packed), _full_shape(d, arrays, upstream), []
        for i in d.wanted:
            rule, own = (FULL if i == 0 else d.op.inputs[i].shape), arrays[i]
            by_row = d.op.rows and rule in (FULL, ROW)
            shape = _shape_of(rule, full, settings, 0) if by_row else (0,) if own is None else own.shape
            dtype = upstream[0].dtype if own is None else own.dtype
            made.append(upstream[0].new_empty(shape if i in wanted else (0,), dtype=dtype))
        return made[0] if len(made) == 1 else tuple(made)
    return fake


def _kernel_backward(d):
    def kernel(*args):
        arrays, outputs, upstream, packed, wanted = split_backward(d, detached_all(args))
        found = iter(d.gradients(arrays, outputs, upstream, unpack(d, arrays, *packed), wanted, FRAME))
        made = [next(found) if i in wanted else upstream[0].new_empty(0) for i in d.wanted]
        return made[0] if len(made) == 1 else tuple(made)
    return kernel


def detached_all(args):
    return [a.detach() if isinstance(a, torch.Tensor) and a.requires_grad else a for a in args]


def _setup_again(d):
    def setup(ctx, inputs, output):
        tensors = [a for a in inputs if isinstance(a, torch.Tensor) or a is None]
        ctx.others = inputs[len(tensors):]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        if transformed():
            ctx.save_for_forward(*tensors)
    return setup


def refuse_again(name):
    raise RuntimeError("%s: gradients of gradients are not available" % name)


def _backward_again(d):
    def backward(ctx, *above):
        saved = ctx.saved_tensors
        count = len(saved)
        moved = [i for i in range(count) if ctx.needs_input_grad[i]]

        formula = _double.formula(d, saved, moved, ctx.others, refuse_again)
        wanted = ctx.others[-1]
        primal, pull = torch.func.vjp(formula, *(saved[i] for i in moved))
        above = [above[d.wanted.index(i)] for i in wanted]
        pulled = iter(
            pull(
                tuple(
                    torch.zeros_like(y) if g is None else g.to(y.dtype).reshape(y.shape)
                    for g, y in zip(above, primal)
                )
            )
        )
        return tuple(next(pulled) if i in moved else None for i in range(count + len(ctx.others)))
    return backward


# ---- vmap ----


def in_front(a, dim, size):
    """The array with the axis of the batch in front."""
    return a.unsqueeze(0).expand(size, *a.shape) if dim is None else a.movedim(dim, 0)


def one_by_one(name, tensors, dims, others, size):
    """The results of a call for each element of the batch, with its axis in front."""
    calls = [
        call(
            name,
            *(a if dim is None or a is None else a.select(dim, b) for a, dim in zip(tensors, dims)),
            *others,
        )
        for b in range(size)
    ]
    return [torch.stack(y) for y in zip(*calls)]


def in_batches(made):
    """What a rule of vmap gives, for results with the axis of the batch in front."""
    return (made[0], 0) if len(made) == 1 else (tuple(made), (0,) * len(made))


def _front(a, dim, port, full_ndim, axes, size):
    """The same, with the dimensions that broadcasting would put in front."""
    a = in_front(a, dim, size)
    ndim = full_ndim - axes * (port.shape == ROW)
    missing = ndim + 1 - a.ndim
    return a.reshape(a.shape[0], *([1] * missing), *a.shape[1:]) if missing > 0 else a


def _together(d, ports, dims, packed, rows_only):
    """Whether one call can take the whole batch: rows stay rows."""
    return rows_only and packed[1] and len(packed[1]) == 1 and all(
        dim is None or p.shape in (FULL, ROW, K) for p, dim in zip(ports, dims))


def _vmapped(d, name, ports, full, rows_only):
    """ports: of the tensors among the arguments. full(tensors): one that has the shape of x.
    rows_only(others): whether no result is for all rows."""
    count = len(ports)

    def rule(info, in_dims, *args):
        tensors, others, dims = args[:count], list(args[count:]), in_dims[:count]
        if _together(d, ports, dims, others, rows_only(others)):
            at = full(tensors)
            ndim = tensors[at].ndim - (dims[at] is not None)
            settings_axis = others[1][0]
            others[1] = [settings_axis + 1 if settings_axis >= 0 else settings_axis]
            keep = bool(others[2])
            moved = [
                (
                    a
                    if a is None or p.shape not in (FULL, ROW, K)
                    else _front(
                        a,
                        dim,
                        p,
                        ndim,
                        0 if keep and a.ndim - (dim is not None) == ndim else 1,
                        info.batch_size,
                    )
                )
                for a, p, dim in zip(tensors, ports, dims)
            ]
            made = call(name, *moved, *others)
            made = [
                y if y.ndim and y.shape[0] == info.batch_size else y.new_empty(info.batch_size, 0)
                for y in made
            ]
        else:
            made = one_by_one(name, tensors, dims, others, info.batch_size)
        return in_batches(made)
    return rule


# ---- definitions ----


def _returns(count):
    return "Tensor" if count == 1 else "(%s)" % ", ".join(["Tensor"] * count)


def _define(name, tensors, others, count, kernel, fake, setup, backward, rule, forward):
    """Defines an operator of torch.library and the same for transforms. forward: its rule of
    forward mode."""
    LIBRARY.define(
        "%s(%s, %s) -> %s" % (name, ", ".join(tensors), others, _returns(count)),
        tags=(torch.Tag.pt2_compliant_tag,),
    )
    qualified = "libsoftmax::" + name
    LIBRARY.impl(name, kernel, "CPU")
    torch.library.register_fake(qualified, fake, lib=LIBRARY)
    torch.library.register_autograd(qualified, backward, setup_context=setup, lib=LIBRARY)
    torch.library.register_vmap(qualified, rule, lib=LIBRARY)
    operator = getattr(torch.ops.libsoftmax, name).default
    _entries[name] = operator, _function(name, setup, backward, rule, forward)


_entries = {}  # name -> (operator, the same for transforms)
transforms = getattr(
    torch._C._functorch, "peek_interpreter_stack", lambda: None
)  # of functorch: None where there is none


def _function(name, setup, backward, rule, tangents):
    """torch.func and forward mode differentiate no operator of torch.library, but functions of this
    form."""
    def forward(*args):
        return _entries[name][0](*args)

    def vmap(info, in_dims, *args):
        return rule(info, in_dims, *args)
    methods = {
        "forward": forward, "setup_context": setup, "backward": backward, "vmap": vmap, "jvp": tangents
    }
    return type(
        name, (torch.autograd.Function,), {key: staticmethod(method) for key, method in methods.items()}
    )


def transformed():
    """Whether a transform of functorch or forward mode is under way."""
    return not torch.compiler.is_compiling() and (transforms() is not None or _forward.active())


def call(name, *args):
    """The operator of that name, in a form that whatever looks on can take."""
    operator, function = _entries[name]
    made = function.apply(*args) if transformed() else operator(*args)
    return made if isinstance(made, (tuple, list)) else (made,)


def register(d):
    """Defines NAME and NAME_backward."""
    op = d.op
    tensors = ["Tensor%s %s" % ("" if i == 0 else "?", name) for i, name in enumerate(d.inputs)]
    special = {i for i, p in enumerate(op.outputs) if p.dx or p.shape == SCALAR}
    rows = op.rows
    _define(
        d.name,
        tensors,
        SETTINGS + ", int[] asked, ScalarType? dtype",
        len(op.outputs),
        _kernel(d),
        _fake(d),
        _setup(d),
        _backward(d),
        _vmapped(
            d, d.name, op.inputs, lambda tensors: 0, lambda others: rows and not special & set(others[5])
        ),
        _forward.forward_rule(d),
    )
    ports = (*op.inputs, *op.outputs, *(op.outputs[i] for i in d.upstream))
    names = [
        "Tensor? " + name
        for name in (*d.inputs, *("saved_" + y for y in d.outputs), *("d" + d.outputs[i] for i in d.upstream))
    ]
    first = len(op.inputs) + len(op.outputs)
    _define(
        d.name + "_backward",
        names,
        SETTINGS + ", int[] wanted",
        len(d.wanted),
        _kernel_backward(d),
        _fake_backward(d),
        _setup_again(d),
        _backward_again(d),
        _vmapped(
            d,
            d.name + "_backward",
            ports,
            lambda tensors: 0 if tensors[0] is not None else first,
            lambda others: rows,
        ),
        _forward.backward_rule(d),
    )


from . import _forward  # noqa: E402  it calls the operators above
