/* options.h - the options of the verbs. They are tables, which help, the manual and the completion
 * read too; the names of parameters and inputs come from the operator table. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "dtype.h"

/* --NAME TEXT: a parameter or an input of some operator, or an option of one verb; in the order of
 * the command line. */
typedef struct named_value {
  const char *name, *text;
} named_value;

typedef struct options {
  const char **files;
  int file_count;
  named_value *named;
  int named_count;
  const char *out, *format, *out_format, *labels;
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

/* What options are for; a verb takes some of these groups. */
enum {
  FOR_HELP = 1,
  FOR_INPUT = 2,   /* how files are read */
  FOR_OUTPUT = 4,  /* where the result goes */
  FOR_FORMAT = 8,  /* that it is an array of some format and type */
  FOR_TYPE = 16,   /* of the result */
  FOR_ROWS = 32,   /* which rows, how many at a time */
  FOR_POLICY = 64, /* rows without a result */
  FOR_INF = 128,   /* rows with +inf */
  FOR_THREADS = 256,
  FOR_GRADIENT = 512,
  FOR_LABELS = 1024,
  FOR_OPERATOR = 2048, /* the names of operators' parameters and inputs */
  MANY = 4096          /* no group: the option may be given more than once */
};

typedef struct setting {
  const char *name;
  char letter;          /* -o, or 0 */
  const char *argument; /* NULL = a switch */
  const char *help;
  uint32_t group;
  /* NULL: it is kept as a named value, for the verb whose own it is */
  int (*set)(options *o, const char *text);
  void (*choices)(char *text, size_t size); /* writes the words it takes: "zero nan error"; or NULL */
} setting;

/* The options that several verbs take, NULL past the last. */
const setting *setting_at(size_t i);

/* Reads the arguments after a verb that takes these groups, and options of its own up to one
 * without a name (NULL = none). Must be freed, after a fault too. */
int options_parse(options *o, uint32_t groups, const setting *own, int argc, const char **argv);
void options_free(options *o);

/* The value of an option of the verb's own; NULL when it was not given. */
const char *options_own(const options *o, const char *name);

/* --OPTION TEXT is wrong. */
int options_refuse(const char *option, const char *text, const char *what);

/* A whole number in min..max, or a number. */
int options_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value);
int options_number(const char *option, const char *text, double *value);

/* Numbers with commas between: `*count` of them, at most `most`. NULL, or what is wrong. */
const char *options_numbers(const char *text, int most, double *values, int *count);

#endif
