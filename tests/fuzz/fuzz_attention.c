/* fuzz_attention.c - any bytes as a call of a function of attention: any options, sequences plain,
 * packed or paged, forward and backward, any sizes, layouts and dtypes, and now and then something
 * wrong. */
#include "call.h"

#include <stdlib.h>
#include <string.h>

#include "attention_calls.h"

typedef struct attempt {
  call c;
  const attention_call *f;
  attention_sizes n;
  smx_attention_options o;
  attention_more more;
  smx_params params;
} attempt;

static int64_t length(bytes *b, int64_t most) {
  const int64_t how = pick(b, 16);
  return how < 10 ? how : how < 14 ? pick(b, 80) : pick(b, most + 1);
}

static void sizes(attempt *a) {
  bytes *b = &a->c.b;
  a->n.batch = pick(b, 4), a->n.kv_heads = pick(b, 3);
  a->n.heads = a->n.kv_heads * (1 + pick(b, 3));
  a->n.lq = length(b, 700), a->n.lk = length(b, 2300);
  a->n.d = rarely(b, 16) ? pick(b, 514) : 1 + pick(b, 33),
  a->n.e = rarely(b, 16) ? pick(b, 514) : 1 + pick(b, 33);
  if (rarely(b, 8)) a->n.key_start = 1024 * pick(b, 4);
  if (a->f->flags & CALL_FITS) a->n.d %= 24, a->n.lq %= 40;
  if (a->n.lq * a->n.lk > 20000) a->n.batch %= 2, a->n.heads = a->n.kv_heads = a->n.kv_heads % 2;
}

/* B + 1 offsets from 0 to the whole, often right. */
static const smx_tensor *offsets(attempt *a, int64_t whole) {
  call *c = &a->c;
  const int64_t shape[] = {a->n.batch + 1};
  smx_tensor *t = call_input(c, rarely(&c->b, 2) ? SMX_I32 : SMX_I64, 1, shape, VALUES_NONE, 0);
  if (!t) return NULL;
  c->t[c->count - 1].exact = false;
  int64_t at = 0;
  for (int64_t i = 0; i <= a->n.batch; i++) {
    if (i) at = i == a->n.batch ? whole : at + pick(&c->b, whole - at + 1);
    const int64_t value = rarely(&c->b, 64) ? call_whole(c) : at;
    memcpy(guard_element(&c->t[c->count - 1].g, i), &value, t->dtype.bits / 8);
  }
  return t;
}

static const smx_tensor *whole_numbers(attempt *a, int32_t ndim, const int64_t *shape, int64_t below) {
  const smx_dtype t = ndim == 1 && rarely(&a->c.b, 2) ? SMX_I64 : SMX_I32;
  smx_tensor *x = call_input(&a->c, t, ndim, shape, VALUES_BELOW, below);
  if (x) a->c.t[a->c.count - 1].exact = false;
  return x;
}

/* How sequences lie, as the function has it or not. */
static void pack(attempt *a) {
  bytes *b = &a->c.b;
  const int64_t batch[] = {a->n.batch};
  const unsigned wanted[] = {0, 0, 0, CALL_PACKED, CALL_PACKED, CALL_PACKED, CALL_PAGED, CALL_PAGED};
  const int how = (int)pick(b, 8);
  if ((wanted[how] & ~a->f->flags) && !rarely(b, 16)) return;
  if (how == 1 || how == 2) a->o.lengths = whole_numbers(a, 1, batch, a->n.lk + 1);
  if (how == 3 || how == 4) a->n.packed_queries = true, a->o.query_offsets = offsets(a, a->n.lq);
  if (how == 4 || how == 5) a->n.packed_keys = true, a->o.key_offsets = offsets(a, a->n.lk);
  if (how >= 6) {
    const int64_t each = pick(b, 5), table[] = {a->n.batch, each};
    a->n.pages = pick(b, 6), a->n.page = pick(b, 40);
    if (!a->n.page) return;
    a->n.lk = each * a->n.page;
    a->o.lengths = whole_numbers(a, 1, batch, a->n.lk + 1);
    a->o.block_table = whole_numbers(a, 2, table, a->n.pages);
  }
}

static void options(attempt *a) {
  bytes *b = &a->c.b;
  call *c = &a->c;
  smx_attention_init(&a->o);
  a->o.key_start = rarely(b, 64) ? call_whole(c) : a->n.key_start;
  if (rarely(b, a->f->flags & (CALL_KINDS | CALL_GRADS) ? 2 : 64))
    a->o.weights = (smx_attention_weights)(rarely(b, 64) ? call_whole(c) : pick(b, SMX_ATTENTION_KINDS));
  if ((unsigned)a->o.weights < SMX_ATTENTION_KINDS)
    memcpy(a->o.param, attention_params[a->o.weights], sizeof a->o.param);
  for (int i = 0; i < SMX_ATTENTION_PARAMS; i++)
    if (rarely(b, 32)) a->o.param[i] = call_number(c);
  if (rarely(b, 8)) a->o.scale = call_number(c);
  if (rarely(b, 4)) a->o.softcap = call_number(c);
  a->o.causal = rarely(b, 2);
  if (rarely(b, 4)) a->o.query_start = call_whole(c);
  if (rarely(b, 4)) a->o.window_left = call_whole(c);
  if (rarely(b, 4)) a->o.window_right = call_whole(c);
  if (rarely(b, 4)) a->o.dropout = (double)take(b, 1) / 250, a->o.seed = take(b, 2), a->o.stream = take(b, 8);
  if (rarely(b, 64)) a->o.size = (size_t)call_whole(c);
}

static void added(attempt *a) {
  call *c = &a->c;
  bytes *b = &c->b;
  const int64_t full[] = {a->n.batch, a->n.heads, a->n.lq, a->n.lk};
  const bool packed = a->n.packed_queries || a->n.packed_keys;
  if (rarely(b, packed ? 32 : 3))
    a->o.mask = call_spread(c, rarely(b, 2) ? SMX_U8 : SMX_BOOL, 4, full, VALUES_MASK, 0);
  if (rarely(b, packed ? 32 : 3)) a->o.bias = call_spread(c, call_float(c), 4, full, VALUES_SCORES, 0);
  if (rarely(b, 4)) a->o.slopes = call_spread(c, call_float(c), 2, full, VALUES_SCORES, 0);
  if (rarely(b, a->f->flags & CALL_SINKS ? 4 : 64))
    a->o.sinks = call_spread(c, call_float(c), 2, full, VALUES_SCORES, 0);
  if (rarely(b, 8)) a->o.streams = whole_numbers(a, 1, full, 1000);
}

static const smx_tensor *port(attempt *a, int i) {
  const char letter = a->f->ports[2 * i], how = a->f->ports[2 * i + 1];
  int64_t shape[5];
  const int32_t ndim = attention_shape(&a->n, letter, shape);
  if ((how == '?' || how == '~') && !rarely(&a->c.b, 2)) return NULL;
  const smx_dtype t = letter == 'W' ? SMX_I32 : call_float(&a->c);
  if (letter == 'U' && how == ' ') return call_spread(&a->c, t, ndim, shape, VALUES_SCORES, 0);
  if (how == '=' || how == '~') {
    smx_tensor *to = call_output(&a->c, t, ndim, shape);
    if (to && strchr("SH", letter))
      a->c.t[a->c.count - 1].exact = false; /* sums may have a 1 where there is 0 */
    return to;
  }
  return call_input(&a->c, t, ndim, shape, letter == 'W' ? VALUES_BELOW : VALUES_SCORES, a->n.lk);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static attempt attempts;
  attempt *a = &attempts;
  memset(a, 0, sizeof *a);
  call_open(&a->c, data, size);
  bytes *b = &a->c.b;
  a->f = attention_calls + pick(b, ATTENTION_CALLS);
  sizes(a);
  options(a);
  const smx_tensor *given[ATTENTION_PORTS] = {NULL};
  const int ports = (int)strlen(a->f->ports) / 2;
  if (a->n.lq == 0 && a->n.lk == 0 && rarely(b, 8)) a->n.batch = (int64_t)1 << 40; /* of nothing */
  else if (rarely(b, 3)) pack(a);
  for (int i = 0; i < ports; i++) given[i] = port(a, i);
  added(a);
  a->more.stage = (int)(rarely(b, 32) ? call_whole(&a->c) : pick(b, 4)), a->more.symmetric = rarely(b, 2);
  a->more.ridge = rarely(b, 4) ? call_number(&a->c) : 1;
  a->more.op = rarely(b, 16) ? NULL : smx_op_at(rarely(b, 2) ? (size_t)pick(b, (int64_t)smx_op_count()) : 0);
  call_spoil(&a->c, given, ports);
  call_ready(&a->c);
  const smx_status status = a->f->run(a->c.ctx, rarely(b, 16) ? NULL : &a->o, &a->more, given);
  call_check(&a->c, status);
  call_close(&a->c);
  return 0;
}
