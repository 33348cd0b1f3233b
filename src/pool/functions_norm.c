/* pool/functions_norm.c - the norm of each window, y = t (sum (|x| / t)^p)^(1/p) with the largest
 * |x| as t, or 1 where powers of an f32 stay in the range of a double. Gradient: sgn(x)
 * (|x| / y)^(p - 1), 0 where y is 0. In double; a place of all windows of a row of outputs is a run
 * of numbers (pool_each_line). */
#include "functions_sets.h"

enum { RANGE = 128 }; /* outputs of a row that are looked at together */
enum { PLAIN = 7 };   /* the largest such power: 2^(128 7) */

typedef struct norm_call {
  const tensor_call *c;
  const score_runs *run;
  pool_shape s;
  double p;
  bool plain;
  smx_scratch scratch; /* the gradient of a plane */
} norm_call;

/* Some outputs of a row of a plane. */
typedef struct part {
  const norm_call *f;
  int64_t plane, outputs;
  double *dx;
  double top[RANGE], norm[RANGE], up[RANGE]; /* t, or 1 for 0 and infinities; y / t, first its power */
} part;

static double size_of(double x) { return x < 0 ? -x : x; }

/* Windows never have bins, so the outputs of a line are neighbours. */
static void load_line(const part *p, const pool_line *l, double *x) {
  const tensor_call *c = p->f->c;
  const int64_t at = p->plane * p->f->s.cells + l->cell, step = l->cell_step;
  if (c->is_f64)
    for (int64_t i = 0; i < l->count; i++)
      x[i] = ((const double *)(const void *)c->in.view->data)[at + i * step];
  else
    for (int64_t i = 0; i < l->count; i++)
      x[i] = (double)((const float *)(const void *)c->in.view->data)[at + i * step];
}

static void take_top(void *arg, const pool_line *l) {
  part *p = arg;
  double x[RANGE], *top = p->top + l->out;
  load_line(p, l, x);
  for (int64_t i = 0; i < l->count; i++) {
    const double v = size_of(x[i]);
    top[i] = v > top[i] || v != v ? v : top[i];
  }
}

static void add_powers(void *arg, const pool_line *l) {
  part *p = arg;
  double v[RANGE], *top = p->top + l->out, *sum = p->norm + l->out;
  load_line(p, l, v);
  for (int64_t i = 0; i < l->count; i++) v[i] = size_of(v[i]);
  for (int64_t i = 0; i < l->count && !p->f->plain; i++) v[i] /= top[i];
  p->f->run->power(p->f->p, v, l->count, v);
  for (int64_t i = 0; i < l->count; i++) sum[i] += v[i];
}

static void take_norms(part *p, int64_t row, int64_t begin, double *y) {
  const norm_call *f = p->f;
  for (int64_t i = 0; i < p->outputs; i++) p->top[i] = f->plain, p->norm[i] = 0;
  if (!f->plain) pool_each_line(&f->s, row, begin, begin + p->outputs, take_top, p);
  for (int64_t i = 0; i < p->outputs; i++) {
    y[i] = p->top[i];
    if (y[i] == 0 || y[i] == __builtin_inf()) p->top[i] = 1;
  }
  pool_each_line(&f->s, row, begin, begin + p->outputs, add_powers, p);
  if (f->p == 2)
    for (int64_t i = 0; i < p->outputs; i++) p->norm[i] = __builtin_sqrt(p->norm[i]);
  else f->run->power(1 / f->p, p->norm, p->outputs, p->norm);
  for (int64_t i = 0; i < p->outputs; i++)
    if (y[i] != 0 && y[i] - y[i] == 0) y[i] *= p->norm[i];
}

static void give(void *arg, const pool_line *l) {
  part *p = arg;
  const norm_call *f = p->f;
  double x[RANGE], v[RANGE], *top = p->top + l->out, *norm = p->norm + l->out, *up = p->up + l->out;
  load_line(p, l, x);
  for (int64_t i = 0; i < l->count; i++) v[i] = f->p == 1 ? 1 : size_of(x[i]) / top[i] / norm[i];
  if (f->p != 1) f->run->power(f->p - 1, v, l->count, v);
  for (int64_t i = 0; i < l->count; i++) {
    const double d = x[i] == 0 || up[i] == 0 ? 0 : up[i] * v[i];
    p->dx[l->cell + i * l->cell_step] += x[i] < 0 ? -d : d;
  }
}

/* Calls run for some outputs after the others. */
static void each_part(const norm_call *f, int64_t plane, double *dx,
                      void (*run)(part *p, int64_t row, int64_t begin)) {
  const int64_t width = f->s.axis[2].outputs;
  part p = {.f = f, .plane = plane, .dx = dx};
  for (int64_t row = 0; row < f->s.axis[0].outputs * f->s.axis[1].outputs; row++)
    for (int64_t begin = 0; begin < width; begin += p.outputs) {
      p.outputs = width - begin < RANGE ? width - begin : RANGE;
      run(&p, row, begin);
    }
}

static int64_t output_at(const part *p, int64_t row, int64_t begin) {
  return p->plane * p->f->s.outputs + row * p->f->s.axis[2].outputs + begin;
}
static void forward_part(part *p, int64_t row, int64_t begin) {
  double y[RANGE];
  take_norms(p, row, begin, y);
  tensor_store(p->f->c, p->f->c->out.view, output_at(p, row, begin), p->outputs, y);
}
static void backward_part(part *p, int64_t row, int64_t begin) {
  double y[RANGE];
  take_norms(p, row, begin, y);
  tensor_load(p->f->c, p->f->c->dout.view, output_at(p, row, begin), p->outputs, p->up);
  for (int64_t i = 0; i < p->outputs; i++)
    if (y[i] == 0 || y[i] == __builtin_inf()) p->up[i] = 0;
  pool_each_line(&p->f->s, row, begin, begin + p->outputs, give, p);
}

static void forward_task(void *arg, int64_t plane) { each_part(arg, plane, NULL, forward_part); }
static void backward_task(void *arg, int64_t plane) {
  norm_call *f = arg;
  double *dx = smx_scratch_take(&f->scratch);
  for (int64_t i = 0; i < f->s.cells; i++) dx[i] = 0;
  each_part(f, plane, dx, backward_part);
  tensor_store(f->c, f->c->din.view, plane * f->s.cells, f->s.cells, dx);
  smx_scratch_give(&f->scratch, dx);
}

static norm_call call_of(const tensor_call *c) {
  norm_call f = {.c = c, .run = smx_isa_current()->f64.score->run, .s = pool_shape_of(c)};
  f.p = tensor_param(c, "power"), f.plain = !c->is_f64 && f.p <= PLAIN;
  return f;
}

smx_status pool_norm(const tensor_call *c) {
  norm_call f = call_of(c);
  smx_parallel(c->ctx, f.s.planes, forward_task, &f);
  return SMX_OK;
}

smx_status pool_norm_backward(const tensor_call *c) {
  norm_call f = call_of(c);
  int64_t bytes;
  if (!c->din.given[0]) return SMX_OK;
  if (!smx_multiply(f.s.cells, 8, &bytes) ||
      !smx_scratch_open(&f.scratch, c->ctx, 0, (size_t)bytes, f.s.planes))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld cells", c->op->name, (long long)f.s.cells);
  smx_parallel(c->ctx, f.s.planes, backward_task, &f);
  smx_scratch_close(&f.scratch);
  return SMX_OK;
}
