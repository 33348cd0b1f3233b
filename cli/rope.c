/* rope.c - rotary position embedding of queries and keys before attention. */
#include "rope.h"

#include "fault.h"
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const layouts[] = {[SMX_ROPE_HALF] = "half", [SMX_ROPE_INTERLEAVED] = "interleaved"};

void rope_layouts(char *text, size_t size) { snprintf(text, size, "%s %s", layouts[0], layouts[1]); }

/* ---- Options ---- */

static int read_numbers(const options *o, smx_rope_options *r) {
  const char *base = options_own(o, "rope-base"), *scale = options_own(o, "rope-scale"),
             *dims = options_own(o, "rope-dims");
  int code = base ? options_number("rope-base", base, &r->base) : EXIT_OK;
  if (!code && base && !(r->base >= 1e-30 && r->base <= 1e30))
    code = options_refuse("rope-base", base, "not from 1e-30 to 1e30");
  if (!code && scale) code = options_number("rope-scale", scale, &r->scale);
  if (!code && scale && !(r->scale > 0 && r->scale <= 1e30))
    code = options_refuse("rope-scale", scale, "not above 0, up to 1e30");
  return !code && dims ? options_int("rope-dims", dims, 2, 512, &r->dims) : code;
}

/* The file of an option, NULL without it. */
static int read_file(const options *o, const char *option, input *in, view *v, const smx_tensor **t) {
  const smx_port port = {option, SMX_SHAPE_FULL, 0, ""};
  const blocks whole = {.step = 0};
  in->path = options_own(o, option);
  if (!in->path) return EXIT_OK;
  int code = input_read(in, &port, o, dtype_named("f64"));
  if (!code) code = blocks_view(&whole, in, 0, -1, v);
  if (!code) *t = &v->tensor;
  return code;
}

static int read_rope(rope *r, const options *o) {
  static const char *const others[] = {"rope-base", "rope-scale", "rope-dims", "rope-frequencies",
                                       "rope-positions"};
  const char *layout = options_own(o, "rope");
  r->how[0] = (smx_rope_options){.size = sizeof r->how[0]};
  for (int i = 0; i < 5; i++)
    if (!layout && options_own(o, others[i]))
      return fault(EXIT_USAGE, "--%s: says how --rope turns, which is missing", others[i]);
  r->on = layout != NULL;
  if (!r->on) return EXIT_OK;
  if (strcmp(layout, layouts[0]) != 0 && strcmp(layout, layouts[1]) != 0)
    return options_refuse("rope", layout, "not one of half, interleaved");
  r->how[0].layout = strcmp(layout, layouts[1]) == 0 ? SMX_ROPE_INTERLEAVED : SMX_ROPE_HALF;
  int code = read_numbers(o, &r->how[0]);
  if (!code)
    code = read_file(o, "rope-frequencies", &r->frequencies, &r->frequencies_view, &r->how[0].frequencies);
  r->how[1] = r->how[0];
  return code ? code : read_file(o, "rope-positions", &r->given, &r->positions_view[1], &r->how[1].positions);
}

/* ---- Positions ---- */

static int64_t whole_at(const smx_tensor *t, int64_t i) {
  const char *at = (const char *)t->data + t->byte_offset;
  i *= t->strides ? t->strides[0] : 1;
  return t->dtype.bits == 64 ? ((const int64_t *)(const void *)at)[i]
                             : ((const int32_t *)(const void *)at)[i];
}

static bool is_list(const smx_tensor *t, int64_t least) { return t && t->ndim == 1 && t->shape[0] >= least; }

/* How many rows of an axis of `length` sequence b has. */
static int64_t rows_of(const smx_tensor *offsets, int64_t b, int64_t length) {
  if (!offsets) return length;
  return is_list(offsets, b + 2) ? whole_at(offsets, b + 1) - whole_at(offsets, b) : 0;
}

/* The sequence that row i of batch entry b belongs to, and where that begins. */
static int64_t sequence_of(const smx_tensor *offsets, int64_t b, int64_t i, int64_t *first) {
  *first = 0;
  for (int64_t s = 0; is_list(offsets, 2) && s + 1 < offsets->shape[0]; s++)
    if (whole_at(offsets, s) <= i) *first = whole_at(offsets, s), b = s;
  return b;
}

/* The position of the first query of sequence b. */
static int64_t query_start(const smx_attention_options *how, int64_t b, const int64_t *q, const int64_t *k) {
  if (how->query_start != SMX_ATTENTION_END) return how->query_start;
  const int64_t keys =
      is_list(how->lengths, b + 1) ? whole_at(how->lengths, b) : rows_of(how->key_offsets, b, k[2]);
  return keys - rows_of(how->query_offsets, b, q[2]);
}

/* Rows of sequences of several lengths have positions of their own. */
static int list_positions(rope *r, int which, const smx_attention_options *how, const view *q,
                          const view *k) {
  const smx_tensor *offsets = which ? how->key_offsets : how->query_offsets;
  view *p = &r->positions_view[which];
  const int64_t shape[4] = {which ? k->shape[0] : q->shape[0], 1, which ? k->shape[2] : q->shape[2], 1};
  int64_t count, at = 0, first;
  if (!count_elements(4, shape, &count)) return fault_memory(SIZE_MAX);
  int64_t *to = r->positions[which] = malloc((size_t)count * sizeof *to + 1);
  if (!to) return fault_memory((size_t)count * sizeof *to);
  for (int64_t b = 0; b < shape[0]; b++)
    for (int64_t i = 0; i < shape[2]; i++) {
      const int64_t s = sequence_of(offsets, b, i, &first);
      to[at++] = i - first + (which ? 0 : query_start(how, s, q->shape, k->shape));
    }
  memcpy(p->shape, shape, sizeof shape);
  p->tensor = (smx_tensor){.data = to, .device = {1, 0}, .ndim = 4, .dtype = SMX_I64, .shape = p->shape};
  r->how[which].positions = &p->tensor;
  return EXIT_OK;
}

/* Queries have the positions that were given for the keys where they stand. */
static int take_positions(rope *r, const smx_attention_options *how, const view *q, const view *k) {
  const char *path = r->given.path;
  const int64_t start = query_start(how, 0, q->shape, k->shape), rows = q->shape[2];
  view *from = &r->positions_view[1], *to = &r->positions_view[0];
  const int32_t axis = from->tensor.ndim - 2;
  if (how->query_offsets || how->key_offsets || how->lengths)
    return fault(EXIT_USAGE, "--rope-positions %s: not of packed sequences, nor with --lengths", path);
  if (axis < 0)
    return fault(EXIT_REFUSED, "%s: positions: %d dimensions, not 2 to 4", path, (int)from->tensor.ndim);
  *to = *from;
  to->tensor.shape = to->shape, to->tensor.strides = to->strides;
  r->how[0].positions = &to->tensor;
  if (from->shape[axis] == 1) return EXIT_OK;
  if (start < 0 || rows > from->shape[axis] - start)
    return fault(EXIT_REFUSED, "%s: positions: %lld of them, but queries stand at %lld to %lld", path,
                 (long long)from->shape[axis], (long long)start, (long long)(start + rows - 1));
  to->tensor.data =
      (unsigned char *)to->tensor.data + start * to->strides[axis] * (int64_t)r->given.want->bytes;
  to->shape[axis] = rows;
  return EXIT_OK;
}

/* ---- Turning ---- */

/* The view becomes one of a turned copy. */
static int turn(rope *r, int which, view *v, const char *path) {
  const size_t bytes = v->tensor.dtype.bits / 8;
  view copy = *v;
  int64_t count, stride = 1;
  if (!count_elements(4, v->shape, &count)) return fault_memory(SIZE_MAX);
  unsigned char *memory = r->turned[which] = malloc((size_t)count * bytes + 1);
  if (!memory) return fault_memory((size_t)count * bytes);
  for (int32_t d = 3; d >= 0; d--) {
    copy.strides[d] = stride;
    stride *= copy.shape[d];
  }
  copy.tensor.data = memory, copy.tensor.byte_offset = 0;
  copy.tensor.shape = copy.shape, copy.tensor.strides = copy.strides;
  if (smx_rope(NULL, &r->how[which], &v->tensor, &copy.tensor, NULL) != SMX_OK) {
    const char *text = smx_last_error(), *colon = strstr(text, ": ");
    if (strstr(text, "frequencies")) path = r->frequencies.path;
    if (strstr(text, "positions") && r->given.path) path = r->given.path;
    return fault(EXIT_REFUSED, "%s: %s", path, colon ? colon + 2 : text);
  }
  *v = copy;
  v->tensor.shape = v->shape, v->tensor.strides = v->strides;
  return EXIT_OK;
}

int rope_turn(rope *r, const options *o, const smx_attention_options *how, view *q, view *k,
              const char *const paths[2]) {
  int code = read_rope(r, o);
  if (code || !r->on) return code;
  if (how->block_table)
    return options_refuse("rope", options_own(o, "rope"),
                          "not of a paged cache, whose keys are turned already");
  const bool several = how->query_offsets || how->key_offsets;
  if (r->given.path) code = take_positions(r, how, q, k);
  else if (several || (how->lengths && how->query_start == SMX_ATTENTION_END))
    code = list_positions(r, 0, how, q, k);
  else r->how[0].start = query_start(how, 0, q->shape, k->shape);
  if (!code && how->key_offsets) code = list_positions(r, 1, how, q, k);
  if (!code) code = turn(r, 0, q, paths[0]);
  return code ? code : turn(r, 1, k, paths[1]);
}

smx_status rope_back(const rope *r, int which, const smx_tensor *gradient) {
  return r->on ? smx_rope_backward(NULL, &r->how[which], gradient, NULL, gradient, NULL, NULL) : SMX_OK;
}

void rope_free(rope *r) {
  input_free(&r->frequencies);
  input_free(&r->given);
  for (int i = 0; i < 2; i++) {
    free(r->positions[i]);
    free(r->turned[i]);
  }
}
