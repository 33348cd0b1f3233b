/* metrics.h - the verb `metrics`: how right, and how rightly sure, rows of logits are. */
#ifndef CLI_METRICS_H
#define CLI_METRICS_H

#include "judge.h"
#include "measure.h"
#include "options.h"

/* What both verbs take. */
/* clang-format off */
#define METRICS_SETTINGS                                                                                 \
  {"targets", 0, "FILE", "the class of each row", FOR_OPERATOR, NULL, NULL},                             \
  {"compare", 0, "FILE", "logits of a second model, of the same rows", FOR_OPERATOR, NULL, NULL},        \
  {"ood", 0, "FILE", "logits of outliers: how well scores tell them from the rows of LOGITS",            \
   FOR_OPERATOR, NULL, NULL},                                                                            \
  {"bins", 0, "N", "of the calibration errors and curves; 15 by default", FOR_OPERATOR, NULL, NULL},     \
  {"k", 'k', "K", "of the top-k accuracy; 5 by default, at most the classes there are", FOR_OPERATOR,    \
   NULL, NULL},                                                                                          \
  {"temperature", 0, "T", "divides the logits; 1 by default", FOR_OPERATOR, NULL, NULL},                 \
  {"draws", 0, "N", "intervals from N bootstrap draws; with --compare N draws of signs", FOR_OPERATOR,   \
   NULL, NULL},                                                                                          \
  {"seed", 0, "N", "of the draws; 0 by default", FOR_OPERATOR, NULL, NULL},                              \
  {"ignore-index", 0, "N", "the target of rows that do not count; -100 by default", FOR_OPERATOR, NULL,  \
   NULL},                                                                                                \
  {"probabilities", 0, NULL, "the files have probabilities, not logits", FOR_OPERATOR, NULL, NULL}
/* clang-format on */

extern const setting metrics_settings[];

int work_metrics(const options *o);

/* What metrics and report have in common: what the options ask for, and the rows of the files that
 * they name, with their metrics. */
typedef struct metrics_request {
  judge_request rows; /* of the first file */
  int64_t k;
  drawing draws;
  const char *second, *outside; /* files, or NULL */
} metrics_request;

typedef struct metrics_result {
  judged first, second, outside;
  measures of_first, of_second;
  comparison compared;
  outliers found;
} metrics_result;

int metrics_options(metrics_request *q, const char *verb, const options *o);

/* Makes the context. */
int metrics_begin(metrics_request *q);

/* What is told of blocks, if anything, gets these as its user: of the first file, of the second. */
int metrics_take(metrics_result *m, const metrics_request *q, void *see_first, void *see_second);

/* After a fault too. */
void metrics_free(metrics_result *m, metrics_request *q);

/* Text to the file of -o, or to standard output. */
int metrics_put(const options *o, const char *text, size_t length);

#endif
