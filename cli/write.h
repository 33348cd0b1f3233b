/* write.h - results on their way into the file that -o names. */
#ifndef CLI_WRITE_H
#define CLI_WRITE_H

#include "io/io.h"
#include "io/output.h"
#include "options.h"

typedef struct result_file {
  output file;
  io_writer writer;
  bool open;
} result_file;

/* Arrays in the format that the options name. A format of one array takes the first of them. */
int write_begin(result_file *f, const options *o, int32_t count, const io_spec *specs);

/* The next piece of array i, which has as many bytes; nothing for one that the format has no place
 * for. */
int write_put(result_file *f, int32_t i, const void *data, size_t bytes);

/* Gives the file its name. */
int write_end(result_file *f);

/* After a fault, and harmless after write_end: no part of the file is left. */
void write_drop(result_file *f);

/* A file, whole or not at all. */
int write_file(const char *path, const void *data, size_t bytes);

#endif
