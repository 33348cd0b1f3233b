/* classwise.h - the calibration error of every class (classwise_calibration_error) from blocks of
 * rows: the probabilities of a set need never be in memory together. */
#ifndef CLI_CLASSWISE_H
#define CLI_CLASSWISE_H

#include <softmax.h>

typedef struct classwise {
  int64_t classes, bins;
  double rows;          /* those that count, by weight */
  double *gap, *number; /* of each bin and class: the sum of weight (p - [target is the class]) */
} classwise;

/* Must be freed, after a fault too. */
int classwise_begin(classwise *c, int64_t classes, int64_t bins);
void classwise_free(classwise *c);

/* Rows of logits, or of probabilities as they are in double (logits NULL); a target below 0 leaves
 * its row out; weight: of each row, or NULL. Sums are in the order of the rows, whatever the blocks
 * are. */
int classwise_add(classwise *c, smx_context *context, const smx_tensor *logits, const double *p,
                  const int64_t *target, const double *weight, int64_t rows, double temperature);

/* The mean over the classes. */
double classwise_error(const classwise *c);

#endif
