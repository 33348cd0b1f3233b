/* gate/functions_choose.c - see functions_choose.h. */
#include "functions_choose.h"

#define INF __builtin_inf()
enum { BLOCK = 16 }; /* scores that are looked at together: most have none that is good enough */

#define REAL float
#define NAME(x) x##_f32
#include "functions_choose.tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#include "functions_choose.tmpl.h"

#define LINES(type) \
  { choose_##type, gather_##type, scale_##type, load_##type, store_##type }
const gate_lines gate_lines_of[2] = {LINES(f32), LINES(f64)};
