/* row/ref_training.c - softmax times its scores, the Jacobian of softmax straight from the formulas. See ref.c. */
#include "ref.h"

static real sum_of_weights(const row_ref_call *c, real m) { return sum_exp(c, plain, m, 0); }

static real smallest(const row_ref_call *c) {
  real low = INFINITY;
  for (size_t i = 0; i < c->n; i++)
    if (c->in[0][i] > -INFINITY && c->in[0][i] < low) low = c->in[0][i];
  return low;
}

void sa_softmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), low = smallest(c);
  if (settled(c, c->n, m, 0)) return;
  real a = low < 0 ? low : 0, b = m > 0 ? m : 0, width = b - a + c->q[1], sum = sum_of_weights(c, m);
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i], by = c->q[0] == 0 ? x : width == 0 ? 0 : (x - a + c->q[2]) / width;
    c->out[0][i] = x == -INFINITY ? 0 : (double)(by * expl(x - m) / sum);
  }
}

/* |J|^2 T^2 = sum_i p_i^2 ((1 - p_i)^2 + sum_(j != i) p_j^2), where what is not of the first largest is summed without it. */
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
    real e = expl((c->in[0][i] - m) / t), without = i == top ? others : sum - e, squares = i == top ? square : 1 + square - e * e;
    norm += e * e * (without * without + squares);
  }
  real gap = expl((m - smallest(c)) / t);
  c->out[0][0] = (double)(sqrtl(norm) / (sum * sum) / t);
  c->out[1][0] = (double)(1 / gap / n);
  c->out[2][0] = gap > n ? 1 : (double)(gap / n);
}
