/* score/ref_sets.c - parts of the Brier score, calibration of every class, intervals and tests by
 * draws straight from their definitions, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/ref_draws.h"
#include "ref.h"

static bool same_group(double a, double b, double bins, bool left) {
  if (bins == 0) return a == b;
  for (double k = 0; k < bins; k++) {
    const double low = k / bins, high = (k + 1) / bins;
    const bool with_low = left || k == 0, with_high = !left || k == bins - 1;
    const bool has_a = (with_low ? a >= low : a > low) && (with_high ? a <= high : a < high);
    const bool has_b = (with_low ? b >= low : b > low) && (with_high ? b <= high : b < high);
    if (has_a || has_b) return has_a && has_b;
  }
  return false;
}

/* q: bins, closed. For every row the means of its group, found anew. */
void brier_decomposition_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *f = c->in[0] + s * n, *o = c->in[1] + s * n;
    double part[7] = {0}, all = 0, mean = 0;
    for (int64_t i = 0; i < n; i++) {
      const double w = c->in[2] ? c->in[2][s * n + i] : 1;
      all += w, mean += w * (o[i] != 0);
    }
    mean /= all;
    bool copies = true;
    for (int64_t i = 0; i < n && c->in[2]; i++) copies &= c->in[2][s * n + i] == floor(c->in[2][s * n + i]);
    for (int64_t i = 0; i < n; i++) {
      double gw = 0, gs = 0, gf = 0, go = 0;
      for (int64_t j = 0; j < n; j++) {
        const double w = c->in[2] ? c->in[2][s * n + j] : 1;
        if (!same_group(f[i], f[j], c->q[0], c->q[1] != 0)) continue;
        gw += w, gs += copies ? w : w * w, gf += w * f[j], go += w * (o[j] != 0);
      }
      if (c->in[2] && c->in[2][s * n + i] == 0) continue;
      const double share = (c->in[2] ? c->in[2][s * n + i] : 1) / all, is = o[i] != 0, gap = (gf - go) / gw,
                   rate = go / gw, rows = gw * gw / gs;
      part[0] += share * (f[i] - is) * (f[i] - is), part[1] += share * gap * gap;
      part[2] += share * (rate - mean) * (rate - mean), part[5] += share * fabs(gap);
      part[6] += rows > 1 + 1e-9 ? share * (gap * gap - rate * (1 - rate) / (rows - 1)) : 0;
    }
    part[3] = mean * (1 - mean), part[4] = c->q[0] == 0 ? 0 : part[0] - part[1] + part[2] - part[3];
    part[6] = sqrt(fmax(part[6], 0));
    for (int k = 0; k < 7; k++) ref_put(c, k, s, part[k]);
  }
}

/* q: width. Pairs of two rows: of whole weights, those of two copies. */
void kernel_calibration_error_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *is = c->in[1] + s * n, *w = c->in[2] ? c->in[2] + s * n : NULL;
    double all = 0, apart = 0, pairs = 0, of_two = 0;
    bool copies = true;
    for (int64_t i = 0; i < n; i++) copies &= !w || w[i] == floor(w[i]);
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j < n; j++) {
        const double a = w ? w[i] : 1, both = a * (w ? w[j] : 1),
                     two = i != j   ? both
                           : copies ? a * (a - 1)
                                    : 0,
                     part = ((is[i] != 0) - x[i]) * ((is[j] != 0) - x[j]) * exp(-fabs(x[i] - x[j]) / c->q[0]);
        all += both * part, apart += two * part, pairs += both, of_two += two;
      }
    ref_put(c, 0, s, sqrt(all / pairs)), ref_put(c, 1, s, apart / of_two);
  }
}

/* q: temperature, bins, closed. */
void classwise_calibration_error_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), k = ref_last(c->in_shape[0]), bins = (int64_t)c->q[1];
  double mean = 0, largest = 0, counted = 0, *sums = calloc((size_t)bins, sizeof *sums);
  for (int64_t i = 0; i < n; i++) counted += c->in[2] ? c->in[2][i] : 1;
  for (int64_t t = 0; t < k; t++) {
    double error = 0;
    for (int64_t b = 0; b < bins; b++) sums[b] = 0;
    for (int64_t i = 0; i < n; i++) {
      double sum = 0;
      for (int64_t j = 0; j < k; j++) sum += exp((c->in[0][i * k + j] - c->in[0][i * k + t]) / c->q[0]);
      for (int64_t b = 0; b < bins; b++) {
        const double low = (double)b / (double)bins, high = (double)(b + 1) / (double)bins, p = 1 / sum;
        const bool in =
            c->q[2] != 0 ? p >= low && (p < high || b == bins - 1) : (p > low || b == 0) && p <= high;
        sums[b] += !in ? 0 : (c->in[2] ? c->in[2][i] : 1) * (p - ((int64_t)c->in[1][i] == t));
      }
    }
    for (int64_t b = 0; b < bins; b++) error += fabs(sums[b]) / counted;
    mean += error / (double)k, largest = fmax(largest, error), ref_put(c, 2, t, error);
  }
  ref_put(c, 0, 0, mean), ref_put(c, 1, 0, largest);
  free(sums);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double quantile_of(const double *x, int64_t n, double share) {
  const double v = (double)(n - 1) * share;
  return x[(int64_t)v] + (v - floor(v)) * (x[(int64_t)ceil(v)] - x[(int64_t)v]);
}

/* q: draws, level, seed. */
void mean_interval_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), draws = (int64_t)c->q[0];
  double *drawn = calloc((size_t)draws, sizeof *drawn);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *w = c->in[1] ? c->in[1] + s * n : NULL;
    double sum = 0, weight = 0, mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += (w ? w[i] : 1) * x[i], weight += w ? w[i] : 1;
    ref_put(c, 0, s, sum / weight);
    for (int64_t b = 0; b < draws; b++) {
      sum = weight = 0;
      for (int64_t i = 0; i < n; i++) {
        const double u = uniform((uint64_t)c->q[2], (uint64_t)s, 18, (uint64_t)(b * (n + n % 2) + i));
        const int64_t at = (int64_t)(u * (double)n);
        sum += (w ? w[at] : 1) * x[at], weight += w ? w[at] : 1;
      }
      drawn[b] = sum / weight, mean += drawn[b] / (double)draws;
    }
    for (int64_t b = 0; b < draws; b++) squares += (drawn[b] - mean) * (drawn[b] - mean);
    qsort(drawn, (size_t)draws, sizeof *drawn, by_size);
    ref_put(c, 1, s, quantile_of(drawn, draws, (1 - c->q[1]) / 2));
    ref_put(c, 2, s, quantile_of(drawn, draws, (1 + c->q[1]) / 2));
    ref_put(c, 3, s, draws > 1 ? sqrt(squares / (double)(draws - 1)) : NAN);
  }
  free(drawn);
}

/* q: draws, seed. */
void paired_test_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  const bool every = pow(2, (double)n) <= c->q[0];
  const int64_t draws = every ? 1 << n : (int64_t)c->q[0];
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *y = c->in[1] + s * n;
    double is = 0, count = 0;
    for (int64_t i = 0; i < n; i++) is += x[i] - y[i];
    for (int64_t b = 0; b < draws; b++) {
      double sum = 0;
      uint32_t r[4] = {(uint32_t)b, 0, 0, 0};
      if (!every) random_block((uint64_t)c->q[1], (uint64_t)s, 19, (uint64_t)b, r); /* n is below 128 */
      for (int64_t i = 0; i < n; i++) sum += (r[i / 32] >> i % 32 & 1 ? -1 : 1) * (x[i] - y[i]);
      count += fabs(sum) >= fabs(is) - 1e-9;
    }
    ref_put(c, 0, s, is / (double)n);
    ref_put(c, 1, s, every ? count / (double)draws : (1 + count) / (1 + (double)draws));
  }
}

/* q: budget, rank, lambda, clip. */
void budget_select_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *x = calloc((size_t)n, sizeof *x);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *score = c->in[0] + s * n;
    double left = c->q[0], spent = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) x[i] = score[i], ref_put(c, 0, s * n + i, 0);
    qsort(x, (size_t)n, sizeof *x, by_size);
    const double most = quantile_of(x, n, c->q[3]);
    for (int64_t i = 0; i < n; i++) {
      const double cost = c->in[1] ? c->in[1][s * n + i] : 1;
      const double worth[] = {score[i], score[i] / cost, score[i] - c->q[2] * cost};
      x[i] = score[i] <= most + 1e-12 ? worth[(int)c->q[1]] : -INFINITY;
    }
    for (int64_t turn = 0; turn < n; turn++) {
      int64_t best = 0;
      for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
      const double cost = c->in[1] ? c->in[1][s * n + best] : 1;
      if (x[best] > -INFINITY && cost <= left)
        left -= cost, spent += cost, ref_put(c, 0, s * n + best, 1),
            ref_put(c, 1, s * n + count++, (double)best);
      x[best] = -INFINITY;
    }
    for (; count < n; count++) ref_put(c, 1, s * n + count, -1);
    ref_put(c, 2, s, spent);
  }
  free(x);
}

/* q: threshold, step, budget. */
void stream_query_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    double theta = c->q[0], spent = 0;
    for (int64_t i = 0; i < n; i++) {
      const bool paid = spent >= c->q[2] * (double)(i + 1), ask = !paid && c->in[0][s * n + i] < theta;
      ref_put(c, 0, s * n + i, ask), spent += ask;
      if (!paid) theta += (ask ? -theta : theta) * c->q[1];
    }
    ref_put(c, 1, s, theta);
  }
}
