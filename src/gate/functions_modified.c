/* gate/functions_modified.c - gate_modified: features of a bounded size for a router, in double. */
#include "cpu/cpu.h"
#include "functions.h"
#include "functions_rows.h"

enum { UNIT, TANH }; /* the parameter `transform` */

#define LEAST 1e-12 /* of a length */

typedef struct modified {
  const tensor_call *c;
  const gate_kernels *kernels; /* of double */
  smx_scratch scratch;
  int64_t rows, width;
  bool backward;
} modified;

/* The largest element, so that no square overflows: |x| = most sqrt(sum (x / most)^2). */
static double length_of(const double *x, int64_t n) {
  double most = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double a = __builtin_fabs(x[i]);
    if (a > most || a != a) most = a;
  }
  if (!(most > 0 && most < __builtin_inf())) return most;
  for (int64_t i = 0; i < n; i++) sum += x[i] / most * (x[i] / most);
  return most * __builtin_sqrt(sum);
}

/* y = x / l, l = max(|x|, LEAST); dx = (g - (g y) y) / l, and g / l where l is LEAST. */
static void unit_row(const modified *m, double *x, double *g) {
  const double length = length_of(x, m->width), by = length < LEAST ? LEAST : length;
  double dot = 0;
  for (int64_t i = 0; i < m->width; i++) x[i] /= by;
  if (!m->backward) return;
  for (int64_t i = 0; i < m->width; i++) dot += g[i] * x[i];
  if (length < LEAST) dot = 0;
  for (int64_t i = 0; i < m->width; i++) g[i] = (g[i] - dot * x[i]) / by;
}

static void tanh_row(const modified *m, double *x, double *g, double *slope) {
  m->kernels->activate(GATE_TANH, x, m->width, x, slope);
  for (int64_t i = 0; i < m->width && m->backward; i++) g[i] *= slope[i];
}

static void task(void *arg, int64_t number) {
  modified *m = arg;
  const tensor_call *c = m->c;
  double *x = smx_scratch_take(&m->scratch), *g = x + m->width, *slope = g + m->width;
  for (int64_t i = number * GATE_TASK; i < gate_task_end(number, m->rows); i++) {
    tensor_load(c, c->in.view, i * m->width, m->width, x);
    if (m->backward) tensor_load(c, c->dout.view, i * m->width, m->width, g);
    if (tensor_param(c, "transform") == UNIT) unit_row(m, x, g);
    else tanh_row(m, x, g, slope);
    tensor_store(c, m->backward ? c->din.view : c->out.view, i * m->width, m->width, m->backward ? g : x);
  }
  smx_scratch_give(&m->scratch, x);
}

static smx_status run(const tensor_call *c, bool backward) {
  modified m = {.c = c, .kernels = smx_isa_current()->f64.gate, .backward = backward};
  m.rows = c->dims.lead_count, m.width = tensor_dim(c, "d");
  const size_t bytes = (size_t)(3 * m.width + 1) * sizeof(double);
  if (!smx_scratch_open(&m.scratch, c->ctx, 0, bytes, gate_tasks(m.rows)))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld features", c->op->name, (long long)m.width);
  smx_parallel(c->ctx, gate_tasks(m.rows), task, &m);
  smx_scratch_close(&m.scratch);
  return SMX_OK;
}

smx_status gate_modified(const tensor_call *c) { return run(c, false); }
smx_status gate_modified_backward(const tensor_call *c) { return c->din.given[0] ? run(c, true) : SMX_OK; }
