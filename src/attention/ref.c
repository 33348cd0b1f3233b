/* attention/ref.c - attention straight from its formulas: one row at a time, libm only, long double
 * inside, double in and out.
 *
 * It shares nothing with the kernels, so that one mistake cannot hide in both. Scores of a row are
 * laid out side by side; a key that is not visible has the score -inf and takes no part in
 * anything. */
#include "ref.h"

#include <math.h>
#include <stdlib.h>

typedef long double real;

static int visible(const attention_ref *c, int64_t i, int64_t j) {
  int64_t at = i + c->offset;
  if (c->causal && j > at) return 0;
  if (c->left >= 0 && j < at - c->left) return 0;
  if (c->right >= 0 && j > at + c->right) return 0;
  return !c->mask || c->mask[i * c->lk + j];
}

static real dot(const double *a, const double *b, int64_t n) {
  real sum = 0;
  for (int64_t x = 0; x < n; x++) sum += (real)a[x] * b[x];
  return sum;
}

static real score(const attention_ref *c, int64_t i, int64_t j, real factor) {
  real z = c->scale * factor * dot(c->q + i * c->d, c->k + j * c->d, c->d);
  if (c->softcap > 0) z = c->softcap * tanhl(z / c->softcap);
  if (c->bias) z += c->bias[i * c->lk + j];
  return z - c->slope * fabsl((real)(i + c->offset - j));
}

/* The scores of row i; returns how many keys are visible. */
static int64_t scores(const attention_ref *c, int64_t i, real *z) {
  int64_t n = 0;
  for (int64_t j = 0; j < c->lk; j++)
    n += visible(c, i, j) && !(c->bias && c->bias[i * c->lk + j] == -INFINITY);
  real factor = c->weights == SMX_ATTENTION_SSMAX && n ? c->param[0] * logl((real)n) + c->param[1] : 1;
  if ((c->weights == SMX_ATTENTION_LSSA || c->weights == SMX_ATTENTION_LSSAR) && n)
    factor = logl((real)c->d) * logl((real)n);
  for (int64_t j = 0; j < c->lk; j++) z[j] = visible(c, i, j) ? score(c, i, j, factor) : -(real)INFINITY;
  return n;
}

static real sigmoid(real x) { return 1 / (1 + expl(-x)); }
static real softplus(real x) { return x > 0 ? x + log1pl(expl(-x)) : log1pl(expl(x)); }
static real taylor(real x, int terms) {
  real sum = 0, term = 1;
  for (int r = 0; r < terms; r++) sum += term, term *= x / (r + 1);
  return sum;
}

static real elementwise(const attention_ref *c, real z) {
  switch (c->weights) {
    case SMX_ATTENTION_SIGMOID: return sigmoid(z + c->param[0]);
    case SMX_ATTENTION_RELU: return z > 0 ? z : 0;
    case SMX_ATTENTION_ELU: return z > 0 ? z + 1 : expl(z);
    case SMX_ATTENTION_IDENTITY: return z;
    case SMX_ATTENTION_LSSA:
    case SMX_ATTENTION_SOFTPLUS: return softplus(z);
    case SMX_ATTENTION_EXP: return expl(fminl(z, c->param[2]));
    default: return taylor(z, (int)c->param[1]);
  }
}

/* w_j = f(z_j) / N; returns log N. */
static real direct(const attention_ref *c, const real *z, int64_t n, real *w) {
  real sum = 0, absolute = 0, divisor = 1;
  for (int64_t j = 0; j < c->lk; j++) {
    w[j] = z[j] == -INFINITY ? 0 : elementwise(c, z[j]);
    sum += w[j], absolute += fabsl(w[j]);
  }
  int norm = c->weights == SMX_ATTENTION_SIGMOID ? 0 : (int)c->param[0];
  if (norm == SMX_ATTENTION_NORM_COUNT) divisor = (real)n;
  if (norm == SMX_ATTENTION_NORM_L1)
    divisor = absolute + (c->weights == SMX_ATTENTION_TAYLOR ? 0 : c->param[1]);
  if (norm == SMX_ATTENTION_NORM_CLAMP) divisor = fabsl(sum) > 1 ? fabsl(sum) : 1;
  for (int64_t j = 0; j < c->lk; j++) w[j] = divisor == 0 ? 0 : w[j] / divisor;
  return logl(divisor);
}

/* w_j = e^z_j / (e^sink + sum e^z), and log of the divisor. */
static real softmax(const attention_ref *c, const real *z, real sink, real *w) {
  real top = sink, sum = 0;
  for (int64_t j = 0; j < c->lk; j++) top = z[j] > top ? z[j] : top;
  for (int64_t j = 0; j < c->lk; j++) sum += w[j] = expl(z[j] - top);
  sum += sink > -INFINITY ? expl(sink - top) : 0;
  for (int64_t j = 0; j < c->lk; j++) w[j] /= sum;
  return top + logl(sum);
}

static real softpick(const attention_ref *c, const real *z, real *w) {
  real top = 0, sum = 0;
  for (int64_t j = 0; j < c->lk; j++) top = z[j] > top ? z[j] : top;
  for (int64_t j = 0; j < c->lk; j++) {
    w[j] = z[j] == -INFINITY ? 0 : expl(z[j] - top) - expl(-top);
    sum += fabsl(w[j]);
  }
  for (int64_t j = 0; j < c->lk; j++) w[j] = sum > 0 && w[j] > 0 ? w[j] / sum : 0;
  return top + logl(sum);
}

static void centred(const attention_ref *c, const real *z, int64_t n, real *w) {
  real mean = 0, variance = 0;
  for (int64_t j = 0; j < c->lk; j++) mean += z[j] == -INFINITY ? 0 : z[j] / n;
  for (int64_t j = 0; j < c->lk; j++) variance += z[j] == -INFINITY ? 0 : (z[j] - mean) * (z[j] - mean) / n;
  real below = sqrtl(variance) + c->param[2];
  for (int64_t j = 0; j < c->lk; j++)
    w[j] = z[j] == -INFINITY ? 0 : (below > 0 ? c->param[0] * (z[j] - mean) / below : 0) + c->param[1];
}

static real credal(const attention_ref *c, const real *z, real *w) {
  real top = 0, sum = 0;
  for (int64_t j = 0; j < c->lk; j++) top = z[j] > top ? z[j] : top;
  for (int64_t j = 0; j < c->lk; j++)
    sum += w[j] = z[j] == -INFINITY ? 0 : expl(z[j] - top) + c->param[0] * expl(-top);
  for (int64_t j = 0; j < c->lk; j++) w[j] /= sum;
  return top + logl(sum);
}

static real reweighted(const attention_ref *c, const real *z, int64_t n, real *w) {
  real sum = 0, power = 0, most = 0, offset = (double)n <= c->param[2] ? 0 : c->param[1];
  for (int64_t j = 0; j < c->lk; j++) sum += w[j] = z[j] == -INFINITY ? 0 : softplus(z[j]);
  for (int64_t j = 0; j < c->lk; j++) most = fmaxl(most, n * w[j] / sum - offset);
  for (int64_t j = 0; j < c->lk; j++) {
    real y = z[j] == -INFINITY  ? 0
             : most <= 0x1p-16L ? n * w[j] / sum
                                : powl(fmaxl(n * w[j] / sum - offset, 0), c->param[0]);
    power += w[j] = y;
  }
  for (int64_t j = 0; j < c->lk; j++) w[j] /= power;
  return logl(power);
}

/* Weights of a row with n > 0 visible keys. */
static real weigh(const attention_ref *c, const real *z, int64_t i, int64_t n, real *w) {
  real lse = 0, low = 0, high = 0;
  for (int64_t j = 0; j < c->lk; j++) {
    if (z[j] > high) high = z[j];
    if (z[j] < low && z[j] > -INFINITY) low = z[j];
  }
  switch (c->weights) {
    case SMX_ATTENTION_SOFTMAX:
    case SMX_ATTENTION_UNIFIED:
    case SMX_ATTENTION_SSMAX: return softmax(c, z, c->sink, w);
    case SMX_ATTENTION_SOFTMAX_N: return softmax(c, z, logl((real)c->param[0]), w);
    case SMX_ATTENTION_SOFTPICK: return softpick(c, z, w);
    case SMX_ATTENTION_SELF_ADJUST:
      lse = softmax(c, z, c->sink, w);
      for (int64_t j = 0; j < c->lk; j++) w[j] = w[j] == 0 ? 0 : z[j] * w[j];
      return lse;
    case SMX_ATTENTION_SELF_ADJUST_RANGE:
      lse = softmax(c, z, c->sink, w);
      for (int64_t j = 0; j < c->lk; j++)
        w[j] = w[j] == 0 || high == low ? 0 : (z[j] - low) / (high - low) * w[j];
      return lse;
    case SMX_ATTENTION_CLIPPED:
      lse = softmax(c, z, -(real)INFINITY, w);
      for (int64_t j = 0; j < c->lk; j++)
        w[j] = z[j] == -INFINITY ? 0 : fminl(1, fmaxl(0, (c->param[1] - c->param[0]) * w[j] + c->param[0]));
      return lse;
    case SMX_ATTENTION_CREDAL: return credal(c, z, w);
    case SMX_ATTENTION_SHAPED:
      lse = softmax(c, z, -(real)INFINITY, w);
      for (int64_t j = 0; j < c->lk; j++)
        w[j] = z[j] == -INFINITY
                   ? 0
                   : c->param[1] * w[j] - c->param[2] / n + (j == i + c->offset ? c->param[0] : 0);
      return lse;
    case SMX_ATTENTION_LSSAR: return reweighted(c, z, n, w);
    case SMX_ATTENTION_CENTRED: centred(c, z, n, w); return 0;
    default: return direct(c, z, n, w);
  }
}

static void run_row(const attention_ref *c, int64_t i, real *z, real *w) {
  int64_t n = scores(c, i, z);
  real lse = -(real)INFINITY;
  if (n) lse = weigh(c, z, i, n, w);
  else if (c->weights == SMX_ATTENTION_SOFTMAX_N) lse = logl((real)c->param[0]);
  else lse = c->sink;
  for (int64_t j = 0; j < c->lk && n && c->keep; j++) w[j] *= c->keep[i * c->lk + j];
  for (int64_t x = 0; x < c->e; x++) {
    real sum = 0, size = 0;
    for (int64_t j = 0; j < c->lk && n; j++) {
      if (z[j] == -INFINITY) continue;
      sum += w[j] * c->v[j * c->e + x];
      size += fabsl(w[j] * c->v[j * c->e + x]);
    }
    c->o[i * c->e + x] = (double)sum;
    c->size[i * c->e + x] = (double)size;
  }
  c->lse[i] = (double)lse;
}

void attention_ref_run(const attention_ref *c) {
  real *z = calloc((size_t)(c->lk ? c->lk : 1), sizeof *z),
       *w = calloc((size_t)(c->lk ? c->lk : 1), sizeof *w);
  for (int64_t i = 0; i < c->lq && z && w; i++) run_row(c, i, z, w);
  free(z);
  free(w);
}
