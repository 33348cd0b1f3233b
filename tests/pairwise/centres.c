/* centres.c - proves losses of class centres and of densities, and how far keys are apart, on the
 * worked examples of the catalogue of papers, and where nothing can be compared. */
#include "outputs.h"
#include "util.h"

static void centres_of_classes(void **state) {
  double z[] = {1, .2, .8, .4, -.5, 1, .1, -.9}, loss;
  int64_t target[] = {0, 0, 1, 2}, shape[] = {4, 2};
  const setting three[] = {{"classes", 3}, {"scale", 0.2}, {NULL, 0}};
  const smx_tensor tz = floats(z, 2, shape), tt = classes_of(target, shape), *in[] = {&tz, &tt};
  call("nbc_loss", three, 2, in, &loss);
  near_all(&loss, (double[]){.347846189}, 1, 1e-9);
  for (int i = 1; i < 4; i++) target[i] = i == 1 ? 0 : -1;
  z[4] = NAN; /* of no class */
  call("nbc_loss", three, 2, in, &loss);
  near_all(&loss, (double[]){log(1 + 1e-10) / 3}, 1, 1e-15);
  target[0] = target[1] = -1;
  call("nbc_loss", three, 2, in, &loss);
  near_all(&loss, (double[]){0}, 1, 0);
}

static void densities_of_classes(void **state) {
  double z[] = {.5, -.5}, mean[] = {0, 0, 1, 1}, log_sd[] = {0, 0, 0, .5}, log_det = .3, y[3];
  int64_t one[] = {1, 2}, two[] = {2, 2};
  const smx_tensor tz = floats(z, 2, one), tm = floats(mean, 2, two), ts = floats(log_sd, 2, two),
                   td = floats(&log_det, 1, one), *in[] = {&tz, &tm, &ts, &td};
  call("flowcon_score", NULL, 4, in, y);
  near_all(y, (double[]){-1.7878770664, -2.087877066409, -2.876741437727}, 3, 1e-10);
  call("flowcon_score", (setting[]){{"bits", 1}, {NULL, 0}}, 4, in, y);
  near_all(y, (double[]){-1.7878770664 / (2 * log(2))}, 1, 1e-10);
  mean[0] = NAN;
  call("flowcon_score", NULL, 4, in, y);
  assert_true(isnan(y[0]) && isnan(y[1]) && !isnan(y[2]));
}

static void contrast_of_densities(void **state) {
  double l[] = {0, -1, -3, -2, -.5, -1, -1, -2, 0}, loss[3];
  int64_t label[] = {0, 0, 1}, shape[] = {3, 3};
  const smx_tensor tl = floats(l, 2, shape), ty = classes_of(label, shape), *in[] = {&tl, &ty};
  call("flowcon_loss", NULL, 2, in, loss);
  near_all(loss, (double[]){.614496606321, .739431821652, 0}, 3, 1e-11);
  l[2] = NAN, label[0] = label[1] = -1;
  call("flowcon_loss", NULL, 2, in, loss);
  near_all(loss, (double[]){0, 0, 0}, 3, 0); /* none has a class */
}

/* s = 0.5 (2, 0) + 0.3 (0, 1): |s - a x| of the two that are in it, and of the two that are not. */
static void keys_apart(void **state) {
  double a[] = {.1, .5, .3, .1}, x[] = {1, 1, 2, 0, 0, 1, 4, 0}, y[2];
  int64_t shape[] = {4, 2};
  const smx_tensor ta = floats(a, 1, shape), tx = floats(x, 2, shape), *in[] = {&ta, &tx};
  call("attention_separation", (setting[]){{"top", 2}, {"radius", .5}, {NULL, 0}}, 2, in, y);
  near_all(y, (double[]){hypot(.9, .2) + hypot(.6, .3), .5}, 2, 1e-15);
  call("attention_separation", (setting[]){{"top", 9}, {NULL, 0}}, 2, in, y);
  near_all(y, (double[]){0}, 1, 0);
  x[7] = NAN;
  call("attention_separation", (setting[]){{"top", 2}, {NULL, 0}}, 2, in, y);
  assert_true(isnan(y[0]) && isnan(y[1]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(centres_of_classes),
      cmocka_unit_test(densities_of_classes),
      cmocka_unit_test(contrast_of_densities),
      cmocka_unit_test(keys_apart),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
