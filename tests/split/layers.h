/* layers.h - an operator over the logits of a linear layer, whole and cut into ranks by classes. */
#ifndef TESTS_LAYERS_H
#define TESTS_LAYERS_H
#include "ranks.h"

/* What is tried. */
typedef struct layer_case {
  const char *op;
  direction d;
  int64_t rows, classes, width;
  smx_dtype type; /* of h, w, bias, and of gradients */
  double scale, softcap;
  bool bias, dh, dw; /* dw with dbias, where there is a bias */
} layer_case;
extern const layer_case layer_cases[];
extern const int layer_case_count;

enum { LAYER_OUTS = 8 };

/* Its numbers and what one process makes of them. */
typedef struct layer {
  layer_case how;
  const smx_op *op;
  smx_params params;
  int32_t n_in, n_out;
  int64_t *target;
  char *h, *w, *bias, *dh, *dw, *dbias;
  char *out[LAYER_OUTS], *dout; /* of the first output */
  int64_t shape[LAYER_OUTS][2];
} layer;
void layer_make(layer *l, const layer_case *how, uint64_t seed);
void layer_free(layer *l);

/* One rank's part. */
typedef struct layer_part {
  int64_t first, count;
  char *dh, *dw, *dbias, *out[LAYER_OUTS];
  smx_linear linear;
  smx_tensor t[6 + 2 * LAYER_OUTS];
  int64_t shapes[4][2], out_shapes[LAYER_OUTS][2];
  const smx_tensor *in[2], *outs[LAYER_OUTS], *douts[LAYER_OUTS], *din[2];
} layer_part;
void layer_part_make(layer_part *p, const layer *l, int64_t first, int64_t count);
/* Begins its call. */
smx_status layer_part_open(layer_part *p, const layer *l, smx_context *ctx, const smx_split_part *at,
                           smx_split **split);
void layer_part_free(layer_part *p);
/* What differs from the whole, or NULL. */
const char *layer_difference(const layer_part *p, const layer *l);

#endif
