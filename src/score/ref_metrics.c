/* score/ref_metrics.c - metrics of sets straight from their definitions, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ref.h"

/* ---- ranking_metrics ---- */

/* Rows that are predicted at a threshold: true ones, and all. */
static void predicted(const double *x, const double *y, int64_t n, double least, bool below, double of,
                      double *hits, double *all) {
  *hits = *all = 0;
  for (int64_t i = 0; i < n; i++)
    if (below ? x[i] <= least : x[i] >= least) *hits += (y[i] != 0) == (of != 0), ++*all;
}

/* The sum over different thresholds of the gain of recall times precision. */
static double precision_of(const double *x, const double *y, int64_t n, bool below, double of, double total) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double hits, all, own = 0;
    bool first = true;
    for (int64_t j = 0; j < i; j++) first &= x[j] != x[i];
    if (!first) continue;
    predicted(x, y, n, x[i], below, of, &hits, &all);
    for (int64_t j = 0; j < n; j++) own += x[j] == x[i] && (y[j] != 0) == (of != 0);
    sum += own / total * hits / all;
  }
  return sum;
}

void ranking_metrics_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *y = c->in[1] + s * n;
    double positives = 0, pairs = 0, fpr = 1, detection = .5;
    for (int64_t i = 0; i < n; i++) positives += y[i] != 0;
    const double negatives = (double)n - positives;
    for (int64_t i = 0; i < n; i++) {
      double hits, all;
      for (int64_t j = 0; j < n; j++)
        if (y[i] != 0 && y[j] == 0) pairs += x[i] > x[j] ? 1 : x[i] == x[j] ? .5 : 0;
      predicted(x, y, n, x[i], false, 1, &hits, &all);
      if (hits / positives >= c->q[0]) fpr = fmin(fpr, (all - hits) / negatives);
      detection = fmin(detection, .5 * (1 - hits / positives + (all - hits) / negatives));
    }
    const bool none = positives == 0 || negatives == 0;
    ref_put(c, 0, s, none ? NAN : pairs / positives / negatives);
    ref_put(c, 1, s, none ? NAN : precision_of(x, y, n, false, 1, positives));
    ref_put(c, 2, s, none ? NAN : precision_of(x, y, n, true, 0, negatives));
    ref_put(c, 3, s, none ? NAN : fpr), ref_put(c, 4, s, none ? NAN : detection);
  }
}

/* ---- calibration_error ---- */

static bool is_in(double x, double low, double high, bool left, bool end) {
  if (left) return x >= low && (x < high || (end && x <= high));
  return x <= high && (x > low || (end && x >= low));
}

/* Places of the rows, the least confident first; of equal ones the later first. */
static int64_t *places_of(const double *x, int64_t n) {
  int64_t *place = calloc((size_t)n + 1, sizeof *place);
  for (int64_t i = 0; i < n; i++) {
    int64_t before = 0;
    for (int64_t j = 0; j < n; j++) before += x[j] < x[i] || (x[j] == x[i] && j > i);
    place[before] = i;
  }
  return place;
}

void calibration_error_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), bins = (int64_t)c->q[0];
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *y = c->in[1] + s * n;
    double ece = 0, mce = 0, rms = 0, adaptive = 0, ks = 0;
    int64_t *place = places_of(x, n), from = 0;
    for (int64_t b = 0; b < bins; b++) {
      double count = 0, confidence = 0, correct = 0, own = 0;
      for (int64_t i = 0; i < n; i++)
        if (is_in(x[i], (double)b / (double)bins, (double)(b + 1) / (double)bins, c->q[1] != 0,
                  c->q[1] != 0 ? b == bins - 1 : b == 0))
          count++, confidence += x[i], correct += y[i] != 0;
      const double gap = fabs(correct - confidence) / count;
      if (count > 0)
        ece += gap * count / (double)n, mce = fmax(mce, gap), rms += gap * gap * count / (double)n;
      ref_put(c, 5, s * bins + b, count), ref_put(c, 6, s * bins + b, confidence / count);
      ref_put(c, 7, s * bins + b, correct / count);
      const int64_t end = from + n / bins + (b < n % bins);
      for (; from < end; from++) own += (y[place[from]] != 0) - x[place[from]];
      adaptive += fabs(own) / (double)n;
    }
    for (int64_t k = 0; k < n; k++) {
      double sum = 0;
      for (int64_t i = 0; i < n; i++)
        if (x[i] <= x[k]) sum += (y[i] != 0) - x[i];
      ks = fmax(ks, fabs(sum) / (double)n);
    }
    ref_put(c, 0, s, ece), ref_put(c, 1, s, mce), ref_put(c, 2, s, sqrt(rms)), ref_put(c, 3, s, adaptive),
        ref_put(c, 4, s, ks);
    free(place);
  }
}

/* ---- risk_coverage ---- */

/* The mean risk; risk: of each coverage, or NULL. */
static double risks_of(const double *x, const double *loss, int64_t n, double *risk) {
  double all = 0;
  for (int64_t k = 1; k <= n; k++) {
    double before = 0, count = 0, block = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t above = 0, equal = 0;
      for (int64_t j = 0; j < n; j++) above += x[j] > x[i], equal += x[j] == x[i];
      if (above + equal <= k - 1 || (above < k && above + equal <= k)) before += loss[i], count++;
      else if (above < k) block += loss[i], size++;
    }
    const double r = (before + (size > 0 ? block * ((double)k - count) / size : 0)) / (double)k;
    if (risk) risk[k - 1] = r;
    all += r / (double)n;
  }
  return all;
}

void risk_coverage_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *best = calloc((size_t)n + 1, sizeof *best);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *loss = c->in[1] + s * n;
    for (int64_t i = 0; i < n; i++) best[i] = -loss[i];
    const double aurc = risks_of(c->in[0] + s * n, loss, n, c->out[2] ? c->out[2] + s * n : NULL);
    ref_put(c, 0, s, aurc), ref_put(c, 1, s, aurc - risks_of(best, loss, n, NULL));
  }
  free(best);
}

/* ---- classification_metrics ---- */

static double count_where(const double *p, const double *t, int64_t n, double of, bool predicted,
                          bool is_true) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    if (p[i] >= 0 && t[i] >= 0) sum += (!predicted || p[i] == of) && (!is_true || t[i] == of);
  return sum;
}

/* The correlation of the indicators of classes, as covariances of them. */
static double matthews_of(const double *p, const double *t, int64_t n, int64_t classes) {
  const double all = count_where(p, t, n, 0, false, false);
  double pt = 0, pp = 0, tt = 0;
  for (int64_t k = 0; k < classes; k++) {
    const double of = (double)k, a = count_where(p, t, n, of, true, false) / all,
                 b = count_where(p, t, n, of, false, true) / all;
    pt += count_where(p, t, n, of, true, true) / all - a * b, pp += a * (1 - a), tt += b * (1 - b);
  }
  return pp * tt > 1e-12 ? pt / sqrt(pp * tt) : 0;
}

void classification_metrics_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), classes = (int64_t)c->q[0];
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *p = c->in[0] + s * n, *t = c->in[1] + s * n;
    double right = 0, f1 = 0, some = 0, recalls = 0, there = 0;
    const double all = count_where(p, t, n, 0, false, false);
    for (int64_t k = 0; k < classes; k++) {
      const double of = (double)k, hit = count_where(p, t, n, of, true, true),
                   taken = count_where(p, t, n, of, true, false), is = count_where(p, t, n, of, false, true);
      const double own = taken + is > 0 ? 2 * hit / (taken + is) : 0, recall = is > 0 ? hit / is : 0;
      right += hit, f1 += own, some += taken + is > 0, recalls += recall, there += is > 0;
      ref_put(c, 5, s * classes + k, taken > 0 ? hit / taken : 0), ref_put(c, 6, s * classes + k, recall);
      ref_put(c, 7, s * classes + k, own);
      for (int64_t j = 0; j < classes; j++) {
        double both = 0;
        for (int64_t i = 0; i < n; i++) both += t[i] == of && p[i] == (double)j;
        ref_put(c, 4, (s * classes + k) * classes + j, both);
      }
    }
    ref_put(c, 0, s, right / all), ref_put(c, 1, s, f1 / some), ref_put(c, 2, s, recalls / there);
    ref_put(c, 3, s, matthews_of(p, t, n, classes));
  }
}
