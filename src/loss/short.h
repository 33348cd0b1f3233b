/* loss/short.h - short rows of losses with a target whose scores are the logits. */
#ifndef SMX_LOSS_SHORT_H
#define SMX_LOSS_SHORT_H
#include "rows.h"

/* As loss_body.small. */
#define loss_short SMX_FN(loss_short)
bool loss_short(const loss_body *b, const row_kernel *kernel, row_call *c, bool backward);

#endif
