/* numbers.c - see numbers.h. */
#include "numbers.h"

#include <math.h>
#include <string.h>

json_t *json_number(double v) {
  if (isnan(v)) return json_null();
  return isinf(v) ? json_string(v < 0 ? "-inf" : "inf") : json_real(v);
}

json_t *json_numbers(const double *v, int64_t count) {
  json_t *array = json_array();
  for (int64_t i = 0; i < count; i++) json_array_append_new(array, json_number(v[i]));
  return array;
}

json_t *json_counts(const int64_t *v, int64_t count) {
  json_t *array = json_array();
  for (int64_t i = 0; i < count; i++) json_array_append_new(array, json_integer(v[i]));
  return array;
}

bool json_number_read(const json_t *j, double *v) {
  const char *word = json_string_value(j);
  if (json_is_number(j)) *v = json_number_value(j);
  else if (json_is_null(j)) *v = NAN;
  else if (word && !strcmp(word, "inf")) *v = INFINITY;
  else if (word && !strcmp(word, "-inf")) *v = -INFINITY;
  else return false;
  return true;
}

char *json_lines(json_t *all, size_t *length) {
  char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
  json_decref(all);
  if (!text) return NULL;
  *length = strlen(text);
  text[(*length)++] = '\n';
  return text;
}
