/* row/ref_training.c - softmax times its scores, the Jacobian of softmax, and what training does to
 * weights, gradients and logits, straight from the formulas. See ref.c. */
#include "ref.h"
#include "engine/ref_draws.h"

static real sum_of_weights(const row_ref_call *c, real m) { return sum_exp(c, plain, m, 0); }

static real smallest(const row_ref_call *c) {
  real low = INFINITY;
  for (size_t i = 0; i < c->n; i++)
    if (c->in[0][i] > -INFINITY && c->in[0][i] < low) low = c->in[0][i];
  return low;
}

void sa_softmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), low = smallest(c);
  if (special_row(c, c->n, m, 0)) return;
  real a = low < 0 ? low : 0, b = m > 0 ? m : 0, width = b - a + c->q[1], sum = sum_of_weights(c, m);
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i], by = c->q[0] == 0 ? x : width == 0 ? 0 : (x - a + c->q[2]) / width;
    c->out[0][i] = x == -INFINITY ? 0 : (double)(by * expl(x - m) / sum);
  }
}

/* |J|^2 T^2 = sum_i p_i^2 ((1 - p_i)^2 + sum_(j != i) p_j^2), where what is not of the first
 * largest is summed without it. */
void attention_capacity_metrics_ref(const row_ref_call *c) {
  real t = c->q[0], m = largest(c, plain), others = 0, square = 0, n = 0, norm = 0;
  for (int o = 0; o < 3; o++) c->out[o][0] = isnan(m) ? (double)NAN : 0;
  if (isnan(m) || m == -INFINITY) return;
  const size_t top = argmax(c, plain, m);
  for (size_t i = 0; i < c->n; i++) {
    real e = expl((c->in[0][i] - m) / t);
    n += c->in[0][i] > -INFINITY;
    if (i != top) others += e, square += e * e;
  }
  real sum = 1 + others;
  for (size_t i = 0; i < c->n; i++) {
    real e = expl((c->in[0][i] - m) / t), without = i == top ? others : sum - e,
         squares = i == top ? square : 1 + square - e * e;
    norm += e * e * (without * without + squares);
  }
  real gap = expl((m - smallest(c)) / t);
  c->out[0][0] = (double)(sqrtl(norm) / (sum * sum) / t);
  c->out[1][0] = (double)(1 / gap / n);
  c->out[2][0] = gap > n ? 1 : (double)(gap / n);
}

void soft_threshold_ste_ref(const row_ref_call *c) {
  real t = c->in[1] ? c->in[1][0] : c->q[0], all = 0, kept = 0, n = 0, m = largest(c, plain);
  if (isnan(t)) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  if (t < 0) t = 0;
  for (size_t i = 0; i < c->n; i++) {
    real size = fabsl((real)c->in[0][i]);
    if (c->in[0][i] == -INFINITY) continue;
    n++, all += size;
    if (size > t) kept += size;
  }
  real rho = (kept / n + 1e-6L) / (all / n + 1e-6L),
       scale = c->q[1] != 0 && t > 0 ? 1.01L / (rho + 0.01L) : 1;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i], over = fabsl(x) - t;
    c->out[0][i] = x == -INFINITY || over <= 0 ? 0 : (double)(scale * (x < 0 ? -over : over));
  }
}

void perp_grad_ref(const row_ref_call *c) {
  const double *x = c->in[0], *w = c->in[1];
  real ww = 0, wx = 0, xx = 0, pp = 0, m = largest(c, plain);
  for (size_t i = 0; i < c->n; i++)
    if (isnan(w[i]) || w[i] == INFINITY) m = NAN;
  if (special_row(c, c->n, m, 0)) return;
  for (size_t i = 0; i < c->n; i++)
    if (x[i] > -INFINITY && w[i] > -INFINITY)
      ww += (real)w[i] * w[i], wx += (real)w[i] * x[i], xx += (real)x[i] * x[i];
  for (size_t i = 0; i < c->n; i++) {
    real p = x[i] - wx / (ww + 1e-30L) * w[i];
    if (x[i] > -INFINITY && w[i] > -INFINITY) pp += p * p;
  }
  real gain = c->q[0] == 0 ? 1 : pp > 0x1p-40L * xx ? sqrtl(xx) / (sqrtl(pp) + 1e-30L) : 0;
  for (size_t i = 0; i < c->n; i++) {
    int there = x[i] > -INFINITY && w[i] > -INFINITY;
    c->out[0][i] = there ? (double)((x[i] - wx / (ww + 1e-30L) * w[i]) * gain) : 0;
  }
}

void noisy_softmax_ref(const row_ref_call *c) {
  real xi = c->in[4] ? (real)c->in[4][0]
                     : (real)normal(uniform((uint64_t)c->q[2], (uint64_t)(int64_t)c->in[3][0], 5, 0));
  real a = c->q[1] * fabsl(xi), m = -INFINITY;
  int counts = c->in[1][0] != c->q[0];
  for (size_t i = 0; i < c->n; i++) {
    if (isnan(c->in[0][i])) m = NAN;
    if (c->in[0][i] > m) m = c->in[0][i];
  }
  if (counts && (isnan(a) || (a != 0 && isnan(c->in[2][0])))) m = NAN;
  if (special_row(c, c->n, m, -INFINITY)) return;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i];
    int here = counts && (double)i == c->in[1][0] && a != 0;
    c->out[0][i] = (double)(here ? x + a * (x - c->in[2][0]) : x);
  }
}
