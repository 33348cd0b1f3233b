/* vec/wide.h - the LANES numbers of a vector in double, in the registers of the machine. */
#ifndef SMX_VEC_WIDE_H
#define SMX_VEC_WIDE_H
#include "split.h"

enum { WIDE_LANES = PIECE_BYTES / 8, WIDES = LANES / WIDE_LANES };
typedef double wide_piece __attribute__((vector_size(PIECE_BYTES)));
typedef struct v_wide {
  wide_piece part[WIDES];
} v_wide;
#define EACH_WIDE(p) _Pragma("GCC unroll 8") for (int p = 0; p < WIDES; p++)

#if SMX_REAL == 64
SMI v_wide v_widen(vreal x) {
  v_wide w;
  memcpy(&w, &x, sizeof w);
  return w;
}
SMI vreal v_narrow(v_wide w) {
  vreal x;
  memcpy(&x, &w, sizeof x);
  return x;
}
#elif PIECE_BYTES == 64
SMI v_wide v_widen(vreal x) {
  return (v_wide){{(wide_piece)_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                   (wide_piece)_mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))}};
}
SMI vreal v_narrow(v_wide w) { /* rounded */
  return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)w.part[0])),
                            _mm512_cvtpd_ps((__m512d)w.part[1]), 1);
}
#elif PIECE_BYTES == 32
SMI v_wide v_widen(vreal x) {
  return (v_wide){{(wide_piece)_mm256_cvtps_pd(H_CAST_Q(x.a)), (wide_piece)_mm256_cvtps_pd(H_HIGH_Q(x.a)),
                   (wide_piece)_mm256_cvtps_pd(H_CAST_Q(x.b)), (wide_piece)_mm256_cvtps_pd(H_HIGH_Q(x.b))}};
}
SMI vreal v_narrow(v_wide w) {
  return (vreal){_mm256_set_m128(_mm256_cvtpd_ps((__m256d)w.part[1]), _mm256_cvtpd_ps((__m256d)w.part[0])),
                 _mm256_set_m128(_mm256_cvtpd_ps((__m256d)w.part[3]), _mm256_cvtpd_ps((__m256d)w.part[2]))};
}
#else
typedef float narrow_piece __attribute__((vector_size(8)));
SMI v_wide v_widen(vreal x) {
  narrow_piece narrow[WIDES];
  v_wide w;
  memcpy(narrow, &x, sizeof x);
  EACH_WIDE(p) w.part[p] = __builtin_convertvector(narrow[p], wide_piece);
  return w;
}
SMI vreal v_narrow(v_wide w) {
  narrow_piece narrow[WIDES];
  vreal x;
  EACH_WIDE(p) narrow[p] = __builtin_convertvector(w.part[p], narrow_piece);
  memcpy(&x, narrow, sizeof x);
  return x;
}
#endif

SMI v_wide v_wide_zero(void) {
  v_wide w;
  memset(&w, 0, sizeof w);
  return w;
}
SMI v_wide v_wide_add(v_wide a, v_wide b) {
  EACH_WIDE(p) a.part[p] += b.part[p];
  return a;
}
SMI v_wide v_wide_fold(v_wide sum, v_wide a, v_wide b) { /* rounded twice */
  EACH_WIDE(p) sum.part[p] += a.part[p] * b.part[p];
  return sum;
}
/* The same of numbers whose product is exact in double if they are f32. */
SMI v_wide v_wide_fold_exact(v_wide sum, v_wide a, v_wide b) {
#if SMX_REAL == 32 && PIECE_BYTES == 64
  EACH_WIDE(p)
  sum.part[p] = (wide_piece)_mm512_fmadd_pd((__m512d)a.part[p], (__m512d)b.part[p], (__m512d)sum.part[p]);
  return sum;
#elif SMX_REAL == 32 && PIECE_BYTES == 32
  EACH_WIDE(p)
  sum.part[p] = (wide_piece)_mm256_fmadd_pd((__m256d)a.part[p], (__m256d)b.part[p], (__m256d)sum.part[p]);
  return sum;
#else
  return v_wide_fold(sum, a, b);
#endif
}
SMI v_wide v_wide_mul(v_wide a, double by) {
  EACH_WIDE(p) a.part[p] *= by;
  return a;
}
SMI v_wide v_wide_div(v_wide a, double by) {
  EACH_WIDE(p) a.part[p] /= by;
  return a;
}

/* LANES numbers of memory. */
SMI v_wide v_widen_at(const real *p) {
#if SMX_REAL == 32 && PIECE_BYTES == 64
  return (v_wide){{(wide_piece)_mm512_cvtps_pd(_mm256_loadu_ps(p)),
                   (wide_piece)_mm512_cvtps_pd(_mm256_loadu_ps(p + LANES / 2))}};
#elif SMX_REAL == 32 && PIECE_BYTES == 32
  v_wide w;
  EACH_WIDE(i) w.part[i] = (wide_piece)_mm256_cvtps_pd(_mm_loadu_ps(p + i * WIDE_LANES));
  return w;
#else
  return v_widen(v_load(p));
#endif
}

/* The even and the odd ones of 2 LANES numbers, in an order that v_narrow_pairs() undoes: numbers
 * are widened where they lie, and then shuffled within 16 bytes. */
#if SMX_REAL == 32 && PIECE_BYTES > 16
SMI void v_widen_pairs(const real *p, v_wide out[2]) {
  const v_wide low = v_widen_at(p), high = v_widen_at(p + LANES);
  EACH_WIDE(i) {
    const wide_piece a = i < WIDES / 2 ? low.part[2 * i % WIDES] : high.part[2 * i % WIDES],
                     b = i < WIDES / 2 ? low.part[2 * i % WIDES + 1] : high.part[2 * i % WIDES + 1];
#if PIECE_BYTES == 64
    out[0].part[i] = (wide_piece)_mm512_unpacklo_pd((__m512d)a, (__m512d)b);
    out[1].part[i] = (wide_piece)_mm512_unpackhi_pd((__m512d)a, (__m512d)b);
#else
    out[0].part[i] = (wide_piece)_mm256_unpacklo_pd((__m256d)a, (__m256d)b);
    out[1].part[i] = (wide_piece)_mm256_unpackhi_pd((__m256d)a, (__m256d)b);
#endif
  }
}
SMI vreal v_narrow_pairs(v_wide w) {
  const vreal x = v_narrow(w);
#if PIECE_BYTES == 64
  const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  return _mm512_permutexvar_ps(order, x);
#else
  return (vreal){_mm256_permute_ps(x.a, 0xd8), _mm256_permute_ps(x.b, 0xd8)};
#endif
}
#else
SMI void v_widen_pairs(const real *p, v_wide out[2]) {
  const vreal in[2] = {v_load(p), v_load(p + LANES)};
  vreal x[2];
  v_split_2(in, x);
  out[0] = v_widen(x[0]), out[1] = v_widen(x[1]);
}
SMI vreal v_narrow_pairs(v_wide w) { return v_narrow(w); }
#endif

/* Eight sums: number i of a run goes to sum i % 8. */
enum { EIGHT_PIECES = 8 / WIDE_LANES };
typedef struct v_eight_sums {
  wide_piece part[EIGHT_PIECES];
} v_eight_sums;
SMI v_eight_sums v_eight_zero(void) {
  v_eight_sums s;
  memset(&s, 0, sizeof s);
  return s;
}
SMI v_eight_sums v_eight_add(v_eight_sums s, v_wide w) {
  EACH_WIDE(p) s.part[p % EIGHT_PIECES] += w.part[p];
  return s;
}
/* The first n <= 8 numbers of a run, which begin the sums. */
SMI v_eight_sums v_eight_load(const real *x, int n) {
#if SMX_REAL == 64
  return v_eight_add(v_eight_zero(), v_widen(v_load_n(x, n, 0)));
#elif PIECE_BYTES == 64
  return (v_eight_sums){{(wide_piece)_mm512_cvtps_pd(_mm256_maskz_loadu_ps((__mmask8)((1u << n) - 1), x))}};
#elif PIECE_BYTES == 32
  const __m128i *mask = (const __m128i *)(first_lanes + LANES - n);
  return (v_eight_sums){{(wide_piece)_mm256_cvtps_pd(_mm_maskload_ps(x, _mm_loadu_si128(mask))),
                         (wide_piece)_mm256_cvtps_pd(_mm_maskload_ps(x + 4, _mm_loadu_si128(mask + 1)))}};
#else
  v_eight_sums s = v_eight_zero();
  for (int i = 0; i < n; i++) s.part[i / WIDE_LANES][i % WIDE_LANES] = x[i];
  return s;
#endif
}
/* They are added in pairs: l and l + 4, then l + 2, then l + 1. */
SMI double v_eight_total(v_eight_sums s) {
#if PIECE_BYTES > 16
#if PIECE_BYTES == 64
  const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256((__m512d)s.part[0]),
                                     _mm512_extractf64x4_pd((__m512d)s.part[0], 1));
#else
  const __m256d four = _mm256_add_pd((__m256d)s.part[0], (__m256d)s.part[EIGHT_PIECES - 1]);
#endif
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
#else
  const wide_piece two =
      (s.part[0] + s.part[2 % EIGHT_PIECES]) + (s.part[1 % EIGHT_PIECES] + s.part[3 % EIGHT_PIECES]);
  return two[0] + two[1];
#endif
}

#endif
