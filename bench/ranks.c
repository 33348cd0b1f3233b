/* ranks.c - cross-entropy with its gradient over ranks of MPI, beside one process with as many
 * threads: mpirun -n RANKS softmax_ranks [ROWS [CLASSES [TURNS]]]. The ways take turns; the least
 * time of each counts. Ranks are cut between groups, and have one thread each. */
#include <inttypes.h>
#include <softmax/mpi.h>
#include <softmax/split.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct call {
  int64_t rows, n, first, count;
  float *x, *dx, *loss;
  int64_t *target;
  smx_context *alone, *together; /* of all threads; of one */
} call;

static smx_status one_process(const call *c) {
  return smx_cross_entropy_f32(c->alone, (size_t)c->rows, (size_t)c->n, c->x, c->target, NULL, c->loss, c->dx,
                               NULL);
}
static smx_status over_ranks(const call *c) {
  return smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, c->together, (size_t)c->rows, c->n, c->first,
                                   (size_t)c->count, c->x, c->target, NULL, c->loss, c->dx, NULL);
}

/* Seconds until all ranks are done. */
static double time_of(smx_status (*way)(const call *c), const call *c, int takes_part) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  if (takes_part && way(c) != SMX_OK) {
    fprintf(stderr, "softmax_ranks: %s\n", smx_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

static smx_context *context_of(int32_t threads) {
  const smx_context_options o = {.size = sizeof o, .threads = threads};
  smx_context *ctx = NULL;
  if (smx_context_create(&o, &ctx) != SMX_OK) MPI_Abort(MPI_COMM_WORLD, 1);
  return ctx;
}

int main(int argc, char **argv) {
  int me, ranks, turns = argc > 3 ? atoi(argv[3]) : 20;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me), MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  call c = {.rows = argc > 1 ? atoll(argv[1]) : 1024, .n = argc > 2 ? atoll(argv[2]) : 151936};
  smx_split_shard(c.n, ranks, me, &c.first, &c.count);
  const size_t room = (size_t)(c.rows * (me ? c.count : c.n) + 1);
  c.x = malloc(room * sizeof *c.x), c.dx = malloc(room * sizeof *c.dx);
  c.loss = malloc((size_t)c.rows * sizeof *c.loss), c.target = malloc((size_t)c.rows * sizeof *c.target);
  if (!c.x || !c.dx || !c.loss || !c.target) MPI_Abort(MPI_COMM_WORLD, 1);
  for (size_t i = 0; i < room; i++) c.x[i] = (float)(i * 2654435761u % 1000) / 100, c.dx[i] = 0;
  for (int64_t r = 0; r < c.rows; r++) c.target[r] = r * 7 % c.n;
  c.alone = context_of(ranks), c.together = context_of(1);
  double alone = 1e9, together = 1e9;
  for (int turn = 0; turn < turns; turn++) {
    const double a = time_of(one_process, &c, !me), b = time_of(over_ranks, &c, 1);
    alone = a < alone ? a : alone, together = b < together ? b : together;
  }
  if (!me)
    printf("%" PRId64 " x %" PRId64
           ": one process with %d threads %.2f ms, %d ranks %.2f ms: %.2f of its rate\n",
           c.rows, c.n, ranks, 1e3 * alone, ranks, 1e3 * together, alone / together);
  smx_context_destroy(c.alone), smx_context_destroy(c.together);
  free(c.x), free(c.dx), free(c.loss), free(c.target);
  MPI_Finalize();
  return 0;
}
