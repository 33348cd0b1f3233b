/* driver/params.h - why a value of a parameter is refused, wherever an smx_param describes it. */
#ifndef SMX_DRIVER_PARAMS_H
#define SMX_DRIVER_PARAMS_H
#include "base/base.h"

/* "is out of range"; NULL for a value that the parameter may have. */
const char *smx_param_why_not(const smx_param *p, double value);
smx_status smx_param_check(const smx_op *op, const smx_param *p, double value);

#endif
