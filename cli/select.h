/* select.h - the verb `select`: which rows to have labelled. */
#ifndef CLI_SELECT_H
#define CLI_SELECT_H

#include "options.h"

#define SELECT_OPERATOR "budget_select"

extern const setting select_settings[];

int work_select(const options *o);

#endif
