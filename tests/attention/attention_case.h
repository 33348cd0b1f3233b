/* attention_case.h - one call of the attention room: its tensors as values, laid out in guarded
 * memory in several ways, and its results. */
#ifndef TESTS_ATTENTION_CASE_H
#define TESTS_ATTENTION_CASE_H
#include <softmax.h>

#include "util.h"

typedef struct acase {
  int64_t batch, heads, kv_heads, lq, lk, d, e;
  smx_dtype dtype;
  smx_attention_options options; /* its tensors are made from the fields below */
  int with_mask, with_bias, with_slopes, with_sinks;
  double *q, *k, *v; /* in C order of the shapes in softmax.h */
  double *mask, *bias, *slopes, *sinks;
} acase;

/* Options to be changed before acase_fill; dtype f32. */
acase acase_new(int64_t batch, int64_t heads, int64_t kv_heads, int64_t lq, int64_t lk, int64_t d, int64_t e);
void acase_fill(acase *a, uint64_t seed, double size); /* scores have about that deviation */
void acase_free(acase *a);

/* The kind of weights, with the numbers of its row in params; of one beyond the rows, the
 * defaults. */
void acase_weights(acase *a, int weights, size_t rows, const double (*params)[SMX_ATTENTION_PARAMS]);

/* How tensors lie in memory. */
enum { ORDER_BHLD, ORDER_BLHD, ORDER_GAPS, ORDER_REVERSED, ORDERS };

/* A tensor of values in guarded memory, against the end of its arena. */
typedef struct placed {
  smx_tensor t;
  int64_t shape[SMX_MAX_DIMS], strides[SMX_MAX_DIMS];
} placed;
void place(placed *p, int slot, int order, smx_dtype t, int32_t ndim, const int64_t *shape,
           const double *values);
void fetch(const placed *p, void *out); /* elements in C order */

/* The inputs of a case in slots 0, 1, 2 and 5 to 8. Not to be copied: the tensors point into it. */
typedef struct placed_case {
  placed q, k, v, mask, bias, slopes, sinks;
  smx_attention_options options;
} placed_case;
void acase_place(const acase *a, int order, placed_case *p);

/* o [B, Hq, Lq, e] and lse [B, Hq, Lq] of the call, in C order. */
typedef struct results {
  unsigned char *o, *lse;
  size_t o_bytes, lse_bytes;
} results;
int acase_run(const acase *a, smx_context *ctx, int order, results *r); /* the library's status */
void results_free(results *r);
int results_differ(const results *a, const results *b);

/* What dropout multiplies the weights of query head h of sequence b by, [lq][lk], from random
 * numbers written apart from the library's; NULL without dropout. The caller frees it. */
double *acase_keep(const acase *a, int64_t b, int64_t h);

double result_at(smx_dtype t, const unsigned char *bytes, int64_t i);
int64_t acase_offset(const acase *a);

#endif
