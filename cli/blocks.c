/* blocks.c - blocks of a run, and each input's part of a block. */
#include "blocks.h"

#include "fault.h"
#include "parse.h"

#include <stdlib.h>
#include <string.h>

static int64_t product(const int64_t *shape, int32_t from, int32_t to) {
  int64_t p = 1;
  for (int32_t i = from; i < to; i++) p *= shape[i];
  return p;
}

int blocks_axis_last(input *in, int32_t axis, int32_t *place) {
  io_array *a = &in->array;
  *place = axis < 0 ? axis + a->ndim : axis;
  if (*place < 0 || *place >= a->ndim)
    return fault(EXIT_REFUSED, "%s: axis is %d, the array has %d dimensions", in->path, (int)axis,
                 (int)a->ndim);
  const int64_t n = a->shape[*place], stride = a->strides[*place];
  for (int32_t i = *place; i + 1 < a->ndim; i++) {
    a->shape[i] = a->shape[i + 1];
    a->strides[i] = a->strides[i + 1];
  }
  a->shape[a->ndim - 1] = n;
  a->strides[a->ndim - 1] = stride;
  return EXIT_OK;
}

void blocks_begin(blocks *b, const io_array *x, uint32_t element, int32_t axis, int64_t bytes) {
  memset(b, 0, sizeof *b);
  b->ndim = x->ndim;
  memcpy(b->shape, x->shape, sizeof b->shape);
  memcpy(b->count, x->shape, sizeof b->count);
  b->total = 1;
  /* nothing before the axis, or nothing at all: one block */
  if (axis == 0 || product(x->shape, 0, x->ndim) == 0) return;
  while (b->depth + 1 < axis && product(x->shape, b->depth + 1, x->ndim) > bytes / element) b->depth++;
  b->step = bytes / element / product(x->shape, b->depth + 1, x->ndim);
  if (b->step < 1) b->step = 1;
  if (b->step > x->shape[b->depth]) b->step = x->shape[b->depth];
  for (int32_t i = 0; i < b->depth; i++) b->count[i] = 1;
  b->count[b->depth] = b->step;
  b->total = product(x->shape, 0, b->depth) * ((x->shape[b->depth] - 1) / b->step + 1);
}

int64_t blocks_row_count(const blocks *b) { return product(b->count, 0, b->ndim - 1); }

bool blocks_next(blocks *b) {
  if (b->step == 0) return false;
  for (int32_t i = b->depth; i >= 0; i--) {
    b->start[i] += b->count[i];
    if (b->start[i] == b->shape[i]) b->start[i] = 0;
    int64_t left = b->shape[i] - b->start[i];
    if (i == b->depth) b->count[i] = b->step < left ? b->step : left;
    if (b->start[i]) return true;
  }
  return false;
}

/* The next index of a box in C order; false after the last. */
static bool step_index(int32_t ndim, const int64_t *shape, int64_t *index) {
  for (int32_t i = ndim - 1; i >= 0; i--) {
    if (++index[i] < shape[i]) return true;
    index[i] = 0;
  }
  return false;
}

/* Copies the box at `from` to contiguous memory, in the type that is wanted. */
static void gather(const input *in, const view *v, const unsigned char *from, unsigned char *to) {
  const io_array *a = &in->array;
  int64_t index[SMX_MAX_DIMS] = {0};
  do {
    const unsigned char *element = from;
    for (int32_t i = 0; i < v->tensor.ndim; i++)
      element += index[i] * a->strides[i] * (int64_t)a->type->bytes;
    if (in->want == a->type) io_copy(a, element, to);
    else in->want->put(to, io_get(a, element));
    to += in->want->bytes;
  } while (step_index(v->tensor.ndim, v->shape, index));
}

static void contiguous(view *v) {
  int64_t stride = 1;
  for (int32_t i = v->tensor.ndim - 1; i >= 0; i--) {
    v->strides[i] = stride;
    stride *= v->shape[i];
  }
}

/* Replaces the view by one of a converted copy. */
static int convert(input *in, view *v, const unsigned char *from) {
  int64_t count = product(v->shape, 0, v->tensor.ndim);
  size_t bytes = (size_t)count * in->want->bytes;
  if (!in->scratch) in->scratch = malloc(bytes ? bytes : 1); /* the first block is the largest */
  if (!in->scratch) return fault_memory(bytes);
  if (count) gather(in, v, from, in->scratch);
  contiguous(v);
  v->tensor.data = in->scratch;
  return EXIT_OK;
}

static bool is_contiguous(const view *v) {
  int64_t stride = 1;
  for (int32_t i = v->tensor.ndim - 1; i >= 0; i--) {
    if (v->shape[i] != 1 && v->strides[i] != stride) return false;
    stride *= v->shape[i];
  }
  return true;
}

int blocks_rows(const blocks *b, input *in, view *v) {
  int code = blocks_view(b, in, in->array.ndim, -1, v);
  return code || is_contiguous(v) ? code : convert(in, v, v->tensor.data);
}

int blocks_view(const blocks *b, input *in, int32_t row_dims, int32_t cut, view *v) {
  const io_array *a = &in->array;
  const unsigned char *data = a->data;
  v->tensor = bind_tensor(in);
  for (int32_t i = 0; i < a->ndim; i++) {
    /* the dimension of x that this one goes along with; those before the axis are the same */
    int32_t k = i + row_dims - a->ndim;
    bool part = row_dims && b->step && k >= 0 && k <= b->depth && a->shape[i] == b->shape[k];
    v->shape[i] = part ? b->count[k] : a->shape[i];
    v->strides[i] = a->strides[i];
    if (part) data += b->start[k] * a->strides[i] * (int64_t)a->type->bytes;
    if (i != cut) continue;
    v->shape[i] = b->own;
    data += b->first * a->strides[i] * (int64_t)a->type->bytes;
  }
  v->tensor.shape = v->shape;
  v->tensor.strides = v->strides;
  v->tensor.data = (void *)(uintptr_t)data;
  bool fits = in->want == a->type && !a->swapped && (uintptr_t)data % a->type->bytes == 0;
  return fits ? EXIT_OK : convert(in, v, data);
}
