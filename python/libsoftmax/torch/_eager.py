"""The same operators without a detour: what a call on plain tensors takes, outside of
torch.compile, functorch and modes.

What a call's arguments mean is worked out once and kept as a plan for calls of the same form, since
a call on a few elements takes less time than that. A loss forms its gradient in the forward pass
when its logits alone want one; backward multiplies it by the upstream gradient. Not in float16,
where small gradients live by the scale of the loss that comes with backward."""

import torch
from torch.autograd import forward_ad

from .. import _core
from . import _library

_MODES = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_KINDS = (torch.Tensor, torch.nn.Parameter)
_HALF = (torch.float16, torch.bfloat16)
run = _core.run


def _watched():
    """Whether somebody looks over our shoulder: a tracer, a transform of functorch, a mode, forward
    mode."""
    return torch.compiler.is_compiling() or _MODES() or _library.transforms() is not None \
        or forward_ad._current_level >= 0


def _usual(a):
    return type(a) in _KINDS and a.is_cpu


def plain(arrays):
    """Whether nobody looks over our shoulder, and no array is of a subclass of Tensor."""
    return not _watched() and all(a is None or _usual(a) for a in arrays)


# ---- plans ----


class Plans:
    """The plans of an operator. A call has the form of another if its tensors have the same places,
    dtypes and numbers of dimensions, and everything else is equal."""

    MOST = 64  # settings that change with every call are not worth more

    def __init__(self, d):
        self.d, self.made = d, {}

    def find(self, args, kwargs):
        """(plan, tensors); (None, what keep() is told) where there is no plan yet; (None, None)
        where none can be."""
        if _watched():
            return None, None
        form, tensors = [*kwargs] if kwargs else [], []
        for a in (*args, *kwargs.values()) if kwargs else args:
            if type(a) in _KINDS:
                if not a.is_cpu or a.is_neg():
                    return None, None
                tensors.append(a)
                form += (a.dtype, a.ndim)
            else:
                form += (type(a), a)
        form = tuple(form)
        try:
            found = self.made.get(form)
        except TypeError:  # a list
            return None, None
        if found is None:
            return None, (form, tensors)
        plan, places = found
        return plan, tensors if places is None else [tensors[i] for i in places]

    def keep(self, plan, described, arrays):
        """Keeps the plan if its arrays are just the tensors that were given, each in one place."""
        if described is None or plan.dtype is not None or (self.d.loss and arrays[0].dtype in _HALF):
            return  # the last: autocast decides
        form, tensors = described
        places = {id(a): i for i, a in enumerate(tensors)}
        given = [a for a in arrays if a is not None]
        if len(places) == len(tensors) == len(given) and all(id(a) in places for a in given):
            if len(self.made) >= self.MOST:
                self.made.clear()
            order = [places[id(a)] for a in given]
            self.made[form] = plan, None if order == sorted(order) else order


class Plan:
    """What calls of one form have in common. settings: as the caller gave them; asked: as they are
    for the package."""

    def __init__(self, d, arrays, asked, dtype, settings):
        op = d.op
        self.d, self.index, self.settings, self.asked, self.dtype = d, op.index, settings, asked, dtype
        self.inputs = [i for i, a in enumerate(arrays) if a is not None]
        self.dtypes = [None if a is None else a.dtype for a in arrays]
        self.there = d.asked(asked)
        self.order = tuple(d.slots[d.inputs[i]] for i in self.inputs)
        self.single, self.backs = len(self.inputs) == 1, {}
        self.refused = [(at, d.inputs[i]) for at, i in enumerate(self.inputs) if not d.may_have_gradient(i)]
        others = any(asked.get(d.flags[i]) for i in d.differentiable[1:] if i != d.reduced)
        self.can_be_early = d.dx is not None and arrays[0].dtype != torch.float16 and not others
        self.with_dx = {**asked, d.flags[d.dx]: True} if self.can_be_early else None
        self.saved_inputs = [i for i in self.inputs if op.inputs[i].saved]
        self.saved_outputs = [i for i, there in enumerate(self.there) if there and op.outputs[i].saved]
        self.marked = [i for i, there in enumerate(self.there) if there and i not in d.differentiable]
        names = ["d" + op.outputs[0].name, *(d.inputs[i] for i in self.saved_inputs),
                 *(d.outputs[i] for i in self.saved_outputs)]
        self.backward_order = tuple(d.backward_slots[name] for name in names)
        self.backward_settings = {k: v for k, v in asked.items() if not k.startswith("return_")}
        self.call = self._prepare(asked) if dtype is None else None
        self.call_dx = self._prepare(self.with_dx) if dtype is None and self.can_be_early else None
        self.light = self.single and len(op.outputs) == 1 and dtype is None and not (d.loss or self.refused)
        self.back_call = self._prepare_back(d.inputs[0]) if self.light else None
        self.only = 0 if len(op.outputs) == 1 else None  # the number of the output that is the result
        if d.loss and not any(settings.get(flag) for flag in d.flags):
            self.only = 0 if d.reduction(settings) == "none" else d.reduced
        self.one_loss = self.can_be_early and self.only is not None

    def spread(self, tensors):
        """One a input, None for those that are not given."""
        full = [None] * len(self.d.inputs)
        for i, a in zip(self.inputs, tensors):
            full[i] = a
        return full

    def check(self, tensors):
        for at, name in self.refused:
            if tensors[at].requires_grad:
                self.d.refuse(name)

    def _prepare(self, settings):
        return _core.prepare(False, self.index, self.d.slots, self.order, settings, _KINDS)

    def run(self, tensors, early=False):
        """All outputs, None for those that nobody asked for; of one that is the only one, it.
        early: the gradient of the loss among them."""
        if self.call is not None:
            return run(self.call_dx if early else self.call, *tensors)
        made = self._run_as(tensors, self.with_dx if early else self.asked)
        return tuple(made) if len(made) > 1 else made[0]

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

    def _prepare_back(self, wanted):
        settings, d = {**self.backward_settings, "wanted": wanted}, self.d
        return _core.prepare(True, self.index, d.backward_slots, self.backward_order, settings, _KINDS)

    def back(self, wanted, upstream, saved):
        """Gradients of the inputs of these names for that of the first output."""
        call = self.backs.get(wanted)
        if call is None:
            call = self.backs[wanted] = self._prepare_back(wanted)
        return run(call, upstream.resolve_neg(), *saved)

    def give(self, outputs):
        if type(outputs) is not tuple:
            return outputs
        return outputs[self.only] if self.only is not None else self.d.give(outputs, self.settings)


# ---- gradients ----


class Light(torch.autograd.Function):
    """One tensor and one result, of which little has to be known."""

    @staticmethod
    def forward(ctx, plan, x):
        y = run(plan.call, x)
        ctx.plan = plan
        ctx.save_for_backward(*[x] if plan.saved_inputs else (), *[y] if plan.saved_outputs else ())
        return y

    @staticmethod
    def backward(ctx, upstream):
        plan = ctx.plan
        if torch.is_grad_enabled():
            return None, _again(plan, ctx.saved_tensors, (upstream,), plan.spread((True,)), None)[0]
        return None, run(plan.back_call, upstream.resolve_neg(), *ctx.saved_tensors)


class Loss(torch.autograd.Function):
    """A loss whose gradient is formed with it, and of which nothing else is asked for. into: the
    gradient takes the place of the logits."""

    @staticmethod
    def forward(ctx, plan, into, *arrays):
        made = plan.run_into(arrays) if into else plan.run(arrays, True)
        ctx.plan, ctx.into, ctx.done = plan, into, False
        ctx.save_for_backward(made[plan.d.dx], *arrays if plan.d.name == "cross_entropy" and not into else ())
        return made[plan.only]

    @staticmethod
    def backward(ctx, upstream):
        plan = ctx.plan
        d, (dx, *saved) = plan.d, ctx.saved_tensors
        given = [upstream if i == plan.only else None for i in range(len(d.outputs))]
        nothing = [None] * (1 + len(plan.inputs))
        if not torch.is_grad_enabled():
            if ctx.done:
                raise RuntimeError("%s: donate_logits: the gradient can be asked for once" % d.name)
            ctx.done = ctx.into
            return None, None, _scaled(d, dx, given, plan.asked, ctx.into), *nothing[2:]
        if not saved:
            _library.refuse_again(d.name)
        saved = [saved[plan.inputs.index(i)] for i in plan.saved_inputs]
        found = _again(plan, saved, given, plan.spread([True, *nothing[2:]]), None)[0]
        return None, None, found, *nothing[2:]


class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, plan, *arrays):
        ctx.set_materialize_grads(False)
        d, needs = plan.d, ctx.needs_input_grad
        early = plan.can_be_early and needs[1] and (plan.single or not any(needs[2:]))
        made = plan.run(arrays, early)
        outputs, dx = made if type(made) is tuple else (made,), ()
        if early:
            dx = (outputs[d.dx],)
            if not plan.there[d.dx]:
                made = outputs = (*outputs[:d.dx], None, *outputs[d.dx + 1:])
        ctx.plan, ctx.early, ctx.shapes = plan, early, None if plan.single else [a.shape for a in arrays]
        again = not early or d.name == "cross_entropy"  # what gradients of gradients need
        kept = [arrays[plan.inputs.index(i)] for i in plan.saved_inputs] if again else ()
        ctx.save_for_backward(*dx, *kept, *[outputs[i] for i in plan.saved_outputs])
        if plan.marked:
            ctx.mark_non_differentiable(*[outputs[i] for i in plan.marked])
        return made

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
        if again:
            found = _again(plan, saved, upstream, needs, ctx.shapes)
        elif any(g is not None for g in upstream):
            found = _once(plan, saved, upstream, needs, ctx.shapes)
        return None, *([found[i] for i in plan.inputs] if found else [None] * len(needed))


# Function.apply asks about functorch again
_apply, _apply_light, _apply_loss = (
    super(torch.autograd.Function, kind).apply for kind in (Function, Light, Loss)
)


def _empty(x):
    """What is read of logits that were given away is to be an error, not a gradient."""
    whole = x._base is not None and x._base.numel() == x.numel()
    for a in (x, x._base) if whole else (x,):
        a.data = a.detach().new_empty(0)


def answer(plan, tensors, donated=False):
    """What the function of the operator gives for these tensors. donated: the gradient may take the
    place of the logits."""
    if plan.light:
        x = tensors[0]
        return _apply_light(plan, x) if x.requires_grad and torch.is_grad_enabled() else run(plan.call, x)
    if not torch.is_grad_enabled() or not any([a.requires_grad for a in tensors]):
        return plan.give(plan.run(tensors))
    plan.check(tensors)
    if plan.one_loss and tensors[0].requires_grad and not any([a.requires_grad for a in tensors[1:]]):
        loss = _apply_loss(plan, donated, *tensors)
        if donated:
            _empty(tensors[0])
        return loss
    return plan.give(_apply(plan, *tensors))


def _scaled(d, dx, upstream, settings, into=False):
    """The gradient of the loss, times the upstream gradients of the loss of every row and of the
    reduced loss. into: dx may be written to."""
    times = dx.mul_ if into else dx.mul
    rows, all_rows = upstream[0], upstream[d.reduced]
    if rows is None:
        return None if all_rows is None else dx if all_rows.item() == 1 else times(all_rows.to(dx.dtype))
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
