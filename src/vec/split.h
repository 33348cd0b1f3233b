/* vec/split.h - vectors of every second or third number: of LANES * step numbers in `step` vectors,
 * lane i of out[j] is number i step + j. */
#ifndef SMX_VEC_SPLIT_H
#define SMX_VEC_SPLIT_H
#include "vec.h"

/* What a register holds. */
#if defined(V_PORTABLE) || !defined(__AVX2__)
#define PIECE_BYTES 16
#elif !defined(__AVX512F__)
#define PIECE_BYTES 32
#else
#define PIECE_BYTES 64
#endif
#define PIECE_LANES (PIECE_BYTES * 8 / SMX_REAL)
enum { PIECES = LANES / PIECE_LANES };
typedef real piece __attribute__((vector_size(PIECE_BYTES)));

#define OF_2(f, a) f(a), f(a + 1)
#define OF_4(f, a) OF_2(f, a), OF_2(f, a + 2)
#define OF_8(f, a) OF_4(f, a), OF_4(f, a + 4)
#define OF_16(f, a) OF_8(f, a), OF_8(f, a + 8)
#if PIECE_LANES == 2
#define OF_PIECE(f) OF_2(f, 0)
#elif PIECE_LANES == 4
#define OF_PIECE(f) OF_4(f, 0)
#elif PIECE_LANES == 8
#define OF_PIECE(f) OF_8(f, 0)
#else
#define OF_PIECE(f) OF_16(f, 0)
#endif
#ifdef __clang__
#define PIECE_SHUFFLE(x, y, f) __builtin_shufflevector(x, y, OF_PIECE(f))
#else
#if SMX_REAL == 32
typedef int32_t piece_index __attribute__((vector_size(PIECE_BYTES)));
#else
typedef int64_t piece_index __attribute__((vector_size(PIECE_BYTES)));
#endif
#define PIECE_SHUFFLE(x, y, f) __builtin_shuffle(x, y, (piece_index){OF_PIECE(f)})
#endif

#define EVEN(i) (2 * (i))
#define ODD(i) (2 * (i) + 1)
SMI void v_split_2(const vreal in[2], vreal out[2]) {
  piece from[2 * PIECES], to[2][PIECES];
  memcpy(from, in, sizeof from);
  for (int k = 0; k < PIECES; k++) {
    to[0][k] = PIECE_SHUFFLE(from[2 * k], from[2 * k + 1], EVEN);
    to[1][k] = PIECE_SHUFFLE(from[2 * k], from[2 * k + 1], ODD);
  }
  memcpy(out, to, sizeof to);
}

/* Of three pieces: what the first two have comes into place, then the rest from the third. */
#define THIRD(i, j) (3 * (i) + (j))
#define OF_TWO(i, j) (THIRD(i, j) < 2 * PIECE_LANES ? THIRD(i, j) : 0)
#define OF_THREE(i, j) (THIRD(i, j) < 2 * PIECE_LANES ? (i) : THIRD(i, j) - PIECE_LANES)
#define TWO_0(i) OF_TWO(i, 0)
#define TWO_1(i) OF_TWO(i, 1)
#define TWO_2(i) OF_TWO(i, 2)
#define THREE_0(i) OF_THREE(i, 0)
#define THREE_1(i) OF_THREE(i, 1)
#define THREE_2(i) OF_THREE(i, 2)
SMI void v_split_3(const vreal in[3], vreal out[3]) {
  piece from[3 * PIECES], to[3][PIECES];
  memcpy(from, in, sizeof from);
  for (int k = 0; k < PIECES; k++) {
    const piece a = from[3 * k], b = from[3 * k + 1], c = from[3 * k + 2];
    to[0][k] = PIECE_SHUFFLE(PIECE_SHUFFLE(a, b, TWO_0), c, THREE_0);
    to[1][k] = PIECE_SHUFFLE(PIECE_SHUFFLE(a, b, TWO_1), c, THREE_1);
    to[2][k] = PIECE_SHUFFLE(PIECE_SHUFFLE(a, b, TWO_2), c, THREE_2);
  }
  memcpy(out, to, sizeof to);
}

#endif
