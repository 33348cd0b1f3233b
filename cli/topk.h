/* topk.h - the verb `top-k`: the best of each row, a line each. */
#ifndef CLI_TOPK_H
#define CLI_TOPK_H

#include "options.h"

#define TOPK_OPERATOR "softmax_topk"

extern const setting topk_settings[];

int work_topk(const options *o);

#endif
