/* row/ref.c - the row operators straight from their formulas: one row at a time, libm only, long
 * double inside, double in and out.
 *
 * It shares nothing with ops.c, so that one mistake cannot hide in both. Every operator reads its
 * row through a score function, which gives -inf for an element that does not exist: such an
 * element has weight 0 whatever it holds. A NaN or +inf among the scores makes the whole row NaN; a
 * row with nothing valid gives zeros, or -inf where the result is a logarithm (the default
 * policies). */
#include "ref.h"

#include <stdlib.h>

/* ---- softmax, softmin, log_softmax: a temperature and a base ---- */

/* The default of the parameter means e itself, not the double nearest to it. */
static real log_of_base(double b) { return b == 2.718281828459045 ? 1 : logl((real)b); }

static real divide(real s, real temperature) { return s == -INFINITY ? s : s / temperature; }

static double softmax_temperature(const row_ref_call *c) { return c->in[1] ? c->in[1][0] : c->q[0]; }

static real based(const row_ref_call *c, size_t i) {
  real log_base = log_of_base(c->q[1]);
  return log_base == 0 && c->in[0][i] == -INFINITY ? -INFINITY : c->in[0][i] * log_base;
}

static real softmax_score(const row_ref_call *c, size_t i) {
  return divide(based(c, i), softmax_temperature(c));
}

void softmax_ref(const row_ref_call *c) {
  if (softmax_temperature(c) == 0) one_hot(c, based, 1);
  else weights(c, softmax_score, -INFINITY);
}

static real log_softmax_score(const row_ref_call *c, size_t i) { return divide(c->in[0][i], c->q[0]); }

void log_softmax_ref(const row_ref_call *c) {
  real m = largest(c, log_softmax_score);
  if (special_row(c, c->n, m, -INFINITY)) return;
  real log_sum = log1pl(sum_exp(c, log_softmax_score, m, 1));
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = (double)(log_softmax_score(c, i) - m - log_sum);
}

static real negated(const row_ref_call *c, size_t i) { return -(real)c->in[0][i]; }

static real softmin_score(const row_ref_call *c, size_t i) { return divide(negated(c, i), c->q[0]); }

void softmin_ref(const row_ref_call *c) {
  if (c->q[0] == 0) one_hot(c, negated, 1);
  else weights(c, softmin_score, -INFINITY);
}

void hardmax_ref(const row_ref_call *c) { one_hot(c, plain, c->q[0] == 1); }

/* ---- one value a row ---- */

void logsumexp_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (special_row(c, 1, m, -INFINITY)) return;
  c->out[0][0] = (double)(m + log1pl(sum_exp(c, plain, m, 1)));
}

void softmax_collapse_rate_ref(const row_ref_call *c) {
  static const int digits[] = {11, 8, 24, 53};
  real m = largest(c, plain);
  if (special_row(c, 1, m, 0)) return;
  c->out[0][0] = sum_exp(c, plain, m, 1) <= ldexpl(1, -digits[(int)c->q[0]]);
}

void logmeanexp_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (special_row(c, 1, m, -INFINITY)) return;
  c->out[0][0] = (double)(m + logl(sum_exp(c, plain, m, 0) / (real)c->n));
}

static real mellowmax_score(const row_ref_call *c, size_t i) { return (real)c->q[0] * c->in[0][i]; }

/* log of the mean of e^(score - m), through e^s - 1 where the mean is close to 1, as it is for a
 * small omega. */
void mellowmax_ref(const row_ref_call *c) {
  real m = largest(c, mellowmax_score);
  if (special_row(c, 1, m, -INFINITY)) return;
  real less = 0;
  for (size_t i = 0; i < c->n; i++) less += expm1l(mellowmax_score(c, i) - m);
  less /= (real)c->n;
  real log_mean = less > -0.5L ? log1pl(less) : logl(sum_exp(c, mellowmax_score, m, 0) / (real)c->n);
  c->out[0][0] = (double)(c->in[0][argmax(c, mellowmax_score, m)] + log_mean / (real)c->q[0]);
}

static real boltzmann_score(const row_ref_call *c, size_t i) {
  real alpha = c->in[1] ? c->in[1][0] : c->q[0];
  return alpha >= 0 && c->in[0][i] == -INFINITY ? -INFINITY : alpha * c->in[0][i];
}

void boltzmann_operator_ref(const row_ref_call *c) {
  real m = largest(c, boltzmann_score);
  if (special_row(c, 1, m, 0)) return;
  real top = c->in[0][argmax(c, boltzmann_score, m)], sum = sum_exp(c, boltzmann_score, m, 0), part = 0;
  for (size_t i = 0; i < c->n; i++) {
    real e = expl(boltzmann_score(c, i) - m);
    if (e != 0) part += (c->in[0][i] - top) * e;
  }
  c->out[0][0] = (double)(top + part / sum);
}

/* ---- masks, segments, the k largest ---- */

static real masked_score(const row_ref_call *c, size_t i) { return c->in[1][i] != 0 ? c->in[0][i] : c->q[0]; }

void masked_softmax_ref(const row_ref_call *c) { weights(c, masked_score, -INFINITY); }

enum { X, BIAS, MASK, SLOPE, POSITION, SINK }; /* the inputs of scaled_masked_softmax */

static real scaled_masked_score(const row_ref_call *c, size_t i) {
  const double *const *in = c->in;
  if (in[MASK] && in[MASK][i] == 0) return -INFINITY;
  if (in[BIAS] && in[BIAS][i] == -INFINITY) return -INFINITY;
  real position = in[POSITION] ? (real)in[POSITION][0] : (real)c->n - 1;
  real alibi = in[SLOPE] ? in[SLOPE][0] * fabsl(position - (real)i) : 0;
  return (real)c->q[0] * in[X][i] + (in[BIAS] ? in[BIAS][i] : 0) - alibi;
}

void scaled_masked_softmax_ref(const row_ref_call *c) {
  weights(c, scaled_masked_score, c->in[SINK] ? (real)c->in[SINK][0] : -INFINITY);
}

void segment_softmax_ref(const row_ref_call *c) { weights(c, plain, -INFINITY); }

static int descending(const void *a, const void *b) {
  double u = *(const double *)a, v = *(const double *)b;
  return (u < v) - (u > v);
}

/* Gives -inf to all but the k largest; among equals the earlier ones stay. */
static void keep_largest(size_t n, const double *x, size_t k, double *kept) {
  for (size_t i = 0; i < n; i++) kept[i] = x[i];
  qsort(kept, n, sizeof *kept, descending);
  double threshold = kept[k - 1];
  size_t equals = k;
  for (size_t i = 0; i < n; i++) equals -= x[i] > threshold;
  for (size_t i = 0; i < n; i++) {
    int stays = x[i] > threshold || (x[i] == threshold && equals > 0);
    equals -= x[i] == threshold && equals > 0;
    kept[i] = stays ? x[i] : -INFINITY;
  }
}

void sparse_softmax_ref(const row_ref_call *c) {
  real m = largest(c, plain);
  if (special_row(c, c->n, m, 0)) return;
  double *kept = malloc(c->n * sizeof *kept);
  if (!kept) abort();
  keep_largest(c->n, c->in[0], c->q[0] < (double)c->n ? (size_t)c->q[0] : c->n, kept);
  const double *in[] = {kept};
  row_ref_call sparse = {c->n, in, c->out, c->q};
  weights(&sparse, plain, -INFINITY);
  free(kept);
}

enum { VALUE, INDEX, LOG, LSE, RANK }; /* the outputs of softmax_topk */

/* Whether element i comes before element j: value descending, then index ascending. */
static int comes_before(const double *x, size_t i, size_t j) {
  return x[i] > x[j] || (x[i] == x[j] && i < j);
}

static size_t elements_before(const row_ref_call *c, size_t j) {
  size_t count = 0;
  for (size_t i = 0; i < c->n; i++) count += (size_t)comes_before(c->in[0], i, j);
  return count;
}

static void topk_rest(const row_ref_call *c, size_t from, double value, double log) {
  for (size_t i = from; i < (size_t)c->q[0]; i++)
    c->out[VALUE][i] = value, c->out[INDEX][i] = -1, c->out[LOG][i] = log;
}

void softmax_topk_ref(const row_ref_call *c) {
  size_t k = (size_t)c->q[0], kept = 0, best = c->n;
  real m = largest(c, plain);
  c->out[LSE][0] = isnan(m) ? (double)NAN : -INFINITY, c->out[RANK][0] = -1;
  topk_rest(c, 0, isnan(m) ? (double)NAN : 0, isnan(m) ? (double)NAN : -INFINITY);
  if (isnan(m) || m == -INFINITY) return;
  real lse = m + log1pl(sum_exp(c, plain, m, 1)), all = lse;
  c->out[LSE][0] = (double)lse;
  if (c->in[1] && c->in[1][0] >= 0 && c->in[1][0] < (double)c->n && c->in[0][(size_t)c->in[1][0]] > -INFINITY)
    c->out[RANK][0] = (double)elements_before(c, (size_t)c->in[1][0]);
  for (size_t last = c->n; kept < k; last = best, kept++) { /* the best of those that come after the last */
    best = c->n;
    for (size_t i = 0; i < c->n; i++)
      if (c->in[0][i] > -INFINITY && (last == c->n || comes_before(c->in[0], last, i)) &&
          (best == c->n || comes_before(c->in[0], i, best)))
        best = i;
    if (best == c->n) break;
    c->out[INDEX][kept] = (double)best;
  }
  if (c->q[2] != 0) {
    real sum = 0;
    for (size_t i = 1; i < kept; i++) sum += expl(c->in[0][(size_t)c->out[INDEX][i]] - m);
    all = m + log1pl(sum);
  }
  for (size_t i = 1; c->q[1] != 0 && i < kept; i++) /* by index: insertion */
    for (size_t j = i; j > 0 && c->out[INDEX][j - 1] > c->out[INDEX][j]; j--) {
      double swap = c->out[INDEX][j];
      c->out[INDEX][j] = c->out[INDEX][j - 1], c->out[INDEX][j - 1] = swap;
    }
  for (size_t i = 0; i < kept; i++) {
    real x = c->in[0][(size_t)c->out[INDEX][i]];
    c->out[VALUE][i] = (double)expl(x - all), c->out[LOG][i] = (double)(x - all);
  }
}

/* ---- element by element ---- */

void logcumsumexp_ref(const row_ref_call *c) {
  if (isnan(largest(c, plain))) {
    fill(c, c->n, (double)NAN);
    return;
  }
  real m = -INFINITY, sum = 0;
  for (size_t i = 0; i < c->n; i++) {
    real x = c->in[0][i], top = x > m ? x : m;
    if (top != -INFINITY) sum = (m == -INFINITY ? 0 : sum * expl(m - top)) + expl(x - top);
    m = top;
    c->out[0][i] = (double)(m == -INFINITY ? m : m + logl(sum));
  }
}

/* Not of the exponential family: +-inf are ordinary values here. */
void softcap_ref(const row_ref_call *c) {
  real cap = c->q[0], nan = 0;
  for (size_t i = 0; i < c->n; i++)
    if (isnan(c->in[0][i])) nan = NAN;
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = (double)(nan + (isinf(cap) ? c->in[0][i] : cap * tanhl(c->in[0][i] / cap)));
}

row_ref_fn *const row_refs[] = {
#define ROW_OP(name) name##_ref,
#include "list.h"
#undef ROW_OP
};
