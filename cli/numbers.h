/* numbers.h - numbers in JSON, which has neither NaN nor infinity: null, and "inf" or "-inf". */
#ifndef CLI_NUMBERS_H
#define CLI_NUMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

json_t *json_number(double v);
json_t *json_numbers(const double *v, int64_t count);
json_t *json_counts(const int64_t *v, int64_t count);

/* false: j is no such number. */
bool json_number_read(const json_t *j, double *v);

/* As lines of text, with a line end instead of a zero behind them; frees `all`, which may be NULL.
 * NULL: no memory. */
char *json_lines(json_t *all, size_t *length);

#endif
