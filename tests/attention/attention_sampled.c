/* attention_sampled.c - proves attention to sampled keys, through landmarks and with numbers of
 * each head on the worked examples of the catalogue, against attention where both are the same, and
 * by means over seeds. */
#include <stdio.h>
#include <string.h>

#include "op_call.h"

enum { L = 3, T = 40, D = 4, E = 2, SEEDS = 400 };
static double q[L * D], k[T * D], v[T * E], y[L * E], lse[L];
static int64_t count[L];

static void normals(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_normal(r);
}
static void fill(uint64_t seed) {
  rng r = {seed};
  normals(&r, q, L * D), normals(&r, k, T * D), normals(&r, v, T * E);
}

/* Softmax attention with the scale 1 / 2, and the sums of its weights before they are divided. */
static void attend(double *to, double *sums) {
  for (int i = 0; i < L; i++) {
    sums[i] = 0, memset(to + i * E, 0, E * sizeof *to);
    for (int j = 0; j < T; j++) {
      double s = 0;
      for (int x = 0; x < D; x++) s += q[i * D + x] * k[j * D + x] / 2;
      sums[i] += exp(s);
      for (int x = 0; x < E; x++) to[i * E + x] += exp(s) * v[j * E + x];
    }
    for (int x = 0; x < E; x++) to[i * E + x] /= sums[i];
  }
}

/* ---- codes ---- */

/* Bits by the sides of given planes; of -0 and on a plane 0; 00, 01, 11, 10 stand in this order. */
static void sides_of_planes(void **state) {
  double x[] = {1, 2, -1, 3, 0, -1, -1, -1}, planes[] = {1, 0, 0, 1}, bad[] = {NAN, 1};
  int64_t code[4], none;
  op_call c = {.op = "lsh_codes",
               .in = {REALS(x, 4, 2), REALS(planes, 2, 2)},
               .out = {WHOLE(code, 4, 1)},
               .setting = {{"bits", "2"}, {"tables", "1"}, {"order", "binary"}}};
  good(call(&c));
  assert_memory_equal(code, ((int64_t[]){3, 2, 0, 0}), sizeof code);
  c.setting[2][1] = "gray";
  good(call(&c));
  assert_memory_equal(code, ((int64_t[]){2, 3, 0, 0}), sizeof code);
  c.setting[1][1] = "2";
  refused(call(&c), SMX_ERR_PARAM, "there are 2 planes, but 2 tables of 2 bits");
  op_call n = {.op = "lsh_codes",
               .in = {REALS(bad, 1, 2)},
               .out = {WHOLE(&none, 1, 1)},
               .setting = {{"bits", "2"}, {"tables", "1"}}};
  good(call(&n));
  assert_int_equal(none, -1);
}

/* Of vectors at 60 degrees two of three bits agree: 2/3 of 6000, give or take 5 deviations. */
static void near_vectors_agree(void **state) {
  static int64_t code[2 * 6000];
  double x[] = {1, 0, .5, .8660254037844386};
  int same = 0;
  op_call c = {.op = "lsh_codes",
               .in = {REALS(x, 2, 2)},
               .out = {WHOLE(code, 2, 6000)},
               .setting = {{"bits", "1"}, {"tables", "6000"}}};
  good(call(&c));
  for (int i = 0; i < 6000; i++) same += code[i] == code[6000 + i];
  assert_true(same > 4000 - 183 && same < 4000 + 183);
}

/* ---- magicpig ---- */

/* log u is what the lse of a single sampled key is below its score. */
static void how_likely_a_key_is(void **state) {
  static const double cosines[] = {0, .5, .9}, u[] = {.00968367280640, .735550888817, 1};
  for (int i = 0; i < 3; i++) {
    double x[] = {1, 0}, key[] = {cosines[i], sqrt(1 - cosines[i] * cosines[i])}, value = 7, out, sum;
    int64_t seen = 0;
    char seed[8];
    op_call c = {.op = "magicpig_attention",
                 .in = {REALS(x, 1, 2), REALS(key, 1, 2), REALS(&value, 1, 1)},
                 .out = {REALS(&out, 1, 1), REALS(&sum, 1), WHOLE(&seen, 1)},
                 .setting = {{"first", "0"}, {"last", "0"}, {"centre", "no"}, {"seed", seed}}};
    for (int s = 0; s < 1000 && seen == 0; s++) {
      snprintf(seed, sizeof seed, "%d", s);
      good(call(&c));
      if (seen == 0) assert_true(out == 0 && sum == -INFINITY);
    }
    assert_int_equal(seen, 1);
    near(&out, &value, 1, 0);
    near((double[]){exp(cosines[i] / sqrt(2) - sum)}, u + i, 1, 1e-12);
  }
}

/* Zeros have the codes of zeros for certain. */
static void vectors_of_zeros(void **state) {
  double zero[] = {0, 0}, key[] = {0, 0}, value = 1, out, sum;
  op_call c = {.op = "magicpig_attention",
               .in = {REALS(zero, 1, 2), REALS(key, 1, 2), REALS(&value, 1, 1)},
               .out = {REALS(&out, 1, 1), REALS(&sum, 1), WHOLE(count, 1)},
               .setting = {{"first", "0"}, {"last", "0"}, {"centre", "no"}}};
  good(call(&c));
  assert_true(out == 1 && sum == 0 && count[0] == 1);
}

/* Means over seeds of numerators and denominators, within a few deviations of theirs. */
static void means_over_seeds(const char *op, const char *const setting[3][2], bool counts) {
  double want[L * E], sums[L], top[L * E] = {0}, bottom[L] = {0};
  char seed[8];
  op_call c = {.op = op,
               .in = {REALS(q, L, D), REALS(k, T, D), REALS(v, T, E)},
               .out = {REALS(y, L, E), REALS(lse, L)},
               .setting = {{"seed", seed}}};
  if (counts) c.out[2] = (port)WHOLE(count, L);
  for (int i = 0; i < 3; i++) c.setting[i + 1][0] = setting[i][0], c.setting[i + 1][1] = setting[i][1];
  fill(5), attend(want, sums);
  for (int s = 0; s < SEEDS; s++) {
    snprintf(seed, sizeof seed, "%d", s);
    good(call(&c));
    for (int i = 0; i < L; i++) {
      bottom[i] += exp(lse[i]) / SEEDS / sums[i];
      for (int x = 0; x < E; x++) top[i * E + x] += exp(lse[i]) * y[i * E + x] / SEEDS / sums[i];
    }
  }
  near(bottom, (double[]){1, 1, 1}, L, .1), near(top, want, L * E, .1);
}
static void estimates_are_right_on_average(void **state) {
  static const char *const pig[3][2] = {{"bits", "2"}, {"tables", "8"}, {"last", "0"}},
                           *const kde[3][2] = {{"bits", "4"}, {"block_keys", "8"}, {"samples", "40"}};
  means_over_seeds("magicpig_attention", pig, true), means_over_seeds("kde_attention", kde, false);
}

/* With every key for certain, or in one block. */
static void all_keys(void **state) {
  double want[L * E], sums[L];
  op_call pig = {.op = "magicpig_attention",
                 .in = {REALS(q, L, D), REALS(k, T, D), REALS(v, T, E)},
                 .out = {REALS(y, L, E), REALS(lse, L), WHOLE(count, L)},
                 .setting = {{"last", "100"}}};
  op_call kde = {.op = "kde_attention",
                 .in = {REALS(q, L, D), REALS(k, T, D), REALS(v, T, E)},
                 .out = {REALS(y, L, E), REALS(lse, L)},
                 .setting = {{"block_keys", "40"}, {"samples", "9"}}};
  fill(2), attend(want, sums);
  good(call(&pig));
  near(y, want, L * E, 1e-14);
  for (int i = 0; i < L; i++)
    assert_int_equal(count[i], T), near(lse + i, (double[]){log(sums[i])}, 1, 1e-13);
  good(call(&kde));
  near(y, want, L * E, 1e-14);
  for (int i = 0; i < L; i++) near(lse + i, (double[]){log(sums[i])}, 1, 1e-13);
}

/* A hidden key is not read, and moves no mean; a NaN that is seen shows. */
static void keys_that_nobody_sees(void **state) {
  unsigned char mask[L * T];
  double other[L * E];
  op_call c = {.op = "magicpig_attention",
               .in = {REALS(q, L, D), REALS(k, T, D), REALS(v, T, E), BYTES(mask, L, T)},
               .out = {REALS(y, L, E), REALS(lse, L), WHOLE(count, L)},
               .setting = {{"bits", "2"}, {"tables", "9"}, {"last", "1"}}};
  fill(3);
  for (int i = 0; i < L * T; i++) mask[i] = i % T != 7 && !(i / T == 1 && i % T == 9);
  good(call(&c));
  memcpy(other, y, sizeof y);
  k[7 * D] = NAN, v[7 * E] = INFINITY;
  good(call(&c));
  assert_memory_equal(y, other, sizeof y);
  for (int i = 0; i < L * T; i++) mask[i] = 1;
  good(call(&c));
  for (int i = 0; i < L * E; i++) assert_true(isnan(y[i]));
  for (int i = 0; i < T; i++) mask[i] = 0;
  k[7 * D] = 0;
  good(call(&c));
  assert_true(y[0] == 0 && lse[0] == -INFINITY && count[0] == 0);
  smx_context_options on = {.size = sizeof on, .on_empty = SMX_EMPTY_ERROR};
  good(smx_context_create(&on, &c.ctx));
  y[0] = 5;
  refused(call(&c), SMX_ERR_EMPTY, "query 0 has no keys");
  assert_true(y[0] == 5);
  smx_context_destroy(c.ctx);
  c.ctx = NULL, c.setting[3][0] = "least", c.setting[3][1] = "10";
  refused(call(&c), SMX_ERR_PARAM, "least is 10, but there are 9 tables");
}

/* ---- landmarks ---- */

/* Two tokens and one landmark: A = 1 and its inverse too, so that y is one softmax of v, of the
 * mean query; all tokens as landmarks: attention. */
static void means_of_segments(void **state) {
  double two[] = {1, 0, 0, 1}, value[] = {4, 8}, out[2], want[L * E], sums[L], g[] = {1, 1}, dq[4], dk[4],
         dv[2];
  op_call c = {.op = "nystrom_attention",
               .in = {REALS(two, 2, 2), REALS(two, 2, 2), REALS(value, 2, 1)},
               .out = {REALS(out, 2, 1)},
               .dout = {g},
               .din = {dq, dk, dv},
               .setting = {{"landmarks", "1"}}};
  good(call(&c));
  near(out, (double[]){6, 6}, 2, 1e-15);
  near(dv, (double[]){1, 1}, 2, 1e-15);
  fill(4);
  op_call all = {.op = "nystrom_attention",
                 .in = {REALS(k, T, D), REALS(k, T, D), REALS(v, T, E)},
                 .out = {REALS((double[T *E]){0}, T, E)}};
  good(call(&all));
  memcpy(q, k, sizeof q), attend(want, sums);
  near(all.out[0].data, want, L * E, 1e-14);
}

/* ---- numbers of heads ---- */

/* E1 of the catalogue with alpha 1.5 and 2 in two heads, and with gamma 1, beta 0: scores are those
 * of the scale 1 / sqrt(2), and 1. */
static void numbers_of_heads(void **state) {
  double qs[] = {1, .5, 1, .5}, ks[] = {1, 0, 0, 1, -1, 1, 1, 0, 0, 1, -1, 1},
         vs[] = {1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1}, alpha[] = {1.5, 2}, out[4], w[6], g[] = {1, -2, 1, -2},
         dbias[6], bias[6] = {0}, gamma[] = {1, 2}, beta[] = {0, .5};
  op_call c = {.op = "entmax_attention",
               .in = {REALS(qs, 2, 1, 2),
                      REALS(ks, 2, 3, 2),
                      REALS(vs, 2, 3, 2),
                      REALS(alpha, 2),
                      {0},
                      REALS(bias, 2, 1, 3)},
               .out = {REALS(out, 2, 1, 2), REALS(w, 2, 1, 3)},
               .dout = {g},
               .din = {[5] = dbias}};
  good(call(&c));
  near(w, (double[]){.591816253837, .351079063459, .0571046827036, .676776695297, .323223304703, 0}, 6,
       1e-11);
  near(out, (double[]){.648920936541, .408183746163}, 2, 1e-11);
  near(dbias, (double[]){1.08393268545, -.94270221415, -.141230471299, 1.5, -1.5, 0}, 6, 1e-10);
  op_call n = {
      .op = "nap_attention",
      .in = {REALS(qs, 2, 1, 2), REALS(ks, 2, 3, 2), REALS(vs, 2, 3, 2), REALS(gamma, 2), REALS(beta, 2)},
      .out = {REALS(out, 2, 1, 2), REALS(w, 2, 1, 3)},
      .setting = {{"scale", "0"}}};
  static const double own[] = {1.06662608705, .266656521762, -1.33328260881};
  good(call(&n));
  for (int i = 0; i < 6; i++) near(w + i, (double[]){i < 3 ? own[i] : 2 * own[i - 3] + .5}, 1, 1e-10);
  near(out, (double[]){-.266656521762, -1.06662608705}, 2, 1e-10);
  double one[] = {1, 1}, gain[] = {1, 0}, mean[] = {1, 0}, dgain[2], dmean[2], didentity[2];
  op_call shaped = {.op = "shaped_attention",
                    .in = {REALS(qs, 2, 1, 2), REALS(ks, 2, 3, 2), REALS(vs, 2, 3, 2), REALS(one, 2),
                           REALS(gain, 2), REALS(mean, 2)},
                    .out = {REALS(out, 2, 1, 2), REALS(w, 2, 1, 3)},
                    .dout = {g},
                    .din = {[3] = didentity, [4] = dgain, [5] = dmean}};
  good(call(&shaped)); /* the second head: the value where the query stands */
  near(out, (double[]){.990537428815, 1 - .154848834092, 1, 1}, 4, 1e-11);
  const double along = .657204095482 - 2 * .511817832575; /* softmax attention along g */
  near(dgain, (double[]){along, along}, 2, 1e-11);
  near(dmean, (double[]){2. / 3, 2. / 3}, 2, 1e-12), near(didentity, (double[]){-1, -1}, 2, 1e-15);
}

/* What no query can see: zeros, NaN, an error, as elsewhere. */
static void no_keys_at_all(void **state) {
  static const char *const ops[] = {"sinkhorn_attention", "multi_token_attention", "entmax_attention",
                                    "nystrom_attention",  "kde_attention",         "magicpig_attention"};
  static const smx_on_empty rules[] = {SMX_EMPTY_ZERO, SMX_EMPTY_NAN, SMX_EMPTY_ERROR};
  double one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, out[4];
  for (size_t i = 0; i < COUNT_OF(ops) * COUNT_OF(rules); i++) {
    const smx_on_empty rule = rules[i % COUNT_OF(rules)];
    const char *op = ops[i / COUNT_OF(rules)];
    op_call c = {.op = op,
                 .in = {REALS(one, 1, 2, 2), REALS(one, 1, 0, 2), REALS(one, 1, 0, 1)},
                 .out = {REALS(out, 1, 2, 1)}};
    if (!strcmp(op, "multi_token_attention")) c.in[3] = (port)REALS(one, 1, 1, 1);
    if (!strcmp(op, "entmax_attention")) c.in[3] = (port)REALS(one, 1);
    if (!strcmp(op, "magicpig_attention")) c.out[2] = (port)WHOLE(count, 1, 2);
    if (strchr("km", op[0]) && !strcmp(op + strlen(op) - 10, "_attention") && op[1] != 'u')
      c.out[1] = (port)REALS(lse, 1, 2);
    smx_context_options on = {.size = sizeof on, .on_empty = rule};
    good(smx_context_create(&on, &c.ctx));
    out[0] = out[1] = 5;
    if (rule == SMX_EMPTY_ERROR) refused(call(&c), SMX_ERR_EMPTY, "query 0 has no keys");
    else good(call(&c));
    const double want = rule == SMX_EMPTY_ZERO ? 0 : rule == SMX_EMPTY_NAN ? NAN : 5;
    for (int x = 0; x < 2; x++) assert_true(out[x] == want || (isnan(want) && isnan(out[x])));
    smx_context_destroy(c.ctx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sides_of_planes),
      cmocka_unit_test(near_vectors_agree),
      cmocka_unit_test(how_likely_a_key_is),
      cmocka_unit_test(vectors_of_zeros),
      cmocka_unit_test(estimates_are_right_on_average),
      cmocka_unit_test(all_keys),
      cmocka_unit_test(keys_that_nobody_sees),
      cmocka_unit_test(means_of_segments),
      cmocka_unit_test(numbers_of_heads),
      cmocka_unit_test(no_keys_at_all),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
