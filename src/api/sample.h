/* api/sample.h - the steps of smx_sample: checked, and those that look at a text turned into ones
 * that name tokens. */
#ifndef SMX_API_SAMPLE_H
#define SMX_API_SAMPLE_H
#include "base/base.h"

smx_status smx_steps_check(const smx_step *steps, size_t count, size_t n);

/* Whether some step has to be worked out first. */
bool smx_steps_need(const smx_step *steps, size_t count);

/* Steps for the chains of the rows, in one piece of memory, for smx_free. NULL: no memory. */
smx_step *smx_steps_prepare(smx_context *ctx, const smx_step *steps, size_t count);

#endif
