/* attention_bits.c - proves that a row of attention depends on its query, on the keys and values
 * that it sees and on their logical indices, and on nothing else: not on the instruction set,
 * threads, order of the axes, rows beside it (prefill and decode), other heads and sequences, how
 * its keys are hidden, padded, packed, paged, or split among calls; and that the scores and sums
 * are those of the specification, step by step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

static smx_context *threads2, *threads7;

static void expect_same(const char *what, const results *a, const results *b) {
  if (!results_differ(a, b)) return;
  size_t i = 0, n = 0;
  while (i < a->o_bytes && a->o[i] == b->o[i]) i++;
  for (size_t x = 0; x < a->o_bytes; x++) n += a->o[x] != b->o[x];
  fail_msg("%s: bytes differ: the first of o at %zu, %zu in all of %zu; lse %s", what, i, n, a->o_bytes,
           memcmp(a->lse, b->lse, a->lse_bytes) ? "differs" : "equal");
}

static results run_case(const acase *a, smx_context *ctx, int order) {
  results r;
  int status = acase_run(a, ctx, order, &r);
  if (status) fail_msg("status %d: %s", status, smx_last_error());
  return r;
}

static void set_kind(acase *a, int which) {
  static const double some[][SMX_ATTENTION_PARAMS] = {
      {0},          {1.5}, {0.43, 0.1}, {-1},      {0},        {0},           {0},
      {2, 1e-6},    {1},   {3},         {2},       {2, 5},     {-0.03, 1.03}, {1, 0.1, 1e-3},
      {2, 1e-6, 5}, {0.5}, {1, 1, 1},   {2, 1e-6}, {15, 1, 3}, {0.5, -2, 2}};
  acase_weights(a, which % SMX_ATTENTION_KINDS, COUNT_OF(some), some);
  a->options.causal = which % 2;
  if (which % 3 == 1) a->options.window_left = 1100;
  a->with_mask = which % 4 == 2;
  a->with_bias = which % 5 == 3;
  a->with_slopes = which % 3 == 2;
  if (which % 4 == 3) a->options.softcap = 5;
  if (which % 3 != 1) a->options.dropout = 0.25, a->options.seed = (uint64_t)which, a->options.stream = 1000;
}

/* ---- against the same call made otherwise ---- */

static void instruction_sets_threads_and_orders(void **state) {
  static const int64_t shapes[][7] = {{1, 2, 1, 5, 2100, 64, 64},  {2, 4, 2, 61, 130, 33, 20},
                                      {1, 1, 1, 1, 5000, 16, 128}, {1, 1, 1, 389, 70, 8, 16},
                                      {3, 4, 2, 4, 4, 64, 64},     {2, 2, 2, 17, 33, 32, 40},
                                      {1, 3, 1, 49, 49, 136, 24}};
  const char *fastest = smx_isa_name();
  long runs = 0;
  for (int which = 0; which < 2 * SMX_ATTENTION_KINDS; which++) {
    const int64_t *n = shapes[which % COUNT_OF(shapes)];
    acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    a.dtype = float_dtypes[which % 7 == 6 ? 1 : which % 7 == 5 ? 2 : which % 7 == 4 ? 3 : 0];
    set_kind(&a, which);
    acase_fill(&a, (uint64_t)which, which % 3 ? 1 : 20);
    results want = run_case(&a, NULL, ORDER_BHLD);
    for (int i = 0; i < smx_isa_count() + 4; i++) {
      smx_context *ctx = i % 3 == 0 ? threads2 : i % 3 == 1 ? threads7 : NULL;
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      results got = run_case(&a, ctx, i % ORDERS);
      smx_isa_set(fastest);
      expect_same(i < smx_isa_count() ? smx_isa_at(i) : "order", &want, &got);
      results_free(&got);
      runs++;
    }
    results_free(&want);
    acase_free(&a);
  }
  printf("%ld runs\n", runs);
}

/* One row alone: of one sequence, one head, with the query at its place. */
static void rows_alone_prefill_and_decode(void **state) {
  for (int which = 0; which < SMX_ATTENTION_KINDS; which++) {
    acase a = acase_new(2, 4, 2, 55, 1090, 24, 40);
    set_kind(&a, which);
    acase_fill(&a, (uint64_t)which + 7, 1);
    results want = run_case(&a, NULL, ORDER_BHLD);
    for (int64_t row = 0; row < a.batch * a.heads * a.lq; row += 7) {
      int64_t i = row % a.lq, h = row / a.lq % a.heads, b = row / a.lq / a.heads, kv = b * a.kv_heads + h / 2;
      acase one = acase_new(1, 1, 1, 1, a.lk, a.d, a.e);
      one.options = a.options;
      one.options.query_start = acase_offset(&a) + i;
      one.options.stream += (uint64_t)(b * a.heads + h);
      one.q = a.q + row * a.d, one.k = a.k + kv * a.lk * a.d, one.v = a.v + kv * a.lk * a.e;
      if (a.mask) one.mask = a.mask + row * a.lk;
      if (a.bias) one.bias = a.bias + row * a.lk;
      if (a.slopes) one.slopes = a.slopes + b * a.heads + h;
      results got = run_case(&one, row % 2 ? threads7 : NULL, ORDER_BHLD);
      if (memcmp(got.o, want.o + (size_t)(row * a.e) * 4, got.o_bytes) ||
          memcmp(got.lse, want.lse + (size_t)row * 4, 4))
        fail_msg("weights %d row %d", which, (int)row);
      results_free(&got);
    }
    results_free(&want);
    acase_free(&a);
  }
}

/* The last rows of a short sequence, as a call of their own and in a longer causal one. */
static void short_sequences_and_prefill(void **state) {
  static const int64_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 11, 15, 16, 17, 31, 32, 33, 48, 49, 63, 64, 65, 97};
  for (int which = 0; which < SMX_ATTENTION_KINDS; which++) {
    acase a = acase_new(1, 1, 1, 130, 130, which % 2 ? 64 : 29, 40);
    set_kind(&a, which);
    a.with_mask = a.with_bias = a.with_slopes = 0;
    a.options.causal = 1;
    acase_fill(&a, (uint64_t)which + 50, which % 3 ? 1 : 20);
    results want = run_case(&a, NULL, ORDER_BHLD);
    for (size_t i = 0; i < 2 * COUNT_OF(lengths); i++) {
      const int64_t n = lengths[i / 2], rows = i % 2 && n > 9 ? 9 : i % 2 ? n : 1, first = n - rows;
      acase one = acase_new(1, 1, 1, rows, n, a.d, a.e);
      one.options = a.options;
      one.q = a.q + first * a.d, one.k = a.k, one.v = a.v;
      results got = run_case(&one, NULL, (int)i % ORDERS);
      if (memcmp(got.o, want.o + (size_t)(first * a.e) * 4, got.o_bytes) ||
          memcmp(got.lse, want.lse + (size_t)first * 4, got.lse_bytes))
        fail_msg("weights %d, %d rows of %d keys", which, (int)rows, (int)n);
      results_free(&got);
    }
    results_free(&want);
    acase_free(&a);
  }
}

/* Plain softmax over few keys, which has a path of its own, beside the same call with a mask that
 * hides nothing, which has not. Each in turn gets a number that is not ordinary. */
static void heads_of_few_keys(void **state) {
  static const int64_t shapes[][7] = {
      {2, 2, 2, 1, 1, 64, 64},    {1, 3, 3, 1, 5, 64, 32},    {2, 4, 4, 4, 4, 64, 64},
      {1, 2, 2, 8, 8, 64, 64},    {1, 4, 2, 5, 13, 33, 20},   {1, 8, 1, 3, 7, 16, 48},
      {2, 2, 2, 16, 16, 32, 32},  {1, 2, 2, 17, 17, 40, 16},  {1, 2, 1, 31, 33, 64, 80},
      {1, 2, 2, 49, 49, 136, 24}, {1, 1, 1, 64, 64, 200, 96}, {1, 1, 1, 200, 40, 64, 64}};
  static const double odd[] = {1, NAN, INFINITY, -INFINITY, 3e38, -0.0, 1e-44};
  const char *fastest = smx_isa_name();
  for (size_t i = 0; i < 2 * COUNT_OF(shapes) * COUNT_OF(odd); i++) {
    const int64_t *n = shapes[i / 2 % COUNT_OF(shapes)];
    const size_t which = i / 2 / COUNT_OF(shapes);
    acase a = acase_new(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
    a.dtype = float_dtypes[i % 11 == 9 ? 1 : i % 11 == 8 ? 2 : i % 11 == 7 ? 3 : 0];
    a.options.causal = i % 2 && a.lq <= a.lk;
    if (i % 4 == 1 && a.lq <= a.lk) a.options.window_left = 6;
    acase_fill(&a, i, i % 5 == 4 ? 1e6 : i % 5 == 3 ? 20 : 1);
    double *const of[] = {a.q, a.k, a.v};
    if (which) of[i % 3][(i % 3 ? a.lk : a.lq) * (i % 3 < 2 ? a.d : a.e) - 2] = odd[which];
    if (which && i % 2) a.v[0] = odd[which];
    smx_isa_set(smx_isa_at((int)(i / 2) % smx_isa_count()));
    results got = run_case(&a, i % 3 ? NULL : threads2, (int)i % ORDERS);
    smx_isa_set(fastest);
    const int64_t pairs = a.batch * a.heads * a.lq * a.lk;
    a.with_mask = 1, a.mask = malloc((size_t)pairs * sizeof *a.mask);
    for (int64_t x = 0; x < pairs; x++) a.mask[x] = 1;
    results want = run_case(&a, NULL, ORDER_BHLD);
    if (results_differ(&want, &got)) fail_msg("case %d: %d rows, %d keys", (int)i, (int)a.lq, (int)a.lk);
    results_free(&got);
    results_free(&want);
    acase_free(&a);
  }
}

/* Keys that causality and the window hide, hidden by a mask or a bias instead, with NaN behind
 * it. */
static void ways_to_hide_a_key(void **state) {
  for (int which = 0; which < 2 * SMX_ATTENTION_KINDS; which++) {
    acase a = acase_new(1, 2, 1, 30, 1200, 16, 32);
    set_kind(&a, which % SMX_ATTENTION_KINDS);
    a.with_mask = a.with_bias = 0;
    a.options.causal = 1;
    a.options.window_left = 100;
    acase_fill(&a, (uint64_t)which, 1);
    results want = run_case(&a, NULL, ORDER_BHLD);
    int64_t offset = acase_offset(&a), n = a.heads * a.lq * a.lk;
    double *hide = malloc((size_t)n * sizeof *hide);
    for (int64_t x = 0; x < n; x++) {
      int64_t at = x / a.lk % a.lq + offset, j = x % a.lk, sees = j <= at && j >= at - 100;
      hide[x] = which < SMX_ATTENTION_KINDS ? (double)sees : sees ? 0 : -INFINITY;
    }
    if (which < SMX_ATTENTION_KINDS) a.mask = hide;
    else a.bias = hide;
    a.options.causal = 0;
    a.options.window_left = -1;
    for (int64_t j = 0; j + 131 < a.lk; j++) /* no row sees these */
      a.k[j * a.d] = a.v[j * a.e] = j % 2 ? NAN : INFINITY;
    /* the last row alone sees the last key */
    for (int64_t x = 0; x < a.e; x++) a.v[(a.lk - 1) * a.e + x] = NAN;
    results got = run_case(&a, NULL, ORDER_BLHD);
    size_t rows = (size_t)((a.lq - 1) * a.e) * 4, head = (size_t)(a.lq * a.e) * 4;
    for (int h = 0; h < 2; h++)
      if (memcmp(got.o + (size_t)h * head, want.o + (size_t)h * head, rows))
        fail_msg("which %d, head %d", which, h);
    results_free(&want);
    results_free(&got);
    acase_free(&a);
  }
}

/* ---- other ways to hold keys ---- */

typedef struct call {
  acase *a;
  smx_attention_options options;
  placed q, k, v, o, lse, extra, more;
} call;

static void open_call(call *c, acase *a) {
  *c = (call){.a = a, .options = a->options};
  place(&c->q, 0, ORDER_BHLD, a->dtype, 4, (int64_t[]){a->batch, a->heads, a->lq, a->d}, a->q);
  place(&c->o, 3, ORDER_BHLD, a->dtype, 4, (int64_t[]){a->batch, a->heads, a->lq, a->e}, NULL);
  place(&c->lse, 4, ORDER_BHLD, SMX_F32, 3, (int64_t[]){a->batch, a->heads, a->lq}, NULL);
}

static void close_call(call *c, const char *what, smx_context *ctx, const results *want) {
  int status = smx_attention(ctx, &c->options, &c->q.t, &c->k.t, &c->v.t, &c->o.t, &c->lse.t);
  if (status) fail_msg("%s: status %d: %s", what, status, smx_last_error());
  results got = {malloc(want->o_bytes), malloc(want->lse_bytes), want->o_bytes, want->lse_bytes};
  fetch(&c->o, got.o);
  fetch(&c->lse, got.lse);
  expect_same(what, want, &got);
  results_free(&got);
}

/* With dropout and sinks, neither of which the padding moves. */
static void padded_keys(void **state) {
  acase a = acase_new(2, 2, 2, 20, 1030, 16, 24);
  a.with_sinks = 1;
  a.options.dropout = 0.25, a.options.seed = 11, a.options.stream = 40;
  acase_fill(&a, 3, 1);
  results want = run_case(&a, NULL, ORDER_BHLD);
  const int64_t longer = 2000;
  double *k = malloc(sizeof *k * (size_t)(4 * longer * a.d)),
         *v = malloc(sizeof *v * (size_t)(4 * longer * a.e));
  for (int64_t h = 0; h < 4; h++)
    for (int64_t j = 0; j < longer; j++) {
      for (int64_t x = 0; x < a.d; x++)
        k[(h * longer + j) * a.d + x] = j < a.lk ? a.k[(h * a.lk + j) * a.d + x] : NAN;
      for (int64_t x = 0; x < a.e; x++)
        v[(h * longer + j) * a.e + x] = j < a.lk ? a.v[(h * a.lk + j) * a.e + x] : NAN;
    }
  call c;
  open_call(&c, &a);
  place(&c.k, 1, ORDER_BLHD, a.dtype, 4, (int64_t[]){2, 2, longer, a.d}, k);
  place(&c.v, 2, ORDER_BHLD, a.dtype, 4, (int64_t[]){2, 2, longer, a.e}, v);
  place(&c.extra, 5, ORDER_BHLD, SMX_I64, 1, (int64_t[]){2}, (double[]){(double)a.lk, (double)a.lk});
  c.options.lengths = &c.extra.t;
  place(&c.more, 6, ORDER_BHLD, a.dtype, 2, (int64_t[]){2, 2}, a.sinks);
  c.options.sinks = &c.more.t;
  close_call(&c, "padded", threads2, &want);
  free(k), free(v);
  results_free(&want);
  acase_free(&a);
}

/* Key j of sequence b in page table[b][j / size], pages in any order, of both layouts. */
static void paged_keys(void **state) {
  static const int64_t sizes[] = {1, 16, 64, 100, 1024};
  acase a = acase_new(2, 4, 2, 3, 1500, 20, 32);
  a.options.causal = 1;
  a.options.dropout = 0.1;
  acase_fill(&a, 5, 1);
  results want = run_case(&a, NULL, ORDER_BHLD);
  for (size_t s = 0; s < COUNT_OF(sizes); s++) {
    int64_t size = sizes[s], each = (a.lk + size - 1) / size, pages = 2 * each + 3;
    double *table = calloc((size_t)(2 * each), sizeof *table);
    double *k = calloc((size_t)(pages * 2 * size * a.d), sizeof *k),
           *v = calloc((size_t)(pages * 2 * size * a.e), sizeof *v);
    for (int64_t b = 0; b < 2; b++)
      for (int64_t j = 0; j < a.lk; j++) {
        int64_t page = (b * each + each - 1 - j / size) % pages; /* from the last to the first */
        table[b * each + j / size] = (double)page;
        for (int64_t h = 0; h < 2; h++) {
          int64_t to = (page * 2 + h) * size + j % size, from = (b * 2 + h) * a.lk + j;
          memcpy(k + to * a.d, a.k + from * a.d, (size_t)a.d * sizeof *k);
          memcpy(v + to * a.e, a.v + from * a.e, (size_t)a.e * sizeof *v);
        }
      }
    call c;
    open_call(&c, &a);
    place(&c.k, 1, s % 2 ? ORDER_BHLD : ORDER_BLHD, a.dtype, 4, (int64_t[]){pages, 2, size, a.d}, k);
    place(&c.v, 2, s % 2 ? ORDER_BHLD : ORDER_BLHD, a.dtype, 4, (int64_t[]){pages, 2, size, a.e}, v);
    place(&c.extra, 5, ORDER_BHLD, SMX_I32, 2, (int64_t[]){2, each}, table);
    place(&c.more, 6, ORDER_BHLD, SMX_I32, 1, (int64_t[]){2}, (double[]){(double)a.lk, (double)a.lk});
    c.options.block_table = &c.extra.t;
    c.options.lengths = &c.more.t;
    close_call(&c, "paged", s % 2 ? threads7 : NULL, &want);
    free(table), free(k), free(v);
  }
  results_free(&want);
  acase_free(&a);
}

/* Three sequences end to end give what each gives alone, with all their keys or the first of them
 * before NaN. */
static void packed_sequences_of(const double *lengths) {
  static double streams[] = {100, 7, 55};
  static const double q_at[] = {0, 7, 7, 60}, k_at[] = {0, 30, 35, 1200};
  acase a = acase_new(1, 2, 1, 60, 1200, 12, 16);
  a.options.causal = 1;
  a.options.dropout = 0.5;
  acase_fill(&a, 6, 1);
  for (int s = 0; s < 3 && lengths; s++)
    for (int64_t j = (int64_t)(k_at[s] + lengths[s]); j < (int64_t)k_at[s + 1]; j++) {
      for (int64_t x = 0; x < a.d; x++) a.k[j * a.d + x] = NAN;
      for (int64_t x = 0; x < a.e; x++) a.v[j * a.e + x] = NAN;
    }
  call c;
  open_call(&c, &a);
  placed used;
  if (lengths) place(&used, 8, ORDER_BHLD, SMX_I32, 1, (int64_t[]){3}, lengths), c.options.lengths = &used.t;
  place(&c.k, 1, ORDER_BHLD, a.dtype, 4, (int64_t[]){1, 1, a.lk, a.d}, a.k);
  place(&c.v, 2, ORDER_BHLD, a.dtype, 4, (int64_t[]){1, 1, a.lk, a.e}, a.v);
  place(&c.extra, 5, ORDER_BHLD, SMX_I32, 1, (int64_t[]){4}, q_at);
  place(&c.more, 6, ORDER_BHLD, SMX_I64, 1, (int64_t[]){4}, k_at);
  c.options.query_offsets = &c.extra.t;
  c.options.key_offsets = &c.more.t;
  placed of_sequences;
  place(&of_sequences, 7, ORDER_BHLD, SMX_I64, 1, (int64_t[]){3}, streams);
  c.options.streams = &of_sequences.t;
  assert_int_equal(smx_attention(threads2, &c.options, &c.q.t, &c.k.t, &c.v.t, &c.o.t, &c.lse.t), SMX_OK);
  float *got = malloc(sizeof *got * (size_t)(2 * a.lq * a.e));
  fetch(&c.o, got);
  for (int s = 0; s < 3; s++)
    for (int64_t h = 0; h < 2; h++) {
      int64_t q0 = (int64_t)q_at[s], n = (int64_t)q_at[s + 1] - q0, k0 = (int64_t)k_at[s];
      acase one = acase_new(1, 1, 1, n, lengths ? (int64_t)lengths[s] : (int64_t)k_at[s + 1] - k0, a.d, a.e);
      one.options = a.options;
      one.options.stream = (uint64_t)streams[s] + (uint64_t)h;
      one.q = a.q + (h * a.lq + q0) * a.d, one.k = a.k + k0 * a.d, one.v = a.v + k0 * a.e;
      results want = run_case(&one, NULL, ORDER_BHLD);
      if (memcmp(want.o, got + (h * a.lq + q0) * a.e, want.o_bytes))
        fail_msg("sequence %d head %d", s, (int)h);
      results_free(&want);
    }
  free(got);
  acase_free(&a);
}

static void packed_sequences(void **state) {
  packed_sequences_of(NULL);
  packed_sequences_of((double[]){20, 0, 1100});
}

/* Keys in three pieces, their states merged in two calls' worth of tensors. */
static void split_keys(void **state) {
  for (int which = 0; which < SMX_ATTENTION_KINDS; which++) {
    static const int64_t cuts[] = {0, 1024, 3072, 3500};
    if (which == SMX_ATTENTION_SSMAX || which == SMX_ATTENTION_CLIPPED || which == SMX_ATTENTION_CENTRED ||
        which == SMX_ATTENTION_SHAPED || which == SMX_ATTENTION_LSSA || which == SMX_ATTENTION_LSSAR)
      continue;
    acase a = acase_new(2, 4, 2, 3, 3500, 16, 20);
    set_kind(&a, which);
    if (which == SMX_ATTENTION_ELU) a.options.param[0] = SMX_ATTENTION_NORM_CLAMP;
    a.with_mask = a.with_bias = a.with_slopes = 0;
    a.with_sinks = which == SMX_ATTENTION_SOFTMAX;
    a.options.query_start = a.lk - a.lq;
    acase_fill(&a, (uint64_t)which, which % 2 ? 1 : 1e4);
    results want = run_case(&a, NULL, ORDER_BHLD);
    call c;
    placed states[3];
    const smx_tensor *list[3];
    open_call(&c, &a);
    for (int p = 0; p < 3; p++) {
      int64_t n = cuts[p + 1] - cuts[p], width = smx_attention_state_width(a.e);
      double *k = malloc(sizeof *k * (size_t)(4 * n * a.d)), *v = malloc(sizeof *v * (size_t)(4 * n * a.e));
      for (int64_t h = 0; h < 4; h++) {
        memcpy(k + h * n * a.d, a.k + (h * a.lk + cuts[p]) * a.d, sizeof *k * (size_t)(n * a.d));
        memcpy(v + h * n * a.e, a.v + (h * a.lk + cuts[p]) * a.e, sizeof *v * (size_t)(n * a.e));
      }
      place(&c.k, 1, ORDER_BHLD, a.dtype, 4, (int64_t[]){2, 2, n, a.d}, k);
      place(&c.v, 2, ORDER_BHLD, a.dtype, 4, (int64_t[]){2, 2, n, a.e}, v);
      place(states + p, 9 + p, p == 1 ? ORDER_BLHD : ORDER_BHLD, SMX_F32, 5,
            (int64_t[]){2, 4, a.lq, (n + 1023) / 1024, width}, NULL);
      list[p] = &states[p].t;
      c.options.key_start = cuts[p];
      int status = smx_attention_states(p ? threads2 : NULL, &c.options, &c.q.t, &c.k.t, &c.v.t, list[p]);
      if (status) fail_msg("states %d: %s", which, smx_last_error());
      free(k), free(v);
    }
    if (a.sinks)
      place(&c.extra, 8, ORDER_BHLD, a.dtype, 2, (int64_t[]){2, 4}, a.sinks), c.options.sinks = &c.extra.t;
    int status = smx_attention_merge(threads2, &c.options, 3, list, &c.o.t, &c.lse.t);
    if (status) fail_msg("merge %d: %s", which, smx_last_error());
    results got = {malloc(want.o_bytes), malloc(want.lse_bytes), want.o_bytes, want.lse_bytes};
    fetch(&c.o, got.o);
    fetch(&c.lse, got.lse);
    expect_same("merged states", &want, &got);
    results_free(&got);
    results_free(&want);
    acase_free(&a);
  }
}

/* A unified maximum has the bits of softmax, for scores in range and far out of it; lse is a
 * logarithm of another sum and power of two. */
static void a_unified_maximum(void **state) {
  static const double phi[] = {0, 10, -39, 1000, -1e5};
  for (int which = 0; which < 4; which++) {
    acase a = acase_new(1, 2, 1, 9, 1500, 16, 20);
    a.dtype = which % 2 ? SMX_F64 : SMX_F32;
    acase_fill(&a, (uint64_t)which, which < 2 ? 1 : 300);
    smx_attention_set_weights(&a.options, SMX_ATTENTION_SOFTMAX);
    results want = run_case(&a, NULL, ORDER_BHLD);
    smx_attention_set_weights(&a.options, SMX_ATTENTION_UNIFIED);
    for (size_t i = 0; i < COUNT_OF(phi); i++) {
      a.options.param[0] = phi[i];
      results got = run_case(&a, threads2, ORDER_BHLD);
      assert_memory_equal(got.o, want.o, want.o_bytes);
      for (size_t j = 0; j < want.lse_bytes / (a.dtype.bits / 8); j++) {
        const double x = a.dtype.bits == 64 ? ((double *)got.lse)[j] : (double)((float *)got.lse)[j],
                     y = a.dtype.bits == 64 ? ((double *)want.lse)[j] : (double)((float *)want.lse)[j];
        assert_true(fabs(x - y) <= (a.dtype.bits == 64 ? 0x1p-51 : 0x1p-22) * fmax(fabs(y), 8));
      }
      results_free(&got);
    }
    results_free(&want);
    acase_free(&a);
  }
}

/* ---- against the specification ---- */

/* One row of identity weights: nothing but chains of fma, splits and lanes are left of the rule. */
static float specified(const acase *a, int64_t i, int64_t x) {
  double sum = 0;
  float scale = (float)(1 / sqrt((double)a->d));
  for (int64_t j0 = 0; j0 < a->lk; j0 += 1024) {
    float o = 0;
    for (int64_t j = j0; j < a->lk && j < j0 + 1024; j++) {
      const int64_t chain = a->d < 128 ? a->d : 64;
      float z = 0;
      for (int64_t from = 0; from < a->d; from += chain) {
        float sum_of_chain = 0;
        for (int64_t c = from; c < a->d && c < from + chain; c++)
          sum_of_chain = fmaf((float)a->q[i * a->d + c], (float)a->k[j * a->d + c], sum_of_chain);
        z += sum_of_chain;
      }
      o = fmaf(z * scale, (float)a->v[j * a->e + x], o);
    }
    sum = j0 ? sum + (double)o : (double)o;
  }
  return (float)sum;
}

static void specified_case(int64_t lq, int64_t lk, int64_t d) {
  acase a = acase_new(1, 1, 1, lq, lk, d, 21);
  a.options.weights = SMX_ATTENTION_IDENTITY;
  acase_fill(&a, 11, 1);
  results r = run_case(&a, NULL, ORDER_BHLD);
  for (int64_t i = 0; i < a.lq; i++)
    for (int64_t x = 0; x < a.e; x++) {
      float want = specified(&a, i, x), got;
      memcpy(&got, r.o + (size_t)(i * a.e + x) * 4, 4);
      if (memcmp(&want, &got, 4))
        fail_msg("row %d column %d: %a, not %a", (int)i, (int)x, (double)got, (double)want);
    }
  results_free(&r);
  acase_free(&a);
}

/* One row and thirteen: keys as they lie, and packed. */
static void chains_and_splits_are_as_specified(void **state) {
  static const int64_t widths[] = {37, 64, 127, 128, 136, 193, 256, 512};
  for (size_t w = 0; w < COUNT_OF(widths); w++) {
    specified_case(13, w ? 1100 : 2500, widths[w]);
    specified_case(1, 1100, widths[w]);
  }
}

static int open_contexts(void **state) {
  smx_context_options two = {.size = sizeof two, .threads = 2}, seven = {.size = sizeof seven, .threads = 7};
  return smx_context_create(&two, &threads2) || smx_context_create(&seven, &threads7);
}
static int close_contexts(void **state) {
  smx_context_destroy(threads2);
  smx_context_destroy(threads7);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chains_and_splits_are_as_specified),
      cmocka_unit_test(instruction_sets_threads_and_orders),
      cmocka_unit_test(rows_alone_prefill_and_decode),
      cmocka_unit_test(short_sequences_and_prefill),
      cmocka_unit_test(heads_of_few_keys),
      cmocka_unit_test(ways_to_hide_a_key),
      cmocka_unit_test(padded_keys),
      cmocka_unit_test(paged_keys),
      cmocka_unit_test(packed_sequences),
      cmocka_unit_test(split_keys),
      cmocka_unit_test(a_unified_maximum),
  };
  return cmocka_run_group_tests(tests, open_contexts, close_contexts);
}
