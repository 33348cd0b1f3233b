/* softmax/pooling.h - pooling over windows, and boxes that overlap.
 *
 *   smx_max_pool, _backward      the largest cell of each window, and which it is
 *   smx_avg_pool, _backward      the mean of each window
 *   smx_soft_pool, _backward     the mean of each window under its own softmax
 *   smx_window_outputs           how many windows there are
 *   smx_window_params            the same windows for any operator of the family pool that has them
 *   smx_nms                      which boxes stay: classic, or Soft-NMS
 *
 * They are the operators of these names with their parameters as fields. Pooling of sets and
 * segments, by clusters, by one query and of graphs is called by smx_forward and smx_backward.
 * `softmax help max_pool` has the formulas, and `softmax list` the rest of the family.
 *
 * What holds for every function is at the top of softmax.h.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_POOLING_H
#define SOFTMAX_POOLING_H

#include "../softmax.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Windows over the last dimensions of a tensor. Number 0 of each list is of the first of these
 * dimensions: the height of images [..., H, W]. Fields that are zero mean defaults, but kernel[0]
 * has to be given. */
typedef struct smx_window {
  size_t size;         /* sizeof(smx_window) */
  int32_t spatial;     /* how many dimensions have windows, 1 to 3; 0 = 2 */
  int32_t ceil;        /* nonzero: a last window that is not whole counts too */
  int64_t kernel[3];   /* cells of a window; [1], [2]: 0 = kernel[0] */
  int64_t stride[3];   /* cells from one window to the next; 0 = the kernel there */
  int64_t padding[3];  /* absent cells before and behind, at most half of what it spans */
  int64_t dilation[3]; /* from one cell of a window to the next; 0 = 1, or dilation[0] in [1], [2] */
} smx_window;

/* Every function here takes x [..., s*] float, of `spatial` dimensions or more, in any strides, and
 * gives y [..., o*] with o as smx_window_outputs says. f16 and bf16 are computed in f32, f64 in
 * f64. Errors beside those of any operator: SMX_ERR_NULL for a window of NULL; SMX_ERR_STRUCT for a
 * size of another struct; SMX_ERR_PARAM for a kernel, stride, padding or dilation out of range;
 * SMX_ERR_SHAPE for a kernel that reaches over more cells than there are. Aliasing: outputs may not
 * overlap anything else. Thread safety: as smx_forward. */

/* The shape and dtype of y for x, whose data may be NULL.
 *
 *     int64_t image[3] = {3, 7, 9};
 *     smx_tensor tx = {NULL, {1, 0}, 3, SMX_F32, image, NULL, 0};
 *     smx_window w = {sizeof w, 0, 0, {3}, {2, 2}, {1, 1}, {0}};
 *     smx_shape s;
 *     smx_window_outputs(&w, &tx, &s);  // s.dim = 3 4 5
 */
SMX_API smx_status smx_window_outputs(const smx_window *window, const smx_tensor *x, smx_shape *y);

/* Sets params to the defaults of op with these windows, for smx_forward. SMX_ERR_PARAM for an
 * operator without windows, and for fields that it does not have, unless they are defaults.
 *
 *     float x[4] = {3, 4, 6, 8}, y[2];
 *     int64_t cells[1] = {4}, windows[1] = {2};
 *     smx_tensor tx = {x, {1, 0}, 1, SMX_F32, cells, NULL, 0}, ty = tx;
 *     const smx_tensor *in[1] = {&tx}, *out[1] = {&ty};
 *     smx_window w = {sizeof w, 1, 0, {2}, {0}, {0}, {0}};
 *     smx_params p;
 *     ty.data = y, ty.shape = windows;
 *     smx_window_params(smx_op_find("lp_pool"), &w, &p);
 *     smx_forward(smx_op_find("lp_pool"), NULL, &p, 1, in, 1, out);  // y = 5 10
 */
SMX_API smx_status smx_window_params(const smx_op *op, const smx_window *window, smx_params *params);

/* index [..., o*] i32 or i64, or NULL: the first of the largest cells, counted through the cells of
 * its plane, or -1 where there is none: a window of nothing above -inf gives -inf, a NaN gives NaN.
 *
 *     float x[4] = {1, 3, 2, 0}, y[3], dy[3] = {1, 1, 1}, dx[4];
 *     int64_t i[3], cells[1] = {4}, windows[1] = {3};
 *     smx_tensor tx = {x, {1, 0}, 1, SMX_F32, cells, NULL, 0};
 *     smx_tensor ty = {y, {1, 0}, 1, SMX_F32, windows, NULL, 0}, ti = ty, tdy = ty, tdx = tx;
 *     smx_window w = {sizeof w, 1, 0, {2}, {1}, {0}, {0}};
 *     ti.data = i, ti.dtype = SMX_I64, tdy.data = dy, tdx.data = dx;
 *     smx_max_pool(NULL, &w, &tx, &ty, &ti);  // y = 3 3 2
 *     smx_max_pool_backward(NULL, &w, &tx, &tdy, &tdx);  // dx = 0 2 1 0
 */
SMX_API smx_status smx_max_pool(smx_context *ctx, const smx_window *window, const smx_tensor *x,
                                const smx_tensor *y, const smx_tensor *index);

/* dx like x: dy [..., o*] goes to the first of the largest cells. */
SMX_API smx_status smx_max_pool_backward(smx_context *ctx, const smx_window *window, const smx_tensor *x,
                                         const smx_tensor *dy, const smx_tensor *dx);

/* padded: nonzero divides by the cells of the padding too, as PyTorch does; 0 by those that are
 * there. The sum is in double.
 *
 *     float x[3] = {2, 4, 6}, y[2];
 *     int64_t cells[1] = {3}, windows[1] = {2};
 *     smx_tensor tx = {x, {1, 0}, 1, SMX_F32, cells, NULL, 0}, ty = tx;
 *     smx_window w = {sizeof w, 1, 0, {2}, {2}, {1}, {0}};
 *     ty.data = y, ty.shape = windows;
 *     smx_avg_pool(NULL, &w, 0, &tx, &ty);  // y = 2 5
 *     smx_avg_pool(NULL, &w, 1, &tx, &ty);  // y = 1 5
 */
SMX_API smx_status smx_avg_pool(smx_context *ctx, const smx_window *window, int32_t padded,
                                const smx_tensor *x, const smx_tensor *y);

/* dx like x, whose values do not matter. */
SMX_API smx_status smx_avg_pool_backward(smx_context *ctx, const smx_window *window, int32_t padded,
                                         const smx_tensor *x, const smx_tensor *dy, const smx_tensor *dx);

/* beta: 0 gives the mean, 1 SoftPool, large the maximum, below 0 towards the minimum.
 *
 *     float x[4] = {1, 2, 3, 4}, y[1];
 *     int64_t square[2] = {2, 2}, one[2] = {1, 1};
 *     smx_tensor tx = {x, {1, 0}, 2, SMX_F32, square, NULL, 0}, ty = tx;
 *     smx_window w = {sizeof w, 2, 0, {2}, {0}, {0}, {0}};
 *     ty.data = y, ty.shape = one;
 *     smx_soft_pool(NULL, &w, 1, &tx, &ty);  // y[0] = 3.4927
 */
SMX_API smx_status smx_soft_pool(smx_context *ctx, const smx_window *window, double beta, const smx_tensor *x,
                                 const smx_tensor *y);

/* y: of the forward call. The gradient is exact: weights move too. */
SMX_API smx_status smx_soft_pool_backward(smx_context *ctx, const smx_window *window, double beta,
                                          const smx_tensor *x, const smx_tensor *y, const smx_tensor *dy,
                                          const smx_tensor *dx);

/* What becomes of a box that overlaps a better one too much. */
typedef enum smx_nms_method {
  SMX_NMS_HARD = 0,    /* it goes: the operator nms */
  SMX_NMS_LINEAR = 1,  /* its score is multiplied by 1 - the overlap: soft_nms */
  SMX_NMS_GAUSSIAN = 2 /* by e^(-overlap^2 / sigma), whatever the overlap: soft_nms */
} smx_nms_method;

/* Fields that are zero mean defaults. */
typedef struct smx_nms_options {
  size_t size; /* sizeof(smx_nms_options) */
  smx_nms_method method;
  int32_t inclusive; /* nonzero, of HARD alone: an overlap of the threshold is too large as well */
  double threshold;  /* overlaps (intersection over union) up to it are well; 0 = 0.5, of LINEAR 0.3 */
  double sigma;      /* of GAUSSIAN; 0 = 0.5 */
  double least;      /* boxes whose scores are, or fall, below do not stay; 0 = of the soft ones 0.001 */
  int64_t most;      /* how many may stay; 0 = all */
  int32_t pixels;    /* nonzero: the far edges are the last pixels, 1 is added to widths and heights */
} smx_nms_options;

/* boxes [..., n, 4] float: x1, y1, x2, y2 with x1 <= x2 and y1 <= y2; score [..., n] float; label
 * [..., n] i32 or i64, or NULL: boxes of different classes do not overlap. index [..., n] i32 or
 * i64: the boxes that stay, the best first, of equal scores the first one, then -1; count [...] i32
 * or i64, or NULL; kept [..., n] float, or NULL: their scores, then 0. A box with a NaN in it or in
 * its score goes. options NULL means defaults; with least 0 HARD takes any score. Errors beside
 * those of any operator: SMX_ERR_STRUCT, SMX_ERR_PARAM for options out of range. Aliasing: outputs
 * may not overlap anything else. Thread safety: as smx_forward. Sources: the operators'.
 *
 *     float boxes[12] = {0, 0, 9, 9, 1, 1, 10, 10, 20, 20, 29, 29}, score[3] = {0.9f, 0.8f, 0.7f};
 *     int64_t i[3], four[2] = {3, 4}, n[1] = {3};
 *     smx_tensor tb = {boxes, {1, 0}, 2, SMX_F32, four, NULL, 0};
 *     smx_tensor ts = {score, {1, 0}, 1, SMX_F32, n, NULL, 0}, ti = ts;
 *     ti.data = i, ti.dtype = SMX_I64;
 *     smx_nms(NULL, NULL, &tb, &ts, NULL, &ti, NULL, NULL);  // i = 0 2 -1
 */
SMX_API smx_status smx_nms(smx_context *ctx, const smx_nms_options *options, const smx_tensor *boxes,
                           const smx_tensor *score, const smx_tensor *label, const smx_tensor *index,
                           const smx_tensor *count, const smx_tensor *kept);

#ifdef __cplusplus
}
#endif

#endif
