/* linear_attention/functions_performer.c - the random features of FAVOR+: rows of omega are
 * orthogonal in blocks of d, as long as rows of d normal numbers are. With x' = x / d^(1/4):
 *
 *   exp:  y_r = (e^(omega_r x' - |x'|^2 / 2 - c) + eps) / sqrt(m)
 *   relu: y_r = relu(omega_r x') + eps
 *   none: y_r = omega_r x'
 *
 * Products with omega are walks without a step that adds: they read a state that stays. */
#include <string.h>

#include "functions_walks.h"

enum { X, OMEGA, Y = 0 };          /* inputs, and the output */
enum { NO_SHIFT, BY_ROW, BY_ALL }; /* shift */
enum { EXPONENTIAL, RELU, PLAIN }; /* map */
enum { CHUNK = 64 };               /* tokens */

typedef struct performer {
  const tensor_call *c;
  const linear_attention_kernels *kernels;
  int64_t tokens, d, m, wide_d, wide_m, bytes;
  int map, shift;
  double eps, root, shrink; /* root: 1 / sqrt(m), where there are exponentials; shrink: d^(-1/4) */
  smx_scratch scratch;
  char *rows, *columns; /* omega, [m][wide_d] and [d][wide_m] */
} performer;

/* What a task works in: rows of x', their products with omega, and numbers of one row. */
typedef struct performer_work {
  char *x, *u, *g, *dx; /* [CHUNK][wide_d], [CHUNK][wide_m], the same, [CHUNK][wide_d] */
  double *row, *other, *last;
} performer_work;

static char *real_at(const performer *p, char *array, int64_t i) { return array + i * p->bytes; }

static size_t work_of(const performer *p, char *memory, performer_work *w) {
  const int64_t of_d = CHUNK * p->wide_d, of_m = CHUNK * p->wide_m, longest = p->wide_d + p->wide_m;
  if (!memory) return (size_t)(2 * (of_d + of_m) * p->bytes) + 3 * (size_t)longest * sizeof(double);
  memset(memory, 0, (size_t)(2 * (of_d + of_m) * p->bytes));
  w->x = memory, w->dx = real_at(p, w->x, of_d), w->u = real_at(p, w->dx, of_d),
  w->g = real_at(p, w->u, of_m);
  w->row = (double *)(void *)real_at(p, w->g, of_m), w->other = w->row + longest,
  w->last = w->other + longest;
  return 0;
}

/* ---- omega ---- */

/* What is left of a row without its parts along `count` orthonormal rows before it; twice, since
 * the first time rounding leaves some. */
static void take_away(double *rows, int64_t count, int64_t d) {
  double *own = rows + count * d;
  for (int again = 0; again < 2; again++)
    for (int64_t k = 0; k < count; k++) {
      double dot = 0;
      for (int64_t i = 0; i < d; i++) dot += own[i] * rows[k * d + i];
      for (int64_t i = 0; i < d; i++) own[i] -= dot * rows[k * d + i];
    }
}

static double length_of(const double *row, int64_t d) {
  double square = 0;
  for (int64_t i = 0; i < d; i++) square += row[i] * row[i];
  return __builtin_sqrt(square);
}

/* Rows of unit length first; then as long as other rows of normal numbers. */
static void draw_omega(const performer *p, double *omega) {
  const uint64_t seed = (uint64_t)tensor_param(p->c, "seed");
  const int64_t d = p->d, m = p->m;
  double *other = omega + m * d;
  state_kernels(true)->normal(seed, 0, m * d, omega);
  for (int64_t r = 0; r < m; r++) {
    double *row = omega + r * d;
    take_away(omega + r / d * d * d, r % d, d);
    const double length = length_of(row, d);
    for (int64_t i = 0; i < d; i++) row[i] = length > 0 ? row[i] / length : 0;
  }
  for (int64_t r = 0; r < m; r++) {
    state_kernels(true)->normal(seed, (uint64_t)r + 1, d, other);
    const double length = length_of(other, d);
    for (int64_t i = 0; i < d; i++) omega[r * d + i] *= length;
  }
}

static smx_status make_omega(performer *p) {
  const tensor_call *c = p->c;
  const bool given = c->in.given[OMEGA] != NULL;
  double *omega = smx_alloc(c->ctx, (size_t)((p->m + 1) * p->d) * sizeof *omega + 8);
  if (!omega)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld x %lld", c->op->name, (long long)p->m,
                    (long long)p->d);
  if (given) tensor_load(c, c->in.view + OMEGA, 0, p->m * p->d, omega);
  else if (p->d > 0) draw_omega(p, omega);
  memset(p->rows, 0, (size_t)((p->m * p->wide_d + p->d * p->wide_m) * p->bytes));
  for (int64_t r = 0; r < p->m; r++)
    for (int64_t i = 0; i < p->d; i++) {
      smx_reals_store(c->is_f64, omega + r * p->d + i, 1, real_at(p, p->rows, r * p->wide_d + i));
      smx_reals_store(c->is_f64, omega + r * p->d + i, 1, real_at(p, p->columns, i * p->wide_m + r));
    }
  smx_free(c->ctx, omega);
  return SMX_OK;
}

/* ---- rows ---- */

/* u = x' omega of tokens first..first + count - 1 of an item. */
static void project(const performer *p, int64_t item, int64_t first, int64_t count, performer_work *w) {
  for (int64_t i = 0; i < count; i++)
    p->kernels->map(STATE_IDENTITY, p->shrink,
                    real_at(p, p->c->in.view[X].data, ((item * p->tokens + first + i) * p->d)), p->d,
                    real_at(p, w->x, i * p->wide_d), NULL);
  state_walk walk = walk_of(p->columns, p->d, p->wide_m, p->wide_d, count);
  walk.step[0] = (state_step){NULL, NULL, w->x, w->u};
  p->kernels->walk(&walk);
}

/* The largest product of an item, where its exponentials are shifted by that. */
static double largest(const performer *p, int64_t item, performer_work *w) {
  double most = -__builtin_inf();
  for (int64_t first = 0; p->shift == BY_ALL && first < p->tokens; first += CHUNK) {
    const int64_t count = p->tokens - first < CHUNK ? p->tokens - first : CHUNK;
    project(p, item, first, count, w);
    for (int64_t i = 0; i < count; i++) {
      smx_reals_load(p->c->is_f64, real_at(p, w->u, i * p->wide_m), p->m, w->row);
      for (int64_t r = 0; r < p->m; r++)
        if (w->row[r] > most || w->row[r] != w->row[r]) most = w->row[r];
    }
  }
  return most;
}

/* w->row: the exponentials of staged token i, without eps; or relu. w->other: its x'. */
static void row_of(const performer *p, int64_t i, double most, performer_work *w) {
  double half = 0, *u = w->row;
  smx_reals_load(p->c->is_f64, real_at(p, w->u, i * p->wide_m), p->m, u);
  smx_reals_load(p->c->is_f64, real_at(p, w->x, i * p->wide_d), p->d, w->other);
  for (int64_t j = 0; j < p->d; j++) half += w->other[j] * w->other[j] / 2;
  if (p->shift == BY_ROW) most = -__builtin_inf();
  for (int64_t r = 0; r < p->m && p->shift == BY_ROW; r++)
    if (u[r] > most || u[r] != u[r]) most = u[r];
  const double by = half + (p->shift == NO_SHIFT ? 0 : most);
  for (int64_t r = 0; r < p->m && p->map != PLAIN; r++)
    u[r] = p->map == EXPONENTIAL ? state_math()->exp(u[r] - by) : u[r] < 0 ? 0 : u[r];
}

static void forward_task(void *arg, int64_t item) {
  performer *p = arg;
  char *memory = smx_scratch_take(&p->scratch);
  performer_work w;
  work_of(p, memory, &w);
  const double most = largest(p, item, &w);
  for (int64_t first = 0; first < p->tokens; first += CHUNK) {
    const int64_t count = p->tokens - first < CHUNK ? p->tokens - first : CHUNK;
    project(p, item, first, count, &w);
    for (int64_t i = 0; i < count; i++) {
      row_of(p, i, most, &w);
      for (int64_t r = 0; r < p->m; r++) w.row[r] = p->root * (w.row[r] + p->eps);
      tensor_store(p->c, p->c->out.view + Y, (item * p->tokens + first + i) * p->m, p->m, w.row);
    }
  }
  smx_scratch_give(&p->scratch, memory);
}

/* dx' = sum_r g_r (omega_r - x'), g_r = dy_r e_r / sqrt(m); of relu and none sum_r dy_r omega_r */
static void backward_task(void *arg, int64_t item) {
  performer *p = arg;
  const bool f64 = p->c->is_f64;
  char *memory = smx_scratch_take(&p->scratch);
  performer_work w;
  work_of(p, memory, &w);
  const double most = largest(p, item, &w);
  for (int64_t first = 0; first < p->tokens; first += CHUNK) {
    const int64_t count = p->tokens - first < CHUNK ? p->tokens - first : CHUNK,
                  at = item * p->tokens + first;
    double sums[CHUNK];
    project(p, item, first, count, &w);
    for (int64_t i = 0; i < count; i++) {
      row_of(p, i, most, &w), sums[i] = 0;
      tensor_load(p->c, p->c->dout.view + Y, (at + i) * p->m, p->m, w.last);
      for (int64_t r = 0; r < p->m; r++) {
        if (p->map == EXPONENTIAL) w.row[r] *= w.last[r] * p->root;
        else w.row[r] = p->map == PLAIN || w.row[r] > 0 ? w.last[r] : w.row[r] * 0;
        sums[i] += w.row[r];
      }
      smx_reals_store(f64, w.row, p->m, real_at(p, w.g, i * p->wide_m));
    }
    state_walk walk = walk_of(p->rows, p->m, p->wide_d, p->wide_m, count);
    walk.step[0] = (state_step){NULL, NULL, w.g, w.dx};
    p->kernels->walk(&walk);
    for (int64_t i = 0; i < count; i++) {
      smx_reals_load(f64, real_at(p, w.dx, i * p->wide_d), p->d, w.row);
      smx_reals_load(f64, real_at(p, w.x, i * p->wide_d), p->d, w.other);
      for (int64_t j = 0; j < p->d; j++)
        w.row[j] = p->shrink * (w.row[j] - (p->map == EXPONENTIAL ? w.other[j] * sums[i] : 0));
      tensor_store(p->c, p->c->din.view + X, (at + i) * p->d, p->d, w.row);
    }
  }
  smx_scratch_give(&p->scratch, memory);
}

/* ---- calls ---- */

smx_status performer_sizes(dims *d) {
  const int64_t width = dims_value(d, "d", 0), given = dims_value(d, "m", 0);
  const int64_t features = (int64_t)dims_param(d, "features", 0);
  const double n = (double)width;
  if (given != DIMS_UNKNOWN && features > 0 && features != given)
    return smx_fail(SMX_ERR_PARAM, "%s: features is %lld, but omega has %lld rows", d->op->name,
                    (long long)features, (long long)given);
  if (given != DIMS_UNKNOWN) return SMX_OK;
  const double usual = width > 1 ? n * state_math()->log(n) : 1;
  dims_set(d, "m", 0, features > 0 ? features : usual < 1e9 ? (int64_t)usual : (int64_t)1000000000);
  return SMX_OK;
}

static smx_status performer_run(const tensor_call *c, void (*task)(void *, int64_t)) {
  performer p = {.c = c, .tokens = tensor_dim(c, "t"), .d = tensor_dim(c, "d"), .m = tensor_dim(c, "m")};
  p.kernels = state_kernels(c->is_f64),
  p.shrink = 1 / __builtin_sqrt(__builtin_sqrt(p.d > 0 ? (double)p.d : 1));
  p.wide_d = state_padded(p.d), p.wide_m = state_padded(p.m), p.bytes = c->is_f64 ? 8 : 4;
  p.map = (int)tensor_param(c, "map"), p.shift = (int)tensor_param(c, "shift");
  p.eps = p.map == PLAIN ? 0 : tensor_param(c, "eps");
  p.root = p.map == EXPONENTIAL && p.m > 0 ? 1 / __builtin_sqrt((double)p.m) : 1;
  int64_t rows, columns;
  const bool fits = smx_multiply(p.m, 8 * p.wide_d, &rows) && smx_multiply(p.d, 8 * p.wide_m, &columns) &&
                    rows < INT64_MAX / 4 && columns < INT64_MAX / 4;
  if (!fits || !smx_scratch_open(&p.scratch, c->ctx, (size_t)(rows + columns), work_of(&p, NULL, NULL),
                                 c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld features", c->op->name, (long long)p.m);
  p.rows = p.scratch.shared, p.columns = real_at(&p, p.rows, p.m * p.wide_d);
  const smx_status status = make_omega(&p);
  if (status == SMX_OK) smx_parallel(c->ctx, c->dims.lead_count, task, &p);
  smx_scratch_close(&p.scratch);
  return status;
}
smx_status performer_forward(const tensor_call *c) { return performer_run(c, forward_task); }
smx_status performer_backward(const tensor_call *c) {
  return c->din.given[X] && c->dout.given[Y] ? performer_run(c, backward_task) : SMX_OK;
}
