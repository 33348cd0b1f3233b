"""Shapes of arrays whose dimensions have names: Port.dims, which softmax.h describes at
smx_port.dims. Sizes may be symbolic."""


def _words(port, spatial):
    """(name, which of "s*", what is added) of each dimension; "..." is one word."""
    for word in port.dims.partition("|")[0].split():
        if word.endswith("*"):
            yield from ((word[:-1], i, 0) for i in range(spatial))
        elif "+" in word:
            name, more = word.split("+")
            yield name, 0, int(more)
        else:
            yield word, 0, 0


class Names:
    """What the shapes of some arrays say of the names of an operator."""

    def __init__(self, op, params):
        """params: {name: value}, defaults left out."""
        given = {p.name: params.get(p.name, p.default) for p in op.params if not p.choices}
        self._spatial = int(given.get("spatial", 1))
        self._params = {name: int(value) for name, value in given.items() if value == value and 0 < value < 2**53}
        self._sizes, self._front = {}, None

    def take(self, port, shape):
        words = list(_words(port, self._spatial))
        if words and words[0][0] == "...":
            words, front = words[1:], len(shape) - len(words) + 1
            self._front = shape[:front] if self._front is None else self._front
            shape = shape[front:]
        for (name, number, more), size in zip(words, shape):
            self._sizes.setdefault((name, number), size - more)

    def shape(self, port):
        """The shape of a port; None where a size is neither that of an input nor a parameter."""
        found = []
        for name, number, more in _words(port, self._spatial):
            if name == "...":
                if self._front is None:
                    return None
                found += self._front
                continue
            size = int(name) if name.isdigit() else self._sizes.get((name, number), self._params.get(name))
            if size is None:
                return None
            found.append(size + more)
        return tuple(found)


def names(op, params, *groups):
    """Names of these groups of (ports, shapes, None where there is no array)."""
    made = Names(op, params)
    for ports, shapes in groups:
        for port, shape in zip(ports, shapes):
            if shape is not None:
                made.take(port, shape)
    return made
