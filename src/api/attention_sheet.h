/* api/attention_sheet.h - attention by way of sheets, matrices of scores of some rows of a head with all keys. What all of its kinds share: scores,
 * an operator on rows that makes weights of them, products with keys and values, and sums over the rows of a key/value head. */
#ifndef SMX_API_ATTENTION_SHEET_H
#define SMX_API_ATTENTION_SHEET_H
#include "attention.h"

/* The operator's tensors for a sheet, [rows, lk]. */
typedef struct sheet {
  smx_tensor x, mask, y[SMX_MAX_PORTS], dy, dx;
  int64_t shape[2], dims[SMX_MAX_PORTS][SMX_MAX_DIMS];
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} sheet;

typedef struct making making;

/* What a kind of attention does with some rows of a query head, and before the first of a key/value head. */
typedef struct making_steps {
  smx_status (*scores)(making *m, const attention_job *p); /* into z; NULL: those of <q, k> */
  smx_status (*forward)(making *m, const attention_job *p);
  smx_status (*backward)(making *m, const attention_job *p);
  void (*open)(making *m, int64_t b, int64_t kv); /* or NULL */
  bool (*take)(making *m, bool backward);         /* memory of its own, by making_take, for m->rows rows, which it may lower; or NULL */
} making_steps;

enum { MAKING_BUFFERS = 32 };

struct making {
  attention_job *j;
  const making_steps *steps;
  const smx_op *op;
  smx_params params;
  int64_t rows;                      /* of a sheet, at most */
  int64_t sequence, head;            /* of the part at hand */
  char *z, *visible, *dy, *dz, *cap; /* [rows][lk], visible in bytes */
  char *y[SMX_MAX_PORTS];
  char *part;      /* what a block of rows gives to dk or dv, [lk][d or e] */
  double *dk, *dv; /* sums of a key/value head */
  void *buffer;    /* of attention_store */
  void *owned[MAKING_BUFFERS];
  int used;
};

/* Memory that making_run frees. field: where the pointer goes. False without memory. */
bool making_take(making *m, void *field, int64_t bytes);

/* Takes memory and runs the steps over all rows. */
smx_status making_run(making *m, bool backward);

/* Scores of the part's rows into x; stage as smx_attention_scores has it. */
smx_status sheet_lay_out(const attention_job *p, smx_attention_stage stage, char *x);

/* <a_i, b_j> of rows a with keys or values b. */
smx_status sheet_products(const attention_job *p, const smx_view *a, const smx_view *b, char *x);

/* out_i = sum_j w_ij b_j over visible pairs; turned: out_j = sum_i w_ij b_i. */
smx_status sheet_weighted(const making *m, const attention_job *p, char *w, bool turned, const smx_view *b, const smx_view *out);

/* Adds the turned product to the sums of a key/value head. */
smx_status sheet_add_turned(const making *m, const attention_job *p, char *w, const smx_view *b, double *sums);

/* Scores, which pairs are visible, and weights: y[0]. */
smx_status sheet_weights(making *m, const attention_job *p, sheet *s);

/* dz from dy by the gradient of the operator; then that of <q, k>: dz (derivative of the cap) scale, 0 where a pair is hidden. */
smx_status sheet_gradient(const making *m, const attention_job *p, sheet *s);
smx_status sheet_to_products(const making *m, const attention_job *p);

/* dy of visible pairs, <do, v>, times what dropout makes of a weight. */
smx_status sheet_upstream(const making *m, const attention_job *p);

/* Dropout of a sheet: the weights, or what they are multiplied by in the gradient. */
void sheet_drop(const attention_job *p, char *x);

/* A matrix of the real type as a tensor of one head. */
smx_view sheet_view(const attention_job *j, char *data, int64_t rows, int64_t columns, bool turned);

static inline double real_at(const attention_job *j, const char *x, int64_t i) {
  return j->real_bytes == 8 ? ((const double *)(const void *)x)[i] : (double)((const float *)(const void *)x)[i];
}
static inline void put_real(const attention_job *j, char *x, int64_t i, double value) {
  if (j->real_bytes == 8) ((double *)(void *)x)[i] = value;
  else ((float *)(void *)x)[i] = (float)value;
}

/* What the kinds have in common with smx_attention_rows: options that make weights in another way are refused; op NULL: softmax. */
smx_status sheet_check(making *m, const smx_attention_options *options, const smx_op *op, const smx_params *params, const smx_tensor *q,
                       const smx_tensor *k, const smx_tensor *v);
smx_status sheet_check_output(making *m, const smx_tensor *o);
smx_status sheet_check_gradients(making *m, const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

#endif
