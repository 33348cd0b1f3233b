/* head/driver_linear.h - a linear layer while it is run over blocks of rows. */
#ifndef SMX_HEAD_DRIVER_LINEAR_H
#define SMX_HEAD_DRIVER_LINEAR_H
#include "cpu/cpu.h"
#include "driver/operator.h"
#include "head.h"

enum { LINEAR_MOST = 512, /* rows of a block */ LINEAR_SPLIT = 4096 /* classes whose chains are added up */ };

/* driver_linear.c has the calls of one process, driver_split.c those of one rank of several,
 * driver_products.c the products of both. */

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
  int64_t column;               /* classes of other ranks before these */
  int64_t most;                 /* rows of a block */
  int64_t first, rows;          /* this block */
  int64_t pitch;                /* of z and dz */
  char *z, *dz;                 /* dz may be z */
  char *h, *w_sums, *bias_sums; /* h and the sums of dw and dbias where the caller's are not used */
  char *packed, *bias;          /* h in tiles of 64 rows x 64 columns; bias in the real type */
  int64_t slab;                 /* columns of dh that a task takes */
  bool apart;                   /* classes lie on several ranks: dh is made in two steps */
  char *terms;                  /* of dh: [LINEAR_SPLIT classes][row][column] */
  double *totals;               /* their sums, [row][column] */
  smx_scratch scratch;
} linear_run;

/* A stand-in for x in the checks of the operator: all of its elements are one number. */
typedef struct linear_x {
  double zero;
  int64_t shape[2], strides[2];
  smx_tensor x;
} linear_x;

/* A call, checked: the layer, and the inputs of the operator with the stand-in as the first. */
typedef struct linear_call {
  linear_ports ports;
  linear_x x;
  const smx_tensor *in[SMX_MAX_PORTS];
  int32_t n_in;
  bool gradients; /* wanted */
  int dx;         /* the output that takes the gradient of x; 0: there is none */
} linear_call;
smx_status linear_forward_call(const char *verb, const smx_op *op, const smx_params *params,
                               const smx_linear *given, int32_t n_in, const smx_tensor *const *in,
                               int32_t n_out, const smx_tensor *const *out, linear_call *c);
smx_status linear_backward_call(const char *verb, const smx_op *op, const smx_params *params,
                                const smx_linear *given, int32_t n_in, const smx_tensor *const *in,
                                int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout,
                                const smx_tensor *const *din, linear_call *c);

/* Takes the memory of a run, for blocks of l->most rows; 0: as many as may be kept. `two`: logits
 * and their gradients are kept apart. */
smx_status linear_open(linear_run *l, bool two, char **memory);
void linear_close(linear_run *l, char *memory);
/* The rows of this block as a job of their own; dst: where the gradient of x goes, or -1. */
void linear_block_job(const linear_run *l, int dst, const job *whole, job *j);

/* Memory of a thread. */
size_t linear_place(const linear_run *l);
/* The logits of this block, which go to z. */
void linear_block_logits(linear_run *l);
/* What its gradients give: rows of dh, and parts of the sums dw and dbias, which are finished with
 * the last block. */
void linear_block_gradients(linear_run *l);
/* Where classes lie apart, dh is terms then. Adds them to the totals; totals become rows of dh. */
void linear_add_terms(linear_run *l);
void linear_store_dh(linear_run *l);

static inline int64_t linear_tiles(int64_t n) { return (n + HEAD_PANEL - 1) / HEAD_PANEL; }
/* Whether a matrix can be used where it is. */
static inline bool linear_in_place(const linear_run *l, const smx_view *v) {
  return v->dtype.code == 2 && v->dtype.bits == 8 * l->bytes && v->strides[v->ndim - 1] == 1;
}

#endif
