/* gate/ops_move.c - sums of rows, and products of them (gate.h). */
#include "compress.h"
#include "engine/loops.h"
#include "mixture.h"

enum { MOST = 8 /* rows that are added before the sum is stored */, AHEAD = 32768 /* bytes */ };

/* Some items of a row: where their rows are, and their weights. */
typedef struct items {
  const real *x[MOST];
  real weight[MOST];
  int count;
} items;

/* Item p; NULL: it has no row. */
SMI const real *row_of(const gate_move *m, int64_t p) {
  const int64_t row = m->slot ? m->slot[p] : p / m->share;
  return row < 0 ? NULL : (const real *)m->from + row * m->width;
}
SMI int64_t items_end(const gate_move *m, int64_t i) { return m->start ? m->start[i + 1] : (i + 1) * m->per; }
SMI int64_t items_start(const gate_move *m, int64_t i) { return m->start ? m->start[i] : i * m->per; }

/* The next items from *q on. */
SMI void take_items(const gate_move *m, int64_t *q, int64_t end, items *t) {
  for (t->count = 0; *q < end && t->count < MOST; ++*q) {
    const int64_t p = m->item ? m->item[*q] : *q;
    const real *x = row_of(m, p);
    if (!x) continue;
    t->weight[t->count] = m->weight ? ((const real *)m->weight)[p] : 1;
    t->x[t->count++] = x;
  }
}

/* The sum of some items, of LANES elements or fewer from i on; sum: what it begins with, if there
 * were others before. */
SMI vreal sum_of(const items *t, bool weighs, bool others, vreal sum, int64_t i, int cnt) {
  for (int j = 0; j < t->count; j++) {
    vreal x = cnt == LANES ? v_load(t->x[j] + i) : v_load_n(t->x[j] + i, cnt, 0);
    if (weighs) x = v_mul(v_set1(t->weight[j]), x);
    sum = j == 0 && !others ? x : v_add(sum, x);
  }
  return sum;
}

typedef struct target {
  real *to;
  int64_t n;
  bool weighs, others, clean; /* others: their sum is there already; clean: the sum is the last */
  row_writing how;
} target;

SMI void put_sum(const target *a, vreal sum, int64_t i) {
  if (a->how == WRITE_CACHED) v_store(a->to + i, sum);
  else put_uncached(a->to + i, sum, a->how);
}

/* A row that a list names begins where no processor expects it, so the items of a later row are
 * prefetched beside those of this one. `weighs` is known where this is inlined. */
SMI void add_items(const target *a, const items *t, const items *later, bool weighs) {
  const vreal zero = v_set1(0);
  int64_t i = 0;
  for (; i + LANES <= a->n; i += LANES) {
    for (int j = 0; j < later->count; j++) v_prefetch_far(later->x[j] + i);
    const vreal sum = sum_of(t, weighs, a->others, a->others ? v_load(a->to + i) : zero, i, LANES);
    put_sum(a, a->clean ? v_clean(sum) : sum, i);
  }
  if (i == a->n) return;
  const int cnt = lanes_left((size_t)(a->n - i));
  const vreal sum = sum_of(t, weighs, a->others, a->others ? v_load_n(a->to + i, cnt, 0) : zero, i, cnt);
  v_store_n(a->to + i, cnt, a->clean ? v_clean(sum) : sum);
}

/* A single row without a weight is copied as it is, whatever its NaNs are. */
static void add_row(const gate_move *m, int64_t i, int64_t ahead, row_writing how) {
  target a = {.to = (real *)m->to + i * m->width, .n = m->width, .weighs = m->weight != NULL, .how = how};
  int64_t q = items_start(m, i);
  const int64_t end = items_end(m, i);
  items t, later = {.count = 0};
  if (i + ahead < m->rows) {
    int64_t first = items_start(m, i + ahead);
    take_items(m, &first, items_end(m, i + ahead), &later);
  }
  do {
    take_items(m, &q, end, &t);
    const bool last = q == end;
    a.clean = last && (a.weighs || a.others || t.count > 1);
    a.how = last ? how : WRITE_CACHED;
    if (a.weighs) add_items(&a, &t, &later, true);
    else add_items(&a, &t, &later, false);
    a.others = a.others || t.count > 0;
  } while (q < end);
}

/* How `rows` rows are written. */
static row_writing writing_of(const gate_move *m, int64_t rows) {
  const size_t bytes = (size_t)m->width * sizeof(real);
  const bool lines = bytes % 64 == 0 && (uintptr_t)m->to % 64 == 0;
  return lines ? writing_for(bytes * (size_t)rows) : WRITE_CACHED;
}

void SMX_FN(gate_add)(const gate_move *m, int64_t first, int64_t end) {
  const size_t bytes = (size_t)m->width * sizeof(real);
  const int64_t read = (int64_t)bytes * (m->start ? m->start[m->rows] / m->rows + 1 : m->per);
  const int64_t ahead = read > 0 && read < AHEAD ? AHEAD / read : 1;
  const row_writing how = writing_of(m, m->rows);
  for (int64_t i = first; i < end; i++) { add_row(m, i, ahead, how); }
  if (how == WRITE_STREAMING) v_stream_end();
}

/* A row to one place, as it is, whatever its NaNs are. */
SMI void copy_row(const real *x, int64_t n, real *to, row_writing how) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    const vreal v = v_load(x + i);
    if (how == WRITE_CACHED) v_store(to + i, v);
    else put_uncached(to + i, v, how);
  }
  if (i < n) v_store_n(to + i, (int)(n - i), v_load_n(x + i, (int)(n - i), 0));
}

void SMX_FN(gate_spread)(const gate_move *m, int64_t first, int64_t end) {
  const row_writing how = writing_of(m, m->start[m->rows]);
  const real *x = (const real *)m->from + first * m->width;
  for (int64_t i = first; i < end; i++, x += m->width)
    for (int64_t q = m->start[i]; q < m->start[i + 1]; q++)
      copy_row(x, m->width, (real *)m->to + m->item[q] * m->width, how);
  if (how == WRITE_STREAMING) v_stream_end();
}

/* In double; term i goes to sum i mod 8, and the sums are added in pairs. */
SMI double product_of(const real *x, const real *y, int64_t n) {
  v_sum64 sum = {0};
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const v_sum64 a = v_to64(v_load_n(x + i, cnt, 0)), b = v_to64(v_load_n(y + i, cnt, 0));
    for (int p = 0; p < LANES / 8; p++) sum.part[0] += a.part[p] * b.part[p];
  }
  return v_sum64_total(&sum);
}

void SMX_FN(gate_dot)(const gate_move *m, const void *other, void *weight, int64_t first, int64_t end) {
  for (int64_t p = first; p < end; p++) {
    const real *x = (const real *)m->from + p / m->share * m->width;
    const double sum =
        m->slot[p] < 0 ? 0 : product_of(x, (const real *)other + m->slot[p] * m->width, m->width);
    ((real *)weight)[p] = r_clean(sum);
  }
}
