/* engine/ratio.tmpl.h - the kernels of weights f(x) / sum f(x) for one f (ratio.h).
 *
 * Before it is included:
 *     RATIO_NAME        prefix of what it needs and defines. It needs NAME_setup, NAME_finalize,
 *                       the function NAME_f and, for the gradient, its derivative NAME_slope; it
 *                       defines NAME_kernel and, unless RATIO_FORWARD_ONLY is defined,
 *                       NAME_grad_kernel
 *     RATIO_NEAR        optional: a condition on rows that have no element of -inf, for which
 *     RATIO_NEAR_F      equals NAME_f and is faster
 * It undefines all of these. */
#define RATIO_OF(name, part) name##_##part
#define RATIO_IN(name, part) RATIO_OF(name, part)
#define RATIO(part) RATIO_IN(RATIO_NAME, part)
#ifndef RATIO_NEAR
#define RATIO_NEAR ratio_whole
#define RATIO_NEAR_F RATIO(f)
#endif

SMI void RATIO(add)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                    reduce_map_acc *acc) {
  ratio_add(s, k, RATIO(f), i, cnt, acc);
}
SMI vreal RATIO(value)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return ratio_value(s, k, RATIO(f), i, cnt);
}
SMI void RATIO(keep_add)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  ratio_keep(s, k, RATIO(f), false, i, cnt, acc);
}
SMI void RATIO(keep_near)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                          reduce_map_acc *acc) {
  ratio_keep(s, k, RATIO_NEAR_F, true, i, cnt, acc);
}
REDUCE_MAP_SUMS_OF(RATIO(sums), RATIO(add))
REDUCE_MAP_SUMS_OF(RATIO(keep_any), RATIO(keep_add))
REDUCE_MAP_SUMS_OF(RATIO(keep_whole), RATIO(keep_near))
static void RATIO(keep)(const span *s, const consts *k, const reduce_map_row *r, size_t i, size_t n,
                        row_part *part) {
  (RATIO_NEAR(s, r) ? RATIO(keep_whole) : RATIO(keep_any))(s, k, r, i, n, part);
}
REDUCE_MAP_VALUES_OF(RATIO(values), RATIO(value))
static const reduce_map_body RATIO(body) = {.setup = RATIO(setup),
                                            .finalize = RATIO(finalize),
                                            .sums = RATIO(sums),
                                            .write = RATIO(values),
                                            .keep = RATIO(keep),
                                            .kept = ratio_kept,
                                            .full = 1,
                                            .max = true};
static const row_kernel RATIO(kernel) = {.engine = &reduce_map_engine, .body = &RATIO(body)};

#ifndef RATIO_FORWARD_ONLY
SMI void RATIO(grad_add)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt,
                         reduce_map_acc *acc) {
  ratio_grad_add(s, k, RATIO(f), i, cnt, acc);
}
SMI vreal RATIO(grad_value)(const span *s, const consts *k, const reduce_map_row *r, size_t i, int cnt) {
  return ratio_unscaled(ratio_grad_value(s, k, RATIO(f), RATIO(slope), i, cnt), k);
}
REDUCE_MAP_SUMS_OF(RATIO(grad_sums), RATIO(grad_add))
REDUCE_MAP_VALUES_OF(RATIO(grad_values), RATIO(grad_value))
static const reduce_map_body RATIO(grad_body) = {.setup = RATIO(setup),
                                                 .finalize = RATIO(finalize),
                                                 .sums = RATIO(grad_sums),
                                                 .write = RATIO(grad_values),
                                                 .full = 1,
                                                 .max = true,
                                                 .gradient = true};
static const row_kernel RATIO(grad_kernel) = {.engine = &reduce_map_engine, .body = &RATIO(grad_body)};
#endif

#undef RATIO
#undef RATIO_IN
#undef RATIO_OF
#undef RATIO_NAME
#undef RATIO_NEAR
#undef RATIO_NEAR_F
#undef RATIO_FORWARD_ONLY
