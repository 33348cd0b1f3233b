/* attention/dropout.h - which weights are dropped: a pure function of the seed, the stream of the
 * head, and the positions of query and key.
 *
 * Word key % 4 of block position * 2^26 + key / 4 of Philox decides: the weight of a pair is
 * dropped where that word is below dropout * 2^32. So tiles, splits, threads and the other rows of
 * a call do not matter, and the backward passes, by rows or by keys, drop the same pairs. */
#ifndef SMX_ATTENTION_DROPOUT_H
#define SMX_ATTENTION_DROPOUT_H
#include "attention.h"
#include "vec/philox.h"

enum { DROP_BLOCKS = 16 }; /* that are computed side by side */

/* n pairs of a row and keys from `key` on, or of a key and rows from `at` on (vary); n and, unless
 * vary, key are multiples of 64. */
typedef struct drop_pairs {
  uint64_t stream;
  int64_t at, key, n;
  bool vary;
} drop_pairs;

/* The words of DROP_BLOCKS blocks from `first` on, `step` apart. */
static inline void drop_words(const attn_call *c, uint64_t stream, uint64_t first, uint64_t step,
                              uint32_t words[4][DROP_BLOCKS]) {
  uint32_t k0 = (uint32_t)c->seed, k1 = (uint32_t)(c->seed >> 32), *x = words[0], *y = words[1],
           *z = words[2], *w = words[3];
  for (int i = 0; i < DROP_BLOCKS; i++) {
    const uint64_t block = first + (uint64_t)i * step;
    x[i] = (uint32_t)block, y[i] = ((uint32_t)(block >> 32) & 0xffffff) | (uint32_t)PURPOSE_DROPOUT << 24;
    z[i] = (uint32_t)stream, w[i] = (uint32_t)(stream >> 32);
  }
  for (int round = 0; round < 10; round++, k0 += PHILOX_KEY_0, k1 += PHILOX_KEY_1)
    for (int i = 0; i < DROP_BLOCKS; i++) {
      const uint64_t p = (uint64_t)PHILOX_0 * x[i], q = (uint64_t)PHILOX_1 * z[i];
      x[i] = (uint32_t)(q >> 32) ^ y[i] ^ k0, y[i] = (uint32_t)q;
      z[i] = (uint32_t)(p >> 32) ^ w[i] ^ k1, w[i] = (uint32_t)p;
    }
}

/* keep[i]: what weight i is multiplied by, 0 or 1 / (1 - dropout). */
static inline void drop_mask(const attn_call *c, const drop_pairs *p, real *keep) {
  const uint64_t least = (uint64_t)(c->dropout * 0x1p32);
  const real gain = (real)(1 / (1 - c->dropout));
  const int own = (int)(p->key & 3), each = p->vary ? 1 : 4;
  uint32_t words[4][DROP_BLOCKS];
  for (int64_t i = 0; i < p->n; i += DROP_BLOCKS * each) {
    const uint64_t at = (uint64_t)(p->at + (p->vary ? i : 0)) << 26,
                   key = (uint64_t)(p->key + (p->vary ? 0 : i)) >> 2;
    drop_words(c, p->stream, at + key, p->vary ? 1 << 26 : 1, words);
    for (int x = 0; x < DROP_BLOCKS; x++)
      for (int u = 0; u < each; u++) keep[i + x * each + u] = words[p->vary ? own : u][x] >= least ? gain : 0;
  }
}

static inline void drop(const real *keep, int64_t n, real *x) {
  for (int64_t i = 0; i < n; i++) x[i] = keep[i] == 0 ? 0 : x[i] * keep[i];
}

#endif
