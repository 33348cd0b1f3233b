/* pool/functions_nms.c - which boxes stay, of many that overlap. Plain double; an image is a task.
 *
 * With the overlap of two boxes, iou = inter / (area + area - inter), compared as inter > threshold
 * (area + area - inter), so that nothing is divided. Boxes and scores with a NaN do not exist. */
#include <string.h>

#include "driver/merge_sort.h"
#include "driver/operator.h"
#include "functions_sets.h"

enum { HARD, LINEAR, GAUSSIAN };

typedef struct nms_call {
  const tensor_call *c;
  smx_scratch scratch;
  int64_t n, most;
  double threshold, sigma, least, pixel;
  int method;
  bool inclusive;
} nms_call;

/* Its sides are x1, y1, x2, y2; next: the kept box before it in its cell of the grid, or -1. */
typedef struct box {
  double side[4], area;
  int64_t class_of, next;
} box;

/* Cells, rows of them from the top; head: the last kept box of each, or -1. */
enum { BINS = 32, GRID = 2 * BINS * BINS + BINS }; /* GRID: numbers */
typedef struct grid {
  double first[2], bins[2]; /* the least left and top edge; cells a unit of length */
  double *right, *bottom;
  int64_t *head;
} grid;

/* The memory of an image. */
typedef struct image {
  const nms_call *call;
  double *score;
  int64_t *order, *merged;
  box *all, *kept;
  grid grid;
  double *pair, *pair_y; /* of gaussian decays, then of scores: 2 n each, where kept boxes are else */
} image;

/* ---- boxes ---- */

static double above_zero(double x) { return x > 0 ? x : 0; }

static double inter_of(const box *a, const box *b, double pixel) {
  const double left = a->side[0] > b->side[0] ? a->side[0] : b->side[0];
  const double top = a->side[1] > b->side[1] ? a->side[1] : b->side[1];
  const double right = a->side[2] < b->side[2] ? a->side[2] : b->side[2];
  const double bottom = a->side[3] < b->side[3] ? a->side[3] : b->side[3];
  return above_zero(right - left + pixel) * above_zero(bottom - top + pixel);
}

/* All boxes of an image. Doubles whose areas may be none become about 1, by a power of 2; where a
 * pixel is added the unit is given. */
static void load_sides(image *m, int64_t at) {
  const nms_call *n = m->call;
  const tensor_call *c = n->c;
  const int64_t bytes = c->is_f64 ? 8 : 4;
  const bool may_be = c->is_f64 && n->pixel == 0;
  double most = 0;
  for (int64_t i = 0; i < n->n; i++) {
    double *e = m->all[i].side;
    smx_reals_load(c->is_f64, c->in.view[0].data + (at * n->n + i) * 4 * bytes, 4, e);
    for (int k = 0; k < 4 && may_be; k++) {
      const double size = e[k] < 0 ? -e[k] : e[k];
      most = size > most && size < __builtin_inf() ? size : most;
    }
  }
  if (!may_be || (most > 0x1p-400 && most < 0x1p500)) return;
  const double by = pool_power_of(most);
  for (int64_t i = 0; i < n->n; i++)
    for (int k = 0; k < 4; k++) m->all[i].side[k] *= by;
}

/* Boxes of the image that exist, into m->order; those of low scores do not. */
static int64_t load_image(image *m, int64_t at) {
  const nms_call *n = m->call;
  const tensor_call *c = n->c;
  const int64_t bytes = c->is_f64 ? 8 : 4;
  int64_t count = 0;
  load_sides(m, at);
  smx_reals_load(c->is_f64, c->in.view[1].data + at * n->n * bytes, n->n, m->score);
  for (int64_t i = 0; i < n->n; i++) {
    box *b = m->all + i;
    const double *e = b->side;
    b->area = above_zero(e[2] - e[0] + n->pixel) * above_zero(e[3] - e[1] + n->pixel);
    b->class_of = c->in.given[2] ? ((const int64_t *)(const void *)c->in.view[2].data)[at * n->n + i] : 0;
    const bool there = e[0] == e[0] && e[1] == e[1] && e[2] == e[2] && e[3] == e[3];
    if (there && m->score[i] >= n->least) m->order[count++] = i;
  }
  return count;
}

/* Larger scores first; of equal ones the smaller number. */
static bool is_before(const void *image_, int64_t a, int64_t b) {
  const image *m = image_;
  return m->score[a] != m->score[b] ? m->score[a] > m->score[b] : a < b;
}

static void sort_order(image *m, int64_t count) {
  int64_t *sorted = smx_merge_sort(m->order, m->merged, count, is_before, m);
  m->merged = sorted == m->order ? m->merged : m->order;
  m->order = sorted;
}

/* ---- boxes go, or stay as they are ---- */

static bool is_over(const nms_call *n, const box *a, const box *b) {
  const double inter = inter_of(a, b, n->pixel), limit = n->threshold * (a->area + b->area - inter);
  return (inter > 0) & ((inter > limit) | (n->inclusive & (inter == limit)));
}

/* Kept boxes stand in a grid, by their left and top edges. A cell knows how far its boxes reach to
 * the right, and a row of cells how far down, so that most boxes are never compared; those that
 * are have an overlap by the same numbers as without a grid. */
static int64_t bin_of(const grid *g, int axis, double edge) {
  const double at = (edge - g->first[axis]) * g->bins[axis];
  return at >= BINS ? BINS - 1 : at > 0 ? (int64_t)at : 0; /* NaN: of a width of 0 or inf, as all others */
}

/* From the least to the largest finite edge of the boxes of the order. */
static void open_grid(image *m, int64_t count) {
  grid *g = &m->grid;
  for (int axis = 0; axis < 2; axis++) {
    double least = __builtin_inf(), most = -__builtin_inf();
    for (int64_t k = 0; k < count; k++) {
      const double edge = m->all[m->order[k]].side[axis];
      if (edge - edge != 0) continue;
      least = edge < least ? edge : least, most = edge > most ? edge : most;
    }
    const double width = most - least;
    g->first[axis] = least, g->bins[axis] = width > 0 && width < __builtin_inf() ? BINS / width : 0;
  }
  for (int64_t k = 0; k < BINS * BINS; k++) g->head[k] = -1, g->right[k] = -__builtin_inf();
  for (int64_t k = 0; k < BINS; k++) g->bottom[k] = -__builtin_inf();
}

static void put_in_grid(grid *g, box *kept, int64_t k) {
  const int64_t row = bin_of(g, 1, kept[k].side[1]), at = row * BINS + bin_of(g, 0, kept[k].side[0]);
  const double right = kept[k].side[2], bottom = kept[k].side[3];
  kept[k].next = g->head[at], g->head[at] = k;
  if (right > g->right[at]) g->right[at] = right;
  if (bottom > g->bottom[row]) g->bottom[row] = bottom;
}

/* Whether a box overlaps a kept one of its class, of a cell, too much. */
static bool is_covered_in(const image *m, const box *a, int64_t cell) {
  for (int64_t k = m->grid.head[cell]; k >= 0; k = m->kept[k].next)
    if ((m->kept[k].class_of == a->class_of) & is_over(m->call, a, m->kept + k)) return true;
  return false;
}
/* Rows from its own one on: what covers a box begins near to it. */
static bool is_covered(const image *m, const box *a) {
  const grid *g = &m->grid;
  const double pixel = m->call->pixel, left = a->side[0] - pixel, top = a->side[1] - pixel;
  const int64_t columns = bin_of(g, 0, a->side[2] + pixel), rows = bin_of(g, 1, a->side[3] + pixel) + 1;
  int64_t row = bin_of(g, 1, a->side[1]);
  for (int64_t k = 0; k<rows; k++, row = row> 0 ? row - 1 : rows - 1)
    for (int64_t at = row * BINS; g->bottom[row] > top && at <= row * BINS + columns; at++)
      if (g->right[at] > left && is_covered_in(m, a, at)) return true;
  return false;
}

/* The numbers of the boxes that stay go to the front of the order. */
static int64_t keep_hard(image *m, int64_t count) {
  int64_t kept = 0;
  open_grid(m, count);
  for (int64_t k = 0; k < count && kept < m->call->most; k++) {
    const int64_t i = m->order[k];
    if (is_covered(m, m->all + i)) continue;
    m->kept[kept] = m->all[i];
    put_in_grid(&m->grid, m->kept, kept);
    m->order[kept++] = i;
  }
  return kept;
}

/* ---- scores fall ---- */

/* e^-t of `count` numbers: a softmax of 0 and -t has it as a ratio. */
static smx_status exponentials(image *m, smx_context *purse, int64_t count) {
  int64_t shape[] = {count, 2};
  const smx_tensor x = smx_tensor_of(m->pair, SMX_F64, 2, shape, NULL);
  const smx_tensor y = smx_tensor_of(m->pair_y, SMX_F64, 2, shape, NULL);
  smx_status status = softmax_along(purse, -1, &x, &y);
  for (int64_t k = 0; k < count && status == SMX_OK; k++)
    m->pair[k] = m->pair_y[2 * k + 1] / m->pair_y[2 * k];
  return status;
}

static double linear_factor(const nms_call *n, double iou) {
  if (!(iou > n->threshold)) return 1;
  return n->method == HARD ? 0 : 1 - iou;
}

/* Multiplies the scores of boxes from..count-1 of the order by what box i leaves them. */
static smx_status decay(image *m, smx_context *purse, int64_t i, int64_t from, int64_t count) {
  const nms_call *n = m->call;
  int64_t near = 0;
  for (int64_t k = from; k < count; k++) {
    const int64_t j = m->order[k];
    const box *a = m->all + i, *b = m->all + j;
    const double inter = inter_of(a, b, n->pixel), rest = a->area + b->area - inter;
    if (a->class_of != b->class_of || !(inter > 0) || !(rest > 0)) continue;
    const double iou = inter / rest;
    if (n->method != GAUSSIAN) m->score[j] *= linear_factor(n, iou);
    else m->merged[near] = j, m->pair[2 * near] = 0, m->pair[2 * near++ + 1] = -iou * iou / n->sigma;
  }
  if (near == 0) return SMX_OK;
  const smx_status status = exponentials(m, purse, near);
  for (int64_t k = 0; k < near && status == SMX_OK; k++) m->score[m->merged[k]] *= m->pair[k];
  return status;
}

/* The best of what is left goes next, and the scores of the others fall. */
static smx_status keep_soft(image *m, smx_context *purse, int64_t count, int64_t *kept) {
  smx_status status = SMX_OK;
  for (*kept = 0; *kept < count && *kept < m->call->most && status == SMX_OK; ++*kept) {
    int64_t best = *kept;
    for (int64_t k = *kept + 1; k < count; k++)
      if (is_before(m, m->order[k], m->order[best])) best = k;
    const int64_t i = m->order[best];
    m->order[best] = m->order[*kept], m->order[*kept] = i;
    if (m->score[i] < m->call->least) break;
    status = decay(m, purse, i, *kept + 1, count);
  }
  return status;
}

/* ---- calls ---- */

/* 17 numbers a box, and the grid. */
static size_t image_bytes(int64_t n) { return ((size_t)n * 17 + GRID) * sizeof(double); }

static image image_in(const nms_call *n, void *memory) {
  image m = {.call = n, .all = memory};
  m.kept = m.all + n->n;
  m.pair = (double *)(void *)m.kept, m.pair_y = m.pair + 2 * n->n;
  m.score = m.pair + 7 * n->n;
  m.order = (int64_t *)(void *)(m.score + n->n), m.merged = m.order + n->n;
  m.grid.head = m.merged + n->n;
  m.grid.right = (double *)(void *)(m.grid.head + BINS * BINS), m.grid.bottom = m.grid.right + BINS * BINS;
  return m;
}

static void write_kept(const image *m, int64_t at, int64_t kept) {
  const tensor_call *c = m->call->c;
  const int64_t n = m->call->n;
  int64_t *index = (int64_t *)(void *)c->out.view[0].data + at * n;
  for (int64_t k = 0; k < n; k++) index[k] = k < kept ? m->order[k] : -1;
  if (c->out.given[1]) ((int64_t *)(void *)c->out.view[1].data)[at] = kept;
  if (!c->out.given[2]) return;
  for (int64_t k = 0; k < n; k++) m->pair[k] = k < kept ? m->score[m->order[k]] : 0;
  smx_reals_store(c->is_f64, m->pair, n, c->out.view[2].data + at * n * (c->is_f64 ? 8 : 4));
}

static void nms_task(void *arg, int64_t at) {
  nms_call *n = arg;
  void *place = smx_scratch_take(&n->scratch);
  image m = image_in(n, place);
  const int64_t count = load_image(&m, at);
  sort_order(&m, count);
  write_kept(&m, at, keep_hard(&m, count));
  smx_scratch_give(&n->scratch, place);
}

static smx_status run_soft(nms_call *n, smx_context *purse, int64_t images) {
  void *place = smx_scratch_take(&n->scratch);
  image m = image_in(n, place);
  smx_status status = SMX_OK;
  exponentials(&m, purse, n->n);
  if (!smx_purse_fill(purse)) status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for rows", n->c->op->name);
  for (int64_t at = 0, kept; at < images && status == SMX_OK; at++) {
    m = image_in(n, place);
    const int64_t count = load_image(&m, at);
    status = keep_soft(&m, purse, count, &kept);
    if (status == SMX_OK) write_kept(&m, at, kept);
  }
  smx_scratch_give(&n->scratch, place);
  return status;
}

static smx_status open_call(nms_call *n, const tensor_call *c, bool soft) {
  const double most = tensor_param(c, "most");
  *n = (nms_call){.c = c, .n = tensor_dim(c, "n"), .threshold = tensor_param(c, "threshold")};
  n->most = most > 0 ? (int64_t)most : INT64_MAX;
  n->least = tensor_param(c, "least"), n->pixel = tensor_param(c, "pixels");
  if (soft) n->method = (int)tensor_param(c, "method"), n->sigma = tensor_param(c, "sigma");
  else n->inclusive = tensor_param(c, "inclusive") != 0;
  if (n->n < INT64_MAX / 1024 &&
      smx_scratch_open(&n->scratch, c->ctx, 0, image_bytes(n->n), soft ? 1 : c->dims.lead_count))
    return SMX_OK;
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld boxes", c->op->name, (long long)n->n);
}

smx_status pool_nms(const tensor_call *c) {
  nms_call n;
  smx_status status = open_call(&n, c, false);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, c->dims.lead_count, nms_task, &n);
  smx_scratch_close(&n.scratch);
  return SMX_OK;
}

smx_status pool_soft_nms(const tensor_call *c) {
  nms_call n;
  smx_status status = open_call(&n, c, true);
  if (status != SMX_OK) return status;
  smx_context *purse = n.n > 0 ? smx_purse_open(c->ctx) : NULL;
  if (n.n == 0) smx_parallel(c->ctx, c->dims.lead_count, nms_task, &n);
  else
    status = purse ? run_soft(&n, purse, c->dims.lead_count)
                   : smx_fail(SMX_ERR_NOMEM, "%s: no memory", c->op->name);
  if (purse) smx_purse_close(purse);
  smx_scratch_close(&n.scratch);
  return status;
}
