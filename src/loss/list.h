/* loss/list.h - the losses, by name. Included wherever one entry an operator is needed; the only X-macro of the room. */
LOSS_OP(cross_entropy)
