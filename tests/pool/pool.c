/* pool.c - proves pooling on what papers and PyTorch say of small tensors, at its edges, and that
 * windows which do not exist are refused by name. References, gradients, bits and layouts of every
 * operator: tests/operators/tensors.c. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <softmax.h>

enum { MOST = 32 };

/* "kernel=3 stride=2" */
static void set_all(const smx_op *op, smx_params *p, const char *settings) {
  char text[128], *rest = NULL;
  smx_params_init(op, p);
  strcpy(text, settings);
  for (char *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(at, '=');
    *value++ = 0;
    assert_int_equal(smx_params_parse(op, p, at, value), SMX_OK);
  }
}

typedef struct pooling {
  const smx_op *op;
  smx_params params;
  int64_t shape[SMX_MAX_DIMS];
  smx_shape out[2];
  double x[MOST], y[MOST], dy[MOST], dx[MOST];
  int64_t index[MOST];
  smx_tensor tx, ty, tdy, tdx, tindex;
} pooling;

/* Everything of a call on x but the call; the status is that of smx_infer. */
static smx_status made(pooling *p, const char *name, const char *settings, int32_t ndim, const int64_t *shape,
                       const double *x) {
  memset(p, 0, sizeof *p);
  p->op = smx_op_find(name);
  assert_non_null(p->op);
  set_all(p->op, &p->params, settings);
  memcpy(p->shape, shape, (size_t)ndim * sizeof *shape);
  p->tx = (smx_tensor){p->x, {1, 0}, ndim, SMX_F64, p->shape, NULL, 0};
  p->tdx = p->tx, p->tdx.data = p->dx;
  const smx_tensor *in[] = {&p->tx};
  const smx_status status = smx_infer(p->op, &p->params, 1, in, p->op->output_count, p->out);
  if (status != SMX_OK) return status;
  int64_t n = 1;
  for (int32_t d = 0; d < ndim; d++) n *= shape[d];
  memcpy(p->x, x, (size_t)n * sizeof *x);
  p->ty = (smx_tensor){p->y, {1, 0}, p->out[0].ndim, SMX_F64, p->out[0].dim, NULL, 0};
  p->tdy = p->ty, p->tdy.data = p->dy;
  p->tindex = p->ty, p->tindex.data = p->index, p->tindex.dtype = SMX_I64;
  return SMX_OK;
}

static void run(pooling *p) {
  const smx_tensor *in[] = {&p->tx}, *out[] = {&p->ty, &p->tindex}, *dout[] = {&p->tdy}, *din[] = {&p->tdx};
  assert_int_equal(smx_forward(p->op, NULL, &p->params, 1, in, p->op->output_count, out), SMX_OK);
  for (int i = 0; i < MOST; i++) p->dy[i] = 1;
  const smx_status status = smx_backward(p->op, NULL, &p->params, 1, in, 1, out, dout, din);
  if (status != SMX_OK) fail_msg("%s", smx_last_error());
}

static void near(const double *have, int n, const double *want) {
  for (int i = 0; i < n; i++)
    if (!(fabs(have[i] - want[i]) <= 1e-5 * fmax(1, fabs(want[i]))) && have[i] != want[i])
      fail_msg("[%d] is %g, not %g", i, have[i], want[i]);
}

/* One window of four cells: SoftPool (2021), and mixed pooling (2015). */
static void windows_of_papers(void **state) {
  static const struct {
    const char *name, *settings;
    double x[4], y, dx[4];
  } known[] = {
      {"soft_pool", "kernel=4", {1, 2, 3, 4}, 3.49265, {-.0478524, -.0429319, .120182, .970602}},
      {"soft_pool",
       "kernel=4 gradient=weights",
       {1, 2, 3, 4},
       3.49265,
       {.0320586, .0871443, .236883, .643914}},
      {"soft_pool", "kernel=4 beta=0", {1, 2, 3, 4}, 2.5, {.25, .25, .25, .25}},
      {"mixed_pool", "kernel=4 mix=0.3", {1, 2, 3, 6}, 3.9, {.175, .175, .175, .475}},
      {"lse_pool", "kernel=4", {1, 2, 3, 4}, 4.4401897, {.0320586, .0871443, .236883, .643914}},
      {"max_pool", "kernel=4", {1, 4, 4, 2}, 4, {0, 1, 0, 0}},
      {"avg_pool", "kernel=4 divisor=8", {1, 2, 3, 4}, 1.25, {.125, .125, .125, .125}},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    pooling p;
    char settings[128] = "spatial=1 ";
    assert_int_equal(
        made(&p, known[i].name, strcat(settings, known[i].settings), 1, (int64_t[]){4}, known[i].x), SMX_OK);
    run(&p);
    assert_int_equal(p.out[0].dim[0], 1);
    near(p.y, 1, &known[i].y), near(p.dx, 4, known[i].dx);
  }
  pooling p;
  static const double low = 3.08458, mixed[] = {-1, 0, 2, -3}, third = 1.61932;
  made(&p, "soft_pool", "spatial=1 kernel=4 beta=0.5", 1, (int64_t[]){4}, known[0].x), run(&p);
  near(p.y, 1, &low);
  made(&p, "soft_pool", "spatial=1 kernel=4", 1, (int64_t[]){4}, mixed), run(&p);
  near(p.y, 1, &third);
}

/* Bins of 5 cells: [0, 2), [1, 4), [3, 5); of 7: [0, 3), [2, 5), [4, 7). More bins than cells
 * repeat them, one bin is everything. */
static void bins(void **state) {
  static const double x[] = {1, 2, 4, 8, 16, 32, 64};
  static const struct {
    int64_t n, outputs;
    double y[4];
  } known[] = {{5, 3, {1.5, 14. / 3, 12}},
               {7, 3, {7. / 3, 28. / 3, 112. / 3}},
               {2, 4, {1, 1, 2, 2}},
               {7, 1, {127. / 7}}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    pooling p;
    char settings[64];
    snprintf(settings, sizeof settings, "spatial=1 size=%d", (int)known[i].outputs);
    assert_int_equal(made(&p, "adaptive_avg_pool", settings, 1, &known[i].n, x), SMX_OK);
    run(&p);
    assert_int_equal(p.out[0].dim[0], known[i].outputs);
    near(p.y, (int)known[i].outputs, known[i].y);
  }
}

/* Padding is absent; a mean counts it on request, as PyTorch does: values of PyTorch 2.15. */
static void padding(void **state) {
  static const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, negative[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
  static const double present[] = {3, 4, 6, 7}, padded[] = {4. / 3, 16. / 9, 8. / 3, 28. / 9};
  static const double largest[] = {-1, -2, -4, -5};
  static const char windows[] = "kernel=3 stride=2 padding=1";
  pooling p;
  assert_int_equal(made(&p, "avg_pool", windows, 2, (int64_t[]){3, 3}, x), SMX_OK);
  run(&p), near(p.y, 4, present);
  char settings[64] = "count=padded ";
  assert_int_equal(made(&p, "avg_pool", strcat(settings, windows), 2, (int64_t[]){3, 3}, x), SMX_OK);
  run(&p), near(p.y, 4, padded);
  assert_int_equal(made(&p, "max_pool", windows, 2, (int64_t[]){3, 3}, negative), SMX_OK);
  run(&p), near(p.y, 4, largest);
  assert_int_equal(p.index[0], 0), assert_int_equal(p.index[3], 4);
}

/* Windows with a NaN, with nothing above -inf, and with an infinity. */
static void special_cells(void **state) {
  const double x[] = {1, NAN, -INFINITY, -INFINITY, 3, -INFINITY, INFINITY, 2};
  const char *settings = "spatial=1 kernel=2";
  pooling p;
  made(&p, "max_pool", settings, 1, (int64_t[]){8}, x), run(&p);
  assert_true(isnan(p.y[0]) && p.y[1] == -INFINITY && p.y[2] == 3 && p.y[3] == INFINITY);
  assert_true(p.index[0] == -1 && p.index[1] == -1 && p.index[2] == 4 && p.index[3] == 6);
  for (int i = 0; i < 8; i++) assert_true(p.dx[i] == (i == 4 || i == 6));
  made(&p, "soft_pool", settings, 1, (int64_t[]){8}, x), run(&p);
  assert_true(isnan(p.y[0]) && p.y[1] == 0 && p.y[2] == 3 && isnan(p.y[3]));
  assert_true(p.dx[2] == 0 && p.dx[3] == 0 && p.dx[4] == 1 && p.dx[5] == 0);
  made(&p, "avg_pool", settings, 1, (int64_t[]){8}, x), run(&p);
  assert_true(isnan(p.y[0]) && p.y[1] == -INFINITY && p.y[2] == -INFINITY && p.y[3] == INFINITY);
  for (int i = 0; i < 8; i++) assert_true(p.dx[i] == 0.5);
  made(&p, "lse_pool", settings, 1, (int64_t[]){8}, x), run(&p);
  assert_true(isnan(p.y[0]) && p.y[1] == -INFINITY && p.y[2] == 3);
}

/* Dilation steps over both cells. */
static void windows_without_cells(void **state) {
  static const struct {
    const char *name;
    double y;
  } empty[] = {{"max_pool", -INFINITY}, {"lse_pool", -INFINITY}, {"soft_pool", 0}, {"ada_pool", 0},
               {"idw_pool", 0},         {"lp_pool", 0},          {"avg_pool", NAN}};
  static const double x[2] = {1, 2};
  for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
    pooling p;
    assert_int_equal(made(&p, empty[i].name, "spatial=1 kernel=2 dilation=3 padding=1", 1, (int64_t[]){2}, x),
                     SMX_OK);
    run(&p);
    if (!(p.y[0] == empty[i].y || (isnan(empty[i].y) && isnan(p.y[0]))))
      fail_msg("%s: %g", empty[i].name, p.y[0]);
    assert_true(p.dx[0] == 0 && p.dx[1] == 0);
  }
}

static void windows_that_do_not_exist(void **state) {
  static const struct {
    const char *name, *settings, *words;
  } wrong[] = {
      {"max_pool", "kernel=4", "kernel: reaches over 4 cells, and the height has 3 with its padding"},
      {"max_pool", "kernel=2 dilation=3", "reaches over 4 cells"},
      {"max_pool", "kernel=2 dilation_h=5", "reaches over 6 cells, and the height has 3"},
      {"max_pool", "kernel=5 stride=2 ceil=yes", "reaches over 5 cells"},
      {"max_pool", "dilation_d=2", "dilation_d: is 2, and there are no such windows with spatial = 2"},
      {"avg_pool", "kernel=3 padding=2", "padding: 2 is more than half of the 3 cells that a kernel spans"},
      {"max_pool", "kernel=2 dilation=2 padding=2", "padding: 2 is more than half of the 3 cells"},
      {"soft_pool", "kernel=2 kernel_d=2", "kernel_d: is 2, and there are no such windows with spatial = 2"},
      {"adaptive_max_pool", "spatial=1 size_h=2", "size_h: is 2"},
      {"max_pool", "spatial=3 kernel=1", "has 2 dimensions, not 3 or more"},
  };
  static const double x[9] = {0};
  pooling p;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    assert_int_not_equal(made(&p, wrong[i].name, wrong[i].settings, 2, (int64_t[]){3, 3}, x), SMX_OK);
    if (!strstr(smx_last_error(), wrong[i].words)) fail_msg("%s", smx_last_error());
  }
  assert_int_equal(made(&p, "max_pool", "kernel=2", 2, (int64_t[]){0, 3}, x), SMX_ERR_SHAPE);
  assert_int_equal(made(&p, "adaptive_avg_pool", "size=2", 2, (int64_t[]){0, 3}, x), SMX_ERR_SHAPE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_of_papers),
      cmocka_unit_test(bins),
      cmocka_unit_test(padding),
      cmocka_unit_test(special_cells),
      cmocka_unit_test(windows_that_do_not_exist),
      cmocka_unit_test(windows_without_cells),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
