/* api/plan.h - how rows in memory are computed. It can change the speed of a call, never a bit. */
#ifndef SMX_API_PLAN_H
#define SMX_API_PLAN_H

enum { SMX_BYPASS = 8 << 20 }; /* bytes of output from which stores pass the caches */

/* For tests: forces a row_plan; 0 = as the library sees fit. */
void smx_plan_set(int plan);
int smx_plan_get(void);

#endif
