/* api/matrix.c - operators on matrices behind smx_forward and its kin: ports and parameters become
 * arguments of the functions of softmax/matrix.h. */
#include "driver/view.h"
#include "matrix/matrix.h"

/* An output of one value: f is computed as a double and stored when the function has succeeded. */
static smx_status take_value(const char *name, const matrix_call *c, smx_view *v) {
  const smx_label what = {name, "", "f"};
  smx_status status = matrix_view(what, c->out[0], 0, v);
  v->ndim = 1, v->shape[0] = v->strides[0] = 1; /* as matrix_store wants it */
  for (int i = 0; i < 2 * SMX_MAX_PORTS && status == SMX_OK; i++) {
    const smx_tensor *t = i < SMX_MAX_PORTS ? c->in[i] : c->out[i - SMX_MAX_PORTS];
    smx_view other;
    if (!t || t == c->out[0]) continue;
    status = smx_view_of(what, t, true, &other);
    if (status == SMX_OK && smx_view_overlap(v, &other))
      status = smx_fail(SMX_ERR_ALIAS, SMX_LABEL ": overlaps another buffer", SMX_LABEL_ARGS(what));
  }
  return status;
}

typedef smx_status objective_fn(const matrix_call *c, const smx_tensor *v, double *f);

/* A missing direction is 0. */
static smx_status run_objective(const char *name, const matrix_call *c, objective_fn *run) {
  static const double zero = 0;
  int64_t n = c->in[0] && c->in[0]->ndim == 2 && c->in[0]->shape ? c->in[0]->shape[1] : 0, still = 0;
  const smx_tensor zeros = smx_tensor_of(&zero, SMX_F64, 1, &n, &still);
  smx_view value;
  double f;
  smx_status status = take_value(name, c, &value);
  if (status == SMX_OK) status = run(c, c->in[3] ? c->in[3] : &zeros, &f);
  if (status == SMX_OK) matrix_store(&value, &f, 1, value.data);
  return status;
}

static smx_status logsumexp_value(const matrix_call *c, const smx_tensor *v, double *f) {
  return smx_logsumexp_objective(c->ctx, c->param[0], c->in[0], c->in[1], c->in[2], v, f, c->out[1],
                                 c->out[2], c->out[3], c->out[4]);
}
static smx_status regression_value(const matrix_call *c, const smx_tensor *v, double *f) {
  return smx_softmax_regression(c->ctx, c->in[0], c->in[1], c->in[2], v, f, c->out[1], c->out[2]);
}

static smx_status sinkhorn(const matrix_call *c) {
  return smx_sinkhorn(c->ctx, (int32_t)c->param[0], c->in[0], c->out[0]);
}
static smx_status sinkhorn_backward(const matrix_call *c) {
  if (c->param[1] == 0)
    return smx_sinkhorn_backward(c->ctx, (int32_t)c->param[0], c->in[0], c->dout[0], c->din[0]);
  return smx_sinkhorn_implicit(c->ctx, c->out[0], c->dout[0], c->din[0]);
}
static smx_status orthostochastic(const matrix_call *c) {
  return smx_orthostochastic(c->ctx, c->in[0], c->out[0]);
}
static smx_status orthostochastic_backward(const matrix_call *c) {
  return smx_orthostochastic_backward(c->ctx, c->in[0], c->dout[0], c->din[0]);
}
static smx_status logsumexp_objective(const matrix_call *c) {
  return run_objective("logsumexp_objective", c, logsumexp_value);
}
static smx_status softmax_regression(const matrix_call *c) {
  return run_objective("softmax_regression", c, regression_value);
}

/* The functions take many such matrices, operators take one. */
static smx_status one_matrix(const char *name, const matrix_call *c) {
  smx_view x;
  return matrix_view((smx_label){name, "", "x"}, c->in[0], 2, &x);
}
static smx_status jensen_shannon_divergence(const matrix_call *c) {
  smx_status status = one_matrix("jensen_shannon_divergence", c);
  return status == SMX_OK ? smx_jensen_shannon(c->ctx, c->in[1], c->in[0], c->out[0], c->out[1]) : status;
}
static smx_status jensen_shannon_centroid(const matrix_call *c) {
  smx_status status = one_matrix("jensen_shannon_centroid", c);
  return status == SMX_OK ? smx_js_centroid(c->ctx, c->in[1], c->in[0], c->out[0]) : status;
}

static const struct {
  smx_status (*forward)(const matrix_call *c), (*backward)(const matrix_call *c);
} functions[MATRIX_COUNT] = {
    [MATRIX_sinkhorn] = {sinkhorn, sinkhorn_backward},
    [MATRIX_orthostochastic] = {orthostochastic, orthostochastic_backward},
    [MATRIX_logsumexp_objective] = {logsumexp_objective, NULL},
    [MATRIX_softmax_regression] = {softmax_regression, NULL},
    [MATRIX_jensen_shannon_divergence] = {jensen_shannon_divergence, NULL},
    [MATRIX_jensen_shannon_centroid] = {jensen_shannon_centroid, NULL},
    [MATRIX_dawid_skene] = {matrix_dawid_skene, NULL},
    [MATRIX_worker_agreement] = {matrix_worker_agreement, NULL},
};

smx_status smx_matrix_run(size_t index, const matrix_call *c, bool backward) {
  if (backward && !c->din[0]) return SMX_OK; /* the only output, and it is not wanted */
  return backward ? functions[index].backward(c) : functions[index].forward(c);
}
