/* driver/transpose.h - matrices of 4- and 8-byte cells transposed, for tensors whose axis is not
 * contiguous. */
#ifndef SMX_DRIVER_TRANSPOSE_H
#define SMX_DRIVER_TRANSPOSE_H
#include <stdint.h>
#include <string.h>

/* Squares of SIDE x SIDE cells at a time, in registers: half the rows meet the other half, then
 * quarters, as in a butterfly. */
typedef int32_t transpose_four __attribute__((vector_size(16)));
typedef int64_t transpose_two __attribute__((vector_size(16)));

static inline void transpose_4x4(const int32_t *a, int64_t a_pitch, int32_t *b, int64_t b_pitch) {
  transpose_four r[4];
  for (int i = 0; i < 4; i++) memcpy(&r[i], a + i * a_pitch, 16);
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TRANSPOSE_SHUFFLE(x, y, p, q, s, t) __builtin_shufflevector(x, y, p, q, s, t)
#endif
#endif
#ifndef TRANSPOSE_SHUFFLE
#define TRANSPOSE_SHUFFLE(x, y, p, q, s, t) __builtin_shuffle(x, y, (transpose_four){p, q, s, t})
#endif
  transpose_four low01 = TRANSPOSE_SHUFFLE(r[0], r[1], 0, 4, 1, 5),
                 low23 = TRANSPOSE_SHUFFLE(r[2], r[3], 0, 4, 1, 5);
  transpose_four high01 = TRANSPOSE_SHUFFLE(r[0], r[1], 2, 6, 3, 7),
                 high23 = TRANSPOSE_SHUFFLE(r[2], r[3], 2, 6, 3, 7);
  r[0] = TRANSPOSE_SHUFFLE(low01, low23, 0, 1, 4, 5), r[1] = TRANSPOSE_SHUFFLE(low01, low23, 2, 3, 6, 7);
  r[2] = TRANSPOSE_SHUFFLE(high01, high23, 0, 1, 4, 5), r[3] = TRANSPOSE_SHUFFLE(high01, high23, 2, 3, 6, 7);
  for (int i = 0; i < 4; i++) memcpy(b + i * b_pitch, &r[i], 16);
}

static inline void transpose_2x2(const int64_t *a, int64_t a_pitch, int64_t *b, int64_t b_pitch) {
  transpose_two r0, r1;
  memcpy(&r0, a, 16), memcpy(&r1, a + a_pitch, 16);
  transpose_two s0 = {r0[0], r1[0]}, s1 = {r0[1], r1[1]};
  memcpy(b, &s0, 16), memcpy(b + b_pitch, &s1, 16);
}

/* b[c][r] = a[r][c] for r < rows, c < columns; pitches in cells. */
#define TRANSPOSE_OF(name, cell, SIDE, square) \
  static inline void name(const cell *a, int64_t a_pitch, cell *b, int64_t b_pitch, int64_t rows, \
                          int64_t columns) { \
    const int64_t whole_rows = rows / SIDE * SIDE, whole_columns = columns / SIDE * SIDE; \
    for (int64_t r = 0; r < whole_rows; r += SIDE) \
      for (int64_t c = 0; c < whole_columns; c += SIDE) \
        square(a + r * a_pitch + c, a_pitch, b + c * b_pitch + r, b_pitch); \
    for (int64_t r = 0; r < rows; r++) \
      for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) \
        b[c * b_pitch + r] = a[r * a_pitch + c]; \
  }
TRANSPOSE_OF(transpose_fours, int32_t, 4, transpose_4x4)
TRANSPOSE_OF(transpose_twos, int64_t, 2, transpose_2x2)

enum { TRANSPOSE = 16 }; /* elements of an axis that are transposed together: a cache line of floats */

static inline void transpose(int64_t cell, const void *a, int64_t a_pitch, void *b, int64_t b_pitch,
                             int64_t rows, int64_t columns) {
  if (cell == 4) transpose_fours(a, a_pitch, b, b_pitch, rows, columns);
  else transpose_twos(a, a_pitch, b, b_pitch, rows, columns);
}

#endif
