"""Attention: functions around the entry points of the library that are not operators on rows."""
import collections
import textwrap

from . import _core
from ._table import ATTENTION_KINDS as KINDS, OPERATORS

_GRADIENTS = ("q", "k", "v", "bias", "slopes", "sinks", "row")


def gradients(weights):
    """The inputs of attention that have one: with a kind of weights, or with an operator on rows."""
    return _GRADIENTS[:6] if weights in KINDS else tuple(n for n in _GRADIENTS if n != "sinks")


_DEFAULTS = {name: tuple(p.default for p in kind.params) for name, kind in KINDS.items()}
_STAGES = ("products", "capped", "scores", "weights")
_LAYOUTS = ("half", "interleaved")
_POOLS = ("mean", "max")
_TURNED = ("x", "positions", "frequencies")

AttentionResult = collections.namedtuple("AttentionResult", ["o", "lse"], module="libsoftmax")
TropicalResult = collections.namedtuple("TropicalResult", ["o", "winners"], module="libsoftmax")
SelectResult = collections.namedtuple("SelectResult", ["keys", "kept"], module="libsoftmax")
RopeResult = collections.namedtuple("RopeResult", ["y", "carry"], module="libsoftmax")


def _choose(function, name, word, words):
    if word not in words:
        raise ValueError("%s: %s: %r is not one of %s" % (function, name, word, ", ".join(map(repr, words))))
    return list(words).index(word)


def _weights(function, given):
    """What `weights` and `params` mean: the number of the kind, and its parameters in their order."""
    kind, params = given["weights"], given["params"] or {}
    if not params and kind in _DEFAULTS:
        return dict(given, weights=KINDS[kind].id, params=_DEFAULTS[kind])
    if kind not in KINDS and kind in OPERATORS and function in ("attention", "attention_backward"):
        return dict(given, weights=0, operator=kind)
    _choose(function, "weights", kind, tuple(KINDS))
    known = {p.name: p for p in KINDS[kind].params}
    unknown = set(params) - set(known)
    if unknown:
        raise ValueError("%s: params: %r has no %s, only %s"
                         % (function, kind, ", ".join(map(repr, sorted(unknown))), ", ".join(map(repr, known)) or "none"))
    values = tuple(_value(function, p, params.get(p.name)) for p in known.values())
    return dict(given, weights=KINDS[kind].id, params=values)


def _value(function, param, value):
    """The number of a parameter: its default for None, that of a choice by its name."""
    if value is None:
        return param.default
    if isinstance(value, str) and param.choices:
        return _choose(function, param.name, value, param.choices)
    return value


def _call(function, given):
    return _core.attention(function, _weights(function, given) if "weights" in given else given)


def attention(q, k, v, *, weights="softmax", params=None, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1,
              window_right=-1, key_start=0, mask=None, bias=None, slopes=None, sinks=None, row=None, lengths=None, query_offsets=None,
              key_offsets=None, block_table=None, dropout=0.0, seed=0, stream=0, streams=None, return_lse=False, out=None, on_empty="zero",
              on_inf="nan"):
    """Attention: o_i = sum_j w_ij v_j over the keys j that query i may see.

        z_ij = softcap tanh(scale <q_i, k_j> / softcap) + bias_ij - slope |i + query_start - j|,   w_i = softmax(z_i) or another kind

    Memory grows with the number of keys, not with their number times that of queries. The result of a row depends only on its query and on the
    keys that it sees: prefill, decoding one token at a time, padded and paged caches give the same bits.

    Instead of the one axis B there may be several, which broadcast among q, k and v, or none; arrays of two axes have one head. So have the other
    functions of attention.

    Args:
        q: queries [B, Hq, Lq, d]; any strides, so that other orders of the axes are transposed views
        k: keys [B, Hkv, Lk, d]; Hq is a multiple of Hkv, and query head h uses key head h // (Hq // Hkv)
        v: values [B, Hkv, Lk, e]
        weights: how scores become weights: {kinds} (libsoftmax.ATTENTION_KINDS has their formulas, parameters
            and defaults); or an operator on rows that makes a row of weights of a row of scores, as sparsemax, entmax15 or entmax, with
            its parameters: then the scores of some rows lie in memory at a time, and there are neither sinks nor lse
        params: parameters of the weights, a dict as dict(n=1) of softmax_n; what is left out or None has its default
        scale: of the scores; 0 means 1 / sqrt(d)
        softcap: bound of the scores; 0 means none
        causal: row i sees the keys j <= i + query_start
        query_start: position of the first row among the keys; -1 means that the last row stands at the last key
        window_left: row i sees no key below i + query_start - window_left; -1 means no end
        window_right: row i sees no key above i + query_start + window_right; -1 means no end
        key_start: logical index of the first key, a multiple of 1024
        mask: [B, Hq, Lq, Lk] or what broadcasts to it, bool or uint8: true where the key is visible
        bias: [B, Hq, Lq, Lk] or what broadcasts to it: added to the scores; -inf hides a key
        slopes: [B, Hq] or [Hq]: ALiBi
        sinks: [B, Hq] or [Hq]: the score of one more key that has no value
        row: [B, Hq, Lq] or what broadcasts to it, as [Hq, 1]: with an operator on rows a number for each row in place of a parameter: alpha of
            entmax, sink of sink_softmax, b of sigmoid_attention
        lengths: [B]: how many keys of each sequence there are: the first of those that it has room for, with key_offsets too
        query_offsets: [B + 1]: where sequences begin that lie one after another along the axis of rows
        key_offsets: [B + 1]: the same for keys
        block_table: [B, pages]: k and v are pages [pages, Hkv, page size, d or e] of a cache
        dropout: probability of a weight to be 0; the others are divided by 1 - dropout. Which are dropped depends on the seed, the stream of the
            head and the positions of query and key alone
        seed: of the random numbers
        stream: of head 0 of sequence 0; head h of sequence b has stream + b Hq + h
        streams: [B]: of head 0 of each sequence
        return_lse: also give lse [B, Hq, Lq], the logarithm of the normaliser
        out: the array to write o to
        on_empty: what a row that sees no key gives: zero, nan or error
        on_inf: what a row with a score of +inf gives: nan, or limit: such keys share the weight

    Returns:
        o: [B, Hq, Lq, e], or with return_lse a tuple (o, lse)

    Sources: Attention Is All You Need (Vaswani et al. 2017); FlashAttention (Dao et al. 2022); ATTENTION_KINDS has those of the kinds of weights.

    >>> import array
    >>> q = memoryview(array.array("f", [1, 0.5])).cast("B").cast("f", (1, 1, 1, 2))
    >>> k = memoryview(array.array("f", [1, 0, 0, 1])).cast("B").cast("f", (1, 1, 2, 2))
    >>> [round(x, 4) for x in attention(q, k, k).tolist()[0][0][0]]
    [0.5875, 0.4125]
    """
    given = locals()
    if return_lse and weights not in KINDS:
        raise ValueError("attention: return_lse: %r has no lse" % (weights,))
    o, lse, *_ = _call("attention", given)
    return AttentionResult(o, lse) if return_lse else o


def attention_backward(do, *, q, k, v, o=None, lse=None, dlse=None, weights="softmax", params=None, scale=0.0, softcap=0.0, causal=False,
                       query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None, bias=None, slopes=None, sinks=None,
                       row=None, lengths=None, query_offsets=None, key_offsets=None, dropout=0.0, seed=0, stream=0, streams=None,
                       wanted=("q", "k", "v"), on_empty="zero", on_inf="nan"):
    """Gradients of attention, from what the forward call had and gave (with return_lse), and the upstream gradients do and dlse.

    Returns the gradients of the inputs in wanted, a name or a tuple of names: q, k, v, bias, slopes, sinks (of the shapes that these have). For
    {backward}; and for operators on rows that have a gradient, which need neither o
    nor lse, and have row in place of sinks. The other arguments are those of attention.
    """
    given, names = locals(), (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        _choose("attention_backward", "wanted", name, gradients(weights))
        given["d" + name] = 1
    found = dict(zip(_GRADIENTS, _call("attention_backward", given)))
    return found[wanted] if isinstance(wanted, str) else tuple(found[name] for name in names)


def attention_scores(q, k, *, stage="weights", weights="softmax", params=None, scale=0.0, softcap=0.0, causal=False, query_start=-1,
                     window_left=-1, window_right=-1, key_start=0, mask=None, bias=None, slopes=None, sinks=None, lengths=None,
                     block_table=None, dropout=0.0, seed=0, stream=0, streams=None, out=None, on_empty="zero", on_inf="nan"):
    """The matrix of scores or weights [B, Hq, Lq, Lk] of attention, to look at, or for attention_apply.

    stage: products: scale <q, k> of every pair; capped: the same after the cap; scores: with bias and ALiBi, -inf where a key is hidden;
    weights: what values are multiplied by, 0 where a key is hidden. The other arguments are those of attention.
    """
    given = locals()
    given["stage"] = _choose("attention_scores", "stage", stage, _STAGES)
    return _call("attention_scores", given)[0]


def attention_apply(w, v, *, causal=False, query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None, lengths=None,
                    block_table=None, out=None, on_empty="zero", on_inf="nan"):
    """Values weighted by a matrix that the caller has: o_i = sum_j w_ij v_j over the visible keys j.

    w: weights [B, Hq, Lq, Lk], of attention_scores or of another layer. v: values [B, Hkv, Lk, e]. The other arguments are those of attention.
    """
    return _call("attention_apply", locals())[0]


def attention_column_mass(q, k, lse, *, row_weights=None, weights="softmax", params=None, scale=0.0, softcap=0.0, causal=False,
                          query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None, bias=None, slopes=None, sinks=None,
                          lengths=None, out=None):
    """How much weight each key gets, [B, Hkv, Lk]: mass_j = sum a_i w_ij over the rows i of the query heads that share a key head.

    lse: what attention gave with return_lse. row_weights: the a_i, [B, Hq, Lq]; 1 by default. For the weights that have a gradient. The other
    arguments are those of attention. Caches of keys are pruned by it: H2O (Zhang et al. 2023), SnapKV (Li et al. 2024).
    """
    return _call("attention_column_mass", locals())[0]


def attention_select(mass, keep: int, *, first=0, last=0, kernel=1, pool="mean", shared=False, lengths=None, budgets=None, out=None):
    """Which keys to keep: the `keep` keys with the largest mass of every head, of equals the first ones.

    Args:
        mass: [B, H, Lk]: of attention_column_mass, or any other scores of keys
        keep: how many keys a list has at most
        first: so many of the first keys are in every list, and count
        last: so many of the last keys are
        kernel: the others are judged by as many neighbours, those left aside: an odd number; or a tuple of such numbers: each in turn takes its
            share of the keys, the best that are not taken yet
        pool: how: mean, with 0 beyond both ends, or max
        shared: one list for all heads of a sequence, by the sum of their masses
        lengths: [B]: how many keys of each sequence there are
        budgets: [B, H], or [B, 1] for shared lists, or what broadcasts to it: how many keys each list has at most
        out: the array to write keys to

    Returns:
        a tuple (keys, kept): int32 [B, H, keep] ([B, 1, keep] if shared), indices that ascend and then -1, rows of a block_table over pages of one
        key; and how many there are, int32 [B, H] or [B, 1]

    Sources: SnapKV (Li et al. 2024), H2O (Zhang et al. 2023); docs/conventions.md says how others select by it.

    >>> import array
    >>> mass = memoryview(array.array("f", [3, 1, 4, 1, 5])).cast("B").cast("f", (1, 1, 5))
    >>> keys, kept = attention_select(mass, 3, first=1)
    >>> keys.tolist(), kept.tolist()
    ([[[0, 2, 4]]], [[3]])
    """
    several = isinstance(kernel, (tuple, list))
    if several and not kernel:
        raise ValueError("attention_select: kernel: %r has no number" % (kernel,))
    given = dict(locals(), pool=_choose("attention_select", "pool", pool, _POOLS), kernel=0 if several else kernel,
                 kernels=tuple(kernel) if several else None)
    return SelectResult(*_core.attention("attention_select", given)[:2])


def attention_states(q, k, v, *, weights="softmax", params=None, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1,
                     window_right=-1, key_start=0, mask=None, bias=None, slopes=None, lengths=None, block_table=None, dropout=0.0, seed=0,
                     stream=0, streams=None, out=None, on_inf="nan"):
    """What each 1024 keys contribute to attention, [B, Hq, Lq, S, W], for keys that lie on several machines or arrive in pieces: with key_start set for
    each piece, a multiple of 1024, and query_start given, attention_merge of the states of all pieces has the bits of attention over all keys. Not
    for weights that depend on the number of keys or on the whole row. The other arguments are those of attention.
    """
    return _call("attention_states", locals())[0]


def attention_merge(states, size: int, *, weights="softmax", params=None, sinks=None, return_lse=False, out=None, on_empty="zero"):
    """o [B, Hq, Lq, size], or with return_lse a tuple (o, lse), from a sequence of up to 24 states of attention_states, in the order of their keys.
    size: of a value. weights and params: as they were there.
    """
    if not isinstance(states, (tuple, list)):
        raise TypeError("attention_merge: states: %s is not a list or a tuple" % type(states).__name__)
    given = dict(locals(), states=tuple(states))
    o, lse, *_ = _call("attention_merge", given)
    return AttentionResult(o, lse) if return_lse else o


def _gradients(function, given, wanted, possible):
    """Those of the inputs in wanted, a name or a tuple of names."""
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        _choose(function, "wanted", name, possible)
        given["d" + name] = 1
    found = dict(zip(possible, _core.attention(function, given)))
    return found[wanted] if isinstance(wanted, str) else tuple(found[name] for name in names)


def attention_parallax(q, k, v, r, *, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1, window_right=-1, key_start=0,
                       mask=None, bias=None, slopes=None, lengths=None, query_offsets=None, key_offsets=None, block_table=None, dropout=0.0,
                       seed=0, stream=0, streams=None, out=None, on_empty="zero", on_inf="nan"):
    """Softmax attention whose values weigh more on one side of the mean: o_i = sum_j w_ij (1 + y_i - y_ij) v_j, y_ij = <r_i, k_j>, y_i = sum w y.

    r: [B, Hq, Lq, d], beside the queries. The other arguments are those of attention. Source: Parallax (2026).
    """
    return _core.attention("attention_parallax", locals())[0]


def attention_parallax_backward(do, *, q, k, v, r, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1, window_right=-1,
                                key_start=0, mask=None, bias=None, slopes=None, lengths=None, query_offsets=None, key_offsets=None, dropout=0.0,
                                seed=0, stream=0, streams=None, wanted=("q", "k", "v", "r"), on_inf="nan"):
    """Gradients of attention_parallax, of the inputs in wanted, a name or a tuple of names."""
    return _gradients("attention_parallax_backward", locals(), wanted, ("q", "k", "v", "r"))


def attention_local_linear(q, k, v, *, ridge=1e-3, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1, window_right=-1,
                           key_start=0, mask=None, bias=None, slopes=None, lengths=None, query_offsets=None, key_offsets=None,
                           block_table=None, dropout=0.0, seed=0, stream=0, streams=None, out=None, on_empty="zero", on_inf="nan"):
    """The value at each query of the affine map from keys to values that fits best by squares weighed as in softmax attention.

    ridge: what the linear part pays; the more, the nearer to softmax. The work grows with Lq Lk d^2. The other arguments are those of attention.
    Source: Local Linear Attention (Zuo et al. 2025).

    >>> import array
    >>> q = memoryview(array.array("d", [1, 0.5])).cast("B").cast("d", (1, 1, 1, 2))
    >>> k = memoryview(array.array("d", [1, 0, 0, 1, -1, 1])).cast("B").cast("d", (1, 1, 3, 2))
    >>> [round(x, 6) for x in attention_local_linear(q, k, k, ridge=0).tolist()[0][0][0]]
    [1.0, 0.5]
    """
    return _core.attention("attention_local_linear", locals())[0]


def attention_local_linear_backward(do, *, q, k, v, ridge=1e-3, scale=0.0, softcap=0.0, causal=False, query_start=-1, window_left=-1,
                                    window_right=-1, key_start=0, mask=None, bias=None, slopes=None, lengths=None, query_offsets=None,
                                    key_offsets=None, dropout=0.0, seed=0, stream=0, streams=None, wanted=("q", "k", "v"), on_inf="nan"):
    """Gradients of attention_local_linear, of the inputs in wanted, a name or a tuple of names."""
    return _gradients("attention_local_linear_backward", locals(), wanted, _GRADIENTS[:3])


def attention_additive(q, k, v, u, *, causal=False, query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None, bias=None,
                       slopes=None, lengths=None, query_offsets=None, key_offsets=None, block_table=None, dropout=0.0, seed=0, stream=0,
                       streams=None, out=None, on_empty="zero", on_inf="nan"):
    """Softmax attention by the scores z_ij = sum_c u_c tanh(q_ic + k_jc). u: [B, Hq, d] or what broadcasts to it. The other arguments are those of
    attention. Source: Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio 2015).
    """
    return _core.attention("attention_additive", locals())[0]


def attention_additive_backward(do, *, q, k, v, u, causal=False, query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None,
                                bias=None, slopes=None, lengths=None, query_offsets=None, key_offsets=None, dropout=0.0, seed=0, stream=0,
                                streams=None, wanted=("q", "k", "v", "u"), on_inf="nan"):
    """Gradients of attention_additive, of the inputs in wanted, a name or a tuple of names; that of u is [B, Hq, d]."""
    return _gradients("attention_additive_backward", locals(), wanted, ("q", "k", "v", "u"))


def attention_tropical(q, k, v, *, symmetric=True, causal=False, query_start=-1, window_left=-1, window_right=-1, key_start=0, mask=None,
                       lengths=None, query_offsets=None, key_offsets=None, block_table=None, return_winners=False, out=None,
                       on_empty="zero"):
    """Attention in the max-plus semiring: o_i[x] = max_j (s_ij + v_j[x]), s_ij = -(max_a t_a - min_a t_a) with t = q_i - k_j.

    symmetric=False: s_ij = -sum_a (t_a - min t). return_winners: also give the key of each element of o, int32 [B, Hq, Lq, e]; -1 in an empty row.
    The other arguments are those of attention. Source: Tropical Attention (2025).
    """
    o, winners, *_ = _call("attention_tropical", locals())
    return TropicalResult(o, winners) if return_winners else o


def attention_tropical_backward(do, *, q, k, v, winners, symmetric=True, query_offsets=None, key_offsets=None, lengths=None,
                                wanted=("q", "k", "v")):
    """Gradients of attention_tropical: of the inputs in wanted, a name or a tuple of names. winners: what the forward call gave."""
    return _gradients("attention_tropical_backward", locals(), wanted, _GRADIENTS[:3])


def _turn(function, given):
    given["layout"] = _choose(function, "layout", given["layout"], _LAYOUTS)
    return _core.attention(function, given)


def rope(x, *, layout="half", dims=0, base=10000.0, scale=1.0, start=0, positions=None, frequencies=None, cumulative=False, carry=None,
         return_carry=False, out=None):
    """Rotary position embedding of queries or keys: pairs of columns a, b of every row are turned by an angle w.

        y_a = x_a cos w - x_b sin w,   y_b = x_a sin w + x_b cos w,   w = scale position frequency_t,   frequency_t = base^(-2 t / dims)

    Products of turned queries with turned keys depend on the difference of their positions alone.

    Args:
        x: queries or keys [B, H, L, d]; any strides
        layout: the columns of pair t: half: t and t + dims / 2, or interleaved: 2 t and 2 t + 1
        dims: how many columns are turned, an even number; 0 means all. The others stay
        base: of the frequencies; 0 means 10000
        scale: of the positions; 0 means 1
        start: position of the first row; the others follow
        positions: [B, H, L, dims / 2] or what broadcasts to it, floats or integers: the positions instead, for every pair its own if need be
        frequencies: [B, H, dims / 2] or what broadcasts to it: instead of those that base makes
        cumulative: positions are steps, and a row's position is their sum up to its own (Selective RoPE)
        carry: [B, H, dims / 2] or what broadcasts to it: what the sums start from
        return_carry: also give carry [B, H, dims / 2] in float64, the sums at the last row: a later call goes on from there
        out: the array to write y to; it may be x

    Returns:
        y: as x, or with return_carry a tuple (y, carry)

    Sources: RoFormer (Su et al. 2021); Selective Rotary Position Embedding (2025).

    >>> import array
    >>> x = memoryview(array.array("f", [1, 0, 1, 0])).cast("B").cast("f", (1, 1, 2, 2))
    >>> [[round(value, 4) for value in row] for row in rope(x).tolist()[0][0]]
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    y, state, *_ = _turn("rope", locals())
    return RopeResult(y, state) if return_carry else y


def rope_backward(dy, *, x=None, layout="half", dims=0, base=10000.0, scale=1.0, start=0, positions=None, frequencies=None, cumulative=False,
                  carry=None, wanted=("x",)):
    """Gradients of rope from the upstream gradient dy: of the inputs in wanted, a name or a tuple of names: x, positions [B, H, L, dims / 2],
    frequencies [B, H, dims / 2]. The last two need x. The other arguments are those of rope.
    """
    given, names = locals(), (wanted,) if isinstance(wanted, str) else tuple(wanted)
    for name in names:
        _choose("rope_backward", "wanted", name, _TURNED)
        given["d" + name] = 1
    found = dict(zip(_TURNED, _turn("rope_backward", given)))
    return found[wanted] if isinstance(wanted, str) else tuple(found[name] for name in names)


FUNCTIONS = (attention, attention_additive, attention_additive_backward, attention_apply, attention_backward, attention_column_mass,
             attention_local_linear, attention_local_linear_backward, attention_merge, attention_parallax, attention_parallax_backward,
             attention_scores, attention_select, attention_states, attention_tropical, attention_tropical_backward, rope, rope_backward)

# What the tables say, in the docstrings.
_LISTS = {"{kinds}": textwrap.fill(", ".join(KINDS), 100).replace("\n", "\n            "),
          "{backward}": ", ".join(k.name for k in KINDS.values() if k.backward)}
for _function in (attention, attention_backward):
    for _place, _names in _LISTS.items():
        _function.__doc__ = _function.__doc__ and _function.__doc__.replace(_place, _names)
