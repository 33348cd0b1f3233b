/* attention/pack.h - rows of a matrix in memory: what of them is fetched ahead, whether vectors can
 * be loaded from them as they lie, and panels of 64 that are packed as [column][row]. */
#ifndef SMX_ATTENTION_PACK_H
#define SMX_ATTENTION_PACK_H
#include "attention.h"
#include "engine/fetch.h"
#include "engine/dtype_io.h"
#include "vec/columns.h"

#define REAL_STORE (SMX_REAL == 32 ? STORE_F32 : STORE_F64)

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* ---- what is read next ---- */

/* With few queries, memory decides the speed. While some rows are computed, rows that come soon are
 * prefetched, two neighbouring cache lines at once. Most cores read several streams faster than
 * one, but slow down with many at once. An AMD core prefetches by itself where it sees lines read
 * or prefetched in address order, a little before their use. Keys are transposed 16 at a time,
 * which is another order, so the lines of the next 16 are read before (Zen 4, as a share of the
 * rate of reading alone: 0.93 to 1.05; by prefetch instructions at any distance 0.65 to 0.85), or
 * prefetched well ahead (reads_before). */
enum { LINE = 64, STREAMS = 4, PAIR = 2 * LINE };
typedef struct ahead {
  const char *at;           /* NULL: nothing is fetched */
  int64_t step, bytes, far; /* from row to row, of a row, from stream to stream */
  int64_t column, left;     /* of the row; rows of a stream */
  int stream, streams;
  const char *read, *end; /* another array that is read instead: rows without gaps */
} ahead;

SMI void fetch_pair(ahead *a) {
  if (!a->at) return;
  v_prefetch_far(a->at), v_prefetch_far(a->at + LINE);
  a->at += a->far;
  if (++a->stream < a->streams) return;
  a->stream = 0, a->at += PAIR - a->streams * a->far, a->column += PAIR;
  if (a->column < a->bytes) return;
  a->at += a->step - a->column, a->column = 0;
  if (--a->left <= 0) a->at = NULL;
}
SMI void fetch(ahead *a, int64_t bytes) {
  for (int64_t x = 0; x < bytes; x += PAIR) fetch_pair(a);
}
SMI void read_lines(const char *p, int64_t bytes) {
  _Pragma("GCC unroll 8") for (int64_t x = 0; x < bytes; x += LINE) v_read(p + x);
}

/* ---- rows as they lie, and packed ---- */

static inline int64_t store_bytes(int store) {
  return store == STORE_F64 ? 8 : store == STORE_F32 ? 4 : store == STORE_MASK ? 1 : 2;
}

/* Whether vectors can be loaded from rows of this type. */
static inline bool loads_directly(int store) {
#ifdef V_HAS_HALF
  if (store == STORE_F16 || store == STORE_BF16) return true;
#endif
  return store == REAL_STORE;
}
SMI vreal load_as(int store, const char *p) {
#ifdef V_HAS_HALF
  if (store == STORE_F16) return v_load_f16((const uint16_t *)(const void *)p);
  if (store == STORE_BF16) return v_load_bf16((const uint16_t *)(const void *)p);
#endif
  return v_load((const real *)(const void *)p);
}

/* Eight columns of LANES rows that are step bytes apart. */
enum { COLUMNS = 8 };
SMI void columns_as(int store, const char *p, int64_t step, vreal out[COLUMNS]) {
#ifdef V_HAS_HALF
  if (store == STORE_F16) v_columns_f16(p, step, out);
  if (store == STORE_BF16) v_columns_bf16(p, step, out);
#endif
  if (store != REAL_STORE) return;
  v_columns(p, step, out);
  v_columns(p + REAL_STEP * sizeof(real), step, out + REAL_STEP);
}

/* Rows `step` bytes apart, of a type that loads directly. */
typedef struct rows_at {
  const char *at;
  int64_t step;
  int store;
  ahead *next;
} rows_at;

/* One row as contiguous reals: in place if it is contiguous, else converted into buffer. */
static inline const real *row_reals(const attn_rows *m, const char *at, int64_t n, real *buffer) {
  if (m->stride == 1 && m->store == REAL_STORE) return (const real *)(const void *)at;
  dtype_load((row_store)m->store, at, m->stride, (size_t)n, buffer);
  return buffer;
}

static inline bool rows_are_even(const char *const *at, int n, int64_t step) {
  bool even = true;
  for (int x = 1; x < n; x++) even &= at[x] - at[x - 1] == step;
  return even;
}

enum { PACKED = 16 }; /* rows that are packed together */

/* PACKED rows, `step` bytes apart: out[column][row]. */
SMI void pack_columns(int store, const char *p, int64_t step, int64_t columns, int64_t pitch, real *out,
                      ahead *next) {
  for (int64_t x = 0; x + COLUMNS <= columns; x += COLUMNS)
    for (int r = 0; r < PACKED; r += LANES) {
      vreal c[COLUMNS];
      columns_as(store, p + x * store_bytes(store) + r * step, step, c);
      fetch(next, LANES * COLUMNS * store_bytes(store));
      for (int i = 0; i < COLUMNS; i++) v_store(out + (x + i) * pitch + r, c[i]);
    }
}

/* How far the columns of a panel of n rows are apart that is packed by itself. */
static inline int64_t few_pitch(int n) {
  return n < 2 ? n : n < PACKED ? round_up(n, 4) : round_up(n, PACKED);
}

/* Packs n rows, at most 64, whose addresses are at[]: out[column][row], columns `pitch` apart: 64,
 * or few_pitch(n). Between rows n and `pitch`, and behind the last column, there are numbers: 0,
 * or those of others. The last PACKED rows are packed together, whatever was packed of them
 * before. buffer: PACKED rows. */
#define pack_rows SMX_FN(pack_rows)
void pack_rows(const attn_rows *m, const char *const *at, int n, int64_t pitch, int64_t columns, real *out,
               real *buffer, ahead *next);

#endif
