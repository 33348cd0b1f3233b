/* pairwise/functions_loops.tmpl.h - loops over reals of one type. Before it: REAL, the type, and
 * NAME(x), the name of its functions; both end here. */

static void NAME(keep)(const REAL *l, const unsigned char *role, unsigned set, int64_t n, REAL *x) {
  for (int64_t j = 0; j < n; j++) x[j] = set >> role[j] & 1 ? l[j] : -(REAL)__builtin_inf();
}
static void NAME(scale)(const REAL *x, REAL factor, int64_t n, REAL *to) {
  for (int64_t j = 0; j < n; j++) to[j] = x[j] * factor;
}
static void NAME(add)(const REAL *x, const double *factor, int64_t n, REAL *g) {
  for (int64_t j = 0; j < n; j++) g[j] = (REAL)((double)g[j] + factor[j] * (double)x[j]);
}
static void NAME(join)(const REAL *x, int64_t n, REAL *g) {
  for (int64_t j = 0; j < n; j++) g[j] += x[j];
}
/* Four sums, of the numbers whose index is the same modulo 4. */
static double NAME(dot)(const REAL *l, const REAL *g, int64_t n) {
  double sum[4] = {0};
  for (int64_t j = 0; j < n; j++) sum[j & 3] += g[j] == 0 ? 0 : (double)l[j] * (double)g[j];
  return sum[0] + sum[2] + (sum[1] + sum[3]);
}
/* A NaN stays. */
static void NAME(raise)(const REAL *l, int64_t n, REAL *most) {
  for (int64_t j = 0; j < n; j++) most[j] = l[j] <= most[j] || most[j] != most[j] ? most[j] : l[j];
}
static void NAME(minus)(const REAL *l, const REAL *r, int64_t n, REAL *x) {
  for (int64_t j = 0; j < n; j++) x[j] = r[j] == -(REAL)__builtin_inf() ? l[j] : l[j] - r[j];
}
/* to = x / max(|x|, least); returns |x|. */
static double NAME(unit)(const REAL *x, double least, int64_t n, REAL *to) {
  double square[4] = {0};
  for (int64_t j = 0; j < n; j++) square[j & 3] += (double)x[j] * (double)x[j];
  const double norm = __builtin_sqrt(square[0] + square[2] + (square[1] + square[3]));
  for (int64_t j = 0; j < n; j++) to[j] = (REAL)((double)x[j] / (norm < least ? least : norm));
  return norm;
}
/* g = (g - (g u) u) / norm; a norm below `least` is that, and constant. */
static void NAME(unit_slope)(const REAL *u, double norm, double least, int64_t n, REAL *g) {
  const double along = norm < least ? 0 : NAME(dot)(u, g, n), by = norm < least ? least : norm;
  for (int64_t j = 0; j < n; j++) g[j] = (REAL)(((double)g[j] - along * (double)u[j]) / by);
}
static void NAME(sum)(const REAL *x, int64_t n, double *sum) {
  for (int64_t j = 0; j < n; j++) sum[j] += (double)x[j];
}

#undef REAL
#undef NAME
