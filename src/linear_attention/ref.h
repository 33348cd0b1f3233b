/* linear_attention/ref.h - the references of src/linear_attention, which are in some files. */
#ifndef SMX_LINEAR_ATTENTION_REF_H
#define SMX_LINEAR_ATTENTION_REF_H
#include "engine/ref.h"

/* The size `back` from the end. */
static inline int64_t ref_size(const int64_t *shape, int back) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return shape[n - back];
}

tensor_ref_fn ref_taylor_features, ref_cosformer_features, ref_nala_features, ref_performer_features,
    ref_galerkin_attention, ref_fourier_attention;

#endif
