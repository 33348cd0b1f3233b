"""The operators of libsoftmax for PyTorch's autograd: those that have a gradient, with the arguments they have in libsoftmax, without out=.

    from libsoftmax.torch import softmax
    softmax(x, temperature=0.5).sum().backward()

Tensors are used where they are, on the CPU, without a copy. Gradients of gradients are not available.
"""
import torch as _torch

from ._autograd import sum_to as _sum_to, wrap as _wrap


def _plain(tensors):
    """The same memory, outside of autograd."""
    return [t if t is None else t.detach() for t in tensors]


def _make(d):
    class Function(_torch.autograd.Function):
        @staticmethod
        def forward(ctx, settings, *arrays):
            arrays = _plain(arrays)
            outputs = d.run(arrays, settings)
            ctx.settings, ctx.count = settings, len(arrays)
            ctx.shapes = [None if a is None else a.shape for a in arrays]
            kept = [a if p.saved or i == 0 else None for i, (p, a) in enumerate(zip(d.op.inputs, arrays))]
            ctx.save_for_backward(*kept, *(y if p.saved else None for p, y in zip(d.op.outputs, outputs)))
            ctx.mark_non_differentiable(*(y for y in outputs if y is not None and not y.dtype.is_floating_point))
            return tuple(outputs)

        @staticmethod
        @_torch.autograd.function.once_differentiable
        def backward(ctx, *upstream):
            saved = _plain(ctx.saved_tensors)
            wanted = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
            found = d.gradients(saved[:ctx.count], saved[ctx.count:], _plain(upstream), ctx.settings, wanted)
            gradients = [None] * (1 + ctx.count)
            for i, g in zip(wanted, found):
                gradients[1 + i] = _sum_to(g, ctx.shapes[i])
            return tuple(gradients)

    def function(*args, **kwargs):
        arrays, settings = d.split(args, kwargs, lambda a: isinstance(a, _torch.Tensor))
        return d.give(Function.apply(settings, *arrays))
    return function


_made = _wrap(_make)
globals().update(_made)
__all__ = list(_made)
