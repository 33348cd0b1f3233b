/* attention/tile.h - the inner loops: scores of a block of rows with a panel of keys, and weights times values.
 *
 * Both vectorise across outputs. Each lane owns one output and adds its terms by FMA in index order, so neither the height of a block nor the
 * width of a vector can be seen in a result; the naive triple loop with fma is the specification.
 *
 * Queries are packed by blocks, [column][row of the block]; a panel of keys as [column][key]. */
#ifndef SMX_ATTENTION_TILE_H
#define SMX_ATTENTION_TILE_H
#include "attention.h"
#include "engine/moves.h"
#include "vec/math.h"

/* Vectors that a row of a block has in registers: 6 x 4 accumulators where there are 32 registers of 64 bytes, 6 x 1 elsewhere. */
#if defined(__AVX512F__) && !defined(V_PORTABLE)
enum { COLS = 4 };
#else
enum { COLS = 1 };
#endif
enum { PITCH = ATTN_SPLIT + 16 }; /* of the scores of a row: not a multiple of a page */

#define REAL_STORE (SMX_REAL == 32 ? STORE_F32 : STORE_F64)
#define ALL_COLS(c, n) _Pragma("GCC unroll 4") for (int c = 0; c < (n); c++)
#define ALL_ROWS(r, n) _Pragma("GCC unroll 6") for (int r = 0; r < (n); r++)

static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* ---- packing ---- */

typedef real quad __attribute__((vector_size(4 * sizeof(real))));

SMI quad quad_load(const real *p) {
  quad q;
  memcpy(&q, p, sizeof q);
  return q;
}
SMI void quad_store(real *p, quad q) { memcpy(p, &q, sizeof q); }

#ifdef __clang__
#define SHUFFLE(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
typedef rbits quad_index __attribute__((vector_size(4 * sizeof(rbits))));
#define SHUFFLE(x, y, a, b, c, d) __builtin_shuffle(x, y, (quad_index){a, b, c, d})
#endif

/* out[column][0..3] from four rows, columns x .. x + 3. */
SMI void turn_quads(const real *const row[4], int64_t x, real *out, int64_t pitch) {
  quad a = quad_load(row[0] + x), b = quad_load(row[1] + x), c = quad_load(row[2] + x), d = quad_load(row[3] + x);
  quad ab = SHUFFLE(a, b, 0, 4, 1, 5), ba = SHUFFLE(a, b, 2, 6, 3, 7);
  quad cd = SHUFFLE(c, d, 0, 4, 1, 5), dc = SHUFFLE(c, d, 2, 6, 3, 7);
  quad_store(out, SHUFFLE(ab, cd, 0, 1, 4, 5));
  quad_store(out + pitch, SHUFFLE(ab, cd, 2, 3, 6, 7));
  quad_store(out + 2 * pitch, SHUFFLE(ba, dc, 0, 1, 4, 5));
  quad_store(out + 3 * pitch, SHUFFLE(ba, dc, 2, 3, 6, 7));
}

/* One row as contiguous reals: where it lies if it is such, else converted into buffer. */
static inline const real *row_reals(const attn_rows *m, const char *at, int64_t n, real *buffer) {
  if (m->stride == 1 && m->store == REAL_STORE) return (const real *)(const void *)at;
  move_load((row_store)m->store, at, m->stride, (size_t)n, buffer);
  return buffer;
}

/* Memory is what few queries wait for. While four panels of 64 rows are read the next four are fetched, a row of each in turn: one core reads
 * four streams faster than one. How far on the row is that row r of panel p fetches: */
enum { LINE = 64, PACKED = 16 };
static inline int64_t rows_ahead(int p, int r) { return (4 - p % 4 + r % 4) * ATTN_PANEL + p % 4 * (ATTN_PANEL / 4) + r / 4 - r; }

static inline void fetch_row(const attn_rows *m, const char *at, int64_t ahead, int64_t columns) {
  int64_t bytes = columns * (m->store == STORE_F64 ? 8 : m->store == STORE_F32 ? 4 : 2);
  for (int64_t x = 0; x < bytes && m->stride == 1; x += LINE) v_prefetch_far(at + ahead * m->step + x);
}

/* PACKED rows of panel p from first on, n of which are there: out[column][row], a line of out at a time. */
static inline void pack_some(const attn_rows *m, const char *const *at, int p, int first, int n, int64_t columns, real *out, real *buffer) {
  const real *row[PACKED];
  int64_t pitch = round_up(columns, 4), x = 0;
  bool direct = n == PACKED && m->stride == 1 && m->store == REAL_STORE;
  for (int r = 0; r < PACKED; r++) {
    real *own = buffer + r * pitch;
    if (r < n && !direct) fetch_row(m, at[r], rows_ahead(p, first + r), columns);
    row[r] = r < n ? row_reals(m, at[r], columns, own) : own;
    if (r >= n) memset(own, 0, (size_t)columns * sizeof *own);
  }
  for (; x + 4 <= columns; x += 4) {
    const int turn = (int)(x / 4 % 4 * 4);
    const int64_t line = x * (int64_t)sizeof(real) / LINE * LINE;
    for (int r = turn; r < turn + 4 && direct; r++) v_prefetch_far(at[r] + rows_ahead(p, first + r) * m->step + line);
    for (int r = 0; r < PACKED; r += 4) turn_quads(row + r, x, out + x * ATTN_PANEL + r, ATTN_PANEL);
  }
  for (; x < columns; x++)
    for (int r = 0; r < PACKED; r++) out[x * ATTN_PANEL + r] = row[r][x];
}

/* Packs n rows of panel p, at most 64, whose addresses are at[]: out[column][row], rows from n on are 0. buffer: PACKED rows. */
static inline void pack_rows(const attn_rows *m, const char *const *at, int p, int n, int64_t columns, real *out, real *buffer) {
  for (int r = 0; r < ATTN_PANEL; r += PACKED)
    pack_some(m, at + r, p, r, n - r < 0 ? 0 : n - r < PACKED ? n - r : PACKED, columns, out + r, buffer);
}

/* ---- scores ---- */

/* z[row][0..63] = scale[row] <q_row, k_key>, for `rows` rows of a block. top: the largest scores of each row, a vector each, carried along.
 * Returns the smallest score of the block. NaN is passed over by both. */
SMI real score_some(int rows, const real *q, const real *k, int64_t d, const real *scale, real *z, real *top) {
  vreal low = v_set1(R_INF);
  for (int at = 0; at < VPB; at += COLS) {
    vreal a[ATTN_BLOCK][COLS];
    ALL_ROWS(r, ATTN_BLOCK) ALL_COLS(c, COLS) a[r][c] = v_set1(0);
    for (int64_t x = 0; x < d; x++) {
      vreal b[COLS];
      ALL_COLS(c, COLS) b[c] = v_load(k + x * ATTN_PANEL + (at + c) * LANES);
      ALL_ROWS(r, rows) {
        const vreal s = v_set1(q[x * ATTN_BLOCK + r]);
        ALL_COLS(c, COLS) a[r][c] = v_fma(s, b[c], a[r][c]);
      }
    }
    ALL_ROWS(r, rows) {
      vreal m = v_load(top + r * LANES), s = v_set1(scale[r]);
      ALL_COLS(c, COLS) {
        const vreal y = v_mul(a[r][c], s);
        v_store(z + r * PITCH + (at + c) * LANES, y);
        m = v_max(y, m);
        low = v_min(y, low);
      }
      v_store(top + r * LANES, m);
    }
  }
  return v_hmin(low);
}

/* ---- weights times values ---- */

/* o[row][0..cols-1] += sum over keys of w[row][key] v[key], the keys of panel p: vectors of columns, keys in order. */
SMI void values_some(int rows, int cols, int p, const real *w, const real *v, int64_t pitch, int keys, real *o, int64_t o_pitch) {
  vreal a[ATTN_BLOCK][COLS];
  ALL_ROWS(r, ATTN_BLOCK) ALL_COLS(c, cols) a[r][c] = r < rows ? v_load(o + r * o_pitch + c * LANES) : v_set1(0);
  for (int j = 0; j < keys; j++) {
    vreal b[COLS];
    ALL_COLS(c, cols) b[c] = v_load(v + j * pitch + c * LANES);
    if (rows <= 2) ALL_COLS(c, cols) v_prefetch_far(v + (j + rows_ahead(p, j)) * pitch + c * LANES); /* few rows wait for memory */
    ALL_ROWS(r, rows) {
      const vreal s = v_set1(w[r * PITCH + j]);
      ALL_COLS(c, cols) a[r][c] = v_fma(s, b[c], a[r][c]);
    }
  }
  ALL_ROWS(r, rows) ALL_COLS(c, cols) v_store(o + r * o_pitch + c * LANES, a[r][c]);
}

/* All columns, a multiple of LANES. */
SMI void values_rows(int rows, int p, const real *w, const real *v, int64_t pitch, int keys, real *o, int64_t o_pitch, int64_t columns) {
  int64_t x = 0;
  for (; x + COLS * LANES <= columns; x += COLS * LANES) values_some(rows, COLS, p, w, v + x, pitch, keys, o + x, o_pitch);
  for (; COLS > 1 && x < columns; x += LANES) values_some(rows, 1, p, w, v + x, pitch, keys, o + x, o_pitch);
}

/* A block is computed at the height of 1, 2, 4 or 6 rows. */
static inline real score_block(int rows, const real *q, const real *k, int64_t d, const real *scale, real *z, real *top) {
  return rows == 1   ? score_some(1, q, k, d, scale, z, top)
         : rows == 2 ? score_some(2, q, k, d, scale, z, top)
         : rows <= 4 ? score_some(4, q, k, d, scale, z, top)
                     : score_some(6, q, k, d, scale, z, top);
}
static inline void values_block(int rows, int p, const real *w, const real *v, int64_t pitch, int keys, real *o, int64_t o_pitch,
                                int64_t columns) {
  if (rows == 1) values_rows(1, p, w, v, pitch, keys, o, o_pitch, columns);
  else if (rows == 2) values_rows(2, p, w, v, pitch, keys, o, o_pitch, columns);
  else if (rows <= 4) values_rows(4, p, w, v, pitch, keys, o, o_pitch, columns);
  else values_rows(6, p, w, v, pitch, keys, o, o_pitch, columns);
}

#endif
