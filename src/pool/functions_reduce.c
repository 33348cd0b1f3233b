/* pool/functions_reduce.c - maximum, mean, and a mixture of both. A sum is in double, in the order
 * of the cells. */
#include <string.h>

#include "driver/reals.h"
#include "functions_lines.h"
#include "functions_planes.h"
#include "functions_sets.h"

enum { X, A }; /* inputs; A: of mixed_pool */
enum {
  RANGE = 256,   /* outputs of a row that are reduced together */
  OUTPUTS = 4096 /* of a task, about */
};

/* A call. mix: how much of the maximum, 1 - mix of the mean. */
typedef struct reduce_call {
  const tensor_call *c;
  pool_shape s;
  const pool_lines *lines;
  double mix, divisor;
  double *slope; /* sum of dy (max - mean) of each plane, or NULL */
  bool padded;
  double whole;                   /* what all means divide by, or 0 */
  int64_t rows, task_rows, bytes; /* rows of outputs of a plane, and of a task; bytes of a cell */
} reduce_call;

/* Outputs begin..end-1 of a row, and what is known of them. */
typedef struct part {
  int64_t row, begin, end;
  double sum[RANGE], divisor[RANGE], largest[RANGE]; /* largest: of the real type */
  int64_t index[RANGE];
} part;

/* What the means of a part divide by. */
static void divisors_of(const reduce_call *r, part *p) {
  for (int64_t i = 0; i < p->end - p->begin && r->whole > 0; i++) p->divisor[i] = r->whole;
  if (r->whole > 0) return;
  const pool_axis *a = r->s.axis;
  const pool_span depth = pool_span_of(a, p->row / a[1].outputs),
                  height = pool_span_of(a + 1, p->row % a[1].outputs);
  const int64_t rows =
      r->padded ? depth.padded * height.padded : (depth.end - depth.begin) * (height.end - height.begin);
  for (int64_t o = p->begin; o < p->end; o++) {
    const int64_t first = o * a[2].stride - a[2].padding;
    const bool whole = !a[2].adaptive && first >= 0 && first + (a[2].kernel - 1) * a[2].step < a[2].n;
    const pool_span s =
        whole ? (pool_span){.end = a[2].kernel, .padded = a[2].kernel} : pool_span_of(a + 2, o);
    const int64_t n = rows * (r->padded ? s.padded : s.end - s.begin);
    p->divisor[o - p->begin] = (double)n;
  }
}

static void look_for_largest(const reduce_call *r, part *p, const void *x, bool indexed) {
  range all = {.x = x, .largest = p->largest, .index = p->index};
  const int64_t n = p->end - p->begin;
  r->lines->hide(p->largest, n);
  for (int64_t i = 0; i < n && indexed; i++) p->index[i] = -1;
  pool_each_line(&r->s, p->row, p->begin, p->end, indexed ? r->lines->largest : r->lines->larger, &all);
}

/* p->sum becomes the means. */
static void take_means(const reduce_call *r, part *p, const void *x) {
  range all = {.x = x, .sum = p->sum};
  const int64_t n = p->end - p->begin;
  memset(p->sum, 0, (size_t)n * sizeof *p->sum);
  pool_each_line(&r->s, p->row, p->begin, p->end, r->lines->sum, &all);
  divisors_of(r, p);
  for (int64_t i = 0; i < n; i++) p->sum[i] /= p->divisor[i];
}

static void forward_part(const reduce_call *r, int64_t plane, part *p) {
  const tensor_call *c = r->c;
  const bool indexed = c->op->output_count > 1 && c->out.given[1];
  const char *x = c->in.view[0].data + plane * r->s.cells * r->bytes;
  const int64_t first = plane * r->s.outputs + p->row * r->s.axis[2].outputs + p->begin,
                n = p->end - p->begin;
  if (r->mix != 0) look_for_largest(r, p, x, indexed);
  if (r->mix != 1) take_means(r, p, x);
  if (r->mix != 0 && r->mix != 1) r->lines->mix(p->largest, r->mix, n, p->sum);
  char *y = c->out.view[0].data + first * r->bytes;
  if (r->mix == 1) memcpy(y, p->largest, (size_t)(n * r->bytes)), smx_reals_clean(c->is_f64, y, n);
  else smx_reals_store(c->is_f64, p->sum, n, y);
  if (indexed) memcpy(c->out.view[1].data + first * 8, p->index, (size_t)n * 8);
}

/* What a, the share of the maximum, has from a part. p->sum: the upstream gradients, which stay. */
static double slope_of(const reduce_call *r, int64_t plane, part *p) {
  const char *x = r->c->in.view[X].data + plane * r->s.cells * r->bytes;
  const int64_t n = p->end - p->begin;
  double up[RANGE], sum = 0;
  memcpy(up, p->sum, (size_t)n * sizeof *up);
  look_for_largest(r, p, x, false), take_means(r, p, x);
  smx_reals_load(r->c->is_f64, p->largest, n, p->divisor);
  for (int64_t i = 0; i < n; i++) sum += up[i] == 0 ? 0 : up[i] * (p->divisor[i] - p->sum[i]);
  memcpy(p->sum, up, (size_t)n * sizeof *up);
  return sum;
}

/* Windows add to their cells row by row, and in a row place by place. */
static void backward_part(const reduce_call *r, int64_t plane, part *p) {
  const tensor_call *c = r->c;
  const int64_t offset = plane * r->s.cells * r->bytes, n = p->end - p->begin;
  const int64_t first = plane * r->s.outputs + p->row * r->s.axis[2].outputs + p->begin;
  range all = {.sum = p->sum, .index = p->index};
  smx_reals_load(c->is_f64, c->dout.view[0].data + first * r->bytes, n, p->sum);
  if (r->slope) r->slope[plane] += slope_of(r, plane, p);
  if (!c->din.given[X]) return;
  all.dx = c->din.view[X].data + offset;
  if (r->mix != 0) {
    look_for_largest(r, p, c->in.view[0].data + offset, true);
    r->lines->give(&all, r->mix, n);
  }
  if (r->mix == 1) return;
  divisors_of(r, p);
  for (int64_t i = 0; i < n; i++) p->sum[i] = (1 - r->mix) * p->sum[i] / p->divisor[i];
  pool_each_line(&r->s, p->row, p->begin, p->end, r->lines->mean, &all);
}

static void each_part(const reduce_call *r, int64_t plane, int64_t row, int64_t end_row,
                      void (*run)(const reduce_call *r, int64_t plane, part *p)) {
  const int64_t outputs = r->s.axis[2].outputs;
  part p;
  for (p.row = row; p.row < end_row; p.row++)
    for (p.begin = 0; p.begin < outputs; p.begin = p.end) {
      p.end = outputs - p.begin < RANGE ? outputs : p.begin + RANGE;
      run(r, plane, &p);
    }
}

static int64_t tasks_of(const reduce_call *r) { return (r->rows + r->task_rows - 1) / r->task_rows; }

static void forward_task(void *arg, int64_t task) {
  const reduce_call *r = arg;
  const int64_t row = task % tasks_of(r) * r->task_rows, left = r->rows - row;
  each_part(r, task / tasks_of(r), row, row + (left < r->task_rows ? left : r->task_rows), forward_part);
}
static void backward_task(void *arg, int64_t plane) {
  const reduce_call *r = arg;
  const bool given = r->c->din.given[X];
  char *dx = given ? r->c->din.view[X].data + plane * r->s.cells * r->bytes : NULL;
  if (r->slope) r->slope[plane] = 0;
  if (given) memset(dx, 0, (size_t)(r->s.cells * r->bytes));
  each_part(r, plane, 0, r->rows, backward_part);
  if (given) smx_reals_clean(r->c->is_f64, dx, r->s.cells);
}

static double mix_of(const tensor_call *c) {
  const bool largest = c->op == pool_table + POOL_max_pool || c->op == pool_table + POOL_adaptive_max_pool;
  double mix = dims_param(&c->dims, "mix", largest);
  if (c->op->input_count > A && c->in.given[A]) tensor_load(c, c->in.view + A, 0, 1, &mix);
  return mix;
}

static reduce_call call_of(const tensor_call *c) {
  reduce_call r = {
      .c = c, .s = pool_shape_of(c), .lines = pool_lines_of + c->is_f64, .bytes = c->is_f64 ? 8 : 4};
  r.mix = mix_of(c);
  r.divisor = dims_param(&c->dims, "divisor", 0);
  r.padded = dims_param(&c->dims, "count", 0) != 0;
  r.whole = r.divisor > 0 ? r.divisor : pool_may_be_absent(&r.s) ? 0 : (double)r.s.window;
  r.rows = r.s.axis[0].outputs * r.s.axis[1].outputs;
  r.task_rows = r.s.axis[2].outputs < OUTPUTS ? OUTPUTS / (r.s.axis[2].outputs + 1) + 1 : 1;
  return r;
}

bool pool_reduce_by_channel(const tensor_call *c) {
  return c->op->input_count <= A && pool_planes_can(c, mix_of(c), true);
}

smx_status pool_reduce(const tensor_call *c) {
  const double mix = mix_of(c);
  if (pool_planes_can(c, mix, c->channels > 1)) return pool_planes(c, mix), SMX_OK;
  reduce_call r = call_of(c);
  if (r.s.planes > 0 && r.s.outputs > 0) smx_parallel(c->ctx, r.s.planes * tasks_of(&r), forward_task, &r);
  return SMX_OK;
}
smx_status pool_reduce_backward(const tensor_call *c) {
  reduce_call r = call_of(c);
  const bool learns = c->op->input_count > A && c->din.given[A];
  double sum = 0;
  if (!learns && !c->din.given[X]) return SMX_OK;
  if (learns && !(r.slope = pool_reserve(c, r.s.planes))) return SMX_ERR_NOMEM;
  smx_parallel(c->ctx, r.s.planes, backward_task, &r);
  for (int64_t plane = 0; learns && plane < r.s.planes; plane++) sum += r.slope[plane];
  if (learns) tensor_store(c, c->din.view + A, 0, 1, &sum), smx_free(c->ctx, r.slope);
  return SMX_OK;
}
