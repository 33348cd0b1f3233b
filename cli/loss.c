/* loss.c - the verb `loss`. The loss itself is a run of its operator; what is told beside it comes
 * from cross_entropy, whose outputs `entropy` and `rank` are about the logits and the targets
 * alone: a row is right where no class comes before its target. */
#include "loss.h"

#include "dtype.h"
#include "fault.h"
#include "help.h"
#include "ranks.h"
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const setting loss_settings[] = {
    {"targets", 0, "FILE", "the class of each row: the input 'target' of the loss", FOR_OPERATOR, NULL, NULL},
    {"gradient", 0, NULL,
     "with -o: write the gradient of the reduced loss in place of the losses of the rows", FOR_OPERATOR, NULL,
     NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

/* ---- What is told ---- */

typedef struct loss_report {
  const smx_op *facts; /* cross_entropy */
  smx_dtype type;
  double reduced, entropy;
  int64_t rows, counted, right, with_nan, classes; /* counted: with a target that is not left out */
  const char *reduction;
  bool targets;
} loss_report;

static int32_t find_port(const smx_port *ports, int32_t count, const char *name) {
  for (int32_t i = 0; i < count; i++)
    if (strcmp(ports[i].name, name) == 0) return i;
  return -1;
}

static int32_t find_output(const smx_op *op, const char *name) {
  return find_port(op->outputs, op->output_count, name);
}

static double number_at(const smx_tensor *t, int64_t i) {
  const dtype *d = dtype_of(t->dtype);
  return d->get((const unsigned char *)t->data + i * (int64_t)d->bytes);
}

static void add_rows(loss_report *l, int64_t rows, const smx_tensor *entropy, const smx_tensor *rank) {
  for (int64_t r = 0; r < rows; r++) {
    double h = number_at(entropy, r), place = number_at(rank, r);
    l->rows++;
    if (l->targets && place < 0) continue; /* left out */
    l->counted++;
    l->right += place == 0;
    if (isnan(h)) l->with_nan++;
    else l->entropy += h;
  }
}

/* The same from logits and targets, for losses that do not tell. Without targets class 0 is
 * everybody's; the entropy does not depend on it. */
static int examine_rows(loss_report *l, const run_block *b, int64_t rows, const smx_tensor *target) {
  int64_t zero = 0;
  const smx_tensor nobody = {.data = &zero, .device = {1, 0}, .dtype = SMX_I64};
  const smx_tensor *in[SMX_MAX_PORTS] = {b->in[0], target ? target : &nobody}, *out[SMX_MAX_PORTS] = {NULL};
  smx_tensor loss = {.device = {1, 0}, .dtype = SMX_F64, .ndim = b->in[0]->ndim - 1}, entropy, rank;
  int64_t shape[SMX_MAX_DIMS];
  smx_params params;
  for (int32_t i = 0, k = 0; i < b->in[0]->ndim; i++)
    if (i != b->axis) shape[k++] = b->in[0]->shape[i];
  loss.shape = shape;
  entropy = rank = loss;
  rank.dtype = SMX_I64;
  double *values = malloc((size_t)rows * 3 * sizeof *values + 1);
  if (!values) return fault_memory((size_t)rows * 3 * sizeof *values);
  loss.data = values;
  entropy.data = values + rows;
  rank.data = values + 2 * rows;
  out[0] = &loss;
  out[find_output(l->facts, "entropy")] = &entropy;
  out[find_output(l->facts, "rank")] = &rank;
  smx_params_init(l->facts, &params);
  params.axis = b->axis;
  for (int32_t i = 0; i < b->op->param_count; i++)
    if (strcmp(b->op->params[i].name, "ignore_index") == 0)
      smx_params_set(l->facts, &params, "ignore_index", b->params->value[i]);
  smx_status status = ranks_forward(l->facts, b->context, &params, in, out, b->whole->dim[b->axis], b->first);
  if (status == SMX_OK) add_rows(l, rows, &entropy, &rank);
  free(values);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s", smx_last_error());
}

static int see_block(void *user, const run_block *b) {
  loss_report *l = user;
  const smx_op *op = b->op;
  int32_t entropy = find_output(op, "entropy"), rank = find_output(op, "rank"),
          target = find_port(op->inputs, op->input_count, "target");
  int64_t rows = 1;
  l->classes = b->whole->dim[b->axis];
  l->type = b->out[find_output(op, "reduced")]->dtype;
  l->reduced = number_at(b->out[find_output(op, "reduced")], 0);
  l->targets = target >= 0 && b->in[target];
  for (int32_t i = 0; i < op->param_count; i++)
    if (strcmp(op->params[i].name, "reduction") == 0)
      l->reduction = op->params[i].choices[(int)b->params->value[i]];
  for (int32_t i = 0; i < b->in[0]->ndim; i++)
    if (i != b->axis) rows *= b->in[0]->shape[i];
  if (entropy < 0 || rank < 0) return examine_rows(l, b, rows, l->targets ? b->in[target] : NULL);
  add_rows(l, rows, b->out[entropy], b->out[rank]);
  return EXIT_OK;
}

static void print_line(const char *name, int digits, double value, const char *what) {
  char number[64];
  snprintf(number, sizeof number, "%.*g", digits, value);
  printf("%-32s %-18s %s\n", name, number, what);
}

static void print_report(const loss_report *l, const char *name) {
  char what[128], nan[64] = "";
  const char *how = strcmp(l->reduction, "none") == 0 ? "sum" : l->reduction;
  int used = snprintf(what, sizeof what, "%s of %" PRId64, how, l->counted);
  if (l->counted != l->rows)
    used += snprintf(what + used, sizeof what - (size_t)used, " of %" PRId64, l->rows);
  snprintf(what + used, sizeof what - (size_t)used, " rows of %" PRId64 " classes", l->classes);
  print_line(name, l->type.bits == 64 ? 15 : 9, l->reduced, what);
  snprintf(what, sizeof what, "%" PRId64 " of %" PRId64, l->right, l->counted);
  if (l->targets && l->counted) print_line("accuracy", 6, (double)l->right / (double)l->counted, what);
  int64_t good = l->counted - l->with_nan;
  if (l->with_nan) snprintf(nan, sizeof nan, "; %" PRId64 " with NaN", l->with_nan);
  snprintf(what, sizeof what, "nats of at most %.6g%s", log((double)l->classes), nan);
  if (good) print_line("mean entropy", 6, l->entropy / (double)good, what);
}

/* ---- The run ---- */

bool loss_takes(const smx_op *op) { return find_output(op, "reduced") >= 0; }

/* The classes may be given by place, as --targets, as the input `target`, or as an input in its
 * place. */
static int check_targets(const smx_op *op, const options *o) {
  const smx_port *in = op->inputs;
  char others[128] = "";
  int32_t target = find_port(in, op->input_count, "target");
  if (target < 0 || o->file_count != 2 || options_own(o, "targets") || options_own(o, "target"))
    return EXIT_OK;
  for (int32_t i = 0; in[target].flags & SMX_PORT_EITHER && i < op->input_count; i++) {
    if (i == target || !(in[i].flags & SMX_PORT_EITHER)) continue;
    if (options_own(o, in[i].name)) return EXIT_OK;
    size_t used = strlen(others);
    snprintf(others + used, sizeof others - used, ", or --%s FILE", in[i].name);
  }
  if (in[target].flags & SMX_PORT_OPTIONAL && !*others) return EXIT_OK;
  return fault(EXIT_USAGE, "loss %s: the targets are missing: --targets FILE%s", op->name, others);
}

/* A loss that is reduced to one value. */
static const smx_op *find_loss(const options *o) {
  if (!o->file_count) {
    fault(EXIT_USAGE, "loss: no loss; softmax list shows them");
    return NULL;
  }
  const smx_op *op = help_find(o->files[0]);
  if (!op || loss_takes(op)) return op;
  fault(EXIT_USAGE,
        "loss %s: not a loss that is reduced to one value; softmax list shows those of family loss",
        op->name);
  return NULL;
}

/* The options as a run takes them: a mean is the default, --targets is the input 'target', and
 * --gradient is ours. */
static int translate(const options *from, options *to, named_value *named) {
  *to = *from;
  to->named = named;
  to->named_count = 0;
  named[to->named_count++] = (named_value){"reduction", "mean"};
  for (int i = 0; i < from->named_count; i++) {
    named_value v = from->named[i];
    if (strcmp(v.name, "gradient") == 0) continue;
    if (strcmp(v.name, "targets") == 0) v.name = "target";
    named[to->named_count++] = v;
  }
  if (from->out || !options_own(from, "gradient")) return EXIT_OK;
  return fault(EXIT_USAGE, "--gradient: -o OUT is missing");
}

int work_loss(const options *o) {
  loss_report report = {.facts = smx_op_find("cross_entropy")};
  const smx_op *op = find_loss(o);
  if (!op) return EXIT_USAGE;
  options own;
  named_value *named = calloc((size_t)o->named_count + 1, sizeof *named);
  if (!named) return fault_memory(((size_t)o->named_count + 1) * sizeof *named);
  bool gradient = options_own(o, "gradient");
  uint32_t all = (1U << op->output_count) - 1, dx = 0, reduced = 1U << find_output(op, "reduced");
  for (int32_t i = 0; i < op->output_count; i++)
    if (op->outputs[i].flags & SMX_PORT_DX) dx |= 1U << i;
  run_request request = {.op = op, .o = &own, .first = 1, .see = see_block, .user = &report};
  request.wanted = gradient ? all : all & ~dx;
  request.shown = gradient ? dx : all & ~dx & ~reduced;
  int code = check_targets(op, o);
  if (!code) code = translate(o, &own, named);
  if (!code && gradient && !dx) code = fault(EXIT_USAGE, "--gradient: %s has no output for it", op->name);
  if (!code) code = run_operator(&request);
  if (!code && !(o->out && strcmp(o->out, "-") == 0)) print_report(&report, op->name);
  free(named);
  return code;
}
