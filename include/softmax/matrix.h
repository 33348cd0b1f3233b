/* softmax/matrix.h - functions of matrices of scores.
 *
 *   smx_sinkhorn, smx_orthostochastic                doubly stochastic weights
 *   smx_logsumexp_objective, smx_softmax_regression   functions of a vector, with derivatives
 *   smx_jensen_shannon, smx_js_centroid, smx_dawid_skene   several distributions or votes
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_MATRIX_H
#define SOFTMAX_MATRIX_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions behind the operators of the family "matrix", with a few options that their ports do
 * not have. */

/* ---- Doubly stochastic weights --------------------------------------------------------------- */

/* Doubly stochastic weights: x [.., r, c], y alike, any strides and float dtypes. From L = x, half
 * steps L -= logsumexp of each row, then of each column, in turn, rows first; after `steps` of them
 * (1..1000) y = e^L. One step is softmax of the rows. The last step's rows or columns sum to 1, and
 * with more steps the sums of the others approach r / c or c / r: y approaches the matrix nearest
 * to e^x, in relative entropy, that has these sums. For attention: Sinkformers: Transformers with
 * Doubly Stochastic Attention (Sander, Ablin, Blondel, Peyre 2021), with 3 to 21 steps. -inf hides
 * an element; a row or column of nothing else gets zeros, or what on_empty says. A pattern of -inf
 * that no doubly stochastic matrix has (a causal mask, say) never converges. A half step is one
 * log_softmax, and has its bits. Memory: one copy of x in f32 (f64 for f64). y may be x. The
 * gradient goes back through the steps: it needs x alone and `steps` copies of it; dx may be dy
 * or x.
 *
 *     float x[4] = {0, 1, 2, 0}, y[4];
 *     int64_t shape[2] = {2, 2};
 *     smx_tensor tx = {x, {1, 0}, 2, SMX_F32, shape, NULL, 0}, ty = tx;
 *     ty.data = y;
 *     smx_sinkhorn(NULL, 20, &tx, &ty);  // y = 0.1824 0.8176 0.8176 0.1824
 */
SMX_API smx_status smx_sinkhorn(smx_context *ctx, int32_t steps, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_sinkhorn_backward(smx_context *ctx, int32_t steps, const smx_tensor *x,
                                         const smx_tensor *dy, const smx_tensor *dx);

/* The gradient of the limit of many steps, from y alone: the equations that the row and column sums
 * of y obey, solved in double for each matrix (r c^2 + c^3 / 3 steps, c^2 + 2 r c numbers
 * of memory a thread; transpose wide matrices). It costs the same for any number of steps, and is
 * exact as far as y has converged. Where y is 0, dx is 0 and dy is not read as a number; a NaN
 * elsewhere makes its matrix NaN. */
SMX_API smx_status smx_sinkhorn_implicit(smx_context *ctx, const smx_tensor *y, const smx_tensor *dy,
                                         const smx_tensor *dx);

/* Doubly stochastic weights at once: x [.., n, n] = Q R with R_kk > 0, y = Q * Q, whose rows and
 * columns sum to 1 (such a matrix is called orthostochastic). Quantum Doubly Stochastic
 * Transformers (Born et al. 2025) names a QR decomposition as a way to such weights; that it is Q *
 * Q is our reading. n^3 steps, in double. Not for masks: the order of the columns matters, and an
 * infinity makes its matrix NaN as a NaN does. Where a column but the last depends on those before
 * it there is no gradient: NaN; that of the last column is 0. No output may overlap an input. */
SMX_API smx_status smx_orthostochastic(smx_context *ctx, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_orthostochastic_backward(smx_context *ctx, const smx_tensor *x, const smx_tensor *dy,
                                                const smx_tensor *dx);

/* ---- Functions of a vector, with derivatives ------------------------------------------------- */

/* f = mu logsumexp((A x - b) / mu), the smooth maximum of m affine functions, with the derivatives
 * that second-order methods need (Gradient-Normalized Smoothness for Optimization with Approximate
 * Hessians, Semenov, Jaggi, Doikov 2025). A [m, n], b [m], x and v [n], floats of any dtype; all
 * arithmetic is f64. With p = softmax((A x - b) / mu), u = A v and U = p.u:
 *   gradient        A^T p
 *   hessian_v       A^T (p * (u - U)) / mu
 *   gauss_newton_v  A^T (p * u) / mu: without the term of rank one, never below the Hessian
 *   third_vv        A^T (p * ((u - U)^2 - p.(u - U)^2)) / mu^2: the third derivative, twice on v
 * Each is [n]; those that are NULL are not wanted, and without v only f and gradient can be. mu:
 * 1e-300..1e300. m = 0: -inf and zeros. */
SMX_API smx_status smx_logsumexp_objective(smx_context *ctx, double mu, const smx_tensor *a,
                                           const smx_tensor *b, const smx_tensor *x, const smx_tensor *v,
                                           double *f, const smx_tensor *gradient, const smx_tensor *hessian_v,
                                           const smx_tensor *gauss_newton_v, const smx_tensor *third_vv);

/* f = |softmax(A x) - b|^2 / 2, the regression that one layer of attention can be seen to solve
 * (The Closeness of In-Context Learning and Weight Shifting for Softmax Regression, Li, Song, Xia,
 * Yu, Zhou 2023), its gradient and its Hessian times v, which is not definite. As above. */
SMX_API smx_status smx_softmax_regression(smx_context *ctx, const smx_tensor *a, const smx_tensor *b,
                                          const smx_tensor *x, const smx_tensor *v, double *f,
                                          const smx_tensor *gradient, const smx_tensor *hessian_v);

/* ---- Several distributions ----------------------------------------------------------------- */

/* x [.., m, n]: m rows of logits, or logarithms of probabilities, over the same n classes. mix [m]:
 * logits of how much each row counts, w = softmax(mix); NULL: all alike. Any strides and float
 * dtypes, all arithmetic in f64. A row that counts nothing is not read as numbers; a NaN in another
 * makes the results of its m rows NaN; where another has nothing valid they are 0.
 *
 * loss [..] = sum_i w_i D(p_i || M), M = sum_i w_i p_i: the Jensen-Shannon divergence of m rows, at
 * most log m. For two rows it is the operator jensen_shannon. dx, NULL or like x, is the gradient
 * of the sum of losses, w_i p_ij (log p_ij / M_j - D(p_i || M)); it may be x itself, as the same
 * tensor. */
SMX_API smx_status smx_jensen_shannon(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x,
                                      const smx_tensor *loss, const smx_tensor *dx);

/* y [.., n]: the distribution with the least sum_i w_i JS(p_i, y), their Jensen-Shannon centroid,
 * by the fixed point of Nielsen (On a Generalization of the Jensen-Shannon Divergence and the
 * Jensen-Shannon Centroid, 2020), until the sum of changes is below 1e-10, or 1000 steps. Other
 * ways to make one label of several: labels_mix (their mean) and labels_crowd (their product). */
SMX_API smx_status smx_js_centroid(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x,
                                   const smx_tensor *y);

/* A worker's vote on the class of an item; a worker may have several votes on one item. */
typedef struct smx_vote {
  int64_t item, worker, label;
} smx_vote;

typedef struct smx_dawid_skene_options {
  size_t size;      /* sizeof(smx_dawid_skene_options); other fields zero mean defaults */
  int64_t steps;    /* the most steps; 0 = 100 */
  double tolerance; /* the largest change of a probability after which the steps end; 0 = 1e-9 */
} smx_dawid_skene_options;

/* The classes of items from votes of workers, each of whom errs in a way of his own: Maximum
 * Likelihood Estimation of Observer Error-Rates Using the EM Algorithm (Dawid, Skene 1979),
 * starting from the shares of votes. posterior [items, classes]: the probability of each class; an
 * item without votes has the prior's. prior [classes], errors [workers, classes, classes] (how
 * often the worker says l where the class is k) and *steps may be NULL. The order of votes matters
 * to the last bit alone. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_SHAPE (an item or worker out
 * of range), SMX_ERR_TARGET (a label that is no class), SMX_ERR_PARAM, SMX_ERR_NOMEM. */
SMX_API smx_status smx_dawid_skene(smx_context *ctx, const smx_dawid_skene_options *options, size_t count,
                                   const smx_vote *votes, size_t items, size_t workers, size_t classes,
                                   double *posterior, double *prior, double *errors, int64_t *steps);

#ifdef __cplusplus
}
#endif
#endif
