/* gate/functions_rows.c - see functions_rows.h. */
#include "functions_rows.h"
#include <string.h>

enum { CHUNK = 1 << 16 }; /* elements, which stay in the second-level cache */

/* softmax and logsumexp of the chunk */
static smx_status rows_of(const gate_rows *r, bool lse) {
  int64_t shape[] = {r->count, r->experts};
  const smx_dtype type = r->c->is_f64 ? SMX_F64 : SMX_F32;
  const char *data = r->c->in.view[0].data + r->first * r->experts * r->bytes;
  const smx_tensor x = smx_tensor_of(data, type, 2, shape, NULL),
                   p = smx_tensor_of(r->p, type, 2, shape, NULL),
                   l = smx_tensor_of(r->lse, type, 1, shape, NULL);
  const smx_status status = softmax_along(r->purse, -1, &x, &p);
  return status == SMX_OK && lse ? logsumexp_along(r->purse, -1, &x, &l) : status;
}

static bool measure(gate_rows *r) {
  const int64_t counts[] = {r->most, r->tokens % r->most};
  r->purse = smx_purse_open(r->c->ctx);
  for (int i = 0; r->purse && i < 2; i++) {
    int64_t shape[] = {counts[i], r->experts};
    const smx_dtype type = r->c->is_f64 ? SMX_F64 : SMX_F32;
    const smx_tensor x = smx_tensor_of(r->p, type, 2, shape, NULL),
                     l = smx_tensor_of(r->lse, type, 1, shape, NULL);
    if (counts[i]) softmax_along(r->purse, -1, &x, &x), logsumexp_along(r->purse, -1, &x, &l);
  }
  return r->purse && smx_purse_fill(r->purse);
}

smx_status gate_rows_open(gate_rows *r, const tensor_call *c, int64_t tokens, int64_t experts, int64_t own) {
  *r = (gate_rows){.c = c, .experts = experts, .tokens = tokens, .bytes = c->is_f64 ? 8 : 4};
  smx_status status = tensor_check_empty(c, tokens, experts, "token", "experts");
  if (status != SMX_OK) return status;
  r->most = experts < CHUNK && experts > 0 ? CHUNK / experts : 1;
  if (r->most > tokens) r->most = tokens > 0 ? tokens : 1;
  const int64_t reals = r->most * experts + r->most;
  r->own = smx_alloc(c->ctx, (size_t)own * sizeof(double) + (size_t)(reals * r->bytes));
  if (r->own) {
    memset(r->own, 0, (size_t)own * sizeof(double));
    r->p = (char *)(r->own + own), r->lse = r->p + r->most * experts * r->bytes;
    if (measure(r)) return SMX_OK;
  }
  gate_rows_close(r);
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", c->op->name, (long long)tokens);
}

void gate_rows_close(gate_rows *r) {
  smx_purse_close(r->purse);
  smx_free(r->c->ctx, r->own);
}

smx_status gate_rows_each(gate_rows *r, bool lse, void (*f)(gate_rows *r, void *arg), void *arg) {
  smx_status status = SMX_OK;
  for (r->first = 0; r->first < r->tokens && r->experts > 0 && status == SMX_OK; r->first += r->count) {
    r->count = r->tokens - r->first < r->most ? r->tokens - r->first : r->most;
    status = rows_of(r, lse);
    if (status == SMX_OK) f(r, arg);
  }
  return status;
}
