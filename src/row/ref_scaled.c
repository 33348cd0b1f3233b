/* row/ref_scaled.c - softmax with something more in its sum, a factor that depends on the row, or
 * something done to its weights. See ref.c. */
#include "ref.h"

void softmax_n_ref(const row_ref_call *c) { weights(c, plain, logl((real)c->q[0])); }

void sink_softmax_ref(const row_ref_call *c) {
  real sink = c->in[1][0], m = largest(c, plain);
  weights(c, plain, sink);
  if (isnan(m) || isnan(sink) || sink == INFINITY) c->out[1][0] = (double)NAN;
  else if (m == -INFINITY) c->out[1][0] = sink > -INFINITY;
  else c->out[1][0] = sink > -INFINITY ? (double)(1 / (1 + expl(m - sink) * sum_exp(c, plain, m, 0))) : 0;
}

static real ssmax_factor(const row_ref_call *c) {
  size_t n = 0;
  for (size_t i = 0; i < c->n; i++) n += c->in[0][i] > -INFINITY;
  return (c->in[1] ? c->in[1][0] : c->q[0]) * (n > 1 ? logl((real)n) : 0) +
         (c->in[2] ? c->in[2][0] : c->q[1]);
}

/* softmax of by x, -inf staying what it is. */
static void scaled_weights(const row_ref_call *c, real by) {
  real top = -INFINITY, sum = 0;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i], score = x == -INFINITY ? x : x * by;
    if (isnan(top) || isnan(score) || score == INFINITY) top = NAN;
    else if (score > top) top = score;
  }
  if (special_row(c, c->n, top, 0)) return;
  for (size_t i = 0; i < c->n; i++) sum += c->in[0][i] == -INFINITY ? 0 : expl(c->in[0][i] * by - top);
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = c->in[0][i] == -INFINITY ? 0 : (double)(expl(c->in[0][i] * by - top) / sum);
}

void ssmax_ref(const row_ref_call *c) { scaled_weights(c, ssmax_factor(c)); }

void sdm_activation_ref(const row_ref_call *c) {
  real d = c->in[1] ? c->in[1][0] : c->q[0], q = c->in[2] ? c->in[2][0] : c->q[1];
  scaled_weights(c, d < 0 || d > 1 || q < 0 ? NAN : d * logl(2 + q));
}

void adaptive_temperature_softmax_ref(const row_ref_call *c) {
  real m = largest(c, plain), entropy = 0, beta = 0;
  if (special_row(c, c->n, m, 0)) return;
  real sum = sum_exp(c, plain, m, 0);
  for (size_t i = 0; i < c->n; i++) {
    real p = expl(c->in[0][i] - m) / sum;
    if (p > 0) entropy -= p * (c->in[0][i] - m - logl(sum));
  }
  for (int i = 0; i < 5; i++) beta = beta * entropy + (real)c->q[i];
  scaled_weights(c, entropy > (real)c->q[5] && beta > 1 ? beta : 1);
}

void clipped_softmax_ref(const row_ref_call *c) {
  real gamma = c->q[0], eta = c->q[1], m = largest(c, plain);
  if (special_row(c, c->n, m, 0)) return;
  real sum = sum_exp(c, plain, m, 0);
  for (size_t i = 0; i < c->n; i++) {
    real y = (eta - gamma) * (expl(c->in[0][i] - m) / sum) + gamma;
    c->out[0][i] = (double)(y < 0 ? 0 : y > 1 ? 1 : y);
  }
}

void context_aware_scaling_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (special_row(c, c->n, m, 0)) return;
  real sum = sum_exp(c, plain, m, 0), scale = 2 / (1 + expl(-(real)c->in[1][0]));
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)(scale * expl(c->in[0][i] - m) / sum);
}
