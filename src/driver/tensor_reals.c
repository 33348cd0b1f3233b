/* driver/tensor_reals.c - see tensor_reals.h. */
#include "tensor_reals.h"

bool tensor_row_is_empty(const tensor_call *c, int64_t row, int64_t n) {
  bool empty = true;
  for (int64_t i = 0; i < n && empty; i++) {
    double z;
    tensor_load(c, c->in.view, row * n + i, 1, &z);
    empty = z == -__builtin_inf();
  }
  return empty;
}

smx_status tensor_check_empty(const tensor_call *c, int64_t rows, int64_t n, const char *row,
                              const char *elements) {
  if (smx_context_on_empty(c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  for (int64_t i = 0; i < rows; i++)
    if (tensor_row_is_empty(c, i, n))
      return smx_fail(SMX_ERR_EMPTY, "%s: %s %lld has no %s", c->op->name, row, (long long)i, elements);
  return SMX_OK;
}
