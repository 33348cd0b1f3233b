/* nms.c - proves non-maximum suppression on the boxes of the catalogue of papers, on classes, ties,
 * degenerate boxes and NaN, and on many boxes against a plain loop. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "unit.h"
#include "util.h"
#include <softmax.h>

enum { MOST = 600 };

typedef struct detection {
  const smx_op *op;
  smx_params params;
  int64_t n, shape[2], count, index[MOST], class_of[MOST];
  double boxes[4 * MOST], score[MOST], kept[MOST];
  bool classes;
} detection;

static void set(detection *d, const char *name, const char *value) {
  assert_int_equal(smx_params_parse(d->op, &d->params, name, value), SMX_OK);
}
static detection begin(const char *op, int64_t n, double boxes[][4], const double *score) {
  detection d = {.op = smx_op_find(op), .n = n, .shape = {n, 4}};
  smx_params_init(d.op, &d.params);
  for (int64_t i = 0; i < n; i++) memcpy(d.boxes + 4 * i, boxes[i], sizeof *boxes), d.score[i] = score[i];
  return d;
}
static void run(detection *d) {
  const smx_tensor boxes = {d->boxes, {1, 0}, 2, SMX_F64, d->shape, NULL, 0};
  const smx_tensor score = {d->score, {1, 0}, 1, SMX_F64, d->shape, NULL, 0};
  const smx_tensor class_of = {d->class_of, {1, 0}, 1, SMX_I64, d->shape, NULL, 0};
  const smx_tensor index = {d->index, {1, 0}, 1, SMX_I64, d->shape, NULL, 0};
  const smx_tensor count = {&d->count, {1, 0}, 0, SMX_I64, NULL, NULL, 0};
  const smx_tensor kept = {d->kept, {1, 0}, 1, SMX_F64, d->shape, NULL, 0};
  const smx_tensor *in[] = {&boxes, &score, d->classes ? &class_of : NULL}, *out[] = {&index, &count, &kept};
  if (smx_forward(d->op, NULL, &d->params, 3, in, 3, out) != SMX_OK) fail_msg("%s", smx_last_error());
}
static void stays(const detection *d, int64_t count, const int64_t *index, const double *kept) {
  assert_int_equal(d->count, count);
  for (int64_t k = 0; k < d->n; k++) assert_int_equal(d->index[k], k < count ? index[k] : -1);
  for (int64_t k = 0; kept && k < count; k++) assert_true(fabs(d->kept[k] - kept[k]) < 1e-6);
}

static double four[4][4] = {{0, 0, 9, 9}, {1, 1, 10, 10}, {20, 20, 29, 29}, {5, 0, 14, 9}};
static const double four_scores[4] = {.9, .8, .7, .6};

static void boxes_of_the_paper(void **state) {
  static const struct {
    const char *pixels, *method;
    int64_t index[4];
    double kept[4];
  } known[] = {{"1", "linear", {0, 2, 3, 1}, {.9, .7, .4, .160976}},
               {"1", "gaussian", {0, 2, 3, 1}, {.9, .7, .480442, .240901}},
               {"0", "linear", {0, 2, 3, 1}, {.9, .7, .6, .186551}},
               {"0", "gaussian", {0, 2, 3, 1}, {.9, .7, .509619, .274963}}};
  for (int i = 0; i < 4; i++) {
    detection d = begin("soft_nms", 4, four, four_scores);
    set(&d, "method", known[i].method), set(&d, "pixels", known[i].pixels);
    run(&d);
    stays(&d, 4, known[i].index, known[i].kept);
  }
  for (int soft = 0; soft < 2; soft++)
    for (int pixels = 0; pixels < 2; pixels++) {
      detection d = begin(soft ? "soft_nms" : "nms", 4, four, four_scores);
      if (soft) set(&d, "method", "hard");
      set(&d, "threshold", "0.3"), set(&d, "pixels", pixels ? "1" : "0");
      run(&d);
      stays(&d, pixels ? 2 : 3, (int64_t[]){0, 2, 3}, (double[]){.9, .7, .6});
    }
}

static void classes_ties_and_limits(void **state) {
  double same[3][4] = {{0, 0, 2, 2}, {0, 0, 2, 2}, {0, 0, 2, 1}};
  const double scores[3] = {.5, .5, .5};
  detection d = begin("nms", 3, same, scores);
  run(&d);
  stays(&d, 2, (int64_t[]){0, 2}, NULL); /* the overlap of 0 and 2 is the threshold, 0.5 */
  set(&d, "inclusive", "yes"), run(&d), stays(&d, 1, (int64_t[]){0}, NULL);
  d.classes = true, d.class_of[1] = 7;
  run(&d), stays(&d, 2, (int64_t[]){0, 1}, NULL);
  set(&d, "most", "1"), run(&d), stays(&d, 1, (int64_t[]){0}, NULL);
  set(&d, "least", "0.6"), run(&d), stays(&d, 0, NULL, NULL);
}

static void boxes_that_are_none(void **state) {
  double odd[5][4] = {{0, 0, NAN, 1}, {0, 0, 0, 0}, {0, 0, 0, 0}, {3, 3, 1, 1}, {0, 0, 4, 4}};
  const double scores[5] = {1, .9, .8, .7, NAN};
  for (int soft = 0; soft < 2; soft++) {
    detection d = begin(soft ? "soft_nms" : "nms", 5, odd, scores);
    run(&d);
    stays(&d, 3, (int64_t[]){1, 2, 3}, NULL);
    detection none = begin(soft ? "soft_nms" : "nms", 0, NULL, NULL);
    run(&none);
    assert_int_equal(none.count, 0);
  }
}

/* The plain loop: a box stays unless a better one of its class that stays overlaps it too much. */
static void boxes_of_a_size(double unit) {
  static detection d;
  rng r = {5};
  d = begin("nms", 0, NULL, NULL);
  d.n = d.shape[0] = MOST, d.classes = true;
  for (int64_t i = 0; i < MOST; i++) {
    const double x = rng_below(&r, 60), y = rng_below(&r, 60);
    double box[4] = {x, y, x + 1 + (double)rng_below(&r, 20), y + 1 + (double)rng_below(&r, 20)};
    for (int s = 0; s < 4; s++) box[s] *= unit;
    if (i % 100 == 0) box[i % 200 ? 0 : 3] = i % 200 ? -INFINITY : INFINITY;
    memcpy(d.boxes + 4 * i, box, sizeof box);
    d.score[i] = (double)rng_below(&r, 100) / 100, d.class_of[i] = (int64_t)rng_below(&r, 3);
  }
  run(&d);
  bool gone[MOST] = {false}, done[MOST] = {false};
  int64_t count = 0;
  for (int64_t step = 0; step < MOST; step++) {
    int64_t best = -1;
    for (int64_t i = 0; i < MOST; i++)
      if (!done[i] && (best < 0 || d.score[i] > d.score[best])) best = i;
    done[best] = true;
    if (gone[best]) continue;
    assert_int_equal(d.index[count++], best);
    const double *a = d.boxes + 4 * best;
    for (int64_t i = 0; i < MOST; i++) {
      const double *b = d.boxes + 4 * i;
      const double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
      const double inter = fmax(w / unit, 0) * fmax(h / unit, 0);
      const double all = (a[2] - a[0]) / unit * ((a[3] - a[1]) / unit) +
                         (b[2] - b[0]) / unit * ((b[3] - b[1]) / unit) - inter;
      gone[i] |= d.class_of[i] == d.class_of[best] && 2 * inter > all;
    }
  }
  assert_int_equal(d.count, count);
  assert_true(count > 50 && count < 550);
}
static void many_boxes(void **state) {
  boxes_of_a_size(1), boxes_of_a_size(0x1p-400), boxes_of_a_size(0x1p500);
  boxes_of_a_size(0x1p-1000), boxes_of_a_size(0x1p1010); /* areas are no doubles */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(boxes_of_the_paper),
      cmocka_unit_test(classes_ties_and_limits),
      cmocka_unit_test(boxes_that_are_none),
      cmocka_unit_test(many_boxes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
