/* score/functions_evidential.c - evidential_score: the mean of a Dirichlet distribution whose
 * parameters are the evidence for each class + 1, and how little evidence there is. In double. */
#include "cpu/cpu.h"
#include "functions.h"

enum { PROBABILITY, VACUITY }; /* outputs */
enum { RELU, SOFTPLUS, EXP };  /* the parameter `evidence` */
enum { MOST = 10 };            /* logits of EXP are within +-MOST */

typedef struct evidence_call {
  const tensor_call *c;
  const score_kernels *kernels; /* of double */
  smx_scratch scratch;
  int64_t rows, classes;
  int form;
  bool backward;
} evidence_call;

/* e(z) and its derivative. */
static double evidence_of(const evidence_call *x, double z, double *slope) {
  if (x->form == RELU) {
    *slope = z > 0;
    return z > 0 || z != z ? z : 0;
  }
  if (x->form == SOFTPLUS) {
    const double e = x->kernels->exp(z < 0 ? z : -z);
    *slope = (z < 0 ? e : 1) / (1 + e);
    return x->kernels->softplus(z);
  }
  const double bounded = z > MOST ? MOST : z < -MOST ? -MOST : z, e = x->kernels->exp(bounded);
  *slope = z > -MOST && z < MOST ? e : 0;
  return e;
}

/* alpha = e + 1, 0 of a class that is absent; the sum, and how many classes there are. */
static double take_alpha(const evidence_call *x, double *z, double *slope, double *valid) {
  double sum = 0;
  *valid = 0;
  for (int64_t i = 0; i < x->classes; i++) {
    const bool there = z[i] != -__builtin_inf();
    const double e = evidence_of(x, z[i], slope + i);
    z[i] = there ? e + 1 : 0, slope[i] = there ? slope[i] : 0, *valid += there;
    sum += z[i];
  }
  return sum;
}

/* p_j = alpha_j / S, u = c / S: dz_k = e'(z_k) (g_k - sum g p - g_u u) / S. g becomes that. */
static void gradient(const evidence_call *x, const double *alpha, const double *slope, double sum,
                     double valid, double up, double *g) {
  double dot = up * valid / sum;
  for (int64_t i = 0; i < x->classes; i++) dot += g[i] * alpha[i] / sum;
  for (int64_t i = 0; i < x->classes; i++) g[i] = slope[i] == 0 ? 0 : slope[i] * (g[i] - dot) / sum;
}

static void task(void *arg, int64_t row) {
  evidence_call *x = arg;
  const tensor_call *c = x->c;
  const int64_t n = x->classes, at = row * n;
  double *z = smx_scratch_take(&x->scratch), *slope = z + n, *g = slope + n, valid;
  tensor_load(c, c->in.view, at, n, z);
  const double sum = take_alpha(x, z, slope, &valid), vacuity = valid / sum;
  if (x->backward) {
    for (int64_t i = 0; i < n; i++) g[i] = 0;
    if (c->dout.given[PROBABILITY]) tensor_load(c, c->dout.view + PROBABILITY, at, n, g);
    gradient(x, z, slope, sum, valid, tensor_upstream(c, VACUITY, row), g);
    tensor_store(c, c->din.view, at, n, g);
  } else {
    for (int64_t i = 0; i < n; i++)
      g[i] = valid > 0 ? z[i] / sum : smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN ? sum / sum : 0;
    tensor_store(c, c->out.view + PROBABILITY, at, n, g);
    tensor_put(c, VACUITY, row, vacuity);
  }
  smx_scratch_give(&x->scratch, z);
}

static smx_status run(const tensor_call *c, bool backward) {
  evidence_call x = {.c = c, .kernels = smx_isa_current()->f64.score, .backward = backward};
  x.rows = c->dims.lead_count, x.classes = tensor_dim(c, "c");
  x.form = (int)tensor_param(c, "evidence");
  const smx_status status = tensor_check_empty(c, x.rows, x.classes, "row", "classes");
  if (status != SMX_OK || (backward && !c->din.given[0])) return status;
  if (!smx_scratch_open(&x.scratch, c->ctx, 0, (size_t)(3 * x.classes + 1) * sizeof(double), x.rows))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  smx_parallel(c->ctx, x.rows, task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

smx_status score_evidence_forward(const tensor_call *c) { return run(c, false); }
smx_status score_evidence_backward(const tensor_call *c) { return run(c, true); }
