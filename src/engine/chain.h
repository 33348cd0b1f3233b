/* engine/chain.h - an operator that runs one kernel after another: the first leaves a few numbers of the row as a note, the second reads it like
 * an input with a value for each row (NOTE). A length that counts valid elements, extremes and an entropy are such numbers. */
#ifndef SMX_ENGINE_CHAIN_H
#define SMX_ENGINE_CHAIN_H
#include "sum.h"

enum { NOTE = SMX_MAX_PORTS - 1 };

typedef struct chain {
  const row_kernel *first, *then;
} chain;

/* The call as the first kernel sees it: its only output is the note, and no policy is its business. */
static inline row_call chain_first(const row_call *c, double *note) {
  row_call one = *c;
  memset(one.dst, 0, sizeof one.dst);
  one.dst[0] = note;
  one.dst_step[0] = 0;
  one.bypass = BYPASS_NOT;
  one.on_empty = SMX_EMPTY_ZERO;
  return one;
}
static inline row_call chain_then(const row_call *c, const double *note) {
  row_call one = *c;
  one.src[NOTE] = note;
  one.src_step[NOTE] = 0;
  return one;
}
static inline row_call chain_call(const row_call *c, row_state *st) {
  return st->stage == 0 ? chain_first(c, st->note) : chain_then(c, st->note);
}
static inline const row_kernel *chain_kernel(const chain *k, const row_state *st) { return st->stage == 0 ? k->first : k->then; }

static inline void chain_begin(const chain *k, const row_call *c, row_state *st) {
  st->stage = 0;
  memset(st->note, 0, sizeof st->note);
  row_call one = chain_call(c, st);
  k->first->begin(&one, st);
}
static inline bool chain_next(const chain *k, const row_call *c, row_state *st) {
  row_call one = chain_call(c, st);
  if (st->stage == 1) return k->then->next(&one, st);
  if (k->first->next(&one, st)) return true;
  st->stage = 1;
  one = chain_call(c, st);
  k->then->begin(&one, st);
  return true;
}
static inline void chain_rows(const chain *k, row_call *c) {
  for (size_t r = 0; r < c->rows; r++) {
    double note[4] = {0};
    row_call row = row_at(c, r), first = chain_first(&row, note), then = chain_then(&row, note);
    k->first->rows(&first);
    k->then->rows(&then);
    if (then.first_empty >= 0 && c->first_empty < 0) c->first_empty = (int64_t)r;
  }
}

/* All but rows(), for an operator that has a shorter way through rows in memory. */
#define CHAIN_PROGRAM(name, one, two) \
  static const chain name##_chain = {&one##_kernel, &two##_kernel}; \
  static void name##_begin(const row_call *c, row_state *st) { chain_begin(&name##_chain, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { \
    row_call row = chain_call(c, st); \
    chain_kernel(&name##_chain, st)->pass(&row, st, parts); \
  } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { \
    row_call row = chain_call(c, st); \
    chain_kernel(&name##_chain, st)->fold(&row, st, parts, count); \
  } \
  static bool name##_next(const row_call *c, row_state *st) { return chain_next(&name##_chain, c, st); }
#define CHAIN_KERNEL(name, one, two) \
  CHAIN_PROGRAM(name, one, two) \
  static void name##_rows(row_call *c) { chain_rows(&name##_chain, c); }

/* The look at a row as a first kernel: how many elements are valid, the largest, the smallest. */
enum { LOOK_VALID, LOOK_MAX, LOOK_LOW };
SMI void look_row(const span *s, const consts *k, const sum_row *r, double post) {
  (void)k;
  (void)post;
  s->dst[0][LOOK_VALID] = (real)r->valid;
  s->dst[0][LOOK_MAX] = r->max;
  s->dst[0][LOOK_LOW] = r->low;
}
static const sum_body look_body = {.setup = setup_plain, .row = look_row, .max = true, .gradient = true, .bounded = true};
SUM_KERNEL(look)

#endif
