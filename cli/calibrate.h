/* calibrate.h - the verb `calibrate`: fits maps of logits or of scores, and applies them. A fit is
 * a JSON file: {"format": "softmax-fit", "version": 1, "method", "settings": {...}, "fitted":
 * {...}}, with null for NaN and "inf" for infinity. */
#ifndef CLI_CALIBRATE_H
#define CLI_CALIBRATE_H

#include "bind.h"
#include "options.h"

#include <jansson.h>

extern const setting calibrate_settings[];
int work_calibrate(const options *o);

typedef struct calibrate_method {
  const char *name, *fit, *apply; /* operators; apply NULL: the logits are divided */
  const char *fitted;             /* outputs of the fit that are kept, between spaces */
  bool rows;                      /* of logits [rows, classes]; else of one number a row */
  bool log;                       /* of log-probabilities */
  bool sets;                      /* the result is no probability */
} calibrate_method;

extern const calibrate_method calibrate_methods[];
const calibrate_method *calibrate_find(const char *name); /* NULL: there is none */

/* All numbers of a file, in f32, or in f64 where the file has that: of so many dimensions. Must be
 * freed, after a fault too. */
typedef struct calibrate_numbers {
  input in;
  void *data;
  bool wide;
  int64_t count;
  smx_tensor tensor;
} calibrate_numbers;
int calibrate_read(calibrate_numbers *x, const char *path, const options *o, const calibrate_method *m);
void calibrate_free(calibrate_numbers *x);

/* The logits as the method takes them. */
int calibrate_prepare(const calibrate_method *m, calibrate_numbers *x, smx_context *context);

int calibrate_apply(const options *o, smx_context *context);

#endif
