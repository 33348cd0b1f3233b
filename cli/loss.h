/* loss.h - the verb `loss`: one number about all rows. */
#ifndef CLI_LOSS_H
#define CLI_LOSS_H

#include "options.h"

extern const setting loss_settings[];

/* Whether the operator is a loss that this verb can reduce. */
bool loss_takes(const smx_op *op);

int work_loss(const options *o);

#endif
