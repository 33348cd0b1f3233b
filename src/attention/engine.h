/* attention/engine.h - what the forward and the backward engine share: which keys a row sees, keys
 * packed into panels, scores with their bias and masks.
 *
 * A hidden key takes no part: its score is -inf. Its weight is +0, and what that is multiplied by
 * is either known to be finite (then the product changes no sum) or left out. */
#ifndef SMX_ATTENTION_ENGINE_H
#define SMX_ATTENTION_ENGINE_H
#include "tile.h"
#include "weights.h"

#define packed_panel SMX_FN(packed_panel)
#define find_rows SMX_FN(find_rows)
#define add_panel SMX_FN(add_panel)

static inline int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}
static inline char *cell(const attn_rows *m, int64_t i, int64_t g) {
  return m->data + i * m->step + g * m->head;
}

/* ---- panels: rows of a matrix, 64 at a time, packed for scores or row by row for sums ---- */

typedef struct panels {
  attn_rows m;
  const attn_head *pages;  /* of a paged cache, or NULL */
  int64_t page;            /* bytes of a page */
  int64_t columns, padded; /* padded: filled up to whole vectors */
  int64_t first, end;      /* panel p holds rows first + 64 p and on, below end */
  bool keep;               /* every panel has a place of its own; otherwise all share one */
  bool raw;                /* rows in half precision may stay as they lie */
  bool few;                /* packed for score_few: as wide as the rows that there are */
  ahead *next;             /* what is fetched meanwhile, or NULL */
  real *packed, *staged, *buffer;
  uint32_t is_packed, is_staged, known, finite; /* bit p */
  int hand;                                     /* the panel that rows are of, or -1 */
  rows_at rows;
} panels;

static inline void panels_at(panels *s, int64_t first) {
  s->first = first;
  s->is_packed = s->is_staged = s->known = s->finite = 0;
  s->hand = -1;
}

/* Addresses of the rows of panel p; returns how many there are. */
static inline int addresses(const panels *s, int p, const char *at[ATTN_PANEL]) {
  int64_t first = s->first + p * ATTN_PANEL, n = clamp(s->end - first, 0, ATTN_PANEL);
  for (int64_t x = 0; x < n; x++) {
    int64_t j = first + x;
    int32_t page = 0;
    if (s->pages)
      memcpy(&page, s->pages->table + j / s->pages->page_size * s->pages->table_step, sizeof page);
    at[x] = s->pages ? s->m.data + page * s->page + j % s->pages->page_size * s->m.step
                     : s->m.data + j * s->m.step;
  }
  return (int)n;
}

/* How many rows panel p has, and how far its columns are apart. */
static inline int panel_count(const panels *s, int p) {
  return (int)clamp(s->end - s->first - p * ATTN_PANEL, 0, ATTN_PANEL);
}
static inline int64_t panel_pitch(const panels *s, int p) {
  return s->few ? few_pitch(panel_count(s, p)) : ATTN_PANEL;
}

/* The rows of panel p as [column][row] (pack_rows). */
const real *packed_panel(panels *s, int p);

/* The rows of panel p as they lie, where vectors can be loaded from them: returns how many there
 * are, or 0. */
static inline int panel_as_it_lies(const panels *s, int p, rows_at *rows) {
  const int64_t first = s->first + p * ATTN_PANEL;
  const char *at[ATTN_PANEL];
  at[0] = s->m.data + first * s->m.step;
  if (s->m.stride != 1 || !loads_directly(s->m.store)) return 0;
  const int n = s->pages ? addresses(s, p, at) : (int)clamp(s->end - first, 0, ATTN_PANEL);
  const int64_t step = s->pages && n > 1 ? at[1] - at[0] : s->m.step;
  if (s->pages && !rows_are_even(at, n, step)) return 0;
  *rows = (rows_at){at[0], step, s->m.store, s->next};
  return n;
}

/* Leaves the rows of panel p in s->rows, padded: as they lie when vectors can be loaded there, else
 * copied. */
void find_rows(panels *s, int p);
static inline const rows_at *row_panel(panels *s, int p) {
  if (s->hand != p) find_rows(s, p);
  return &s->rows;
}

/* Whether every number of the panel is finite. */
static inline bool finite_panel(panels *s, int p) {
  if (s->known >> p & 1) return s->finite >> p & 1;
  int64_t n = clamp(s->end - s->first - p * ATTN_PANEL, 0, ATTN_PANEL);
  const rows_at *rows = row_panel(s, p);
  vmask good = v_eq(v_set1(0), v_set1(0));
  for (int64_t x = 0; x < n; x++)
    for (int64_t i = 0; i < s->padded; i += LANES)
      good = m_and(good,
                   v_lt(v_abs(load_as(rows->store, rows->at + x * rows->step + i * store_bytes(rows->store))),
                        v_set1(R_INF)));
  s->known |= 1u << p;
  if (!m_any(m_not(good))) s->finite |= 1u << p;
  return s->finite >> p & 1;
}

/* ---- rows ---- */

typedef struct sight {
  int64_t low, high;
} sight;

/* Keys that a row may see, but for masks. */
static inline sight row_sight(const attn_call *c, const attn_head *h, int64_t i) {
  int64_t at = i + h->offset, end = h->key_start + h->lk;
  sight s = {h->key_start, end};
  if (c->causal) s.high = clamp(at + 1, s.low, end);
  if (c->right >= 0 && at < end - c->right) s.high = clamp(at + c->right + 1, s.low, s.high);
  if (c->left >= 0 && at - c->left > s.low) s.low = clamp(at - c->left, s.low, s.high);
  return s;
}

/* Rows that may see a key. */
static inline sight key_sight(const attn_call *c, const attn_head *h, int64_t j) {
  int64_t at = j - h->offset;
  sight s = {0, h->lq};
  if (c->causal && at > s.low) s.low = clamp(at, 0, h->lq);
  if (c->right >= 0 && at - c->right > s.low) s.low = clamp(at - c->right, 0, h->lq);
  if (c->left >= 0 && at < s.high - c->left) s.high = clamp(at + c->left + 1, s.low, h->lq);
  return s;
}

static inline real head_value(const attn_rows *m, int64_t g) {
  real x;
  dtype_load((row_store)m->store, cell(m, 0, g), 1, 1, &x);
  return x;
}

/* Mask (0 or -inf) or bias of n keys from j on. The next panel of the row is prefetched: other rows
 * come in between, and no prefetcher of the processor follows so many. */
static inline void load_keys(const attn_head *h, const attn_rows *m, int64_t i, int64_t g, int64_t j,
                             int64_t n, real *out) {
  const int64_t bytes = store_bytes(m->store), panel = ATTN_PANEL * bytes;
  if (n <= 0) return;
  const char *const at = cell(m, i, g) + (j - h->key_start) * m->stride * bytes;
  for (int64_t x = panel; x < 2 * panel && m->stride == 1; x += LINE) v_prefetch(at + x);
  dtype_load((row_store)m->store, at, m->stride, (size_t)n, out);
}

static inline int64_t count_keys(const attn_head *h, const attn_row *row) {
  int64_t count = 0;
  if (!h->mask.data && !h->bias.data) return row->high - row->low;
  for (int64_t j = row->low; j < row->high; j += ATTN_PANEL) {
    int64_t n = clamp(row->high - j, 0, ATTN_PANEL);
    real keep[ATTN_PANEL] = {0}, bias[ATTN_PANEL] = {0};
    if (h->mask.data) load_keys(h, &h->mask, row->i, row->g, j, n, keep);
    if (h->bias.data) load_keys(h, &h->bias, row->i, row->g, j, n, bias);
    for (int64_t x = 0; x < n; x++) count += keep[x] == 0 && bias[x] != -R_INF;
  }
  return count;
}

/* Row i of query head g of a head, into zeros. */
static inline void fill_row(const attn_call *c, const attn_head *h, const weigher *op, int64_t i, int64_t g,
                            attn_row *row) {
  const sight s = row_sight(c, h, i);
  row->i = i, row->g = g, row->at = i + h->offset;
  row->low = s.low, row->high = s.high;
  row->sink = h->sinks.data ? (double)head_value(&h->sinks, g) : -(double)R_INF;
  if (h->slopes.data) row->slope = head_value(&h->slopes, g);
  if (op->counts) row->count = (double)count_keys(h, row);
  row->scale = (real)(c->scale * (op->scale ? op->scale(c, row) : 1));
}

/* Row r of a head, in the order i * groups + g. */
static inline attn_row open_row(const attn_call *c, const attn_head *h, const weigher *op, int64_t r) {
  attn_row row = {0};
  fill_row(c, h, op, r / h->groups, r % h->groups, &row);
  return row;
}

/* [column][6] from the row itself; NULL: zeros. */
static inline void pack_row(const attn_rows *m, const char *at, int64_t columns, real *out, real *buffer) {
  const real *x = at ? row_reals(m, at, columns, buffer) : NULL;
  for (int64_t i = 0; i < columns; i++) out[i * ATTN_BLOCK] = x ? x[i] : 0;
}

/* ---- scores ---- */

/* 64 scores of one row with neighbouring keys, or of one key with neighbouring rows, before bias
 * and masks are added. */
typedef struct dressing {
  real *z, *top;         /* top: the largest score of each lane, carried along; may be NULL */
  real *bend;            /* out: derivative of the cap; NULL: not wanted */
  int64_t from, to;      /* lanes of visible keys */
  real keep[ATTN_PANEL]; /* 0 or -inf */
  real bias[ATTN_PANEL];
  real distance, step, slope; /* ALiBi: lane x is |distance + step x| away */
} dressing;

static inline void dress(const attn_call *c, const attn_head *h, dressing *d) {
  const vreal cap = v_set1((real)c->softcap);
  vreal m = d->top ? v_load(d->top) : v_set1(0);
  for (int u = 0; u < VPB; u++) {
    vreal x = v_load(d->z + u * LANES), lane = v_add(v_iota(), v_set1((real)(u * LANES)));
    if (c->softcap > 0) {
      vreal ratio = v_div(x, cap);
      if (d->bend) v_store(d->bend + u * LANES, v_sech2(ratio));
      x = v_mul(cap, v_tanh(ratio));
    }
    if (h->bias.data) {
      vreal add = v_load(d->bias + u * LANES);
      x = v_select(v_hidden(add), add, v_add(x, add));
    }
    if (h->slopes.data)
      x = v_fnma(v_set1(d->slope), v_abs(v_fma(lane, v_set1(d->step), v_set1(d->distance))), x);
    vmask in = m_and(m_not(v_lt(lane, v_set1((real)d->from))), v_lt(lane, v_set1((real)d->to)));
    if (h->mask.data) in = m_and(in, v_eq(v_load(d->keep + u * LANES), v_set1(0)));
    x = v_select(in, x, v_set1(-R_INF));
    v_store(d->z + u * LANES, x);
    m = v_max(x, m);
  }
  if (d->top) v_store(d->top, m);
}

/* The same of a bias alone, of reals one after another, where all keys are visible but for it. The
 * next panel of the row is prefetched, as in load_keys. */
static inline void dress_plain(const real *bias, real *z, real *top) {
  vreal m = v_load(top);
  for (int u = 0; u < VPB; u++) {
    const vreal add = v_load(bias + u * LANES), x = v_load(z + u * LANES);
    const vreal sum = v_select(v_hidden(add), add, v_add(x, add));
    v_prefetch(bias + ATTN_PANEL + u * LANES);
    v_store(z + u * LANES, sum);
    m = v_max(sum, m);
  }
  v_store(top, m);
}
static inline bool bias_alone(const attn_call *c, const attn_head *h) {
  return h->bias.data && h->bias.store == REAL_STORE && h->bias.stride == 1 && !h->mask.data &&
         !h->slopes.data && !(c->softcap > 0);
}

/* Those of a row with the keys from j0 on. */
static inline void dress_row(const attn_call *c, const attn_head *h, const attn_row *row, int64_t j0, real *z,
                             real *top, real *bend) {
  if (top && bias_alone(c, h) && row->low <= j0 && row->high >= j0 + ATTN_PANEL) {
    const char *const bias = cell(&h->bias, row->i, row->g) + (j0 - h->key_start) * (int64_t)sizeof *z;
    dress_plain((const real *)(const void *)bias, z, top);
    return;
  }
  dressing d = {.z = z, .top = top, .bend = bend, .slope = row->slope, .step = -1};
  d.from = clamp(row->low - j0, 0, ATTN_PANEL), d.to = clamp(row->high - j0, d.from, ATTN_PANEL);
  d.distance = (real)(row->i + h->offset - j0);
  if (h->mask.data) load_keys(h, &h->mask, row->i, row->g, j0 + d.from, d.to - d.from, d.keep + d.from);
  if (h->bias.data) load_keys(h, &h->bias, row->i, row->g, j0 + d.from, d.to - d.from, d.bias + d.from);
  dress(c, h, &d);
}

/* A block of rows of a tile, and the part of the split that its rows see. */
typedef struct block {
  int rows;
  int64_t row;               /* of the task */
  int64_t low, high;         /* keys that some row may see, counted from the start of the split */
  int64_t all_low, all_high; /* keys that every row sees but for masks */
  uint32_t mixed;            /* bit p: rows of the block differ in what they see of panel p */
} block;

static inline void start_block(block *b, int64_t row, int64_t rows, int64_t most) {
  b->rows = (int)rows, b->row = row, b->mixed = 0;
  b->low = b->all_high = most, b->high = b->all_low = 0;
}
static inline block open_block(int64_t row, int64_t rows, int64_t most) {
  block b;
  start_block(&b, row, rows, most);
  return b;
}
static inline void widen_block(block *b, int64_t low, int64_t high) {
  if (low < high && low < b->low) b->low = low;
  if (low < high && high > b->high) b->high = high;
  if (low > b->all_low) b->all_low = low;
  if (high < b->all_high) b->all_high = high;
}
static inline bool block_sees(const block *b, int p) {
  return b->low < (p + 1) * ATTN_PANEL && b->high > p * ATTN_PANEL;
}
/* Of panel p, the keys up to the last that some row sees. */
static inline int block_reach(const block *b, int p) {
  return (int)clamp(b->high - p * ATTN_PANEL, 0, ATTN_PANEL);
}
static inline bool block_agrees(const block *b, int p) {
  return b->all_low <= p * ATTN_PANEL && b->all_high >= (p + 1) * ATTN_PANEL;
}
/* Whether all rows see the same keys of panel p, from its first on. */
static inline bool block_is_even(const block *b, int p) {
  return b->all_low <= p * ATTN_PANEL && (b->all_high == b->high || b->all_high >= (p + 1) * ATTN_PANEL);
}

/* Which of 64 scores are visible. */
static inline uint64_t visible_bits(const real *z) {
  uint64_t bits = 0;
  for (int j = 0; j < ATTN_PANEL; j += LANES) bits |= (uint64_t)m_bits(m_not(v_hidden(v_load(z + j)))) << j;
  return bits;
}

/* Rows from row j on. */
static inline rows_at rows_from(const rows_at *rows, int64_t j) {
  return (rows_at){rows->at + j * rows->step, rows->step, rows->store, rows->next};
}

/* o += weights times rows of panel p of s, for a block. bits: the visible pairs of each row; used
 * where a product with weight 0 could be NaN. */
void add_panel(const block *b, panels *s, int p, const real *weights, const uint64_t *bits, real *o,
               int64_t o_pitch);

/* ---- sums in double, eight columns at a time ---- */

typedef double eight __attribute__((vector_size(64)));
typedef real eight_reals __attribute__((vector_size(8 * sizeof(real))));
#define EACH_EIGHT(i, n) for (int64_t i = 0; i < (n); i += 8)

SMI eight eight_at(const double *p) {
  eight y;
  memcpy(&y, p, sizeof y);
  return y;
}
SMI eight widened(const real *p) {
  eight_reals x;
  memcpy(&x, p, sizeof x);
  return __builtin_convertvector(x, eight);
}

/* sum = sum mine + o its; sum = o; out = sum factor, rounded */
static inline void fold_sums(double *sum, const real *o, int64_t n, double mine, double its) {
  EACH_EIGHT(i, n) {
    eight y = eight_at(sum + i) * mine + widened(o + i) * its;
    memcpy(sum + i, &y, sizeof y);
  }
}
static inline void start_sums(double *sum, const real *o, int64_t n) {
  EACH_EIGHT(i, n) {
    eight y = widened(o + i);
    memcpy(sum + i, &y, sizeof y);
  }
}
static inline void round_sums(const double *sum, real *out, int64_t n, double factor) {
  EACH_EIGHT(i, n) {
    eight_reals x = __builtin_convertvector(eight_at(sum + i) * factor, eight_reals);
    memcpy(out + i, &x, sizeof x);
  }
}
/* The same of sums that are one part: out = o factor, in double */
static inline void round_part(const real *o, real *out, int64_t n, double factor) {
  EACH_EIGHT(i, n) {
    eight_reals x = __builtin_convertvector(widened(o + i) * factor, eight_reals);
    memcpy(out + i, &x, sizeof x);
  }
}

/* Clean numbers (v_clean) of one row to where it belongs; x has room for whole vectors, and its
 * numbers are not used again. */
SMI void store_clean(const attn_rows *m, int64_t i, int64_t g, real *x, int64_t columns) {
  char *to = cell(m, i, g);
  const bool direct = m->store == REAL_STORE && m->stride == 1;
  const int64_t whole = direct ? columns / LANES * LANES : 0;
  real *const out = (real *)(void *)to;
  for (int64_t c = 0; c < whole; c += LANES) v_store(out + c, v_clean(v_load(x + c)));
  for (int64_t c = whole; c < columns; c += LANES) v_store(x + c, v_clean(v_load(x + c)));
  if (!direct) dtype_store((row_store)m->store, x, (size_t)columns, to, m->stride);
  else if (whole < columns) memcpy(out + whole, x + whole, (size_t)(columns - whole) * sizeof *x);
}

#endif
