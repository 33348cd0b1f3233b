/* sample/ops_density.c - gumbel_softmax_logpdf: the density of a relaxed draw. See ops.c. */
#include "decode.h"

/* log p(y) = log (n - 1)! + (n - 1) log T + sum_i (z_i - (T + s) l_i) - n log sum_i e^(z_i - T l_i), l = log y, over the n classes that take part
 * (z_i > -inf); s = 1: of y on the simplex, s = 0: of l itself. In double, in order. */

enum { POINT, LOGITS };                            /* inputs */
enum { DENSITY_TEMPERATURE, SPACE };               /* parameters */
enum { ON_SIMPLEX, OF_LOGARITHMS };                /* SPACE */
enum { DENSITY_LOOK, DENSITY_SUM, DENSITY_WRITE }; /* stages */

/* log n!, by Stirling's series from 20 on. */
static double log_factorial(double n) {
  double product = 1;
  for (double i = 2; i <= n && n < 20; i++) product *= i;
  if (n < 20) return d_log(product, 0);
  const double x = n + 1, square = x * x;
  return (x - 0.5) * d_log(x, 0) - x + 0.91893853320467274178 + (1.0 / 12 - (1.0 / 360 - 1.0 / (1260 * square)) / square) / x;
}

static bool density_takes(const row_call *c, size_t i) { return part_at(c, LOGITS)[i] != -R_INF; }
/* l_i; NaN where there is no such point. */
static double density_log(const row_call *c, size_t i) {
  const double y = (double)part_at(c, POINT)[i];
  if (!(y >= -(double)R_MAX && y <= (double)R_MAX)) return (double)r_nan();
  return c->params[SPACE] == OF_LOGARITHMS ? y : y > 0 ? d_log(y, 0) : (double)r_nan();
}
/* z_i - t l_i */
static double density_score(const row_call *c, size_t i, double t) { return (double)part_at(c, LOGITS)[i] - t * density_log(c, i); }

static void density_begin(const row_call *c, row_state *st) {
  (void)c;
  serial_begin(st);
  st->stage = DENSITY_LOOK;
}
/* key: how many classes take part; max: their largest z - T l; sum: of z - (T + s) l; sum2: of e^(z - T l - max). */
static void density_sums(const row_call *c, row_state *st) {
  const double t = c->params[DENSITY_TEMPERATURE], own = t + (c->params[SPACE] == ON_SIMPLEX ? 1 : 0);
  for (size_t i = 0; i < c->count && st->stage == DENSITY_LOOK; i++) {
    if (!density_takes(c, i)) continue;
    const double h = density_score(c, i, t);
    st->key++;
    st->nan |= !(h >= -1e300 && h <= 1e300);
    if (h > st->max) st->max = h;
  }
  if (st->stage == DENSITY_LOOK) BLOCK_SUM(st->sum, c->count, i, density_takes(c, i) ? density_score(c, i, own) : 0)
  else BLOCK_SUM(st->sum2, c->count, i, density_takes(c, i) ? d_exp(density_score(c, i, t) - st->max) : 0)
}
static void density_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  density_sums(c, st);
}
/* True while there is more to sum; nan: also a row of which no class takes part. */
static bool density_summed(row_state *st) {
  st->nan |= st->key == 0;
  return st->stage++ == DENSITY_LOOK && !st->nan;
}
static bool density_next(const row_call *c, row_state *st) {
  if (density_summed(st)) return true;
  const double n = (double)st->key, t = c->params[DENSITY_TEMPERATURE];
  const double log = log_factorial(n - 1) + (n - 1) * d_log(t, 0) + st->sum - n * (st->max + d_log(st->sum2, 0));
  *(real *)c->dst[0] = st->nan ? r_nan() : stored(log);
  return false;
}
SERIAL_KERNEL(density)

/* With w = softmax(z - T l): dz_i = 1 - n w_i,  dl_i = n T w_i - (T + s),  dy_i = dl_i / y_i; each times what comes from upstream. */
static void density_grad_pass(const row_call *c, row_state *st, row_part *parts) {
  serial_parts(c, parts);
  if (st->stage < DENSITY_WRITE) {
    density_sums(c, st);
    return;
  }
  const double n = (double)st->key, t = c->params[DENSITY_TEMPERATURE], own = t + (c->params[SPACE] == ON_SIMPLEX ? 1 : 0);
  const double upstream = (double)*(const real *)c->src[SRC_DY];
  real *dy = part_to(c, POINT), *dz = c->dst[LOGITS] ? part_to(c, LOGITS) : NULL;
  for (size_t i = 0; i < c->count; i++) {
    const bool in = density_takes(c, i);
    const double w = in && !st->nan ? d_exp(density_score(c, i, t) - st->max) / st->sum2 : 0;
    const double slope = c->params[SPACE] == ON_SIMPLEX ? (n * t * w - own) / (double)part_at(c, POINT)[i] : n * t * w - own;
    dy[i] = st->nan ? r_nan() : in ? stored(upstream * slope) : 0;
    if (dz) dz[i] = st->nan ? r_nan() : in ? stored(upstream * (1 - n * w)) : 0;
  }
}
static bool density_grad_next(const row_call *c, row_state *st) {
  (void)c;
  if (st->writes) return false;
  if (density_summed(st)) return true;
  st->stage = DENSITY_WRITE;
  return st->writes = true;
}
#define density_grad_begin density_begin
SERIAL_KERNEL(density_grad)

OPERATOR(gumbel_softmax_logpdf, density, density_grad)
