/* crf.c - proves random fields on a chain: the worked example of the catalogue of papers, sums over
 * all paths one by one, scores whose exponentials no double holds, 100000 tokens, more tags than a
 * tile has, gradients as marginals less counts, the same bits every way, and what is hidden, bad or
 * without a path. */
#include <stdlib.h>
#include <string.h>

#include "engine/ref.h"
#include "status.h"
#include "tensors.h"
#include "util.h"

extern tensor_ref_fn *const head_refs[];
enum { REF_LOSS = 2, REF_MARGINALS, REF_VITERBI }; /* in the order of the table */

/* Tensors: inputs of the three operators, upstream gradients, gradients, outputs. */
enum { E, A, TARGET, START, END, MASK, INPUTS };
enum { DLOSS = INPUTS, DLOG_Z, DE, DA, DSTART, DEND, LOSS, LOG_Z, Y, PAIRS, SCORE, PATH, ALL };

typedef struct field {
  int64_t b, l, k, shape[ALL][3];
  void *x[ALL];
  smx_tensor t[ALL];
} field;

static double *d(const field *f, int i) { return f->x[i]; }
static int64_t count_of(const field *f, int i) {
  int64_t n = 1;
  for (int k = 0; k < f->t[i].ndim; k++) n *= f->shape[i][k];
  return n;
}

static field make(int64_t b, int64_t l, int64_t k) {
  field f = {.b = b, .l = l, .k = k};
  const int64_t shapes[ALL][3] = {{b, l, k}, {k, k}, {b, l}, {k}, {k}, {b, l},    {b},       {b}, {b, l, k},
                                  {k, k},    {k},    {k},    {b}, {b}, {b, l, k}, {b, k, k}, {b}, {b, l}};
  static const int ndim[ALL] = {3, 2, 2, 1, 1, 2, 1, 1, 3, 2, 1, 1, 1, 1, 3, 3, 1, 2};
  memcpy(f.shape, shapes, sizeof shapes);
  for (int i = 0; i < ALL; i++) {
    const smx_dtype type = i == MASK ? SMX_U8 : i == TARGET || i == PATH ? SMX_I64 : SMX_F64;
    f.t[i].ndim = ndim[i];
    f.x[i] = calloc((size_t)count_of(&f, i) + 1, sizeof(double));
    f.t[i] = tensor(f.x[i], type, ndim[i], NULL);
  }
  memset(f.x[MASK], 1, (size_t)(b * l));
  for (int64_t i = 0; i < b; i++) d(&f, DLOSS)[i] = 1;
  return f;
}
static void drop(field *f) {
  for (int i = 0; i < ALL; i++) free(f->x[i]);
}

/* Scores of this deviation; one in `absent` is -inf. */
static void fill(field *f, rng *r, double deviation, int absent) {
  static const int all[] = {E, A, START, END};
  for (size_t i = 0; i < COUNT_OF(all); i++)
    for (int64_t n = 0; n < count_of(f, all[i]); n++)
      d(f, all[i])[n] = absent && rng_below(r, absent) == 0 ? -INFINITY : deviation * rng_normal(r);
  for (int64_t n = 0; n < f->b * f->l; n++) ((int64_t *)f->x[TARGET])[n] = rng_below(r, f->k);
}

static smx_status forward(field *f, smx_context *ctx, const char *name, int in, const int *inputs, int out,
                          const int *outputs) {
  const smx_op *op = smx_op_find(name);
  const smx_tensor *ins[INPUTS], *outs[3];
  smx_params p;
  good(smx_params_init(op, &p));
  for (int i = 0; i < ALL; i++) f->t[i].shape = f->shape[i];
  for (int i = 0; i < in; i++) ins[i] = f->t + inputs[i];
  for (int i = 0; i < out; i++) outs[i] = f->t + outputs[i];
  return smx_forward(op, ctx, &p, in, ins, out, outs);
}
static smx_status loss_of(field *f, smx_context *ctx) {
  return forward(f, ctx, "linear_chain_crf", 6, (int[]){E, A, TARGET, START, END, MASK}, 2,
                 (int[]){LOSS, LOG_Z});
}
static smx_status marginals_of(field *f, smx_context *ctx) {
  return forward(f, ctx, "crf_marginals", 5, (int[]){E, A, START, END, MASK}, 3, (int[]){Y, PAIRS, LOG_Z});
}
static smx_status best_of(field *f, smx_context *ctx) {
  return forward(f, ctx, "crf_viterbi", 5, (int[]){E, A, START, END, MASK}, 2, (int[]){PATH, SCORE});
}
static void gradients_of(field *f, smx_context *ctx) {
  const smx_op *op = smx_op_find("linear_chain_crf");
  const smx_tensor *in[INPUTS], *dout[] = {f->t + DLOSS, f->t + DLOG_Z},
                                *din[INPUTS] = {f->t + DE, f->t + DA, NULL, f->t + DSTART, f->t + DEND};
  smx_params p;
  good(smx_params_init(op, &p));
  for (int i = 0; i < INPUTS; i++) in[i] = f->t + i;
  good(smx_backward(op, ctx, &p, INPUTS, in, 2, NULL, dout, din));
}
static void run(field *f, smx_context *ctx) {
  good(loss_of(f, ctx)), good(marginals_of(f, ctx)), good(best_of(f, ctx));
  gradients_of(f, ctx);
}

/* ---- known answers ---- */

static void the_example(void **state) {
  static const double e[] = {1, .2, .3, .8, -.5, .4}, a[] = {.5, -.2, .1, .3}, start[] = {.1, -.1},
                      end[] = {0, .2}, y[] = {.6997496, .3002504, .4300486, .5699514, .2946475, .7053525},
                      da[] = {.5175619, -.3877636, .2071342, -.3369324};
  static const int64_t target[] = {0, 1, 1};
  field f = make(1, 3, 2);
  memcpy(f.x[E], e, sizeof e), memcpy(f.x[A], a, sizeof a), memcpy(f.x[START], start, sizeof start);
  memcpy(f.x[END], end, sizeof end), memcpy(f.x[TARGET], target, sizeof target);
  run(&f, NULL);
  near(f.x[LOG_Z], (double[]){3.877289662861327}, 1, 1e-14);
  near(f.x[LOSS], (double[]){1.2772896628613}, 1, 1e-12);
  near(f.x[SCORE], (double[]){2.6}, 1, 1e-15);
  near(f.x[Y], y, 6, 5e-8), near(f.x[DA], da, 4, 5e-8);
  assert_memory_equal(f.x[PATH], target, sizeof target);
  drop(&f);
}

/* The score of path number p, whose tags are its digits. */
static double path_score(const field *f, int64_t p, int64_t *tag) {
  double s = 0;
  for (int64_t t = 0; t < f->l; t++, p /= f->k) {
    tag[t] = p % f->k;
    s += d(f, E)[t * f->k + tag[t]] + (t ? d(f, A)[tag[t - 1] * f->k + tag[t]] : d(f, START)[tag[0]]);
  }
  return s + d(f, END)[tag[f->l - 1]];
}

static void all_paths(void **state) {
  rng r = {3};
  for (int round = 0; round < 20; round++) {
    field f = make(1, 5, 3);
    double z = 0, best = -INFINITY, y[15] = {0}, pairs[9] = {0};
    int64_t tag[5], found[5] = {-1, -1, -1, -1, -1};
    fill(&f, &r, 2, round % 2 ? 6 : 0);
    for (int64_t p = 0; p < 243; p++) {
      const double s = path_score(&f, p, tag), weight = exp(s);
      z += weight;
      for (int t = 0; t < 5; t++) y[t * 3 + tag[t]] += weight;
      for (int t = 1; t < 5; t++) pairs[tag[t - 1] * 3 + tag[t]] += weight;
      if (s > best) best = s, memcpy(found, tag, sizeof tag);
    }
    run(&f, NULL);
    if (z > 0) near(f.x[LOG_Z], (double[]){log(z)}, 1, 1e-13);
    for (int i = 0; i < 15; i++) y[i] /= z > 0 ? z : 1;
    for (int i = 0; i < 9; i++) pairs[i] /= z > 0 ? z : 1;
    near(f.x[Y], y, 15, 1e-14), near(f.x[PAIRS], pairs, 9, 1e-13);
    assert_memory_equal(f.x[PATH], found, sizeof found);
    drop(&f);
  }
}

/* The lowest last tag, and the lowest before each. */
static void ties(void **state) {
  field f = make(1, 4, 3);
  good(best_of(&f, NULL));
  for (int t = 0; t < 4; t++) assert_int_equal(((int64_t *)f.x[PATH])[t], 0);
  d(&f, E)[1 * 3 + 1] = d(&f, E)[1 * 3 + 2] = 1;
  good(best_of(&f, NULL));
  assert_int_equal(((int64_t *)f.x[PATH])[1], 1);
  drop(&f);
}

/* ---- against the reference ---- */

static void refer(const field *f, int which, int in, const int *inputs, double **out, const double *q) {
  const double *x[INPUTS];
  double *numbers[INPUTS] = {NULL};
  tensor_ref_call c = {.in = x, .out = out, .q = q};
  int64_t shape[INPUTS][8] = {{0}};
  for (int i = 0; i < in; i++) {
    const int64_t n = count_of(f, inputs[i]);
    numbers[i] = calloc((size_t)n + 1, sizeof(double));
    for (int64_t k = 0; k < n; k++)
      numbers[i][k] = inputs[i] == MASK     ? ((uint8_t *)f->x[MASK])[k]
                      : inputs[i] == TARGET ? (double)((int64_t *)f->x[TARGET])[k]
                                            : d(f, inputs[i])[k];
    memcpy(shape[i], f->shape[inputs[i]], sizeof f->shape[0]);
    x[i] = numbers[i], c.in_shape[i] = shape[i];
  }
  head_refs[which](&c);
  for (int i = 0; i < in; i++) free(numbers[i]);
}

static void same_numbers(const double *have, const double *want, int64_t n, double relative,
                         double absolute) {
  for (int64_t i = 0; i < n; i++)
    if (have[i] != want[i] && !(fabs(have[i] - want[i]) <= relative * fabs(want[i]) + absolute))
      fail_msg("number %d is %.17g, not %.17g", (int)i, have[i], want[i]);
}

/* All outputs, for each token within so much; gradients are marginals less what is there. */
static void expect_reference(field *f, double within) {
  double *loss = calloc((size_t)f->b, 8), *z = calloc((size_t)f->b, 8),
         *y = calloc((size_t)count_of(f, Y), 8), *pairs = calloc((size_t)count_of(f, PAIRS), 8),
         *de = calloc((size_t)count_of(f, Y), 8), *da = calloc((size_t)(f->k * f->k), 8),
         *path = calloc((size_t)(f->b * f->l), 8), *score = calloc((size_t)f->b, 8);
  run(f, NULL);
  refer(f, REF_LOSS, 6, (int[]){E, A, TARGET, START, END, MASK}, (double *[]){loss, z}, (double[]){-100});
  refer(f, REF_MARGINALS, 5, (int[]){E, A, START, END, MASK}, (double *[]){y, pairs, z}, NULL);
  refer(f, REF_VITERBI, 5, (int[]){E, A, START, END, MASK}, (double *[]){path, score}, NULL);
  const int64_t kk = f->k * f->k;
  for (int64_t s = 0; s < f->b; s++) {
    int64_t before = -1;
    if (z[s] == -INFINITY) continue;
    for (int64_t t = s * f->l; t < (s + 1) * f->l; t++) {
      const int64_t tag = ((int64_t *)f->x[TARGET])[t];
      if (!((uint8_t *)f->x[MASK])[t]) continue;
      for (int64_t j = 0; j < f->k; j++) de[t * f->k + j] = y[t * f->k + j] - (double)(j == tag);
      if (before >= 0) da[before * f->k + tag] -= 1;
      before = tag;
    }
    for (int64_t i = 0; i < kk; i++) da[i] += pairs[s * kk + i];
    assert_true(fabs(d(f, LOG_Z)[s] - z[s]) <= within * (double)f->l);
    assert_true(d(f, LOSS)[s] == loss[s] || fabs(d(f, LOSS)[s] - loss[s]) <= within * (double)f->l);
    assert_true(fabs(d(f, SCORE)[s] - score[s]) <= within * (double)f->l);
  }
  same_numbers(f->x[Y], y, count_of(f, Y), 100 * within, 0x1p-98);
  same_numbers(f->x[PAIRS], pairs, count_of(f, PAIRS), 100 * within, 0x1p-98);
  same_numbers(f->x[DE], de, count_of(f, Y), 100 * within, 1e-12);
  same_numbers(f->x[DA], da, kk, 100 * within, 1e-12 * (double)(f->b * f->l));
  for (int64_t t = 0; t < f->b * f->l; t++)
    if (z[t / f->l] > -INFINITY) assert_int_equal(((int64_t *)f->x[PATH])[t], (int64_t)path[t]);
  void *all[] = {loss, z, y, pairs, de, da, path, score};
  for (size_t i = 0; i < COUNT_OF(all); i++) free(all[i]);
}

/* Scores beyond the exponents of double, with paths that are all but lost until nothing else is
 * left. */
static void no_range_is_too_large(void **state) {
  rng r = {5};
  static const double deviations[] = {10, 100, 400, 3000, 1e5};
  for (size_t i = 0; i < COUNT_OF(deviations); i++)
    for (int absent = 0; absent < 6; absent += 5)
      for (int round = 0; round < 10; round++) {
        field f = make(2, 12, 5);
        fill(&f, &r, deviations[i], absent);
        for (int64_t t = 0; t < 24; t++) ((uint8_t *)f.x[MASK])[t] = rng_below(&r, 5) != 0;
        expect_reference(&f, 4e-16 * deviations[i]);
        drop(&f);
      }
}

/* What is far behind comes first where the rest is forbidden: with sums alone log Z would be
 * -inf. */
static void a_path_returns(void **state) {
  field f = make(1, 4, 2);
  d(&f, E)[1] = -900;
  d(&f, A)[0 * 2 + 1] = d(&f, A)[1 * 2 + 0] = -INFINITY;
  d(&f, END)[0] = -INFINITY;
  run(&f, NULL);
  near(f.x[LOG_Z], (double[]){-900}, 1, 1e-12);
  near(f.x[Y], (double[]){0, 1, 0, 1, 0, 1, 0, 1}, 8, 1e-15);
  near(f.x[PAIRS], (double[]){0, 0, 0, 3}, 4, 1e-14);
  drop(&f);
}

static void many_tags(void **state) {
  static const int64_t tags[] = {1, 8, 63, 64, 65, 130};
  rng r = {7};
  for (size_t i = 0; i < COUNT_OF(tags); i++) {
    field f = make(1, tags[i] < 100 ? 70 : 3, tags[i]);
    fill(&f, &r, 1.5, 0);
    expect_reference(&f, 2e-15);
    drop(&f);
  }
}

/* A = 0: every token by itself. */
static void long_sequences(void **state) {
  enum { LENGTH = 100000 };
  rng r = {9};
  field f = make(1, LENGTH, 3);
  fill(&f, &r, 3, 0);
  for (int i = 0; i < 9; i++) d(&f, A)[i] = 0;
  for (int i = 0; i < 3; i++) d(&f, START)[i] = d(&f, END)[i] = 0;
  long double z = 0;
  for (int64_t t = 0; t < LENGTH; t++) {
    long double sum = 0;
    for (int j = 0; j < 3; j++) sum += expl((long double)d(&f, E)[t * 3 + j]);
    z += logl(sum);
  }
  run(&f, NULL);
  near(f.x[LOG_Z], (double[]){(double)z}, 1, 4e-16 * (double)z);
  for (int64_t t = 0; t < LENGTH; t++) {
    const double *e = d(&f, E) + t * 3, *y = d(&f, Y) + t * 3;
    near(y, (double[]){1 / (1 + exp(e[1] - e[0]) + exp(e[2] - e[0]))}, 1, 1e-13);
    near((double[]){y[0] + y[1] + y[2]}, (double[]){1}, 1, 1e-12);
  }
  drop(&f);
}

/* ---- bits ---- */

static void every_way(void **state) {
  static const int outputs[] = {DE, DA, DSTART, DEND, LOSS, LOG_Z, Y, PAIRS, SCORE, PATH};
  rng r = {11};
  field f = make(70, 9, 11);
  fill(&f, &r, 60, 12);
  run(&f, NULL);
  field g = make(70, 9, 11);
  for (int i = 0; i < INPUTS; i++) memcpy(g.x[i], f.x[i], (size_t)count_of(&f, i) * (i == MASK ? 1 : 8));
  for (way w = {0}; next_way(&w);) {
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
      memset(g.x[outputs[i]], 0xff, (size_t)count_of(&f, outputs[i]) * 8);
    run(&g, w.ctx);
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
      assert_memory_equal(f.x[outputs[i]], g.x[outputs[i]], (size_t)count_of(&f, outputs[i]) * 8);
  }
  drop(&f), drop(&g);
}

/* ---- what is hidden, bad or not there ---- */

static void hidden_tokens_are_not_read(void **state) {
  rng r = {13};
  field f = make(1, 6, 3), g = make(1, 4, 3);
  static const int64_t kept[] = {1, 2, 4, 5};
  fill(&f, &r, 1, 0), fill(&g, &r, 1, 0);
  for (int i = 0; i < INPUTS; i++)
    if (i == A || i == START || i == END) memcpy(g.x[i], f.x[i], (size_t)count_of(&f, i) * 8);
  for (int t = 0; t < 6; t++) ((uint8_t *)f.x[MASK])[t] = 0;
  for (int t = 0; t < 4; t++) {
    ((uint8_t *)f.x[MASK])[kept[t]] = 1;
    memcpy(d(&g, E) + t * 3, d(&f, E) + kept[t] * 3, 24);
    ((int64_t *)g.x[TARGET])[t] = ((int64_t *)f.x[TARGET])[kept[t]];
  }
  for (int j = 0; j < 3; j++) d(&f, E)[j] = NAN, d(&f, E)[9 + j] = INFINITY;
  run(&f, NULL), run(&g, NULL);
  static const int same[] = {LOSS, LOG_Z, SCORE, DA, DSTART, DEND, PAIRS};
  for (size_t i = 0; i < COUNT_OF(same); i++)
    assert_memory_equal(f.x[same[i]], g.x[same[i]], (size_t)count_of(&f, same[i]) * 8);
  for (int j = 0; j < 3; j++) assert_true(d(&f, DE)[j] == 0 && d(&f, Y)[9 + j] == 0);
  assert_int_equal(((int64_t *)f.x[PATH])[3], -1);
  ((uint8_t *)f.x[MASK])[0] = 1, ((int64_t *)f.x[TARGET])[0] = -100; /* left out of the loss as well */
  const double loss = d(&f, LOSS)[0];
  good(loss_of(&f, NULL));
  assert_true(d(&f, LOSS)[0] == loss);
  drop(&f), drop(&g);
}

static void bad_numbers(void **state) {
  static const double bad[] = {NAN, INFINITY};
  static const int where[] = {E, A, START, END};
  for (int b = 0; b < 2; b++)
    for (size_t i = 0; i < COUNT_OF(where); i++) {
      rng r = {17};
      field f = make(2, 5, 3);
      fill(&f, &r, 1, 0);
      d(&f, where[i])[where[i] == E ? 7 : 1] = bad[b];
      run(&f, NULL);
      for (int s = 0; s < 2; s++) {
        const bool hurt = s == 0 || where[i] != E;
        assert_int_equal(isnan(d(&f, LOSS)[s]), hurt), assert_int_equal(isnan(d(&f, LOG_Z)[s]), hurt);
        assert_int_equal(isnan(d(&f, SCORE)[s]), hurt);
        for (int k = 0; k < 15; k++) {
          assert_int_equal(isnan(d(&f, Y)[s * 15 + k]), hurt);
          assert_int_equal(isnan(d(&f, DE)[s * 15 + k]), hurt);
        }
        for (int t = 0; t < 5; t++) assert_int_equal(((int64_t *)f.x[PATH])[s * 5 + t] == -1, hurt);
      }
      for (int k = 0; k < 9; k++) assert_true(isnan(d(&f, DA)[k]));
      drop(&f);
    }
}

static void no_path(void **state) {
  smx_context *ctx[3];
  for (int i = 0; i < 3; i++) {
    smx_context_options o = {.size = sizeof o,
                             .threads = 1,
                             .on_empty = i == 0   ? SMX_EMPTY_ZERO
                                         : i == 1 ? SMX_EMPTY_NAN
                                                  : SMX_EMPTY_ERROR};
    good(smx_context_create(&o, ctx + i));
  }
  rng r = {19};
  field f = make(3, 4, 2);
  fill(&f, &r, 1, 0);
  memset((uint8_t *)f.x[MASK] + 8, 0, 4); /* no tokens */
  for (int j = 0; j < 2; j++) d(&f, E)[8 + 2 + j] = -INFINITY;
  for (int i = 0; i < 2; i++) {
    run(&f, ctx[i]);
    assert_true(d(&f, LOG_Z)[1] == -INFINITY && d(&f, SCORE)[1] == -INFINITY);
    assert_true(i ? isnan(d(&f, LOSS)[1]) && isnan(d(&f, Y)[8]) : d(&f, LOSS)[1] == 0 && d(&f, Y)[8] == 0);
    assert_true(d(&f, DE)[8] == 0 && ((int64_t *)f.x[PATH])[4] == -1 && d(&f, LOSS)[0] > 0);
    assert_true(d(&f, LOSS)[2] == 0 && d(&f, LOG_Z)[2] == 0 && d(&f, SCORE)[2] == 0);
  }
  const double kept = d(&f, LOSS)[0] = d(&f, Y)[0] = d(&f, SCORE)[0] = 77;
  refused(loss_of(&f, ctx[2]), SMX_ERR_EMPTY, "sequence 1 has no path");
  refused(marginals_of(&f, ctx[2]), SMX_ERR_EMPTY, "sequence 1 has no path");
  refused(best_of(&f, ctx[2]), SMX_ERR_EMPTY, "sequence 1 has no path");
  assert_true(d(&f, LOSS)[0] == kept && d(&f, Y)[0] == kept && d(&f, SCORE)[0] == kept);
  for (int i = 0; i < 3; i++) smx_context_destroy(ctx[i]);
  drop(&f);
}

/* Tags of which the path is impossible, though others are not. */
static void an_impossible_target(void **state) {
  field f = make(1, 3, 2);
  d(&f, A)[1] = -INFINITY;
  ((int64_t *)f.x[TARGET])[1] = 1;
  run(&f, NULL);
  assert_true(d(&f, LOSS)[0] == INFINITY && isfinite(d(&f, LOG_Z)[0]));
  for (int i = 0; i < 6; i++) assert_true(isfinite(d(&f, DE)[i]));
  assert_true(d(&f, DA)[1] == -1);
  drop(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_example),
      cmocka_unit_test(all_paths),
      cmocka_unit_test(ties),
      cmocka_unit_test(no_range_is_too_large),
      cmocka_unit_test(a_path_returns),
      cmocka_unit_test(many_tags),
      cmocka_unit_test(long_sequences),
      cmocka_unit_test(every_way),
      cmocka_unit_test(hidden_tokens_are_not_read),
      cmocka_unit_test(bad_numbers),
      cmocka_unit_test(no_path),
      cmocka_unit_test(an_impossible_target),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
