"""What the PyTorch and JAX wrappers share: a call split into arrays and settings, and a gradient brought to its input's shape."""
import libsoftmax

from . import _functions


class Differentiable:
    """An operator with a gradient: its functions, and which arrays the gradient needs."""

    def __init__(self, op):
        self.op = op
        self.arguments = [a for a in _functions.forward_arguments(op) if a.name != "out"]
        self.signature = _functions.signature(self.arguments)
        self.forward = getattr(libsoftmax, op.name)
        self.backward = getattr(libsoftmax, op.name + "_backward")
        self.inputs = [_functions.python_name(p.name) for p in op.inputs]
        self.outputs = [_functions.python_name(p.name) for p in op.outputs]
        self.result = _functions.result_type(op)

    def split(self, args, kwargs, is_array):
        """The arrays in the order of the inputs (None where there is none), and the settings: numbers, words, the axis."""
        given = self.signature.bind(*args, **kwargs).arguments
        arrays = [given.pop(name) if is_array(given.get(name)) else None for name in self.inputs]
        return arrays, {name: value for name, value in given.items() if value is not None}

    def run(self, arrays, settings):
        """The outputs, always as a tuple; None for optional ones that were not asked for."""
        result = self.forward(**self._present(self.inputs, arrays), **settings)
        return result if self.result else (result,)

    def asked(self, settings):
        """Which outputs run() gives."""
        return [not p.optional or bool(settings.get("return_" + p.name)) for p in self.op.outputs]

    def give(self, outputs):
        """What the function of the operator gives for these outputs."""
        return self.result(*outputs) if self.result else outputs[0]

    def _present(self, names, arrays):
        return {name: array for name, array in zip(names, arrays) if array is not None}

    def gradients(self, arrays, outputs, upstream, settings, wanted):
        """Gradients of the inputs with these numbers, in the full shape. outputs and upstream: one an output, or None."""
        ports = self.op.outputs
        saved = [array if port.saved else None for port, array in zip(ports, outputs)]
        keywords = {"d" + p.name: upstream[i] for i, p in _functions.upstream_ports(self.op) if upstream[i] is not None}
        keywords.update(self._present(self.inputs, arrays), **self._present(self.outputs, saved))
        keywords.update((k, v) for k, v in settings.items() if not k.startswith("return_"))
        return self.backward(**keywords, wanted=tuple(self.op.inputs[i].name for i in wanted))


def sum_to(gradient, shape):
    """Sums over what was broadcast: shape is that of the input."""
    lead = gradient.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(d + lead for d, n in enumerate(shape) if n == 1 and gradient.shape[d + lead] != 1)
    return (gradient.sum(axes) if axes else gradient).reshape(tuple(shape))


def wrap(make):
    """{name: function} for every operator with a gradient. make(differentiable) gives a function of (*args, **kwargs)."""
    made = {}
    for op in libsoftmax.OPERATORS.values():
        if op.backward:
            d = Differentiable(op)
            function = made[op.name] = make(d)
            function.__name__ = function.__qualname__ = op.name
            function.__signature__ = d.signature
            function.__doc__ = d.forward.__doc__
    return made
