/* pool/functions_nms.c - which boxes stay, of many that overlap. Plain double; an image is a task.
 *
 * With the overlap of two boxes, iou = inter / (area + area - inter), compared as inter > threshold
 * (area + area - inter), so that nothing is divided. Boxes and scores with a NaN do not exist. */
#include <string.h>

#include "driver/merge_sort.h"
#include "driver/operator.h"
#include "driver/reals.h"
#include "functions.h"

enum { HARD, LINEAR, GAUSSIAN };

typedef struct nms_call {
  const tensor_call *c;
  smx_scratch scratch;
  int64_t n, most;
  double threshold, sigma, least, pixel;
  int method;
  bool inclusive;
} nms_call;

/* Boxes side by side: x1, y1, x2, y2, area; in some order. */
typedef struct box_list {
  double *side[4], *area;
  int64_t count;
} box_list;

/* The memory of an image. */
typedef struct image {
  const nms_call *call;
  double *score;
  int64_t *class_of, *order, *merged;
  box_list all, kept;
  double *pair, *pair_y; /* of gaussian decays, then of scores: 2 n each */
} image;

/* ---- boxes ---- */

static double above_zero(double x) { return x > 0 ? x : 0; }

static void put_box(box_list *l, int64_t i, const box_list *from, int64_t k) {
  for (int s = 0; s < 4; s++) l->side[s][i] = from->side[s][k];
  l->area[i] = from->area[k];
}

static double inter_of(const box_list *a, int64_t i, const box_list *b, int64_t k, double pixel) {
  const double left = a->side[0][i] > b->side[0][k] ? a->side[0][i] : b->side[0][k];
  const double top = a->side[1][i] > b->side[1][k] ? a->side[1][i] : b->side[1][k];
  const double right = a->side[2][i] < b->side[2][k] ? a->side[2][i] : b->side[2][k];
  const double bottom = a->side[3][i] < b->side[3][k] ? a->side[3][i] : b->side[3][k];
  return above_zero(right - left + pixel) * above_zero(bottom - top + pixel);
}

/* Boxes of the image that exist, into m->order; those of low scores do not. */
static int64_t load_image(image *m, int64_t at) {
  const nms_call *n = m->call;
  const tensor_call *c = n->c;
  const int64_t bytes = c->is_f64 ? 8 : 4;
  int64_t count = 0;
  smx_reals_load(c->is_f64, c->in.view[1].data + at * n->n * bytes, n->n, m->score);
  for (int64_t i = 0; i < n->n; i++) {
    double box[4];
    smx_reals_load(c->is_f64, c->in.view[0].data + (at * n->n + i) * 4 * bytes, 4, box);
    for (int s = 0; s < 4; s++) m->all.side[s][i] = box[s];
    m->all.area[i] = above_zero(box[2] - box[0] + n->pixel) * above_zero(box[3] - box[1] + n->pixel);
    m->class_of[i] = c->in.given[2] ? ((const int64_t *)(const void *)c->in.view[2].data)[at * n->n + i] : 0;
    const bool there = box[0] == box[0] && box[1] == box[1] && box[2] == box[2] && box[3] == box[3];
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

static bool is_over(const image *m, double inter, double area, int64_t k) {
  const nms_call *n = m->call;
  const double rest = area + m->kept.area[k] - inter, limit = n->threshold * rest;
  return inter > limit || (n->inclusive && inter == limit);
}

/* Whether box i overlaps a kept one of its class too much. Most share no column with it. */
static bool is_covered(const image *m, int64_t i, const int64_t *kept_class) {
  const double pixel = m->call->pixel, left = m->all.side[0][i] - pixel, right = m->all.side[2][i] + pixel;
  const double *from = m->kept.side[0], *to = m->kept.side[2];
  for (int64_t k = 0; k < m->kept.count; k++) {
    if ((from[k] >= right) | (to[k] <= left) | (kept_class[k] != m->class_of[i])) continue; /* one jump */
    const double inter = inter_of(&m->all, i, &m->kept, k, pixel);
    if (inter > 0 && is_over(m, inter, m->all.area[i], k)) return true;
  }
  return false;
}

/* The numbers of the boxes that stay go to the front of the order. */
static int64_t keep_hard(image *m, int64_t count) {
  int64_t *kept_class = m->merged;
  m->kept.count = 0;
  for (int64_t k = 0; k < count && m->kept.count < m->call->most; k++) {
    const int64_t i = m->order[k];
    if (is_covered(m, i, kept_class)) continue;
    put_box(&m->kept, m->kept.count, &m->all, i);
    kept_class[m->kept.count] = m->class_of[i];
    m->order[m->kept.count++] = i;
  }
  return m->kept.count;
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
    const double inter = inter_of(&m->all, i, &m->all, j, n->pixel);
    const double rest = m->all.area[i] + m->all.area[j] - inter;
    if (m->class_of[i] != m->class_of[j] || !(inter > 0) || !(rest > 0)) continue;
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

/* 18 numbers a box; some memory without boxes too. */
static size_t image_bytes(int64_t n) { return ((size_t)n * 18 + 1) * sizeof(double); }

static image image_in(const nms_call *n, void *memory) {
  double *at = memory;
  image m = {.call = n, .score = at};
  at += n->n;
  for (int s = 0; s < 4; s++) m.all.side[s] = at, m.kept.side[s] = at + n->n, at += 2 * n->n;
  m.all.area = at, m.kept.area = at + n->n, at += 2 * n->n;
  m.pair = at, m.pair_y = at + 2 * n->n, at += 4 * n->n;
  m.class_of = (int64_t *)(void *)at, m.order = m.class_of + n->n, m.merged = m.order + n->n;
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
