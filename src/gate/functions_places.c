/* gate/functions_places.c - moe_permutation: which row of which expert each token becomes.
 *
 * Pairs of a token and an expert are served in some order; an expert's rows are in that order, and
 * it serves no more than its capacity. Who comes when is counted by one thread, in whole numbers;
 * tasks write the rows. */
#include <string.h>

#include "driver/merge_sort.h"
#include "driver/reals.h"
#include "functions.h"

enum { INDEX, WEIGHT };                                      /* inputs */
enum { SLOT, SOURCE, OFFSET, COUNT, DROPPED, EXPERT, PAIR }; /* outputs */
enum { POSITION, CHOICE, PRIORITY, SCORE };                  /* the parameter `order` */
enum { TASK = 2048 };                                        /* tokens whose rows are written by a task */

typedef struct places {
  const tensor_call *c;
  int64_t tokens, k, pairs, experts, capacity, block, rows; /* capacity INT64_MAX: none */
  bool fixed;
  int64_t *order, *merged, *rank, *count, *offset; /* order: pairs, or tokens, as they are served */
  double *key;
} places;

static const int64_t *index_of(const places *p) {
  return (const int64_t *)(const void *)p->c->in.view[INDEX].data;
}
static int64_t *out_of(const places *p, int port) {
  return p->c->out.given[port] ? (int64_t *)(void *)p->c->out.view[port].data : NULL;
}

/* ---- sizes ---- */

/* Tokens that an expert takes. */
static int64_t capacity_of(const dims *d, int64_t pairs, int64_t experts) {
  const double capacity = dims_param(d, "capacity", 0), factor = dims_param(d, "factor", 0);
  if (capacity > 0) return (int64_t)capacity;
  if (factor == 0) return INT64_MAX;
  const double share = (double)pairs * factor / (double)experts;
  const int64_t whole = share < 9e15 ? (int64_t)share : (int64_t)9e15;
  return (double)whole < share || whole == 0 ? whole + 1 : whole;
}

static int64_t whole_blocks(int64_t n, int64_t block) { return (n + block - 1) / block * block; }

smx_status gate_permutation_sizes(dims *d) {
  const int64_t tokens = dims_value(d, "t", 0), k = dims_value(d, "k", 0);
  const int64_t experts = dims_value(d, "experts", 0), block = (int64_t)dims_param(d, "align", 1);
  const bool is_fixed = dims_param(d, "layout", 0) != 0;
  int64_t pairs, rows, fixed;
  const bool many = !smx_multiply(tokens, k, &pairs);
  const int64_t capacity = many ? INT64_MAX : capacity_of(d, pairs, experts);
  if (is_fixed && !many && capacity == INT64_MAX)
    return smx_fail(SMX_ERR_PARAM, "%s: layout is fixed, but there is neither capacity nor factor",
                    d->op->name);
  if (many || !smx_multiply(experts, block, &rows) || __builtin_add_overflow(pairs, rows, &rows) ||
      rows > INT64_MAX / 64 ||
      (is_fixed && (capacity > INT64_MAX / 2 ||
                    !smx_multiply(experts, whole_blocks(capacity, block), &fixed) || fixed > INT64_MAX / 64)))
    return smx_fail(SMX_ERR_SHAPE, "%s: %lld tokens of %lld experts are too many rows", d->op->name,
                    (long long)tokens, (long long)experts);
  /* an expert without tokens has no block, so there are no more blocks than pairs either */
  const int64_t most = whole_blocks(pairs + (pairs < experts ? pairs : experts) * (block - 1), block);
  dims_set(d, "rows", 0, is_fixed ? fixed : most);
  return SMX_OK;
}

/* ---- the order of service ---- */

/* Larger keys first, of equal ones the smaller number; a NaN last. */
static bool is_before(const void *keys, int64_t a, int64_t b) {
  const double *key = keys;
  if (key[a] != key[b] && !(key[a] != key[a] && key[b] != key[b])) return key[a] > key[b] || key[b] != key[b];
  return a < b;
}
static void sort_order(places *p, int64_t count) {
  for (int64_t i = 0; i < count; i++) p->order[i] = i;
  p->order = smx_merge_sort(p->order, p->merged, count, is_before, p->key);
}

static void take_keys(places *p) {
  smx_reals_load(p->c->is_f64, p->c->in.view[WEIGHT].data, p->pairs, p->key);
}
/* The largest weight of each token. */
static void take_token_keys(places *p) {
  take_keys(p);
  for (int64_t t = 0; t < p->tokens; t++) {
    double best = -__builtin_inf();
    for (int64_t j = 0; j < p->k; j++) best = p->key[t * p->k + j] > best ? p->key[t * p->k + j] : best;
    p->key[t] = best;
  }
}

/* The next free row of the expert of each of n pairs, if the capacity leaves one; pairs are `step`
 * apart, or those of a list. */
static void serve(places *p, int64_t first, int64_t step, int64_t n, const int64_t *list) {
  const int64_t *index = index_of(p), capacity = p->capacity;
  int64_t *count = p->count, *rank = p->rank;
  for (int64_t i = 0; i < n; i++) {
    const int64_t pair = first + (list ? list[i] : i) * step, expert = index[pair];
    const int64_t at = expert < 0 ? capacity : count[expert]++;
    rank[pair] = at < capacity ? at : -1;
  }
}

static void serve_all(places *p, int order) {
  if (order == PRIORITY) take_token_keys(p), sort_order(p, p->tokens);
  if (order == SCORE) take_keys(p), sort_order(p, p->pairs);
  if (order == POSITION) serve(p, 0, 1, p->pairs, NULL);
  else if (order == SCORE) serve(p, 0, 1, p->pairs, p->order);
  else
    for (int64_t j = 0; j < p->k; j++) serve(p, j, p->k, p->tokens, order == PRIORITY ? p->order : NULL);
}

/* ---- rows ---- */

/* Every expert's rows follow those of the one before, in whole blocks. */
static int64_t put_offsets(places *p) {
  int64_t kept = 0;
  p->offset[0] = 0;
  for (int64_t e = 0; e < p->experts; e++) {
    const int64_t n = p->count[e] < p->capacity ? p->count[e] : p->capacity;
    p->offset[e + 1] = p->offset[e] + whole_blocks(p->fixed ? p->capacity : n, p->block);
    kept += n;
  }
  return kept;
}

/* Rows that no pair fills, of expert e or behind all. */
static void fill_rest(int64_t *row, int64_t from, int64_t end) {
  for (int64_t i = from; row && i < end; i++) row[i] = -1;
}

/* The row of each pair of some tokens, and what is there. */
static void write_task(void *arg, int64_t task) {
  const places *p = arg;
  const int64_t *index = index_of(p), *rank = p->rank, *offset = p->offset, k = p->k;
  int64_t *slot = out_of(p, SLOT), *source = out_of(p, SOURCE), *pair = out_of(p, PAIR);
  const int64_t end = (task + 1) * TASK < p->tokens ? (task + 1) * TASK : p->tokens;
  for (int64_t t = task * TASK, i = t * k; t < end; t++)
    for (int64_t j = 0; j < k; j++, i++) {
      const int64_t row = rank[i] < 0 ? -1 : offset[index[i]] + rank[i];
      slot[i] = row;
      if (row >= 0 && source) source[row] = t;
      if (row >= 0 && pair) pair[row] = i;
    }
}

static void write_all(places *p) {
  int64_t *expert = out_of(p, EXPERT), *source = out_of(p, SOURCE), *pair = out_of(p, PAIR), served = 0;
  const int64_t kept = put_offsets(p), *offset = p->offset;
  for (int64_t e = 0; e < p->experts; e++) {
    const int64_t n = p->count[e] < p->capacity ? p->count[e] : p->capacity;
    for (int64_t i = offset[e]; expert && i < offset[e + 1]; i++) expert[i] = e;
    fill_rest(source, offset[e] + n, offset[e + 1]), fill_rest(pair, offset[e] + n, offset[e + 1]);
    served += p->count[e];
  }
  fill_rest(expert, offset[p->experts], p->rows), fill_rest(source, offset[p->experts], p->rows);
  fill_rest(pair, offset[p->experts], p->rows);
  smx_parallel(p->c->ctx, (p->tokens + TASK - 1) / TASK, write_task, p);
  memcpy(out_of(p, OFFSET), p->offset, (size_t)(p->experts + 1) * sizeof *p->offset);
  if (out_of(p, COUNT)) memcpy(out_of(p, COUNT), p->count, (size_t)p->experts * sizeof *p->count);
  if (out_of(p, DROPPED)) *out_of(p, DROPPED) = served - kept;
}

smx_status gate_permutation(const tensor_call *c) {
  places p = {.c = c, .tokens = tensor_dim(c, "t"), .k = tensor_dim(c, "k"), .rows = tensor_dim(c, "rows")};
  const int order = (int)tensor_param(c, "order");
  if (order >= PRIORITY && !c->in.given[WEIGHT])
    return smx_fail(SMX_ERR_NULL, "%s: weight is NULL, which this order is by", c->op->name);
  p.pairs = p.tokens * p.k, p.experts = tensor_dim(c, "experts");
  p.capacity = capacity_of(&c->dims, p.pairs, p.experts);
  p.block = (int64_t)tensor_param(c, "align"), p.fixed = tensor_param(c, "layout") != 0;
  const int64_t sorted = order < PRIORITY ? 0 : p.k ? p.pairs : p.tokens; /* what is sorted, at most */
  int64_t *memory = smx_alloc(c->ctx, (size_t)(p.pairs + 3 * sorted + 2 * p.experts + 1) * sizeof *memory);
  if (!memory)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld pairs", c->op->name, (long long)p.pairs);
  p.count = memory, p.offset = p.count + p.experts, p.rank = p.offset + p.experts + 1;
  p.order = p.rank + p.pairs, p.merged = p.order + sorted, p.key = (double *)(void *)(p.merged + sorted);
  memset(p.count, 0, (size_t)p.experts * sizeof *p.count);
  serve_all(&p, order);
  write_all(&p);
  smx_free(c->ctx, memory);
  return SMX_OK;
}
