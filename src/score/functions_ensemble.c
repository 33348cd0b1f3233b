/* score/functions_ensemble.c - ensemble_scores: how much several predictions of a row differ. */
#include "cpu/cpu.h"
#include "functions.h"

typedef struct ensemble_call {
  const tensor_call *c;
  const score_kernels *kernels; /* of double */
  smx_scratch scratch;
  int64_t rows, members, classes;
  bool backward;
} ensemble_call;

static size_t row_bytes(const ensemble_call *x) {
  return (size_t)((3 * x->members + 1) * x->classes + 1) * sizeof(double);
}

static void task(void *arg, int64_t row) {
  ensemble_call *x = arg;
  const tensor_call *c = x->c;
  const int64_t count = x->members * x->classes, at = row * count;
  double *memory = smx_scratch_take(&x->scratch), *dz = memory + 2 * count + x->classes;
  const score_ensemble e = {memory,     memory + count, memory + 2 * count,
                            x->members, x->classes,     tensor_param(c, "temperature")};
  double value[SCORE_ENSEMBLE], up[SCORE_ENSEMBLE];
  tensor_load(c, c->in.view, at, count, memory);
  const bool good = x->kernels->ensemble(&e, value);
  for (int o = 0; o < SCORE_ENSEMBLE && !x->backward; o++)
    tensor_put(c, o, row, good ? value[o] : __builtin_nan(""));
  if (x->backward) {
    for (int o = 0; o < SCORE_ENSEMBLE; o++) up[o] = tensor_upstream(c, o, row);
    if (good) x->kernels->ensemble_gradient(&e, up, dz);
    for (int64_t i = 0; i < count && !good; i++) dz[i] = __builtin_nan("");
    tensor_store(c, c->din.view, at, count, dz);
  }
  smx_scratch_give(&x->scratch, memory);
}

static smx_status run(const tensor_call *c, bool backward) {
  ensemble_call x = {.c = c, .kernels = smx_isa_current()->f64.score, .backward = backward};
  x.rows = c->dims.lead_count, x.members = tensor_dim(c, "m"), x.classes = tensor_dim(c, "c");
  const smx_status status = tensor_check_empty(c, x.rows * x.members, x.classes, "row", "classes");
  if (status != SMX_OK || (backward && !c->din.given[0])) return status;
  if (!smx_scratch_open(&x.scratch, c->ctx, 0, row_bytes(&x), x.rows))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  smx_parallel(c->ctx, x.rows, task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

smx_status score_ensemble_forward(const tensor_call *c) { return run(c, false); }
smx_status score_ensemble_backward(const tensor_call *c) { return run(c, true); }
