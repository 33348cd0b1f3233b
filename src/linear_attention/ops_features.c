/* linear_attention/ops_features.c - angles and random numbers that features are made of. */
#include "engine/loops.h"
#include "linear_attention.h"
#include "engine/normal.h"
#include "vec/philox.h"
#include "vec/trig.h"

void SMX_FN(state_sin_cos)(double x, double *sine, double *cosine) { d_sin_cos(x, sine, cosine); }
void SMX_FN(state_normal)(uint64_t seed, uint64_t stream, int64_t n, double *noise) {
  const draws d = {seed, stream, PURPOSE_NORMAL};
  for (int64_t i = 0; i < n; i++) noise[i] = normal_of(draw_word(&d, (uint64_t)i));
}
