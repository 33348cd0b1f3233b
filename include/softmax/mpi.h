/* softmax/mpi.h - rows whose columns lie on the ranks of an MPI communicator, with the bits of one
 * process. A library of its own, libsoftmax_mpi (pkg-config softmax-mpi), on MPI-3 and
 * softmax/split.h; softmax.h does not include this file.
 *
 *   smx_mpi_forward, smx_mpi_backward   any operator on rows
 *   smx_mpi_linear_forward, _backward   any operator on rows over the logits of a linear layer
 *   smx_mpi_cross_entropy_f32           a loss over a vocabulary
 *   smx_mpi_sample_f32                  draws, by any chain of steps
 *   smx_mpi_attention, _backward        attention whose keys lie on the ranks
 *
 * A rank holds `count` columns of every row, `first` and those behind it, in the order of ranks.
 * Any cut will do. At multiples of SMX_SPLIT_GROUP nothing is copied; elsewhere the columns of a
 * group that two ranks share travel to the one that holds most of it, which has a copy of that
 * group alone while the call runs.
 *
 *     // mpicc train.c $(pkg-config --cflags --libs softmax-mpi); mpirun -n 4 ./a.out
 *     float x[2 * 1000] = {0}, loss[2];  // 2 rows of 4000, 1000 columns of each on this rank
 *     int64_t target[2] = {17, 2500};    // the same on every rank
 *     int rank;
 *     MPI_Comm_rank(MPI_COMM_WORLD, &rank);
 *     smx_mpi_cross_entropy_f32(MPI_COMM_WORLD, NULL, 2, 4000, 1000 * rank, 1000, x, target, NULL,
 *                               loss, NULL, NULL);
 *
 * All functions are collective: every rank of comm calls them, with the same op, params, shapes of
 * rows, policies and tensors, and gets the same status. An error on one rank is one on all, and is
 * found before anything is written; SMX_ERR_BACKEND stands for an error of MPI too. comm needs no
 * more than MPI_THREAD_FUNNELED; calls on different communicators are independent.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_MPI_H
#define SOFTMAX_MPI_H

#include <mpi.h>

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* smx_forward and smx_backward on rows of n elements. Tensors as long as the row, or with one value
 * a column, have this rank's columns, from `first` on; the others are whole, and outputs that are
 * not as long as the row are written on every rank. Operators without a row program give
 * SMX_ERR_PARAM. Memory: the states of 512 rows at most, terms of 8 MB, messages, and where a cut
 * is no multiple of SMX_SPLIT_GROUP a copy of that group's columns. */
SMX_API smx_status smx_mpi_forward(MPI_Comm comm, const smx_op *op, smx_context *ctx,
                                   const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                   int32_t n_out, const smx_tensor *const *out, int64_t n, int64_t first);
SMX_API smx_status smx_mpi_backward(MPI_Comm comm, const smx_op *op, smx_context *ctx,
                                    const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                    int32_t n_out, const smx_tensor *const *out,
                                    const smx_tensor *const *dout, const smx_tensor *const *din, int64_t n,
                                    int64_t first);

/* smx_linear_forward and smx_linear_backward of a layer whose classes lie on the ranks: w, bias, dw
 * and dbias have this rank's of all `classes`, from `first` on; h and dh are whole and the same on
 * every rank, and so is what the operator has for each row. in[0] and din[0] are NULL. The logits
 * of 256 rows are kept at a time. Products run on all ranks at once; dh is then summed in the
 * order of classes, from rank to rank: d doubles a row. Errors: as above, those of
 * smx_linear_forward, and SMX_ERR_SHAPE without classes. */
SMX_API smx_status smx_mpi_linear_forward(MPI_Comm comm, const smx_op *op, smx_context *ctx,
                                          const smx_params *params, const smx_linear *linear, int32_t n_in,
                                          const smx_tensor *const *in, int32_t n_out,
                                          const smx_tensor *const *out, int64_t classes, int64_t first);
SMX_API smx_status smx_mpi_linear_backward(MPI_Comm comm, const smx_op *op, smx_context *ctx,
                                           const smx_params *params, const smx_linear *linear, int32_t n_in,
                                           const smx_tensor *const *in, int32_t n_out,
                                           const smx_tensor *const *out, const smx_tensor *const *dout,
                                           const smx_tensor *const *din, int64_t classes, int64_t first);

/* smx_cross_entropy_f32: x and dx have rows x count elements, options->class_weight has count;
 * target, loss, options->lse and reduced are whole on every rank, and targets are classes of all n.
 * Errors: as above, and those of smx_cross_entropy_f32. */
SMX_API smx_status smx_mpi_cross_entropy_f32(MPI_Comm comm, smx_context *ctx, size_t rows, int64_t n,
                                             int64_t first, size_t count, const float *x,
                                             const int64_t *target, const smx_cross_entropy_options *options,
                                             float *loss, float *dx, float *reduced);

/* smx_sample_f32: logits has count columns of each of `rows` rows, options->row_stride apart (0 =
 * count), and options->processed receives as many. Masks are of all n tokens; they, the steps and
 * all else of options are the same on every rank, which also gets index, log_p and options->status
 * of all rows. The logits are redistributed: each rank draws from whole rows of its share, some
 * at a time.
 * Errors: those of smx_sample_f32 and SMX_ERR_BACKEND. n is less than 2^31. */
SMX_API smx_status smx_mpi_sample_f32(MPI_Comm comm, smx_context *ctx, const smx_sample_options *options,
                                      size_t rows, int64_t n, int64_t first, size_t count,
                                      const float *logits, int64_t *index, float *log_p);

/* smx_attention: k and v have this rank's keys, of n in all from `first` on, and so have the
 * last axes of options->mask and bias, unless they are 1 on every rank; all else is whole and
 * the same on every rank, and o and lse are written on every rank. Where all cuts are at
 * multiples of 1024 keys, states of the kind can be merged (SMX_ATTENTION_STATES; not with the
 * norm COUNT, nor with options->lengths), states travel: smx_attention_state_width(e) numbers
 * for each row and 1024 keys, as a long cache wants it. Otherwise each rank gets all keys of a
 * head at a time. Packed or paged keys: SMX_ERR_PARAM. Dropout, on_empty and so on are as in one
 * process. */
SMX_API smx_status smx_mpi_attention(MPI_Comm comm, smx_context *ctx, const smx_attention_options *options,
                                     const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                     const smx_tensor *o, const smx_tensor *lse, int64_t n, int64_t first);

/* smx_attention_backward: dk and dv have this rank's keys, dq is written on every rank; dq, dk, dv
 * and d_lse may be NULL, on all ranks. All keys of a head travel to one rank, gradients back. */
SMX_API smx_status smx_mpi_attention_backward(MPI_Comm comm, smx_context *ctx,
                                              const smx_attention_options *options, const smx_tensor *q,
                                              const smx_tensor *k, const smx_tensor *v, const smx_tensor *o,
                                              const smx_tensor *lse, const smx_tensor *d_o,
                                              const smx_tensor *d_lse, const smx_tensor *dq,
                                              const smx_tensor *dk, const smx_tensor *dv, int64_t n,
                                              int64_t first);

#ifdef __cplusplus
}
#endif

#endif
