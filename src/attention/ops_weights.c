/* attention/ops_weights.c - the operators of the room: from scores to weights, from sums to outputs (weights.h). Formulas and sources stand in
 * softmax.h, beside the names. Compiled once per instruction set and real type. */
#include "weights.h"

/* log(e^shift 2^ref s) */
static double log_of(double shift, double ref, double s) {
  if (!(s > 0)) return s == 0 ? -(double)R_INF : s;
  return ref == (double)R_INF ? ref : d_log(s, 0) + ref * 0x1.62e42fefa39efp-1 + shift;
}

/* ---- softmax: w = e^z / sum e^z ---- */

static void softmax_weigh(const attn_call *c, const attn_row *row, weighing *w) {
  vreal sum[VPB];
  (void)row;
  exp_open(c, w, -R_INF);
  for (int u = 0; u < VPB; u++) sum[u] = v_set1(0);
  EACH_SCORE(w, u, j) {
    const vreal e = exp_weight(v_load(w->z + j), w->ref);
    sum[u] = v_add(sum[u], e);
    v_store(w->z + j, e);
  }
  w->a[0] = v_fold(sum);
}
static void softmax_finish(const attn_call *c, const attn_row *row, finished *f) {
  (void)c;
  f->factor[0] = 1 / row->a[0];
  f->lse = log_of(row->shift, row->ref, row->a[0]);
}

const weigher SMX_FN(attn_weighers)[SMX_ATTENTION_KINDS] = {
    [SMX_ATTENTION_SOFTMAX] = {.values = 1, .weigh = softmax_weigh, .finish = softmax_finish},
};
