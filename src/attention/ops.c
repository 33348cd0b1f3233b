/* attention/ops.c - the forward engine: tiles of rows against splits of keys, one pass, memory O(L). Compiled once per instruction set and real
 * type.
 *
 * A task is some rows of the query heads that share a key/value head. For each split of 1024 keys it takes its rows a tile at a time: scores of
 * the whole split, then weights (weights.h) relative to the largest, then weights times values; what the split gives is folded into the row in
 * double. A key that is not visible takes no part: its score is -inf, and its values are not multiplied, or are known to be finite, in which
 * case the product with its weight +0 changes no sum. */
#include "tile.h"
#include "weights.h"

/* Scratch memory of a task. */
typedef struct work {
  attn_task *t;
  const attn_call *c;
  const attn_head *h;
  const weigher *op;
  int64_t columns;       /* e, filled up to whole vectors */
  int64_t width;         /* columns of all channels */
  bool keep;             /* packed panels of a split are kept for the other tiles */
  bool dressed;          /* scores need more than the scale */
  attn_row *rows;
  double *sums;          /* o of each row, width each */
  real *q, *k, *v, *buffer;
  real *z, *second, *o, *top;
  uint64_t *visible;     /* ATTN_PANELS a row of the tile; made only beside values that are not finite */
  uint32_t packed, staged, known, finite; /* bit p: panel p of the split is in k, in v; known to be finite or not */
  int64_t split;
  const real *values;    /* the panel of v at hand */
  int64_t pitch;
} work;

static int64_t columns_of(const attn_call *c) { return round_up(c->e, LANES); }

/* Cuts scratch memory into pieces; NULL only measures. */
static size_t carve(work *w, char *base, const attn_call *c, int64_t rows) {
  int64_t all = round_up(rows, ATTN_BLOCK), tile = all < ATTN_TILE ? all : ATTN_TILE, panels = rows > ATTN_TILE ? ATTN_PANELS : 1;
  size_t at = 0;
  w->c = c;
  w->op = SMX_FN(attn_weighers) + c->weights;
  w->columns = columns_of(c);
  w->width = w->columns * w->op->values;
  w->keep = panels > 1;
#define TAKE(field, count) \
  w->field = (void *)(base ? base + at : NULL); \
  at += (size_t)round_up((int64_t)sizeof *w->field * (count), 64);
  TAKE(rows, all)
  TAKE(sums, all * w->width)
  TAKE(q, all * c->d)
  TAKE(k, panels * ATTN_PANEL * c->d)
  TAKE(v, panels * ATTN_PANEL * w->columns)
  TAKE(buffer, 4 * ATTN_MAX_HEAD)
  TAKE(z, tile * PITCH)
  TAKE(second, w->op->values > 1 ? tile * PITCH : 0)
  TAKE(o, tile * w->width)
  TAKE(top, tile * LANES)
  TAKE(visible, tile * ATTN_PANELS)
#undef TAKE
  return at;
}

static size_t scratch_bytes(const attn_call *c, int64_t rows) {
  work w;
  return carve(&w, NULL, c, rows);
}

/* ---- rows ---- */

static char *cell(const attn_rows *m, int64_t i, int64_t g) { return m->data + i * m->step + g * m->head; }
static real head_value(const attn_rows *m, int64_t g) {
  real x;
  move_load((row_store)m->store, cell(m, 0, g), 1, 1, &x);
  return x;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Keys that are visible but for causality and the window: those that mask and bias let through. */
static int64_t count_keys(work *w, const attn_row *row) {
  const attn_head *h = w->h;
  int64_t count = 0;
  if (!h->mask.data && !h->bias.data) return row->high - row->low;
  for (int64_t j = row->low; j < row->high; j += ATTN_PANEL) {
    int64_t n = clamp(row->high - j, 0, ATTN_PANEL);
    real keep[ATTN_PANEL] = {0}, bias[ATTN_PANEL] = {0};
    if (h->mask.data) {
      char *at = cell(&h->mask, row->i, row->g) + (j - h->key_start) * h->mask.stride;
      move_load(STORE_MASK, at, h->mask.stride, (size_t)n, keep);
    }
    if (h->bias.data) {
      int64_t bytes = h->bias.store == STORE_F64 ? 8 : h->bias.store == STORE_F32 ? 4 : 2;
      char *at = cell(&h->bias, row->i, row->g) + (j - h->key_start) * h->bias.stride * bytes;
      move_load((row_store)h->bias.store, at, h->bias.stride, (size_t)n, bias);
    }
    for (int64_t x = 0; x < n; x++) count += keep[x] == 0 && bias[x] != -R_INF;
  }
  return count;
}

static void open_row(work *w, int64_t r) {
  const attn_call *c = w->c;
  const attn_head *h = w->h;
  attn_row *row = w->rows + r;
  int64_t end = h->key_start + h->lk, at;
  *row = (attn_row){.i = (w->t->first + r) / h->groups, .g = (w->t->first + r) % h->groups, .sink = -(double)R_INF, .low = h->key_start, .high = end};
  at = row->i + h->offset;
  if (c->causal) row->high = clamp(at + 1, row->low, end);
  if (c->right >= 0 && at < end - c->right) row->high = clamp(at + c->right + 1, row->low, row->high);
  if (c->left >= 0 && at > c->left) row->low = clamp(at - c->left, row->low, row->high);
  if (h->slopes.data) row->slope = head_value(&h->slopes, row->g);
  if (h->sinks.data) row->sink = (double)head_value(&h->sinks, row->g);
  if (w->op->counts) row->count = (double)count_keys(w, row);
  row->scale = (real)(c->scale * (w->op->scale ? w->op->scale(c, row) : 1));
}

/* Packs the queries of a block; its missing rows repeat the last one and see nothing. */
static void pack_block(work *w, int64_t block) {
  const attn_task *t = w->t;
  real *to = w->q + block * ATTN_BLOCK * w->c->d;
  for (int64_t r = 0; r < ATTN_BLOCK; r++) {
    int64_t at = block * ATTN_BLOCK + r;
    attn_row *row = w->rows + at;
    if (at >= t->rows) *row = (attn_row){0};
    const real *x = w->buffer;
    if (at < t->rows) x = row_reals(&w->h->q, cell(&w->h->q, row->i, row->g), w->c->d, w->buffer);
    else memset(w->buffer, 0, (size_t)w->c->d * sizeof *w->buffer);
    for (int64_t i = 0; i < w->c->d; i++) to[i * ATTN_BLOCK + r] = x[i];
  }
}

static void open_work(work *w, attn_task *t, void *scratch) {
  *w = (work){.t = t, .h = &t->head};
  carve(w, scratch, t->call, t->rows);
  w->dressed = w->c->softcap > 0 || w->h->mask.data || w->h->bias.data || w->h->slopes.data;
  for (int64_t r = 0; r < t->rows; r++) open_row(w, r);
  t->first_empty = -1;
}


/* ---- keys and values of a split ---- */

/* Addresses of the keys of panel p of the split; returns how many there are. */
static int addresses(const work *w, const attn_rows *m, int64_t page_bytes, int p, const char *at[ATTN_PANEL]) {
  const attn_head *h = w->h;
  int64_t first = w->split * ATTN_SPLIT + p * ATTN_PANEL - h->key_start, n = clamp(h->lk - first, 0, ATTN_PANEL);
  for (int64_t x = 0; x < n; x++) {
    int64_t j = first + x;
    if (h->table) {
      int32_t page;
      memcpy(&page, h->table + j / h->page_size * h->table_step, sizeof page);
      at[x] = m->data + page * page_bytes + j % h->page_size * m->step;
    } else {
      at[x] = m->data + j * m->step;
    }
  }
  return (int)n;
}

static const real *key_panel(work *w, int p) {
  real *out = w->k + (w->keep ? p : 0) * ATTN_PANEL * w->c->d;
  const char *at[ATTN_PANEL];
  if (w->keep && (w->packed >> p & 1)) return out;
  w->packed |= 1u << p;
  pack_rows(&w->h->k, at, addresses(w, &w->h->k, w->h->k_page, p, at), w->c->d, ATTN_PANEL, out, w->buffer);
  return out;
}

/* Leaves the panel in w->values and w->pitch: where it lies when its rows are reals at even steps, else copied. */
static void value_panel(work *w, int p) {
  const attn_rows *m = &w->h->v;
  real *out = w->v + (w->keep ? p : 0) * ATTN_PANEL * w->columns;
  const char *at[ATTN_PANEL];
  w->values = out;
  w->pitch = w->columns;
  if (w->keep && (w->staged >> p & 1)) return;
  int n = addresses(w, m, w->h->v_page, p, at);
  bool direct = w->columns == w->c->e && m->stride == 1 && m->store == (SMX_REAL == 32 ? STORE_F32 : STORE_F64);
  for (int x = 1; x < n && direct; x++) direct = at[x] - at[x - 1] == at[1] - at[0];
  if (direct) {
    w->values = (const real *)(const void *)at[0];
    w->pitch = n > 1 ? (at[1] - at[0]) / (int64_t)sizeof(real) : 0;
    return;
  }
  w->staged |= 1u << p;
  for (int x = 0; x < n; x++) {
    real *to = out + x * w->columns;
    move_load((row_store)m->store, at[x], m->stride, (size_t)w->c->e, to);
    for (int64_t i = w->c->e; i < w->columns; i++) to[i] = 0;
  }
}

static bool finite_panel(work *w, int p) {
  if (w->known >> p & 1) return w->finite >> p & 1;
  int64_t first = w->split * ATTN_SPLIT + p * ATTN_PANEL - w->h->key_start, n = clamp(w->h->lk - first, 0, ATTN_PANEL);
  vmask good = v_eq(v_set1(0), v_set1(0));
  value_panel(w, p);
  for (int64_t x = 0; x < n; x++)
    for (int64_t i = 0; i < w->columns; i += LANES)
      good = m_and(good, v_lt(v_abs(v_load(w->values + x * w->pitch + i)), v_set1(R_INF)));
  w->known |= 1u << p;
  if (!m_any(m_not(good))) w->finite |= 1u << p;
  return w->finite >> p & 1;
}

/* ---- scores ---- */

/* What a score is after the scale: capped, biased, masked. z: those of one row with a panel, whose first key is j0. */
static void dress_row(const work *w, const attn_row *row, int64_t j0, real *z, real *top) {
  const attn_head *h = w->h;
  const attn_call *c = w->c;
  int64_t a = clamp(row->low - j0, 0, ATTN_PANEL), b = clamp(row->high - j0, a, ATTN_PANEL);
  real keep[ATTN_PANEL] = {0}, bias[ATTN_PANEL] = {0};
  if (h->mask.data && b > a) {
    char *at = cell(&h->mask, row->i, row->g) + (j0 + a - h->key_start) * h->mask.stride;
    move_load(STORE_MASK, at, h->mask.stride, (size_t)(b - a), keep + a);
  }
  if (h->bias.data && b > a) {
    int64_t bytes = h->bias.store == STORE_F64 ? 8 : h->bias.store == STORE_F32 ? 4 : 2;
    char *at = cell(&h->bias, row->i, row->g) + (j0 + a - h->key_start) * h->bias.stride * bytes;
    move_load((row_store)h->bias.store, at, h->bias.stride, (size_t)(b - a), bias + a);
  }
  vreal m = v_load(top), cap = v_set1((real)c->softcap);
  for (int u = 0; u < VPB; u++) {
    vreal x = v_load(z + u * LANES), lane = v_add(v_iota(), v_set1((real)(u * LANES)));
    if (c->softcap > 0) x = v_mul(cap, v_tanh(v_div(x, cap)));
    if (h->bias.data) {
      vreal add = v_load(bias + u * LANES);
      x = v_select(v_hidden(add), add, v_add(x, add));
    }
    if (h->slopes.data) x = v_fnma(v_set1(row->slope), v_abs(v_sub(v_set1((real)(row->i + h->offset - j0)), lane)), x);
    vmask in = m_and(m_not(v_lt(lane, v_set1((real)a))), v_lt(lane, v_set1((real)b)));
    in = m_and(in, v_eq(v_load(keep + u * LANES), v_set1(0)));
    x = v_select(in, x, v_set1(-R_INF));
    v_store(z + u * LANES, x);
    m = v_max(x, m);
  }
  v_store(top, m);
}

/* A block of rows of a tile, and the part of the split that some of them see. */
typedef struct block {
  int rows;
  int64_t row;                  /* of the task */
  int64_t low, high;            /* keys that some row may see, counted from the start of the split */
  int64_t all_low, all_high;    /* keys that every row sees but for masks */
  uint32_t mixed;               /* bit p: rows of the block differ in what they see of panel p */
} block;

static void open_block(const work *w, block *b, int64_t row, int64_t rows) {
  int64_t start = w->split * ATTN_SPLIT;
  *b = (block){.rows = (int)rows, .row = row, .low = ATTN_SPLIT, .all_high = ATTN_SPLIT};
  for (int64_t r = row; r < row + rows; r++) {
    int64_t low = clamp(w->rows[r].low - start, 0, ATTN_SPLIT), high = clamp(w->rows[r].high - start, low, ATTN_SPLIT);
    if (low < high && low < b->low) b->low = low;
    if (low < high && high > b->high) b->high = high;
    if (low > b->all_low) b->all_low = low;
    if (high < b->all_high) b->all_high = high;
  }
}
static bool block_sees(const block *b, int p) { return b->low < (p + 1) * ATTN_PANEL && b->high > p * ATTN_PANEL; }

/* Which of the keys of a row's scores are visible. */
static uint64_t visible_bits(const real *z) {
  uint64_t bits = 0;
  for (int j = 0; j < ATTN_PANEL; j++) bits |= (uint64_t)(z[j] != -R_INF) << j;
  return bits;
}

static void score_panel(work *w, block *b, int64_t tile_row, int p, const real *k) {
  real *z = w->z + tile_row * PITCH + p * ATTN_PANEL, *top = w->top + tile_row * LANES, scale[ATTN_BLOCK], unused[ATTN_BLOCK * LANES];
  const real *q = w->q + b->row * w->c->d;
  for (int r = 0; r < ATTN_BLOCK; r++) scale[r] = w->rows[b->row + r].scale;
  if (!w->dressed && b->all_low <= p * ATTN_PANEL && b->all_high >= (p + 1) * ATTN_PANEL) {
    if (score_block(b->rows, q, k, w->c->d, scale, z, top) > -R_INF) return;
  } else {
    for (int i = 0; i < ATTN_BLOCK * LANES; i++) unused[i] = 0;
    score_block(b->rows, q, k, w->c->d, scale, z, unused);
    for (int r = 0; r < b->rows; r++)
      dress_row(w, w->rows + b->row + r, w->split * ATTN_SPLIT + p * ATTN_PANEL, z + r * PITCH, top + r * LANES);
  }
  b->mixed |= 1u << p;
  if (finite_panel(w, p)) return;
  for (int r = 0; r < b->rows; r++) w->visible[(tile_row + r) * ATTN_PANELS + p] = visible_bits(z + r * PITCH);
}

/* ---- sums ---- */

/* What one split gives to one row. */
typedef struct part {
  bool any;
  double ref, shift, a[ATTN_SCALARS];
} part;

/* e^t for t <= 0, to about an ulp of double. */
static double exp_down(double t) {
  if (!(t > -700)) return 0;
  double k = (t * 0x1.71547652b82fep+0 + 0x1.8p52) - 0x1.8p52, x = (t - k * 0x1.62e42fefa38p-1) - k * 0x1.ef35793c7673p-45, p = 1;
  for (int n = 14; n > 0; n--) p = 1 + p * x / n;
  return d_scale(p, k > 0 ? 0 : k);
}

/* What two sums are multiplied by when they are added, the first in place of which the unit of the larger comes. */
static void align(attn_row *row, const part *p, double *mine, double *its) {
  *mine = *its = 1;
  if (row->ref == p->ref && row->shift == p->shift) return;
  double mine_at = row->shift + row->ref * 0x1.62e42fefa39efp-1, its_at = p->shift + p->ref * 0x1.62e42fefa39efp-1;
  bool exact = row->shift == p->shift;
  if (mine_at >= its_at) {
    *its = exact ? d_scale(1, p->ref - row->ref) : exp_down(its_at - mine_at);
  } else {
    *mine = exact ? d_scale(1, row->ref - p->ref) : exp_down(mine_at - its_at);
    row->ref = p->ref, row->shift = p->shift;
  }
}

typedef double wide __attribute__((vector_size(64)));
typedef real narrow __attribute__((vector_size(8 * sizeof(real))));

/* sum = sum mine + o its */
static void fold_sums(double *sum, const real *o, int64_t n, double mine, double its) {
  for (int64_t i = 0; i < n; i += 8) {
    narrow x;
    wide y;
    memcpy(&x, o + i, sizeof x);
    memcpy(&y, sum + i, sizeof y);
    y = y * mine + __builtin_convertvector(x, wide) * its;
    memcpy(sum + i, &y, sizeof y);
  }
}

static void fold_part(const work *w, attn_row *row, double *sums, const part *p, const real *o) {
  const weigher *op = w->op;
  double mine, its;
  if (!p->any) return;
  if (!row->any) {
    row->any = true, row->ref = p->ref, row->shift = p->shift;
    memcpy(row->a, p->a, sizeof row->a);
    for (int64_t i = 0; i < w->width; i++) sums[i] = o ? (double)o[i] : 0;
    return;
  }
  align(row, p, &mine, &its);
  for (int i = 0; i < ATTN_SCALARS; i++) {
    double a = row->a[i], b = p->a[i];
    row->a[i] = op->scalar[i] == FOLD_SCALED ? a * mine + b * its : op->scalar[i] == FOLD_PLAIN ? a + b : a > b ? a : b;
  }
  for (int64_t i = 0; !o && i < w->width; i++) sums[i] *= mine;
  if (!o) return;
  fold_sums(sums, o, w->columns, mine, its);
  if (op->values > 1 && op->second == FOLD_SCALED) fold_sums(sums + w->columns, o + w->columns, w->columns, mine, its);
  if (op->values > 1 && op->second == FOLD_PLAIN) fold_sums(sums + w->columns, o + w->columns, w->columns, 1, 1);
}

/* ---- output ---- */

static void store_empty(work *w, int64_t r) {
  const attn_row *row = w->rows + r;
  real value = w->c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0, lse = (real)row->sink;
  if (w->c->on_empty == SMX_EMPTY_ERROR) {
    if (w->t->first_empty < 0) w->t->first_empty = row->i * w->h->groups + row->g;
    return;
  }
  for (int64_t i = 0; i < w->columns; i++) w->buffer[i] = value;
  move_store((row_store)w->h->o.store, w->buffer, (size_t)w->c->e, cell(&w->h->o, row->i, row->g), w->h->o.stride);
  if (w->h->lse.data) move_store((row_store)w->h->lse.store, &lse, 1, cell(&w->h->lse, row->i, row->g), 1);
}

/* The sink is a key of its own without a value, added after the last split. */
static void add_sink(const work *w, attn_row *row, double *sums) {
  if (row->sink == -(double)R_INF) return;
  bool far = row->sink > (double)ATTN_FAR || row->sink < -(double)ATTN_FAR;
  vreal k, e = v_exp_pair(v_set1(far ? 0 : (real)row->sink), &k);
  part p = {.any = true, .ref = (double)v_first(k), .shift = far ? row->sink : 0, .a = {(double)v_first(e)}};
  fold_part(w, row, sums, &p, NULL);
}

static void store_row(work *w, int64_t r) {
  attn_row *row = w->rows + r;
  double *sums = w->sums + r * w->width;
  finished f = {{0}, 0};
  if (!row->any) {
    store_empty(w, r);
    return;
  }
  add_sink(w, row, sums);
  w->op->finish(w->c, row, &f);
  for (int64_t i = 0; i < w->columns; i++) {
    double x = sums[i] * f.factor[0];
    if (w->op->values > 1) x += sums[w->columns + i] * f.factor[1];
    w->buffer[i] = f.lse == f.lse ? (real)x : r_nan();
  }
  for (int64_t i = 0; i < w->columns; i += LANES) v_store(w->buffer + i, v_clean(v_load(w->buffer + i)));
  move_store((row_store)w->h->o.store, w->buffer, (size_t)w->c->e, cell(&w->h->o, row->i, row->g), w->h->o.stride);
  if (!w->h->lse.data) return;
  real lse = v_first(v_clean(v_set1((real)f.lse)));
  move_store((row_store)w->h->lse.store, &lse, 1, cell(&w->h->lse, row->i, row->g), 1);
}

/* ---- a tile and a split ---- */

/* Scores to weights for one row. False when it sees nothing here. */
static bool weigh_row(work *w, const block *b, int r, int64_t tile_row, part *p, bool stat) {
  attn_row *row = w->rows + b->row + r;
  weighing one = {.z = w->z + (tile_row + r) * PITCH, .second = w->second + (w->op->values > 1 ? (tile_row + r) * PITCH : 0)};
  one.from = (int)(b->low / ATTN_PANEL * ATTN_PANEL);
  one.to = (int)round_up(b->high, ATTN_PANEL);
  one.top = v_hmax(v_load(w->top + (tile_row + r) * LANES));
  if (one.top == -R_INF) { /* nothing, or only NaN */
    bool nan = false;
    for (int j = one.from; j < one.to; j++) nan |= one.z[j] != one.z[j];
    one.top = 0;
    if (!nan) {
      for (int j = one.from; j < one.to; j++) one.z[j] = 0;
      for (int j = one.from; j < one.to && w->op->values > 1; j++) one.second[j] = 0;
      return p->any = false;
    }
  }
  if (stat) {
    w->op->stat(w->c, row, &one);
    return p->any = true;
  }
  w->op->weigh(w->c, row, &one);
  *p = (part){.any = true, .ref = (double)one.ref, .shift = (double)one.shift};
  for (int i = 0; i < ATTN_SCALARS; i++) p->a[i] = (double)one.a[i];
  return true;
}

/* One panel and one channel. */
static void add_values(work *w, const block *b, int64_t tile_row, int p, int channel) {
  int64_t from = clamp(b->low - p * ATTN_PANEL, 0, ATTN_PANEL), to = clamp(b->high - p * ATTN_PANEL, 0, ATTN_PANEL);
  const real *at = (channel ? w->second : w->z) + tile_row * PITCH + p * ATTN_PANEL;
  real *o = w->o + tile_row * w->width + channel * w->columns;
  if (!(b->mixed >> p & 1) || (w->finite >> p & 1)) {
    values_block(b->rows, at + from, w->values + from * w->pitch, w->pitch, (int)(to - from), o, w->width, w->columns);
    return;
  }
  for (int r = 0; r < b->rows; r++)
    for (uint64_t bits = w->visible[(tile_row + r) * ATTN_PANELS + p]; bits; bits &= bits - 1) {
      int j = __builtin_ctzll(bits);
      values_block(1, at + r * PITCH + j, w->values + j * w->pitch, w->pitch, 1, o + r * w->width, w->width, w->columns);
    }
}

static void keep_part(work *w, int64_t r, const part *p, const real *o) {
  const attn_task *t = w->t;
  if (!t->states) {
    fold_part(w, w->rows + r, w->sums + r * w->width, p, o);
    return;
  }
  real *state = (real *)t->states + r * t->state_rows + (w->split - t->split) * t->state_step;
  memset(state, 0, ATTN_STATE_HEAD * sizeof *state);
  state[0] = p->any, state[1] = (real)p->ref, state[2] = (real)p->shift;
  for (int i = 0; i < ATTN_SCALARS; i++) state[3 + i] = (real)p->a[i];
  memcpy(state + ATTN_STATE_HEAD, o, (size_t)w->width * sizeof *state);
}

static void tile_split(work *w, int64_t first, int64_t rows, bool stat) {
  enum { BLOCKS = ATTN_TILE / ATTN_BLOCK };
  block blocks[BLOCKS];
  part parts[ATTN_TILE];
  int count = (int)((rows + ATTN_BLOCK - 1) / ATTN_BLOCK);
  for (int64_t i = 0; i < round_up(rows, ATTN_BLOCK) * LANES; i++) w->top[i] = -R_INF;
  for (int b = 0; b < count; b++)
    open_block(w, blocks + b, first + b * ATTN_BLOCK, clamp(rows - b * ATTN_BLOCK, 0, ATTN_BLOCK));
  for (int p = 0; p < ATTN_PANELS; p++) {
    const real *k = NULL;
    for (int b = 0; b < count; b++) {
      if (!block_sees(blocks + b, p)) continue;
      if (!k) k = key_panel(w, p);
      score_panel(w, blocks + b, b * ATTN_BLOCK, p, k);
    }
  }
  for (int b = 0; b < count; b++)
    for (int r = 0; r < blocks[b].rows; r++) weigh_row(w, blocks + b, r, b * ATTN_BLOCK, parts + b * ATTN_BLOCK + r, stat);
  if (stat) return;
  memset(w->o, 0, (size_t)(round_up(rows, ATTN_BLOCK) * w->width) * sizeof *w->o);
  for (int p = 0; p < ATTN_PANELS; p++) {
    bool ready = false;
    for (int b = 0; b < count; b++) {
      if (!block_sees(blocks + b, p)) continue;
      if (!ready) value_panel(w, p);
      ready = true;
      for (int channel = 0; channel < w->op->values; channel++) add_values(w, blocks + b, b * ATTN_BLOCK, p, channel);
    }
  }
  for (int64_t r = 0; r < rows; r++) keep_part(w, first + r, parts + r, w->o + r * w->width);
}

static void each_split(work *w, bool stat) {
  const attn_task *t = w->t;
  for (w->split = t->split; w->split < t->split + t->splits; w->split++) {
    w->packed = w->staged = w->known = w->finite = 0;
    for (int64_t r = 0; r < t->rows; r += ATTN_TILE) tile_split(w, r, clamp(t->rows - r, 0, ATTN_TILE), stat);
  }
}

static void forward(attn_task *t, void *scratch) {
  work w;
  open_work(&w, t, scratch);
  for (int64_t b = 0; b * ATTN_BLOCK < t->rows; b++) pack_block(&w, b);
  if (w.op->stat) each_split(&w, true);
  each_split(&w, false);
  for (int64_t r = 0; r < t->rows && !t->states; r++) store_row(&w, r);
}

static void merge(attn_task *t, void *scratch) {
  work w;
  open_work(&w, t, scratch);
  for (int64_t r = 0; r < t->rows; r++) {
    for (int64_t s = 0; s < t->splits; s++) {
      const real *state = (const real *)t->states + r * t->state_rows + s * t->state_step;
      part p = {.any = state[0] != 0, .ref = (double)state[1], .shift = (double)state[2]};
      for (int i = 0; i < ATTN_SCALARS; i++) p.a[i] = (double)state[3 + i];
      fold_part(&w, w.rows + r, w.sums + r * w.width, &p, state + ATTN_STATE_HEAD);
    }
    store_row(&w, r);
  }
}

const attention_kernels SMX_FN(attention_kernels) = {scratch_bytes, forward, merge};
