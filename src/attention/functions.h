/* attention/functions.h - the functions of the operators of table_operators.h. */
#ifndef SMX_ATTENTION_FUNCTIONS_H
#define SMX_ATTENTION_FUNCTIONS_H
#include "driver/tensor_reals.h"
#include "table_operators.h"

smx_status sinkhorn_attention_forward(const tensor_call *c);
smx_status sinkhorn_attention_backward(const tensor_call *c);
smx_status orthostochastic_attention_forward(const tensor_call *c);
smx_status orthostochastic_attention_backward(const tensor_call *c);
smx_status multi_token_attention_forward(const tensor_call *c);
smx_status multi_token_attention_backward(const tensor_call *c);
smx_status soft_attention_forward(const tensor_call *c);
smx_status soft_attention_backward(const tensor_call *c);
smx_status segment_attention_forward(const tensor_call *c);
smx_status segment_attention_backward(const tensor_call *c);
smx_status max_sim_sizes(dims *d);
smx_status max_sim_forward(const tensor_call *c);
smx_status max_sim_backward(const tensor_call *c);
smx_status lsh_codes_sizes(dims *d);
smx_status lsh_codes_forward(const tensor_call *c);
smx_status magicpig_attention_sizes(dims *d);
smx_status magicpig_attention_forward(const tensor_call *c);
smx_status kde_attention_forward(const tensor_call *c);
smx_status nystrom_attention_forward(const tensor_call *c);
smx_status nystrom_attention_backward(const tensor_call *c);
smx_status additive_scores_forward(const tensor_call *c);
smx_status additive_scores_backward(const tensor_call *c);
smx_status entmax_attention_forward(const tensor_call *c);
smx_status entmax_attention_backward(const tensor_call *c);
smx_status nap_attention_forward(const tensor_call *c);
smx_status nap_attention_backward(const tensor_call *c);
smx_status shaped_attention_forward(const tensor_call *c);
smx_status shaped_attention_backward(const tensor_call *c);
smx_status kv_budget_prefix_sizes(dims *d);
smx_status kv_budget_prefix_forward(const tensor_call *c);
smx_status kv_budget_dynamic_forward(const tensor_call *c);

/* The scale of products of rows of d, where none is asked for. */
static inline double attention_scale(const tensor_call *c) {
  const double asked = tensor_param(c, "scale"), d = (double)tensor_dim(c, "d");
  return asked != 0 ? asked : 1 / __builtin_sqrt(d > 0 ? d : 1);
}

/* to += by x */
static inline void add_row(double by, const double *x, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] += by * x[i];
}

/* to: the columns of x as rows. */
static inline void transpose(const double *x, int64_t rows, int64_t columns, double *to) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) to[j * rows + i] = x[i * columns + j];
}

#endif
