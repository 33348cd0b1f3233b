/* attention/ops.c - the forward engine: tiles of rows against splits of keys, one pass, memory
 * O(L). Compiled once per instruction set and real type.
 *
 * A task is some rows of the query heads that share a key/value head. For each split of 1024 keys
 * it takes its rows a tile at a time: scores of the whole split, then weights (weights.h) relative
 * to the largest, then weights times values; what the split gives is folded into the row in
 * double. */
#include "dropout.h"
#include "forward.h"

/* The contribution of one split to one row. */
typedef struct part {
  bool any;
  attn_unit unit;
  double gain, a[ATTN_SCALARS];
} part;

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
  const size_t tiles = carve(&w, NULL, c, rows), few = short_scratch(c);
  return tiles > few ? tiles : few;
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

/* ---- what a split gives ---- */

/* What row r of the tile got from the split; false: nothing, and nothing is set. */
static bool part_of(const tile *t, int64_t r, attn_unit *unit, double *gain, double a[ATTN_SCALARS]) {
  const weighing *one = t->ones + r;
  if (!t->any[r]) return false;
  unit->scale_exp = (double)one->scale_exp, unit->shift = (double)one->shift, *gain = (double)one->gain;
  for (int i = 0; i < ATTN_SCALARS; i++) a[i] = (double)one->a[i];
  return true;
}

/* The same into a row that has no other part. */
static void take_part(const tile *t, int64_t r, attn_row *row) {
  row->any = part_of(t, r, &row->unit, &row->gain, row->a);
}

/* Folds the contribution of a split into the row, or stores it in t->states. */
static void keep_part(work *w, const tile *own, int64_t r, const real *o) {
  const attn_task *t = w->t;
  attn_row *row = w->rows + own->first + r;
  part p;
  p.any = part_of(own, r, &p.unit, &p.gain, p.a);
  if (!t->states) {
    fold_part(w, row, w->sums + (own->first + r) * w->width, &p, o);
    return;
  }
  real *state = (real *)t->states + row->i * t->state_rows + row->g * t->state_heads +
                (w->split - t->split) * t->state_step;
  memset(state, 0, ATTN_STATE_HEAD * sizeof *state);
  state[0] = p.any;
  if (!p.any) {
    memset(state + ATTN_STATE_HEAD, 0, (size_t)w->width * sizeof *state);
    return;
  }
  state[1] = (real)p.unit.scale_exp, state[2] = (real)p.unit.shift, state[3] = (real)p.gain;
  for (int i = 0; i < ATTN_SCALARS; i++) state[4 + i] = (real)p.a[i];
  memcpy(state + ATTN_STATE_HEAD, o, (size_t)w->width * sizeof *state);
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
  if (part_of(t, r, &own.unit, &own.gain, own.a)) {
    attn_unit unit = row->unit; /* the largest of all splits */
    align(&unit, own.unit, &mine, &its);
    its *= own.gain / row->gain;
  }
  const bool bad = f.lse != f.lse || (weights && !row->any && w->c->on_empty == SMX_EMPTY_NAN);
  const int64_t first = clamp(from, 0, n), end = clamp(to, first, n);
  const real hidden = weights ? 0 : -R_INF;
  for (int64_t j = 0; j < first; j++) z[j] = hidden;
  for (int64_t j = first; weights && j < end; j++)
    z[j] = (real)((double)z[j] * (f.factor[0] * its) + (two ? (double)second[j] * (f.factor[1] * its) : 0));
  for (int64_t j = end; j < n; j++) z[j] = hidden;
  for (int64_t j = 0; bad && j < n; j++) z[j] = r_nan();
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
  if (forward_short(t, scratch)) return;
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
