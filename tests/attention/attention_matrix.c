/* attention_matrix.c - proves the matrices of attention: every stage of the scores, the weights of
 * every kind, and values weighted by a matrix that the caller has; that their bits depend on
 * neither instruction set, threads nor the order of the axes; and bad input. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

static acase new_case(int which, int weights) {
  static const int64_t shapes[][7] = {
      {1, 1, 1, 1, 1, 1, 1}, {2, 4, 2, 5, 70, 8, 5}, {1, 2, 1, 60, 200, 33, 17}, {1, 2, 2, 7, 1100, 16, 24}};
  const int64_t *n = shapes[which % 4];
  static const double params[][SMX_ATTENTION_PARAMS] = {[SMX_ATTENTION_SOFTMAX_N] = {1.5},
                                                        [SMX_ATTENTION_SSMAX] = {0.43, 0.1},
                                                        [SMX_ATTENTION_TAYLOR] = {SMX_ATTENTION_NORM_L1, 5},
                                                        [SMX_ATTENTION_CLIPPED] = {-0.03, 1.03},
                                                        [SMX_ATTENTION_CENTRED] = {1.5, 0.25, 1e-3},
                                                        [SMX_ATTENTION_CREDAL] = {1},
                                                        [SMX_ATTENTION_SHAPED] = {1, 0.75, 0.5},
                                                        [SMX_ATTENTION_LSSAR] = {3, 1, 3},
                                                        [SMX_ATTENTION_UNIFIED] = {0.5, -2, 2}};
  acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
  acase_weights(&a, weights, COUNT_OF(params), params);
  a.options.causal = which & 1;
  if (which & 2) a.options.window_left = 37;
  a.with_mask = which % 3 == 1, a.with_bias = which % 3 == 2, a.with_slopes = which % 5 == 3;
  if (which % 4 == 3) a.options.softcap = 3;
  return a;
}

static unsigned char *matrix(const acase *a, smx_context *ctx, int order, smx_attention_stage stage,
                             size_t *bytes) {
  const int64_t s[] = {a->batch, a->heads, a->lq, a->lk};
  placed_case in;
  placed out;
  acase_place(a, order, &in);
  place(&out, 3, order, a->dtype, 4, s, NULL);
  int status = smx_attention_scores(ctx, &in.options, stage, &in.q.t, &in.k.t, &out.t);
  if (status) fail_msg("status %d: %s", status, smx_last_error());
  *bytes = (size_t)(s[0] * s[1] * s[2] * s[3]) * dtype_size(a->dtype);
  unsigned char *m = malloc(*bytes + 1);
  fetch(&out, m);
  return m;
}

static unsigned char *apply(const acase *a, smx_context *ctx, int order, const double *w, size_t *bytes) {
  const int64_t s[] = {a->batch, a->heads, a->lq, a->lk}, o[] = {a->batch, a->heads, a->lq, a->e};
  placed_case in;
  placed pw, out;
  acase_place(a, order, &in);
  place(&pw, 9, order, a->dtype, 4, s, w);
  place(&out, 3, order, a->dtype, 4, o, NULL);
  int status = smx_attention_apply(ctx, &in.options, &pw.t, &in.v.t, &out.t);
  if (status) fail_msg("status %d: %s", status, smx_last_error());
  *bytes = (size_t)(o[0] * o[1] * o[2] * o[3]) * dtype_size(a->dtype);
  unsigned char *m = malloc(*bytes + 1);
  fetch(&out, m);
  return m;
}

/* ---- values ---- */

static int hidden(const acase *a, int64_t row, int64_t i, int64_t j) {
  const smx_attention_options *o = &a->options;
  int64_t at = i + acase_offset(a);
  if (o->causal && j > at) return 1;
  if (o->window_left >= 0 && j < at - o->window_left) return 1;
  return (a->mask && a->mask[row * a->lk + j] == 0) || (a->bias && a->bias[row * a->lk + j] == -INFINITY);
}

/* The score of a pair at a stage, in double. */
static double score(const acase *a, smx_attention_stage stage, int64_t b, int64_t h, int64_t i, int64_t j) {
  int64_t head = b * a->heads + h, row = head * a->lq + i,
          kv = b * a->kv_heads + h / (a->heads / a->kv_heads);
  double z = 0;
  for (int64_t x = 0; x < a->d; x++) z += a->q[row * a->d + x] * a->k[(kv * a->lk + j) * a->d + x];
  z /= sqrt((double)a->d);
  if (stage >= SMX_ATTENTION_CAPPED && a->options.softcap > 0)
    z = a->options.softcap * tanh(z / a->options.softcap);
  if (stage < SMX_ATTENTION_SCORES) return z;
  if (hidden(a, row, i, j)) return -INFINITY;
  if (a->bias) z += a->bias[row * a->lk + j];
  return a->slopes ? z - a->slopes[head] * fabs((double)(i + acase_offset(a) - j)) : z;
}

static void scores_of_every_stage(void **state) {
  double worst = 0;
  for (int which = 0; which < 24; which++) {
    acase a = new_case(which, SMX_ATTENTION_SOFTMAX);
    smx_attention_stage stage = (smx_attention_stage)(which / 8);
    size_t bytes;
    acase_fill(&a, (uint64_t)which, 1);
    unsigned char *m = matrix(&a, NULL, which % ORDERS, stage, &bytes);
    for (int64_t at = 0; at < a.batch * a.heads * a.lq * a.lk; at++) {
      int64_t row = at / a.lk, head = row / a.lq;
      double got = result_at(a.dtype, m, at),
             want = score(&a, stage, head / a.heads, head % a.heads, row % a.lq, at % a.lk);
      double error = got == want ? 0 : fabs(got - want) / (1 + fabs(want));
      if (!(error < 1e-5)) fail_msg("case %d, element %d: %g, not %g", which, (int)at, got, want);
      worst = fmax(worst, error);
    }
    free(m);
    acase_free(&a);
  }
  printf("worst error %.2g\n", worst);
}

/* o is w v, and what is hidden has weight 0: values that differ from key to key show each
 * weight. */
static void weights_make_the_output(void **state) {
  for (int kind = 0; kind < SMX_ATTENTION_KINDS; kind++)
    for (int which = kind % 3; which < 12; which += 3) {
      acase a = new_case(which, kind);
      results r;
      size_t bytes;
      a.dtype = SMX_F64;
      a.with_sinks = which & 1 && (kind == SMX_ATTENTION_SOFTMAX || kind == SMX_ATTENTION_SELF_ADJUST);
      acase_fill(&a, (uint64_t)which, 1);
      if (acase_run(&a, NULL, which % ORDERS, &r)) fail_msg("%s", smx_last_error());
      double *w = (double *)(void *)matrix(&a, NULL, which % ORDERS, SMX_ATTENTION_WEIGHTS, &bytes);
      double *o = (double *)(void *)apply(&a, NULL, which % ORDERS, w, &bytes);
      for (int64_t at = 0; at < a.batch * a.heads * a.lq * a.lk; at++)
        if (hidden(&a, at / a.lk, at / a.lk % a.lq, at % a.lk)) assert_true(w[at] == 0);
      for (int64_t at = 0; at < a.batch * a.heads * a.lq * a.e; at++) {
        double want = result_at(SMX_F64, r.o, at);
        if (!(fabs(o[at] - want) < 1e-11 * (1 + fabs(want))))
          fail_msg("weights %d, case %d: %g, not %g", kind, which, o[at], want);
      }
      free(w), free(o);
      results_free(&r);
      acase_free(&a);
    }
}

/* The mass of a key is the sum of its column of weights, those of the heads that share it
 * together. */
static void mass_is_the_sum_of_weights(void **state) {
  for (int which = 0; which < 12; which++) {
    acase a = new_case(which, which % 2 ? SMX_ATTENTION_SIGMOID : SMX_ATTENTION_SOFTMAX);
    const int64_t rows[] = {a.batch, a.heads, a.lq}, keys[] = {a.batch, a.kv_heads, a.lk},
                  o[] = {a.batch, a.heads, a.lq, a.e};
    const int64_t groups = a.heads / a.kv_heads, all = a.batch * a.heads * a.lq;
    placed_case in;
    placed po, lse, weights, mass;
    size_t bytes;
    a.dtype = SMX_F64;
    acase_fill(&a, (uint64_t)which, 1);
    double *w = (double *)(void *)matrix(&a, NULL, ORDER_BHLD, SMX_ATTENTION_WEIGHTS, &bytes),
           *own = malloc((size_t)all * sizeof *own);
    for (int64_t i = 0; i < all; i++) own[i] = which % 3 ? cos((double)i) : 1;
    acase_place(&a, which % ORDERS, &in);
    place(&po, 3, ORDER_BHLD, SMX_F64, 4, o, NULL), place(&lse, 4, which % ORDERS, SMX_F64, 3, rows, NULL);
    place(&weights, 9, which % ORDERS, SMX_F64, 3, rows, own),
        place(&mass, 10, which % ORDERS, SMX_F64, 3, keys, NULL);
    assert_int_equal(smx_attention(NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, &po.t, &lse.t), SMX_OK);
    int status = smx_attention_column_mass(NULL, &in.options, &in.q.t, &in.k.t, &lse.t,
                                           which % 3 ? &weights.t : NULL, &mass.t);
    if (status) fail_msg("%s", smx_last_error());
    double *got = malloc((size_t)(keys[0] * keys[1] * keys[2]) * sizeof *got);
    fetch(&mass, got);
    for (int64_t at = 0; at < keys[0] * keys[1] * a.lk; at++) {
      double want = 0;
      for (int64_t r = at / a.lk * groups * a.lq; r < (at / a.lk + 1) * groups * a.lq; r++)
        want += own[r] * w[r * a.lk + at % a.lk];
      if (!(fabs(got[at] - want) < 1e-12 * (1 + fabs(want))))
        fail_msg("case %d, key %d: %g, not %g", which, (int)at, got[at], want);
    }
    free(w), free(own), free(got);
    acase_free(&a);
  }
}

/* ---- bits ---- */

static void bits_do_not_depend_on_how(void **state) {
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int which = 0; which < 16; which++) {
    acase a = new_case(which, which % SMX_ATTENTION_KINDS);
    smx_attention_stage stage = which % 3 ? SMX_ATTENTION_WEIGHTS : SMX_ATTENTION_SCORES;
    size_t bytes, o_bytes;
    a.dtype = float_dtypes[which % FLOAT_DTYPES];
    acase_fill(&a, (uint64_t)which, 1);
    int64_t elements = a.batch * a.heads * a.lq * a.lk;
    double *w = malloc((size_t)elements * sizeof *w);
    for (int64_t i = 0; i < elements; i++) w[i] = dtype_round(a.dtype, sin((double)i));
    unsigned char *m = matrix(&a, NULL, ORDER_BHLD, stage, &bytes),
                  *o = apply(&a, NULL, ORDER_BHLD, w, &o_bytes);
    for (int i = 0; i < smx_isa_count() + 2; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      unsigned char *n = matrix(&a, i % 2 ? seven : NULL, i % ORDERS, stage, &bytes),
                    *p = apply(&a, i % 2 ? seven : NULL, i % ORDERS, w, &o_bytes);
      smx_isa_set(fastest);
      if (memcmp(m, n, bytes)) fail_msg("case %d, way %d: scores differ", which, i);
      if (memcmp(o, p, o_bytes)) fail_msg("case %d, way %d: o differs", which, i);
      free(n), free(p);
    }
    free(m), free(o), free(w);
    acase_free(&a);
  }
  smx_context_destroy(seven);
}

/* ---- edges ---- */

static void what_is_hidden_does_no_harm(void **state) {
  acase a = acase_new(1, 1, 1, 2, 3, 1, 2);
  double w[] = {0.25, 0.5, NAN, 1, INFINITY, 2};
  size_t bytes;
  a.with_mask = 1;
  acase_fill(&a, 1, 1);
  memcpy(a.mask, (double[]){1, 1, 0, 0, 0, 0}, 6 * sizeof(double));
  memcpy(a.v, (double[]){1, 2, 3, 4, NAN, INFINITY}, 6 * sizeof(double));
  unsigned char *o = apply(&a, NULL, ORDER_BHLD, w, &bytes);
  assert_memory_equal(o, ((float[]){1.75f, 2.5f, 0, 0}), bytes);
  free(o);
  a.k[2] = NAN;
  unsigned char *m = matrix(&a, NULL, ORDER_BHLD, SMX_ATTENTION_WEIGHTS, &bytes);
  const float *f = (const float *)(void *)m;
  assert_true(fabsf(f[0] + f[1] - 1) < 1e-6f && f[2] == 0 && f[3] == 0 && f[4] == 0 && f[5] == 0);
  free(m);
  acase_free(&a);
}

static void bad_input(void **state) {
  acase a = acase_new(1, 2, 1, 3, 4, 2, 2);
  placed_case in;
  placed out;
  acase_fill(&a, 1, 1);
  acase_place(&a, ORDER_BHLD, &in);
  place(&out, 3, ORDER_BHLD, SMX_F32, 4, (int64_t[]){1, 2, 3, 4}, NULL);
#define BAD(call, status, message) \
  do { \
    assert_int_equal(call, status); \
    if (!strstr(smx_last_error(), message)) fail_msg("'%s', not '%s'", smx_last_error(), message); \
  } while (0)
  BAD(smx_attention_scores(NULL, NULL, (smx_attention_stage)4, &in.q.t, &in.k.t, &out.t), SMX_ERR_PARAM,
      "stage is 4");
  BAD(smx_attention_scores(NULL, NULL, SMX_ATTENTION_SCORES, &in.q.t, &in.k.t, &in.q.t), SMX_ERR_SHAPE,
      "scores: shape[3] is 2, not 4");
  BAD(smx_attention_scores(NULL, NULL, SMX_ATTENTION_SCORES, &in.q.t, NULL, &out.t), SMX_ERR_NULL, "k");
  BAD(smx_attention_apply(NULL, NULL, &in.q.t, &in.v.t, &out.t), SMX_ERR_SHAPE, "w: shape[3] is 2, not 4");
  BAD(smx_attention_apply(NULL, NULL, NULL, &in.v.t, &out.t), SMX_ERR_NULL, "w");
  BAD(smx_attention_column_mass(NULL, NULL, &in.q.t, &in.k.t, &in.q.t, NULL, &out.t), SMX_ERR_SHAPE,
      "lse: ndim is 4, not 3");
  in.options.size = 1;
  BAD(smx_attention_apply(NULL, &in.options, &out.t, &in.v.t, &in.q.t), SMX_ERR_STRUCT, "options.size is 1");
  acase_free(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scores_of_every_stage),       cmocka_unit_test(weights_make_the_output),
      cmocka_unit_test(mass_is_the_sum_of_weights),  cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(what_is_hidden_does_no_harm), cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
