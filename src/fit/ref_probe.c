/* fit/ref_probe.c - probes, opinions, cascades and recovered labels straight from their
 * definitions, for tests: fits by Newton's method, with second derivatives from differences of the
 * first. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fit.h"
#include "ref.h"

/* ---- Newton's method ---- */

typedef struct smooth {
  const tensor_ref_call *c;
  int64_t n;
  double (*value)(const struct smooth *s, const double *x, double *g);
} smooth;

/* A step with a ridge that grows until the value falls; true: it moved. */
static bool step(const smooth *s, double *x, double *g) {
  const int64_t n = s->n;
  double *h = calloc((size_t)(n * n + 1), sizeof *h), *m = calloc((size_t)(n * n + 1), sizeof *m),
         *y = calloc((size_t)(4 * n + 1), sizeof *y), *d = y + n, *up = d + n, *down = up + n;
  const double here = s->value(s, x, g);
  bool moved = false;
  for (int64_t k = 0; k < n; k++) {
    const double by = 1e-5;
    memcpy(y, x, (size_t)n * sizeof *y);
    y[k] = x[k] + by, (void)s->value(s, y, up);
    y[k] = x[k] - by, (void)s->value(s, y, down);
    for (int64_t i = 0; i < n; i++) h[k * n + i] = (up[i] - down[i]) / (2 * by);
  }
  for (double ridge = 1e-12; ridge < 1e6 && !moved; ridge = ridge < 1e-6 ? 1e-6 : ridge * 4) {
    double down_hill = 0;
    memcpy(m, h, (size_t)(n * n) * sizeof *m), memcpy(d, g, (size_t)n * sizeof *d);
    for (int64_t k = 0; k < n; k++) m[k * n + k] += ridge;
    ref_solve(n, m, d);
    for (int64_t k = 0; k < n; k++) y[k] = x[k] - d[k], down_hill += d[k] * g[k];
    moved = down_hill > 0 && s->value(s, y, up) <= here + 1e-15 * fabs(here);
  }
  if (moved) memcpy(x, y, (size_t)n * sizeof *x);
  free(h), free(m), free(y);
  return moved;
}

static double least(const smooth *s, double *x) {
  double *g = calloc((size_t)s->n + 1, sizeof *g);
  for (int k = 0; k < 400 && step(s, x, g); k++) continue;
  const double value = s->value(s, x, g);
  free(g);
  return value;
}

/* ---- probe_fit; q: classes, l2 ---- */

static bool occurs(const tensor_ref_call *c, int64_t k) {
  bool is = false;
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) is |= (int64_t)c->in[1][i] == k;
  return is;
}

static double probe_value(const smooth *s, const double *x, double *g) {
  const tensor_ref_call *c = s->c;
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]), k = (int64_t)c->q[0];
  double sum = 0, all_bias = 0, *z = calloc((size_t)k + 1, sizeof *z);
  for (int64_t j = 0; j < k; j++)
    all_bias += occurs(c, j) ? x[k * d + j] : 0; /* a bias for all changes nothing else */
  for (int64_t i = 0; i < s->n; i++)
    g[i] = i < k * d ? c->q[1] * x[i] : occurs(c, i - k * d) ? 1e-2 * all_bias : 0;
  for (int64_t i = 0; i < k * d; i++) sum += c->q[1] / 2 * x[i] * x[i];
  sum += 0.5e-2 * all_bias * all_bias;
  for (int64_t i = 0; i < n; i++) {
    double most = -INFINITY, all = 0;
    for (int64_t j = 0; j < k; j++) {
      z[j] = occurs(c, j) ? x[k * d + j] : -INFINITY;
      for (int64_t e = 0; e < d; e++) z[j] += x[j * d + e] * c->in[0][i * d + e];
      most = fmax(most, z[j]);
    }
    for (int64_t j = 0; j < k; j++) all += exp(z[j] - most);
    const int64_t target = (int64_t)c->in[1][i];
    sum += (most + log(all) - z[target]) / (double)n;
    for (int64_t j = 0; j < k; j++) {
      const double gap = (exp(z[j] - most) / all - (j == target)) / (double)n;
      g[k * d + j] += gap;
      for (int64_t e = 0; e < d; e++) g[j * d + e] += gap * c->in[0][i * d + e];
    }
  }
  free(z);
  return sum;
}

void probe_fit_ref(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), k = (int64_t)c->q[0];
  smooth s = {c, k * (d + 1), probe_value};
  double *x = calloc((size_t)s.n + 1, sizeof *x), loss = least(&s, x);
  for (int64_t i = 0; i < s.n; i++) {
    loss -= i < k * d ? c->q[1] / 2 * x[i] * x[i] : 0;
    ref_put(c, i >= k * d, i < k * d ? i : i - k * d, i < k * d || occurs(c, i - k * d) ? x[i] : -INFINITY);
  }
  ref_put(c, 2, 0, loss);
  free(x);
}

/* ---- crowd_temperature; q: penalty ---- */

static void opinion(const tensor_ref_call *c, int64_t from, int64_t n, double t, double *p) {
  double sum = 0;
  for (int64_t j = 0; j < n; j++) sum += p[j] = exp(fmax(log(c->in[0][from + j]), -15) / t);
  for (int64_t j = 0; j < n; j++) p[j] /= sum;
}

/* x: temperatures. The derivative of p_j by T: -p_j (l_j - mean of l) / T^2. */
static double crowd_value(const smooth *s, const double *x, double *g) {
  const tensor_ref_call *c = s->c;
  const int64_t m = s->n, n = c->in_shape[0][1], k = ref_last(c->in_shape[0]);
  double sum = 0, *p = calloc((size_t)(2 * k) + 1, sizeof *p);
  for (int64_t a = 0; a < m; a++)
    sum += x[a] > 0 ? c->q[0] * x[a] * x[a] : INFINITY, g[a] = 2 * c->q[0] * x[a];
  for (int64_t pair = 0; pair < m * m; pair++) {
    const int64_t of[] = {pair / m, pair % m};
    const double share = 2.0 / (double)(m * (m - 1) * n);
    if (of[0] >= of[1]) continue;
    for (int64_t i = 0; i < n; i++) {
      for (int w = 0; w < 2; w++) opinion(c, (of[w] * n + i) * k, k, x[of[w]], p + w * k);
      for (int w = 0; w < 2; w++) {
        double mean = 0;
        for (int64_t j = 0; j < k; j++)
          mean += p[w * k + j] * fmax(log(c->in[0][(of[w] * n + i) * k + j]), -15);
        for (int64_t j = 0; j < k; j++) {
          const double q = p[w * k + j], l = fmax(log(c->in[0][(of[w] * n + i) * k + j]), -15),
                       ratio = log(2 * q / (p[j] + p[k + j]));
          sum += share * 0.5 * q * ratio;
          g[of[w]] -= share * 0.5 * ratio * q * (l - mean) / (x[of[w]] * x[of[w]]);
        }
      }
    }
  }
  free(p);
  return sum;
}

void crowd_temperature_ref(const tensor_ref_call *c) {
  const int64_t m = c->in_shape[0][0], n = c->in_shape[0][1], k = ref_last(c->in_shape[0]);
  const smooth s = {c, m, crowd_value};
  double *x = calloc((size_t)(2 * m + k) + 1, sizeof *x), *p = x + m, *g = p + k;
  for (int64_t a = 0; a < m; a++) x[a] = m > 1 ? 1.5 : 1;
  if (m > 1) (void)least(&s, x);
  for (int64_t a = 0; a < m; a++) x[a] = fmax(x[a], 1.0 / 16);
  ref_put(c, 2, 0, m > 1 ? crowd_value(&s, x, g) : NAN);
  for (int64_t a = 0; a < m; a++) {
    ref_put(c, 0, a, x[a]);
    for (int64_t i = 0; i < n; i++) {
      opinion(c, (a * n + i) * k, k, x[a], p);
      for (int64_t j = 0; j < k && c->out[1]; j++) c->out[1][i * k + j] += p[j] / (double)m;
    }
  }
  free(x);
}

/* ---- cascades ---- */

/* The accuracy of the rows at or above a confidence, and how many there are. */
static double accuracy_from(const double *x, const double *is, int64_t n, double from, double *count) {
  double right = 0;
  *count = 0;
  for (int64_t i = 0; i < n; i++)
    if (x[i] >= from) ++*count, right += is[i] != 0;
  return right / *count;
}
/* q: slack. */
void cascade_fit_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t s = 0; s < ref_rows(c->in_shape[0]); s++) {
    const double *x = c->in[0] + s * n, *is = c->in[1] + s * n;
    double best = 0, count, least = INFINITY;
    for (int64_t i = 0; i < n; i++) best = fmax(best, accuracy_from(x, is, n, x[i], &count));
    for (int64_t i = 0; i < n; i++)
      if (accuracy_from(x, is, n, x[i], &count) >= best - c->q[0]) least = fmin(least, x[i]);
    ref_put(c, 0, s, least), ref_put(c, 1, s, accuracy_from(x, is, n, least, &count));
    ref_put(c, 2, s, count / (double)n);
  }
}

void cascade_ref(const tensor_ref_call *c) {
  const int64_t m = ref_rows(c->in_shape[0]), n = ref_last(c->in_shape[0]);
  double cost = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t stage = -1;
    for (int64_t s = 0; s < m && stage < 0; s++) {
      cost += (c->in[2] ? c->in[2][s] : 1) / (double)n;
      if (s == m - 1 || c->in[0][s * n + i] >= c->in[1][s]) stage = s;
    }
    ref_put(c, 0, i, (double)stage);
    if (c->out[1]) c->out[1][stage] += 1 / (double)n;
  }
  ref_put(c, 2, 0, cost);
}

/* ---- label_recovery; q: form ---- */

typedef struct hidden {
  const tensor_ref_call *c;
  int64_t n, d, row, large;
  double *y;
} hidden;

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void label_at(const hidden *h, double f) {
  const tensor_ref_call *c = h->c;
  const double *g = c->in[1], *row = g + h->row * h->d;
  double sum = 0, length = 0;
  for (int64_t e = 0; e < h->d; e++) length += row[e] * row[e];
  for (int64_t j = 0; j < h->n; j++) {
    double z = c->in[2] ? c->in[2][j] : 0;
    for (int64_t e = 0; e < h->d; e++) z += c->in[0][j * h->d + e] * f * row[e];
    sum += h->y[j] = exp(z);
  }
  for (int64_t j = 0; j < h->n; j++) {
    double v = 0;
    for (int64_t e = 0; e < h->d; e++) v += g[j * h->d + e] * row[e] / length;
    h->y[j] = h->y[j] / sum - (c->in[3] ? c->in[3][j] : v / f);
  }
}

static double variance_of(const hidden *h) {
  const int64_t small = h->n - h->large;
  double *z = calloc((size_t)h->n + 1, sizeof *z), mean = 0, sum = 0;
  memcpy(z, h->y, (size_t)h->n * sizeof *z);
  qsort(z, (size_t)h->n, sizeof *z, by_size);
  for (int64_t j = 0; j < small; j++) mean += z[j] / (double)small;
  for (int64_t j = 0; j < small; j++) sum += (z[j] - mean) * (z[j] - mean) / (double)small;
  free(z);
  return sum;
}
static double value_at(const hidden *h, double f) { return label_at(h, f), variance_of(h); }

/* The derivative of the variance, of which that of a mean has no part. */
static double slope_at(const hidden *h, double f) {
  const tensor_ref_call *c = h->c;
  const double *g = c->in[1], *row = g + h->row * h->d, count = (double)(h->n - h->large);
  double length = 0, lean = 0, mean = 0, sum = 0;
  label_at(h, f);
  for (int64_t e = 0; e < h->d; e++) length += row[e] * row[e];
  double *s = calloc((size_t)(2 * h->n) + 1, sizeof *s), *v = s + h->n;
  for (int64_t j = 0; j < h->n; j++) {
    for (int64_t e = 0; e < h->d; e++)
      s[j] += c->in[0][j * h->d + e] * row[e], v[j] += g[j * h->d + e] * row[e] / length;
    lean += (h->y[j] + v[j] / f) * s[j];
  }
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < h->n; j++) {
      int64_t above = 0;
      for (int64_t k = 0; k < h->n; k++) above += h->y[k] > h->y[j];
      if (above < h->large) continue;
      if (pass == 0) mean += h->y[j] / count;
      else sum += 2 * (h->y[j] - mean) * ((h->y[j] + v[j] / f) * (s[j] - lean) + v[j] / (f * f)) / count;
    }
  free(s);
  return sum;
}

/* A fine grid; at each least value of it the root of the derivative by bisection. */
static double find(const hidden *h) {
  double best = NAN, least = INFINITY;
  const double by = exp2(0.01);
  for (int sign = -1; sign <= 1; sign += 2)
    for (int k = -2000; k <= 2000; k++) {
      const double f = sign * exp2(k / 100.0), value = value_at(h, f);
      double low = f / by, high = f * by;
      if (value_at(h, low) <= value || value_at(h, high) < value) continue;
      for (int t = 0; t < 100; t++) {
        const double middle = (low + high) / 2;
        if (slope_at(h, middle) * sign > 0) high = middle;
        else low = middle;
      }
      if (value_at(h, low) < least) least = value_at(h, low), best = low;
    }
  return best;
}

void label_recovery_ref(const tensor_ref_call *c) {
  const int64_t n = ref_rows(c->in_shape[0]), d = ref_last(c->in_shape[0]);
  hidden h = {c, n, d, 0, c->q[0] != 0 ? 2 : 1, calloc((size_t)n + 1, sizeof(double))};
  double most = 0, f = NAN;
  for (int64_t j = 0; j < n; j++) {
    double size = c->in[3] ? fabs(c->in[3][j]) : 0;
    for (int64_t e = 0; e < d && !c->in[3]; e++) size += c->in[1][j * d + e] * c->in[1][j * d + e];
    if (size > most) most = size, h.row = j;
  }
  if (most > 0 && n - h.large >= (c->in[3] ? 1 : 3)) f = c->in[3] ? 1 / c->in[3][h.row] : find(&h);
  bool good = f == f;
  if (good) label_at(&h, f);
  for (int64_t e = 0; e < d; e++) ref_put(c, 0, e, f * c->in[1][h.row * d + e]);
  for (int64_t j = 0; j < n; j++) {
    good = good && h.y[j] >= -1e-6 && h.y[j] <= 1 + 1e-6;
    ref_put(c, 1, j, f == f ? h.y[j] : NAN);
  }
  const double variance = f == f ? variance_of(&h) : NAN;
  ref_put(c, 2, 0, f), ref_put(c, 3, 0, good && variance < 1e-9);
  free(h.y);
}
