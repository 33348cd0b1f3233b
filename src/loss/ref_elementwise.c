/* loss/ref_elementwise.c - losses that are sums over the classes. See ref.c. */
#include "ref.h"

void nll_loss_ref(const row_ref_call *c) {
  size_t y;
  if (!open_terms(c, c->in[1], 0, &y)) return;
  double weight = c->in[2] ? c->in[2][y] : 1;
  for (size_t j = 0; j < c->n; j++) c->out[DX][j] = j == y ? -weight : 0;
  c->out[LOSS][0] = weight == 0 ? 0 : -weight * c->in[0][y];
}

void l2_svm_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0, scale = (real)c->q[2] / (c->q[4] == 1 ? (real)c->n : 1);
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real sign = j == y ? 1 : -1, over = fmaxl(0, 1 - sign * c->in[0][j]);
    sum += c->q[1] == 2 ? over * over : over;
    c->out[DX][j] = (double)(-scale * sign * (c->q[1] == 2 ? 2 * over : over > 0));
  }
  c->out[LOSS][0] = (double)(scale * sum);
}

void gumbel_optimized_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0;
  if (!open_terms(c, c->in[1], 0, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], u = expl(-fminl(fmaxl(x, (real)c->q[1]), (real)c->q[2]));
    int inside = x >= (real)c->q[1] && x <= (real)c->q[2];
    sum += j == y ? u : -logl(-expm1l(-u));
    c->out[DX][j] = (double)(!inside ? 0 : j == y ? -u : u / expm1l(u));
  }
  c->out[LOSS][0] = (double)sum;
}

void binary_logit_distillation_ref(const row_ref_call *c) {
  real sum = 0, beta = c->q[0];
  for (size_t j = 0; j < c->n; j++)
    if (isnan(c->in[0][j]) || isnan(c->in[1][j])) {
      give(c, (double)NAN);
      return;
    }
  for (size_t j = 0; j < c->n; j++) {
    real s = c->in[0][j], u = c->in[1][j];
    real away = u == s  ? 0
                : u > s ? sigmoid(u) * sigmoid(-s) * -expm1l(s - u)
                        : -sigmoid(s) * sigmoid(-u) * -expm1l(u - s);
    real weight = powl(fabsl(away), beta),
         term = part(sigmoid(-u), softplus(s)) + part(sigmoid(u), softplus(-s)), g = -weight * away;
    if (away == 0) weight = 0;
    sum += part(weight, term);
    if (c->q[1] == 0 && away != 0)
      g -= part(beta * powl(fabsl(away), beta - 1) * (away > 0 ? 1 : -1) * sigmoid(s) * sigmoid(-s), term);
    c->out[DX][j] = (double)(away == 0 ? 0 : g);
  }
  c->out[LOSS][0] = (double)sum;
}

void z_loss_ref(const row_ref_call *c) {
  size_t y;
  real n = (real)c->n, a = c->q[1], b = c->q[2], e = c->q[3], mean = 0, variance = 0;
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) mean += c->in[0][j];
  mean /= n;
  for (size_t j = 0; j < c->n; j++) variance += (c->in[0][j] - mean) * (c->in[0][j] - mean) / n;
  real sd = sqrtl(variance), z = sd > 0 ? (c->in[0][y] - mean) / (sd + e) : 0, slope = -sigmoid(a * (b - z));
  c->out[LOSS][0] = (double)(softplus(a * (b - z)) / a);
  for (size_t j = 0; j < c->n; j++) {
    real dz = sd > 0 ? ((j == y) - 1 / n) / (sd + e) - z * (c->in[0][j] - mean) / (n * sd * (sd + e)) : 0;
    c->out[DX][j] = (double)(slope * dz);
  }
}

static real taylor(real x) { return 1 + x + x * x / 2; }
void spherical_loss_ref(const row_ref_call *c) {
  size_t y;
  real sum = 0, e = c->q[2], form = c->q[1];
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = j == y;
    sum += form == 0 ? (x - t) * (x - t) : form == 1 ? x * x + e : taylor(x);
  }
  real own = c->in[0][y], f = form == 1 ? own * own + e : taylor(own);
  c->out[LOSS][0] = (double)(form == 0 ? sum : logl(sum / f));
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], slope = form == 1 ? 2 * x : 1 + x;
    real g = form == 0 ? 2 * (x - (j == y)) : j == y ? -slope * (sum - f) / f / sum : slope / sum;
    c->out[DX][j] = (double)g;
  }
}

/* The fraction u that is missing, and du / dp of each element in slope. */
static real missing(const row_ref_call *c, double overlap, real *slope, real *left) {
  real all = 0, want = 0, tp = 0, a = c->q[0], b = c->q[1], s = c->q[2];
  for (size_t j = 0; j < c->n; j++) {
    real p = c->in[0][j], t = c->in[1][j];
    all += overlap == 2 ? p * p : p, want += overlap == 2 ? t * t : t,
        tp += overlap == 0 ? (p + t - fabsl(p - t)) / 2 : p * t;
  }
  real den = tp + a * (all - tp) + b * (want - tp) + s;
  for (size_t j = 0; j < c->n; j++) {
    real p = c->in[0][j], t = c->in[1][j], dtp = overlap == 0 ? (real)(1 - (p > t) + (p < t)) / 2 : t,
         dall = overlap == 2 ? 2 * p : 1;
    real dden = dtp + a * (dall - dtp) - b * dtp;
    slope[j] = den == 0 ? 0 : -(dtp / den - (tp + s) * dden / (den * den));
  }
  *left = den == 0 ? 1 : (tp + s) / den;
  return !isfinite(all + want) ? (real)NAN : den == 0 ? 0 : (a * (all - tp) + b * (want - tp)) / den;
}

void dice_semimetric_loss_ref(const row_ref_call *c) {
  real *slope = numbers(c->n), left, u = missing(c, c->q[4], slope, &left);
  give(c, isnan(u) ? (double)NAN : (double)u);
  for (size_t j = 0; j < c->n && !isnan(u); j++) c->out[DX][j] = (double)slope[j];
  free(slope);
}

void focal_tversky_loss_ref(const row_ref_call *c) {
  real *slope = numbers(c->n), left, u = missing(c, c->q[6], slope, &left), w = c->in[2] ? c->in[2][0] : 1,
       gamma = c->q[4];
  int none = u <= 0 && gamma != 1; /* a fraction below 0, which squares may have, has no power */
  real loss = c->q[3] == 1 ? (left > 0 ? -logl(left) : INFINITY) : none ? 0 : powl(u, gamma);
  real by = c->q[3] == 1 ? (left > 0 ? 1 / left : 0) : none ? 0 : gamma * powl(u, gamma - 1);
  if (c->q[3] == 1 && u < 0.25L) loss = -log1pl(-u);
  give(c, isnan(u) ? (double)NAN : (double)part(w, loss));
  for (size_t j = 0; j < c->n && !isnan(u); j++) c->out[DX][j] = (double)(w * by * slope[j]);
  free(slope);
}

void multiclass_hinge_loss_ref(const row_ref_call *c) {
  size_t y, first = c->n;
  real sum = 0, all = 0, power = c->q[1];
  if (!open_terms(c, c->in[1], 1, &y)) return;
  real scale = (c->q[3] == 1 ? 1 / (real)c->n : 1) * (c->in[2] ? c->in[2][y] : 1);
  for (size_t j = 0; j < c->n; j++)
    if (j != y && (first == c->n || c->in[0][j] > c->in[0][first])) first = j;
  for (size_t j = 0; j < c->n; j++) {
    real over = fmaxl(0, c->q[2] + ((real)c->in[0][j] - c->in[0][y])),
         slope = over > 0 ? scale * power * powl(over, power - 1) : 0;
    if (j != y) c->out[DX][j] = 0;
    if (j == y || (c->q[5] == 1 && j != first)) continue;
    sum += powl(over, power);
    all += slope;
    c->out[DX][j] = (double)slope;
  }
  c->out[DX][y] = (double)-all;
  c->out[LOSS][0] = (double)(scale * sum);
}

void gumbel_binary_loss_ref(const row_ref_call *c) {
  real sum = 0, low = c->q[0], high = c->q[1], most = c->q[2];
  size_t none;
  if (!open_terms(c, NULL, 0, &none)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = c->in[1][j], w = c->in[2] ? c->in[2][j] : 1,
         u = expl(-fminl(fmaxl(x, low), high));
    real absent = u > 1 ? -log1pl(-expl(-u)) : -logl(-expm1l(-u)), yes = u > most ? 0 : -u,
         no = absent > most ? 0 : u / expm1l(u);
    sum += part(w, part(t, fminl(u, most)) + part(1 - t, fminl(absent, most)));
    c->out[DX][j] = x < low || x > high ? 0 : (double)(w * (t * yes + (1 - t) * no));
  }
  c->out[LOSS][0] = (double)sum;
}
