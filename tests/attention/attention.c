/* attention.c - proves the values of attention: every kind of weights under every kind of mask,
 * bias and shape against the reference in long double, and the known answers of the papers'
 * formulas. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/ref.h"
#include "attention_case.h"
#include "unit.h"

static const double params[][SMX_ATTENTION_PARAMS] = {
    [SMX_ATTENTION_SOFTMAX_N] = {1.5},
    [SMX_ATTENTION_SSMAX] = {0.43, 0.1},
    [SMX_ATTENTION_SIGMOID] = {-1.25},
    [SMX_ATTENTION_RELU] = {SMX_ATTENTION_NORM_COUNT},
    [SMX_ATTENTION_ELU] = {SMX_ATTENTION_NORM_L1, 1e-8},
    [SMX_ATTENTION_IDENTITY] = {SMX_ATTENTION_NORM_CLAMP},
    [SMX_ATTENTION_SOFTPLUS] = {SMX_ATTENTION_NORM_L1},
    [SMX_ATTENTION_TAYLOR] = {SMX_ATTENTION_NORM_L1, 5},
    [SMX_ATTENTION_CLIPPED] = {-0.03, 1.03},
    [SMX_ATTENTION_CENTRED] = {1.5, 0.25, 1e-3},
    [SMX_ATTENTION_EXP] = {SMX_ATTENTION_NORM_CLAMP, 0, 1.5},
    [SMX_ATTENTION_CREDAL] = {1},
    [SMX_ATTENTION_SHAPED] = {1, 0.75, 0.5},
    [SMX_ATTENTION_LSSA] = {SMX_ATTENTION_NORM_L1, 1e-8},
    [SMX_ATTENTION_LSSAR] = {3, 1, 3},
    [SMX_ATTENTION_UNIFIED] = {0.5, -2, 2}, /* in range, and not */
};

static void set_weights(acase *a, int weights) { acase_weights(a, weights, COUNT_OF(params), params); }

/* The reference of one head. The caller frees o, lse and size. */
static attention_ref reference(const acase *a, int64_t b, int64_t h) {
  int64_t kv = h / (a->heads / a->kv_heads), head = b * a->heads + h;
  attention_ref c = {
      .lq = a->lq, .lk = a->lk, .d = a->d, .e = a->e, .softcap = a->options.softcap, .sink = -INFINITY};
  c.q = a->q + head * a->lq * a->d;
  c.k = a->k + (b * a->kv_heads + kv) * a->lk * a->d;
  c.v = a->v + (b * a->kv_heads + kv) * a->lk * a->e;
  c.scale = a->options.scale != 0 ? a->options.scale : 1 / sqrt((double)a->d);
  c.causal = a->options.causal, c.left = a->options.window_left, c.right = a->options.window_right;
  c.offset = acase_offset(a);
  c.weights = a->options.weights, c.param = a->options.param;
  if (a->bias) c.bias = a->bias + head * a->lq * a->lk;
  if (a->slopes) c.slope = a->slopes[head];
  if (a->sinks) c.sink = a->sinks[head];
  c.o = calloc((size_t)(a->lq * a->e + 1), sizeof *c.o);
  c.size = calloc((size_t)(a->lq * a->e + 1), sizeof *c.o);
  c.lse = calloc((size_t)(a->lq + 1), sizeof *c.o);
  unsigned char *mask = a->mask ? malloc((size_t)(a->lq * a->lk + 1)) : NULL;
  for (int64_t i = 0; mask && i < a->lq * a->lk; i++) mask[i] = a->mask[head * a->lq * a->lk + i] != 0;
  c.mask = mask;
  double *keep = acase_keep(a, b, h);
  c.keep = keep;
  attention_ref_run(&c);
  free(mask), free(keep);
  return c;
}

/* The largest error of o in units of 2^-24 of sum |w v|, and of lse in units of 2^-24
 * max(|lse|, 1). */
typedef struct errors {
  double o, lse;
} errors;

static double worse(double old, double got, double want, double size) {
  if (got == want || (isnan(got) && isnan(want))) return old;
  double e = fabs(got - want) / size * 0x1p24;
  return e <= old ? old : e;
}

static errors compare(const acase *a, const results *r) {
  errors e = {0, 0};
  /* what is clipped away had errors too, and the smallest score of a row cancels */
  double least =
      a->options.weights == SMX_ATTENTION_CLIPPED || a->options.weights == SMX_ATTENTION_SELF_ADJUST_RANGE
          ? 0.05
          : 1e-30;
  smx_dtype lse_type = dtype_size(a->dtype) == 8 ? SMX_F64 : SMX_F32;
  for (int64_t b = 0; b < a->batch; b++)
    for (int64_t h = 0; h < a->heads; h++) {
      attention_ref c = reference(a, b, h);
      int64_t row = (b * a->heads + h) * a->lq;
      for (int64_t i = 0; i < a->lq * a->e; i++)
        e.o = worse(e.o, result_at(a->dtype, r->o, row * a->e + i), c.o[i], c.size[i] + least);
      for (int64_t i = 0; i < a->lq; i++)
        e.lse = worse(e.lse, result_at(lse_type, r->lse, row + i), c.lse[i], fmax(1, fabs(c.lse[i])));
      free(c.o), free(c.lse), free(c.size);
    }
  return e;
}

static errors run_and_compare(acase *a, uint64_t seed, double size, int order) {
  results r;
  acase_fill(a, seed, size);
  int status = acase_run(a, NULL, order, &r);
  if (status) fail_msg("status %d: %s", status, smx_last_error());
  errors e = compare(a, &r);
  results_free(&r);
  acase_free(a);
  return e;
}

/* ---- every kind of weights, with everything that can hide or shift a key ---- */

static void visibility(acase *a, int which) {
  smx_attention_options *o = &a->options;
  o->causal = which & 1;
  if (which & 2) o->window_left = 37, o->window_right = which & 1 ? -1 : 11;
  if (which & 4) a->with_mask = 1;
  if (which & 8) a->with_bias = 1;
  if (which & 16) a->with_slopes = 1;
  if (which & 32) o->softcap = 3;
  if (which & 64) o->query_start = 0;
  if (which & 128) o->dropout = 0.3, o->seed = 0x123456789abcdef0, o->stream = UINT64_MAX - 1;
}

static void values_are_those_of_the_reference(void **state) {
  static const int64_t shapes[][7] = {
      {1, 1, 1, 1, 1, 1, 1},      {2, 4, 2, 5, 70, 8, 5},      {1, 3, 1, 50, 200, 33, 17},
      {1, 2, 2, 7, 1100, 16, 24}, {2, 2, 1, 70, 64, 64, 64},   {1, 8, 1, 1, 2200, 24, 32},
      {1, 1, 1, 60, 20, 7, 130},  {1, 2, 1, 410, 130, 12, 16}, {1, 1, 1, 3, 90, 512, 512}};
  static const int ways[] = {0, 1, 128 + 2, 3, 4, 128 + 8, 16, 32, 255, 64 + 1, 4 + 8, 61};
  for (int w = 0; w < SMX_ATTENTION_KINDS; w++) {
    errors worst = {0, 0};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
      for (size_t v = (s + (size_t)w) % 3; v < COUNT_OF(ways); v += 3) {
        const int64_t *n = shapes[s];
        acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
        set_weights(&a, w);
        visibility(&a, ways[v]);
        a.with_sinks = (v & 1) && w <= SMX_ATTENTION_SSMAX && w != SMX_ATTENTION_SOFTMAX_N;
        errors e = run_and_compare(&a, s * 100 + v, 1, (int)(s + v) % ORDERS);
        worst.o = fmax(worst.o, e.o), worst.lse = fmax(worst.lse, e.lse);
      }
    printf("weights %2d: o within %.1f, lse within %.2f x 2^-24\n", w, worst.o, worst.lse);
    /* where weights vanish with the score, a rounding error of it shows in full in their
     * logarithm */
    int vanish = w == SMX_ATTENTION_SOFTPICK || w == SMX_ATTENTION_RELU || w == SMX_ATTENTION_IDENTITY;
    /* and where its error is multiplied by ln d ln n */
    vanish |= w == SMX_ATTENTION_LSSA || w == SMX_ATTENTION_LSSAR;
    assert_true(worst.o < (vanish ? 4000 : 400));
    assert_true(worst.lse < (vanish ? 20000 : 20));
  }
}

static void other_dtypes(void **state) {
  /* a half is rounded once more */
  static const double bound[FLOAT_DTYPES] = {64, 64 * 0x1p-29, 0x1p14, 0x1p17};
  for (int t = 0; t < FLOAT_DTYPES; t++)
    for (int w = 0; w < SMX_ATTENTION_KINDS; w += 2) {
      acase a = acase_new(1, 4, 2, 9, 1300, 40, 20);
      a.dtype = float_dtypes[t];
      set_weights(&a, w);
      a.options.causal = 1;
      errors e = run_and_compare(&a, (uint64_t)t, 1, t % ORDERS);
      printf("%s weights %d: o within %.3g, lse within %.3g x 2^-24\n", float_dtype_names[t], w, e.o, e.lse);
      assert_true(e.o < bound[t] * 8);
    }
}

/* Scores to and beyond +-2^19, where they are shifted. */
static void scores_of_any_size(void **state) {
  static const double sizes[] = {1e-20, 30, 3000, 1e6, 1e12, 1e30};
  for (size_t s = 0; s < COUNT_OF(sizes); s++) {
    acase a = acase_new(1, 1, 1, 20, 3000, 1, 3); /* d = 1: scores without rounding of a chain */
    a.options.scale = 1;
    errors e = run_and_compare(&a, s, sizes[s], ORDER_BHLD);
    printf("scores of size %g: o within %.3g, lse within %.3g x 2^-24\n", sizes[s], e.o, e.lse);
    assert_true(e.lse < 4);
    if (sizes[s] <= 30) assert_true(e.o < 64 * (1 + sizes[s]));
  }
}

/* ---- the logarithm of the normaliser ---- */

/* The largest error of lse in ULP of max(|lse|, 1), against long double from the scores that the
 * library formed: what rounding <q, k> cost is not the normaliser's. */
static double lse_error(acase *a) {
  const int64_t rows = a->batch * a->heads * a->lq, shape[] = {a->batch, a->heads, a->lq, a->lk};
  float *z = malloc((size_t)(rows * a->lk) * sizeof *z);
  double worst = 0;
  placed_case in;
  placed scores;
  results r;
  if (acase_run(a, NULL, ORDER_BHLD, &r)) fail_msg("%s", smx_last_error());
  acase_place(a, ORDER_BHLD, &in);
  place(&scores, 9, ORDER_BHLD, SMX_F32, 4, shape, NULL);
  if (smx_attention_scores(NULL, &in.options, SMX_ATTENTION_SCORES, &in.q.t, &in.k.t, &scores.t))
    fail_msg("%s", smx_last_error());
  fetch(&scores, z);
  for (int64_t i = 0; i < rows; i++) {
    const float *row = z + i * a->lk;
    long double top = -INFINITY, sum = 0;
    int up;
    for (int64_t j = 0; j < a->lk; j++) top = fmaxl(top, row[j]);
    for (int64_t j = 0; j < a->lk && top > -INFINITY; j++) sum += expl(row[j] - top);
    const double want = (double)(top + logl(sum)), got = result_at(SMX_F32, r.lse, i);
    frexp(fmax(fabs(want), 1), &up);
    if (want != got) worst = fmax(worst, fabs(got - want) / ldexp(1, up - 24));
  }
  free(z);
  results_free(&r);
  return worst;
}

static void lse_within_two_ulp(void **state) {
  static const int64_t shapes[][4] = {
      {40, 1, 8, 8}, {40, 7, 64, 8}, {30, 1000, 64, 8}, {5, 4100, 128, 16}, {3, 9000, 32, 8}};
  static const double sizes[] = {0.01, 1, 12, 1e4, 1e7};
  double all = 0;
  for (size_t s = 0; s < COUNT_OF(shapes); s++)
    for (size_t x = 0; x < COUNT_OF(sizes); x++) {
      acase a = acase_new(1, 2, 1, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3]);
      a.options.causal = (s + x) % 2, a.with_bias = (s + x) % 3 == 1;
      if (x == 1) a.options.softcap = 3;
      acase_fill(&a, s * 10 + x, sizes[x]);
      const double e = lse_error(&a);
      if (!(e <= 2)) fail_msg("%d keys, scores of size %g: lse off by %.2f ULP", (int)a.lk, sizes[x], e);
      all = fmax(all, e);
      acase_free(&a);
    }
  printf("lse within %.2f ULP of max(|lse|, 1)\n", all);
}

/* ---- known answers: the example that runs through the catalogue of operators ---- */

typedef struct answer {
  int weights;
  double param[SMX_ATTENTION_PARAMS], o[2], lse, scale;
} answer;

static void known_answers(void **state) {
  static const answer answers[] = {
      {SMX_ATTENTION_SOFTMAX, {0}, {0.657204095482, 0.511817832575}, 1.42417343007, 0},
      {SMX_ATTENTION_UNIFIED, {0, -40, 40}, {0.657204095482, 0.511817832575}, 1.42417343007, 0},
      {SMX_ATTENTION_UNIFIED, {10, -40, 40}, {0.657204095482, 0.511817832575}, 1.42417343007, 0},
      {SMX_ATTENTION_UNIFIED, {-50, -40, 40}, {0.657204095482, 0.511817832575}, 1.42417343007, 0},
      {SMX_ATTENTION_SOFTMAX_N, {1}, {0.529701141432, 0.412520999160}, NAN, 0},
      {SMX_ATTENTION_SOFTMAX_N, {3}, {0.381624580046, 0.297201838454}, NAN, 0},
      {SMX_ATTENTION_SSMAX, {0.43}, {0.654910990499, 0.592181523387}, NAN, 0},
      {SMX_ATTENTION_SIGMOID, {0}, {1.08228254849, 1.0}, NAN, 0},
      {SMX_ATTENTION_SIGMOID, {-1.09861228866811}, {0.593023422639, 0.511567383660}, NAN, 0},
      {SMX_ATTENTION_SOFTPICK, {0}, {0.58747900084, 0.242347424412}, NAN, 0},
      {SMX_ATTENTION_SELF_ADJUST, {0}, {0.285438645292, 0.061438378575}, NAN, 0},
      {SMX_ATTENTION_SELF_ADJUST_RANGE, {0}, {0.488182167425, 0.228530603012}, NAN, 0},
      {SMX_ATTENTION_RELU, {SMX_ATTENTION_NORM_COUNT}, {0.2357022604, 0.1178511302}, NAN, 0},
      {SMX_ATTENTION_RELU, {SMX_ATTENTION_NORM_L1}, {2.0 / 3, 1.0 / 3}, NAN, 0},
      {SMX_ATTENTION_ELU, {SMX_ATTENTION_NORM_L1, 1e-8}, {0.6402849238, 0.5463259528}, NAN, 0},
      {SMX_ATTENTION_IDENTITY, {SMX_ATTENTION_NORM_CLAMP}, {0.3535533906, 0}, NAN, 0},
      {SMX_ATTENTION_SOFTPLUS, {SMX_ATTENTION_NORM_L1}, {0.649364426213, 0.561267926077}, NAN, 0},
      {SMX_ATTENTION_TAYLOR, {SMX_ATTENTION_NORM_L1, 2}, {0.634876071695, 0.53950428678}, NAN, 0},
      {SMX_ATTENTION_TAYLOR, {SMX_ATTENTION_NORM_L1, 6}, {0.657188422484, 0.511840951003}, NAN, 0},
      {SMX_ATTENTION_CLIPPED,
       {-0.03, 1.03},
       {0.4874730975 + 0.1491632437, 0.3333636588 + 0.1491632437},
       1.42417343007,
       0},
      {SMX_ATTENTION_CENTRED, {1, 0, 1e-3}, {-0.266656521762, -1.06662608705}, NAN, 0},
      {SMX_ATTENTION_EXP, {SMX_ATTENTION_NORM_COUNT, 0, 5}, {0.910101161, 0.7087691736}, NAN, 0},
      {SMX_ATTENTION_CREDAL, {1}, {0.661171950825, 0.576749209233}, 1.967730697306, 0},
      {SMX_ATTENTION_SHAPED, {1, 1, 1}, {0.990537428815, 1 - 0.154848834092}, 1.42417343007, 0},
      {SMX_ATTENTION_LSSA,
       {SMX_ATTENTION_NORM_L1},
       {0.649364426213, 0.561267926077},
       NAN,
       0.9285709409217915},
      {SMX_ATTENTION_LSSAR, {3, 1, 0}, {0.995595630495, 0.00440436950486}, NAN, 0.9285709409217915},
  };
  for (size_t i = 0; i < COUNT_OF(answers); i++) {
    const answer *w = answers + i;
    double q[] = {1, 0.5}, k[] = {1, 0, 0, 1, -1, 1}, v[] = {1, 0, 0, 1, 1, 1}, o[2], lse;
    int64_t qs[] = {1, 1, 1, 2}, ks[] = {1, 1, 3, 2};
    smx_tensor tq = {.data = q, .ndim = 4, .dtype = SMX_F64, .shape = qs},
               tk = {.data = k, .ndim = 4, .dtype = SMX_F64, .shape = ks};
    smx_tensor tv = tk, to = tq, tl = {.data = &lse, .ndim = 3, .dtype = SMX_F64, .shape = qs};
    smx_attention_options options;
    smx_attention_init(&options);
    options.weights = (smx_attention_weights)w->weights;
    memcpy(options.param, w->param, sizeof options.param);
    options.scale = w->scale;
    tv.data = v, to.data = o;
    assert_int_equal(smx_attention(NULL, &options, &tq, &tk, &tv, &to, &tl), SMX_OK);
    int good = fabs(o[0] - w->o[0]) < 2e-10 && fabs(o[1] - w->o[1]) < 2e-10 &&
               (isnan(w->lse) || fabs(lse - w->lse) < 1e-11);
    if (!good) fail_msg("answer %d: %.12f %.12f, lse %.12f", (int)i, o[0], o[1], lse);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),      cmocka_unit_test(values_are_those_of_the_reference),
      cmocka_unit_test(other_dtypes),       cmocka_unit_test(scores_of_any_size),
      cmocka_unit_test(lse_within_two_ulp),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
