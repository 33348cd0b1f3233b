/* guard.c - see guard.h. A block is [header page][data pages][guard page]; the header is made
 * inaccessible too. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "guard.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POISONS 1
#endif
#endif
#ifdef POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { FILL = 0xa5 };

typedef struct header {
  size_t pages, bytes; /* of data, of the block */
} header;

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static void fail(const char *what) {
  fprintf(stderr, "guard: %s\n", what);
  abort();
}
static void protect(void *p, size_t bytes, int how) {
  if (mprotect(p, bytes, how)) fail("mprotect");
}

/* The header page of a block: its data start in the page after it. */
static unsigned char *head_of(const void *p) {
  const uintptr_t page = page_bytes();
  return (unsigned char *)((uintptr_t)p / page * page - page);
}

void *guard_alloc(size_t bytes, size_t alignment, bool low) {
  const size_t page = page_bytes(), rounded = (bytes + alignment - 1) / alignment * alignment;
  const size_t own = rounded ? rounded : alignment, data = (own + page - 1) / page * page;
  unsigned char *map =
      mmap(NULL, data + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) fail("no memory");
  unsigned char *start = map + page, *p = low ? start : start + data - own;
  memset(start, FILL, data);
  *(header *)(void *)map = (header){data / page, bytes};
  protect(map, page, PROT_NONE);
  protect(start + data, page, PROT_NONE);
  ASAN_POISON_MEMORY_REGION(start, (size_t)(p - start));
  ASAN_POISON_MEMORY_REGION(p + bytes, (size_t)(start + data - (p + bytes)));
  return p;
}

void guard_read_only(void *p) {
  unsigned char *map = head_of(p);
  const size_t page = page_bytes();
  protect(map, page, PROT_READ);
  const header h = *(const header *)(const void *)map;
  protect(map, page, PROT_NONE);
  protect(map + page, h.pages * page, PROT_READ);
}

static void check_fill(const unsigned char *from, const unsigned char *to) {
  for (; from < to; from++)
    if (*from != FILL) fail("bytes around a buffer were written");
}

void guard_free(void *p) {
  if (!p) return;
  const size_t page = page_bytes();
  unsigned char *map = head_of(p), *start = map + page;
  protect(map, page, PROT_READ);
  const header h = *(const header *)(const void *)map;
  ASAN_UNPOISON_MEMORY_REGION(start, h.pages * page);
  check_fill(start, p);
  check_fill((unsigned char *)p + h.bytes, start + h.pages * page);
  munmap(map, (h.pages + 2) * page);
}

/* ---- a context ---- */

static void *heap_alloc(void *user, size_t bytes, size_t alignment) {
  guard_heap *heap = user;
  if (bytes >> 29) return NULL; /* more than a test should need */
  if (atomic_load(&heap->left) >= 0 && atomic_fetch_sub(&heap->left, 1) <= 0) {
    atomic_store(&heap->left, 0);
    return NULL;
  }
  atomic_fetch_add(&heap->live, 1);
  return guard_alloc(bytes, alignment, heap->low);
}
static void heap_release(void *user, void *p) {
  guard_heap *heap = user;
  if (p) atomic_fetch_sub(&heap->live, 1);
  guard_free(p);
}

smx_context *guard_context(guard_heap *heap, smx_context_options options) {
  smx_context *ctx = NULL;
  options.size = sizeof options;
  options.alloc = heap_alloc, options.release = heap_release, options.alloc_user = heap;
  if (smx_context_create(&options, &ctx) != SMX_OK) fail(smx_last_error());
  return ctx;
}

/* ---- tensors ---- */

/* Axes from the one whose elements lie farthest apart to the one whose lie nearest. */
static void order_axes(unsigned number, int32_t ndim, int32_t *axis) {
  for (int32_t d = 0; d < ndim; d++) axis[d] = d;
  for (int32_t d = 0; d + 1 < ndim; d++) {
    const int32_t left = ndim - d, other = d + (int32_t)(number % (unsigned)left), kept = axis[other];
    number /= (unsigned)left;
    axis[other] = axis[d], axis[d] = kept;
  }
}

void guard_tensor(guarded *g, smx_dtype t, int32_t ndim, const int64_t *shape, guard_layout how) {
  const int64_t size = t.bits / 8;
  int64_t span = 1, first = 0;
  int32_t axis[SMX_MAX_DIMS];
  bool any = true;
  *g = (guarded){.t = {.device = {1, 0}, .ndim = ndim, .dtype = t}};
  g->t.shape = g->shape, g->t.strides = g->strides;
  for (int32_t d = 0; d < ndim; d++) g->shape[d] = shape[d], any &= shape[d] > 0;
  order_axes(how.order, ndim, axis);
  for (int32_t i = ndim - 1; i >= 0; i--) {
    const int32_t d = axis[i];
    const bool repeated = how.repeated >> d & 1, reversed = how.reversed >> d & 1;
    const int64_t stride = repeated ? 0 : how.gaps >> d & 1 ? 2 * span : span;
    const int64_t reach =
        any ? (shape[d] - 1) * stride : 0; /* the others may have any size where one has 0 */
    g->strides[d] = reversed ? -stride : stride;
    if (reversed) first += reach;
    if (!repeated) span += reach;
  }
  g->bytes = any ? (size_t)(span * size) : 0;
  g->block = guard_alloc(g->bytes, (size_t)size, how.low);
  g->t.data = any ? g->block + first * size : NULL; /* what is empty may be nowhere */
}

int64_t guard_count(const guarded *g) {
  int64_t n = 1;
  for (int32_t d = 0; d < g->t.ndim; d++) n *= g->shape[d];
  return n;
}

unsigned char *guard_element(const guarded *g, int64_t i) {
  int64_t at = 0;
  for (int32_t d = g->t.ndim - 1; d >= 0; d--) {
    at += i % g->shape[d] * g->strides[d];
    i /= g->shape[d];
  }
  return (unsigned char *)g->t.data + at * (g->t.dtype.bits / 8);
}
