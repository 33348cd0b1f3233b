/* parse.h - numbers and shapes from text, strict and independent of the locale (the command never
 * leaves the "C" locale). */
#ifndef CLI_PARSE_H
#define CLI_PARSE_H

#include <softmax.h>
#include <stdbool.h>

/* A decimal number, inf or nan that fills all of text[0..length-1], correctly rounded. */
bool parse_f64(const char *text, size_t length, double *value);
bool parse_f32(const char *text, size_t length, float *value);

/* A whole number in min..max that fills text. */
bool parse_int(const char *text, int64_t min, int64_t max, int64_t *value);

/* "2,3" or "" (no dimension): at most SMX_MAX_DIMS sizes whose product fits 64 bits. NULL, or what
 * is wrong. The dtype is left alone. */
const char *parse_shape(const char *text, smx_shape *shape);

/* The number of elements, or false when it overflows. A size of 0 does not hide an overflow of the
 * others. */
bool count_elements(int32_t ndim, const int64_t *shape, int64_t *count);

#endif
