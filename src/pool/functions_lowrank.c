/* pool/functions_lowrank.c - lowrank_bilinear: a bilinear form of low rank, y_o = sum_r u_ro v_ro
 * with u = A x + a, v = B z + b. Rank 1: Hadamard Product for Low-rank Bilinear Pooling (Kim et
 * al. 2017, MLB); MUTAN (Ben-younes et al. 2017); with the ranks of an output side by side, MFB (Yu
 * et al. 2017).
 *
 * Gradient: du_ro = dy_o v_ro, dx = A' du, dA = sum du x' over rows in their order, da = sum du,
 * and the same for z. */
#include "functions_cluster.h"

enum { WEIGHT = 2, BIAS = 4 }; /* inputs of x; those of z are next to them */

typedef struct side {
  int64_t n;         /* elements of a vector */
  double *x, *a, *u; /* [rows, n], [factors, n], [rows, factors] */
} side;

typedef struct lowrank {
  const tensor_call *c;
  int64_t rows, outputs, factors; /* factors: outputs times ranks */
  side of[2];
} lowrank;

/* u of a row, each sum in the order of its elements. */
static void project(const lowrank *l, int w, int64_t row) {
  const side *s = l->of + w;
  for (int64_t o = 0; o < l->factors; o++) {
    double sum = 0, bias = 0;
    for (int64_t i = 0; i < s->n; i++) sum += s->a[o * s->n + i] * s->x[row * s->n + i];
    if (l->c->in.given[BIAS + w]) tensor_load(l->c, l->c->in.view + BIAS + w, o, 1, &bias);
    s->u[row * l->factors + o] = sum + bias;
  }
}

static void forward_task(void *arg, int64_t row) {
  const lowrank *l = arg;
  project(l, 0, row), project(l, 1, row);
  const double *u = l->of[0].u + row * l->factors, *v = l->of[1].u + row * l->factors;
  for (int64_t o = 0; o < l->outputs; o++) {
    double sum = 0;
    for (int64_t f = o; f < l->factors; f += l->outputs) sum += u[f] * v[f];
    tensor_put(l->c, 0, row * l->outputs + o, sum);
  }
}

/* u and v become their gradients, and give those of x and z. */
static void backward_task(void *arg, int64_t row) {
  const lowrank *l = arg;
  project(l, 0, row), project(l, 1, row);
  double *u = l->of[0].u + row * l->factors, *v = l->of[1].u + row * l->factors;
  for (int64_t f = 0; f < l->factors; f++) {
    const double g = tensor_upstream(l->c, 0, row * l->outputs + f % l->outputs), du = g * v[f];
    v[f] = g * u[f], u[f] = du;
  }
  for (int w = 0; w < 2; w++) {
    const side *s = l->of + w;
    for (int64_t i = 0; i < s->n && l->c->din.given[w]; i++) {
      double sum = 0;
      for (int64_t f = 0; f < l->factors; f++) sum += s->u[row * l->factors + f] * s->a[f * s->n + i];
      tensor_store(l->c, l->c->din.view + w, row * s->n + i, 1, &sum);
    }
  }
}

/* The weights of a factor: a row of A becomes its gradient. */
static void factor_task(void *arg, int64_t f) {
  const lowrank *l = arg;
  for (int w = 0; w < 2; w++) {
    const side *s = l->of + w;
    double *to = s->a + f * s->n, bias = 0;
    for (int64_t i = 0; i < s->n; i++) to[i] = 0;
    for (int64_t row = 0; row < l->rows; row++) {
      const double du = s->u[row * l->factors + f];
      for (int64_t i = 0; i < s->n; i++) to[i] += du * s->x[row * s->n + i];
      bias += du;
    }
    if (l->c->din.given[WEIGHT + w]) tensor_store(l->c, l->c->din.view + WEIGHT + w, f * s->n, s->n, to);
    if (l->c->din.given[BIAS + w]) tensor_store(l->c, l->c->din.view + BIAS + w, f, 1, &bias);
  }
}

static void divide(lowrank *l, carver *c) {
  for (int w = 0; w < 2; w++) {
    side *s = l->of + w;
    s->x = carve(c, l->rows, s->n, 8), s->a = carve(c, l->factors, s->n, 8);
    s->u = carve(c, l->rows, l->factors, 8);
  }
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t row), bool backward) {
  lowrank l = {.c = c, .rows = c->dims.lead_count, .outputs = tensor_dim(c, "m")};
  carver memory = {.fits = true};
  memory.fits = smx_multiply(tensor_dim(c, "r"), l.outputs, &l.factors);
  l.of[0].n = tensor_dim(c, "a"), l.of[1].n = tensor_dim(c, "b");
  divide(&l, &memory);
  memory.base = memory.fits ? smx_alloc(c->ctx, (size_t)memory.at + 64) : NULL;
  if (!memory.base)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld factors", c->op->name, (long long)l.factors);
  memory.at = 0;
  divide(&l, &memory);
  for (int w = 0; w < 2; w++) {
    tensor_load(c, c->in.view + w, 0, l.rows * l.of[w].n, l.of[w].x);
    tensor_load(c, c->in.view + WEIGHT + w, 0, l.factors * l.of[w].n, l.of[w].a);
  }
  smx_parallel(c->ctx, l.rows, task, &l);
  if (backward) smx_parallel(c->ctx, l.factors, factor_task, &l);
  smx_free(c->ctx, memory.base);
  return SMX_OK;
}

smx_status pool_lowrank(const tensor_call *c) { return run(c, forward_task, false); }
smx_status pool_lowrank_backward(const tensor_call *c) { return run(c, backward_task, true); }
