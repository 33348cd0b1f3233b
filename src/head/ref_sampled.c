/* head/ref_sampled.c - sampled losses from one list of classes a row, and their candidates. */
#include "engine/ref_draws.h"
#include "ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { H, W, TARGET, OTHER, BIAS, TRUE_EXPECTED, EXPECTED };
enum { CLASSES, COUNT, FORM, UNIQUE, POWER, SEED, IGNORE };

/* ---- losses ---- */

static double score(const tensor_ref_call *c, int64_t row, int64_t class, double expected) {
  const int64_t d = c->in_shape[H][1];
  long double x = c->in[BIAS] ? c->in[BIAS][class] : 0;
  for (int64_t i = 0; i < d; i++) x += (long double)c->in[H][row * d + i] * c->in[W][class * d + i];
  return (double)(x - logl(expected));
}

/* The scores of a row: `many` of its targets, then of the others. */
static int64_t scores(const tensor_ref_call *c, int64_t row, double *x, int64_t *many) {
  const int64_t t = c->in_shape[TARGET][1], s = c->in_shape[OTHER][0];
  const double *const target = c->in[TARGET] + row * t;
  int64_t count = 0;
  for (int64_t k = 0; k < t; k++)
    if (target[k] != c->q[1])
      x[count++] =
          score(c, row, (int64_t)target[k], c->in[TRUE_EXPECTED] ? c->in[TRUE_EXPECTED][row * t + k] : 1);
  *many = count;
  for (int64_t j = 0; j < s; j++) {
    bool hit = false;
    for (int64_t k = 0; k < t; k++) hit |= target[k] == c->in[OTHER][j] && target[k] != c->q[1];
    if (!hit || c->q[0] == 0)
      x[count++] = score(c, row, (int64_t)c->in[OTHER][j], c->in[EXPECTED] ? c->in[EXPECTED][j] : 1);
  }
  return count;
}

static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static void losses(const tensor_ref_call *c, bool nce) {
  const int64_t n = c->in_shape[H][0];
  double *const x = calloc((size_t)(c->in_shape[TARGET][1] + c->in_shape[OTHER][0]) + 1, sizeof *x);
  for (int64_t row = 0; row < n; row++) {
    int64_t many;
    const int64_t count = scores(c, row, x, &many);
    double most = -INFINITY, loss = 0;
    long double sum = 0;
    for (int64_t k = 0; k < count; k++) most = fmax(most, x[k]);
    for (int64_t k = 0; k < count; k++) sum += expl(x[k] - most);
    for (int64_t k = 0; k < (nce ? count : many); k++) {
      const double label = k < many ? 1 / (double)many : 0;
      loss += nce ? softplus(x[k]) - label * x[k] : label * (double)(most - x[k] + logl(sum));
    }
    c->out[0][row] = many ? loss : 0;
  }
  free(x);
}
void ref_sampled_softmax(const tensor_ref_call *c) { losses(c, false); }
void ref_nce_loss(const tensor_ref_call *c) { losses(c, true); }

/* q: form, ignore_index */
void ref_augment_and_reduce(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[H][0], s = c->in_shape[OTHER][0], classes = c->in_shape[W][0];
  const bool probit = c->q[0] == 2, logistic = c->q[0] == 1;
  for (int64_t row = 0; row < n; row++) {
    double sum = 0, others = 0, *const latent = c->in[5] ? (double[]){c->in[5][row]} : NULL;
    if (c->in[TARGET][row] == c->q[1]) {
      c->out[0][row] = c->out[1][row] = 0;
      continue;
    }
    const double x = score(c, row, (int64_t)c->in[TARGET][row], 1);
    for (int64_t j = 0; j < s; j++) {
      if (c->in[OTHER][j] == c->in[TARGET][row]) continue;
      const double d = score(c, row, (int64_t)c->in[OTHER][j], 1) - x;
      const double weight = c->in[6] ? c->in[6][j] : 1, away = latent ? d - *latent : d;
      others++, sum += weight * (probit     ? (double)-logl(erfcl(away / sqrtl(2)) / 2)
                                 : logistic ? softplus(away)
                                            : exp(d));
    }
    if (others > 0 && !c->in[6]) sum *= (double)(classes - 1) / others;
    c->out[1][row] = sum;
    if (probit) c->out[0][row] = sum + (latent ? *latent * *latent / 2 + log(2 * acos(-1)) / 2 : 0);
    else if (logistic) c->out[0][row] = sum + (latent ? *latent + 2 * softplus(-*latent) : 0);
    else c->out[0][row] = latent ? log(*latent) - 1 + (1 + sum) / *latent : log1p(sum);
  }
}

/* ---- candidates ---- */

static double weight(const tensor_ref_call *c, int64_t j) {
  if (c->in[1]) return c->in[1][j] > 0 ? pow(c->in[1][j], c->q[POWER]) : 0;
  return c->q[FORM] != 0 ? 1 : log1p(1 / ((double)j + 1));
}

/* By walking through the classes until u is used up. */
static int64_t drawn(const tensor_ref_call *c, int64_t i, double total) {
  double left = uniform((uint64_t)c->q[SEED], (uint64_t)1 << 41, 20, (uint64_t)i) * total;
  int64_t j = 0;
  for (; j + 1 < (int64_t)c->q[CLASSES] && left >= weight(c, j); j++) left -= weight(c, j);
  return j;
}

void ref_sample_classes(const tensor_ref_call *c) {
  const int64_t classes = (int64_t)c->q[CLASSES], count = (int64_t)c->q[COUNT];
  const int64_t targets = c->in_shape[0][0] * c->in_shape[0][1];
  int64_t found = 0, tries = 0;
  double total = 0, *const sampled = c->out[0];
  for (int64_t j = 0; j < classes; j++) total += weight(c, j);
  while (found < count && tries < 1000000) {
    bool there = false;
    sampled[found] = (double)drawn(c, tries++, total);
    for (int64_t k = 0; k < found && c->q[UNIQUE] != 0; k++) there |= sampled[k] == sampled[found];
    found += !there;
  }
  for (int64_t i = 0; i < targets + count; i++) {
    const bool target = i < targets;
    const double class = target ? c->in[0][i] : sampled[i - targets];
    const bool none = target && class == c->q[IGNORE];
    const double p = none ? 0 : weight(c, (int64_t) class) / total;
    const double expected = tries == count ? (double)count * p : -expm1((double)tries * log1p(-p));
    c->out[target ? 1 : 2][target ? i : i - targets] = none ? 1 : expected;
  }
}
