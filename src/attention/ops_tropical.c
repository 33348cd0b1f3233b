/* attention/ops_tropical.c - attention in the max-plus semiring: Tropical Attention (2025).
 *
 *     o_i[x] = max_j (s_ij + v_j[x]),   t = q_i - k_j,
 *     s_ij = -(max_a t_a - min_a t_a), or -sum_a (t_a - min t)
 *
 * The first score is Hilbert's projective metric: a constant added to all of q or k changes
 * nothing. A maximum does not care about order, so the keys are walked panel by panel; the first of
 * equals wins. Compiled once per instruction set and real type. */
#include "engine.h"

extern const attention_tropical SMX_FN(attention_tropical);

typedef struct work {
  const attn_task *t;
  panels keys, values;
  attn_row *rows;
  real *q, *best, *buffer;
  int32_t *winner;
} work;

static size_t carve(work *w, char *base, const attn_call *c, int64_t rows) {
  size_t at = 0;
  w->keys.columns = c->d, w->values.columns = c->e;
  w->keys.padded = round_up(c->d, LANES), w->values.padded = round_up(c->e, LANES);
#define TAKE(field, count) \
  w->field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof *w->field * (count), 64);
  TAKE(rows, rows)
  TAKE(q, rows * w->keys.padded)
  TAKE(best, rows * w->values.padded)
  TAKE(winner, rows * w->values.padded)
  TAKE(keys.staged, ATTN_PANEL * w->keys.padded)
  TAKE(values.staged, ATTN_PANEL * w->values.padded)
  TAKE(buffer, ATTN_MAX_HEAD + LANES)
#undef TAKE
  return at;
}

static size_t scratch_bytes(const attn_call *c, int64_t rows) {
  work w = {0};
  return carve(&w, NULL, c, rows);
}

/* The score of a pair; NaN where a difference is. */
static real score_of(const attn_call *c, const real *q, const real *k) {
  vreal most = v_set1(-R_INF), least = v_set1(R_INF), sum = v_set1(0);
  vmask number = v_eq(sum, sum);
  for (int64_t x = 0; x < c->d; x += LANES) {
    const vmask in = v_lt(v_add(v_iota(), v_set1((real)x)), v_set1((real)c->d));
    const vreal t = v_sub(v_load(q + x), v_load(k + x));
    number = m_and(number, v_eq(t, t));
    most = v_max(v_select(in, t, v_set1(-R_INF)), most);
    least = v_min(v_select(in, t, v_set1(R_INF)), least);
  }
  if (m_any(m_not(number))) return r_nan();
  const real low = v_hmin(least);
  if (c->symmetric) return low - v_hmax(most);
  for (int64_t x = 0; x < c->d; x += LANES) {
    const vmask in = v_lt(v_add(v_iota(), v_set1((real)x)), v_set1((real)c->d));
    sum = v_add(sum, v_select(in, v_sub(v_sub(v_load(q + x), v_load(k + x)), v_set1(low)), v_set1(0)));
  }
  return -v_hsum(sum);
}

/* One row against the keys of a panel that it sees. */
static void row_panel_step(work *w, int64_t r, int64_t first, const rows_at *k, const rows_at *v) {
  const attn_head *h = &w->t->head;
  attn_row *row = w->rows + r;
  const int64_t from = clamp(row->low - first, 0, ATTN_PANEL),
                to = clamp(row->high - first, from, ATTN_PANEL), e = w->t->call->e;
  real keep[ATTN_PANEL] = {0}, *best = w->best + r * w->values.padded;
  int32_t *winner = w->winner + r * w->values.padded;
  if (h->mask.data) load_keys(h, &h->mask, row->i, row->g, first + from, to - from, keep + from);
  for (int64_t j = from; j < to; j++) {
    if (keep[j] != 0) continue;
    const real *key = (const real *)(const void *)(k->at + j * k->step),
               *value = (const real *)(const void *)(v->at + j * v->step);
    const real s = score_of(w->t->call, w->q + r * w->keys.padded, key);
    for (int64_t x = 0; x < e; x++) {
      const real y = s + value[x];
      if (row->any && (best[x] != best[x] || y <= best[x])) continue; /* a NaN stays */
      best[x] = y;
      winner[x] = y == y ? (int32_t)(first + j - h->key_start) : -1;
    }
    row->any = true;
  }
}

static void store_row(work *w, int64_t r) {
  const attn_task *t = w->t;
  const attn_head *h = &t->head;
  const attn_row *row = w->rows + r;
  real *best = w->best + r * w->values.padded;
  const int32_t *winner = w->winner + r * w->values.padded, none = -1;
  for (int64_t x = 0; x < t->call->e && !row->any; x++)
    best[x] = t->call->on_empty == SMX_EMPTY_NAN ? r_nan() : 0;
  store_clean(&h->o, row->i, row->g, best, t->call->e);
  for (int64_t x = 0; x < t->call->e && h->winners.data; x++)
    memcpy(cell(&h->winners, row->i, row->g) + x * h->winners.stride * 4, row->any ? winner + x : &none,
           sizeof none);
}

static void forward(attn_task *t, void *scratch) {
  work work_ = {.t = t}, *w = &work_;
  const attn_head *h = &t->head;
  carve(w, scratch, t->call, t->rows);
  w->keys.m = h->k, w->values.m = h->v;
  w->keys.end = w->values.end = h->lk;
  w->keys.buffer = w->values.buffer = w->buffer;
  if (h->table) w->keys.pages = w->values.pages = h, w->keys.page = h->k_page, w->values.page = h->v_page;
  int64_t low = h->key_start + h->lk, high = h->key_start;
  for (int64_t r = 0; r < t->rows; r++) {
    attn_row *row = w->rows + r;
    *row = open_row(t->call, h, SMX_FN(attn_weighers) + SMX_ATTENTION_SOFTMAX, t->first + r);
    real *q = w->q + r * w->keys.padded;
    dtype_load((row_store)h->q.store, cell(&h->q, row->i, row->g), h->q.stride, (size_t)t->call->d, q);
    for (int64_t x = t->call->d; x < w->keys.padded; x++) q[x] = 0;
    memset(w->best + r * w->values.padded, 0, (size_t)w->values.padded * sizeof *w->best);
    if (row->low < row->high && row->low < low) low = row->low;
    if (row->low < row->high && row->high > high) high = row->high;
  }
  for (int64_t first = low / ATTN_PANEL * ATTN_PANEL; first < high; first += ATTN_PANEL) {
    panels_at(&w->keys, first - h->key_start), panels_at(&w->values, first - h->key_start);
    const rows_at *k = row_panel(&w->keys, 0), *v = row_panel(&w->values, 0);
    for (int64_t r = 0; r < t->rows; r++) row_panel_step(w, r, first, k, v);
  }
  for (int64_t r = 0; r < t->rows; r++) {
    const bool error = !w->rows[r].any && t->call->on_empty == SMX_EMPTY_ERROR;
    if (!error) store_row(w, r);
    else if (t->first_empty < 0) t->first_empty = t->first + r;
  }
}

const attention_tropical SMX_FN(attention_tropical) = {scratch_bytes, forward};
