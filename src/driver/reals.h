/* driver/reals.h - numbers of the real type of a call, side by side, to double and back. */
#ifndef SMX_DRIVER_REALS_H
#define SMX_DRIVER_REALS_H
#include <stdbool.h>
#include <stdint.h>

void smx_reals_load(bool is_f64, const void *x, int64_t n, double *v);

/* As the contract has results: no subnormal numbers, one NaN. */
void smx_reals_store(bool is_f64, const double *v, int64_t n, void *to);
void smx_reals_clean(bool is_f64, void *x, int64_t n);

#endif
