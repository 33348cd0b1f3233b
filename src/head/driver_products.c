/* head/driver_products.c - the three products of a linear layer over a block of rows,
 *
 *     z = h w^T,   dh = dz w,   dw += dz^T h,
 *
 * each split into tasks of which no two write the same sum. */
#include "driver_linear.h"
#include <string.h>

/* A task's memory: a tile, room to turn it, and rows: the sums of a slab of dh, or dz of a panel of
 * classes. */
typedef struct place {
  char *tile, *room, *rows;
  double *totals; /* of the sums */
} place;
static size_t carve(const linear_run *l, char *at, place *p) {
  const size_t tile = (size_t)(HEAD_TILE * l->bytes);
  const size_t rows = (size_t)(l->most * (l->p->dh.data ? l->slab : l->p->dw.data ? HEAD_PANEL : 0));
  p->tile = at, p->room = at + tile, p->rows = p->room + tile;
  p->totals = (double *)(void *)(p->rows + rows * (size_t)l->bytes);
  return 2 * tile + rows * ((size_t)l->bytes + (l->p->dh.data ? sizeof(double) : 0));
}
size_t linear_place(const linear_run *l) {
  static char nowhere[1];
  place p;
  return carve(l, nowhere, &p);
}
static place take_place(linear_run *l) {
  place p;
  carve(l, smx_scratch_take(&l->scratch), &p);
  return p;
}
static void give_place(linear_run *l, const place *p) { smx_scratch_give(&l->scratch, p->tile); }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static char *element(const smx_view *v, int64_t row, int64_t column) {
  return v->data + (row * v->strides[0] + column * v->strides[1]) * smx_dtype_bytes(v->dtype);
}

/* Rows row.. and columns column.. of a matrix, as far as a tile goes. */
static head_tile tile_of(const smx_view *v, int64_t row, int64_t column, bool turned) {
  return (head_tile){.data = element(v, row, column),
                     .row = v->strides[0] * smx_dtype_bytes(v->dtype),
                     .column = v->strides[1],
                     .store = row_store_of(v->dtype),
                     .rows = least(HEAD_PANEL, v->shape[0] - row),
                     .columns = least(HEAD_PANEL, v->shape[1] - column),
                     .turned = turned};
}

/* The same as what is read soon; past the end: nothing. */
static head_fetch next_tile(const smx_view *v, int64_t row, int64_t column) {
  if (row >= v->shape[0] || column >= v->shape[1]) return (head_fetch){NULL, 0, 0};
  const head_tile t = tile_of(v, row, column, false);
  return (head_fetch){t.data, t.row, t.rows};
}

/* h of this block: where it is, or a copy. */
static char *block_h(const linear_run *l, int64_t *step) {
  const smx_view *h = &l->p->h;
  *step = l->h ? l->width : h->strides[0];
  return l->h ? l->h : element(h, l->first, 0);
}

static void copy_row(void *arg, int64_t row) {
  linear_run *l = arg;
  const smx_view *h = &l->p->h;
  l->kernels->io->load(row_store_of(h->dtype), element(h, l->first + row, 0), h->strides[1], (size_t)l->width,
                       l->h + row * l->width * l->bytes);
}

/* ---- z ---- */

static void logits_task(void *arg, int64_t panel) {
  linear_run *l = arg;
  const head_kernels *k = l->kernels->head;
  const int64_t class = panel * HEAD_PANEL, columns = least(HEAD_PANEL, l->classes - class);
  char *const z = l->z + class * l->bytes;
  place at = take_place(l);
  head_product p = {.rows = l->rows, .columns = columns, .a_depth = 1, .b = at.tile, .c = z, .factor = 1};
  const char *const h = l->width ? block_h(l, &p.a_row) : at.tile; /* without columns there may be no h */
  p.c_row = l->pitch, p.first = true;
  for (int64_t x = 0; x < l->width || p.first; x += HEAD_CHAIN, p.first = false) {
    if (l->width) {
      head_tile t = tile_of(&l->p->w, class, x, true);
      t.tile = at.tile, t.room = at.room;
      k->pack(&t);
    }
    p.a = h + x * l->bytes, p.depth = least(HEAD_CHAIN, l->width - x);
    p.fetch = x + HEAD_CHAIN < l->width ? next_tile(&l->p->w, class, x + HEAD_CHAIN)
                                        : next_tile(&l->p->w, class + HEAD_PANEL, 0);
    k->product(&p);
  }
  for (int64_t r = 0; r < l->rows; r++)
    k->finish(z + r * l->pitch * l->bytes, columns, l->p->scale, l->bias ? l->bias + class * l->bytes : NULL,
              l->p->softcap);
  give_place(l, &at);
}

void linear_block_logits(linear_run *l) {
  if (l->h) smx_parallel(l->ctx, l->rows, copy_row, l);
  smx_parallel(l->ctx, linear_tiles(l->classes), logits_task, l);
}

/* ---- dh ---- */

/* dz w of one split of classes, for a slab of columns. */
static void dh_split(const linear_run *l, const place *at, int64_t x, int64_t columns, int64_t from,
                     int64_t to) {
  const head_kernels *k = l->kernels->head;
  for (int64_t class = from; class < to; class += HEAD_CHAIN)
    for (int64_t s = 0; s < columns; s += HEAD_PANEL) {
      head_tile t = tile_of(&l->p->w, class, x + s, false);
      head_product p = {.rows = l->rows, .columns = t.columns, .a_row = l->pitch, .a_depth = 1, .factor = 1};
      t.tile = at->tile, t.room = at->room;
      k->pack(&t);
      p.depth = t.rows, p.a = l->dz + class * l->bytes, p.b = at->tile;
      p.c = at->rows + s * l->bytes, p.c_row = l->slab, p.first = class == from;
      p.fetch = s + HEAD_PANEL < columns ? next_tile(&l->p->w, class, x + s + HEAD_PANEL)
                                         : next_tile(&l->p->w, class + HEAD_CHAIN, x);
      k->product(&p);
    }
}

static void add_row(const linear_run *l, double *total, const char *term, int64_t columns) {
  if (l->is_f64)
    for (int64_t i = 0; i < columns; i++) total[i] += ((const double *)(const void *)term)[i];
  else
    for (int64_t i = 0; i < columns; i++) total[i] += (double)((const float *)(const void *)term)[i];
}

/* A row of a term, from column x on. */
static char *term_at(const linear_run *l, int64_t term, int64_t row, int64_t x) {
  return l->terms + ((term * l->most + row) * l->width + x) * l->bytes;
}
static int64_t terms_of(const linear_run *l) { return (l->classes + LINEAR_SPLIT - 1) / LINEAR_SPLIT; }

static void store_row(const linear_run *l, int64_t row, int64_t x, int64_t columns, const double *total,
                      char *room) {
  const smx_view *dh = &l->p->dh;
  l->kernels->head->round(total, l->p->scale, columns, room);
  l->kernels->io->store(row_store_of(dh->dtype), room, (size_t)columns, element(dh, l->first + row, x),
                        dh->strides[1]);
}

static void dh_task(void *arg, int64_t slab) {
  linear_run *l = arg;
  const int64_t x = slab * l->slab, columns = least(l->slab, l->width - x);
  place at = take_place(l);
  for (int64_t i = 0; i < l->rows * l->slab; i++) at.totals[i] = 0;
  for (int64_t term = 0; term < terms_of(l); term++) {
    const int64_t class = term * LINEAR_SPLIT;
    dh_split(l, &at, x, columns, class, least(class + LINEAR_SPLIT, l->classes));
    for (int64_t r = 0; r < l->rows; r++) {
      const char *const sum = at.rows + r * l->slab * l->bytes;
      if (l->apart) memcpy(term_at(l, term, r, x), sum, (size_t)(columns * l->bytes));
      else add_row(l, at.totals + r * l->slab, sum, columns);
    }
  }
  for (int64_t r = 0; r < l->rows && !l->apart; r++)
    store_row(l, r, x, columns, at.totals + r * l->slab, at.rows);
  give_place(l, &at);
}

static void add_terms_row(void *arg, int64_t row) {
  const linear_run *l = arg;
  for (int64_t term = 0; term < terms_of(l); term++)
    add_row(l, l->totals + row * l->width, term_at(l, term, row, 0), l->width);
}
void linear_add_terms(linear_run *l) { smx_parallel(l->ctx, l->rows, add_terms_row, l); }

static void store_totals_row(void *arg, int64_t row) {
  linear_run *l = arg;
  place at = take_place(l);
  for (int64_t x = 0; x < l->width; x += l->slab)
    store_row(l, row, x, least(l->slab, l->width - x), l->totals + row * l->width + x, at.rows);
  give_place(l, &at);
}
void linear_store_dh(linear_run *l) { smx_parallel(l->ctx, l->rows, store_totals_row, l); }

/* ---- dw and dbias ---- */

/* h of the block as tiles, [column of tiles][row of tiles]. */
static char *h_tile(const linear_run *l, int64_t x, int64_t row) {
  return l->packed + (x * linear_tiles(l->rows) + row) * HEAD_TILE * l->bytes;
}
static void pack_task(void *arg, int64_t x) {
  linear_run *l = arg;
  for (int64_t row = 0; row < linear_tiles(l->rows); row++) {
    head_tile t = tile_of(&l->p->h, l->first + row * HEAD_PANEL, x * HEAD_PANEL, false);
    t.tile = h_tile(l, x, row);
    l->kernels->head->pack(&t);
  }
}

/* Without rows there is one tile of no terms, which makes sums of 0. */
static int64_t row_tiles(const linear_run *l) { return l->rows ? linear_tiles(l->rows) : 1; }
static bool is_last(const linear_run *l) { return l->first + l->rows == l->n; }

/* Where dw is summed. */
static char *dw_sums(const linear_run *l, int64_t class, int64_t *step) {
  const smx_view *dw = &l->p->dw;
  *step = l->w_sums ? l->width : dw->strides[0];
  return l->w_sums ? l->w_sums + class * l->width * l->bytes : element(dw, class, 0);
}

/* Where rows of dw are finished: into dw, or into its sums until the last block. */
static void put_dw(const linear_run *l, int64_t class, int64_t x, int64_t columns, const char *sum) {
  const smx_view *dw = &l->p->dw;
  int64_t step;
  char *const to = dw_sums(l, class, &step) + x * l->bytes;
  if (l->w_sums && is_last(l))
    l->kernels->io->store(row_store_of(dw->dtype), sum, (size_t)columns, element(dw, class, x),
                          dw->strides[1]);
  else memcpy(to, sum, (size_t)(columns * l->bytes));
}

/* A tile of dw: its sums are moved together, for rows of dw are often a multiple of 4096 bytes
 * apart. */
static void dw_tile(const linear_run *l, const place *at, int64_t class, int64_t x) {
  const int64_t tiles = row_tiles(l), columns = least(HEAD_PANEL, l->width - x),
                row_bytes = HEAD_PANEL * l->bytes;
  head_product p = {.rows = least(HEAD_PANEL, l->classes - class), .columns = columns};
  int64_t step;
  const char *const from = dw_sums(l, class, &step) + x * l->bytes;
  for (int64_t c = 0; c < p.rows && l->first; c++)
    memcpy(at->tile + c * row_bytes, from + c * step * l->bytes, (size_t)(columns * l->bytes));
  p.a_row = 1, p.a_depth = HEAD_PANEL, p.c = at->tile, p.c_row = HEAD_PANEL, p.factor = l->p->scale;
  for (int64_t row = 0; row < tiles; row++) {
    p.a = at->rows + row * HEAD_TILE * l->bytes, p.b = h_tile(l, x / HEAD_PANEL, row);
    p.depth = least(HEAD_CHAIN, l->rows - row * HEAD_CHAIN);
    p.first = l->first + row == 0, p.last = is_last(l) && row == tiles - 1;
    if (row == tiles - 1 && x + HEAD_PANEL < l->width)
      p.fetch = (head_fetch){from + row_bytes, step * l->bytes, p.rows};
    l->kernels->head->product(&p);
  }
  for (int64_t c = 0; c < p.rows; c++) put_dw(l, class + c, x, columns, at->tile + c * row_bytes);
}

static void dw_task(void *arg, int64_t task) {
  linear_run *l = arg;
  const int64_t class = task * HEAD_PANEL, classes = least(HEAD_PANEL, l->classes - class);
  place at = take_place(l);
  for (int64_t r = 0; r < l->rows; r++)
    memcpy(at.rows + r * HEAD_PANEL * l->bytes, l->dz + (r * l->pitch + class) * l->bytes,
           (size_t)(classes * l->bytes));
  for (int64_t x = 0; x < l->width; x += HEAD_PANEL) dw_tile(l, &at, class, x);
  give_place(l, &at);
}

static void dbias_task(void *arg, int64_t panel) {
  linear_run *l = arg;
  const smx_view *to = &l->p->dbias;
  const int64_t class = panel * HEAD_PANEL, classes = least(HEAD_PANEL, l->classes - class),
                tiles = row_tiles(l);
  char *const sums = l->bias_sums + class * l->bytes;
  for (int64_t row = 0; row < tiles; row++)
    l->kernels->head->sum_rows(l->dz + (row * HEAD_CHAIN * l->pitch + class) * l->bytes, l->pitch,
                               least(HEAD_CHAIN, l->rows - row * HEAD_CHAIN), classes, sums,
                               l->first + row == 0, is_last(l) && row == tiles - 1);
  if (is_last(l))
    l->kernels->io->store(row_store_of(to->dtype), sums, (size_t)classes,
                          to->data + class * to->strides[0] * smx_dtype_bytes(to->dtype), to->strides[0]);
}

static void uncap_row(void *arg, int64_t row) {
  linear_run *l = arg;
  const int64_t at = row * l->pitch * l->bytes;
  l->kernels->head->uncap(l->dz + at, l->z + at, l->classes, l->p->softcap);
}

void linear_block_gradients(linear_run *l) {
  if (l->p->softcap > 0) smx_parallel(l->ctx, l->rows, uncap_row, l);
  if (l->p->dbias.data) smx_parallel(l->ctx, linear_tiles(l->classes), dbias_task, l);
  if (l->p->dh.data && l->rows) smx_parallel(l->ctx, (l->width + l->slab - 1) / l->slab, dh_task, l);
  if (!l->p->dw.data || !l->width) return;
  smx_parallel(l->ctx, linear_tiles(l->width), pack_task, l);
  smx_parallel(l->ctx, (l->classes + HEAD_PANEL - 1) / HEAD_PANEL, dw_task, l);
}
