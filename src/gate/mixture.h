/* gate/mixture.h - the kernels of gate.h that are not in ops.c. */
#ifndef SMX_GATE_MIXTURE_H
#define SMX_GATE_MIXTURE_H
#include "gate.h"
#include "math.h"

double SMX_FN(gate_mixture)(const double *z, const double *term, int64_t n, double *pi, double *share);
void SMX_FN(gate_gaussian)(double y, const double *mean, const double *log_s, int64_t n, double *term,
                           double *q, double *inverse);
void SMX_FN(gate_noise)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
void SMX_FN(gate_deviation)(const double *spread, double least, int64_t n, double *s, double *slope);
void SMX_FN(gate_normal)(const void *z, int64_t n, void *p, void *density);
void SMX_FN(gate_gumbel)(uint64_t seed, uint64_t stream, int64_t n, double *noise);
void SMX_FN(gate_activate)(int activation, const void *x, int64_t n, void *y, void *slope);
void SMX_FN(gate_sigmoid)(const void *x, int64_t n, void *y);
void SMX_FN(gate_add)(const gate_move *m, int64_t first, int64_t end);
void SMX_FN(gate_spread)(const gate_move *m, int64_t first, int64_t end);
void SMX_FN(gate_dot)(const gate_move *m, const void *other, void *weight, int64_t first, int64_t end);
double SMX_FN(gate_entropy)(const double *count, int64_t n);

#endif
