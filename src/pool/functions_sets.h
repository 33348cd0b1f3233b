/* pool/functions_sets.h - sets of vectors that become one vector, channel by channel: x [leads, n,
 * channels], of which a set has the items from one offset to the next that a mask leaves, or all of
 * them. Everything is in double, items in their order, so threads and batches change no bit. */
#ifndef SMX_POOL_FUNCTIONS_SETS_H
#define SMX_POOL_FUNCTIONS_SETS_H
#include "cpu/cpu.h"
#include "driver/tensor_reals.h"
#include "functions.h"
#include "score/score.h"

enum { SET_WIDTH = 64 }; /* channels that are pooled together */

typedef struct pool_sets {
  const tensor_call *c;
  const score_kernels *math; /* of double */
  int64_t leads, n, channels, sets;
  const int64_t *offsets;    /* NULL: one set of all */
  const unsigned char *mask; /* NULL: everything is there */
} pool_sets;

/* One of them: items first..end-1 of tensor `lead`, of which `count` are there. */
typedef struct pool_set {
  int64_t number, lead, first, end, count;
} pool_set;

/* Sets of x by the ports "mask" and "offsets", where the operator has them. */
pool_sets pool_sets_of(const tensor_call *c);
pool_set pool_set_at(const pool_sets *s, int64_t number);

static inline int64_t pool_set_item(const pool_sets *s, const pool_set *q, int64_t i) {
  return q->lead * s->n + i;
}
static inline bool pool_set_has(const pool_sets *s, const pool_set *q, int64_t i) {
  return !s->mask || s->mask[pool_set_item(s, q, i)];
}

/* The number of an input; -1: the operator has none of that name. */
int pool_input(const smx_op *op, const char *name);

/* What an output of a set of nothing is, by the context; an error where that is asked for. */
double pool_empty_value(const tensor_call *c);
smx_status pool_check_empty(const pool_sets *s);

/* n scores become their softmax: 0 where all are -inf, and shares of those that are +inf where the
 * context says so. False: all are -inf. */
bool pool_softmax(const tensor_call *c, int64_t n, double *a);

/* The same of the items of a set; 0 of what is not there. */
bool pool_softmax_of_set(const pool_sets *s, const pool_set *q, double *a);

/* count doubles of the context's memory; NULL, with an error: there are none. */
double *pool_reserve(const tensor_call *c, int64_t count);

/* 2^-e of a number 2^e <= v < 2^(e + 1), but for rounding at the largest; 2^1022 of smaller ones, 1
 * of 0, an infinity and a NaN. Times that v is about 1, exactly. */
double pool_power_of(double v);

/* Multiplies n numbers by a power of 2 that makes the largest about 1, where their squares may have
 * a sum that overflows. Returns it; else 1. */
double pool_tame(double *x, int64_t n);

/* A power of two no more than 1 / n: times it n numbers have a sum that does not overflow. */
static inline double pool_share_of(int64_t n) {
  double share = 1;
  while (share * (double)n > 1) share /= 2;
  return share;
}

/* log(1 + x) for x > -1. */
double pool_log1p(const score_kernels *math, double x);

#endif
