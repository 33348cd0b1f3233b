/* fit/functions_neighbours.c - distances of rows of features to all rows of a bank: of the k-th
 * nearest, and of the nearest of each class. Exact: a sum of squared differences for each pair, in
 * double; sixteen rows lie side by side. */
#include "functions.h"

enum { FEATURES, BANK, LABEL, CHOSEN };               /* inputs */
enum { ROWS = 64, SIDE = 16, PAIRS = SIDE / 2 };      /* of a task, and of a tile of it */
typedef double pair __attribute__((vector_size(16))); /* two rows: the least that machines have */
#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

typedef struct neighbours {
  const tensor_call *c;
  int64_t rows, d, n, kept; /* kept: numbers of a row that are kept on the walk */
  bool normalise;
  void (*take)(const struct neighbours *x, int64_t number, double square, double *kept);
  double (*finish)(const struct neighbours *x, int64_t row, const double *kept);
  smx_scratch scratch;
} neighbours;

/* A row in double, of length 1 if so wanted, but for 0. By its largest number first, so squares
 * neither overflow nor vanish. */
static void load_row(const neighbours *x, int port, int64_t row, double *to) {
  double most = 0, sum = 0;
  tensor_load(x->c, x->c->in.view + port, row * x->d, x->d, to);
  if (!x->normalise) return;
  for (int64_t j = 0; j < x->d; j++) {
    const double size = __builtin_fabs(to[j]);
    most = size > most || size != size ? size : most;
  }
  if (most < 0x1p-1022) return;
  const double scale = 1 / most; /* once for each task, so that quotients would be felt */
  for (int64_t j = 0; j < x->d; j++) to[j] *= scale, sum += to[j] * to[j];
  const double by = 1 / __builtin_sqrt(sum);
  for (int64_t j = 0; j < x->d; j++) to[j] *= by;
}

/* Element j of row r: tiles of SIDE rows, one after another. */
static double *in_tile(double *tiles, int64_t d, int64_t r, int64_t j) {
  return tiles + (r / SIDE * d + j) * SIDE + r % SIDE;
}

/* sum |row - line|^2 of the rows of a tile [d, SIDE] */
static void squares_of(const double *tile, const double *line, int64_t d, double *to) {
  const pair *at = (const pair *)(const void *)tile;
  pair sum[PAIRS] = {{0}};
  for (int64_t j = 0; j < d; j++) {
    const pair b = {line[j], line[j]};
#pragma GCC unroll 8
    for (int r = 0; r < PAIRS; r++) {
      const pair way = at[j * PAIRS + r] - b;
      sum[r] += way * way;
    }
  }
  memcpy(to, sum, sizeof sum);
}

static void task(void *arg, int64_t number) {
  neighbours *x = arg;
  const int64_t d = x->d, first = number * ROWS, rows = fit_task_end(number, x->rows, ROWS) - first;
  double *tile = smx_scratch_take(&x->scratch), *line = tile + ROWS * d, *kept = line + d;
  for (int64_t i = 0; i < ROWS * d; i++) tile[i] = 0;
  for (int64_t i = 0; i < ROWS * x->kept; i++) kept[i] = INF;
  for (int64_t r = 0; r < rows; r++) {
    load_row(x, FEATURES, first + r, line);
    for (int64_t j = 0; j < d; j++) *in_tile(tile, d, r, j) = line[j];
  }
  for (int64_t i = 0; i < x->n; i++) {
    double sum[ROWS];
    load_row(x, BANK, i, line);
    for (int64_t r = 0; r < rows; r += SIDE) squares_of(tile + r * d, line, d, sum + r);
    for (int64_t r = 0; r < rows; r++) x->take(x, i, sum[r], kept + r * x->kept);
  }
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t j = 0; j < d; j++)
      sum += *in_tile(tile, d, r, j) - *in_tile(tile, d, r, j); /* NaN of a NaN, or inf */
    tensor_put(x->c, 0, first + r, sum == 0 ? x->finish(x, first + r, kept + r * x->kept) : NAN_);
  }
  smx_scratch_give(&x->scratch, tile);
}

static smx_status run(neighbours *x) {
  const tensor_call *c = x->c;
  int64_t numbers;
  x->rows = c->dims.lead_count, x->d = tensor_dim(c, "d"), x->n = tensor_dim(c, "n");
  if (!smx_multiply((ROWS + 1) * (x->d + 1) + ROWS * x->kept, 8, &numbers) ||
      !smx_scratch_open(&x->scratch, c->ctx, 0, (size_t)numbers, fit_tasks(x->rows, ROWS)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)x->d);
  smx_parallel(c->ctx, fit_tasks(x->rows, ROWS), task, x);
  smx_scratch_close(&x->scratch);
  return SMX_OK;
}

/* ---- knn_score: the k least squares, a heap with the largest at its root ---- */

static void take_least(const neighbours *x, int64_t number, double square, double *heap) {
  int64_t at = 0;
  if (!(square < heap[0])) return;
  for (int64_t next; (next = 2 * at + 1) < x->kept; at = next) {
    if (next + 1 < x->kept && heap[next + 1] > heap[next]) next++;
    if (square >= heap[next]) break;
    heap[at] = heap[next];
  }
  heap[at] = square;
}
static double kth_distance(const neighbours *x, int64_t row, const double *heap) {
  const bool square = tensor_param(x->c, "metric") != 0;
  return x->kept == 0 ? NAN_ : -(square ? heap[0] : __builtin_sqrt(heap[0]));
}
smx_status fit_knn(const tensor_call *c) {
  neighbours x = {
      .c = c, .normalise = tensor_param(c, "normalise") != 0, .take = take_least, .finish = kth_distance};
  const int64_t k = (int64_t)tensor_param(c, "k"), n = tensor_dim(c, "n");
  x.kept = k < n ? k : n;
  return run(&x);
}

/* ---- trust_score: the least square of each class ---- */

static void take_nearest(const neighbours *x, int64_t number, double square, double *least) {
  const int64_t k = fit_whole(x->c, LABEL)[number];
  if (k >= 0 && square < least[k]) least[k] = square;
}
static double trust_of(const neighbours *x, int64_t row, const double *least) {
  const int64_t chosen = fit_whole(x->c, CHOSEN)[row];
  double other = INF;
  if (chosen < 0) return NAN_;
  for (int64_t k = 0; k < x->kept; k++)
    if (k != chosen && least[k] < other) other = least[k];
  if (least[chosen] == INF) return other == INF ? NAN_ : 0;
  return __builtin_sqrt(other) / (__builtin_sqrt(least[chosen]) + 1e-12);
}
smx_status fit_trust(const tensor_call *c) {
  neighbours x = {.c = c, .kept = tensor_dim(c, "classes"), .take = take_nearest, .finish = trust_of};
  return run(&x);
}
