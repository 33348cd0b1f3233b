/* attention/functions_additive.c - additive_scores: z_ij = sum_c u_c tanh(q_ic + k_jc). In double,
 * sums in index order:
 *
 *   s_ijc = dz_ij u_c (1 - tanh^2), dq_i = sum_j s_ij, dk_j = sum_i s_ij, du = sum_ij dz_ij tanh */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/carve.h"
#include "functions.h"
#include "score/score.h"

enum { U, Q, K, OUT = 0 }; /* inputs, and the output */

typedef struct additive {
  const tensor_call *c;
  const score_kernels *math;
  int64_t l, t, d;
  bool backward;
  smx_scratch scratch;
} additive;

/* What a task works in: u [d], k [t][d], q [d], z [t], and gradients. */
typedef struct additive_work {
  double *u, *k, *q, *z, *du, *dk, *dq;
} additive_work;

static void lay_out(const additive *s, carver *c, additive_work *w) {
  const int64_t b = sizeof(double), way = s->backward;
  w->u = carve(c, 1, s->d, b), w->k = carve(c, s->t, s->d, b), w->q = carve(c, 1, s->d, b);
  w->z = carve(c, 1, s->t, b), w->du = carve(c, way, s->d, b), w->dk = carve(c, way * s->t, s->d, b);
  w->dq = carve(c, way, s->d, b);
}

static double tanh_of(const additive *s, double x) {
  const double size = x < 0 ? -x : x, below = s->math->expm1(-2 * size), y = -below / (2 + below);
  return x < 0 ? -y : y;
}

static void answer(const additive *s, int64_t row, additive_work *w) {
  for (int64_t j = 0; j < s->t; j++) {
    w->z[j] = 0;
    for (int64_t i = 0; i < s->d; i++) w->z[j] += w->u[i] * tanh_of(s, w->q[i] + w->k[j * s->d + i]);
  }
  tensor_store(s->c, s->c->out.view + OUT, row * s->t, s->t, w->z);
}

static void go_back(const additive *s, int64_t row, additive_work *w) {
  tensor_load(s->c, s->c->dout.view + OUT, row * s->t, s->t, w->z);
  memset(w->dq, 0, (size_t)s->d * sizeof *w->dq);
  for (int64_t j = 0; j < s->t; j++)
    for (int64_t i = 0; i < s->d && w->z[j] != 0; i++) {
      const double y = tanh_of(s, w->q[i] + w->k[j * s->d + i]), slope = w->z[j] * w->u[i] * (1 - y * y);
      w->dq[i] += slope, w->dk[j * s->d + i] += slope, w->du[i] += w->z[j] * y;
    }
  if (s->c->din.given[Q]) tensor_store(s->c, s->c->din.view + Q, row * s->d, s->d, w->dq);
}

static void task(void *arg, int64_t item) {
  additive *s = arg;
  char *memory = smx_scratch_take(&s->scratch);
  additive_work w;
  lay_out(s, &(carver){.base = memory, .fits = true}, &w);
  tensor_load(s->c, s->c->in.view + U, item * s->d, s->d, w.u);
  tensor_load(s->c, s->c->in.view + K, item * s->t * s->d, s->t * s->d, w.k);
  if (s->backward) memset(w.du, 0, (size_t)s->d * sizeof *w.du);
  if (s->backward) memset(w.dk, 0, (size_t)(s->t * s->d) * sizeof *w.dk);
  for (int64_t row = item * s->l; row < (item + 1) * s->l; row++) {
    tensor_load(s->c, s->c->in.view + Q, row * s->d, s->d, w.q);
    if (s->backward) go_back(s, row, &w);
    else answer(s, row, &w);
  }
  if (s->backward && s->c->din.given[U]) tensor_store(s->c, s->c->din.view + U, item * s->d, s->d, w.du);
  if (s->backward && s->c->din.given[K])
    tensor_store(s->c, s->c->din.view + K, item * s->t * s->d, s->t * s->d, w.dk);
  smx_scratch_give(&s->scratch, memory);
}

static smx_status run(const tensor_call *c, bool backward) {
  additive s = {.c = c, .math = smx_isa_current()->f64.score, .backward = backward};
  additive_work none;
  carver size = {.fits = true};
  s.l = tensor_dim(c, "l"), s.t = tensor_dim(c, "t"), s.d = tensor_dim(c, "d");
  lay_out(&s, &size, &none);
  if (!size.fits || !smx_scratch_open(&s.scratch, c->ctx, 0, (size_t)size.at + 64, c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld keys", c->op->name, (long long)s.t);
  smx_parallel(c->ctx, c->dims.lead_count, task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
smx_status additive_scores_forward(const tensor_call *c) { return run(c, false); }
smx_status additive_scores_backward(const tensor_call *c) {
  return c->dout.given[OUT] ? run(c, true) : SMX_OK;
}
