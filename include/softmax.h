/* softmax.h - the whole public interface of libsoftmax.
 *
 * libsoftmax turns rows of scores (logits) into weights, sums and decisions: softmax and the operators around it, forward and backward.
 *
 *     float x[3] = {1, 2, 3}, y[3];
 *     smx_softmax_f32(1, 3, x, y);                      // y = 0.0900 0.2447 0.6652
 *
 * Three things hold for every function in this file.
 *
 * The same bits everywhere. A result depends on the operator, its parameters, the input values, the shapes and the dtypes. It does not depend
 * on the instruction set, the number of threads, the rows around a row, alignment, strides, or on working in place. docs/numerics.md says how.
 *
 * One contract. A masked element does not exist: it is never read as a number and gets weight and gradient 0. A row with nothing valid in it
 * gives zeros (logsumexp: -inf), or what smx_context_options.on_empty asks for. A NaN that is not masked makes every output of its row the
 * canonical quiet NaN. The +inf of a row of scores does the same, or shares the mass when smx_context_options.on_inf says so.
 * f16 and bf16 are computed in f32 and rounded once; f64 is computed in f64.
 *
 * No surprises. The library never prints, aborts or exits. Every function that can fail returns an smx_status, and smx_last_error() then names
 * the argument and its value. On an error nothing has been written, unless the status says otherwise. Inputs are never modified.
 * Sizes are 64-bit and products of sizes are checked for overflow. All functions may be called from many threads at once; the caller's
 * floating-point environment is saved, set to round-to-nearest without flush-to-zero, and restored.
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

/* ---- Status ------------------------------------------------------------------------------------------------------------------------- */

/* 0 is success, errors are negative. Values are never renumbered. */
typedef enum smx_status {
  SMX_OK = 0,
  SMX_ERR_NULL = -1,        /* a required pointer is NULL */
  SMX_ERR_SHAPE = -2,       /* negative, overflowing or mismatched shape; axis or offsets out of range */
  SMX_ERR_DTYPE = -3,       /* a dtype that this argument cannot have */
  SMX_ERR_PARAM = -4,       /* a parameter outside its range, or no parameter of that name */
  SMX_ERR_ALIAS = -5,       /* an output overlaps another buffer in a way that is not allowed */
  SMX_ERR_EMPTY = -6,       /* on_empty is SMX_EMPTY_ERROR and a row has nothing valid; see smx_context_options */
  SMX_ERR_NO_BACKWARD = -7, /* the operator has no gradient, or not for this input */
  SMX_ERR_NO_OP = -8,       /* no operator of that name */
  SMX_ERR_NOMEM = -9,       /* the allocator returned NULL */
  SMX_ERR_DEVICE = -10,     /* a tensor that is not in CPU memory */
  SMX_ERR_STRUCT = -11,     /* the size field of a struct is not one this library knows */
  SMX_ERR_THREAD = -12,     /* a thread could not be started */
  SMX_ERR_TARGET = -13      /* a row's target is no class of it; nothing has been written */
} smx_status;

/* The status in a few words: "wrong shape". Never NULL. */
SMX_API const char *smx_strerror(smx_status status);

/* One line about the last error of the calling thread, naming the argument and its value: "softmax: x: shape[1] is -3". It stays until the
 * next failing call of the same thread; "" before the first. Never NULL. */
SMX_API const char *smx_last_error(void);

/* ---- Tensors ------------------------------------------------------------------------------------------------------------------------ */

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

/* A view of memory, with the layout of DLTensor: tensors of NumPy, PyTorch, JAX, CuPy and TVM pass without a copy. The library reads the
 * struct and the data during the call only. strides are in elements, may be negative or 0 (a broadcast input); strides == NULL means C order.
 * An output must not have two elements at one address. */
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

/* ---- Context ------------------------------------------------------------------------------------------------------------------------ */

/* Threads, memory and policies. NULL is a valid context everywhere: one thread, malloc, the default policies. A context may be used by many
 * threads at once; one of them gets the workers, the others run alone. A child after fork() may go on using it. */
typedef struct smx_context smx_context;

typedef enum smx_on_empty {
  SMX_EMPTY_ZERO = 0, /* weights 0, logsumexp and log-weights -inf, gradients 0 */
  SMX_EMPTY_NAN = 1,  /* weights and log-weights NaN, logsumexp -inf */
  SMX_EMPTY_ERROR = 2 /* SMX_ERR_EMPTY naming the first such row; its output stays untouched, the other rows may have been written */
} smx_on_empty;

typedef enum smx_on_inf {
  SMX_INF_NAN = 0,  /* a row of scores with +inf is a row of NaN */
  SMX_INF_LIMIT = 1 /* its +inf entries share the mass, the others get 0 */
} smx_on_inf;

/* Runs task(arg, i) for every i of 0..count-1, in any order, on any threads, and returns when all are done. */
typedef void smx_parallel_for(void *user, int64_t count, void (*task)(void *arg, int64_t i), void *arg);

typedef struct smx_context_options {
  size_t size;                    /* sizeof(smx_context_options); other fields zero mean defaults */
  int32_t threads;                /* threads to use, this one included; 0 = 1; -1 = as many as the process may run on (affinity, cgroup) */
  smx_parallel_for *parallel_for; /* the caller's own threads instead of a pool; `threads` then says how many */
  void *parallel_user;
  void *(*alloc)(void *user, size_t bytes, size_t alignment); /* both or neither; alignment is a power of two; must be thread safe */
  void (*release)(void *user, void *p);
  void *alloc_user;
  smx_on_empty on_empty;
  smx_on_inf on_inf;
} smx_context_options;

/* Makes a context. options may be NULL. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_PARAM, SMX_ERR_NOMEM, SMX_ERR_THREAD. */
SMX_API smx_status smx_context_create(const smx_context_options *options, smx_context **out);

/* Frees a context that no call is using. NULL is allowed. */
SMX_API void smx_context_destroy(smx_context *ctx);

/* The number of threads a call with this context may use. */
SMX_API int32_t smx_context_threads(const smx_context *ctx);

/* The instruction set in use: "avx512", "avx2", "neon" or "portable". The environment variable SMX_ISA, read once, may name a lower one.
 * It is a matter of speed only. */
SMX_API const char *smx_isa_name(void);

/* ---- Operators are data ------------------------------------------------------------------------------------------------------------- */

/* How the shape of an input or output follows from the first input x, whose rows run along the axis and have n elements. */
typedef enum smx_shape_rule {
  SMX_SHAPE_FULL = 0,    /* the shape of x; an auxiliary input may also broadcast to it (NumPy's rules) */
  SMX_SHAPE_ROW = 1,     /* one value a row: the shape of x without the axis; an auxiliary input may also broadcast to that */
  SMX_SHAPE_OFFSETS = 2, /* [segments + 1], i32 or i64: 0 = o[0] <= o[1] <= ... <= o[segments] = n */
  SMX_SHAPE_COLUMN = 3,  /* shape [n]: one value an element of the axis, the same for every row */
  SMX_SHAPE_K = 4,     /* the shape of x, but as many elements along the axis as the parameter k says; an input may also broadcast to that,
                            and k = 0 means as many as it has along the axis */
  SMX_SHAPE_SCALAR = 5 /* an output of one value for all rows, ndim 0: the first output, reduced as the parameter `reduction` says */
} smx_shape_rule;

enum {
  SMX_PORT_OPTIONAL = 1, /* may be NULL */
  SMX_PORT_MASK = 2,     /* bool or u8: nonzero = keep */
  SMX_PORT_INT = 4,      /* i32 or i64 */
  SMX_PORT_GRAD = 8,     /* smx_backward can give the gradient of this input */
  SMX_PORT_SAVED = 16,   /* smx_backward reads this input or output; ports without it may be NULL there */
  SMX_PORT_TARGET = 32,  /* each value is a class, 0..n-1, or the parameter ignore_index; anything else is SMX_ERR_TARGET */
  SMX_PORT_EITHER = 64,  /* exactly one of the inputs with this flag is given */
  SMX_PORT_WEIGHT = 128, /* a mean over the rows divides by the sum of these at the targets, not by the number of targets */
  SMX_PORT_DX = 256      /* an output that is the gradient of x, and may be in the buffer of x, with the same strides and dtype */
  /* Only the first four outputs can be saved, or have upstream gradients. */
};

typedef struct smx_port {
  const char *name;
  smx_shape_rule shape;
  uint32_t flags; /* SMX_PORT_* */
  const char *help;
} smx_port;

enum {
  SMX_PARAM_INT = 1,      /* whole numbers only */
  SMX_PARAM_OPEN_MIN = 2, /* min itself is not allowed */
  SMX_PARAM_NONZERO = 4,
  SMX_PARAM_MAX_N = 8, /* at most the length of a row */
  SMX_PARAM_EVEN = 16  /* even whole numbers only */
};

typedef struct smx_param {
  const char *name; /* "temperature" */
  const char *help; /* one line */
  double def, min, max;
  uint32_t flags;             /* SMX_PARAM_* */
  const char *const *choices; /* NULL, or NULL-terminated names of the values 0, 1, ... */
} smx_param;

enum {
  SMX_OP_BACKWARD = 1, /* has a gradient */
  SMX_OP_INPLACE = 2,  /* the first output may be the first input's buffer, with the same strides and dtype */
  SMX_OP_DETACHED = 4  /* its gradient leaves out something that depends on x, as `about` says: no difference quotient gives it */
};

/* All there is to know about an operator. Read-only; new fields are added at the end. */
typedef struct smx_op {
  int32_t id;          /* stable for ever, never reused */
  uint32_t flags;      /* SMX_OP_* */
  const char *name;    /* "softmax" */
  const char *family;  /* the room it lives in: "row"; "matrix": rows and columns are the last two axes of the first input */
  const char *title;   /* a few words */
  const char *formula; /* y_i = ... */
  const char *about;   /* what it is for, edge cases; some sentences */
  const char *source;  /* paper, authors, year; or "standard" */
  const char *example; /* a line for the command */
  double tolerance;    /* largest error of f32 results, in units of 2^-24 of the result's scale; see docs/numerics.md */
  int32_t input_count, output_count, param_count;
  const smx_port *inputs; /* inputs[0] is x */
  const smx_port *outputs;
  const smx_param *params;
} smx_op;

SMX_API size_t smx_op_count(void);
SMX_API const smx_op *smx_op_at(size_t i);           /* NULL when i >= smx_op_count() */
SMX_API const smx_op *smx_op_find(const char *name); /* NULL when there is none */

#define SMX_MAX_PARAMS 16
#define SMX_MAX_PORTS 8

/* The settings of one call. Fill with smx_params_init, then change. */
typedef struct smx_params {
  size_t size;                  /* sizeof(smx_params), set by smx_params_init */
  int32_t axis;                 /* the axis rows run along; negative counts from the end; -1 by default */
  double value[SMX_MAX_PARAMS]; /* in the order of op->params; a choice is its number */
} smx_params;

/* Sets axis -1 and every parameter's default. */
SMX_API smx_status smx_params_init(const smx_op *op, smx_params *params);

/* Sets one parameter by name, checking its range. Errors: SMX_ERR_NULL, SMX_ERR_PARAM. */
SMX_API smx_status smx_params_set(const smx_op *op, smx_params *params, const char *name, double value);

/* The same from text: a number, or the name of a choice. */
SMX_API smx_status smx_params_parse(const smx_op *op, smx_params *params, const char *name, const char *text);

typedef struct smx_shape {
  int32_t ndim;
  int64_t dim[SMX_MAX_DIMS];
  smx_dtype dtype; /* the natural one: that of x, or i64 for whole numbers */
} smx_shape;

/* The shapes and dtypes of the outputs for these inputs, without reading data: in[i]->data may be NULL. out has n_out entries. */
SMX_API smx_status smx_infer(const smx_op *op, const smx_params *params, int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                             smx_shape *out);

/* Runs an operator. params NULL means defaults. in and out are in the order of op->inputs and op->outputs; optional ones may be NULL or left
 * off the end. Float ports take f16, bf16, f32 or f64, each its own. The arithmetic is f64 when any float input is f64, otherwise f32.
 * Aliasing: outputs may not overlap inputs or each other, except as SMX_OP_INPLACE says. */
SMX_API smx_status smx_forward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                               int32_t n_out, const smx_tensor *const *out);

/* Runs the gradient (vector-Jacobian product). in and out: those of the forward call, where their ports are SMX_PORT_SAVED. dout: the upstream
 * gradients, one an output; NULL counts as 0 (dout[0] is required), and outputs of whole numbers have none. din: where to put the gradients, one an input; NULL = not wanted. The
 * gradient of a broadcast input has the full, not the broadcast shape: sum it yourself. din[0] may be the buffer of dout[0] or of out[0]. */
SMX_API smx_status smx_backward(const smx_op *op, smx_context *ctx, const smx_params *params, int32_t n_in, const smx_tensor *const *in,
                                int32_t n_out, const smx_tensor *const *out, const smx_tensor *const *dout, const smx_tensor *const *din);

/* ---- The ones everybody uses, by name ----------------------------------------------------------------------------------------------- */

/* Rows of n contiguous elements, one after another; row r starts at x + r * n. y may be x. rows or n may be 0.
 *   softmax       y_i = e^x_i / sum_j e^x_j        at most 8 ULP at n = 1024, 10 at 8192 (f32)
 *   log_softmax   y_i = x_i - logsumexp(x)
 *   logsumexp     lse[r] = log sum_j e^x_j         at most 2 ULP of max(|lse|, |max x|)
 *   softmax_backward   dx_i = y_i (dy_i - sum_j y_j dy_j); dx may be y or dy
 * One thread, no allocation. Errors: SMX_ERR_NULL, SMX_ERR_SHAPE (rows * n overflows, or a buffer is not aligned to its type), SMX_ERR_ALIAS (buffers
 * overlap but are not equal). f16 and bf16 are passed as their bits; beyond n = 2048 they allocate scratch of at most 768 KB, and SMX_ERR_NOMEM is one
 * more error. */
SMX_API smx_status smx_softmax_f32(size_t rows, size_t n, const float *x, float *y);
SMX_API smx_status smx_softmax_f64(size_t rows, size_t n, const double *x, double *y);
SMX_API smx_status smx_softmax_f16(size_t rows, size_t n, const uint16_t *x, uint16_t *y);
SMX_API smx_status smx_softmax_bf16(size_t rows, size_t n, const uint16_t *x, uint16_t *y);
SMX_API smx_status smx_log_softmax_f32(size_t rows, size_t n, const float *x, float *y);
SMX_API smx_status smx_logsumexp_f32(size_t rows, size_t n, const float *x, float *lse);
SMX_API smx_status smx_softmax_backward_f32(size_t rows, size_t n, const float *y, const float *dy, float *dx);

/* The same with a context and rows x_stride and y_stride elements apart (at least n). */
SMX_API smx_status smx_softmax_strided_f32(smx_context *ctx, size_t rows, size_t n, const float *x, ptrdiff_t x_stride, float *y,
                                           ptrdiff_t y_stride);

/* Cross-entropy of rows of n logits and a class for each: loss[r] = lse(x) - x[target[r]], and the gradient dx, both from one read of x where
 * the caches hold a row. dx and reduced may be NULL; dx may be x. dx is the gradient of the reduced loss. A target that is neither 0..n-1 nor
 * ignore_index is SMX_ERR_TARGET, naming its row, and nothing is written. Anything more: smx_op_find("cross_entropy"). */
typedef enum smx_reduction {
  SMX_REDUCE_NONE = 0, /* as SUM */
  SMX_REDUCE_SUM = 1,
  SMX_REDUCE_MEAN = 2,     /* over the rows that count, by the class weights of their targets; NaN when there are none */
  SMX_REDUCE_MEAN_SAFE = 3 /* the same, 0 when there are none */
} smx_reduction;

typedef struct smx_cross_entropy_options {
  size_t size; /* sizeof(smx_cross_entropy_options); other fields zero mean defaults */
  smx_reduction reduction;
  int64_t ignore_index;      /* rows with this target have loss 0 and gradient 0; 0 = -100 */
  float label_smoothing;     /* mass that is spread evenly over the classes */
  float z_weight;            /* adds z_weight lse^2 */
  float softcap;             /* logits become c tanh(x / c); 0 = none */
  float temperature;         /* divides the logits; 0 = 1 */
  const float *class_weight; /* n of them, or NULL */
  float *lse;                /* one a row, or NULL */
} smx_cross_entropy_options;

SMX_API smx_status smx_cross_entropy_f32(smx_context *ctx, size_t rows, size_t n, const float *x, const int64_t *target,
                                         const smx_cross_entropy_options *options, float *loss, float *dx, float *reduced);

/* Any axis, strides and float dtypes; y may be x. The rest as smx_forward. */
SMX_API smx_status smx_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_log_softmax(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_logsumexp(smx_context *ctx, int32_t axis, const smx_tensor *x, const smx_tensor *lse);
SMX_API smx_status smx_softmax_backward(smx_context *ctx, int32_t axis, const smx_tensor *y, const smx_tensor *dy, const smx_tensor *dx);

/* ---- Attention ---------------------------------------------------------------------------------------------------------------------- */

/* o_i = sum_j w_ij v_j over the keys j that query i may see, w_ij from the scores z_ij of query i with each of them. Memory is O(L).
 *
 * Tensors have four dimensions: q [B, Hq, Lq, d], k [B, Hkv, Lk, d], v [B, Hkv, Lk, e], o [B, Hq, Lq, e], with any strides, so that other orders
 * of the axes and packed heads are strides of the same call. d and e: 1..512, each its own. Hq is a multiple of Hkv: query head h uses
 * key/value head h / (Hq / Hkv).
 *
 * Scores: z = scale <q, k>; softcap tanh(z / softcap); + bias; - slope |i + query_start - j| (ALiBi). Keys that causality, the window, mask or
 * lengths hide, and those whose score is -inf, do not exist: their values are not read as numbers. A row that sees no key gives zeros and
 * lse = -inf, or as on_empty says. A score that is NaN makes its row NaN.
 *
 * The bits of a row of o depend on its query, on the keys and values that it sees and on their logical indices: not on the rows beside it
 * (prefill and decode agree), on how keys lie in memory (pages, strides), on padding, threads, or how the keys are split among calls. */
/* How the scores z of the visible keys j of a row become weights; n is the number of keys, a, b, ... are param[0], param[1], ... */
typedef enum smx_attention_weights {
  /* e^z / sum e^z */
  SMX_ATTENTION_SOFTMAX = 0,
  /* e^z / (a + sum e^z); a = 1: Outlier-Efficient Hopfield Layers (Hu et al. 2024) */
  SMX_ATTENTION_SOFTMAX_N = 1,
  /* softmax of (a ln n + b) z: Scalable-Softmax (Nakanishi 2025), a = 0.43 */
  SMX_ATTENTION_SSMAX = 2,
  /* 1 / (1 + e^-(z + a)): Sigmoid Self-Attention (Ramapuram et al. 2024), a = -ln of the training length */
  SMX_ATTENTION_SIGMOID = 3,
  /* max(e^z - 1, 0) / sum |e^z - 1|: Softpick (Zuhri et al. 2025) */
  SMX_ATTENTION_SOFTPICK = 4,
  /* z p, p = softmax: Self-Adjust Softmax (Zheng et al. 2025) */
  SMX_ATTENTION_SELF_ADJUST = 5,
  /* (z - l) / (h - l) p, l = min(z.., 0), h = max(z.., 0): the same, normalised; 0 when h = l */
  SMX_ATTENTION_SELF_ADJUST_RANGE = 6,
  /* max(z, 0) / N; N as SMX_ATTENTION_NORM_* in a, b is added to the norm l1 (Gu et al. 2024) */
  SMX_ATTENTION_RELU = 7,
  /* (z > 0 ? z + 1 : e^z) / N */
  SMX_ATTENTION_ELU = 8,
  /* z / N */
  SMX_ATTENTION_IDENTITY = 9,
  /* log(1 + e^z) / N */
  SMX_ATTENTION_SOFTPLUS = 10,
  /* t(z) / N, t: the first b terms of the series of e^z (b 1..64) */
  SMX_ATTENTION_TAYLOR = 11,
  /* clip((b - a) p + a, 0, 1), p = softmax, a <= 0, b >= 1: clipped softmax (Bondarenko et al. 2023) */
  SMX_ATTENTION_CLIPPED = 12,
  /* a (z - mean) / (deviation + c) + b: Normalized Attention Pooling (Richter, Wattenhofer 2020), c = 1e-3 */
  SMX_ATTENTION_CENTRED = 13,
  /* e^min(z, c) / N: On the Expressiveness of Softmax Attention (Mongaras, Larson 2025), c = 5. With q' = (q, -|q|^2/2, 1), k' = (k, 1,
   * -|k|^2/2) and c = 0 the Gaussian of their distance */
  SMX_ATTENTION_EXP = 14,
  /* (e^z + a) / sum (e^z + a): Credal Transformer (2025), a = 1; n a / e^lse is its uncertainty */
  SMX_ATTENTION_CREDAL = 15,
  /* a [j is the key where the row stands] + b p - c / n: The Shaped Transformer (Noci et al. 2023), 1, 1, 1 */
  SMX_ATTENTION_SHAPED = 16,
  /* log(1 + e^(s z)) / N, s = ln d ln n; N as for RELU; for rows of q and k of length 1 and scale 1: Softplus Attention with Re-weighting
   * (Gao, Spratling 2025) */
  SMX_ATTENTION_LSSA = 17,
  /* y^a / sum y^a, y = max(n w - b, 0), w: LSSA with the norm l1; b is 0 while n <= c; a = 15, b = 1, c = 3. Where no y is above 2^-16: w */
  SMX_ATTENTION_LSSAR = 18,
  SMX_ATTENTION_KINDS
} smx_attention_weights;

/* What the weights of RELU to TAYLOR, EXP and LSSA are divided by. A sum of 0 gives weights of 0. */
enum {
  SMX_ATTENTION_NORM_NONE = 0,
  SMX_ATTENTION_NORM_COUNT = 1, /* n */
  SMX_ATTENTION_NORM_L1 = 2,    /* sum |w| */
  SMX_ATTENTION_NORM_CLAMP = 3  /* max(|sum w|, 1) */
};

#define SMX_ATTENTION_PARAMS 4
#define SMX_ATTENTION_END (-1)

/* Fill with smx_attention_init, then change. */
typedef struct smx_attention_options {
  size_t size; /* sizeof(smx_attention_options) */
  smx_attention_weights weights;
  double param[SMX_ATTENTION_PARAMS]; /* of the weights */
  double scale;                       /* of <q, k>; 0 = 1 / sqrt(d) */
  double softcap;                     /* 0 = none */
  int32_t causal;                     /* nonzero: row i sees keys j <= i + query_start */
  int64_t query_start; /* position of the first row among the keys; SMX_ATTENTION_END (default): the last row stands at the last key */
  int64_t window_left, window_right; /* row i sees i + query_start - left <= j <= i + query_start + right; -1 (default): no end */
  int64_t key_start;                 /* logical index of the first key of k and v, a multiple of 1024; default 0 */
  /* Optional tensors. Broadcast by NumPy's rules to the shape given here. */
  const smx_tensor *mask;    /* [B, Hq, Lq, Lk] bool or u8: nonzero = visible */
  const smx_tensor *bias;    /* [B, Hq, Lq, Lk] float, added to the scores; -inf hides a key */
  const smx_tensor *slopes;  /* [B, Hq] float: ALiBi */
  const smx_tensor *sinks;   /* [B, Hq] float: the score of one more key that has no value */
  const smx_tensor *lengths; /* [B] i32 or i64: how many keys of each sequence there are */
  /* Sequences packed one after another: B + 1 offsets, i32 or i64, from 0 to the length of the axis. Tensors have a batch axis of 1 then, and
   * B counts sequences; mask and bias are not possible. */
  const smx_tensor *query_offsets, *key_offsets;
  /* A paged cache: k and v are [pages, Hkv, page size, d or e]; key j of sequence b is in page block_table[b, j / page size]. [B, pages of a
   * sequence] i32; needs lengths. */
  const smx_tensor *block_table;
  /* Weights are 0 with probability dropout, 0 <= dropout < 1, else w / (1 - dropout); lse and normalisers are those without. Which are dropped depends
   * on the seed, the stream of the head (stream + b Hq + h, or streams[b] + h) and the logical indices of query and key alone. Keys: at most 2^28.
   * smx_attention_column_mass has the weights without it. */
  double dropout;
  uint64_t seed, stream;
  const smx_tensor *streams; /* [B] i32 or i64 */
} smx_attention_options;

/* Defaults: softmax of <q, k> / sqrt(d), every key visible. */
SMX_API smx_status smx_attention_init(smx_attention_options *options);

/* options NULL means defaults. lse [B, Hq, Lq] (f32 or f64) may be NULL: the natural logarithm of the normaliser of SOFTMAX, SOFTMAX_N, SSMAX,
 * SOFTPICK, SELF_ADJUST, CREDAL, of RELU to TAYLOR, EXP and LSSA with the norm l1, and what the others need for their gradient; it includes the sink.
 * f16, bf16, f32 or f64; f64 arithmetic when q, k or v is f64. o and lse may not overlap anything else. */
SMX_API smx_status smx_attention(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                 const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse);

/* The gradients of q, k and v, from o and lse of the forward call and the gradients of both (d_lse may be NULL); those that are NULL are not
 * wanted. Memory is O(L). For SOFTMAX to SELF_ADJUST and CREDAL, not for a paged cache: SMX_ERR_NO_BACKWARD. dk and dv add up rows in blocks of 256, query
 * heads in order. */
SMX_API smx_status smx_attention_backward(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                          const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                          const smx_tensor *d_lse, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

/* The gradients of what is added to the scores: bias (d_bias), slopes and sinks, for the same weights. Each has the full shape of its option, or
 * one that broadcasts to it: then it is the sum over the axes where it does, in the order of sequences, heads, rows and keys. NULL: not wanted. */
SMX_API smx_status smx_attention_backward_bias(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                               const smx_tensor *k, const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse,
                                               const smx_tensor *d_o, const smx_tensor *d_lse, const smx_tensor *d_bias,
                                               const smx_tensor *d_slopes, const smx_tensor *d_sinks);

/* Attention whose weights an operator on rows makes of the scores: sparsemax, entmax, or any other that gives a row for a row (smx_op_find); params
 * NULL means its defaults. A hidden key has the score -inf, and is outside of the mask of an operator that has one. The scores of some rows lie in
 * memory at a time, 256 for the gradient. Of the options weights and sinks are not used. */
SMX_API smx_status smx_attention_rows(smx_context *ctx, const smx_attention_options *options, const smx_op *op, const smx_params *params,
                                      const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_rows_backward(smx_context *ctx, const smx_attention_options *options, const smx_op *op,
                                               const smx_params *params, const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                               const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

/* How much weight each key gets: mass_j = sum a_i w_ij over the rows i of the query heads that share a key head, [B, Hkv, Lk]; the rows add up as
 * those of dv do. row_weights holds the a_i, [B, Hq, Lq]; NULL means 1. lse is that of the forward call. For the weights that have a gradient. What
 * caches are pruned by: H2O (Zhang et al. 2023); SnapKV (Li et al. 2024) with a_i = 1 for the last rows alone. */
SMX_API smx_status smx_attention_column_mass(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                             const smx_tensor *k, const smx_tensor *lse, const smx_tensor *row_weights,
                                             const smx_tensor *mass);

/* Which keys to keep: for every row of mass [B, H, Lk], of smx_attention_column_mass or any other scores, the K keys with the largest mass, of equals
 * the first ones. keys [B, H, K] i32 receives their indices, ascending, then -1: rows of a block_table over pages of one key. With one head in keys all
 * heads have one list, by the sum of their masses. kept [B, the heads of keys] i32, or NULL: how many keys each list has, the smaller of its budget and
 * the keys there are. */
typedef enum smx_attention_pool {
  SMX_ATTENTION_POOL_MEAN = 0, /* with mass 0 beyond both ends */
  SMX_ATTENTION_POOL_MAX = 1
} smx_attention_pool;

typedef struct smx_attention_select_options {
  size_t size;         /* sizeof(smx_attention_select_options); other fields zero mean defaults */
  int64_t first, last; /* so many of the first and of the last keys are in every list, and count; first + last <= K */
  int64_t kernel;      /* the others are judged by as many neighbours, those left aside: an odd number; 0 = 1, itself alone */
  smx_attention_pool pool;
  const smx_tensor *lengths; /* [B] i32 or i64: how many keys of each sequence there are; NULL = Lk */
  const smx_tensor *budgets; /* [B, the heads of keys] i32 or i64, or what broadcasts to it, first + last .. K: of each list; NULL = K */
  /* Several kernels instead of one, up to 64: each in turn takes its share of the others, the best by its neighbours that are not taken yet; the first
   * ones take one more where shares are uneven. After ILRe: Intermediate Layer Retrieval (Liang et al. 2025), whose shares are not confirmed. */
  const int64_t *kernels;
  size_t kernel_count;
} smx_attention_select_options;

/* options NULL means defaults. Sums are made in double, neighbours and heads in order; a NaN in one counts as -inf. */
SMX_API smx_status smx_attention_select(smx_context *ctx, const smx_attention_select_options *options, const smx_tensor *mass,
                                        const smx_tensor *keys, const smx_tensor *kept);

/* Split keys: what each 1024 keys contribute, for caches that lie on several machines or arrive in pieces. states: [B, Hq, Lq, S, W], f32 (f64
 * for f64 arithmetic), the last axis contiguous; S = the number of multiples of 1024 from key_start that lie below key_start + Lk, and
 * W = smx_attention_state_width(e). With key_start set for each piece and query_start given, merging the states of all pieces in order gives the
 * bits of one call over all keys. Not for weights that depend on n or on the whole row (SSMAX, CLIPPED, CENTRED, SHAPED, LSSA, LSSAR, norm COUNT). */
SMX_API int64_t smx_attention_state_width(int64_t e);
SMX_API smx_status smx_attention_states(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                        const smx_tensor *v, const smx_tensor *states);
/* o and lse from count tensors of states, in order. Of the options only weights, param and sinks are used. */
SMX_API smx_status smx_attention_merge(smx_context *ctx, const smx_attention_options *options, int32_t count,
                                       const smx_tensor *const *states, const smx_tensor *o, const smx_tensor *lse);

/* How far scores have come on their way from <q, k> to weights (the modes of qk_matmul_output of ONNX's Attention). */
typedef enum smx_attention_stage {
  SMX_ATTENTION_PRODUCTS = 0, /* scale <q, k>, of every pair */
  SMX_ATTENTION_CAPPED = 1,   /* the same after the cap */
  SMX_ATTENTION_SCORES = 2,   /* z: with bias and ALiBi; -inf where a key is hidden */
  SMX_ATTENTION_WEIGHTS = 3   /* w: what the values are multiplied by; 0 where a key is hidden */
} smx_attention_stage;

/* The matrix of one stage, scores [B, Hq, Lq, Lk]: to look at weights, to hand them to other layers, or to make something else of them. Memory
 * and time grow with Lq Lk. Not for packed sequences (offsets). Keys beyond lengths are hidden in every stage. */
SMX_API smx_status smx_attention_scores(smx_context *ctx, const smx_attention_options *options, smx_attention_stage stage,
                                        const smx_tensor *q, const smx_tensor *k, const smx_tensor *scores);

/* o_i = sum_j w_ij v_j with weights that the caller has, w [B, Hq, Lq, Lk]: those of another layer (UniAttn: Unifying Attention of Transformers,
 * Xiong et al. 2025), or of smx_attention_scores. Of the options only what hides keys is used: causal, window, mask, lengths, block_table. */
SMX_API smx_status smx_attention_apply(smx_context *ctx, const smx_attention_options *options, const smx_tensor *w, const smx_tensor *v,
                                       const smx_tensor *o);

/* Parallax: Parameterized Local Linear Attention for Language Modeling (2026): softmax attention whose values weigh more on one side of the mean. With
 * a row r_i beside each query and y_ij = <r_i, k_j>,
 *   o_i = sum_j w_ij (1 + y_i - y_ij) v_j,   y_i = sum_j w_ij y_ij.
 * r and dr are like q. As in smx_attention_rows, the scores of some rows lie in memory at a time, 256 for the gradient, and options.weights and sinks
 * are not possible. */
SMX_API smx_status smx_attention_parallax(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                                          const smx_tensor *v, const smx_tensor *r, const smx_tensor *o);
SMX_API smx_status smx_attention_parallax_backward(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                                   const smx_tensor *k, const smx_tensor *v, const smx_tensor *r, const smx_tensor *d_o,
                                                   const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv, const smx_tensor *dr);

/* Local Linear Attention: An Optimal Interpolation of Linear and Softmax Attention For Test-Time Regression (Zuo et al. 2025): o_i is the value at q_i of
 * the affine map from keys to values that fits best by squares weighed with w_ij; the linear part pays a ridge:
 *   b, W minimise sum_j w_ij |v_j - b - W (k_j - q_i)|^2 + ridge |W|^2,   o_i = b.
 * That is Parallax with r = -(sum w (k - m)(k - m)^T + ridge I)^-1 (q - m), m = sum w k. Here w sums to 1; a fit with e^z themselves has a ridge that is
 * larger by sum e^z. q and k had better be of length 1. The more ridge, the nearer to softmax; a row whose keys do not span the space is softmax if
 * ridge is 0. The fit is made in double, on as many rows at a time as have d x d matrices in 32 MiB; its work grows with Lq Lk d^2. */
SMX_API smx_status smx_attention_local_linear(smx_context *ctx, const smx_attention_options *options, double ridge, const smx_tensor *q,
                                              const smx_tensor *k, const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_local_linear_backward(smx_context *ctx, const smx_attention_options *options, double ridge,
                                                       const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *d_o,
                                                       const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

/* Additive attention (Neural Machine Translation by Jointly Learning to Align and Translate, Bahdanau, Cho, Bengio 2015): softmax of the scores z_ij =
 * sum_c u_c tanh(q_ic + k_jc), then bias and ALiBi as ever. u [B, Hq, d], or what broadcasts to it; its gradient du has this full shape. Rows at a time
 * as in smx_attention_rows; options.scale, softcap, weights and sinks are not possible. */
SMX_API smx_status smx_attention_additive(smx_context *ctx, const smx_attention_options *options, const smx_tensor *u, const smx_tensor *q,
                                          const smx_tensor *k, const smx_tensor *v, const smx_tensor *o);
SMX_API smx_status smx_attention_additive_backward(smx_context *ctx, const smx_attention_options *options, const smx_tensor *u,
                                                   const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *d_o,
                                                   const smx_tensor *du, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

/* Attention in the max-plus semiring (Tropical Attention, 2025): o_i[x] = max_j (s_ij + v_j[x]) over the visible keys, with t = q_i - k_j and s_ij =
 * -(max_a t_a - min_a t_a), Hilbert's projective metric, or, unless symmetric, -sum_a (t_a - min t). winners [B, Hq, Lq, e] i32, which the gradient
 * needs, may be NULL: the key that won, of equals the first; -1 in an empty row and where o is NaN. Of the options only what hides keys is used. */
SMX_API smx_status smx_attention_tropical(smx_context *ctx, const smx_attention_options *options, int32_t symmetric, const smx_tensor *q,
                                          const smx_tensor *k, const smx_tensor *v, const smx_tensor *o, const smx_tensor *winners);
/* The gradient goes to the winners, and from their scores to the largest and the smallest t (of equals the first). Those that are NULL are not
 * wanted. Sums in double: rows in order, query heads in order. Not for a paged cache: SMX_ERR_NO_BACKWARD. */
SMX_API smx_status smx_attention_tropical_backward(smx_context *ctx, const smx_attention_options *options, int32_t symmetric,
                                                   const smx_tensor *q, const smx_tensor *k, const smx_tensor *v, const smx_tensor *winners,
                                                   const smx_tensor *d_o, const smx_tensor *dq, const smx_tensor *dk, const smx_tensor *dv);

/* Rotary position embedding (RoFormer, Su et al. 2021), for q and k on their way to attention: x [B, H, L, d], y alike, any strides and float
 * dtypes; d 2..512. Pairs t of columns a, b are turned, y_a = x_a cos w - x_b sin w, y_b = x_a sin w + x_b cos w, by w = scale position frequency_t;
 * columns from dims on stay. <q_i, k_j> then depends on the difference of their positions alone.
 *
 * A row's position is start plus its index, or what positions says, for every pair its own if need be: packed sequences, two axes of an image (its
 * halves as two calls), or any angle (base 1). cumulative: positions are steps, summed up along L in double, row after row: Selective Rotary Position
 * Embedding (2025), whose temperature is frequencies. carry [B, H, dims / 2] f64, or NULL, receives the sum so far, from which a later call goes on
 * by options.carry with the same bits. Angles are doubles; from 2^31 on their pair is NaN. y may be x. */
typedef enum smx_rope_layout {
  SMX_ROPE_HALF = 0,       /* a = t, b = t + dims / 2: GPT-NeoX, Llama */
  SMX_ROPE_INTERLEAVED = 1 /* a = 2 t, b = 2 t + 1: GPT-J */
} smx_rope_layout;

typedef struct smx_rope_options {
  size_t size; /* sizeof(smx_rope_options); other fields zero mean defaults */
  smx_rope_layout layout;
  int64_t dims;       /* columns that are turned, even; 0 = d */
  double base, scale; /* frequency_t = base^(-2 t / dims); 0 = 10000 and 1. scale 1 / s: position interpolation */
  int64_t start;      /* position of the first row */
  int32_t cumulative;
  /* Optional tensors. Broadcast by NumPy's rules to the shape given here. */
  const smx_tensor *positions;   /* [B, H, L, dims / 2] floats, i32 or i64, instead of start */
  const smx_tensor *frequencies; /* [B, H, dims / 2] floats, instead of base */
  const smx_tensor *carry;       /* [B, H, dims / 2] floats: what cumulative positions start from; NULL = 0 */
} smx_rope_options;

/* options NULL means defaults. */
SMX_API smx_status smx_rope(smx_context *ctx, const smx_rope_options *options, const smx_tensor *x, const smx_tensor *y,
                            const smx_tensor *carry);
/* dx, which may be dy: dy turned back. With the x of the forward call also the gradients of positions [B, H, L, dims / 2] and frequencies
 * [B, H, dims / 2], floats, each of this full shape; NULL: not wanted. Those of angles that q and k share are the sum of two calls. */
SMX_API smx_status smx_rope_backward(smx_context *ctx, const smx_rope_options *options, const smx_tensor *dy, const smx_tensor *x,
                                     const smx_tensor *dx, const smx_tensor *d_positions, const smx_tensor *d_frequencies);

/* ---- Matrices of scores: what the operators of the family "matrix" do, and some ways of calling it that their ports do not have ----------- */

/* Doubly stochastic weights: x [.., r, c], y alike, any strides and float dtypes. From L = x, half steps L -= logsumexp of each row, then of each
 * column, in turn, rows first; after `steps` of them (1..1000) y = e^L. One step is softmax of the rows; the last step's rows or columns sum to 1,
 * and the more steps, the nearer the others come to r / c or c / r: y is then the matrix nearest to e^x, in relative entropy, that has these
 * sums. For attention: Sinkformers: Transformers with Doubly Stochastic Attention (Sander, Ablin, Blondel, Peyre 2021), with 3 to 21 steps.
 * -inf hides an element; a row or column of nothing else gets zeros, or what on_empty says. A pattern of -inf that no doubly stochastic
 * matrix has (a causal mask, say) never settles. A half step is one of log_softmax, whose bits it has. Memory: one copy of x in f32 (f64 for f64).
 * y may be x.
 * The gradient goes back through the steps: it needs x alone and `steps` copies of it; dx may be dy or x. */
SMX_API smx_status smx_sinkhorn(smx_context *ctx, int32_t steps, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_sinkhorn_backward(smx_context *ctx, int32_t steps, const smx_tensor *x, const smx_tensor *dy, const smx_tensor *dx);

/* The gradient of the limit of many steps, from y alone: the equations that the row and column sums of y obey, solved in double for each
 * matrix (r c^2 + c^3 / 3 steps, c^2 + 2 r c numbers of memory a thread; turn wide matrices over). It costs the same for any number of steps, and is
 * that gradient as far as y has settled. Where y is 0, dx is 0 and dy is not read as a number; a NaN elsewhere makes its matrix NaN. */
SMX_API smx_status smx_sinkhorn_implicit(smx_context *ctx, const smx_tensor *y, const smx_tensor *dy, const smx_tensor *dx);

/* Doubly stochastic weights at once: x [.., n, n] = Q R with R_kk > 0, y = Q * Q, whose rows and columns sum to 1 (such a matrix is called
 * orthostochastic). Quantum Doubly Stochastic Transformers (Born et al. 2025) names a QR decomposition as a way to such weights; that it is Q * Q is our
 * reading. n^3 steps, in double. Not for masks: the order of the columns matters, and an infinity makes its matrix NaN as a NaN does. Where
 * a column but the last depends on those before it there is no gradient: NaN; that of the last column is 0. No output may overlap an input. */
SMX_API smx_status smx_orthostochastic(smx_context *ctx, const smx_tensor *x, const smx_tensor *y);
SMX_API smx_status smx_orthostochastic_backward(smx_context *ctx, const smx_tensor *x, const smx_tensor *dy, const smx_tensor *dx);

/* f = mu logsumexp((A x - b) / mu), the smooth maximum of m affine functions, and what second-order methods ask of it (Gradient-Normalized
 * Smoothness for Optimization with Approximate Hessians, Semenov, Jaggi, Doikov 2025). A [m, n], b [m], x and v [n], floats of any dtype; all arithmetic
 * is f64. With p = softmax((A x - b) / mu), u = A v and U = p.u:
 *   gradient        A^T p
 *   hessian_v       A^T (p * (u - U)) / mu
 *   gauss_newton_v  A^T (p * u) / mu: without the term of rank one, never below the Hessian
 *   third_vv        A^T (p * ((u - U)^2 - p.(u - U)^2)) / mu^2: the third derivative, twice applied to v
 * Each is [n]; those that are NULL are not wanted, and without v only f and gradient can be. mu: 1e-300..1e300. m = 0: -inf and zeros. */
SMX_API smx_status smx_logsumexp_objective(smx_context *ctx, double mu, const smx_tensor *a, const smx_tensor *b, const smx_tensor *x,
                                           const smx_tensor *v, double *f, const smx_tensor *gradient, const smx_tensor *hessian_v,
                                           const smx_tensor *gauss_newton_v, const smx_tensor *third_vv);

/* f = |softmax(A x) - b|^2 / 2, the regression that one layer of attention can be seen to solve (The Closeness of In-Context Learning and Weight
 * Shifting for Softmax Regression, Li, Song, Xia, Yu, Zhou 2023), its gradient and its Hessian times v, which is not definite. As above. */
SMX_API smx_status smx_softmax_regression(smx_context *ctx, const smx_tensor *a, const smx_tensor *b, const smx_tensor *x,
                                          const smx_tensor *v, double *f, const smx_tensor *gradient, const smx_tensor *hessian_v);

/* ---- Several opinions ---------------------------------------------------------------------------------------------------------------- */

/* x [.., m, n]: m rows of logits, or logarithms of probabilities, over the same n classes. mix [m]: logits of how much each row counts, w =
 * softmax(mix); NULL: all alike. Any strides and float dtypes, all arithmetic in f64. A row that counts nothing is not read as numbers; a NaN in
 * another makes the results of its m rows NaN; where another has nothing valid they are 0.
 *
 * loss [..] = sum_i w_i D(p_i || M), M = sum_i w_i p_i: the Jensen-Shannon divergence of m rows, at most log m. For two rows it is the operator
 * jensen_shannon. dx, NULL or like x, is the gradient of the sum of losses, w_i p_ij (log p_ij / M_j - D(p_i || M)); it may be x itself, as the
 * same tensor. */
SMX_API smx_status smx_jensen_shannon(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x, const smx_tensor *loss,
                                      const smx_tensor *dx);

/* y [.., n]: the distribution with the least sum_i w_i JS(p_i, y), their Jensen-Shannon centroid, by the fixed point of Nielsen (On a Generalization of
 * the Jensen-Shannon Divergence and the Jensen-Shannon Centroid, 2020), until the sum of changes is below 1e-10, or 1000 steps. Other ways to make
 * one label of several: labels_mix (their mean) and labels_crowd (their product). */
SMX_API smx_status smx_js_centroid(smx_context *ctx, const smx_tensor *mix, const smx_tensor *x, const smx_tensor *y);

/* A worker's word on the class of an item; a worker may have several on one. */
typedef struct smx_vote {
  int64_t item, worker, label;
} smx_vote;

typedef struct smx_dawid_skene_options {
  size_t size;      /* sizeof(smx_dawid_skene_options); other fields zero mean defaults */
  int64_t steps;    /* the most there may be; 0 = 100 */
  double tolerance; /* no probability of a class moved more in the last step; 0 = 1e-9 */
} smx_dawid_skene_options;

/* The classes of items from votes, where workers err each in a way of his own: Maximum Likelihood Estimation of Observer Error-Rates Using the EM
 * Algorithm (Dawid, Skene 1979), from the shares of votes on. posterior [items, classes]: the probability of each class; an item without votes has
 * the prior's. prior [classes], errors [workers, classes, classes] (how often the worker says l where the class is k) and *steps may be NULL. The order of
 * votes matters to the last bit alone. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_SHAPE (an item or worker that there is not), SMX_ERR_TARGET (a
 * label that is no class), SMX_ERR_PARAM, SMX_ERR_NOMEM. */
SMX_API smx_status smx_dawid_skene(smx_context *ctx, const smx_dawid_skene_options *options, size_t count, const smx_vote *votes,
                                   size_t items, size_t workers, size_t classes, double *posterior, double *prior, double *errors,
                                   int64_t *steps);

/* ---- Sampling from logits ------------------------------------------------------------------------------------------------------------ */

/* What a step does to a row of scores z; p is the softmax of what is left when its turn comes. Removed elements get probability 0. The best
 * element always stays, ties being decided by value descending, then index ascending; only bans and an empty list of allowed tokens can remove
 * it. Tokens are indices of the row; in a list of those seen so far, a token may stand as often as it was seen. */
typedef enum smx_step_kind {
  SMX_STEP_TEMPERATURE = 0, /* z / a; a = 0 keeps the best alone */
  SMX_STEP_TOP_K = 1,       /* the a best */
  SMX_STEP_TOP_P = 2,       /* those before whom, best first, there is less mass than a; 1 = all, 0 = the best */
  SMX_STEP_MIN_P = 3,       /* p >= a max p; 0 = all */
  SMX_STEP_TYPICAL = 4,     /* as top-p, in the order of |-log p - entropy|, nearest first */
  SMX_STEP_EPSILON = 5,     /* p >= a */
  SMX_STEP_ETA = 6,         /* p >= min(a, sqrt(a) e^-entropy) */
  SMX_STEP_TOP_N_SIGMA = 7, /* z >= max z - a deviations; b = 1 for the deviation of a sample, 0 of a population */
  SMX_STEP_SURPRISE = 8,    /* -log2 p <= a: mirostat 2 with its state a, from which the caller takes eta (surprise - target) */
  SMX_STEP_XTC = 9,         /* with probability a: removes all of probability b or more but the least probable of them */
  SMX_STEP_REPETITION = 10, /* tokens seen: z / a where z > 0, else z a; once a token */
  SMX_STEP_FREQUENCY = 11, /* tokens seen: z - a count - b, counts added up from values (NULL = 1 each): frequency and presence penalties */
  SMX_STEP_BIAS = 12,      /* tokens: z + value */
  SMX_STEP_BAN = 13,       /* tokens: removed */
  SMX_STEP_ALLOW = 14,     /* all but the tokens: removed */
  SMX_STEP_DYNAMIC_TEMPERATURE =
      15,                  /* z / T, T = low + (high - low) (entropy / log count)^c, low = max(0, a - b), high = a + b; b = 0: z / a */
  SMX_STEP_QUADRATIC = 16, /* z = max z - a d^2 ((3 - b) / 2 - (b - 1) / 2 d), d = z - max z; b = 1: -a d^2; a = 0 = off */
  SMX_STEP_TAIL_FREE = 17, /* the first, best first, whose |second differences of p| sum to a of their total at most; sorts what is left */
  SMX_STEP_TOP_H = 18,     /* of the 100 best, p and entropy among those: while the sum of -p log p is at most a times the entropy */
  SMX_STEP_MIROSTAT = 19,  /* the k best, k from the slope of the 100 best: mirostat 1 with its state a, updated as that of SURPRISE */
  SMX_STEP_NO_REPEAT = 20, /* tokens, the text so far: removes those that would make a run of a tokens which the text holds already */
  SMX_STEP_DRY =
      21 /* tokens, the text so far: z - a b^(length - c) where z would go on with the longest run, of length c or more, that ends
                              the text and stands in it before; -1 in the text is a break, which no run contains */
} smx_step_kind;

typedef struct smx_step {
  smx_step_kind kind;
  double a, b, c; /* numbers outside their range are SMX_ERR_PARAM, with the range in smx_last_error() */
  const int64_t *tokens;
  const double *values;
  size_t token_count;
} smx_step;

typedef enum smx_draw {
  SMX_DRAW_GUMBEL = 0, /* argmax of z + Gumbel noise, a variate for each element */
  SMX_DRAW_CDF = 1,    /* one uniform variate and the inverse of the distribution function */
  SMX_DRAW_GREEDY = 2  /* the best */
} smx_draw;

/* What became of a row. */
typedef enum smx_row_status {
  SMX_ROW_OK = 0,
  SMX_ROW_EMPTY = 1, /* nothing left: no elements, all of them -inf, or all banned */
  SMX_ROW_NAN = 2,   /* a NaN among the scores, or made by a step */
  SMX_ROW_INF = 3    /* a score of +inf, or a step made one */
} smx_row_status;

typedef struct smx_sample_options {
  size_t size; /* sizeof(smx_sample_options); other fields zero mean defaults */
  const smx_step *steps;
  size_t step_count;
  smx_draw draw;
  uint64_t seed, stream;
  const uint64_t *streams; /* one a row; NULL = stream, stream + 1, ... */
  const uint64_t *seeds;   /* one a row; NULL = seed */
  smx_row_status *status;  /* one a row is written here; or NULL */
} smx_sample_options;

/* Takes each of `rows` rows of n logits, one after another, through the steps in their order and draws an element. index[r]: what was drawn, or -1
 * for a row with a NaN or +inf or with nothing left (options.status says which). log_p[r]: the logarithm of its probability among what was left, NaN if nothing was drawn;
 * log_p may be NULL. A draw depends on the row, the steps, the seed and the row's stream, on nothing else: not on the batch, the threads or the
 * machine. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_SHAPE, SMX_ERR_PARAM (a step's number out of its range), SMX_ERR_NOMEM. */
SMX_API smx_status smx_sample_f32(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const float *logits,
                                  int64_t *index, float *log_p);
SMX_API smx_status smx_sample_f64(smx_context *ctx, const smx_sample_options *options, size_t rows, size_t n, const double *logits,
                                  int64_t *index, double *log_p);

/* ---- Decoding ------------------------------------------------------------------------------------------------------------------------ */

/* What decoding needs besides operators (speculative_verify, soft_thinking_token and others of the family sample). No function here keeps state,
 * all may be called from many threads; arrays that are written may not overlap others. */

/* A hypothesis of a beam search: the beam that it continues and the token that it adds; -1 = there is none. */
typedef struct smx_beam {
  int64_t parent, token;
  double score; /* the sum of log-probabilities; of a finished one, normalised by its length */
} smx_beam;

typedef struct smx_beam_options {
  size_t size; /* sizeof(smx_beam_options) */
  int64_t eos; /* the token that ends a hypothesis; -1 = none */
  double
      penalty; /* what the score of a hypothesis that ends here is divided by, 1 = none: its length^alpha, or ((5 + length) / 6)^alpha as in
                     Google's Neural Machine Translation System (Wu et al. 2016) */
} smx_beam_options;

/* One step of beam search over `beams` beams. score[b]: the sum so far, -inf = not active (in the first step all but one are). log_p[b * n + v]:
 * log-probability of token v after beam b. Of the candidates score[b] + log_p[b][v], formed in double, the best 2 beams are walked through, best
 * first (ties: the lower beam; within a beam the larger log_p, then the lower v): an eos among the first `beams` of them is finished, any other
 * token is a next beam, until there are `beams`. next, finished: `beams` entries each; those without a hypothesis have token -1 and score -inf.
 * A search is over when `beams` hypotheses are finished and the best running score, divided by the penalty, is not above the worst of them. A beam
 * whose row has a NaN or +inf has no candidates; one whose score is NaN or +inf is SMX_ERR_PARAM. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT,
 * SMX_ERR_SHAPE, SMX_ERR_PARAM, SMX_ERR_NOMEM. */
SMX_API smx_status smx_beam_step_f32(smx_context *ctx, const smx_beam_options *options, size_t beams, size_t n, const double *score,
                                     const float *log_p, smx_beam *next, smx_beam *finished);

/* Mixtures of embeddings: out[r] = sum_j weight[r][j] table[index[r][j]], j = 0 .. k - 1, in double, by blocks of 256 from left to right, rounded
 * once: what soft_thinking_token and multi_token_sample hand to a model. index, weight: rows x k; an index of -1 counts nothing; weight NULL: 1 / k
 * each. table: n rows of `width` elements, f16, bf16 or f32; out: rows x width. Any other index is SMX_ERR_TARGET, naming its row, and nothing is
 * written. The gradient of the weights is dweight[r][j] = <dout[r], table[index[r][j]]>, 0 at an index of -1. Errors: SMX_ERR_NULL,
 * SMX_ERR_SHAPE, SMX_ERR_DTYPE, SMX_ERR_TARGET, SMX_ERR_NOMEM. */
SMX_API smx_status smx_mix_embeddings_f32(smx_context *ctx, size_t rows, size_t k, const int64_t *index, const float *weight, size_t n,
                                          size_t width, smx_dtype dtype, const void *table, float *out);
SMX_API smx_status smx_mix_embeddings_backward_f32(smx_context *ctx, size_t rows, size_t k, const int64_t *index, size_t n, size_t width,
                                                   smx_dtype dtype, const void *table, const float *dout, float *dweight);

/* How a diffusion language model goes on, from how confident its last steps were: CadLLM (2025), after its published code. Sizes of 0 mean the
 * defaults in brackets. */
typedef struct smx_cad_options {
  size_t size;                                             /* sizeof(smx_cad_options) */
  int64_t block_min, block_max, block_base;                /* [8, 64, 24] positions decoded together */
  int64_t steps_base, steps_max;                           /* [24, 90] steps for a block of block_base */
  int64_t vocabulary_min, vocabulary_base, vocabulary_max; /* [35, 100, 1000] k of subset_softmax_confidence */
} smx_cad_options;

typedef struct smx_cad {
  int64_t block, steps, vocabulary;
} smx_cad;

/* confidence: of the steps so far, in [0, 1], the latest last; progress: the part that is done, repetition: the part of tokens that repeat, both in
 * [0, 1]; remaining: positions left. With c the mean of the last two confidences (0 without any):
 *   block = min(block_min + floor((block_max - block_min) c), block_max, remaining)
 *   steps = max(1, floor(s block / block_base)), s = min(steps_base + floor((steps_max - steps_base) (1 - c)), steps_max)
 *   vocabulary = 0.8 vocabulary_max, 0.7 or 0.9 vocabulary_base for progress below 0.2, below 0.7, later; times 1.5, 1.2, 1, 0.8 for a mean of the
 *   last five below 0.3, below 0.6, up to 0.8, above; times 1.3 if confidence fell by more than 0.1 in two steps; times 1 + 2 repetition if that is
 *   above 0.5; truncated, and no less than vocabulary_min, no more than vocabulary_max.
 * options may be NULL. Errors: SMX_ERR_NULL, SMX_ERR_STRUCT, SMX_ERR_PARAM. */
SMX_API smx_status smx_cad_plan(const smx_cad_options *options, size_t count, const double *confidence, double progress, double repetition,
                                int64_t remaining, smx_cad *out);

#ifdef __cplusplus
}
#endif
#endif
