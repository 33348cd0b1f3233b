/* vec/vec.h - the vector layer: includes the header of the instruction set and the real type that
 * this file is being compiled for.
 *
 * A virtual vector is 64 bytes: LANES = 16 floats or 8 doubles (SMX_REAL = 32 or 64).
 * vec_portable.h defines what each function means; every other header computes the same bits.
 * 64 lanes, the unit in which rows are summed, are VPB vectors. Kernels use nothing else: no libm,
 * no reduce or estimate instructions, no contraction. */
#ifndef SMX_VEC_H
#define SMX_VEC_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SMX_CAT2(a, b, c) a##_##b##_f##c
#define SMX_CAT(a, b, c) SMX_CAT2(a, b, c)
#define SMX_FN(name) SMX_CAT(name, SMX_ISA, SMX_REAL) /* softmax_avx2_f32 */

#if SMX_REAL == 32
typedef float real;
typedef uint32_t rbits;
enum { LANES = 16, MANT_BITS = 23, MIN_EXP = -125, EXP_BIAS = 127 };
#define R_MAX 0x1.fffffep127f
#define R_TINY 0x1p-126f /* smallest normal */
#define R_NAN_BITS 0x7fc00000u
#elif SMX_REAL == 64
typedef double real;
typedef uint64_t rbits;
enum { LANES = 8, MANT_BITS = 52, MIN_EXP = -1021, EXP_BIAS = 1023 };
#define R_MAX 0x1.fffffffffffffp1023
#define R_TINY 0x1p-1022
#define R_NAN_BITS 0x7ff8000000000000u
#else
#error "SMX_REAL must be 32 or 64"
#endif
enum { BLOCK = 64, VPB = BLOCK / LANES, PAGE = 1024, GROUP = 8192 };
#define R_INF ((real)__builtin_inf())

#include SMX_VEC

SMI real r_from(rbits b) {
  real r;
  memcpy(&r, &b, sizeof r);
  return r;
}
SMI rbits r_bits(real r) {
  rbits b;
  memcpy(&b, &r, sizeof b);
  return b;
}
SMI real r_nan(void) { return r_from(R_NAN_BITS); }

/* Zeros and subnormal numbers become +0. */
#ifndef V_FLUSH_TINY
SMI vreal v_flush_tiny(vreal x) { return v_flush(x, v_abs(x), v_set1(R_TINY)); }
#endif
/* p * 2^d for a whole number d; exactly +0 when d < MIN_EXP. |p| in [0.5, 2], d <= EXP_BIAS; a NaN
 * in p or d gives NaN. */
SMI vreal v_scale(vreal p, vreal d) { return v_flush(v_scale_near(p, d), d, v_set1(MIN_EXP)); }

/* Folds 64 lanes pairwise: l += l + 32, 16, 8, 4, 2, 1; v_fold_block() until a vector is left. It
 * takes a copy, or GCC would keep the caller's sums in memory from the first. */
SMI vreal v_fold_block(const vreal *acc) {
  vreal a[VPB];
#pragma GCC unroll 8
  for (int j = 0; j < VPB; j++) a[j] = acc[j];
#pragma GCC unroll 4
  for (int h = VPB / 2; h; h /= 2)
#pragma GCC unroll 4
    for (int j = 0; j < h; j++) a[j] = v_add(a[j], a[j + h]);
  return a[0];
}
SMI real v_fold(const vreal *acc) { return v_hsum(v_fold_block(acc)); }

#endif
