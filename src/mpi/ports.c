/* mpi/ports.c - what all ranks have to know of each other before a column moves: how many columns
 * each holds, and that they came with tensors of the same kinds. */
#include "call.h"
#include <softmax/split.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

smx_status mpi_status(int code, const char *what) {
  char text[MPI_MAX_ERROR_STRING + 64], reason[MPI_MAX_ERROR_STRING] = "";
  int length;
  if (code == MPI_SUCCESS) return SMX_OK;
  MPI_Error_string(code, reason, &length);
  snprintf(text, sizeof text, "smx_mpi: %s: %s", what, reason);
  return smx_set_error(SMX_ERR_BACKEND, text);
}

static smx_status fail_on(smx_status status, int rank, const char *what) {
  char text[256];
  snprintf(text, sizeof text, "smx_mpi: rank %d: %s", rank, what);
  return smx_set_error(status, text);
}

/* The status of rank r, which is not SMX_OK. The rank itself has a text that says more. */
static smx_status status_of(const mpi_call *c, int r, smx_status status) {
  return r == c->me ? status : fail_on(status, r, smx_strerror(status));
}

/* The first status that is not SMX_OK. */
smx_status mpi_agree(const mpi_call *c, smx_status status) {
  int mine = (int)status;
  const smx_status sent =
      mpi_status(MPI_Allgather(&mine, 1, MPI_INT, c->numbers, 1, MPI_INT, c->comm), "Allgather");
  if (sent != SMX_OK) return sent;
  for (int r = 0; r < c->ranks; r++)
    if (c->numbers[r] != SMX_OK) return status_of(c, r, (smx_status)c->numbers[r]);
  return SMX_OK;
}

/* ---- what a rank came with ---- */

enum { FACT_HELD = 1, FACT_ONE = 2 }; /* has the rank's columns; has one value for all columns */
typedef struct facts {
  int64_t status;
  int64_t n, first, count;
  int64_t rows[SETS][SMX_MAX_PORTS];
  uint8_t how[SETS][SMX_MAX_PORTS], bytes[SETS][SMX_MAX_PORTS];
} facts;

/* Classes of a layer are the first axis of its tensors. */
static const smx_port layer_ports[] = {{.name = "w or dw", .shape = SMX_SHAPE_COLUMN},
                                       {.name = "bias or dbias", .shape = SMX_SHAPE_COLUMN}};

/* Whether the call has a tensor with columns there; *port: the operator's. */
static const smx_tensor *column_port(const mpi_call *c, int set, int p, const smx_port **port) {
  if (set >= LAYER) return *port = layer_ports + p, p <= LAYER_BIAS ? c->given[set][p] : NULL;
  const bool input = set == IN || set == DIN;
  if (p >= (input ? c->op->input_count : c->op->output_count)) return NULL;
  *port = input ? c->op->inputs + p : c->op->outputs + p;
  return (*port)->shape == SMX_SHAPE_FULL || (*port)->shape == SMX_SHAPE_COLUMN ? c->given[set][p] : NULL;
}

/* The tensor that has the shape of x, and its axis. */
static const smx_tensor *like_x(const mpi_call *c, int32_t *axis) {
  const smx_tensor *const x = c->layered        ? &c->logits
                              : c->given[IN][0] ? c->given[IN][0]
                              : c->backward     ? c->given[DOUT][0]
                                                : NULL;
  *axis = c->params ? c->params->axis : -1;
  if (!x || !x->shape) return NULL;
  if (*axis < 0) *axis += x->ndim;
  return *axis >= 0 && *axis < x->ndim && x->ndim <= SMX_MAX_DIMS ? x : NULL;
}

static smx_status take_port(mpi_call *c, int set, int p, const smx_tensor *x, int32_t axis, facts *f) {
  const smx_port *port;
  const smx_tensor *const t = column_port(c, set, p, &port);
  mpi_port *const q = &c->port[set][p];
  if (!t) return SMX_OK;
  const bool column = port->shape == SMX_SHAPE_COLUMN;
  char text[160];
  q->axis = column ? 0 : t->ndim - (x->ndim - axis), q->rows = 1;
  if (t->ndim < 0 || t->ndim > SMX_MAX_DIMS || (t->ndim && !t->shape))
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: a tensor with a wrong ndim, or without a shape");
  for (int32_t d = 0; d < t->ndim; d++)
    if (t->shape[d] < 0 || (d != q->axis && __builtin_mul_overflow(q->rows, t->shape[d], &q->rows)))
      return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: a tensor whose shape is negative or overflows");
  const int64_t held = q->axis < 0 || q->axis >= t->ndim ? 1 : t->shape[q->axis];
  const bool broadcasts = set == IN && p > 0 && !column;
  if (held == c->count && q->axis >= 0) f->how[set][p] |= FACT_HELD;
  if (held == 1 && broadcasts) f->how[set][p] |= FACT_ONE;
  f->rows[set][p] = q->rows, f->bytes[set][p] = (uint8_t)(t->dtype.bits / 8);
  if (f->how[set][p]) return SMX_OK;
  snprintf(text, sizeof text, "smx_mpi: %s: %s has %lld columns, not %lld", c->op->name, port->name,
           (long long)held, (long long)c->count);
  return smx_set_error(SMX_ERR_SHAPE, text);
}

/* The shape of the logits of a layer. What else may be wrong with it, smx_split_linear_forward
 * says. */
static smx_status take_layer(mpi_call *c) {
  const smx_linear *const l = c->linear;
  if (!l) return smx_set_error(SMX_ERR_NULL, "smx_mpi: linear is NULL");
  if (l->size != sizeof *l) return smx_set_error(SMX_ERR_STRUCT, "smx_mpi: linear.size is another");
  if (!l->h || !l->w) return smx_set_error(SMX_ERR_NULL, "smx_mpi: h or w of a linear layer is NULL");
  if (l->h->ndim != 2 || l->w->ndim != 2 || !l->h->shape || !l->w->shape)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: h and w of a linear layer need two axes");
  c->logits_shape[0] = l->h->shape[0], c->logits_shape[1] = l->w->shape[0];
  c->logits = mpi_tensor(NULL, SMX_F32, 2, c->logits_shape);
  c->given[LAYER][LAYER_W] = l->w, c->given[LAYER][LAYER_BIAS] = l->bias;
  c->given[DLAYER][LAYER_W] = l->dw, c->given[DLAYER][LAYER_BIAS] = l->dbias;
  return SMX_OK;
}

static smx_status take_facts(mpi_call *c, facts *f) {
  int32_t axis;
  const smx_status layer = c->layered ? take_layer(c) : SMX_OK;
  if (layer != SMX_OK) return layer;
  if (!c->op) return smx_set_error(SMX_ERR_NULL, "smx_mpi: op is NULL");
  if (c->n_in < 0 || c->n_in > c->op->input_count || c->n_out < 0 || c->n_out > c->op->output_count)
    return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: n_in or n_out is more than the operator has");
  const smx_tensor *const x = like_x(c, &axis);
  if (!x) return smx_set_error(SMX_ERR_SHAPE, "smx_mpi: x is NULL, or has no such axis");
  c->count = f->count = x->shape[axis];
  smx_status status = SMX_OK;
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS && status == SMX_OK; p++) status = take_port(c, set, p, x, axis, f);
  return status;
}

/* ---- what all ranks came with ---- */

static smx_status check_bounds(mpi_call *c, const facts *all) {
  char text[160];
  c->bounds[0] = 0;
  for (int r = 0; r < c->ranks; r++) {
    if (all[r].n != c->n) return fail_on(SMX_ERR_SHAPE, r, "has another n");
    if (all[r].first != c->bounds[r] || all[r].count > c->n - c->bounds[r]) {
      snprintf(text, sizeof text,
               "first is %lld and its columns are %lld, but those before it end at %lld of %lld",
               (long long)all[r].first, (long long)all[r].count, (long long)c->bounds[r], (long long)c->n);
      return fail_on(SMX_ERR_SHAPE, r, text);
    }
    c->bounds[r + 1] = c->bounds[r] + all[r].count;
  }
  if (c->bounds[c->ranks] == c->n) return SMX_OK;
  snprintf(text, sizeof text, "its columns end at %lld, not at n = %lld", (long long)c->bounds[c->ranks],
           (long long)c->n);
  return fail_on(SMX_ERR_SHAPE, c->ranks - 1, text);
}

/* A port is cut into columns on all ranks, or has one value for them on all. */
static smx_status check_port(mpi_call *c, const facts *all, int set, int p) {
  uint8_t both = FACT_HELD | FACT_ONE;
  for (int r = 0; r < c->ranks; r++) {
    if (!all[r].how[set][p] != !all[0].how[set][p] || all[r].bytes[set][p] != all[0].bytes[set][p] ||
        all[r].rows[set][p] != all[0].rows[set][p])
      return fail_on(SMX_ERR_SHAPE, r, "its tensors, their rows or their dtypes are not those of rank 0");
    both &= all[r].how[set][p];
  }
  if (all[0].how[set][p] && !both)
    return fail_on(SMX_ERR_SHAPE, 0, "a tensor has one value for all columns, but not on every rank");
  c->port[set][p].moves = both & FACT_HELD;
  return SMX_OK;
}

static smx_status check_facts(mpi_call *c, const facts *all) {
  for (int r = 0; r < c->ranks; r++)
    if (all[r].status != SMX_OK) return status_of(c, r, (smx_status)all[r].status);
  smx_status status = check_bounds(c, all);
  for (int set = 0; set < SETS; set++)
    for (int p = 0; p < SMX_MAX_PORTS && status == SMX_OK; p++) status = check_port(c, all, set, p);
  if (status == SMX_OK) status = smx_split_plan(c->n, c->ranks, c->bounds, c->owned);
  for (int r = 1; r < c->ranks && status == SMX_OK; r++)
    c->apart |= c->bounds[r] % SMX_SPLIT_GROUP && c->bounds[r] != c->n;
  return status;
}

smx_status mpi_ports(mpi_call *c) {
  facts mine = {.status = SMX_OK, .n = c->n, .first = c->first};
  const int bytes = (int)sizeof mine;
  facts *const all = malloc((size_t)c->ranks * sizeof *all);
  smx_status status =
      mpi_agree(c, all ? SMX_OK : smx_set_error(SMX_ERR_NOMEM, "smx_mpi: no memory for a call"));
  if (status == SMX_OK) {
    mine.status = take_facts(c, &mine);
    status = mpi_status(MPI_Allgather(&mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, c->comm), "Allgather");
  }
  if (status == SMX_OK) status = check_facts(c, all);
  free(all);
  return status;
}
