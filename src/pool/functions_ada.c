/* pool/functions_ada.c - ada_pool and ada_unpool, in double. Some windows of a row are looked at
 * together, place by place, so that loops go over windows; a plane is a task.
 *
 *   y = b y_d + (1 - b) y_e,  y_d = sum w^d x,  w^d = softmax(s),  y_e = sum w^e x,
 *   w^e = softmax(x),  s = 2 |x m| / (x^2 + m^2), Dice's coefficient of x and the mean m,
 *   dx = b (w^d + w^d (x - y_d) ds / dx + sum w^d (x - y_d) ds / dm / n)
 *        + (1 - b) w^e (1 + x - y_e)
 *
 * ada_unpool: each cell has its share of y, z = (b w^d + (1 - b) w^e) y. */
#include <string.h>

#include "functions_forms.h"
#include "functions_lines.h"
#include "functions_sets.h"

enum { X, MIX, UNPOOLED = 1 };       /* inputs: MIX and the map behind it; of ada_unpool y comes before */
enum { BLOCK = 4096, WIDEST = 128 }; /* numbers of a matrix, about; windows side by side */

typedef struct ada_call {
  const tensor_call *c;
  const score_runs *run;
  const pool_kernels *kernels; /* of double */
  void (*gather)(const pool_windows *w, const void *x, int64_t distance, void *matrix);
  pool_shape s;
  bool map, hidden; /* hidden: windows may have absent cells */
  int share_port;   /* that of the map is the next */
  int64_t most;     /* windows side by side */
  double *share;    /* b, or one for each output */
  double *partial;  /* the gradient of b of each plane, or NULL */
  smx_scratch scratch;
} ada_call;

/* Some windows of a row, or of whole rows. Matrices are [places][wide]; there: 1 or 0; w, e: w^d
 * and w^e; slope: of x through s; v: other numbers of cells, real: of the real type. The rest has
 * a number for each. */
typedef struct block {
  int64_t plane, row, begin, end, wide;
  void *real;
  double *x, *there, *w, *e, *slope, *v, *cells;
  double count[WIDEST], mean[WIDEST], dice[WIDEST], own[WIDEST], shared[WIDEST], b[WIDEST], up[WIDEST];
  double top[WIDEST]; /* the largest cell */
} block;

static double size_of(double x) { return x < 0 ? -x : x; }
static double within(double b) { return b < 0 ? 0 : b > 1 ? 1 : b; }

/* ---- cells of windows ---- */

/* The number of the first output. */
static int64_t output_at(const ada_call *f, const block *k) {
  return k->plane * f->s.outputs + k->row * f->s.axis[2].outputs + k->begin;
}

static void each_line(const ada_call *f, const block *k, pool_line_fn *fn, void *arg) {
  pool_each_line(&f->s, k->row, k->begin, k->end, fn, arg);
}
static void mark(void *arg, const pool_line *l) {
  const block *k = arg;
  double *to = k->there + l->k * k->wide + l->out;
  for (int64_t i = 0; i < l->count; i++) to[i] = 1;
}
/* Adds v to the cells. */
static void scatter(void *arg, const pool_line *l) {
  const block *k = arg;
  const double *from = k->v + l->k * k->wide + l->out;
  double *to = k->cells + l->cell;
  for (int64_t i = 0; i < l->count; i++) to[i * l->cell_step] += from[i];
}
/* Cells from x to the matrix of a whole row, whose first output is number `first`. */
typedef struct row_of_cells {
  const ada_call *f;
  const char *x;
  char *matrix;
  int64_t first, wide, bytes;
} row_of_cells;
static void gather_form(void *arg, const pool_windows *w, int64_t x, int64_t y) {
  const row_of_cells *r = arg;
  r->f->gather(w, r->x + x * r->bytes, r->wide, r->matrix + (y - r->first) * r->bytes);
}

/* The cells of a tensor to a matrix; 0 of what is absent. */
static void gather(const ada_call *f, const block *k, const smx_view *from, double *to) {
  const int64_t bytes = f->c->is_f64 ? 8 : 4, n = f->s.window * k->wide;
  if (k->wide == f->s.axis[2].outputs) {
    row_of_cells r = {f, from->data, k->real, output_at(f, k), k->wide, bytes};
    pool_each_form(&f->s, &(pool_rows){k->plane, 1, k->row, k->row + 1, false}, gather_form, &r);
  } else {
    windows w = {
        .x = from->data + k->plane * f->s.cells * bytes, .matrix = k->real, .place = k->wide, .window = 1};
    each_line(f, k, pool_lines_of[f->c->is_f64].gather, &w);
  }
  smx_reals_load(f->c->is_f64, k->real, n, to);
  for (int64_t i = 0; i < n && f->hidden; i++) to[i] = k->there[i] != 0 ? to[i] : 0;
}

/* ---- weights ---- */

/* Twice the slopes, of half the distances, so that neither overflows. */
static void take_slopes(const ada_call *f, block *k) {
  for (int64_t i = 0; i < k->wide; i++) k->shared[i] = 0;
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const int64_t at = p * k->wide + i;
      const double x = k->x[at], a = size_of(x), m = k->mean[i], b = size_of(m), most = a > b ? a : b;
      const double none = most == 0 ? 1 : 0, some = most + none, r = ((a > b ? b : a) + none) / some;
      const double q = 1 + r * r, small = (1 - r * r) / (q / 2 * (q / 2) * some), large = -r * small;
      const double up = k->w[at] * (x / 2 - k->dice[i] / 2), of_x = a > b ? large : small,
                   of_m = a > b ? small : large;
      k->slope[at] = up * (x < 0 ? -of_x : of_x), k->shared[i] += up * (m < 0 ? -of_m : of_m);
    }
}
/* Weights and means of the cells; keep: all of a block, not the two means alone. */
static void weigh(const ada_call *f, block *k, bool keep) {
  const int64_t n = f->s.window * k->wide;
  const pool_ada_block a = {f->s.window, k->wide, k->x,  f->hidden ? k->there : NULL, k->w, k->e,
                            k->count,    k->mean, k->top};
  if (f->s.window == 4 && !f->hidden && f->kernels->ada_four(&a, keep, k->dice, k->own)) return;
  f->kernels->ada_scores(&a);
  f->run->exp(k->w, n, k->w), f->run->exp(k->e, n, k->e);
  f->kernels->ada_weights(&a, k->w, k->dice), f->kernels->ada_weights(&a, k->e, k->own);
}
/* Everything of the windows that have the outputs begin..end-1 of a row. */
static void take_block(const ada_call *f, block *k) {
  for (int64_t i = 0; i < f->s.window * k->wide && f->hidden; i++) k->there[i] = 0;
  if (f->hidden) each_line(f, k, mark, k);
  gather(f, k, f->c->in.view + X, k->x);
  weigh(f, k, true);
  for (int64_t i = 0; i < k->wide; i++)
    k->b[i] = within(f->share[f->map ? k->row * f->s.axis[2].outputs + k->begin + i : 0]);
}

/* ---- tasks ---- */

static void lay_out(const ada_call *f, char *memory, block *k) {
  const int64_t n = f->s.window * f->most;
  k->x = (double *)(void *)memory, k->there = k->x + n, k->w = k->there + n, k->e = k->w + n;
  k->slope = k->e + n, k->v = k->slope + n, k->real = k->v + n, k->cells = k->v + 2 * n;
}

typedef void block_fn(const ada_call *f, block *k);
static void each_block(ada_call *f, int64_t plane, block_fn *fn, void (*end)(const ada_call *f, block *k)) {
  char *memory = smx_scratch_take(&f->scratch);
  const int64_t length = f->s.axis[2].outputs;
  block k = {.plane = plane};
  lay_out(f, memory, &k);
  for (int64_t i = 0; i < f->s.cells && end; i++) k.cells[i] = 0;
  for (int64_t i = 0; f->partial && i < (f->map ? f->s.outputs : 1); i++)
    f->partial[plane * (f->map ? f->s.outputs : 1) + i] = 0;
  for (; k.row < f->s.outputs / length; k.row++)
    for (k.begin = 0; k.begin < length; k.begin = k.end) {
      k.end = length - k.begin < f->most ? length : k.begin + f->most, k.wide = k.end - k.begin;
      take_block(f, &k), fn(f, &k);
    }
  if (end) end(f, &k);
  smx_scratch_give(&f->scratch, memory);
}

/* y: the number of the first output. */
static void put_values(const ada_call *f, block *k, int64_t y) {
  for (int64_t i = 0; i < k->wide; i++) {
    const double b = k->b[i], own = k->own[i], both = b * k->dice[i] + (1 - b) * own;
    k->up[i] = b == 0 ? own : both; /* what has no share may be NaN */
  }
  tensor_store(f->c, f->c->out.view, y, k->wide, k->up);
}
static void put_block(const ada_call *f, block *k) { put_values(f, k, output_at(f, k)); }
static void forward_task(void *arg, int64_t plane) { each_block(arg, plane, put_block, NULL); }

/* Windows that have all their cells: those of the same form together, of whole rows or of all
 * channels. */
typedef struct forms_of_task {
  const ada_call *f;
  block *k;
} forms_of_task;

/* Of `count` windows in each of some rows, whose outputs follow one another from y on. */
static void put_form(const ada_call *f, block *k, const pool_windows *w, int64_t x, int64_t y) {
  const int64_t bytes = f->c->is_f64 ? 8 : 4;
  k->wide = w->rows * w->count;
  f->gather(w, f->c->in.view[X].data + x * bytes, k->wide, k->real);
  smx_reals_load(f->c->is_f64, k->real, f->s.window * k->wide, k->x);
  weigh(f, k, false);
  for (int64_t i = 0; i < k->wide; i++)
    k->b[i] = within(f->share[f->map ? (y + i) / f->s.channels % f->s.outputs : 0]);
  put_values(f, k, y);
}
static void put_parts_of_form(void *arg, const pool_windows *w, int64_t x, int64_t y) {
  const forms_of_task *t = arg;
  const int64_t most = t->f->most, together = w->pitch == w->count && w->count < most ? most / w->count : 1;
  pool_windows part = *w;
  for (int64_t r = 0; r < w->rows; r += part.rows) {
    part.rows = w->rows - r < together ? w->rows - r : together;
    for (int64_t i = 0; i < w->count; i += part.count) {
      part.pitch = part.count = w->count - i < most ? w->count - i : most;
      put_form(t->f, t->k, &part, x + r * w->row_step + i * w->step, y + r * w->pitch + i);
    }
  }
}
static void forms_task(void *arg, int64_t task) {
  ada_call *f = arg;
  char *memory = smx_scratch_take(&f->scratch);
  block k;
  lay_out(f, memory, &k);
  const pool_rows rows = pool_rows_of_task(&f->s, task);
  pool_each_form(&f->s, &rows, put_parts_of_form, &(forms_of_task){f, &k});
  smx_scratch_give(&f->scratch, memory);
}

/* The gradient of b, from those of the two means; 0 where b is held. */
static void give_shares(const ada_call *f, const block *k, const double *dice, const double *own) {
  const int64_t first = f->map ? output_at(f, k) : k->plane;
  for (int64_t i = 0; i < k->wide && f->partial; i++) {
    const double share = f->share[f->map ? first + i - k->plane * f->s.outputs : 0];
    if (share == k->b[i] && k->up[i] != 0)
      f->partial[first + (f->map ? i : 0)] += k->up[i] * (dice[i] - own[i]);
  }
}

/* v = w^e (1 + x - y_e), by distances from the largest cell: of large cells x - y_e is not exact,
 * and 1 + x is x. */
static void take_own_slopes(const ada_call *f, block *k) {
  double mean[WIDEST] = {0};
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const double w = k->e[p * k->wide + i], far = k->x[p * k->wide + i] - k->top[i];
      k->v[p * k->wide + i] = far, mean[i] += w == 0 ? 0 : w * far;
    }
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const int64_t at = p * k->wide + i;
      k->v[at] = k->e[at] == 0 ? 0 : k->e[at] * (1 + (k->v[at] - mean[i]));
    }
}

static void give_cells(const ada_call *f, block *k) {
  tensor_load(f->c, f->c->dout.view, output_at(f, k), k->wide, k->up);
  take_slopes(f, k), take_own_slopes(f, k);
  for (int64_t i = 0; i < k->wide; i++) k->shared[i] /= k->count[i];
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const int64_t at = p * k->wide + i;
      const double of_dice = k->w[at] + k->slope[at] + k->shared[i];
      k->v[at] = k->up[i] * (k->b[i] * of_dice + (1 - k->b[i]) * k->v[at]);
    }
  for (int64_t i = 0; i < k->wide; i++) /* 0 of a NaN too */
    for (int64_t p = 0; p < f->s.window && k->up[i] == 0; p++) k->v[p * k->wide + i] = 0;
  each_line(f, k, scatter, k);
  give_shares(f, k, k->dice, k->own);
}
static void put_cells(const ada_call *f, block *k) {
  if (f->c->din.given[X]) tensor_store(f->c, f->c->din.view + X, k->plane * f->s.cells, f->s.cells, k->cells);
}
static void backward_task(void *arg, int64_t plane) { each_block(arg, plane, give_cells, put_cells); }

/* ---- ada_unpool: windows have no cell in common, and weights are constants ---- */

static void spread(const ada_call *f, block *k) {
  tensor_load(f->c, f->c->in.view + UNPOOLED, output_at(f, k), k->wide, k->up);
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const int64_t at = p * k->wide + i;
      k->v[at] = (k->b[i] * k->w[at] + (1 - k->b[i]) * k->e[at]) * k->up[i];
    }
  each_line(f, k, scatter, k);
}
static void put_spread(const ada_call *f, block *k) {
  tensor_store(f->c, f->c->out.view, k->plane * f->s.cells, f->s.cells, k->cells);
}
static void unpool_task(void *arg, int64_t plane) { each_block(arg, plane, spread, put_spread); }

static void collect(const ada_call *f, block *k) {
  double dice[WIDEST] = {0}, own[WIDEST] = {0};
  gather(f, k, f->c->dout.view, k->v);
  for (int64_t p = 0; p < f->s.window; p++)
    for (int64_t i = 0; i < k->wide; i++) {
      const int64_t at = p * k->wide + i;
      dice[i] += k->w[at] * k->v[at], own[i] += k->e[at] * k->v[at];
    }
  for (int64_t i = 0; i < k->wide; i++) k->up[i] = k->b[i] * dice[i] + (1 - k->b[i]) * own[i];
  if (f->c->din.given[UNPOOLED])
    tensor_store(f->c, f->c->din.view + UNPOOLED, output_at(f, k), k->wide, k->up);
  tensor_load(f->c, f->c->in.view + UNPOOLED, output_at(f, k), k->wide, k->up);
  give_shares(f, k, dice, own);
}
static void unpool_backward_task(void *arg, int64_t plane) { each_block(arg, plane, collect, NULL); }

/* ---- calls ---- */

/* Planes in their order. */
static void sum_planes(const ada_call *f, int64_t count) {
  const smx_view *to = f->c->din.view + f->share_port + f->map;
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int64_t plane = 0; plane < f->s.planes; plane++) sum += f->partial[plane * count + i];
    tensor_store(f->c, to, i, 1, &sum);
  }
}

static smx_status run(const tensor_call *c, bool backward, void (*task)(void *arg, int64_t plane)) {
  const smx_isa *current = smx_isa_current();
  const smx_kernels *isa = &current->f64;
  ada_call f = {.c = c, .run = isa->score->run, .kernels = isa->pool, .s = pool_shape_of(c)};
  f.gather = c->is_f64 ? isa->pool->gather : current->f32.pool->gather;
  int64_t bytes = 0, all = 0;
  f.hidden = pool_may_be_absent(&f.s), f.share_port = MIX + (c->op == pool_table + POOL_ada_unpool);
  f.map = c->in.given[f.share_port + 1];
  f.most = f.s.window < BLOCK / WIDEST ? WIDEST : f.s.window < BLOCK ? BLOCK / f.s.window : 1;
  const int64_t shares = f.map ? f.s.outputs : 1;
  const bool learns = backward && c->din.given[f.share_port + f.map];
  const bool idle = f.s.outputs == 0 || f.s.planes == 0;
  if (!smx_multiply(f.s.window, f.most * 7, &bytes) || bytes > INT64_MAX - f.s.cells - 1 ||
      !smx_multiply(bytes + f.s.cells + 1, 8, &bytes) ||
      !smx_multiply(learns ? f.s.planes : 0, shares, &all) || all > INT64_MAX / 2 - shares)
    return smx_fail(SMX_ERR_SHAPE, "%s: windows of %lld cells are too large", c->op->name,
                    (long long)f.s.window);
  f.share = pool_reserve(c, all + shares);
  if (!f.share) return SMX_ERR_NOMEM;
  *f.share = tensor_param(c, "share"), f.partial = learns ? f.share + shares : NULL;
  if (f.map || c->in.given[f.share_port])
    tensor_load(c, c->in.view + f.share_port + f.map, 0, f.map ? f.s.outputs : 1, f.share);
  const bool whole = task == forward_task && !f.hidden && !idle;
  const int64_t tasks = whole ? pool_task_count(&f.s) : f.s.planes;
  const bool open = smx_scratch_open(&f.scratch, c->ctx, 0, (size_t)bytes, tasks);
  if (open) {
    if (whole) smx_parallel(c->ctx, tasks, forms_task, &f);
    else if (!idle || !backward) smx_parallel(c->ctx, f.s.planes, task, &f);
    if (learns) sum_planes(&f, shares);
    smx_scratch_close(&f.scratch);
  }
  smx_free(c->ctx, f.share);
  return open ? SMX_OK : smx_fail(SMX_ERR_NOMEM, "%s: no memory for windows", c->op->name);
}
bool pool_ada_by_channel(const tensor_call *c) {
  const pool_shape s = pool_shape_of(c);
  return !pool_may_be_absent(&s);
}
smx_status pool_ada(const tensor_call *c) { return run(c, false, forward_task); }
smx_status pool_ada_backward(const tensor_call *c) { return run(c, true, backward_task); }
smx_status pool_unpool(const tensor_call *c) { return run(c, false, unpool_task); }
smx_status pool_unpool_backward(const tensor_call *c) { return run(c, true, unpool_backward_task); }
