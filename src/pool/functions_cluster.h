/* pool/functions_cluster.h - tokens that clusters replace: x [leads, n, channels], of which a mask
 * leaves some. A method says which cluster a token is in and what stands for a cluster; here is
 * what is around it. A lead is a task, in double, so threads and batches change no bit. */
#ifndef SMX_POOL_FUNCTIONS_CLUSTER_H
#define SMX_POOL_FUNCTIONS_CLUSTER_H
#include "driver/carve.h"
#include "functions_sets.h"

/* The tokens of a lead that are there, one behind the other, times a power of 2 that makes the
 * largest number about 1, so that no square overflows. */
typedef struct token_set {
  int64_t count, clusters;
  bool none; /* a NaN, an infinity, or a weight below 0: there are no clusters */
  double by, by_weight;
  double *x, *weight; /* [count, channels], [count]: 1 without weights */
  int64_t *place;     /* of a token in its lead */
  int64_t *cluster;   /* of a token: those of smaller tokens have smaller numbers */
  double *share;      /* of a token in what stands for its cluster */
  double *total;      /* of the weights of a cluster; 0: they do not count */
  double *y;          /* [clusters, channels] */
  double *length;     /* of each y, which has length 1 then, 0 of one of zeros; NULL: y is as it was */
  void *own;          /* of the method */
} token_set;

typedef struct token_pool token_pool;
typedef struct token_method {
  /* Which cluster each token is in, their number, what stands for each, and shares and totals. */
  void (*cluster)(const token_pool *p, token_set *q);
  /* Divides memory into q->own, which has TOKEN_OWN bytes, as carve.h has it. */
  void (*memory)(const token_pool *p, carver *c, token_set *q);
} token_method;

struct token_pool {
  pool_sets sets;
  const token_method *method;
  int64_t rows; /* of y */
  smx_scratch scratch;
};

enum { TOKEN_OWN = 128, TOKEN_LANES = 8 };
static inline int64_t token_blocks(int64_t n) { return (n + TOKEN_LANES - 1) / TOKEN_LANES; }

/* The squares of the distances from x to TOKEN_LANES others, whose elements j lie side by side:
 * each in the order of its elements. */
void pool_token_distances(const double *x, const double *others, int64_t elements, double *square);

/* A whole number of a tensor. */
static inline int64_t *pool_whole_at(const smx_view *v, int64_t at) {
  return (int64_t *)(void *)v->data + at;
}

smx_status pool_tokens(const tensor_call *c, const token_method *method);
smx_status pool_tokens_backward(const tensor_call *c, const token_method *method);

#endif
