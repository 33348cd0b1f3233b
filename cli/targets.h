/* targets.h - the class of each row, and its weight, from files. */
#ifndef CLI_TARGETS_H
#define CLI_TARGETS_H

#include "bind.h"

/* Reads in->path, which has a class for each row of x, along whose last axis rows run. `classes` is
 * the caller's to free; in must be freed with input_free, after a fault too. */
int targets_read(input *in, const options *o, const input *x, int64_t **classes);

/* The same of weights, which are finite and not below 0. */
int weights_read(input *in, const options *o, const input *x, double **weights);

#endif
