/* alone.c - proves that the experts of a token and their weights are, to the bit, those that it has
 * alone, whatever tokens are beside it: a choice among groups by sigmoids and a bias. Logits are
 * ordinary, tied, a few ULP apart, saturated, tiny, not finite; biases are small, large, not
 * finite, or such that sums of scores are equal. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/cpu.h"
#include "status.h"
#include "tensors.h"
#include "util.h"
#include <softmax.h>

enum { TOKENS = 150, MOST = 256, BEST = 15 };

typedef enum kind { ORDINARY, WIDE, TIED, CLOSE, EQUAL, SATURATED, TINY, LOW, ODD, KINDS } kind;

static float logit_of(rng *r, kind how) {
  const float x = (float)rng_normal(r);
  switch (how) {
    case WIDE: return 4 * x;
    case TIED: return (float)rng_below(r, 4);
    case CLOSE: return 1 + (float)rng_below(r, 64) * 0x1p-21f;
    case EQUAL: return 0.3F;
    case SATURATED: return 16 + 8 * x;
    case TINY: return (float)rng_below(r, 9) * 0x1p-147f - 0x1p-146f;
    case LOW: return -12 + 3 * x;
    case ODD: {
      static const float odd[] = {NAN, INFINITY, -INFINITY, 81, -81, 3e38F, -3e38F, -0.0F};
      return rng_below(r, 300) ? x : odd[rng_below(r, 8)];
    }
    default: return x;
  }
}

/* The sixth undoes what a logit of the first token adds. */
enum { BIASES = 9 };
static void make_bias(rng *r, int how, const float *logits, int64_t n, float *bias) {
  for (int64_t i = 0; i < n; i++) {
    const float u = (float)rng_below(r, 7) / 50 - 0.06F;
    const float of[BIASES] = {0,          u,        40 + u, 100 * u, 4000 + u, 1 - 1 / (1 + expf(-logits[i])),
                              -0x1p-140f, 1e6F * u, u};
    bias[i] = of[how];
  }
  if (how == BIASES - 1) bias[n / 2] = n % 3 ? INFINITY : NAN;
}

typedef struct numbers {
  float z[TOKENS * MOST], bias[MOST], w[TOKENS * BEST];
  int64_t index[TOKENS * BEST];
} numbers;

static void route(smx_context *ctx, const smx_gate *gate, const numbers *of, bool biased, int64_t first,
                  int64_t count, int64_t n, numbers *to) {
  int64_t logits[] = {count, n}, chosen[] = {count, gate->k};
  const smx_tensor z = {(float *)(uintptr_t)of->z + first * n, {1, 0}, 2, SMX_F32, logits, NULL, 0},
                   b = {(float *)(uintptr_t)of->bias, {1, 0}, 1, SMX_F32, logits + 1, NULL, 0},
                   w = {to->w + first * gate->k, {1, 0}, 2, SMX_F32, chosen, NULL, 0},
                   i = {to->index + first * gate->k, {1, 0}, 2, SMX_I64, chosen, NULL, 0};
  good(smx_gate_topk(ctx, gate, &z, biased ? &b : NULL, &w, &i));
}

static void one_by_one(rng *r, smx_context *ctx, const smx_gate *gate, int64_t n, kind how, int bias) {
  static numbers have, want;
  for (int64_t i = 0; i < TOKENS * n; i++) have.z[i] = logit_of(r, how);
  if (bias >= 0) make_bias(r, bias, have.z, n, have.bias);
  route(ctx, gate, &have, bias >= 0, 0, TOKENS, n, &have);
  for (int64_t t = 0; t < TOKENS; t++) route(NULL, gate, &have, bias >= 0, t, 1, n, &want);
  const size_t count = (size_t)(TOKENS * gate->k);
  if (memcmp(have.index, want.index, count * sizeof *have.index) ||
      memcmp(have.w, want.w, count * sizeof *have.w))
    fail_msg("logits %d, bias %d, %lld experts, %lld groups, k %lld", how, bias, (long long)n,
             (long long)gate->groups, (long long)gate->k);
}

static void a_token_alone_is_the_same(void **state) {
  static const int64_t shapes[][4] = {/* groups, size, top_groups, k */
                                      {8, 32, 4, 8}, {8, 32, 4, 7},  {8, 16, 8, 15}, {4, 64, 2, 3},
                                      {3, 48, 2, 4}, {2, 16, 1, 2},  {5, 32, 3, 6},  {8, 32, 1, 1},
                                      {8, 32, 7, 9}, {16, 16, 8, 8}, {8, 32, 4, 9},  {2, 128, 2, 4}};
  rng r = {19};
  for (way w = {0}; next_way(&w);)
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
      for (int how = 0; how < KINDS; how++)
        for (int bias = -1; bias < BIASES; bias++) {
          if ((how + bias + (int)s + w.number) % 3 && s) continue; /* a third of them each time */
          const smx_gate gate = {.size = sizeof gate,
                                 .k = shapes[s][3],
                                 .groups = shapes[s][0],
                                 .top_groups = shapes[s][2],
                                 .group = (how + bias) % 4 ? SMX_GATE_GROUP_TWO : SMX_GATE_GROUP_BEST,
                                 .score = SMX_GATE_SIGMOID};
          one_by_one(&r, w.ctx, &gate, shapes[s][0] * shapes[s][1], (kind)how, bias);
        }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_token_alone_is_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
