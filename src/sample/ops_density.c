/* sample/ops_density.c - densities of draws: gumbel_softmax_logpdf, dirichlet_logpdf,
 * normal_logpdf. See ops.c. */
#include "decode.h"
#include "gamma.h"

/* ---- gumbel_softmax_logpdf ----
 *
 * log p(y) = log (n - 1)! + (n - 1) log T + sum_i (z_i - (T + s) l_i) - n log sum_i
 * e^(z_i - T l_i), l = log y, over the n classes that take part (z_i > -inf); s = 1: of y on the
 * simplex, s = 0: of l itself. In double, in order. */

enum { POINT, LOGITS };                              /* inputs */
enum { DENSITY_TEMPERATURE, SPACE };                 /* parameters */
enum { ON_SIMPLEX, OF_LOGARITHMS };                  /* SPACE */
enum { DENSITY_MINMAX, DENSITY_SUM, DENSITY_WRITE }; /* stages */

/* log n!, by Stirling's series from 20 on. */
static double log_factorial(double n) {
  double product = 1;
  for (double i = 2; i <= n && n < 20; i++) product *= i;
  if (n < 20) return d_log(product, 0);
  const double x = n + 1, square = x * x;
  return (x - 0.5) * d_log(x, 0) - x + 0.91893853320467274178 +
         (1.0 / 12 - (1.0 / 360 - 1.0 / (1260 * square)) / square) / x;
}

static bool density_takes(const row_call *c, size_t i) { return part_at(c, LOGITS)[i] != -R_INF; }
/* l_i; NaN where y_i is not in the domain. */
static double density_log(const row_call *c, size_t i) {
  const double y = (double)part_at(c, POINT)[i];
  if (!(y >= -(double)R_MAX && y <= (double)R_MAX)) return (double)r_nan();
  return c->params[SPACE] == OF_LOGARITHMS ? y : y > 0 ? d_log(y, 0) : (double)r_nan();
}
/* z_i - t l_i */
static double density_score(const row_call *c, size_t i, double t) {
  return (double)part_at(c, LOGITS)[i] - t * density_log(c, i);
}

typedef struct density_state {
  double count;   /* classes or elements that take part */
  double scores;  /* of gumbel_softmax_logpdf: the sum of z - (T + s) l */
  double max;     /* the largest z - T l */
  double terms;   /* and the sum of e^(z - T l - max) */
  double shapes;  /* of dirichlet_logpdf: the sum of the concentrations, */
  double logs;    /* and the sum of its terms */
  double squares; /* of normal_logpdf: the sum of z^2 */
} density_state;
ROW_OWN_STATE(density_state, density_of)
static void density_begin(const row_call *c, row_state *st) {
  serial_begin(st);
  st->stage = DENSITY_MINMAX;
  *density_of(st) = (density_state){.max = (double)-R_INF};
}
static void density_sums(const row_call *c, row_state *st) {
  density_state *d = density_of(st);
  const double t = c->params[DENSITY_TEMPERATURE], own = t + (c->params[SPACE] == ON_SIMPLEX ? 1 : 0);
  for (size_t i = 0; i < c->count && st->stage == DENSITY_MINMAX; i++) {
    if (!density_takes(c, i)) continue;
    const double h = density_score(c, i, t);
    d->count++;
    st->nan |= !(h >= -1e300 && h <= 1e300);
    if (h > d->max) d->max = h;
  }
  if (st->stage == DENSITY_MINMAX)
    BLOCK_SUM(d->scores, c->count, i, density_takes(c, i) ? density_score(c, i, own) : 0)
  else BLOCK_SUM(d->terms, c->count, i, density_takes(c, i) ? d_exp(density_score(c, i, t) - d->max) : 0)
}
static void density_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  density_sums(c, st);
}
/* True while there is more to sum; nan: also a row of which no class takes part. */
static bool density_summed(row_state *st) {
  st->nan |= density_of(st)->count == 0;
  return st->stage++ == DENSITY_MINMAX && !st->nan;
}
static bool density_next(const row_call *c, row_state *st) {
  if (density_summed(st)) return true;
  const density_state *d = density_of(st);
  const double n = d->count, t = c->params[DENSITY_TEMPERATURE];
  const double log =
      log_factorial(n - 1) + (n - 1) * d_log(t, 0) + d->scores - n * (d->max + d_log(d->terms, 0));
  *(real *)c->dst[0] = st->nan ? r_nan() : r_clean(log);
  return false;
}
SERIAL_KERNEL(density)

/* With w = softmax(z - T l): dz_i = 1 - n w_i,  dl_i = n T w_i - (T + s),  dy_i = dl_i / y_i;
 * each times what comes from upstream. */
static void density_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage < DENSITY_WRITE) {
    density_sums(c, st);
    return;
  }
  const density_state *d = density_of(st);
  const double n = d->count, t = c->params[DENSITY_TEMPERATURE],
               own = t + (c->params[SPACE] == ON_SIMPLEX ? 1 : 0);
  const double upstream = (double)*(const real *)c->src[SRC_DY];
  real *dy = part_to(c, POINT), *dz = c->dst[LOGITS] ? part_to(c, LOGITS) : NULL;
  for (size_t i = 0; i < c->count; i++) {
    const bool in = density_takes(c, i);
    const double w = in && !st->nan ? d_exp(density_score(c, i, t) - d->max) / d->terms : 0;
    const double slope =
        c->params[SPACE] == ON_SIMPLEX ? (n * t * w - own) / (double)part_at(c, POINT)[i] : n * t * w - own;
    dy[i] = st->nan ? r_nan() : in ? r_clean(upstream * slope) : 0;
    if (dz) dz[i] = st->nan ? r_nan() : in ? r_clean(upstream * (1 - n * w)) : 0;
  }
}
/* After the sums, one pass that writes. */
static bool once_next(row_state *st) {
  if (st->writes) return false;
  st->stage = DENSITY_WRITE;
  return st->writes = true;
}
static bool density_grad_next(const row_call *c, row_state *st) {
  return (!st->writes && density_summed(st)) || once_next(st);
}
#define density_grad_begin density_begin
SERIAL_KERNEL(density_grad)

OPERATOR(gumbel_softmax_logpdf, density, density_grad)

/* ---- dirichlet_logpdf: log G(sum a) + sum_i ((a_i - s) l_i - log G(a_i)), l = log x, over the
 * classes whose concentration a_i is not 0; s = 1: of x on the simplex, s = 0: of l itself ---- */

enum { SHAPE = 1 };                        /* input */
enum { SHAPE_SCALE = 0, SHAPE_FLOOR = 2 }; /* parameters; SPACE is that of above */
#define SHAPE_LEAST 1e-300                 /* less is 0 */
#define SHAPE_MOST 1e300

static double dirichlet_shape(const row_call *c, size_t i) {
  const double a = c->params[SHAPE_SCALE] * (double)part_at(c, SHAPE)[i];
  return a >= 0 && a < SHAPE_LEAST ? 0 : a <= SHAPE_MOST && a > 0 ? a : (double)r_nan();
}
/* Whether x counts as the floor, and so has no gradient. */
static bool dirichlet_floored(const row_call *c, size_t i) {
  const double x = (double)part_at(c, POINT)[i];
  return c->params[SPACE] == ON_SIMPLEX && x >= 0 && x < c->params[SHAPE_FLOOR];
}
static double dirichlet_log(const row_call *c, size_t i) {
  return dirichlet_floored(c, i) ? d_log(c->params[SHAPE_FLOOR], 0) : density_log(c, i);
}
static double dirichlet_power(const row_call *c, double a) {
  return c->params[SPACE] == ON_SIMPLEX ? a - 1 : a;
}
static double dirichlet_term(const row_call *c, size_t i) {
  const double a = dirichlet_shape(c, i);
  if (a == 0) return 0;
  return a == a ? dirichlet_power(c, a) * dirichlet_log(c, i) - d_lgamma(a) : a;
}
static void dirichlet_sums(const row_call *c, row_state *st) {
  density_state *d = density_of(st);
  BLOCK_SUM(d->logs, c->count, i, dirichlet_term(c, i))
  BLOCK_SUM(d->shapes, c->count, i, dirichlet_shape(c, i))
}
/* A row in which no class takes part is NaN, too. */
static bool dirichlet_nan(const row_state *st) {
  const density_state *d = density_of(st);
  return !(d->logs == d->logs && d->shapes > 0);
}

static void dirichlet_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  dirichlet_sums(c, st);
}
static bool dirichlet_next(const row_call *c, row_state *st) {
  *(real *)c->dst[0] =
      dirichlet_nan(st) ? r_nan() : r_clean(d_lgamma(density_of(st)->shapes) + density_of(st)->logs);
  return false;
}
#define dirichlet_begin density_begin
SERIAL_KERNEL(dirichlet)

/* dx_i = (a_i - 1) / x_i, or a_i; da_i = psi(sum a) - psi(a_i) + l_i; each times what comes from
 * upstream. */
static void dirichlet_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage < DENSITY_WRITE) {
    dirichlet_sums(c, st);
    return;
  }
  const double upstream = (double)*(const real *)c->src[SRC_DY],
               all = dirichlet_nan(st) ? 0 : d_digamma(density_of(st)->shapes);
  real *dx = part_to(c, POINT), *da = c->dst[SHAPE] ? part_to(c, SHAPE) : NULL;
  for (size_t i = 0; i < c->count; i++) {
    const double a = dirichlet_nan(st) ? (double)r_nan() : dirichlet_shape(c, i),
                 power = a == 0 ? 0 : dirichlet_power(c, a);
    const double slope = c->params[SPACE] == ON_SIMPLEX ? power / (double)part_at(c, POINT)[i] : power;
    const bool in = a != 0, io = in && !(a == a && dirichlet_floored(c, i));
    if (da)
      da[i] = a != a ? r_nan()
              : in   ? r_clean(upstream * c->params[SHAPE_SCALE] * (all - d_digamma(a) + dirichlet_log(c, i)))
                     : 0;
    dx[i] = a != a ? r_nan() : io ? r_clean(upstream * slope) : 0;
  }
}
static bool dirichlet_grad_next(const row_call *c, row_state *st) { return once_next(st); }
#define dirichlet_grad_begin density_begin
SERIAL_KERNEL(dirichlet_grad)

OPERATOR(dirichlet_logpdf, dirichlet, dirichlet_grad)

/* ---- normal_logpdf ----
 *
 * -sum_i z_i^2 / 2 - n (log sigma + log(2 pi) / 2), z = (x - mean) / sigma, over the n elements
 * of which neither is -inf */

enum { MEAN = 1, SPREAD }; /* inputs */
#define HALF_LOG_TWO_PI 0.91893853320467274178

/* NaN where it is not above 0. */
static double normal_spread(const row_call *c) {
  const double sigma = c->src[SPREAD] ? (double)*(const real *)c->src[SPREAD] : c->params[0];
  return sigma >= SHAPE_LEAST && sigma <= (double)R_MAX ? sigma : (double)r_nan();
}
static bool normal_takes(const row_call *c, size_t i) {
  return part_at(c, POINT)[i] != -R_INF && part_at(c, MEAN)[i] != -R_INF;
}
/* z; NaN where either is a NaN or +inf. */
static double normal_away(const row_call *c, size_t i, double sigma) {
  const double x = (double)part_at(c, POINT)[i], mean = (double)part_at(c, MEAN)[i];
  return x <= (double)R_MAX && mean <= (double)R_MAX ? (x - mean) / sigma : (double)r_nan();
}
static double normal_square(const row_call *c, size_t i, double sigma) {
  const double z = normal_away(c, i, sigma);
  return z * z;
}
static void normal_sums(const row_call *c, row_state *st) {
  density_state *d = density_of(st);
  const double sigma = normal_spread(c);
  for (size_t i = 0; i < c->count; i++) d->count += normal_takes(c, i);
  BLOCK_SUM(d->squares, c->count, i, normal_takes(c, i) ? normal_square(c, i, sigma) : 0)
}
static void normal_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  normal_sums(c, st);
}
/* The logarithm, as it is stored; NaN of a row that is. */
static real normal_log(const row_call *c, const row_state *st) {
  const double sigma = normal_spread(c);
  const density_state *d = density_of(st);
  if (d->squares != d->squares || sigma != sigma) return r_nan();
  return r_clean(-0.5 * d->squares - d->count * (d_log(sigma, 0) + HALF_LOG_TWO_PI));
}
static bool normal_next(const row_call *c, row_state *st) {
  *(real *)c->dst[0] = normal_log(c, st);
  return false;
}
#define normal_begin density_begin
SERIAL_KERNEL(normal)

/* dx_i = -z_i / sigma, dmean = -dx, dsigma = (sum z^2 - n) / sigma; each times what comes from
 * upstream. Nothing where the density is 0. */
static double normal_slope(const row_call *c, const row_state *st) {
  const real log = normal_log(c, st);
  return log != log      ? (double)log
         : log == -R_INF ? 0
                         : (double)*(const real *)c->src[SRC_DY] / normal_spread(c);
}
static void normal_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage < DENSITY_WRITE) {
    normal_sums(c, st);
    return;
  }
  const double sigma = normal_spread(c), slope = normal_slope(c, st);
  real *dx = part_to(c, POINT), *dmean = c->dst[MEAN] ? part_to(c, MEAN) : NULL;
  for (size_t i = 0; i < c->count; i++) {
    const double d =
        slope == 0 || (slope == slope && !normal_takes(c, i)) ? 0 : normal_away(c, i, sigma) * slope;
    if (dmean) dmean[i] = r_clean(d);
    dx[i] = r_clean(-d);
  }
}
static bool normal_grad_next(const row_call *c, row_state *st) {
  const double slope = normal_slope(c, st);
  if (st->writes && c->dst[SPREAD])
    *(real *)c->dst[SPREAD] =
        r_clean(slope == 0 ? 0 : slope * (density_of(st)->squares - density_of(st)->count));
  return once_next(st);
}
#define normal_grad_begin density_begin
SERIAL_KERNEL(normal_grad)

OPERATOR(normal_logpdf, normal, normal_grad)
