/* progress.c - the progress bar. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

enum { WIDTH = 40 };

static double elapsed(const progress *p) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - p->start.tv_sec) + (double)(now.tv_nsec - p->start.tv_nsec) * 1e-9;
}

void progress_begin(progress *p, int64_t total) {
  p->total = total;
  p->shown = false;
  p->terminal = isatty(STDERR_FILENO);
  clock_gettime(CLOCK_MONOTONIC, &p->start);
}

void progress_step(progress *p, int64_t done) {
  if (!p->terminal || p->total <= 0 || elapsed(p) < 1) return;
  double part = (double)done / (double)p->total;
  char bar[WIDTH + 1];
  for (int i = 0; i < WIDTH; i++) bar[i] = i < (int)(part * WIDTH) ? '#' : '.';
  bar[WIDTH] = 0;
  fprintf(stderr, "\r%s %3.0f %%", bar, 100 * part);
  fflush(stderr);
  p->shown = true;
}

void progress_end(progress *p) {
  if (p->shown) fprintf(stderr, "\r%*s\r", WIDTH + 6, "");
}
