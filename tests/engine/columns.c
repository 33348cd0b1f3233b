/* columns.c - proves that softmax of rows that lie side by side (an axis that is not the last)
 * gives the bits of the same rows one after another: every instruction set, thread count, width and
 * length, with gaps, in place, and with NaN, infinities, empty and far rows among the others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "unit.h"
#include "util.h"

static const int64_t lengths[] = {1, 2, 7, 63, 64, 100, 1025, 3000, 8193};
static const int64_t widths[] = {1, 16, 17, 40, 300, 1100};

/* Every fifth to eleventh row is not ordinary, or begins otherwise than it goes on. */
static double value(rng *r, int64_t row, int64_t i) {
  double x = 5 * rng_normal(r);
  switch (row % 77) {
    case 5: return i < 70 ? -INFINITY : x;
    case 10: return i == 3 ? NAN : x;
    case 16: return i < 90 ? x : x + (i % 2 ? 40 : -60);
    case 21: return i == 5 ? INFINITY : x;
    case 32: return -INFINITY;
    case 43: return 1e30 + x * 1e29;
    case 54: return -3e6 + x;
    case 65: return i % 3 ? -INFINITY : x;
    case 76: return 60 * x;
    default: return x;
  }
}

typedef struct matrix {
  smx_tensor t;
  int64_t shape[2], strides[2];
} matrix;

static void view(matrix *m, smx_dtype t, void *data, int64_t rows, int64_t n, int64_t row_step,
                 int64_t step) {
  *m = (matrix){.shape = {n, rows}, .strides = {step, row_step}};
  m->t = (smx_tensor){
      .data = data, .device = {1, 0}, .ndim = 2, .dtype = t, .shape = m->shape, .strides = m->strides};
}

static void run(smx_context *ctx, const matrix *x, const matrix *y, smx_status want) {
  smx_status got = smx_softmax(ctx, 0, &x->t, &y->t);
  if (got != want)
    fail_msg("%d x %d: status %d: %s", (int)x->shape[0], (int)x->shape[1], got, smx_last_error());
}

static void compare(const unsigned char *rows, const unsigned char *columns, int64_t count, int64_t n,
                    int64_t pitch, size_t size) {
  for (int64_t row = 0; row < count; row++)
    for (int64_t i = 0; i < n; i++)
      if (memcmp(rows + (size_t)(row * n + i) * size, columns + (size_t)(i * pitch + row) * size, size))
        fail_msg("%d rows of %d, pitch %d, %d bytes, %s: row %d element %d", (int)count, (int)n, (int)pitch,
                 (int)size, smx_isa_name(), (int)row, (int)i);
}

static void one(smx_context *ctx, smx_dtype t, int64_t rows, int64_t n, int64_t gap) {
  const size_t size = dtype_size(t), count = (size_t)(n * (rows + gap));
  unsigned char *x = malloc(count * size), *y = malloc(count * size), *by_row = malloc(count * size),
                *want = malloc(count * size);
  matrix a, b, c;
  rng r = {(uint64_t)(rows * 1000 + n)};
  assert_true(x && y && by_row && want);
  memset(x, 0xff, count * size); /* NaN in the gaps */
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < n; i++) {
      dtype_store(t, by_row + (size_t)(row * n + i) * size, value(&r, row, i));
      memcpy(x + (size_t)(i * (rows + gap) + row) * size, by_row + (size_t)(row * n + i) * size, size);
    }
  view(&a, t, by_row, rows, n, n, 1);
  view(&b, t, want, rows, n, n, 1);
  run(NULL, &a, &b, SMX_OK);
  view(&a, t, x, rows, n, 1, rows + gap);
  view(&c, t, y, rows, n, 1, rows + gap);
  run(ctx, &a, &c, SMX_OK);
  compare(want, y, rows, n, rows + gap, size);
  run(ctx, &a, &a, SMX_OK);
  compare(want, x, rows, n, rows + gap, size);
  free(x), free(y), free(by_row), free(want);
}

static void same_bits_as_rows(void **state) {
  smx_context *three;
  smx_context_options options = {.size = sizeof options, .threads = 3};
  assert_int_equal(smx_context_create(&options, &three), SMX_OK);
  for (int isa = 0; isa < smx_isa_count(); isa++) {
    smx_isa_set(smx_isa_at(isa));
    bool slow = !strcmp(smx_isa_at(isa), "portable");
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
      for (size_t w = 0; w < COUNT_OF(widths); w++)
        for (int gap = 0; gap < 2 && lengths[l] * widths[w] < (slow ? 40000 : 10000000); gap++) {
          one(gap ? three : NULL, SMX_F32, widths[w], lengths[l], gap * 5);
          one(gap ? NULL : three, SMX_F64, widths[w], lengths[l], gap * 4);
          if (!slow && lengths[l] <= 1025) one(three, SMX_BF16, widths[w], lengths[l], gap);
        }
  }
  smx_isa_set(smx_isa_at(0));
  smx_context_destroy(three);
}

static void the_empty_column_is_named_and_left_alone(void **state) {
  enum { N = 9, ROWS = 50 };
  static float x[N * ROWS], y[N * ROWS];
  matrix a, b;
  smx_context *error;
  smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  assert_int_equal(smx_context_create(&options, &error), SMX_OK);
  for (int i = 0; i < N * ROWS; i++) x[i] = i % ROWS == 37 ? -INFINITY : (float)i, y[i] = 7;
  view(&a, SMX_F32, x, ROWS, N, 1, ROWS);
  view(&b, SMX_F32, y, ROWS, N, 1, ROWS);
  run(error, &a, &b, SMX_ERR_EMPTY);
  assert_non_null(strstr(smx_last_error(), "row 37"));
  assert_true(y[37] == 7 && y[ROWS + 37] == 7);
  smx_context_destroy(error);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits_as_rows),
                                     cmocka_unit_test(the_empty_column_is_named_and_left_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
