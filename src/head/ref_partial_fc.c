/* head/ref_partial_fc.c - partial_fc by counting, for each class, those that come before it. */
#include "engine/ref_draws.h"
#include "ref.h"

#include <stdlib.h>

static uint64_t word(double seed, int64_t shard, int64_t class) {
  uint32_t r[4];
  random_block((uint64_t)seed, (uint64_t)shard + ((uint64_t)1 << 40), 18, (uint64_t) class / 2, r);
  return r[class % 2 * 2] | (uint64_t)r[class % 2 * 2 + 1] << 32;
}

/* How many classes from..end-1 come before class j: those of targets, then those of lesser
 * words. */
static int64_t before(const char *positive, double seed, int64_t s, int64_t from, int64_t end, int64_t j) {
  int64_t count = 0;
  for (int64_t i = from; i < end; i++) {
    const uint64_t a = word(seed, s, i), b = word(seed, s, j);
    if (positive[i] != positive[j]) count += positive[i];
    else count += positive[i] ? i < j : a < b || (a == b && i < j);
  }
  return count;
}

/* q: classes, keep, shards, seed, ignore_index. */
void ref_partial_fc(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], classes = (int64_t)c->q[0], keep = (int64_t)c->q[1],
                shards = (int64_t)c->q[2];
  char *const positive = calloc((size_t)classes, 1);
  double *const kept = c->out[0], *const moved = c->out[1];
  int64_t m = 0;
  for (int64_t i = 0; i < n; i++)
    if (c->in[0][i] != c->q[4]) positive[(int64_t)c->in[0][i]] = 1;
  for (int64_t i = 0; moved && i < n; i++) moved[i] = c->q[4];
  for (int64_t s = 0, from = 0; s < shards; s++) {
    const int64_t end = from + classes / shards + (s < classes % shards);
    for (int64_t j = from; j < end; j++) {
      if (before(positive, c->q[3], s, from, end, j) >= keep) continue;
      for (int64_t i = 0; moved && i < n; i++)
        if (c->in[0][i] == (double)j) moved[i] = (double)m;
      if (kept) kept[m] = (double)j;
      m++;
    }
    from = end;
  }
  free(positive);
}
