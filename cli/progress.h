/* progress.h - a bar on standard error for runs longer than a second, when somebody is looking. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct progress {
  int64_t total;
  struct timespec start;
  bool terminal, shown;
} progress;

void progress_begin(progress *p, int64_t total);
void progress_step(progress *p, int64_t done);
void progress_end(progress *p);

#endif
