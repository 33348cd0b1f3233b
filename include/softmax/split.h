/* softmax/split.h - rows whose columns lie on several ranks, with the bits of one process.
 *
 * A row is as long as a vocabulary or a cache, and each rank (a process, a device, a thread) holds
 * some of its columns. Ranks go through rounds: each makes one pass over its columns, all messages
 * go to all ranks, and each rank folds them in the same order and so comes to the same decision.
 * How messages travel is the caller's: MPI (softmax/mpi.h), torch.distributed, sockets, memcpy.
 *
 * Results have the bits of smx_forward and smx_backward on whole rows, for any number of ranks.
 * Outputs as long as a row stay with their columns; the others are written on every rank.
 *
 *   smx_split_shard, smx_split_plan        who has which columns
 *   smx_split_rows                         how many rows go together
 *   smx_split_forward, smx_split_backward  begin a call on one rank
 *   smx_split_linear_forward, _backward    the same over the logits of a linear layer
 *   smx_split_next, _bytes, _pass, _fold   a round
 *   smx_split_bytes_for                    rounds in which ranks fold some rows each
 *   smx_split_carry                        rounds that go from rank to rank
 *   smx_split_close
 *
 * Two ranks in one process; elsewhere the two parts of `messages` would travel:
 *
 *     static float x[16384], y[16384];
 *     static unsigned char messages[65536];
 *     int64_t shape[1] = {8192};
 *     const smx_op *op = smx_op_find("softmax");
 *     smx_split *rank[2];
 *     x[10000] = 5;
 *     for (int r = 0; r < 2; r++) {
 *       smx_tensor tx = {x + 8192 * r, {1, 0}, 1, SMX_F32, shape, NULL, 0}, ty = tx;
 *       ty.data = y + 8192 * r;
 *       const smx_tensor *in[] = {&tx}, *out[] = {&ty};
 *       smx_split_part part = {sizeof part, 16384, 8192 * r, 0, 0, 0, 0};
 *       smx_split_forward(op, NULL, NULL, 1, in, 1, out, &part, &rank[r]);
 *     }
 *     for (int64_t block = 0; block < smx_split_blocks(rank[0]); block++)
 *       while (smx_split_next(rank[0], block) != SMX_SPLIT_DONE) {
 *         size_t bytes = smx_split_bytes(rank[0], block, 1), all = 2 * bytes;
 *         smx_split_pass(rank[0], block, messages);
 *         smx_split_pass(rank[1], block, messages + bytes);
 *         if (smx_split_fold(rank[0], block, messages, all) != SMX_OK) break;
 *         if (smx_split_fold(rank[1], block, messages, all) != SMX_OK) break;
 *       }
 *     smx_split_close(rank[0]);
 *     smx_split_close(rank[1]);  // y[10000] = 0.00898
 *
 * What holds for every function is at the top of softmax.h. A split is used by one thread at a
 * time.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_SPLIT_H
#define SOFTMAX_SPLIT_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns are summed in groups of so many; a group belongs to one rank. */
#define SMX_SPLIT_GROUP 8192

/* An even share of n columns in whole groups: rank r of so many has *count columns from *first on.
 * Shares differ by one group at most, and the last one is shorter. rank is 0..ranks-1. Errors:
 * SMX_ERR_NULL, SMX_ERR_SHAPE. */
SMX_API smx_status smx_split_shard(int64_t n, int64_t ranks, int64_t rank, int64_t *first, int64_t *count);

/* For columns that lie otherwise: rank r holds bounds[r] .. bounds[r + 1] - 1, with 0 = bounds[0]
 * <= ... <= bounds[ranks] = n. It sums owned[r] .. owned[r + 1] - 1: a group belongs to the rank
 * that holds most of it, to the first of equals. What others hold of it is to be sent there. Both
 * arrays have ranks + 1 numbers. Errors: SMX_ERR_NULL, SMX_ERR_SHAPE. */
SMX_API smx_status smx_split_plan(int64_t n, int64_t ranks, const int64_t *bounds, int64_t *owned);

/* Rows of a block, 1 .. 256, for messages that are worth sending and columns that caches still hold
 * in the next pass. `most`: columns of the rank that sums most of n. What softmax/mpi.h takes for
 * part->block; any other number has the same bits. Negative numbers are taken for 0. */
SMX_API int64_t smx_split_rows(int64_t n, int64_t most);

/* One rank's part of a call. */
typedef struct smx_split_part {
  size_t size; /* sizeof(smx_split_part); other fields zero mean defaults */
  int64_t n;   /* elements of a whole row */
  /* the first column of this rank: a multiple of SMX_SPLIT_GROUP, or n where it has none. Its
   * columns end at a multiple too, or at n */
  int64_t first;
  int64_t block; /* rows that go through their rounds together; 0 = all */
  int32_t slots; /* blocks that are under way at once; 0 = 1 */
  /* by rows: so many ranks fold some rows each, where that takes fewer bytes; 0 = all ranks fold
   * all. The same on every rank, but for folder: this one's number, 0 .. folders - 1 in the order
   * of ranks, or -1: it folds none */
  int32_t folders, folder;
} smx_split_part;

typedef struct smx_split smx_split;
typedef struct smx_linear smx_linear; /* softmax/heads.h */

/* Begins smx_forward or smx_backward on one rank. Tensors as long as the row, or with one value a
 * column, have this rank's columns alone; all others are whole and the same on every rank, and so
 * are op, params, the policies of ctx, which tensors are given, and n, block and slots. Rows run
 * along params->axis. ctx must live as long as the split, and so must the tensors' data.
 *
 * On an error *split is a split nonetheless, for the opening round, which tells the other ranks:
 * every rank then has that status from its fold. Only with split NULL there is none. Operators on
 * rows without a row program, or with segments, give SMX_ERR_PARAM. All memory is reserved here,
 * for the rows of `slots` blocks. Other errors are those of smx_forward and smx_backward. */
SMX_API smx_status smx_split_forward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                     int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                                     const smx_tensor *const *out, const smx_split_part *part,
                                     smx_split **split);
SMX_API smx_status smx_split_backward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                      int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                                      const smx_tensor *const *out, const smx_tensor *const *dout,
                                      const smx_tensor *const *din, const smx_split_part *part,
                                      smx_split **split);

/* smx_linear_forward and smx_linear_backward on one rank: the classes are the columns, so w, bias,
 * dw and dbias have this rank's, and h and dh are whole, the same on every rank. dh is a sum over
 * all classes, so a block ends with a RELAY whose state has rows x d doubles. part->slots is 0 or
 * 1, part->block a multiple of 64 or 0, and part->n at least 1. Memory: the logits of a block,
 * whatever keep_bytes says, their gradients, and with dh (classes / 4096 + 1) d reals and d doubles
 * for each of its rows. */
SMX_API smx_status smx_split_linear_forward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                            const smx_linear *linear, int32_t n_in,
                                            const smx_tensor *const *in, int32_t n_out,
                                            const smx_tensor *const *out, const smx_split_part *part,
                                            smx_split **split);
SMX_API smx_status smx_split_linear_backward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                             const smx_linear *linear, int32_t n_in,
                                             const smx_tensor *const *in, int32_t n_out,
                                             const smx_tensor *const *out, const smx_tensor *const *dout,
                                             const smx_tensor *const *din, const smx_split_part *part,
                                             smx_split **split);

/* Block 0 is the opening, of which no element is written: ranks tell their status and what their
 * columns count. The others, 1 .. smx_split_blocks - 1, are blocks of rows. Block b may run while
 * b - 1 does, but not before block 0, nor before b - slots, is done. */
SMX_API int64_t smx_split_blocks(const smx_split *split);

/* What comes next in a block; the same on every rank. GATHER: each rank passes, all messages go to
 * all ranks, each rank folds. RELAY, RELAY_BACK: the same, but ranks pass one after another, from
 * the first to the last or from the last to the first. Each exports its state behind its pass, the
 * next one imports it before its own (smx_split_carry), and that of the last goes to all, who
 * import it before they fold. LATER: the block has to wait.
 *
 * With part->folders there are two rounds where GATHER would have taken more bytes. SCATTER: each
 * rank passes, its message is one for each folder, one behind the other (smx_split_bytes_for), and
 * each folder folds those of all ranks that are for it. STATES: folders pass, their messages go to
 * all ranks, each rank folds. */
enum {
  SMX_SPLIT_DONE = 0,
  SMX_SPLIT_GATHER = 1,
  SMX_SPLIT_RELAY = 2,
  SMX_SPLIT_RELAY_BACK = 3,
  SMX_SPLIT_LATER = 4,
  SMX_SPLIT_SCATTER = 5,
  SMX_SPLIT_STATES = 6
};
SMX_API int32_t smx_split_next(const smx_split *split, int64_t block);

/* Bytes of the next message of a rank that has so many groups: a multiple of 8. block -1: the most
 * that any message of the call has. */
SMX_API size_t smx_split_bytes(const smx_split *split, int64_t block, int64_t groups);

/* SCATTER: bytes of that message for a folder. STATES: bytes of the folder's message, whatever
 * groups. In other rounds: smx_split_bytes. */
SMX_API size_t smx_split_bytes_for(const smx_split *split, int64_t block, int64_t groups, int32_t folder);

/* Passes over this rank's columns, and writes its message. Errors: SMX_ERR_NULL; SMX_ERR_PARAM,
 * where it is not the block's turn. */
SMX_API smx_status smx_split_pass(smx_split *split, int64_t block, void *message);

/* Takes the messages of all ranks, one behind the other in the order of ranks, `bytes` in all. A
 * message of another version, machine or call, or a missing one, is SMX_ERR_BACKEND, on every rank
 * that sees it; the status of the first rank that has failed is that of all. After an error the
 * split can only be closed. The fold that ends the last block also writes what all rows make
 * together, and gives SMX_ERR_EMPTY as smx_forward does. */
SMX_API smx_status smx_split_fold(smx_split *split, int64_t block, const void *messages, size_t bytes);

/* The state of a relayed round. Exports it (take 0) to state, which has *bytes of room, and says in
 * *bytes how many there are; state NULL: only says, and with block -1 the most of any. Imports
 * *bytes of it (take 1). Errors: SMX_ERR_NULL, SMX_ERR_PARAM (no relay, or no room),
 * SMX_ERR_BACKEND. */
SMX_API smx_status smx_split_carry(smx_split *split, int64_t block, int32_t take, void *state, size_t *bytes);

/* Ends a call, at any time. NULL is allowed. */
SMX_API void smx_split_close(smx_split *split);

#ifdef __cplusplus
}
#endif

#endif
