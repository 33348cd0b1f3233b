/* run.c - runs an operator over files block by block; the results go to a writer or to tables. */
#include "run.h"

#include "bind.h"
#include "blocks.h"
#include "fault.h"
#include "help.h"
#include "parse.h"
#include "progress.h"
#include "ranks.h"
#include "write.h"

#include <softmax/split.h>
#include <stdlib.h>
#include <string.h>

/* An array that the library fills: an output, or the gradient of an input. */
typedef struct result {
  char name[64];
  const dtype *type;
  smx_shape whole;
  int32_t axis; /* -1: one value a row */
  bool cut;     /* every rank has the columns of its own */
  unsigned char *buffer;
  size_t room;
  view block;
  table table;
} result;

typedef struct run {
  const run_request *request;
  const smx_op *op;
  const options *o;
  binding b;
  blocks blocks;
  int32_t axis; /* not negative */
  smx_context *context;
  /* outputs; gradients, with no type where they are not wanted */
  result out[SMX_MAX_PORTS], din[SMX_MAX_PORTS];
  result *shown[SMX_MAX_PORTS];
  int32_t shown_count;
  result_file file;     /* of rank 0 */
  unsigned char *piece; /* of another rank's results */
} run;

typedef const smx_tensor *tensor_list[SMX_MAX_PORTS];

/* ---- What will come out ---- */

static int32_t axis_of(const smx_port *port, int32_t ndim, int32_t axis) {
  if (port->shape == SMX_SHAPE_COLUMN) return 0;
  if (port->shape == SMX_SHAPE_DIMS) return ndim - 1;
  return port->shape == SMX_SHAPE_ROW || port->shape == SMX_SHAPE_SCALAR ? -1 : axis;
}

/* A value for each column of the rows: each rank has those of its own columns. */
static bool is_cut(const smx_port *port) {
  return ranks_count() > 1 && (port->shape == SMX_SHAPE_FULL || port->shape == SMX_SHAPE_COLUMN);
}

static bool chosen(uint32_t mask, int32_t i) { return !mask || mask >> i & 1; }

static int infer_outputs(run *r) {
  smx_tensor tensors[SMX_MAX_PORTS];
  tensor_list in = {NULL};
  smx_shape shapes[SMX_MAX_PORTS];
  for (int32_t i = 0; i < r->op->input_count; i++) {
    if (!r->b.in[i].path) continue;
    tensors[i] = bind_tensor(&r->b.in[i]);
    in[i] = &tensors[i];
  }
  smx_status status = smx_infer(r->op, &r->b.params, r->op->input_count, in, r->op->output_count, shapes);
  if (status != SMX_OK) return bind_fault(&r->b, status);
  r->axis = r->b.params.axis < 0 ? r->b.params.axis + in[0]->ndim : r->b.params.axis;
  for (int32_t i = 0; i < r->op->output_count; i++) {
    result *out = &r->out[i];
    snprintf(out->name, sizeof out->name, "%s", r->op->outputs[i].name);
    out->whole = shapes[i];
    if (!chosen(r->request->wanted, i)) continue;
    out->type = dtype_of(shapes[i].dtype);
    if (!out->type)
      return fault(EXIT_REFUSED, "%s: output %s has a type that no file here can hold", r->op->name,
                   out->name);
    if (r->o->type && out->type->number && !r->o->backward) out->type = r->o->type;
    /* one number for a person: not in half precision */
    bool told = r->request->see && shapes[i].ndim == 0 && out->type->bytes == 2;
    if (told) out->type = dtype_named("f32");
    out->axis = axis_of(&r->op->outputs[i], shapes[i].ndim, r->axis);
    out->cut = is_cut(&r->op->outputs[i]);
  }
  return EXIT_OK;
}

/* The shape of x, without the axis for one value a row; its own where dimensions have names. */
static smx_shape gradient_shape(const run *r, int32_t number) {
  const smx_port *port = &r->op->inputs[number];
  const io_array *x = &r->b.in[has_rows(r->op) ? 0 : number].array;
  smx_shape s = {.ndim = 0};
  for (int32_t i = 0; i < x->ndim; i++)
    if (i != r->axis || port->shape != SMX_SHAPE_ROW) s.dim[s.ndim++] = x->shape[i];
  return s;
}

static void choose_gradients(run *r) {
  for (int32_t i = 0; i < r->op->input_count; i++) {
    const smx_port *port = &r->op->inputs[i];
    if (!r->b.in[i].path || !(port->flags & SMX_PORT_GRAD)) continue;
    result *din = &r->din[i];
    snprintf(din->name, sizeof din->name, "d%s", port->name);
    din->type = r->o->type ? r->o->type : r->b.in[i].want;
    din->whole = gradient_shape(r, i);
    din->axis = axis_of(port, din->whole.ndim, r->axis);
    din->cut = is_cut(port);
    r->shown[r->shown_count++] = din;
  }
}

/* Upstream gradients have the shape of their output; text has no shape of its own and takes it
 * over. */
static int check_dout(input *in, const smx_shape *whole) {
  char is[128], should[128];
  int64_t have = 0, need = 0;
  io_array *a = &in->array;
  bool same =
      a->ndim == whole->ndim && memcmp(a->shape, whole->dim, (size_t)whole->ndim * sizeof *a->shape) == 0;
  if (same) return EXIT_OK;
  bool counted = count_elements(a->ndim, a->shape, &have) && count_elements(whole->ndim, whole->dim, &need);
  if (a->text && counted && have == need) {
    a->ndim = whole->ndim;
    memcpy(a->shape, whole->dim, sizeof a->shape);
    return io_layout(&a->source, a, false, (size_t)have * a->type->bytes);
  }
  io_shape_text(a->ndim, a->shape, is, sizeof is);
  io_shape_text(whole->ndim, whole->dim, should, sizeof should);
  return fault(EXIT_REFUSED, "%s: dout: shape is (%s), that of the output is (%s)", in->path, is, should);
}

static int choose_results(run *r) {
  int code = infer_outputs(r);
  if (code) return code;
  for (int32_t i = 0; !code && i < r->op->output_count; i++) {
    if (r->b.dout[i].path) code = check_dout(&r->b.dout[i], &r->out[i].whole);
    if (!r->o->backward && r->out[i].type && chosen(r->request->shown, i))
      r->shown[r->shown_count++] = &r->out[i];
  }
  if (!code && r->o->backward) choose_gradients(r);
  return code;
}

/* ---- Where it goes ---- */

static int open_writer(run *r) {
  io_spec specs[SMX_MAX_PORTS];
  for (int32_t i = 0; i < r->shown_count; i++) {
    const result *s = r->shown[i];
    specs[i] = (io_spec){.name = s->name, .type = s->type, .ndim = s->whole.ndim, .column = s->axis < 0};
    memcpy(specs[i].shape, s->whole.dim, sizeof specs[i].shape);
  }
  return write_begin(&r->file, r->o, r->shown_count, specs);
}

static int open_results(run *r) {
  const labels *names = r->request->labels;
  if (names) {
    const io_array *x = &r->b.in[0].array;
    int code = labels_check(names, x->shape[r->axis], r->b.in[0].path);
    if (code) return code;
  }
  if (r->o->out) return ranks_me() ? EXIT_OK : open_writer(r);
  for (int32_t i = 0; !r->request->see && i < r->shown_count; i++) {
    result *s = r->shown[i];
    table_begin(&s->table, s->name, s->axis < 0 ? TABLE_VALUES : r->request->kind, s->type, &s->whole,
                s->axis);
    s->table.labels = names;
  }
  return EXIT_OK;
}

/* The next bytes of result i. */
static int take(run *r, int32_t i, const void *data, size_t bytes, unsigned char **whole) {
  if (r->file.open) return write_put(&r->file, i, data, bytes);
  if (*whole) memcpy(*whole, data, bytes), *whole += bytes;
  return EXIT_OK;
}

/* The same from rank `from`: in pieces, all of them, since they are sent whatever happens here. */
static int take_from(run *r, int32_t i, int from, const unsigned char *own, size_t bytes,
                     unsigned char **whole) {
  int code = EXIT_OK;
  for (size_t at = 0, n; at < bytes; at += n) {
    n = bytes - at < RANKS_PIECE ? bytes - at : RANKS_PIECE;
    if (ranks_me()) ranks_send(own + at, n);
    else if (from) ranks_receive(r->piece, n, from);
    if (!ranks_me() && !code) code = take(r, i, from ? r->piece : own + at, n, whole);
  }
  return code;
}

/* A result that is cut: its columns of all ranks in their order, row by row, to rank 0. For tables
 * they are put together in `whole`. */
static int collect(run *r, int32_t i, unsigned char *whole) {
  const result *s = r->shown[i];
  int64_t rows = 1, inner = s->type->bytes;
  int code = EXIT_OK;
  for (int32_t d = 0; d < s->axis; d++) rows *= s->block.shape[d];
  for (int32_t d = s->axis + 1; d < s->whole.ndim; d++) inner *= s->block.shape[d];
  for (int64_t row = 0; row < rows; row++)
    for (int from = 0; from < ranks_count(); from++) {
      int64_t first, columns;
      if (ranks_me() && from != ranks_me()) continue;
      smx_split_shard(s->whole.dim[s->axis], ranks_count(), from, &first, &columns);
      const unsigned char *own = s->buffer + row * r->blocks.own * inner;
      const int wrong = take_from(r, i, from, own, (size_t)(columns * inner), &whole);
      if (!code) code = wrong;
    }
  return code;
}

static int show_cut(run *r, int32_t i) {
  result *s = r->shown[i];
  int64_t shape[SMX_MAX_DIMS], count = 0;
  memcpy(shape, s->block.shape, sizeof shape);
  shape[s->axis] = s->whole.dim[s->axis];
  if (!count_elements(s->whole.ndim, shape, &count)) count = 0;
  const size_t bytes = (size_t)count * s->type->bytes;
  unsigned char *whole = ranks_me() ? NULL : malloc(bytes + 1);
  int code = collect(r, i, whole);
  if (!ranks_me() && !whole) code = fault_memory(bytes);
  if (!code && whole) table_add(&s->table, whole, s->whole.ndim, shape, s->axis);
  free(whole);
  return code;
}

static int emit(run *r) {
  int code = EXIT_OK;
  for (int32_t i = 0; i < r->shown_count; i++) {
    result *s = r->shown[i];
    const smx_tensor *t = &s->block.tensor;
    int64_t count = 0;
    int wrong = EXIT_OK;
    if (!count_elements(t->ndim, s->block.shape, &count)) wrong = fault_memory(SIZE_MAX);
    else if (s->cut && r->o->out) wrong = collect(r, i, NULL);
    else if (s->cut && !r->request->see) wrong = show_cut(r, i);
    else if (r->file.open) wrong = write_put(&r->file, i, s->buffer, (size_t)count * s->type->bytes);
    else if (!r->request->see && !r->o->out)
      table_add(&s->table, s->buffer, t->ndim, s->block.shape, s->axis);
    if (!code) code = wrong;
    if (code && ranks_count() == 1) break;
  }
  return code;
}

static int close_results(run *r) {
  if (r->file.open) return write_end(&r->file);
  for (int32_t i = 0; !r->request->see && !r->o->out && i < r->shown_count; i++)
    table_print(&r->shown[i]->table, stdout);
  return EXIT_OK;
}

/* ---- One block ---- */

/* Makes room for a result's part of the current block. The first block is the largest. */
static int prepare(const run *r, result *s) {
  int64_t count = 0;
  smx_tensor *t = &s->block.tensor;
  *t = (smx_tensor){.ndim = s->whole.ndim, .dtype = s->type->type, .shape = s->block.shape};
  t->device.device_type = 1;
  for (int32_t i = 0; i < s->whole.ndim; i++)
    s->block.shape[i] = s->cut && i == s->axis                   ? r->blocks.own
                        : r->blocks.step && i <= r->blocks.depth ? r->blocks.count[i]
                                                                 : s->whole.dim[i];
  if (!count_elements(t->ndim, s->block.shape, &count)) return fault_memory(SIZE_MAX);
  size_t bytes = (size_t)count * s->type->bytes;
  if (!s->buffer) s->buffer = malloc(bytes ? bytes : 1);
  t->data = s->buffer;
  return s->buffer ? EXIT_OK : fault_memory(bytes);
}

static int prepare_all(const run *r, result *results, int32_t count, tensor_list list) {
  for (int32_t i = 0; i < count; i++) {
    list[i] = results[i].type ? &results[i].block.tensor : NULL;
    int code = list[i] ? prepare(r, &results[i]) : EXIT_OK;
    if (code) return code;
  }
  return EXIT_OK;
}

/* The dimension of an input that is cut; -1 where it has one value for all columns. */
static int32_t cut_axis(const run *r, const input *in, const smx_port *port) {
  const io_array *x = &r->b.in[0].array, *a = &in->array;
  const int32_t axis = port->shape == SMX_SHAPE_COLUMN ? 0 : r->axis - (x->ndim - a->ndim);
  return axis >= 0 && axis < a->ndim && a->shape[axis] == x->shape[r->axis] ? axis : -1;
}

static int view_all(const run *r, input *inputs, const smx_port *ports, int32_t count, view *views,
                    tensor_list list) {
  int32_t ndim = r->b.in[0].array.ndim;
  for (int32_t i = 0; i < count; i++) {
    list[i] = inputs[i].path ? &views[i].tensor : NULL;
    bool listed = ports[i].shape == SMX_SHAPE_OFFSETS || ports[i].shape == SMX_SHAPE_COLUMN;
    int32_t dims = listed ? 0 : ports[i].shape == SMX_SHAPE_ROW ? ndim - 1 : ndim;
    if (ports[i].shape == SMX_SHAPE_DIMS) dims = inputs[i].array.ndim;
    const int32_t cut = list[i] && is_cut(&ports[i]) ? cut_axis(r, &inputs[i], &ports[i]) : -1;
    int code = list[i] ? blocks_view(&r->blocks, &inputs[i], dims, cut, &views[i]) : EXIT_OK;
    if (code) return code;
  }
  return EXIT_OK;
}

/* A library fault in a block names the rows of the block; this adds where the block starts. */
static int block_fault(const run *r, smx_status status) {
  const blocks *k = &r->blocks;
  int64_t row = 0;
  int code = bind_fault(&r->b, status);
  for (int32_t i = 0; i < k->ndim; i++)
    if (i != r->axis) row = row * k->shape[i] + k->start[i];
  if (row == 0) return code;
  char text[512];
  snprintf(text, sizeof text, "%s", fault_text());
  return fault(code, "%s (rows counted from row %lld)", text, (long long)row);
}

static int show_block(const run *r, const tensor_list in, const tensor_list out) {
  smx_shape whole = {.ndim = r->b.in[0].array.ndim, .dtype = r->b.in[0].want->type};
  memcpy(whole.dim, r->b.in[0].array.shape, sizeof whole.dim);
  run_block block = {.op = r->op,
                     .params = &r->b.params,
                     .context = r->context,
                     .in = in,
                     .out = out,
                     .whole = &whole,
                     .result = &r->out[0].whole,
                     .axis = r->axis,
                     .first = r->blocks.first};
  return r->request->see(r->request->user, &block);
}

static bool needs_forward(const run *r) {
  for (int32_t i = 0; i < r->op->output_count; i++)
    if (r->op->outputs[i].flags & SMX_PORT_SAVED) return true;
  return !r->o->backward;
}

static int compute_block(run *r) {
  const smx_op *op = r->op;
  view in_views[SMX_MAX_PORTS], dout_views[SMX_MAX_PORTS];
  tensor_list in, out, din, dout;
  smx_status status = SMX_OK;
  int code = view_all(r, r->b.in, op->inputs, op->input_count, in_views, in);
  if (!code) code = view_all(r, r->b.dout, op->outputs, op->output_count, dout_views, dout);
  if (!code) code = prepare_all(r, r->out, op->output_count, out);
  if (!code) code = prepare_all(r, r->din, op->input_count, din);
  code = ranks_agree(code);
  if (code) return code;
  const int64_t n = has_rows(op) ? r->b.in[0].array.shape[r->axis] : 0, first = r->blocks.first;
  if (needs_forward(r)) status = ranks_forward(op, r->context, &r->b.params, in, out, n, first);
  if (status == SMX_OK && r->o->backward)
    status = ranks_backward(op, r->context, &r->b.params, in, out, dout, din, n, first);
  if (status != SMX_OK) return block_fault(r, status);
  return r->request->see ? show_block(r, in, out) : EXIT_OK;
}

/* ---- All of them ---- */

static bool is_stack(const smx_port *port) { return strncmp(port->dims, "...", 3) == 0; }

/* A value for all rows, and a gradient of it, need all rows at once; named dimensions need all of a
 * tensor, unless every one is a stack of such. */
static bool needs_all(const run *r) {
  const smx_op *op = r->op;
  for (int32_t i = 0; i < op->output_count; i++)
    if (r->out[i].type && (op->outputs[i].shape == SMX_SHAPE_SCALAR || op->outputs[i].flags & SMX_PORT_DX))
      return true;
  for (int32_t i = 0; !has_rows(op) && i < op->input_count; i++)
    if (r->b.in[i].path && !is_stack(&op->inputs[i])) return true;
  for (int32_t i = 0; !has_rows(op) && i < op->output_count; i++)
    if (r->out[i].type && !is_stack(&op->outputs[i])) return true;
  return false;
}

/* How many dimensions s* stands for. */
static int32_t spatial_of(const run *r) {
  const int32_t spatial = find_param(r->op, "spatial");
  return spatial < 0 ? 1 : (int32_t)r->b.params.value[spatial];
}

/* How many dimensions the names behind "..." are. */
static int32_t named_dimensions(const run *r) {
  int32_t count = 0;
  for (const char *at = r->op->inputs[0].dims; *at && *at != '|'; at++) {
    if (*at == ' ' && at[1] != '|') count++;
    if (*at == '*') count += spatial_of(r) - 1;
  }
  return count;
}

/* The first dimension of x that is whole in a block, with all that follow. */
static int32_t first_whole(const run *r) {
  if (has_rows(r->op)) return r->axis;
  const int32_t first = r->b.in[0].array.ndim - named_dimensions(r);
  return needs_all(r) || first < 0 ? 0 : first;
}

static int run_blocks(run *r) {
  const io_array *x = &r->b.in[0].array;
  progress p;
  int code;
  int64_t done = 0;
  blocks_begin(&r->blocks, x, r->b.in[0].want->bytes, first_whole(r), needs_all(r) ? INT64_MAX : r->o->block);
  if (ranks_count() > 1)
    smx_split_shard(x->shape[r->axis], ranks_count(), ranks_me(), &r->blocks.first, &r->blocks.own);
  progress_begin(&p, r->blocks.total);
  do {
    code = ranks_agree(compute_block(r));
    if (!code) code = ranks_agree(emit(r));
    progress_step(&p, ++done);
  } while (!code && blocks_next(&r->blocks));
  progress_end(&p);
  return code;
}

/* After the output's temporary file exists, so that the workers' threads cannot miss its name when
 * a signal comes. */
static int make_context(run *r) {
  smx_context_options c = {
      .size = sizeof c, .threads = r->o->threads, .on_empty = r->o->on_empty, .on_inf = r->o->on_inf};
  smx_status status = smx_context_create(&c, &r->context);
  return status == SMX_OK ? EXIT_OK : bind_fault(&r->b, status);
}

/* Rows alone can be cut among ranks. */
static int join_ranks(run *r) {
  if (ranks_count() == 1) return EXIT_OK;
  if (!has_rows(r->op))
    return fault(EXIT_USAGE, "%s: not over ranks: its inputs are no rows of one length", r->op->name);
  r->piece = ranks_me() ? NULL : malloc(RANKS_PIECE);
  return ranks_me() || r->piece ? EXIT_OK : fault_memory(RANKS_PIECE);
}

static void free_run(run *r) {
  write_drop(&r->file);
  free(r->piece);
  smx_context_destroy(r->context);
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    free(r->out[i].buffer);
    free(r->din[i].buffer);
  }
  bind_free(&r->b);
  free(r);
}

int run_operator(const run_request *request) {
  run *r = calloc(1, sizeof *r);
  if (!r) return fault_memory(sizeof *r);
  r->request = request;
  r->op = request->op;
  r->o = request->o;
  int code = bind_inputs(&r->b, r->op, r->o, request->first);
  if (!code) code = choose_results(r);
  if (!code) code = open_results(r);
  if (!code) code = make_context(r);
  if (!code) code = join_ranks(r);
  code = ranks_agree(code);
  if (!code) code = run_blocks(r);
  if (!code) code = ranks_agree(close_results(r));
  free_run(r);
  return code;
}
