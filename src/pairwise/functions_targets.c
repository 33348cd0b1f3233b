/* pairwise/functions_targets.c - losses of rows whose pairs have weights or scores of a teacher. */
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()

/* A number for every pair of a row. */
static const char *pair_numbers(const pair_call *p, int input, int64_t i) {
  return pair_input(p, &p->c->in, input)->data + i * p->m * p->bytes;
}

static smx_status check_given(const pair_call *p, int input, const char *name) {
  if (pair_input(p, &p->c->in, input)) return SMX_OK;
  return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", p->c->op->name, name);
}

/* ---- soft_contrastive: sum_j w_j (lse l - l_j) ---- */

enum { IN_WEIGHT = IN_OWN };

static smx_status check_weight(const pair_call *p) { return check_given(p, IN_WEIGHT, "weight"); }

/* A weight of 0 has no part, at a logit of -inf either. */
static double weighted_row(pair_call *p, pair_row *r) {
  const char *weight = pair_numbers(p, IN_WEIGHT, r->i);
  double loss = 0, all = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  pair_keep(p, r->l, r->role, NEGATIVES, r->x);
  const double lse = pair_lse(p, r->x, p->m);
  for (int64_t j = 0; j < p->m; j++) {
    r->v[j] = r->role[j] == PAIR_NEGATIVE ? pair_at(p, weight, j) : 0;
    if (r->v[j] != 0) loss += r->v[j] * (lse - pair_at(p, r->l, j));
    all += r->v[j];
  }
  if (lse == -INF) return 0;
  if (r->g) {
    pair_softmax(p, r->x, p->m, lse, r->up * all, r->g);
    for (int64_t j = 0; j < p->m; j++)
      if (r->v[j] != 0) pair_set(p, r->g, j, pair_at(p, r->g, j) - r->up * r->v[j]);
  }
  return loss;
}
const pair_rule pair_soft_targets = {
    .check = check_weight, .roles = pair_negatives, .row = weighted_row, .alone = true};

/* ---- graded_embedding_loss: KL(softmax(teacher / t) || softmax(l)) over kept pairs ---- */

enum { IN_TEACHER = IN_OWN + 1 };
typedef enum filter { FILTER_NONE, FILTER_ABSOLUTE, FILTER_RELATIVE } filter;

/* Negatives too near to the positive are left out. */
static void graded_roles(const pair_call *p, pair_row *r, int64_t own) {
  const filter f = (filter)tensor_param(p->c, "filter");
  const double margin = tensor_param(p->c, "margin"), s = pair_at(p, r->l, own) * p->temperature;
  const double below = f == FILTER_ABSOLUTE ? s - margin : margin * s;
  for (int64_t j = 0; j < p->m && f != FILTER_NONE; j++)
    if (r->role[j] == PAIR_NEGATIVE && !(pair_at(p, r->l, j) * p->temperature < below)) r->role[j] = PAIR_OUT;
}

static smx_status check_teacher(const pair_call *p) {
  const smx_status status = check_given(p, IN_TEACHER, "teacher");
  return status == SMX_OK ? pair_check_keys(p) : status;
}

static double graded_row(pair_call *p, pair_row *r) {
  const int64_t own = pair_key(p, r->i);
  double loss = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  if (own < 0) return 0;
  graded_roles(p, r, own);
  pair_scale(p->c->is_f64, pair_numbers(p, IN_TEACHER, r->i), 1 / tensor_param(p->c, "teacher_temperature"),
             p->m, r->y);
  pair_keep(p, r->y, r->role, NEGATIVES | POSITIVES, r->y);
  pair_keep(p, r->l, r->role, NEGATIVES | POSITIVES, r->x);
  const double top = pair_lse(p, r->y, p->m), lse = pair_lse(p, r->x, p->m);
  smx_reals_load(p->c->is_f64, r->y, p->m, r->v);
  for (int64_t j = 0; j < p->m; j++) {
    const double log_q = r->v[j] - top;
    r->v[j] = p->math->exp(log_q);
    if (r->v[j] != 0) loss += r->v[j] * (log_q + (lse - pair_at(p, r->x, j)));
  }
  if (!r->g) return loss;
  pair_softmax(p, r->x, p->m, lse, r->up, r->g);
  for (int64_t j = 0; j < p->m; j++)
    if (r->role[j] != PAIR_OUT) pair_set(p, r->g, j, pair_at(p, r->g, j) - r->up * r->v[j]);
  return loss;
}
const pair_rule pair_graded = {.check = check_teacher, .roles = pair_key_roles, .row = graded_row};

/* ---- global_contrastive_loss ----
 *
 *     loss_i = T (L_i - log |N_i|) + rho T,  d_ij = (l_ij - l_ip) / T,
 *     L_i = log((1 - gamma) e^state_i + gamma sum_N e^d_ij), without a state log sum_N e^d_ij,
 *
 * whose gradient takes e^(d - L) as constants. */

enum { IN_STATE = IN_OWN + 1 };

/* What e^state and the sum of the row become, and its temperature. */
static double running(const pair_call *p, int64_t i, double lse) {
  const smx_view *state = pair_input(p, &p->c->in, IN_STATE);
  const double gamma = tensor_param(p->c, "gamma"), old = state ? pair_at(p, state->data, i) : -INF;
  if (old == -INF) return lse;
  const double kept = gamma < 1 ? old + p->math->log(1 - gamma) : -INF, now = lse + p->math->log(gamma);
  const double high = kept > now ? kept : now, low = kept > now ? now : kept;
  return low == -INF ? high : high + p->math->softplus(low - high);
}

static double global_row(pair_call *p, pair_row *r) {
  const int64_t own = pair_key(p, r->i);
  const double count = (double)pair_count(p, r->role, NEGATIVES), rho = tensor_param(p->c, "rho");
  const double t =
      p->in.temperature ? pair_at(p, p->in.temperature->data, r->i) : tensor_param(p->c, "temperature");
  double mean = 0, all = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes)), p->slope[r->i] = 0;
  const bool counts = own >= 0 && count > 0, bad = !(t >= 1e-30 && t <= 1e30);
  const double top = counts ? pair_at(p, r->l, own) : 0;
  for (int64_t j = 0; counts && j < p->m; j++)
    pair_set(p, r->x, j,
             r->role[j] == PAIR_NEGATIVE ? bad ? __builtin_nan("") : (pair_at(p, r->l, j) - top) / t : -INF);
  const double lse = counts ? pair_lse(p, r->x, p->m) : -INF, sum = running(p, r->i, lse);
  if (!p->backward) tensor_put(p->c, OUT_STATE, r->i, sum);
  if (!counts) return 0;
  const double far = sum - p->math->log(count) + rho;
  if (!r->g) return t * far;
  pair_exp(p, r->x, p->m, sum, r->up, r->g);
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] != PAIR_NEGATIVE) continue;
    const double w = pair_at(p, r->g, j);
    all += w;
    if (w != 0) mean += w * pair_at(p, r->x, j);
  }
  pair_set(p, r->g, own, -all);
  p->slope[r->i] = r->up * far - mean;
  return t * far;
}
const pair_rule pair_global = {
    .check = pair_check_keys, .roles = pair_key_roles, .row = global_row, .row_temperature = true};
