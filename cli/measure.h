/* measure.h - metrics of a set of rows whose classes are known, by the operators of the library
 * (ranking_metrics, calibration_error, risk_coverage); as a table and as JSON. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include "judge.h"

#include <jansson.h>
#include <stdio.h>

/* Of rows whose true class it is (there), that were taken for it, and both, by weight; confidence:
 * a sum over those taken for it. */
typedef struct class_count {
  double there, taken, right, confidence;
} class_count;

typedef struct interval {
  double low, high;
} interval;

/* Random draws, if count is not 0. */
typedef struct drawing {
  int64_t count, seed;
} drawing;

typedef struct measure_request {
  smx_context *context;
  double temperature;
  int64_t k, bins;
  drawing draws;
} measure_request;

enum { MEASURE_MEANS = 3, MEASURE_BINS_MOST = 1000 };

typedef struct measures {
  int64_t rows, all, classes, k, bin_count;
  bool weighted; /* numbers are by weight, counts of rows not */
  double weight; /* of the rows together */
  double temperature, accuracy, top_k, log_loss, brier, confidence, entropy;
  interval mean[MEASURE_MEANS]; /* 95 %: of accuracy, log loss, Brier score; by weight from draws alone */
  drawing draws;                /* that they are of */
  double macro_f1, balanced, matthews;
  double ece, mce, rms, adaptive, ks, debiased, classwise, mmce;
  double reliability, resolution, uncertainty; /* of the Brier score of being right */
  double auroc, precision, other_precision, fpr;
  double aurc, excess;
  class_count *of_class; /* classes of them */
  int64_t *bin_rows;
  double *bin_mean, *bin_accuracy, *risk; /* risk: of the 1, 2, ... rows most confident */
} measures;

/* Must be freed, after a fault too. */
int measure(measures *m, const judged *j, const measure_request *r);
void measure_free(measures *m);

/* Outliers against the rows of a set, by each score of which large is sure. */
typedef struct outliers {
  int64_t inside, outside;
  double auroc[JUDGE_SURE], precision[JUDGE_SURE], other_precision[JUDGE_SURE], fpr[JUDGE_SURE],
      error[JUDGE_SURE];
} outliers;
int measure_outliers(outliers *u, const judged *in, const judged *out, smx_context *context);

/* Two models on the same rows. McNemar's test, exact: how likely is it that the rows that one has
 * right and the other wrong fall as unevenly, either way, by the toss of a coin? */
typedef struct comparison {
  int64_t both, first, second, neither; /* rows that both have right, the first alone, ... */
  double p, accuracy, log_loss;         /* differences: the second less the first */
  double drawn;                         /* p of the log loss by draws of signs; NaN without */
  interval accuracy_range, log_loss_range;
} comparison;
int measure_comparison(comparison *c, const judged *a, const judged *b, const measure_request *r);

/* What is shown. */
void measure_print(FILE *to, const measures *m);
void measure_print_outliers(FILE *to, const outliers *u);
void measure_print_comparison(FILE *to, const comparison *c);

/* "metrics", "intervals" and what they are about; numbers that JSON does not have are null, and
 * infinities the strings "inf" and "-inf". */
json_t *measure_json(const measures *m);
json_t *measure_json_definitions(void); /* key, title and meaning of each metric */
json_t *measure_json_outliers(const outliers *u);
json_t *measure_json_comparison(const comparison *c);
json_t *measure_text(const char *text); /* a name that need not be UTF-8 */

#endif
