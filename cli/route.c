/* route.c - the verb `route`: runs gate_topk, and counts the tokens of each expert. */
#include "route.h"

#include "dtype.h"
#include "fault.h"
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

const setting route_settings[] = {
    {"k", 'k', "K", "experts of a token; 2 by default", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

enum { WEIGHT, INDEX };            /* outputs of gate_topk */
enum { LINES = 32, COLUMNS = 40 }; /* experts that are listed, at most; a bar of the busiest */

typedef struct expert {
  int64_t number, tokens;
  double weight;
} expert;

typedef struct load {
  expert *experts;
  int64_t count, tokens, k, chosen, with_nan, empty;
} load;

static double number_at(const smx_tensor *t, int64_t i) {
  const dtype *d = dtype_of(t->dtype);
  return d->get((const unsigned char *)t->data + i * (int64_t)d->bytes);
}

static int see_load(void *user, const run_block *b) {
  load *l = user;
  const smx_tensor *index = b->out[INDEX], *weight = b->out[WEIGHT];
  l->k = index->shape[index->ndim - 1], l->count = b->whole->dim[b->whole->ndim - 1], l->tokens = 1;
  for (int32_t i = 0; i + 1 < index->ndim; i++) l->tokens *= index->shape[i];
  l->experts = calloc((size_t)l->count + 1, sizeof *l->experts);
  if (!l->experts) return fault_memory((size_t)l->count * sizeof *l->experts);
  for (int64_t e = 0; e < l->count; e++) l->experts[e].number = e;
  for (int64_t i = 0; i < l->tokens * l->k; i++) {
    const int64_t e = (int64_t)number_at(index, i);
    const bool first = i % l->k == 0, nan = isnan(number_at(weight, i));
    if (e < 0) {
      l->with_nan += first && nan, l->empty += first && !nan;
      continue;
    }
    l->experts[e].tokens++, l->experts[e].weight += number_at(weight, i), l->chosen++;
  }
  return EXIT_OK;
}

/* The busiest first, of equal ones the smaller number. */
static int compare(const void *a, const void *b) {
  const expert *x = a, *y = b;
  if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
  return x->number < y->number ? -1 : x->number > y->number;
}

static void print_load(load *l) {
  const double mean = (double)l->chosen / (double)(l->count ? l->count : 1);
  double squares = 0, entropy = 0;
  qsort(l->experts, (size_t)l->count, sizeof *l->experts, compare);
  printf("%7s %9s %7s %9s\n", "expert", "tokens", "share", "weight");
  for (int64_t i = 0; i < l->count; i++) {
    const expert *e = l->experts + i;
    squares += ((double)e->tokens - mean) * ((double)e->tokens - mean);
    if (e->tokens)
      entropy -= (double)e->tokens / (double)l->chosen * log((double)e->tokens / (double)l->chosen);
    if (i >= LINES) continue;
    const int bar =
        l->experts[0].tokens ? (int)((double)e->tokens * COLUMNS / (double)l->experts[0].tokens) : 0;
    printf("%7" PRId64 " %9" PRId64 " %6.2f%% %9.4f  %.*s\n", e->number, e->tokens,
           l->chosen ? 100 * (double)e->tokens / (double)l->chosen : 0,
           e->tokens ? e->weight / (double)e->tokens : 0, bar, "########################################");
  }
  if (l->count > LINES)
    printf("    ... %9" PRId64 " more, of %" PRId64 " tokens at least\n", l->count - LINES,
           l->experts[l->count - 1].tokens);
  printf("%" PRId64 " token%s, %" PRId64 " of %" PRId64 " experts each", l->tokens, l->tokens == 1 ? "" : "s",
         l->k, l->count);
  if (l->chosen)
    printf(
        "; the busiest has %.2f times the mean, the deviation is %.2f of it, the entropy %.3f of %.3f nats",
        (double)l->experts[0].tokens / mean, sqrt(squares / (double)l->count) / mean, entropy,
        log((double)l->count));
  if (l->with_nan) printf("; %" PRId64 " with NaN", l->with_nan);
  if (l->empty) printf("; %" PRId64 " without experts", l->empty);
  putchar('\n');
}

int work_route(const options *o) {
  if (!o->file_count) return fault(EXIT_USAGE, "route: no input file; softmax help route tells more");
  load l = {.experts = NULL};
  run_request request = {.op = smx_op_find(ROUTE_OPERATOR), .o = o, .see = see_load, .user = &l};
  int code = run_operator(&request);
  if (!code && l.experts) print_load(&l);
  free(l.experts);
  return code;
}
