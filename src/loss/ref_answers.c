/* loss/ref_answers.c - candidates of one question, advantages of groups, tokens of an answer. See
 * ref.c. */
#include "ref.h"

void sequence_logp_ref(const row_ref_call *c) {
  real sum = 0, count = 0;
  int nan = 0;
  for (size_t t = 0; t < c->n; t++) {
    if ((c->in[1] && c->in[1][t] == 0) || (c->in[2] && (double)t >= c->in[2][0])) continue;
    nan |= !(c->in[0][t] < (double)INFINITY);
    sum += c->in[0][t];
    count++;
  }
  c->out[0][0] = nan ? (double)NAN : (double)(sum / powl(fmaxl(count, 1), (real)c->q[0]));
  c->out[1][0] = nan ? -1 : (double)count;
}

/* ---- groups ---- */

static int real_order(const void *a, const void *b) {
  const real x = *(const real *)a, y = *(const real *)b;
  return (x > y) - (x < y);
}
/* The elements above -inf, sorted, and their mean and deviation. False: the row is written. */
static int open_group(const row_ref_call *c, real *v, size_t *m, real *mean, real *deviation) {
  int bad = 0;
  *m = 0, *mean = *deviation = 0;
  for (size_t i = 0; i < c->n; i++) {
    bad |= isnan(c->in[0][i]) || c->in[0][i] == (double)INFINITY;
    if (c->in[0][i] != -(double)INFINITY) v[(*m)++] = c->in[0][i];
  }
  for (size_t i = 0; i < c->n && (bad || *m == 0); i++) c->out[0][i] = bad ? (double)NAN : 0;
  if (bad || *m == 0) return 0;
  qsort(v, *m, sizeof *v, real_order);
  for (size_t i = 0; i < *m; i++) *mean += v[i] / (real)*m;
  for (size_t i = 0; i<*m && * m> 1; i++) *deviation += (v[i] - *mean) * (v[i] - *mean) / (real)(*m - 1);
  *deviation = v[0] == v[*m - 1] ? 0 : sqrtl(*deviation);
  return 1;
}
static void close_group(const row_ref_call *c, real base, real stretch, real deviation, double scale,
                        double epsilon) {
  real by = scale == 1 ? 1 : deviation > 0 ? 1 / (deviation + (real)epsilon) : 0;
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = isinf(c->in[0][i]) ? 0 : (double)((c->in[0][i] - base) * stretch * by);
}
void group_advantage_ref(const row_ref_call *c) {
  real *v = numbers(c->n), mean, deviation;
  size_t m;
  if (open_group(c, v, &m, &mean, &deviation))
    close_group(c, mean, c->q[0] == 0 ? 1 : m > 1 ? (real)m / (real)(m - 1) : 0, deviation, c->q[1], c->q[2]);
  free(v);
}
void quantile_advantage_ref(const row_ref_call *c) {
  real *v = numbers(c->n), mean, deviation;
  size_t m, at = 0;
  if (open_group(c, v, &m, &mean, &deviation)) {
    real place = (real)c->q[0] * (real)(m - 1), low = floorl(place);
    while (at + 1 < m && (double)(at + 1) / (double)m < c->q[0]) at++;
    real base = v[at];
    if (c->q[1] == 1) {
      size_t k = (size_t)low;
      base = v[k] + (place - low) * (k + 1 < m ? v[k + 1] - v[k] : 0);
    }
    close_group(c, base, 1, deviation, c->q[2], c->q[3]);
  }
  free(v);
}
void curriculum_softmax_ref(const row_ref_call *c) {
  real all = 0, top = -INFINITY, max = -INFINITY, sum = 0, *z = numbers(c->n);
  int bad = 0, some = 0;
  for (size_t i = 0; i < c->n; i++) {
    double x = c->in[0][i], n = c->in[1][i];
    if (x == -(double)INFINITY) continue;
    some = 1;
    bad |= !(x < (double)INFINITY) || !(n >= 0 && n < (double)INFINITY);
    all += n;
  }
  for (size_t i = 0; i < c->n; i++) top = fmaxl(top, c->in[0][i]);
  for (size_t i = 0; i < c->n; i++) {
    real bonus = sqrtl(2 * log1pl(fmaxl(all, 1)) / ((real)c->in[1][i] + 1));
    z[i] = ((c->in[0][i] - top) + (real)c->q[1] * bonus) / (real)c->q[0];
    if (c->in[0][i] == -(double)INFINITY) z[i] = -INFINITY;
    max = fmaxl(max, z[i]);
  }
  for (size_t i = 0; i < c->n; i++) sum += z[i] > -INFINITY ? expl(z[i] - max) : 0;
  for (size_t i = 0; i < c->n; i++)
    c->out[0][i] = bad ? (double)NAN : some && z[i] > -INFINITY ? (double)(expl(z[i] - max) / sum) : 0;
  free(z);
}

/* ---- candidates ---- */

void candidate_ranking_loss_ref(const row_ref_call *c) {
  real loss = 0, count = 0, *dx = numbers(c->n);
  int gold = c->in[1] && c->in[1][0] != -(double)INFINITY;
  int bad = gold && !(c->in[1][0] < (double)INFINITY);
  for (size_t i = 0; i < c->n; i++) {
    bad |= !(c->in[0][i] < (double)INFINITY);
    count += !isinf(c->in[0][i]);
  }
  for (size_t g = 1; g < c->n && (double)g <= c->q[4]; g++) {
    real pairs = 0;
    for (size_t i = 0; i + g < c->n; i++) pairs += !isinf(c->in[0][i]) && !isinf(c->in[0][i + g]);
    for (size_t i = 0; i + g < c->n; i++) {
      if (isinf(c->in[0][i]) || isinf(c->in[0][i + g])) continue;
      real over = (real)c->in[0][i + g] - c->in[0][i] + (real)c->q[0] * (real)g,
           by = c->q[3] == 1 ? 1 : 1 / pairs;
      if (over > 0) loss += by * over, dx[i + g] += by, dx[i] -= by;
    }
  }
  for (size_t i = 0; i < c->n && gold; i++) {
    real over = (real)c->in[0][i] - c->in[1][0] + (real)c->q[1];
    if (!isinf(c->in[0][i]) && over > 0) loss += (real)c->q[2] * over / count, dx[i] += (real)c->q[2] / count;
  }
  give(c, bad ? (double)NAN : (double)loss);
  for (size_t i = 0; i < c->n && !bad; i++) c->out[DX][i] = (double)dx[i];
  free(dx);
}

static real bounded(real x, real low, real high) { return fminl(fmaxl(x, low), high); }
static real anchored_tau(const row_ref_call *c) {
  real h = c->in[5] ? c->in[5][0] : 0, success = c->in[6] ? c->in[6][0] : 0.5L;
  if (!c->in[5] && !c->in[6]) return c->q[1];
  if (isnan(h) || isnan(success)) return (real)NAN;
  h = bounded(h, 0, 1);
  real tau = (real)c->q[1] * (1 + (real)c->q[4] * h + (real)c->q[5] * (1 - h) * (1 - bounded(success, 0, 1)));
  return bounded(tau, (real)c->q[6], fmaxl((real)c->q[6], (real)c->q[7]));
}
/* The masses of rewards; false: NaN. */
static int deserved(const row_ref_call *c, real *q) {
  real count = 0, mean = 0, variance = 0, max = -INFINITY, sum = 0;
  const double *r = c->in[2];
  for (size_t i = 0; i < c->n; i++) {
    if (c->in[0][i] == -(double)INFINITY) continue;
    if (!(r[i] < (double)INFINITY)) return 0;
    if (!isinf(r[i])) count++, mean += r[i], max = fmaxl(max, r[i]);
  }
  mean /= count;
  for (size_t i = 0; i < c->n; i++)
    if (!isinf(c->in[0][i]) && !isinf(r[i])) variance += (r[i] - mean) * (r[i] - mean);
  real t = (real)c->q[2] * (count > 1 && variance > 0 ? sqrtl(variance / (count - 1)) : 1);
  for (size_t i = 0; i < c->n; i++)
    if (!isinf(c->in[0][i]) && !isinf(r[i])) sum += q[i] = expl((r[i] - max) / t);
  for (size_t i = 0; i < c->n; i++) q[i] = q[i] > 0 ? q[i] / sum : 0;
  return 1;
}
void anchored_preference_loss_ref(const row_ref_call *c) {
  row r = open_row(c->n);
  real tau = anchored_tau(c), *q = numbers(c->n), loss = 0, mass = 0, kl = 0, count = 0;
  int ignored = c->in[4] && c->in[4][0] == c->q[0];
  size_t first = 0;
  while (first + 1 < c->n && c->in[0][first] == -(double)INFINITY) first++;
  for (size_t j = 0; j < c->n; j++) {
    const int gone = c->in[0][j] == -(double)INFINITY;
    real by = ((real)c->in[0][j] - c->in[0][first]) - ((real)c->in[1][j] - c->in[1][first]);
    r.z[j] = gone ? -INFINITY : by / tau;
    r.nan |=
        isnan(tau) || (!gone && !isfinite(c->in[0][j] - c->in[1][j])) || (c->in[3] && !isfinite(c->in[3][j]));
    if (c->in[3]) q[j] = c->in[3][j];
    if (c->in[4]) q[j] = c->in[4][0] == (double)j;
  }
  finalize(&r);
  if (c->in[2] && !r.nan) r.nan |= !deserved(c, q);
  for (size_t j = 0; j < c->n && !r.nan && !r.empty && !ignored; j++) {
    real d = (real)c->in[1][j] - c->in[0][j];
    mass += q[j];
    loss += part(q[j], -r.log_p[j]);
    if (isinf(c->in[0][j])) continue;
    count++;
    kl += fabsl(d) < 0.01L ? bend(d) : expl(d) - 1 - d;
  }
  give(c, ignored   ? 0
          : r.nan   ? (double)NAN
          : r.empty ? 0
                    : (double)(loss + part((real)c->q[3], kl / fmaxl(count, 1))));
  for (size_t j = 0; j < c->n && !r.nan && !r.empty && !ignored; j++) {
    real d = (real)c->in[1][j] - c->in[0][j];
    real more = isinf(r.z[j]) ? 0 : -part((real)c->q[3] / count, expm1l(d));
    c->out[DX][j] = (double)((mass * r.p[j] - q[j]) / tau + (fabsl(more) < 3e38L ? more : 0));
  }
  free(q);
  close_row(&r);
}
