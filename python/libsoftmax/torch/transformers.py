"""libsoftmax.attention for models of transformers: after

    import libsoftmax.torch.transformers

there is attn_implementation="libsoftmax", for from_pretrained, from_config and
model.set_attn_implementation. Logits of a text are the same whatever else is in its batch and on
however many threads, as far as the model's other layers keep that. Weights are not given
(output_attentions). Importing it again changes nothing."""

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from ._familiar import scaled_dot_product_attention

NAME = "libsoftmax"


def attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, is_causal=None,
              softcap=None, s_aux=None, position_bias=None, cache=None, **others):
    """(o [B, L, H, d], None): what transformers asks of an attention function. s_aux: sinks of the
    heads. Windows are in attention_mask. Masks of numbers are added to the scores."""
    if cache is not None:
        raise NotImplementedError("libsoftmax: cache: paged caches of continuous batching are not available")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    more = {"softcap": softcap or 0.0, "sinks": s_aux}
    if attention_mask is not None:
        more["bias" if attention_mask.is_floating_point() else "mask"] = attention_mask
        is_causal = False
    if position_bias is not None:
        more["bias"] = position_bias if "bias" not in more else position_bias + more["bias"]
    o = scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, is_causal=is_causal and query.shape[2] > 1, scale=scaling,
        enable_gqa=True, **more,
    )
    return o.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
