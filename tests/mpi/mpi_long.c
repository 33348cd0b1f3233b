/* mpi_long.c - proves that rows of more than 2^31 elements have the bytes of one process. Memory
 * that nobody has written is one page of zeros, so such a row takes the few that have. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "mpi.h"
#include "util.h"

#define N ((INT64_C(1) << 31) + 3 * 8192 + 5)
enum { OPERATORS = 3, SMALL = 8 };

typedef struct outputs {
  float number[2][SMALL];
  int64_t index[SMALL];
} outputs;

static smx_status call(bool whole, const smx_op *op, const smx_tensor *x, int64_t *target, int64_t first,
                       outputs *o) {
  int64_t shape[2] = {1, SMALL};
  const bool top = !strcmp(op->name, "softmax_topk"), loss = !strcmp(op->name, "cross_entropy");
  smx_tensor t = {.data = target, .device = {1, 0}, .ndim = 1, .dtype = SMX_I64, .shape = shape};
  smx_tensor a = {.data = o->number[0],
                  .device = {1, 0},
                  .ndim = top ? 2 : 1,
                  .dtype = SMX_F32,
                  .shape = shape},
             b = a;
  b.data = o->index, b.dtype = SMX_I64;
  smx_params params;
  smx_params_init(op, &params);
  if (top) smx_params_set(op, &params, "k", SMALL);
  const smx_tensor *in[] = {x, loss ? &t : NULL}, *out[] = {&a, top ? &b : NULL};
  const int32_t inputs = loss ? 2 : 1, outs = top ? 2 : 1;
  if (whole) return smx_forward(op, NULL, &params, inputs, in, outs, out);
  return smx_mpi_forward(MPI_COMM_WORLD, op, NULL, &params, inputs, in, outs, out, N, first);
}

void long_rows(void) {
  static const char *const names[OPERATORS] = {"logsumexp", "cross_entropy", "softmax_topk"};
  const size_t bytes = (size_t)N * sizeof(float);
  float *const x =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(x != MAP_FAILED, "no room for addresses");
  x[3] = 20, x[N - 1] = 21, x[N / 2] = 19.5f, x[INT64_C(1) << 31] = 20.5f;
  int64_t target[1] = {N - 2}, first = N * me / count, own = N * (me + 1) / count - first;
  first = first / 8192 * 8192; /* beyond 2^31 columns ranks begin at groups */
  own = (me + 1 == count ? N : N * (me + 1) / count / 8192 * 8192) - first;
  int64_t shape[] = {1, N};
  smx_tensor t = {.data = x, .device = {1, 0}, .ndim = 2, .dtype = SMX_F32, .shape = shape};
  for (int i = 0; i < OPERATORS; i++) {
    static outputs want, got;
    const smx_op *const op = smx_op_find(names[i]);
    memset(&want, 0, sizeof want), memset(&got, 0, sizeof got);
    shape[1] = N, t.data = x;
    CHECK(!call(true, op, &t, target, 0, &want), "%s: %s", names[i], smx_last_error());
    shape[1] = own, t.data = x + first;
    CHECK(!call(false, op, &t, target, first, &got), "%s: %s", names[i], smx_last_error());
    CHECK(!memcmp(&want, &got, sizeof got), "%s of %lld elements: %.9g, not %.9g", names[i], (long long)N,
          (double)got.number[0][0], (double)want.number[0][0]);
  }
  munmap(x, bytes);
}
