/* attend.h - the verb `attention`. */
#ifndef CLI_ATTEND_H
#define CLI_ATTEND_H

#include "blocks.h"
#include "labels.h"

extern const setting attend_settings[];

int work_attention(const options *o);

/* The weights of one head as a heat map, its queries downwards and its keys to the right. q and k: one head each, [1, 1, length, size]; the tensors
 * of `how` are those of this head. names: of the tokens, or NULL. `status` is that of the library, for which the caller knows the words. */
int map_draw(const char *path, smx_context *context, const smx_attention_options *how, const smx_tensor *q, const smx_tensor *k,
             const labels *names, const char *title, smx_status *status);

#endif
