/* util.h - what the tests share below the operators: random numbers, element types, distances,
 * memory between guard pages.
 * No dependency but libc, so that the cross-compiled program can use it too; nothing here calls
 * libm. */
#ifndef TESTS_UTIL_H
#define TESTS_UTIL_H
#include <softmax.h>

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

/* How many operators take rows: the first ones of the table. The dimensions of
 * the others have names (tensors.c). */
size_t row_op_count(void);

/* splitmix64. The same numbers on every machine. */
typedef struct rng {
  uint64_t state;
} rng;
uint64_t rng_bits(rng *r);
double rng_uniform(rng *r);           /* [0, 1), a multiple of 2^-32 */
double rng_normal(rng *r);            /* mean 0, deviation 1, within +-6: a sum of twelve uniforms, exact */
int64_t rng_below(rng *r, int64_t n); /* 0 .. n - 1 */

/* Element types. Widening is exact; narrowing rounds to nearest even; a NaN becomes the canonical
 * quiet NaN. */
#define FLOAT_DTYPES 4
extern const smx_dtype float_dtypes[FLOAT_DTYPES]; /* f32 f64 f16 bf16 */
extern const char *const float_dtype_names[FLOAT_DTYPES];
size_t dtype_size(smx_dtype t);
void dtype_copy(smx_dtype t, void *to, const void *from); /* one element */
double dtype_load(smx_dtype t, const void *p);
void dtype_store(smx_dtype t, void *p, double v);
/* step in bytes */
void dtype_store_many(smx_dtype t, unsigned char *out, int64_t step, const double *v, int64_t n);
double dtype_round(smx_dtype t, double v);

uint64_t fnv1a(uint64_t hash, const void *bytes, size_t count);
#define FNV1A_START 0xcbf29ce484222325u

/* 2^k, a normal double. */
double power_of_two(int k);

/* The spacing of f32 values at v, at least that of the smallest normal one. */
double ulp_f32(double v);

/* Memory with an inaccessible page on either side. */
typedef struct arena {
  unsigned char *low;
  size_t bytes;
} arena;
#define ARENAS 40
#define ARENA_BYTES ((size_t)64 << 20) /* address space; pages exist once they are touched */
/* made on first use, kept until the process ends; aborts when there is no memory */
arena *arena_at(int slot);

#endif
