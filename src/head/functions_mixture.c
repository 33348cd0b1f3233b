/* head/functions_mixture.c - mixture_of_softmaxes: the distributions of several rows of features,
 * the components, under one linear layer, mixed (Yang et al. 2018). With ce_k the cross-entropy of
 * component k and v the class weight of the target,
 *
 *   loss = -v logsumexp_k(log_softmax(prior)_k - ce_k)
 *   r = softmax(log_softmax(prior) - ce),  dprior = g v (softmax(prior) - r),  dce = g v r
 *
 * in double, by the operators on rows, and near 0 as loss_of says. A component with only logits of
 * -inf has no probability; a row in which all others have a prior of -inf is empty. Where no
 * component gives the class any probability, r is softmax(prior), so that one component has the
 * gradients of linear_cross_entropy. */
#include <string.h>

#include "driver/carve.h"
#include "driver/operator.h"
#include "functions_layer.h"

enum { H, PRIOR, W, TARGET, BIAS, CLASS_WEIGHT }; /* inputs */
enum { LOSS, COMPONENT };                         /* outputs */
#define INF __builtin_inf()
#define LEAST_NORMAL 0x1p-1022

typedef struct mixture {
  const tensor_call *c;
  smx_context *ctx; /* that of the call, but that empty rows are zeros */
  int64_t n, k, rows, bytes, ignore;
  const int64_t *target;
  int64_t *place;        /* [rows]: the target of each component, or -1 */
  char *ce, *lse, *dce;  /* [rows], real */
  double *prior, *joint; /* [rows]: as given; log_softmax(prior) - ce */
  double *share, *loss;  /* [rows]: a softmax; [n]: first log P */
} mixture;

static bool ignored(const mixture *m, int64_t i) { return m->target[i] == m->ignore; }
static double real_at(const mixture *m, const char *x, int64_t at) {
  double value;
  smx_reals_load(m->c->is_f64, x + at * m->bytes, 1, &value);
  return value;
}

/* ---- the layer ---- */

/* The losses of all components; backward: the gradients that dce gives. */
static smx_status run_layer(const mixture *m, bool backward) {
  const tensor_call *const c = m->c;
  const tensor_ports *const to = &c->din;
  const head_layer l = {.n = m->rows,
                        .d = tensor_dim(c, "d"),
                        .c = tensor_dim(c, "c"),
                        .h = c->in.view[H].data,
                        .w = c->in.view[W].data,
                        .bias = c->in.given[BIAS] ? c->in.view[BIAS].data : NULL,
                        .dh = backward && to->given[H] ? to->view[H].data : NULL,
                        .dw = backward && to->given[W] ? to->view[W].data : NULL,
                        .dbias = backward && to->given[BIAS] ? to->view[BIAS].data : NULL,
                        .scale = tensor_param(c, "scale")};
  const head_pass there = {.op = "cross_entropy", .target = m->place, .y = m->ce, .lse = m->lse},
                  back = {.op = "cross_entropy", .target = m->place, .dy = m->dce};
  return head_run(c, m->ctx, &l, backward ? &back : &there);
}

static smx_status find_losses(const mixture *m) {
  for (int64_t e = 0; e < m->rows; e++) m->place[e] = ignored(m, e / m->k) ? -1 : m->target[e / m->k];
  const smx_status status = run_layer(m, false);
  for (int64_t e = 0; e < m->rows && status == SMX_OK; e++)
    if (real_at(m, m->lse, e) == -INF && !ignored(m, e / m->k))
      smx_reals_store(m->c->is_f64, &(double){INF}, 1, m->ce + e * m->bytes);
  return status;
}

/* ---- rows of components ---- */

typedef smx_status along_fn(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
/* y: as x, or with one_a_row a number for each row. */
static smx_status along(const mixture *m, along_fn *fn, double *x, double *y, bool one_a_row) {
  int64_t shape[] = {m->n, m->k};
  const smx_tensor tx = smx_tensor_of(x, SMX_F64, 2, shape, NULL),
                   ty = smx_tensor_of(y, SMX_F64, one_a_row ? 1 : 2, shape, NULL);
  return m->rows ? fn(m->ctx, -1, &tx, &ty) : SMX_OK;
}

/* The logarithms of what each component adds to the probability of the class. */
static smx_status find_joint(const mixture *m) {
  tensor_load(m->c, m->c->in.view + PRIOR, 0, m->rows, m->prior);
  const smx_status status = along(m, log_softmax_along, m->prior, m->joint, false);
  for (int64_t e = 0; e < m->rows && status == SMX_OK; e++)
    m->joint[e] = m->prior[e] == -INF || m->joint[e] == -INF ? -INF : m->joint[e] - real_at(m, m->ce, e);
  return status;
}

/* Of the class of a row; a class of weight 0 has no loss. */
static double class_weight(const mixture *m, int64_t i) {
  double w = 1;
  if (m->c->in.given[CLASS_WEIGHT] && !ignored(m, i))
    tensor_load(m->c, m->c->in.view + CLASS_WEIGHT, m->target[i], 1, &w);
  return w;
}

static bool is_empty(const mixture *m, int64_t i) {
  bool empty = !ignored(m, i);
  for (int64_t e = i * m->k; e < (i + 1) * m->k; e++)
    empty = empty && (m->prior[e] == -INF || real_at(m, m->lse, e) == -INF);
  return empty;
}

/* The loss of a row that is not empty. Near 0 from the least loss m of a component:
 *
 *   m - log1p(-s) = m + log1p(s / (1 - s)),  s = sum_k softmax(prior)_k (1 - e^(m - ce_k))
 *
 * where nothing cancels. */
static double loss_of(const mixture *m, int64_t i) {
  const double log_p = m->loss[i], *const pi = m->share;
  double least = INF, s = 0;
  for (int64_t e = i * m->k; e < (i + 1) * m->k; e++)
    if (m->prior[e] > -INF && real_at(m, m->ce, e) < least) least = real_at(m, m->ce, e);
  for (int64_t e = i * m->k; e < (i + 1) * m->k && least < INF; e++)
    if (pi[e] > 0) s -= pi[e] * head_math()->expm1(least - real_at(m, m->ce, e));
  if (log_p != log_p || least == INF || s >= 0.5) return 0 - log_p; /* not -0 */
  return s < LEAST_NORMAL ? least : least + head_math()->softplus(head_math()->log(s / (1 - s)));
}

static smx_status finish_losses(const mixture *m) {
  const smx_on_empty how = smx_context_on_empty(m->c->ctx);
  for (int64_t i = 0; i < m->n; i++) {
    const double w = class_weight(m, i);
    if (is_empty(m, i)) {
      if (how == SMX_EMPTY_ERROR)
        return smx_fail(SMX_ERR_EMPTY, "%s: row %lld has nothing valid", m->c->op->name, (long long)i);
      m->loss[i] = how == SMX_EMPTY_NAN ? __builtin_nan("") : 0;
    } else {
      const double loss = ignored(m, i) ? 0 : loss_of(m, i);
      m->loss[i] = w == 0 && loss == loss ? 0 : w * loss;
    }
  }
  return SMX_OK;
}

/* ---- calls ---- */

static void divide(mixture *m, carver *at, bool backward) {
  m->place = carve(at, m->rows, 1, sizeof *m->place);
  m->ce = carve(at, m->rows, 1, m->bytes), m->lse = carve(at, m->rows, 1, m->bytes);
  m->dce = carve(at, backward ? m->rows : 0, 1, m->bytes);
  m->prior = carve(at, m->rows, 1, sizeof *m->prior), m->joint = carve(at, m->rows, 1, sizeof *m->joint);
  m->share = carve(at, m->rows, 1, sizeof *m->share);
  m->loss = carve(at, backward ? 0 : m->n, 1, sizeof *m->loss);
}

static smx_status losses(mixture *m) {
  smx_status status = find_losses(m);
  if (status == SMX_OK) status = find_joint(m);
  if (status == SMX_OK) status = along(m, logsumexp_along, m->joint, m->loss, true);
  if (status == SMX_OK) status = along(m, softmax_along, m->prior, m->share, false);
  if (status == SMX_OK) status = finish_losses(m);
  if (status != SMX_OK) return status;
  tensor_store(m->c, m->c->out.view + LOSS, 0, m->n, m->loss);
  if (m->c->out.given[COMPONENT]) memcpy(m->c->out.view[COMPONENT].data, m->ce, (size_t)(m->rows * m->bytes));
  return SMX_OK;
}

/* From softmax(prior) in prior and r in share to dprior, in prior, and dce. */
static void row_gradients(const mixture *m, int64_t i) {
  const double w = class_weight(m, i), g = w == 0 ? 0 : w * tensor_upstream(m->c, LOSS, i);
  double most = -INF;
  for (int64_t e = i * m->k; e < (i + 1) * m->k; e++)
    if (m->joint[e] > most || m->joint[e] != m->joint[e]) most = m->joint[e];
  for (int64_t e = i * m->k; e < (i + 1) * m->k; e++) {
    const double pi = m->prior[e], r = most == -INF ? pi : m->share[e], away = pi - r;
    double d = (r == 0 ? 0 : g * r) + tensor_upstream(m->c, COMPONENT, e);
    m->prior[e] = ignored(m, i) || away == 0 ? 0 : g * away;
    if (ignored(m, i)) d = 0;
    m->place[e] = d == 0 ? -1 : m->target[i];
    smx_reals_store(m->c->is_f64, &d, 1, m->dce + e * m->bytes);
  }
}

static smx_status gradients(mixture *m) {
  const tensor_call *const c = m->c;
  smx_status status = SMX_OK;
  if (c->out.given[COMPONENT]) m->ce = c->out.view[COMPONENT].data;
  else status = find_losses(m);
  if (status == SMX_OK) status = find_joint(m);
  if (status == SMX_OK) status = along(m, softmax_along, m->joint, m->share, false);
  if (status == SMX_OK) status = along(m, softmax_along, m->prior, m->prior, false);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < m->n; i++) row_gradients(m, i);
  status = run_layer(m, true);
  if (status == SMX_OK && c->din.given[PRIOR]) tensor_store(c, c->din.view + PRIOR, 0, m->rows, m->prior);
  return status;
}

static smx_status check_weights(const tensor_call *c) {
  double w;
  for (int64_t j = 0; c->in.given[CLASS_WEIGHT] && j < tensor_dim(c, "c"); j++) {
    tensor_load(c, c->in.view + CLASS_WEIGHT, j, 1, &w);
    if (w < 0)
      return smx_fail(SMX_ERR_PARAM, "%s: class_weight: class %lld has %g, not at least 0", c->op->name,
                      (long long)j, w);
  }
  return SMX_OK;
}

static smx_status call(const tensor_call *c, bool backward, smx_status (*of)(mixture *)) {
  mixture m = {.c = c, .n = tensor_dim(c, "n"), .k = tensor_dim(c, "k"), .bytes = c->is_f64 ? 8 : 4};
  carver at = {.fits = smx_multiply(m.n, m.k, &m.rows)};
  m.ignore = (int64_t)tensor_param(c, "ignore_index");
  m.target = (const int64_t *)(const void *)c->in.view[TARGET].data;
  smx_status status = check_weights(c);
  if (status != SMX_OK) return status;
  divide(&m, &at, backward);
  char *const memory = at.fits ? smx_alloc(c->ctx, (size_t)at.at + 1) : NULL;
  m.ctx = memory ? smx_context_with_zeros(c->ctx) : NULL;
  at = (carver){.base = memory, .fits = true};
  if (m.ctx) divide(&m, &at, backward), status = of(&m);
  else
    status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of %lld components", c->op->name,
                      (long long)m.n, (long long)m.k);
  smx_free(c->ctx, m.ctx), smx_free(c->ctx, memory);
  return status;
}

smx_status mixture_forward(const tensor_call *c) { return call(c, false, losses); }
smx_status mixture_backward(const tensor_call *c) { return call(c, true, gradients); }
