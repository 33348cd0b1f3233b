/* output.h - a file that appears whole or not at all: it gets its name at the end, and has none
 * before where the file system can do that. Streams, devices and descriptors that were inherited
 * are written as they are. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct output {
  int fd;
  int target;      /* where a spool file is copied to, or -1 */
  char *path;      /* the final name, links followed; NULL for a stream */
  char *temporary; /* in the same directory: for a file that cannot be without a name, or replaces another */
  bool named;      /* the file lies under that name */
  const char *name;
  uint64_t position; /* of a stream */
  bool stream;       /* cannot seek */
} output;

/* "-" is standard output. With random, pieces may be written in any order even when the target is a
 * pipe. */
int output_open(output *o, const char *path, bool random);
int output_write(output *o, uint64_t offset, const void *data, size_t bytes);

/* Makes the file durable and gives it its name. The output is closed, whatever happens. */
int output_commit(output *o);

/* Removes what was written. Harmless after a commit. */
void output_abandon(output *o);

#endif
