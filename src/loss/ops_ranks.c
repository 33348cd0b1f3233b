/* loss/ops_ranks.c - soft targets that depend on the order of scores: Zipf's law, the two best, the
 * k best and a rest. See ops_labels.c.
 *
 * The k best are found by radix descent (engine/radix_select.h), collected in index order, sorted
 * by value descending and index ascending, given their masses, and written over zeros. -inf has no
 * rank: such an element does not exist. A NaN, or a +inf outside SMX_INF_LIMIT, makes the row
 * NaN. */
#include "engine/topk.h"

enum { RANK_SELECT, RANK_COLLECT, RANK_WRITE, RANK_FILL };
/* the pairs of value and index, later of mass and index, that the state of a row holds */
enum { RANK_MOST = ROW_LIST / 2 };
typedef struct rank_state {
  double valid, fill; /* elements above -inf; the value of elements without a mass */
  uint64_t count;     /* pairs in the list */
} rank_state;
ROW_OWN_STATE(rank_state, rank_state_of)

/* Masses of `count` elements, best first, as pairs in list: on entry the mass is the value. *rest
 * is the mass of every other element, 0 unless it is set. Returns how many there are; negative: the
 * row is NaN. */
typedef int rank_masses_fn(const row_call *c, double *list, int count, double *rest);

static void rank_begin(const row_call *c, row_state *st, double k) {
  st->stage = RANK_SELECT;
  *rank_state_of(st) = (rank_state){0};
  radix_begin(st, k < (double)c->n ? (uint64_t)k : (uint64_t)c->n);
}

/* How many elements exist, and whether the row is NaN. */
static void rank_count(const row_call *c, row_part *parts) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin);
  for (size_t i = 0; i < c->count; i += LANES) {
    row_part *part = parts + i / GROUP;
    int cnt = lanes_left(c->count - i);
    vreal v = at(x, i, cnt);
    part->nan |= m_any(m_not(v_eq(v, v))) || (c->on_inf != SMX_INF_LIMIT && m_any(v_eq(v, v_set1(R_INF))));
    part->sum += m_any(m_and(v_lt(v_set1(-R_INF), v), lanes_below(cnt)));
  }
}

static void rank_collect(const row_call *c, row_state *st) {
  const real *x = (const real *)c->src[0] + (c->start - c->origin), least = (real)st->cutoff.value;
  for (size_t i = 0; i < c->count; i++) {
    const int64_t index = (int64_t)(c->start + i);
    if (!(x[i] > least || (x[i] == least && index <= st->cutoff.limit)) || x[i] == -R_INF) continue;
    const uint64_t k = rank_state_of(st)->count++;
    st->list[2 * k] = (double)x[i], st->list[2 * k + 1] = (double)index;
  }
}

static void rank_write(const row_call *c, const row_state *st) {
  real *y = (real *)c->dst[0] + (c->start - c->origin);
  fill(y, c->count, r_clean(rank_state_of(st)->fill));
  for (uint64_t k = 0; k < rank_state_of(st)->count && st->stage == RANK_WRITE; k++) {
    const uint64_t at_y = (uint64_t)st->list[2 * k + 1] - c->start;
    if (at_y < c->count) y[at_y] = r_clean(st->list[2 * k]);
  }
}

static void rank_pass(const row_call *c, row_state *st, row_part *parts) {
  for (size_t g = 0; g * GROUP < c->count; g++) parts[g] = (row_part){.index = -1};
  if (st->stage == RANK_SELECT) {
    radix_pass(c, st, parts);
    rank_count(c, parts);
  } else if (st->stage == RANK_COLLECT) {
    rank_collect(c, st);
  } else {
    rank_write(c, st);
  }
}

static void rank_merge(const row_call *c, row_state *st, const row_part *parts, size_t count) {
  for (size_t g = 0; g < count && st->stage == RANK_SELECT; g++)
    st->nan |= parts[g].nan, rank_state_of(st)->valid += parts[g].sum;
}

static bool rank_fill(row_state *st, real value) {
  st->stage = RANK_FILL;
  rank_state_of(st)->fill = (double)value;
  st->serial = false;
  return st->writes = true;
}

typedef struct rank_work {
  real x[RANK_MOST];
  int64_t index[RANK_MOST];
} rank_work;

/* Best first. */
static void rank_sort(row_state *st, rank_work *w) {
  const size_t n = (size_t)rank_state_of(st)->count;
  for (size_t k = 0; k < n; k++) w->x[k] = (real)st->list[2 * k], w->index[k] = (int64_t)st->list[2 * k + 1];
  topk_sort(w->x, w->index, n);
  for (size_t k = 0; k < n; k++) st->list[2 * k] = (double)w->x[k], st->list[2 * k + 1] = (double)w->index[k];
}

static bool rank_next(const row_call *c, row_state *st, rank_masses_fn *masses) {
  if (st->writes) return false;
  if (st->stage == RANK_SELECT) {
    if (st->nan) return rank_fill(st, r_nan());
    if (rank_state_of(st)->valid == 0) {
      st->empty = true;
      return c->on_empty != SMX_EMPTY_ERROR && rank_fill(st, c->on_empty == SMX_EMPTY_NAN ? r_nan() : 0);
    }
    if (radix_next(st)) return true;
    st->stage = RANK_COLLECT;
    rank_state_of(st)->count = 0;
    return true;
  }
  rank_sort(st, c->work);
  rank_state_of(st)->fill = 0;
  const int count = masses(c, st->list, (int)rank_state_of(st)->count, &rank_state_of(st)->fill);
  if (count < 0) return rank_fill(st, r_nan());
  rank_state_of(st)->count = (uint64_t)count;
  st->stage = RANK_WRITE;
  st->serial = false;
  return st->writes = true;
}

#define RANK_KERNEL(name, k) \
  static void name##_begin(const row_call *c, row_state *st) { rank_begin(c, st, k); } \
  static bool name##_next(const row_call *c, row_state *st) { return rank_next(c, st, name##_masses); } \
  static const row_kernel name##_kernel = { \
      .engine = &program_engine, \
      .body = &(const row_program){name##_begin, rank_pass, rank_merge, name##_next, NULL}};

/* ---- labels_zipf: 1 / rank, without the target, over their sum ---- */

enum { ZIPF_TARGET = 1, ZIPF_IGNORE = 0, ZIPF_RANKS = 1 };

static int zipf_masses(const row_call *c, double *list, int count, double *rest) {
  const double target = (double)*(const int64_t *)c->src[ZIPF_TARGET];
  const bool without = target != c->params[ZIPF_IGNORE];
  double sum = 0;
  int kept = 0;
  for (int k = 0; k < count; k++) {
    if (without && list[2 * k + 1] == target) continue;
    list[2 * kept] = 1 / (double)(k + 1), list[2 * kept + 1] = list[2 * k + 1];
    sum += list[2 * kept++];
  }
  for (int k = 0; k < kept; k++) list[2 * k] /= sum;
  return kept;
}
RANK_KERNEL(zipf, c->params[ZIPF_RANKS])

/* ---- labels_top_two: 1 - rho and rho ---- */

enum { TWO_SHARE = 1, TWO_RHO = 0 };

static int two_masses(const row_call *c, double *list, int count, double *rest) {
  const double rho = c->src[TWO_SHARE] ? (double)*(const real *)c->src[TWO_SHARE] : c->params[TWO_RHO];
  if (!(rho >= 0 && rho <= 1)) return -1;
  list[0] = count > 1 ? 1 - rho : 1;
  if (count > 1) list[2] = rho;
  return count;
}
RANK_KERNEL(two, 2)

/* ---- labels_recover ----
 *
 * the k largest as they are, and what is missing to 1 spread over the others; or the k over
 * their sum */

enum { RECOVER_K = 0, RECOVER_REST = 1, RECOVER_RENORM = 1 };

static int recover_masses(const row_call *c, double *list, int count, double *rest) {
  double sum = 0;
  for (int k = 0; k < count; k++) {
    if (!(list[2 * k] >= 0 && list[2 * k] < (double)R_INF)) return -1;
    sum += list[2 * k];
  }
  if (c->params[RECOVER_REST] != RECOVER_RENORM) {
    *rest = sum < 1 && c->n > (size_t)count ? (1 - sum) / (double)(c->n - (size_t)count) : 0;
    return count;
  }
  for (int k = 0; k < count; k++) list[2 * k] = sum > 0 ? list[2 * k] / sum : 1 / (double)count;
  return count;
}
RANK_KERNEL(recover, c->params[RECOVER_K])

FORWARD_OPERATOR_WITH(labels_zipf, zipf, ROW_LIST, sizeof(rank_work))
FORWARD_OPERATOR_WITH(labels_top_two, two, ROW_LIST, sizeof(rank_work))
FORWARD_OPERATOR_WITH(labels_recover, recover, ROW_LIST, sizeof(rank_work))
