/* count.c - one call of each hot kernel, for callgrind to count: it collects inside counted_call
 * only, and check.py reads what it collected. Prints the instruction set, then the name of each
 * counted call in order. SMX_ISA chooses the set; inputs are the same every time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util.h"

enum { MOST = 262144 }; /* elements of a call */
typedef struct buffers {
  void *x, *dy, *y;
} buffers;

typedef smx_status verb(size_t rows, size_t n, const buffers *b);

static smx_status softmax_f32(size_t rows, size_t n, const buffers *b) {
  return smx_softmax_f32(rows, n, b->x, b->y);
}
static smx_status softmax_f64(size_t rows, size_t n, const buffers *b) {
  return smx_softmax_f64(rows, n, b->x, b->y);
}
static smx_status softmax_bf16(size_t rows, size_t n, const buffers *b) {
  return smx_softmax_bf16(rows, n, b->x, b->y);
}
static smx_status softmax_f16(size_t rows, size_t n, const buffers *b) {
  return smx_softmax_f16(rows, n, b->x, b->y);
}
static smx_status log_softmax_f32(size_t rows, size_t n, const buffers *b) {
  return smx_log_softmax_f32(rows, n, b->x, b->y);
}
static smx_status logsumexp_f32(size_t rows, size_t n, const buffers *b) {
  return smx_logsumexp_f32(rows, n, b->x, b->y);
}
static smx_status backward_f32(size_t rows, size_t n, const buffers *b) {
  return smx_softmax_backward_f32(rows, n, b->x, b->dy, b->y);
}

/* The loss of each row, and its gradient. */
static smx_status losses(size_t rows, size_t n, const buffers *b, float *dx) {
  static int64_t target[256];
  static float loss[256];
  for (size_t i = 0; i < rows; i++) target[i] = (int64_t)(i * 7919 % n);
  return smx_cross_entropy_f32(NULL, rows, n, b->x, target, NULL, loss, dx, NULL);
}
static smx_status cross_entropy_f32(size_t rows, size_t n, const buffers *b) {
  return losses(rows, n, b, NULL);
}
static smx_status cross_entropy_dx_f32(size_t rows, size_t n, const buffers *b) {
  return losses(rows, n, b, b->y);
}

static smx_tensor matrix_of(const int64_t *shape, void *data) {
  return (smx_tensor){.ndim = 2, .dtype = SMX_F32, .shape = (int64_t *)(uintptr_t)shape, .data = data};
}
static smx_status columns_f32(size_t n, size_t columns, const buffers *b) {
  const int64_t shape[2] = {(int64_t)n, (int64_t)columns};
  const smx_tensor x = matrix_of(shape, b->x), y = matrix_of(shape, b->y);
  return smx_softmax(NULL, 0, &x, &y);
}

/* The same through tensors. */
static smx_status tensors_f32(size_t rows, size_t n, const buffers *b) {
  const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
  const smx_tensor x = matrix_of(shape, b->x), y = matrix_of(shape, b->y);
  return smx_softmax(NULL, -1, &x, &y);
}
static smx_status tensors_backward_f32(size_t rows, size_t n, const buffers *b) {
  const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
  const smx_tensor y = matrix_of(shape, b->x), dy = matrix_of(shape, b->dy), dx = matrix_of(shape, b->y);
  return smx_softmax_backward(NULL, -1, &y, &dy, &dx);
}
static smx_status verb_f32(size_t rows, size_t n, const buffers *b) {
  static const smx_op *op;
  const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
  const smx_tensor x = matrix_of(shape, b->x), y = matrix_of(shape, b->y), *in[] = {&x}, *out[] = {&y};
  if (!op) op = smx_op_find("log_softmax");
  return smx_forward(op, NULL, NULL, 1, in, 1, out);
}
static smx_status infer_f32(size_t rows, size_t n, const buffers *b) {
  static const smx_op *op;
  const int64_t shape[2] = {(int64_t)rows, (int64_t)n};
  const smx_tensor x = matrix_of(shape, b->x), *in[] = {&x};
  smx_shape out;
  if (!op) op = smx_op_find("softmax");
  return smx_infer(op, NULL, 1, in, 1, &out);
}
static smx_status greedy_f32(size_t rows, size_t n, const buffers *b) {
  int64_t token[1];
  const smx_sample_options how = {.size = sizeof how, .draw = SMX_DRAW_GREEDY};
  return smx_sample_f32(NULL, &how, rows, n, b->x, token, NULL);
}

/* HEADS x LENGTH x 64, causal softmax; decode: one query a head, LENGTH keys. */
/* Rows of bf16, read as they are: one number of each, or as many as there were. */
static smx_status of_bf16(const char *name, size_t rows, size_t n, const buffers *b, int32_t ndim) {
  const int64_t shape[2] = {(int64_t)rows, (int64_t)n}, target = 0;
  smx_tensor x = matrix_of(shape, b->x), y = matrix_of(shape, b->y), t = matrix_of(shape, b->dy);
  const smx_tensor *in[] = {&x, &t}, *out[] = {&y};
  const smx_op *op = smx_op_find(name);
  x.dtype = y.dtype = SMX_BF16, y.ndim = ndim;
  t.dtype = SMX_I64, t.ndim = 1, t.data = (int64_t *)(uintptr_t)&target;
  return smx_forward(op, NULL, NULL, op->input_count > 1 ? 2 : 1, in, 1, out);
}
static smx_status logsumexp_bf16(size_t rows, size_t n, const buffers *b) {
  return of_bf16("logsumexp", rows, n, b, 1);
}
static smx_status log_softmax_bf16(size_t rows, size_t n, const buffers *b) {
  return of_bf16("log_softmax", rows, n, b, 2);
}
static smx_status cross_entropy_bf16(size_t rows, size_t n, const buffers *b) {
  return of_bf16("cross_entropy", rows, n, b, 1);
}

static smx_status attention(size_t heads, size_t n, const buffers *b, smx_dtype t, int decode, int gradient) {
  int64_t rows[4] = {1, (int64_t)heads, decode ? 1 : (int64_t)n, 64},
          keys[4] = {1, (int64_t)heads, (int64_t)n, 64};
  static float lse[MOST / 64], dk[MOST], dv[MOST];
  const smx_tensor q = {.ndim = 4, .dtype = t, .shape = rows, .data = b->x},
                   k = {.ndim = 4, .dtype = t, .shape = keys, .data = b->dy};
  smx_tensor o = q, l = {.ndim = 3, .dtype = SMX_F32, .shape = rows, .data = lse}, d_k = k, d_v = k;
  smx_attention_options options;
  smx_attention_init(&options);
  options.scale = 0.005, options.causal = !decode;
  o.data = b->y, d_k.data = dk, d_v.data = dv;
  if (!gradient) return smx_attention(NULL, &options, &q, &k, &k, &o, NULL);
  return smx_attention_backward(NULL, &options, &q, &k, &k, &q, &l, &q, NULL, &o, &d_k, &d_v);
}
static smx_status prefill_f32(size_t heads, size_t n, const buffers *b) {
  return attention(heads, n, b, SMX_F32, 0, 0);
}
static smx_status gradients_f32(size_t heads, size_t n, const buffers *b) {
  return attention(heads, n, b, SMX_F32, 0, 1);
}
static smx_status decode_f32(size_t heads, size_t n, const buffers *b) {
  return attention(heads, n, b, SMX_F32, 1, 0);
}
static smx_status decode_f16(size_t heads, size_t n, const buffers *b) {
  return attention(heads, n, b, SMX_F16, 1, 0);
}

/* ---- The cases: named as the benchmark names its own ----------------------------------------- */

typedef struct shape {
  size_t rows, n;
} shape;

static const shape along_rows[] = {{1, 16}, {1, 64}, {1, 1024}, {1, 16384}, {1, MOST}, {256, 16}, {64, 128}};
static const shape shortest[] = {{1, 16}, {1, 64}}, one_row[] = {{1, 16384}};
static const shape along_columns[] = {{256, 16}, {1024, 256}};
static const shape prefills[] = {{1, 256}, {16, 4}, {16, 16}}, decodes[] = {{2, 2048}, {16, 1}, {16, 16}};
static const shape longer[] = {{1, 256}};

static const struct {
  const char *name, *dtype;
  verb *run;
  const shape *shapes;
  size_t count;
  const char *rest; /* of the shape */
} verbs[] = {
    {"softmax", "f32", softmax_f32, along_rows, COUNT_OF(along_rows), ""},
    {"softmax", "f64", softmax_f64, along_rows, COUNT_OF(along_rows), ""},
    {"softmax", "bf16", softmax_bf16, along_rows, COUNT_OF(along_rows), ""},
    {"softmax", "f16", softmax_f16, along_rows, COUNT_OF(along_rows), ""},
    {"log_softmax", "f32", log_softmax_f32, along_rows, COUNT_OF(along_rows), ""},
    {"logsumexp", "f32", logsumexp_f32, along_rows, COUNT_OF(along_rows), ""},
    {"logsumexp", "bf16", logsumexp_bf16, one_row, COUNT_OF(one_row), ""},
    {"log_softmax", "bf16", log_softmax_bf16, one_row, COUNT_OF(one_row), ""},
    {"cross_entropy", "bf16", cross_entropy_bf16, one_row, COUNT_OF(one_row), ""},
    {"softmax_backward", "f32", backward_f32, along_rows, COUNT_OF(along_rows), ""},
    {"cross_entropy", "f32", cross_entropy_f32, along_rows, COUNT_OF(along_rows), ""},
    {"cross_entropy_dx", "f32", cross_entropy_dx_f32, along_rows, COUNT_OF(along_rows), ""},
    {"softmax_tensors", "f32", tensors_f32, shortest, COUNT_OF(shortest), ""},
    {"softmax_backward_tensors", "f32", tensors_backward_f32, shortest, COUNT_OF(shortest), ""},
    {"log_softmax_forward", "f32", verb_f32, shortest, COUNT_OF(shortest), ""},
    {"softmax_infer", "f32", infer_f32, shortest, COUNT_OF(shortest), ""},
    {"sample_greedy", "f32", greedy_f32, one_row, COUNT_OF(one_row), ""},
    {"softmax", "f32", columns_f32, along_columns, COUNT_OF(along_columns), "@0"},
    {"attention_causal", "f32", prefill_f32, prefills, COUNT_OF(prefills), "x64"},
    {"attention_causal_dx", "f32", gradients_f32, longer, COUNT_OF(longer), "x64"},
    {"attention_decode", "f32", decode_f32, decodes, COUNT_OF(decodes), "x64"},
    {"attention_decode", "f16", decode_f16, decodes, COUNT_OF(decodes), "x64"},
};

/* ---- One call each --------------------------------------------------------------------------- */

static __attribute__((noinline)) smx_status counted_call(verb *run, shape s, const buffers *b) {
  return run(s.rows, s.n, b);
}
/* keeps the function as it is named */
static smx_status (*const volatile counted)(verb *, shape, const buffers *) = counted_call;

static smx_dtype dtype_named(const char *name) {
  int i = 0;
  while (strcmp(float_dtype_names[i], name)) i++;
  return float_dtypes[i];
}

/* Logits: normal * 5. */
static void *scores(smx_dtype t, uint64_t seed) {
  rng r = {seed};
  char *x = aligned_alloc(4096, MOST * dtype_size(t));
  for (size_t i = 0; x && i < MOST; i++) dtype_store(t, x + i * dtype_size(t), 5 * rng_normal(&r));
  return x;
}

int main(void) {
  printf("%s\n", smx_isa_name());
  for (size_t v = 0; v < COUNT_OF(verbs); v++) {
    smx_dtype t = dtype_named(verbs[v].dtype);
    buffers b = {scores(t, 1), scores(t, 2), aligned_alloc(4096, MOST * dtype_size(t))};
    if (!b.x || !b.dy || !b.y) return 1;
    if (verbs[v].run(1, 1, &b)) return 1; /* picks the kernels */
    for (size_t i = 0; i < verbs[v].count; i++) {
      shape s = verbs[v].shapes[i];
      if (counted(verbs[v].run, s, &b)) return 1;
      printf("%s/%s/%zux%zu%s\n", verbs[v].name, verbs[v].dtype, s.rows, s.n, verbs[v].rest);
    }
    free(b.x), free(b.dy), free(b.y);
  }
  return 0;
}
