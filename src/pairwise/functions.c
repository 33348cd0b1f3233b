/* pairwise/functions.c - the operators of src/pairwise: their functions, by number. */
#include "functions.h"

/* Without b the columns are those of similarities, or as many as rows. */
static smx_status sizes(dims *d) {
  const char *const columns = dims_param(d, "similarities", 0) != 0 ? "d" : "n";
  if (dims_value(d, "m", 0) < 0) dims_set(d, "m", 0, dims_value(d, columns, 0));
  return SMX_OK;
}

#define OPERATOR(name, rule) \
  static smx_status name(const tensor_call *c) { return pair_run(c, &rule, false); } \
  static smx_status name##_backward(const tensor_call *c) { return pair_run(c, &rule, true); }
OPERATOR(info_nce, pair_info_nce)
OPERATOR(clip_loss, pair_clip)
OPERATOR(nt_xent, pair_nt_xent)
OPERATOR(supervised, pair_supervised)

const tensor_functions pairwise_functions[PAIRWISE_COUNT] = {
    [PAIRWISE_info_nce] = {info_nce, info_nce_backward, sizes, true},
    [PAIRWISE_clip_loss] = {clip_loss, clip_loss_backward, sizes, true},
    [PAIRWISE_nt_xent] = {nt_xent, nt_xent_backward, sizes, true},
    [PAIRWISE_supervised_contrastive] = {supervised, supervised_backward, sizes, true},
};
