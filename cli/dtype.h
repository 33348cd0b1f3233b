/* dtype.h - the element types of files: their names in every format, and one element as a
 * double. */
#ifndef CLI_DTYPE_H
#define CLI_DTYPE_H

#include <softmax.h>
#include <stdbool.h>

typedef struct dtype {
  const char *name;        /* "f32" on the command line */
  const char *npy;         /* "f4" */
  const char *safetensors; /* "F32" */
  smx_dtype type;
  uint32_t bytes;
  bool number; /* a floating-point type: what scores and results can be */
  double (*get)(const void *element);
  void (*put)(void *element, double value); /* NULL where the command never converts to this type */
} dtype;

/* All types, NULL past the last. */
const dtype *dtype_at(size_t i);

/* NULL when there is none. */
const dtype *dtype_named(const char *name);
const dtype *dtype_of(smx_dtype type);

/* The names of the types as "f16 bf16 ..."; only numbers when asked. */
void dtype_names(bool numbers_only, char *text, size_t size);

#endif
