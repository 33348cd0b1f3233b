/* driver/tensor_pack.c - see tensor_pack.h. */
#include "tensor_pack.h"

static bool is_packed(const smx_view *v, smx_dtype type) {
  int64_t step = 1;
  for (int32_t d = v->ndim - 1; d >= 0; step *= v->shape[d--])
    if (v->shape[d] != 1 && v->strides[d] != step) return false;
  return smx_same_dtype(v->dtype, type);
}

static smx_dtype packed_dtype(const tensor_call *c, const smx_port *port) {
  if (port->flags & SMX_PORT_MASK) return SMX_U8;
  return port->flags & SMX_PORT_INT ? SMX_I64 : c->is_f64 ? SMX_F64 : SMX_F32;
}

/* n elements `step` apart, to contiguous ones of the packed type or from them. */
static void move_line(const dtype_io *io, const smx_view *v, char *at, int64_t step, int64_t n, char *packed,
                      smx_dtype type, bool out) {
  const int64_t bytes = smx_dtype_bytes(v->dtype);
  if (smx_is_float(type)) {
    if (out) io->store(row_store_of(v->dtype), packed, (size_t)n, at, step);
    else io->load(row_store_of(v->dtype), at, step, (size_t)n, packed);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    char *one = at + i * step * bytes;
    int64_t *whole = (int64_t *)(void *)packed + i;
    if (type.bits == 8) packed[i] = *one != 0;
    else if (!out) *whole = smx_whole_at(one, bytes);
    else if (bytes == 8) *(int64_t *)(void *)one = *whole;
    else *(int32_t *)(void *)one = (int32_t)*whole;
  }
}

/* The dimension whose elements lie side by side where those of the last one do not; -1: there is
 * none, or there is more to do than to copy. */
static int32_t inner_dimension(const smx_view *v, smx_dtype type) {
  const int32_t last = v->ndim - 1;
  if (last < 1 || v->strides[last] == 1 || !smx_same_dtype(v->dtype, type)) return -1;
  for (int32_t d = last - 1; d >= 0 && (type.bits == 32 || type.bits == 64); d--)
    if (v->strides[d] == 1 && v->shape[d] > 1) return d;
  return -1;
}

/* rows x columns elements, those of a column side by side, some of each column at a time. */
#define MOVE_SHEET(real) \
  for (int64_t from = 0; from < rows; from += SHEET) { \
    const int64_t end = rows - from < SHEET ? rows : from + SHEET; \
    for (int64_t j = 0; j < columns; j++) \
      for (int64_t i = from; i < end; i++) { \
        real *one = (real *)(void *)at + i + j * step, *other = (real *)(void *)packed + i * row + j; \
        if (out) *one = *other; \
        else *other = *one; \
      } \
  }
enum { SHEET = 16 };

/* The same as move_all where dimension `inner` has the elements that lie side by side. */
static void move_sheets(const smx_view *v, char *packed, int32_t inner, int64_t bytes, bool out) {
  const int32_t last = v->ndim - 1;
  const int64_t rows = v->shape[inner], columns = v->shape[last], step = v->strides[last];
  smx_view sheets = *v;
  int64_t index[SMX_MAX_DIMS] = {0}, own[SMX_MAX_DIMS], row = 1;
  for (int64_t d = last, all = 1; d >= 0; all *= v->shape[d--]) own[d] = all;
  row = own[inner], sheets.shape[inner] = 1, sheets.ndim = last;
  char *const base = packed;
  do {
    int64_t offset = 0, place = 0;
    for (int32_t d = 0; d < last; d++) offset += index[d] * v->strides[d], place += index[d] * own[d];
    char *at = v->data + offset * bytes;
    packed = base + place * bytes;
    if (bytes == 4) MOVE_SHEET(uint32_t) else MOVE_SHEET(uint64_t)
  } while (next_index(&sheets, index));
}

static void move_all(const dtype_io *io, const smx_view *v, char *packed, smx_dtype type, bool out) {
  const int32_t inner = smx_view_elements(v) > 0 ? inner_dimension(v, type) : -1;
  if (inner >= 0) {
    move_sheets(v, packed, inner, smx_dtype_bytes(type), out);
    return;
  }
  const int32_t last = v->ndim - 1;
  const int64_t n = v->ndim ? v->shape[last] : 1, step = v->ndim ? v->strides[last] : 1;
  smx_view lines = *v;
  int64_t index[SMX_MAX_DIMS] = {0};
  lines.ndim = v->ndim ? last : 0;
  if (smx_view_elements(v) == 0) return;
  do {
    int64_t offset = 0;
    for (int32_t d = 0; d < lines.ndim; d++) offset += index[d] * v->strides[d];
    move_line(io, v, v->data + offset * smx_dtype_bytes(v->dtype), step, n, packed, type, out);
    packed += n * smx_dtype_bytes(type);
  } while (next_index(&lines, index));
}

/* ---- tensors by channel ---- */

/* The same tensor with the last of "..." as the last dimension. */
static smx_view turned(const tensor_call *c, const smx_view *v) {
  smx_view t = *v;
  const int32_t last = v->ndim - 1;
  int32_t d = last - c->dims.spatial;
  const int64_t channels = v->shape[d], step = v->strides[d];
  for (; d < last; d++) t.shape[d] = v->shape[d + 1], t.strides[d] = v->strides[d + 1];
  t.shape[last] = channels, t.strides[last] = step;
  return t;
}

/* Whether the first input is by channel and not in C order, whatever its dtype. */
static bool is_by_channel(const tensor_call *c) {
  const smx_view *v = c->in.view;
  if (c->dims.spatial < 1 || v->ndim <= c->dims.spatial || is_packed(v, v->dtype)) return false;
  const smx_view t = turned(c, v);
  return is_packed(&t, t.dtype) && smx_view_elements(v) > 0;
}

static void turn_all(tensor_call *c) {
  c->channels = c->in.view->shape[c->in.view->ndim - 1 - c->dims.spatial];
  for (int32_t i = 0; i < c->op->input_count; i++) /* what has no "..." stays */
    if (c->in.given[i] && c->in.view[i].ndim > c->dims.spatial) c->in.view[i] = turned(c, c->in.view + i);
  for (int32_t i = 0; i < c->op->output_count; i++)
    if (c->out.given[i]) c->out.view[i] = turned(c, c->out.view + i);
}

static void pack_begin(pack *p, tensor_call *c, bool backward) {
  const smx_op *op = c->op;
  *p = (pack){.c = c, .io = c->is_f64 ? smx_isa_current()->f64.io : smx_isa_current()->f32.io};
  p->groups[0] = (pack_group){op->outputs, op->output_count, &c->out, !backward, backward};
  p->groups[1] = (pack_group){op->inputs, op->input_count, &c->din, true, false};
  p->groups[2] = (pack_group){op->inputs, op->input_count, &c->in, false, true};
  p->groups[3] = (pack_group){op->outputs, op->output_count, &c->dout, false, true};
}

/* Goes over the tensors that are no packed ones. memory NULL: counts their bytes. */
static size_t pack_each(pack *p, char *memory) {
  size_t used = 0;
  for (int g = 0; g < 4; g++)
    for (int32_t i = 0; i < p->groups[g].count; i++) {
      const pack_group *part = p->groups + g;
      const smx_dtype type = packed_dtype(p->c, part->ports + i);
      smx_view *v = part->tensors->view + i;
      if (memory && part->out) p->caller[g][i] = *v;
      if (!part->tensors->given[i] || is_packed(v, type)) continue;
      char *to = memory ? memory + used : NULL;
      used += smx_whole_lines((size_t)(smx_view_elements(v) * smx_dtype_bytes(type)));
      if (!memory) continue;
      if (part->read) move_all(p->io, v, to, type, false);
      v->data = to, v->dtype = type;
      for (int64_t d = v->ndim - 1, step = 1; d >= 0; step *= v->shape[d--]) v->strides[d] = step;
    }
  return used;
}

/* Whole numbers were written as int64; int32 tensors may not have room for them. */
static smx_status check_narrow(const pack *p) {
  const smx_op *op = p->c->op;
  for (int32_t o = 0; p->groups[0].out && o < op->output_count; o++) {
    if (!p->c->out.given[o] || !(op->outputs[o].flags & SMX_PORT_INT) || p->caller[0][o].dtype.bits != 32)
      continue;
    const smx_view *v = p->c->out.view + o;
    const int64_t *x = (const int64_t *)(const void *)v->data, n = smx_view_elements(v);
    for (int64_t i = 0; i < n; i++)
      if (x[i] != (int32_t)x[i])
        return smx_fail(SMX_ERR_DTYPE, "%s: %s: number %lld is %lld, beyond int32", op->name,
                        op->outputs[o].name, (long long)i, (long long)x[i]);
  }
  return SMX_OK;
}

/* What was written goes to the caller's tensors. */
static void pack_end(pack *p) {
  for (int g = 0; g < 2; g++)
    for (int32_t i = 0; p->groups[g].out && i < p->groups[g].count; i++) {
      const smx_view *v = p->groups[g].tensors->view + i, *caller = p->caller[g] + i;
      if (p->groups[g].tensors->given[i] && v->data != caller->data)
        move_all(p->io, caller, v->data, v->dtype, true);
    }
}

smx_status tensors_run_packed(pack *p, tensor_call *c, const tensor_functions *f, bool backward) {
  smx_status (*const function)(const tensor_call *c) = backward ? f->backward : f->forward;
  if (!backward && f->by_channel && is_by_channel(c) && f->by_channel(c)) turn_all(c);
  pack_begin(p, c, backward);
  const size_t bytes = pack_each(p, NULL);
  if (bytes == 0) return function(c);
  char *memory = smx_alloc(c->ctx, bytes);
  if (!memory) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %zu bytes", c->op->name, bytes);
  pack_each(p, memory);
  smx_status status = function(c);
  if (status == SMX_OK) status = check_narrow(p);
  if (status == SMX_OK) pack_end(p);
  smx_free(c->ctx, memory);
  return status;
}
