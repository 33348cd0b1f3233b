/* shapes.c - proves that every operator works along any axis of a tensor of any order in memory,
 * and that a broadcast auxiliary input gives the bits of the same input written out in full. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "unit.h"

enum { N = 5, REST = 3, ROWS = 2 * 3 * 4, NDIM = REST + 1 };
static const int64_t rest[REST] = {2, 3, 4}; /* the shape without the axis */

typedef struct array {
  smx_tensor t;
  int64_t shape[NDIM], strides[NDIM];
} array;

/* A view of the shape with an axis of this length at its place, or without it (0), whose memory
 * order is C order (order 0) or turned round (order 1). */
static void make(array *a, smx_dtype t, void *data, int axis, int order, int64_t length) {
  int ndim = 0;
  for (int d = 0, r = 0; d < NDIM; d++)
    if (d != axis) a->shape[ndim++] = rest[r++];
    else if (length) a->shape[ndim++] = length;
  int64_t step = 1;
  for (int k = 0; k < ndim; k++) {
    int d = order ? k : ndim - 1 - k;
    a->strides[d] = step;
    step *= a->shape[d];
  }
  a->t = (smx_tensor){
      .data = data, .device = {1, 0}, .ndim = ndim, .dtype = t, .shape = a->shape, .strides = a->strides};
}

/* Where element i of row r lies; index_of a ROW tensor with i = 0 and axis NDIM. */
static int64_t index_of(const array *a, int axis, int64_t r, int64_t i) {
  int64_t at = 0;
  for (int d = a->t.ndim - 1; d >= 0; d--) {
    if (d == axis) {
      at += i * a->strides[d];
      continue;
    }
    at += r % a->shape[d] * a->strides[d];
    r /= a->shape[d];
  }
  return at;
}

static void run_plain(problem *p) {
  config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
  if (problem_run(p, &how, FORWARD)) fail_msg("%s: %s", p->op->name, smx_last_error());
}

static smx_dtype type_of(const smx_port *port) {
  return port->flags & SMX_PORT_INT ? SMX_I64 : port->flags & SMX_PORT_MASK ? SMX_U8 : SMX_F32;
}

/* What a port has along the axis: 0 = it has no axis. */
static int64_t length_of(const problem *p, const smx_port *port) {
  return port->shape == SMX_SHAPE_ROW ? 0 : port_length(p, port);
}

/* Writes port values into a freshly made array in this order. */
static void lay_out(array *a, const problem *p, const smx_port *port, const double *v, int axis, int order) {
  smx_dtype t = type_of(port);
  int64_t length = length_of(p, port), along = length ? length : 1;
  unsigned char *data = malloc((size_t)port_count(p, port) * dtype_size(t) + 1);
  assert_non_null(data);
  if (port->shape == SMX_SHAPE_OFFSETS || port->shape == SMX_SHAPE_COLUMN ||
      port->shape == SMX_SHAPE_SCALAR) {
    for (int64_t s = 0; v && s < port_count(p, port); s++)
      dtype_store(t, data + (size_t)s * dtype_size(t), v[s]);
    a->shape[0] = port_count(p, port);
    a->t = (smx_tensor){.data = data,
                        .device = {1, 0},
                        .ndim = port->shape != SMX_SHAPE_SCALAR,
                        .dtype = t,
                        .shape = a->shape};
    return;
  }
  make(a, t, data, axis, order, length);
  for (int64_t r = 0; v && r < ROWS; r++)
    for (int64_t i = 0; i < along; i++)
      dtype_store(t, data + (size_t)index_of(a, length ? axis : NDIM, r, i) * dtype_size(t),
                  v[r * along + i]);
}

static void compare(const problem *p, int output, const array *y, int axis, const char *what) {
  const smx_port *port = &p->op->outputs[output];
  int64_t length = length_of(p, port), along = length ? length : 1;
  size_t size = dtype_size(type_of(port));
  for (int64_t r = 0; r < (port->shape == SMX_SHAPE_SCALAR ? 1 : ROWS); r++)
    for (int64_t i = 0; i < along; i++) {
      const unsigned char *got =
          (const unsigned char *)y->t.data + (size_t)index_of(y, length ? axis : NDIM, r, i) * size;
      if (memcmp(got, p->out[output] + (size_t)(r * along + i) * size, size))
        fail_msg("%s %s, %s, axis %d: row %d element %d", p->op->name, port->name, what, axis, (int)r,
                 (int)i);
    }
}

/* Runs with these inputs, and outputs laid out in this order, and compares. */
static void run_laid_out(problem *p, const smx_tensor *const *in, int axis, int order, const char *what) {
  array y[SMX_MAX_PORTS];
  const smx_tensor *out[SMX_MAX_PORTS];
  for (int o = 0; o < p->op->output_count; o++) {
    lay_out(&y[o], p, &p->op->outputs[o], NULL, axis, order);
    out[o] = &y[o].t;
  }
  if (smx_forward(p->op, NULL, &p->params, p->op->input_count, in, p->op->output_count, out))
    fail_msg("%s: %s", p->op->name, smx_last_error());
  for (int o = 0; o < p->op->output_count; o++) {
    compare(p, o, &y[o], axis, what);
    free(y[o].t.data);
  }
}

static void any_axis(void **state) {
  static const kind kinds[] = {KIND_NORMAL, KIND_HOLES, KIND_EMPTY};
  for (size_t o = 0; o < row_op_count(); o++)
    for (int axis = 0; axis < NDIM; axis++)
      for (int orders = 0; orders < 8; orders++) { /* of inputs, of the output; and another variant */
        problem p;
        array a[SMX_MAX_PORTS];
        const smx_tensor *in[SMX_MAX_PORTS] = {NULL};
        problem_make(&p, smx_op_at(o), ROWS, N, 1 + (orders >> 2), (uint64_t)axis, kinds, 3);
        run_plain(&p);
        for (int i = 0; i < p.op->input_count; i++) {
          a[i].t.data = NULL;
          if (!p.in[i]) continue;
          lay_out(&a[i], &p, &p.op->inputs[i], p.in[i], axis, orders & 1);
          in[i] = &a[i].t;
        }
        p.params.axis = orders & 1 ? axis - NDIM : axis;
        run_laid_out(&p, in, axis, orders >> 1 & 1, "any order");
        for (int i = 0; i < p.op->input_count; i++) free(a[i].t.data);
        problem_free(&p);
      }
}

/* The dimensions that a broadcast input keeps: others are 1, or left off in front. */
static const int keeps[][NDIM] = {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 1, 0, 1},
                                  {1, 0, 1, 0}, {0, 0, 1, 1}, {1, 1, 0, 1}};

/* Makes in[i] depend on the kept dimensions only (the axis is the last), and a tensor of the small
 * shape. */
static void narrow(problem *p, int i, const int *keep, int strides, array *a) {
  const smx_port *port = &p->op->inputs[i];
  int full = port->shape == SMX_SHAPE_FULL, ndim = full ? NDIM : REST, first = 0;
  make(a, type_of(port), NULL, REST, 0, length_of(p, port));
  int64_t step[NDIM] = {0}, count = 1;
  for (int d = ndim - 1; d >= 0; d--)
    if (keep[d]) step[d] = count, count *= a->shape[d];
  memcpy(a->strides, step, sizeof step);
  unsigned char *data = malloc((size_t)count * dtype_size(type_of(port)));
  assert_non_null(data);
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t k = 0; k < (full ? N : 1); k++) {
      int64_t at = index_of(a, full ? REST : NDIM, r, k);
      double *v = &p->in[i][full ? r * N + k : r];
      dtype_store(type_of(port), data + (size_t)at * dtype_size(type_of(port)), *v);
    }
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t k = 0; k < (full ? N : 1); k++)
      p->in[i][full ? r * N + k : r] = dtype_load(
          type_of(port), data + (size_t)index_of(a, full ? REST : NDIM, r, k) * dtype_size(type_of(port)));
  a->t.data = data;
  if (strides) return; /* the full shape, with strides 0 */
  while (first < ndim && !keep[first]) first++;
  for (int d = first; d < ndim; d++) a->shape[d - first] = keep[d] ? a->shape[d] : 1;
  a->t.ndim = ndim - first;
  a->t.strides = NULL;
}

static void broadcast(void **state) {
  static const kind kinds[] = {KIND_NORMAL};
  for (size_t o = 0; o < row_op_count(); o++)
    for (size_t k = 0; k < 4 * COUNT_OF(keeps); k++) {
      problem p;
      array a[SMX_MAX_PORTS];
      const smx_tensor *in[SMX_MAX_PORTS] = {NULL};
      problem_make(&p, smx_op_at(o), ROWS, N, 1 + (int)(k / 2 / COUNT_OF(keeps)), k, kinds, 1);
      for (int i = 0; i < p.op->input_count; i++) {
        smx_shape_rule shape = p.op->inputs[i].shape;
        a[i].t.data = NULL;
        if (!p.in[i]) continue;
        if (i == 0 || shape == SMX_SHAPE_OFFSETS || shape == SMX_SHAPE_COLUMN || shape == SMX_SHAPE_K)
          lay_out(&a[i], &p, &p.op->inputs[i], p.in[i], REST, 0);
        else narrow(&p, i, keeps[k / 2 % COUNT_OF(keeps)], (int)(k % 2), &a[i]);
        in[i] = &a[i].t;
      }
      run_plain(&p);
      run_laid_out(&p, in, REST, 0, "broadcast");
      for (int i = 0; i < p.op->input_count; i++) free(a[i].t.data);
      problem_free(&p);
    }
}

/* A NaN among -inf that fill the first group of a row which is taken group by group, as it is not
 * contiguous. */
static void a_nan_behind_nothing(void **state) {
  enum { LONG = 40000 };
  static const char *const names[] = {"softmax", "log_softmax", "softmin", "logsumexp"};
  static float x[2 * LONG], y[LONG];
  int64_t shape[] = {LONG}, strides[] = {2};
  for (int i = 0; i < LONG; i++) x[2 * i] = i == 5000 ? NAN : i < 8192 ? -INFINITY : 1;
  for (size_t o = 0; o < COUNT_OF(names); o++) {
    const smx_op *const op = smx_op_find(names[o]);
    const smx_tensor tx = {.data = x, .ndim = 1, .dtype = SMX_F32, .shape = shape, .strides = strides},
                     ty = {.data = y,
                           .ndim = op->outputs[0].shape == SMX_SHAPE_FULL,
                           .dtype = SMX_F32,
                           .shape = shape};
    const smx_tensor *in[] = {&tx}, *out[] = {&ty};
    assert_int_equal(smx_forward(op, NULL, NULL, 1, in, 1, out), SMX_OK);
    for (int i = 0; i < (ty.ndim ? LONG : 1); i++)
      if (!isnan(y[i])) fail_msg("%s: element %d is %g", op->name, i, (double)y[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(any_axis), cmocka_unit_test(broadcast),
                                     cmocka_unit_test(a_nan_behind_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
