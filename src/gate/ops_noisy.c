/* gate/ops_noisy.c - noise on the logits of a router, and how likely it is to choose an expert
 * (gate.h). */
#include "engine/loops.h"
#include "engine/normal.h"
#include "mixture.h"
#include "philox.h"

SMI void make_noise(const draws *d, int64_t n, double (*of)(uint64_t word), double *noise) {
  for (int64_t i = 0; i < n; i += 2) {
    uint64_t words[2];
    draw_block(d, (uint64_t)i >> 1, words);
    for (int64_t j = i; j < n && j < i + 2; j++) noise[j] = of(words[j - i]);
  }
}
void SMX_FN(gate_noise)(uint64_t seed, uint64_t stream, int64_t n, double *noise) {
  make_noise(&(draws){seed, stream, PURPOSE_NORMAL}, n, normal_of, noise);
}
void SMX_FN(gate_gumbel)(uint64_t seed, uint64_t stream, int64_t n, double *noise) {
  make_noise(&(draws){seed, stream, PURPOSE_RELAXED}, n, gumbel_of, noise);
}

/* s = softplus(spread) + least, slope = ds / dspread */
void SMX_FN(gate_deviation)(const double *spread, double least, int64_t n, double *s, double *slope) {
  for (int64_t i = 0; i < n; i++) {
    s[i] = d_softplus(spread[i]) + least;
    slope[i] = 1 / (1 + d_exp(-spread[i]));
  }
}

/* Phi(z) and its density */
void SMX_FN(gate_normal)(const void *z, int64_t n, void *p, void *density) {
  const vreal root = v_set1((real)0.39894228040143267794); /* 1 / sqrt(2 pi) */
  for (int64_t i = 0; i < n; i += LANES) {
    const int cnt = lanes_left((size_t)(n - i));
    const normal_at at_z = normal_of_z(at(z, (size_t)i, cnt));
    put(p, (size_t)i, cnt, at_z.p), put(density, (size_t)i, cnt, v_mul(root, at_z.density));
  }
}
