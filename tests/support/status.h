/* status.h - what a call returned, and numbers that it wrote. */
#ifndef TESTS_STATUS_H
#define TESTS_STATUS_H
#include "unit.h"

#include <math.h>
#include <softmax.h>
#include <string.h>

static inline void good(smx_status status) {
  if (status != SMX_OK) fail_msg("status %d: %s", status, smx_last_error());
}
static inline void refused(smx_status got, smx_status want, const char *word) {
  if (got != want || !strstr(smx_last_error(), word))
    fail_msg("status %d, want %d; \"%s\" should have \"%s\"", got, want, smx_last_error(), word);
}
static inline void near_all(const double *is, const double *should, int n, double tolerance) {
  for (int i = 0; i < n; i++)
    if (!(fabs(is[i] - should[i]) <= tolerance))
      fail_msg("number %d is %.12g, not %.12g", i, is[i], should[i]);
}

#endif
