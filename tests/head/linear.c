/* linear.c - proves operators on the logits of a linear layer: the products against loops of fma,
 * bit for bit, on every instruction set, for any number of threads and any memory; every operator
 * on rows against the same operator on logits in memory, forward and backward; half precision and
 * strides; gradients of a softcap against differences; sizes of 0 and 1; errors; memory. */
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "problem.h"
#include "tensors.h"

#define F32(data, ndim, shape) tensor(data, SMX_F32, ndim, shape)
#define I64(data, ndim, shape) tensor(data, SMX_I64, ndim, shape)

static void *room(size_t bytes) {
  void *p = calloc(1, bytes + 1);
  assert_non_null(p);
  return p;
}
static void ok(smx_status status) {
  if (status != SMX_OK) fail_msg("%s", smx_last_error());
}
static float *normals(rng *r, int64_t n, double deviation) {
  float *x = room((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)(deviation * rng_normal(r));
  return x;
}

/* ---- the specification ---- */

/* sum_k a[k a_step] b[k b_step]: chains of 64. */
static float chains(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
  float sum = 0;
  for (int64_t k = 0; k < n; k += 64) {
    float chain = 0;
    for (int64_t i = k; i < n && i < k + 64; i++) chain = fmaf(a[i * a_step], b[i * b_step], chain);
    sum = k ? sum + chain : chain;
  }
  return sum;
}
static float clean(double x) {
  const float f = (float)x;
  return fabsf(f) < 0x1p-126f ? 0 : f;
}

typedef struct layer {
  int64_t n, classes, d, hs[2], ws[2], zs[2];
  float *h, *w, *bias, scale;
  int64_t *target;
  /* what the specification says */
  float *z, *dz, *dh, *dw, *dbias, *loss, *upstream, reduced;
} layer;

static const smx_op *cross_entropy_op(smx_params *p) {
  const smx_op *op = smx_op_find("cross_entropy");
  ok(smx_params_init(op, p));
  ok(smx_params_set(op, p, "reduction", SMX_REDUCE_MEAN));
  ok(smx_params_set(op, p, "label_smoothing", 0.1f));
  ok(smx_params_set(op, p, "ignore_index", 3));
  return op;
}

/* The gradient of the logits: of a reduced loss, or of losses that count alike. */
static void expect_dz(layer *l, bool two) {
  smx_params p;
  const smx_op *op = cross_entropy_op(&p);
  int64_t counted = 0;
  l->upstream = room((size_t)l->n * 4);
  for (int64_t r = 0; r < l->n; r++) counted += l->target[r] != 3;
  for (int64_t r = 0; r < l->n; r++) l->upstream[r] = (float)(1.0 / (double)counted);
  const smx_tensor t[] = {F32(l->z, 2, l->zs),  I64(l->target, 1, l->hs),   F32(l->loss, 1, l->hs),
                          F32(l->dz, 2, l->zs), F32(&l->reduced, 0, l->hs), F32(l->upstream, 1, l->hs)};
  const smx_tensor *in[] = {t, t + 1}, *out[] = {t + 2, two ? NULL : t + 3, NULL, NULL, NULL, NULL, t + 4};
  const smx_tensor *dout[] = {t + 5}, *din[2] = {t + 3};
  ok(smx_forward(op, NULL, &p, 2, in, 7, out));
  if (two) ok(smx_backward(op, NULL, &p, 2, in, 1, NULL, dout, din));
}
static void expect(layer *l, bool two) {
  const float *one = (const float[]){1};
  l->z = room((size_t)(l->n * l->classes) * 4), l->dz = room((size_t)(l->n * l->classes) * 4);
  l->dh = room((size_t)(l->n * l->d) * 4), l->dw = room((size_t)(l->classes * l->d) * 4);
  l->dbias = room((size_t)l->classes * 4), l->loss = room((size_t)l->n * 4);
  for (int64_t r = 0; r < l->n; r++)
    for (int64_t c = 0; c < l->classes; c++)
      l->z[r * l->classes + c] =
          clean(l->scale * chains(l->h + r * l->d, 1, l->w + c * l->d, 1, l->d) + l->bias[c]);
  expect_dz(l, two);
  for (int64_t r = 0; r < l->n; r++)
    for (int64_t x = 0; x < l->d; x++) {
      double sum = 0;
      for (int64_t c = 0; c < l->classes; c += 4096)
        sum += chains(l->dz + r * l->classes + c, 1, l->w + c * l->d + x, l->d,
                      l->classes - c < 4096 ? l->classes - c : 4096);
      l->dh[r * l->d + x] = clean(sum * l->scale);
    }
  for (int64_t c = 0; c < l->classes; c++) {
    for (int64_t x = 0; x < l->d; x++)
      l->dw[c * l->d + x] = clean(l->scale * chains(l->dz + c, l->classes, l->h + x, l->d, l->n));
    l->dbias[c] = clean(chains(l->dz + c, l->classes, one, 0, l->n));
  }
}
static layer make_layer(int64_t n, int64_t classes, int64_t d, uint64_t seed) {
  rng r = {seed};
  layer l = {.n = n, .classes = classes, .d = d, .hs = {n, d}, .ws = {classes, d}, .zs = {n, classes}};
  l.h = normals(&r, n * d, 1), l.w = normals(&r, classes * d, .3), l.bias = normals(&r, classes, 1);
  l.scale = 0.7f, l.target = room((size_t)n * sizeof *l.target);
  for (int64_t i = 0; i < n; i++) l.target[i] = rng_below(&r, classes);
  return l;
}
static void free_layer(layer *l) {
  void *all[] = {l->h, l->w, l->bias, l->target, l->z, l->dz, l->dh, l->dw, l->dbias, l->loss, l->upstream};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* Loss and gradients, from one walk (forward) or two. */
static void run_layer(layer *l, smx_context *ctx, size_t keep, bool two) {
  float *z = room((size_t)(l->n * l->classes) * 4), *dh = room((size_t)(l->n * l->d) * 4),
        *dw = room((size_t)(l->classes * l->d) * 4), *dbias = room((size_t)l->classes * 4),
        *loss = room((size_t)l->n * 4), reduced = 0;
  int64_t *hs = l->hs, *ws = l->ws, *zs = l->zs;
  const smx_tensor t[] = {F32(l->h, 2, hs),     F32(l->w, 2, ws),       F32(l->bias, 1, ws),
                          F32(dh, 2, hs),       F32(dw, 2, ws),         F32(dbias, 1, ws),
                          F32(z, 2, zs),        I64(l->target, 1, hs),  F32(loss, 1, hs),
                          F32(&reduced, 0, hs), F32(l->upstream, 1, hs)};
  smx_linear linear = {
      .size = sizeof linear, .h = t, .w = t + 1, .bias = t + 2, .scale = l->scale, .keep_bytes = keep};
  ok(smx_linear_logits(ctx, &linear, t + 6));
  assert_memory_equal(z, l->z, (size_t)(l->n * l->classes) * 4);
  smx_params p;
  const smx_op *op = cross_entropy_op(&p);
  const smx_tensor *in[] = {NULL, t + 7}, *out[] = {t + 8, NULL, NULL, NULL, NULL, NULL, t + 9},
                   *dout[] = {t + 10};
  if (two) ok(smx_linear_forward(op, ctx, &p, &linear, 2, in, 7, out));
  linear.dh = t + 3, linear.dw = t + 4, linear.dbias = t + 5;
  if (two) ok(smx_linear_backward(op, ctx, &p, &linear, 2, in, 1, NULL, dout, NULL));
  else ok(smx_linear_forward(op, ctx, &p, &linear, 2, in, 7, out));
  assert_memory_equal(loss, l->loss, (size_t)l->n * 4);
  assert_memory_equal(&reduced, &l->reduced, 4);
  for (int64_t i = 0; i < l->n * l->d; i++) assert_true(dh[i] == l->dh[i]);
  for (int64_t i = 0; i < l->classes * l->d; i++) assert_true(dw[i] == l->dw[i]);
  for (int64_t i = 0; i < l->classes; i++) assert_true(dbias[i] == l->dbias[i]);
  void *all[] = {z, dh, dw, dbias, loss};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* Portable kernels whose fused multiply-add is software take one number of threads a size: which
 * thread has which rows is decided where no set is known. */
static bool slow_set(void) { return smx_isa_count() > 1 && !strcmp(smx_isa_name(), "portable"); }

static void products_are_loops(void **state) {
  static const int64_t sizes[][3] = {{150, 4200, 70}, {67, 65, 129}, {5, 3, 1}, {200, 100, 64}};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    for (int two = 0; two < 2; two++) {
      layer l = make_layer(sizes[i][0], sizes[i][1] + 1, sizes[i][2], i);
      expect(&l, two);
      for (way w = {0}; next_way(&w);)
        if (!slow_set() || w.number % 3 == (int)(i + (size_t)two) % 3)
          run_layer(&l, w.ctx, w.number % 2, two);
      free_layer(&l);
    }
  }
}

/* ---- every operator on rows ---- */

/* One port of a problem as a tensor of f32, i64 or bool in memory of its own. */
typedef struct held {
  smx_tensor t;
  int64_t shape[2];
  size_t bytes;
} held;
static held hold(const problem *p, const smx_port *port, const double *values) {
  const bool mask = port->flags & SMX_PORT_MASK;
  held h = {.shape = {p->rows, port_length(p, port)}};
  smx_dtype type = mask ? SMX_BOOL : port->flags & SMX_PORT_INT ? SMX_I64 : SMX_F32;
  int ndim = port->shape == SMX_SHAPE_SCALAR ? 0 : port->shape == SMX_SHAPE_ROW ? 1 : 2;
  int64_t count = port_count(p, port);
  if (port->shape == SMX_SHAPE_SCALAR) count = 1;
  if (port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_OFFSETS) ndim = 1, h.shape[0] = count;
  h.bytes = (size_t)count * dtype_size(type);
  unsigned char *data = room(h.bytes);
  for (int64_t i = 0; values && i < count; i++)
    dtype_store(type, data + (size_t)i * dtype_size(type), values[i]);
  h.t = tensor(data, type, ndim, NULL);
  return h;
}

typedef struct ports {
  held h[SMX_MAX_PORTS];
  const smx_tensor *at[SMX_MAX_PORTS];
} ports;
static void add_port(ports *to, int i, const problem *p, const smx_port *port, const double *values) {
  to->h[i] = hold(p, port, values);
  to->h[i].t.shape = to->h[i].shape;
  to->at[i] = &to->h[i].t;
}
static void drop_ports(ports *p) {
  for (int i = 0; i < SMX_MAX_PORTS; i++)
    if (p->at[i]) free(p->h[i].t.data);
}
static void same_ports(const smx_op *op, const ports *a, const ports *b) {
  for (int i = 0; i < op->output_count; i++)
    if (a->at[i] && memcmp(a->h[i].t.data, b->h[i].t.data, a->h[i].bytes))
      fail_msg("%s: %s differs", op->name, op->outputs[i].name);
}

/* One NaN or infinity in a gradient makes a sum NaN. */
static void same_row(const smx_op *op, const float *dh, const float *dx, int n) {
  float all = 0;
  for (int i = 0; i < n; i++) all += dx[i] - dx[i];
  for (int i = 0; i < n; i++)
    if (all == 0 ? dh[i] != dx[i] : dh[i] == dh[i] && dh[i] != dx[i])
      fail_msg("%s: dh %d is %g, not %g", op->name, i, (double)dh[i], (double)dx[i]);
}

/* With w = 1 the logits are h, and dh is the gradient of the logits. */
static void one_operator(const smx_op *op, int variant, smx_context *ctx, size_t keep) {
  enum { ROWS = 70, N = 96 };
  problem p;
  const kind kinds[] = {KIND_NORMAL, KIND_TIES, KIND_RISING};
  problem_make(&p, op, ROWS, N, variant, 5, kinds, 3);
  ports in = {0}, out = {0}, other = {0}, dout = {0};
  for (int i = 0; i < op->input_count; i++)
    if (p.in[i]) add_port(&in, i, &p, op->inputs + i, p.in[i]);
  for (int o = 0; o < op->output_count; o++)
    add_port(&out, o, &p, op->outputs + o, NULL), add_port(&other, o, &p, op->outputs + o, NULL);
  float *one = room(N * N * sizeof *one), *dh = room(ROWS * N * sizeof *dh),
        *dx = room(ROWS * N * sizeof *dx);
  for (int i = 0; i < N; i++) one[i * N + i] = 1;
  int64_t hs[] = {ROWS, N}, ws[] = {N, N};
  const smx_tensor w = F32(one, 2, ws), to = F32(dh, 2, hs), x = F32(dx, 2, hs);
  smx_linear linear = {.size = sizeof linear, .h = in.at[0], .w = &w, .keep_bytes = keep};
  const smx_tensor *rest[SMX_MAX_PORTS], *din[SMX_MAX_PORTS] = {&x};
  memcpy(rest, in.at, sizeof rest), rest[0] = NULL;
  ok(smx_forward(op, ctx, &p.params, op->input_count, in.at, op->output_count, out.at));
  ok(smx_linear_forward(op, ctx, &p.params, &linear, op->input_count, rest, op->output_count, other.at));
  same_ports(op, &out, &other);
  if (op->flags & SMX_OP_BACKWARD) {
    for (int o = 0; o < op->output_count; o++)
      if (has_gradient(&p, o)) add_port(&dout, o, &p, op->outputs + o, p.dout[o]);
    ok(smx_backward(op, ctx, &p.params, op->input_count, in.at, op->output_count, out.at, dout.at, din));
    linear.dh = &to;
    ok(smx_linear_backward(op, ctx, &p.params, &linear, op->input_count, rest, op->output_count, out.at,
                           dout.at, NULL));
    for (int r = 0; r < ROWS; r++) same_row(op, dh + r * N, dx + r * N, N);
  }
  drop_ports(&in), drop_ports(&out), drop_ports(&other), drop_ports(&dout);
  free(one), free(dh), free(dx), problem_free(&p);
}
static void every_operator(void **state) {
  smx_context *ctx;
  ok(smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 2}, &ctx));
  for (size_t i = 0; i < row_op_count(); i++) {
    const smx_op *op = smx_op_at(i);
    if (op->inputs[0].flags & (SMX_PORT_INT | SMX_PORT_MASK) || !problem_possible(op, 96)) continue;
    for (int variant = 0; variant < 3; variant++)
      one_operator(op, variant, variant ? ctx : NULL, variant == 1);
  }
  smx_context_destroy(ctx);
}

/* ---- half precision, strides ---- */

/* A matrix of another dtype whose columns lie backwards, two elements apart. */
static void *spread(const float *x, int64_t n, int64_t d, smx_dtype t) {
  unsigned char *p = room((size_t)(n * d) * 2 * dtype_size(t));
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d; j++)
      dtype_store(t, p + (size_t)(i * 2 * d + 2 * (d - 1 - j)) * dtype_size(t), (double)x[i * d + j]);
  return p;
}
static void dtypes_and_strides(void **state) {
  enum { N = 70, C = 90, D = 33 };
  for (int t = 1; t < FLOAT_DTYPES; t++) {
    const smx_dtype type = float_dtypes[t];
    const size_t size = dtype_size(type);
    layer l = make_layer(N, C, D, 9);
    for (int i = 0; i < N * D; i++) l.h[i] = (float)dtype_round(type, (double)l.h[i]);
    for (int i = 0; i < C * D; i++) l.w[i] = (float)dtype_round(type, (double)l.w[i]);
    if (t != 1) expect(&l, false); /* f64 is compared with itself, in C order */
    unsigned char *h = spread(l.h, N, D, type), *w = spread(l.w, C, D, type), *dh = room(N * D * 2 * size),
                  *dw = room(C * D * 2 * size);
    float loss[N], dbias[C], reduced;
    int64_t strides[] = {2 * D, -2};
    smx_tensor views[] = {
        tensor(h + 2 * (D - 1) * size, type, 2, l.hs), tensor(w + 2 * (D - 1) * size, type, 2, l.ws),
        tensor(dh + 2 * (D - 1) * size, type, 2, l.hs), tensor(dw + 2 * (D - 1) * size, type, 2, l.ws)};
    for (int i = 0; i < 4; i++) views[i].strides = strides;
    const smx_tensor rest[] = {F32(l.bias, 1, l.ws), F32(dbias, 1, l.ws), I64(l.target, 1, l.hs),
                               F32(loss, 1, l.hs), F32(&reduced, 0, l.hs)};
    const smx_linear linear = {sizeof linear, views,     views + 1, rest, (double)l.scale, 0, 1,
                               views + 2,     views + 3, rest + 1};
    const smx_tensor *in[] = {NULL, rest + 2}, *out[] = {rest + 3, NULL, NULL, NULL, NULL, NULL, rest + 4};
    smx_params p;
    const smx_op *op = cross_entropy_op(&p);
    ok(smx_linear_forward(op, NULL, &p, &linear, 2, in, 7, out));
    if (t == 1) {
      double *plain[4] = {room(N * D * 8), room(C * D * 8), room(N * D * 8), room(C * D * 8)};
      for (int i = 0; i < N * D; i++) plain[0][i] = (double)l.h[i];
      for (int i = 0; i < C * D; i++) plain[1][i] = (double)l.w[i];
      const smx_tensor c[] = {F64(plain[0], 2, l.hs), F64(plain[1], 2, l.ws), F64(plain[2], 2, l.hs),
                              F64(plain[3], 2, l.ws)};
      const smx_linear other = {sizeof other, c, c + 1, rest, (double)l.scale, 0, 0, c + 2, c + 3, rest + 1};
      ok(smx_linear_forward(op, NULL, &p, &other, 2, in, 7, out));
      for (int i = 0; i < N * D; i++)
        assert_true(dtype_load(type, dh + (size_t)(i / D * 2 * D + 2 * (D - 1 - i % D)) * size) ==
                    plain[2][i]);
      for (int i = 0; i < C * D; i++)
        assert_true(dtype_load(type, dw + (size_t)(i / D * 2 * D + 2 * (D - 1 - i % D)) * size) ==
                    plain[3][i]);
      for (int i = 0; i < 4; i++) free(plain[i]);
    } else {
      assert_memory_equal(loss, l.loss, sizeof loss);
      for (int i = 0; i < N * D; i++)
        assert_true(dtype_load(type, dh + (size_t)(i / D * 2 * D + 2 * (D - 1 - i % D)) * size) ==
                    dtype_round(type, (double)l.dh[i]));
      for (int i = 0; i < C * D; i++)
        assert_true(dtype_load(type, dw + (size_t)(i / D * 2 * D + 2 * (D - 1 - i % D)) * size) ==
                    dtype_round(type, (double)l.dw[i]));
    }
    free(h), free(w), free(dh), free(dw), free_layer(&l);
  }
}

/* ---- softcap and scale against differences ---- */

enum { SMALL_N = 3, SMALL_C = 5, SMALL_D = 4 };
static double capped_loss(double *h, double *w, double *b, smx_linear *linear, const smx_tensor **grads) {
  static int64_t target[] = {1, 4, 0}, hs[] = {SMALL_N, SMALL_D}, ws[] = {SMALL_C, SMALL_D};
  double loss[SMALL_N], reduced;
  const smx_tensor t[] = {F64(h, 2, hs),      F64(w, 2, ws),    F64(b, 1, ws),
                          I64(target, 1, hs), F64(loss, 1, hs), F64(&reduced, 0, hs)};
  const smx_tensor *in[] = {NULL, t + 3}, *out[] = {t + 4, NULL, NULL, NULL, NULL, NULL, t + 5};
  smx_params p;
  const smx_op *op = cross_entropy_op(&p);
  linear->h = t, linear->w = t + 1, linear->bias = t + 2;
  linear->dh = grads ? grads[0] : NULL, linear->dw = grads ? grads[1] : NULL,
  linear->dbias = grads ? grads[2] : NULL;
  ok(smx_linear_forward(op, NULL, &p, linear, 2, in, 7, out));
  return reduced;
}
static void caps_and_differences(void **state) {
  enum { ALL = SMALL_N * SMALL_D + SMALL_C * SMALL_D + SMALL_C };
  rng r = {4};
  double x[ALL], g[ALL];
  double *h = x, *w = h + SMALL_N * SMALL_D, *b = w + SMALL_C * SMALL_D;
  int64_t hs[] = {SMALL_N, SMALL_D}, ws[] = {SMALL_C, SMALL_D};
  const smx_tensor t[] = {F64(g, 2, hs), F64(g + (w - x), 2, ws), F64(g + (b - x), 1, ws)};
  const smx_tensor *grads[] = {t, t + 1, t + 2};
  smx_linear linear = {.size = sizeof linear, .scale = -1.3, .softcap = 2};
  for (int i = 0; i < ALL; i++) x[i] = rng_normal(&r);
  capped_loss(h, w, b, &linear, grads);
  for (int i = 0; i < ALL; i++) {
    const double keep = x[i], step = 1e-5;
    x[i] = keep + step;
    const double up = capped_loss(h, w, b, &linear, NULL);
    x[i] = keep - step;
    const double down = capped_loss(h, w, b, &linear, NULL);
    x[i] = keep;
    if (!(fabs((up - down) / (2 * step) - g[i]) < 1e-9))
      fail_msg("%d: %g, not %g", i, g[i], (up - down) / (2 * step));
  }
}

/* ---- sizes of 0 and 1 ---- */

static void sizes_of_nothing(void **state) {
  float h[4] = {1, 2, 3, 4}, w[4] = {5, 6, 7, 8}, bias[2] = {.5f, -1}, loss[2] = {9, 9}, dh[4] = {9, 9, 9, 9},
        dw[4] = {9, 9, 9, 9}, dbias[2] = {9, 9}, z[4];
  const int64_t target[2] = {1, 0};
  ok(smx_linear_cross_entropy_f32(NULL, 0, 2, 2, h, w, bias, NULL, NULL, NULL, dh, dw, dbias, NULL));
  assert_true(dw[0] == 0 && dw[3] == 0 && dbias[0] == 0 && dbias[1] == 0 && dh[0] == 9);
  ok(smx_linear_cross_entropy_f32(NULL, 2, 2, 0, NULL, NULL, bias, target, NULL, loss, NULL, NULL, dbias,
                                  NULL));
  const float at_1 = log1pf(expf(1.5f)), at_0 = log1pf(expf(-1.5f));
  assert_true(fabsf(loss[0] - at_1) < 1e-6f && fabsf(loss[1] - at_0) < 1e-6f &&
              fabsf(dbias[0] + dbias[1]) < 1e-6f);
  ok(smx_linear_cross_entropy_f32(NULL, 2, 1, 2, h, w, NULL, (const int64_t[]){0, 0}, NULL, loss, dh, dw,
                                  NULL, NULL));
  assert_true(loss[0] == 0 && loss[1] == 0 && dh[0] == 0 && dw[0] == 0);
  int64_t hs[] = {2, 0}, ws[] = {2, 0}, zs[] = {2, 2};
  const smx_tensor t[] = {F32(NULL, 2, hs), F32(NULL, 2, ws), F32(z, 2, zs), F32(bias, 1, zs)};
  const smx_linear linear = {.size = sizeof linear, .h = t, .w = t + 1, .bias = t + 3};
  ok(smx_linear_logits(NULL, &linear, t + 2));
  assert_true(z[0] == .5f && z[1] == -1 && z[2] == .5f && z[3] == -1);
}

/* ---- errors; nothing is written ---- */

static void says(smx_status have, smx_status want, const char *text) {
  assert_int_equal(have, want);
  if (!strstr(smx_last_error(), text)) fail_msg("'%s' does not have '%s'", smx_last_error(), text);
}
static void errors_name_their_argument(void **state) {
  float h[4] = {1, 2, 3, 4}, w[6] = {5, 6, 7, 8, 9, 1}, loss[2] = {7, 7}, dh[4] = {7, 7, 7, 7};
  int64_t bad[2] = {0, 3}, hs[] = {2, 2}, ws[] = {3, 2}, wrong[] = {3, 1};
  says(smx_linear_cross_entropy_f32(NULL, 2, 3, 2, h, w, NULL, bad, NULL, loss, dh, NULL, NULL, NULL),
       SMX_ERR_TARGET, "row 1");
  assert_true(loss[0] == 7 && dh[0] == 7);
  const smx_tensor t[] = {F32(h, 2, hs),    F32(w, 2, ws),  F32(w, 2, wrong),
                          F32(loss, 1, hs), F32(dh, 2, hs), I64(bad, 1, hs)};
  const smx_op *lse = smx_op_find("logsumexp");
  const smx_tensor *out[] = {t + 3}, *in[] = {t};
  smx_linear l = {.size = sizeof l, .h = t, .w = t + 2};
  says(smx_linear_forward(lse, NULL, NULL, &l, 0, NULL, 1, out), SMX_ERR_SHAPE, "w: shape[1] is 1, not 2");
  l.w = t + 1;
  says(smx_linear_forward(lse, NULL, NULL, &l, 1, in, 1, out), SMX_ERR_PARAM, "in[0] is given");
  says(smx_linear_forward(NULL, NULL, NULL, &l, 0, NULL, 1, out), SMX_ERR_NULL, "op is NULL");
  says(smx_linear_forward(smx_op_find("sinkhorn"), NULL, NULL, &l, 0, NULL, 1, out), SMX_ERR_PARAM,
       "sinkhorn");
  says(smx_linear_forward(lse, NULL, NULL, NULL, 0, NULL, 1, out), SMX_ERR_NULL, "linear is NULL");
  l.dh = t + 4;
  says(smx_linear_forward(lse, NULL, NULL, &l, 0, NULL, 1, out), SMX_ERR_NO_BACKWARD, "logsumexp");
  l.dh = t;
  says(smx_linear_backward(lse, NULL, NULL, &l, 0, NULL, 1, out, out, NULL), SMX_ERR_ALIAS, "dh: overlaps h");
  l.dh = NULL, l.softcap = -1;
  says(smx_linear_forward(lse, NULL, NULL, &l, 0, NULL, 1, out), SMX_ERR_PARAM, "softcap is -1");
  l.softcap = 0, l.scale = (double)NAN;
  says(smx_linear_logits(NULL, &l, t + 4), SMX_ERR_PARAM, "scale is nan");
  l.scale = 0, l.size = 8;
  says(smx_linear_logits(NULL, &l, t + 4), SMX_ERR_STRUCT, "linear.size is 8");
  l.size = sizeof l, l.h = t + 5;
  says(smx_linear_logits(NULL, &l, t + 4), SMX_ERR_DTYPE, "h: dtype is i64");
  l.h = t;
  says(smx_linear_logits(NULL, &l, t + 4), SMX_ERR_SHAPE, "z: shape[1] is 2, not 3");
}

/* ---- memory ---- */

typedef struct meter {
  int64_t now, most;
} meter;
static void *metered(void *user, size_t bytes, size_t alignment) {
  meter *m = user;
  unsigned char *p = aligned_alloc(alignment, (bytes + alignment + alignment - 1) / alignment * alignment);
  if (!p) return NULL;
  m->now += (int64_t)bytes;
  if (m->now > m->most) m->most = m->now;
  memcpy(p, &bytes, sizeof bytes);
  return p + alignment;
}
static void unmetered(void *user, void *p) {
  size_t bytes;
  if (!p) return;
  memcpy(&bytes, (unsigned char *)p - 64, sizeof bytes);
  ((meter *)user)->now -= (int64_t)bytes;
  free((unsigned char *)p - 64);
}
static void memory_is_what_the_caller_allows(void **state) {
  enum { N = 1024, C = 9000, D = 96 };
  layer l = make_layer(N, C, D, 2);
  float *loss = room(N * 4), *dh = room(N * D * 4), *dw = room(C * D * 4);
  meter m = {0};
  smx_context *ctx;
  const smx_context_options o = {
      .size = sizeof o, .alloc = metered, .release = unmetered, .alloc_user = &m, .threads = 1};
  ok(smx_context_create(&o, &ctx));
  const int64_t before = m.most = m.now, keep = 4 << 20;
  const smx_tensor t[] = {F32(l.h, 2, l.hs), F32(l.w, 2, l.ws),      F32(dh, 2, l.hs),
                          F32(dw, 2, l.ws),  I64(l.target, 1, l.hs), F32(loss, 1, l.hs)};
  const smx_linear linear = {
      .size = sizeof linear, .h = t, .w = t + 1, .dh = t + 2, .dw = t + 3, .keep_bytes = (size_t)keep};
  const smx_tensor *in[] = {NULL, t + 4}, *out[] = {t + 5};
  ok(smx_linear_forward(smx_op_find("cross_entropy"), ctx, NULL, &linear, 2, in, 1, out));
  assert_true(m.most - before > keep / 2);
  if (m.most - before > keep + (1 << 20)) fail_msg("%lld bytes", (long long)(m.most - before));
  assert_int_equal(m.now, before);
  smx_context_destroy(ctx);
  free(loss), free(dh), free(dw), free_layer(&l);
}

static void without_memory_nothing_is_written(void **state) {
  guard_heap heap = {.left = -1};
  smx_context *ctx =
      guard_context(&heap, (smx_context_options){.size = sizeof(smx_context_options), .threads = 1});
  layer l = make_layer(130, 40, 20, 6);
  float loss[130], dh[130 * 20], dw[40 * 20];
  const smx_tensor t[] = {F32(l.h, 2, l.hs), F32(l.w, 2, l.ws),      F32(dh, 2, l.hs),
                          F32(dw, 2, l.ws),  I64(l.target, 1, l.hs), F32(loss, 1, l.hs)};
  const smx_linear linear = {
      .size = sizeof linear, .h = t, .w = t + 1, .dh = t + 2, .dw = t + 3, .keep_bytes = 1};
  const smx_tensor *in[] = {NULL, t + 4}, *out[] = {t + 5};
  int refused = 0;
  for (int64_t left = 0;; left++) {
    loss[0] = dh[0] = dw[0] = 7;
    heap.left = left;
    const smx_status status =
        smx_linear_forward(smx_op_find("cross_entropy"), ctx, NULL, &linear, 2, in, 1, out);
    if (status == SMX_OK) break;
    assert_int_equal(status, SMX_ERR_NOMEM);
    assert_true(loss[0] == 7 && dh[0] == 7 && dw[0] == 7);
    refused++;
  }
  assert_true(refused >= 4);
  heap.left = -1;
  smx_context_destroy(ctx);
  assert_int_equal(heap.live, 0);
  free_layer(&l);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_loops),
      cmocka_unit_test(every_operator),
      cmocka_unit_test(dtypes_and_strides),
      cmocka_unit_test(caps_and_differences),
      cmocka_unit_test(sizes_of_nothing),
      cmocka_unit_test(errors_name_their_argument),
      cmocka_unit_test(memory_is_what_the_caller_allows),
      cmocka_unit_test(without_memory_nothing_is_written),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
