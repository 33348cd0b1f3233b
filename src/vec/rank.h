/* vec/rank.h - what choosing among scores needs: steps of an exponential and of a sigmoid whose
 * argument is not far from 0, counts, and the largest two of groups.
 *
 *     v_where          x in the lanes of m, else 0
 *     v_if_negative    x in lanes where the sign bit of s is set, else y
 *     v_farther        the larger of two numbers that are not negative; NaN where either is one
 *     v_scale_normal   p * 2^k from sum = k + ROUNDER, where p and the result are normal
 *     v_exps_normal    e^x 2^-by of n vectors, by from by[i / each], where the results are normal;
 *                      step by step (v_exp_pairs)
 *     v_count          a count, from 0 on, and 1 more in the lanes of m; v_counted: its number
 *     v_top_twos       of each of eight groups, in the first eight lanes, -inf behind them: the
 *                      largest number, and the next, which may be equal. Two groups at a time come
 *                      from v_two_groups: a group's numbers are the lanes of `first` and `second`,
 *                      and those of second are not larger than those of first; no NaN
 *     v_tops           the largest numbers alone, of two groups at a time from v_two_tops */
#ifndef SMX_VEC_RANK_H
#define SMX_VEC_RANK_H
#include "math.h"

#ifdef V /* vec_avx512.h */
#if SMX_REAL == 32
#define V_WORDS(op, x, y) _mm512_castsi512_ps(_mm512_##op##32(_mm512_castps_si512(x), _mm512_castps_si512(y)))
#define V_SLL(x) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), MANT_BITS))
SMI vmask m_negative(vreal s) { return _mm512_movepi32_mask(_mm512_castps_si512(s)); }
#else
#define V_WORDS(op, x, y) _mm512_castsi512_pd(_mm512_##op##64(_mm512_castpd_si512(x), _mm512_castpd_si512(y)))
#define V_SLL(x) _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_castpd_si512(x), MANT_BITS))
SMI vmask m_negative(vreal s) { return _mm512_movepi64_mask(_mm512_castpd_si512(s)); }
#endif
SMI vreal v_where(vmask m, vreal x) { return V(maskz_mov)(m, x); }
SMI vreal v_if_negative(vreal s, vreal x, vreal y) { return v_select(m_negative(s), x, y); }
SMI vreal v_farther(vreal x, vreal y) { return V_WORDS(max_epu, x, y); }
SMI vreal v_scale_normal(vreal p, vreal sum) { return V_WORDS(add_epi, p, V_SLL(sum)); }
#undef V_WORDS
#undef V_SLL
SMI vreal v_count(vreal n, vmask m) { return V(mask_add)(n, m, n, v_set1(1)); }
SMI vreal v_counted(vreal n) { return n; }
#define RANK_SHUFFLES 1

#elif defined(__AVX2__) && !defined(V_PORTABLE)
SMI vreal v_where(vmask m, vreal x) { return m_and(m, x); }
SMI vreal v_if_negative(vreal s, vreal x, vreal y) { return v_select(s, x, y); }
SMI vhalf h_farther(vhalf x, vhalf y) {
#if SMX_REAL == 32
  return H_REAL(_mm256_max_epu32(H_INT(x), H_INT(y)));
#else
  return H(blendv)(x, y, H_REAL(_mm256_cmpgt_epi64(H_INT(y), H_INT(x))));
#endif
}
SMI vreal v_farther(vreal x, vreal y) { V2(h_farther); }
SMI vhalf h_scale_normal(vhalf p, vhalf sum) { return H_REAL(H_ADDI(H_INT(p), H_SLL(H_INT(sum)))); }
SMI vreal v_scale_normal(vreal x, vreal y) { V2(h_scale_normal); }
#if SMX_REAL == 32
#define H_SUBI(x, y) _mm256_sub_epi32(x, y)
#else
#define H_SUBI(x, y) _mm256_sub_epi64(x, y)
#endif
SMI vhalf h_count(vhalf n, vhalf m) { return H_REAL(H_SUBI(H_INT(n), H_INT(m))); } /* whole words */
#undef H_SUBI
SMI vreal v_count(vreal x, vreal y) { V2(h_count); }
SMI vhalf h_counted(vhalf n) { return H_REAL(H_ADDI(H_INT(n), H_INT(H(set1)(ROUNDER)))); }
SMI vreal v_counted(vreal n) { return v_sub((vreal){h_counted(n.a), h_counted(n.b)}, v_set1(ROUNDER)); }
#define RANK_SHUFFLES 1

#else
SMI vreal v_where(vmask m, vreal x) { return v_select(m, x, v_set1(0)); }
SMI vreal v_if_negative(vreal s, vreal x, vreal y) {
  return v_select(v_lt(v_copysign(v_set1(1), s), v_set1(0)), x, y);
}
SMI vreal v_farther(vreal x, vreal y) { return v_select(m_or(m_not(v_eq(x, x)), v_lt(y, x)), x, y); }
SMI vreal v_scale_normal(vreal p, vreal sum) { return v_scale_near(p, v_sub(sum, v_set1(ROUNDER))); }
SMI vreal v_count(vreal n, vmask m) { return v_add(n, v_select(m, v_set1(1), v_set1(0))); }
SMI vreal v_counted(vreal n) { return n; }
#endif

SMI void v_exps_normal(const vreal *x, int n, const vreal *by, int each, vreal *y) {
  vreal sum[8];
  v_exp_pairs(x, n, sum, y);
  _Pragma("GCC unroll 8") for (int i = 0; i < n; i++) y[i] =
      v_scale_normal(y[i], by ? v_sub(sum[i], by[i / each]) : sum[i]);
}

#ifdef RANK_SHUFFLES
#ifdef V
typedef vreal two_lanes;
#define TWO(op) V(op)
#define TWO_PERMUTE(x, how) V(permute)(x, how)
#else
typedef vhalf two_lanes;
#define TWO(op) H(op)
#define TWO_PERMUTE(x, how) H(permute)(x, (how) & (SMX_REAL == 32 ? 0xff : 0xf)) /* of f64 it is four bits */
#endif
typedef struct {
  two_lanes first, second;
} twos;
SMI twos larger_two(twos x, twos y) {
  const two_lanes less = TWO(max)(TWO(min)(x.first, y.first), TWO(max)(x.second, y.second));
  return (twos){TWO(max)(x.first, y.first), less};
}
#define TWOS_OF(shuffle, x, y, a, b) \
  larger_two((twos){shuffle(x.first, y.first, a), shuffle(x.second, y.second, a)}, \
             (twos){shuffle(x.first, y.first, b), shuffle(x.second, y.second, b)})
#define TWOS_WITH(x, how) larger_two(x, (twos){TWO_PERMUTE(x.first, how), TWO_PERMUTE(x.second, how)})
#define TOPS_OF(shuffle, x, y, a, b) TWO(max)(shuffle(x, y, a), shuffle(x, y, b))
typedef twos two_groups;
typedef two_lanes two_tops;
#ifdef V
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  const twos a = {first, second}, b = {other_first, other_second};
  return TWOS_OF(QUARTERS, a, b, 0x44, 0xee);
}
SMI two_tops v_two_tops(vreal x, vreal y) { return TOPS_OF(QUARTERS, x, y, 0x44, 0xee); }
#if SMX_REAL == 32
#define IN_QUARTERS(of, x, y) of(_mm512_shuffle_ps, x, y, 0x44, 0xee)
SMI vreal eight_in_order(vreal x) { /* a a e e, b b f f, ... */
  const __m512i from = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  return _mm512_mask_permutexvar_ps(v_set1(-R_INF), 0xff, from, x);
}
SMI twos last_of_twos(twos x) { return TWOS_WITH(x, 0xb1); }
SMI vreal last_of_tops(vreal x) { return v_max(x, TWO_PERMUTE(x, 0xb1)); }
#else
#define IN_QUARTERS(of, x, y) of(_mm512_shuffle_pd, x, y, 0x00, 0xff)
SMI vreal eight_in_order(vreal x) { /* a e, b f, ... */
  return _mm512_permutexvar_pd(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), x);
}
SMI twos last_of_twos(twos x) { return x; }
SMI vreal last_of_tops(vreal x) { return x; }
#endif
SMI void v_top_twos(const two_groups x[4], vreal *top, vreal *next) {
  const twos a = TWOS_OF(QUARTERS, x[0], x[1], 0x88, 0xdd), b = TWOS_OF(QUARTERS, x[2], x[3], 0x88, 0xdd);
  const twos all = last_of_twos(IN_QUARTERS(TWOS_OF, a, b));
  *top = eight_in_order(all.first), *next = eight_in_order(all.second);
}
SMI vreal v_tops(const two_tops x[4]) {
  const vreal a = TOPS_OF(QUARTERS, x[0], x[1], 0x88, 0xdd), b = TOPS_OF(QUARTERS, x[2], x[3], 0x88, 0xdd);
  return eight_in_order(last_of_tops(IN_QUARTERS(TOPS_OF, a, b)));
}
#undef IN_QUARTERS
#else
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  const twos a = larger_two((twos){first.a, second.a}, (twos){first.b, second.b}),
             b = larger_two((twos){other_first.a, other_second.a}, (twos){other_first.b, other_second.b});
  return TWOS_OF(H(permute2f128), a, b, 0x20, 0x31);
}
SMI two_tops v_two_tops(vreal x, vreal y) {
  const vhalf a = H(max)(x.a, x.b), b = H(max)(y.a, y.b);
  return TOPS_OF(H(permute2f128), a, b, 0x20, 0x31);
}
#if SMX_REAL == 32
SMI vreal eight_in_order(vhalf x) { /* a c e g, b d f h */
  const __m256i from = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return (vreal){_mm256_permutevar8x32_ps(x, from), H(set1)(-R_INF)};
}
SMI void v_top_twos(const two_groups x[4], vreal *top, vreal *next) {
  const twos a = TWOS_OF(_mm256_shuffle_ps, x[0], x[1], 0x44, 0xee),
             b = TWOS_OF(_mm256_shuffle_ps, x[2], x[3], 0x44, 0xee),
             all = TWOS_OF(_mm256_shuffle_ps, a, b, 0x88, 0xdd);
  *top = eight_in_order(all.first), *next = eight_in_order(all.second);
}
SMI vreal v_tops(const two_tops x[4]) {
  const vhalf a = TOPS_OF(_mm256_shuffle_ps, x[0], x[1], 0x44, 0xee),
              b = TOPS_OF(_mm256_shuffle_ps, x[2], x[3], 0x44, 0xee);
  return eight_in_order(TOPS_OF(_mm256_shuffle_ps, a, b, 0x88, 0xdd));
}
#else
SMI vreal eight_in_order(vhalf x, vhalf y) { /* a c, b d and e g, f h */
  return (vreal){_mm256_permute4x64_pd(x, 0xd8), _mm256_permute4x64_pd(y, 0xd8)};
}
SMI void v_top_twos(const two_groups x[4], vreal *top, vreal *next) {
  const twos a = TWOS_OF(_mm256_shuffle_pd, x[0], x[1], 0x0, 0xf),
             b = TWOS_OF(_mm256_shuffle_pd, x[2], x[3], 0x0, 0xf);
  *top = eight_in_order(a.first, b.first), *next = eight_in_order(a.second, b.second);
}
SMI vreal v_tops(const two_tops x[4]) {
  return eight_in_order(TOPS_OF(_mm256_shuffle_pd, x[0], x[1], 0x0, 0xf),
                        TOPS_OF(_mm256_shuffle_pd, x[2], x[3], 0x0, 0xf));
}
#endif
#endif
#undef TWO
#undef TWO_PERMUTE
#undef TWOS_OF
#undef TOPS_OF
#undef TWOS_WITH
#undef RANK_SHUFFLES
#else
typedef struct {
  vreal first[2], second[2];
} two_groups;
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  return (two_groups){{first, other_first}, {second, other_second}};
}
typedef struct {
  vreal of[2];
} two_tops;
SMI two_tops v_two_tops(vreal x, vreal y) { return (two_tops){{x, y}}; }
/* Of quarters of x and y the first lanes. */
SMI vreal eight_in_order(vreal x, vreal y) {
  real quarters[2][LANES], eight[LANES];
  v_store(quarters[0], x), v_store(quarters[1], y), v_store(eight, v_set1(-R_INF));
  for (int u = 0; u < 8; u++) eight[u] = quarters[u / 4][u % 4 * (LANES / 4)];
  return v_load(eight);
}
SMI vreal v_tops(const two_tops x[4]) {
  return eight_in_order(v_hmaxs(x[0].of[0], x[0].of[1], x[1].of[0], x[1].of[1]),
                        v_hmaxs(x[2].of[0], x[2].of[1], x[3].of[0], x[3].of[1]));
}
/* The next of a group whose largest number two lanes of first have is that number; else it is the
 * largest where the one that has it brings its second. */
SMI void four_twos(two_groups ab, two_groups cd, vreal *top, vreal *next) {
  const vreal first[] = {ab.first[0], ab.first[1], cd.first[0], cd.first[1]},
              second[] = {ab.second[0], ab.second[1], cd.second[0], cd.second[1]};
  real best[LANES];
  vreal rest[4], ties[4];
  *top = v_hmaxs(first[0], first[1], first[2], first[3]);
  v_store(best, *top);
  for (int u = 0; u < 4; u++) {
    const vmask is_best = v_eq(first[u], v_set1(best[u * LANES / 4]));
    rest[u] = v_select(is_best, second[u], first[u]);
    ties[u] = v_counted(v_count(v_set1(0), is_best));
  }
  const vmask twice = v_lt(v_set1(1), v_hsums(ties[0], ties[1], ties[2], ties[3]));
  *next = v_select(twice, *top, v_hmaxs(rest[0], rest[1], rest[2], rest[3]));
}
SMI void v_top_twos(const two_groups x[4], vreal *top, vreal *next) {
  vreal tops[2], nexts[2];
  for (int u = 0; u < 2; u++) four_twos(x[2 * u], x[2 * u + 1], tops + u, nexts + u);
  *top = eight_in_order(tops[0], tops[1]), *next = eight_in_order(nexts[0], nexts[1]);
}
#endif

#endif
