/* engine/exp_half.h - rows of f16 or bf16 without a converted copy: their scores, and softmax, its
 * logarithm and its gradient; exists where the real type is float. */
#ifndef SMX_ENGINE_EXP_HALF_H
#define SMX_ENGINE_EXP_HALF_H
#include "convert.h"
#include "exp.h"

#if SMX_REAL == 32
/* Scores of rows of f16 or bf16: src[0] of a span is an array of the storage type. */
SMI score half_score(half_type type, const span *s, const real *shift, size_t i, int cnt) {
  const uint16_t *const x = (const uint16_t *)(const void *)s->src[0];
  return (score){loss_shifted(at_half(type, x, i, cnt), shift), v_set1(0)};
}
SMI score f16_score(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return half_score(HALF_F16, s, shift, i, cnt);
}
SMI score bf16_score(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  return half_score(HALF_BF16, s, shift, i, cnt);
}
#define f16_scores SMX_FN(f16_scores)
#define bf16_scores SMX_FN(bf16_scores)
extern const exp_scores f16_scores, bf16_scores;

/* The functions behind row_forms.half: of softmax, log_softmax, and the gradient of softmax. */
#define exp_half SMX_FN(exp_half)
#define logs_half SMX_FN(logs_half)
#define weights_half SMX_FN(weights_half)
size_t exp_half(const half_rows *h);
size_t logs_half(const half_rows *h);
size_t weights_half(const half_rows *h);
#endif

/* Of a row_forms: where the real type is double, rows of half precision are of no use. */
#if SMX_REAL == 32
#define HALF_FORM(of) .half = of
#define HALF_KERNELS(f16, bf16) .from_half = {&f16, &bf16}
#else
#define HALF_FORM(of) .half = NULL
#define HALF_KERNELS(f16, bf16) .from_half = {NULL}
#endif

#endif
