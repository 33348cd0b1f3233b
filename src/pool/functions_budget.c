/* pool/functions_budget.c - generalised sum pooling: prototypes choose a share mu of the items.
 *
 * With l_j = logsumexp_i(-gamma cost_ij) over the prototypes, s_j = sigmoid(b + l_j) and b such
 * that sum s_j = n mu: w_j = s_j / (n mu), y = sum w_j x_j, attribute_i = sum_j w_j P_ij with P_ij
 * = softmax_i(-gamma cost_ij). That is the optimum of the paper's transport problem in closed form.
 * Generalized Sum Pooling for Metric Learning (Gurbuz, Sener, Alatan 2023).
 *
 * Gradient: with g_j = dL / dw_j and d_j = s_j (1 - s_j), dL / dl_j = (g_j - sum g d / sum d) d_j
 * / (n mu), as b moves so that the mass stays. */
#include "functions_sets.h"

enum { COST, X };              /* inputs */
enum { Y, WEIGHT, ATTRIBUTE }; /* outputs */
enum { REACH = 60 };           /* beyond it a sigmoid is 0 or 1 */

typedef struct budget_call {
  const tensor_call *c;
  const score_kernels *math;
  int64_t m, n, channels;
  double gamma, mu;
  const unsigned char *mask; /* NULL: everything is there */
  smx_scratch scratch;
} budget_call;

/* The memory of a set: numbers of its features, and of the prototypes. */
typedef struct budget_set {
  double *l, *s, *g, *share, *a; /* share [m, n]: P; a: upstream gradients of the attributes */
  int64_t lead, count;           /* count: features that are there, 0 where none of them has mass */
} budget_set;

static bool has(const budget_call *b, int64_t lead, int64_t j) {
  return !b->mask || b->mask[lead * b->n + j];
}
static double sigmoid(const budget_call *b, double u) {
  const double e = b->math->exp(u < 0 ? u : -u);
  return u < 0 ? e / (1 + e) : 1 / (1 + e);
}

/* l and P; -inf, and 0, of what is not there. */
static void take_costs(const budget_call *b, budget_set *q) {
  const int64_t n = b->n;
  for (int64_t i = 0; i < b->m; i++)
    tensor_load(b->c, b->c->in.view + COST, (q->lead * b->m + i) * n, n, q->share + i * n);
  for (int64_t j = 0; j < n; j++) {
    double top = -__builtin_inf(), sum = 0;
    if (!has(b, q->lead, j)) {
      q->l[j] = top;
      for (int64_t i = 0; i < b->m; i++) q->share[i * n + j] = 0;
      continue;
    }
    q->count++;
    for (int64_t i = 0; i < b->m; i++) {
      const double z = q->share[i * n + j] *= -b->gamma;
      if (z > top || z != z) top = z;
    }
    for (int64_t i = 0; i < b->m; i++)
      sum += q->share[i * n + j] = top == -__builtin_inf() ? 0 : b->math->exp(q->share[i * n + j] - top);
    for (int64_t i = 0; i < b->m; i++) q->share[i * n + j] /= sum > 0 ? sum : sum == sum ? 1 : sum;
    q->l[j] = top == -__builtin_inf() ? top : top + b->math->log(sum);
  }
}

static double mass_at(const budget_call *b, const budget_set *q, double at) {
  double sum = 0;
  for (int64_t j = 0; j < b->n; j++) sum += q->l[j] == -__builtin_inf() ? 0 : sigmoid(b, at + q->l[j]);
  return sum;
}

/* b by bisection, to the last bit, or where it is near 0 to 2^-120. As sigmoid(u) <= e^u, n e^(b +
 * most) bounds the mass; a budget below e^-REACH needs b lower by its logarithm. */
static double shift_of(const budget_call *b, const budget_set *q, double least, double most, double budget) {
  const double small = -b->math->log(budget > 0x1p-1022 ? budget : 0x1p-1022);
  double low = -most - (small > REACH ? small : REACH) - b->math->log((double)b->n + 1);
  double high = -least + REACH;
  while (high - low > 0x1p-120) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    if (mass_at(b, q, middle) < budget) low = middle;
    else high = middle;
  }
  return high;
}

/* s. All of the mass: s = 1. */
static void take_weights(const budget_call *b, budget_set *q) {
  double least = __builtin_inf(), most = -__builtin_inf(), there = 0;
  bool nan = false;
  for (int64_t j = 0; j < b->n; j++) {
    const double l = q->l[j];
    nan |= l != l || l == __builtin_inf();
    if (l == -__builtin_inf()) continue;
    least = l < least ? l : least, most = l > most ? l : most, there++;
  }
  if (there == 0) q->count = 0;
  const double budget = (double)q->count * b->mu;
  const double shift = there > budget && !nan ? shift_of(b, q, least, most, budget) : 0;
  for (int64_t j = 0; j < b->n; j++) {
    if (q->l[j] == -__builtin_inf()) q->s[j] = 0;
    else q->s[j] = nan ? __builtin_nan("") : there > budget ? sigmoid(b, shift + q->l[j]) : budget / there;
  }
}

static budget_set set_at(const budget_call *b, int64_t lead, double *memory) {
  budget_set q = {.lead = lead, .l = memory};
  q.s = q.l + b->n, q.g = q.s + b->n, q.share = q.g + b->n, q.a = q.share + b->m * b->n;
  take_costs(b, &q);
  take_weights(b, &q);
  const double budget = (double)q.count * b->mu;
  for (int64_t j = 0; j < b->n && q.count > 0; j++) q.s[j] /= budget;
  return q; /* s: w */
}

/* y, or what dy gives the weights: of some channels. */
static void put_mean(const budget_call *b, const budget_set *q) {
  const tensor_call *c = b->c;
  double x[SET_WIDTH];
  for (int64_t at = 0; at < b->channels; at += SET_WIDTH) {
    const int64_t left = b->channels - at, w = left < SET_WIDTH ? left : SET_WIDTH;
    double y[SET_WIDTH] = {0};
    for (int64_t i = 0; i < b->n; i++) {
      if (q->s[i] == 0) continue;
      tensor_load(c, c->in.view + X, (q->lead * b->n + i) * b->channels + at, w, x);
      for (int64_t j = 0; j < w; j++) y[j] += q->s[i] * x[j];
    }
    for (int64_t j = 0; j < w && q->count == 0; j++) y[j] = pool_empty_value(c);
    tensor_store(c, c->out.view + Y, q->lead * b->channels + at, w, y);
  }
}

static void forward_task(void *arg, int64_t lead) {
  budget_call *b = arg;
  double *memory = smx_scratch_take(&b->scratch);
  const budget_set q = set_at(b, lead, memory);
  put_mean(b, &q);
  tensor_store(b->c, b->c->out.view + WEIGHT, lead * b->n, b->n, q.s);
  for (int64_t i = 0; i < b->m; i++) {
    double sum = 0;
    for (int64_t j = 0; j < b->n; j++) sum += q.s[j] * q.share[i * b->n + j];
    tensor_put(b->c, ATTRIBUTE, lead * b->m + i, sum);
  }
  smx_scratch_give(&b->scratch, memory);
}

/* ---- gradients ---- */

/* g: of the weights, from y; dx. */
static void take_upstream(const budget_call *b, const budget_set *q) {
  const tensor_call *c = b->c;
  double x[SET_WIDTH], up[SET_WIDTH], dx[SET_WIDTH];
  for (int64_t j = 0; j < b->n; j++) q->g[j] = 0;
  if (c->dout.given[WEIGHT]) tensor_load(c, c->dout.view + WEIGHT, q->lead * b->n, b->n, q->g);
  for (int64_t at = 0; at < b->channels; at += SET_WIDTH) {
    const int64_t left = b->channels - at, w = left < SET_WIDTH ? left : SET_WIDTH;
    for (int64_t j = 0; j < w; j++) up[j] = 0;
    if (c->dout.given[Y]) tensor_load(c, c->dout.view + Y, q->lead * b->channels + at, w, up);
    for (int64_t i = 0; i < b->n; i++) {
      const int64_t cell = (q->lead * b->n + i) * b->channels + at;
      tensor_load(c, c->in.view + X, cell, w, x);
      for (int64_t j = 0; j < w; j++) dx[j] = q->s[i] == 0 ? 0 : q->s[i] * up[j];
      for (int64_t j = 0; j < w && q->s[i] != 0; j++) q->g[i] += up[j] * x[j];
      if (c->din.given[X]) tensor_store(c, c->din.view + X, cell, w, dx);
    }
  }
}

/* The attributes give to the weights; what P_ij gets of them is a_i w_j. */
static void take_attributes(const budget_call *b, const budget_set *q) {
  for (int64_t i = 0; i < b->m; i++) {
    q->a[i] = tensor_upstream(b->c, ATTRIBUTE, q->lead * b->m + i);
    for (int64_t j = 0; j < b->n; j++) q->g[j] += q->a[i] == 0 ? 0 : q->a[i] * q->share[i * b->n + j];
  }
}

static void give_costs(const budget_call *b, const budget_set *q) {
  const double budget = (double)q->count * b->mu;
  double all = 0, mean = 0;
  for (int64_t j = 0; j < b->n; j++) {
    const double s = q->s[j] * budget, d = s == 0 || s >= 1 ? 0 : s * (1 - s);
    all += d, mean += d == 0 ? 0 : q->g[j] * d;
  }
  for (int64_t j = 0; j < b->n; j++) {
    const double s = q->s[j] * budget, d = s == 0 || s >= 1 || all == 0 ? 0 : s * (1 - s);
    const double dl = d == 0 ? 0 : (q->g[j] - mean / all) * d / budget;
    double inner = 0;
    for (int64_t i = 0; i < b->m; i++) inner += q->a[i] * q->share[i * b->n + j];
    for (int64_t i = 0; i < b->m; i++) {
      double *p = q->share + i * b->n + j;
      *p = *p == 0 ? 0 : -b->gamma * *p * (dl + q->s[j] * (q->a[i] - inner));
    }
  }
  tensor_store(b->c, b->c->din.view + COST, q->lead * b->m * b->n, b->m * b->n, q->share);
}

static void backward_task(void *arg, int64_t lead) {
  budget_call *b = arg;
  double *memory = smx_scratch_take(&b->scratch);
  const budget_set q = set_at(b, lead, memory);
  take_upstream(b, &q);
  take_attributes(b, &q);
  if (b->c->din.given[COST]) give_costs(b, &q);
  smx_scratch_give(&b->scratch, memory);
}

/* Sets whose costs are all +inf have to be found before anything is written. */
static smx_status check_mass(budget_call *b) {
  if (smx_context_on_empty(b->c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  double *memory = smx_scratch_take(&b->scratch);
  smx_status status = SMX_OK;
  for (int64_t lead = 0; lead < b->c->dims.lead_count && status == SMX_OK; lead++)
    if (set_at(b, lead, memory).count == 0)
      status = smx_fail(SMX_ERR_EMPTY, "%s: set %lld has nothing in it", b->c->op->name, (long long)lead);
  smx_scratch_give(&b->scratch, memory);
  return status;
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t i)) {
  budget_call b = {.c = c, .math = smx_isa_current()->f64.score};
  int64_t numbers;
  b.m = tensor_dim(c, "m"), b.n = tensor_dim(c, "n"), b.channels = tensor_dim(c, "c");
  b.gamma = tensor_param(c, "gamma"), b.mu = tensor_param(c, "mu");
  b.mask = pool_sets_of(c).mask;
  if (!smx_multiply(b.m + 3, b.n + 1, &numbers) || numbers > INT64_MAX / 16 - b.m ||
      !smx_scratch_open(&b.scratch, c->ctx, 0, (size_t)(numbers + b.m) * 8, c->dims.lead_count + 1))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld features", c->op->name, (long long)b.n);
  const smx_status status = check_mass(&b);
  if (status == SMX_OK) smx_parallel(c->ctx, c->dims.lead_count, task, &b);
  smx_scratch_close(&b.scratch);
  return status;
}
smx_status pool_budget(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_budget_backward(const tensor_call *c) { return run(c, backward_task); }
