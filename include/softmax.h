/* softmax.h - the public interface of libsoftmax.
 *
 * This file has the status, tensors, the context, operators as data, and the functions that most
 * programs use. It includes the other parts at its end: softmax/attention.h, softmax/heads.h,
 * softmax/sampling.h, softmax/matrix.h, softmax/pooling.h, softmax/routing.h, softmax/scores.h and
 * softmax/split.h. A part may also be included alone.
 *
 * libsoftmax turns rows of scores (logits) into weights, sums and decisions: softmax and the
 * operators around it, forward and backward.
 *
 *     float x[3] = {1, 2, 3}, y[3];
 *     smx_softmax_f32(1, 3, x, y);  // y = 0.0900 0.2447 0.6652
 *
 * Three things hold for every function in these files.
 *
 * The same bits everywhere. A result depends on the operator, its parameters, the input values, the
 * shapes and the dtypes. It does not depend on the instruction set, the number of threads, the rows
 * around a row, alignment, strides, or on working in place. docs/numerics.md says how.
 *
 * One contract. A masked element does not exist: it is never read as a number and gets weight and
 * gradient 0. A row with nothing valid in it gives zeros (logsumexp: -inf), or what
 * smx_context_options.on_empty asks for. A NaN that is not masked makes every output of its row the
 * canonical quiet NaN. The +inf of a row of scores does the same, or shares the mass when
 * smx_context_options.on_inf says so. f16 and bf16 are computed in f32 and rounded once; f64 is
 * computed in f64.
 *
 * No surprises. The library never prints, aborts or exits. Every function that can fail returns an
 * smx_status, and smx_last_error() then names the argument and its value. On an error nothing has
 * been written, unless the status says otherwise. Inputs are never modified. Sizes are 64-bit and
 * products of sizes are checked for overflow. All functions may be called from many threads at
 * once; the caller's floating-point environment is saved, set to round-to-nearest without
 * flush-to-zero, and restored.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SOFTMAX_H
#define SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(SMX_BUILD) && defined(__GNUC__)
#define SMX_API __attribute__((visibility("default")))
#else
#define SMX_API
#endif

#define SMX_VERSION_MAJOR 0
#define SMX_VERSION_MINOR 1
#define SMX_VERSION_PATCH 0

/* "0.1.0": the version of the library that is linked, which may be newer than this header. */
SMX_API const char *smx_version(void);

/* ---- Status ---------------------------------------------------------------------------------- */

/* 0 is success, errors are negative. Values are never renumbered. */
typedef enum smx_status {
  SMX_OK = 0,
  SMX_ERR_NULL = -1,  /* a required pointer is NULL */
  SMX_ERR_SHAPE = -2, /* negative, overflowing or mismatched shape; axis or offsets out of range */
  SMX_ERR_DTYPE = -3, /* a dtype that this argument cannot have */
  SMX_ERR_PARAM = -4, /* a parameter outside its range, or no parameter of that name */
  SMX_ERR_ALIAS = -5, /* an output overlaps another buffer in a way that is not allowed */
  SMX_ERR_EMPTY = -6, /* on_empty is SMX_EMPTY_ERROR and a row has nothing valid; see smx_context_options */
  SMX_ERR_NO_BACKWARD = -7, /* the operator has no gradient, or not for this input */
  SMX_ERR_NO_OP = -8,       /* no operator of that name */
  SMX_ERR_NOMEM = -9,       /* the allocator returned NULL */
  SMX_ERR_DEVICE = -10,     /* a tensor that is not in CPU memory */
  SMX_ERR_STRUCT = -11,     /* the size field of a struct is not one this library knows */
  SMX_ERR_THREAD = -12,     /* a thread could not be started */
  SMX_ERR_TARGET = -13,     /* a row's target is no class of it; nothing has been written */
  /* what came from another rank is no message of this call and this version, or the transport
   * failed: softmax/split.h, softmax/mpi.h */
  SMX_ERR_BACKEND = -14
} smx_status;

/* The status in a few words: "wrong shape". Never NULL. */
SMX_API const char *smx_strerror(smx_status status);

/* One line about the last error of the calling thread, naming the argument and its value: "softmax:
 * x: shape[1] is -3". It stays until the next failing call of the same thread; "" before the first.
 * Never NULL. */
SMX_API const char *smx_last_error(void);

/* Makes text what smx_last_error() says, as much of it as fits; NULL: the status in words. Returns
 * status. For libraries on top of this one, so that their callers look in one place. */
SMX_API smx_status smx_set_error(smx_status status, const char *text);

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Element types, laid out and numbered as DLDataType of DLPack. */
typedef struct smx_dtype {
  uint8_t code; /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} smx_dtype;

static const smx_dtype SMX_F16 = {2, 16, 1};
static const smx_dtype SMX_BF16 = {4, 16, 1};
static const smx_dtype SMX_F32 = {2, 32, 1};
static const smx_dtype SMX_F64 = {2, 64, 1};
static const smx_dtype SMX_I32 = {0, 32, 1};
static const smx_dtype SMX_I64 = {0, 64, 1};
static const smx_dtype SMX_U8 = {1, 8, 1};
static const smx_dtype SMX_BOOL = {6, 8, 1};

/* A view of memory, with the layout of DLTensor: tensors of NumPy, PyTorch, JAX, CuPy and TVM pass
 * without a copy. The library reads the struct and the data during the call only. strides are in
 * elements, may be negative or 0 (a broadcast input); strides == NULL means C order. An output must
 * not have two elements at one address. */
typedef struct smx_tensor {
  void *data;
  struct {
    int32_t device_type; /* 1 = CPU; 0 is taken as CPU too */
    int32_t device_id;
  } device;
  int32_t ndim; /* 0..SMX_MAX_DIMS */
  smx_dtype dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} smx_tensor;

#define SMX_MAX_DIMS 8

/* ---- Context --------------------------------------------------------------------------------- */

/* Threads, memory and policies. NULL is a valid context everywhere: one thread, malloc, the default
 * policies. A context may be used by many threads at once; one of them gets the workers (256 KB of
 * stack each), the others run alone. A child after fork() may go on using it. A thread that is
 * cancelled ends its call first. A call takes 16 KB of stack at most, some of heads, pools and
 * matrices 21 KB. */
typedef struct smx_context smx_context;

typedef enum smx_on_empty {
  SMX_EMPTY_ZERO = 0, /* weights 0, logsumexp and log-weights -inf, gradients 0 */
  SMX_EMPTY_NAN = 1,  /* weights and log-weights NaN, logsumexp -inf */
  /* SMX_ERR_EMPTY naming the first such row; its output stays untouched, the other rows may have
   * been written */
  SMX_EMPTY_ERROR = 2
} smx_on_empty;

typedef enum smx_on_inf {
  SMX_INF_NAN = 0,  /* a row of scores with +inf is a row of NaN */
  SMX_INF_LIMIT = 1 /* its +inf entries share the mass, the others get 0 */
} smx_on_inf;

/* Runs task(arg, i) for every i of 0..count-1, in any order, on any threads, and returns when all
 * are done. */
typedef void smx_parallel_for(void *user, int64_t count, void (*task)(void *arg, int64_t i), void *arg);

typedef struct smx_context_options {
  size_t size; /* sizeof(smx_context_options); other fields zero mean defaults */
  /* threads to use, this one included; 0 = 1; -1 = as many as the process may run on (affinity,
   * cgroup) */
  int32_t threads;
  /* the caller's own threads instead of a pool; `threads` then says how many */
  smx_parallel_for *parallel_for;
  void *parallel_user;
  /* both or neither; alignment is a power of two; must be thread safe */
  void *(*alloc)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *p);
  void *alloc_user;
  smx_on_empty on_empty;
  smx_on_inf on_inf;
} smx_context_options;

/* Makes a context. options may be NULL. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_PARAM,
 * SMX_ERR_NOMEM, SMX_ERR_THREAD. */
SMX_API smx_status smx_context_create(const smx_context_options *options, smx_context **out);

/* Frees a context that no call is using. NULL is allowed. */
SMX_API void smx_context_destroy(smx_context *ctx);

/* The number of threads a call with this context may use. */
SMX_API int32_t smx_context_threads(const smx_context *ctx);

/* The instruction set in use: "avx512", "avx2", "neon" or "portable". The environment variable
 * SMX_ISA, read once, may name a lower one. It is a matter of speed only. */
SMX_API const char *smx_isa_name(void);

/* ---- Operators are data ---------------------------------------------------------------------- */

/* How the shape of an input or output follows from the first input x, whose rows run along the axis
 * and have n elements. */
typedef enum smx_shape_rule {
  SMX_SHAPE_FULL = 0,    /* the shape of x; an auxiliary input may also broadcast to it (NumPy's rules) */
  SMX_SHAPE_ROW = 1,     /* one value a row: the shape of x without the axis, or what broadcasts to that */
  SMX_SHAPE_OFFSETS = 2, /* [segments + 1], i32 or i64: 0 = o[0] <= o[1] <= ... <= o[segments] = n */
  SMX_SHAPE_COLUMN = 3,  /* shape [n]: one value an element of the axis, the same for every row */
  /* the shape of x, but as many elements along the axis as the parameter k says; an input may also
   * broadcast to that, and k = 0 means as many as it has along the axis */
  SMX_SHAPE_K = 4,
  /* an output of one value for all rows, ndim 0: the first output, reduced as the parameter
   * `reduction` says */
  SMX_SHAPE_SCALAR = 5,
  SMX_SHAPE_DIMS = 6 /* the dimensions that smx_port.dims names; such an operator has no axis */
} smx_shape_rule;

enum {
  SMX_PORT_OPTIONAL = 1, /* may be NULL */
  SMX_PORT_MASK = 2,     /* bool or u8: nonzero = keep */
  SMX_PORT_INT = 4,      /* i32 or i64 */
  SMX_PORT_GRAD = 8,     /* smx_backward can give the gradient of this input */
  SMX_PORT_SAVED = 16,   /* smx_backward reads this input or output; ports without it may be NULL there */
  /* each value is a class, 0..n-1, or ignore_index, where that is no parameter -1; anything else is
   * SMX_ERR_TARGET */
  SMX_PORT_TARGET = 32,
  SMX_PORT_EITHER = 64,  /* exactly one of the inputs with this flag is given */
  SMX_PORT_WEIGHT = 128, /* a mean over the rows divides by the sum of these at the targets */
  /* an output that is the gradient of x, and may be in the buffer of x, with the same strides and
   * dtype */
  SMX_PORT_DX = 256,
  SMX_PORT_NOT_NEGATIVE = 512, /* of SMX_SHAPE_COLUMN: a value below 0 is SMX_ERR_PARAM, with its class */
  SMX_PORT_LENGTH = 1024,      /* each value is 0..n; anything else is SMX_ERR_SHAPE, with its row */
  SMX_PORT_STATE = 2048        /* sums that a later call goes on with: smx_infer gives f32 for f16 and bf16 */
  /* Only the first four outputs can be saved, or have upstream gradients. */
};

typedef struct smx_port {
  const char *name;
  smx_shape_rule shape;
  uint32_t flags; /* SMX_PORT_* */
  const char *help;
  /* SMX_SHAPE_DIMS: the names of the dimensions, as in "... n d", else NULL. A name is the same
   * number in all ports: that of the first input that has it, else the parameter of that name, else
   * what smx_infer says.
   *   ...   any dimensions in front, the same in all ports that have them
   *   s*    as many dimensions as the parameter `spatial` says
   *   n+1   one more than n
   *   3     itself
   * Behind a bar stands what whole numbers are: "| < c" 0..c-1, "| <= n" offsets from 0 to n. */
  const char *dims;
} smx_port;

enum {
  SMX_PARAM_INT = 1,      /* whole numbers only */
  SMX_PARAM_OPEN_MIN = 2, /* min itself is not allowed */
  SMX_PARAM_NONZERO = 4,
  SMX_PARAM_MAX_N = 8, /* at most the length of a row */
  SMX_PARAM_EVEN = 16, /* even whole numbers only */
  /* of a step of sampling: there is no default, the number has to be given; def is a usual value */
  SMX_PARAM_REQUIRED = 32
};

typedef struct smx_param {
  const char *name;           /* "temperature" */
  const char *help;           /* one line */
  double def, min, max;       /* def NaN: computed from the call, as help says */
  uint32_t flags;             /* SMX_PARAM_* */
  const char *const *choices; /* NULL, or NULL-terminated names of the values 0, 1, ... */
} smx_param;

enum {
  SMX_OP_BACKWARD = 1, /* has a gradient */
  /* the first output may be the first input's buffer, with the same strides and dtype */
  SMX_OP_INPLACE = 2,
  /* its gradient leaves out something that depends on x, as `about` says, so difference quotients
   * do not give it */
  SMX_OP_DETACHED = 4
};

/* All there is to know about an operator. Read-only; new fields are added at the end. */
typedef struct smx_op {
  int32_t id;          /* stable for ever, never reused */
  uint32_t flags;      /* SMX_OP_* */
  const char *name;    /* "softmax" */
  const char *family;  /* "row"; operators of one kind */
  const char *title;   /* a few words */
  const char *formula; /* y_i = ... */
  const char *about;   /* what it is for, edge cases; some sentences */
  const char *source;  /* paper, authors, year; or "standard" */
  const char *example; /* a line for the command */
  double tolerance;    /* largest error of f32 results, in 2^-24 of their scale; see docs/numerics.md */
  int32_t input_count, output_count, param_count;
  const smx_port *inputs; /* inputs[0] is x */
  const smx_port *outputs;
  const smx_param *params;
} smx_op;

SMX_API size_t smx_op_count(void);
SMX_API const smx_op *smx_op_at(size_t i);           /* NULL when i >= smx_op_count() */
SMX_API const smx_op *smx_op_find(const char *name); /* NULL when there is none */

#define SMX_MAX_PARAMS 18
#define SMX_MAX_PORTS 8

/* The settings of one call. Fill with smx_params_init, then change. */
typedef struct smx_params {
  size_t size;  /* sizeof(smx_params), set by smx_params_init */
  int32_t axis; /* rows run along it; negative counts from the end; -1 by default, and without rows */
  double value[SMX_MAX_PARAMS]; /* in the order of op->params; a choice is its number */
} smx_params;

/* Sets axis -1 and every parameter's default. */
SMX_API smx_status smx_params_init(const smx_op *op, smx_params *params);

/* Sets one parameter by name, checking its range. Errors: SMX_ERR_NULL, SMX_ERR_PARAM. */
SMX_API smx_status smx_params_set(const smx_op *op, smx_params *params, const char *name, double value);

/* Sets one parameter from text: a number, or the name of a choice. */
SMX_API smx_status smx_params_parse(const smx_op *op, smx_params *params, const char *name, const char *text);

typedef struct smx_shape {
  int32_t ndim;
  int64_t dim[SMX_MAX_DIMS];
  smx_dtype dtype; /* of the output: that of x, or i64 for whole numbers */
} smx_shape;

/* The shapes and dtypes of the outputs for these inputs, without reading data: in[i]->data may be
 * NULL. out has n_out entries. */
SMX_API smx_status smx_infer(const smx_op *op, const smx_params *params, int32_t n_in,
                             const smx_tensor *const *in, int32_t n_out, smx_shape *out);

/* Runs an operator. params NULL means defaults. in and out are in the order of op->inputs and
 * op->outputs; optional ones may be NULL or left off the end. Float ports take f16, bf16, f32 or
 * f64, each its own. The arithmetic is f64 when any float input is f64, otherwise f32. Aliasing:
 * outputs may not overlap inputs or each other, except as SMX_OP_INPLACE says.
 *
 *     float x[3] = {1, 1.5f, 2}, y[3];
 *     int64_t shape[1] = {3};
 *     smx_tensor tx = {x, {1, 0}, 1, SMX_F32, shape, NULL, 0}, ty = tx;
 *     ty.data = y;
 *     const smx_tensor *in[] = {&tx}, *out[] = {&ty};
 *     const smx_op *op = smx_op_find("entmax");
 *     smx_params params;
 *     smx_params_init(op, &params);
 *     smx_params_set(op, &params, "alpha", 1.5);
 *     smx_forward(op, NULL, &params, 1, in, 1, out);  // y = 0.0841 0.2917 0.6242
 */
SMX_API smx_status smx_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                               const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out);

/* Runs the gradient (vector-Jacobian product). in and out: those of the forward call, where their
 * ports are SMX_PORT_SAVED. dout: the upstream gradients, one an output; NULL counts as 0, and
 * outputs of whole numbers have none. dout[0] is required; where dimensions have names any one
 * will do. din: where to put the gradients, one an input; NULL = not wanted. The gradient of a
 * broadcast input has the full, not the broadcast shape: sum it yourself. On rows din[0] may be the
 * buffer of dout[0] or of out[0]. */
SMX_API smx_status smx_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in,
                                const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                                const smx_tensor *const *dout, const smx_tensor *const *din);

/* ---- The ones everybody uses, by name -------------------------------------------------------- */

/* Rows of n contiguous elements, one after another; row r starts at x + r * n. y may be x. rows or
 * n may be 0.
 *   softmax       y_i = e^x_i / sum_j e^x_j        at most 8 ULP at n = 1024, 10 at 8192 (f32)
 *   log_softmax   y_i = x_i - logsumexp(x)
 *   logsumexp     lse[r] = log sum_j e^x_j         at most 2 ULP of max(|lse|, |max x|)
 *   softmax_backward   dx_i = y_i (dy_i - sum_j y_j dy_j); dx may be y or dy
 * One thread, no allocation. Errors: SMX_ERR_NULL, SMX_ERR_SHAPE (rows * n overflows, or a buffer
 * is not aligned to its type), SMX_ERR_ALIAS (buffers overlap but are not equal). f16 and bf16 are
 * passed as their bits; beyond n = 1024 they allocate scratch of at most 768 KB, and SMX_ERR_NOMEM
 * is one more error. */
SMX_API smx_status smx_softmax_f32(size_t rows, size_t n, const float *x, float *y);
SMX_API smx_status smx_softmax_f64(size_t rows, size_t n, const double *x, double *y);
SMX_API smx_status smx_softmax_f16(size_t rows, size_t n, const uint16_t *x, uint16_t *y);
SMX_API smx_status smx_softmax_bf16(size_t rows, size_t n, const uint16_t *x, uint16_t *y);
SMX_API smx_status smx_log_softmax_f32(size_t rows, size_t n, const float *x, float *y);
SMX_API smx_status smx_logsumexp_f32(size_t rows, size_t n, const float *x, float *lse);
SMX_API smx_status smx_softmax_backward_f32(size_t rows, size_t n, const float *y, const float *dy,
                                            float *dx);

/* The same with a context and rows x_stride and y_stride elements apart (at least n). */
SMX_API smx_status smx_softmax_strided_f32(smx_context *ctx, size_t rows, size_t n, const float *x,
                                           ptrdiff_t x_stride, float *y, ptrdiff_t y_stride);

/* Cross-entropy of rows of n logits and a class for each: loss[r] = lse(x) - x[target[r]], and the
 * gradient dx, both from one read of x where a row fits the caches. dx and reduced may be NULL; dx
 * may be x. dx is the gradient of the reduced loss. A target that is neither 0..n-1 nor
 * ignore_index is SMX_ERR_TARGET, naming its row, and nothing is written. More options:
 * smx_op_find("cross_entropy"). */
typedef enum smx_reduction {
  SMX_REDUCE_NONE = 0, /* as SUM */
  SMX_REDUCE_SUM = 1,
  SMX_REDUCE_MEAN =
      2, /* over the rows that count, by the class weights of their targets; NaN when there are none */
  SMX_REDUCE_MEAN_SAFE = 3 /* the same, 0 when there are none */
} smx_reduction;

typedef struct smx_cross_entropy_options {
  size_t size; /* sizeof(smx_cross_entropy_options); other fields zero mean defaults */
  smx_reduction reduction;
  int64_t ignore_index;  /* rows with this target have loss 0 and gradient 0; 0 = -100, but see ignore_zero */
  float label_smoothing; /* mass that is spread evenly over the classes */
  float z_weight;        /* adds z_weight lse^2 */
  float softcap;         /* logits become c tanh(x / c); 0 = none */
  float temperature;     /* divides the logits; 0 = 1 */
  const float *class_weight; /* n of them, or NULL */
  float *lse;                /* one a row, or NULL */
  int32_t ignore_zero;       /* nonzero: ignore_index 0 means 0, where class 0 is padding */
} smx_cross_entropy_options;

SMX_API smx_status smx_cross_entropy_f32(smx_context *ctx, size_t rows, size_t n, const float *x,
                                         const int64_t *target, const smx_cross_entropy_options *options,
                                         float *loss, float *dx, float *reduced);

/* The same options as parameters of the operator cross_entropy; NULL: the defaults. class_weight
 * and lse are ports of it. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT. */
SMX_API smx_status smx_cross_entropy_params(const smx_cross_entropy_options *options, smx_params *params);

/* Any axis, strides and float dtypes; y may be x. Otherwise as smx_forward. */
SMX_API smx_status smx_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_log_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_logsumexp(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse);
SMX_API smx_status smx_softmax_backward(smx_context *ctx, int32_t axis, const smx_tensor *y,
                                        const smx_tensor *dy, const smx_tensor *dx);

#ifdef __cplusplus
}
#endif

#include "softmax/attention.h"
#include "softmax/heads.h"
#include "softmax/matrix.h"
#include "softmax/pooling.h"
#include "softmax/routing.h"
#include "softmax/sampling.h"
#include "softmax/scores.h"
#include "softmax/split.h"

#endif
