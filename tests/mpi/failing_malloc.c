/* failing_malloc.c - a library for LD_PRELOAD: of the allocations of libsoftmax_mpi, and of no
 * other, the one fails that failing_malloc counts down to. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);

long failing_malloc; /* 1: the next one fails; 0: none does */

static bool fails(void *caller) {
  Dl_info info;
  const bool ours = failing_malloc > 0 && dladdr(caller, &info) && info.dli_fname &&
                    strstr(info.dli_fname, "libsoftmax_mpi");
  return ours && --failing_malloc == 0;
}

void *malloc(size_t bytes) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) {
  return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, bytes);
}
