/* row/ref_norms.c - sigmoids, standardised rows and metrics of a row, straight from their formulas.
 * See ref.c. */
#include "ref.h"

static size_t valid(const row_ref_call *c) {
  size_t count = 0;
  for (size_t i = 0; i < c->n; i++) count += c->in[0][i] > -INFINITY;
  return count;
}

void sigmoid_attention_ref(const row_ref_call *c) {
  real t = c->in[2] ? c->in[2][0] : c->q[2], n = c->q[0] == 1 ? (real)c->n : (real)valid(c);
  real b = c->in[1] ? (real)c->in[1][0] : c->q[0] == 0 ? (real)c->q[1] : -logl(n), nan = 0;
  for (size_t i = 0; i < c->n; i++)
    if (isnan(c->in[0][i])) nan = NAN;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i];
    c->out[0][i] = (double)(nan + (x == -INFINITY ? 0 : 1 / (1 + expl(-(x * expl(t) + b)))));
  }
}

/* y = gamma (u - mean) / (deviation + eps) + beta, or (u - mean) / sqrt(variance + eps). */
static void standardise(const row_ref_call *c, int relu, real gamma, real beta, real eps) {
  real mean = 0, variance = 0, n = (real)valid(c);
  if (special_row(c, c->n, largest(c, plain), 0)) return;
  for (size_t i = 0; i < c->n; i++)
    if (c->in[0][i] > -INFINITY) mean += (relu && c->in[0][i] < 0 ? 0 : (real)c->in[0][i]) / n;
  for (size_t i = 0; i < c->n; i++) {
    real away = (relu && c->in[0][i] < 0 ? 0 : (real)c->in[0][i]) - mean;
    if (c->in[0][i] > -INFINITY) variance += away * away / n;
  }
  real gain = relu ? 1 / sqrtl(variance + eps) : gamma / (sqrtl(variance) + eps);
  for (size_t i = 0; i < c->n; i++) {
    real away = (relu && c->in[0][i] < 0 ? 0 : (real)c->in[0][i]) - mean;
    c->out[0][i] = c->in[0][i] > -INFINITY ? (double)(away * gain + beta) : 0;
  }
}
void normalized_attention_ref(const row_ref_call *c) { standardise(c, 0, c->q[0], c->q[1], c->q[2]); }
void relu_layernorm_weights_ref(const row_ref_call *c) { standardise(c, 1, 1, 0, c->q[0]); }

void unnormalized_attention_ref(const row_ref_call *c) {
  if (special_row(c, c->n, largest(c, plain), 0)) return;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i];
    c->out[0][i] =
        x == -INFINITY || (c->q[1] == 1 && x < 0) ? 0 : (double)(x / powl((real)valid(c), c->q[0]));
  }
}

void sink_metrics_ref(const row_ref_call *c) {
  real m = largest(c, plain), first = c->in[1] ? c->in[1][0] : 0, sum = 0, count = 0;
  if (isnan(m) || m == -INFINITY) {
    c->out[0][0] = isnan(m) ? (double)NAN : 0;
    return;
  }
  for (size_t i = 0; i < c->n; i++) {
    if ((real)i < first) continue;
    count++;
    if (c->in[0][i] > -INFINITY) sum += c->in[0][i];
  }
  c->out[0][0] = count > 0 ? (double)(sum / count) : 0;
}
