/* driver/plan.h - the code path of rows in memory. It changes the speed of a call, never a bit. */
#ifndef SMX_DRIVER_PLAN_H
#define SMX_DRIVER_PLAN_H
#include "engine/machine.h"
#include <stdatomic.h>
#include <string.h>

/* For tests: forces a row_plan, 0 = chosen by size; or a row_writing for outputs that are not
 * inputs, -1 = chosen by size. */
void smx_plan_set(int plan);
void smx_writing_set(int how);
extern _Atomic int smx_forced __attribute__((visibility("hidden"))); /* plan + (how + 1) * PLAN_COUNT */
static inline int smx_plan_get(void) {
  return atomic_load_explicit(&smx_forced, memory_order_relaxed) % PLAN_COUNT;
}

/* How so many bytes of output are written. kept: the output is an input too, or kernels write to a
 * scratch tile. */
static inline row_writing smx_writing_for(bool kept, size_t bytes) {
  const int forced = atomic_load_explicit(&smx_forced, memory_order_relaxed);
  if (kept || forced == PLAN_CACHE) return WRITE_CACHED;
  return forced >= PLAN_COUNT ? (row_writing)(forced / PLAN_COUNT - 1) : writing_for(bytes);
}

/* A call of whole rows without its buffers; other fields have their defaults. */
static inline void smx_begin_call(row_call *c, size_t rows, size_t n) {
  c->n = c->count = n, c->rows = rows;
  memset(c->src, 0, sizeof c->src);
  memset(c->dst, 0, sizeof c->dst);
  memset(c->src_step, 0, sizeof c->src_step);
  memset(c->dst_step, 0, sizeof c->dst_step);
  c->inputs = c->outputs = 0;
  c->origin = c->start = 0;
  c->params = NULL;
  c->share = c->share_other = 1;
  c->on_empty = SMX_EMPTY_ZERO, c->on_inf = SMX_INF_NAN;
  c->plan = PLAN_AUTO, c->writing = WRITE_CACHED;
  c->terms = NULL, c->terms_step = 0;
  c->list = NULL, c->work = NULL;
  c->first_empty = -1;
}

/* row_call.terms: the place of the call's last row in output y, if that is written with streaming
 * stores and is no input. That row is written last, so until then it can hold the terms of other
 * rows, and it stays in the caches; so does the row before it. NULL if an empty row may have to be
 * left as it is. */
static inline void smx_keep_terms(row_call *c, int y, size_t bytes) {
  const bool fit = c->writing && c->rows > 1 && c->n <= ROW_TERMS / bytes && c->on_empty != SMX_EMPTY_ERROR;
  c->terms_step = c->dst_step[y];
  c->terms = fit ? (char *)c->dst[y] + (ptrdiff_t)(c->rows - 1) * c->terms_step * (ptrdiff_t)bytes : NULL;
}

#endif
