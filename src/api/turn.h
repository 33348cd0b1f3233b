/* api/turn.h - matrices of 4- and 8-byte cells turned over, for tensors whose axis is not contiguous. */
#ifndef SMX_API_TURN_H
#define SMX_API_TURN_H
#include <stdint.h>
#include <string.h>

/* Squares of SIDE x SIDE cells at a time, in registers: half the rows meet the other half, then quarters, as in a butterfly. */
typedef int32_t turn_four __attribute__((vector_size(16)));
typedef int64_t turn_two __attribute__((vector_size(16)));

static inline void turn_4x4(const int32_t *a, int64_t a_pitch, int32_t *b, int64_t b_pitch) {
  turn_four r[4];
  for (int i = 0; i < 4; i++) memcpy(&r[i], a + i * a_pitch, 16);
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define TURN_HALVES(x, y, p, q, s, t) __builtin_shufflevector(x, y, p, q, s, t)
#endif
#endif
#ifndef TURN_HALVES
#define TURN_HALVES(x, y, p, q, s, t) __builtin_shuffle(x, y, (turn_four){p, q, s, t})
#endif
  turn_four low01 = TURN_HALVES(r[0], r[1], 0, 4, 1, 5), low23 = TURN_HALVES(r[2], r[3], 0, 4, 1, 5);
  turn_four high01 = TURN_HALVES(r[0], r[1], 2, 6, 3, 7), high23 = TURN_HALVES(r[2], r[3], 2, 6, 3, 7);
  r[0] = TURN_HALVES(low01, low23, 0, 1, 4, 5), r[1] = TURN_HALVES(low01, low23, 2, 3, 6, 7);
  r[2] = TURN_HALVES(high01, high23, 0, 1, 4, 5), r[3] = TURN_HALVES(high01, high23, 2, 3, 6, 7);
  for (int i = 0; i < 4; i++) memcpy(b + i * b_pitch, &r[i], 16);
}

static inline void turn_2x2(const int64_t *a, int64_t a_pitch, int64_t *b, int64_t b_pitch) {
  turn_two r0, r1;
  memcpy(&r0, a, 16), memcpy(&r1, a + a_pitch, 16);
  turn_two s0 = {r0[0], r1[0]}, s1 = {r0[1], r1[1]};
  memcpy(b, &s0, 16), memcpy(b + b_pitch, &s1, 16);
}

/* b[c][r] = a[r][c] for r < rows, c < columns; pitches in cells. */
#define TURN_OF(name, cell, SIDE, square) \
  static inline void name(const cell *a, int64_t a_pitch, cell *b, int64_t b_pitch, int64_t rows, int64_t columns) { \
    const int64_t whole_rows = rows / SIDE * SIDE, whole_columns = columns / SIDE * SIDE; \
    for (int64_t r = 0; r < whole_rows; r += SIDE) \
      for (int64_t c = 0; c < whole_columns; c += SIDE) square(a + r * a_pitch + c, a_pitch, b + c * b_pitch + r, b_pitch); \
    for (int64_t r = 0; r < rows; r++) \
      for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) b[c * b_pitch + r] = a[r * a_pitch + c]; \
  }
TURN_OF(turn_fours, int32_t, 4, turn_4x4)
TURN_OF(turn_twos, int64_t, 2, turn_2x2)

enum { TURN = 16 }; /* elements of an axis that are turned over together: a cache line of floats */

static inline void turn(int64_t cell, const void *a, int64_t a_pitch, void *b, int64_t b_pitch, int64_t rows, int64_t columns) {
  if (cell == 4) turn_fours(a, a_pitch, b, b_pitch, rows, columns);
  else turn_twos(a, a_pitch, b, b_pitch, rows, columns);
}

#endif
