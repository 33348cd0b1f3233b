/* rope.h - rotary position embedding of the queries and keys of the verb `attention`. */
#ifndef CLI_ROPE_H
#define CLI_ROPE_H

#include "blocks.h"

/* How queries ([0]) and keys ([1]) are turned. */
typedef struct rope {
  bool on;
  smx_rope_options how[2];
  input frequencies, given; /* of pairs; positions of the keys, which queries have where they stand */
  view frequencies_view, positions_view[2];
  int64_t *positions[2]; /* of rows, where they are not start, start + 1, ... */
  unsigned char *turned[2];
} rope;

void rope_layouts(char *text, size_t size);

/* Turns q and k, [B, H, length, size] each, as the options --rope... say, in copies. The last query
 * of a sequence stands at its last key, or the first at how->query_start. Without --rope nothing
 * happens. paths: of q and k. Must be freed, after a fault too. */
int rope_turn(rope *r, const options *o, const smx_attention_options *how, view *q, view *k,
              const char *const paths[2]);
void rope_free(rope *r);

/* Turns the gradient of q (0) or k (1) back, in place. */
smx_status rope_back(const rope *r, int which, const smx_tensor *gradient);

#endif
