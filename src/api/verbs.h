/* api/verbs.h - what the files of api/ share. */
#ifndef SMX_API_VERBS_H
#define SMX_API_VERBS_H
#include "job.h"

bool smx_op_place(const smx_op *op, int *room, size_t *index); /* false for one that is not of this library */
smx_status smx_param_check(const smx_op *op, const smx_param *p, double value);

#endif
