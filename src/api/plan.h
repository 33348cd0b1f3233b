/* api/plan.h - how rows in memory are computed. It can change the speed of a call, never a bit. */
#ifndef SMX_API_PLAN_H
#define SMX_API_PLAN_H
#include "engine/machine.h"

/* For tests: forces a row_plan; 0 = as the library sees fit. */
void smx_plan_set(int plan);
int smx_plan_get(void);

/* row_call.terms: the place of the call's last row in output y, which goes past the caches and is no input. That row is written last, so until then
 * it can hold the terms of others, and stays in the caches; so does the one before it. A row that is empty may have to be left as it is: then there
 * is no such place. */
static inline void smx_keep_terms(row_call *c, int y, size_t bytes) {
  const bool fit = c->bypass && c->rows > 1 && c->n > ROW_TERMS_FROM && c->n <= ROW_TERMS / bytes && c->on_empty != SMX_EMPTY_ERROR;
  c->terms_step = c->dst_step[y];
  c->terms = fit ? (char *)c->dst[y] + (ptrdiff_t)(c->rows - 1) * c->terms_step * (ptrdiff_t)bytes : NULL;
}

#endif
