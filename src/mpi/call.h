/* mpi/call.h - a call over the ranks of a communicator. call.c has the public functions of
 * operators, ports.c what ranks agree on before columns move, columns.c moves them to the ranks
 * of their groups and back, rounds.c runs the rounds of softmax/split.h. */
#ifndef SMX_MPI_CALL_H
#define SMX_MPI_CALL_H
#include <mpi.h>
#include <softmax.h>
#include <stdbool.h>

/* The tensors of a call, in the order of smx_backward; those of a layer's classes and their
 * gradients. */
enum { IN, OUT, DOUT, DIN, LAYER, DLAYER, SETS };
enum { LAYER_W, LAYER_BIAS }; /* and their gradients, in DLAYER */

/* The groups that a rank sums, in order: one of which ranks before it hold a part, those that it
 * holds as a whole, and one of which ranks behind it hold a part. Each is a split of its own
 * (softmax/split.h), as if it were a rank; the first and the last are copies. */
enum { LOW, INNER, HIGH, PIECES };

/* A tensor with columns of its own on every rank, and those of each piece of this rank. */
typedef struct mpi_port {
  bool moves;
  int32_t axis;
  int64_t rows;
  struct {
    smx_tensor t;
    int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
  } piece[PIECES];
} mpi_port;

typedef struct mpi_call {
  MPI_Comm comm;
  int me, ranks;
  const smx_op *op;
  smx_context *ctx;
  const smx_params *params;
  bool layered;             /* rows are the logits of a linear layer, not x */
  const smx_linear *linear; /* as given */
  smx_tensor logits;        /* their shape */
  int64_t logits_shape[2];
  bool backward;
  int32_t n_in, n_out;
  const smx_tensor *given[SETS][SMX_MAX_PORTS], *used[PIECES][SETS][SMX_MAX_PORTS];
  mpi_port port[SETS][SMX_MAX_PORTS];
  int64_t n, first, count;
  int64_t *bounds, *owned; /* of all ranks, as smx_split_plan has them */
  int *numbers;            /* room for 4 * ranks */
  MPI_Datatype *types;     /* room for 2 * ranks */
  bool apart;              /* some group lies on several ranks */
  char *sent, *come;       /* room for columns on their way */
} mpi_call;

/* Whether the call writes them: a gradient reads the outputs. */
static inline bool mpi_writes(const mpi_call *c, int set) {
  return set == DLAYER || set == (c->backward ? DIN : OUT);
}

/* The call in memory with room for numbers of all ranks; NULL on every rank where one has none. To
 * be freed. */
mpi_call *mpi_open(MPI_Comm comm, smx_status *status);
/* A tensor of packed elements. */
smx_tensor mpi_tensor(const void *data, smx_dtype dtype, int32_t ndim, int64_t *shape);

/* Makes a rank's status that of all: the first that is not SMX_OK. */
smx_status mpi_agree(const mpi_call *c, smx_status status);

/* Where a piece of rank r begins and ends; false where it has no such piece. A rank without groups
 * has an empty INNER. */
bool mpi_piece(const mpi_call *c, int r, int piece, int64_t *first, int64_t *end);

/* Collective; SMX_OK on all ranks or on none. */
smx_status mpi_ports(mpi_call *c);
smx_status mpi_columns_open(mpi_call *c);
smx_status mpi_columns_move(mpi_call *c, bool back);
smx_status mpi_rounds(mpi_call *c);
void mpi_columns_close(mpi_call *c);

/* SMX_OK, or what MPI says. */
smx_status mpi_status(int code, const char *what);

#endif
