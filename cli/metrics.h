/* metrics.h - the verb `metrics`: how right, and how rightly sure, rows of logits are. */
#ifndef CLI_METRICS_H
#define CLI_METRICS_H

#include "judge.h"
#include "measure.h"
#include "options.h"

extern const setting metrics_settings[];

int work_metrics(const options *o);

/* What metrics and report have in common: what the options ask for, and the rows of the files that
 * they name, with their metrics. */
typedef struct metrics_request {
  judge_request rows; /* of the first file */
  int64_t k, bins;
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
