/* attention/ops_backward_keys.c - the second walk of the backward engine: keys against blocks of
 * rows, for the gradients of keys and values, and of queries where the walk covers a whole head
 * (ops_backward_all.c). See ops_backward.c. */
#include "backward.h"

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
    vreal x = v_mul(v_load(z + u), v_load(n->stat[STAT_SCALE] + p * ATTN_PANEL + u));
    low = v_min(x, low);
    v_store(z + u, x);
  }
  return v_hmin(low);
}

static void score_keys(work *w, const row_block *n, block *b, int p) {
  real *z = w->z + b->row * PITCH + p * ATTN_PANEL, unused[ATTN_BLOCK * LANES] = {0};
  bool plain = !w->has_score_mod && block_agrees(b, p);
  score_block(b->rows, w->q + b->row * w->c->d, packed_panel(&w->a, p), ATTN_PANEL, w->c->d, no_scale, z,
              unused);
  for (int r = 0; r < b->rows; r++) plain &= scale_key(n, p, z + r * PITCH) > -R_INF;
  for (int r = 0; r < b->rows && !plain; r++) {
    real *bend = w->c->softcap > 0 ? w->bend + (b->row + r) * PITCH + p * ATTN_PANEL : NULL;
    dress_key(w, n, w->t->first + b->row + r, p, z + r * PITCH, bend);
  }
  if (!plain) mark_mixed(w, b, b->row, p, true);
  score_grad(w, b, b->row, p, packed_panel(&w->b, p));
}

/* The same from memory: a panel of rows, held row by row, turned to keys. So many short pieces of
 * rows are prefetched, sixteen rows before they are turned. */
static void turn(const work *w, int p, const real *held, real *to) {
  const int64_t key = w->h->key_start + w->t->first, split = key / ATTN_SPLIT - w->t->split;
  ahead none = {0};
  held += (split * ROWS + p * ATTN_PANEL) * PITCH + key % ATTN_SPLIT, to += p * ATTN_PANEL;
  for (int r = 0; r < ATTN_PANEL; r += PACKED) {
    for (int i = PACKED; i < 2 * PACKED; i++)
      for (int64_t x = 0; x < w->t->rows; x += LINE / (int64_t)sizeof *held)
        v_prefetch_far(held + (r + i) * PITCH + x);
    pack_columns(REAL_STORE, (const char *)(held + r * PITCH), PITCH * (int64_t)sizeof *held,
                 round_up(w->t->rows, COLUMNS), PITCH, to + r, &none);
  }
}
static void take_held(work *w, block *blocks, int count, int p) {
  bool any = false;
  for (int i = 0; i < count; i++) any |= block_sees(blocks + i, p);
  if (!any) return;
  turn(w, p, w->held.z, w->z);
  turn(w, p, w->held.dp, w->dp);
  if (w->held.bend) turn(w, p, w->held.bend, w->bend);
  for (int i = 0; i < count; i++)
    if (block_sees(blocks + i, p)) mark_mixed(w, blocks + i, blocks[i].row, p, true);
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

void key_tile(work *w) {
  const row_block *n = w->block;
  const real *stats[ATTN_STATS];
  block blocks[ATTN_KEYS / ATTN_BLOCK];
  int count = (int)((w->t->rows + ATTN_BLOCK - 1) / ATTN_BLOCK);
  bool any = false;
  for (int i = 0; i < ATTN_STATS; i++) stats[i] = n->stat[i];
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
  for (int p = 0; p < ROW_PANELS; p++) {
    if (w->held.z) take_held(w, blocks, count, p);
    for (int i = 0; i < count && !w->held.z; i++)
      if (block_sees(blocks + i, p)) score_keys(w, n, blocks + i, p);
  }
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

void open_rows(work *w, int64_t g, int64_t first) {
  const attn_head *h = w->h;
  row_block *const n = w->block;
  n->g = g, n->first = first, n->rows = clamp(h->lq - first, 0, ROWS);
  for (int64_t i = 0; i < n->rows; i++) {
    const real *s = stats_of(h, first + i, g);
    for (int x = 0; x < ATTN_STATS; x++) n->stat[x][i] = s[x];
  }
  for (int x = 0; x < ATTN_STATS; x++)
    for (int64_t i = n->rows; i < ROWS; i++) n->stat[x][i] = 0;
  w->a.m = h->q, w->a.m.data += g * h->q.head;
  w->b.m = h->d_o, w->b.m.data += g * h->d_o.head;
  panels_at(&w->a, first);
  panels_at(&w->b, first);
}

void store_keys(work *w) {
  const attn_task *t = w->t;
  for (int64_t r = 0; r < t->rows; r++) {
    if (w->h->dk.data) store_sums(w, w->sums + r * w->a.padded, w->c->d, &w->h->dk, t->first + r, 0);
    if (w->h->dv.data) store_sums(w, w->sums_b + r * w->b.padded, w->c->e, &w->h->dv, t->first + r, 0);
  }
}

/* Keys first .. first + rows - 1 of the head, rows at most ATTN_KEYS. Those beyond its end have
 * gradient 0. */
void walk_rows(work *w) {
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
  for (int64_t g = 0; g < h->groups; g++)
    for (int64_t i = 0; i < h->lq; i += ROWS) {
      open_rows(w, g, i);
      key_tile(w);
    }
  store_keys(w);
}

void grad_keys(attn_task *t, void *scratch) {
  work w = {.t = t, .h = &t->head, .has_score_mod = needs_dress(t->call, &t->head), .walk = -1};
  carve_grads(&w, scratch, t->call, t->rows, NULL);
  w.a.end = w.b.end = t->head.lq;
  walk_rows(&w);
}
