/* driver/reals.c - see reals.h. */
#include "reals.h"

#define REAL float
#define NAME(x) x##_f32
#include "reals.tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#include "reals.tmpl.h"

void smx_reals_load(bool is_f64, const void *x, int64_t n, double *v) {
  if (is_f64) load_f64(x, n, v);
  else load_f32(x, n, v);
}
void smx_reals_store(bool is_f64, const double *v, int64_t n, void *to) {
  if (is_f64) store_f64(v, n, to);
  else store_f32(v, n, to);
}
void smx_reals_clean(bool is_f64, void *x, int64_t n) {
  if (is_f64) clean_f64(x, n);
  else clean_f32(x, n);
}
