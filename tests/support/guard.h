/* guard.h - memory between inaccessible pages, and a context and tensors made of it: what is read
 * or written outside of a buffer faults, whoever runs the test. Between a buffer and its page there
 * is less than the alignment on one side; the bytes up to the other page are poisoned for
 * AddressSanitizer and looked at when the buffer is freed. */
#ifndef TESTS_GUARD_H
#define TESTS_GUARD_H
#include <softmax.h>
#include <stdbool.h>

/* bytes, against the page behind, or before (low). Never NULL: aborts without memory. Filled with
 * 0xa5. */
void *guard_alloc(size_t bytes, size_t alignment, bool low);
void guard_free(void *p);      /* aborts where bytes around it have changed; NULL is allowed */
void guard_read_only(void *p); /* a later write faults; guard_free works as ever */

/* The memory of a context, for many threads at once. */
typedef struct guard_heap {
  _Atomic int64_t live,
      left; /* blocks that are not freed; allocations before the first that fails, or -1: none does */
  bool low;
} guard_heap;

/* A context whose scratch memory is guarded. Aborts where it cannot be made. */
smx_context *guard_context(guard_heap *heap, smx_context_options options);

/* How a tensor lies: bit d of the masks is of axis d. */
typedef struct guard_layout {
  unsigned order;    /* which permutation of the axes; 0: C order */
  unsigned gaps;     /* axes whose elements lie twice as far apart */
  unsigned reversed; /* axes of negative stride */
  unsigned repeated; /* axes of stride 0 */
  bool low;
} guard_layout;

typedef struct guarded {
  smx_tensor t;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
  unsigned char *block;
  size_t bytes; /* of block */
} guarded;

/* Into *g, which must not be moved while g->t is used. */
void guard_tensor(guarded *g, smx_dtype t, int32_t ndim, const int64_t *shape, guard_layout how);
/* The address of element i in C order. */
unsigned char *guard_element(const guarded *g, int64_t i);
int64_t guard_count(const guarded *g);

#endif
