/* parse.c - numbers and shapes from text. */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_LENGTH = 511 }; /* longest number taken: more digits than any double has fit */

static bool is_word(const char *text) {
  text += *text == '+' || *text == '-';
  return strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0 || strcasecmp(text, "nan") == 0;
}

/* A NUL-terminated copy for strtod, which would also take hexadecimal and leading space; those are
 * refused. */
static bool copy_number(const char *text, size_t length, char *copy) {
  if (length == 0 || length > NUMBER_LENGTH || memchr(text, 0, length)) return false;
  memcpy(copy, text, length);
  copy[length] = 0;
  return strspn(copy, "0123456789+-.eE") == length || is_word(copy);
}

bool parse_f64(const char *text, size_t length, double *value) {
  char copy[NUMBER_LENGTH + 1], *end;
  if (!copy_number(text, length, copy)) return false;
  *value = strtod(copy, &end);
  return *end == 0 && end != copy;
}

bool parse_f32(const char *text, size_t length, float *value) {
  char copy[NUMBER_LENGTH + 1], *end;
  if (!copy_number(text, length, copy)) return false;
  *value = strtof(copy, &end);
  return *end == 0 && end != copy;
}

bool parse_int(const char *text, int64_t min, int64_t max, int64_t *value) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  if (end == text || *end || errno || isspace((unsigned char)*text) || v < min || v > max) return false;
  *value = v;
  return true;
}

/* Digits at *text; moves past them. */
static bool read_size(const char **text, int64_t *size) {
  if (!isdigit((unsigned char)**text)) return false;
  *size = 0;
  for (; isdigit((unsigned char)**text); ++*text)
    if (__builtin_mul_overflow(*size, (int64_t)10, size) ||
        __builtin_add_overflow(*size, (int64_t)(**text - '0'), size))
      return false;
  return true;
}

const char *parse_shape(const char *text, smx_shape *shape) {
  int64_t count;
  shape->ndim = 0;
  if (*text == 0) return NULL;
  for (;; text++) {
    if (shape->ndim == SMX_MAX_DIMS) return "more than 8 dimensions";
    if (!read_size(&text, &shape->dim[shape->ndim++])) return "not sizes separated by commas";
    if (*text == 0) break;
    if (*text != ',') return "not sizes separated by commas";
  }
  return count_elements(shape->ndim, shape->dim, &count) ? NULL : "the product overflows";
}

bool count_elements(int32_t ndim, const int64_t *shape, int64_t *count) {
  int64_t nonzero = 1;
  *count = 1;
  for (int32_t i = 0; i < ndim; i++) {
    if (shape[i] < 0 || __builtin_mul_overflow(nonzero, shape[i] ? shape[i] : 1, &nonzero)) return false;
    *count *= shape[i] != 0;
  }
  *count *= nonzero;
  return true;
}
