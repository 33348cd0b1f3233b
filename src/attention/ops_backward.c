/* attention/ops_backward.c - the backward engine. Either two independent passes with recomputed
 * scores, one for the gradients of queries and one for those of keys and values; or all gradients
 * in the second pass, which then covers a whole head. Compiled once per instruction set and real
 * type.
 *
 *     dq_i = sum_j ds_ij k_j      over keys in order, splits of 1024 keys folded in double
 *     dv_j = sum_i w_ij do_i      over query heads in order, within a head over rows in order,
 *     dk_j = sum_i ds_ij q_i      blocks of 256 rows folded in double
 *
 * With dropout, <do, v> and w are multiplied by its mask. ds is the gradient of <q, k>: the
 * gradient of the score (weights.h, grad) times the derivative of the cap and the scale. The second
 * pass has keys in place of rows; its scores have the bits of the first pass, because products and
 * their order are the same. dq from the second pass has the same bits too: its terms are added in
 * the order of keys, because tiles of keys are. */
#include "dropout.h"
#include "engine.h"

enum {
  ROWS = 256, /* of a block of rows */
  ROW_PANELS = ROWS / ATTN_PANEL,
  STAT_LSE = 0, /* of a row: what t->head.stats holds */
  STAT_DELTA = 1,
  STAT_SCALE = 2
};

/* What a block of rows of one query head consists of. */
typedef struct row_block {
  int64_t g, first, rows;
  real lse[ROWS], delta[ROWS], scale[ROWS];
} row_block;

typedef struct work {
  attn_task *t;
  const attn_call *c;
  const attn_head *h;
  const weigher *op;
  panels a, b; /* keys and values; in the second walk queries and gradients of o */
  panels keys; /* of the tile, where the second walk has the gradients of queries too */
  attn_row *rows;
  double *sums, *sums_b;
  real *q, *g; /* packed rows of the task: queries and gradients of o; in the second walk keys and values */
  real *z, *dp, *bend, *o, *o_b, *buffer;
  real *keep;       /* which weights of a row, or of a key, are not dropped */
  row_block *block; /* of the second walk */
  double *dq_sums;  /* gradients of all queries of the head: over the splits before, */
  real *dq;         /* and over this one */
  uint64_t *visible;
  bool together;      /* the second walk has the gradients of queries too; */
  bool finite;        /* the keys of its tile are numbers that a weight of 0 makes 0 */
  bool has_score_mod; /* scores need more than the scale */
} work;

/* Rows of dq: whole panels of each query head. */
static int64_t dq_rows(const attn_head *h) { return h->groups * round_up(h->lq, ATTN_PANEL); }

/* together: the head whose dq the second pass computes too, or NULL. Its keys are loaded even if it
 * has no queries. */
static size_t carve(work *w, char *base, const attn_call *c, int64_t rows, const attn_head *together) {
  const int64_t queries = together ? dq_rows(together) : 0;
  int64_t all = round_up(rows, ATTN_BLOCK), tile = all < ATTN_KEYS ? all : ATTN_KEYS;
  size_t at = 0;
  w->c = c;
  w->op = SMX_FN(attn_weighers) + c->weights;
  w->a.columns = w->keys.columns = c->d, w->b.columns = c->e;
  w->a.padded = w->keys.padded = round_up(c->d, LANES), w->b.padded = round_up(c->e, LANES);
  w->a.keep = w->b.keep = w->keys.keep = true;
  w->together = together != NULL;
#define TAKE(field, count) \
  w->field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof *w->field * (count), 64);
  TAKE(rows, all)
  TAKE(sums, all * w->a.padded)
  TAKE(sums_b, all * w->b.padded)
  TAKE(q, all * c->d)
  TAKE(g, all * c->e)
  TAKE(a.packed, ATTN_SPLIT * c->d)
  TAKE(a.staged, ATTN_SPLIT * w->a.padded)
  TAKE(b.packed, ATTN_SPLIT * c->e)
  TAKE(b.staged, ATTN_SPLIT * w->b.padded)
  TAKE(buffer, PACKED * ATTN_MAX_HEAD)
  TAKE(z, tile * PITCH)
  TAKE(dp, tile * PITCH)
  TAKE(bend, c->softcap > 0 ? tile * PITCH : 0)
  TAKE(keep, c->dropout > 0 ? ATTN_SPLIT : 0)
  TAKE(block, 1)
  TAKE(o, tile * w->a.padded)
  TAKE(o_b, tile * w->b.padded)
  TAKE(visible, tile * ATTN_PANELS)
  TAKE(keys.staged, together ? ATTN_KEYS * w->keys.padded : 0)
  TAKE(dq, queries * w->keys.padded)
  TAKE(dq_sums, queries * w->keys.padded)
#undef TAKE
  w->a.buffer = w->b.buffer = w->keys.buffer = w->buffer;
  return at;
}

static size_t grad_scratch(const attn_call *c, int64_t rows) {
  work w;
  return carve(&w, NULL, c, rows, NULL);
}
static size_t all_scratch(const attn_call *c, const attn_head *h) {
  work w;
  return carve(&w, NULL, c, ATTN_KEYS, h);
}

static bool needs_dress(const attn_call *c, const attn_head *h) {
  return c->softcap > 0 || h->mask.data || h->bias.data || h->slopes.data;
}

static real *stats_of(const attn_head *h, int64_t i, int64_t g) {
  return (real *)(void *)cell(&h->stats, i, g);
}

static void store_sums(work *w, const double *sums, int64_t columns, const attn_rows *m, int64_t i,
                       int64_t g) {
  round_sums(sums, w->buffer, round_up(columns, LANES), 1);
  store_clean(m, i, g, w->buffer, columns);
}

/* ---- lse, <do, o> - dlse and scale of each row ---- */

/* The part of a row in the gradient of its sink: -p delta, p = e^(sink - lse) */
static void store_sink(const attn_head *h, const attn_row *row, real lse, double delta) {
  double part = row->sink == -(double)R_INF ? 0 : -d_exp(row->sink - (double)lse) * delta;
  memcpy(cell(&h->d_sink, row->i, row->g), &part, sizeof part);
}

static void prepare(attn_task *t, void *scratch) {
  const attn_head *h = &t->head;
  real *a = scratch, *b = a + ATTN_MAX_HEAD, lse, dlse = 0;
  for (int64_t r = t->first; r < t->first + t->rows; r++) {
    attn_row row = open_row(t->call, h, SMX_FN(attn_weighers) + t->call->weights, r);
    double delta = 0;
    const real *x = row_reals(&h->d_o, cell(&h->d_o, row.i, row.g), t->call->e, a);
    const real *y = row_reals(&h->o, cell(&h->o, row.i, row.g), t->call->e, b);
    for (int64_t i = 0; i < t->call->e; i++) delta += (double)x[i] * (double)y[i];
    dtype_load((row_store)h->lse.store, cell(&h->lse, row.i, row.g), 1, 1, &lse);
    if (h->d_lse.data) dtype_load((row_store)h->d_lse.store, cell(&h->d_lse, row.i, row.g), 1, 1, &dlse);
    real *s = stats_of(h, row.i, row.g);
    s[STAT_LSE] = lse, s[STAT_DELTA] = (real)(delta - (double)dlse), s[STAT_SCALE] = row.scale;
    if (h->d_sink.data) store_sink(h, &row, lse, delta - (double)dlse);
  }
}

/* ---- shared by both walks ---- */

/* Weights and gradients of scores, then, for those of queries and keys, of products: dp times the
 * derivative of the cap and the scale of the row. pairs: those of the block of scores from its
 * start. */
static void grade(const work *w, int64_t tile_row, const block *b, const real *stats[3], drop_pairs pairs) {
  const bool vary = pairs.vary, drops = w->c->dropout > 0;
  int from = (int)(b->low / ATTN_PANEL * ATTN_PANEL), n = (int)round_up(b->high, ATTN_PANEL) - from;
  int64_t at = tile_row * PITCH + from;
  grading g = {.z = w->z + at, .dp = w->dp + at, .n = n, .vary = vary};
  g.lse = stats[STAT_LSE] + (vary ? from : 0), g.delta = stats[STAT_DELTA] + (vary ? from : 0);
  if (drops) {
    pairs.n = n, pairs.at += vary ? from : 0, pairs.key += vary ? 0 : from;
    drop_mask(w->c, &pairs, w->keep);
    drop(w->keep, n, g.dp);
  }
  w->op->grad(w->c, &g);
  if (drops) drop(w->keep, n, g.z);
  if (w->h->scores.data) return; /* the gradients of the scores themselves are wanted */
  for (int j = 0; j < n; j += LANES) {
    vreal ds = v_load(g.dp + j),
          scale = vary ? v_load(stats[STAT_SCALE] + from + j) : v_set1(*stats[STAT_SCALE]);
    if (w->c->softcap > 0) ds = v_select(v_eq(ds, v_set1(0)), ds, v_mul(ds, v_load(w->bend + at + j)));
    v_store(g.dp + j, v_mul(ds, scale));
  }
}

static void mark_mixed(work *w, block *b, int64_t tile_row, int p, bool with_b) {
  b->mixed |= 1u << p;
  bool finite = finite_panel(&w->a, p);
  if (with_b) finite &= finite_panel(&w->b, p);
  if (w->together) finite &= w->finite;
  for (int r = 0; r < b->rows && !finite; r++)
    w->visible[(tile_row + r) * ATTN_PANELS + p] =
        visible_bits(w->z + (tile_row + r) * PITCH + p * ATTN_PANEL);
}

static const real ones[ATTN_BLOCK] = {1, 1, 1, 1, 1, 1};

/* <do, v> of a block with a panel */
static void score_grad(const work *w, const block *b, int64_t tile_row, int p, const real *packed) {
  real unused[ATTN_BLOCK * LANES] = {0};
  score_block(b->rows, w->g + b->row * w->c->e, packed, block_reach(b, p), w->c->e, ones,
              w->dp + tile_row * PITCH + p * ATTN_PANEL, unused);
}

/* ---- first walk: rows against splits of keys ---- */

static void score_queries(work *w, block *b, int64_t tile_row, int p, int64_t split) {
  real *z = w->z + tile_row * PITCH + p * ATTN_PANEL, scale[ATTN_BLOCK], unused[ATTN_BLOCK * LANES] = {0};
  for (int r = 0; r < ATTN_BLOCK; r++) scale[r] = w->rows[b->row + r].scale;
  real low = score_block(b->rows, w->q + b->row * w->c->d, packed_panel(&w->a, p), block_reach(b, p), w->c->d,
                         scale, z, unused);
  bool plain = !w->has_score_mod && low > -R_INF && block_agrees(b, p);
  for (int r = 0; r < b->rows && !plain; r++) {
    real *bend = w->c->softcap > 0 ? w->bend + (tile_row + r) * PITCH + p * ATTN_PANEL : NULL;
    dress_row(w->c, w->h, w->rows + b->row + r, split * ATTN_SPLIT + p * ATTN_PANEL, z + r * PITCH, NULL,
              bend);
  }
  if (!plain) mark_mixed(w, b, tile_row, p, false);
  score_grad(w, b, tile_row, p, packed_panel(&w->b, p));
}

/* Stores the gradients of the scores of one row and split, for bias, slopes and sinks. Keys that no
 * block has computed have gradient 0. */
static void write_grads(work *w, const block *b, int r, int64_t tile_row, int64_t split) {
  const attn_row *row = w->rows + b->row + r;
  const int64_t start = split * ATTN_SPLIT - w->h->key_start, n = clamp(w->t->columns - start, 0, ATTN_SPLIT);
  const int64_t from = b->low / ATTN_PANEL * ATTN_PANEL, to = round_up(b->high, ATTN_PANEL);
  real *dz = w->dp + (tile_row + r) * PITCH;
  attn_rows m = w->h->scores;
  for (int64_t j = 0; j < n; j++) dz[j] = j < from || j >= to ? 0 : dz[j];
  m.data += start * m.stride * store_bytes(m.store);
  store_clean(&m, row->i, row->g, dz, n);
}

static void query_tile(work *w, int64_t tile, int64_t tile_rows, int64_t split) {
  block blocks[ATTN_TILE / ATTN_BLOCK];
  int count = (int)((tile_rows + ATTN_BLOCK - 1) / ATTN_BLOCK);
  for (int i = 0; i < count; i++) {
    int64_t first = tile + i * ATTN_BLOCK, rows = clamp(tile + tile_rows - first, 0, ATTN_BLOCK);
    blocks[i] = open_block(first, rows, ATTN_SPLIT);
    for (int64_t r = first; r < first + rows; r++) {
      int64_t low = clamp(w->rows[r].low - split * ATTN_SPLIT, 0, ATTN_SPLIT);
      widen_block(blocks + i, low, clamp(w->rows[r].high - split * ATTN_SPLIT, low, ATTN_SPLIT));
    }
  }
  for (int p = 0; p < ATTN_PANELS; p++)
    for (int i = 0; i < count; i++)
      if (block_sees(blocks + i, p)) score_queries(w, blocks + i, i * ATTN_BLOCK, p, split);
  for (int i = 0; i < count; i++)
    for (int r = 0; r < blocks[i].rows && blocks[i].low < blocks[i].high; r++) {
      const attn_row *row = w->rows + blocks[i].row + r;
      const real *s = stats_of(w->h, row->i, row->g),
                 *stats[] = {s + STAT_LSE, s + STAT_DELTA, s + STAT_SCALE};
      const drop_pairs pairs = {
          .stream = w->h->stream + (uint64_t)row->g, .at = row->at, .key = split * ATTN_SPLIT};
      grade(w, i * ATTN_BLOCK + r, blocks + i, stats, pairs);
    }
  if (w->h->scores.data) {
    for (int i = 0; i < count; i++)
      for (int r = 0; r < blocks[i].rows; r++) write_grads(w, blocks + i, r, i * ATTN_BLOCK, split);
    return;
  }
  memset(w->o, 0, (size_t)(count * ATTN_BLOCK * w->a.padded) * sizeof *w->o);
  for (int p = 0; p < ATTN_PANELS; p++)
    for (int i = 0; i < count; i++) {
      int64_t row = i * ATTN_BLOCK;
      if (block_sees(blocks + i, p))
        add_panel(blocks + i, &w->a, p, w->dp + row * PITCH, w->visible + row * ATTN_PANELS,
                  w->o + row * w->a.padded, w->a.padded);
    }
  fold_sums(w->sums + tile * w->a.padded, w->o, tile_rows * w->a.padded, 1, 1);
}

static void grad_queries(attn_task *t, void *scratch) {
  work work_ = {.t = t, .h = &t->head, .has_score_mod = needs_dress(t->call, &t->head)}, *w = &work_;
  carve(w, scratch, t->call, t->rows, NULL);
  w->a.m = t->head.k, w->b.m = t->head.v;
  w->a.end = w->b.end = t->head.lk;
  for (int64_t r = 0; r < round_up(t->rows, ATTN_BLOCK); r++) {
    int64_t at = r / ATTN_BLOCK * ATTN_BLOCK, lane = r % ATTN_BLOCK;
    attn_row *row = w->rows + r;
    *row = r < t->rows ? open_row(t->call, w->h, w->op, t->first + r) : (attn_row){0};
    pack_row(&w->h->q, r < t->rows ? cell(&w->h->q, row->i, row->g) : NULL, w->c->d,
             w->q + at * w->c->d + lane, w->buffer);
    pack_row(&w->h->d_o, r < t->rows ? cell(&w->h->d_o, row->i, row->g) : NULL, w->c->e,
             w->g + at * w->c->e + lane, w->buffer);
  }
  for (int64_t i = 0; i < t->rows * w->a.padded; i++) w->sums[i] = 0;
  for (int64_t s = t->split; s < t->split + t->splits; s++) {
    panels_at(&w->a, s * ATTN_SPLIT - w->h->key_start);
    panels_at(&w->b, s * ATTN_SPLIT - w->h->key_start);
    for (int64_t r = 0; r < t->rows; r += ATTN_TILE) query_tile(w, r, clamp(t->rows - r, 0, ATTN_TILE), s);
  }
  for (int64_t r = 0; r < t->rows && w->h->dq.data; r++)
    store_sums(w, w->sums + r * w->a.padded, w->c->d, &w->h->dq, w->rows[r].i, w->rows[r].g);
}

/* ---- second walk: keys against blocks of rows ---- */

static void load_rows(const attn_rows *m, int64_t g, int64_t i, int64_t count, int64_t key, real *out) {
  int64_t bytes = store_bytes(m->store);
  if (count > 0)
    dtype_load((row_store)m->store, cell(m, i, g) + key * m->stride * bytes, m->step / bytes, (size_t)count,
               out);
}

/* The scores of one key with a panel of rows. */
static void dress_key(const work *w, const row_block *n, int64_t key, int p, real *z, real *bend) {
  const attn_head *h = w->h;
  int64_t i0 = n->first + p * ATTN_PANEL, j = h->key_start + key;
  sight s = key < h->lk ? key_sight(w->c, h, j) : (sight){0, 0};
  dressing d = {.z = z, .bend = bend, .slope = h->slopes.data ? head_value(&h->slopes, n->g) : 0, .step = 1};
  d.from = clamp(s.low - i0, 0, ATTN_PANEL), d.to = clamp(s.high - i0, d.from, ATTN_PANEL);
  d.distance = (real)(i0 + h->offset - j);
  if (h->mask.data) load_rows(&h->mask, n->g, i0 + d.from, d.to - d.from, key, d.keep + d.from);
  if (h->bias.data) load_rows(&h->bias, n->g, i0 + d.from, d.to - d.from, key, d.bias + d.from);
  dress(w->c, h, &d);
}

/* Products times the scale of their rows; returns the smallest. */
static real scale_key(const row_block *n, int p, real *z) {
  vreal low = v_set1(R_INF);
  for (int u = 0; u < ATTN_PANEL; u += LANES) {
    vreal x = v_mul(v_load(z + u), v_load(n->scale + p * ATTN_PANEL + u));
    low = v_min(x, low);
    v_store(z + u, x);
  }
  return v_hmin(low);
}

static void score_keys(work *w, const row_block *n, block *b, int p) {
  real *z = w->z + b->row * PITCH + p * ATTN_PANEL, unused[ATTN_BLOCK * LANES] = {0};
  bool plain = !w->has_score_mod && block_agrees(b, p);
  score_block(b->rows, w->q + b->row * w->c->d, packed_panel(&w->a, p), ATTN_PANEL, w->c->d, ones, z, unused);
  for (int r = 0; r < b->rows; r++) plain &= scale_key(n, p, z + r * PITCH) > -R_INF;
  for (int r = 0; r < b->rows && !plain; r++) {
    real *bend = w->c->softcap > 0 ? w->bend + (b->row + r) * PITCH + p * ATTN_PANEL : NULL;
    dress_key(w, n, w->t->first + b->row + r, p, z + r * PITCH, bend);
  }
  if (!plain) mark_mixed(w, b, b->row, p, true);
  score_grad(w, b, b->row, p, packed_panel(&w->b, p));
}

/* Where the terms of some rows of dq come from: rows `first` and on of a panel of rows, keys from
 * .. to - 1 of a panel of keys. */
typedef struct dq_part {
  int panel, key_panel, first, from, to;
  real *dq;
} dq_part;

/* 6 or 4 rows; beyond the last of the head all gradients of scores are 0. */
static void add_part(work *w, const dq_part *x) {
  const int64_t padded = w->keys.padded;
  const rows_at k = rows_from(row_panel(&w->keys, x->key_panel), x->from);
  const real *ds = w->dp + (x->key_panel * ATTN_PANEL + x->from) * PITCH + x->panel * ATTN_PANEL + x->first;
  if (x->first + ATTN_BLOCK <= ATTN_PANEL)
    values_rows(6, REAL_STORE, false, ds, BY_KEYS, &k, x->to - x->from, x->dq, padded, padded);
  else values_rows(4, REAL_STORE, false, ds, BY_KEYS, &k, x->to - x->from, x->dq, padded, padded);
}

/* The same pair by pair, those that are visible. */
static void add_visible(work *w, const dq_part *x, const block *blocks) {
  const int64_t padded = w->keys.padded;
  const rows_at *rows = row_panel(&w->keys, x->key_panel);
  for (int j = x->from; j < x->to; j++) {
    const int64_t key = x->key_panel * ATTN_PANEL + j;
    const bool mixed = blocks[key / ATTN_BLOCK].mixed >> x->panel & 1;
    const uint64_t bits = mixed ? w->visible[key * ATTN_PANELS + x->panel] : ~(uint64_t)0;
    const real *ds = w->dp + key * PITCH + x->panel * ATTN_PANEL;
    const rows_at k = rows_from(rows, j);
    for (int r = x->first; r < x->first + ATTN_BLOCK && r < ATTN_PANEL; r++)
      if (bits >> r & 1) values_block(1, ds + r, &k, 1, x->dq + (r - x->first) * padded, padded, padded);
  }
}

/* dq of a block of rows: their pairs with the keys of the tile, a panel of keys at a time. */
static void add_queries(work *w, const row_block *n, const block *blocks) {
  const attn_head *h = w->h;
  real *dq = w->dq + (n->g * round_up(h->lq, ATTN_PANEL) + n->first) * w->keys.padded;
  for (int p = 0; p * ATTN_PANEL < w->t->rows; p++)
    for (int64_t r = 0, step; r < n->rows; r += step) {
      /* rows of one panel: what it does not see is not there */
      step = clamp(ATTN_PANEL - r % ATTN_PANEL, 0, ATTN_BLOCK);
      const int64_t first = h->key_start + w->t->first + p * ATTN_PANEL,
                    last = clamp(r + step, 0, n->rows) - 1;
      const int64_t most = clamp(w->t->rows - p * ATTN_PANEL, 0, ATTN_PANEL);
      dq_part x = {.panel = (int)(r / ATTN_PANEL),
                   .key_panel = p,
                   .first = (int)(r % ATTN_PANEL),
                   .dq = dq + r * w->keys.padded};
      x.from = (int)clamp(row_sight(w->c, h, n->first + r).low - first, 0, most);
      x.to = (int)clamp(row_sight(w->c, h, n->first + last).high - first, x.from, most);
      if (w->finite) add_part(w, &x);
      else add_visible(w, &x, blocks);
    }
}

static void key_tile(work *w, const row_block *n) {
  const real *stats[] = {n->lse, n->delta, n->scale};
  block blocks[ATTN_KEYS / ATTN_BLOCK];
  int count = (int)((w->t->rows + ATTN_BLOCK - 1) / ATTN_BLOCK);
  bool any = false;
  for (int i = 0; i < count; i++) {
    int64_t first = i * ATTN_BLOCK, rows = clamp(w->t->rows - first, 0, ATTN_BLOCK);
    blocks[i] = open_block(first, rows, ROWS);
    for (int64_t key = w->t->first + first; key < w->t->first + first + rows; key++) {
      sight s = key < w->h->lk ? key_sight(w->c, w->h, w->h->key_start + key) : (sight){0, 0};
      int64_t low = clamp(s.low - n->first, 0, n->rows);
      widen_block(blocks + i, low, clamp(s.high - n->first, low, n->rows));
    }
    any |= blocks[i].low < blocks[i].high;
  }
  if (!any) return;
  for (int p = 0; p < ROW_PANELS; p++)
    for (int i = 0; i < count; i++)
      if (block_sees(blocks + i, p)) score_keys(w, n, blocks + i, p);
  for (int i = 0; i < count; i++)
    for (int r = 0; r < blocks[i].rows && blocks[i].low < blocks[i].high; r++) {
      const int64_t row = blocks[i].row + r, key = w->h->key_start + w->t->first + row;
      const drop_pairs pairs = {w->h->stream + (uint64_t)n->g, n->first + w->h->offset, key, 0, true};
      grade(w, row, blocks + i, stats, pairs);
    }
  memset(w->o, 0, (size_t)(count * ATTN_BLOCK * w->a.padded) * sizeof *w->o);
  memset(w->o_b, 0, (size_t)(count * ATTN_BLOCK * w->b.padded) * sizeof *w->o_b);
  for (int p = 0; p < ROW_PANELS; p++)
    for (int i = 0; i < count; i++) {
      const block *b = blocks + i;
      if (!block_sees(b, p)) continue;
      const uint64_t *bits = w->visible + b->row * ATTN_PANELS;
      add_panel(b, &w->a, p, w->dp + b->row * PITCH, bits, w->o + b->row * w->a.padded, w->a.padded);
      add_panel(b, &w->b, p, w->z + b->row * PITCH, bits, w->o_b + b->row * w->b.padded, w->b.padded);
    }
  fold_sums(w->sums, w->o, w->t->rows * w->a.padded, 1, 1);
  fold_sums(w->sums_b, w->o_b, w->t->rows * w->b.padded, 1, 1);
  if (w->together) add_queries(w, n, blocks);
}

static void rows_against_keys(work *w, int64_t g, int64_t first) {
  const attn_head *h = w->h;
  row_block *const n = w->block;
  n->g = g, n->first = first, n->rows = clamp(h->lq - first, 0, ROWS);
  for (int64_t i = 0; i < n->rows; i++) {
    const real *s = stats_of(h, first + i, g);
    n->lse[i] = s[STAT_LSE], n->delta[i] = s[STAT_DELTA], n->scale[i] = s[STAT_SCALE];
  }
  for (int64_t i = n->rows; i < ROWS; i++) n->lse[i] = n->delta[i] = n->scale[i] = 0;
  panels_at(&w->a, first);
  panels_at(&w->b, first);
  key_tile(w, n);
}

/* Keys first .. first + rows - 1 of the head, rows at most ATTN_KEYS. Those beyond its end have
 * gradient 0. */
static void walk_rows(work *w) {
  const attn_task *t = w->t;
  const attn_head *h = w->h;
  for (int64_t r = 0; r < round_up(t->rows, ATTN_BLOCK); r++) {
    int64_t at = r / ATTN_BLOCK * ATTN_BLOCK, lane = r % ATTN_BLOCK, key = t->first + r;
    bool there = r < t->rows && key < h->lk;
    pack_row(&h->k, there ? cell(&h->k, key, 0) : NULL, w->c->d, w->q + at * w->c->d + lane, w->buffer);
    pack_row(&h->v, there ? cell(&h->v, key, 0) : NULL, w->c->e, w->g + at * w->c->e + lane, w->buffer);
  }
  for (int64_t i = 0; i < t->rows * w->a.padded; i++) w->sums[i] = 0;
  for (int64_t i = 0; i < t->rows * w->b.padded; i++) w->sums_b[i] = 0;
  for (int64_t g = 0; g < h->groups; g++) {
    w->a.m = h->q, w->a.m.data += g * h->q.head;
    w->b.m = h->d_o, w->b.m.data += g * h->d_o.head;
    for (int64_t i = 0; i < h->lq; i += ROWS) rows_against_keys(w, g, i);
  }
  for (int64_t r = 0; r < t->rows; r++) {
    if (h->dk.data) store_sums(w, w->sums + r * w->a.padded, w->c->d, &h->dk, t->first + r, 0);
    if (h->dv.data) store_sums(w, w->sums_b + r * w->b.padded, w->c->e, &h->dv, t->first + r, 0);
  }
}

static void grad_keys(attn_task *t, void *scratch) {
  work w = {.t = t, .h = &t->head, .has_score_mod = needs_dress(t->call, &t->head)};
  carve(&w, scratch, t->call, t->rows, NULL);
  w.a.end = w.b.end = t->head.lq;
  walk_rows(&w);
}

/* ---- both in one: the tiles of keys of a whole head ---- */

static void fold_queries(work *w) {
  const int64_t n = dq_rows(w->h) * w->keys.padded;
  fold_sums(w->dq_sums, w->dq, n, 1, 1);
  memset(w->dq, 0, (size_t)n * sizeof *w->dq);
}

static void grad_all(attn_task *t, void *scratch) {
  const attn_head *h = &t->head;
  const int64_t keys = t->rows, padded = round_up(h->lq, ATTN_PANEL);
  work w = {.t = t, .h = h, .has_score_mod = needs_dress(t->call, h)};
  carve(&w, scratch, t->call, ATTN_KEYS, h);
  w.a.end = w.b.end = h->lq;
  w.keys.m = h->k, w.keys.end = h->lk;
  for (int64_t i = 0; i < dq_rows(h) * w.keys.padded; i++) w.dq_sums[i] = w.dq[i] = 0;
  for (t->first = 0; t->first < keys; t->first += t->rows) {
    const int64_t left = ATTN_SPLIT - t->first % ATTN_SPLIT; /* a tile has keys of one split */
    t->rows = clamp(keys - t->first, 0, left < ATTN_KEYS ? left : ATTN_KEYS);
    panels_at(&w.keys, t->first);
    w.finite = true;
    for (int p = 0; p * ATTN_PANEL < t->rows; p++) w.finite &= finite_panel(&w.keys, p);
    walk_rows(&w);
    if (t->rows == left || t->first + t->rows == keys) fold_queries(&w);
  }
  for (int64_t g = 0; g < h->groups; g++)
    for (int64_t i = 0; i < h->lq; i++)
      store_sums(&w, w.dq_sums + (g * padded + i) * w.keys.padded, w.c->d, &h->dq, i, g);
}

extern const attention_grads SMX_FN(attention_grads);
const attention_grads SMX_FN(attention_grads) = {.scratch = grad_scratch,
                                                 .all_scratch = all_scratch,
                                                 .prepare = prepare,
                                                 .queries = grad_queries,
                                                 .keys = grad_keys,
                                                 .all = grad_all};
