/* mpi_allocations.c - proves that a rank whose memory ends at any allocation of libsoftmax_mpi is
 * SMX_ERR_NOMEM on all ranks, and that none of them waits for ever: rows forward and backward, from
 * rank to rank, draws, attention by states and by heads and its gradient. To be run with
 * failing_malloc.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <softmax/attention.h>

#include "mpi.h"

enum { N = 20011, ROWS = 5, KEYS = 5300, D = 4 };

static float x[ROWS * N], y[ROWS * N], k[KEYS * D], v[KEYS * D], dk[KEYS * D], dv[KEYS * D];

static smx_tensor tensor(float *data, int64_t *shape, int32_t ndim) {
  return (smx_tensor){.data = data, .device = {1, 0}, .ndim = ndim, .dtype = SMX_F32, .shape = shape};
}

static smx_status rows(const char *name, bool backward) {
  const int64_t first = (int64_t)N * me / count;
  int64_t shape[2] = {ROWS, (int64_t)N * (me + 1) / count - first};
  const smx_tensor tx = tensor(x, shape, 2), ty = tensor(y, shape, 2);
  const smx_tensor *const in[] = {&tx}, *const out[] = {&ty}, *const none[] = {NULL};
  const smx_op *const op = smx_op_find(name);
  if (!backward) return smx_mpi_forward(MPI_COMM_WORLD, op, NULL, NULL, 1, in, 1, out, N, first);
  return smx_mpi_backward(MPI_COMM_WORLD, op, NULL, NULL, 1, none, 1, in, in, out, N, first);
}
static smx_status forward(void) { return rows("softmax", false); }
static smx_status backward(void) { return rows("softmax", true); }
static smx_status relayed(void) { return rows("logcumsumexp", false); }

static smx_status drawn(void) {
  int64_t index[ROWS];
  const int64_t first = (int64_t)N * me / count, end = (int64_t)N * (me + 1) / count;
  const smx_sample_options o = {.size = sizeof o, .processed = y};
  return smx_mpi_sample_f32(MPI_COMM_WORLD, NULL, &o, ROWS, N, first, (size_t)(end - first), x, index, NULL);
}

static smx_status attend(int64_t each, bool gradient) {
  static float q[2 * D], o[2 * D], lse[2], dq[2 * D];
  const int64_t first = (int64_t)KEYS * me / count / each * each,
                end = me + 1 == count ? KEYS : (int64_t)KEYS * (me + 1) / count / each * each;
  int64_t rows[4] = {1, 2, 1, D}, keys[4] = {1, 1, end - first, D};
  const smx_tensor tq = tensor(q, rows, 4), to = tensor(o, rows, 4), tl = tensor(lse, rows, 3),
                   tk = tensor(k, keys, 4), tv = tensor(v, keys, 4), gq = tensor(dq, rows, 4),
                   gk = tensor(dk, keys, 4), gv = tensor(dv, keys, 4);
  smx_attention_options a;
  smx_attention_init(&a);
  if (!gradient) return smx_mpi_attention(MPI_COMM_WORLD, NULL, &a, &tq, &tk, &tv, &to, &tl, KEYS, first);
  return smx_mpi_attention_backward(MPI_COMM_WORLD, NULL, &a, &tq, &tk, &tv, &to, &tl, &tq, NULL, &gq, &gk,
                                    &gv, KEYS, first);
}
static smx_status by_states(void) { return attend(1024, false); }
static smx_status by_heads(void) { return attend(1, false); }
static smx_status gradients(void) { return attend(1, true); }

/* Whether allocation `at` of one rank failed, which all ranks have then. */
static bool one(smx_status (*call)(void), int bad, long at, long *failing) {
  int failed, any = 0;
  *failing = me == bad ? at : 0;
  const smx_status status = call();
  failed = me == bad && *failing == 0, *failing = 0;
  MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  CHECK(status == (any ? SMX_ERR_NOMEM : SMX_OK), "allocation %ld of rank %d: status %d: %s", at, bad, status,
        smx_last_error());
  return any;
}

void allocations(void) {
  static smx_status (*const calls[])(void) = {forward,   backward, relayed,  drawn,
                                              by_states, by_heads, gradients};
  long *const failing = dlsym(RTLD_DEFAULT, "failing_malloc");
  CHECK(failing, "failing_malloc is not preloaded");
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    for (int bad = 0; bad < count; bad++) {
      long at = 1;
      while (one(calls[i], bad, at, failing)) at++;
      CHECK(at > 5, "call %d: only %ld allocations", (int)i, at - 1);
    }
}
