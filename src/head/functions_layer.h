/* head/functions_layer.h - a linear layer inside an operator: an operator on rows over its logits,
 * with tensors of the real type of the call in C order. */
#ifndef SMX_HEAD_FUNCTIONS_LAYER_H
#define SMX_HEAD_FUNCTIONS_LAYER_H
#include "functions.h"

/* Rows h [n, d] by w [c, d]; data NULL: there is none, or it is not wanted. scale: 0 = 1. */
typedef struct head_layer {
  int64_t n, d, c;
  char *h, *w, *bias, *dh, *dw, *dbias;
  double scale;
} head_layer;

/* What is done with its logits: y are losses or other `single` numbers of rows, or rows `pitch`
 * numbers apart; lse of cross_entropy; backward dy is the upstream gradient of y, whose rows are
 * dy_pitch apart. A target of -1 is ignored. */
typedef struct head_pass {
  const char *op;
  const int64_t *target;
  char *y, *lse, *dy;
  int64_t pitch, dy_pitch;
  bool single;
} head_pass;

/* Parameters are those that the call's operator shares with that of the pass. */
smx_status head_run(const tensor_call *c, smx_context *ctx, const head_layer *l, const head_pass *p);

#endif
