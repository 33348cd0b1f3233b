/* attention/dropout.h - which weights are dropped: a pure function of the seed, the stream of the
 * head, and the positions of query and key.
 *
 * Word key % 4 of block position * 2^26 + key / 4 of Philox decides: the weight of a pair is
 * dropped where that word is below dropout * 2^32. So tiles, splits, threads and the other rows of
 * a call do not matter, and the backward passes, by rows or by keys, drop the same pairs. */
#ifndef SMX_ATTENTION_DROPOUT_H
#define SMX_ATTENTION_DROPOUT_H
#include "attention.h"
#include "engine/loops.h"
#include "vec/philox_simd.h"

/* n pairs of a row and keys from `key` on, or of a key and rows from `at` on (vary); n and, unless
 * vary, key are multiples of 64. */
typedef struct drop_pairs {
  uint64_t stream;
  int64_t at, key, n;
  bool vary;
} drop_pairs;

/* keep[i]: what weight i is multiplied by, 0 or 1 / (1 - dropout). */
static inline void drop_mask(const attn_call *c, const drop_pairs *p, real *keep) {
  enum { EACH = 4 * WORD_BLOCKS };
  const uint32_t least = (uint32_t)(c->dropout * 0x1p32);
  const real gain = (real)(1 / (1 - c->dropout));
  const draws d = {c->seed, p->stream, PURPOSE_DROPOUT};
  uint32_t words[EACH];
  for (int64_t i = 0; i < p->n; i += EACH) {
    const uint64_t at = (uint64_t)(p->at + (p->vary ? i : 0)) << 26,
                   key = (uint64_t)(p->key + (p->vary ? 0 : i)) >> 2;
    if (!p->vary) philox_words(&d, at + key, words);
    for (int x = 0; x < EACH && p->vary; x += WORD_BLOCKS)
      philox_column(&d, at + ((uint64_t)x << 26) + key, 1 << 26, (int)(p->key & 3), words + x);
    for (int x = 0; x < EACH; x++) keep[i + x] = words[x] >= least ? gain : 0;
  }
}

SMI void drop(const real *keep, int64_t n, real *x) {
  for (size_t i = 0; i < (size_t)n; i += LANES) {
    const int cnt = lanes_left((size_t)n - i);
    const vreal k = at(keep, i, cnt);
    put(x, i, cnt, v_select(v_eq(k, v_set1(0)), v_set1(0), v_mul(at(x, i, cnt), k)));
  }
}

#endif
