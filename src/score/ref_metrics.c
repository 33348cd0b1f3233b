/* score/ref_metrics.c - metrics of sets straight from their definitions, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ref.h"

/* ---- weights ---- */

/* Weights of n rows, 1 without; whether they are whole numbers. */
static double *weights_of(const tensor_ref_call *c, int64_t from, int64_t n, bool *copies) {
  double *w = calloc((size_t)n + 1, sizeof *w);
  *copies = true;
  for (int64_t i = 0; i < n; i++) w[i] = c->in[2] ? c->in[2][from + i] : 1, *copies &= w[i] == floor(w[i]);
  return w;
}
static double sum_of(const double *w, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += w[i];
  return sum;
}

/* What counts as one row. */
static double unit_of(const double *w, int64_t n, bool copies) {
  double rows = 0;
  for (int64_t i = 0; i < n; i++) rows += w[i] > 0;
  return copies ? 1 : sum_of(w, n) / rows;
}

/* ---- ranking_metrics ---- */

typedef struct ranked {
  const double *x, *y, *w;
  int64_t n;
} ranked;

/* Rows that are predicted at a threshold: true ones, and all. */
static void predicted(const ranked *r, double least, bool below, double of, double *hits, double *all) {
  *hits = *all = 0;
  for (int64_t i = 0; i < r->n; i++)
    if (below ? r->x[i] <= least : r->x[i] >= least)
      *hits += r->w[i] * ((r->y[i] != 0) == (of != 0)), *all += r->w[i];
}

/* The sum over different thresholds of the gain of recall times precision. */
static double precision_of(const ranked *r, bool below, double of, double total) {
  double sum = 0;
  for (int64_t i = 0; i < r->n; i++) {
    double hits, all, own = 0;
    bool first = true;
    for (int64_t j = 0; j < i; j++) first &= r->x[j] != r->x[i];
    if (!first) continue;
    predicted(r, r->x[i], below, of, &hits, &all);
    for (int64_t j = 0; j < r->n; j++) own += r->w[j] * (r->x[j] == r->x[i] && (r->y[j] != 0) == (of != 0));
    sum += own > 0 ? own / total * hits / all : 0;
  }
  return sum;
}

void ranking_metrics_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *y = c->in[1] + s * n;
    double positives = 0, negatives = 0, pairs = 0, fpr = 1, detection = .5;
    bool copies;
    double *w = weights_of(c, s * n, n, &copies);
    const ranked r = {x, y, w, n};
    for (int64_t i = 0; i < n; i++) *(y[i] != 0 ? &positives : &negatives) += w[i];
    for (int64_t i = 0; i < n; i++) {
      double hits, all;
      for (int64_t j = 0; j < n; j++)
        if (y[i] != 0 && y[j] == 0) pairs += w[i] * w[j] * (x[i] > x[j] ? 1 : x[i] == x[j] ? .5 : 0);
      predicted(&r, x[i], false, 1, &hits, &all);
      if (hits / positives >= c->q[0] - 1e-14) fpr = fmin(fpr, (all - hits) / negatives);
      detection = fmin(detection, .5 * (1 - hits / positives + (all - hits) / negatives));
    }
    const bool none = positives == 0 || negatives == 0;
    ref_put(c, 0, s, none ? NAN : pairs / positives / negatives);
    ref_put(c, 1, s, none ? NAN : precision_of(&r, false, 1, positives));
    ref_put(c, 2, s, none ? NAN : precision_of(&r, true, 0, negatives));
    ref_put(c, 3, s, none ? NAN : fpr), ref_put(c, 4, s, none ? NAN : detection);
    free(w);
  }
}

/* ---- calibration_error ---- */

static bool is_in(double x, double low, double high, bool left, bool end) {
  if (left) return x >= low && (x < high || (end && x <= high));
  return x <= high && (x > low || (end && x >= low));
}

/* How much of the rows is below row i, the least confident first; of equal ones the later first. */
static double below_of(const double *x, const double *w, int64_t n, int64_t i) {
  double before = 0;
  for (int64_t j = 0; j < n; j++) before += w[j] * (x[j] < x[i] || (x[j] == x[i] && j > i));
  return before;
}

/* The part of a row that lies between two edges. */
static double part_of(double at, double w, double low, double high) {
  return fmax(0, fmin(at + w, high) - fmax(at, low));
}

void calibration_error_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), bins = (int64_t)c->q[0];
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *y = c->in[1] + s * n;
    double ece = 0, mce = 0, rms = 0, adaptive = 0, ks = 0, low = 0;
    bool copies;
    double *w = weights_of(c, s * n, n, &copies);
    const double all = sum_of(w, n), unit = unit_of(w, n, copies), rows = round(all / unit * 1e6) / 1e6;
    for (int64_t b = 0; b < bins; b++) {
      double count = 0, confidence = 0, correct = 0, own = 0;
      for (int64_t i = 0; i < n; i++)
        if (is_in(x[i], (double)b / (double)bins, (double)(b + 1) / (double)bins, c->q[1] != 0,
                  c->q[1] != 0 ? b == bins - 1 : b == 0))
          count += w[i], confidence += w[i] * x[i], correct += w[i] * (y[i] != 0);
      const double gap = fabs(correct - confidence) / count;
      if (count > 0) ece += gap * count / all, mce = fmax(mce, gap), rms += gap * gap * count / all;
      ref_put(c, 5, s * bins + b, copies ? count : -1), ref_put(c, 6, s * bins + b, confidence / count);
      ref_put(c, 7, s * bins + b, correct / count);
      const double high =
          low + unit * (floor(rows / (double)bins) + fmin(1, fmax(0, fmod(rows, (double)bins) - (double)b)));
      for (int64_t i = 0; i < n; i++)
        own += part_of(below_of(x, w, n, i), w[i], low, high) * ((y[i] != 0) - x[i]);
      adaptive += fabs(own) / all, low = high;
    }
    for (int64_t k = 0; k < n; k++) {
      double sum = 0;
      for (int64_t i = 0; i < n; i++)
        if (x[i] <= x[k]) sum += w[i] * ((y[i] != 0) - x[i]);
      ks = fmax(ks, fabs(sum) / all);
    }
    const bool none = all == 0;
    ref_put(c, 0, s, none ? NAN : ece), ref_put(c, 1, s, none ? NAN : mce);
    ref_put(c, 2, s, none ? NAN : sqrt(rms)), ref_put(c, 3, s, none ? NAN : adaptive);
    ref_put(c, 4, s, none ? NAN : ks);
    free(w);
  }
}

/* ---- risk_coverage ---- */

/* psi(x + 1), by its recurrence and its asymptotic series; differences cancel. */
static long double psi_after(long double x) {
  long double sum = 0;
  for (; x < 200; x++) sum -= 1 / (x + 1);
  return sum + logl(x) + 1 / (2 * x) - 1 / (12 * x * x) + 1 / (120 * x * x * x * x);
}

/* The sum of the risks of places a + 1 .. a + w, where losses grow from `before` by own / w each:
 * (before + own (k - a) / w) / k = own / w + (before - own a / w) / k. */
static double risks_between(double a, double w, double before, double own) {
  double sum = 0;
  if (w != floor(w) || a != floor(a)) return own + (before - own * a / w) * (psi_after(a + w) - psi_after(a));
  for (double k = a + 1; k <= a + w; k++) sum += (before + own * (k - a) / w) / k;
  return sum;
}

/* The mean risk; risk: of the 1, 2, ... rows that count, or NULL. */
static double risks_of(const double *x, const double *loss, const double *w, int64_t n, double unit,
                       double *risk) {
  double all = 0;
  int64_t place = 0;
  for (int64_t i = 0; i < n; i++) {
    double above = 0, before = 0, size = 0, own = 0, rows = 0, of_own = 0, earlier = 0;
    bool first = true;
    for (int64_t j = 0; j < n; j++) {
      const bool same = x[j] == x[i];
      if (x[j] > x[i]) above += w[j], before += w[j] * loss[j], earlier += w[j] > 0;
      if (same) size += w[j], own += w[j] * loss[j], rows += w[j] > 0, first &= j >= i || w[j] == 0;
    }
    if (w[i] == 0) continue;
    if (first) all += risks_between(above / unit, size / unit, before / unit, own / unit);
    for (int64_t j = 0; j < i; j++) of_own += x[j] == x[i] && w[j] > 0;
    const double share = (of_own + 1) / rows;
    place = (int64_t)(earlier + of_own);
    if (risk) risk[place] = (before + own * share) / (above + size * share);
  }
  return all / (sum_of(w, n) / unit);
}

void risk_coverage_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *best = calloc((size_t)n + 1, sizeof *best);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *loss = c->in[1] + s * n;
    bool copies;
    double *w = weights_of(c, s * n, n, &copies);
    const double unit = unit_of(w, n, copies);
    for (int64_t i = 0; i < n; i++) best[i] = -loss[i];
    for (int64_t i = 0; i < n; i++) ref_put(c, 2, s * n + i, NAN);
    const double aurc = risks_of(c->in[0] + s * n, loss, w, n, unit, c->out[2] ? c->out[2] + s * n : NULL);
    ref_put(c, 0, s, aurc), ref_put(c, 1, s, aurc - risks_of(best, loss, w, n, unit, NULL));
    free(w);
  }
  free(best);
}

/* ---- classification_metrics ---- */

typedef struct classified {
  const double *p, *t, *w;
  int64_t n;
} classified;

static double count_where(const classified *x, double of, bool predicted, bool is_true) {
  double sum = 0;
  for (int64_t i = 0; i < x->n; i++)
    if (x->p[i] >= 0 && x->t[i] >= 0)
      sum += x->w[i] * ((!predicted || x->p[i] == of) && (!is_true || x->t[i] == of));
  return sum;
}

/* The correlation of the indicators of classes, as covariances of them. */
static double matthews_of(const classified *x, int64_t classes) {
  const double all = count_where(x, 0, false, false);
  double pt = 0, pp = 0, tt = 0;
  for (int64_t k = 0; k < classes; k++) {
    const double of = (double)k, a = count_where(x, of, true, false) / all,
                 b = count_where(x, of, false, true) / all;
    pt += count_where(x, of, true, true) / all - a * b, pp += a * (1 - a), tt += b * (1 - b);
  }
  return all == 0 ? NAN : pp * tt > 1e-12 ? pt / sqrt(pp * tt) : 0;
}

void classification_metrics_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), classes = (int64_t)c->q[0];
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    double right = 0, f1 = 0, some = 0, recalls = 0, there = 0;
    bool copies;
    double *w = weights_of(c, s * n, n, &copies);
    const classified x = {c->in[0] + s * n, c->in[1] + s * n, w, n};
    const double all = count_where(&x, 0, false, false);
    for (int64_t k = 0; k < classes; k++) {
      const double of = (double)k, hit = count_where(&x, of, true, true),
                   taken = count_where(&x, of, true, false), is = count_where(&x, of, false, true);
      const double own = taken + is > 0 ? 2 * hit / (taken + is) : 0, recall = is > 0 ? hit / is : 0;
      right += hit, f1 += own, some += taken + is > 0, recalls += recall, there += is > 0;
      ref_put(c, 5, s * classes + k, taken > 0 ? hit / taken : 0), ref_put(c, 6, s * classes + k, recall);
      ref_put(c, 7, s * classes + k, own);
      for (int64_t j = 0; j < classes; j++) {
        double both = 0;
        for (int64_t i = 0; i < n; i++) both += w[i] * (x.t[i] == of && x.p[i] == (double)j);
        ref_put(c, 4, (s * classes + k) * classes + j, copies ? both : -1);
      }
    }
    ref_put(c, 0, s, right / all), ref_put(c, 1, s, f1 / some), ref_put(c, 2, s, recalls / there);
    ref_put(c, 3, s, matthews_of(&x, classes));
    free(w);
  }
}
