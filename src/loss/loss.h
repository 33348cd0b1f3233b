/* loss/loss.h - the table of the losses. */
#ifndef SMX_LOSS_H
#define SMX_LOSS_H
#include <softmax.h>

enum {
#define LOSS_OP(name) LOSS_##name,
#include "list.h"
#undef LOSS_OP
  LOSS_COUNT
};
extern const smx_op loss_table[LOSS_COUNT];

#endif
