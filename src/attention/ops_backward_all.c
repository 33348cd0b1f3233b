/* attention/ops_backward_all.c - all gradients in the second walk of the backward engine, tiles of
 * keys over a whole head (ops_backward.c).
 *
 * Where a kind measures its rows, both walks need the same products. Then a block of rows is
 * measured and meets all keys before the next one, so that its pairs are in memory meanwhile. Terms
 * are added in the same order either way. Compiled once per instruction set and real type. */
#include "backward.h"

enum { HELD_SPLITS = 16 }; /* at most: with more keys, products are computed twice */

/* What a whole head works in. */
typedef struct head_work {
  work keys, rows; /* rows: of kinds that measure */
  attn_task block; /* the rows */
  double *dk, *dv; /* sums of all keys, where pairs are held */
} head_work;

static bool holds(const attn_call *c, const attn_head *h) {
  return SMX_FN(attn_weighers)[c->weights].walks > 0 && h->lk <= HELD_SPLITS * ATTN_SPLIT;
}

/* Like carve_grads. */
static size_t carve_head(head_work *w, char *base, const attn_call *c, const attn_head *h) {
  const int64_t splits = (h->lk + ATTN_SPLIT - 1) / ATTN_SPLIT, count = splits * ROWS * PITCH;
  held_pairs *const held = &w->keys.held;
  size_t at = carve_grads(&w->keys, base, c, ATTN_KEYS, h);
  if (w->keys.op->walks) at += carve_grads(&w->rows, base ? base + at : NULL, c, ROWS, NULL);
  *held = (held_pairs){0};
  if (!holds(c, h)) return at;
#define TAKE(field, count) \
  field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof *(field) * (count), 64);
  TAKE(held->z, count)
  TAKE(held->dp, count)
  TAKE(held->bend, c->softcap > 0 ? count : 0)
  TAKE(w->dk, h->lk * w->keys.a.padded)
  TAKE(w->dv, h->lk * w->keys.b.padded)
#undef TAKE
  if (!(c->softcap > 0)) held->bend = NULL;
  return at;
}
size_t grad_all_scratch(const attn_call *c, const attn_head *h) {
  head_work w;
  return carve_head(&w, NULL, c, h);
}

/* The tile of keys from t->first on, which are of one split. */
static void open_tile(work *w, int64_t keys) {
  attn_task *t = w->t;
  const int64_t left = ATTN_SPLIT - t->first % ATTN_SPLIT;
  t->rows = clamp(keys - t->first, 0, left < ATTN_KEYS ? left : ATTN_KEYS);
  panels_at(&w->keys, t->first);
  w->finite = true;
  for (int p = 0; p * ATTN_PANEL < t->rows; p++) w->finite &= finite_panel(&w->keys, p);
}

/* At the end of a split, the sums of rows of dq. */
static void fold_queries(work *w, int64_t keys, int64_t first, int64_t rows) {
  const int64_t end = w->t->first + w->t->rows, at = first * w->keys.padded, n = rows * w->keys.padded;
  if (end % ATTN_SPLIT != 0 && end != keys) return;
  fold_sums(w->dq_sums + at, w->dq + at, n, 1, 1);
  memset(w->dq + at, 0, (size_t)n * sizeof *w->dq);
}

/* The packed keys and values of one split serve all blocks. */
static void measure_block(head_work *w, void *scratch, int64_t g, int64_t first) {
  const attn_head *h = w->keys.h;
  const panels a = w->rows.a, b = w->rows.b;
  w->block = *w->keys.t;
  w->block.first = first * h->groups + g, w->block.rows = clamp(h->lq - first, 0, ROWS);
  open_queries(&w->rows, &w->block, ROWS, h->groups, scratch);
  w->rows.held = w->keys.held;
  if (g + first > 0) w->rows.a = a, w->rows.b = b;
  measure_rows(&w->rows);
}

/* A tile of keys against all rows. */
static void walk_tiles(head_work *w, void *scratch) {
  work *k = &w->keys;
  attn_task *t = k->t;
  const int64_t keys = t->rows;
  for (int64_t g = 0; g < k->h->groups && k->op->walks; g++)
    for (int64_t i = 0; i < k->h->lq; i += ROWS) measure_block(w, scratch, g, i);
  for (t->first = 0; t->first < keys; t->first += t->rows) {
    open_tile(k, keys);
    walk_rows(k);
    fold_queries(k, keys, 0, dq_rows(k->h));
  }
}

/* A block of rows against all keys. */
static void walk_block(head_work *w, int64_t keys, int64_t g, int64_t first) {
  work *k = &w->keys;
  attn_task *t = k->t;
  const int64_t padded = round_up(k->h->lq, ATTN_PANEL), rows = round_up(k->block->rows, ATTN_PANEL);
  for (t->first = 0; t->first < keys; t->first += t->rows) {
    open_tile(k, keys);
    k->sums = w->dk + t->first * k->a.padded, k->sums_b = w->dv + t->first * k->b.padded;
    key_tile(k);
    fold_queries(k, keys, g * padded + first, rows);
  }
}
static void walk_blocks(head_work *w, void *scratch) {
  work *k = &w->keys;
  const int64_t keys = k->h->lk, room = k->t->rows;
  double *const none = k->sums, *const none_b = k->sums_b;
  for (int64_t i = 0; i < keys * k->a.padded; i++) w->dk[i] = 0;
  for (int64_t i = 0; i < keys * k->b.padded; i++) w->dv[i] = 0;
  for (int64_t g = 0; g < k->h->groups; g++)
    for (int64_t i = 0; i < k->h->lq; i += ROWS) {
      measure_block(w, scratch, g, i);
      open_rows(k, g, i);
      walk_block(w, keys, g, i);
    }
  k->t->first = 0, k->t->rows = keys, k->sums = w->dk, k->sums_b = w->dv;
  store_keys(k);
  for (int64_t i = 0; i < k->a.padded; i++) none[i] = 0;
  for (int64_t i = 0; i < k->b.padded; i++) none_b[i] = 0;
  for (k->t->first = keys, k->t->rows = 1, k->sums = none, k->sums_b = none_b; k->t->first < room;
       k->t->first++)
    store_keys(k);
}

void grad_all(attn_task *t, void *scratch) {
  const attn_head *h = &t->head;
  const int64_t padded = round_up(h->lq, ATTN_PANEL);
  head_work w = {.keys = {.t = t, .h = h, .has_score_mod = needs_dress(t->call, h), .walk = -1}};
  work *k = &w.keys;
  char *const rows = (char *)scratch + carve_grads(k, NULL, t->call, ATTN_KEYS, h);
  carve_head(&w, scratch, t->call, h);
  k->a.end = k->b.end = h->lq;
  k->keys.m = h->k, k->keys.end = h->lk;
  for (int64_t i = 0; i < dq_rows(h) * k->keys.padded; i++) k->dq_sums[i] = k->dq[i] = 0;
  if (k->held.z) walk_blocks(&w, rows);
  else walk_tiles(&w, rows);
  for (int64_t g = 0; g < h->groups; g++)
    for (int64_t i = 0; i < h->lq; i++)
      store_sums(k, k->dq_sums + (g * padded + i) * k->keys.padded, t->call->d, &h->dq, i, g);
}
