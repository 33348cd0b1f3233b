/* page_model.h - what the page shows of one model beside its metrics. */
#ifndef CLI_PAGE_MODEL_H
#define CLI_PAGE_MODEL_H

#include "labels.h"
#include "measure.h"

/* The metrics as measure_json has them, and lists: risk by coverage, pairs that are confused,
 * errors by confidence, classes. NULL: memory has run out. */
json_t *page_model(const judged *j, const measures *m, const labels *names);

/* How often each score has each value, inside and outside. */
json_t *page_histograms(const judged *in, const judged *out);

#endif
