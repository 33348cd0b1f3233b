/* sample/list.h - the operators that draw from logits or shape them for drawing, by name; the only X-macro of the room. */
SAMPLE_OP(categorical_sample)
SAMPLE_OP(gumbel_softmax)
SAMPLE_OP(gumbel_topk)
SAMPLE_OP(binary_concrete)
SAMPLE_OP(dirichlet_sample)
SAMPLE_OP(cfg_logits)
