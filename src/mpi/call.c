/* mpi/call.c - the functions of softmax/mpi.h. */
#include "call.h"
#include <softmax/mpi.h>
#include <stdlib.h>
#include <string.h>

/* Inputs that a gradient does not read are left out. */
static void give(mpi_call *c, int set, const smx_tensor *const *t, int32_t n) {
  for (int p = 0; t && p < n && p < SMX_MAX_PORTS; p++) c->given[set][p] = t[p];
  if (!c->backward || set > OUT || !c->op) return;
  const smx_port *const ports = set == IN ? c->op->inputs : c->op->outputs;
  const int32_t count = set == IN ? c->op->input_count : c->op->output_count;
  for (int p = 0; p < count; p++)
    if (!(ports[p].flags & SMX_PORT_SAVED)) c->given[set][p] = NULL;
}

static smx_status run(mpi_call *c) {
  smx_status status = mpi_ports(c);
  if (status == SMX_OK) status = mpi_columns_open(c);
  if (status == SMX_OK) status = mpi_columns_move(c, false);
  if (status == SMX_OK) status = mpi_rounds(c);
  if (status == SMX_OK) status = mpi_columns_move(c, true);
  mpi_columns_close(c);
  return status;
}

/* The only reduction of MPI here: of whole numbers, before there is room for one number a rank. */
mpi_call *mpi_open(MPI_Comm comm, smx_status *status) {
  int ranks = 0, me = 0;
  *status = mpi_status(MPI_Comm_size(comm, &ranks), "Comm_size");
  if (*status == SMX_OK) *status = mpi_status(MPI_Comm_rank(comm, &me), "Comm_rank");
  if (*status != SMX_OK) return NULL;
  const size_t bounds = (size_t)(2 * ranks + 2) * sizeof(int64_t),
               types = (size_t)(2 * ranks) * sizeof(MPI_Datatype),
               numbers = (size_t)(4 * ranks) * sizeof(int);
  mpi_call *const c = calloc(1, sizeof *c + bounds + types + numbers);
  int mine = c != NULL, all = 0;
  *status = mpi_status(MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, comm), "Allreduce");
  if (*status == SMX_OK && !all) *status = smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for a call");
  if (*status != SMX_OK) {
    free(c);
    return NULL;
  }
  c->comm = comm, c->me = me, c->ranks = ranks;
  c->bounds = (int64_t *)(void *)(c + 1), c->owned = c->bounds + ranks + 1;
  c->types = (MPI_Datatype *)(void *)(c->owned + ranks + 1);
  c->numbers = (int *)(void *)(c->types + 2 * ranks);
  return c;
}

/* A call of an operator on rows, or over the logits of a linear layer. */
typedef struct operator_call {
  const smx_op *op;
  smx_context *ctx;
  const smx_params *params;
  bool layered;
  const smx_linear *linear;
  int32_t n_in, n_out;
  const smx_tensor *const *in, *const *out, *const *dout, *const *din;
  int64_t n, first;
  bool backward;
} operator_call;

static smx_status call_operator(MPI_Comm comm, const operator_call *o) {
  smx_status status;
  mpi_call *const c = mpi_open(comm, &status);
  if (!c) return status;
  c->op = o->op, c->ctx = o->ctx, c->params = o->params, c->layered = o->layered, c->linear = o->linear;
  c->n = o->n, c->first = o->first, c->n_in = o->n_in, c->n_out = o->n_out, c->backward = o->backward;
  give(c, IN, o->in, o->n_in), give(c, OUT, o->out, o->n_out);
  give(c, DOUT, o->dout, o->n_out), give(c, DIN, o->din, o->n_in);
  status = run(c);
  free(c);
  return status;
}

smx_status smx_mpi_forward(MPI_Comm comm, const smx_op *op, smx_context *ctx, const smx_params *params,
                           int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                           const smx_tensor *const *out, int64_t n, int64_t first) {
  const operator_call o = {op, ctx, params, false, NULL, n_in, n_out, in, out, NULL, NULL, n, first, false};
  return call_operator(comm, &o);
}

smx_status smx_mpi_backward(MPI_Comm comm, const smx_op *op, smx_context *ctx, const smx_params *params,
                            int32_t n_in, const smx_tensor *const *in, int32_t n_out,
                            const smx_tensor *const *out, const smx_tensor *const *dout,
                            const smx_tensor *const *din, int64_t n, int64_t first) {
  const operator_call o = {op, ctx, params, false, NULL, n_in, n_out, in, out, dout, din, n, first, true};
  return call_operator(comm, &o);
}

smx_status smx_mpi_linear_forward(MPI_Comm comm, const smx_op *op, smx_context *ctx, const smx_params *params,
                                  const smx_linear *linear, int32_t n_in, const smx_tensor *const *in,
                                  int32_t n_out, const smx_tensor *const *out, int64_t classes,
                                  int64_t first) {
  const operator_call o = {op, ctx, params, true, linear,  n_in,  n_out,
                           in, out, NULL,   NULL, classes, first, false};
  return call_operator(comm, &o);
}

smx_status smx_mpi_linear_backward(MPI_Comm comm, const smx_op *op, smx_context *ctx,
                                   const smx_params *params, const smx_linear *linear, int32_t n_in,
                                   const smx_tensor *const *in, int32_t n_out, const smx_tensor *const *out,
                                   const smx_tensor *const *dout, const smx_tensor *const *din,
                                   int64_t classes, int64_t first) {
  const operator_call o = {op, ctx, params, true, linear,  n_in,  n_out,
                           in, out, dout,   din,  classes, first, true};
  return call_operator(comm, &o);
}

smx_tensor mpi_tensor(const void *data, smx_dtype dtype, int32_t ndim, int64_t *shape) {
  smx_tensor t = {.device = {1, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
  memcpy(&t.data, &data, sizeof data); /* inputs are not written */
  return t;
}

smx_status smx_mpi_cross_entropy_f32(MPI_Comm comm, smx_context *ctx, size_t rows, int64_t n, int64_t first,
                                     size_t count, const float *x, const int64_t *target,
                                     const smx_cross_entropy_options *options, float *loss, float *dx,
                                     float *reduced) {
  smx_status status;
  smx_params params;
  smx_cross_entropy_options o = {.size = sizeof o};
  mpi_call *const c = mpi_open(comm, &status);
  if (!c) return status;
  status = smx_cross_entropy_params(options, &params);
  if (status == SMX_OK && options) memcpy(&o, options, options->size);
  if (status == SMX_OK && (rows > INT64_MAX || count > INT64_MAX))
    status = smx_set_error(SMX_ERR_SHAPE, "smx_mpi_cross_entropy_f32: rows * count overflows");
  int64_t shape[2] = {(int64_t)rows, (int64_t)count};
  const smx_tensor t[] = {mpi_tensor(x, SMX_F32, 2, shape),
                          mpi_tensor(target, SMX_I64, 1, shape),
                          mpi_tensor(o.class_weight, SMX_F32, 1, shape + 1),
                          mpi_tensor(loss, SMX_F32, 1, shape),
                          mpi_tensor(dx, SMX_F32, 2, shape),
                          mpi_tensor(o.lse, SMX_F32, 1, shape),
                          mpi_tensor(reduced, SMX_F32, 0, shape)};
  const smx_tensor *const in[] = {t, t + 1, NULL, o.class_weight ? t + 2 : NULL};
  const smx_tensor *const out[] = {t + 3, dx ? t + 4 : NULL,     o.lse ? t + 5 : NULL, NULL, NULL,
                                   NULL,  reduced ? t + 6 : NULL};
  c->op = smx_op_find("cross_entropy"), c->ctx = ctx, c->params = &params, c->n = n, c->first = first;
  c->n_in = 4, c->n_out = 7;
  give(c, IN, in, 4), give(c, OUT, out, 7);
  status = mpi_agree(c, status);
  if (status == SMX_OK) status = run(c);
  free(c);
  return status;
}
