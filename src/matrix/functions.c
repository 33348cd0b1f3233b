/* matrix/functions.c - the operators on matrices behind the verbs that run every operator: ports
 * and parameters become arguments of their functions. */
#include "driver/tensors.h"
#include "driver/view.h"
#include "matrix.h"
#include "functions.h"

typedef smx_status objective_fn(const tensor_call *c, const smx_tensor *v, double *f);

/* A missing direction is 0. */
static smx_status run_objective(const tensor_call *c, objective_fn *run) {
  static const double zero = 0;
  int64_t n = tensor_dim(c, "n"), still = 0;
  const smx_tensor zeros = smx_tensor_of(&zero, SMX_F64, 1, &n, &still);
  smx_view value = c->out.view[0];
  double f;
  smx_status status = run(c, c->in.given[3] ? c->in.given[3] : &zeros, &f);
  value.ndim = 1, value.shape[0] = value.strides[0] = 1; /* as matrix_store wants it */
  if (status == SMX_OK) matrix_store(&value, &f, 1, value.data);
  return status;
}

static smx_status logsumexp_value(const tensor_call *c, const smx_tensor *v, double *f) {
  return smx_logsumexp_objective(c->ctx, c->param[0], c->in.given[0], c->in.given[1], c->in.given[2], v, f,
                                 c->out.given[1], c->out.given[2], c->out.given[3], c->out.given[4]);
}
static smx_status regression_value(const tensor_call *c, const smx_tensor *v, double *f) {
  return smx_softmax_regression(c->ctx, c->in.given[0], c->in.given[1], c->in.given[2], v, f, c->out.given[1],
                                c->out.given[2]);
}

static smx_status sinkhorn(const tensor_call *c) {
  return smx_sinkhorn(c->ctx, (int32_t)c->param[0], c->in.given[0], c->out.given[0]);
}
static smx_status sinkhorn_backward(const tensor_call *c) {
  if (!c->din.given[0]) return SMX_OK;
  if (c->param[1] == 0)
    return smx_sinkhorn_backward(c->ctx, (int32_t)c->param[0], c->in.given[0], c->dout.given[0],
                                 c->din.given[0]);
  return smx_sinkhorn_implicit(c->ctx, c->out.given[0], c->dout.given[0], c->din.given[0]);
}
static smx_status orthostochastic(const tensor_call *c) {
  return smx_orthostochastic(c->ctx, c->in.given[0], c->out.given[0]);
}
static smx_status orthostochastic_backward(const tensor_call *c) {
  if (!c->din.given[0]) return SMX_OK;
  return smx_orthostochastic_backward(c->ctx, c->in.given[0], c->dout.given[0], c->din.given[0]);
}
static smx_status logsumexp_objective(const tensor_call *c) { return run_objective(c, logsumexp_value); }
static smx_status softmax_regression(const tensor_call *c) { return run_objective(c, regression_value); }

static smx_status jensen_shannon_divergence(const tensor_call *c) {
  return smx_jensen_shannon(c->ctx, c->in.given[1], c->in.given[0], c->out.given[0], c->out.given[1]);
}
static smx_status jensen_shannon_centroid(const tensor_call *c) {
  return smx_js_centroid(c->ctx, c->in.given[1], c->in.given[0], c->out.given[0]);
}

const tensor_functions matrix_functions[MATRIX_COUNT] = {
    [MATRIX_sinkhorn] = {sinkhorn, sinkhorn_backward},
    [MATRIX_orthostochastic] = {orthostochastic, orthostochastic_backward},
    [MATRIX_logsumexp_objective] = {logsumexp_objective},
    [MATRIX_softmax_regression] = {softmax_regression},
    [MATRIX_jensen_shannon_divergence] = {jensen_shannon_divergence},
    [MATRIX_jensen_shannon_centroid] = {jensen_shannon_centroid},
    [MATRIX_dawid_skene] = {matrix_dawid_skene},
    [MATRIX_worker_agreement] = {matrix_worker_agreement},
    [MATRIX_basis_aware_accept] = {.forward = matrix_basis_aware_accept, .packed = true},
};
