/* driver/plan.h - how rows in memory are computed. It can change the speed of a call, never a
 * bit. */
#ifndef SMX_DRIVER_PLAN_H
#define SMX_DRIVER_PLAN_H
#include "engine/machine.h"
#include <stdatomic.h>
#include <string.h>

/* For tests: force a row_plan, 0 = as the library sees fit; or a row_bypass for outputs that are
 * not inputs, -1 = as the library sees fit. */
void smx_plan_set(int plan);
void smx_bypass_set(int how);
extern _Atomic int smx_forced __attribute__((visibility("hidden"))); /* plan + (how + 1) * PLAN_COUNT */
static inline int smx_plan_get(void) {
  return atomic_load_explicit(&smx_forced, memory_order_relaxed) % PLAN_COUNT;
}

/* How so many bytes of output are written; kept: they are an input, or what a kernel writes is not
 * the output itself. */
static inline row_bypass smx_bypass_for(bool kept, size_t bytes) {
  const int forced = atomic_load_explicit(&smx_forced, memory_order_relaxed);
  if (kept || forced == PLAN_CACHE) return BYPASS_NOT;
  return forced >= PLAN_COUNT ? (row_bypass)(forced / PLAN_COUNT - 1) : bypass_for(bytes);
}

/* A call of whole rows without buffers; its settings are those by default. */
static inline void smx_begin_call(row_call *c, size_t rows, size_t n) {
  c->n = c->count = n, c->rows = rows;
  memset(c->src, 0, sizeof c->src);
  memset(c->dst, 0, sizeof c->dst);
  memset(c->src_step, 0, sizeof c->src_step);
  memset(c->dst_step, 0, sizeof c->dst_step);
  c->inputs = c->outputs = 0;
  c->origin = c->start = 0;
  c->params = NULL;
  c->share = 1;
  c->on_empty = SMX_EMPTY_ZERO, c->on_inf = SMX_INF_NAN;
  c->plan = PLAN_AUTO, c->bypass = BYPASS_NOT;
  c->terms = NULL, c->terms_step = 0;
  c->first_empty = -1;
}

/* row_call.terms: the place of the call's last row in output y, which streaming stores write and
 * which is no input. That row is written last, so until then it can hold the terms of others, and
 * stays in the caches; so does the one before it. A row that is empty may have to be left as it is:
 * then there is no such place. */
static inline void smx_keep_terms(row_call *c, int y, size_t bytes) {
  const bool fit = c->bypass && c->rows > 1 && c->n > ROW_TERMS_FROM && c->n <= ROW_TERMS / bytes &&
                   c->on_empty != SMX_EMPTY_ERROR;
  c->terms_step = c->dst_step[y];
  c->terms = fit ? (char *)c->dst[y] + (ptrdiff_t)(c->rows - 1) * c->terms_step * (ptrdiff_t)bytes : NULL;
}

#endif
