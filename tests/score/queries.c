/* queries.c - proves which rows are asked for, and the loss of a confidence, on the worked examples
 * of the catalogue of papers and on what they promise. */
#include <stdlib.h>
#include <string.h>

#include "outputs.h"
#include "util.h"

static int64_t whole(const double *at) {
  int64_t i;
  memcpy(&i, at, sizeof i);
  return i;
}

static void confidence(void **state) {
  double c[] = {.4, .4, .4, .4}, z[] = {2, 1, 0, -1, 2, 1, 0, -1, 2, 1, 0, -1, NAN, 1, 0, 2}, out[8];
  int64_t y[] = {1, 0, -1, 0}, shape[] = {4, 4};
  const smx_tensor tc = floats(c, 1, shape), tz = floats(z, 2, shape), ty = classes_of(y, shape),
                   *in[] = {&tc, &tz, &ty};
  const double s = 1 / (1 + exp(-.4)), t = 0.64391425988797;
  call("tcp_loss", (setting[]){{"weight", 3}, {NULL, 0}}, 3, in, out);
  near_all(out, (double[]){3 * 0.13090274377601632}, 1, 1e-9);
  near_all(out + 1, (double[]){(s - t) * (s - t), 0}, 2, 1e-14);
  near_all(out + 4, (double[]){0.2368828180899102, t}, 2, 1e-13);
  assert_true(isnan(out[3]) && isnan(out[6]) && isnan(out[7]));
  call("tcp_loss", (setting[]){{"form", 1}, {"gamma", 0}, {NULL, 0}}, 3, in, out);
  near_all(out + 1, (double[]){-t * log(s) - (1 - t) * log(1 - s)}, 1, 1e-13);
}

/* A confidence that is infinite has the loss of its limit. */
static void confidence_without_end(void **state) {
  double c[] = {INFINITY, -INFINITY, INFINITY, NAN}, z[] = {0, 0, 0, 0, 0, -INFINITY, 0, 0}, out[8], dc[4];
  int64_t y[] = {0, 1, 0, 0}, shape[] = {4, 2};
  const smx_tensor tc = floats(c, 1, shape), tz = floats(z, 2, shape), ty = classes_of(y, shape),
                   *in[] = {&tc, &tz, &ty};
  call("tcp_loss", NULL, 3, in, out);
  near_all(out, (double[]){.25, .25, 0}, 3, 0), assert_true(isnan(out[3]));
  call("tcp_loss", (setting[]){{"form", 1}, {NULL, 0}}, 3, in, out);
  assert_true(out[0] == INFINITY && out[1] == INFINITY && out[2] == 0 && isnan(out[3]));
  double one[] = {1, 1, 1, 1};
  const smx_op *op = smx_op_find("tcp_loss");
  const smx_tensor tg = floats(one, 1, shape), td = floats(dc, 1, shape), *up[] = {&tg},
                   *to[] = {&td, NULL, NULL};
  smx_params params;
  smx_params_init(op, &params), smx_params_set(op, &params, "form", 1);
  assert_int_equal(smx_backward(op, NULL, &params, 3, in, 1, NULL, up, to), SMX_OK);
  near_all(dc, (double[]){.125, -.125, 0}, 3, 1e-15), assert_true(isnan(dc[3]));
}

/* Each row once, the longest gradient first, copies and rows with a NaN last or never. */
static void gradients(void **state) {
  double h[] = {1, 0, 9, 0, 0, 3, 9, 0, NAN, 1, 0, 0}, z[] = {0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0}, out[12];
  int64_t rows[] = {6, 2}, seen[2][6] = {{0}};
  const smx_tensor th = floats(h, 2, rows), tz = floats(z, 2, rows), *in[] = {&th, &tz};
  for (int seed = 0; seed < 300; seed++) {
    call("badge_select", (setting[]){{"budget", 2}, {"seed", seed}, {NULL, 0}}, 2, in, out);
    seen[0][whole(out + 6)]++, seen[1][whole(out + 7)]++;
    assert_true(whole(out + 8) == -1 && whole(out + 4) == 0);
  }
  const double a = .7310585786300049 - 1, far = 2 * a * a * 81, one = .5, three = 2 * a * a * 9;
  assert_true(seen[0][1] == 300 && seen[1][1] == 0 && seen[1][3] == 0 && seen[1][4] == 0);
  const double all = 3 * far + one + three; /* products with row 1 are 0 but for row 0 */
  assert_true(fabs((double)seen[1][5] / 300 - far / all) < .1);
  call("badge_select", NULL, 2, in, out);
  assert_true(whole(out + 10) == 3 && whole(out + 11) == -1);
  for (int i = 0; i < 6; i++) assert_true(whole(out + i) == (i != 4));
}

static void anchors(void **state) {
  double pool[] = {1, 0, .8, .6, 0, 1, -1, 0, 0, 0}, from[] = {1, 0, .6, .8}, out[10];
  int64_t n[] = {5, 2}, a[] = {2, 2};
  static const int64_t order[] = {1, 0, 2, 3, -1};
  const smx_tensor tp = floats(pool, 2, n), ta = floats(from, 2, a), *in[] = {&tp, &ta};
  call("anchor_subpool", (setting[]){{"k", 4}, {NULL, 0}}, 2, in, out);
  near_all(out, (double[]){.8, .88, .4, -.8}, 4, 1e-15);
  assert_true(isnan(out[4]));
  for (int i = 0; i < 5; i++) assert_true(whole(out + 5 + i) == order[i]);
  call("anchor_subpool", (setting[]){{"k", 1}, {"size", 1}, {NULL, 0}}, 2, in, out);
  near_all(out, (double[]){1, .96}, 2, 1e-15);
  assert_true(isnan(out[2]) && whole(out + 5) == 0 && whole(out + 6) == -1);
  pool[8] = 1e200; /* its square is infinite: as without a direction, not at right angles */
  call("anchor_subpool", (setting[]){{"k", 5}, {NULL, 0}}, 2, in, out);
  assert_true(isnan(out[4]) && whole(out + 9) == -1);
}

static void neural(void **state) {
  static double f[100 * 10];
  static double out[300];
  double w[] = {.1, .3, .5}, zero[] = {.1, 0, .5}, p[4];
  int64_t shape[] = {100, 10}, three = 3, seen[3] = {0};
  f[99 * 10] = -1;
  const smx_tensor tf = floats(f, 2, shape), tw = floats(w, 1, &three), t0 = floats(zero, 1, &three);
  call("neuronal_stream", (setting[]){{"horizon", 1e4}, {NULL, 0}}, 1, (const smx_tensor *[]){&tf}, out);
  near_all(out + 299, (double[]){2 * .818453566900033}, 1, 1e-14);
  assert_true(whole(out) == 1 && out[199] == 1 && whole(out + 99) == 1);
  f[99 * 10] = -2, f[0] = NAN;
  call("neuronal_stream", (setting[]){{"horizon", 1e4}, {NULL, 0}}, 1, (const smx_tensor *[]){&tf}, out);
  assert_true(whole(out + 99) == 0 && whole(out) == 0);
  for (int seed = 0; seed < 1000; seed++) {
    call("neuronal_pool", (setting[]){{"seed", seed}, {NULL, 0}}, 1, (const smx_tensor *[]){&tw}, p);
    seen[whole(p + 3)]++;
  }
  near_all(p, (double[]){.657142857143, .2, .142857142857}, 3, 1e-11);
  for (int i = 0; i < 3; i++) assert_true(fabs((double)seen[i] / 1000 - p[i]) < .05);
  call("neuronal_pool", NULL, 1, (const smx_tensor *[]){&t0}, p);
  assert_true(p[0] == 0 && p[1] == 1 && p[2] == 0 && whole(p + 3) == 1);
  w[1] = -1;
  const smx_tensor to = floats(p, 1, &three), drawn = {p + 3, {1, 0}, 0, SMX_I64, NULL, NULL, 0};
  refused(smx_forward(smx_op_find("neuronal_pool"), NULL, NULL, 1, (const smx_tensor *[]){&tw}, 2,
                      (const smx_tensor *[]){&to, &drawn}),
          SMX_ERR_PARAM, "gap: number 1 is -1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(confidence), cmocka_unit_test(confidence_without_end),
      cmocka_unit_test(gradients),  cmocka_unit_test(anchors),
      cmocka_unit_test(neural),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
