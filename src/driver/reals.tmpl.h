/* driver/reals.tmpl.h - the loops of reals.h, for one type. Before it: REAL, the type, and NAME(x),
 * the name of its functions; both end here. */

static inline REAL NAME(cleaned)(REAL x) {
  const REAL tiny = sizeof(REAL) == 4 ? (REAL)0x1p-126 : (REAL)0x1p-1022;
  return x != x ? (REAL)__builtin_nan("") : x < tiny && x > -tiny ? 0 : x;
}
static void NAME(load)(const REAL *x, int64_t n, double *v) {
  for (int64_t i = 0; i < n; i++) v[i] = (double)x[i];
}
static void NAME(store)(const double *v, int64_t n, REAL *to) {
  for (int64_t i = 0; i < n; i++) to[i] = NAME(cleaned)((REAL)v[i]);
}
static void NAME(clean)(REAL *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = NAME(cleaned)(x[i]);
}

#undef REAL
#undef NAME
