/* sample.h - the verb `sample`: draws from rows of logits. */
#ifndef CLI_SAMPLE_H
#define CLI_SAMPLE_H

#include "options.h"

/* Its options. sample_begin() fills in the steps, which are those of the library. */
extern setting sample_settings[];
void sample_begin(void);

int work_sample(const options *o);

#endif
