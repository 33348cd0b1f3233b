/* sample.h - the verb `sample`: draws from rows of logits. */
#ifndef CLI_SAMPLE_H
#define CLI_SAMPLE_H

#include "options.h"

extern const setting sample_settings[];

int work_sample(const options *o);

#endif
