/* mpi/attention.c - smx_mpi_attention and its gradient: what a rank came with, what all came with,
 * and which way the call goes. */
#include "attention.h"
#include <limits.h>
#include <math.h>
#include <softmax/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const tensor_facts mpi_tensor_facts[TENSORS] = {
    [Q] = {"q", 4, -1, false, false},
    [K] = {"k", 4, 2, true, false},
    [V] = {"v", 4, 2, true, false},
    [O] = {"o", 4, -1, false, false},
    [LSE] = {"lse", 3, -1, false, false},
    [D_O] = {"d_o", 4, -1, false, false},
    [D_LSE] = {"d_lse", 3, -1, false, false},
    [DQ] = {"dq", 4, -1, false, false},
    [DK] = {"dk", 4, 2, true, false},
    [DV] = {"dv", 4, 2, true, false},
    [MASK] = {"mask", 4, 3, false, true},
    [BIAS] = {"bias", 4, 3, false, true},
    [SLOPES] = {"slopes", 2, -1, false, true},
    [SINKS] = {"sinks", 2, -1, false, true},
};

void mpi_attention_part(view *part, int t, const view *v, int32_t axis, int64_t first, int64_t count) {
  *part = *v;
  if (!v->t.data || (mpi_tensor_facts[t].broadcasts && v->shape[axis] == 1)) return;
  mpi_view_part(part, v, axis, first, count);
}

smx_attention_options mpi_attention_options(const attention *a, view *tensors) {
  smx_attention_options o = a->options;
  o.mask = mpi_view_tensor(tensors + MASK, 4), o.bias = mpi_view_tensor(tensors + BIAS, 4);
  o.slopes = mpi_view_tensor(tensors + SLOPES, 2), o.sinks = mpi_view_tensor(tensors + SINKS, 2);
  return o;
}

/* ---- what a rank came with ---- */

static smx_status fail(smx_status status, const char *name, const char *what) {
  char text[160];
  snprintf(text, sizeof text, "smx_mpi_attention: %s %s", name, what);
  return smx_set_error(status, text);
}

static smx_status take(attention *a, int t, const smx_tensor *given) {
  const tensor_facts *const f = mpi_tensor_facts + t;
  view *const v = a->tensor + t;
  int64_t step = 1;
  if (!given) return SMX_OK;
  const int32_t lead = f->ndim - given->ndim;
  if (given->ndim < 0 || lead < 0 || (lead && !f->broadcasts) || (given->ndim && !given->shape))
    return fail(SMX_ERR_SHAPE, f->name, "has a wrong ndim, or no shape");
  if (given->dtype.bits % 8) return fail(SMX_ERR_DTYPE, f->name, "has elements of less than a byte");
  v->t = *given;
  for (int d = 3; d >= 0; d--) {
    const bool has = d >= lead && d < f->ndim;
    v->shape[d] = has ? given->shape[d - lead] : 1;
    v->strides[d] = !has ? 0 : given->strides ? given->strides[d - lead] : step;
    if (v->shape[d] < 0 || v->shape[d] > INT_MAX || (has && __builtin_mul_overflow(step, v->shape[d], &step)))
      return fail(SMX_ERR_SHAPE, f->name, "has an axis that is negative, or too long");
  }
  static char nothing;
  if (!v->t.data && step) return fail(SMX_ERR_NULL, f->name, "has no data");
  if (!v->t.data) v->t.data = &nothing; /* of a rank without keys: the tensor is there */
  return SMX_OK;
}

/* Axes by which the call is cut; all others the parts of the call check. */
static smx_status check(const attention *a, int t) {
  const tensor_facts *const f = mpi_tensor_facts + t;
  const view *const v = a->tensor + t;
  const int64_t heads = f->of_key_heads ? a->key_heads : a->heads;
  if (!v->t.data) return SMX_OK;
  if (v->shape[1] != heads && !(f->broadcasts && v->shape[1] == 1))
    return fail(SMX_ERR_SHAPE, f->name, "has another number of heads than the others");
  if (f->keys >= 0 && v->shape[f->keys] != a->c->count && !(f->broadcasts && v->shape[f->keys] == 1))
    return fail(SMX_ERR_SHAPE, f->name, "has another number of keys than k on this rank");
  return SMX_OK;
}

static smx_status check_options(const attention *a) {
  const smx_attention_options *const o = &a->options;
  if (o->query_offsets || o->key_offsets || o->block_table)
    return fail(SMX_ERR_PARAM, "options", "has packed or paged keys, which cannot lie on several ranks");
  if (o->key_start)
    return fail(SMX_ERR_PARAM, "options.key_start", "is not 0: `first` says where keys begin");
  return SMX_OK;
}

static smx_status take_all(attention *a, const smx_attention_options *options,
                           const smx_tensor *const given[TENSORS]) {
  smx_attention_init(&a->options);
  if (options && options->size != sizeof *options)
    return fail(SMX_ERR_STRUCT, "options.size", "is not that of this library");
  if (options) a->options = *options;
  for (int t = 0; t < TENSORS; t++) {
    const bool needed = t <= O || (a->backward && (t == LSE || t == D_O));
    const smx_tensor *const extra[] = {a->options.mask, a->options.bias, a->options.slopes, a->options.sinks};
    const smx_tensor *const one = t >= MASK ? extra[t - MASK] : given[t];
    const smx_status status =
        !one && needed ? fail(SMX_ERR_NULL, mpi_tensor_facts[t].name, "is NULL") : take(a, t, one);
    if (status != SMX_OK) return status;
  }
  const view *const q = a->tensor + Q, *const k = a->tensor + K;
  a->batch = q->shape[0], a->heads = q->shape[1], a->lq = q->shape[2], a->d = q->shape[3];
  a->key_heads = k->shape[1], a->c->count = k->shape[2], a->e = a->tensor[V].shape[3];
  smx_status status = check_options(a);
  if (status == SMX_OK && (a->key_heads ? a->heads % a->key_heads : a->heads))
    status = fail(SMX_ERR_SHAPE, "q", "has no whole number of heads for each of k");
  for (int t = 0; t < TENSORS && status == SMX_OK; t++) status = check(a, t);
  return status;
}

/* ---- what all ranks came with ---- */

/* Which tensors there are has to be one on all ranks; one with a value for all keys has it on
 * all. */
static smx_status agree_on_tensors(attention *a) {
  const mpi_call *const c = a->c;
  int mine = 0, all, any, ones = 1 << MASK | 1 << BIAS;
  bool single = c->n == c->ranks; /* one key on each: a value of it */
  for (int r = 0; r < c->ranks; r++) single = single && c->bounds[r + 1] - c->bounds[r] == 1;
  for (int t = 0; t < TENSORS; t++) mine |= (a->tensor[t].t.data != NULL) << t;
  for (int t = MASK; t <= BIAS; t++)
    if (a->tensor[t].shape[3] != 1 || single) ones &= ~(1 << t);
  mine |= ones << TENSORS;
  const smx_status sent =
      mpi_status(MPI_Allgather(&mine, 1, MPI_INT, c->numbers, 1, MPI_INT, c->comm), "Allgather");
  if (sent != SMX_OK) return sent;
  all = any = c->numbers[0];
  for (int r = 1; r < c->ranks; r++) all &= c->numbers[r], any |= c->numbers[r];
  if ((all ^ any) & ((1 << TENSORS) - 1))
    return fail(SMX_ERR_SHAPE, "a tensor", "is there on some ranks, and not on others");
  for (int t = 0; t < TENSORS; t++) {
    const int32_t keys = mpi_tensor_facts[t].keys;
    a->cut[t] = keys >= 0 && a->tensor[t].t.data && !(all >> TENSORS & 1 << t);
    if (a->cut[t] && a->tensor[t].shape[keys] != c->count)
      return fail(SMX_ERR_SHAPE, mpi_tensor_facts[t].name, "has another number of keys than k on this rank");
  }
  return SMX_OK;
}

/* Whether states say all, and each is of keys of one rank. Otherwise keys travel. */
static bool by_states(const attention *a) {
  const smx_attention_options *const o = &a->options;
  const smx_attention_kind *const kind = smx_attention_kind_at((size_t)o->weights);
  bool good = !a->backward && kind && kind->flags & SMX_ATTENTION_STATES && !o->lengths && a->c->n > 0 &&
              (o->query_start != SMX_ATTENTION_END || a->c->n >= a->lq);
  for (int i = 0; good && i < kind->param_count; i++)
    good = !isnan(o->param[i]) &&
           (strcmp(kind->params[i].name, "norm") || o->param[i] != SMX_ATTENTION_NORM_COUNT);
  for (int r = 0; r < a->c->ranks; r++)
    good = good && (a->c->bounds[r] % SPLIT == 0 || a->c->bounds[r] == a->c->n);
  return good;
}

static smx_status run(MPI_Comm comm, smx_context *ctx, const smx_attention_options *options, bool backward,
                      const smx_tensor *const given[TENSORS], int64_t n, int64_t first) {
  smx_status status;
  mpi_call *const c = mpi_open(comm, &status);
  if (!c) return status;
  attention *const a = calloc(1, sizeof *a);
  status = mpi_agree(c, a ? SMX_OK : fail(SMX_ERR_NOMEM, "the call", "has no memory"));
  if (status != SMX_OK) {
    free(a), free(c);
    return status;
  }
  a->c = c, a->backward = backward;
  c->op = smx_op_find("softmax"), c->ctx = ctx, c->n = n, c->first = first, c->n_in = 1;
  status = mpi_agree(c, take_all(a, options, given));
  /* to be agreed on as rows of n columns are */
  int64_t shape[] = {a->batch, a->heads, a->key_heads, a->lq, a->d, a->e, c->count};
  const smx_tensor rows = mpi_tensor(NULL, a->tensor[K].t.dtype, 7, shape);
  c->given[IN][0] = &rows;
  if (status == SMX_OK && n > INT_MAX) status = fail(SMX_ERR_SHAPE, "n", "is more than 2^31 - 1");
  if (status == SMX_OK) status = mpi_ports(c);
  if (status == SMX_OK) status = mpi_agree(c, agree_on_tensors(a));
  if (status == SMX_OK) status = by_states(a) ? mpi_attention_by_states(a) : mpi_attention_by_heads(a);
  free(a), free(c);
  return status;
}

smx_status smx_mpi_attention(MPI_Comm comm, smx_context *ctx, const smx_attention_options *options,
                             const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                             const smx_tensor *o, const smx_tensor *lse, int64_t n, int64_t first) {
  const smx_tensor *const given[TENSORS] = {[Q] = q, [K] = k, [V] = v, [O] = o, [LSE] = lse};
  return run(comm, ctx, options, false, given, n, first);
}

smx_status smx_mpi_attention_backward(MPI_Comm comm, smx_context *ctx, const smx_attention_options *options,
                                      const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                      const smx_tensor *o, const smx_tensor *lse, const smx_tensor *d_o,
                                      const smx_tensor *d_lse, const smx_tensor *dq, const smx_tensor *dk,
                                      const smx_tensor *dv, int64_t n, int64_t first) {
  const smx_tensor *const given[TENSORS] = {[Q] = q,     [K] = k,         [V] = v,   [O] = o,   [LSE] = lse,
                                            [D_O] = d_o, [D_LSE] = d_lse, [DQ] = dq, [DK] = dk, [DV] = dv};
  return run(comm, ctx, options, true, given, n, first);
}
