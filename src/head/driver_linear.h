/* head/driver_linear.h - a linear layer while it is run over blocks of rows. */
#ifndef SMX_HEAD_DRIVER_LINEAR_H
#define SMX_HEAD_DRIVER_LINEAR_H
#include "cpu/cpu.h"
#include "driver/operator.h"
#include "head.h"

enum { LINEAR_MOST = 512, /* rows of a block */ LINEAR_SPLIT = 4096 /* classes whose chains are added up */ };

/* The arguments, checked. data NULL: absent. */
typedef struct linear_ports {
  smx_view h, w, bias, dh, dw, dbias;
  double scale, softcap;
  size_t keep;
} linear_ports;

/* The matrices of a block in the real type, in the call's memory or where they are the caller's;
 * strides in elements. */
typedef struct linear_run {
  const linear_ports *p;
  smx_context *ctx;
  const smx_kernels *kernels;
  bool is_f64;
  int64_t bytes;                /* of a real */
  int64_t n, classes, width;    /* N, C, d */
  int64_t most;                 /* rows of a block */
  int64_t first, rows;          /* this block */
  int64_t pitch;                /* of z and dz */
  char *z, *dz;                 /* dz may be z */
  char *h, *w_sums, *bias_sums; /* h and the sums of dw and dbias where the caller's are not used */
  char *packed, *bias;          /* h in tiles of 64 rows x 64 columns; bias in the real type */
  int64_t slab;                 /* columns of dh that a task takes */
  smx_scratch scratch;
} linear_run;

/* Memory of a thread. */
size_t linear_place(const linear_run *l);
/* The logits of this block, which go to z. */
void linear_block_logits(linear_run *l);
/* What its gradients give: rows of dh, and parts of the sums dw and dbias, which are finished with
 * the last block. */
void linear_block_gradients(linear_run *l);

static inline int64_t linear_tiles(int64_t n) { return (n + HEAD_PANEL - 1) / HEAD_PANEL; }
/* Whether a matrix can be used where it is. */
static inline bool linear_in_place(const linear_run *l, const smx_view *v) {
  return v->dtype.code == 2 && v->dtype.bits == 8 * l->bytes && v->strides[v->ndim - 1] == 1;
}

#endif
