/* pool/functions_lines.c - see functions_lines.h. The loops are plain C, which compilers turn into
 * vectors: nothing in them rounds but a sum for each output, in the order of its cells. */
#include "functions_lines.h"

enum { LANES = 8 };

#define REAL float
#define NAME(x) x##_f32
#include "functions_lines.tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#include "functions_lines.tmpl.h"

#define LINES(type) \
  { \
    take_largest_##type, take_larger_##type, take_sum_##type, give_mean_##type, give_##type, mix_##type, \
        gather_##type, scatter_##type, hide_##type, scale_##type, fold_##type, weigh_##type \
  }
const pool_lines pool_lines_of[2] = {LINES(f32), LINES(f64)};
