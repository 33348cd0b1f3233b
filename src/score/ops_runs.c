/* score/ops_runs.c - elementary functions of runs of doubles (score.h). */
#include "math.h"
#include "score.h"

#if SMX_REAL == 64
enum { MOST_WHOLE = 8 }; /* powers up to it are products */

/* Of x >= 0; of 0, and of what is below the smallest normal number, -inf. */
SMI vreal log_of(vreal x) {
  const vreal tiny = v_set1(R_TINY), inf = v_set1(R_INF);
  vreal y = v_log_scaled(v_min(v_max(x, tiny), v_set1(R_MAX)), v_set1(0));
  y = v_select(v_lt(x, tiny), v_set1(-R_INF), v_select(v_eq(x, inf), inf, y));
  return v_select(v_eq(x, x), y, v_set1(r_nan()));
}
/* A NaN is the second of v_max, and stays. */
SMI vreal exp_of(vreal x) { return v_exp(v_min(v_set1(1000), v_max(v_set1(-1000), x))); }

/* Of x <= 0: 2^k (e^t - 1) + (2^k - 1), where neither cancels what the other has. */
SMI vreal expm1_of(vreal x) {
  x = v_max(v_set1(-80), x);
  const vreal k = exp_k(x), t = exp_reduce(x, k), two_k = v_scale(v_set1(1), k);
  vreal q = v_set1(exp_coefficients[0]);
  for (int i = 1; i < EXP_TERMS - 1; i++) q = v_fma(q, t, v_set1(exp_coefficients[i]));
  return v_fma(two_k, v_mul(q, t), v_sub(two_k, v_set1(1)));
}

SMI vreal product_of(vreal x, int p) {
  vreal y = x;
  for (int i = 1; i < p; i++) y = v_mul(y, x);
  return y;
}

/* value: of v, a vector. */
#define EACH_VECTOR(value) \
  int64_t i = 0; \
  for (; i + LANES <= n; i += LANES) { \
    const vreal v = v_load(x + i); \
    v_store(y + i, value); \
  } \
  if (i < n) { \
    const vreal v = v_load_n(x + i, (int)(n - i), 0); \
    v_store_n(y + i, (int)(n - i), value); \
  }
static void log_run(const double *x, int64_t n, double *y) { EACH_VECTOR(log_of(v)) }
static void exp_run(const double *x, int64_t n, double *y) { EACH_VECTOR(exp_of(v)) }
static void expm1_run(const double *x, int64_t n, double *y) { EACH_VECTOR(expm1_of(v)) }
static void power_run(double p, const double *x, int64_t n, double *y) {
  const vreal by = v_set1(p);
  if (p >= 1 && p <= MOST_WHOLE && p == (double)(int)p) {
    EACH_VECTOR(product_of(v, (int)p))
  } else {
    EACH_VECTOR(exp_of(v_mul(by, log_of(v))))
  }
}

static void squares(const double *rows, const double *line, int64_t d, double *to) {
  enum { VECTORS = SCORE_SIDE / LANES };
  vreal sum[VECTORS] = {v_set1(0), v_set1(0)};
  for (int64_t j = 0; j < d; j++, rows += SCORE_SIDE) {
    const vreal b = v_set1(line[j]);
    _Pragma("GCC unroll 2") for (int u = 0; u < VECTORS; u++) {
      const vreal way = v_sub(v_load(rows + u * LANES), b);
      sum[u] = v_add(sum[u], v_mul(way, way));
    }
  }
  for (int u = 0; u < VECTORS; u++) v_store(to + u * LANES, sum[u]);
}

const score_runs SMX_FN(score_runs) = {exp_run, expm1_run, log_run, power_run, squares};
#endif
