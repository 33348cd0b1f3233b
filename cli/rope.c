/* rope.c - rotary position embedding of queries and keys before attention. */
#include "rope.h"

#include "fault.h"
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const layouts[] = {[SMX_ROPE_HALF] = "half", [SMX_ROPE_INTERLEAVED] = "interleaved"};

void rope_layouts(char *text, size_t size) { snprintf(text, size, "%s %s", layouts[0], layouts[1]); }

static int read_rope(const options *o, smx_rope_options *r) {
  const char *layout = options_own(o, "rope"), *base = options_own(o, "rope-base"), *scale = options_own(o, "rope-scale");
  *r = (smx_rope_options){.size = sizeof *r};
  if (!layout && (base || scale)) return fault(EXIT_USAGE, "--rope-%s: says how --rope turns, which is missing", base ? "base" : "scale");
  if (!layout) return EXIT_OK;
  if (strcmp(layout, layouts[0]) != 0 && strcmp(layout, layouts[1]) != 0)
    return options_refuse("rope", layout, "not one of half, interleaved");
  r->layout = strcmp(layout, layouts[1]) == 0 ? SMX_ROPE_INTERLEAVED : SMX_ROPE_HALF;
  int code = base ? options_number("rope-base", base, &r->base) : EXIT_OK;
  if (!code && base && !(r->base >= 1e-30 && r->base <= 1e30)) code = options_refuse("rope-base", base, "not from 1e-30 to 1e30");
  if (!code && scale) code = options_number("rope-scale", scale, &r->scale);
  if (!code && scale && !(r->scale > 0 && r->scale <= 1e30)) code = options_refuse("rope-scale", scale, "not above 0, up to 1e30");
  return code;
}

/* The view becomes one of a turned copy. */
static int turn(const smx_rope_options *r, view *v, const char *path, unsigned char **memory) {
  const size_t bytes = v->tensor.dtype.bits / 8;
  view copy = *v;
  int64_t count, stride = 1;
  if (!count_elements(4, v->shape, &count)) return fault_memory(SIZE_MAX);
  *memory = malloc((size_t)count * bytes + 1);
  if (!*memory) return fault_memory((size_t)count * bytes);
  for (int32_t d = 3; d >= 0; d--) {
    copy.strides[d] = stride;
    stride *= copy.shape[d];
  }
  copy.tensor.data = *memory, copy.tensor.byte_offset = 0;
  copy.tensor.shape = copy.shape, copy.tensor.strides = copy.strides;
  if (smx_rope(NULL, r, &v->tensor, &copy.tensor, NULL) != SMX_OK) return fault(EXIT_REFUSED, "%s: %s", path, smx_last_error());
  *v = copy;
  v->tensor.shape = v->shape, v->tensor.strides = v->strides;
  return EXIT_OK;
}

static int64_t length_at(const smx_tensor *lengths, int64_t b) {
  const char *at = (const char *)lengths->data + lengths->byte_offset;
  const int64_t i = b * (lengths->strides ? lengths->strides[0] : 1);
  return lengths->dtype.bits == 64 ? ((const int64_t *)(const void *)at)[i] : ((const int32_t *)(const void *)at)[i];
}

/* Queries of sequences of several lengths have positions of their own. */
static int turn_queries(smx_rope_options *r, const smx_tensor *lengths, view *q, const char *path, unsigned char **memory) {
  int64_t shape[4] = {q->shape[0], 1, q->shape[2], 1}, count, at = 0;
  if (!count_elements(4, shape, &count)) return fault_memory(SIZE_MAX);
  int64_t *positions = malloc((size_t)count * sizeof *positions + 1);
  if (!positions) return fault_memory((size_t)count * sizeof *positions);
  for (int64_t b = 0; b < shape[0]; b++)
    for (int64_t i = 0; i < shape[2]; i++) positions[at++] = length_at(lengths, b) - shape[2] + i;
  const smx_tensor t = {.data = positions, .device = {1, 0}, .ndim = 4, .dtype = SMX_I64, .shape = shape};
  r->positions = &t, r->start = 0;
  int code = turn(r, q, path, memory);
  r->positions = NULL;
  free(positions);
  return code;
}

int rope_turn(const options *o, const smx_attention_options *how, view *q, view *k, const char *const paths[2], unsigned char *memory[2]) {
  const bool ends = how->query_start == SMX_ATTENTION_END;
  smx_rope_options r;
  int code = read_rope(o, &r);
  if (code || !options_own(o, "rope")) return code;
  if (how->query_offsets || how->key_offsets) return options_refuse("rope", options_own(o, "rope"), "not of packed sequences");
  const bool each = how->lengths && ends && how->lengths->ndim == 1 && how->lengths->shape[0] == q->shape[0];
  r.start = ends ? k->shape[2] - q->shape[2] : how->query_start;
  code = each ? turn_queries(&r, how->lengths, q, paths[0], memory) : turn(&r, q, paths[0], memory);
  r.start = 0;
  return code ? code : turn(&r, k, paths[1], memory + 1);
}
