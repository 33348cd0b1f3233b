/* fit/functions_neighbours.c - distances of rows of features to all rows of a bank: of the k-th
 * nearest, and of the nearest of each class; how many of the nearest agree. Exact: a sum of squared
 * differences for each pair, in double; sixteen rows lie side by side. */
#include "cpu/cpu.h"
#include "functions.h"
#include "score/score.h"

enum { FEATURES, BANK, LABEL, CHOSEN }; /* inputs */
/* Of a task: rows, in tiles of SIDE, for as many of which each line of the bank is read once as
 * leave each thread SHARE tasks, of ROOM numbers; and lines that are walked together, while a tile
 * stays in the nearest cache. */
enum { SIDE = SCORE_SIDE, ROWS_LEAST = 64, ROWS_MOST = 256, SHARE = 4, ROOM = 1 << 17, LINES = 16 };
#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

typedef struct neighbours {
  const tensor_call *c;
  int64_t rows, d, n, kept; /* kept: numbers of a row that are kept on the walk */
  int64_t task_rows;
  bool normalise;
  const score_runs *run;
  void (*begin)(const struct neighbours *x, int64_t row, double *kept);                     /* or NULL */
  void (*take[2])(const struct neighbours *x, int64_t number, double square, double *kept); /* a walk each */
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

/* Every row takes the lines in their order. */
static void walk(const neighbours *x, int which, int64_t rows, const double *tiles, double *lines,
                 double *kept) {
  for (int64_t from = 0; from < x->n; from += LINES) {
    const int64_t count = fit_task_end(from / LINES, x->n, LINES) - from;
    for (int64_t i = 0; i < count; i++) load_row(x, BANK, from + i, lines + i * x->d);
    for (int64_t r = 0; r < rows; r += SIDE)
      for (int64_t i = 0; i < count; i++) {
        double sum[SIDE];
        x->run->squares(tiles + r * x->d, lines + i * x->d, x->d, sum);
        for (int64_t q = r; q < r + SIDE && q < rows; q++)
          x->take[which](x, from + i, sum[q - r], kept + q * x->kept);
      }
  }
}

static void task(void *arg, int64_t number) {
  neighbours *x = arg;
  const int64_t d = x->d, most = x->task_rows, first = number * most;
  const int64_t rows = fit_task_end(number, x->rows, most) - first;
  double *tile = smx_scratch_take(&x->scratch), *line = tile + most * d, *kept = line + LINES * d;
  for (int64_t i = 0; i < most * d; i++) tile[i] = 0;
  for (int64_t i = 0; i < most * x->kept; i++) kept[i] = INF;
  for (int64_t r = 0; r < rows; r++) {
    load_row(x, FEATURES, first + r, line);
    for (int64_t j = 0; j < d; j++) *in_tile(tile, d, r, j) = line[j];
    if (x->begin) x->begin(x, first + r, kept + r * x->kept);
  }
  for (int w = 0; w < 2 && x->take[w]; w++) walk(x, w, rows, tile, line, kept);
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    for (int64_t j = 0; j < d; j++)
      sum += *in_tile(tile, d, r, j) - *in_tile(tile, d, r, j); /* NaN of a NaN, or inf */
    for (int o = 0; o < x->c->op->output_count && sum != 0; o++) tensor_put(x->c, o, first + r, NAN_);
    if (sum == 0) tensor_put(x->c, 0, first + r, x->finish(x, first + r, kept + r * x->kept));
  }
  smx_scratch_give(&x->scratch, tile);
}

static int64_t task_rows_of(const neighbours *x, int threads) {
  int64_t rows = ROWS_MOST;
  while (rows > ROWS_LEAST && (x->rows < rows * SHARE * threads || x->d + x->kept > ROOM / rows)) rows /= 2;
  return rows;
}

static smx_status run(neighbours *x) {
  const tensor_call *c = x->c;
  int64_t bytes;
  x->rows = c->dims.lead_count, x->d = tensor_dim(c, "d"), x->n = tensor_dim(c, "n");
  x->run = smx_isa_current()->f64.score->run;
  x->task_rows = task_rows_of(x, smx_context_threads(c->ctx));
  const int64_t tasks = fit_tasks(x->rows, x->task_rows);
  if (!smx_multiply(x->d + 1 + x->kept, (x->task_rows + LINES) * 8, &bytes) ||
      !smx_scratch_open(&x->scratch, c->ctx, 0, (size_t)bytes, tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)x->d);
  smx_parallel(c->ctx, tasks, task, x);
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
      .c = c, .normalise = tensor_param(c, "normalise") != 0, .take = {take_least}, .finish = kth_distance};
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
  neighbours x = {.c = c, .kept = tensor_dim(c, "classes"), .take = {take_nearest}, .finish = trust_of};
  return run(&x);
}

/* ---- sdm_similarity ----
 *
 * Neighbours are in the order of their squares, and of their numbers where these are equal. The
 * first walk finds the two nearest and the two nearest of those that do not agree with the row; the
 * second counts what is before the first that does not. A row of the bank itself leaves out the
 * nearest, which is the row: then the second of each counts where the first is left out. */

enum { PREDICTED = 4 }; /* input */
enum { OF_ROW, NEAR, NEAR_AT, NEXT, WRONG, WRONG_AT, OTHER, OTHER_AT, BEFORE, SDM_KEPT };

static bool is_own(const neighbours *x) { return tensor_param(x->c, "own") != 0; }

static void begin_similarity(const neighbours *x, int64_t row, double *kept) {
  kept[OF_ROW] = (double)fit_whole(x->c, CHOSEN)[row], kept[BEFORE] = 0;
}
static void take_wrong(const neighbours *x, int64_t number, double square, double *kept) {
  const int64_t label = fit_whole(x->c, LABEL)[number], predicted = fit_whole(x->c, PREDICTED)[number];
  const double at = (double)number;
  if (label < 0) return;
  if (square < kept[NEAR]) kept[NEXT] = kept[NEAR], kept[NEAR] = square, kept[NEAR_AT] = at;
  else if (square < kept[NEXT]) kept[NEXT] = square;
  if (label == predicted && (double)label == kept[OF_ROW]) return;
  if (square < kept[WRONG])
    kept[OTHER] = kept[WRONG], kept[OTHER_AT] = kept[WRONG_AT], kept[WRONG] = square, kept[WRONG_AT] = at;
  else if (square < kept[OTHER]) kept[OTHER] = square, kept[OTHER_AT] = at;
}
static void take_before(const neighbours *x, int64_t number, double square, double *kept) {
  const bool second = is_own(x) && kept[WRONG_AT] == kept[NEAR_AT] && kept[NEAR] < INF;
  const double end = kept[second ? OTHER : WRONG], end_at = kept[second ? OTHER_AT : WRONG_AT];
  if (fit_whole(x->c, LABEL)[number] < 0) return;
  kept[BEFORE] += square < end || (square == end && (double)number < end_at);
}
static double similarity_of(const neighbours *x, int64_t row, const double *kept) {
  const double most = tensor_param(x->c, "most"), count = kept[BEFORE] - (is_own(x) && kept[NEAR] < INF);
  tensor_put(x->c, 1, row, __builtin_sqrt(kept[is_own(x) ? NEXT : NEAR]));
  return count < most ? count : most;
}
smx_status fit_similarity(const tensor_call *c) {
  neighbours x = {.c = c,
                  .kept = SDM_KEPT,
                  .begin = begin_similarity,
                  .take = {take_wrong, take_before},
                  .finish = similarity_of};
  return run(&x);
}
