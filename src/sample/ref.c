/* sample/ref.c - the operators that draw, straight from their definitions: libm, double, one row at
 * a time. Decoding: ref_decode.c. */
#include "ref.h"

void categorical_sample_ref(const row_ref_call *c) {
  double m = largest(c->in[0], c->n), t = c->q[0], *h = room_for(c->n);
  uint64_t seed = (uint64_t)c->q[2];
  size_t drawn;
  c->out[0][0] = -1, c->out[1][0] = isnan(m) ? NAN : -INFINITY;
  if (m > -INFINITY) {
    long double sum = 0;
    for (size_t i = 0; i < c->n; i++) h[i] = c->in[0][i] / (t == 0 ? 1 : t);
    for (size_t i = 0; i < c->n; i++) sum += expl(((long double)c->in[0][i] - m) / (t == 0 ? 1 : t));
    if (t == 0) drawn = first_largest(c->in[0], c->n);
    else if (c->q[1] == 0) {
      for (size_t i = 0; i < c->n; i++) h[i] += gumbel(seed, stream_of(c), 1, i);
      drawn = first_largest(h, c->n);
    } else {
      for (size_t i = 0; i < c->n; i++) h[i] = (double)expl(((long double)c->in[0][i] - m) / t);
      drawn = walk(h, c->n, uniform(seed, stream_of(c), 2, 0));
    }
    c->out[0][0] = (double)drawn;
    c->out[1][0] = t == 0 ? 0 : (double)(((long double)c->in[0][drawn] - m) / t - logl(sum));
  }
  free(h);
}

void gumbel_softmax_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n);
  /* scores beyond that keep their noise, but for the argmax */
  if (fabs(m) < 524288 || m == -INFINITY || c->q[2] != 0) m = 0;
  for (size_t i = 0; i < c->n; i++)
    h[i] = (c->in[0][i] - m + gumbel((uint64_t)c->q[1], stream_of(c), 4, i)) / c->q[0];
  weights(h, c->n, c->out[0]);
  if (c->q[2] != 0 && largest(h, c->n) > -INFINITY) {
    size_t best = first_largest(h, c->n);
    for (size_t i = 0; i < c->n; i++) c->out[0][i] = i == best;
  }
  free(h);
}

void gumbel_topk_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n);
  for (size_t i = 0; i < c->n; i++)
    h[i] = (m > -INFINITY ? c->in[0][i] - m : -INFINITY) + gumbel((uint64_t)c->q[1], stream_of(c), 3, i);
  for (size_t j = 0; j < (size_t)c->q[0]; j++) {
    size_t best = c->n ? first_largest(h, c->n) : 0;
    int more = !isnan(m) && h[best] > -INFINITY;
    c->out[0][j] = more ? (double)best : -1;
    c->out[1][j] = isnan(m) ? NAN : more ? m + h[best] : -INFINITY;
    h[best] = -INFINITY;
  }
  free(h);
}

void binary_concrete_ref(const row_ref_call *c) {
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) nan |= isnan(c->in[0][i]);
  for (size_t i = 0; i < c->n; i++) {
    double u = uniform((uint64_t)c->q[1], stream_of(c), 8, i),
           h = (c->in[0][i] + log(u) - log(1 - u)) / c->q[0];
    c->out[0][i] = nan ? NAN : c->q[2] != 0 ? h > 0 : 1 / (1 + exp(-h));
  }
}

void dirichlet_sample_ref(const row_ref_call *c) {
  double *h = room_for(c->n);
  for (size_t i = 0; i < c->n; i++) {
    double a = c->in[0][i];
    h[i] = a > 0 && a < INFINITY ? log_gamma((uint64_t)c->q[0], stream_of(c), i, a)
           : a == 0              ? -INFINITY
                                 : NAN;
  }
  weights(h, c->n, c->out[0]);
  free(h);
}

void cfg_logits_ref(const row_ref_call *c) {
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) nan |= !(c->in[0][i] < INFINITY && c->in[1][i] < INFINITY);
  for (size_t i = 0; i < c->n; i++) {
    double x = c->in[0][i], u = c->in[1][i];
    c->out[0][i] = nan ? NAN : x == -INFINITY || u == -INFINITY ? -INFINITY : u + c->q[0] * (x - u);
  }
}

void soft_cfg_weights_ref(const row_ref_call *c) {
  long double sum = 0;
  int bad = 0;
  for (size_t i = 0; i < c->n; i++) {
    if (c->in[0][i] == -INFINITY) continue;
    bad |= !(c->in[0][i] >= 0 && c->in[0][i] <= 1);
    sum += c->in[0][i];
  }
  for (size_t i = 0; i < c->n; i++) {
    long double x = c->in[0][i] == -INFINITY ? 0 : c->in[0][i];
    c->out[0][i] = bad ? NAN : (double)(1 - x * (sum > c->q[0] ? c->q[0] / sum : 1));
  }
}

row_ref_fn *const sample_refs[] = {
#define SAMPLE_OP(name) name##_ref,
#include "list.h"
#undef SAMPLE_OP
};
