/* Cross-entropy over a vocabulary that lies on several ranks; the last line is the same for any
 * number of them:
 *   mpicc vocabulary_parallel.c $(pkg-config --cflags --libs softmax-mpi)
 *   mpirun -n 4 ./a.out */
#include <softmax/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, CLASSES = 50257 };

int main(int argc, char **argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  /* this rank's classes: any cut will do */
  const int64_t first = (int64_t)CLASSES * rank / ranks,
                count = (int64_t)CLASSES * (rank + 1) / ranks - first;
  float *x = malloc(sizeof *x * (size_t)(ROWS * count) + 1), loss[ROWS], mean = 0;
  int64_t target[ROWS];
  if (!x) MPI_Abort(MPI_COMM_WORLD, 1);
  for (int64_t r = 0; r < ROWS; r++) {
    target[r] = r * 700;
    for (int64_t i = 0; i < count; i++)
      x[r * count + i] = (float)((r * 7919 + (first + i) * 104729) % 1000) / 100;
  }
  const smx_cross_entropy_options options = {.size = sizeof options, .reduction = SMX_REDUCE_MEAN};
  /* the gradient takes the place of the logits */
  const smx_status status = smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, NULL, ROWS, CLASSES, first,
                                                      (size_t)count, x, target, &options, loss, x, &mean);
  if (status != SMX_OK) fprintf(stderr, "rank %d: %s\n", rank, smx_last_error());
  else if (rank == 0) printf("loss %a\n", (double)mean);
  free(x);
  MPI_Finalize();
  return status != SMX_OK;
}
