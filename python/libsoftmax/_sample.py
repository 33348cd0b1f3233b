"""Sampling from logits: a chain of steps, and a draw from what they leave."""
import collections
import inspect
import math
import operator

from . import _core, _text
from ._table import SAMPLING_STEPS

METHODS = ("gumbel", "cdf", "greedy")
STATES = ("surprise", "mirostat")  # steps whose number is a state that each draw moves
NUMBERS = 3  # of a step, as the library has them

SampleResult = collections.namedtuple("SampleResult", ["index", "log", "status"], module="libsoftmax")


# ---- What the values of steps are ----

def _refuse(kind, name, text, *values):
    raise kind("sample: %s: %s" % (name, text % values))


def _plain(value):
    """Arrays as lists of Python's numbers; a mask as the places where it is true."""
    if not hasattr(value, "tolist"):
        return list(value)
    found = value.tolist()
    if found and isinstance(found, list) and isinstance(found[0], bool):
        return [i for i, true in enumerate(found) if true]
    return found


def _is_list(value):
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0 and not isinstance(value, (str, bytes))


def _each(value):
    """A list of one a row, or None if there is one for all rows."""
    return _plain(value) if _is_list(value) else None


def _each_list(value):
    """The same of lists."""
    if getattr(value, "ndim", 0) == 2 or (not hasattr(value, "ndim") and any(map(_is_list, value))):
        return [_plain(one) for one in value]
    return None


def _number(name, param, value):
    try:
        return float(value)
    except (TypeError, ValueError):
        _refuse(TypeError, name, "%s: %r is not a number", param.name, value)


def _tokens(name, value):
    try:
        if not any(isinstance(token, bool) for token in value):
            return [operator.index(token) for token in value]
    except TypeError:
        pass
    _refuse(TypeError, name, "tokens: %r are not whole numbers", value)


def _by_name(step, value):
    """The parts of a step out of a dict of its numbers, tokens and values."""
    names = [p.name for p in step.params] + ["tokens"] * step.tokens + ["values"] * step.values
    unknown = [key for key in value if key not in names]
    if unknown:
        _refuse(TypeError, step.name, "there is no %r, only %s", unknown[0], ", ".join(names))
    return [value.get(p.name) for p in step.params], value.get("tokens"), value.get("values")


def _by_place(step, value):
    """The same out of a tuple: numbers, then tokens, then values."""
    lists = step.tokens + step.values
    parts = list(value) if isinstance(value, tuple) and (step.params or step.values) else [value]
    given = [p for p in parts[len(parts) - lists:]] if lists and _is_list(parts[-1]) else []
    numbers = parts[:len(parts) - len(given)]
    if len(numbers) > len(step.params):
        _refuse(TypeError, step.name, "%d numbers, at most %d", len(numbers), len(step.params))
    return numbers, *given, *[None] * (2 - len(given))


def _parts(step, value, tokens):
    """([numbers], tokens, values) of a step; tokens: those of a step that has none."""
    if step.values and isinstance(value, dict) and "tokens" not in value:
        numbers, found, values = [], list(value), list(value.values())
    else:
        numbers, found, values = (_by_name if isinstance(value, dict) else _by_place)(step, value)
    numbers = numbers + [None] * (len(step.params) - len(numbers))
    missing = [p.name for p, n in zip(step.params, numbers) if n is None and p.required]
    numbers = [p.default if n is None else n for p, n in zip(step.params, numbers)]
    found = tokens if found is None and step.tokens else found
    missing += ["tokens"] * (step.tokens and found is None) + ["values"] * (step.values and values is None)
    if missing:
        _refuse(TypeError, step.name, "%s is missing", missing[0])
    return numbers, found, values


def _rows(step, value, tokens):
    """A step as the core takes it: (whether something is given for each row, one or one a row)."""
    numbers, found, values = _parts(step, value, tokens)
    lists = [one if one is None else _each_list(one) for one in (found, values)]
    several = [_each(n) for n in numbers] + lists
    counts = {len(one) for one in several if isinstance(one, list)}
    if len(counts) > 1:
        _refuse(ValueError, step.name, "is given for %s rows", " and for ".join(map(str, sorted(counts))))
    made, each = [], bool(counts)
    for row in range(counts.pop() if counts else 1):
        def at(i, value):
            return several[i][row] if isinstance(several[i], list) else value
        row_numbers = [_number(step.name, p, at(i, n)) for i, (p, n) in enumerate(zip(step.params, numbers))]
        row_tokens = None if found is None else _tokens(step.name, _plain(at(-2, found)))
        row_values = None if values is None else [_number(step.name, step, v) for v in _plain(at(-1, values))]
        if row_values is not None and len(row_values) != len(row_tokens):
            _refuse(ValueError, step.name, "%d tokens and %d values", len(row_tokens), len(row_values))
        kind = step.id
        made.append((kind, *row_numbers, *[0.0] * (NUMBERS - len(row_numbers)), row_tokens, row_values))
    return each, made


def _step(function, name):
    if name in SAMPLING_STEPS:
        return SAMPLING_STEPS[name]
    raise TypeError(_text.unknown(function, name, [*SAMPLING_STEPS, *inspect.signature(sample).parameters]))


def _named(function, steps, chain):
    """[(step, value)] of a list of steps and of keyword arguments."""
    listed = []
    for one in [] if steps is None else steps:
        if not isinstance(one, (tuple, list)) or len(one) < 2 or not isinstance(one[0], str):
            raise TypeError("%s: steps: %r is not a tuple of a name and what the step takes"
                            % (function, one))
        listed.append((_step(function, one[0]), one[1] if len(one) == 2 else tuple(one[1:])))
    return listed + [(_step(function, name), value) for name, value in chain.items() if value is not None]


def _chains(listed, tokens=None):
    """(for how many rows, or None for any number; one chain for all rows, or one a row)"""
    steps = [_rows(step, value, tokens) for step, value in listed]
    counts = {len(made) for each, made in steps if each}
    if len(counts) > 1:
        raise ValueError("sample: steps are given for %s rows" % " and for ".join(map(str, sorted(counts))))
    rows = counts.pop() if counts else None
    return rows, tuple(tuple(made[r if each else 0] for each, made in steps)
                       for r in range(1 if rows is None else rows))


# ---- Calls ----

def _count_rows(x):
    """Of scores [.., n]."""
    if isinstance(x, (list, tuple)):
        return sum(map(_count_rows, x)) if x and _is_list(x[0]) else 1
    return math.prod((x if hasattr(x, "shape") else memoryview(x)).shape[:-1])


def _flat(array):
    found = array.tolist()
    while found and isinstance(found, list) and isinstance(found[0], list):
        found = [item for one in found for item in one]
    return found if isinstance(found, list) else [found]


def _seed(seed):
    """A number, or what makes one: a generator of NumPy's or of random's."""
    if hasattr(seed, "getrandbits"):
        return seed.getrandbits(64)
    if hasattr(seed, "bit_generator"):
        return int(seed.bit_generator.random_raw())
    return seed


def _whole(name, value):
    """A seed or a stream."""
    try:
        number = operator.index(value)
    except TypeError:
        _refuse(TypeError, name, "%r is neither a whole number nor an array of one a row", value)
    if not 0 <= number < 2**64:
        _refuse(ValueError, name, "%d is not a whole number from 0 to 2^64 - 1", number)
    return number


def _one_or_each(given, name, value):
    """Under its own name what is one for all rows, and under another what is an array of one a row."""
    if not _is_list(value):
        given[name] = _whole(name, value)
        return
    given[name + "s"] = value
    numbers = _flat(value) if hasattr(value, "tolist") else list(value)
    for number in numbers:
        if not hasattr(number, "__len__"):  # the core says what is wrong with a shape
            _whole(name, number)


def _draw(x, axis, chains, method, seed, stream, draws, keepdims, log, status):
    if method not in METHODS:
        raise ValueError("sample: method: %r is not one of %s" % (method, ", ".join(map(repr, METHODS))))
    if draws is not None and operator.index(draws) < 1:
        raise ValueError("sample: draws: %r is not at least 1" % (draws,))
    axis = axis if axis is None or isinstance(axis, (tuple, list)) else (axis,)
    rows, chains = chains
    given = {"x": x, "axis": axis, "chains": chains, "rows": rows, "draw": METHODS.index(method),
             "draws": draws, "keepdims": keepdims,
             "log": log or None, "status": status or None}
    _one_or_each(given, "seed", _seed(seed))
    _one_or_each(given, "stream", stream)
    return SampleResult(*_core.sample(given))


def sample(x, axis=-1, *, steps=None, method="gumbel", seed=0, stream=0, draws=None, keepdims=False,
           return_log=False, return_status=False,
           **chain):
    found = _draw(x, axis, _chains(_named("sample", steps, chain)), method, seed, stream, draws, keepdims,
                  return_log, return_status)
    return found if return_log or return_status else found.index


def _form(step):
    """The step as it is written: xtc=(chance, threshold)."""
    parts = [p.name if p.required else "%s (%g)" % (p.name, p.default) for p in step.params]
    if step.tokens:
        parts.append("{token: value}" if step.values else "text" if step.text else "tokens")
    return "%s=%s" % (step.name, parts[0] if len(parts) == 1 else "(%s)" % ", ".join(parts))


DOC = """Draws from scores: a chain of steps, each of which changes the scores or removes some, then one
element of what is left.

    Steps are taken in the order in which they are written, those of the list first: sample(x,
    temperature=0.8, top_p=0.9) cuts what the temperature made, sample(x, top_p=0.9, temperature=0.8) the
    other way about. A draw depends on its row, the steps, the seed and the stream of the row, on nothing
    else.

    Args:
        x: scores (logits); any shape; rows run along the axis
        axis: the axis that rows run along; a tuple of axes, or None for all elements
        steps: a list of (name, value) or (name, number, ..., tokens); a step by name has the same value
        method: gumbel: the best after noise; cdf: one random number and the inverse of the distribution
            function; greedy: the best
        seed: a whole number from 0 to 2^64 - 1, an array of one a row, or a generator of NumPy's or of
            random's, which gives one
        stream: of the first row, the next rows having the next ones; or an array of one a row; from 0 to
            2^64 - 1
        draws: how many of each row; they stand along a new last axis, and draw d has the stream of its row
            plus d 2^32. None: one
        keepdims: the axis stays, of length 1
        return_log: also give the logarithm of the probability of what was drawn, among what was left
        return_status: also give what became of each row: 0 drawn, 1 nothing was left, 2 a NaN, 3 +inf

    Steps:
STEPS

    A number may be an array, or a list, of one a row; a list of tokens may be one of lists, of one a row.
    Parts may be named: dry={"multiplier": 0.8, "tokens": text}. A mask of tokens is an array of bool. Texts
    are oldest first, and -1 in one is a break that no run contains.

    Returns:
        index: int64, the shape of x without the axis; -1 where nothing was drawn. With return_log or
            return_status a tuple (index, log, status)

    >>> import array
    >>> scores = array.array("f", [1, 4, 3, 0])
    >>> int(sample(scores, bias={1: -5}, temperature=0).tolist())
    2
    >>> [sorted(set(sample(scores, top_k=k, draws=99).tolist())) for k in (1, 2)]
    [[1], [1, 2]]
    """


def _describe(function, doc):
    """Names the steps in a signature, and where it says so in the text."""
    own = inspect.signature(function).parameters.values()
    names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in SAMPLING_STEPS]
    function.__signature__ = inspect.Signature([*(p for p in own if p.name != "chain"), *names])
    function.__doc__ = doc.replace("STEPS",
                                   "\n".join("        %s: %s" % (_form(step), step.title)
                                             for step in SAMPLING_STEPS.values()))


class Sampler:
    """What sample() does, with what it remembers from one call to the next.

    A call takes scores [.., n] of the next token, draws one a row and remembers it. Steps that want tokens
    and are given none get those of their row: what was fed and drawn so far. surprise=TARGET and
    mirostat=TARGET keep the state of mirostat for each row: it begins at twice the target, and each draw
    moves it by `rate` times what it missed the target by. Call t draws what sample(..., draws=t + 1) has at
    place t.

    Args:
        steps, method, seed, stream, and steps by name: as of sample
        last: how many tokens are remembered of each row; None: all
        rate: how fast the state of mirostat moves, its eta

    All it knows is in .drawn (how many calls there were), .tokens (a list for each row) and .surprise (the
    state of each row), which may be read and set; it can be copied and pickled.

    >>> import array
    >>> draw = Sampler(repetition=2, temperature=0)
    >>> [draw(array.array("f", [1, 3, 2])).tolist() for _ in range(3)]
    [1, 2, 1]
    >>> draw.tokens
    [[1, 2, 1]]
    """

    def __init__(self, steps=None, *, method="gumbel", seed=0, stream=0, last=None, rate=0.1, **chain):
        self.listed = _named("Sampler", steps, chain)
        self.method, self.seed, self.stream, self.last, self.rate = method, _seed(seed), stream, last, rate
        self.drawn, self.tokens, self.surprise = 0, [], []
        self.target = next((_number(step.name, step.params[0], value)
                            for step, value in self.listed if step.name in STATES), None)

    def feed(self, tokens):
        """Remembers tokens that were not drawn: a list of them, or for several rows a list of lists."""
        tokens = _each_list(tokens) or [_plain(tokens)]
        self._begin(len(tokens))
        for row, more in zip(self.tokens, tokens):
            self._remember(row, _tokens("tokens", more))

    def _begin(self, rows):
        if not self.tokens:
            self.tokens = [[] for _ in range(rows)]
        if not self.surprise and self.target is not None:
            self.surprise = [2 * self.target] * rows
        if len(self.tokens) != rows:
            raise ValueError("Sampler: %d rows, and %d before" % (rows, len(self.tokens)))

    def _remember(self, row, tokens):
        row.extend(tokens)
        if self.last is not None:
            del row[:max(len(row) - self.last, 0)]

    def __call__(self, x):
        rows = _count_rows(x)
        self._begin(rows)
        listed = [(step, list(self.surprise) if step.name in STATES else value)
                  for step, value in self.listed]
        chains = _chains(listed, self.tokens if rows else [])
        found = _draw(x, -1, chains, self.method, self.seed, self._streams(), None, False, True, True)
        for r, token in enumerate(_flat(found.index)):
            if token >= 0:
                self._remember(self.tokens[r], [token])
        if self.target is not None:
            seen = [-log / math.log(2) for log in _flat(found.log)]
            self.surprise = [s if math.isnan(bits) else s - self.rate * (bits - self.target)
                             for s, bits in zip(self.surprise, seen)]
        self.drawn += 1
        return found.index

    def _streams(self):
        """Those of this call."""
        past = self.drawn << 32
        if _is_list(self.stream):
            return [(_whole("stream", stream) + past) % 2**64 for stream in _plain(self.stream)]
        return (_whole("stream", self.stream) + past) % 2**64


_describe(sample, DOC)
_describe(Sampler, Sampler.__doc__)
