/* linear_attention/functions_mesa.c - mesa_attention: the least squares of the values by the keys
 * so far, applied to a query. In double:
 *
 *   H_t = a_t H_(t-1) + b_t k_t k_t^T,  C_t = a_t C_(t-1) + b_t k_t v_t^T
 *   M_t = H_t + diag(ridge),  x_t = M_t^-1 q_t,  o_t = C_t^T x_t
 *
 * Gradients, with g = do and y_t = M_t^-1 C_t g_t: dq = y, dridge = -sum x y, and from the last
 * token to the first
 *
 *   dC += x g^T,  dH -= (x y^T + y x^T) / 2,  dv = b dC^T k,  dk = b (2 dH k + dC v),
 *   db = k^T dH k + k^T dC v,  d log a = <dH, a H before> + <dC, a C before>
 *
 * The last needs no states: with G_t = <dH_t, H_t> + <dC_t, C_t> it is G_t - b db, and G_(t-1) is
 * that and what token t - 1 adds, o g - y^T H x = o g - y q + y^T ridge x. */
#include <string.h>

#include "functions.h"

enum { Q, K, V, RIDGE, LOG_A, BETA, PAST_H, PAST_C }; /* inputs */
enum { Y, STATE_H, STATE_C };                         /* outputs */

typedef struct mesa {
  const tensor_call *c;
  int64_t tokens, d, e;
  smx_scratch scratch;
  double *dridge; /* [items][d] */
} mesa;

/* What a task works in. */
typedef struct mesa_work {
  double *ridge, *h, *c, *m, *dh, *dc; /* [d], [d][d], [d][e], [d][d], [d][d], [d][e] */
  double *q, *k, *v, *o, *g;           /* of a token; o and g as v */
  double *x, *y, *added, *stored;      /* of all tokens, for the way back; added: to G; a row */
  double a, b;
} mesa_work;

static int64_t work_of(const mesa *s, bool backward, double *memory, mesa_work *w) {
  const int64_t d = s->d, e = s->e, kept = backward ? s->tokens : 1;
  const int64_t sizes[] = {d, d * d, d * e,    d * d,    d * d, d * e,        d, d, e,
                           e, e,     kept * d, kept * d, kept,  d > e ? d : e};
  double **const pieces[] = {&w->ridge, &w->h, &w->c, &w->m, &w->dh, &w->dc,    &w->q,     &w->k,
                             &w->v,     &w->o, &w->g, &w->x, &w->y,  &w->added, &w->stored};
  int64_t count = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    if (memory) *pieces[i] = memory + count;
    count += sizes[i];
  }
  return count;
}

/* ---- one system: M = L D L^T, in place, and M x = r ---- */

static void factor(double *m, int64_t n) {
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = j; i < n; i++) {
      double sum = m[i * n + j];
      for (int64_t k = 0; k < j; k++) sum -= m[i * n + k] * m[j * n + k] * m[k * n + k];
      m[i * n + j] = i == j ? sum : sum / m[j * n + j];
    }
}
static void solve(const double *m, int64_t n, double *x) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t k = 0; k < i; k++) x[i] -= m[i * n + k] * x[k];
  for (int64_t i = 0; i < n; i++) x[i] /= m[i * n + i];
  for (int64_t i = n - 1; i >= 0; i--)
    for (int64_t k = i + 1; k < n; k++) x[i] -= m[k * n + i] * x[k];
}

/* ---- states ---- */

static double number(const tensor_call *c, const smx_view *v, bool given, int64_t at, double otherwise) {
  double value = otherwise;
  if (given) tensor_load(c, v, at, 1, &value);
  return value;
}

/* H and C of an item before its first token, or what comes in for those after its last. H counts by
 * its symmetric part. */
static void load_states(const mesa *s, const tensor_ports *from, int port, int64_t item, double *h,
                        double *c) {
  const int64_t d = s->d, e = s->e;
  memset(h, 0, (size_t)(d * d) * sizeof *h), memset(c, 0, (size_t)(d * e) * sizeof *c);
  if (from->given[port]) tensor_load(s->c, from->view + port, item * d * d, d * d, h);
  if (from->given[port + 1]) tensor_load(s->c, from->view + port + 1, item * d * e, d * e, c);
  for (int64_t i = 0; i < d; i++)
    for (int64_t j = 0; j < i; j++) h[i * d + j] = h[j * d + i] = h[i * d + j] / 2 + h[j * d + i] / 2;
}
static void store_states(const mesa *s, const tensor_ports *to, int port, int64_t item, const double *h,
                         const double *c) {
  const int64_t d = s->d, e = s->e;
  if (to->given[port]) tensor_store(s->c, to->view + port, item * d * d, d * d, h);
  if (to->given[port + 1]) tensor_store(s->c, to->view + port + 1, item * d * e, d * e, c);
}

static void load_token(const mesa *s, int64_t row, mesa_work *w) {
  const tensor_ports *in = &s->c->in;
  const double decay = number(s->c, in->view + LOG_A, in->given[LOG_A], row, 0);
  tensor_load(s->c, in->view + Q, row * s->d, s->d, w->q),
      tensor_load(s->c, in->view + K, row * s->d, s->d, w->k);
  tensor_load(s->c, in->view + V, row * s->e, s->e, w->v);
  w->a = decay == 0 ? 1 : state_math()->exp(decay);
  w->b = number(s->c, in->view + BETA, in->given[BETA], row, 1);
}

/* A row as it would be stored: so a state that is handed over is the state itself. */
static void round_row(const mesa *s, double *row, int64_t n, const mesa_work *w) {
  smx_reals_store(s->c->is_f64, row, n, w->stored);
  smx_reals_load(s->c->is_f64, w->stored, n, row);
}

/* The states with the token, and M as its factors. */
static void add_token(const mesa *s, mesa_work *w) {
  const int64_t d = s->d, e = s->e;
  for (int64_t i = 0; i < d; i++) {
    for (int64_t j = 0; j < d; j++) w->h[i * d + j] = w->a * w->h[i * d + j] + w->b * (w->k[i] * w->k[j]);
    for (int64_t j = 0; j < e; j++) w->c[i * e + j] = w->a * w->c[i * e + j] + w->b * w->k[i] * w->v[j];
    round_row(s, w->h + i * d, d, w), round_row(s, w->c + i * e, e, w);
  }
  memcpy(w->m, w->h, (size_t)(d * d) * sizeof *w->m);
  for (int64_t i = 0; i < d; i++) w->m[i * d + i] += w->ridge[i];
  factor(w->m, d);
}

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* o = C^T x */
static void answer(const mesa *s, const mesa_work *w, const double *x) {
  memset(w->o, 0, (size_t)s->e * sizeof *w->o);
  for (int64_t i = 0; i < s->d; i++)
    for (int64_t j = 0; j < s->e; j++) w->o[j] += x[i] * w->c[i * s->e + j];
}

static void forward_task(void *arg, int64_t item) {
  mesa *s = arg;
  double *memory = smx_scratch_take(&s->scratch);
  mesa_work w;
  work_of(s, false, memory, &w);
  tensor_load(s->c, s->c->in.view + RIDGE, 0, s->d, w.ridge);
  load_states(s, &s->c->in, PAST_H, item, w.h, w.c);
  for (int64_t row = item * s->tokens; row < (item + 1) * s->tokens; row++) {
    load_token(s, row, &w);
    add_token(s, &w);
    memcpy(w.x, w.q, (size_t)s->d * sizeof *w.x);
    solve(w.m, s->d, w.x);
    answer(s, &w, w.x);
    tensor_store(s->c, s->c->out.view + Y, row * s->e, s->e, w.o);
  }
  store_states(s, &s->c->out, STATE_H, item, w.h, w.c);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- backward ---- */

static void load_upstream(const mesa *s, int64_t row, mesa_work *w) {
  memset(w->g, 0, (size_t)s->e * sizeof *w->g);
  if (s->c->dout.given[Y]) tensor_load(s->c, s->c->dout.view + Y, row * s->e, s->e, w->g);
}

/* x, y and what is added to G of every token; dq and dridge. The states become the last ones. */
static void solve_all(const mesa *s, int64_t item, mesa_work *w) {
  const int64_t d = s->d, e = s->e;
  double *dridge = s->dridge + item * d;
  for (int64_t t = 0; t < s->tokens; t++) {
    const int64_t row = item * s->tokens + t;
    double *x = w->x + t * d, *y = w->y + t * d;
    load_token(s, row, w), load_upstream(s, row, w);
    add_token(s, w);
    for (int64_t i = 0; i < d; i++) x[i] = w->q[i], y[i] = dot(w->c + i * e, w->g, e);
    solve(w->m, d, x), solve(w->m, d, y);
    answer(s, w, x);
    w->added[t] = dot(w->o, w->g, e) - dot(y, w->q, d);
    for (int64_t i = 0; i < d; i++) w->added[t] += y[i] * w->ridge[i] * x[i], dridge[i] -= x[i] * y[i];
    if (s->c->din.given[Q]) tensor_store(s->c, s->c->din.view + Q, row * d, d, y);
  }
}

/* dk, dv, db of a token with dH and dC; returns db. w->q and w->o are dk and dv. */
static double leave_token(const mesa *s, mesa_work *w) {
  const int64_t d = s->d, e = s->e;
  double db = 0;
  memset(w->o, 0, (size_t)e * sizeof *w->o);
  for (int64_t i = 0; i < d; i++) {
    const double along = dot(w->dh + i * d, w->k, d), value = dot(w->dc + i * e, w->v, e);
    w->q[i] = w->b * (2 * along + value), db += w->k[i] * (along + value);
    for (int64_t j = 0; j < e; j++) w->o[j] += w->b * w->k[i] * w->dc[i * e + j];
  }
  return db;
}

static void write_token(const mesa *s, int64_t row, const mesa_work *w, double db, double dlog) {
  const tensor_ports *din = &s->c->din;
  if (din->given[K]) tensor_store(s->c, din->view + K, row * s->d, s->d, w->q);
  if (din->given[V]) tensor_store(s->c, din->view + V, row * s->e, s->e, w->o);
  if (din->given[BETA]) tensor_store(s->c, din->view + BETA, row, 1, &db);
  if (din->given[LOG_A]) tensor_store(s->c, din->view + LOG_A, row, 1, &dlog);
}

static void backward_task(void *arg, int64_t item) {
  mesa *s = arg;
  const int64_t d = s->d, e = s->e;
  double *memory = smx_scratch_take(&s->scratch), all;
  mesa_work w;
  work_of(s, true, memory, &w);
  tensor_load(s->c, s->c->in.view + RIDGE, 0, d, w.ridge);
  load_states(s, &s->c->in, PAST_H, item, w.h, w.c);
  solve_all(s, item, &w);
  load_states(s, &s->c->dout, STATE_H, item, w.dh, w.dc);
  all = dot(w.dh, w.h, d * d) + dot(w.dc, w.c, d * e);
  for (int64_t t = s->tokens - 1; t >= 0; t--) {
    const int64_t row = item * s->tokens + t;
    const double *x = w.x + t * d, *y = w.y + t * d;
    load_token(s, row, &w), load_upstream(s, row, &w);
    for (int64_t i = 0; i < d; i++) {
      for (int64_t j = 0; j < d; j++) w.dh[i * d + j] -= (x[i] * y[j] + y[i] * x[j]) / 2;
      for (int64_t j = 0; j < e; j++) w.dc[i * e + j] += x[i] * w.g[j];
    }
    const double db = leave_token(s, &w), dlog = all + w.added[t] - w.b * db;
    write_token(s, row, &w, db, dlog);
    all = dlog;
    for (int64_t i = 0; i < d * d; i++) w.dh[i] *= w.a;
    for (int64_t i = 0; i < d * e; i++) w.dc[i] *= w.a;
  }
  store_states(s, &s->c->din, PAST_H, item, w.dh, w.dc);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

static smx_status open(mesa *s, const tensor_call *c, bool backward) {
  *s = (mesa){.c = c, .tokens = tensor_dim(c, "t"), .d = tensor_dim(c, "d"), .e = tensor_dim(c, "e")};
  mesa_work none;
  const int64_t items = c->dims.lead_count, shared = backward ? items * s->d : 0;
  if (!smx_scratch_open(&s->scratch, c->ctx, (size_t)shared * sizeof(double) + 8,
                        (size_t)work_of(s, backward, NULL, &none) * sizeof(double) + 8, items))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for states of %lld x %lld", c->op->name, (long long)s->d,
                    (long long)s->d);
  s->dridge = (double *)(void *)s->scratch.shared;
  memset(s->dridge, 0, (size_t)shared * sizeof *s->dridge);
  return SMX_OK;
}

smx_status mesa_forward(const tensor_call *c) {
  mesa s;
  const smx_status status = open(&s, c, false);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, c->dims.lead_count, forward_task, &s);
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}

smx_status mesa_backward(const tensor_call *c) {
  mesa s;
  const smx_status status = open(&s, c, true);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, c->dims.lead_count, backward_task, &s);
  for (int64_t i = 0; i < s.d && c->din.given[RIDGE]; i++) {
    double sum = 0;
    for (int64_t item = 0; item < c->dims.lead_count; item++) sum += s.dridge[item * s.d + i];
    tensor_store(c, c->din.view + RIDGE, i, 1, &sum);
  }
  smx_scratch_close(&s.scratch);
  return SMX_OK;
}
