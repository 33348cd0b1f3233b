"""Attention for PyTorch and JAX: which arguments of its functions are arrays, and which of them and
of the results have gradients."""

import inspect

from . import _attention as _plain, _text
from ._autograd import DETACHED, refuse

# function -> (its results, those of its inputs that have gradients)
SPECS = {
    "attention": (("o", "lse"), _plain._GRADIENTS),
    "attention_parallax": (("o",), ("q", "k", "v", "r")),
    "attention_local_linear": (("o",), ("q", "k", "v")),
    "attention_additive": (("o",), ("q", "k", "v", "u")),
    "attention_tropical": (("o", "winners"), ("q", "k", "v")),
    "rope": (("y", "carry"), _plain._TURNED),
}
WHOLE = ("winners", "carry")  # results that have no gradient
# How many of an array's axes are not of the batch: of those that make the batch together, and of
# those that broadcast to it.
_MAKES = {"q": 3, "k": 3, "v": 3, "r": 3}
_BROADCAST = {"u": 2, "bias": 3, "slopes": 1, "sinks": 1, "row": 2, "positions": 3, "frequencies": 2}
# How many of all arrays, results and their gradients.
OWN = {
    **_MAKES, **_BROADCAST, "x": 3, "mask": 3, "lengths": 0, "streams": 0, "carry": 2, "o": 3, "lse": 2,
    "winners": 3, "y": 3,
}


def _broadcast_shapes(shapes):
    """The shape that these have together, of as many axes. None: there is none."""
    found = []
    for sizes in zip(*shapes):
        others = [n for n in sizes if n != 1]
        if any(n != others[0] for n in others):
            return None
        found.append(others[0] if others else 1)
    return tuple(found)


class Entry:
    """A function and its gradient: which arguments are tensors, which are numbers and words, in the
    order of the signature."""

    def __init__(self, name):
        self.name, (self.results, self.gradients) = name, SPECS[name]
        self.forward, self.backward = getattr(_plain, name), getattr(_plain, name + "_backward")
        parameters = [
            p
            for p in inspect.signature(self.forward).parameters.values()
            if p.name != "out" and not p.name.startswith("return_")
        ]
        self.tensors = tuple(
            p.name for p in parameters if p.default in (inspect.Parameter.empty, None) and p.name != "params"
        )
        self.required = tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)
        self.settings = {p.name: p.default for p in parameters if p.name not in self.tensors}
        self.flags = {"return_" + r for r in self.results} & set(inspect.signature(self.forward).parameters)
        self.given_back = tuple(inspect.signature(self.backward).parameters)  # what the gradient reads
        self.saved = tuple(r for r in self.results if r in self.given_back and r not in self.tensors)
        self.signature = inspect.Signature(
            [p for n, p in inspect.signature(self.forward).parameters.items() if n != "out"]
        )
        self.names = frozenset(self.signature.parameters)

    def flagged(self, settings):
        """Which results are asked for of the package: all that there are."""
        settings = {**self.settings, **settings}
        return {
            flag: True
            for flag in self.flags
            if not (flag == "return_lse" and settings["weights"] not in _plain.KINDS)
            and not (flag == "return_carry" and not settings["cumulative"])
        }

    def present(self, names, arrays):
        return {n: a for n, a in zip(names, arrays) if a is not None}

    def check(self, settings, arrays, wants, instead=DETACHED):
        """Refuses gradients that there are not. wants(array): whether one is asked for. instead: as of
        refuse()."""
        paged = "block_table" in self.tensors and arrays[self.tensors.index("block_table")] is not None
        if paged and any(a is not None and wants(a) for a in arrays):
            raise RuntimeError("%s: block_table: there are no gradients with pages of keys" % self.name)
        for name, a in zip(self.tensors, arrays):
            if a is not None and wants(a):
                of_weights = _plain.gradients(settings.get("weights", "softmax"))
                if name not in self.gradients or (self.name == "attention" and name not in of_weights):
                    refuse(self.name, name, instead)

    def bind(self, args, kwargs, as_array):
        """(the arrays in their order, the settings, which results are asked for) of a call."""
        given = dict(zip(self.required, args))
        if len(args) > len(self.required):
            raise TypeError(
                "%s: %d arguments by position, at most %d" % (self.name, len(args), len(self.required))
            )
        for name in kwargs:
            if name in given:
                raise TypeError("%s: %s is given twice" % (self.name, name))
            if name not in self.names:
                raise TypeError(_text.unknown(self.name, name, self.names))
        given.update(kwargs)
        for name in self.required:
            if given.get(name) is None:
                raise TypeError("%s: %s is missing" % (self.name, name))
        arrays = [None if given.get(name) is None else as_array(given[name]) for name in self.tensors]
        return (
            arrays,
            {n: given[n] for n in self.settings if given.get(n) is not None},
            [given.get("return_" + r, False) for r in self.results],
        )

    def spread(self, arrays, expand):
        """The arrays with the whole batch, where they do not have it and gradients are to be of that
        shape. expand(array, shape): the array broadcast to that shape."""
        names = dict(zip(self.tensors, arrays))
        paged = names.get("block_table") is not None
        makes = [n for n in names if n in _MAKES and not (paged and n in "kv")]
        shapes = [tuple(names[n].shape) for n in makes]
        most = max((len(shape) for shape in shapes), default=0)
        if most < 2 or (most == 4 and all(len(s) == 4 and s[0] == shapes[0][0] for s in shapes)):
            return arrays
        leads = [((1,) * most + shape)[-most:][:-3] for shape in shapes]
        batch = _broadcast_shapes(leads)
        if batch is None or min(map(len, shapes)) < 2:  # which the package says
            return arrays
        for n, shape in zip(makes, shapes):
            full = (*batch, *((1,) * most + shape)[-min(most, 3):])
            names[n] = names[n] if shape == full else expand(names[n], full)
        for n, own in _BROADCAST.items() if len(batch) > 1 else ():
            a = names.get(n)
            lead = () if a is None else tuple(a.shape[:max(len(a.shape) - own, 0)])
            full = (1,) * (len(batch) - len(lead)) + lead
            if lead and lead != batch and len(full) == len(batch) and _broadcast_shapes([full, batch]) == batch:
                names[n] = expand(a, (*batch, *a.shape[len(lead):]))
        return [names[n] for n in self.tensors]

    def give(self, outputs, asked, settings):
        """What the function gives: its first result, or a named tuple where more is asked for."""
        self.check_asked(asked, settings)
        return RESULTS[self.name](*outputs) if any(asked) else outputs[0]

    def check_asked(self, asked, settings):
        if any(asked) and not self.flagged(settings):
            raise ValueError(
                "%s: return_%s: there is no %s with these arguments"
                % (self.name, self.results[1], self.results[1])
            )

    def shapes(self, given, settings):
        """[(shape, dtype)] of the results, None for what there is not. given: arrays by name.
        dtype: of the first array (None), a word, or the wider of float32 and what inputs have
        (wide)."""
        first = next(iter(given.values())).shape
        if self.name == "rope":
            both = [
                (first, None),
                ((*first[:-2], (settings.get("dims", 0) or first[-1]) // 2), "float64"),
            ]
        else:
            o = (*first[:-1], given["v"].shape[-1])
            both = [
                (o, None),
                *({"lse": (first[:-1], "wide"), "winners": (o, "int32")}[r] for r in self.results[1:]),
            ]
        return [both[0], *(b if self.flagged(settings) else None for b in both[1:])]

    def gradient_shape(self, name, given, up):
        """(shape, dtype) of the gradient of an input; dtype: that of the input (None), or real."""
        if self.name == "rope" and name != "x":
            return (*up.shape[:-1 if name == "positions" else -2], given[name].shape[-1]), "real"
        return (
            (*given["q"].shape[:-2], given["q"].shape[-1])
            if name == "u"
            else given[name if name in given else "x"].shape
        ), None

    def gradients_of(self, arrays, outputs, upstream, settings, wanted):
        """Gradients of the inputs with these numbers among self.gradients. upstream: one a result;
        None counts as 0, but for the first."""
        keywords = {
            **self.present(self.tensors, arrays),
            **settings,
            "wanted": tuple(self.gradients[i] for i in wanted),
        }
        if settings.get("weights", "softmax") in _plain.KINDS:
            keywords.update((r, y) for r, y in zip(self.results, outputs) if r in self.saved)
        keywords.update(("d" + r, g) for r, g in zip(self.results[1:], upstream[1:]) if g is not None)
        return self.backward(
            upstream[0], **{name: value for name, value in keywords.items() if name in self.given_back}
        )


RESULTS = {
    "attention": _plain.AttentionResult,
    "attention_tropical": _plain.TropicalResult,
    "rope": _plain.RopeResult,
}
ENTRIES = {name: Entry(name) for name in SPECS}
