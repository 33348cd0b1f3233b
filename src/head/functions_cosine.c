/* head/functions_cosine.c - a linear layer of unit rows (NormFace, Wang et al. 2017), whose scores
 * are cosines, with the loss of margin_softmax. With u = x / |x| and v the gradient by u,
 *
 *   dx = (v - (v u) u) / |x|
 *
 * A row shorter than 1e-12 is divided by that, and has dx = v / 1e-12. */
#include <string.h>

#include "functions_tree.h"

enum { H, W, TARGET }; /* inputs */
enum { SIDES = 2 };    /* h, w */
#define SHORTEST 1e-12

typedef struct cosine {
  const tensor_call *c;
  int64_t rows[SIDES], d, bytes;
  double *length[SIDES];
  char *unit[SIDES], *gradient[SIDES]; /* rows in the real type */
  smx_scratch scratch;
} cosine;

static double *row_in(const cosine *s, const char *rows, int64_t row, double *x) {
  smx_reals_load(s->c->is_f64, rows + row * s->d * s->bytes, s->d, x);
  return x;
}

/* Task: a row of h, or of w behind them. */
static void unit_task(void *arg, int64_t task) {
  cosine *s = arg;
  const int side = task >= s->rows[H];
  const int64_t row = side ? task - s->rows[H] : task;
  double *const x = row_in(s, s->c->in.view[side].data, row, smx_scratch_take(&s->scratch));
  const double length = __builtin_sqrt(tree_dot(x, x, s->d)), by = length < SHORTEST ? SHORTEST : length;
  for (int64_t i = 0; i < s->d; i++) x[i] /= by;
  s->length[side][row] = length;
  smx_reals_store(s->c->is_f64, x, s->d, s->unit[side] + row * s->d * s->bytes);
  smx_scratch_give(&s->scratch, x);
}

static void project_task(void *arg, int64_t task) {
  cosine *s = arg;
  const int side = task >= s->rows[H];
  const int64_t row = side ? task - s->rows[H] : task;
  double *const u = smx_scratch_take(&s->scratch), *const v = u + s->d;
  if (s->c->din.given[side]) {
    row_in(s, s->unit[side], row, u), row_in(s, s->gradient[side], row, v);
    const double length = s->length[side][row], along = length < SHORTEST ? 0 : tree_dot(u, v, s->d);
    for (int64_t i = 0; i < s->d; i++) v[i] = (v[i] - along * u[i]) / (length < SHORTEST ? SHORTEST : length);
    tensor_store(s->c, s->c->din.view + side, row * s->d, s->d, v);
  }
  smx_scratch_give(&s->scratch, u);
}

static smx_status open_cosine(cosine *s, const tensor_call *c, bool backward) {
  *s = (cosine){.c = c, .rows = {tensor_dim(c, "n"), tensor_dim(c, "c")}, .d = tensor_dim(c, "d")};
  s->bytes = c->is_f64 ? 8 : 4;
  const int64_t rows = s->rows[H] + s->rows[W];
  int64_t size, all;
  const bool fits = smx_multiply(rows, s->d * s->bytes, &size) && smx_multiply(size, backward ? 2 : 1, &all);
  const size_t lengths = smx_whole_lines(sizeof(double) * (size_t)rows);
  if (!fits || !smx_scratch_open(&s->scratch, c->ctx, lengths + (size_t)all + 1,
                                 sizeof(double) * (size_t)(2 * s->d + 1), rows))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld unit rows", c->op->name, (long long)rows);
  s->length[H] = (double *)(void *)s->scratch.shared, s->length[W] = s->length[H] + s->rows[H];
  s->unit[H] = s->scratch.shared + lengths, s->unit[W] = s->unit[H] + s->rows[H] * s->d * s->bytes;
  s->gradient[H] = s->unit[H] + size, s->gradient[W] = s->unit[W] + size;
  smx_parallel(c->ctx, rows, unit_task, s);
  return SMX_OK;
}

/* The layer: cosines by the margin_softmax of the parameters that it shares with this operator. */
typedef struct layer {
  const smx_op *op;
  smx_params params;
  smx_linear linear;
  smx_view view[TARGET + 2]; /* whose shapes the tensors have */
  smx_tensor side[2 * SIDES], target, loss;
  const smx_tensor *in[2];
} layer;

static smx_tensor tensor_at(smx_view *v) {
  return smx_tensor_of(v->data, v->dtype, v->ndim, v->shape, v->strides);
}

/* loss: the losses, or their upstream gradient. */
static void open_layer(layer *l, const cosine *s, const smx_view *loss) {
  const tensor_call *c = s->c;
  *l = (layer){.op = smx_op_find("margin_softmax")};
  head_shared_params(c, l->op, &l->params);
  for (int side = 0; side < SIDES; side++) {
    l->view[side] = c->in.view[side];
    l->side[side] = l->side[SIDES + side] = tensor_at(l->view + side);
    l->side[side].data = s->unit[side], l->side[SIDES + side].data = s->gradient[side];
  }
  l->view[TARGET] = c->in.view[TARGET], l->view[TARGET + 1] = *loss;
  l->target = tensor_at(l->view + TARGET), l->loss = tensor_at(l->view + TARGET + 1);
  l->in[1] = &l->target;
  l->linear = (smx_linear){
      .size = sizeof l->linear, .h = l->side, .w = l->side + 1, .scale = 1, .keep_bytes = head_keep(c)};
}

smx_status cosine_forward(const tensor_call *c) {
  cosine s;
  layer l;
  smx_status status = open_cosine(&s, c, false);
  if (status != SMX_OK) return status;
  open_layer(&l, &s, c->out.view);
  const smx_tensor *out[] = {&l.loss};
  status = smx_linear_forward(l.op, c->ctx, &l.params, &l.linear, 2, l.in, 1, out);
  smx_scratch_close(&s.scratch);
  return status;
}

smx_status cosine_backward(const tensor_call *c) {
  cosine s;
  layer l;
  if (!c->din.given[H] && !c->din.given[W]) return SMX_OK;
  smx_status status = open_cosine(&s, c, true);
  if (status != SMX_OK) return status;
  open_layer(&l, &s, c->dout.view);
  if (c->din.given[H]) l.linear.dh = l.side + SIDES + H;
  if (c->din.given[W]) l.linear.dw = l.side + SIDES + W;
  const smx_tensor *dout[] = {&l.loss};
  status = smx_linear_backward(l.op, c->ctx, &l.params, &l.linear, 2, l.in, 1, NULL, dout, NULL);
  if (status == SMX_OK) smx_parallel(c->ctx, s.rows[H] + s.rows[W], project_task, &s);
  smx_scratch_close(&s.scratch);
  return status;
}
