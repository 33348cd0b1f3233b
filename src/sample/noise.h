/* sample/noise.h - scores with noise, formed in double, for the engines of the exponential
 * family. */
#ifndef SMX_SAMPLE_NOISE_H
#define SMX_SAMPLE_NOISE_H
#include "engine/scores.h"
#include "philox.h"

/* inputs; the parameters of the call are handed to the scores as one more */
enum { NOISE_X, NOISE_STREAM, NOISE_PARAMS = 7 };
/* parameters; from PART on, the divisor of the noise, they are not the operator's own */
enum { NOISE_TEMPERATURE, NOISE_SEED, NOISE_PART = 3, NOISE_PURPOSE, NOISE_SETTINGS };

/* The call as the engines get it: `settings` holds its parameters. */
static inline row_call noise_call(const row_call *c, double *settings) {
  row_call own = *c;
  memcpy(settings, c->params, NOISE_PART * sizeof *settings);
  settings[NOISE_PART] = 1;
  settings[NOISE_PURPOSE] = PURPOSE_RELAXED;
  own.params = settings;
  own.src[NOISE_PARAMS] = settings;
  return own;
}

SMI draws noise_draws(const span *s, purpose p) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  return (draws){(uint64_t)params[NOISE_SEED],
                 (uint64_t) * (const int64_t *)(const void *)s->src[NOISE_STREAM], p};
}

/* Scores in double as the engines take them: h + l. The bodies are `scaled`, and their consts {{1,
 * 1}}: the engines put 0 into v[1] when they look for the x of the largest score, which a
 * temperature must not make overflow. */
SMI score noise_pair(const double *v) {
  real h[LANES], l[LANES];
  for (int j = 0; j < LANES; j++) {
    h[j] = (real)v[j];
    l[j] = h[j] >= -R_MAX && h[j] <= R_MAX ? (real)(v[j] - (double)h[j]) : 0;
  }
  return (score){v_load(h), v_load(l)};
}

/* (x - shift + G / part) / T of cnt elements, the first of which has an even number. */
SMI void noise_add(const real *x, size_t cnt, uint64_t first, double shift, double part, double temperature,
                   const draws *d, double *out) {
  for (size_t i = 0; i < cnt; i += 2) {
    uint64_t words[2];
    draw_block(d, (first + i) >> 1, words);
    for (size_t j = i; j < cnt && j < i + 2; j++) {
      double v = (double)x[j];
      out[j] = ((v == shift ? 0 : v - shift) + gumbel_of(words[j - i]) / part) / temperature;
    }
  }
}
/* In a row of huge scores the largest x + G is subtracted, rounded to a real. The rest of the
 * rounding, divided by a low temperature, can overflow, or make all scores of the row vanish: there
 * scores are at most this, and those of what is largest as a real at least its negative. */
#define NOISE_FAR 60
SMI void noise_bound(const real *x, size_t cnt, uint64_t first, real largest, double part, const draws *d,
                     double *scores) {
  double sum[LANES];
  noise_add(x, cnt, first, 0, part, 1, d, sum);
  for (size_t j = 0; j < cnt; j++) {
    if (scores[j] > NOISE_FAR) scores[j] = NOISE_FAR;
    if (scores[j] < -NOISE_FAR && (real)sum[j] == largest) scores[j] = -NOISE_FAR;
  }
}
SMI score score_relaxed(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  const draws d = noise_draws(s, (purpose)params[NOISE_PURPOSE]);
  const real *x = s->src[NOISE_X] + i;
  double v[LANES] = {0};
  noise_add(x, (size_t)cnt, s->origin + i, shift ? (double)*shift : 0, params[NOISE_PART],
            k->v[1] != 0 ? params[NOISE_TEMPERATURE] : 1, &d, v);
  if (shift && *shift != 0) noise_bound(x, (size_t)cnt, s->origin + i, *shift, params[NOISE_PART], &d, v);
  return noise_pair(v);
}

/* A kernel around a body whose scores need the parameters; call_of makes the call of a row, or of
 * rows that share them. */
#define NOISE_KERNEL(of_kind, own_body, call_of, by_row) \
  { \
    .engine = &adapter_engine, .body = &(const row_adapter) { \
      &(const row_kernel){.engine = &of_kind, .body = &own_body}, call_of, by_row \
    } \
  }

#endif
