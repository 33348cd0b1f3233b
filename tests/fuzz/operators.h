/* operators.h - a call of an operator from bytes, forward or backward: any shapes, layouts, dtypes,
 * parameters, tensors left out. */
#ifndef TESTS_FUZZ_OPERATORS_H
#define TESTS_FUZZ_OPERATORS_H

#include "call.h"

/* c has been opened; most: of the elements of a row. Closes it. */
void fuzz_operator(call *c, const smx_op *op, int64_t most);

#endif
