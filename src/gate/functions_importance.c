/* gate/functions_importance.c - importance_loss: how much sums over the tokens differ between the
 * experts. In double and in the order of the tokens. */
#include "functions.h"
#include "functions_rows.h"

enum { WEIGHT, INDEX };    /* inputs */
enum { LOSS, IMPORTANCE }; /* outputs */
enum { UNBIASED };         /* the parameter `variance` */

#define EPSILON 1e-10 /* added to the square of the mean */

typedef struct importance {
  const tensor_call *c;
  const int64_t *index; /* or NULL: column is expert */
  int64_t tokens, k, experts;
  double *sum, *row; /* of each expert; a token's weights */
} importance;

static int64_t expert_of(const importance *m, int64_t t, int64_t j) {
  return m->index ? m->index[t * m->k + j] : j;
}

static smx_status open(importance *m, const tensor_call *c) {
  *m = (importance){.c = c, .tokens = tensor_dim(c, "t"), .k = tensor_dim(c, "k")};
  m->experts = tensor_dim(c, "experts");
  if (c->in.given[INDEX]) m->index = (const int64_t *)(const void *)c->in.view[INDEX].data;
  else if (m->experts != m->k)
    return smx_fail(SMX_ERR_SHAPE, "%s: experts is %lld, but without index weight has %lld columns",
                    c->op->name, (long long)m->experts, (long long)m->k);
  m->sum = smx_alloc(c->ctx, (size_t)(m->experts + m->k + 1) * sizeof(double));
  if (!m->sum)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld experts", c->op->name, (long long)m->experts);
  m->row = m->sum + m->experts;
  for (int64_t e = 0; e < m->experts; e++) m->sum[e] = 0;
  for (int64_t t = 0; t < m->tokens; t++) {
    tensor_load(c, c->in.view + WEIGHT, t * m->k, m->k, m->row);
    for (int64_t j = 0; j < m->k; j++)
      if (expert_of(m, t, j) >= 0) m->sum[expert_of(m, t, j)] += m->row[j];
  }
  return SMX_OK;
}

/* Mean, sum of squared distances from it, and what that is divided by: for a variance n, or n - 1,
 * which of one expert is 1, and for the loss mean^2 + EPSILON too. */
typedef struct spread {
  double n, mean, squares, variance_by, by;
} spread;

static spread spread_of(const importance *m) {
  spread s = {.n = (double)m->experts};
  for (int64_t e = 0; e < m->experts; e++) s.mean += m->sum[e] / s.n;
  for (int64_t e = 0; e < m->experts; e++) s.squares += (m->sum[e] - s.mean) * (m->sum[e] - s.mean);
  s.variance_by = tensor_param(m->c, "variance") == UNBIASED && m->experts > 1 ? s.n - 1 : s.n;
  s.by = s.mean * s.mean + EPSILON;
  return s;
}

smx_status gate_importance(const tensor_call *c) {
  importance m;
  const smx_status status = open(&m, c);
  if (status != SMX_OK) return status;
  const spread s = spread_of(&m);
  const double loss = m.experts ? tensor_param(c, "scale") * s.squares / s.variance_by / s.by : 0;
  tensor_put(c, LOSS, 0, loss);
  if (c->out.given[IMPORTANCE]) tensor_store(c, c->out.view + IMPORTANCE, 0, m.experts, m.sum);
  smx_free(c->ctx, m.sum);
  return SMX_OK;
}

/* With V = squares / variance_by, D = mean^2 + EPSILON: dsum_e = 2 (sum_e - mean) / (variance_by D)
 * - 2 mean V / (n D^2). Every weight of an expert has that. */
smx_status gate_importance_backward(const tensor_call *c) {
  importance m;
  if (!c->din.given[WEIGHT]) return SMX_OK;
  const smx_status status = open(&m, c);
  if (status != SMX_OK) return status;
  const spread s = spread_of(&m);
  const double up = tensor_upstream(c, LOSS, 0) * tensor_param(c, "scale");
  for (int64_t e = 0; e < m.experts; e++) {
    const double own = tensor_upstream(c, IMPORTANCE, e),
                 d = 2 * (m.sum[e] - s.mean) / s.variance_by / s.by -
                     2 * s.mean * (s.squares / s.variance_by) / s.n / s.by / s.by;
    m.sum[e] = up == 0 ? own : own + up * d;
  }
  for (int64_t t = 0; t < m.tokens; t++) {
    for (int64_t j = 0; j < m.k; j++) m.row[j] = expert_of(&m, t, j) < 0 ? 0 : m.sum[expert_of(&m, t, j)];
    tensor_store(c, c->din.view + WEIGHT, t * m.k, m.k, m.row);
  }
  smx_free(c->ctx, m.sum);
  return SMX_OK;
}

/* experts = 0: as many as columns. */
smx_status gate_importance_sizes(dims *d) {
  if (dims_param(d, "experts", 0) == 0) dims_set(d, "experts", 0, dims_value(d, "k", 0));
  return SMX_OK;
}
