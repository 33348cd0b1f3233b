/* score.h - the verb `score`: how sure rows of logits are. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include "options.h"

extern const setting score_settings[];

int work_score(const options *o);

#endif
