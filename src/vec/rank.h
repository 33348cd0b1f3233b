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
 *     v_top_twos       of each of four groups, in a quarter of the lanes: the largest number, and
 *                      the next, which may be equal. Two groups at a time come from v_two_groups:
 *                      a group's numbers are the lanes of `first` and `second`, and those of second
 *                      are not larger than those of first; no NaN */
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
SMI twos within_quarters(twos x) {
#if SMX_REAL == 32
  x = TWOS_WITH(x, 0x4e);
  return TWOS_WITH(x, 0xb1);
#else
  return TWOS_WITH(x, 0x55);
#endif
}
typedef twos two_groups;
#ifdef V
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  const twos a = {first, second}, b = {other_first, other_second};
  return TWOS_OF(QUARTERS, a, b, 0x44, 0xee);
}
SMI void v_top_twos(two_groups ab, two_groups cd, vreal *top, vreal *next) {
  const twos all = within_quarters(TWOS_OF(QUARTERS, ab, cd, 0x88, 0xdd));
  *top = all.first, *next = all.second;
}
#else
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  const twos a = larger_two((twos){first.a, second.a}, (twos){first.b, second.b}),
             b = larger_two((twos){other_first.a, other_second.a}, (twos){other_first.b, other_second.b});
  return within_quarters(TWOS_OF(H(permute2f128), a, b, 0x20, 0x31));
}
SMI void v_top_twos(two_groups ab, two_groups cd, vreal *top, vreal *next) {
  *top = (vreal){ab.first, cd.first}, *next = (vreal){ab.second, cd.second};
}
#endif
#undef TWO
#undef TWO_PERMUTE
#undef TWOS_OF
#undef TWOS_WITH
#undef RANK_SHUFFLES
#else
typedef struct {
  vreal first[2], second[2];
} two_groups;
SMI two_groups v_two_groups(vreal first, vreal second, vreal other_first, vreal other_second) {
  return (two_groups){{first, other_first}, {second, other_second}};
}
/* The next of a group whose largest number two lanes of first have is that number; else it is the
 * largest where the one that has it brings its second. */
SMI void v_top_twos(two_groups ab, two_groups cd, vreal *top, vreal *next) {
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
#endif

#endif
