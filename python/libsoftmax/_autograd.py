"""What the PyTorch and JAX wrappers share: a call split into arrays and settings, what a loss
gives, which outputs have gradients, and a gradient brought to its input's shape."""

import math
from typing import Callable, NamedTuple

import libsoftmax

from . import _core, _dims, _functions, _text

FULL, ROW, OFFSETS, COLUMN, K, SCALAR = range(6)  # smx_shape_rule of softmax.h


DETACHED = "%s.detach()"  # what to give where there is no gradient, as PyTorch writes it


def refuse(function, name, instead):
    raise RuntimeError(
        "%s: %s: there is no gradient with respect to it: give %s" % (function, name, instead % name)
    )


class Differentiable:
    """An operator with a gradient: its functions, and which arrays the gradient needs."""

    def __init__(self, op):
        self.op, self.name = op, op.name
        self.arguments = _functions.framework_arguments(op, None)
        self.signature = _functions.signature(self.arguments)
        self.names = tuple(a.name for a in self.arguments)
        self.positional = tuple(a.name for a in self.arguments if a.kind is _functions.POSITIONAL)
        self.required = tuple(a.name for a in self.arguments if a.default is _functions.REQUIRED)
        self.plain, self.__doc__ = _functions.plain(op), getattr(libsoftmax, op.name).__doc__
        self.backward = getattr(libsoftmax, op.name + "_backward")
        self.inputs = tuple(_functions.python_name(p.name) for p in op.inputs)
        self.outputs = tuple(_functions.python_name(p.name) for p in op.outputs)
        self.flags = tuple("return_" + p.name for p in op.outputs)
        self.params = {_functions.python_name(p.name): p for p in op.params}
        self.result = _functions.result_type(op)
        self.upstream = tuple(i for i, _ in _functions.upstream_ports(op))
        self.reduced = _functions.reduced_output(op)
        self.dx = self._find(op.outputs, lambda p: p.dx)
        self.target = self._find(op.inputs, lambda p: p.target)
        self.weight = self._find(op.inputs, lambda p: p.weight)
        self.mask = self._find(op.inputs, lambda p: p.mask)
        self.whole = self._find(op.inputs, lambda p: p.integer and not p.target)
        self.differentiable = tuple(
            i for i, p in enumerate(op.outputs) if i in self.upstream or i == self.reduced
        )
        self.wanted = tuple(i for i, p in enumerate(op.inputs) if p.gradient)
        self.slots = {a.name: a.slot for a in _functions.forward_arguments(op)}
        self.backward_slots = {a.name: a.slot for a in _functions.backward_arguments(op)}

    @staticmethod
    def _find(ports, condition):
        return next((i for i, p in enumerate(ports) if condition(p)), None)

    @property
    def loss(self):
        return self.reduced is not None

    def may_have_gradient(self, i):
        """Whether there is one of input i."""
        return self.op.inputs[i].gradient

    def refuse(self, name, instead=DETACHED):
        refuse(self.name, name, instead)

    # ---- calls ----

    def bind(self, args, kwargs):
        """{name: value} of a call, as Python would bind it."""
        if len(args) > len(self.positional):
            raise TypeError(
                "%s: %d arguments by position, at most %d" % (self.name, len(args), len(self.positional))
            )
        given = dict(zip(self.positional, args))
        for name, value in kwargs.items():
            if name not in self.names:
                raise TypeError(_text.unknown(self.name, name, self.names))
            if name in given:
                raise TypeError("%s: %s is given twice" % (self.name, name))
            given[name] = value
        for name in self.required:
            if given.get(name) is None:
                raise TypeError("%s: %s is missing" % (self.name, name))
        return given

    def split(self, given, as_array):
        """The arrays in the order of the inputs (None where there is none), and the settings:
        numbers, words, the axis. as_array(value) makes an array of what is none."""
        arrays = []
        for name in self.inputs:
            value = given.get(name)
            number = name in self.params and isinstance(value, (int, float))
            arrays.append(None if value is None or number else self.array(name, value, as_array))
            if not number:
                given.pop(name, None)
        return arrays, {name: value for name, value in given.items() if value is not None or name == "axis"}

    def array(self, name, value, as_array):
        """An argument as an array."""
        try:
            return as_array(value)
        except ValueError as error:
            raise ValueError("%s: %s: %s" % (self.name, name, error)) from None

    def word(self, name, settings):
        """The word for a choice; None where there is no such parameter."""
        param = self.params.get(name)
        if param is None or not param.choices:
            return None
        value = settings.get(name, param.default)
        return value if isinstance(value, str) else param.choices[int(value)]

    def reduction(self, settings):
        """The word for what a loss becomes."""
        return self.word("reduction", settings)

    def ask(self, settings):
        """The settings of the call below: a loss that is reduced asks for that."""
        if self.loss and self.reduction(settings) != "none":
            return {**settings, self.flags[self.reduced]: True}
        return settings

    def asked(self, settings):
        """Which outputs run() gives."""
        return [not p.optional or bool(settings.get(flag)) for p, flag in zip(self.op.outputs, self.flags)]

    def run(self, arrays, settings, **out):
        """The outputs, always as a tuple; None for optional ones that were not asked for."""
        return self.plain(**self._present(self.inputs, arrays), **settings, **out)

    def infer(self, arrays, settings):
        """[(shape, name of the dtype)] of all outputs."""
        return libsoftmax.infer(self.name, **self._present(self.inputs, arrays), **settings)

    def shapes(self, arrays, settings):
        """The shapes of the outputs of an operator whose dimensions have names. Sizes may be
        symbolic, but for an output that has one which is no size of an input and no parameter: the
        core computes those, from numbers."""
        given = shapes_of(arrays)
        names = _dims.names(self.op, settings, (self.op.inputs, given))
        found = [names.shape(p) for p in self.op.outputs]
        if None not in found:
            return found
        inputs = tuple(
            None if a is None else (tuple(map(int, shape)), str(a.dtype).rpartition(".")[2])
            for a, shape in zip(arrays, given)
        )
        made = _core.shapes(self.op.index, self.slots, settings, inputs)
        return [shape if known is None else known for known, (shape, _) in zip(found, made)]

    def give(self, outputs, settings):
        """What the function of the operator gives for these outputs. settings: those of the caller.
        A loss is one array unless more was asked for: with a reduction it is the value for all
        rows."""
        if self.loss:
            loss = outputs[0] if self.reduction(settings) == "none" else outputs[self.reduced]
            asked = [bool(settings.get(flag)) for flag in self.flags]
            if not any(asked):
                return loss
            return self.result(loss, *(y if a else None for y, a in zip(outputs[1:], asked[1:])))
        return self.result(*outputs) if self.result else outputs[0]

    def _present(self, names, arrays):
        return {name: array for name, array in zip(names, arrays) if array is not None}

    # ---- gradients ----

    def share(self, arrays, settings, frame):
        """What the gradient of each row's loss is multiplied by, where the upstream gradient is
        that of the reduced loss."""
        if self.reduction(settings) in ("none", "sum"):
            return 1.0
        rows = math.prod(row_shape(arrays[0].shape, settings))
        if self.word("over", settings) == "all":
            return _inverse(frame.double(self.kept(arrays, settings, frame)))
        if self.word("sets", settings) == "apart" and arrays[self.whole] is not None:
            other = frame.double(arrays[self.whole] != 0)
            count = other.sum()
            first, second = rows - count + (count == rows), count + (count == 0)
            return (1 - other) / first + other / second
        target = arrays[self.target] if self.target is not None else None
        if target is None:
            return 1 / rows if rows else 0.0
        counted = target != settings.get("ignore_index", self.params["ignore_index"].default)
        weights = arrays[self.weight] if self.weight is not None else None
        if weights is not None:
            counted = weights[(target * counted).reshape(-1)].reshape(target.shape) * counted
        return _inverse(frame.double(counted).sum())

    def kept(self, arrays, settings, frame):
        """How many elements of all rows the masks and lengths of a loss keep."""
        mask, length = (None if i is None else arrays[i] for i in (self.mask, self.whole))
        shape, kept = tuple(arrays[0].shape), None
        if length is not None:
            axes = row_axes(len(shape), settings)
            n = math.prod(shape[d] for d in axes)
            place = frame.arange(n, length).reshape(tuple(shape[d] if d in axes else 1 for d in range(len(shape))))
            rows = (1,) * (len(row_shape(shape, settings)) - length.ndim) + tuple(length.shape)
            if not settings.get("keepdims", False):
                left = iter(rows)
                rows = tuple(1 if d in axes else next(left) for d in range(len(shape)))
            kept = place < length.reshape(rows)
        if mask is not None:
            kept = mask != 0 if kept is None else kept & (mask != 0)
        if kept is None:
            return frame.arange(1, arrays[0]).sum() + math.prod(shape)
        return frame.double(kept).sum() * (math.prod(shape) // max(math.prod(kept.shape), 1))

    def gradients(self, arrays, outputs, upstream, settings, wanted, frame, **out):
        """Gradients of the inputs with these numbers, in the full shape. outputs and upstream: one
        an output, or None. frame: a Frame."""
        upstream = self.upstream_of_rows(arrays, outputs, upstream, settings, frame)
        keywords = {
            "d" + self.op.outputs[i].name: upstream[i] for i in self.upstream if upstream[i] is not None
        }
        saved = [array if port.saved else None for port, array in zip(self.op.outputs, outputs)]
        keywords.update(self._present(self.inputs, arrays), **self._present(self.outputs, saved))
        keywords.update((k, v) for k, v in settings.items() if not k.startswith("return_"))
        return self.backward(**keywords, wanted=tuple(self.op.inputs[i].name for i in wanted), **out)

    def upstream_of_rows(self, arrays, outputs, upstream, settings, frame):
        """Upstream gradients as the library takes them: that of a reduced loss goes to the rows,
        and that of the first output is there."""
        upstream = list(upstream)
        if self.loss and upstream[self.reduced] is not None:
            each = upstream[self.reduced] * self.share(arrays, settings, frame)
            each = frame.expand(each, row_shape(arrays[0].shape, settings), arrays[0])
            upstream[0] = each if upstream[0] is None else upstream[0] + each
        elif upstream[0] is None:
            like = outputs[0] if self.op.outputs[0].saved else arrays[0]
            if not self.op.rows:
                shape = self.shapes(arrays, settings)[0]
            elif self.op.outputs[0].shape in (FULL, K):
                shape = like.shape
            else:
                shape = row_shape(like.shape, settings)
            upstream[0] = frame.expand(0.0, shape, like)
        return upstream


class Frame(NamedTuple):
    """What PyTorch and NumPy write differently."""
    double: Callable  # array -> the same in float64
    # (number, shape, like) -> that number everywhere, in float64 if `like` has that, else in float32
    expand: Callable
    arange: Callable  # (n, like) -> 0, 1 .. n - 1 where `like` is


def _inverse(total):
    """1 / total, or 0 of 0."""
    return (total != 0) / (total + (total == 0))


def shapes_of(arrays):
    return [None if a is None else tuple(a.shape) for a in arrays]


def row_axes(ndim, settings):
    """The axes that a row runs along, counted from the front."""
    axis = settings.get("axis", -1)
    axes = range(ndim) if axis is None else (axis if isinstance(axis, (tuple, list)) else (axis,))
    return tuple(a + ndim if a < 0 else a for a in axes)


def row_shape(shape, settings):
    """The shape of one value a row."""
    axes, keep = row_axes(len(shape), settings), settings.get("keepdims", False)
    return tuple(1 if d in axes else n for d, n in enumerate(shape) if keep or d not in axes)


def sum_to(gradient, shape):
    """Sums over what was broadcast: shape is that of the input."""
    if tuple(gradient.shape) == tuple(shape):
        return gradient
    lead = gradient.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        d + lead for d, n in enumerate(shape) if n == 1 and gradient.shape[d + lead] != 1
    )
    return (gradient.sum(axes) if axes else gradient).reshape(tuple(shape))


def operators():
    """A Differentiable for every operator with a gradient, by name."""
    return {op.name: Differentiable(op) for op in libsoftmax.OPERATORS.values() if op.backward}


def dress(function, d, signature=None):
    """The function of an operator, named and documented."""
    function.__name__ = function.__qualname__ = d.name
    function.__signature__ = signature or d.signature
    function.__doc__ = d.__doc__
    return function
