/* head/ops_chain.c - steps of sums and maxima over the paths of a chain (head.h), in double.
 * Compiled once per instruction set. */
#include "engine/loops.h"
#include "head.h"

#if SMX_REAL == 64
#define EACH_PART(i, n) for (int64_t i = 0, cnt; cnt = lanes_left((size_t)((n)-i)), i < (n); i += LANES)

SMI vreal part(const double *x, int64_t i, int64_t cnt, double fill) {
  return cnt == LANES ? v_load(x + i) : v_load_n(x + i, (int)cnt, fill);
}

static double most_of(vreal x) {
  double lanes[LANES], most = -R_INF;
  v_store(lanes, x);
  for (int i = 0; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
  return most;
}
static double least_of(vreal x) { return -most_of(v_sub(v_set1(0), x)); }

/* w = e + most; its largest. */
static double add_scores(const head_step *s) {
  vreal peak = v_set1(-R_INF);
  bool good = true;
  EACH_PART(i, s->n) {
    const vreal z = v_add(part(s->e, i, cnt, -R_INF), part(s->most, i, cnt, 0));
    good &= !m_any(m_not(v_eq(z, z)));
    peak = v_max(peak, z);
    put(s->w, (size_t)i, (int)cnt, z);
  }
  return good ? most_of(peak) : r_nan();
}

static void step(head_step *s) {
  vreal p_least = v_set1(R_INF), w_least = p_least, w_most = v_set1(0);
  s->peak = add_scores(s);
  s->p_least = s->w_least = s->w_most = 0;
  if (!(s->peak > -R_INF && s->peak < R_INF)) return;
  EACH_PART(i, s->n) {
    const vreal p = part(s->p, i, cnt, R_INF), z = v_sub(part(s->w, i, cnt, s->peak), v_set1(s->peak)),
                w = v_mul(p, v_exp_down(z));
    p_least = v_min(p_least, p), w_least = v_min(w_least, w);
    w_most = v_max(w_most, cnt == LANES ? w : v_select(lanes_below((int)cnt), w, v_set1(0)));
    put(s->w, (size_t)i, (int)cnt, w);
  }
  s->p_least = least_of(p_least), s->w_least = least_of(w_least), s->w_most = most_of(w_most);
}

static bool divide(const double *g, const double *p, int64_t n, double least, double *q) {
  bool lost = false;
  EACH_PART(i, n) {
    const vreal x = part(g, i, cnt, 0), y = part(p, i, cnt, 1);
    const vmask small = v_lt(y, v_set1(least));
    lost |= m_any(m_and(small, m_not(v_eq(x, v_set1(0)))));
    put(q, (size_t)i, (int)cnt, v_select(small, v_set1(0), v_div(x, v_select(small, v_set1(1), y))));
  }
  return lost;
}

/* The largest so far of some columns, and the rows that have it. */
typedef struct leader {
  vreal high, row;
} leader;
SMI void lead(leader *l, vreal x, vreal row) {
  const vmask more = v_lt(l->high, x);
  l->high = v_select(more, x, l->high), l->row = v_select(more, row, l->row);
}
/* Four vectors of columns side by side: one alone would wait for its comparisons. */
SMI void best_of_four(const double *v, int64_t rows, const double *t, int64_t row, double *most,
                      double *from) {
  const leader none = {v_set1(-R_INF), v_set1(0)};
  leader a = none, b = none, c = none, d = none;
  for (int64_t i = 0; i < rows; i++) {
    const double *const at = t + i * row;
    const vreal x = v_set1(v[i]), number = v_set1((double)i);
    lead(&a, v_add(x, v_load(at)), number), lead(&b, v_add(x, v_load(at + LANES)), number);
    lead(&c, v_add(x, v_load(at + 2 * LANES)), number), lead(&d, v_add(x, v_load(at + 3 * LANES)), number);
  }
  v_store(most, a.high), v_store(most + LANES, b.high), v_store(most + 2 * LANES, c.high);
  v_store(most + 3 * LANES, d.high);
  v_store(from, a.row), v_store(from + LANES, b.row), v_store(from + 2 * LANES, c.row);
  v_store(from + 3 * LANES, d.row);
}

static void best(const double *v, int64_t rows, const double *t, int64_t row, int64_t n, double *most,
                 double *from) {
  int64_t fours = 0;
  for (; fours + 4 * LANES <= n; fours += 4 * LANES)
    best_of_four(v, rows, t + fours, row, most + fours, from + fours);
  EACH_PART(j, n - fours) {
    leader l = {v_set1(-R_INF), v_set1(0)};
    for (int64_t i = 0; i < rows; i++)
      lead(&l, v_add(v_set1(v[i]), part(t + i * row + fours, j, cnt, 0)), v_set1((double)i));
    put(most + fours, (size_t)j, (int)cnt, l.high), put(from + fours, (size_t)j, (int)cnt, l.row);
  }
}

const head_chain SMX_FN(head_chain) = {step, divide, best};
#endif
