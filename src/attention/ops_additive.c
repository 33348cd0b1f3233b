/* attention/ops_additive.c - additive scores (Bahdanau, Cho, Bengio 2015) and their gradients, with
 * ds_ij the gradient of a score:
 *
 *     z_ij = sum_c u_c t,   t = tanh(q_ic + k_jc),   du_c = sum ds_ij t,
 *     dq_ic = sum_j ds_ij u_c (1 - t^2),   dk_jc = sum_i ds_ij u_c (1 - t^2)
 *
 * Vectors run over keys. A score is a chain over c in order; sums over keys are those of the lanes,
 * folded pairwise, and rows follow in order. A pair whose ds is 0, as that of a hidden key, is not
 * read as a number. Compiled once per instruction set and real type. */
#include "engine.h"

extern const attention_additive SMX_FN(attention_additive);

static void forward(const attn_additive *t) {
  const real *u = t->u, *q = t->q, *k = t->k;
  real last[LANES], *z = t->z;
  for (int64_t i = 0; i < t->rows; i++, q += t->d, z += t->keys)
    for (int64_t j = 0; j < t->keys; j += LANES) {
      vreal sum = v_set1(0);
      for (int64_t c = 0; c < t->d; c++)
        sum = v_fma(v_set1(u[c]), v_tanh(v_add(v_set1(q[c]), v_load(k + c * t->pitch + j))), sum);
      if (t->keys - j >= LANES) {
        v_store(z + j, sum);
        continue;
      }
      v_store(last, sum);
      memcpy(z + j, last, (size_t)(t->keys - j) * sizeof *z);
    }
}

static vreal load_some(const real *x, int64_t n) {
  real last[LANES] = {0};
  if (n >= LANES) return v_load(x);
  memcpy(last, x, (size_t)n * sizeof *x);
  return v_load(last);
}

static void backward(const attn_additive *t, int64_t column) {
  const real *q = (const real *)t->q + column, *k = (const real *)t->k + column * t->pitch, *ds = t->z;
  real *dq = (real *)t->dq + column, *dk = (real *)t->dk + column * t->pitch, *du = (real *)t->du + column;
  const vreal u = v_set1(((const real *)t->u)[column]), zero = v_set1(0);
  for (int64_t i = 0; i < t->rows; i++, ds += t->keys) {
    const vreal own = v_set1(q[i * t->d]);
    vreal sum = zero, sum_u = zero;
    for (int64_t j = 0; j < t->keys; j += LANES) {
      const vreal s = load_some(ds + j, t->keys - j), x = v_add(own, v_load(k + j));
      const vmask none = v_eq(s, zero);
      const vreal g = v_select(none, zero, v_mul(v_mul(s, u), v_sech2(x)));
      sum = v_add(sum, g);
      sum_u = v_add(sum_u, v_select(none, zero, v_mul(s, v_tanh(x))));
      v_store(dk + j, v_add(v_load(dk + j), g));
    }
    dq[i * t->d] = v_hsum(sum);
    *du += v_hsum(sum_u);
  }
}

const attention_additive SMX_FN(attention_additive) = {forward, backward};
