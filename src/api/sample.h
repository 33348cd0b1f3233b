/* api/sample.h - the steps of smx_sample: they are checked, and those that depend on the text so
 * far are turned into steps that name tokens. */
#ifndef SMX_API_SAMPLE_H
#define SMX_API_SAMPLE_H
#include "base/base.h"

smx_status smx_steps_check(const smx_step *steps, size_t count, size_t n);

/* Whether some step depends on the text so far. */
bool smx_steps_need(const smx_step *steps, size_t count);

/* The steps for all rows, in one piece of memory for smx_free. NULL: no memory. */
smx_step *smx_steps_prepare(smx_context *ctx, const smx_step *steps, size_t count);

#endif
