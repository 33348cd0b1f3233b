/* head/ref_knn_lm.c - a language model with neighbours, for tests. */
#include <math.h>

#include "ref.h"

void ref_knn_lm(const tensor_ref_call *c) {
  const int64_t classes = c->in_shape[0][1], k = c->in_shape[1][1];
  const double s = c->q[0], t = c->q[1];
  for (int64_t r = 0; r < c->in_shape[0][0]; r++) {
    const double *x = c->in[0] + r * classes, *distance = c->in[1] + r * k, *token = c->in[2] + r * k;
    long double model = 0, nearest = INFINITY, all = 0;
    for (int64_t j = 0; j < classes; j++) model += expl((long double)x[j]);
    for (int64_t i = 0; i < k; i++) nearest = fminl(nearest, (long double)distance[i]);
    for (int64_t i = 0; i < k; i++) all += expl((nearest - (long double)distance[i]) / t);
    for (int64_t j = 0; j < classes; j++) {
      long double p = (1 - s) * expl((long double)x[j]) / model;
      for (int64_t i = 0; i < k; i++)
        if (token[i] == (double)j) p += s * expl((nearest - (long double)distance[i]) / t) / all;
      ref_put(c, 0, r * classes + j, (double)logl(p));
    }
  }
}
