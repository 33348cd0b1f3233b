/* family.h - the verbs `head` and `pairs`: losses from features. */
#ifndef CLI_FAMILY_H
#define CLI_FAMILY_H

#include "options.h"

extern const setting family_settings[];

int work_head(const options *o);
int work_pairs(const options *o);

#endif
