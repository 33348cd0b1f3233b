/* base/base.h - errors, checked tensors, memory and threads, for every other part of the
 * library. */
#ifndef SMX_BASE_H
#define SMX_BASE_H
#include <softmax.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Stores the message for smx_last_error() and returns the status. */
smx_status smx_fail(smx_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The subject of an error, "softmax: dx"; formatted only if there is one. */
typedef struct smx_label {
  const char *op, *prefix, *port;
} smx_label;
#define SMX_LABEL "%s: %s%s"
#define SMX_LABEL_ARGS(l) (l).op, (l).prefix, (l).port

/* ---- tensors ---- */

bool smx_is_float(smx_dtype t);
static inline bool smx_same_dtype(smx_dtype a, smx_dtype b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}
bool smx_is_mask(smx_dtype t);           /* bool or u8 */
bool smx_is_whole(smx_dtype t);          /* i32 or i64 */
const char *smx_dtype_name(smx_dtype t); /* "f32"; "?" for one the library does not know */

static inline int64_t smx_dtype_bytes(smx_dtype t) { return t.bits / 8; }

/* A whole number of 4 or 8 bytes. */
static inline int64_t smx_whole_at(const char *at, int64_t bytes) {
  return bytes == 4 ? *(const int32_t *)(const void *)at : *(const int64_t *)(const void *)at;
}

/* Keeps the smallest number in *least, which starts below 0. */
static inline void smx_keep_least(_Atomic int64_t *least, int64_t number) {
  int64_t old = atomic_load(least);
  while ((old < 0 || number < old) && !atomic_compare_exchange_weak(least, &old, number)) {}
}

/* a * b, or false when it does not fit. Both >= 0. */
static inline bool smx_multiply(int64_t a, int64_t b, int64_t *out) {
  return !__builtin_mul_overflow(a, b, out);
}

/* A tensor that has been checked: shape and strides spelled out, data at its first element. */
typedef struct smx_view {
  char *data;
  smx_dtype dtype;
  int32_t ndim;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS]; /* strides in elements */
} smx_view;

/* Checks device, dimensions, shape, strides and that addresses do not overflow. A tensor of no
 * elements may have NULL data. */
smx_status smx_view_of(smx_label what, const smx_tensor *t, bool need_data, smx_view *out);

int64_t smx_view_elements(const smx_view *v);

/* Broadcasts v to a shape by NumPy's rules. */
smx_status smx_view_broadcast(smx_label what, smx_view *v, int32_t ndim, const int64_t *shape);

/* No two elements of the view share an address; exact for the layouts arrays have, otherwise says
 * no. */
bool smx_view_injective(const smx_view *v);

/* Whether two views are the same: data, dtype, shape and strides. */
bool smx_view_same(const smx_view *a, const smx_view *b);

/* Whether the address ranges of the two views overlap. */
bool smx_view_overlap(const smx_view *a, const smx_view *b);

/* ---- contexts ---- */

void *smx_alloc(smx_context *ctx, size_t bytes); /* 64-byte aligned */
void smx_free(smx_context *ctx, void *p);
smx_on_empty smx_context_on_empty(const smx_context *ctx);
smx_on_inf smx_context_on_inf(const smx_context *ctx);

/* The same context, but with SMX_EMPTY_ZERO: for a call that consists of calls, and says itself
 * which of its rows are empty. smx_free gives it back; NULL: no memory. */
smx_context *smx_context_with_zeros(smx_context *ctx);

/* Whether a call with this context waits for threads or runs code of the caller's, so that a thread
 * could be cancelled in it. */
bool smx_context_waits(const smx_context *ctx);

/* Holds back the cancellation of this thread; back: to what it was. */
enum { SMX_CANCEL_KEPT = -1 };
int smx_cancel_off(void);
void smx_cancel_back(int before);

/* Runs task(arg, i) for i of 0..count-1 on the context's threads, this one included, all in the
 * default floating-point environment. */
void smx_parallel(smx_context *ctx, int64_t count, void (*task)(void *arg, int64_t i), void *arg);

/* ---- scratch memory of a call (scratch.c) ----
 *
 * all of it is reserved before anything is written */

static inline size_t smx_whole_lines(size_t bytes) { return (bytes + 63) / 64 * 64; }

/* One piece: what the tasks share, and a place for each thread that works on them. */
typedef struct smx_scratch {
  smx_context *ctx;
  char *memory, *shared, *first;
  size_t place;
  int32_t places;
} smx_scratch;

/* False without memory. */
bool smx_scratch_open(smx_scratch *s, smx_context *ctx, size_t shared, size_t place, int64_t tasks);
void smx_scratch_close(smx_scratch *s);

/* A place for this task, 64-byte aligned; NULL where places have no bytes. */
void *smx_scratch_take(smx_scratch *s);
void smx_scratch_give(smx_scratch *s, const void *place);

/* A purse: a context for a call that consists of calls, which lends them memory reserved
 * beforehand. At first it is measuring: calls made with it stop before their work, with
 * SMX_ERR_NOMEM, and the purse knows how much they would have asked for. NULL, false: no memory. */
smx_context *smx_purse_open(smx_context *ctx);
bool smx_purse_fill(smx_context *purse);
void smx_purse_close(smx_context *purse);
bool smx_purse_asks(smx_context *ctx, size_t bytes); /* whether it is still measuring */

/* Allocates a zeroed object from the context and frees it when the function returns; NULL: no
 * memory. For what is large: a public function has 16 KB of stack, with all that it calls. */
typedef struct smx_owned {
  smx_context *ctx;
  void *memory;
} smx_owned;
smx_owned smx_own(smx_context *ctx, size_t bytes);
void smx_disown(const smx_owned *o);
#define SMX_OWN(type, name, ctx) \
  __attribute__((cleanup(smx_disown))) const smx_owned name##_owned = smx_own(ctx, sizeof(type)); \
  type *const name = name##_owned.memory

char *smx_error_text(void); /* of this thread: SMX_ERROR_BYTES */
enum { SMX_ERROR_BYTES = 256 };

/* ---- the pool (threads.c) ---- */

typedef struct smx_pool smx_pool;
smx_pool *smx_pool_create(int32_t threads); /* NULL without memory; threads start at the first run */
void smx_pool_run(smx_pool *pool, int64_t count, void (*task)(void *arg, int64_t i), void *arg);
void smx_pool_destroy(smx_pool *pool);
int32_t smx_usable_cpus(void); /* affinity and cgroup quota respected; at least 1 */

#endif
