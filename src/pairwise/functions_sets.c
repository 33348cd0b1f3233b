/* pairwise/functions_sets.c - losses of rows whose positives are compared one by one with the
 * negatives, or with all pairs of the row. */
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()

/* ---- decoupled_softmax_loss: mean_P w_p softplus(lse_N l - l_p) ---- */

enum { IN_WEIGHT = IN_OWN + 3 };

static double decoupled_row(pair_call *p, pair_row *r) {
  const smx_view *weight = pair_input(p, &p->c->in, IN_WEIGHT);
  const double count = (double)pair_count(p, r->role, POSITIVES);
  double loss = 0, all = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  if (count == 0) return 0;
  pair_keep(p, r->l, r->role, NEGATIVES, r->x);
  const double lse = pair_lse(p, r->x, p->m);
  if (lse == -INF) return 0;
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] != PAIR_POSITIVE) continue;
    const double t = lse - pair_at(p, r->l, j), w = weight ? pair_at(p, weight->data, r->i * p->m + j) : 1;
    loss += w * p->math->softplus(t);
    r->v[j] = r->up * w * pair_sigmoid(p, t) / count, all += r->v[j];
  }
  if (!r->g) return loss / count;
  pair_softmax(p, r->x, p->m, lse, all, r->g);
  for (int64_t j = 0; j < p->m; j++)
    if (r->role[j] == PAIR_POSITIVE) pair_set(p, r->g, j, -r->v[j]);
  return loss / count;
}
const pair_rule pair_decoupled_softmax = {
    .check = pair_check_labels, .roles = pair_label_roles, .row = decoupled_row, .alone = true};

/* ---- pairwise_softmax_loss: lse_N A(l_j - l_p) / outer, A = log(1 + tanh), ... ---- */

/* Halved three times by atan x = 2 atan(x / (1 + sqrt(1 + x^2))), then its series. */
static double arc_tangent(double x) {
  double sum = 0;
  for (int i = 0; i < 3; i++) x /= 1 + __builtin_sqrt(1 + x * x);
  for (int k = 25; k > 0; k -= 2) sum = (k % 4 == 1 ? 1.0 : -1.0) / k + sum * x * x;
  return 8 * x * sum;
}

typedef enum activation { TANH, RELU, ATAN, EXP, BPR } activation;
/* A of a difference, and its derivative; -inf, 0 where it is cut. */
static double activate(const pair_call *p, activation a, double d, double *slope) {
  const double one = 1 + (a == ATAN ? arc_tangent(d) : d);
  if (a == EXP) return *slope = 1, d;
  if (a == TANH) {
    *slope = 2 * pair_sigmoid(p, -2 * d);
    return p->math->log(2) - p->math->softplus(-2 * d);
  }
  if (a == BPR) return *slope = pair_sigmoid(p, d), p->math->softplus(d);
  if (one <= 0) return *slope = 0, -INF;
  *slope = 1 / (one * (a == ATAN ? 1 + d * d : 1));
  return p->math->log(one);
}

static double ranking_row(pair_call *p, pair_row *r) {
  const activation a = (activation)tensor_param(p->c, "activation");
  const double count = (double)pair_count(p, r->role, NEGATIVES), outer = tensor_param(p->c, "outer");
  const int64_t own = pair_key(p, r->i);
  double loss = 0, all = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  if (own < 0 || count == 0) return 0;
  const double top = pair_at(p, r->l, own);
  for (int64_t j = 0; j < p->m; j++) {
    const bool negative = r->role[j] == PAIR_NEGATIVE;
    const double y = negative ? activate(p, a, pair_at(p, r->l, j) - top, r->v + j) / outer : -INF;
    if (negative) loss += y;
    pair_set(p, r->x, j, y);
  }
  const double lse = a == BPR ? 0 : pair_lse(p, r->x, p->m);
  loss = a == BPR ? loss / count : lse;
  if (!r->g || lse == -INF) return loss;
  if (a != BPR) pair_softmax(p, r->x, p->m, lse, r->up / outer, r->g);
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] != PAIR_NEGATIVE) continue;
    const double g = r->v[j] * (a == BPR ? r->up / (outer * count) : pair_at(p, r->g, j));
    pair_set(p, r->g, j, g), all += g;
  }
  pair_set(p, r->g, own, -all);
  return loss;
}
const pair_rule pair_ranking = {.check = pair_check_keys, .roles = pair_key_roles, .row = ranking_row};

/* ---- soft_topk_loss: -mean_P log s(alpha (l_j + t)), sum_j s(alpha (l_j + t)) = k ----
 *
 * With f = s(...), v = alpha f (1 - f) and u_j what the loss has of the score of a positive,
 * dl = u - v (sum u) / (sum v). */

/* sum f - k and its derivative, over pairs that count and are not -inf. */
static double excess(const pair_call *p, const pair_row *r, double alpha, double t, double k, double *slope) {
  double sum = -k;
  *slope = 0;
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] == PAIR_OUT || r->v[j] == -INF) continue;
    const double f = pair_sigmoid(p, alpha * (r->v[j] + t));
    sum += f, *slope += alpha * f * (1 - f);
  }
  return sum;
}

/* Newton's method between ends of which one is below and one above. */
static double shift_of(const pair_call *p, const pair_row *r, double alpha, double k, double low,
                       double high) {
  double t = (low + high) / 2, slope;
  for (int i = 0; i < 100 && low < t && t < high; i++) {
    const double over = excess(p, r, alpha, t, k, &slope);
    if (over == 0) break;
    if (over > 0) high = t;
    else low = t;
    const double next = t - over / slope;
    if (next == t) break;
    t = next > low && next < high ? next : (low + high) / 2;
  }
  return t;
}

static double topk_row(pair_call *p, pair_row *r) {
  const double alpha = tensor_param(p->c, "alpha"), count = (double)pair_count(p, r->role, POSITIVES);
  double k = tensor_param(p->c, "k"), low = INF, high = -INF, candidates = 0, loss = 0, u = 0, v = 0;
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  smx_reals_load(p->c->is_f64, r->l, p->m, r->v);
  bool nan = false;
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] == PAIR_OUT || r->v[j] == -INF) continue;
    candidates++, nan |= r->v[j] != r->v[j];
    low = r->v[j] < low ? r->v[j] : low, high = r->v[j] > high ? r->v[j] : high;
  }
  if (count == 0) return 0;
  if (k == 0) k = count;
  if (k >= candidates) return 0; /* every one is among them */
  const double width = (10 + p->math->log(candidates)) / alpha;
  const double t =
      nan || high == INF ? __builtin_nan("") : shift_of(p, r, alpha, k, -high - width, -low + width);
  for (int64_t j = 0; j < p->m; j++) {
    const double z = alpha * (r->v[j] + t), rest = pair_sigmoid(p, -z);
    if (r->role[j] == PAIR_OUT) continue;
    if (r->role[j] == PAIR_POSITIVE) loss += p->math->softplus(-z) / count, u -= r->up * alpha * rest / count;
    if (r->v[j] != -INF) v += alpha * rest * (1 - rest);
  }
  for (int64_t j = 0; j < p->m && r->g; j++) {
    const double rest = pair_sigmoid(p, -alpha * (r->v[j] + t));
    const double own = r->role[j] == PAIR_POSITIVE ? -r->up * alpha * rest / count : 0;
    if (r->role[j] == PAIR_OUT || r->v[j] == -INF) continue;
    pair_set(p, r->g, j, own - (v > 0 ? alpha * rest * (1 - rest) * (u / v) : 0));
  }
  return loss;
}
const pair_rule pair_soft_topk = {
    .check = pair_check_labels, .roles = pair_label_roles, .row = topk_row, .alone = true};
