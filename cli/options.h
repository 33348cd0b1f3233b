/* options.h - the options of a run. They are a table, which help, the manual and the completion read too; the names of parameters and
 * inputs come from the operator table. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "dtype.h"

/* --NAME TEXT: a parameter or an input of some operator. */
typedef struct named_value {
  const char *name, *text;
} named_value;

typedef struct options {
  const char **files;
  int file_count;
  named_value *named;
  int named_count;
  const char *out, *format, *out_format;
  const char *dout[SMX_MAX_PORTS];
  int dout_count;
  const dtype *type, *type_in; /* of the result; of raw and text inputs */
  smx_shape shape;
  bool has_shape, header, backward, help;
  int32_t axis, threads;
  int64_t block;
  smx_on_empty on_empty;
  smx_on_inf on_inf;
  char **texts; /* owns what the fields above point to */
  int text_count;
} options;

typedef struct setting {
  const char *name;
  char letter;          /* -o, or 0 */
  const char *argument; /* NULL = a switch */
  const char *help;
  int (*set)(options *o, const char *text);
  void (*choices)(char *text, size_t size); /* writes the words it takes: "zero nan error"; or NULL */
} setting;

/* The options, NULL past the last. */
const setting *setting_at(size_t i);

/* Reads the arguments after the verb. Must be freed, after a fault too. */
int options_parse(options *o, int argc, const char **argv);
void options_free(options *o);

/* The i-th of the distinct names of all operators' parameters and inputs; NULL past the last. */
const char *operator_name_at(size_t i);

#endif
