/* pool/functions_lines.tmpl.h - the loops over cells, for one type of them. Before it: REAL, the
 * type, and NAME(x), the name of its functions; both end here. */

/* The larger one, and its cell, -1 of a NaN; the first of equals, and a NaN for ever. */
static void NAME(take_largest)(void *arg, const pool_line *l) {
  const range *r = arg;
  const int64_t n = l->count, step = l->cell_step, out = l->out_step, first = l->cell;
  const REAL *x = (const REAL *)r->x + first;
  REAL *largest = (REAL *)r->largest + l->out;
  int64_t *index = r->index + l->out;
  for (int64_t i = 0; i < n; i++) { /* no jump: no one could guess it */
    const REAL v = x[i * step], so_far = largest[i * out], larger = v > so_far ? v : so_far;
    const int64_t takes = -(int64_t)((v > so_far) | (v != v)), none = -(int64_t)(v != v);
    largest[i * out] = v != v ? v : larger;
    index[i * out] ^= (index[i * out] ^ ((first + i * step) | none)) & takes;
  }
}
/* Windows that are so far apart: compilers make vectors of a step that they know. */
static inline void NAME(take_larger_of)(const REAL *x, int64_t step, int64_t n, REAL *largest) {
  for (int64_t i = 0; i < n; i++) {
    const REAL v = x[i * step];
    largest[i] = ((v > largest[i]) | (v != v)) ? v : largest[i];
  }
}
static void NAME(take_larger)(void *arg, const pool_line *l) { /* without its cell */
  const range *r = arg;
  const REAL *x = (const REAL *)r->x + l->cell;
  REAL *largest = (REAL *)r->largest + l->out;
  if (l->out_step == 1) {
    if (l->cell_step == 1) NAME(take_larger_of)(x, 1, l->count, largest);
    else if (l->cell_step == 2) NAME(take_larger_of)(x, 2, l->count, largest);
    else NAME(take_larger_of)(x, l->cell_step, l->count, largest);
    return;
  }
  REAL one = *largest;
  for (int64_t i = 0; i < l->count; i++) one = x[i] > one || x[i] != x[i] ? x[i] : one;
  *largest = one;
}

/* A run of cells of one output: cell i goes to sum i % LANES, and the sums are added in pairs. */
static double NAME(run_sum)(const REAL *x, int64_t n) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j];
  for (int j = 0; i < n; i++, j++) lane[j] += (double)x[i];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++) lane[j] += lane[j + half];
  return lane[0];
}
static inline void NAME(add)(const REAL *x, int64_t step, int64_t n, double *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i * step];
}
static void NAME(take_sum)(void *arg, const pool_line *l) {
  const range *r = arg;
  const REAL *x = (const REAL *)r->x + l->cell;
  double *sum = r->sum + l->out;
  if (l->out_step != 1) *sum += NAME(run_sum)(x, l->count);
  else if (l->cell_step == 1) NAME(add)(x, 1, l->count, sum);
  else if (l->cell_step == 2) NAME(add)(x, 2, l->count, sum);
  else NAME(add)(x, l->cell_step, l->count, sum);
}

/* The gradient of a mean, to its cells. */
static void NAME(give_mean)(void *arg, const pool_line *l) {
  const range *r = arg;
  REAL *dx = (REAL *)r->dx + l->cell;
  const double *g = r->sum + l->out;
  for (int64_t i = 0; i < l->count; i++) dx[i * l->cell_step] += (REAL)g[i * l->out_step];
}

/* The gradient of a maximum, to its cell. */
static void NAME(give)(const range *r, double a, int64_t n) {
  REAL *dx = (REAL *)r->dx;
  for (int64_t i = 0; i < n; i++)
    if (r->index[i] >= 0) dx[r->index[i]] += (REAL)(a * r->sum[i]);
}

/* a x + (1 - a) v */
static void NAME(mix)(const void *x, double a, int64_t n, double *v) {
  for (int64_t i = 0; i < n; i++) v[i] = a * (double)((const REAL *)x)[i] + (1 - a) * v[i];
}

/* ---- windows as a matrix ---- */

/* Cells to places of windows, and gradients back. */
static void NAME(gather)(void *arg, const pool_line *l) {
  const windows *w = arg;
  const REAL *x = (const REAL *)w->x + l->cell;
  REAL *to = (REAL *)w->matrix + l->k * w->place + l->out * w->window;
  const int64_t step = l->k_step * w->place + l->out_step * w->window;
  for (int64_t i = 0; i < l->count; i++) to[i * step] = x[i * l->cell_step];
}
static void NAME(scatter)(void *arg, const pool_line *l) {
  const windows *w = arg;
  REAL *dx = (REAL *)w->dx + l->cell;
  const REAL *from = (const REAL *)w->matrix + l->k * w->place + l->out * w->window;
  const int64_t step = l->k_step * w->place + l->out_step * w->window;
  for (int64_t i = 0; i < l->count; i++) dx[i * l->cell_step] += from[i * step];
}

static void NAME(hide)(void *matrix, int64_t n) {
  for (int64_t i = 0; i < n; i++) ((REAL *)matrix)[i] = -(REAL)__builtin_inf();
}
/* beta times what is there. */
static void NAME(scale)(const void *matrix, double beta, int64_t n, void *to) {
  const REAL *x = matrix, by = (REAL)beta;
  for (int64_t i = 0; i < n; i++) ((REAL *)to)[i] = x[i] == -(REAL)__builtin_inf() ? x[i] : by * x[i];
}

/* Weighted sums of windows, place by place. What is absent has the weight 0. */
static void NAME(fold)(const windows *w, const void *weights, int64_t places, int64_t n, double *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] = 0;
  for (int64_t k = 0; k < places; k++)
    for (int64_t i = 0; i < n; i++) {
      const REAL x = ((const REAL *)w->matrix)[k * w->place + i * w->window];
      const REAL p = ((const REAL *)weights)[k * w->place + i * w->window];
      sum[i] += x == -(REAL)__builtin_inf() ? 0 : (double)p * (double)x;
    }
}
/* Weights become gradients: dy p (1 + beta (x - y)), with the sums y; dy p where there are none. */
static void NAME(weigh)(const windows *w, void *weights, int64_t places, int64_t n, double beta,
                        const double *sum, const void *dy) {
  for (int64_t k = 0; k < places; k++)
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = k * w->place + i * w->window;
      const REAL x = ((const REAL *)w->matrix)[at];
      REAL *p = (REAL *)weights + at;
      const double slope = x == -(REAL)__builtin_inf() || !sum ? 1 : 1 + beta * ((double)x - sum[i]);
      *p = (REAL)((double)*p * slope * (double)((const REAL *)dy)[i]);
    }
}

#undef REAL
#undef NAME
