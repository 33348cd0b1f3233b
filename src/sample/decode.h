/* sample/decode.h - shared by the operators of decoding: sums in double, and the few best elements
 * of a row.
 *
 * These operators decide something about a row (keep a draft? commit a position?) and are a
 * small part of a decoding step, so they run in plain double arithmetic, in index order, one
 * thread a row. Sums run in blocks of 256 elements from left to right, and the blocks are summed
 * in order. */
#ifndef SMX_SAMPLE_DECODE_H
#define SMX_SAMPLE_DECODE_H
#include "philox.h"
#include "engine/topk.h"

/* Adds `term`, an expression in i, for i of 0 .. n - 1. n elements are whole blocks, or the last of
 * a row. */
#define BLOCK_SUM(to, n, i, term) \
  for (size_t block_ = 0; block_ < (n); block_ += 256) { \
    double within_ = 0; \
    for (size_t i = block_; i < (n) && i < block_ + 256; i++) within_ += (term); \
    (to) += within_; \
  }

/* Elements of the row that a pass sees, of a FULL port, and their number in the row. */
SMI const real *part_at(const row_call *c, int port) {
  return (const real *)c->src[port] + (c->start - c->origin);
}
SMI real *part_to(const row_call *c, int port) { return (real *)c->dst[port] + (c->start - c->origin); }

/* A program whose passes are serial; it says itself which pass writes. */
SMI void serial_begin(row_state *st) {
  st->stage = 0;
  st->mode = 0;
  st->writes = st->reverse = st->empty = st->nan = false;
  st->serial = true;
}
SMI void serial_parts(const row_call *c, row_part *parts) {
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
}
static inline void serial_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {}
/* Around NAME_begin, NAME_pass and NAME_next. */
#define SERIAL_KERNEL(name) \
  static const row_kernel name##_kernel = { \
      .engine = &program_engine, \
      .body = &(const row_program){name##_begin, name##_pass, serial_merge, name##_next, NULL}};

/* ---- a minmax pass at the row: its largest x, its first, a NaN ---- */

/* The first member of the own struct of every operator that begins with such a pass. */
typedef struct minmax {
  double max;
  int64_t index;
} minmax;
ROW_OWN_STATE(minmax, minmax_of)
#define MINMAX_NONE ((minmax){(double)-R_INF, -1})

static inline void minmax_part(const real *x, size_t n, size_t first, row_state *st) {
  minmax *m = minmax_of(st);
  for (size_t i = 0; i < n; i++) {
    st->nan |= x[i] != x[i];
    if ((double)x[i] > m->max) m->max = (double)x[i], m->index = (int64_t)(first + i);
  }
}
SMI bool minmax_empty(const row_state *st) { return !st->nan && !(minmax_of(st)->max > (double)-R_INF); }
/* A NaN, or a +inf that does not take the mass. */
SMI bool minmax_nan(const row_call *c, const row_state *st) {
  return st->nan || (minmax_of(st)->max > (double)R_MAX && c->on_inf != SMX_INF_LIMIT);
}
/* x less the largest; all +inf of a row are equal. */
SMI double minmax_away(const row_state *st, double x) {
  const double max = minmax_of(st)->max;
  return x == max ? 0 : x - max;
}

/* ---- elements that the second input names; how many, says the first parameter ---- */

enum { NAMED_IDS = 1 };
SMI size_t named_count(const row_call *c) { return (size_t)c->params[0]; }

/* Whether id j is an element of the row, and no earlier id is the same. */
static inline bool named(const row_call *c, size_t j) {
  const int64_t *ids = c->src[NAMED_IDS];
  if (ids[j] < 0 || ids[j] >= (int64_t)c->n) return false;
  for (size_t i = 0; i < j; i++)
    if (ids[i] == ids[j]) return false;
  return true;
}
#define named_begin SMX_FN(named_begin)
void named_begin(const row_call *c, row_state *st);
/* A pass over the named elements only: list gets their x, and keeps -inf where an id names no
 * element. */
static inline void named_minmax(const row_call *c, row_state *st) {
  const int64_t *ids = c->src[NAMED_IDS];
  for (size_t j = 0; j < named_count(c); j++) {
    const int64_t i = ids[j] - (int64_t)c->start;
    if (i < 0 || i >= (int64_t)c->count || !named(c, j)) continue;
    const double x = (double)part_at(c, 0)[i];
    st->list[j] = x;
    st->nan |= x != x;
    if (x > minmax_of(st)->max) minmax_of(st)->max = x;
  }
}

/* ---- a few numbers ---- */

/* Gumbel noise, kept within low .. high. */
SMI double gumbel_within(uint64_t word, double low, double high) {
  const double g = gumbel_of(word);
  return g < low ? low : g > high ? high : g;
}

/* v_i = e^(h_i - max h) / sum: in double, in the order given. */
static inline void few_softmax(const double *h, size_t n, double *v) {
  double max = (double)-R_INF, sum = 0;
  for (size_t i = 0; i < n; i++) max = h[i] > max ? h[i] : max;
  for (size_t i = 0; i < n; i++) v[i] = h[i] > (double)-R_INF ? d_exp(h[i] - max) : 0;
  BLOCK_SUM(sum, n, i, v[i])
  for (size_t i = 0; i < n; i++) v[i] /= sum;
}

/* ---- the few best ---- */

enum { FEW_MOST = ROW_LIST / 2 };
enum { FEW_MINMAX, FEW_SELECT, FEW_COLLECT, FEW_DONE }; /* stages; an operator's own follow */

typedef struct few {
  size_t count;
  real x[FEW_MOST];
  int64_t index[FEW_MOST];
} few;

typedef struct few_state {
  minmax row;
  size_t count; /* in the list: their x, and from FEW_MOST on their indices */
} few_state;
ROW_OWN_STATE(few_state, few_state_of)

static inline void few_begin(row_state *st) {
  serial_begin(st);
  *few_state_of(st) = (few_state){.row = MINMAX_NONE};
}

static inline void few_collect(const real *x, size_t n, size_t first, row_state *st) {
  const real value = (real)st->cutoff.value;
  for (size_t i = 0; i < n; i++) {
    int64_t index = (int64_t)(first + i);
    if (!(x[i] > value || (x[i] == value && index <= st->cutoff.limit)) || !(x[i] > -R_INF)) continue;
    const size_t k = few_state_of(st)->count++;
    st->list[k] = (double)x[i], st->list[FEW_MOST + k] = (double)index;
  }
}
static inline void few_pass(const row_call *c, row_state *st, row_part *parts) {
  const real *x = part_at(c, 0);
  serial_parts(c, parts);
  if (st->stage == FEW_MINMAX) minmax_part(x, c->count, c->start, st);
  else if (st->stage == FEW_SELECT) radix_pass(c, st, parts);
  else if (st->stage == FEW_COLLECT) few_collect(x, c->count, c->start, st);
}
/* True while the row must be read again. Then the row is empty or NaN, or FEW_DONE. */
static inline bool few_next(const row_call *c, row_state *st, size_t k) {
  if (st->stage == FEW_MINMAX) {
    const bool nan = st->nan;
    if (minmax_empty(st) || minmax_nan(c, st)) return false;
    st->stage = FEW_SELECT;
    radix_begin(st, k < c->n ? k : c->n);
    st->nan = nan;
    return true;
  }
  if (st->stage == FEW_SELECT) {
    if (radix_next(st)) return true;
    st->stage = FEW_COLLECT;
    return true;
  }
  st->stage = FEW_DONE;
  return false;
}
/* The collected elements, best first. */
static inline void few_sorted(const row_state *st, few *f) {
  f->count = few_state_of(st)->count;
  for (size_t i = 0; i < f->count; i++)
    f->x[i] = (real)st->list[i], f->index[i] = (int64_t)st->list[FEW_MOST + i];
  topk_sort(f->x, f->index, f->count);
}

#endif
