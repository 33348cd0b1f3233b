/* api/plan.h - for tests: forces the plan by which rows in memory are computed. It can change the speed of a call, never a bit. */
#ifndef SMX_API_PLAN_H
#define SMX_API_PLAN_H

void smx_plan_set(int plan); /* a row_plan; 0 = as the library sees fit */
int smx_plan_get(void);

#endif
