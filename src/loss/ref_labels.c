/* loss/ref_labels.c - soft targets that are made of others. See ref.c. */
#include "ref.h"

static void fill_label(const row_ref_call *c, double value) { fill(c->out[0], c->n, value); }

/* Whether a number of this port makes the row NaN; then its outputs are written. */
static int not_finite(const row_ref_call *c, const double *x) {
  for (size_t j = 0; x && j < c->n; j++)
    if (!isfinite(x[j])) {
      fill_label(c, (double)NAN);
      return 1;
    }
  return 0;
}

static real smoothed(const row_ref_call *c, real t, real keep) {
  return c->n < 2 ? t : keep * t + (1 - keep) / (real)(c->n - 1) * (1 - t);
}
void labels_mix_ref(const row_ref_call *c) {
  real share = c->in[2] ? c->in[2][0] : c->q[0];
  const double *other = c->in[1] ? c->in[1] : c->in[0];
  if (not_finite(c, c->in[0]) || not_finite(c, other)) return;
  for (size_t j = 0; j < c->n; j++) {
    real y = share * smoothed(c, c->in[0][j], c->q[1]) + (1 - share) * smoothed(c, other[j], c->q[2]);
    c->out[0][j] = share >= 0 && share <= 1 ? (double)y : (double)NAN;
  }
}

void labels_ensemble_ref(const row_ref_call *c) {
  row r = open_row(c->n);
  real k = c->in[1] ? c->q[1] : 1;
  for (size_t j = 0; j < c->n; j++) r.z[j] = c->in[0][j] / (real)c->q[0];
  finalize(&r);
  if (r.nan || r.empty) fill_label(c, r.nan ? (double)NAN : 0);
  else if (!not_finite(c, c->in[1]))
    for (size_t j = 0; j < c->n; j++)
      c->out[0][j] = (double)((c->in[1] ? (k - 1) / k * c->in[1][j] : 0) + r.p[j] / k);
  close_row(&r);
}

void labels_adapt_ref(const row_ref_call *c) {
  double sure = -INFINITY, e = c->n > 1 ? c->q[4] : 0;
  int nan = 0;
  for (size_t j = 0; j < c->n; j++) {
    nan |= isnan(c->in[0][j]) || c->in[0][j] == (double)INFINITY;
    if (c->in[0][j] > sure) sure = c->in[0][j];
  }
  int drop = c->in[1][0] == c->q[0] || sure < c->q[1] || sure > c->q[3];
  for (size_t j = 0; j < c->n; j++) {
    double own = (double)j == c->in[1][0] ? 1 - e : e / (double)(c->n - 1),
           x = c->in[0][j] == -(double)INFINITY ? 0 : c->in[0][j];
    c->out[0][j] = nan ? (double)NAN : drop ? 0 : sure > c->q[2] ? x : own;
  }
  c->out[1][0] = nan ? (double)NAN : !drop;
}

static real normal_below(real z) { return erfcl(-z / sqrtl(2)) / 2; }
void labels_score_distribution_ref(const row_ref_call *c) {
  real n = (real)c->n, mean = c->in[1][0], sd = c->in[2][0], gap = c->q[1], levels = 0, all = 0, away = 0,
       label = 0;
  int near = 0, split = sd < c->q[2],
      bad = not_finite(c, c->in[0]) || !isfinite(mean) || !(sd >= 0) || isinf(sd);
  real *r = numbers(c->n);
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], z = (x - mean) / sd;
    r[j] = expl(-z * z / 2);
    if (c->q[0] == 1) {
      real from = (x - mean - gap / 2) / sd, to = (x - mean + gap / 2) / sd;
      r[j] = from > 0 ? normal_below(-from) - normal_below(-to) : normal_below(to) - normal_below(from);
    }
    near += fabsl(z) <= 10;
    levels += x, all += r[j], away += (x - mean) * r[j];
  }
  real below = mean - levels / n, lead = away / all;
  if (near == 0 || (below != 0 && fabsl(below) >= 1000 * fabsl(lead + below))) split = 1;
  for (size_t j = 0; j < c->n && !bad; j++) {
    real a = below == 0 ? 1 : below / (lead + below), b = below == 0 ? 0 : lead / (lead + below) / n;
    real y = split ? 1 - fabsl((real)c->in[0][j] - mean) / gap : a * r[j] / all + b;
    c->out[0][j] = (double)fmaxl(0, y);
    label += c->in[0][j] * fmaxl(0, y);
  }
  if (bad) fill_label(c, (double)NAN);
  c->out[1][0] = bad && c->n > 0 ? (double)NAN : (double)label;
  free(r);
}

void labels_crowd_ref(const row_ref_call *c) {
  real sum = 0;
  if (not_finite(c, c->in[0]) || not_finite(c, c->in[1])) return;
  for (size_t j = 0; j < c->n; j++) {
    real f = (c->in[0][j] + (real)c->q[0]) * (c->in[1] ? c->in[1][j] : 1);
    if (f < 0) sum = NAN;
    sum += f;
  }
  for (size_t j = 0; j < c->n; j++) {
    real f = (c->in[0][j] + (real)c->q[0]) * (c->in[1] ? c->in[1][j] : 1);
    c->out[0][j] = (double)(sum == 0 ? 1 / (real)c->n : f / sum);
  }
}

typedef struct place {
  double x;
  size_t at;
} place;
static int earlier(const void *a, const void *b) {
  const place *p = a, *q = b;
  if (p->x != q->x) return p->x > q->x ? -1 : 1;
  return p->at < q->at ? -1 : 1;
}
/* The elements that exist, best first. */
static place *places_of(const row_ref_call *c, size_t *count) {
  place *list = calloc(c->n + 1, sizeof *list);
  if (!list) abort();
  *count = 0;
  for (size_t j = 0; j < c->n; j++)
    if (c->in[0][j] > -(double)INFINITY) list[(*count)++] = (place){c->in[0][j], j};
  qsort(list, *count, sizeof *list, earlier);
  return list;
}

/* Whether the row is NaN or has no valid element; then its outputs are written. */
static int unranked(const row_ref_call *c) {
  int nan = 0, some = 0;
  for (size_t j = 0; j < c->n; j++)
    nan |= isnan(c->in[0][j]) || c->in[0][j] == (double)INFINITY, some |= c->in[0][j] > -(double)INFINITY;
  if (nan || !some) fill_label(c, nan ? (double)NAN : 0);
  return nan || !some;
}

void labels_zipf_ref(const row_ref_call *c) {
  size_t count;
  real sum = 0;
  if (unranked(c)) return;
  place *list = places_of(c, &count);
  fill_label(c, 0);
  if ((double)count > c->q[1]) count = (size_t)c->q[1];
  for (size_t k = 0; k < count; k++)
    sum += (c->in[1][0] == c->q[0] || (double)list[k].at != c->in[1][0]) / (real)(k + 1);
  for (size_t k = 0; k < count; k++)
    if (c->in[1][0] == c->q[0] || (double)list[k].at != c->in[1][0])
      c->out[0][list[k].at] = (double)(1 / (real)(k + 1) / sum);
  free(list);
}

void labels_top_two_ref(const row_ref_call *c) {
  double rho = c->in[1] ? c->in[1][0] : c->q[0];
  size_t count;
  if (unranked(c)) return;
  place *list = places_of(c, &count);
  fill_label(c, rho >= 0 && rho <= 1 ? 0 : (double)NAN);
  if (rho >= 0 && rho <= 1) c->out[0][list[0].at] = count > 1 ? 1 - rho : 1;
  if (rho >= 0 && rho <= 1 && count > 1) c->out[0][list[1].at] = rho;
  free(list);
}

void labels_recover_ref(const row_ref_call *c) {
  size_t count;
  real sum = 0, rest;
  if (unranked(c)) return;
  place *list = places_of(c, &count);
  if ((double)count > c->q[0]) count = (size_t)c->q[0];
  int bad = 0;
  for (size_t k = 0; k < count; k++) sum += list[k].x, bad |= list[k].x < 0;
  rest = c->q[1] == 0 && count < c->n ? fmaxl(0, 1 - sum) / (real)(c->n - count) : 0;
  fill_label(c, bad ? (double)NAN : (double)rest);
  for (size_t k = 0; k < count && !bad; k++)
    c->out[0][list[k].at] = c->q[1] == 0 ? list[k].x
                            : sum > 0    ? (double)(list[k].x / sum)
                                         : 1 / (double)count;
  free(list);
}
