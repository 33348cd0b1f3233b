/* attention_score_blocks_bits.c - proves that the bits of Parallax, of local linear and of additive
 * attention depend on neither instruction set, threads, axes, rows beside a row nor the place of
 * keys, and that memory does not grow with rows. */
#include "attention_kinds.h"
#include "cpu/cpu.h"

static void bits_do_not_depend_on_how(void **state) {
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int way = 0; way < 2 * KINDS; way++) {
    kcase k = {.a = acase_new(1, 2, 1, 260, 70, 7, 9), .kind = (kind)(way % KINDS), .ridge = 0.5};
    k.a.dtype = float_dtypes[way % FLOAT_DTYPES];
    k.a.options.causal = way & 1, k.a.options.dropout = way == 4 ? 0.1 : 0;
    fill(&k, (uint64_t)way);
    double *d_o = upstream(&k.a);
    outcome want = {.d_o = d_o}, got = {.d_o = d_o};
    run(&k, NULL, ORDER_BHLD, &want);
    for (int i = 0; i < smx_isa_count() + 2; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      run(&k, i % 2 ? seven : NULL, i % ORDERS, &got);
      smx_isa_set(fastest);
      if (memcmp(want.o, got.o, want.o_bytes)) fail_msg("%s, way %d: o differs", names[k.kind], i);
      for (int x = 0; x < 4; x++)
        if (memcmp(want.d[x], got.d[x], want.bytes[x]))
          fail_msg("%s, way %d: d%c differs", names[k.kind], i, "qkvx"[x]);
    }
    free(d_o);
    free_outcome(&want), free_outcome(&got);
    free_kind(&k);
  }
  smx_context_destroy(seven);
}

/* A row has the bits that it has alone, of keys in pages, and whatever lies in keys that it does
 * not see. */
static void rows_do_not_depend_on_others(void **state) {
  enum { LQ = 5, LK = 1100, D = 6, E = 3, PAGE = 8 };
  for (int which = 0; which < KINDS; which++) {
    kcase k = {.a = acase_new(1, 1, 1, LQ, LK, D, E), .kind = (kind)which, .ridge = 0.1};
    outcome all = {0}, hidden = {0};
    k.a.options.causal = 1;
    fill(&k, 3);
    run(&k, NULL, ORDER_BHLD, &all);
    kcase one = k;
    outcome last = {0};
    one.a.q += (LQ - 1) * D, one.a.lq = 1;
    if (which == PARALLAX) one.extra += (LQ - 1) * D;
    run(&one, NULL, ORDER_BHLD, &last);
    assert_memory_equal(last.o, all.o + (LQ - 1) * E * sizeof(float), E * sizeof(float));
    for (int x = 0; x < D; x++) k.a.k[(LK - 1) * D + x] = NAN;
    for (int x = 0; x < E; x++) k.a.v[(LK - 1) * E + x] = INFINITY;
    run(&k, NULL, ORDER_BHLD, &hidden);
    assert_memory_equal(hidden.o, all.o, (LQ - 1) * E * sizeof(float));
    assert_true(isnan(result_at(SMX_F32, hidden.o, (LQ - 1) * E)));
    free_outcome(&all), free_outcome(&last), free_outcome(&hidden);
    free_kind(&k);
  }
}

static void pages_are_keys(void **state) {
  enum { LQ = 3, PAGE = 4, PAGES = 5, LK = PAGE * PAGES - 2, D = 3, E = 2 };
  for (int which = 0; which < KINDS; which++) {
    kcase k = {.a = acase_new(1, 2, 1, LQ, LK, D, E), .kind = (kind)which, .ridge = 0.1};
    outcome want = {0};
    double pk[PAGES * PAGE * D] = {0}, pv[PAGES * PAGE * E] = {0}, table[PAGES], got[2 * LQ * E];
    fill(&k, 7);
    run(&k, NULL, ORDER_BHLD, &want);
    for (int p = 0; p < PAGES; p++) table[p] = (p * 3 + 1) % PAGES;
    for (int j = 0; j < LK; j++) {
      const int at = (int)table[j / PAGE] * PAGE + j % PAGE;
      memcpy(pk + at * D, k.a.k + j * D, D * sizeof *pk), memcpy(pv + at * E, k.a.v + j * E, E * sizeof *pv);
    }
    placed_case in;
    placed key, v, t, n, extra, o;
    int64_t more[4];
    const int32_t ndim = extra_shape(&k, more);
    acase_place(&k.a, ORDER_BHLD, &in);
    place(&key, 1, ORDER_BHLD, SMX_F32, 4, (int64_t[]){PAGES, 1, PAGE, D}, pk),
        place(&v, 2, ORDER_BHLD, SMX_F32, 4, (int64_t[]){PAGES, 1, PAGE, E}, pv);
    place(&o, 3, ORDER_BHLD, SMX_F32, 4, (int64_t[]){1, 2, LQ, E}, NULL),
        place(&extra, 4, ORDER_BHLD, SMX_F32, ndim, more, k.extra);
    place(&t, 5, ORDER_BHLD, SMX_I32, 2, (int64_t[]){1, PAGES}, table),
        place(&n, 6, ORDER_BHLD, SMX_I32, 1, (int64_t[]){1}, (double[]){LK});
    in.options.block_table = &t.t, in.options.lengths = &n.t;
    if (forward(&k, NULL, &in.options, &in.q.t, &key.t, &v.t, &extra.t, &o.t))
      fail_msg("%s: %s", names[which], smx_last_error());
    fetch(&o, got);
    assert_memory_equal(got, want.o, want.o_bytes);
    placed d[4];
    for (int i = 0; i < 4; i++) d[i] = o;
    assert_int_equal(backward(&k, NULL, &in.options, &in.q.t, &key.t, &v.t, &extra.t, &o.t, d),
                     SMX_ERR_NO_BACKWARD);
    free_outcome(&want);
    free_kind(&k);
  }
}

/* Puts rows of two tensors [1, heads, n, size] one after the other, head by head. */
static double *packed(const double *a, int64_t n, const double *b, int64_t m, int64_t heads, int64_t size) {
  double *all = malloc((size_t)(heads * (n + m) * size) * sizeof *all), *to = all;
  for (int64_t h = 0; h < heads; h++) {
    memcpy(to, a + h * n * size, (size_t)(n * size) * sizeof *to), to += n * size;
    memcpy(to, b + h * m * size, (size_t)(m * size) * sizeof *to), to += m * size;
  }
  return all;
}

/* Sequences of 3 queries and 5 keys, 2 and 4, one after another: o and gradients are those of two
 * calls. */
static void packed_sequences_are_calls(void **state) {
  enum { HEADS = 2, D = 3, E = 2 };
  for (int which = 0; which < KINDS; which++) {
    kcase k[2];
    outcome f[2];
    for (int i = 0; i < 2; i++) {
      k[i] = (kcase){.a = acase_new(1, HEADS, 1, 3 - i, 5 - i, D, E), .kind = (kind)which, .ridge = 0.2};
      k[i].a.options.causal = 1, k[i].a.dtype = SMX_F64;
      fill(&k[i], (uint64_t)(9 * which + i));
      f[i] = (outcome){.d_o = upstream(&k[i].a)};
      run(&k[i], NULL, ORDER_BHLD, &f[i]);
    }
    const bool rows = which == PARALLAX;
    const int64_t q[] = {1, HEADS, 5, D}, key[] = {1, 1, 9, D}, v[] = {1, 1, 9, E}, o[] = {1, HEADS, 5, E};
    const int64_t more[] = {which == LOCAL ? 0 : rows ? 1 : 2, HEADS, rows ? 5 : D, D};
    const double *in[2][5] = {{k[0].a.q, k[0].a.k, k[0].a.v, k[0].extra, f[0].d_o},
                              {k[1].a.q, k[1].a.k, k[1].a.v, k[1].extra, f[1].d_o}};
    double *all[5] = {
        packed(in[0][0], 3, in[1][0], 2, HEADS, D), packed(in[0][1], 5, in[1][1], 4, 1, D),
        packed(in[0][2], 5, in[1][2], 4, 1, E),
        which == LOCAL ? NULL
                       : packed(in[0][3], rows ? 3 : HEADS, in[1][3], rows ? 2 : HEADS, rows ? HEADS : 1, D),
        packed(in[0][4], 3, in[1][4], 2, HEADS, E)};
    const int64_t *shapes[] = {q, key, v, more, o};
    placed t[5], out, d[4], offsets[2];
    smx_attention_options options = k[0].a.options;
    for (int i = 0; i < 5; i++)
      place(t + i, i, ORDER_BHLD, SMX_F64, i == 3 && !rows ? 3 : 4, shapes[i], all[i]);
    place(&out, 5, ORDER_BHLD, SMX_F64, 4, o, NULL);
    for (int i = 0; i < 4; i++)
      place(d + i, 6 + i, ORDER_BHLD, SMX_F64, i == 3 && !rows ? 3 : 4, shapes[i], NULL);
    place(offsets, 10, ORDER_BHLD, SMX_I32, 1, (int64_t[]){3}, (double[]){0, 3, 5});
    place(offsets + 1, 11, ORDER_BHLD, SMX_I32, 1, (int64_t[]){3}, (double[]){0, 5, 9});
    options.query_offsets = &offsets[0].t, options.key_offsets = &offsets[1].t;
    if (forward(k, NULL, &options, &t[0].t, &t[1].t, &t[2].t, &t[3].t, &out.t))
      fail_msg("%s", smx_last_error());
    if (backward(k, NULL, &options, &t[0].t, &t[1].t, &t[2].t, &t[3].t, &t[4].t, d))
      fail_msg("%s", smx_last_error());
    const void *one[2][5] = {{f[0].d[0], f[0].d[1], f[0].d[2], f[0].d[3], f[0].o},
                             {f[1].d[0], f[1].d[1], f[1].d[2], f[1].d[3], f[1].o}};
    const placed *got[] = {d, d + 1, d + 2, d + 3, &out};
    for (int i = 0; i < 5; i++) {
      if (i == 3 && which == LOCAL) continue;
      const bool keys = i == 1 || i == 2, list = i == 3 && !rows;
      const int64_t size = i == 2 || i == 4 ? E : D, heads = keys || list ? 1 : HEADS;
      double *want = packed(one[0][i],
                            keys   ? 5
                            : list ? HEADS
                                   : 3,
                            one[1][i],
                            keys   ? 4
                            : list ? HEADS
                                   : 2,
                            heads, size);
      unsigned char *bytes = NULL;
      size_t count;
      keep(got[i], heads * (keys ? 9 : list ? 2 * HEADS : 5) * size, SMX_F64, &bytes, &count);
      if (memcmp(bytes, want, count)) fail_msg("%s: result %d differs", names[which], i);
      free(bytes), free(want);
    }
    for (int i = 0; i < 5; i++) free(all[i]);
    for (int i = 0; i < 2; i++) {
      free((void *)(uintptr_t)f[i].d_o);
      free_outcome(&f[i]);
      free_kind(&k[i]);
    }
  }
}

/* No key at all: zeros, and gradients of 0. */
static void no_keys(void **state) {
  for (int which = 0; which < KINDS; which++) {
    kcase k = {.a = acase_new(2, 2, 1, 3, 0, 3, 2), .kind = (kind)which, .ridge = 0.1};
    fill(&k, 1);
    double *d_o = upstream(&k.a);
    outcome f = {.d_o = d_o};
    run(&k, NULL, ORDER_GAPS, &f);
    for (size_t i = 0; i < f.o_bytes; i++) assert_int_equal(f.o[i], 0);
    for (int x = 0; x < 4; x++)
      for (size_t i = 0; i < f.bytes[x]; i++) assert_int_equal(f.d[x][i], 0);
    free(d_o);
    free_outcome(&f);
    free_kind(&k);
  }
}

/* ---- memory ---- */

typedef struct meter {
  size_t now, most;
} meter;
static void *metered(void *user, size_t bytes, size_t alignment) {
  meter *m = user;
  size_t *p = aligned_alloc(alignment, (bytes + alignment + alignment - 1) / alignment * alignment);
  m->now += *p = bytes;
  m->most = m->now > m->most ? m->now : m->most;
  return (char *)p + alignment;
}
static void metered_free(void *user, void *p) {
  meter *m = user;
  if (!p) return;
  size_t *from = (size_t *)(void *)((char *)p - 64);
  m->now -= *from;
  free(from);
}

/* Twice the rows take no more memory, where a matrix of weights would have taken 32 MiB and then
 * 64. */
static void memory_does_not_grow_with_rows(void **state) {
  for (int which = 0; which < KINDS; which++) {
    size_t most[2];
    for (int i = 0; i < 2; i++) {
      kcase k = {.a = acase_new(1, 1, 1, 2048 << i, 4096, 1, 1), .kind = (kind)which, .ridge = 0.1};
      meter m = {0};
      smx_context *ctx;
      const smx_context_options options = {
          .size = sizeof options, .alloc = metered, .release = metered_free, .alloc_user = &m};
      outcome f = {0};
      assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
      fill(&k, 1);
      run(&k, ctx, ORDER_BHLD, &f);
      smx_context_destroy(ctx);
      assert_int_equal(m.now, 0);
      most[i] = m.most;
      free_outcome(&f);
      free_kind(&k);
    }
    printf("%s: %zu and %zu bytes\n", names[which], most[0], most[1]);
    assert_true(most[1] < most[0] + (1 << 20) && most[0] < (size_t)24 << 20);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(rows_do_not_depend_on_others),
      cmocka_unit_test(pages_are_keys),
      cmocka_unit_test(packed_sequences_are_calls),
      cmocka_unit_test(no_keys),
      cmocka_unit_test(memory_does_not_grow_with_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
