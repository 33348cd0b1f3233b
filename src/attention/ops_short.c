/* attention/ops_short.c - the forward engine for heads of at most 64 keys with plain softmax: rows
 * of a head side by side.
 *
 * A strip is some rows, a lane each. Its queries are packed as [column][row], keys and values are
 * read as they lie. So the largest score of a row, the fold of its exponentials and its factor are
 * steps between vectors, without any across lanes, and a head has no tiles, splits or parts to
 * keep. Every output has the chain of ops.c: the same bits. What is not ordinary is left to it. */
#include "forward.h"
#include "vec/wide.h"

#ifdef HAS_SHORT

enum {
  STRIP = FEW_COLS * LANES,       /* rows of a strip */
  FOUR = 4,                       /* keys, or rows, that the inner loops hold in registers, */
  MOST = FEW_COLS > 1 ? 6 : FOUR, /* or so many beside one vector of rows */
  KEYS = ATTN_PANEL + MOST,       /* a last block of keys may read and score some more */
  FOLDED = ATTN_PANEL / 2
};

typedef struct strip {
  const attn_call *c;
  const attn_head *h;
  int64_t first, padded; /* first row, in the order i * groups + g; columns of values, filled up */
  int rows, cols, keys;  /* cols: vectors of rows; keys: up to the last that some row sees */
  bool even;             /* all rows see all keys */
  int64_t pitch;
  real scale;
  real *q, *z, *folded, *buffer, *k_room, *v_room, *out; /* z: [key][row] scores, then weights */
  real from[STRIP], to[STRIP], ref[STRIP], sum[STRIP];   /* of each row */
  double factor[STRIP];
  const real *k[KEYS], *v[ATTN_PANEL];
} strip;

static size_t carve_short(strip *s, char *base, const attn_call *c) {
  const int64_t padded = round_up(c->e, LANES);
  size_t at = 0;
#define TAKE(field, count) \
  s->field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof(real) * (count), 64);
  TAKE(q, STRIP * c->d + PACKED)
  TAKE(z, KEYS * STRIP)
  TAKE(folded, FOLDED * STRIP)
  TAKE(buffer, PACKED * round_up(c->d, COLUMNS))
  TAKE(k_room, ATTN_PANEL * c->d)
  TAKE(v_room, ATTN_PANEL * padded)
  TAKE(out, FOUR * padded)
#undef TAKE
  return at;
}

size_t short_scratch(const attn_call *c) {
  strip s;
  return carve_short(&s, NULL, c);
}

/* ---- rows ---- */

/* Addresses of the rows of keys or values, with room for `padded` columns each: where they lie, or
 * converted into room. */
static void lie_or_copy(const attn_rows *m, const attn_head *h, int64_t page, int64_t columns, int64_t padded,
                        real *room, const real **at) {
  const bool lies = m->stride == 1 && m->store == REAL_STORE && columns == padded;
  const panels all = {.m = *m, .pages = h->table ? h : NULL, .page = page, .end = h->lk};
  const char *from[ATTN_PANEL];
  const int n = addresses(&all, 0, from);
  for (int j = 0; j < n; j++) {
    at[j] = (const real *)(const void *)from[j];
    if (lies) continue;
    at[j] = room + j * padded;
    dtype_load((row_store)m->store, from[j], m->stride, (size_t)columns, room + j * padded);
    for (int64_t x = columns; x < padded; x++) room[j * padded + x] = 0;
  }
}

/* Which keys the rows of a strip see; false: some row sees none. */
static bool find_sights(strip *s) {
  const attn_call *c = s->c;
  const attn_head *h = s->h;
  s->keys = (int)h->lk, s->even = true;
  if (!c->causal && c->left < 0 && c->right < 0) return true;
  s->keys = 0;
  for (int r = 0; r < STRIP; r++) {
    const sight own = row_sight(c, h, (s->first + (r < s->rows ? r : s->rows - 1)) / h->groups);
    if (own.low >= own.high) return false;
    const int to = (int)(own.high - h->key_start);
    s->from[r] = (real)(own.low - h->key_start), s->to[r] = (real)to;
    s->even &= own.low == h->key_start && own.high == h->key_start + h->lk;
    if (to > s->keys) s->keys = to;
  }
  return true;
}

static void pack_strip(strip *s) {
  const attn_head *h = s->h;
  const char *at[ATTN_PANEL];
  ahead none = {0};
  int64_t i = s->first / h->groups, g = s->first % h->groups;
  for (int r = 0; r < s->rows; r++) {
    at[r] = cell(&h->q, i, g);
    if (++g == h->groups) g = 0, i++;
  }
  pack_rows(&h->q, at, s->rows, s->pitch, s->c->d, s->q, s->buffer, &none);
}

/* ---- scores ---- */

/* Scores of keys j and on, with every row; the chains of tile.h, keys in the place of queries. */
SMI void strip_scores(int keys, int cols, strip *s, int j) {
  const int64_t d = s->c->d;
  const vreal scale = v_set1(s->scale);
  query_rows own = {.packed = NULL};
  vreal sum[ATTN_BLOCK][COLS], a[ATTN_BLOCK][COLS];
  ALL_ROWS(r, keys) own.row[r] = s->k[j + r];
  ALL_ROWS(r, keys) ALL_COLS(c, cols) sum[r][c] = v_set1(0);
  for (int64_t x = 0; x < d; x = chain_end(x, d)) {
    score_chain(keys, cols, &own, s->q, s->pitch, x, chain_end(x, d), a);
    ALL_ROWS(r, keys) ALL_COLS(c, cols) sum[r][c] = v_add(sum[r][c], a[r][c]);
  }
  ALL_ROWS(r, keys) ALL_COLS(c, cols) v_store(s->z + (j + r) * STRIP + c * LANES, v_mul(sum[r][c], scale));
}

static void score_strip(strip *s) {
  for (int j = 0, left; (left = s->keys - j) > 0; j += left) {
    if (s->cols > 1) left = FOUR, strip_scores(FOUR, FEW_COLS, s, j);
    else if (left > FOUR && MOST > FOUR) left = MOST, strip_scores(MOST, 1, s, j);
    else left = FOUR, strip_scores(FOUR, 1, s, j);
  }
}

/* Hidden keys have a score of -inf. Returns the smallest that is not hidden, of each row. */
static vreal hide_keys(const strip *s, int c, real *z) {
  const vreal from = v_load(s->from + c * LANES), to = v_load(s->to + c * LANES);
  vreal low = v_set1(R_INF);
  for (int j = 0; j < s->keys; j++) {
    const vreal key = v_set1((real)j), own = v_load(z + j * STRIP);
    const vmask in = m_and(m_not(v_lt(key, from)), v_lt(key, to));
    v_store(z + j * STRIP, v_select(in, own, v_set1(-R_INF)));
    low = v_min(v_select(in, own, v_set1(R_INF)), low);
  }
  return low;
}

/* ---- weights ---- */

/* e^z in units of 2^ref, as exp_weight has it for one row. */
SMI vreal weight_by(vreal z, vreal ref) {
  vreal k, p = v_exp_pair(z, &k);
  return v_scale(p, v_sub(k, ref));
}

/* The fold of 64 lanes, one key each, of every row; those beyond the keys would add 0. */
static vreal fold_strip(const strip *s, const real *w, real *sum) {
  int n = s->keys, h = FOLDED;
  while (h >= n) h /= 2;
  for (int i = 0; i < h; i++)
    v_store(sum + i * STRIP,
            i + h < n ? v_add(v_load(w + i * STRIP), v_load(w + (i + h) * STRIP)) : v_load(w + i * STRIP));
  if (h == 0) return v_load(w);
  for (h /= 2; h; h /= 2)
    for (int i = 0; i < h; i++)
      v_store(sum + i * STRIP, v_add(v_load(sum + i * STRIP), v_load(sum + (i + h) * STRIP)));
  return v_load(sum);
}

/* Scores to weights; returns the sums of these. */
static vreal weigh_keys(strip *s, int c, vreal top, vreal ref) {
  real *w = s->z + c * LANES;
  for (int j = 0; j < s->keys; j++) v_store(w + j * STRIP, weight_by(v_load(w + j * STRIP), ref));
  const vreal sum = fold_strip(s, w, s->folded + c * LANES);
  v_store(s->sum + c * LANES, sum);
  const vmask alone = v_eq(sum, weight_by(top, ref)); /* one key is all of the sum: its weight is 1 */
  if (!m_any(alone)) return sum;
  for (int j = 0; j < s->keys; j++) {
    const vreal x = v_load(w + j * STRIP);
    v_store(w + j * STRIP, v_select(alone, v_div(x, sum), x));
  }
  return v_select(alone, v_set1(1), sum);
}

/* A vector of rows. False: of some row the scores are not ordinary numbers. */
static bool weigh_vector(strip *s, int c) {
  real *w = s->z + c * LANES;
  vreal top = v_set1(-R_INF), low = v_set1(R_INF);
  if (!s->even) low = hide_keys(s, c, w);
  for (int j = 0; j < s->keys; j++) { /* NaN is passed over */
    const vreal z = v_load(w + j * STRIP);
    top = v_max(z, top);
    if (s->even) low = v_min(z, low);
  }
  const vreal ref = exp_k(top);
  const vmask row = v_lt(v_iota(), v_set1((real)(s->rows - c * LANES))),
              good = m_and(v_lt(v_abs(top), v_set1(ATTN_FAR)), v_lt(v_set1(-R_INF), low));
  if (m_any(m_and(row, m_not(good)))) return false;
  v_store(s->ref + c * LANES, ref);
  vreal sum = v_set1(1);
  if (s->keys == 1) { /* its weight, known before its score is */
    v_store(s->sum + c * LANES, weight_by(top, ref));
    v_store(w, sum);
  } else sum = weigh_keys(s, c, top, ref);
  v_wide f = v_widen(sum);
  EACH_WIDE(p) f.part[p] = 1 / f.part[p];
  memcpy(s->factor + c * LANES, &f, sizeof f);
  return true;
}

/* ---- sums ---- */

/* Four rows: weights times `cols` vectors of values, keys in order. */
SMI void strip_sums(int cols, const strip *s, int r0, int64_t x) {
  const real *w = s->z + r0;
  vreal a[FOUR][COLS];
  ALL_ROWS(r, FOUR) ALL_COLS(c, cols) a[r][c] = v_set1(0);
  for (int j = 0; j < s->keys; j++, w += STRIP) {
    vreal b[COLS];
    ALL_COLS(c, cols) b[c] = v_load(s->v[j] + x + c * LANES);
    ALL_ROWS(r, FOUR) {
      const vreal own = v_set1(w[r]);
      ALL_COLS(c, cols) a[r][c] = v_fma(own, b[c], a[r][c]);
    }
  }
  ALL_ROWS(r, FOUR) ALL_COLS(c, cols) v_store(s->out + r * s->padded + x + c * LANES, a[r][c]);
}

static void store_lse(const strip *s, int r, int64_t i, int64_t g) {
  attn_row row = {.unit.scale_exp = (double)s->ref[r], .gain = 1, .a = {(double)s->sum[r]}};
  finished f = {.silent = false};
  SMX_FN(attn_weighers)[s->c->weights].finish(s->c, &row, &f);
  const real lse = v_first(v_clean(v_set1((real)f.lse)));
  dtype_store((row_store)s->h->lse.store, &lse, 1, cell(&s->h->lse, i, g), 1);
}

/* Sums over the sum of the weights, rounded, to row i of query head g. */
static void store_row(const strip *s, real *sums, double factor, int64_t i, int64_t g) {
  const attn_rows *o = &s->h->o;
  const int64_t e = s->c->e;
  const bool direct = o->stride == 1 && o->store == REAL_STORE && e == s->padded;
  real *to = direct ? (real *)(void *)cell(o, i, g) : sums;
  for (int64_t x = 0; x < s->padded; x += LANES)
    v_store(to + x, v_clean(v_narrow(v_wide_mul(v_widen(v_load(sums + x)), factor))));
  if (!direct) dtype_store((row_store)o->store, sums, (size_t)e, cell(o, i, g), o->stride);
}

static void sum_strip(const strip *s) {
  int64_t i = s->first / s->h->groups, g = s->first % s->h->groups, x;
  for (int r0 = 0; r0 < s->rows; r0 += FOUR) {
    for (x = 0; x + FEW_COLS * LANES <= s->padded; x += FEW_COLS * LANES) strip_sums(FEW_COLS, s, r0, x);
    for (; FEW_COLS > 1 && x < s->padded; x += LANES) strip_sums(1, s, r0, x);
    for (int r = 0; r < FOUR && r0 + r < s->rows; r++) {
      store_row(s, s->out + r * s->padded, s->factor[r0 + r], i, g);
      if (s->h->lse.data) store_lse(s, r0 + r, i, g);
      if (++g == s->h->groups) g = 0, i++;
    }
  }
}

/* ---- a head ---- */

/* Whether a weight of 0 may meet the values of all keys. */
static bool values_are_finite(const strip *s) {
  vmask good = v_eq(v_set1(0), v_set1(0));
  for (int j = 0; j < s->keys; j++)
    for (int64_t x = 0; x < s->padded; x += LANES)
      good = m_and(good, v_lt(v_abs(v_load(s->v[j] + x)), v_set1(R_INF)));
  return !m_any(m_not(good));
}

static bool run_strip(strip *s) {
  if (!find_sights(s)) return false;
  s->cols = (s->rows + LANES - 1) / LANES, s->pitch = few_pitch(s->rows);
  pack_strip(s);
  score_strip(s);
  for (int c = 0; c < s->cols; c++)
    if (!weigh_vector(s, c)) return false;
  if (!s->even && !values_are_finite(s)) return false;
  sum_strip(s);
  return true;
}

/* Fewer rows leave lanes empty, and are faster in a tile of their own. */
static bool are_worth_lanes(int64_t rows, int64_t keys) {
  return rows > ATTN_BLOCK || keys < (rows > 2 ? PACKED : PACKED / 2);
}

static bool fits(const attn_task *t) {
  const attn_call *c = t->call;
  const attn_head *h = &t->head;
  return h->lk <= ATTN_PANEL && are_worth_lanes(t->rows, h->lk) && h->lk > 0 && t->splits == 1 &&
         c->weights == SMX_ATTENTION_SOFTMAX && !t->states && !(c->softcap > 0) && !(c->dropout > 0) &&
         !h->mask.data && !h->bias.data && !h->slopes.data && !h->sinks.data && !h->given.data;
}

static __attribute__((noinline)) bool run_strips(const attn_task *t, void *scratch) {
  const attn_call *c = t->call;
  const attn_head *h = &t->head;
  strip s;
  s.c = c, s.h = h, s.padded = round_up(c->e, LANES), s.scale = (real)c->scale;
  carve_short(&s, scratch, c);
  const int keys = (int)h->lk;
  lie_or_copy(&h->k, h, h->k_page, c->d, c->d, s.k_room, s.k);
  lie_or_copy(&h->v, h, h->v_page, c->e, s.padded, s.v_room, s.v);
  for (int j = keys; j < keys + MOST; j++) s.k[j] = s.k[keys - 1];
  const int64_t end = t->first + t->rows;
  for (s.first = t->first; s.first < end; s.first += STRIP) {
    s.rows = (int)(end - s.first < STRIP ? end - s.first : STRIP);
    if (!run_strip(&s)) return false;
  }
  return true;
}

bool forward_short(const attn_task *t, void *scratch) { return fits(t) && run_strips(t, scratch); }

#endif
