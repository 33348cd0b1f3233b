/* driver/score_block.h - attention by score blocks: matrices that hold the scores of some rows of
 * a head with all keys. Shared by all functions that work so: the scores, an operator on rows that
 * makes weights of them, products with keys and values, and sums over the rows of a key/value
 * head. */
#ifndef SMX_DRIVER_SCORE_BLOCK_H
#define SMX_DRIVER_SCORE_BLOCK_H
#include "attention.h"

/* The operator's tensors for a score block, [rows, lk]. */
typedef struct score_block {
  smx_tensor x, mask, row, y[SMX_MAX_PORTS], dy, dx, drow;
  int64_t shape[2], dims[SMX_MAX_PORTS][SMX_MAX_DIMS];
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} score_block;

typedef struct block_job block_job;

/* The steps of such a function: on some rows of a query head, and before the first rows of a
 * key/value head. */
typedef struct block_job_steps {
  smx_status (*scores)(block_job *m, const attention_job *p); /* into z; NULL: those of <q, k> */
  smx_status (*forward)(block_job *m, const attention_job *p);
  smx_status (*backward)(block_job *m, const attention_job *p);
  void (*open)(block_job *m, int64_t b, int64_t kv); /* or NULL */
  /* memory of its own, by block_job_take, for m->rows rows, which it may lower; or NULL */
  bool (*take)(block_job *m, bool backward);
} block_job_steps;

enum { BLOCK_JOB_BUFFERS = 32 };

struct block_job {
  attention_job *j;
  /* the part at hand, and a call made of it; both point to room */
  attention_job *part_job, *inner;
  attention_job room[3];
  const block_job_steps *steps;
  const smx_op *op;
  smx_params params;
  score_block block;                 /* of the part at hand, as the operator sees it */
  int64_t rows;                      /* of a score block, at most */
  int64_t sequence, head, first;     /* of the part at hand: its first row */
  char *z, *visible, *dy, *dz, *cap; /* [rows][lk], visible in bytes */
  bool all_visible;                  /* of the part at hand */
  char *y[SMX_MAX_PORTS];
  /* reals of each row for input row_port of the operator, and their gradients; 0, NULL: none */
  int32_t row_port;
  char *row_values, *row_changes;
  char *part;      /* what a block of rows gives to dk or dv, [lk][d or e] */
  double *dk, *dv; /* sums of a key/value head */
  void *buffer;    /* of attention_store */
  double *row;     /* for it: of ATTN_MAX_HEAD and what it wants behind them */
  void *owned[BLOCK_JOB_BUFFERS];
  int used;
  bool writes_more; /* in place of tensors of the job */
};

/* Begins a call with a zeroed m. False, with SMX_ERR_NOMEM as the last error, if m is NULL. */
bool block_job_open(block_job *m, const char *name, smx_context *ctx, const block_job_steps *steps);

/* Allocates memory that block_job_run frees. field: where the pointer is stored. False without
 * memory. */
bool block_job_take(block_job *m, void *field, int64_t bytes);

/* Takes memory and runs the steps over all rows. */
smx_status block_job_run(block_job *m, bool backward);

/* Scores of the part's rows into x; stage as smx_attention_scores has it. */
smx_status score_block_lay_out(const block_job *m, const attention_job *p, smx_attention_stage stage,
                               char *x);

/* <a_i, b_j> of rows a with keys or values b. */
smx_status score_block_products(const block_job *m, const attention_job *p, const smx_view *a,
                                const smx_view *b, char *x);

/* out_i = sum_j w_ij b_j over visible pairs; transposed: out_j = sum_i w_ij b_i. */
smx_status score_block_weighted(const block_job *m, const attention_job *p, char *w, bool transposed,
                                const smx_view *b, const smx_view *out);

/* Adds the transposed product to the sums of a key/value head. */
smx_status score_block_add_transposed(const block_job *m, const attention_job *p, char *w, const smx_view *b,
                                      double *sums);

/* Computes scores, which pairs are visible, and weights: y[0]. */
smx_status score_block_weights(block_job *m, const attention_job *p);

/* dz from dy by the gradient of the operator; then that of <q, k>: dz (derivative of the cap)
 * scale, 0 where a pair is hidden. */
smx_status score_block_gradient(const block_job *m, const attention_job *p);
smx_status score_block_to_products(const block_job *m, const attention_job *p);

/* dy of visible pairs, <do, v>, times the dropout factor of the weight. */
smx_status score_block_upstream(const block_job *m, const attention_job *p);

/* Applies dropout to a score block: to its weights, or, in the gradient, to their gradients. */
void score_block_drop(const attention_job *p, char *x);

/* A matrix of the real type as a tensor of one head. */
smx_view score_block_view(const attention_job *j, char *data, int64_t rows, int64_t columns, bool transposed);

static inline double real_at(const attention_job *j, const char *x, int64_t i) {
  return j->real_bytes == 8 ? ((const double *)(const void *)x)[i]
                            : (double)((const float *)(const void *)x)[i];
}
static inline void put_real(const attention_job *j, char *x, int64_t i, double value) {
  if (j->real_bytes == 8) ((double *)(void *)x)[i] = value;
  else ((float *)(void *)x)[i] = (float)value;
}

/* The checks shared with smx_attention_rows: options that make weights in another way are refused;
 * op NULL: softmax. */
smx_status score_block_check(block_job *m, const smx_attention_options *options, const smx_op *op,
                             const smx_params *params, const smx_tensor *q, const smx_tensor *k,
                             const smx_tensor *v);
smx_status score_block_check_output(block_job *m, const smx_tensor *o);
smx_status score_block_check_gradients(block_job *m, const smx_tensor *d_o, const smx_tensor *dq,
                                       const smx_tensor *dk, const smx_tensor *dv);

#endif
