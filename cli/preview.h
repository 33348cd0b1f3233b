/* preview.h - a result as a picture, with libpng where the command is built with it. */
#ifndef CLI_PREVIEW_H
#define CLI_PREVIEW_H

#include "run.h"

/* The first plane of the first result, or the first three as red, green and blue. */
typedef struct preview {
  double *value;                       /* [planes, height, width], as far as they have come */
  int64_t planes, height, width, seen; /* seen: numbers of the result */
} preview;

/* A fault where the command was built without libpng. */
int preview_check(void);

/* Sees the next part of the result: run_request.see, of which user is a preview. */
int preview_see(void *user, const run_block *block);

/* Writes the file, and tells what black and white stand for. Frees the picture, after a fault
 * too. */
int preview_write(preview *p, const char *path, int code);

#endif
