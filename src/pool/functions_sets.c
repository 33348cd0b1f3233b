/* pool/functions_sets.c - see functions_sets.h. */
#include <string.h>

#include "functions_sets.h"

int pool_input(const smx_op *op, const char *name) {
  for (int i = 0; i < op->input_count; i++)
    if (!strcmp(op->inputs[i].name, name)) return i;
  return -1;
}

static const void *data_of(const tensor_call *c, const char *name) {
  const int i = pool_input(c->op, name);
  return i >= 0 && c->in.given[i] ? c->in.view[i].data : NULL;
}

pool_sets pool_sets_of(const tensor_call *c) {
  pool_sets s = {.c = c, .math = smx_isa_current()->f64.score, .leads = c->dims.lead_count, .sets = 1};
  s.n = tensor_dim(c, "n"), s.channels = tensor_dim(c, "c");
  s.mask = data_of(c, "mask"), s.offsets = data_of(c, "offsets");
  if (s.offsets) s.sets = tensor_dim(c, "s");
  return s;
}

pool_set pool_set_at(const pool_sets *s, int64_t number) {
  const int64_t set = number % s->sets;
  pool_set q = {.number = number, .lead = number / s->sets, .end = s->n};
  if (s->offsets) q.first = s->offsets[set], q.end = s->offsets[set + 1];
  for (int64_t i = q.first; i < q.end; i++) q.count += pool_set_has(s, &q, i);
  return q;
}

double pool_empty_value(const tensor_call *c) {
  return smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN ? __builtin_nan("") : 0;
}

smx_status pool_check_empty(const pool_sets *s) {
  if (smx_context_on_empty(s->c->ctx) != SMX_EMPTY_ERROR) return SMX_OK;
  for (int64_t k = 0; k < s->leads * s->sets; k++)
    if (pool_set_at(s, k).count == 0)
      return smx_fail(SMX_ERR_EMPTY, "%s: set %lld has nothing in it", s->c->op->name, (long long)k);
  return SMX_OK;
}

/* One set, unless offsets say how many. */
smx_status pool_set_sizes(dims *d) {
  if (dims_value(d, "s", 0) < 0) dims_set(d, "s", 0, 1);
  const int64_t groups = dims_value(d, "g", 0), channels = dims_value(d, "c", 0);
  if (groups == 0 || (groups > 0 && channels % groups != 0))
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: %lld channels are not %lld groups of one size", d->op->name,
                    d->op->inputs[3].name, (long long)channels, (long long)groups);
  return SMX_OK;
}

double *pool_reserve(const tensor_call *c, int64_t count) {
  int64_t bytes;
  double *room =
      smx_multiply(count, 8, &bytes) && bytes < INT64_MAX - 8 ? smx_alloc(c->ctx, (size_t)bytes + 8) : NULL;
  if (!room) (void)smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld numbers", c->op->name, (long long)count);
  return room;
}

/* What rounding takes from 1 + x goes out again in x / (u - 1). */
double pool_log1p(const score_kernels *math, double x) {
  const double u = 1 + x;
  return u == 1 || x - x != 0 ? x : math->log(u) * (x / (u - 1));
}

double pool_power_of(double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  const uint64_t e = bits >> 52 & 2047;
  if (v == 0 || e == 2047) return 1;
  bits = (e < 1 ? 2045 : e < 2046 ? 2046 - e : 1) << 52;
  memcpy(&v, &bits, sizeof v);
  return v;
}

double pool_tame(double *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    const double size = x[i] < 0 ? -x[i] : x[i];
    most = size > most ? size : most;
  }
  if (most < 0x1p450) return 1;
  const double by = pool_power_of(most);
  for (int64_t i = 0; i < n; i++) x[i] *= by;
  return by;
}

bool pool_softmax(const tensor_call *c, int64_t n, double *a) {
  const double inf = __builtin_inf();
  double top = -inf, sum = 0;
  for (int64_t i = 0; i < n; i++)
    if (a[i] > top || a[i] != a[i]) top = a[i];
  const bool shared = top == inf && smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  for (int64_t i = 0; i < n && top != -inf; i++) a[i] = shared ? (a[i] == top ? 0 : -inf) : a[i] - top;
  smx_isa_current()->f64.score->run->exp(a, n, a);
  for (int64_t i = 0; i < n; i++) sum += a[i];
  for (int64_t i = 0; i < n; i++) a[i] = a[i] == 0 ? 0 : a[i] / sum;
  return top != -inf;
}

bool pool_softmax_of_set(const pool_sets *s, const pool_set *q, double *a) {
  for (int64_t i = 0; i < s->n; i++)
    if (!pool_set_has(s, q, i)) a[i] = -__builtin_inf();
  return pool_softmax(s->c, s->n, a);
}
