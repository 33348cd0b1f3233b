/* jensen_shannon_votes.c - proves the functions over several distributions: the Jensen-Shannon
 * divergence of many rows and its gradient, the centroid, and Dawid and Skene's classes. Values by
 * mpmath from the formulas, and those of the paper's example; gradients against differences; the
 * same bits for every instruction set, number of threads and layout; masks, NaN, rows that do not
 * count, bad arguments. */
#include <math.h>
#include <string.h>

#include "cpu/cpu.h"
#include "problem.h"
#include "tensors.h"

enum { M = 3, N = 4 };
static double three[M * N] = {2, 1, 0.1, -1, 0.5, -0.3, 1.2, 0, 0, 3, -2, 0.5}, counts[M] = {0.5, -1, 0.25};
static int64_t rows[] = {M, N};

static void divergence_has_known_values(void **state) {
  static const double want[] = {0.126633517156539,   -0.10122176056873,    -0.0125423142293213,
                                -0.0128694423584869, -0.0283509447936973,  -0.0257906566165909,
                                0.0498806172442828,  0.00426098416600538,  -0.0436599265418424,
                                0.0590306053865396,  -0.00765929587386588, -0.00771138297283125};
  static const double even[] = {0.104832487784421,   -0.0613425690620443,  -0.0307025958429622,
                                -0.0127873228794146, -0.0463055611210857,  -0.0604396165606287,
                                0.0951109847048059,  0.0116341929769085,   -0.0366152270473567,
                                0.0617683105612959,  -0.00802864929351338, -0.0171244342204258};
  static const double loss[] = {0.32996048072879394, 0.37449154733778974};
  double have[2], dx[M * N];
  smx_tensor x = F64(three, 2, rows), mix = F64(counts, 1, rows), l = F64(have, 0, NULL),
             d = F64(dx, 2, rows);
  assert_int_equal(smx_jensen_shannon(NULL, &mix, &x, &l, &d), SMX_OK);
  near(dx, want, M * N, 1e-10);
  l.data = have + 1;
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, &l, &d), SMX_OK);
  near(dx, even, M * N, 1e-14);
  near(have, loss, 2, 1e-15);
}

/* Two rows are the operator; what it has in f32. */
static void two_rows_are_the_operator(void **state) {
  enum { BATCH = 50, LONG = 37 };
  static float pairs[BATCH * 2 * LONG], dx[BATCH * 2 * LONG], loss[BATCH], one[BATCH], d1[BATCH * LONG];
  int64_t shape[] = {BATCH, 2, LONG}, side[] = {BATCH, LONG}, strides[] = {2 * LONG, 1};
  rng r = {11};
  for (int i = 0; i < BATCH * 2 * LONG; i++) pairs[i] = (float)(4 * rng_normal(&r));
  smx_tensor x = tensor(pairs, SMX_F32, 3, shape), l = tensor(loss, SMX_F32, 1, shape),
             d = tensor(dx, SMX_F32, 3, shape);
  smx_tensor a = tensor(pairs, SMX_F32, 2, side), b = tensor(pairs + LONG, SMX_F32, 2, side),
             o = tensor(one, SMX_F32, 1, side);
  smx_tensor g = tensor(d1, SMX_F32, 2, side);
  const smx_tensor *in[] = {&a, &b}, *out[] = {&o, &g};
  a.strides = b.strides = strides;
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, &l, &d), SMX_OK);
  assert_int_equal(smx_forward(smx_op_find("jensen_shannon"), NULL, NULL, 2, in, 2, out), SMX_OK);
  for (int i = 0; i < BATCH; i++) {
    assert_true(fabs(loss[i] - one[i]) <= 64 * 0x1p-24);
    for (int j = 0; j < LONG; j++) assert_true(fabs(dx[2 * i * LONG + j] - d1[i * LONG + j]) <= 64 * 0x1p-24);
  }
}

static void what_does_not_count(void **state) {
  double x[M * N], loss[2], dx[M * N], two[2 * N], dx2[2 * N], mix[] = {0, -INFINITY, 0};
  int64_t pair[] = {2, N};
  memcpy(x, three, sizeof x);
  memcpy(two, three, sizeof two / 2);
  memcpy(two + N, three + 2 * N, sizeof two / 2);
  x[N] = NAN, x[N + 1] = INFINITY;
  smx_tensor X = F64(x, 2, rows), W = F64(mix, 1, rows), L = F64(loss, 0, NULL), D = F64(dx, 2, rows);
  smx_tensor X2 = F64(two, 2, pair), L2 = F64(loss + 1, 0, NULL), D2 = F64(dx2, 2, pair);
  assert_int_equal(smx_jensen_shannon(NULL, &W, &X, &L, &D), SMX_OK);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &X2, &L2, &D2), SMX_OK);
  assert_true(loss[0] == loss[1]);
  for (int j = 0; j < N; j++) assert_true(dx[j] == dx2[j] && dx[N + j] == 0 && dx[2 * N + j] == dx2[N + j]);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &X, &L, &D), SMX_OK); /* now it counts */
  assert_true(isnan(loss[0]));
  for (int i = 0; i < M * N; i++) assert_true(isnan(dx[i]));
  for (int j = 0; j < N; j++) x[N + j] = -INFINITY;
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &X, &L, &D), SMX_OK); /* nothing valid */
  assert_true(loss[0] == 0);
  for (int i = 0; i < M * N; i++) assert_true(dx[i] == 0);
  /* nothing in common: the entropy of the mixture */
  for (int i = 0; i < M * N; i++) x[i] = i % N == i / N ? 0 : -INFINITY;
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &X, &L, &X), SMX_OK);
  assert_true(fabs(loss[0] - log(3)) < 1e-15);
  for (int i = 0; i < M * N; i++) assert_true(x[i] == 0);
}

/* By mpmath; at both the gradient of the mean divergence vanishes to 30 digits. */
static void centroid_has_known_values(void **state) {
  static const double want[] = {0.3817990767729276, 0.2779476483669856, 0.3402532748600869};
  static const double mixed[] = {0.3567273730062621, 0.4922408579865097, 0.08511268405975726,
                                 0.06591908494747096};
  double p[] = {log(0.7), log(0.2), log(0.1), log(0.1), log(0.3), log(0.6)}, y[N];
  int64_t shape[] = {2, 3};
  smx_tensor P = F64(p, 2, shape), Y = F64(y, 1, shape + 1);
  assert_int_equal(smx_js_centroid(NULL, NULL, &P, &Y), SMX_OK);
  near(y, want, 3, 1e-9);
  smx_tensor X = F64(three, 2, rows), W = F64(counts, 1, rows), Y4 = F64(y, 1, rows + 1);
  assert_int_equal(smx_js_centroid(NULL, &W, &X, &Y4), SMX_OK);
  near(y, mixed, 4, 1e-9);
  p[0] = p[3] = -INFINITY; /* a class that nobody has */
  assert_int_equal(smx_js_centroid(NULL, NULL, &P, &Y), SMX_OK);
  assert_true(y[0] == 0 && fabs(y[1] + y[2] - 1) < 1e-15);
  p[4] = NAN;
  assert_int_equal(smx_js_centroid(NULL, NULL, &P, &Y), SMX_OK);
  assert_true(isnan(y[0]) && isnan(y[2]));
  int64_t no_rows[] = {0, 3};
  P.shape = no_rows;
  assert_int_equal(smx_js_centroid(NULL, NULL, &P, &Y), SMX_OK);
  assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
}

enum { BATCH = 2, MANY = 3, LONG = 70, CELLS = BATCH * MANY * LONG, RESULTS = BATCH + CELLS + BATCH * LONG };

static void everything(smx_context *ctx, float *x, int64_t *strides, float *out) {
  int64_t shape[] = {BATCH, MANY, LONG}, less[] = {BATCH, LONG};
  smx_tensor X = tensor(x, SMX_F32, 3, shape), L = tensor(out, SMX_F32, 1, shape),
             D = tensor(out + BATCH, SMX_F32, 3, shape);
  smx_tensor Y = tensor(out + BATCH + CELLS, SMX_F32, 2, less);
  X.strides = strides;
  assert_int_equal(smx_jensen_shannon(ctx, NULL, &X, &L, &D), SMX_OK);
  assert_int_equal(smx_js_centroid(ctx, NULL, &X, &Y), SMX_OK);
}

static void the_same_bits(void **state) {
  static float x[CELLS], turned[CELLS], want[RESULTS], have[RESULTS];
  int64_t strides[] = {MANY * LONG, 1, MANY};
  rng r = {3};
  for (int i = 0; i < CELLS; i++) {
    x[i] = (float)(3 * rng_normal(&r));
    turned[i / (MANY * LONG) * MANY * LONG + i % LONG * MANY + i / LONG % MANY] = x[i];
  }
  everything(NULL, x, NULL, want);
  for (way w = {0}; next_way(&w);) {
    everything(w.ctx, w.number % 2 == 0 ? turned : x, w.number % 2 == 0 ? strides : NULL, have);
    assert_memory_equal(have, want, sizeof want);
  }
}

static void bad_distributions(void **state) {
  double loss[2], dx[M * N], y[N];
  int64_t four[] = {4}, line[] = {M * N};
  smx_tensor x = F64(three, 2, rows), l = F64(loss, 0, NULL), d = F64(dx, 2, rows), Y = F64(y, 1, rows + 1),
             wrong = F64(dx, 1, four);
  smx_tensor flat = F64(three, 1, line), whole = tensor(three, SMX_I64, 2, rows), over = F64(three, 0, NULL);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, NULL, &l, NULL), SMX_ERR_NULL);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, NULL, NULL), SMX_ERR_NULL);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &flat, &l, NULL), SMX_ERR_SHAPE);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &whole, &l, NULL), SMX_ERR_DTYPE);
  assert_int_equal(smx_jensen_shannon(NULL, &wrong, &x, &l, NULL), SMX_ERR_SHAPE);
  assert_non_null(strstr(smx_last_error(), "mix: shape[0] is 4, not 3"));
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, &Y, NULL), SMX_ERR_SHAPE);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, &over, &d), SMX_ERR_ALIAS);
  assert_int_equal(smx_jensen_shannon(NULL, NULL, &x, &l, &wrong), SMX_ERR_SHAPE);
  assert_int_equal(smx_js_centroid(NULL, NULL, &x, &wrong), SMX_OK); /* it has n = 4 */
  assert_int_equal(smx_js_centroid(NULL, NULL, &x, &l), SMX_ERR_SHAPE);
}

/* ---- Dawid and Skene ---- */

/* Table 1 of the paper: what five anaesthetists, the first of them three times, said of
 * 45 patients, from 1 to 4. */
static const char *const patients[] = {
    "1111111", "3334334", "1122122", "2223121", "2223222", "2223322", "1222111", "3333433", "2222223",
    "2322223", "4444444", "2223343", "1111111", "2223212", "1211111", "1112111", "1111111", "1111111",
    "2222221", "2221322", "2222222", "2222221", "2223222", "2212222", "1111111", "1111111", "2322222",
    "1111111", "1111111", "1121121", "1111111", "3333233", "1111111", "2222222", "2223232", "4334343",
    "2212232", "2323233", "3333432", "1111111", "1111111", "1212111", "2322222", "1211111", "2222222"};
enum { PATIENTS = 45, DOCTORS = 5, CLASSES = 4, VOTES = PATIENTS * 7 };

static void example(smx_vote *votes) {
  for (int v = 0; v < VOTES; v++)
    votes[v] = (smx_vote){v / 7, v % 7 < 3 ? 0 : v % 7 - 2, patients[v / 7][v % 7] - '1'};
}

static void the_example_of_the_paper(void **state) {
  static const double rounded[] = {0.40, 0.42, 0.11, 0.07}; /* table 2 */
  static const double exact[] = {0.39955475288215847, 0.42198339191386862, 0.11179518853730624,
                                 0.066666666666666667};
  static const double last[] = {0, 0.021200484175638209, 0.97879951582436179, 0};
  static const double first_doctor[] = {0.88948834868605023, 0.11051165131394977, 0, 0};
  static const double second_step[] = {0.091372522040118941, 0.90862747795976522, 1.1583413849806279e-13, 0};
  static double posterior[PATIENTS * CLASSES], prior[CLASSES], errors[DOCTORS * CLASSES * CLASSES];
  smx_vote votes[VOTES];
  int64_t steps;
  example(votes);
  smx_dawid_skene_options o = {.size = sizeof o, .tolerance = 1e-12};
  assert_int_equal(
      smx_dawid_skene(NULL, &o, VOTES, votes, PATIENTS, DOCTORS, CLASSES, posterior, prior, errors, &steps),
      SMX_OK);
  near(prior, rounded, CLASSES, 0.005);
  near(prior, exact, CLASSES, 1e-11);
  near(posterior + 37 * CLASSES, last, CLASSES, 1e-11);
  near(errors, first_doctor, CLASSES, 1e-11);
  assert_int_equal(steps, 30);
  o.steps = 2;
  assert_int_equal(
      smx_dawid_skene(NULL, &o, VOTES, votes, PATIENTS, DOCTORS, CLASSES, posterior, NULL, NULL, &steps),
      SMX_OK);
  near(posterior + 2 * CLASSES, second_step, CLASSES, 1e-15);
  assert_int_equal(steps, 2);
}

/* A thousand votes on an item would leave the range of double without the power kept beside; an
 * item without votes has the prior. */
static void many_votes_and_none(void **state) {
  enum { ITEMS = 3, EACH = 4000 };
  static smx_vote votes[2 * EACH];
  double posterior[ITEMS * 2], prior[2];
  for (int v = 0; v < 2 * EACH; v++) votes[v] = (smx_vote){v % 2, 0, v / 2 % 10 < 4 ? 1 - v % 2 : v % 2};
  assert_int_equal(smx_dawid_skene(NULL, NULL, 2 * EACH, votes, ITEMS, 1, 2, posterior, prior, NULL, NULL),
                   SMX_OK);
  assert_true(posterior[0] == 1 && posterior[1] < 1e-100 && posterior[2] < 1e-100 && posterior[3] == 1);
  assert_true(fabs(posterior[4] - 0.5) < 1e-9 && posterior[4] == prior[0] && posterior[5] == prior[1]);
  assert_int_equal(smx_dawid_skene(NULL, NULL, 0, NULL, 2, 0, 2, posterior, prior, NULL, NULL), SMX_OK);
  for (int i = 0; i < 4; i++) assert_true(posterior[i] == 0.5);
}

static void bad_votes(void **state) {
  smx_vote votes[] = {{0, 0, 1}, {1, 2, 0}};
  double posterior[4] = {9};
  smx_dawid_skene_options o = {.size = sizeof o, .tolerance = -1};
#define RUN(options, v, items, workers, classes) \
  smx_dawid_skene(NULL, options, 2, v, items, workers, classes, posterior, NULL, NULL, NULL)
  assert_int_equal(RUN(NULL, votes, 2, 2, 2), SMX_ERR_SHAPE);
  assert_non_null(strstr(smx_last_error(), "vote 1 is about item 1 by worker 2; there are 2 and 2"));
  assert_int_equal(RUN(NULL, votes, 2, 3, 1), SMX_ERR_TARGET);
  assert_non_null(strstr(smx_last_error(), "vote 0 has label 1, not 0..0"));
  assert_int_equal(RUN(&o, votes, 2, 3, 2), SMX_ERR_PARAM);
  o.tolerance = 0, o.steps = -1;
  assert_int_equal(RUN(&o, votes, 2, 3, 2), SMX_ERR_PARAM);
  o.size = 1;
  assert_int_equal(RUN(&o, votes, 2, 3, 2), SMX_ERR_STRUCT);
  assert_int_equal(RUN(NULL, NULL, 2, 3, 2), SMX_ERR_NULL);
  assert_int_equal(RUN(NULL, votes, 2, 3, SIZE_MAX / 2), SMX_ERR_SHAPE);
  assert_true(posterior[0] == 9);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(divergence_has_known_values),
      cmocka_unit_test(two_rows_are_the_operator),
      cmocka_unit_test(what_does_not_count),
      cmocka_unit_test(centroid_has_known_values),
      cmocka_unit_test(the_same_bits),
      cmocka_unit_test(bad_distributions),
      cmocka_unit_test(the_example_of_the_paper),
      cmocka_unit_test(many_votes_and_none),
      cmocka_unit_test(bad_votes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
