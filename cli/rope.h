/* rope.h - rotary position embedding of the queries and keys of the verb `attention`. */
#ifndef CLI_ROPE_H
#define CLI_ROPE_H

#include "blocks.h"

void rope_layouts(char *text, size_t size);

/* Turns q and k, [B, H, length, size] each, as --rope, --rope-base and --rope-scale say, in copies whose memory the caller frees. The last query of
 * a sequence stands at its last key, or the first at how->query_start. Without --rope nothing happens. paths: of q and k. */
int rope_turn(const options *o, const smx_attention_options *how, view *q, view *k, const char *const paths[2], unsigned char *memory[2]);

#endif
