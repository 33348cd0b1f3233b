"""The same operators without a detour: what a call on plain tensors takes, outside of
torch.compile, functorch and modes.

What a call's arguments mean is worked out once and kept in the core as a form, with what is to be
done with tensors of it, since a call on a few elements takes less time than that. A loss forms its
gradient in the forward pass when its logits alone want one; backward multiplies it by the upstream
gradient. Not in float16, where small gradients live by the scale of the loss that comes with
backward."""

import functools

import torch
from torch.autograd import forward_ad

from .. import _core
from . import _double, _host, _library

_MODES = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_TRACED = getattr(torch._C, "_get_tracing_state", lambda: None)
_KEEPS_GRAPH = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
_WRAPPED = [
    getattr(torch._C._functorch, name)
    for name in ("is_functorch_wrapped_tensor", "is_legacy_batchedtensor")
    if hasattr(torch._C._functorch, name)
]
HALF = (torch.float16, torch.bfloat16)
run = _core.run
dynamo = torch.compiler.is_dynamo_compiling  # which torch.compile takes for true


def _watched():
    """Whether somebody looks over our shoulder: a tracer, a transform of functorch, a mode, forward
    mode."""
    return torch.compiler.is_compiling() or _MODES() or _TRACED() is not None \
        or _library.transforms() is not None or forward_ad._current_level >= 0


def _usual(a):
    return type(a) in _host.KINDS and a.is_cpu


def plain(arrays):
    """Whether nobody looks over our shoulder, and no array is of a subclass of Tensor."""
    return not _watched() and all(a is None or _usual(a) for a in arrays)


def _opens(upstream):
    """Whether the core can open these gradients: vmap over torch.autograd.grad has some that it
    cannot."""
    return all(
        g is None or (_usual(g) and not any(wrapped(g) for wrapped in _WRAPPED)) for g in upstream
    )


# ---- forms ----


def places(args, kwargs, read, tensors):
    """Where among the arguments of a call its tensors are, which read(args, kwargs) tells; None: other
    calls of this form may have others, since what it converts is read each time."""
    values = [*args, *kwargs.values()]
    stand_ins = [
        torch.empty(a.shape, dtype=a.dtype, device="meta") if _usual(a) else a for a in values
    ]
    try:
        hash(tuple(a for a in values if not _usual(a)))
    except TypeError:  # a list may be another one next time
        return None
    numbers = {id(a): i for i, (a, b) in enumerate(zip(stand_ins, values)) if a is not b}
    arrays = read(stand_ins[:len(args)], dict(zip(kwargs, stand_ins[len(args):])))
    found = [numbers.get(id(a)) for a in arrays if a is not None]
    return tuple(found) if None not in found and len(found) == len(numbers) == len(tensors) else None


def learn(known, args, kwargs, found, route):
    """Has calls of this form do the same. found: what places() gave."""
    if found is not None:
        _core.learn(known, (*args, *kwargs.values()), tuple(kwargs), found, *route)


def perform(route, tensors):
    prepared, function, subject = route
    return run(prepared, *tensors) if prepared is not None else function(subject, *tensors)


# ---- plans ----


class Plan:
    """What calls of one form have in common. settings: as the caller gave them; asked: as they are
    for the package."""

    def __init__(self, d, arrays, asked, dtype, settings, donated):
        op = d.op
        self.d, self.index, self.settings, self.asked, self.dtype = d, op.index, settings, asked, dtype
        self.donated = donated
        self.inputs = [i for i, a in enumerate(arrays) if a is not None]
        self.dtypes = [None if a is None else a.dtype for a in arrays]
        self.there = d.asked(asked)
        self.order = tuple(d.slots[d.inputs[i]] for i in self.inputs)
        self.single, self.backs = len(self.inputs) == 1, {}
        others = any(asked.get(d.flags[i]) for i in d.differentiable[1:] if i != d.reduced)
        self.can_be_early = d.dx is not None and arrays[0].dtype != torch.float16 and not others
        self.with_dx = {**asked, d.flags[d.dx]: True} if self.can_be_early else None
        self.saved_inputs = [i for i in self.inputs if op.inputs[i].saved]
        self.saved_outputs = [i for i, there in enumerate(self.there) if there and op.outputs[i].saved]
        self.marked = [i for i, there in enumerate(self.there) if there and i not in d.differentiable]
        self.backward_settings = {k: v for k, v in asked.items() if not k.startswith("return_")}
        self.only = 0 if len(op.outputs) == 1 else None  # the number of the output that is the result
        if d.loss and not any(settings.get(flag) for flag in d.flags):
            self.only = 0 if d.reduction(settings) == "none" else d.reduced
        self.call = None if dtype is not None else self._prepare(asked, self.only)
        self.light = self.single and len(op.outputs) == 1 and dtype is None and not d.loss
        self.one_loss = self.can_be_early and self.only is not None

    def spread(self, tensors):
        """One a input, None for those that are not given."""
        full = [None] * len(self.d.inputs)
        for i, a in zip(self.inputs, tensors):
            full[i] = a
        return full

    def _prepare(self, settings, *handed):
        """A call that hands out these outputs, None for all."""
        bits = -1 if None in handed else sum(1 << i for i in {*handed})
        return _core.prepare(False, self.index, self.d.slots, self.order, settings, bits)

    def _prepare_back(self, wanted):
        d = self.d
        names = ["d" + d.op.outputs[0].name, *(d.inputs[i] for i in self.saved_inputs),
                 *(d.outputs[i] for i in self.saved_outputs)]
        order = tuple(d.backward_slots[name] for name in names)
        settings = {**self.backward_settings, "wanted": wanted}
        return _core.prepare(True, self.index, d.backward_slots, order, settings, -1)

    def route(self, needs):
        """(prepared call, function, subject): what is to be done with tensors that have these needs
        of a gradient."""
        if not any(needs):
            if self.call is not None and self.only is not None:
                return self.call, None, None
            return None, _give, self
        for i, needed in zip(self.inputs, needs):
            if needed and not self.d.may_have_gradient(i):
                self.d.refuse(self.d.inputs[i])
        if self.one_loss and needs[0] and not any(needs[1:]):
            if self.donated:
                return None, _donate, self
            if self.dtype is None:
                return None, *self._core_plan(None)
        if self.light:
            return None, *self._core_plan(self._prepare_back(self.d.inputs[0]))
        return None, _record, self

    def _core_plan(self, back):
        """(function, plan) of a loss that forms its gradient at once (None), or of one tensor and one
        result."""
        if back is None:
            kept = self.inputs if _double.of_loss(self.d) else ()
            forward = self._prepare(self.with_dx, self.only, self.d.dx)
            result, outputs = self.only, (self.d.dx,)
        else:
            kept, outputs = self.saved_inputs, tuple(self.saved_outputs)
            forward, result = self.call, 0
        inputs = tuple(self.inputs.index(i) for i in kept)
        owner = Late(self) if back is None else Light(self)
        return planned(self.d.name, forward, back, len(self.inputs), result, inputs, outputs, (0,), owner)

    def run(self, tensors, early=False):
        """All outputs as a tuple, None for those that nobody asked for. early: the gradient of the
        loss among them."""
        return tuple(self._run_as(tensors, self.with_dx if early else self.asked))

    def _run_as(self, tensors, settings, dx=None):
        return _library.run(self.d, self.spread(_library.detached(tensors)), settings, self.dtype, dx)

    def run_into(self, tensors):
        """The outputs of a loss, with the gradient in the place of the logits."""
        x = tensors[0]
        if any(a is not None and a.is_leaf for a in (x, x._base)):
            raise ValueError("%s: donate_logits: %s is a leaf that requires a gradient, or a view of one: its"
                             " values would be lost" % (self.d.name, self.d.inputs[0]))
        made = self._run_as(tensors, self.with_dx, x.detach())
        torch.autograd.graph.increment_version(x)  # whoever keeps it for a gradient is told
        return made

    def back(self, wanted, upstream, saved):
        """Gradients of the inputs of these names for that of the first output."""
        call = self.backs.get(wanted)
        if call is None:
            call = self.backs[wanted] = self._prepare_back(wanted)
        return run(call, upstream.resolve_neg(), *saved)

    def give(self, outputs):
        return outputs[self.only] if self.only is not None else self.d.give(outputs, self.settings)


def _give(plan, *tensors):
    return plan.give(plan.run(tensors))


def _record(plan, *tensors):
    return plan.give(_apply(_kind(plan.d, Function))(plan, *tensors))


def _donate(plan, *tensors):
    loss = _apply(_kind(plan.d, Donated))(plan, *tensors)
    _empty(tensors[0])
    return loss


def call(d, known, args, kwargs, arrays, settings, dtype, donated, read):
    """A call on plain tensors, which is remembered."""
    plan = Plan(d, arrays, d.ask(settings), dtype, settings, donated)
    tensors = [a for a in arrays if a is not None]
    recorded = torch.is_grad_enabled()
    route = plan.route([recorded and a.requires_grad for a in tensors])
    if not (d.loss and arrays[0].dtype in HALF):  # of which autocast decides
        learn(known, args, kwargs, places(args, kwargs, read, tensors), route)
    return perform(route, tensors)


# ---- gradients ----


class Light:
    """The long way back of one tensor and one result."""

    def __init__(self, plan):
        self.plan = plan

    def backward(self, ctx, upstream):
        needs = self.plan.spread((True,))
        return None, _again(self.plan, ctx.saved_tensors, (upstream,), needs, None)[0]


class Late:
    """The same of a loss whose gradient was formed with it, and of which nothing else is asked
    for."""

    def __init__(self, plan):
        self.plan = plan

    def backward(self, ctx, upstream):
        plan = self.plan
        d, (*saved, dx) = plan.d, ctx.saved_tensors
        given = [upstream if i == plan.only else None for i in range(len(d.outputs))]
        nothing = [None] * len(plan.inputs)
        if not torch.is_grad_enabled():
            into = not _KEEPS_GRAPH() and _opens(given)
            return None, _scaled(d, dx, given, plan.asked, into), *nothing[1:]
        if not saved:
            _library.refuse_again(d.name)
        saved = [saved[plan.inputs.index(i)] for i in plan.saved_inputs]
        found = _again(plan, saved, given, plan.spread([True, *nothing[1:]]), None)[0]
        return None, found, *nothing[1:]


class Donated(torch.autograd.Function):
    """A loss whose gradient takes the place of the logits."""

    @staticmethod
    def forward(ctx, plan, *arrays):
        made = plan.run_into(arrays)
        ctx.plan, ctx.done = plan, False
        ctx.save_for_backward(made[plan.d.dx])
        return made[plan.only]

    @staticmethod
    def backward(ctx, upstream):
        plan, (dx,) = ctx.plan, ctx.saved_tensors
        if torch.is_grad_enabled():
            _library.refuse_again(plan.d.name)
        if ctx.done:
            raise RuntimeError("%s: donate_logits: the gradient can be asked for once" % plan.d.name)
        ctx.done = True
        given = [upstream if i == plan.only else None for i in range(len(plan.d.outputs))]
        return None, _scaled(plan.d, dx, given, plan.asked, True), *[None] * (len(plan.inputs) - 1)


class Function(torch.autograd.Function):
    """Any number of tensors and results."""

    @staticmethod
    def forward(ctx, plan, *arrays):
        ctx.set_materialize_grads(False)
        d, needs = plan.d, ctx.needs_input_grad
        early = plan.can_be_early and needs[1] and (plan.single or not any(needs[2:]))
        outputs, dx = plan.run(arrays, early), ()
        if early:
            dx = (outputs[d.dx],)
            if not plan.there[d.dx]:
                outputs = (*outputs[:d.dx], None, *outputs[d.dx + 1:])
        ctx.plan, ctx.early, ctx.shapes = plan, early, None if plan.single else [a.shape for a in arrays]
        again = not early or _double.of_loss(d)  # what gradients of gradients need
        kept = [arrays[plan.inputs.index(i)] for i in plan.saved_inputs] if again else ()
        ctx.save_for_backward(*dx, *kept, *[outputs[i] for i in plan.saved_outputs])
        if plan.marked:
            ctx.mark_non_differentiable(*[outputs[i] for i in plan.marked])
        return outputs

    @staticmethod
    def backward(ctx, *upstream):
        plan, saved, again = ctx.plan, ctx.saved_tensors, torch.is_grad_enabled()
        d, needed = plan.d, ctx.needs_input_grad[1:]
        if ctx.early:
            dx, *saved = saved
            if not again:
                return None, _scaled(d, dx, upstream, plan.asked), *[None] * (len(needed) - 1)
            if len(saved) < len(plan.saved_inputs):
                _library.refuse_again(d.name)
        needs, found = plan.spread(needed), None
        if again or not _opens(upstream):
            found = _again(plan, saved, upstream, needs, ctx.shapes)
        elif any(g is not None for g in upstream):
            found = _once(plan, saved, upstream, needs, ctx.shapes)
        return None, *([found[i] for i in plan.inputs] if found else [None] * len(needed))


@functools.lru_cache(maxsize=None)
def _kind(d, base):
    """The torch.autograd.Function of an operator, whose name errors and graphs have."""
    return type(d.name, (base,), {})


def planned(name, *how):
    """(function, plan) of what the core does by itself: function(plan, *tensors) is the result. how:
    what _core.plan() takes. Every plan has a class of its own, where its gradient finds it."""
    plan = _core.plan(*how)
    methods = {"forward": staticmethod(_core.function_forward), "backward": staticmethod(_core.function_backward)}
    kind = type(name, (torch.autograd.Function,), methods)
    kind._backward_cls.plan = plan
    _core.hasten(kind._backward_cls)
    return _apply(kind), plan


def _apply(kind):
    return super(torch.autograd.Function, kind).apply  # Function.apply asks about functorch again


def _empty(x):
    """What is read of logits that were given away is to be an error, not a gradient."""
    whole = x._base is not None and x._base.numel() == x.numel()
    for a in (x, x._base) if whole else (x,):
        a.data = a.detach().new_empty(0)


def _scaled(d, dx, upstream, settings, into=False):
    """The gradient of the loss, times the upstream gradients of the loss of every row and of the
    reduced loss. into: dx may be written to, and handed out."""
    times = dx.mul_ if into else dx.mul
    rows, all_rows = upstream[0], upstream[d.reduced]
    if rows is None:
        if all_rows is None:
            return None
        return dx if into and all_rows.item() == 1 else times(all_rows.to(dx.dtype))
    if d.reduction(settings) != "none":
        raise RuntimeError("%s: the loss of rows has no gradient of its own when it is reduced" % d.name)
    rows = rows if all_rows is None else rows + all_rows
    for axis in sorted(_library.row_axes(dx.ndim, settings)) if rows.ndim < dx.ndim else ():
        rows = rows.unsqueeze(axis)
    return times(rows).to(dx.dtype)


def _spread(plan, saved):
    """(inputs, outputs) that were saved, None in the place of the others."""
    n, count = len(plan.d.inputs), len(plan.saved_inputs)
    full = [None] * (n + len(plan.d.outputs))
    for i, a in zip(plan.saved_inputs, saved[:count]):
        full[i] = a
    for i, a in zip(plan.saved_outputs, saved[count:]):
        full[n + i] = a
    return full[:n], full[n:]


def _again(plan, saved, upstream, needs, shapes):
    """By operators, which can be differentiated again and traced."""
    shapes = [None] * len(plan.d.inputs) if shapes is None else plan.spread(shapes)
    return _library.gradients(
        plan.d, *_spread(plan, saved), upstream, plan.asked, needs, shapes, plan.dtypes
    )


def _once(plan, saved, upstream, needs, shapes):
    d, found = plan.d, [None] * len(plan.d.inputs)
    wanted = [i for i in d.wanted if needs[i]]
    if not wanted:
        return found
    if upstream[0] is not None and all(g is None for g in upstream[1:]):
        made = plan.back(tuple([d.op.inputs[i].name for i in wanted]), upstream[0], saved)
    else:
        upstream = [g if g is None else g.resolve_neg() for g in upstream]
        made = d.gradients(
            *_spread(plan, _library.detached(saved)), upstream, plan.asked, wanted, _library.FRAME
        )
    shapes = None if shapes is None else plan.spread(shapes)
    for i, g in zip(wanted, made):
        found[i] = (g if shapes is None else _library._autograd.sum_to(g, shapes[i])).to(plan.dtypes[i])
    return found
