/* safetensors.c - named tensors behind a JSON header. The reader is strict: every byte of data
 * belongs to exactly one tensor. */
#include "../fault.h"
#include "../parse.h"
#include "io.h"
#include "members.h"
#include "output.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_SIZE = 8, HEADER_MAX = 100000000, DEEPEST = 3, ALIGNMENT = 8 };

typedef struct range {
  int64_t begin, end;
} range;

/* Bits an element of every type the format has, those that cannot be read included: the whole file
 * is checked. */
static const struct {
  const char *name;
  int bits;
} sizes[] = {
    {"F32", 32},    {"F16", 16},    {"BF16", 16},       {"F64", 64},        {"I64", 64},    {"I32", 32},
    {"U8", 8},      {"BOOL", 8},    {"I8", 8},          {"I16", 16},        {"U16", 16},    {"U32", 32},
    {"U64", 64},    {"C64", 64},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"F8_E4M3", 8},
    {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

static int malformed(const io_source *s, const char *what) {
  return fault(EXIT_UNREADABLE, "%s: safetensors header: %s", s->name, what);
}

/* Whether the text is no deeper and no denser than a header can be, so that the JSON tree stays a
 * small multiple of it. */
static bool plausible(const char *text, size_t length) {
  size_t depth = 0, open = 0, values = 0;
  bool quoted = false;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    if (quoted) {
      if (c == '\\') i++;
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    values += c == ',' || c == ':';
    open += c == '{' || c == '[';
    depth += c == '{' || c == '[';
    if (depth > DEEPEST) return false;
    depth -= depth && (c == '}' || c == ']');
  }
  return open <= length / 8 + 2 && values <= length / 3 + 2;
}

static int read_header(const io_source *s, json_t **root, size_t *start) {
  uint64_t length = 0;
  if (s->size < LENGTH_SIZE) return malformed(s, "the file ends in it");
  for (int i = 0; i < LENGTH_SIZE; i++) length |= (uint64_t)s->data[i] << (8 * i);
  if (length > HEADER_MAX || length > s->size - LENGTH_SIZE)
    return fault(EXIT_UNREADABLE, "%s: safetensors header: its length %llu is more than %s", s->name,
                 (unsigned long long)length, length > HEADER_MAX ? "100000000" : "the file has");
  const char *text = (const char *)s->data + LENGTH_SIZE;
  if (!length || *text != '{' || !plausible(text, (size_t)length)) return malformed(s, "not one of tensors");
  json_error_t e;
  *root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &e);
  *start = LENGTH_SIZE + (size_t)length;
  return json_is_object(*root) ? EXIT_OK : malformed(s, e.text);
}

static int bits_of(const char *name) {
  for (size_t i = 0; name && i < sizeof sizes / sizeof *sizes; i++)
    if (strcmp(sizes[i].name, name) == 0) return sizes[i].bits;
  return 0;
}

/* The element count of a JSON shape, or false. */
static bool shape_count(const json_t *shape, int64_t *count) {
  int64_t nonzero = 1, zero = 0;
  for (size_t i = 0; i < json_array_size(shape); i++) {
    const json_t *size = json_array_get(shape, i);
    int64_t v = json_integer_value(size);
    if (!json_is_integer(size) || v < 0 || __builtin_mul_overflow(nonzero, v ? v : 1, &nonzero)) return false;
    zero |= v == 0;
  }
  *count = zero ? 0 : nonzero;
  return json_is_array(shape);
}

/* NULL, or what is wrong with one entry: its keys, its shape, and that its range has just the bytes
 * it needs. */
static const char *check_tensor(const json_t *entry, int64_t data_size, range *r) {
  const json_t *offsets = json_object_get(entry, "data_offsets");
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  int bits = bits_of(json_string_value(json_object_get(entry, "dtype")));
  int64_t count, total;
  if (!json_is_object(entry) || json_object_size(entry) != 3)
    return "an entry has not just dtype, shape and data_offsets";
  if (!bits) return "an unknown dtype";
  if (!shape_count(json_object_get(entry, "shape"), &count)) return "a shape that is not sizes, or overflows";
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
    return "data_offsets are not two numbers";
  r->begin = json_integer_value(begin);
  r->end = json_integer_value(end);
  if (r->begin < 0 || r->end < r->begin || r->end > data_size) return "data_offsets outside the data";
  if (__builtin_mul_overflow(count, (int64_t)bits, &total) || total % 8 || total / 8 != r->end - r->begin)
    return "data_offsets do not fit dtype and shape";
  return NULL;
}

static bool metadata_is_strings(json_t *metadata) {
  const char *key;
  json_t *value;
  json_object_foreach(metadata, key, value)
    if (!json_is_string(value)) return false;
  return json_is_object(metadata);
}

static int by_offset(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* Whether the sorted ranges follow one another from 0 to the end. */
static const char *check_ranges(range *ranges, size_t count, int64_t data_size) {
  int64_t at = 0;
  qsort(ranges, count, sizeof *ranges, by_offset);
  for (size_t i = 0; i < count; i++) {
    if (ranges[i].begin != at) return ranges[i].begin < at ? "tensors overlap" : "a hole between tensors";
    at = ranges[i].end;
  }
  return at == data_size ? NULL : "bytes after the last tensor";
}

static const char *check_entries(json_t *root, const char *wanted, int64_t data_size, range *ranges,
                                 member_search *m) {
  const char *key, *wrong;
  json_t *entry;
  size_t count = 0;
  member_begin(m, wanted);
  json_object_foreach(root, key, entry) {
    if (strcmp(key, "__metadata__") == 0) {
      if (!metadata_is_strings(entry)) return "__metadata__ is not an object of strings";
      continue;
    }
    if ((wrong = check_tensor(entry, data_size, &ranges[count]))) return wrong;
    member_see(m, key, (int64_t)count++);
  }
  return check_ranges(ranges, count, data_size);
}

/* The entry of the number that check_entries gave it. */
static const json_t *entry_at(json_t *root, int64_t index) {
  const char *key;
  json_t *entry;
  json_object_foreach(root, key, entry)
    if (strcmp(key, "__metadata__") != 0 && index-- == 0) return entry;
  return NULL;
}

static int use_entry(const io_source *s, const json_t *entry, size_t start, io_array *array) {
  const json_t *shape = json_object_get(entry, "shape");
  const char *name = json_string_value(json_object_get(entry, "dtype"));
  const dtype *d;
  range r;
  for (size_t i = 0; (d = dtype_at(i)); i++)
    if (strcmp(d->safetensors, name) == 0) array->type = d;
  if (!array->type)
    return fault(EXIT_UNREADABLE, "%s: dtype %s: only F16 BF16 F32 F64 I32 I64 U8 BOOL can be read", s->name,
                 name);
  if (json_array_size(shape) > SMX_MAX_DIMS)
    return fault(EXIT_UNREADABLE, "%s: shape: more than 8 dimensions", s->name);
  array->ndim = (int32_t)json_array_size(shape);
  for (int32_t i = 0; i < array->ndim; i++)
    array->shape[i] = json_integer_value(json_array_get(shape, (size_t)i));
  check_tensor(entry, (int64_t)(s->size - start), &r);
  array->data = s->data + start + r.begin;
  return io_layout(s, array, false, (size_t)(r.end - r.begin));
}

int safetensors_read(const io_source *source, const io_hints *hints, io_array *array) {
  json_t *root = NULL;
  size_t start = 0;
  member_search m;
  int code = read_header(source, &root, &start);
  range *ranges = code ? NULL : calloc(json_object_size(root) + 1, sizeof *ranges);
  if (!code && !ranges) code = fault_memory(json_object_size(root) * sizeof *ranges);
  if (!code) {
    const char *wrong = check_entries(root, hints->member, (int64_t)(source->size - start), ranges, &m);
    code = wrong ? malformed(source, wrong) : member_check(&m, source);
  }
  if (!code) code = use_entry(source, entry_at(root, m.found), start, array);
  free(ranges);
  json_decref(root);
  return code;
}

static json_t *describe(const io_spec *spec, uint64_t begin, uint64_t end) {
  json_t *shape = json_array();
  for (int32_t i = 0; i < spec->ndim; i++) json_array_append_new(shape, json_integer(spec->shape[i]));
  return json_pack("{s:s, s:o, s:[I, I]}", "dtype", spec->type->safetensors, "shape", shape, "data_offsets",
                   (json_int_t)begin, (json_int_t)end);
}

/* The length and the header, padded with spaces so that the data is aligned. The bases become
 * offsets in the file. */
static int write_header(io_writer *w, char *text) {
  size_t length = strlen(text), padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char size[LENGTH_SIZE];
  for (int i = 0; i < LENGTH_SIZE; i++) size[i] = (unsigned char)((uint64_t)padded >> (8 * i));
  for (int32_t i = 0; i < w->count; i++) w->base[i] += LENGTH_SIZE + padded;
  int code = output_write(w->out, 0, size, sizeof size);
  if (!code) code = output_write(w->out, LENGTH_SIZE, text, length);
  return code ? code : output_write(w->out, LENGTH_SIZE + length, "        ", padded - length);
}

int safetensors_begin(io_writer *w) {
  json_t *root = json_object();
  uint64_t at = 0, bytes = 0;
  for (int32_t i = 0; i < w->count; i++) {
    if (!io_bytes(w->spec[i].type, w->spec[i].ndim, w->spec[i].shape, &bytes)) bytes = 0;
    w->base[i] = at;
    json_object_set_new(root, w->spec[i].name, describe(&w->spec[i], at, at + bytes));
    at += bytes;
  }
  char *text = json_dumps(root, JSON_COMPACT);
  json_decref(root);
  if (!text) return fault_memory(0);
  int code = write_header(w, text);
  free(text);
  return code;
}
