/* pairwise/functions_cosines.c - losses of classes that are not cross-entropy of the cosines c
 * themselves: sphereface2, one against all (Wen et al. 2021), and wcdas, densities of wrapped
 * Cauchy distributions (Han 2023). Rows are computed in double. */
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()
#define TWO_PI 0x1.921fb54442d18p+2

/* A cosine beyond -1 or 1 counts as that, and has no gradient. */
static double within(double c) { return c > 1 ? 1 : c < -1 ? -1 : c; }

/* The cosines of a row in r->v; false: the row is left out. */
static bool take_row(pair_call *p, pair_row *r, int64_t own) {
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes)), p->slope[r->i] = 0;
  if (own < 0) {
    if (r->g) memset(r->l, 0, (size_t)(p->m * p->bytes));
    return false;
  }
  smx_reals_load(p->c->is_f64, r->l, p->m, r->v);
  return true;
}

/* ---- sphereface2 ----
 *
 *     loss = w / r (lambda softplus(-u_y) + (1 - lambda) sum_(j not y) softplus(u_j)),
 *     u_y = r (g(c_y) - m) + b,  u_j = r (g(c_j) + m) + b,  g(c) = 2 ((c + 1) / 2)^t - 1 */

typedef struct sphere {
  double lambda, r, m, t, by;
  bool detach;
} sphere;
static sphere sphere_of(const pair_call *p) {
  const tensor_call *c = p->c;
  sphere s = {.lambda = tensor_param(c, "balance"), .r = tensor_param(c, "scale")};
  s.m = tensor_param(c, "margin"), s.t = tensor_param(c, "power"), s.by = tensor_param(c, "factor") / s.r;
  s.detach = pair_choice(c, "detach");
  return s;
}

/* q^t; t = 3, the paper's, and 1 without a logarithm. */
static double power(const pair_call *p, double q, double t) {
  if (t == 1 || t == 3) return t == 1 ? q : q * q * q;
  if (t == 0 || q == 0) return t == 0;
  return p->math->exp(t * p->math->log(q));
}

static double sphere_row(pair_call *p, pair_row *r) {
  const int64_t own = pair_key(p, r->i);
  const sphere s = sphere_of(p);
  double loss = 0, slope = 0;
  if (!take_row(p, r, own)) return 0;
  for (int64_t j = 0; j < p->m; j++) {
    if (r->role[j] == PAIR_OUT) continue;
    const double c = within(r->v[j]), q = (c + 1) / 2, sign = j == own ? -1 : 1,
                 share = j == own ? s.lambda : 1 - s.lambda;
    const double u = s.r * (2 * power(p, q, s.t) - 1 + sign * s.m) + p->number;
    loss += share * p->math->softplus(sign * u);
    if (!r->g) continue;
    const double du = r->up * s.by * sign * share * pair_sigmoid(p, sign * u);
    slope += du;
    pair_set(p, r->g, j, c == r->v[j] ? du * s.r * (s.detach ? 1 : s.t * power(p, q, s.t - 1)) : 0);
  }
  if (r->g) p->slope[r->i] = slope;
  return s.by * loss;
}

const pair_rule pair_sphereface2 = {
    .roles = pair_key_roles, .row = sphere_row, .classes = true, .number = true};

/* ---- wcdas ----
 *
 *     loss = lse(z) - z_y,  z_j = S / (2 pi) (1 - k^2) / (1 + k^2 - 2 k c_j),  k = sigmoid(g_j),
 *     S = 1 + softplus(s)
 *
 * With D the last denominator, dz/dc = 2 k z / D and
 * dz/dk = S / (2 pi) (-2 k D - (1 - k^2) (2 k - 2 c)) / D^2. */

enum { CONCENTRATION = IN_OWN + 1 };
#define MOST (1 - 1e-6) /* of k, so that no density is infinite */

static void wcdas_begin(pair_call *p) {
  memset(p->sum, 0, sizeof *p->sum * (size_t)p->m);
  tensor_load(p->c, pair_input(p, &p->c->in, CONCENTRATION), 0, p->m, p->column);
  for (int64_t j = 0; j < p->m; j++) {
    const double k = pair_sigmoid(p, p->column[j]);
    p->column[j] = k > MOST ? MOST : k;
  }
}

static double strength(const pair_call *p) {
  return p->in.temperature ? 1 + p->math->softplus(p->number) : tensor_param(p->c, "scale");
}

/* Densities in place of the cosines, in r->v; returns the lse of those of the other classes, less
 * that of the target. */
static double densities(const pair_call *p, pair_row *r, int64_t own) {
  const double by = strength(p) / TWO_PI;
  double most = -INF, sum = 0;
  for (int64_t j = 0; j < p->m; j++) {
    const double k = p->column[j], c = within(r->v[j]);
    r->v[j] = by * (1 - k) * (1 + k) / ((1 - k) * (1 - k) + 2 * k * (1 - c));
    if (r->role[j] == PAIR_NEGATIVE && !(r->v[j] <= most)) most = r->v[j];
  }
  if (most == -INF) return most;
  for (int64_t j = 0; j < p->m; j++)
    if (r->role[j] == PAIR_NEGATIVE) sum += p->math->exp(r->v[j] - most);
  return most + p->math->log(sum) - r->v[own];
}

/* The gradient of pair j: of its cosine, and, in place of the logit, of the number of its class. */
static double density_slope(const pair_call *p, pair_row *r, int64_t j, double dz) {
  const double k = p->column[j], z = r->v[j], l = pair_at(p, r->l, j), c = within(l);
  const double below = (1 - k) * (1 - k) + 2 * k * (1 - c);
  const double by_k = strength(p) / TWO_PI * (-2 * k * below - (1 - k) * (1 + k) * (2 * k - 2 * c));
  pair_set(p, r->g, j, c == l ? dz * 2 * k * z / below : 0);
  pair_set(p, r->l, j, k < MOST ? dz * by_k / below / below * k * (1 - k) : 0);
  return dz * z;
}

static double wcdas_row(pair_call *p, pair_row *r) {
  const int64_t own = pair_key(p, r->i);
  double along = 0;
  if (!take_row(p, r, own)) return 0;
  const double t = densities(p, r, own), q = t == -INF ? 0 : pair_sigmoid(p, t);
  for (int64_t j = 0; r->g && j < p->m; j++) {
    const double lse = t + r->v[own];
    double dz = 0;
    if (r->role[j] == PAIR_NEGATIVE) dz = r->up * q * p->math->exp(r->v[j] - lse);
    if (j == own) dz = -r->up * q;
    if (dz == 0) pair_set(p, r->l, j, 0);
    else along += density_slope(p, r, j, dz);
  }
  if (r->g) p->slope[r->i] = along / strength(p) * pair_sigmoid(p, p->number);
  return t == -INF ? 0 : p->math->softplus(t);
}

const pair_rule pair_wcdas = {.roles = pair_key_roles,
                              .row = wcdas_row,
                              .classes = true,
                              .number = true,
                              .column_number = true,
                              .begin = wcdas_begin};
