/* vec_probe.h - the vector layer of every instruction set, function by function, as tables that one
 * program can hold side by side. */
#ifndef TESTS_VEC_PROBE_H
#define TESTS_VEC_PROBE_H

/* What the arguments of a function may be. */
typedef enum domain { ANY, ORDINARY, SCALE_PAIR, POSITIVE, SMALL, LESS_THAN_80 } domain;

typedef struct vec_function {
  const char *name;
  domain domain;
  void (*run)(const void *x, const void *y, const void *z, void *out); /* one virtual vector: 64 bytes each */
} vec_function;

typedef struct vec_probe {
  const char *isa;
  int real; /* 32 or 64 */
  int count;
  const vec_function *functions;
} vec_probe;

enum { VEC_BYTES = 64 };

#endif
