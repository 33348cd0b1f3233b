/* gate/functions_mixture.c - moe_gaussian_nll and moe_multinomial_nll: the likelihood of a mixture
 * whose experts are normal distributions or classifiers. In double, token by token; the
 * classifiers' logsumexp and softmax are those of src/row. */
#include <string.h>

#include "cpu/cpu.h"
#include "functions.h"
#include "functions_lines.h"
#include "functions_rows.h"

enum { GATE, MEAN, LOG_S, Y, LOGITS = MEAN, TARGET = LOG_S }; /* inputs of both */
enum { ARRAYS = 9 };                                          /* of a task, experts long */

typedef struct mixture {
  const tensor_call *c;
  const gate_lines *lines;
  const gate_kernels *kernels;
  smx_scratch scratch;
  int64_t tokens, experts, classes, bytes;
  const char *lse; /* of classifiers; NULL: experts are normal */
} mixture;

/* What a token needs: arrays of the experts. */
typedef struct token {
  double *z, *mean, *log_s, *term, *q, *inverse, *pi, *share, *out;
  double y, upstream;
  int64_t target;
} token;

static token token_in(const mixture *m, double *memory) {
  token k;
  double **arrays[] = {&k.z, &k.mean, &k.log_s, &k.term, &k.q, &k.inverse, &k.pi, &k.share, &k.out};
  for (int a = 0; a < ARRAYS; a++) *arrays[a] = memory + a * m->experts;
  return k;
}

/* log density of the token under each expert */
static void take_terms(const mixture *m, token *k, int64_t t) {
  const tensor_call *c = m->c;
  const int64_t e = m->experts;
  tensor_load(m->c, c->in.view + GATE, t * e, e, k->z);
  if (!m->lse) {
    tensor_load(m->c, c->in.view + MEAN, t * e, e, k->mean),
        tensor_load(m->c, c->in.view + LOG_S, t * e, e, k->log_s);
    tensor_load(m->c, c->in.view + Y, t, 1, &k->y);
    m->kernels->gaussian(k->y, k->mean, k->log_s, e, k->term, k->q, k->inverse);
    return;
  }
  k->target = ((const int64_t *)(const void *)c->in.view[TARGET].data)[t];
  smx_reals_load(m->c->is_f64, m->lse + t * e * m->bytes, e, k->q);
  for (int64_t i = 0; i < e && k->target >= 0; i++) {
    tensor_load(m->c, c->in.view + LOGITS, (t * e + i) * m->classes + k->target, 1, k->term + i);
    k->term[i] -= k->q[i];
  }
}

/* The loss of a token; one without a class has none. */
static double loss_of(const mixture *m, token *k, int64_t t) {
  take_terms(m, k, t);
  if (m->lse && k->target < 0) {
    memset(k->pi, 0, (size_t)m->experts * sizeof(double));
    memset(k->share, 0, (size_t)m->experts * sizeof(double));
    return 0;
  }
  return m->kernels->mixture(k->z, k->term, m->experts, k->pi, k->share);
}

static void loss_task(void *arg, int64_t task) {
  mixture *m = arg;
  double *memory = smx_scratch_take(&m->scratch);
  token k = token_in(m, memory);
  for (int64_t t = task * GATE_TASK; t < gate_task_end(task, m->tokens); t++) {
    const double loss = loss_of(m, &k, t);
    tensor_store(m->c, m->c->out.view, t, 1, &loss);
  }
  smx_scratch_give(&m->scratch, memory);
}

/* With r the shares: dmean = -g r q / s, dlog_s = g r (1 - q^2), dy = g sum r q / s */
static void give_gaussian(const mixture *m, token *k, int64_t t) {
  const tensor_call *c = m->c;
  const int64_t e = m->experts;
  double dy = 0;
  for (int64_t i = 0; i < e; i++) {
    const double g = k->upstream * k->share[i], slope = k->share[i] > 0 ? g * k->q[i] * k->inverse[i] : g;
    k->mean[i] = -slope, dy += slope;
    k->log_s[i] = k->share[i] > 0 ? g * (1 - k->q[i] * k->q[i]) : g;
  }
  if (c->din.given[MEAN]) tensor_store(m->c, c->din.view + MEAN, t * e, e, k->mean);
  if (c->din.given[LOG_S]) tensor_store(m->c, c->din.view + LOG_S, t * e, e, k->log_s);
  if (c->din.given[Y]) tensor_store(m->c, c->din.view + Y, t, 1, &dy);
}

/* dlogits = g r (softmax - one at the target); the softmax is there. */
static void give_classes(const mixture *m, token *k, int64_t t) {
  const int64_t e = m->experts, n = m->classes;
  for (int64_t i = 0; i < e; i++) {
    const double g = k->upstream * k->share[i];
    char *row = m->c->din.view[LOGITS].data + (t * e + i) * n * m->bytes;
    if (g == 0) {
      memset(row, 0, (size_t)(n * m->bytes));
      continue;
    }
    double at;
    smx_reals_load(m->c->is_f64, row + k->target * m->bytes, 1, &at);
    m->lines->scale(row, g, n, row);
    smx_reals_clean(m->c->is_f64, row, n);
    at = g * (at - 1);
    smx_reals_store(m->c->is_f64, &at, 1, row + k->target * m->bytes);
  }
}

static void gradient_task(void *arg, int64_t task) {
  mixture *m = arg;
  const tensor_call *c = m->c;
  double *memory = smx_scratch_take(&m->scratch);
  token k = token_in(m, memory);
  for (int64_t t = task * GATE_TASK; t < gate_task_end(task, m->tokens); t++) {
    loss_of(m, &k, t);
    tensor_load(m->c, c->dout.view, t, 1, &k.upstream);
    for (int64_t i = 0; i < m->experts; i++) k.out[i] = k.upstream * (k.pi[i] - k.share[i]);
    if (c->din.given[GATE]) tensor_store(m->c, c->din.view + GATE, t * m->experts, m->experts, k.out);
    if (!m->lse) give_gaussian(m, &k, t);
    else if (c->din.given[LOGITS]) give_classes(m, &k, t);
  }
  smx_scratch_give(&m->scratch, memory);
}

/* ---- calls ---- */

/* The rows of the classifiers: their logsumexp, or softmax. */
static smx_status run_rows(const mixture *m, char *lse, char *softmax) {
  int64_t shape[] = {m->tokens * m->experts, m->classes};
  const smx_dtype type = m->c->is_f64 ? SMX_F64 : SMX_F32;
  const smx_tensor x = smx_tensor_of(m->c->in.view[LOGITS].data, type, 2, shape, NULL);
  const smx_tensor y = smx_tensor_of(softmax ? softmax : lse, type, softmax ? 2 : 1, shape, NULL);
  return softmax ? softmax_along(m->c->ctx, -1, &x, &y) : logsumexp_along(m->c->ctx, -1, &x, &y);
}

static smx_status run(const tensor_call *c, bool classes, bool backward) {
  mixture m = {.c = c, .lines = gate_lines_of + c->is_f64, .tokens = c->dims.lead_count};
  m.kernels = c->is_f64 ? smx_isa_current()->f64.gate : smx_isa_current()->f32.gate;
  m.experts = tensor_dim(c, "e"), m.classes = classes ? tensor_dim(c, "c") : 0, m.bytes = c->is_f64 ? 8 : 4;
  const int64_t rows = classes ? m.tokens * m.experts : 0;
  const size_t place = (size_t)(ARRAYS * m.experts) * sizeof(double);
  if (!smx_scratch_open(&m.scratch, c->ctx, (size_t)(rows * m.bytes) + 1, place + 1, gate_tasks(m.tokens)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld experts", c->op->name, (long long)m.experts);
  smx_status status = SMX_OK;
  if (classes) {
    m.lse = m.scratch.shared;
    if (rows * m.classes > 0) status = run_rows(&m, m.scratch.shared, NULL);
    const bool wanted = backward && c->din.given[LOGITS] && rows * m.classes > 0;
    if (status == SMX_OK && wanted) status = run_rows(&m, NULL, c->din.view[LOGITS].data);
  }
  if (status == SMX_OK) smx_parallel(c->ctx, gate_tasks(m.tokens), backward ? gradient_task : loss_task, &m);
  smx_scratch_close(&m.scratch);
  return status;
}

smx_status gate_gaussian_nll(const tensor_call *c) { return run(c, false, false); }
smx_status gate_gaussian_nll_backward(const tensor_call *c) { return run(c, false, true); }
smx_status gate_multinomial_nll(const tensor_call *c) { return run(c, true, false); }
smx_status gate_multinomial_nll_backward(const tensor_call *c) { return run(c, true, true); }
