/* mpi_bytes.c - proves that what ranks send is what docs/performance.md says: a head for each
 * message, and a part for each row and group, once for softmax and for a loss with its gradient; or
 * parts to the rank that folds the row, and its state. */
#include <stdbool.h>
#include <stdlib.h>

#include "mpi.h"
#include "util.h"

enum { HEAD = 64, PART = 144, STATE = 1360, ROWS = 600, CACHED = 1 << 18, N = 40000, GROUP = 8192 };

/* Called by the library in the place of MPI's. */
static int64_t sent, messages;
int MPI_Iallgatherv(const void *from, int own, MPI_Datatype type, void *to, const int *counts, const int *at,
                    MPI_Datatype got, MPI_Comm comm, MPI_Request *request) {
  sent += own, messages++;
  return PMPI_Iallgatherv(from, own, type, to, counts, at, got, comm, request);
}

int64_t scattered;
int MPI_Ialltoallv(const void *from, const int *own, const int *own_at, MPI_Datatype type, void *to,
                   const int *counts, const int *at, MPI_Datatype got, MPI_Comm comm, MPI_Request *request) {
  for (int r = 0; r < count; r++) sent += own[r];
  scattered++;
  return PMPI_Ialltoallv(from, own, own_at, type, to, counts, at, got, comm, request);
}

/* Where a rank's groups begin, in elements. */
static int64_t begin_of(int r) {
  const int64_t groups = (N + GROUP - 1) / GROUP, first = groups * r / count * GROUP;
  return first < N ? first : N;
}
static int64_t widest(void) {
  int64_t most = 0;
  for (int r = 0; r < count; r++)
    if (begin_of(r + 1) - begin_of(r) > most) most = begin_of(r + 1) - begin_of(r);
  return most;
}

static void one(bool gradient, int64_t first, int64_t own, int64_t groups) {
  const int64_t block = CACHED / widest(), blocks = (ROWS + block - 1) / block, passes = gradient ? 2 : 1;
  static float loss[ROWS];
  static int64_t target[ROWS];
  float *const x = calloc((size_t)(ROWS * own + 1), sizeof *x), *const dx = gradient ? x : NULL;
  CHECK(x, "no memory");
  sent = messages = 0;
  CHECK(!smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, NULL, ROWS, N, first, (size_t)own, x, target, NULL, loss,
                                   dx, NULL),
        "%s", smx_last_error());
  CHECK(messages == 1 + passes * blocks, "%d messages", (int)messages);
  CHECK(sent == messages * HEAD + passes * ROWS * groups * PART, "%d bytes of %d groups", (int)sent,
        (int)groups);
  free(x);
}

/* All columns on the last rank, and more than caches hold: every rank sends each of the others the
 * parts of the rows that it folds, and then their states. */
static void by_rows(void) {
  enum { FEW = 4, WIDE = 1200000, WIDE_GROUPS = (WIDE + GROUP - 1) / GROUP };
  const bool last = me == count - 1;
  const int64_t own = last ? WIDE : 0, folded = FEW * (me + 1) / count - FEW * me / count;
  float loss[FEW], *const x = calloc((size_t)(FEW * own + 1), sizeof *x);
  int64_t target[FEW] = {0, WIDE - 1, 8191, 8192};
  CHECK(x, "no memory");
  sent = messages = scattered = 0;
  CHECK(!smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, NULL, FEW, WIDE, 0, (size_t)own, x, target, NULL, loss,
                                   NULL, NULL),
        "%s", smx_last_error());
  CHECK(scattered == 1 && messages == 2, "%d and %d messages", (int)scattered, (int)messages);
  const int64_t parts = last ? (int64_t)FEW * WIDE_GROUPS * PART : 0,
                states = sent - (count + 2) * HEAD - parts;
  CHECK(states == folded * STATE, "%d bytes of %d states", (int)states, (int)folded);
  free(x);
}

void bytes(void) {
  if (count > 1) by_rows();
  const int64_t first = begin_of(me), own = begin_of(me + 1) - first, groups = (own + GROUP - 1) / GROUP;
  for (int gradient = 0; gradient < 2; gradient++) one(gradient, first, own, groups);
}
