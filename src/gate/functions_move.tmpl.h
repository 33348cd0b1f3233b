/* gate/functions_move.tmpl.h - sums of rows, for one type. Before it: REAL, the type, and NAME(x),
 * the name of its functions; both end here. */

/* to = w x or to += w x */
static inline void NAME(add_row)(REAL *to, const REAL *x, const REAL *w, int64_t n, bool first) {
  if (first && !w) memcpy(to, x, (size_t)n * sizeof *to);
  else if (first)
    for (int64_t i = 0; i < n; i++) to[i] = *w * x[i];
  else if (w)
    for (int64_t i = 0; i < n; i++) to[i] += *w * x[i];
  else
    for (int64_t i = 0; i < n; i++) to[i] += x[i];
}

static void NAME(add)(const gate_move *m, int64_t first, int64_t end) {
  const REAL *weight = m->weight;
  for (int64_t i = first; i < end; i++) {
    REAL *to = (REAL *)m->to + i * m->width;
    const int64_t from = m->start ? m->start[i] : i * m->per,
                  stop = m->start ? m->start[i + 1] : from + m->per;
    bool none = true, copied = false;
    for (int64_t q = from; q < stop; q++) {
      const int64_t p = m->item ? m->item[q] : q, row = m->slot ? m->slot[p] : p / m->share;
      if (row < 0) continue;
      NAME(add_row)(to, (const REAL *)m->from + row * m->width, weight ? weight + p : NULL, m->width, none);
      copied = none && !weight, none = false;
    }
    if (none) memset(to, 0, (size_t)m->width * sizeof *to);
    else if (!copied) smx_reals_clean(sizeof(REAL) == 8, to, m->width);
  }
}

/* In double; term i goes to sum i % LANES, and the sums are added in pairs. */
static double NAME(product)(const REAL *x, const REAL *y, int64_t n) {
  double lane[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + j] * (double)y[i + j];
  for (int j = 0; i < n; i++, j++) lane[j] += (double)x[i] * (double)y[i];
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int j = 0; j < half; j++) lane[j] += lane[j + half];
  return lane[0];
}
static void NAME(dot)(const gate_move *m, const void *other, void *weight, int64_t first, int64_t end) {
  for (int64_t p = first; p < end; p++) {
    const REAL *x = (const REAL *)m->from + p / m->share * m->width;
    const double sum =
        m->slot[p] < 0 ? 0 : NAME(product)(x, (const REAL *)other + m->slot[p] * m->width, m->width);
    smx_reals_store(sizeof(REAL) == 8, &sum, 1, (REAL *)weight + p);
  }
}

#undef REAL
#undef NAME
