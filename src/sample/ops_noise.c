/* sample/ops_noise.c - noise on vectors: normal_noise, embedding_noise. See ops.c. */
#include "noise.h"
#include "engine/reduce_map.h"

/* y = x + r V: V normal and r = sigma, or V uniform in (-1, 1) and r = alpha / sqrt(tokens n). -inf
 * stays -inf; a NaN or +inf makes the row NaN, and so does a sigma that is none. Each sum is
 * rounded once. */

enum { SIGMA = 2 }; /* input: in place of the parameter */
/* parameters: sigma or alpha, and from how many tokens the noise is taken */
enum { NOISE_SIZE = NOISE_TEMPERATURE, TOKENS = 2 };

static row_call normal_call(const row_call *c, double *settings) {
  row_call own = noise_call(c, settings);
  settings[NOISE_PURPOSE] = PURPOSE_NORMAL;
  if (c->src[SIGMA]) settings[NOISE_SIZE] = (double)*(const real *)c->src[SIGMA];
  return own;
}
static row_call embedding_call(const row_call *c, double *settings) {
  row_call own = noise_call(c, settings);
  settings[NOISE_PURPOSE] = PURPOSE_EMBEDDING;
  settings[NOISE_SIZE] /= __builtin_sqrt(c->params[TOKENS] * (double)c->n);
  return own;
}

SMI double added_size(const span *s) {
  return ((const double *)(const void *)s->src[NOISE_PARAMS])[NOISE_SIZE];
}
/* V of cnt elements, the first of which has an even number. */
SMI void added_noise(const span *s, size_t i, int cnt, double *v) {
  const double *params = (const double *)(const void *)s->src[NOISE_PARAMS];
  const draws d = noise_draws(s, (purpose)params[NOISE_PURPOSE]);
  for (int j = 0; j < cnt; j += 2) {
    uint64_t words[2];
    draw_block(&d, (s->origin + i + (size_t)j) >> 1, words);
    for (int k = j; k < cnt && k < j + 2; k++)
      v[k] = d.purpose == PURPOSE_NORMAL ? normal_of(words[k - j]) : 2 * uniform_of(words[k - j]) - 1;
  }
}

SMI void added_check(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                     reduce_map_acc *acc) {
  const double size = added_size(s);
  vmask fine = v_lt(at(s->src[NOISE_X], i, cnt), v_set1(R_INF));
  if (!(size >= 0 && size <= (double)R_MAX)) fine = v_lt(v_set1(0), v_set1(0));
  acc->nan = m_or(acc->nan, m_not(fine));
}
SMI vreal added_value(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  const double size = added_size(s);
  double v[LANES];
  real y[LANES] = {0};
  added_noise(s, i, cnt, v);
  for (int j = 0; j < cnt; j++) y[j] = (real)((double)s->src[NOISE_X][i + (size_t)j] + size * v[j]);
  return v_clean(v_load(y));
}
/* dx = dy, dsigma = sum of dy V; nothing at -inf. */
SMI vreal added_grad_write(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  double v[LANES];
  real moment[LANES] = {0};
  vreal dy =
      v_select(v_lt(v_set1(-R_INF), at(s->src[NOISE_X], i, cnt)), at(s->src[SRC_DY], i, cnt), v_set1(0));
  if (s->dst[SIGMA]) added_noise(s, i, cnt, v);
  for (int j = 0; s->dst[SIGMA] && j < cnt; j++) moment[j] = (real)v[j];
  put(s->dst[NOISE_X], i, cnt, v_clean(dy));
  return v_mul(dy, v_load(moment));
}
SMI void added_grad_row(const span *s, const consts *k, const reduce_map_row *r, double post) {
  if (s->dst[SIGMA]) *s->dst[SIGMA] = r_clean(post);
}
REDUCE_MAP_SUMS_OF(added_sums, added_check)
REDUCE_MAP_VALUES_OF(added_out, added_value)
REDUCE_MAP_WRITE_OF(added_grad_out, added_grad_write)
static const reduce_map_body normal_body = {
    .setup = setup_one, .sums = added_sums, .write = added_out, .full = 1};
static const reduce_map_body normal_grad_body = {
    .setup = setup_one, .sums = added_sums, .write = added_grad_out, .row = added_grad_row, .full = 1};
#define embedding_body normal_body
#define embedding_grad_body normal_grad_body
static const row_kernel normal_kernel = NOISE_KERNEL(reduce_map_engine, normal_body, normal_call, true);
static const row_kernel normal_grad_kernel =
    NOISE_KERNEL(reduce_map_engine, normal_grad_body, normal_call, true);
static const row_kernel embedding_kernel =
    NOISE_KERNEL(reduce_map_engine, embedding_body, embedding_call, true);
static const row_kernel embedding_grad_kernel =
    NOISE_KERNEL(reduce_map_engine, embedding_grad_body, embedding_call, true);

OPERATOR(normal_noise, normal, normal_grad)
OPERATOR(embedding_noise, embedding, embedding_grad)
