/* head/functions_fusion.c - surface_fusion: the logits of a decoder and those of the embeddings of
 * its source as one distribution (Liu et al. 2021). With L = log softmax and G the gradient of y,
 *
 *   hard   y = g L(x) + (1 - g) L(s)   dx = g (G - p sum G),  ds alike,  dg = sum G (L(x) - L(s))
 *   soft   y = L(x + k s)              dx = G - p sum G,  ds = k dx
 *
 * An element that either row rules out is ruled out, unless that row has no share. */
#include <string.h>

#include "driver/carve.h"
#include "driver/operator.h"
#include "functions.h"

enum { X, S, GATE }; /* inputs */
#define INF __builtin_inf()

typedef struct fusion {
  const tensor_call *c;
  bool soft;
  int64_t n, classes, bytes;
  double gate, kappa;
  char *log_p, *up, *down; /* reals [2 n, classes]: of x, then of s; soft: [n, classes], of both */
  double *slope;           /* hard: the gradients of the gates */
  smx_scratch scratch;
} fusion;

static double times(double by, double x) { return by == 0 ? 0 : by * x; }
static double gate_of(const fusion *f, int64_t row) {
  double gate = f->gate;
  if (f->c->in.given[GATE]) tensor_load(f->c, f->c->in.view + GATE, row, 1, &gate);
  return gate;
}
static void load(const fusion *f, const char *from, int64_t row, double *to) {
  smx_reals_load(f->c->is_f64, from + row * f->classes * f->bytes, f->classes, to);
}
static void store(const fusion *f, const double *from, char *to, int64_t row) {
  smx_reals_store(f->c->is_f64, from, f->classes, to + row * f->classes * f->bytes);
}

/* Soft: x + k s. */
static void sum_task(void *arg, int64_t row) {
  fusion *f = arg;
  double *const x = smx_scratch_take(&f->scratch), *const s = x + f->classes;
  load(f, f->c->in.view[X].data, row, x), load(f, f->c->in.view[S].data, row, s);
  for (int64_t j = 0; j < f->classes; j++) x[j] += times(f->kappa, s[j]);
  store(f, x, f->down, row);
  smx_scratch_give(&f->scratch, x);
}

/* Hard: y from both. */
static void mix_task(void *arg, int64_t row) {
  fusion *f = arg;
  const double gate = gate_of(f, row);
  double *const x = smx_scratch_take(&f->scratch), *const s = x + f->classes;
  load(f, f->log_p, row, x), load(f, f->log_p, f->n + row, s);
  for (int64_t j = 0; j < f->classes; j++) x[j] = times(gate, x[j]) + times(1 - gate, s[j]);
  store(f, x, f->c->out.view[0].data, row);
  smx_scratch_give(&f->scratch, x);
}

/* Hard: what G gives each logarithm, and the gate. */
static void split_task(void *arg, int64_t row) {
  fusion *f = arg;
  const tensor_call *const c = f->c;
  const double gate = gate_of(f, row);
  double *const x = smx_scratch_take(&f->scratch), *const s = x + f->classes, slope = 0;
  load(f, f->log_p, row, x), load(f, f->log_p, f->n + row, s);
  for (int64_t j = 0; j < f->classes; j++) {
    const double y = times(gate, x[j]) + times(1 - gate, s[j]),
                 g = y == -INF ? 0 : tensor_upstream(c, 0, row * f->classes + j);
    if (g != 0 && x[j] != s[j]) slope += g * (x[j] - s[j]);
    x[j] = times(gate, g), s[j] = times(1 - gate, g);
  }
  store(f, x, f->up, row), store(f, s, f->up, f->n + row);
  f->slope[row] = slope;
  smx_scratch_give(&f->scratch, x);
}

/* Soft: ds from dx. */
static void scale_task(void *arg, int64_t row) {
  fusion *f = arg;
  double *const d = smx_scratch_take(&f->scratch);
  load(f, f->down, row, d);
  for (int64_t j = 0; j < f->classes; j++) d[j] = times(f->kappa, d[j]);
  store(f, d, f->c->din.view[S].data, row);
  smx_scratch_give(&f->scratch, d);
}

/* ---- calls ---- */

static smx_tensor rows_of(const fusion *f, char *data, int64_t *shape) {
  return smx_tensor_of(data, f->c->is_f64 ? SMX_F64 : SMX_F32, 2, shape, NULL);
}

static smx_status log_softmax_of(const fusion *f, char *from, char *to) {
  int64_t shape[] = {f->n, f->classes};
  const smx_tensor x = rows_of(f, from, shape), y = rows_of(f, to, shape);
  return f->n * f->classes > 0 ? log_softmax_along(f->c->ctx, -1, &x, &y) : SMX_OK;
}

static smx_status make_logs(fusion *f) {
  const int64_t half = f->n * f->classes * f->bytes;
  if (f->soft) {
    smx_parallel(f->c->ctx, f->n, sum_task, f);
    return log_softmax_of(f, f->down, f->log_p);
  }
  const smx_status status = log_softmax_of(f, f->c->in.view[X].data, f->log_p);
  return status == SMX_OK ? log_softmax_of(f, f->c->in.view[S].data, f->log_p + half) : status;
}

static void divide(fusion *f, carver *m, bool backward) {
  const int64_t rows = (f->soft ? 1 : 2) * f->n;
  f->log_p = carve(m, rows, f->classes, f->bytes), f->down = carve(m, rows, f->classes, f->bytes);
  f->up = f->c->dout.view[0].data;
  if (backward && !f->soft) f->up = carve(m, rows, f->classes, f->bytes);
  if (backward && !f->soft) f->slope = carve(m, f->n, 1, sizeof *f->slope);
}

/* Shares of rows are 0..1, or NaN, which makes the row NaN. */
static smx_status check_shares(const fusion *f) {
  for (int64_t row = 0; !f->soft && row < f->n; row++) {
    const double gate = gate_of(f, row);
    if (gate < 0 || gate > 1)
      return smx_fail(SMX_ERR_PARAM, "%s: share: number %lld is %g, not 0..1", f->c->op->name, (long long)row,
                      gate);
  }
  return SMX_OK;
}

/* Opens the call as far as the logarithms. */
static smx_status open_fusion(fusion *f, const tensor_call *c, bool backward, char **memory) {
  carver m = {.fits = true};
  *f = (fusion){.c = c, .n = c->dims.lead_count, .classes = tensor_dim(c, "c")};
  f->soft = tensor_param(c, "form") != 0, f->bytes = c->is_f64 ? 8 : 4;
  f->gate = tensor_param(c, "gate"), f->kappa = tensor_param(c, "kappa");
  smx_status status = check_shares(f);
  if (status != SMX_OK) return status;
  divide(f, &m, backward);
  *memory = m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  m = (carver){.base = *memory, .fits = true};
  if (!*memory ||
      !smx_scratch_open(&f->scratch, c->ctx, 0, sizeof(double) * (size_t)(2 * f->classes + 1), f->n)) {
    smx_free(c->ctx, *memory);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of %lld", c->op->name, (long long)f->n,
                    (long long)f->classes);
  }
  divide(f, &m, backward);
  status = make_logs(f);
  if (status == SMX_OK) return SMX_OK;
  smx_scratch_close(&f->scratch);
  smx_free(c->ctx, *memory);
  return status;
}

smx_status fusion_forward(const tensor_call *c) {
  fusion f;
  char *memory;
  const smx_status status = open_fusion(&f, c, false, &memory);
  if (status != SMX_OK) return status;
  if (f.soft) memcpy(c->out.view[0].data, f.log_p, (size_t)(f.n * f.classes * f.bytes));
  else smx_parallel(c->ctx, f.n, mix_task, &f);
  smx_scratch_close(&f.scratch);
  smx_free(c->ctx, memory);
  return SMX_OK;
}

static void put_gradients(fusion *f) {
  const tensor_call *const c = f->c;
  const int64_t half = f->n * f->classes * f->bytes;
  if (c->din.given[X]) memcpy(c->din.view[X].data, f->down, (size_t)half);
  if (c->din.given[S] && !f->soft) memcpy(c->din.view[S].data, f->down + half, (size_t)half);
  if (c->din.given[S] && f->soft) smx_parallel(c->ctx, f->n, scale_task, f);
  if (c->din.given[GATE] && f->soft) memset(c->din.view[GATE].data, 0, (size_t)(f->n * f->bytes));
  if (c->din.given[GATE] && !f->soft) tensor_store(c, c->din.view + GATE, 0, f->n, f->slope);
}

smx_status fusion_backward(const tensor_call *c) {
  fusion f;
  char *memory;
  smx_status status = open_fusion(&f, c, true, &memory);
  if (status != SMX_OK) return status;
  int64_t shape[] = {(f.soft ? 1 : 2) * f.n, f.classes};
  if (!f.soft) smx_parallel(c->ctx, f.n, split_task, &f);
  const smx_tensor y = rows_of(&f, f.log_p, shape), dy = rows_of(&f, f.up, shape),
                   dx = rows_of(&f, f.down, shape);
  if (f.n * f.classes > 0) status = log_softmax_backward_along(c->ctx, -1, &y, &dy, &dx);
  if (status == SMX_OK) put_gradients(&f);
  smx_scratch_close(&f.scratch);
  smx_free(c->ctx, memory);
  return status;
}
