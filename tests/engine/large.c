/* large.c - proves that tensors of more than 2^31 elements work. Inputs are sparse mappings of
 * zeros; an output is one small file of memory mapped again and again over 4 GiB of addresses, so
 * that nothing large is ever in memory. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tensors.h"
#include "util.h"

static const int64_t many = (INT64_C(1) << 31) + 1024;

static void *zeros(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(p != MAP_FAILED);
  return p;
}

enum { WINDOW = 1 << 24 };

/* `bytes` of addresses over one window of memory, which it returns in *window. */
static unsigned char *repeated(size_t bytes) {
  int file = memfd_create("window", 0);
  assert_true(file >= 0 && ftruncate(file, WINDOW) == 0);
  unsigned char *p =
      mmap(NULL, bytes + WINDOW, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(p != MAP_FAILED);
  for (size_t at = 0; at < bytes; at += WINDOW)
    assert_true(mmap(p + at, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED);
  close(file);
  return p;
}

static void logsumexp_of_one_row(void **state) {
  float lse = 0;
  int64_t shape[] = {many};
  smx_tensor x = tensor(zeros((size_t)many * 2), SMX_BF16, 1, shape), y = tensor(&lse, SMX_F32, 0, NULL);
  assert_int_equal(smx_logsumexp(NULL, 0, &x, &y), SMX_OK);
  munmap(x.data, (size_t)many * 2);
  printf("log of %lld is %.9g\n", (long long)many, lse);
  assert_true(fabs(lse - log((double)many)) <= 2 * ulp_f32(lse));
}

static void softmax_of_one_row(void **state) {
  int64_t shape[] = {many};
  smx_tensor x = tensor(zeros((size_t)many * 2), SMX_BF16, 1, shape),
             y = tensor(repeated((size_t)many * 2), SMX_BF16, 1, shape);
  uint16_t *end = (uint16_t *)y.data + many, want;
  assert_int_equal(smx_softmax(NULL, 0, &x, &y), SMX_OK);
  dtype_store(SMX_BF16, &want, 1 / (double)many);
  assert_true(end[-1] == want && end[-1024] == want && ((uint16_t *)y.data)[0] == want);
  munmap(x.data, (size_t)many * 2);
}

/* Many rows: row and byte offsets beyond 32 bits. Every row is the same, so the window holds one
 * pattern. */
static void softmax_of_many_rows(void **state) {
  enum { N = 1024 };
  int64_t shape[] = {many / N, N};
  unsigned char *in = repeated((size_t)many * 2), *out = repeated((size_t)many * 2);
  uint16_t row[N], want[N];
  for (int i = 0; i < N; i++) dtype_store(SMX_F16, &row[i], i % 7);
  for (size_t i = 0; i < WINDOW; i += sizeof row) memcpy(in + i, row, sizeof row);
  memset(out, 0xff, WINDOW);
  smx_tensor x = tensor(in, SMX_F16, 2, shape), y = tensor(out, SMX_F16, 2, shape);
  smx_context_options options = {.size = sizeof options, .threads = 2};
  smx_context *ctx = NULL;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  assert_int_equal(smx_softmax_f16(1, N, row, want), SMX_OK);
  assert_int_equal(smx_softmax(ctx, -1, &x, &y), SMX_OK);
  for (size_t i = 0; i < WINDOW; i += sizeof want) assert_memory_equal(out + i, want, sizeof want);
  smx_context_destroy(ctx);
}

/* The target's index is beyond 2^31, and it is the only logit that is not 0. The gradient elsewhere
 * is its weight. */
static void loss_of_one_row(void **state) {
  float loss = 0;
  int64_t shape[] = {many}, target = many - 5;
  smx_tensor x = tensor(zeros((size_t)many * 2), SMX_BF16, 1, shape), y = tensor(&target, SMX_I64, 0, NULL);
  smx_tensor l = tensor(&loss, SMX_F32, 0, NULL), dx = tensor(repeated((size_t)many * 2), SMX_BF16, 1, shape);
  const smx_tensor *in[] = {&x, &y}, *out[] = {&l, &dx};
  uint16_t weight, *end = (uint16_t *)dx.data + many;
  const double want = log(exp(3) + (double)(many - 1)) - 3;
  dtype_store(SMX_BF16, (uint16_t *)x.data + target, 3);
  assert_int_equal(smx_forward(smx_op_find("cross_entropy"), NULL, NULL, 2, in, 2, out), SMX_OK);
  dtype_store(SMX_BF16, &weight, 1 / (exp(3) + (double)(many - 1)));
  assert_true(fabs(loss - want) <= 2 * ulp_f32(want));
  assert_true(end[-1] == weight && end[-1024] == weight && ((uint16_t *)dx.data)[0] == weight);
  target = many;
  assert_int_equal(smx_forward(smx_op_find("cross_entropy"), NULL, NULL, 2, in, 2, out), SMX_ERR_TARGET);
  munmap(x.data, (size_t)many * 2);
  munmap(dx.data, (size_t)many * 2 + WINDOW);
}

/* Many rows, all the same, so that the window holds one pattern: losses, gradients and their
 * mean. */
static void loss_of_many_rows(void **state) {
  enum { N = 1024 };
  int64_t shape[] = {many / N, N}, *target = malloc((size_t)shape[0] * sizeof *target), one = 3;
  float *loss = malloc((size_t)shape[0] * sizeof *loss), want, mean;
  unsigned char *in = repeated((size_t)many * 2), *gradient = repeated((size_t)many * 2);
  uint16_t row[N], dx[N];
  assert_true(target && loss);
  for (int i = 0; i < N; i++) dtype_store(SMX_F16, &row[i], i % 7);
  for (size_t i = 0; i < WINDOW; i += sizeof row) memcpy(in + i, row, sizeof row);
  for (int64_t r = 0; r < shape[0]; r++) target[r] = one, loss[r] = -1;
  smx_tensor x = tensor(in, SMX_F16, 2, shape), y = tensor(target, SMX_I64, 1, shape),
             l = tensor(loss, SMX_F32, 1, shape);
  smx_tensor d = tensor(gradient, SMX_F16, 2, shape), m = tensor(&mean, SMX_F32, 0, NULL);
  int64_t single[] = {1, N};
  smx_tensor x1 = tensor(row, SMX_F16, 2, single), y1 = tensor(&one, SMX_I64, 1, single),
             l1 = tensor(&want, SMX_F32, 1, single);
  smx_tensor d1 = tensor(dx, SMX_F16, 2, single);
  const smx_op *op = smx_op_find("focal_loss");
  const smx_tensor *from[] = {&x, &y}, *to[] = {&l, &d, &m}, *from1[] = {&x1, &y1}, *to1[] = {&l1, &d1};
  smx_context_options options = {.size = sizeof options, .threads = 2};
  smx_context *ctx = NULL;
  smx_params params;
  assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
  smx_params_init(op, &params);
  assert_int_equal(smx_forward(op, NULL, &params, 2, from1, 2, to1), SMX_OK);
  assert_int_equal(smx_forward(op, ctx, &params, 2, from, 2, to), SMX_OK);
  for (int64_t r = 0; r < shape[0]; r++)
    if (loss[r] != want) fail_msg("row %lld: %g, not %g", (long long)r, loss[r], want);
  for (size_t i = 0; i < WINDOW; i += sizeof dx) assert_memory_equal(gradient + i, dx, sizeof dx);
  assert_int_equal(smx_params_set(op, &params, "reduction", SMX_REDUCE_MEAN), SMX_OK);
  to[1] = NULL;
  assert_int_equal(smx_forward(op, ctx, &params, 2, from, 3, to), SMX_OK);
  float block = 0; /* floats in blocks of 256 rows, blocks in double */
  for (int r = 0; r < 256; r++) block += want;
  assert_int_equal(shape[0] % 256, 1);
  assert_true(mean == (float)(((double)block * (double)(shape[0] / 256) + (double)want) / (double)shape[0]));
  smx_context_destroy(ctx);
  munmap(in, (size_t)many * 2 + WINDOW);
  munmap(gradient, (size_t)many * 2 + WINDOW);
  free(target);
  free(loss);
}

/* Few elements, far apart: strides beyond 32 bits, forwards and backwards. */
static void huge_strides(void **state) {
  enum { N = 5 };
  const int64_t step = (INT64_C(1) << 30) + 512, row_step = step * N + 1024;
  size_t bytes = (size_t)(row_step + N * step) * sizeof(float);
  float *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(data != MAP_FAILED);
  float plain[2 * N], want[2 * N], got[2 * N];
  int64_t shape[] = {2, N}, strides[] = {-row_step, step};
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < N; i++)
      data[(1 - r) * row_step + i * step] = plain[r * N + i] = (float)(i * i - 3 * r);
  smx_tensor x = tensor(data + row_step, SMX_F32, 2, shape), y = tensor(got, SMX_F32, 2, shape);
  x.strides = strides;
  assert_int_equal(smx_softmax_f32(2, N, plain, want), SMX_OK);
  assert_int_equal(smx_softmax(NULL, 1, &x, &y), SMX_OK);
  assert_memory_equal(got, want, sizeof want);
  assert_int_equal(smx_softmax(NULL, 1, &x, &x), SMX_OK);
  for (int i = 0; i < N; i++) assert_true(data[row_step + i * step] == want[i]);
  munmap(data, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(logsumexp_of_one_row), cmocka_unit_test(softmax_of_one_row),
      cmocka_unit_test(softmax_of_many_rows), cmocka_unit_test(loss_of_one_row),
      cmocka_unit_test(loss_of_many_rows),    cmocka_unit_test(huge_strides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
