/* mixed.c - proves heads whose rows of logits are mixed with something: the worked examples of the
 * catalogue of papers, ends of their parameters, what is absent or bad, and the same bits every
 * way. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

/* Calls an operator on arrays of double and whole numbers, with gradients of the inputs that have
 * one. */
typedef struct array {
  void *data;
  smx_dtype dtype;
  int ndim;
  int64_t shape[4];
} array;
#define REALS(data, ...) \
  { \
    data, {2, 64, 1}, COUNT_OF(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ } \
  }
#define WHOLE(data, ...) \
  { \
    data, {0, 64, 1}, COUNT_OF(((int64_t[]){__VA_ARGS__})), { __VA_ARGS__ } \
  }
enum { MOST = 5 };
typedef struct call {
  const char *name;
  const char *set[5];
  array in[MOST], out[3], up[3], din[MOST];
} call;

static int take(array *a, int most, smx_tensor *t, const smx_tensor **to) {
  int count = 0;
  for (int i = 0; i < most; i++) {
    t[i] = tensor(a[i].data, a[i].dtype, a[i].ndim, a[i].shape);
    to[i] = a[i].data ? t + i : NULL;
    if (a[i].data) count = i + 1;
  }
  return count;
}
static smx_status run(call c, smx_context *ctx) {
  const smx_op *op = smx_op_find(c.name);
  smx_tensor t[16];
  const smx_tensor *in[MOST], *out[3], *up[3], *din[MOST];
  const int inputs = take(c.in, MOST, t, in), outputs = take(c.out, 3, t + 5, out);
  smx_params p;
  good(smx_params_init(op, &p));
  for (int i = 0; c.set[i]; i += 2) good(smx_params_parse(op, &p, c.set[i], c.set[i + 1]));
  take(c.up, 3, t + 8, up);
  const smx_status status = smx_forward(op, ctx, &p, inputs, in, outputs, out);
  if (status != SMX_OK || !take(c.din, MOST, t + 11, din)) return status;
  return smx_backward(op, ctx, &p, inputs, in, outputs, out, up, din);
}

/* ---- soft_token_expectation ---- */

static void tokens(void **state) {
  double z[] = {1, 1, 1, 3, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY, NAN, 0, 0},
         e[] = {1, 2, 4, 8, 10, 20}, y[8], up[8] = {1, 0}, dz[12], de[6];
  const call c = {"soft_token_expectation",
                  {NULL},
                  {REALS(z, 4, 3), REALS(e, 3, 2)},
                  {REALS(y, 4, 2)},
                  {REALS(up, 4, 2)},
                  {REALS(dz, 4, 3), REALS(de, 3, 2)}};
  call hard = c;
  const double p = 1 / (1 + exp(-3));
  good(run(c, NULL));
  near(y, (double[]){5, 10, p + 4 * (1 - p), 2 * p + 8 * (1 - p), 0, 0}, 6, 1e-14);
  assert_true(isnan(y[6]) && isnan(y[7]) && isnan(de[0]));
  near(dz, (double[]){(1 - 5) / 3., (4 - 5) / 3., (10 - 5) / 3., 0, 0, 0, 0, 0, 0}, 9, 1e-14);
  z[9] = 0, hard.set[0] = "temperature", hard.set[1] = "0"; /* the largest, or all of them */
  good(run(hard, NULL));
  near(y, (double[]){5, 10, 1, 2}, 4, 1e-14);
}

/* ---- vq_logits_head ---- */

static void codes(void **state) {
  int64_t map[] = {0, 0, 1, 2, 2, 2}, target[] = {3};
  double h[] = {1}, code[] = {2, 1, -.5, 9}, bias[6] = {0}, loss[1], up[] = {1}, dcode[4], dbias[6];
  call c = {"vq_logits_head",
            {NULL},
            {REALS(h, 1, 1), REALS(code, 4, 1), WHOLE(map, 6), WHOLE(target, 1), REALS(bias, 6)},
            {REALS(loss, 1)},
            {REALS(up, 1)},
            {{NULL}, REALS(dcode, 4, 1), {NULL}, {NULL}, REALS(dbias, 6)}};
  good(run(c, NULL)); /* the last code has no class */
  near(loss, (double[]){3.46093304}, 1, 5e-9);
  near(dcode, (double[]){.7650716, .1407271, -.9057986, 0}, 4, 5e-8);
  near(dbias, (double[]){.3825358, .3825358, .1407271, .0314005 - 1, .0314005, .0314005}, 6, 1e-7);
  bias[3] = -INFINITY; /* a class that is never there */
  good(run(c, NULL));
  assert_true(loss[0] == INFINITY);
  target[0] = 2, bias[2] = -INFINITY; /* the only class of its code */
  good(run(c, NULL));
  assert_true(loss[0] == INFINITY);
  target[0] = 4, bias[2] = 0, bias[4] = 800, bias[5] = 800;
  good(run(c, NULL)); /* one of two */
  near(loss, (double[]){log(2)}, 1, 1e-13);
  near(dbias, (double[]){0, 0, 0, 0, -.5, .5}, 6, 1e-13);
  target[0] = -100, h[0] = NAN;
  good(run(c, NULL));
  assert_true(loss[0] == 0);
  map[5] = 4;
  refused(run(c, NULL), SMX_ERR_TARGET, "map: number 5 is 4");
}

/* ---- surface_fusion ---- */

static void fusion(void **state) {
  double x[] = {2, 1, .1}, s[] = {.5, -.3, 1.2}, y[3], up[] = {-1, 0, 0}, dx[3], ds[3], gate[] = {.8}, dg[1];
  call c = {"surface_fusion",
            {NULL},
            {REALS(x, 1, 3), REALS(s, 1, 3), REALS(gate, 1)},
            {REALS(y, 1, 3)},
            {REALS(up, 1, 3)},
            {REALS(dx, 1, 3), REALS(ds, 1, 3), REALS(dg, 1)}};
  good(run(c, NULL));
  near(y, (double[]){-.582055783}, 1, 5e-10);
  near((double[]){exp(y[0]) + exp(y[1]) + exp(y[2])}, (double[]){.9132585}, 1, 5e-8);
  const double before = y[0];
  gate[0] += 1e-6, good(run(c, NULL));
  near((double[]){-(y[0] - before) / 1e-6}, dg, 1, 1e-8);
  c.set[0] = "form", c.set[1] = "soft", c.set[2] = "kappa", c.set[3] = "1.5", c.set[4] = NULL;
  good(run(c, NULL));
  near(y, (double[]){-.430624662}, 1, 5e-10);
  near(ds, (double[]){1.5 * dx[0], 1.5 * dx[1], 1.5 * dx[2]}, 3, 1e-15);
  assert_true(dg[0] == 0);
}

static void no_share(void **state) {
  double x[] = {2, 1, .1}, s[] = {.5, -INFINITY, 1.2}, y[3], up[] = {1, 1, 1}, dx[3], ds[3], gate[] = {.5},
         dg[1];
  call c = {"surface_fusion",
            {NULL},
            {REALS(x, 1, 3), REALS(s, 1, 3), REALS(gate, 1)},
            {REALS(y, 1, 3)},
            {REALS(up, 1, 3)},
            {REALS(dx, 1, 3), REALS(ds, 1, 3), REALS(dg, 1)}};
  good(run(c, NULL));
  assert_true(y[1] == -INFINITY && ds[1] == 0 && isfinite(dg[0]));
  gate[0] = 1; /* the decoder alone, whatever the source has */
  s[0] = NAN;
  good(run(c, NULL));
  near(y, (double[]){2 - log(exp(2) + exp(1) + exp(.1))}, 1, 1e-15);
  assert_true(isfinite(y[1]) && isfinite(dx[1]));
  gate[0] = 0, s[0] = .5;
  good(run(c, NULL));
  near(y, (double[]){-log1p(exp(.7))}, 1, 1e-15);
  assert_true(y[1] == -INFINITY && dx[0] == 0 && dx[1] == 0);
  gate[0] = 1.5, y[0] = 9;
  refused(run(c, NULL), SMX_ERR_PARAM, "share: number 0 is 1.5, not 0..1");
  assert_true(y[0] == 9);
  gate[0] = -1; /* soft has no use for it */
  c.set[0] = "form", c.set[1] = "soft", c.set[2] = "kappa", c.set[3] = "0";
  good(run(c, NULL));
  assert_true(isfinite(y[1]) && ds[1] == 0);
}

/* ---- product_key_memory ---- */

/* Keys and queries of one column are the scores. */
static void memories(void **state) {
  int64_t index[4];
  double q[] = {1, 1, INFINITY, 1}, keys[] = {1, 2, -1, .5, -1, 3}, values[9], y[2], weight[4];
  for (int i = 0; i < 9; i++) values[i] = i;
  call c = {"product_key_memory",
            {"k", "2", NULL},
            {REALS(q, 2, 1, 2), REALS(keys, 1, 2, 3, 1), REALS(values, 9, 1)},
            {REALS(y, 2, 1), WHOLE(index, 2, 1, 2), REALS(weight, 2, 1, 2)},
            {{NULL}},
            {{NULL}}};
  good(run(c, NULL));
  assert_true(index[0] == 5 && index[1] == 2 && index[2] == -1 && isnan(y[1]) && isnan(weight[3]));
  near(weight, (double[]){0.73105857863, 0.26894142137}, 2, 5e-12);
  near(y, (double[]){5 * weight[0] + 2 * weight[1]}, 1, 1e-15);
  for (int i = 0; i < 6; i++) keys[i] = 7; /* ties: the lower number */
  good(run(c, NULL));
  assert_true(index[0] == 0 && index[1] == 1 && weight[0] == .5);
  q[0] = q[1] = 2e307; /* finite, but not their sum */
  good(run(c, NULL));
  assert_true(index[0] == -1 && index[1] == -1 && isnan(weight[0]) && isnan(y[0]));
  c.set[1] = "4";
  refused(run(c, NULL), SMX_ERR_PARAM, "k is 4, more than the 3 keys");
  c.in[2].shape[0] = 8;
  refused(run(c, NULL), SMX_ERR_SHAPE, "8 values, not 3 x 3");
}

/* ---- fourier_head ---- */

static void waves(void **state) {
  double x[] = {.5, .3, -.2, .1, -.4, .2, 0, 0, 0, 0, 0, 0, 1e40, 0, 0, 0, 1e40, 0, INFINITY, 0, 0, 0, 0, 0},
         y[16], penalty[4], up[16] = {0, -1}, dx[24];
  const call c = {"fourier_head",    {"bins", "4", NULL},
                  {REALS(x, 4, 6)},  {REALS(y, 4, 4), REALS(penalty, 4)},
                  {REALS(up, 4, 4)}, {REALS(dx, 4, 6)}};
  good(run(c, NULL));
  near(y, (double[]){-4.10551, -1.693271, -1.272435, -.654902}, 4, 2e-6);
  near(y + 1, (double[]){-1.69331144 + 4e-5}, 1, 3e-6);
  near(penalty, (double[]){5.78753602, 0}, 2, 5e-9);
  for (int i = 4; i < 8; i++) near(y + i, (double[]){log(.25 + 1e-5)}, 1, 1e-14); /* zeros: even */
  for (int i = 6; i < 12; i++) assert_true(dx[i] == 0);
  for (int i = 8; i < 12; i++) assert_true(isfinite(y[i]) && isnan(y[i + 4]));
  assert_true(isfinite(penalty[2]) && isnan(penalty[3]) && isnan(dx[18]));
  for (int i = 0; i < 6; i++) { /* differences */
    double wanted;
    good(run(c, NULL));
    const double at = x[i], slope = dx[i];
    x[i] = at + 1e-6, good(run(c, NULL)), wanted = -y[1];
    x[i] = at - 1e-6, good(run(c, NULL)), wanted += y[1];
    x[i] = at;
    near(&slope, (double[]){wanted / 2e-6}, 1, 1e-7);
  }
}

/* ---- bits ---- */

enum { N = 150, C = 40, D = 6 };
typedef struct numbers {
  double x[N * C], s[N * C], h[N * D], w[C * C], up[N * C], y[N * C], dx[N * C], ds[N * C], dw[C * C];
  int64_t map[N], target[N], index[N * 8];
} numbers;

static numbers *make(void) {
  numbers *r = calloc(1, sizeof *r);
  rng g = {3};
  assert_non_null(r);
  for (int i = 0; i < N * C; i++)
    r->x[i] = rng_normal(&g), r->s[i] = rng_normal(&g), r->up[i] = rng_normal(&g);
  for (int i = 0; i < N * D; i++) r->h[i] = rng_normal(&g);
  for (int i = 0; i < C * C; i++) r->w[i] = rng_normal(&g);
  for (int i = 0; i < N; i++) r->map[i] = rng_below(&g, C), r->target[i] = rng_below(&g, N);
  return r;
}
static void all(numbers *r, smx_context *ctx, int which) {
  double weight[N * 8];
  const call calls[] = {
      {"soft_token_expectation",
       {NULL},
       {REALS(r->x, N, C), REALS(r->w, C, D)},
       {REALS(r->y, N, D)},
       {REALS(r->up, N, D)},
       {REALS(r->dx, N, C), REALS(r->dw, C, D)}},
      {"vq_logits_head",
       {NULL},
       {REALS(r->h, N, D), REALS(r->w, C, D), WHOLE(r->map, N), WHOLE(r->target, N), REALS(r->s, N)},
       {REALS(r->y, N)},
       {REALS(r->up, N)},
       {REALS(r->dx, N, D), REALS(r->dw, C, D), {NULL}, {NULL}, REALS(r->ds, N)}},
      {"surface_fusion",
       {NULL},
       {REALS(r->x, N, C), REALS(r->s, N, C)},
       {REALS(r->y, N, C)},
       {REALS(r->up, N, C)},
       {REALS(r->dx, N, C), REALS(r->ds, N, C)}},
      {"product_key_memory",
       {"k", "4", NULL},
       {REALS(r->h, N / 2, 2, D), REALS(r->w, 2, 2, 8, D / 2), REALS(r->s, 64, 3)},
       {REALS(r->y, N / 2, 3), WHOLE(r->index, N / 2, 2, 4), REALS(weight, N / 2, 2, 4)},
       {REALS(r->up, N / 2, 3)},
       {REALS(r->dx, N / 2, 2, D), REALS(r->dw, 2, 2, 8, D / 2), REALS(r->ds, 64, 3)}}};
  good(run(calls[which], ctx));
}
static void every_way(void **state) {
  for (int which = 0; which < 4; which++) {
    numbers *a = make();
    all(a, NULL, which);
    for (way w = {0}; next_way(&w);) {
      numbers *b = make();
      all(b, w.ctx, which);
      assert_memory_equal(a, b, sizeof *a);
      free(b);
    }
    free(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tokens),    cmocka_unit_test(codes),    cmocka_unit_test(fusion),
      cmocka_unit_test(no_share),  cmocka_unit_test(memories), cmocka_unit_test(waves),
      cmocka_unit_test(every_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
