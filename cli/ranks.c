/* ranks.c - ranks of MPI. */
#include "ranks.h"

#include "fault.h"

#include <softmax/mpi.h>
#include <stdlib.h>

static int me, count = 1;
static int agreed; /* the code of a fault that all know of */
static bool joined, tells = true;

/* What the launchers of Open MPI, MPICH and their like set for each process. */
static bool launched(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (getenv(names[i])) return true;
  return false;
}

int ranks_begin(int *argc, char ***argv) {
  int got;
  if (!launched()) return EXIT_OK;
  if (MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &got) != MPI_SUCCESS)
    return fault(EXIT_REFUSED, "MPI cannot be started");
  joined = true;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  if (me && !freopen("/dev/null", "w", stdout)) return fault(EXIT_UNWRITABLE, "/dev/null: cannot be opened");
  return EXIT_OK;
}
void ranks_end(void) {
  if (joined) MPI_Finalize();
}

int ranks_count(void) { return count; }
int ranks_me(void) { return me; }
bool ranks_tells(void) { return tells; }

int ranks_agree(int code) {
  struct {
    int ok, rank;
  } mine = {code ? 0 : 1, me}, first;
  if (count == 1) return code;
  if (agreed) return agreed;
  if (MPI_Allreduce(&mine, &first, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD) != MPI_SUCCESS)
    return fault(EXIT_REFUSED, "MPI: the ranks cannot agree");
  if (first.ok) return EXIT_OK;
  tells = first.rank == me;
  MPI_Bcast(&code, 1, MPI_INT, first.rank, MPI_COMM_WORLD);
  return agreed = code;
}

smx_status ranks_forward(const smx_op *op, smx_context *context, const smx_params *params,
                         const smx_tensor *const *in, const smx_tensor *const *out, int64_t n,
                         int64_t first) {
  if (count == 1) return smx_forward(op, context, params, op->input_count, in, op->output_count, out);
  return smx_mpi_forward(MPI_COMM_WORLD, op, context, params, op->input_count, in, op->output_count, out, n,
                         first);
}
smx_status ranks_backward(const smx_op *op, smx_context *context, const smx_params *params,
                          const smx_tensor *const *in, const smx_tensor *const *out,
                          const smx_tensor *const *dout, const smx_tensor *const *din, int64_t n,
                          int64_t first) {
  if (count == 1)
    return smx_backward(op, context, params, op->input_count, in, op->output_count, out, dout, din);
  return smx_mpi_backward(MPI_COMM_WORLD, op, context, params, op->input_count, in, op->output_count, out,
                          dout, din, n, first);
}

void ranks_send(const void *data, size_t bytes) {
  MPI_Send(data, (int)bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}
void ranks_receive(void *data, size_t bytes, int from) {
  MPI_Recv(data, (int)bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
