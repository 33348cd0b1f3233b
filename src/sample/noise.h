/* sample/noise.h - scores with noise, formed in double, for the engines of the exponential family. */
#ifndef SMX_SAMPLE_NOISE_H
#define SMX_SAMPLE_NOISE_H
#include "engine/scores.h"
#include "philox.h"

enum { NOISE_X, NOISE_STREAM, NOISE_PARAMS = 7 }; /* inputs; the parameters of the call are handed to the scores as one more */
enum { NOISE_TEMPERATURE, NOISE_SEED };           /* parameters */

/* The call as the engines get it. */
SMI row_call noise_call(const row_call *c) {
  row_call own = *c;
  own.src[NOISE_PARAMS] = c->params;
  return own;
}

SMI draws noise_draws(const span *s, purpose p) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  return (draws){(uint64_t)params[NOISE_SEED], (uint64_t) * (const int64_t *)(const void *)s->src[NOISE_STREAM], p};
}

/* Scores in double as the engines take them: h + l. The bodies are `scaled`, and their consts {{1, 1}}: the engines put 0 into v[1] when they
 * look for the x of the largest score, which a temperature must not make overflow. */
SMI score noise_pair(const double *v) {
  real h[LANES], l[LANES];
  for (int j = 0; j < LANES; j++) {
    h[j] = (real)v[j];
    l[j] = h[j] >= -R_MAX && h[j] <= R_MAX ? (real)(v[j] - (double)h[j]) : 0;
  }
  return (score){v_load(h), v_load(l)};
}

/* (x - shift + G) / T of cnt elements, the first of which has an even number. */
SMI void noise_add(const real *x, size_t cnt, uint64_t first, double shift, double temperature, const draws *d, double *out) {
  for (size_t i = 0; i < cnt; i += 2) {
    uint64_t words[2];
    draw_block(d, (first + i) >> 1, words);
    for (size_t j = i; j < cnt && j < i + 2; j++) {
      double v = (double)x[j];
      out[j] = ((v == shift ? 0 : v - shift) + gumbel_of(words[j - i])) / temperature;
    }
  }
}
SMI score score_relaxed(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  const draws d = noise_draws(s, PURPOSE_RELAXED);
  double v[LANES] = {0};
  noise_add(s->src[NOISE_X] + i, (size_t)cnt, s->origin + i, shift ? (double)*shift : 0, k->v[1] != 0 ? params[NOISE_TEMPERATURE] : 1, &d,
            v);
  return noise_pair(v);
}

/* Kernels around a body whose scores want the parameters. */
#define NOISE_KERNEL(name) \
  static void name##_begin(const row_call *c, row_state *st) { exp_begin(&name##_body, c, st); } \
  static void name##_pass(const row_call *c, row_state *st, row_part *parts) { \
    const row_call own = noise_call(c); \
    exp_pass(&name##_body, &own, st, parts); \
  } \
  static void name##_fold(const row_call *c, row_state *st, const row_part *parts, size_t count) { exp_fold(c, st, parts, count); } \
  static bool name##_next(const row_call *c, row_state *st) { \
    const row_call own = noise_call(c); \
    return exp_next(&name##_body, &own, st); \
  } \
  static void name##_rows(row_call *c); \
  static const row_kernel name##_kernel = KERNEL(name); \
  static void name##_rows(row_call *c) { \
    row_call own = noise_call(c); \
    exp_rows(&name##_body, &name##_kernel, &own); \
    c->first_empty = own.first_empty; \
  }

#endif
