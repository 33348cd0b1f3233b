/* progress.c - the progress bar. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR = 40, LINE = 79 };

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

/* "1:05:09", "5:09". */
static void clock_text(double seconds, char *text, size_t size) {
  long all = (long)(seconds + 0.5);
  if (all >= 3600) snprintf(text, size, "%ld:%02ld:%02ld", all / 3600, all / 60 % 60, all % 60);
  else snprintf(text, size, "%ld:%02ld", all / 60, all % 60);
}

void progress_step(progress *p, int64_t done) {
  if (!p->terminal || p->total <= 0 || done <= 0) return;
  const double passed = elapsed(p), part = (double)done / (double)p->total;
  if (passed < 1) return;
  char bar[BAR + 1], left[32];
  for (int i = 0; i < BAR; i++) bar[i] = i < (int)(part * BAR) ? '#' : '.';
  bar[BAR] = 0;
  clock_text(passed * (1 - part) / part, left, sizeof left);
  fprintf(stderr, "\r%s %3.0f %%, %s left  ", bar, 100 * part, left);
  fflush(stderr);
  p->shown = true;
}

void progress_end(progress *p) {
  if (p->shown) fprintf(stderr, "\r%*s\r", LINE, "");
}
