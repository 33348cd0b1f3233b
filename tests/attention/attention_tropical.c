/* attention_tropical.c - proves attention in the max-plus semiring: known answers, values and
 * winners against the formula, gradients against differences, that bits depend on nothing but a row
 * and what it sees, and what bad input gives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

enum { WAYS = 12 };

static acase new_case(int way, const int64_t *n) {
  acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
  a.options.causal = way & 1;
  if (way & 2) a.options.window_left = 3;
  a.with_mask = way % 3 == 1;
  return a;
}

typedef struct outcome {
  unsigned char *o;
  int32_t *winners;
  size_t bytes, count;
} outcome;

static outcome run(const acase *a, int symmetric, smx_context *ctx, int order) {
  const int64_t shape[] = {a->batch, a->heads, a->lq, a->e};
  outcome r = {.count = (size_t)(shape[0] * shape[1] * shape[2] * shape[3])};
  placed_case in;
  placed o, winners;
  acase_place(a, order, &in);
  place(&o, 3, order, a->dtype, 4, shape, NULL), place(&winners, 4, order, SMX_I32, 4, shape, NULL);
  if (smx_attention_tropical(ctx, &in.options, symmetric, &in.q.t, &in.k.t, &in.v.t, &o.t, &winners.t))
    fail_msg("%s", smx_last_error());
  r.bytes = r.count * dtype_size(a->dtype);
  r.o = malloc(r.bytes + 1), r.winners = malloc(r.count * 4 + 1);
  fetch(&o, r.o), fetch(&winners, r.winners);
  return r;
}
static void free_outcome(outcome *r) { free(r->o), free(r->winners); }

static double score(const acase *a, const double *q, const double *k, int symmetric) {
  double top = -INFINITY, low = INFINITY, sum = 0;
  for (int64_t x = 0; x < a->d; x++) top = fmax(top, q[x] - k[x]), low = fmin(low, q[x] - k[x]);
  for (int64_t x = 0; x < a->d; x++) sum += q[x] - k[x] - low;
  return symmetric ? low - top : -sum;
}

/* The formula for column x of row (b, h, i): 0 and winner -1 where no key is seen. */
static double formula(const acase *a, int symmetric, int64_t head, int64_t i, int64_t x, int64_t *winner) {
  const int64_t at = i + acase_offset(a),
                kv = head / a->heads * a->kv_heads + head % a->heads / (a->heads / a->kv_heads);
  double best = 0;
  *winner = -1;
  for (int64_t j = 0; j < a->lk; j++) {
    const int seen = (!a->options.causal || j <= at) &&
                     (a->options.window_left < 0 || j >= at - a->options.window_left) &&
                     (!a->mask || a->mask[(head * a->lq + i) * a->lk + j] != 0);
    if (!seen) continue;
    const double y = score(a, a->q + (head * a->lq + i) * a->d, a->k + (kv * a->lk + j) * a->d, symmetric) +
                     a->v[(kv * a->lk + j) * a->e + x];
    if (*winner < 0 || y > best) best = y, *winner = j;
  }
  return best;
}

static void known_answers(void **state) {
  static const double want[2][2] = {{-1.5, -2.5}, {-0.5, -1.5}};
  double q[] = {1, 0.5, -1}, k[] = {1, 0, 0, 0, 1, 2, -1, 1, 0.5}, v[] = {1, 0, 0, 1, 1, 1};
  for (int symmetric = 0; symmetric < 2; symmetric++) {
    acase a = acase_new(1, 1, 1, 1, 3, 3, 2);
    a.q = q, a.k = k, a.v = v;
    outcome r = run(&a, symmetric, NULL, ORDER_BHLD);
    for (int x = 0; x < 2; x++) assert_true(result_at(SMX_F32, r.o, x) == want[symmetric][x]);
    free_outcome(&r);
  }
}

static const int64_t shapes[][7] = {
    {1, 2, 1, 4, 6, 3, 2}, {2, 4, 2, 7, 5, 17, 20}, {1, 1, 1, 60, 150, 33, 40}, {1, 2, 2, 1, 1100, 64, 16}};

static void values_and_winners(void **state) {
  for (int way = 0; way < WAYS; way++)
    for (int symmetric = 0; symmetric < 2; symmetric++) {
      acase a = new_case(way, shapes[way % 4]);
      a.dtype = SMX_F64;
      acase_fill(&a, (uint64_t)way, 1);
      outcome r = run(&a, symmetric, NULL, way % ORDERS);
      for (int64_t i = 0; i < (int64_t)r.count; i++) {
        int64_t winner;
        const double want = formula(&a, symmetric, i / a.e / a.lq, i / a.e % a.lq, i % a.e, &winner),
                     got = result_at(SMX_F64, r.o, i);
        if (winner != r.winners[i] || !(fabs(got - want) <= 1e-13 * fmax(1, fabs(want))))
          fail_msg("way %d: element %d is %.15g of key %d, not %.15g of %d", way, (int)i, got,
                   (int)r.winners[i], want, (int)winner);
      }
      free_outcome(&r);
      acase_free(&a);
    }
}

static double loss(const acase *a, int symmetric, const double *d_o) {
  double sum = 0;
  int64_t winner;
  for (int64_t i = 0; i < a->batch * a->heads * a->lq * a->e; i++)
    sum += d_o[i] * formula(a, symmetric, i / a->e / a->lq, i / a->e % a->lq, i % a->e, &winner);
  return sum;
}

static void gradients_are_differences(void **state) {
  double worst = 0;
  for (int way = 0; way < WAYS; way++)
    for (int symmetric = 0; symmetric < 2; symmetric++) {
      acase a = new_case(way, shapes[0]);
      a.dtype = SMX_F64;
      acase_fill(&a, (uint64_t)way + 50, 1);
      outcome r = run(&a, symmetric, NULL, ORDER_BHLD);
      double d_o[64], found[256], won[64], *value[] = {a.q, a.k, a.v};
      for (size_t i = 0; i < r.count; i++) d_o[i] = sin(1.3 * (double)i), won[i] = r.winners[i];
      const int64_t o[] = {a.batch, a.heads, a.lq, a.e}, q[] = {a.batch, a.heads, a.lq, a.d},
                    k[] = {a.batch, a.kv_heads, a.lk, a.d};
      const int64_t v[] = {a.batch, a.kv_heads, a.lk, a.e}, *const shape[] = {q, k, v};
      placed_case in;
      placed winners, up, d[3];
      acase_place(&a, way % ORDERS, &in);
      place(&winners, 3, way % ORDERS, SMX_I32, 4, o, won), place(&up, 4, way % ORDERS, SMX_F64, 4, o, d_o);
      for (int x = 0; x < 3; x++) place(d + x, 9 + x, way % ORDERS, SMX_F64, 4, shape[x], NULL);
      if (smx_attention_tropical_backward(NULL, &in.options, symmetric, &in.q.t, &in.k.t, &in.v.t, &winners.t,
                                          &up.t, &d[0].t, &d[1].t, &d[2].t))
        fail_msg("%s", smx_last_error());
      for (int x = 0; x < 3; x++) {
        fetch(d + x, found);
        for (int64_t i = 0; i < shape[x][0] * shape[x][1] * shape[x][2] * shape[x][3]; i++) {
          const double h = 0x1p-20, at = value[x][i];
          value[x][i] = at + h;
          const double more = loss(&a, symmetric, d_o);
          value[x][i] = at - h;
          const double want = (more - loss(&a, symmetric, d_o)) / (2 * h), e = fabs(found[i] - want);
          value[x][i] = at;
          if (!(e < 1e-7))
            fail_msg("way %d: d%c[%d] is %.9g, differences say %.9g", way, "qkv"[x], (int)i, found[i], want);
          worst = fmax(worst, e);
        }
      }
      free_outcome(&r);
      acase_free(&a);
    }
  printf("worst error %.2g\n", worst);
}

/* Instruction sets, threads, layouts, and a row alone. */
static void bits_do_not_depend_on_how(void **state) {
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int way = 0; way < WAYS; way++) {
    acase a = new_case(way, shapes[way % 4]);
    a.dtype = float_dtypes[way % FLOAT_DTYPES];
    acase_fill(&a, (uint64_t)way, 1);
    outcome want = run(&a, way & 1, NULL, ORDER_BHLD);
    for (int i = 0; i < smx_isa_count() + ORDERS; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      outcome got = run(&a, way & 1, i % 2 ? seven : NULL, i % ORDERS);
      smx_isa_set(fastest);
      if (memcmp(want.o, got.o, want.bytes) || memcmp(want.winners, got.winners, want.count * 4))
        fail_msg("way %d, %d", way, i);
      free_outcome(&got);
    }
    acase one = acase_new(1, 1, 1, 1, a.lk, a.d, a.e);
    one.options = a.options, one.dtype = a.dtype;
    one.options.query_start = acase_offset(&a) + a.lq - 1 < 0 ? 0 : acase_offset(&a) + a.lq - 1;
    one.q = a.q + (a.lq - 1) * a.d, one.k = a.k, one.v = a.v;
    if (a.mask) one.mask = a.mask + (a.lq - 1) * a.lk;
    outcome got = run(&one, way & 1, NULL, ORDER_BHLD);
    if (memcmp(got.o, want.o + (size_t)((a.lq - 1) * a.e) * dtype_size(a.dtype), got.bytes))
      fail_msg("way %d, last row alone", way);
    free_outcome(&got), free_outcome(&want);
    acase_free(&a);
  }
  smx_context_destroy(seven);
}

/* Pages in reverse order, longer than the sequence, NaN behind its end. */
static void paged_keys(void **state) {
  enum { SIZE = 16 };
  acase a = new_case(9, shapes[2]);
  const int64_t pages = (a.lk + SIZE - 1) / SIZE;
  double *k = malloc(sizeof *k * (size_t)(pages * SIZE * a.d)),
         *v = malloc(sizeof *v * (size_t)(pages * SIZE * a.e)), list[64];
  acase_fill(&a, 9, 1);
  for (int64_t j = 0; j < pages * SIZE; j++) {
    const int64_t to = (pages - 1 - j / SIZE) * SIZE + j % SIZE;
    list[j / SIZE] = (double)(pages - 1 - j / SIZE);
    for (int64_t x = 0; x < a.d; x++) k[to * a.d + x] = j < a.lk ? a.k[j * a.d + x] : NAN;
    for (int64_t x = 0; x < a.e; x++) v[to * a.e + x] = j < a.lk ? a.v[j * a.e + x] : NAN;
  }
  outcome want = run(&a, 1, NULL, ORDER_BHLD);
  placed_case in;
  placed o, table, length;
  acase_place(&a, ORDER_BHLD, &in);
  place(&in.k, 1, ORDER_BHLD, a.dtype, 4, (int64_t[]){pages, 1, SIZE, a.d}, k);
  place(&in.v, 2, ORDER_BHLD, a.dtype, 4, (int64_t[]){pages, 1, SIZE, a.e}, v);
  place(&o, 3, ORDER_BHLD, a.dtype, 4, (int64_t[]){1, 1, a.lq, a.e}, NULL);
  place(&table, 5, ORDER_BHLD, SMX_I32, 2, (int64_t[]){1, pages}, list);
  place(&length, 6, ORDER_BHLD, SMX_I32, 1, (int64_t[]){1}, (double[]){(double)a.lk});
  in.options.block_table = &table.t, in.options.lengths = &length.t;
  if (smx_attention_tropical(NULL, &in.options, 1, &in.q.t, &in.k.t, &in.v.t, &o.t, NULL))
    fail_msg("%s", smx_last_error());
  unsigned char *got = malloc(want.bytes);
  fetch(&o, got);
  assert_memory_equal(want.o, got, want.bytes);
  free(got), free(k), free(v);
  free_outcome(&want);
  acase_free(&a);
}

/* Two sequences of their own lengths, NaN behind their ends: each is a call over its keys alone, to
 * whose end its rows are aligned. */
static void padded_keys(void **state) {
  acase a = acase_new(2, 4, 2, 7, 150, 9, 20);
  static const double lengths[] = {150, 67};
  a.options.causal = 1, a.options.window_left = 90;
  acase_fill(&a, 12, 1);
  for (int64_t j = (int64_t)lengths[1]; j < a.lk; j++)
    for (int64_t h = 2; h < 4; h++) a.k[(h * a.lk + j) * a.d] = a.v[(h * a.lk + j) * a.e] = NAN;
  const int64_t shape[] = {2, 4, a.lq, a.e}, rows = a.lq * a.e;
  placed_case in;
  placed o, won, length;
  acase_place(&a, ORDER_BLHD, &in);
  place(&o, 3, ORDER_GAPS, a.dtype, 4, shape, NULL), place(&won, 4, ORDER_GAPS, SMX_I32, 4, shape, NULL);
  place(&length, 5, ORDER_BHLD, SMX_I64, 1, shape, lengths);
  in.options.lengths = &length.t;
  if (smx_attention_tropical(NULL, &in.options, 1, &in.q.t, &in.k.t, &in.v.t, &o.t, &won.t))
    fail_msg("%s", smx_last_error());
  float *got = malloc((size_t)(8 * rows) * sizeof *got);
  int32_t *winners = malloc((size_t)(8 * rows) * sizeof *winners);
  fetch(&o, got), fetch(&won, winners);
  for (int64_t head = 0; head < 8; head++) {
    const int64_t kv = head / 2;
    acase one = acase_new(1, 1, 1, a.lq, (int64_t)lengths[head / 4], a.d, a.e);
    one.options = a.options;
    one.q = a.q + head * a.lq * a.d, one.k = a.k + kv * a.lk * a.d, one.v = a.v + kv * a.lk * a.e;
    outcome want = run(&one, 1, NULL, ORDER_BHLD);
    if (memcmp(want.o, got + head * rows, want.bytes) ||
        memcmp(want.winners, winners + head * rows, want.count * 4))
      fail_msg("head %d", (int)head);
    free_outcome(&want);
  }
  free(got), free(winners);
  acase_free(&a);
}

/* Ragged sequences one after another, one of them without rows and one without keys. Winners count
 * from the first key of their sequence. */
static void packed_sequences(void **state) {
  static const double q_at[] = {0, 7, 7, 40, 43}, k_at[] = {0, 30, 35, 300, 300};
  acase a = acase_new(1, 2, 1, 43, 300, 12, 16);
  a.options.causal = 1, a.options.window_left = 40;
  acase_fill(&a, 6, 1);
  const int64_t shape[] = {1, 2, a.lq, a.e};
  placed_case in;
  placed o, won, queries, keys;
  acase_place(&a, ORDER_BHLD, &in);
  place(&o, 3, ORDER_BLHD, a.dtype, 4, shape, NULL), place(&won, 4, ORDER_BLHD, SMX_I32, 4, shape, NULL);
  place(&queries, 5, ORDER_BHLD, SMX_I32, 1, (int64_t[]){5}, q_at),
      place(&keys, 6, ORDER_BHLD, SMX_I64, 1, (int64_t[]){5}, k_at);
  in.options.query_offsets = &queries.t, in.options.key_offsets = &keys.t;
  if (smx_attention_tropical(NULL, &in.options, 0, &in.q.t, &in.k.t, &in.v.t, &o.t, &won.t))
    fail_msg("%s", smx_last_error());
  float *got = malloc((size_t)(2 * a.lq * a.e) * sizeof *got);
  int32_t *winners = malloc((size_t)(2 * a.lq * a.e) * sizeof *winners);
  fetch(&o, got), fetch(&won, winners);
  for (int s = 0; s < 4; s++)
    for (int64_t h = 0; h < 2; h++) {
      const int64_t q0 = (int64_t)q_at[s], k0 = (int64_t)k_at[s], at = (h * a.lq + q0) * a.e;
      acase one = acase_new(1, 1, 1, (int64_t)q_at[s + 1] - q0, (int64_t)k_at[s + 1] - k0, a.d, a.e);
      one.options = a.options;
      one.q = a.q + (h * a.lq + q0) * a.d, one.k = a.k + k0 * a.d, one.v = a.v + k0 * a.e;
      outcome want = run(&one, 0, NULL, ORDER_BHLD);
      if (memcmp(want.o, got + at, want.bytes) || memcmp(want.winners, winners + at, want.count * 4))
        fail_msg("sequence %d, head %d", s, (int)h);
      free_outcome(&want);
    }
  for (int64_t x = 40 * a.e; x < 43 * a.e; x++) assert_true(got[x] == 0 && winners[x] == -1);
  free(got), free(winners);
  acase_free(&a);
}

static void edges_and_bad_input(void **state) {
  acase a = new_case(0, shapes[0]);
  acase_fill(&a, 1, 1);
  a.v[1] = NAN;                                         /* key 0, column 1 */
  a.mask = calloc((size_t)(2 * 4 * 6), sizeof *a.mask); /* row 0 sees nothing, row 1 not key 0 */
  for (int x = 6; x < 2 * 4 * 6; x++) a.mask[x] = x != 6 && x / 6 != 4;
  outcome r = run(&a, 1, NULL, ORDER_BHLD);
  assert_true(result_at(SMX_F32, r.o, 0) == 0 && result_at(SMX_F32, r.o, 1) == 0 && r.winners[0] == -1);
  assert_true(isfinite(result_at(SMX_F32, r.o, 3)) && r.winners[3] > 0);
  assert_true(isnan(result_at(SMX_F32, r.o, 5)) && r.winners[5] == -1 &&
              isfinite(result_at(SMX_F32, r.o, 4)));
  free_outcome(&r);
  const int64_t o[] = {1, 2, 4, 2};
  placed_case in;
  placed po, won;
  acase_place(&a, ORDER_BHLD, &in);
  place(&po, 3, ORDER_BHLD, SMX_F32, 4, o, NULL), place(&won, 4, ORDER_BHLD, SMX_I32, 4, o, (double[16]){6});
  assert_int_equal(smx_attention_tropical(NULL, &in.options, 1, &in.q.t, &in.k.t, &in.v.t, &po.t, &po.t),
                   SMX_ERR_DTYPE);
  assert_non_null(strstr(smx_last_error(), "winners: dtype is f32, not i32"));
  assert_int_equal(smx_attention_tropical(NULL, &in.options, 1, &in.q.t, &in.k.t, &in.v.t, &in.v.t, NULL),
                   SMX_ERR_SHAPE);
  assert_int_equal(smx_attention_tropical_backward(NULL, &in.options, 1, &in.q.t, &in.k.t, &in.v.t, &won.t,
                                                   &po.t, NULL, NULL, NULL),
                   SMX_ERR_TARGET);
  assert_non_null(strstr(smx_last_error(), "winners: element 0 is no key"));
  acase_free(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(values_and_winners),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(paged_keys),
      cmocka_unit_test(padded_keys),
      cmocka_unit_test(packed_sequences),
      cmocka_unit_test(edges_and_bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
