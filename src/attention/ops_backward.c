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
#include "backward.h"

size_t carve_grads(work *w, char *base, const attn_call *c, int64_t rows, const attn_head *together) {
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
  TAKE(stats, ATTN_STATS * LANES)
  TAKE(measured, w->op->walks ? all * ATTN_MEASURES : 0)
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
  return carve_grads(&w, NULL, c, rows, NULL);
}

void store_sums(work *w, const double *sums, int64_t columns, const attn_rows *m, int64_t i, int64_t g) {
  round_sums(sums, w->buffer, round_up(columns, LANES), 1);
  store_clean(m, i, g, w->buffer, columns);
}

/* ---- lse, <do, o> - dlse and scale of each row ---- */

/* The part of a row in the gradient of its sink: -p delta, p = e^(sink - lse) */
static void store_sink(const attn_head *h, const attn_row *row, real lse, double delta) {
  double part = row->sink == -(double)R_INF ? 0 : -d_exp(row->sink - (double)lse) * delta;
  memcpy(cell(&h->d_sink, row->i, row->g), &part, sizeof part);
}

static double d_lse_of(const attn_head *h, int64_t i, int64_t g) {
  real dlse = 0;
  if (h->d_lse.data) dtype_load((row_store)h->d_lse.store, cell(&h->d_lse, i, g), 1, 1, &dlse);
  return (double)dlse;
}

static void prepare(attn_task *t, void *scratch) {
  const attn_head *h = &t->head;
  real *a = scratch, *b = a + ATTN_MAX_HEAD, lse;
  for (int64_t r = t->first; r < t->first + t->rows; r++) {
    attn_row row = open_row(t->call, h, SMX_FN(attn_weighers) + t->call->weights, r);
    double delta = 0;
    const real *x = row_reals(&h->d_o, cell(&h->d_o, row.i, row.g), t->call->e, a);
    const real *y = row_reals(&h->o, cell(&h->o, row.i, row.g), t->call->e, b);
    for (int64_t i = 0; i < t->call->e; i++) delta += (double)x[i] * (double)y[i];
    dtype_load((row_store)h->lse.store, cell(&h->lse, row.i, row.g), 1, 1, &lse);
    delta -= d_lse_of(h, row.i, row.g);
    real *s = stats_of(h, row.i, row.g);
    memset(s, 0, ATTN_STATS * sizeof *s);
    s[STAT_LSE] = lse, s[STAT_DELTA] = (real)delta, s[STAT_SCALE] = row.scale;
    if (h->d_sink.data) store_sink(h, &row, lse, delta);
  }
}

/* ---- shared by both walks ---- */

/* The pairs of a row of the tile, or of a key; <do, v> is 0 for those that are dropped. */
static __attribute__((noinline)) grading open_grading(const work *w, int64_t tile_row, const block *b,
                                                      const real *const stats[], drop_pairs pairs) {
  const bool vary = pairs.vary;
  const int from = (int)(b->low / ATTN_PANEL * ATTN_PANEL), n = (int)round_up(b->high, ATTN_PANEL) - from;
  const int64_t at = tile_row * PITCH + from;
  grading g = {.z = w->z + at, .dp = w->dp + at, .n = n, .step = vary, .held = w->held.z != NULL};
  for (int i = 0; i < ATTN_STATS; i++) g.stat[i] = stats[i] + (vary ? from : 0);
  pairs.n = n, pairs.at += vary ? from : 0, pairs.key += vary ? 0 : from;
  g.own = vary ? pairs.key - pairs.at : pairs.at - pairs.key;
  if (w->c->dropout > 0) {
    drop_mask(w->c, &pairs, w->keep);
    if (pairs_are_new(w)) drop(w->keep, n, g.dp);
  }
  return g;
}

void grade(const work *w, int64_t tile_row, const block *b, const real *const stats[], drop_pairs pairs) {
  const grading g = open_grading(w, tile_row, b, stats, pairs);
  w->op->grad(w->c, &g);
  if (w->c->dropout > 0) drop(w->keep, g.n, g.z);
  if (w->h->scores.data) return; /* the gradients of the scores themselves are wanted */
  for (int j = 0; j < g.n; j += LANES) {
    vreal ds = v_load(g.dp + j);
    if (w->c->softcap > 0)
      ds = v_select(v_eq(ds, v_set1(0)), ds, v_mul(ds, v_load(w->bend + (g.dp - w->dp) + j)));
    v_store(g.dp + j, v_mul(ds, graded(&g, STAT_SCALE, j)));
  }
}

void mark_mixed(work *w, block *b, int64_t tile_row, int p, bool with_b) {
  b->mixed |= 1u << p;
  bool finite = finite_panel(&w->a, p);
  if (with_b) finite &= finite_panel(&w->b, p);
  if (w->together) finite &= w->finite;
  for (int r = 0; r < b->rows && !finite; r++)
    w->visible[(tile_row + r) * ATTN_PANELS + p] =
        visible_bits(w->z + (tile_row + r) * PITCH + p * ATTN_PANEL);
}

void score_grad(const work *w, const block *b, int64_t tile_row, int p, const real *packed) {
  real unused[ATTN_BLOCK * LANES] = {0};
  score_block(b->rows, w->g + b->row * w->c->e, packed, block_reach(b, p), w->c->e, no_scale,
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

/* Pairs of whole panels that no block computes, for a walk in another order: they are hidden. */
static void hide_pairs(const work *w, const block *b, int64_t tile_row, int64_t split) {
  const bool last = b->row + b->rows == w->t->rows;
  const int64_t rows = last ? round_up(w->t->rows, ATTN_PANEL) - b->row : b->rows;
  const int64_t keys = w->h->key_start + w->h->lk - split * ATTN_SPLIT + ATTN_PANEL;
  for (int p = 0; p < ATTN_PANELS && p * ATTN_PANEL < keys; p++)
    for (int64_t r = block_sees(b, p) ? b->rows : 0; r < rows; r++) {
      const int64_t at = (tile_row + r) * PITCH + p * ATTN_PANEL;
      for (int j = 0; j < ATTN_PANEL; j += LANES) {
        v_store(w->z + at + j, v_set1(-R_INF)), v_store(w->dp + at + j, v_set1(0));
        if (w->held.bend) v_store(w->bend + at + j, v_set1(0));
      }
    }
}

static void score_tile(work *w, block *blocks, int count, int64_t split) {
  for (int p = 0; p < ATTN_PANELS; p++)
    for (int i = 0; i < count; i++)
      if (block_sees(blocks + i, p)) score_queries(w, blocks + i, i * ATTN_BLOCK, p, split);
  for (int i = 0; i < count && w->held.z; i++) hide_pairs(w, blocks + i, i * ATTN_BLOCK, split);
}

/* Gradients of the pairs of a row of a block, or what is measured of them. */
static void grade_row(work *w, const block *b, int r, int64_t tile_row, int64_t split) {
  const attn_row *row = w->rows + b->row + r;
  const real *stats[ATTN_STATS];
  for (int x = 0; x < ATTN_STATS; x++) {
    v_store(w->stats + x * LANES, v_set1(stats_of(w->h, row->i, row->g)[x]));
    stats[x] = w->stats + x * LANES;
  }
  const drop_pairs pairs = {
      .stream = w->h->stream + (uint64_t)row->g, .at = row->at, .key = split * ATTN_SPLIT};
  if (w->walk < 0) {
    grade(w, tile_row + r, b, stats, pairs);
    return;
  }
  const grading g = open_grading(w, tile_row + r, b, stats, pairs);
  w->op->measure(w->c, w->walk, &g, w->measured + (b->row + r) * ATTN_MEASURES);
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
  if (pairs_are_new(w)) score_tile(w, blocks, count, split);
  for (int i = 0; i < count; i++)
    for (int r = 0; r < blocks[i].rows && blocks[i].low < blocks[i].high; r++)
      grade_row(w, blocks + i, r, i * ATTN_BLOCK, split);
  if (w->walk >= 0) return;
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

void open_queries(work *w, attn_task *t, int64_t room, int64_t apart, void *scratch) {
  *w = (work){.t = t, .h = &t->head, .has_score_mod = needs_dress(t->call, &t->head), .walk = -1};
  carve_grads(w, scratch, t->call, room, NULL);
  w->a.m = t->head.k, w->b.m = t->head.v;
  w->a.end = w->b.end = t->head.lk;
  w->a.first = w->b.first = -1;
  for (int64_t r = 0; r < round_up(t->rows, ATTN_BLOCK); r++) {
    int64_t at = r / ATTN_BLOCK * ATTN_BLOCK, lane = r % ATTN_BLOCK;
    attn_row *row = w->rows + r;
    *row = r < t->rows ? open_row(t->call, w->h, w->op, t->first + r * apart) : (attn_row){0};
    pack_row(&w->h->q, r < t->rows ? cell(&w->h->q, row->i, row->g) : NULL, w->c->d,
             w->q + at * w->c->d + lane, w->buffer);
    pack_row(&w->h->d_o, r < t->rows ? cell(&w->h->d_o, row->i, row->g) : NULL, w->c->e,
             w->g + at * w->c->e + lane, w->buffer);
  }
}

/* Rows first .. end - 1 of the task. */
static void walk_splits(work *w, int64_t first, int64_t end) {
  const attn_task *t = w->t;
  for (int64_t s = t->split; s < t->split + t->splits; s++) {
    const int64_t key = s * ATTN_SPLIT - w->h->key_start;
    if (key != w->a.first) panels_at(&w->a, key), panels_at(&w->b, key);
    for (int64_t r = first; r < end; r += ATTN_TILE) {
      const int64_t at = ((s - t->split) * ROWS + r) * PITCH;
      if (w->held.z) w->z = w->held.z + at, w->dp = w->held.dp + at;
      if (w->held.bend) w->bend = w->held.bend + at;
      query_tile(w, r, clamp(end - r, 0, ATTN_TILE), s);
    }
  }
}

static void grad_queries(attn_task *t, void *scratch) {
  work w;
  open_queries(&w, t, t->rows, 1, scratch);
  for (int64_t i = 0; i < t->rows * w.a.padded; i++) w.sums[i] = 0;
  walk_splits(&w, 0, t->rows);
  for (int64_t r = 0; r < t->rows && w.h->dq.data; r++)
    store_sums(&w, w.sums + r * w.a.padded, w.c->d, &w.h->dq, w.rows[r].i, w.rows[r].g);
}

/* ---- before: what the gradients of some kinds need of a whole row ---- */

static bool measures(const attn_call *c) { return SMX_FN(attn_weighers)[c->weights].walks > 0; }

static void measure_some(work *w, int64_t first, int64_t end) {
  for (w->walk = 0; w->walk < w->op->walks; w->walk++) {
    for (int64_t i = first * ATTN_MEASURES; i < end * ATTN_MEASURES; i++) w->measured[i] = 0;
    walk_splits(w, first, end);
    for (int64_t r = first; r < end; r++) {
      const attn_row *row = w->rows + r;
      w->op->settle(w->c, w->walk, row, d_lse_of(w->h, row->i, row->g), w->measured + r * ATTN_MEASURES,
                    stats_of(w->h, row->i, row->g));
    }
  }
}
/* With one split a tile takes all walks while its pairs are in the caches. */
void measure_rows(work *w) {
  const int64_t rows = w->t->rows, step = w->t->splits == 1 ? ATTN_TILE : rows;
  for (int64_t first = 0; first < rows; first += step) measure_some(w, first, clamp(rows, 0, first + step));
}

static void measure(attn_task *t, void *scratch) {
  work w;
  open_queries(&w, t, t->rows, 1, scratch);
  measure_rows(&w);
}

extern const attention_grads SMX_FN(attention_grads);
const attention_grads SMX_FN(attention_grads) = {.scratch = grad_scratch,
                                                 .all_scratch = grad_all_scratch,
                                                 .prepare = prepare,
                                                 .measures = measures,
                                                 .measure = measure,
                                                 .queries = grad_queries,
                                                 .keys = grad_keys,
                                                 .all = grad_all};
