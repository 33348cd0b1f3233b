/* run.h - runs one operator over files. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "options.h"
#include "report/table.h"

/* first: the first of the files that is an input. kind: how results are shown when they are not written. An exit code. */
int run_operator(const smx_op *op, const options *o, int first, table_kind kind);

#endif
