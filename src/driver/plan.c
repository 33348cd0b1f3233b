/* driver/plan.c - the code path that tests force. */
#include "plan.h"

_Atomic int smx_forced;
void smx_plan_set(int plan) { atomic_store(&smx_forced, plan); }
void smx_writing_set(int how) { atomic_store(&smx_forced, (how + 1) * PLAN_COUNT); }
