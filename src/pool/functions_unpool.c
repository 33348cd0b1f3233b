/* pool/functions_unpool.c - what max_pool took from planes goes back to its cells: the inverse of
 * max_pool where windows do not overlap, else of its last window. A plane is a task. */
#include "functions_sets.h"

enum { Y, INDEX }; /* inputs */

typedef struct unpool_call {
  const tensor_call *c;
  const int64_t *index;
  int64_t planes, outputs, cells; /* outputs, cells: of a plane */
  smx_scratch scratch;            /* of the gradient: the output that a cell has */
} unpool_call;

static void forward_task(void *arg, int64_t plane) {
  const unpool_call *u = arg;
  const tensor_call *c = u->c;
  const double zero = 0;
  const int64_t *index = u->index + plane * u->outputs;
  for (int64_t i = 0; i < u->cells; i++) tensor_store(c, c->out.view, plane * u->cells + i, 1, &zero);
  for (int64_t i = 0; i < u->outputs; i++) {
    double y;
    tensor_load(c, c->in.view + Y, plane * u->outputs + i, 1, &y);
    if (index[i] >= 0) tensor_store(c, c->out.view, plane * u->cells + index[i], 1, &y);
  }
}

static void backward_task(void *arg, int64_t plane) {
  unpool_call *u = arg;
  const tensor_call *c = u->c;
  const int64_t *index = u->index + plane * u->outputs;
  int64_t *owner = smx_scratch_take(&u->scratch);
  for (int64_t i = 0; i < u->outputs; i++)
    if (index[i] >= 0) owner[index[i]] = i;
  for (int64_t i = 0; i < u->outputs; i++) {
    double g = 0;
    if (index[i] >= 0 && owner[index[i]] == i)
      tensor_load(c, c->dout.view, plane * u->cells + index[i], 1, &g);
    tensor_store(c, c->din.view + Y, plane * u->outputs + i, 1, &g);
  }
  smx_scratch_give(&u->scratch, owner);
}

static smx_status open_call(const tensor_call *c, unpool_call *u) {
  *u = (unpool_call){.c = c, .index = (const int64_t *)(const void *)c->in.view[INDEX].data};
  u->planes = c->dims.lead_count, u->outputs = u->cells = 1;
  for (int32_t r = 0; r < c->dims.spatial; r++)
    u->outputs *= dims_value(&c->dims, "o", r), u->cells *= dims_value(&c->dims, "s", r);
  for (int64_t i = 0; i < u->planes * u->outputs; i++)
    if (u->index[i] < -1 || u->index[i] >= u->cells)
      return smx_fail(SMX_ERR_TARGET, "%s: index: number %lld is %lld, not -1..%lld", c->op->name,
                      (long long)i, (long long)u->index[i], (long long)u->cells - 1);
  return SMX_OK;
}

smx_status pool_max_unpool(const tensor_call *c) {
  unpool_call u;
  const smx_status status = open_call(c, &u);
  if (status == SMX_OK) smx_parallel(c->ctx, u.planes, forward_task, &u);
  return status;
}

smx_status pool_max_unpool_backward(const tensor_call *c) {
  unpool_call u;
  int64_t bytes;
  const smx_status status = open_call(c, &u);
  if (status != SMX_OK || !c->din.given[Y]) return status;
  if (!smx_multiply(u.cells + 1, 8, &bytes) ||
      !smx_scratch_open(&u.scratch, c->ctx, 0, (size_t)bytes, u.planes))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld cells", c->op->name, (long long)u.cells);
  smx_parallel(c->ctx, u.planes, backward_task, &u);
  smx_scratch_close(&u.scratch);
  return SMX_OK;
}
