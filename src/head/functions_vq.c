/* head/functions_vq.c - vq_logits_head: tokens that share a logit with all of their code (VQ-Logits
 * 2025). With l = h code^T, the code m(v) of token v and n_k = sum_(m(v) = k) e^bias_v,
 *
 *   loss = lse_k(l_k + log n_k) - l_m(y) - bias_y
 *        = cross_entropy(l + log n, m(y)) + (log n_m(y) - bias_y)
 *
 * a linear layer with log n as its bias, whose gradient B gives, with q_v = e^(bias_v - log
 * n_m(v)),
 *
 *   dbias_v = q_v (B_m(v) + sum of g over rows whose y has the code m(v)) - sum of g where y = v */
#include <string.h>

#include "driver/carve.h"
#include "functions.h"

enum { H, CODE, MAP, TARGET, BIAS }; /* inputs */

typedef struct vq {
  const tensor_call *c;
  int64_t n, tokens, codes, ignore;
  const int64_t *map, *target;
  int64_t *place;              /* the code of each row's target, or -1 */
  double *log_n, *most, *mass; /* of each code */
  char *bias, *dbias, *loss;   /* real: log n and its gradient; losses of the layer */
} vq;

static double bias_of(const vq *x, int64_t token) {
  double b = 0;
  if (x->c->in.given[BIAS]) tensor_load(x->c, x->c->in.view + BIAS, token, 1, &b);
  return b;
}

/* log n from the largest bias of each code, tokens in order. */
static void count(const vq *x) {
  for (int64_t k = 0; k < x->codes; k++) x->most[k] = -__builtin_inf(), x->mass[k] = 0;
  for (int64_t v = 0; v < x->tokens; v++) {
    const double b = bias_of(x, v);
    double *const most = x->most + x->map[v];
    if (b > *most || b != b) *most = b;
  }
  for (int64_t v = 0; v < x->tokens; v++) {
    const double b = bias_of(x, v), most = x->most[x->map[v]];
    if (b > -__builtin_inf() || b != b) x->mass[x->map[v]] += head_math()->exp(b - most);
  }
  for (int64_t k = 0; k < x->codes; k++)
    x->log_n[k] = x->mass[k] == 0 ? -__builtin_inf() : x->most[k] + head_math()->log(x->mass[k]);
  for (int64_t i = 0; i < x->n; i++) x->place[i] = x->target[i] == x->ignore ? -1 : x->map[x->target[i]];
  smx_reals_store(x->c->is_f64, x->log_n, x->codes, x->bias);
}

static void divide(vq *x, carver *m) {
  const int64_t bytes = x->c->is_f64 ? 8 : 4;
  x->place = carve(m, x->n, 1, sizeof *x->place);
  x->log_n = carve(m, x->codes, 1, sizeof *x->log_n), x->most = carve(m, x->codes, 1, sizeof *x->most);
  x->mass = carve(m, x->codes, 1, sizeof *x->mass), x->loss = carve(m, x->n, 1, bytes);
  x->bias = carve(m, x->codes, 1, bytes), x->dbias = carve(m, x->codes, 1, bytes);
}

/* NULL: no memory. */
static char *open_vq(vq *x, const tensor_call *c) {
  carver m = {.fits = true};
  *x = (vq){.c = c, .n = tensor_dim(c, "n"), .tokens = tensor_dim(c, "c"), .codes = tensor_dim(c, "k")};
  x->ignore = (int64_t)tensor_param(c, "ignore_index");
  x->map = (const int64_t *)(const void *)c->in.view[MAP].data;
  x->target = (const int64_t *)(const void *)c->in.view[TARGET].data;
  divide(x, &m);
  char *const memory = m.fits ? smx_alloc(c->ctx, (size_t)m.at + 1) : NULL;
  m = (carver){.base = memory, .fits = true};
  if (memory) divide(x, &m), count(x);
  else
    (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld codes and %lld rows", c->op->name,
                   (long long)x->codes, (long long)x->n);
  return memory;
}

/* Minus the logarithm of a share of a code: inf without one, even where the code has no mass. */
static double share_loss(const vq *x, int64_t code, int64_t token) {
  const double bias = bias_of(x, token);
  return bias == -__builtin_inf() ? __builtin_inf() : x->log_n[code] - bias;
}

static void put_losses(const vq *x) {
  for (int64_t i = 0; i < x->n; i++) {
    double loss;
    smx_reals_load(x->c->is_f64, x->loss + i * (x->c->is_f64 ? 8 : 4), 1, &loss);
    if (x->place[i] >= 0) loss += share_loss(x, x->place[i], x->target[i]);
    tensor_store(x->c, x->c->out.view, i, 1, &loss);
  }
}

/* most becomes the sums of g over the rows of a code. */
static void put_bias(const vq *x, double *own) {
  const smx_view *const to = x->c->din.view + BIAS;
  memset(own, 0, sizeof *own * (size_t)x->tokens), memset(x->most, 0, sizeof *x->most * (size_t)x->codes);
  for (int64_t i = 0; i < x->n; i++) {
    if (x->place[i] < 0) continue;
    own[x->target[i]] += tensor_upstream(x->c, 0, i), x->most[x->place[i]] += tensor_upstream(x->c, 0, i);
  }
  for (int64_t v = 0; v < x->tokens; v++) {
    double layer;
    const int64_t k = x->map[v];
    smx_reals_load(x->c->is_f64, x->dbias + k * (x->c->is_f64 ? 8 : 4), 1, &layer);
    const double b = bias_of(x, v), q = b == -__builtin_inf() ? 0 : head_math()->exp(b - x->log_n[k]);
    own[v] = (q == 0 ? 0 : q * (layer + x->most[k])) - own[v];
  }
  tensor_store(x->c, to, 0, x->tokens, own);
}

static smx_status run(vq *x, bool backward) {
  const tensor_call *const c = x->c;
  const smx_op *const op = smx_op_find("cross_entropy");
  const smx_dtype real = c->is_f64 ? SMX_F64 : SMX_F32;
  const smx_view *const h = c->in.view + H, *const w = c->in.view + CODE;
  int64_t hs[] = {h->shape[0], h->shape[1]}, ws[] = {w->shape[0], w->shape[1]};
  const smx_tensor th = smx_tensor_of(h->data, real, 2, hs, NULL),
                   tw = smx_tensor_of(w->data, real, 2, ws, NULL),
                   tb = smx_tensor_of(x->bias, real, 1, ws, NULL),
                   target = smx_tensor_of(x->place, SMX_I64, 1, hs, NULL),
                   loss = smx_tensor_of(backward ? c->dout.view[0].data : x->loss, real, 1, hs, NULL),
                   dh = smx_tensor_of(c->din.view[H].data, real, 2, hs, NULL),
                   dw = smx_tensor_of(c->din.view[CODE].data, real, 2, ws, NULL),
                   db = smx_tensor_of(x->dbias, real, 1, ws, NULL);
  const smx_tensor *const in[] = {NULL, &target}, *const out[] = {&loss};
  smx_linear layer = {.size = sizeof layer, .h = &th, .w = &tw, .bias = &tb};
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "ignore_index", -1);
  if (!backward) return smx_linear_forward(op, c->ctx, &params, &layer, 2, in, 1, out);
  if (c->din.given[H]) layer.dh = &dh;
  if (c->din.given[CODE]) layer.dw = &dw;
  if (c->din.given[BIAS]) layer.dbias = &db;
  return smx_linear_backward(op, c->ctx, &params, &layer, 2, in, 1, NULL, out, NULL);
}

smx_status vq_forward(const tensor_call *c) {
  vq x;
  char *const memory = open_vq(&x, c);
  if (!memory) return SMX_ERR_NOMEM;
  const smx_status status = run(&x, false);
  if (status == SMX_OK) put_losses(&x);
  smx_free(c->ctx, memory);
  return status;
}

smx_status vq_backward(const tensor_call *c) {
  vq x;
  const bool bias = c->din.given[BIAS];
  if (!c->din.given[H] && !c->din.given[CODE] && !bias) return SMX_OK;
  char *const memory = open_vq(&x, c);
  if (!memory) return SMX_ERR_NOMEM;
  double *const own = smx_alloc(c->ctx, sizeof *own * (size_t)(bias ? x.tokens + 1 : 1));
  smx_status status =
      own ? SMX_OK
          : smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)x.tokens);
  if (own) status = run(&x, true);
  if (status == SMX_OK && bias) put_bias(&x, own);
  smx_free(c->ctx, own);
  smx_free(c->ctx, memory);
  return status;
}
