/* attention/ops.c - the forward engine: tiles of rows against splits of keys, one pass, memory
 * O(L). Compiled once per instruction set and real type.
 *
 * A task is some rows of the query heads that share a key/value head. For each split of 1024 keys
 * it takes its rows a tile at a time: scores of the whole split, then weights (weights.h) relative
 * to the largest, then weights times values; what the split gives is folded into the row in
 * double. */
#include "dropout.h"
#include "engine.h"

/* The contribution of one split to one row. */
typedef struct part {
  bool any;
  attn_unit unit;
  double gain, a[ATTN_SCALARS];
} part;

/* Some rows of the task, in blocks, against one split. */
typedef struct tile {
  int64_t first, rows;
  int count;  /* of blocks */
  int panels; /* of the split, that some block sees, and those before it */
  block blocks[ATTN_TILE / ATTN_BLOCK];
  bool any[ATTN_TILE]; /* whether a row sees a key of the split; then */
  weighing ones[ATTN_TILE];
} tile;

/* Scratch memory of a task. */
typedef struct work {
  attn_task *t;
  const attn_call *c;
  const attn_head *h;
  const weigher *op;
  int64_t width;      /* columns of all channels of o */
  int64_t low, high;  /* rows of keys and values that some row of the task may see */
  ahead next;         /* what is prefetched, where few rows wait for memory */
  bool has_score_mod; /* scores need more than the scale */
  bool few;           /* all keys are in one panel */
  bool alone;         /* a block without others: its keys are packed only where they are very few */
  bool once;          /* one split with one channel: rows are stored as soon as its tile is done */
  attn_row *rows;
  double *sums; /* o of each row, `width` numbers each */
  panels keys, values;
  real *q, *buffer, *z, *second, *o, *top;
  real *keep; /* which weights of a row are not dropped */
  tile *tile;
  uint64_t *visible; /* ATTN_PANELS a row of the tile; made only beside values that are not finite */
  int64_t split;
} work;

/* Divides scratch memory into arrays; with NULL it only counts bytes. */
static size_t carve(work *w, char *base, const attn_call *c, int64_t rows) {
  int64_t all = round_up(rows, ATTN_BLOCK), high = all < ATTN_TILE ? all : ATTN_TILE,
          kept = rows > ATTN_TILE ? ATTN_PANELS : 1;
  size_t at = 0;
  w->c = c;
  w->op = SMX_FN(attn_weighers) + c->weights;
  w->keys.columns = c->d, w->values.columns = c->e;
  w->values.padded = round_up(c->e, LANES);
  w->keys.keep = w->values.keep = kept > 1;
  w->width = w->values.padded * w->op->values;
#define TAKE(field, count) \
  w->field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof *w->field * (count), 64);
  TAKE(rows, all)
  TAKE(sums, all * w->width)
  TAKE(q, all * c->d)
  TAKE(keys.packed, kept * ATTN_PANEL * c->d)
  TAKE(values.staged, kept * ATTN_PANEL * w->values.padded)
  TAKE(buffer, PACKED * ATTN_MAX_HEAD)
  TAKE(z, high * PITCH)
  TAKE(second, w->op->values > 1 ? high * PITCH : 0)
  TAKE(o, high * w->width)
  TAKE(top, high * LANES)
  TAKE(keep, c->dropout > 0 ? ATTN_SPLIT : 0)
  TAKE(tile, 1)
  TAKE(visible, high * ATTN_PANELS)
#undef TAKE
  w->keys.buffer = w->values.buffer = w->buffer;
  return at;
}

static size_t scratch_bytes(const attn_call *c, int64_t rows) {
  work w;
  return carve(&w, NULL, c, rows);
}

static void open_work(work *w, attn_task *t, void *scratch) {
  const attn_head *h = &t->head;
  *w = (work){.t = t, .h = h};
  carve(w, scratch, t->call, t->rows);
  w->has_score_mod = w->c->softcap > 0 || h->mask.data || h->bias.data || h->slopes.data || h->given.data;
  w->keys.m = h->k, w->values.m = h->v;
  w->keys.end = w->values.end = h->lk;
  if (h->table) w->keys.pages = w->values.pages = h, w->keys.page = h->k_page, w->values.page = h->v_page;
  w->few = h->lk <= ATTN_PANEL;
  w->alone = t->rows <= ATTN_BLOCK && w->c->d % COLUMNS == 0;
  w->keys.few = w->few || w->alone;
  w->once = t->splits == 1 && !t->states && w->op->values == 1;
  memset(w->rows, 0, (size_t)round_up(t->rows, ATTN_BLOCK) * sizeof *w->rows);
  for (int64_t r = 0, i = t->first / h->groups, g = t->first % h->groups; r < t->rows; r++) {
    fill_row(t->call, h, w->op, i, g, w->rows + r);
    if (++g == h->groups) g = 0, i++;
  }
  t->first_empty = -1;
  if (w->keys.keep) return;
  w->keys.next = w->values.next = &w->next;
  w->values.raw = true;
  w->low = h->lk;
  for (const attn_row *row = w->rows; row < w->rows + t->rows; row++) {
    if (row->low - h->key_start < w->low) w->low = row->low - h->key_start;
    if (row->high - h->key_start > w->high) w->high = row->high - h->key_start;
  }
}

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

static bool queries_lie(const work *w) { return w->h->q.stride == 1 && w->h->q.store == REAL_STORE; }
static const char *query_cell(const work *w, int64_t r) { return cell(&w->h->q, w->rows[r].i, w->rows[r].g); }

/* Queries in blocks; beside few keys row by row, where they cannot be read as they lie. */
static void pack_queries(work *w) {
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

/* ---- sums ---- */

/* o NULL: zeros. */
static void fold_part(const work *w, attn_row *row, double *sums, const part *p, const real *o) {
  double mine, its;
  if (!p->any) return;
  if (!row->any) {
    row->any = true, row->unit = p->unit, row->gain = p->gain;
    memcpy(row->a, p->a, sizeof row->a);
    if (o) start_sums(sums, o, w->width);
    else memset(sums, 0, (size_t)w->width * sizeof *sums);
    return;
  }
  align(&row->unit, p->unit, &mine, &its);
  mine *= row->gain, its *= p->gain;
  row->gain = 1;
  for (int i = 0; i < ATTN_SCALARS; i++) {
    double a = row->a[i], b = p->a[i];
    row->a[i] = w->op->scalar[i] == FOLD_SCALED  ? a * mine + b * its
                : w->op->scalar[i] == FOLD_PLAIN ? a + b
                : a > b                          ? a
                                                 : b;
  }
  if (o) fold_sums(sums, o, w->width, mine, its);
  for (int64_t i = 0; !o && i < w->width; i++) sums[i] *= mine;
}

/* A sink is a key of its own without a value, added after the last split. */
static void add_sink(const work *w, attn_row *row, double *sums, double score) {
  if (score == -(double)R_INF) return;
  bool far = score > (double)ATTN_FAR || score < -(double)ATTN_FAR;
  vreal k, e = v_exp_pair(v_set1(far ? 0 : (real)score), &k);
  part p = {.any = true, .unit = {(double)v_first(k), far ? score : 0}, .gain = 1, .a = {(double)v_first(e)}};
  fold_part(w, row, sums, &p, NULL);
}
static bool has_sinks(const work *w) { return w->h->sinks.data || w->op->constant; }
static void add_sinks(const work *w, attn_row *row, double *sums) {
  add_sink(w, row, sums, row->sink);
  if (w->op->constant) add_sink(w, row, sums, w->op->constant(w->c));
}

/* ---- output ---- */

/* Rounds row r to o, with its lse: its sums, or the only part of them. False: it sees nothing,
 * which is an error. */
static bool finish_row(work *w, int64_t r, const real *only, real *o, real *lse) {
  attn_row *row = w->rows + r;
  double *sums = w->sums + r * w->width;
  const int64_t n = w->values.padded;
  const bool seen = row->any;
  finished f = {.lse = -(double)R_INF, .silent = !w->h->lse.data};
  if (!seen && w->c->on_empty == SMX_EMPTY_ERROR) {
    if (w->t->first_empty < 0) w->t->first_empty = row->i * w->h->groups + row->g;
    return false;
  }
  if (has_sinks(w)) {
    if (only && seen) start_sums(sums, only, w->width);
    add_sinks(w, row, sums), only = NULL;
  }
  if (row->any) w->op->finish(w->c, row, &f);
  for (int64_t i = 0; i < n && seen && w->op->values > 1; i++)
    sums[i] = sums[i] * f.factor[0] + sums[n + i] * f.factor[1];
  if (seen && only) round_part(only, o, n, f.factor[0]);
  else if (seen) round_sums(sums, o, n, w->op->values > 1 ? 1 : f.factor[0]);
  for (int64_t i = 0; i < n && (!seen || f.lse != f.lse); i++)
    o[i] = seen || w->c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0;
  *lse = v_first(v_clean(v_set1((real)f.lse)));
  return true;
}

/* Some rows are rounded before the first is stored, because what was just written in parts is slow
 * to read as a whole. */
static void store_rows(work *w, int64_t from, int64_t to) {
  const attn_head *h = w->h;
  for (int64_t first = from; first < to; first += PACKED) {
    const int64_t rows = clamp(to - first, 0, PACKED);
    real lse[PACKED], *o = w->buffer;
    bool there[PACKED];
    for (int64_t r = 0; r < rows; r++) {
      const real *only = w->once ? w->o + (first - from + r) * w->width : NULL;
      there[r] = finish_row(w, first + r, only, o + r * w->values.padded, lse + r);
    }
    for (int64_t r = 0; r < rows; r++) {
      const attn_row *row = w->rows + first + r;
      if (!there[r]) continue;
      store_clean(&h->o, row->i, row->g, o + r * w->values.padded, w->c->e);
      if (h->lse.data) dtype_store((row_store)h->lse.store, lse + r, 1, cell(&h->lse, row->i, row->g), 1);
    }
  }
}

/* ---- a tile and a split ---- */

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

/* What row r of the tile got from the split. */
static void part_of(const tile *t, int64_t r, part *p) {
  const weighing *one = t->ones + r;
  p->any = t->any[r];
  if (!p->any) return;
  p->unit.scale_exp = (double)one->scale_exp, p->unit.shift = (double)one->shift, p->gain = (double)one->gain;
  for (int i = 0; i < ATTN_SCALARS; i++) p->a[i] = (double)one->a[i];
}

/* The same into a row that has no other part. */
static void take_part(const tile *t, int64_t r, attn_row *row) {
  const weighing *one = t->ones + r;
  row->any = t->any[r];
  if (!row->any) return;
  row->unit.scale_exp = (double)one->scale_exp, row->unit.shift = (double)one->shift;
  row->gain = (double)one->gain;
  for (int i = 0; i < ATTN_SCALARS; i++) row->a[i] = (double)one->a[i];
}

/* Folds the contribution of a split into the row, or stores it in t->states. */
static void keep_part(work *w, const tile *own, int64_t r, const real *o) {
  const attn_task *t = w->t;
  attn_row *row = w->rows + own->first + r;
  part p_, *p = &p_;
  part_of(own, r, p);
  if (!t->states) {
    fold_part(w, row, w->sums + (own->first + r) * w->width, p, o);
    return;
  }
  real *state = (real *)t->states + row->i * t->state_rows + row->g * t->state_heads +
                (w->split - t->split) * t->state_step;
  memset(state, 0, ATTN_STATE_HEAD * sizeof *state);
  state[0] = p->any;
  if (!p->any) {
    memset(state + ATTN_STATE_HEAD, 0, (size_t)w->width * sizeof *state);
    return;
  }
  state[1] = (real)p->unit.scale_exp, state[2] = (real)p->unit.shift, state[3] = (real)p->gain;
  for (int i = 0; i < ATTN_SCALARS; i++) state[4 + i] = (real)p->a[i];
  memcpy(state + ATTN_STATE_HEAD, o, (size_t)w->width * sizeof *state);
}

static void open_tile(const work *w, tile *t, int64_t first, int64_t rows) {
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

static void score_tile(work *w, tile *t) {
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

static void weigh_tile(work *w, tile *t, bool stat) {
  for (int b = 0; b < t->count; b++) {
    const block *own = t->blocks + b;
    for (int r = 0; r < own->rows && own->low < own->high; r++)
      weigh_row(w, t, own, b * ATTN_BLOCK + r, stat);
  }
}

static void sum_tile(work *w, const tile *t) {
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

/* Stores the scores or weights of one row and split. Keys that no block has computed are hidden. */
static void write_row(work *w, const tile *t, int64_t r) {
  const block *b = t->blocks + r / ATTN_BLOCK;
  const attn_row *row = w->rows + t->first + r;
  const int64_t start = w->split * ATTN_SPLIT - w->h->key_start,
                n = clamp(w->t->columns - start, 0, ATTN_SPLIT);
  const int64_t from = b->low / ATTN_PANEL * ATTN_PANEL, to = round_up(b->high, LANES);
  const bool weights = w->t->weights, two = w->op->values > 1;
  real *z = w->z + r * PITCH, *second = w->second + (two ? r * PITCH : 0);
  attn_rows m = w->h->scores;
  finished f = {.silent = true};
  double mine = 1, its = 1;
  if (weights && row->any) w->op->finish(w->c, row, &f);
  part own;
  part_of(t, r, &own);
  if (own.any) {
    attn_unit unit = row->unit; /* the largest of all splits */
    align(&unit, own.unit, &mine, &its);
    its *= own.gain / row->gain;
  }
  const bool bad = f.lse != f.lse || (weights && !row->any && w->c->on_empty == SMX_EMPTY_NAN);
  for (int64_t j = 0; j < n; j++) {
    if (j < from || j >= to) z[j] = weights ? 0 : -R_INF;
    else if (weights)
      z[j] = (real)((double)z[j] * (f.factor[0] * its) + (two ? (double)second[j] * (f.factor[1] * its) : 0));
    if (bad) z[j] = r_nan();
  }
  m.data += start * m.stride * store_bytes(m.store);
  store_clean(&m, row->i, row->g, z, n);
}

/* What is computed from the splits. */
typedef enum goal { STATISTIC, SUMS, NORMALISER, SCORES } goal;

static void tile_split(work *w, int64_t first, int64_t rows, goal what) {
  tile *const t = w->tile;
  open_tile(w, t, first, rows);
  score_tile(w, t);
  if (what != SCORES || w->t->weights) weigh_tile(w, t, what == STATISTIC);
  if (what == STATISTIC) return;
  if (what == SUMS) sum_tile(w, t);
  for (int64_t r = 0; r < rows; r++) {
    if (what == SCORES) write_row(w, t, r);
    else if (what == SUMS && w->once) take_part(t, r, w->rows + first + r);
    else keep_part(w, t, r, what == SUMS ? w->o + r * w->width : NULL);
  }
  if (what == SUMS && w->once) store_rows(w, first, first + rows);
}

static void each_split(work *w, goal what) {
  const attn_task *t = w->t;
  for (w->split = t->split; w->split < t->split + t->splits; w->split++) {
    panels_at(&w->keys, w->split * ATTN_SPLIT - w->h->key_start);
    panels_at(&w->values, w->split * ATTN_SPLIT - w->h->key_start);
    for (int64_t r = 0; r < t->rows; r += ATTN_TILE) tile_split(w, r, clamp(t->rows - r, 0, ATTN_TILE), what);
  }
}

static void forward(attn_task *t, void *scratch) {
  work w;
  open_work(&w, t, scratch);
  if (!w.h->given.data) pack_queries(&w);
  if (w.op->stat) each_split(&w, STATISTIC);
  each_split(&w, SUMS);
  if (!t->states && !w.once) store_rows(&w, 0, t->rows);
}

static void merge(attn_task *t, void *scratch) {
  work w;
  open_work(&w, t, scratch);
  for (int64_t r = 0; r < t->rows; r++) {
    attn_row *row = w.rows + r;
    for (int64_t s = 0; s < t->splits; s++) {
      const real *state =
          (const real *)t->states + row->i * t->state_rows + row->g * t->state_heads + s * t->state_step;
      part p = {.any = state[0] != 0, .unit = {(double)state[1], (double)state[2]}, .gain = (double)state[3]};
      for (int i = 0; i < ATTN_SCALARS; i++) p.a[i] = (double)state[4 + i];
      fold_part(&w, row, w.sums + r * w.width, &p, state + ATTN_STATE_HEAD);
    }
  }
  store_rows(&w, 0, t->rows);
}

static void scores(attn_task *t, void *scratch) {
  work w;
  open_work(&w, t, scratch);
  pack_queries(&w);
  if (t->weights && w.op->stat) each_split(&w, STATISTIC);
  if (t->weights) each_split(&w, NORMALISER);
  for (int64_t r = 0; r < t->rows && t->weights; r++) {
    attn_row *row = w.rows + r;
    if (row->any) add_sinks(&w, row, w.sums + r * w.width);
    else if (w.c->on_empty == SMX_EMPTY_ERROR && t->first_empty < 0) t->first_empty = t->first + r;
  }
  each_split(&w, SCORES);
}

static void store(const attn_rows *to, const double *sums, int64_t n, void *scratch) {
  round_sums(sums, scratch, round_up(n, LANES), 1);
  store_clean(to, 0, 0, scratch, n);
}

static void drop_weights(const attn_call *c, uint64_t stream, int64_t at, int64_t key, int64_t n, void *row) {
  enum { SOME = 4 * ATTN_PANEL };
  real keep[SOME];
  for (int64_t j = 0; j < n; j += SOME) {
    const int64_t some = clamp(n - j, 0, SOME);
    drop_mask(c, &(drop_pairs){stream, at, key + j, round_up(some, ATTN_PANEL), false}, keep);
    drop(keep, some, (real *)row + j);
  }
}

extern const attention_grads SMX_FN(attention_grads);
extern const attention_tropical SMX_FN(attention_tropical);
extern const attention_additive SMX_FN(attention_additive);
void SMX_FN(attention_rotate)(const attn_rotate *t);
void SMX_FN(attention_frequencies)(double base, int64_t pairs, double *out);
const attention_kernels SMX_FN(attention_kernels) = {
    .scratch = scratch_bytes,
    .forward = forward,
    .merge = merge,
    .scores = scores,
    .store = store,
    .drop = drop_weights,
    .rotate = SMX_FN(attention_rotate),
    .frequencies = SMX_FN(attention_frequencies),
    .grads = &SMX_FN(attention_grads),
    .tropical = &SMX_FN(attention_tropical),
    .additive = &SMX_FN(attention_additive),
};
