/* loss.c - proves what is special about losses: targets that are no class are refused before
 * anything is written, naming the first; sums and means over the rows have the same bits for every
 * instruction set and number of threads, and the values of a plain loop in blocks of 256; losses
 * far below one float epsilon and the gradients that go with them keep their digits; for every
 * loss: rows that are all ignored, an upstream gradient for each row, targets of 32 bits; the plain
 * function is the operator; short rows, several at a time, are what they are one by one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "problem.h"
#include "tensors.h"

enum { ROWS = 700, N = 9 };
static float x[ROWS * N], weight[N], loss[ROWS], dx[ROWS * N], lse[ROWS];
static int64_t target[ROWS];

static void make_rows(void) {
  rng r = {7};
  for (int i = 0; i < ROWS * N; i++) x[i] = (float)(3 * rng_normal(&r));
  for (int i = 0; i < ROWS; i++) target[i] = i % 5 ? rng_below(&r, N) : -100;
  for (int i = 0; i < N; i++) weight[i] = (float)(0.5 + rng_uniform(&r));
}

/* cross_entropy over the rows above, weighted or not. */
static smx_status run(smx_context *ctx, int weighted, double reduction, float *reduced) {
  static int64_t shape[] = {ROWS, N}, classes[] = {N};
  const smx_op *op = smx_op_find("cross_entropy");
  smx_tensor X = tensor(x, SMX_F32, 2, shape), T = tensor(target, SMX_I64, 1, shape),
             W = tensor(weight, SMX_F32, 1, classes);
  smx_tensor L = tensor(loss, SMX_F32, 1, shape), D = tensor(dx, SMX_F32, 2, shape),
             E = tensor(lse, SMX_F32, 1, shape);
  smx_tensor R = tensor(reduced, SMX_F32, 0, NULL);
  const smx_tensor *in[] = {&X, &T, NULL, weighted ? &W : NULL}, *out[] = {&L, &D, &E, NULL, NULL, NULL, &R};
  smx_params params;
  smx_params_init(op, &params);
  assert_int_equal(smx_params_set(op, &params, "reduction", reduction), SMX_OK);
  return smx_forward(op, ctx, &params, 4, in, 7, out);
}

enum { NONE, SUM, MEAN, MEAN_SAFE };

/* In the order of the contract: floats in blocks of 256 rows, blocks in double. */
static double blocks(const float *v) {
  double sum = 0;
  for (int i = 0; i < ROWS; i += 256) {
    float block = 0;
    for (int k = i; k < ROWS && k < i + 256; k++) block += v[k];
    sum += (double)block;
  }
  return sum;
}

static void reductions_are_blocks_of_rows(void **state) {
  make_rows();
  for (int weighted = 0; weighted < 2; weighted++) {
    float counts[ROWS], sum, mean, own[N];
    for (int i = 0; i < ROWS; i++) counts[i] = target[i] < 0 ? 0 : weighted ? weight[target[i]] : 1;
    assert_int_equal(run(NULL, weighted, SUM, &sum), SMX_OK);
    assert_true(sum == (float)blocks(loss));
    memcpy(own, dx + N, sizeof own);
    for (way w = {0}; next_way(&w);) {
      assert_int_equal(run(w.ctx, weighted, MEAN, &mean), SMX_OK);
      assert_true(mean == (float)(blocks(loss) / blocks(counts)));
      for (int j = 0; j < N; j++)
        assert_true(fabs(dx[N + j] - own[j] / blocks(counts)) <= 1e-6 * fabs(own[j] / blocks(counts)));
    }
  }
}

static void nothing_counts(void **state) {
  float value;
  make_rows();
  for (int i = 0; i < ROWS; i++) target[i] = -100;
  assert_int_equal(run(NULL, 1, MEAN, &value), SMX_OK);
  assert_true(isnan(value));
  assert_int_equal(run(NULL, 0, MEAN_SAFE, &value), SMX_OK);
  assert_true(value == 0);
  for (int i = 0; i < ROWS * N; i++) assert_true(dx[i] == 0);
}

static void targets_are_classes(void **state) {
  float value = 9;
  make_rows();
  target[41] = N, target[350] = -7;
  loss[0] = dx[0] = 9;
  assert_int_equal(run(NULL, 0, SUM, &value), SMX_ERR_TARGET);
  assert_non_null(strstr(smx_last_error(), "row 41 has target 9"));
  assert_true(value == 9 && loss[0] == 9 && dx[0] == 9);
  for (size_t i = 0; i < row_op_count(); i++) { /* all losses, forward and backward */
    static const kind any[] = {KIND_NORMAL};
    const smx_op *op = smx_op_at(i);
    config how = {NULL, SMX_F32, SMX_F32, LAYOUT_C, PLACE_END, APART};
    problem p;
    int port = -1;
    for (int k = 0; k < op->input_count; k++)
      if (op->inputs[k].flags & SMX_PORT_TARGET) port = k;
    if (port < 0) continue;
    problem_make(&p, op, 3, 5, 0, 1, any, 1);
    for (int variant = 1; !p.in[port]; variant++) { /* something else stands for it */
      problem_free(&p);
      problem_make(&p, op, 3, 5, variant, 1, any, 1);
      smx_params_init(op, &p.params);
    }
    p.in[port][1] = 5;
    assert_int_equal(problem_run(&p, &how, FORWARD), SMX_ERR_TARGET);
    if (op->flags & SMX_OP_BACKWARD) assert_int_equal(problem_run(&p, &how, BACKWARD), SMX_ERR_TARGET);
    if (!strstr(smx_last_error(), "row 1 has target 5, not 0..4 or -100"))
      fail_msg("%s: %s", op->name, smx_last_error());
    problem_free(&p);
  }
}

static void one_kind_of_target(void **state) {
  int64_t shape[] = {2, 3}, t[] = {0, 1};
  float v[6] = {0}, l[2];
  smx_tensor X = tensor(v, SMX_F32, 2, shape), T = tensor(t, SMX_I64, 1, shape),
             S = tensor(v, SMX_F32, 2, shape);
  smx_tensor L = tensor(l, SMX_F32, 1, shape);
  const smx_tensor *in[] = {&X, &T, &S}, *neither[] = {&X}, *out[] = {&L};
  assert_int_equal(smx_forward(smx_op_find("cross_entropy"), NULL, NULL, 3, in, 1, out), SMX_ERR_PARAM);
  assert_non_null(strstr(smx_last_error(), "exclude each other"));
  assert_int_equal(smx_forward(smx_op_find("cross_entropy"), NULL, NULL, 1, neither, 1, out), SMX_ERR_NULL);
}

/* The target is so far ahead that 1 - p is 1e-12 and less: the loss is that, and the gradients are
 * right to some ULP. */
static void small_losses_keep_their_digits(void **state) {
  enum { M = 300 };
  float v[M], d[M], l;
  int64_t y = 170;
  for (int gap = 10; gap <= 80; gap += 5) {
    double others = 0;
    rng r = {(uint64_t)gap};
    for (int i = 0; i < M; i++) v[i] = (float)(-gap - rng_uniform(&r));
    v[y] = 3;
    for (int i = 0; i < M; i++)
      if (i != y) others += exp((double)v[i] - 3);
    assert_int_equal(smx_cross_entropy_f32(NULL, 1, M, v, &y, NULL, &l, d, NULL), SMX_OK);
    assert_true(fabs(l - log1p(others)) <= 16 * 0x1p-24 * log1p(others));
    assert_true(fabs(d[y] + others / (1 + others)) <= 16 * 0x1p-24 * others);
    for (int i = 0; i < M; i++) {
      double want = exp((double)v[i] - 3) / (1 + others);
      if (i != y) assert_true(fabs(d[i] - want) <= 16 * 0x1p-24 * want);
    }
  }
}

/* ---- what holds for every loss ---- */

enum { FEW = 4, WIDTH = 5 };

static int find_port(const smx_port *ports, int count, uint32_t flag, smx_shape_rule shape) {
  for (int i = 0; i < count; i++)
    if ((!flag || ports[i].flags & flag) && ports[i].shape == shape) return i;
  return -1;
}

/* The operators with one value a row, a gradient of it and one value for all rows; a small problem
 * of each. */
static int a_loss(size_t at, int variant, problem *p, int *port, int *reduced) {
  static const kind any[] = {KIND_NORMAL};
  const smx_op *op = smx_op_at(at);
  *reduced = find_port(op->outputs, op->output_count, 0, SMX_SHAPE_SCALAR);
  if (*reduced < 0) return 0;
  problem_make(p, op, FEW, WIDTH, variant, at, any, 1);
  for (int o = 1; o < op->output_count; o++) /* nothing comes back from lse and the like */
    for (int64_t k = 0; k < port_count(p, &op->outputs[o]); k++) p->dout[o][k] = 0;
  *port = find_port(op->inputs, op->input_count, SMX_PORT_TARGET, SMX_SHAPE_ROW);
  if (*port >= 0 && !p->in[*port]) *port = -1;
  return 1;
}

static const config plain = {NULL, {2, 32, 1}, {2, 32, 1}, LAYOUT_C, PLACE_END, APART};

static void all_rows_ignored(void **state) {
  int seen = 0, port, reduced;
  for (size_t i = 0; i < row_op_count(); i++)
    for (int how = NONE; how <= MEAN_SAFE; how++) {
      problem p;
      if (!a_loss(i, 0, &p, &port, &reduced)) continue;
      if (port >= 0) {
        for (int r = 0; r < FEW; r++) p.in[port][r] = param_or(&p, "ignore_index", -100);
        p.in[0][WIDTH] = NAN; /* whatever the row holds */
        assert_int_equal(smx_params_set(p.op, &p.params, "reduction", how), SMX_OK);
        assert_int_equal(problem_run(&p, &plain, FORWARD), SMX_OK);
        assert_int_equal(problem_run(&p, &plain, BACKWARD), SMX_OK);
        const float *l = (const float *)(void *)p.out[0], *d = (const float *)(void *)p.out[1],
                    *g = (const float *)(void *)p.din[0];
        const float all = *(const float *)(void *)p.out[reduced];
        if (how == MEAN ? !isnan(all) : all != 0) fail_msg("%s: reduced is %g", p.op->name, all);
        for (int r = 0; r < FEW; r++) assert_true(l[r] == 0);
        for (int k = 0; k < FEW * WIDTH; k++)
          if (d[k] != 0 || g[k] != 0) fail_msg("%s: a gradient of %g and %g", p.op->name, d[k], g[k]);
        seen++;
      }
      problem_free(&p);
    }
  assert_true(seen >= 4 * 20);
}

/* Rows have upstream gradients of their own: dx is each row's gradient times its own. Powers of
 * two, so that nothing is rounded but differently. */
static void a_gradient_for_each_row(void **state) {
  static const double up[FEW] = {1, -2, 0, 0.5};
  int seen = 0, port, reduced;
  for (size_t i = 0; i < row_op_count(); i++)
    for (int variant = 0; variant < variants_of(smx_op_at(i)); variant++) {
      problem p;
      if (!a_loss(i, variant, &p, &port, &reduced)) continue;
      memcpy(p.dout[0], up, sizeof up);
      assert_int_equal(smx_params_set(p.op, &p.params, "reduction", NONE), SMX_OK);
      assert_int_equal(problem_run(&p, &plain, FORWARD), SMX_OK);
      assert_int_equal(problem_run(&p, &plain, BACKWARD), SMX_OK);
      const float *own = (const float *)(void *)p.out[1], *have = (const float *)(void *)p.din[0];
      for (int k = 0; k < FEW * WIDTH; k++) {
        const double want = up[k / WIDTH] * own[k];
        if (!(fabs(have[k] - want) <= 4 * 0x1p-24 * fabs(want)) && !(isnan(have[k]) && isnan(want)))
          fail_msg("%s, %d: dx[%d] is %g, not %g", p.op->name, variant, k, have[k], want);
      }
      seen++;
      problem_free(&p);
    }
  assert_true(seen >= 30 * VARIANTS);
}

/* Loss and gradient with whole numbers of 32 bits, or of 64. */
static void run_whole(const problem *p, smx_dtype whole, float *to) {
  static float values[SMX_MAX_PORTS][FEW * WIDTH];
  static int64_t numbers[SMX_MAX_PORTS][FEW], shape[] = {FEW, WIDTH}, column[] = {WIDTH};
  smx_tensor ports[SMX_MAX_PORTS], l = tensor(to, SMX_F32, 1, shape), d = tensor(to + FEW, SMX_F32, 2, shape);
  const smx_tensor *in[SMX_MAX_PORTS] = {NULL}, *out[] = {&l, &d};
  for (int i = 0; i < p->op->input_count; i++) {
    const smx_port *port = &p->op->inputs[i];
    if (!p->in[i]) continue;
    for (int64_t k = 0; k < port_count(p, port); k++) {
      if (!(port->flags & SMX_PORT_INT)) values[i][k] = (float)p->in[i][k];
      else if (whole.bits == 64) numbers[i][k] = (int64_t)p->in[i][k];
      else ((int32_t *)(void *)numbers[i])[k] = (int32_t)p->in[i][k];
    }
    void *data = port->flags & SMX_PORT_INT ? (void *)numbers[i] : values[i];
    ports[i] =
        tensor(data, port->flags & SMX_PORT_INT ? whole : SMX_F32, port->shape == SMX_SHAPE_FULL ? 2 : 1,
               port->shape == SMX_SHAPE_COLUMN ? column : shape);
    in[i] = &ports[i];
  }
  assert_int_equal(smx_forward(p->op, NULL, &p->params, p->op->input_count, in, 2, out), SMX_OK);
}

static void targets_of_either_size(void **state) {
  int seen = 0, port, reduced;
  for (size_t i = 0; i < row_op_count(); i++) {
    float narrow[FEW * (WIDTH + 1)], wide[FEW * (WIDTH + 1)];
    problem p;
    if (!a_loss(i, 0, &p, &port, &reduced)) continue;
    if (port >= 0) {
      p.in[port][2] = param_or(&p, "ignore_index", -100);
      run_whole(&p, SMX_I32, narrow);
      run_whole(&p, SMX_I64, wide);
      assert_memory_equal(narrow, wide, sizeof wide);
      seen++;
    }
    problem_free(&p);
  }
  assert_true(seen >= 20);
}

/* Leaves NaN where the next call has its variables: what it does not set itself shows. */
static __attribute__((noinline)) void leave_nan(void) {
  volatile double below[8192];
  for (size_t i = 0; i < COUNT_OF(below); i++) below[i] = NAN;
}

/* lse is logsumexp, bit for bit; and the plain function is the operator. */
static void the_plain_function_is_the_operator(void **state) {
  static float plain_loss[ROWS], plain_dx[ROWS * N], plain_lse[ROWS];
  float mean, value;
  make_rows();
  assert_int_equal(run(NULL, 1, MEAN, &mean), SMX_OK);
  smx_logsumexp_f32(ROWS, N, x, plain_lse);
  assert_memory_equal(lse, plain_lse, sizeof lse);
  smx_cross_entropy_options o = {
      .size = sizeof o, .reduction = SMX_REDUCE_MEAN, .class_weight = weight, .lse = plain_lse};
  memset(plain_lse, 0, sizeof plain_lse);
  leave_nan();
  assert_int_equal(smx_cross_entropy_f32(NULL, ROWS, N, x, target, &o, plain_loss, plain_dx, &value), SMX_OK);
  assert_true(value == mean);
  assert_memory_equal(plain_loss, loss, sizeof loss);
  assert_memory_equal(plain_dx, dx, sizeof dx);
  assert_memory_equal(plain_lse, lse, sizeof lse);
  memcpy(plain_dx, x, sizeof x); /* in place */
  assert_int_equal(smx_cross_entropy_f32(NULL, ROWS, N, plain_dx, target, &o, plain_loss, plain_dx, NULL),
                   SMX_OK);
  assert_memory_equal(plain_dx, dx, sizeof dx);
  o.size = 3;
  assert_int_equal(smx_cross_entropy_f32(NULL, 1, N, x, target, &o, plain_loss, NULL, NULL), SMX_ERR_STRUCT);
  assert_int_equal(smx_cross_entropy_f32(NULL, 1, N, NULL, target, NULL, plain_loss, NULL, NULL),
                   SMX_ERR_NULL);
  assert_int_equal(smx_cross_entropy_f32(NULL, 1, N, x, target, NULL, NULL, NULL, NULL), SMX_ERR_NULL);
  assert_int_equal(smx_cross_entropy_f32(NULL, 0, N, NULL, NULL, NULL, NULL, NULL, NULL), SMX_OK);
}

/* Every loss refuses class weights below 0, by name, forward and backward, and writes nothing. */
static void negative_weights_are_refused(void **state) {
  float weights[N], losses[ROWS], up[ROWS] = {0}, soft[ROWS * N], ones[N];
  static int64_t zeros[ROWS];
  int64_t seen = 0, rows = ROWS, shape[] = {ROWS, N};
  make_rows();
  for (size_t i = 0; i < N; i++) ones[i] = 1;
  for (size_t i = 0; i < ROWS * N; i++) soft[i] = 0.5f;
  for (size_t at = 0; at < smx_op_count(); at++) {
    const smx_op *op = smx_op_at(at);
    for (int32_t w = 0; w < op->input_count; w++) {
      const smx_port *port = op->inputs + w;
      if (!strstr(port->name, "_weight") || port->shape != SMX_SHAPE_COLUMN) continue;
      enum { X, TARGET, LEVEL, SOFT, ONES, WEIGHTS, LOSSES, UP, DX };
      smx_tensor t[] = {[X] = {x, {1, 0}, 2, SMX_F32, shape, NULL, 0},
                        [TARGET] = {target, {1, 0}, 1, SMX_I64, &rows, NULL, 0},
                        [LEVEL] = {zeros, {1, 0}, 1, SMX_I64, &rows, NULL, 0},
                        [SOFT] = {soft, {1, 0}, 2, SMX_F32, shape, NULL, 0},
                        [ONES] = {ones, {1, 0}, 1, SMX_F32, shape + 1, NULL, 0},
                        [WEIGHTS] = {weights, {1, 0}, 1, SMX_F32, shape + 1, NULL, 0},
                        [LOSSES] = {losses, {1, 0}, 1, SMX_F32, &rows, NULL, 0},
                        [UP] = {up, {1, 0}, 1, SMX_F32, &rows, NULL, 0},
                        [DX] = {dx, {1, 0}, 2, SMX_F32, shape, NULL, 0}};
      const smx_tensor *in[SMX_MAX_PORTS] = {t}, *out[] = {t + LOSSES}, *dout[] = {t + UP};
      const smx_tensor *din[SMX_MAX_PORTS] = {t + DX};
      for (int32_t i = 1; i < op->input_count; i++) {
        const smx_port *other = op->inputs + i;
        const bool hard = other->flags & SMX_PORT_TARGET, either = other->flags & SMX_PORT_EITHER;
        if (either ? hard : !(other->flags & SMX_PORT_OPTIONAL))
          in[i] = hard                               ? t + TARGET
                  : other->flags & SMX_PORT_INT      ? t + LEVEL
                  : other->shape == SMX_SHAPE_COLUMN ? t + ONES
                                                     : t + SOFT;
      }
      in[w] = t + WEIGHTS;
      for (size_t i = 0; i < N; i++) weights[i] = 1;
      assert_int_equal(smx_forward(op, NULL, NULL, op->input_count, in, 1, out), SMX_OK);
      weights[N - 1] = -0.5f;
      for (size_t r = 0; r < ROWS; r++) losses[r] = dx[r] = 7;
      for (int backward = 0; backward < 2; backward++) {
        smx_status status = backward ? smx_backward(op, NULL, NULL, op->input_count, in, 1, out, dout, din)
                                     : smx_forward(op, NULL, NULL, op->input_count, in, 1, out);
        if (status != SMX_ERR_PARAM) fail_msg("%s: %s: status %d", op->name, port->name, (int)status);
        assert_non_null(strstr(smx_last_error(), port->name));
        assert_non_null(strstr(smx_last_error(), " has -0.5, not at least 0"));
      }
      for (size_t r = 0; r < ROWS; r++) assert_true(losses[r] == 7 && dx[r] == 7);
      seen++;
    }
  }
  assert_true(seen >= 7);
}

/* Class 0 as padding, and a caller who does not know of it. */
static void padding_is_class_zero(void **state) {
  const float rows[2][3] = {{1, 2, 3}, {3, 2, 1}};
  const int64_t targets[2] = {0, 1};
  float value, losses[2], gradients[6];
  smx_cross_entropy_options o = {.size = sizeof o, .reduction = SMX_REDUCE_MEAN, .ignore_zero = 1};
  assert_int_equal(smx_cross_entropy_f32(NULL, 2, 3, rows[0], targets, &o, losses, gradients, &value),
                   SMX_OK);
  assert_true(losses[0] == 0 && gradients[0] == 0 && gradients[2] == 0 && losses[1] > 0 &&
              value == losses[1]);
  o.size = offsetof(smx_cross_entropy_options, ignore_zero);
  assert_int_equal(smx_cross_entropy_f32(NULL, 2, 3, rows[0], targets, &o, losses, gradients, &value),
                   SMX_OK);
  assert_true(losses[0] > 0);
}

/* A row of any kind: few different values, so that the largest come in numbers; nothing valid; NaN;
 * +inf; peaks that take all the weight. */
static void short_row(rng *r, size_t n, float *row, int64_t *t) {
  const int64_t sort = rng_below(r, 8);
  for (size_t i = 0; i < n; i++) {
    row[i] = (float)(4 * rng_normal(r));
    if (sort == 0) row[i] = (float)rng_below(r, 3);
    if (sort == 1 && i % 3) row[i] = -INFINITY;
  }
  const int64_t at = rng_below(r, (int64_t)n);
  if (sort == 2) row[at] = rng_below(r, 2) ? NAN : INFINITY;
  if (sort == 3) row[at] = 60, row[rng_below(r, (int64_t)n)] = 20;
  if (sort == 4 && rng_below(r, 2))
    for (size_t i = 0; i < n; i++) row[i] = -INFINITY;
  *t = sort == 5 ? -100 : rng_below(r, 2) ? at : rng_below(r, (int64_t)n);
}

/* cross_entropy of `rows` rows. one: with their classes, for which rows are gone through one by
 * one. */
static void short_rows(size_t rows, size_t n, const float *logits, const int64_t *t, double reduction,
                       bool one, float *to_loss, float *to_dx) {
  static int64_t classes[64];
  const smx_op *op = smx_op_find("cross_entropy");
  smx_params params;
  smx_params_init(op, &params);
  assert_int_equal(smx_params_set(op, &params, "reduction", reduction), SMX_OK);
  int64_t shape[] = {(int64_t)rows, (int64_t)n};
  smx_tensor X = tensor((void *)(uintptr_t)logits, SMX_F32, 2, shape),
             T = tensor((void *)(uintptr_t)t, SMX_I64, 1, shape);
  smx_tensor L = tensor(to_loss, SMX_F32, 1, shape), D = tensor(to_dx, SMX_F32, 2, shape),
             C = tensor(classes, SMX_I64, 1, shape);
  const smx_tensor *in[] = {&X, &T}, *out[] = {&L, &D, NULL, NULL, one ? &C : NULL};
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 5, out), SMX_OK);
}

static void short_rows_are_rows(void **state) {
  enum { SOME = 37, MOST = 1030 };
  static float logits[SOME * MOST], losses[2][SOME], grads[2][SOME * MOST];
  static int64_t t[SOME];
  static const size_t lengths[] = {1, 2, 10, 16, 17, 33, 64, 100, 128, 129, 256, 257, 700, 1000, 1024, MOST};
  rng r = {11};
  for (int trial = 0; trial < 8; trial++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int reduction = NONE; reduction <= MEAN; reduction++) {
        const size_t n = lengths[l], bytes = SOME * n * sizeof(float);
        for (size_t i = 0; i < SOME; i++) short_row(&r, n, logits + i * n, t + i);
        for (int one = 0; one < 2; one++)
          short_rows(SOME, n, logits, t, reduction, one, losses[one], grads[one]);
        assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
        assert_memory_equal(grads[0], grads[1], bytes);
        short_rows(SOME, n, logits, t, reduction, false, losses[0], logits); /* in place */
        assert_memory_equal(logits, grads[1], bytes);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reductions_are_blocks_of_rows),
      cmocka_unit_test(nothing_counts),
      cmocka_unit_test(targets_are_classes),
      cmocka_unit_test(one_kind_of_target),
      cmocka_unit_test(small_losses_keep_their_digits),
      cmocka_unit_test(all_rows_ignored),
      cmocka_unit_test(a_gradient_for_each_row),
      cmocka_unit_test(targets_of_either_size),
      cmocka_unit_test(the_plain_function_is_the_operator),
      cmocka_unit_test(negative_weights_are_refused),
      cmocka_unit_test(padding_is_class_zero),
      cmocka_unit_test(short_rows_are_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
