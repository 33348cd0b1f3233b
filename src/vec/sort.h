/* vec/sort.h - sixteen numbers of each lane in order, by a network of comparisons.
 *
 *     v_sort_sixteen   the largest k first, and then the next; number[i], unless that is NULL, goes
 *                      with x[i]. Equals come in any order. No NaN */
#ifndef SMX_VEC_SORT_H
#define SMX_VEC_SORT_H
#include "vec.h"
#include <stdbool.h>

enum { SORTED = 16, HALF_SORTED = SORTED / 2 };
/* From how many of the best on the network takes less time than counts, for each of sixteen. */
#if defined(V_PORTABLE)
enum { SORT_FROM = SORTED + 1 };
#elif defined(__AVX512F__)
enum { SORT_FROM = LANES == 16 ? 1 : 5 };
#else
enum { SORT_FROM = LANES == 16 ? 1 : SORTED + 1 };
#endif
SMI bool sort_pays(int64_t k) { return SORT_FROM <= (int)SORTED && k >= SORT_FROM; }

/* Of x[i] and x[j] the larger comes to x[i]. */
SMI void v_order(vreal *x, vreal *number, int i, int j) {
  const vreal a = x[i], b = x[j];
  x[i] = v_max(a, b), x[j] = v_min(a, b);
  if (!number) return;
  const vmask less = v_lt(a, b);
  const vreal n = number[i], m = number[j];
  number[i] = v_select(less, m, n), number[j] = v_select(less, n, m);
}
/* clang-format off */
#define ORDER(i, j) v_order(x, number, i, j);
SMI void v_sort_eight(vreal *x, vreal *number) {
  ORDER(0, 2) ORDER(1, 3) ORDER(4, 6) ORDER(5, 7)
  ORDER(0, 4) ORDER(1, 5) ORDER(2, 6) ORDER(3, 7)
  ORDER(0, 1) ORDER(2, 3) ORDER(4, 5) ORDER(6, 7)
  ORDER(2, 4) ORDER(3, 5) ORDER(1, 4) ORDER(3, 6)
  ORDER(1, 2) ORDER(3, 4) ORDER(5, 6)
}
/* A bitonic merge of eight, which rise and then fall, or fall and then rise. */
SMI void v_sort_bitonic(vreal *x, vreal *number) {
  ORDER(0, 4) ORDER(1, 5) ORDER(2, 6) ORDER(3, 7)
  ORDER(0, 2) ORDER(1, 3) ORDER(4, 6) ORDER(5, 7)
  ORDER(0, 1) ORDER(2, 3) ORDER(4, 5) ORDER(6, 7)
}
SMI void v_sort_sixteen(vreal x[SORTED], vreal number[SORTED], int64_t k) {
  vreal *rest = number ? number + HALF_SORTED : NULL;
  v_sort_eight(x, number), v_sort_eight(x + HALF_SORTED, rest);
  ORDER(0, 15) ORDER(1, 14) ORDER(2, 13) ORDER(3, 12) ORDER(4, 11) ORDER(5, 10) ORDER(6, 9) ORDER(7, 8)
  v_sort_bitonic(x, number);
  if (k > HALF_SORTED) v_sort_bitonic(x + HALF_SORTED, rest);
  else
    _Pragma("GCC unroll 8") for (int i = HALF_SORTED + 1; i < SORTED; i++)
        x[HALF_SORTED] = v_max(x[HALF_SORTED], x[i]);
}
#undef ORDER
/* clang-format on */

#endif
