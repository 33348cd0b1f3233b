/* head/driver_split.c - operators on the logits of a linear layer whose classes lie on several
 * ranks (softmax/split.h). A rank forms the logits of its classes, a block of rows at a time, and
 * the operator's rounds run over them. dw and dbias are of own classes alone. dh is a sum over all:
 * ranks make terms of it, one for each LINEAR_SPLIT classes, all at once, and add them one rank
 * after another in the order of classes. */
#include "base/enter.h"
#include "driver/split.h"
#include "driver_linear.h"
#include <softmax/split.h>
#include <string.h>

typedef struct linear_split {
  split_source source;
  linear_call call;
  linear_run run;
  char *memory;
  const job *whole;
  job block;
  int dst; /* where the gradient of x goes, or -1 */
} linear_split;
static linear_split *of(split_source *s) { return (linear_split *)(void *)s; }

static const job *begin(split_source *s, int64_t first, int64_t rows) {
  linear_split *const t = of(s);
  linear_run *const l = &t->run;
  l->first = first, l->rows = rows;
  if (rows) linear_block_logits(l);
  linear_block_job(l, t->dst, t->whole, &t->block);
  return &t->block;
}

static bool end(split_source *s) {
  linear_run *const l = &of(s)->run;
  if (!of(s)->call.gradients) return false;
  linear_block_gradients(l);
  if (!l->p->dh.data) return false;
  s->sum_count = (size_t)(l->rows * l->width);
  if (s->sum_count) memset(l->totals, 0, s->sum_count * sizeof *l->totals);
  return true;
}
static void add(split_source *s) { linear_add_terms(&of(s)->run); }
static void finish(split_source *s) { linear_store_dh(&of(s)->run); }
static void close(split_source *s) {
  smx_context *const ctx = of(s)->run.ctx;
  if (of(s)->memory) linear_close(&of(s)->run, of(s)->memory);
  smx_free(ctx, s);
}

/* What every rank has to say alike: the layer and which gradients there are. */
static void take_facts(const linear_run *l, double *facts) {
  const linear_ports *const p = l->p;
  facts[0] = p->scale, facts[1] = p->softcap, facts[2] = (double)l->width;
  facts[3] = (p->dh.data != NULL) + 2 * (p->dw.data || p->dbias.data);
}

/* The layer's memory for blocks of `rows` rows. */
static smx_status open_run(linear_split *t, smx_split *s, int64_t block) {
  linear_run *const l = &t->run;
  const bool backward = s->o.backward;
  *l = (linear_run){.p = &t->call.ports, .ctx = s->ctx, .is_f64 = s->o.job.is_f64, .apart = true};
  l->column = s->o.check.first, l->most = block;
  t->dst = backward ? 0 : t->call.gradients ? t->call.dx : -1, t->whole = &s->o.job;
  const smx_status status = linear_open(l, backward || (t->call.gradients && l->p->softcap > 0), &t->memory);
  if (status != SMX_OK) return status;
  take_facts(l, t->source.facts);
  t->source.sums = l->totals, t->source.sum_count = (size_t)(block * l->width);
  l->rows = block;
  linear_block_job(l, t->dst, &s->o.job, &t->block);
  if (t->dst >= 0) s->o.job.dst[t->dst] = t->block.dst[t->dst]; /* to be known of from the start */
  return SMX_OK;
}

/* Blocks come one after another, in whole chains, for dw is a sum over rows. */
static smx_status open_split(linear_split *t, smx_split *s, const smx_split_part *part) {
  const int64_t rows = t->call.ports.h.shape[0],
                most = part->block && part->block < rows ? part->block : rows;
  const char *const name = s->o.check.op->name;
  if (part->n == 0) return smx_fail(SMX_ERR_SHAPE, "%s: there are no classes", name);
  if (most < rows && (part->slots > 1 || most % HEAD_CHAIN))
    return smx_fail(SMX_ERR_PARAM,
                    "%s: part.slots is %d and part.block %lld: a linear layer takes 1 and a multiple of %d",
                    name, (int)part->slots, (long long)part->block, HEAD_CHAIN);
  const smx_status status = open_run(t, s, most > 0 ? most : 1);
  return status == SMX_OK ? split_open(s, part) : status;
}

/* The source of a split, which owns it; false: no memory. */
static bool add_source(const char *verb, smx_split *s) {
  static const split_source functions = {
      .begin = begin, .end = end, .add = add, .finish = finish, .close = close};
  linear_split *const t = smx_alloc(s->ctx, sizeof *t);
  if (!t) {
    s->status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", verb);
    return false;
  }
  memset(t, 0, sizeof *t);
  t->source = functions, t->run.ctx = s->ctx;
  s->source = &t->source;
  return true;
}

static smx_status check_layer(const char *verb, const split_call *c, const smx_linear *linear,
                              linear_call *layer) {
  return c->backward
             ? linear_backward_call(verb, c->op, c->params, linear, c->n_in, c->in, c->n_out, c->out, c->dout,
                                    c->din, layer)
             : linear_forward_call(verb, c->op, c->params, linear, c->n_in, c->in, c->n_out, c->out, layer);
}

static smx_status open_linear(const char *verb, const split_call *given, const smx_linear *linear,
                              const smx_split_part *part, smx_split **split) {
  smx_status status;
  operation_columns columns;
  smx_split *const s = split_new(verb, given->ctx, split, &status);
  if (!s) return status;
  if (!add_source(verb, s)) return s->status;
  linear_split *const t = of(s->source);
  split_call c = *given;
  status = split_check_part(verb, c.op, part, &columns);
  if (status == SMX_OK) status = check_layer(verb, given, linear, &t->call);
  c.n_in = t->call.n_in, c.in = t->call.in;
  if (status == SMX_OK) status = split_operation(s, &columns, &c);
  return s->status = status == SMX_OK ? open_split(t, s, part) : status;
}

smx_status smx_split_linear_forward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                    const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                                    int32_t n_out, const smx_tensor *const *out, const smx_split_part *part,
                                    smx_split **split) {
  SMX_ENTER(ctx);
  const split_call c = {false, op, ctx, params, n_in, n_out, in, out, NULL, NULL};
  return open_linear("smx_split_linear_forward", &c, linear, part, split);
}

smx_status smx_split_linear_backward(const smx_op *op, smx_context *ctx, const smx_params *params,
                                     const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                                     int32_t n_out, const smx_tensor *const *out,
                                     const smx_tensor *const *dout, const smx_tensor *const *din,
                                     const smx_split_part *part, smx_split **split) {
  SMX_ENTER(ctx);
  const split_call c = {true, op, ctx, params, n_in, n_out, in, out, dout, din};
  return open_linear("smx_split_linear_backward", &c, linear, part, split);
}
