"""Attention with the arguments that users of PyTorch and of FlashAttention know."""

import math
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._attention_autograd import ENTRIES
from .._table import ATTENTION_KINDS, OPERATORS
from . import _eager
from ._attention import FUNCTIONS, _tensor, call

attention = FUNCTIONS["attention"]
Flash = Tensor | tuple[Tensor, Tensor, None]


def _dropped(dropout, sequences):
    """Arguments of attention: random numbers from PyTorch's generator, where some are needed. As a
    tensor, which torch.compile can follow."""
    return {"dropout": dropout, "streams": torch.randint(0, 2**53, (sequences,))} if dropout else {}


def _heads(a, batch):
    """[B, H, L, d] of [..., H, L, d], whose leading axes broadcast to `batch`; of [..., L, d] with
    one head."""
    a = a.unsqueeze(-3) if a.ndim < 4 else a
    return a.expand(*batch, *a.shape[-3:]).reshape(math.prod(batch), *a.shape[-3:])


def _scaled(q, scale):
    """The scale as libsoftmax has it, where 0 means 1 / sqrt(d)."""
    return (q * 0, 1.0) if scale == 0 else (q, 0.0 if scale is None else float(scale))


def _given(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, more):
    """Arguments of attention, and the shape of the result where it is another."""
    if attn_mask is not None and is_causal:
        raise ValueError("scaled_dot_product_attention: attn_mask: is given, and is_causal too")
    lead = query.shape[:-3] if query.ndim > 3 else query.shape[:-2]
    q, k, v, batch, shape = query, key, value, lead, None
    if not query.ndim == key.ndim == value.ndim == 4:
        others = [a.shape[:-3] if a.ndim > 3 else a.shape[:-2] for a in (key, value)]
        batch = torch.broadcast_shapes(lead, *others) or (1,)
        q, k, v = (_heads(a, batch) for a in (query, key, value))
        rows = (q.shape[1], q.shape[2]) if query.ndim > 3 else (q.shape[2],)
        shape = (*(batch if lead or batch != (1,) else ()), *rows, v.shape[-1])
    if not enable_gqa and q.shape[1] != k.shape[1]:
        _refuse_heads("scaled_dot_product_attention", q, k)
    q, scale = _scaled(q, scale)
    given = {"q": q, "k": k, "v": v, "scale": scale, **({"causal": True, "query_start": 0} if is_causal else {})}
    if attn_mask is not None:
        mask = attn_mask
        if mask.dtype != torch.bool and not mask.is_floating_point():
            raise TypeError(
                "scaled_dot_product_attention: attn_mask: dtype is %s, not torch.bool or a float" % mask.dtype
            )
        if mask.ndim < 2:
            mask = mask.reshape([1] * (2 - mask.ndim) + list(mask.shape))
        if mask.ndim > 2 and query.ndim < 4:
            mask = mask.unsqueeze(-3)
        if mask.ndim > 4 or (mask.ndim > 2 and len(batch) > 1):
            mask = mask.reshape([1] * (4 - mask.ndim) + list(mask.shape))
            mask = mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
        given["mask" if mask.dtype == torch.bool else "bias"] = mask
    return {**given, **_dropped(dropout_p, q.shape[0]), **more}, shape


def _refuse_heads(name, q, k):
    raise ValueError(
        "%s: key: %d heads for %d of the queries, and enable_gqa is False" % (name, k.shape[1], q.shape[1])
    )


def _same_heads(route, q, k, *others):
    """The same call, unless queries share heads of keys."""
    if q.shape[1] != k.shape[1]:
        _refuse_heads("scaled_dot_product_attention", q, k)
    return _eager.perform(route, (q, k, *others))


_ENTRY, _KNOWN = ENTRIES["attention"], _core.forms()


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    **more: Any,
) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention: causal means that row i sees the keys j <=
    i, whatever their number. Other arguments are those of libsoftmax.attention: softcap, slopes,
    sinks, window_left, weights ..."""
    args = (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if not _eager.dynamo():
        made = _KNOWN(*args, **more)
        if made is not None:
            return made
    given, shape = _given(*args, more)
    arrays, settings, asked = _ENTRY.bind((), given, _tensor)

    def read(args, more):
        return _ENTRY.bind((), _given(*args, more)[0], _tensor)[0]

    def checked(route):
        return route if enable_gqa else (None, _same_heads, route)
    known = None if dropout_p or shape is not None else _KNOWN  # None: not to be kept
    o = call(_ENTRY, arrays, settings, asked, known, args, more, read, checked)
    return o if shape is None or any(asked) else o.reshape(shape)


def _flash(sequences, dropout_p, causal, window_size, softcap, alibi_slopes):
    return {
        **_dropped(dropout_p, sequences),
        "causal": causal,
        "window_left": window_size[0],
        "window_right": window_size[1],
        "softcap": softcap,
        "slopes": alibi_slopes,
        "return_lse": True,
    }


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Flash:
    """flash_attn.flash_attn_func: q, k and v are [B, L, H, d]; causal means that the last row sees
    the last key. It is deterministic always. With return_attn_probs a tuple (o, lse [B, H, L],
    None)."""
    q, scale = _scaled(q, softmax_scale)
    o, lse = attention(
        *(a.transpose(1, 2) for a in (q, k, v)),
        scale=scale,
        **_flash(q.shape[0], dropout_p, causal, window_size, softcap, alibi_slopes),
    )
    return (o.transpose(1, 2), lse, None) if return_attn_probs else o.transpose(1, 2)


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
    seqused_k: Tensor | None = None,
) -> Flash:
    """flash_attn.flash_attn_varlen_func: q, k and v are [rows of all sequences, H, d]; cu_seqlens_q
    and cu_seqlens_k say where sequences begin. With block_table [B, pages of a sequence] k and v
    are pages [pages, page size, H, d] of a cache, and there are no gradients of them. seqused_k
    [B] (lengths of attention): only so many of the first keys of each sequence count. The longest
    lengths are not needed. With return_attn_probs a tuple (o, lse [H, rows], None)."""
    q, scale = _scaled(q, softmax_scale)
    where = {"query_offsets": cu_seqlens_q}
    if block_table is not None:
        used = torch.as_tensor(cu_seqlens_k).diff() if seqused_k is None else torch.as_tensor(seqused_k)
        where.update(block_table=block_table, lengths=used)
        k, v = (a.transpose(1, 2) for a in (k, v))
    else:
        where.update(key_offsets=cu_seqlens_k, lengths=seqused_k)
        k, v = (a.transpose(0, 1).unsqueeze(0) for a in (k, v))
    o, lse = attention(
        q.transpose(0, 1).unsqueeze(0),
        k,
        v,
        scale=scale,
        **where,
        **_flash(len(cu_seqlens_q) - 1, dropout_p, causal, window_size, softcap, alibi_slopes),
    )
    o = o.squeeze(0).transpose(0, 1)
    return (o, lse.squeeze(0), None) if return_attn_probs else o


# ---- FlexAttention ----

# What a score_mod means in words of libsoftmax.attention, where it takes a value
MODS = {"softcap": "softcap", "alibi": "slopes", "bias": "bias", "sinks": "sinks"}


def _window(value):
    left, right = value if isinstance(value, (tuple, list)) else (value, -1)
    return {"window_left": left, "window_right": right, "query_start": 0}


def _mods(score_mod):
    """Arguments of libsoftmax.attention for a name, or a dict of names and their values."""
    given = {}
    if callable(score_mod):
        raise TypeError("flex_attention: score_mod: %r is a function; give a name, or a dict of names" % score_mod)
    mods = score_mod.items() if isinstance(score_mod, dict) else [(score_mod, True)] if score_mod else ()
    for name, value in mods:
        if value is False or value is None:
            continue
        if name == "causal":
            given.update(causal=True, query_start=0)
        elif name == "sliding_window":
            given.update(_window(value))
        elif name in MODS and value is not True:
            given[MODS[name]] = value
        elif name not in MODS and (name in ATTENTION_KINDS or name in OPERATORS):
            given.update(weights=name, params=value if isinstance(value, dict) else None)
        else:
            raise ValueError(
                "flex_attention: score_mod: %r is not one of causal, or with a value sliding_window, %s; nor a "
                "kind of weights of libsoftmax.attention" % (name, ", ".join(MODS))
            )
    return given


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: str | dict[str, Any] | None = None,
    block_mask: Tensor | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """torch.nn.attention.flex_attention.flex_attention, with what is done to scores by name: causal
    (row i sees the keys j <= i), {"sliding_window": left or (left, right)}, {"softcap": bound},
    {"alibi": slopes}, {"bias": tensor}, {"sinks": tensor}, or a kind of weights of
    libsoftmax.attention, {"softmax_n": {"n": 1}}; a dict may have several. block_mask: [B, H, L, S]
    or what broadcasts to it, bool: true where the key is visible."""
    given = _mods(score_mod)
    if block_mask is not None and not isinstance(block_mask, Tensor):
        raise TypeError("flex_attention: block_mask: %s is not a tensor of bool" % type(block_mask).__name__)
    if query.shape[1] != key.shape[1] and not enable_gqa:
        _refuse_heads("flex_attention", query, key)
    q, scale = _scaled(query, scale)
    made = attention(q, key, value, scale=scale, mask=block_mask, return_lse=return_lse, **given)
    return tuple(made) if return_lse else made


__all__ = ["scaled_dot_product_attention", "flash_attn_func", "flash_attn_varlen_func", "flex_attention"]
