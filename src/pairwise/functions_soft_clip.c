/* pairwise/functions_soft_clip.c - a loss of both directions whose targets come from how alike the
 * rows of either side are among themselves. With p = softmax(l_i), q = softmax(r_i) of the guide,
 * and p', q' the same without the pair of the row with itself,
 *
 *     loss_i = KL((1 - beta) e_i + beta q || p) + lambda KL(q' || p'),
 *
 * half of it from each direction. The second direction is a call with both sides exchanged. */
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()
enum { GUIDE_A = IN_OWN, GUIDE_B };

static void twin_roles(const pair_call *p, int64_t i, unsigned char *role) {
  pair_negatives(p, i, role);
  role[i] = PAIR_POSITIVE;
}

/* One divergence over the pairs of `set`, of which `own` has the share that beta leaves; what it
 * gives is added to g. */
static double divergence(pair_call *p, pair_row *r, unsigned set, double beta, double factor) {
  double loss = 0;
  pair_keep(p, r->guide, r->role, set, r->y), pair_keep(p, r->l, r->role, set, r->x);
  const double top = pair_lse(p, r->y, p->m), lse = pair_lse(p, r->x, p->m);
  if (lse == -INF || top == -INF) return 0;
  smx_reals_load(p->c->is_f64, r->y, p->m, r->v);
  for (int64_t j = 0; j < p->m; j++) {
    r->v[j] = beta * p->math->exp(r->v[j] - top) + (r->role[j] == PAIR_POSITIVE ? 1 - beta : 0);
    if (r->v[j] != 0) loss += r->v[j] * (p->math->log(r->v[j]) + (lse - pair_at(p, r->x, j)));
  }
  if (!r->g) return loss;
  pair_softmax(p, r->x, p->m, lse, factor, r->y);
  for (int64_t j = 0; j < p->m; j++)
    if (set >> r->role[j] & 1)
      pair_set(p, r->g, j, pair_at(p, r->g, j) + (pair_at(p, r->y, j) - factor * r->v[j]));
  return loss;
}

static double soft_clip_row(pair_call *p, pair_row *r) {
  const double lambda = tensor_param(p->c, "negatives");
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  const double all = divergence(p, r, NEGATIVES | POSITIVES, tensor_param(p->c, "beta"), r->up / 2);
  return (all + (lambda != 0 ? lambda * divergence(p, r, NEGATIVES, 1, lambda * r->up / 2) : 0)) / 2;
}

static const pair_rule rule = {.roles = twin_roles, .row = soft_clip_row, .square = true, .guide = true};

/* ---- both directions ---- */

typedef struct two_calls {
  tensor_call other;
  pair_call one, two;
  char *memory;
} two_calls;

static void turn(const tensor_call *c, int64_t n, int64_t bytes, const char *x, char *to) {
  for (int64_t i = 0; i < n * n; i++) memcpy(to + (i % n * n + i / n) * bytes, x + i * bytes, (size_t)bytes);
}

/* What the second call writes, or reads turned: number `which` of five pieces. */
static size_t pieces_of(const tensor_call *c, char *memory, char **piece) {
  const bool s = pair_choice(c, "similarities");
  const size_t real = c->is_f64 ? 8 : 4, n = (size_t)tensor_dim(c, "n"), d = (size_t)tensor_dim(c, "d");
  const size_t bytes[5] = {n * real, c->din.given[IN_B] || s ? n * d * real : 0,
                           c->din.given[IN_A] ? n * d * real : 0, s ? n * d * real : 0,
                           c->in.given[IN_MASK] ? n * n : 0};
  size_t at = 64; /* before them: the gradient of the temperature */
  for (int k = 0; k < 5; k++) {
    if (memory) piece[k] = memory + at;
    at += smx_whole_lines(bytes[k]);
  }
  return at;
}

static void swap_ports(tensor_ports *of, int a, int b) {
  const smx_view view = of->view[a];
  const smx_tensor *const given = of->given[a];
  of->view[a] = of->view[b], of->given[a] = of->given[b];
  of->view[b] = view, of->given[b] = given;
}

static void exchange(two_calls *t, const tensor_call *c) {
  char *piece[5];
  const bool s = pair_choice(c, "similarities");
  const int64_t n = tensor_dim(c, "n"), real = c->is_f64 ? 8 : 4;
  tensor_call *o = &t->other;
  pieces_of(c, t->memory, piece);
  *o = *c;
  swap_ports(&o->in, GUIDE_A, GUIDE_B);
  if (!s) swap_ports(&o->in, IN_A, IN_B), swap_ports(&o->din, IN_A, IN_B);
  else turn(c, n, real, c->in.view[IN_A].data, piece[3]), o->in.view[IN_A].data = piece[3];
  if (c->in.given[IN_MASK])
    turn(c, n, 1, c->in.view[IN_MASK].data, piece[4]), o->in.view[IN_MASK].data = piece[4];
  o->out.view[OUT_LOSS].data = piece[0];
  o->din.view[IN_A].data = piece[1], o->din.view[IN_B].data = piece[2];
  o->din.view[IN_TEMPERATURE].data = t->memory;
}

/* Adds what the second call made. */
static void join(const two_calls *t, const tensor_call *c, bool backward) {
  const bool s = pair_choice(c, "similarities");
  const int64_t n = tensor_dim(c, "n"), d = tensor_dim(c, "d"), real = c->is_f64 ? 8 : 4;
  const tensor_call *o = &t->other;
  if (!backward) pair_join(c->is_f64, o->out.view[OUT_LOSS].data, n, c->out.view[OUT_LOSS].data);
  if (!backward) return;
  if (s && c->din.given[IN_A]) {
    turn(c, n, real, o->din.view[IN_A].data, o->in.view[IN_A].data);
    pair_join(c->is_f64, o->in.view[IN_A].data, n * n, c->din.view[IN_A].data);
  }
  if (!s && c->din.given[IN_A]) pair_join(c->is_f64, o->din.view[IN_B].data, n * d, c->din.view[IN_A].data);
  if (!s && c->din.given[IN_B]) pair_join(c->is_f64, o->din.view[IN_A].data, n * d, c->din.view[IN_B].data);
  if (c->din.given[IN_TEMPERATURE]) pair_join(c->is_f64, t->memory, 1, c->din.view[IN_TEMPERATURE].data);
}

static smx_status soft_clip(const tensor_call *c, bool backward) {
  for (int port = GUIDE_A; port <= GUIDE_B; port++)
    if (!c->in.given[port])
      return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", c->op->name, c->op->inputs[port].name);
  for (int port = GUIDE_A; port <= GUIDE_B && pair_choice(c, "similarities"); port++)
    if (c->in.view[port].shape[1] != tensor_dim(c, "n"))
      return smx_fail(SMX_ERR_SHAPE, "%s: %s is %lld x %lld, but similarities are a square", c->op->name,
                      c->op->inputs[port].name, (long long)tensor_dim(c, "n"),
                      (long long)c->in.view[port].shape[1]);
  SMX_OWN(two_calls, t, c->ctx);
  if (t) t->memory = smx_alloc(c->ctx, pieces_of(c, NULL, NULL));
  if (!t || !t->memory) return pair_no_memory(c);
  smx_status status = pair_open(&t->one, c, &rule, backward);
  if (status == SMX_OK) {
    exchange(t, c);
    status = pair_open(&t->two, &t->other, &rule, backward);
    if (status == SMX_OK) {
      pair_go(&t->one), pair_go(&t->two), join(t, c, backward);
      status = pair_close(&t->two);
    }
    const smx_status first = pair_close(&t->one);
    if (status == SMX_OK) status = first;
  }
  smx_free(c->ctx, t->memory);
  return status;
}
smx_status soft_clip_forward(const tensor_call *c) { return soft_clip(c, false); }
smx_status soft_clip_backward(const tensor_call *c) { return soft_clip(c, true); }
