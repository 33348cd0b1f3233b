/* gate/functions_lines.c - see functions_lines.h. */
#include "functions_lines.h"

/* Rows of USUAL numbers have loops of their own, which the compiler unrolls. */
enum { USUAL = 8 };
#define INLINE static inline __attribute__((always_inline))

#define REAL float
#define NAME(x) x##_f32
#include "functions_lines.tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#include "functions_lines.tmpl.h"

#define LINES(type) \
  { gather_##type, scale_##type, weigh_##type }
const gate_lines gate_lines_of[2] = {LINES(f32), LINES(f64)};
