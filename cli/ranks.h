/* ranks.h - the processes that run one command together under mpirun, each with some columns of the
 * rows. There is one where the command is built without MPI, or runs without mpirun. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <softmax.h>
#include <stdbool.h>

/* Joins the others. An exit code. */
int ranks_begin(int *argc, char ***argv);
void ranks_end(void);

int ranks_count(void);
/* Rank 0 prints and writes; what others would print goes nowhere. */
int ranks_me(void);

/* The code of the first rank that has failed, on all. The text of the fault is that rank's, whose
 * turn it is to say so: ranks_tells(). */
int ranks_agree(int code);
bool ranks_tells(void);

/* smx_forward and smx_backward of rows of n elements; this rank has those from `first` on. */
smx_status ranks_forward(const smx_op *op, smx_context *context, const smx_params *params,
                         const smx_tensor *const *in, const smx_tensor *const *out, int64_t n, int64_t first);
smx_status ranks_backward(const smx_op *op, smx_context *context, const smx_params *params,
                          const smx_tensor *const *in, const smx_tensor *const *out,
                          const smx_tensor *const *dout, const smx_tensor *const *din, int64_t n,
                          int64_t first);

/* RANKS_PIECE bytes at most, from a rank to rank 0. */
enum { RANKS_PIECE = 1 << 26 };
void ranks_send(const void *data, size_t bytes);
void ranks_receive(void *data, size_t bytes, int from);

#endif
