/* row/ref_ratio.c - weights f(x) / sum f(x), straight from their formulas. See ref.c. */
#include "ref.h"

/* top: the largest score, or |score|, of the row */
typedef real ratio_fn(const row_ref_call *c, real x, real top);

/* y_i = [f_i]+ / (sum_j |f_j| + extra), and `even` for each element that exists when that sum is
 * 0. */
static void ratio(const row_ref_call *c, ratio_fn *f, real top, real extra, real even) {
  real sum = extra;
  for (size_t i = 0; i < c->n; i++) sum += c->in[0][i] > -INFINITY ? fabsl(f(c, c->in[0][i], top)) : 0;
  for (size_t i = 0; i < c->n; i++) {
    real w = c->in[0][i] > -INFINITY ? f(c, c->in[0][i], top) : 0;
    c->out[0][i] = (double)(w > 0 ? w / sum : c->in[0][i] > -INFINITY && sum == 0 ? even : 0);
  }
}

static size_t valid(const row_ref_call *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->n; i++) count += c->in[0][i] > -INFINITY;
  return count;
}

static real magnitude(const row_ref_call *c) {
  real m = 0;
  for (size_t i = 0; i < c->n; i++)
    if (c->in[0][i] > -INFINITY && fabsl((real)c->in[0][i]) > m) m = fabsl((real)c->in[0][i]);
  return m;
}

/* e^x - 1 times e^-M. */
static real softpick_f(const row_ref_call *c, real x, real top) {
  return x < 1 && x > -1 ? expl(-top) * expm1l(x) : expl(x - top) - expl(-top);
}
void softpick_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (!special_row(c, c->n, m, 0)) ratio(c, softpick_f, m > 0 ? m : 0, c->q[0], 0);
}

static real taylor_f(const row_ref_call *c, real x, real top) {
  real term = 1, sum = 1;
  for (int m = 1; m <= (int)c->q[0]; m++) sum += term = term * x / m;
  return sum;
}
void taylor_softmax_ref(const row_ref_call *c) {
  if (!special_row(c, c->n, largest(c, plain), 0)) ratio(c, taylor_f, 0, 0, 0);
}

static real spherical_f(const row_ref_call *c, real x, real top) { return x * x + (real)c->q[0]; }
void spherical_softmax_ref(const row_ref_call *c) {
  if (!special_row(c, c->n, largest(c, plain), 0)) ratio(c, spherical_f, 0, 0, 1 / (real)valid(c));
}

static real power_f(const row_ref_call *c, real x, real top) { return powl(fabsl(x / top), (real)c->q[0]); }
void power_softmax_ref(const row_ref_call *c) {
  if (special_row(c, c->n, largest(c, plain), 0)) return;
  real share = c->q[1] > 0 ? 0 : 1 / (real)valid(c), top = magnitude(c);
  for (size_t i = 0; top == 0 && i < c->n; i++) c->out[0][i] = (double)(c->in[0][i] > -INFINITY ? share : 0);
  if (top != 0) ratio(c, power_f, top, (real)c->q[1] * (real)valid(c), 0);
}

static real stablemax_f(const row_ref_call *c, real x, real top) { return x >= 0 ? x + 1 : 1 / (1 - x); }
void stablemax_ref(const row_ref_call *c) {
  if (!special_row(c, c->n, largest(c, plain), 0)) ratio(c, stablemax_f, 0, 0, 0);
}

/* log f rather than f, which may be below every number: log(1 + e^x) is e^x there. */
static real softplus_f(const row_ref_call *c, real x, real top) {
  return x < -50 ? expl(x - top) : (x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x))) * expl(-top);
}
void softplus_l1_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (special_row(c, c->n, m, 0)) return;
  real low = m < 0 ? m : 0;
  ratio(c, softplus_f, low, c->q[0] > 0 ? (real)c->q[0] * expl(-low) : 0, 0);
}

/* n x - o, and its ratio to the largest to the power p. */
static real reweight_u(const row_ref_call *c, real x, real n) {
  real u = n * x - (n > 3 ? (real)c->q[1] : 0);
  return u > 0 ? u : 0;
}
void reweight_ref(const row_ref_call *c) {
  real m = largest(c, plain), n = (real)valid(c);
  if (special_row(c, c->n, m, 0)) return;
  real top = reweight_u(c, m, n), p = (real)c->q[0], sum = (real)c->q[2] / powl(top, p);
  for (size_t i = 0; top > 0 && i < c->n; i++)
    if (c->in[0][i] > -INFINITY) sum += powl(reweight_u(c, c->in[0][i], n) / top, p);
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i];
    c->out[0][i] = x == -INFINITY ? 0
                   : top > 0      ? (double)(powl(reweight_u(c, x, n) / top, p) / sum)
                                  : (double)x;
  }
}
