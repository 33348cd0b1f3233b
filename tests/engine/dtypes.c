/* dtypes.c - proves what the header says about element types: an f16 or bf16 output is the f32
 * result of the widened input, rounded once; every mixture of input and output types works; the
 * arithmetic is f64 as soon as one float input is f64. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "problem.h"
#include "unit.h"

static const int64_t lengths[] = {1, 7, 64, 1000, 8200};
static const kind kinds[] = {KIND_NORMAL, KIND_HOLES, KIND_WIDE, KIND_TIES, KIND_NAN, KIND_EMPTY};

static void run(problem *p, smx_dtype in, smx_dtype out, direction d) {
  config how = {NULL, in, out, LAYOUT_C, PLACE_END, APART};
  int status = problem_run(p, &how, d);
  if (status) fail_msg("%s: n %d: status %d: %s", p->op->name, (int)p->n, status, smx_last_error());
}

/* narrow holds results of type t, wide those of the same values in the type of the arithmetic. */
static void same_after_rounding(const problem *narrow, const problem *wide, smx_dtype t, smx_dtype arithmetic,
                                direction d) {
  const smx_port *ports = d == FORWARD ? wide->op->outputs : wide->op->inputs;
  for (int i = 0; i < (d == FORWARD ? wide->op->output_count : wide->op->input_count); i++) {
    if (ports[i].flags & SMX_PORT_INT) continue;
    const unsigned char *got = d == FORWARD ? narrow->out[i] : narrow->din[i],
                        *exact = d == FORWARD ? wide->out[i] : wide->din[i];
    for (int64_t k = 0; exact && k < port_count(wide, &ports[i]); k++) {
      unsigned char want[8];
      double value = dtype_load(arithmetic, exact + (size_t)k * dtype_size(arithmetic));
      dtype_store(t, want, value);
      if (memcmp(want, got + (size_t)k * dtype_size(t), dtype_size(t)))
        fail_msg("%s %s: n %d %s[%d]: got %.9g, want %.9g = rounded %.17g (bits %d code %d)", wide->op->name,
                 d == FORWARD ? "forward" : "backward", (int)wide->n, ports[i].name, (int)k,
                 dtype_load(t, got + (size_t)k * dtype_size(t)), dtype_load(t, want), value, t.bits, t.code);
    }
  }
}

static smx_dtype arithmetic_of(smx_dtype in) { return in.bits == 64 ? SMX_F64 : SMX_F32; }

static void forward_pair(const smx_op *op, int64_t n, int variant, smx_dtype in, smx_dtype out,
                         const kind *of, size_t rows) {
  problem narrow, wide;
  problem_make(&narrow, op, (int64_t)rows, n, variant, (uint64_t)n, of, rows);
  problem_round(&narrow, in);
  problem_rows(&wide, &narrow, narrow.rows, 0);
  run(&narrow, in, out, FORWARD);
  run(&wide, arithmetic_of(in), arithmetic_of(in), FORWARD);
  same_after_rounding(&narrow, &wide, out, arithmetic_of(in), FORWARD);
  problem_free(&narrow);
  problem_free(&wide);
}

/* Backward reads the saved outputs as they were stored, so the wide run gets exactly those. */
static void backward_pair(const smx_op *op, int64_t n, int variant, smx_dtype t) {
  problem narrow, wide;
  problem_make(&narrow, op, (int64_t)COUNT_OF(kinds), n, variant, (uint64_t)n, kinds, COUNT_OF(kinds));
  problem_round(&narrow, t);
  problem_rows(&wide, &narrow, narrow.rows, 0);
  run(&narrow, t, t, FORWARD);
  for (int i = 0; i < op->output_count; i++) {
    int64_t count = port_count(&wide, &op->outputs[i]);
    smx_dtype from = port_dtype(&op->outputs[i], t), to = port_dtype(&op->outputs[i], SMX_F32);
    wide.out[i] = malloc((size_t)count * dtype_size(to));
    assert_non_null(wide.out[i]);
    for (int64_t k = 0; k < count; k++)
      dtype_store(to, wide.out[i] + (size_t)k * dtype_size(to),
                  dtype_load(from, narrow.out[i] + (size_t)k * dtype_size(from)));
  }
  run(&narrow, t, t, BACKWARD);
  run(&wide, SMX_F32, SMX_F32, BACKWARD);
  same_after_rounding(&narrow, &wide, t, SMX_F32, BACKWARD);
  problem_free(&narrow);
  problem_free(&wide);
}

static void every_mixture_forward(void **state) {
  for (size_t o = 0; o < row_op_count(); o++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int in = 0; in < FLOAT_DTYPES; in++)
        for (int out = 0; out < FLOAT_DTYPES; out++) {
          if (lengths[l] > 1000 && (in + out + (int)o) % FLOAT_DTYPES != 0)
            continue; /* a quarter of the mixtures, others with another operator */
          forward_pair(smx_op_at(o), lengths[l], ((int)l + in + out) % variants_of(smx_op_at(o)),
                       float_dtypes[in], float_dtypes[out], kinds, COUNT_OF(kinds));
        }
}

/* Operators that take long rows of half precision as they are: one group, some, more than a tile
 * has, and more than the direct path of rows in memory takes. */
static void long_half_rows(void **state) {
  static const kind all[] = {KIND_NORMAL,  KIND_HOLES, KIND_TIES, KIND_WIDE, KIND_RISING,
                             KIND_SHIFTED, KIND_HUGE,  KIND_NAN,  KIND_INF,  KIND_EMPTY};
  static const char *const names[] = {"softmax", "log_softmax", "logsumexp", "cross_entropy"};
  static const int64_t n[] = {1537, 8193, 20001, 40001, 270001};
  for (size_t o = 0; o < COUNT_OF(names); o++)
    for (size_t l = 0; l < COUNT_OF(n); l++)
      for (int t = 2; t < FLOAT_DTYPES; t++)
        for (int variant = 0; variant < variants_of(smx_op_find(names[o])); variant++)
          if (n[l] < 40000 || ((int)l + t + variant) % 4 == 0) /* a quarter of the longest */
            forward_pair(smx_op_find(names[o]), n[l], variant, float_dtypes[t], float_dtypes[t], all,
                         COUNT_OF(all));
}

static void half_types_backward(void **state) {
  for (size_t o = 0; o < row_op_count(); o++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (int t = 2; t < FLOAT_DTYPES && smx_op_at(o)->flags & SMX_OP_BACKWARD; t++)
        for (int variant = 0; variant < variants_of(smx_op_at(o)); variant++)
          backward_pair(smx_op_at(o), lengths[l], variant, float_dtypes[t]);
}

/* The conversions that the tests trust, against the compiler's own. */
static void conversions_are_right(void **state) {
  for (uint32_t bits = 0; bits < 0x10000; bits++)
    for (int t = 2; t < FLOAT_DTYPES; t++) {
      uint16_t h = (uint16_t)bits, back;
      double v = dtype_load(float_dtypes[t], &h);
      dtype_store(float_dtypes[t], &back, v);
      if (v == v) assert_int_equal(back, h);
      uint32_t wide = bits << 16;
      float f;
      memcpy(&f, &wide, sizeof f);
      if (t == 3 && f == f) assert_true(v == f);
    }
  static const struct {
    double v;
    uint16_t f16, bf16;
  } known[] = {{1, 0x3c00, 0x3f80},           {65504, 0x7bff, 0x4780},       {65520, 0x7c00, 0x4780},
               {0x1p-24, 0x0001, 0x3380},     {0x1p-25, 0x0000, 0x3300},     {0x1.8p-25, 0x0001, 0x3340},
               {1 + 0x1p-11, 0x3c00, 0x3f80}, {1 + 0x3p-11, 0x3c02, 0x3f80}, {-1 - 0x1p-8, 0xbc04, 0xbf80},
               {1 + 0x3p-8, 0x3c0c, 0x3f82},  {3.4e38, 0x7c00, 0x7f80},      {-0.0, 0x8000, 0x8000}};
  for (size_t i = 0; i < COUNT_OF(known); i++) {
    uint16_t h;
    dtype_store(SMX_F16, &h, known[i].v);
    assert_int_equal(h, known[i].f16);
    dtype_store(SMX_BF16, &h, known[i].v);
    assert_int_equal(h, known[i].bf16);
  }
}

/* Rows of every sort for the plain calls, which take half precision as it is. */
static double score(rng *r, int row, int64_t i) {
  const double x = 5 * rng_normal(r);
  switch (row) {
    case 1: return i == 3 ? NAN : x;
    case 2: return i == 5 ? INFINITY : x;
    case 3: return -INFINITY;
    case 4: return 60 * x;
    case 5: return i % 3 ? -INFINITY : x;
    case 6: return i < 9000 ? x : x + 50;
    default: return x;
  }
}

static void plain_rows(smx_dtype t, int64_t n) {
  enum { ROWS = 8 };
  const size_t count = (size_t)(ROWS * n);
  smx_status (*const softmax)(size_t, size_t, const uint16_t *, uint16_t *) =
      t.code == SMX_BF16.code ? smx_softmax_bf16 : smx_softmax_f16;
  uint16_t *x = malloc(count * 2 + 2), *y = malloc(count * 2 + 2);
  float *wide = malloc(count * sizeof *wide);
  rng r = {(uint64_t)n};
  assert_true(x && y && wide);
  for (size_t i = 0; i < count; i++) {
    dtype_store(t, x + i, score(&r, (int)((int64_t)i / n), (int64_t)i % n));
    wide[i] = (float)dtype_load(t, x + i);
  }
  y[count] = 0x1234;
  assert_int_equal(smx_softmax_f32(ROWS, (size_t)n, wide, wide), SMX_OK);
  assert_int_equal(softmax(ROWS, (size_t)n, x, y), SMX_OK);
  assert_int_equal(softmax(ROWS, (size_t)n, x, x), SMX_OK);
  assert_int_equal(y[count], 0x1234);
  for (size_t i = 0; i < count; i++) {
    uint16_t want;
    dtype_store(t, &want, (double)wide[i]);
    if (want != y[i] || want != x[i])
      fail_msg("%s, code %d: n %d, row %d: got %x and %x in place, want %x", smx_isa_name(), t.code, (int)n,
               (int)((int64_t)i / n), y[i], x[i], want);
  }
  free(x), free(y), free(wide);
}

static void plain_calls_round_the_f32_result(void **state) {
  static const int64_t some[] = {1,    15,   16,   17,   100,   256,    257,    303,
                                 1024, 4095, 4097, 8193, 40007, 196608, 196609, 230003};
  for (int isa = 0; isa < smx_isa_count(); isa++) {
    smx_isa_set(smx_isa_at(isa));
    const bool slow = !strcmp(smx_isa_at(isa), "portable");
    for (size_t i = 0; i < COUNT_OF(some); i++) {
      if (slow && some[i] > 9000 && some[i] != 196609) continue;
      plain_rows(SMX_F16, some[i]);
      plain_rows(SMX_BF16, some[i]);
    }
  }
  smx_isa_set(smx_isa_at(0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(conversions_are_right),
      cmocka_unit_test(every_mixture_forward),
      cmocka_unit_test(long_half_rows),
      cmocka_unit_test(half_types_backward),
      cmocka_unit_test(plain_calls_round_the_f32_result),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
