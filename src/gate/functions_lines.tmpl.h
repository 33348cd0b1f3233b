/* gate/functions_lines.tmpl.h - the loops of functions_lines.h, for one type. Before it: REAL, the
 * type, and NAME(x), the name of its functions; both end here. */

static void NAME(gather)(const gate_gathering *g, const void *from, void *to) {
  REAL *y = to;
  const REAL *x = from;
  const int64_t *index = g->index, k = g->k;
  for (int64_t i = 0; i < g->rows; i++, x += g->step, index += k, y += k)
    for (int64_t j = 0; j < k; j++) y[j] = index[j] < 0 ? (REAL)g->absent[i] : x[index[j]];
}

INLINE void NAME(weigh_row)(const gate_weighing *w, const REAL *restrict x, int64_t k, REAL *restrict y) {
  double factor = w->scale;
  if (w->sums) {
    double sum = 0;
    for (int64_t j = 0; j < k; j++) sum += (double)x[j];
    factor /= sum + GATE_LEAST_SUM;
  }
  for (int64_t j = 0; j < k; j++) y[j] = (REAL)((double)x[j] * factor);
}
static void NAME(weigh)(const gate_weighing *w, const void *part, const int64_t *index, void *to) {
  const REAL *x = part;
  REAL *y = to;
  const int64_t k = w->k;
  for (int64_t i = 0; i < w->rows; i++, x += k, y += k) {
    if (index[i * k] < 0 && x[0] == x[0]) {
      for (int64_t j = 0; j < k; j++) y[j] = (REAL)w->empty;
    } else if (k == USUAL) {
      NAME(weigh_row)(w, x, USUAL, y);
    } else {
      NAME(weigh_row)(w, x, k, y);
    }
  }
}
static void NAME(scale)(const void *x, double by, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++) ((REAL *)to)[i] = (REAL)(((const REAL *)x)[i] * by);
}

#undef REAL
#undef NAME
