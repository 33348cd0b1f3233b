"""Calls on rows whose columns lie on several ranks, over any transport: what softmax/split.h asks of a
caller. Ranks tell each other what they came with; columns of groups that two of them share travel to
the one that sums them; messages travel round by round.

A transport has rank and size; quick: whether a message takes no longer than a pass over what caches hold, so that
blocks of rows are as small as these; and

    gather(message, sizes)     a function that waits, and gives the bytes of all ranks, one behind the
                               other: sizes[r] of rank r
    scatter(message, to, sizes)
                               the same, of what all ranks sent here: to[r] bytes of the message go to rank r, and
                               sizes[r] come from it
    exchange(sent, columns, rows, like)
                               arrays [rows, columns[r]] from every rank r, of the dtype of `like`, for the
                               arrays [rows, ...] or None that are sent, one a rank
    send(data, rank)           bytes to one rank,
    receive(count, rank)       so many from one,
    spread(data, count, root)  and those of root to all
    close()                    a call has ended

and makes arrays: array(value), whole(a) (of whole numbers or bools), cast(a, dtype), dtype(a), empty(shape,
dtype), move(a, source, target) (a view with an axis elsewhere)."""
import collections
import hashlib
import math
import struct

from . import _core, _functions, _text
from ._autograd import COLUMN, FULL, K, ROW
from ._table import OPERATORS

GROUP = _core.SPLIT_GROUP
SLOTS = 2  # blocks of rows under way
IN, OUT, DOUT, DIN = range(4)
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "bool")
HELD, ONE = 1, 2  # has the columns of this rank; has one value for all columns


# ---- what a rank came with ----


class Call:
    """Arguments of NAME (or NAME_backward) on one rank: arrays by what they are for, with the rows along their
    last axis, and settings."""

    def __init__(self, op, backward, given, transport):
        self.op, self.backward, self.transport = op, backward, transport
        arguments = _functions.backward_arguments(op) if backward else _functions.forward_arguments(op)
        self.slots = {a.name: a.slot for a in arguments if a.name != "out"}
        for name in given:
            if name not in self.slots:
                raise TypeError(_text.unknown(op.name, name, list(self.slots)))
        given = {name: value for name, value in given.items() if value is not None or name == "axis"}
        self.wanted, self.keep = given.pop("wanted", op.inputs[0].name), given.pop("keepdims", False)
        axis, params = given.pop("axis", -1), {p.name for p in op.params}
        self.arrays = [[None] * len(op.inputs), [None] * len(op.outputs), [None] * len(op.outputs), []]
        for which, prefix, ports in (IN, "", op.inputs), (OUT, "", op.outputs), (DOUT, "d", op.outputs):
            for i, port in enumerate(ports):
                name = prefix + port.name if prefix else _functions.python_name(port.name)
                number = name in params and isinstance(given.get(name), (int, float))
                if name in given and not number:
                    self.arrays[which][i] = self._array(given.pop(name), port)
        self.settings = given
        self._check_required()
        self.own_dtypes = [None if a is None else transport.dtype(a) for a in self.arrays[IN]]
        self._leave_out()
        self._along(axis)
        self.moves = [[False] * len(set) for set in self.arrays]
        self.how = bytes(self._how(which, i) for which in (IN, OUT, DOUT) for i in range(len(self.arrays[which])))

    def _check_required(self):
        op, needed = self.op, []
        if not op.rows:
            raise ValueError("%s: is no operator on rows" % op.name)
        for which, prefix, ports in (IN, "", op.inputs), (OUT, "", op.outputs):
            for a, port in zip(self.arrays[which], ports):
                here = which == IN and not port.optional and not port.either and (port.saved or not self.backward)
                if a is None and (here or which == OUT and self.backward and port.saved):
                    needed.append(prefix + port.name)
        if self.backward and self.arrays[DOUT][0] is None:
            needed.append("d" + op.outputs[0].name)
        if needed:
            raise TypeError("%s: %s is missing" % (op.name, needed[0]))

    def _array(self, value, port):
        """What the core would make of it."""
        t = self.transport
        try:
            a = t.array(value)
        except (TypeError, ValueError) as error:
            raise type(error)("%s: %s: %s" % (self.op.name, port.name, error)) from None
        if t.whole(a) and not port.mask and not (port.integer and t.dtype(a) in ("int32", "int64")):
            a = t.cast(a, "int64" if port.integer else "float64")
        if t.dtype(a) not in DTYPES:
            raise TypeError("%s: %s: dtype is %s" % (self.op.name, port.name, t.dtype(a)))
        return a

    def _leave_out(self):
        """A gradient reads nothing but what is saved."""
        for which, ports in (IN, self.op.inputs), (OUT, self.op.outputs):
            for i, port in enumerate(ports):
                if self.backward and not port.saved:
                    self.arrays[which][i] = None

    def _along(self, axis):
        """Rows along the last axis."""
        op, t = self.op, self.transport
        like = self.arrays[IN][0] if self.arrays[IN][0] is not None else self.arrays[DOUT][0]
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise TypeError("%s: axis: %r is not one axis, which rows over ranks have" % (op.name, axis))
        if not -like.ndim <= axis < like.ndim:
            raise ValueError("%s: axis is %d, not %d..%d" % (op.name, axis, -like.ndim, like.ndim - 1))
        self.axis = axis + like.ndim if axis < 0 else axis
        for which, ports in (IN, op.inputs), (OUT, op.outputs), (DOUT, op.outputs):
            for i, (a, port) in enumerate(zip(self.arrays[which], ports)):
                if a is None or port.shape not in (FULL, K):
                    continue
                if a.ndim > like.ndim:
                    raise ValueError("%s: %s: has %d axes, not %d" % (op.name, port.name, a.ndim, like.ndim))
                a = a.reshape((1,) * (like.ndim - a.ndim) + tuple(a.shape)) if a.ndim < like.ndim else a
                self.arrays[which][i] = t.move(a, self.axis, -1)
        for which in OUT, DOUT:
            for i, (a, port) in enumerate(zip(self.arrays[which], op.outputs)):
                if a is not None and port.shape == ROW and self.keep:
                    self.arrays[which][i] = t.move(a, self.axis, -1)[..., 0]
        like = self.arrays[IN][0] if self.arrays[IN][0] is not None else self.arrays[DOUT][0]
        self.rows, self.count = tuple(like.shape[:-1]), like.shape[-1]

    def _how(self, which, i):
        a, port = self.arrays[which][i], (self.op.inputs if which == IN else self.op.outputs)[i]
        if a is None or port.shape not in (FULL, COLUMN):
            return 0
        if port.shape == COLUMN and a.ndim != 1:
            raise ValueError("%s: %s: has %d axes, not 1" % (self.op.name, port.name, a.ndim))
        how = HELD * (a.shape[-1] == self.count)
        how |= ONE * (a.shape[-1] == 1 and which == IN and i > 0 and port.shape == FULL)
        if not how:
            raise ValueError("%s: %s: has %d columns, not %d" % (self.op.name, port.name, a.shape[-1], self.count))
        return how

    def text(self):
        """What has to be alike on all ranks. Parameters and what has one value a row the library compares."""
        words = [self.op.name + " backward" * self.backward]
        for prefix, set, ports in zip(("", "", "d"), self.arrays, (self.op.inputs, self.op.outputs, self.op.outputs)):
            for a, port in zip(set, ports):
                if a is not None:
                    shape = [str(size) for size in a.shape]
                    shape[-1:] = ["*"] if port.shape in (FULL, COLUMN) else shape[-1:]
                    words.append("%s%s %s [%s]" % (prefix, port.name, self.transport.dtype(a), ", ".join(shape)))
        flags = sorted(name for name, value in self.settings.items() if name.startswith("return_") and value)
        return ", ".join(words + flags + (["wanted %s" % (self.wanted,)] if self.backward else []))


# ---- what all ranks came with ----

_FACTS = struct.Struct("<4q64s32s512s")
_ERRORS = (None, ValueError, TypeError, MemoryError, RuntimeError)


def _number(error):
    return next((i for i, kind in enumerate(_ERRORS) if kind and isinstance(error, kind)), len(_ERRORS) - 1) if error else 0


def tell(transport, error=None, n=-1, first=-1, count=0, how=b"", text=""):
    """What all ranks tell, [(n, first, count, how, hash, text)]. The first error is that of every rank."""
    own = (str(error) if error else text).encode(errors="replace")
    mine = _FACTS.pack(_number(error), n, first, count, how, hashlib.sha256(own).digest(), own[:512])
    heard = list(_FACTS.iter_unpack(transport.gather(mine, [len(mine)] * transport.size)()))
    for r, (status, *_, said) in enumerate(heard):
        if status and r == transport.rank:
            try:
                raise error
            finally:
                del error  # it knows this frame, and frames with arrays
        if status:
            kind = _ERRORS[status] if 0 < status < len(_ERRORS) else RuntimeError
            raise kind("rank %d: %s" % (r, said.rstrip(b"\0").decode(errors="replace")))
    return [fact[1:] for fact in heard]


def attempt(transport, function, *args):
    """What the function gives; its error goes to all ranks, who wait in their next tell()."""
    try:
        return function(*args)
    except Exception as error:
        tell(transport, error)


def _agree(name, heard):
    """(bounds, how) of what all ranks told."""
    bounds = [0]
    for r, (n, first, count, *_) in enumerate(heard):
        if first not in (-1, bounds[-1]):
            raise ValueError("%s: rank %d: first is %d, but the ranks before it hold %d columns" % (name, r, first, bounds[-1]))
        bounds.append(bounds[-1] + count)
    how = bytearray(heard[0][3])
    for r, (n, _, _, own, digest, text) in enumerate(heard):
        if n not in (-1, bounds[-1]):
            raise ValueError("%s: rank %d: n is %d, but all ranks together hold %d columns" % (name, r, n, bounds[-1]))
        if digest != heard[0][4]:
            theirs, ours = (fact.rstrip(b"\0").decode(errors="replace") for fact in (text, heard[0][5]))
            raise ValueError("%s: rank %d has %s; rank 0 has %s" % (name, r, theirs, ours))
        for i, value in enumerate(own):
            if how[i] and not how[i] & value:
                raise ValueError("%s: an array has one value for all columns on one rank, and not on rank %d" % (name, r))
            how[i] &= value
    return bounds, how


# ---- columns ----


class Columns:
    """Who holds which columns, and who sums them."""

    def __init__(self, transport, bounds):
        self.transport, self.held, self.summed = transport, bounds, _core.split_plan(bounds)
        self.apart = self.held != self.summed
        me = transport.rank
        self.first, self.own = self.summed[me], self.summed[me + 1] - self.summed[me]
        at = self.first - bounds[me]
        self.inside = slice(at, at + self.own) if 0 <= at and self.summed[me + 1] <= bounds[me + 1] else None
        self.groups = [-(-(b - a) // GROUP) for a, b in zip(self.summed, self.summed[1:])]

    def move(self, source, target, back):
        """Columns of one array, from where they are held to where they are summed, or back."""
        t, me = self.transport, self.transport.rank
        come, go = (self.summed, self.held) if back else (self.held, self.summed)
        sent, columns, rows = [], [], math.prod(source.shape[:-1])
        for r in range(t.size):
            out, into = _common(come, me, go, r), _common(come, r, go, me)
            part = source[..., out.start - come[me]:out.stop - come[me]]
            if r == me:
                if self.inside is None:
                    target[..., into.start - go[me]:into.stop - go[me]] = part
                out, into, part = range(0), range(0), source[..., :0]
            sent.append(part.reshape(rows, len(out)) if len(out) else None)
            columns.append(len(into))
        for r, part in enumerate(t.exchange(sent, columns, rows, target)):
            if columns[r]:
                into = _common(come, r, go, me)
                place = target[..., into.start - go[me]:into.stop - go[me]]
                place[...] = part.reshape(place.shape)


def _common(come, r, go, q):
    """The columns that rank r has before, and rank q afterwards."""
    first = max(come[r], go[q])
    return range(first, max(first, min(come[r + 1], go[q + 1])))


# ---- rounds ----


def _relay(t, split, block, back):
    """Ranks pass one after another; the last one's state goes to all."""
    ends = (t.size - 1, 0, -1) if back else (0, t.size - 1, 1)
    first, last, step = ends
    count = split.state_bytes(block)  # the same on all ranks, for they hold the same rows
    if t.rank != first:
        split.take_state(block, t.receive(count, t.rank - step))
    message, state = split.message(block), split.state(block, count)
    if t.rank != last:
        t.send(state, t.rank + step)
    state = t.spread(state, count, last)
    if t.rank != last:
        split.take_state(block, state)
    return message


def _rounds(t, split, groups):
    """Blocks take turns: while the messages of one travel, the other passes. All ranks come to the same
    order."""
    def begin(block):
        kind = split.next(block)
        if kind == _core.SPLIT_SCATTER:  # each rank folds some of the rows, and tells their states in the next round
            to, sizes = ([split.bytes(block, *one) for one in both] for both in
                         ([(groups[t.rank], r) for r in range(t.size)], [(count, t.rank) for count in groups]))
            return t.scatter(split.message(block), to, sizes)
        sizes = [split.bytes(block, count, r) for r, count in enumerate(groups)]
        relayed = kind in (_core.SPLIT_RELAY, _core.SPLIT_RELAY_BACK)
        message = _relay(t, split, block, kind == _core.SPLIT_RELAY_BACK) if relayed else split.message(block)
        return t.gather(message, sizes)

    while split.next(0) != _core.SPLIT_DONE:
        split.fold(0, begin(0)())
    blocks = split.blocks()
    under_way = collections.deque((block, begin(block)) for block in range(1, min(SLOTS + 1, blocks)))
    while under_way:
        block, wait = under_way.popleft()
        messages = wait()
        try:
            split.fold(block, messages)
        except BaseException:
            for _, wait in under_way:  # a message that is no good is so for all: what else is on its way arrives
                wait()
            raise
        if split.next(block) == _core.SPLIT_DONE:
            block += SLOTS
        if block < blocks:
            under_way.append((block, begin(block)))


# ---- calls ----


def _results(call, columns, dtype):
    """Arrays for results as the caller sees them, one a port, None for those that nobody asked for."""
    op, t, n = call.op, call.transport, columns.held[-1]
    at = call.axis

    def make(shape, dtype, rule):
        if rule not in (FULL, K):
            return t.empty(shape, dtype)
        *rows, length = shape
        return t.empty((*rows[:at], call.count if rule == FULL else length, *rows[at:]), dtype)
    if call.backward:
        wanted = {call.wanted} if isinstance(call.wanted, str) else {*call.wanted}
        unknown = wanted - {p.name for p in op.inputs}
        if unknown:
            raise ValueError("%s: wanted: %r is no input" % (op.name, unknown.pop()))
        made = []
        for i, port in enumerate(op.inputs):
            own = call.arrays[IN][i]
            shape = (*call.rows, n) if port.shape == FULL else call.rows if port.shape == ROW else \
                None if own is None else tuple(own.shape)
            if port.name in wanted and shape is None:
                raise TypeError("%s: %s is missing" % (op.name, port.name))
            own = call.own_dtypes[i] or t.dtype(call.arrays[DOUT][0])
            made.append(make(shape, own, port.shape) if port.name in wanted else None)
        return made
    whole = []
    for i, a in enumerate(call.arrays[IN]):
        moves = call.moves[IN][i]
        whole.append(None if a is None else ((*a.shape[:-1], n) if moves else tuple(a.shape), t.dtype(a)))
    settings = {name: value for name, value in call.settings.items() if not name.startswith("return_")}
    shapes = _core.shapes(op.index, call.slots, settings, tuple(whole))
    asked = [not p.optional or bool(call.settings.get("return_" + p.name)) for p in op.outputs]
    return [make(shape, own if dtype is None or p.integer or p.dx else dtype, p.shape) if there else None
            for p, (shape, own), there in zip(op.outputs, shapes, asked)]


def _as_given(call, results, ports):
    """Results with the rows along the last axis, as views."""
    t, full = call.transport, (FULL, K)
    return [t.move(a, call.axis, -1) if a is not None and (p.shape in full) else a
            for a, p in zip(results, ports)]


def _own(call, columns):
    """Arrays of the columns of this rank's groups: a part of those that it holds, or room for them."""
    t = call.transport

    def own(a):
        return t.empty((*a.shape[:-1], columns.own), t.dtype(a)) if columns.inside is None else a[..., columns.inside]
    return [[own(a) if a is not None and moves else a for a, moves in zip(*both)] for both in zip(call.arrays, call.moves)]


def _open(call, columns, arrays):
    t, summed = call.transport, columns.summed
    most = max(b - a for a, b in zip(summed, summed[1:])) if t.quick else 0
    part = summed[-1], columns.first, most, SLOTS, columns.groups[t.rank], t.size, t.rank
    return _core.split(call.backward, call.op.index, call.slots, call.settings, *map(tuple, arrays), part)


def _make(call, columns, dtype):
    """(results, arrays of the call's own groups)"""
    results = _results(call, columns, dtype)
    written = DIN if call.backward else OUT
    ports = call.op.inputs if call.backward else call.op.outputs
    call.arrays[written] = _as_given(call, results, ports)
    call.moves[written] = [p.shape in (FULL, COLUMN) for p in ports]
    return results, _own(call, columns) if columns.apart else call.arrays


def run(transport, op, given, backward=False, n=None, first=None, dtype=None):
    """The outputs of an operator, or with backward the gradients of all its inputs, None for those that nobody
    asked for. given: {name: value} of the arguments of its function, arrays with this rank's columns. dtype: of
    floating outputs, None for that of the first input. An error of one rank is one of all."""
    try:
        return _run(transport, op, given, backward, n, first, dtype)
    finally:
        transport.close()


def _begin(transport, op, given, backward, n, first):
    for name, value in ("n", n), ("first", first):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62):
            raise ValueError("%s: %s: %r is no number of columns" % (op.name, name, value))
    return Call(op, backward, given, transport)


def _run(transport, op, given, backward, n, first, dtype):
    call = attempt(transport, _begin, transport, op, given, backward, n, first)
    bounds, how = _agree(op.name, tell(transport, None, -1 if n is None else n, -1 if first is None else first,
                                       call.count, call.how, call.text()))
    how = iter(how)
    call.moves = [[bool(next(how) & HELD) for _ in set] for set in call.arrays[:DIN]] + [[]]
    columns = Columns(transport, bounds)
    results, arrays = attempt(transport, _make, call, columns, dtype)
    written = DIN if backward else OUT
    moving = [(which, i) for which in range(4) for i, a in enumerate(call.arrays[which])
              if columns.apart and a is not None and call.moves[which][i]]
    if columns.apart:
        tell(transport)
    for which, i in moving:
        if which != written:
            columns.move(call.arrays[which][i], arrays[which][i], False)
    split = attempt(transport, _open, call, columns, arrays)
    tell(transport)
    _rounds(transport, split, columns.groups)
    for which, i in moving:
        if which == written:
            columns.move(arrays[which][i], call.arrays[which][i], True)
    if call.keep and not backward:
        at = call.axis
        results = [a.reshape((*call.rows[:at], 1, *call.rows[at:])) if a is not None and p.shape == ROW else a
                   for a, p in zip(results, op.outputs)]
    return results


# ---- functions with the arguments of the package ----


def _bind(name, args, kwargs, backward):
    op = OPERATORS.get(name)
    if op is None:
        raise ValueError("%r is no operator" % (name,))
    if backward and not op.backward:
        raise ValueError("%s: has no gradient" % name)
    arguments = _functions.backward_arguments(op) if backward else _functions.forward_arguments(op)
    positional = [a.name for a in arguments if a.kind is _functions.POSITIONAL]
    if len(args) > len(positional):
        raise TypeError("%s: %d arguments by position, at most %d" % (name, len(args), len(positional)))
    twice = {*positional[:len(args)]} & {*kwargs}
    if twice:
        raise TypeError("%s: %s is given twice" % (name, twice.pop()))
    return op, {**dict(zip(positional, args)), **kwargs}


def forward(transport, name, args, kwargs, n, first):
    """What libsoftmax.NAME gives."""
    op, given = attempt(transport, _bind, name, args, kwargs, False)
    reduced, result = _functions.reduced_output(op), _functions.result_type(op)
    whole = reduced is not None and given.get("reduction", "none") not in ("none", 0)
    if whole:
        given["return_" + op.outputs[reduced].name] = True
    made = run(transport, op, given, n=n, first=first)
    if whole:
        made[0] = made[reduced]
    return result(*made) if result else made[0]


def backward(transport, name, args, kwargs, n, first):
    """What libsoftmax.NAME_backward gives."""
    op, given = attempt(transport, _bind, name, args, kwargs, True)
    wanted = given.get("wanted") or op.inputs[0].name
    made = dict(zip((p.name for p in op.inputs), run(transport, op, given, True, n, first)))
    return made[wanted] if isinstance(wanted, str) else tuple(made[name] for name in wanted)
