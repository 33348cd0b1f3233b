/* attention/ops_forward.c - a tile of the forward engine: scores of some rows with a split of keys,
 * then weights relative to the largest, then weights times values. See ops.c. */
#include "dropout.h"
#include "forward.h"

/* ---- prefetching ---- */

/* The rows that are computed while others are prefetched. */
enum { BLOCK_ROWS = STREAMS * ATTN_PANEL, BLOCK_PANELS = STREAMS };

/* Prefetches at most n rows of s from row `first` on, as far as some row of the task sees them and
 * they are needed soon. */
static void aim(work *w, const panels *s, int64_t first, int64_t n, int streams) {
  const int64_t from = clamp(w->low, first, first + n), end = clamp(w->high, from, first + n);
  const int64_t rows = (end - from + streams - 1) / streams, step = s->m.step;
  w->next = (ahead){.step = step,
                    .bytes = s->columns * store_bytes(s->m.store),
                    .far = rows * step,
                    .left = rows,
                    .streams = streams};
  if (rows > 0 && s->m.data && !s->pages && s->m.stride == 1) w->next.at = s->m.data + from * s->m.step;
}

/* Prefetch in address order: up to Zen 4 keys are read before they are transposed, and values are
 * prefetched NEAR bytes ahead (Zen 4: half a kilobyte to 4 alike, 8 a tenth slower). Later both are
 * prefetched FAR bytes ahead (Zen 5: 8 to 32 kilobytes alike). */
enum { NEAR = 1024, FAR = 16384 };
static bool look_near(work *w, const panels *s, int p) {
  const int64_t step = s->m.step, first = s->first + p * ATTN_PANEL;
  const bool reads = s == &w->keys && reads_before();
  const int64_t ahead_of = reads_before() ? NEAR : FAR;
  if (step != s->columns * store_bytes(s->m.store)) return false;
  aim(w, s, first + (reads ? PACKED : (ahead_of + step - 1) / step), ATTN_PANEL, 1);
  if (reads && w->next.at)
    w->next.read = w->next.at, w->next.end = w->next.at + w->next.left * step, w->next.at = NULL;
  return true;
}

/* Before panel p of s is computed: prefetches the next panels of the split, or the first ones of
 * what follows it. */
static void look_ahead(work *w, const panels *s, int p, const panels *then, int64_t then_first) {
  if (!s->next || w->few) return;
  if (fetches_straight() && look_near(w, s, p)) return;
  if (p % BLOCK_PANELS) return;
  const int64_t first = s->first + (p + BLOCK_PANELS) * ATTN_PANEL;
  const bool more = p + BLOCK_PANELS < ATTN_PANELS && first < w->high;
  aim(w, more ? s : then, more ? first : then_first, BLOCK_ROWS, fetches_straight() ? 1 : STREAMS);
}

/* ---- queries ---- */

static bool queries_lie(const work *w) { return w->h->q.stride == 1 && w->h->q.store == REAL_STORE; }
static const char *query_cell(const work *w, int64_t r) { return cell(&w->h->q, w->rows[r].i, w->rows[r].g); }

/* Queries in blocks; beside few keys row by row, where they cannot be read as they lie. */
void pack_queries(work *w) {
  const int64_t d = w->c->d, rows = w->t->rows;
  for (int64_t r = 0; r < rows && w->keys.few && !queries_lie(w); r++)
    row_reals(&w->h->q, query_cell(w, r), d, w->q + r * d);
  for (int64_t r = 0; r < round_up(rows, ATTN_BLOCK) && !w->keys.few; r++)
    pack_row(&w->h->q, r < rows ? query_cell(w, r) : NULL, d,
             w->q + r / ATTN_BLOCK * ATTN_BLOCK * d + r % ATTN_BLOCK, w->buffer);
}

/* The queries of a block row by row; behind the last, that one again. */
static void find_queries(const work *w, const block *b, const real *at[ATTN_BLOCK]) {
  for (int r = 0; r < ATTN_BLOCK; r++) {
    const int64_t own = b->row + (r < b->rows ? r : b->rows - 1);
    at[r] = queries_lie(w) ? (const real *)(const void *)query_cell(w, own) : w->q + own * w->c->d;
  }
}

/* ---- scores ---- */

/* Weights that the caller gives, in place of scores. */
static void load_given(const work *w, const block *b, int p, real *z) {
  const int64_t first = w->split * ATTN_SPLIT + p * ATTN_PANEL, end = w->h->key_start + w->h->lk;
  for (int r = 0; r < b->rows; r++) {
    const attn_row *row = w->rows + b->row + r;
    const int64_t n = clamp(end - first, 0, ATTN_PANEL);
    for (int64_t j = n; j < ATTN_PANEL; j++) z[r * PITCH + j] = 0;
    load_keys(w->h, &w->h->given, row->i, row->g, first, n, z + r * PITCH);
  }
}

/* A panel of keys: packed, or as it lies. */
typedef struct key_panel {
  const real *packed;
  rows_at rows;
  int keys; /* of the rows as they lie */
} key_panel;

/* Scores of panel p with the rows of a block, as far as one of them sees it. */
static real score_keys(const work *w, const block *b, int p, const key_panel *k, const real *scale, real *z,
                       real *top) {
  const real *q = w->q + b->row * w->c->d, *at[ATTN_BLOCK];
  const int reach = block_reach(b, p);
  if (!w->keys.few) return score_block(b->rows, q, k->packed, reach, w->c->d, scale, z, top);
  find_queries(w, b, at);
  if (k->packed)
    return score_few(b->rows, at, k->packed, panel_pitch(&w->keys, p), reach, w->c->d, scale, z, top);
  return score_rows(b->rows, at, &k->rows, k->keys, w->c->d, scale, z, top);
}

/* Hides the keys that a row does not see of panel p. */
static void trim_row(const work *w, const block *b, int r, int p, real *z, real *top) {
  const attn_row *row = w->rows + b->row + r;
  const int64_t j0 = w->split * ATTN_SPLIT + p * ATTN_PANEL;
  const vreal from = v_set1((real)clamp(row->low - j0, 0, ATTN_PANEL)),
              to = v_set1((real)clamp(row->high - j0, 0, ATTN_PANEL));
  vreal most = v_load(top);
  for (int j = 0; j < block_reach(b, p); j += LANES) {
    const vreal lane = v_add(v_iota(), v_set1((real)j));
    const vreal x = v_select(m_and(m_not(v_lt(lane, from)), v_lt(lane, to)), v_load(z + j), v_set1(-R_INF));
    most = v_max(x, most);
    v_store(z + j, x);
  }
  v_store(top, most);
}

static void score_panel(work *w, block *b, int64_t tile_row, int p, const key_panel *k) {
  real *z = w->z + tile_row * PITCH + p * ATTN_PANEL, *top = w->top + tile_row * LANES, scale[ATTN_BLOCK],
       unused[ATTN_BLOCK * LANES];
  for (int r = 0; r < ATTN_BLOCK; r++) scale[r] = w->rows[b->row + r].scale;
  const bool even = k->packed && !w->keys.few ? block_agrees(b, p)
                    : k->packed               ? block_is_even(b, p)
                                              : block_is_even(b, p) && block_reach(b, p) == k->keys;
  if (!w->has_score_mod && even) {
    if (score_keys(w, b, p, k, scale, z, top) > -R_INF) return;
  } else {
    for (int r = 0; r < ATTN_BLOCK; r++) v_store(unused + r * LANES, v_set1(0));
    if (w->h->given.data) load_given(w, b, p, z);
    else score_keys(w, b, p, k, scale, z, unused);
    for (int r = 0; r < b->rows; r++)
      if (!w->has_score_mod) trim_row(w, b, r, p, z + r * PITCH, top + r * LANES);
      else
        dress_row(w->c, w->h, w->rows + b->row + r, w->split * ATTN_SPLIT + p * ATTN_PANEL, z + r * PITCH,
                  top + r * LANES, NULL);
  }
  b->mixed |= 1u << p;
  if (finite_panel(&w->values, p)) return;
  const uint64_t there = ~UINT64_C(0) >> (ATTN_PANEL - block_reach(b, p));
  for (int r = 0; r < b->rows; r++)
    w->visible[(tile_row + r) * ATTN_PANELS + p] = visible_bits(z + r * PITCH) & there;
}

/* ---- weights ---- */

static void drop_row(const work *w, const attn_row *row, const weighing *one) {
  const int64_t n = one->to - one->from;
  const drop_pairs pairs = {w->h->stream + (uint64_t)row->g, row->at, one->first + one->from,
                            round_up(n, ATTN_PANEL), false};
  drop_mask(w->c, &pairs, w->keep);
  drop(w->keep, n, one->z + one->from);
  if (w->op->values > 1) drop(w->keep, n, one->second + one->from);
}

/* Scores to weights for one row of the tile, or to its statistic. What the weights are relative to
 * stays in the tile: it is read once it is no longer on its way to memory. */
static void weigh_row(work *w, tile *t, const block *b, int64_t r, bool stat) {
  attn_row *row = w->rows + t->first + r;
  weighing *one = t->ones + r;
  bool any;
  one->z = w->z + r * PITCH, one->second = w->second + (w->op->values > 1 ? r * PITCH : 0);
  one->from = (int)(b->low / ATTN_PANEL * ATTN_PANEL), one->to = (int)round_up(b->high, LANES);
  one->gain = 1;
  for (int i = 0; i < ATTN_SCALARS; i++) one->a[i] = 0;
  one->first = w->split * ATTN_SPLIT;
  one->top = v_hmax(v_load(w->top + r * LANES));
  any = one->top > -R_INF;
  for (int j = one->from; j < one->to && !any; j++) any = one->z[j] != one->z[j]; /* only NaN */
  if (!any) {
    for (int j = one->from; j < one->to; j++) one->z[j] = 0;
    for (int j = one->from; j < one->to && w->op->values > 1; j++) one->second[j] = 0;
    return;
  }
  if (one->top == -R_INF) one->top = 0;
  if (stat) {
    w->op->stat(w->c, row, one);
    return;
  }
  w->op->weigh(w->c, row, one);
  if (w->c->dropout > 0) drop_row(w, row, one);
  t->any[r] = true;
}

/* ---- the tile ---- */

void open_tile(const work *w, tile *t, int64_t first, int64_t rows) {
  int64_t start = w->split * ATTN_SPLIT;
  t->first = first, t->rows = rows, t->panels = 0;
  t->count = (int)((rows + ATTN_BLOCK - 1) / ATTN_BLOCK);
  memset(t->any, 0, sizeof t->any);
  for (int b = 0; b < t->count; b++) {
    block *own = t->blocks + b;
    start_block(own, first + b * ATTN_BLOCK, clamp(rows - b * ATTN_BLOCK, 0, ATTN_BLOCK), ATTN_SPLIT);
    for (const attn_row *row = w->rows + own->row; row < w->rows + own->row + own->rows; row++) {
      int64_t low = clamp(row->low - start, 0, ATTN_SPLIT);
      widen_block(own, low, clamp(row->high - start, low, ATTN_SPLIT));
    }
    const int seen = own->low < own->high ? (int)((own->high + ATTN_PANEL - 1) / ATTN_PANEL) : 0;
    if (seen > t->panels) t->panels = seen;
  }
}

void score_tile(work *w, tile *t) {
  for (int64_t r = 0; r < t->count * ATTN_BLOCK; r++) v_store(w->top + r * LANES, v_set1(-R_INF));
  for (int p = 0; p < t->panels; p++) {
    key_panel k = {0};
    bool there = w->h->given.data != NULL;
    look_ahead(w, &w->keys, p, &w->values, w->values.first);
    for (int b = 0; b < t->count; b++) {
      if (!block_sees(t->blocks + b, p)) continue;
      if (!there) {
        k.keys = w->alone ? panel_as_it_lies(&w->keys, p, &k.rows) : 0;
        if (k.keys < LANES) k.packed = packed_panel(&w->keys, p);
      }
      there = true;
      score_panel(w, t->blocks + b, b * ATTN_BLOCK, p, &k);
    }
  }
}

void weigh_tile(work *w, tile *t, bool stat) {
  for (int b = 0; b < t->count; b++) {
    const block *own = t->blocks + b;
    for (int r = 0; r < own->rows && own->low < own->high; r++)
      weigh_row(w, t, own, b * ATTN_BLOCK + r, stat);
  }
}

void sum_tile(work *w, const tile *t) {
  memset(w->o, 0, (size_t)(t->count * ATTN_BLOCK * w->width) * sizeof *w->o);
  for (int p = 0; p < t->panels; p++) {
    look_ahead(w, &w->values, p, &w->keys, w->keys.first + ATTN_SPLIT);
    for (int b = 0; b < t->count; b++) {
      if (!block_sees(t->blocks + b, p)) continue;
      const int64_t row = b * ATTN_BLOCK;
      const uint64_t *bits = w->visible + row * ATTN_PANELS;
      real *o = w->o + row * w->width;
      add_panel(t->blocks + b, &w->values, p, w->z + row * PITCH, bits, o, w->width);
      if (w->op->values > 1)
        add_panel(t->blocks + b, &w->values, p, w->second + row * PITCH, bits, o + w->values.padded,
                  w->width);
    }
  }
}
