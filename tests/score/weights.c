/* weights.c - proves what weights of rows mean, for every metric of a set that takes them: rows of
 * weight 0 are as if they were not there, 1 changes no bit, whole numbers are copies, a factor of
 * other weights changes nothing; and what is refused or has no value. */
#include <stdlib.h>

#include "outputs.h"
#include "util.h"

enum { ROWS = 60, CLASSES = 4, COPIES = 3, OUTS = 4 * ROWS * COPIES };

static const struct {
  const char *name;
  setting set[2];
  int scores, alike; /* scores: inputs that are numbers; alike: outputs that copies leave alone */
} metrics[] = {
    {"ranking_metrics", {{NULL, 0}}, 1, 5},
    {"calibration_error", {{"bins", 7}}, 1, 12}, /* with the counts of the bins */
    {"kernel_calibration_error", {{NULL, 0}}, 1, 2},
    {"brier_decomposition", {{"bins", 5}}, 1, 7},
    {"risk_coverage", {{NULL, 0}}, 2, 2},
    {"classification_metrics", {{"classes", CLASSES}}, 0, 4 + CLASSES *(CLASSES + 3)},
    {"classwise_calibration_error", {{"bins", 6}}, 0, 2 + CLASSES},
};

typedef struct set {
  double x[ROWS * COPIES], loss[ROWS * COPIES], w[ROWS * COPIES], z[ROWS * COPIES * CLASSES];
  unsigned char is[ROWS * COPIES];
  int64_t taken[ROWS * COPIES], class[ROWS * COPIES], n;
} set;

static void make(set *s, uint64_t seed) {
  rng r = {seed};
  s->n = ROWS;
  for (int i = 0; i < ROWS; i++) {
    s->x[i] = (double)rng_below(&r, 33) / 32, s->is[i] = rng_uniform(&r) < s->x[i];
    s->loss[i] = (double)rng_below(&r, 4), s->w[i] = (double)rng_below(&r, COPIES + 1);
    s->taken[i] = rng_below(&r, CLASSES);
    s->class[i] = rng_below(&r, 2) ? s->taken[i] : (int64_t)rng_below(&r, CLASSES + 1) - 1;
    for (int k = 0; k < CLASSES; k++) s->z[i * CLASSES + k] = rng_normal(&r);
  }
}

/* The rows of a set, each as often as times says. */
static void repeat(set *to, const set *s, int64_t (*times)(double w)) {
  to->n = 0;
  for (int i = 0; i < ROWS; i++)
    for (int64_t k = 0; k < times(s->w[i]); k++) {
      const int64_t at = to->n++;
      to->x[at] = s->x[i], to->is[at] = s->is[i], to->loss[at] = s->loss[i], to->w[at] = s->w[i];
      to->taken[at] = s->taken[i], to->class[at] = s->class[i];
      memcpy(to->z + at * CLASSES, s->z + i * CLASSES, CLASSES * sizeof *s->z);
    }
}
static int64_t once(double w) { return w != 0; }
static int64_t copies(double w) { return (int64_t)w; }

/* All outputs, then NaN. */
static void measure_set(size_t k, set *s, bool weighted, double *out) {
  int64_t shape[] = {s->n, CLASSES};
  const bool classwise = !strcmp(metrics[k].name, "classwise_calibration_error");
  const smx_tensor first = metrics[k].scores ? floats(s->x, 1, shape)
                           : classwise       ? floats(s->z, 2, shape)
                                             : classes_of(s->taken, shape);
  const smx_tensor second = metrics[k].scores == 2 ? floats(s->loss, 1, shape)
                            : metrics[k].scores == 1
                                ? (smx_tensor){s->is, {1, 0}, 1, SMX_BOOL, shape, NULL, 0}
                                : classes_of(s->class, shape);
  const smx_tensor w = floats(s->w, 1, shape);
  for (int i = 0; i < OUTS; i++) out[i] = NAN;
  call(metrics[k].name, metrics[k].set, 2 + weighted, (const smx_tensor *[]){&first, &second, &w}, out);
}

static void same_bytes(size_t k, const char *what, const double *a, const double *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (memcmp(a + i, b + i, sizeof *a))
      fail_msg("%s, %s: number %d is %.17g, not %.17g", metrics[k].name, what, (int)i, a[i], b[i]);
}

/* Rows of weight 0 hold what would be refused, or NaN. */
static void none_and_one(void **state) {
  static set s, kept;
  static double a[OUTS], b[OUTS];
  for (size_t k = 0; k < COUNT_OF(metrics); k++)
    for (uint64_t seed = 1; seed < 9; seed++) {
      make(&s, seed);
      repeat(&kept, &s, once);
      const int64_t outs = metrics[k].scores == 2 ? 2 + kept.n : metrics[k].alike;
      for (int i = 0; i < ROWS; i++)
        if (s.w[i] == 0) s.x[i] = i % 2 ? NAN : 7, s.loss[i] = NAN, s.z[i * CLASSES] = NAN;
      measure_set(k, &s, true, a), measure_set(k, &kept, true, b);
      same_bytes(k, "left out", a, b, outs);
      if (metrics[k].scores == 2)
        for (int64_t i = outs; i < 2 + ROWS; i++) assert_true(isnan(a[i]));
      for (int i = 0; i < ROWS; i++) s.w[i] = s.w[i] != 0;
      measure_set(k, &s, true, a), measure_set(k, &kept, false, b);
      same_bytes(k, "weight 1", a, b, outs);
      for (int i = 0; i < ROWS; i++) s.w[i] = 0; /* no rows */
      measure_set(k, &s, true, a);
      assert_true(isnan(a[0]));
    }
}

static void whole_numbers(void **state) {
  static set s, all;
  static double a[OUTS], b[OUTS];
  for (size_t k = 0; k < COUNT_OF(metrics); k++)
    for (uint64_t seed = 1; seed < 33; seed++) {
      make(&s, seed);
      repeat(&all, &s, copies);
      measure_set(k, &s, true, a), measure_set(k, &all, false, b);
      for (int i = 0; i < metrics[k].alike; i++) {
        const bool same = memcmp(a + i, b + i, sizeof *a) == 0; /* counts, and NaN of no rows */
        if (!same && !(fabs(a[i] - b[i]) <= 1e-13))
          fail_msg("%s seed %d: number %d is %.17g, not %.17g", metrics[k].name, (int)seed, i, a[i], b[i]);
      }
    }
}

/* Of weights that are no whole numbers. */
static void factors(void **state) {
  static const double by[] = {3, 0.1, 1e-300, 1e290};
  static set s;
  static double a[OUTS], b[OUTS], v[ROWS];
  for (size_t k = 0; k < 5; k++) /* the others count rows, or have no number of them */
    for (uint64_t seed = 1; seed < 9; seed++) {
      const smx_op *op = smx_op_find(metrics[k].name);
      make(&s, seed);
      for (int i = 0; i < ROWS; i++) s.w[i] *= 0.7;
      for (size_t f = 0; f <= COUNT_OF(by); f++) {
        const smx_tensor x = floats(s.x, 1, &s.n), w = floats(v, 1, &s.n),
                         y = metrics[k].scores == 2 ? floats(s.loss, 1, &s.n)
                                                    : (smx_tensor){s.is, {1, 0}, 1, SMX_BOOL, &s.n, NULL, 0};
        const smx_tensor *in[] = {&x, &y, &w}, *list[SMX_MAX_PORTS] = {NULL};
        smx_tensor to[SMX_MAX_PORTS];
        for (int i = 0; i < ROWS; i++) v[i] = s.w[i] * (f ? by[f - 1] : 1);
        for (int o = 0; o < op->output_count; o++)
          to[o] = floats((f ? b : a) + o, 0, NULL),
          list[o] = strcmp(op->outputs[o].dims, "...") ? NULL : to + o;
        good(smx_forward(op, NULL, NULL, 3, in, op->output_count, list));
        for (int o = 0; f && o < op->output_count; o++)
          if (list[o] && !(fabs(a[o] - b[o]) <= 1e-13))
            fail_msg("%s times %g: %s is %.17g, not %.17g", op->name, by[f - 1], op->outputs[o].name, b[o],
                     a[o]);
      }
    }
}

static void refusals(void **state) {
  static const struct {
    double w;
    const char *word;
  } wrong[] = {{-1, "weight: number 5 is -1, below 0"},
               {NAN, "weight: number 5 is nan, not finite"},
               {INFINITY, "weight: number 5 is inf, not finite"}};
  double x[8] = {0}, out[6], w[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t two[] = {2, 4}, class[8] = {0}, cell[8];
  const smx_tensor tx = floats(x, 2, two), tw = floats(w, 2, two);
  const smx_tensor tb = floats(out + 2, 1, two), td = floats(out + 4, 1, two);
  smx_tensor tc = classes_of(class, two), ta = floats(out, 1, two),
             tt = {cell, {1, 0}, 3, SMX_I64, NULL, NULL, 0};
  const smx_op *risk = smx_op_find("risk_coverage"), *of = smx_op_find("classification_metrics");
  smx_params params;
  for (size_t k = 0; k < COUNT_OF(wrong); k++) {
    w[5] = wrong[k].w; /* of the second set */
    refused(smx_forward(risk, NULL, NULL, 3, (const smx_tensor *[]){&tx, &tx, &tw}, 1,
                        (const smx_tensor *[]){&ta}),
            SMX_ERR_PARAM, wrong[k].word);
    refused(smx_forward(smx_op_find("mean_interval"), NULL, NULL, 2, (const smx_tensor *[]){&tx, &tw}, 3,
                        (const smx_tensor *[]){&ta, &tb, &td}),
            SMX_ERR_PARAM, wrong[k].word);
  }
  int64_t shape[] = {2, 1, 1};
  tc.ndim = 2, tt.shape = shape, w[5] = 0.5;
  good(smx_params_init(of, &params)), good(smx_params_set(of, &params, "classes", 1));
  good(smx_forward(of, NULL, &params, 3, (const smx_tensor *[]){&tc, &tc, &tw}, 5,
                   (const smx_tensor *[]){&ta, NULL, NULL, NULL, &tt}));
  assert_true(cell[0] == 4 && cell[1] == -1); /* the second set has no whole numbers */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(none_and_one),
      cmocka_unit_test(whole_numbers),
      cmocka_unit_test(factors),
      cmocka_unit_test(refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
