/* vec_probe.c - see vec_probe.h. Compiled once for every instruction set and real type, with the
 * flags of its kernels. */
#include "util.h"
#include "vec_probe.h"

#include "columns.h"
#include "math.h"
#include "compress.h"
#include "divide.h"
#include "rank.h"
#include "sort.h"

#define WRAP(name, domain_of, expression) \
  static void run_##name(const void *a, const void *b, const void *c, void *out) { \
    vreal x = v_load(a), y = v_load(b), z = v_load(c); \
    (void)x, (void)y, (void)z; \
    v_store(out, expression); \
  }

SMI vreal store_n(vreal x, vreal y, int n) {
  real room[LANES];
  v_store(room, y);
  v_store_n(room, n, x);
  return v_load(room);
}

SMI vreal load_n(vreal x, vreal y, int n) {
  real room[LANES];
  v_store(room, x);
  return v_load_n(room, n, v_first(y));
}

SMI vreal all_lengths(vreal x, vreal y) {
  vreal sum = v_set1(0);
  for (int n = 0; n <= LANES; n++)
    sum = v_max(v_select(v_lt(x, y), store_n(x, sum, n), load_n(y, sum, n)), sum);
  return sum;
}

SMI vreal choose(vmask m) { return v_select(m, v_set1(1), v_set1(2)); }

SMI vreal pair(vreal x, int exponent) {
  vreal k, p = v_exp_pair(x, &k);
  return exponent ? k : p;
}

SMI vreal fold(vreal x, vreal y, vreal z) {
  vreal acc[VPB];
  for (int j = 0; j < VPB; j++) acc[j] = j % 3 == 0 ? x : j % 3 == 1 ? y : z;
  return v_set1(v_fold(acc));
}

SMI vreal pack(vreal x, vmask m) {
  real room[LANES];
  const int n = v_compress(room, m, x);
  for (int j = n; j < LANES; j++) room[j] = (real)n;
  return v_load(room);
}

SMI vreal pack_two(vreal x, vreal y, vmask m) {
  real room[2][LANES];
  const int n = v_compress_two(room[0], room[1], m, x, y);
  for (int j = n; j < LANES; j++) room[0][j] = (real)n, room[1][j] = 0;
  return v_add(v_load(room[0]), v_mul(v_load(room[1]), v_set1(3)));
}

/* The best and the next of eight groups, one of them with its best twice, and two of nothing. */
SMI vreal top_twos(vreal x, vreal y, vreal z) {
  const vreal less = v_sub(v_set1(0), v_abs(y)), none = v_set1(-R_INF);
  const two_groups pairs[] = {v_two_groups(v_max(x, y), v_min(x, y), v_abs(y), less),
                              v_two_groups(v_max(y, z), v_min(y, z), v_set1(v_hmax(z)), none),
                              v_two_groups(v_max(x, z), v_min(x, z), v_abs(y), v_min(less, z)),
                              v_two_groups(none, none, none, none)};
  vreal top, next;
  v_top_twos(pairs, &top, &next);
  return v_add(top, v_mul(next, v_set1(3)));
}
SMI vreal tops(vreal x, vreal y, vreal z) {
  const two_tops pairs[] = {v_two_tops(x, y), v_two_tops(z, v_abs(x)), v_two_tops(v_min(x, y), v_min(y, z)),
                            v_two_tops(v_set1(-R_INF), v_add(x, z))};
  return v_tops(pairs);
}

/* The largest k of sixteen with their numbers, and the next; portable ones are sorted one by
 * one. */
SMI void sort_sixteen(vreal *x, vreal *number, int64_t k) {
#ifdef V_PORTABLE
  real a[SORTED][LANES], b[SORTED][LANES];
  for (int i = 0; i < SORTED; i++) v_store(a[i], x[i]), v_store(b[i], number[i]);
  for (int l = 0; l < LANES; l++)
    for (int i = 1; i < SORTED; i++)
      for (int j = i; j > 0 && a[j - 1][l] < a[j][l]; j--) {
        const real value = a[j][l], place = b[j][l];
        a[j][l] = a[j - 1][l], a[j - 1][l] = value, b[j][l] = b[j - 1][l], b[j - 1][l] = place;
      }
  for (int i = 0; i < SORTED; i++) x[i] = v_load(a[i]), number[i] = v_load(b[i]);
#else
  v_sort_sixteen(x, number, k);
#endif
}
SMI vreal sorted(vreal x, vreal y, vreal z, int64_t k) {
  vreal a[SORTED], number[SORTED], sum;
  for (int i = 0; i < SORTED; i++)
    a[i] = v_add(v_mul(i % 3 == 0   ? x
                       : i % 3 == 1 ? y
                                    : z,
                       v_set1((real)(i * 7 % SORTED) - 8)),
                 v_set1((real)i)),
    number[i] = v_set1((real)i);
  sort_sixteen(a, number, k);
  sum = k < SORTED ? a[k] : v_set1(0);
  for (int r = 0; r < k; r++) sum = v_add(v_mul(sum, v_set1((real)0.75)), v_add(a[r], number[r]));
  return sum;
}

SMI vreal wide(vreal x, vreal y, vreal z) {
  v_sum64 sum = {{{0}}};
  v_sum64_add(&sum, x), v_sum64_add(&sum, y), v_sum64_add(&sum, z);
  return v_set1((real)v_sum64_total(&sum));
}

/* By temperatures of every size, one of them the argument itself. */
SMI vreal quotients(vreal x, vreal y) {
  static const double t[] = {0.8, 1, 1.0 / 3, 7, 0x1.fffffffffffffp0, 1e-30, 1e30, 1e-3, 3e10};
  const double a = (double)v_first(v_abs(y));
  const divisor q = divisor_of(a < 9 ? t[(int)a] : a);
#ifdef V_PORTABLE
  return divide_in_double(q.t, x); /* what it should be */
#else
  return divide_by(&q, x);
#endif
}

/* Column c of the matrix whose rows are numbers of x, y, z and x again, with a gap between them. */
SMI vreal column(vreal x, vreal y, vreal z, int c) {
  real rows[LANES][REAL_STEP + 1] = {{0}}, part[REAL_STEP][LANES];
  vreal out[REAL_STEP];
  v_store(part[0], x), v_store(part[1], y), v_store(part[2], z), v_store(part[3], x);
  for (int r = 0; r < LANES; r++)
    for (int i = 0; i < REAL_STEP; i++) rows[r][i] = part[(r + i) % REAL_STEP][r];
  v_columns((const char *)rows, sizeof rows[0], out);
  return out[c];
}

/* The same in half precision, of the bits of x and y; portable kernels widen one by one. */
SMI vreal half_column(vreal x, vreal y, int c, int bfloat) {
  uint16_t rows[LANES][HALF_STEP + 1] = {{0}}, words[2 * VEC_BYTES / 2];
  real part[2 * LANES];
  v_store(part, x), v_store(part + LANES, y);
  memcpy(words, part, sizeof words);
  for (int r = 0; r < LANES; r++)
    for (int i = 0; i < HALF_STEP; i++) rows[r][i] = words[(r * 5 + i * 7) % (2 * VEC_BYTES / 2)];
#ifdef V_HAS_HALF
  vreal out[HALF_STEP];
  if (bfloat) v_columns_bf16((const char *)rows, sizeof rows[0], out);
  else v_columns_f16((const char *)rows, sizeof rows[0], out);
  return out[c];
#else
  real out[LANES];
  for (int r = 0; r < LANES; r++) out[r] = (real)dtype_load(bfloat ? SMX_BF16 : SMX_F16, &rows[r][c]);
  return v_load(out);
#endif
}

/* name, domain, expression of x, y, z */
#define FUNCTIONS(F) \
  F(set1, ANY, v_set1(v_first(x))) \
  F(iota, ANY, v_iota()) \
  F(add, ANY, v_add(x, y)) \
  F(sub, ANY, v_sub(x, y)) \
  F(mul, ANY, v_mul(x, y)) \
  F(div, ANY, v_div(x, y)) \
  F(fma, ANY, v_fma(x, y, z)) \
  F(fnma, ANY, v_fnma(x, y, z)) \
  F(fma_close, ORDINARY, v_fma(x, y, v_sub(v_set1(0), v_mul(x, y)))) \
  F(max, ANY, v_max(x, y)) \
  F(min, ANY, v_min(x, y)) \
  F(abs, ANY, v_abs(x)) \
  F(copysign, ANY, v_copysign(x, y)) \
  F(lt, ANY, choose(v_lt(x, y))) \
  F(eq, ANY, choose(v_eq(x, y))) \
  F(or, ANY, choose(m_or(v_lt(x, y), v_eq(y, z)))) \
  F(and, ANY, choose(m_and(v_lt(x, y), v_lt(y, z)))) \
  F(not, ANY, choose(m_not(v_lt(x, y)))) \
  F(any, ANY, v_set1((real)m_any(m_and(v_lt(x, y), v_lt(y, z))))) \
  F(bits, ANY, v_set1((real)m_bits(m_or(v_lt(x, y), v_eq(y, z))))) \
  F(pack, ANY, pack(x, v_lt(y, z))) \
  F(wide, ORDINARY, wide(x, y, z)) \
  F(select, ANY, v_select(v_lt(x, y), y, z)) \
  F(flush, ANY, v_flush(x, y, z)) \
  F(partial, ORDINARY, all_lengths(x, y)) \
  F(scale, SCALE_PAIR, v_scale(x, y)) \
  F(scale_near, SCALE_PAIR, v_scale_near(x, v_max(y, v_set1(MIN_EXP)))) \
  F(exponent, POSITIVE, v_exponent(x)) \
  F(mantissa, POSITIVE, v_mantissa(x)) \
  F(hsum, ANY, v_set1(v_hsum(x))) \
  F(hmax, ORDINARY, v_set1(v_hmax(x))) \
  F(hmin, ORDINARY, v_set1(v_hmin(x))) \
  F(hsums, ANY, v_hsums(x, y, z, v_sub(x, z))) \
  F(hmaxs, ORDINARY, v_hmaxs(x, y, z, v_sub(x, z))) \
  F(top_twos, ORDINARY, top_twos(x, y, z)) \
  F(tops, ORDINARY, tops(x, y, z)) \
  F(sorted_few, ORDINARY, sorted(x, y, z, 5)) \
  F(sorted_half, ORDINARY, sorted(x, y, z, 8)) \
  F(sorted_all, ORDINARY, sorted(x, y, z, 16)) \
  F(pack_two, ANY, pack_two(x, y, v_lt(y, z))) \
  F(where, ANY, v_where(v_lt(x, y), z)) \
  F(if_negative, ANY, v_if_negative(x, y, z)) \
  F(farther, ANY, v_farther(v_abs(x), v_abs(y))) \
  F(scale_normal, SCALE_PAIR, v_scale_normal(x, v_add(v_max(y, v_set1(MIN_EXP + 2)), v_set1(ROUNDER)))) \
  F(count, ANY, v_counted(v_count(v_count(v_set1(0), v_lt(x, y)), v_lt(x, z)))) \
  F(fold, ORDINARY, fold(x, y, z)) \
  F(column_0, ANY, column(x, y, z, 0)) \
  F(column_1, ANY, column(x, y, z, 1)) \
  F(column_2, ANY, column(x, y, z, 2)) \
  F(column_3, ANY, column(x, y, z, 3)) \
  F(f16_column_0, ANY, half_column(x, y, 0, 0)) \
  F(f16_column_3, ANY, half_column(x, y, 3, 0)) \
  F(f16_column_5, ANY, half_column(x, y, 5, 0)) \
  F(f16_column_6, ANY, half_column(x, y, 6, 0)) \
  F(bf16_column_1, ANY, half_column(x, y, 1, 1)) \
  F(bf16_column_2, ANY, half_column(x, y, 2, 1)) \
  F(bf16_column_4, ANY, half_column(x, y, 4, 1)) \
  F(bf16_column_7, ANY, half_column(x, y, 7, 1)) \
  F(round, SMALL, v_round(x)) \
  F(exp_pair_p, SMALL, pair(x, 0)) \
  F(exp_pair_k, SMALL, pair(x, 1)) \
  F(exp, ANY, v_exp(x)) \
  F(exp_small, SMALL, v_exp(x)) \
  F(expm1_pos, LESS_THAN_80, v_expm1_pos(x)) \
  F(tanh, ANY, v_tanh(x)) \
  F(tanh_small, SMALL, v_tanh(x)) \
  F(sech2, SMALL, v_sech2(x)) \
  F(log_scaled, POSITIVE, v_log_scaled(x, v_set1(3))) \
  F(clean, ANY, v_clean(x)) \
  F(divisor, ANY, quotients(x, y)) \
  F(divide_small, SMALL, quotients(x, y))

FUNCTIONS(WRAP)

#define ENTRY(name, domain_of, expression) {#name, domain_of, run_##name},
static const vec_function functions[] = {FUNCTIONS(ENTRY)};

#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)
extern const vec_probe SMX_FN(vec_probe);
const vec_probe SMX_FN(vec_probe) = {TEXT(SMX_ISA), SMX_REAL, (int)(sizeof functions / sizeof *functions),
                                     functions};
