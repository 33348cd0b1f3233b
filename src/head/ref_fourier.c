/* head/ref_fourier.c - the Fourier head by the series of its autocorrelations, as the paper has
 * it. */
#include "ref.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

static const double pi = 3.14159265358979323846;

static double complex coefficient(const double *x, int64_t terms, int64_t k) {
  double complex c = 0;
  for (int64_t l = 0; l + k < terms; l++)
    c += (x[l + k] + I * x[terms + l + k]) * conj(x[l] + I * x[terms + l]);
  return c;
}

/* q: bins, eps */
void ref_fourier_head(const tensor_ref_call *c) {
  const int64_t terms = ref_last(c->in_shape[0]) / 2, rows = ref_rows(c->in_shape[0]), m = (int64_t)c->q[0];
  for (int64_t r = 0; r < rows; r++) {
    const double *const x = c->in[0] + r * 2 * terms;
    double *const y = c->out[0] + r * m, sum = 0;
    c->out[1][r] = 0;
    for (int64_t k = 0; k < terms; k++) {
      const double size = cabs(coefficient(x, terms, k));
      c->out[1][r] += 2 * 2 * pi * pi * (double)(k * k) * size * size;
    }
    for (int64_t j = 0; j < m; j++) {
      const double b = -1 + (2 * (double)j + 1) / (double)m;
      y[j] = 0.5;
      for (int64_t k = 1; k < terms; k++)
        y[j] +=
            creal(coefficient(x, terms, k) / creal(coefficient(x, terms, 0)) * cexp(I * pi * (double)k * b));
      sum += y[j];
    }
    for (int64_t j = 0; j < m; j++) y[j] = log(y[j] / sum + c->q[1]);
  }
}
