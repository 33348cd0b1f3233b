/* score/functions_rows.c - scores of rows: the sums of each, once, for any of them. */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/check.h"
#include "functions.h"

enum { LOGITS, TARGET }; /* inputs */
enum { LANES_MOST = 16 };

typedef struct row_scores {
  const tensor_call *c;
  const score_kernels *kernels;
  score_row row;
  const score_item *items;
  int64_t rows, classes;
  int count;
  smx_scratch scratch;
} row_scores;

static const void *row_at(const row_scores *x, int64_t row) {
  return x->c->in.view[LOGITS].data + row * x->classes * (x->c->is_f64 ? 8 : 4);
}

static int64_t target_of(const row_scores *x, int64_t row) {
  return x->c->in.given[TARGET] ? ((const int64_t *)(const void *)x->c->in.view[TARGET].data)[row] : -1;
}
static double logit_at(const row_scores *x, int64_t row, int64_t i) {
  double z = __builtin_nan("");
  if (i >= 0) tensor_load(x->c, x->c->in.view + LOGITS, row * x->classes + i, 1, &z);
  return z;
}

static void row_sums(const row_scores *x, int64_t row, void *work, score_sums *s) {
  x->kernels->sums(&x->row, row_at(x, row), x->classes, work, s);
  const bool finite = !s->nan && s->valid > 1 && s->max < __builtin_inf();
  if (finite && s->variance != s->variance) s->variance = __builtin_inf(); /* a distance overflowed */
}

static void forward_task(void *arg, int64_t task) {
  row_scores *x = arg;
  const int64_t first = task * score_rows_a_task(x->classes), end = score_task_end(task, x->rows, x->classes);
  void *work = smx_scratch_take(&x->scratch);
  double value[SCORE_ROWS];
  score_sums s;
  for (int64_t row = first; row < end; row++) {
    const double z = logit_at(x, row, target_of(x, row));
    row_sums(x, row, work, &s);
    for (int i = 0; i < x->count; i++) value[i] = score_value(x->kernels, &x->row, x->items + i, &s, z);
    tensor_store(x->c, x->c->out.view, row * x->count, x->count, value);
  }
  smx_scratch_give(&x->scratch, work);
}

static void gradient_row(const row_scores *x, int64_t row, void *work) {
  const tensor_call *c = x->c;
  const int64_t target = target_of(x, row), n = x->classes;
  double g = tensor_upstream(c, 0, row);
  score_sums s;
  score_slope slope;
  score_spikes spikes;
  row_sums(x, row, work, &s);
  if (s.nan || s.valid == 0) return score_fill(c, row, n, s.nan ? __builtin_nan("") : 0);
  if (c->op->input_count > 1 && target < 0) g = 0;
  const double z = g == 0 ? s.max : logit_at(x, row, target);
  score_derivative(x->kernels, &x->row, x->items, &s, z, g, &slope, &spikes);
  x->kernels->gradient(&x->row, row_at(x, row), n, &s, &slope,
                       c->din.view[LOGITS].data + row * n * (c->is_f64 ? 8 : 4));
  score_add(c, row, n, s.index, spikes.largest), score_add(c, row, n, s.next, spikes.second);
  score_add(c, row, n, target, spikes.target);
}
static void gradient_task(void *arg, int64_t task) {
  row_scores *x = arg;
  const int64_t first = task * score_rows_a_task(x->classes), end = score_task_end(task, x->rows, x->classes);
  void *work = smx_scratch_take(&x->scratch);
  for (int64_t row = first; row < end; row++) gradient_row(x, row, work);
  smx_scratch_give(&x->scratch, work);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, const score_item *items, int count, const score_row *row,
                      bool backward) {
  row_scores x = {.c = c, .items = items, .count = count, .row = *row, .rows = c->dims.lead_count};
  x.kernels = c->is_f64 ? smx_isa_current()->f64.score : smx_isa_current()->f32.score;
  x.classes = tensor_dim(c, "c");
  x.row.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  for (int i = 0; i < count; i++) x.row.sums |= score_needs(items[i].which);
  if (backward) x.row.sums |= SCORE_PLACES;
  const smx_status status = tensor_check_empty(c, x.rows, x.classes, "row", "classes");
  if (status != SMX_OK || (backward && !c->din.given[LOGITS])) return status;
  const int64_t tasks = score_tasks(x.rows, x.classes);
  const int64_t room =
      x.classes < SCORE_ROOM ? (x.classes + LANES_MOST - 1) / LANES_MOST * LANES_MOST : SCORE_ROOM;
  if (!smx_scratch_open(&x.scratch, c->ctx, 0, (size_t)(room * (c->is_f64 ? 8 : 4)), tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  smx_parallel(c->ctx, tasks, backward ? gradient_task : forward_task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

/* A parameter that not every operator has. */
static double param_of(const smx_op *op, const double *param, const char *name, double otherwise) {
  for (int32_t i = 0; i < op->param_count; i++)
    if (!strcmp(op->params[i].name, name)) return param[i];
  return otherwise;
}
static score_item item_of(const smx_op *op, const double *param) {
  return (score_item){(int)(op - score_table), param_of(op, param, "normalise", 0) != 0};
}
static score_row row_of(const smx_op *op, const double *param) {
  return (score_row){.temperature = param_of(op, param, "temperature", 1),
                     .order = param_of(op, param, "order", 2)};
}

static smx_status run_one(const tensor_call *c, bool backward) {
  const score_item item = item_of(c->op, c->param);
  const score_row row = row_of(c->op, c->param);
  return run(c, &item, 1, &row, backward);
}
smx_status score_forward(const tensor_call *c) { return run_one(c, false); }
smx_status score_backward(const tensor_call *c) { return run_one(c, true); }

/* ---- several at once ---- */

/* An operator that is not in the table: its output has a column for each score. */
typedef struct several {
  smx_op op;
  score_item items[SCORE_ROWS];
  int count;
  score_row row;
} several;

static smx_status several_sizes(dims *d) {
  dims_set(d, "s", 0, ((const several *)(const void *)d->op)->count);
  return SMX_OK;
}
static smx_status several_forward(const tensor_call *c) {
  const several *s = (const several *)(const void *)c->op;
  return run(c, s->items, s->count, &s->row, false);
}

static smx_status take_score(several *s, int32_t i, const smx_op *op, const smx_params *params, bool target) {
  smx_params taken;
  int family;
  size_t index;
  const smx_status status = smx_take_params("smx_scores", op, params, &family, &index, &taken);
  if (status != SMX_OK) return status;
  if (strcmp(op->family, "score") || op - score_table >= SCORE_ROWS)
    return smx_fail(SMX_ERR_PARAM, "smx_scores: number %d, %s, is no score of a row", (int)i, op->name);
  if (op->input_count > 1 && !target)
    return smx_fail(SMX_ERR_NULL, "smx_scores: target is NULL, which %s needs", op->name);
  const double *param = taken.value;
  const score_row row = row_of(op, param);
  const bool first = i == 0, orders = score_needs((int)(op - score_table)) & SCORE_POWER;
  if (first) s->row = row;
  if (row.temperature != s->row.temperature)
    return smx_fail(SMX_ERR_PARAM, "smx_scores: temperature of %s is %g, but %g before", op->name,
                    row.temperature, s->row.temperature);
  if (orders && s->row.sums & SCORE_POWER && row.order != s->row.order)
    return smx_fail(SMX_ERR_PARAM, "smx_scores: order of %s is %g, but %g before", op->name, row.order,
                    s->row.order);
  if (orders) s->row.order = row.order, s->row.sums |= SCORE_POWER;
  s->items[i] = item_of(op, param);
  return SMX_OK;
}

smx_status scores_forward(smx_context *ctx, int32_t count, const smx_op *const *ops, const smx_params *params,
                          const smx_tensor *logits, const smx_tensor *target, const smx_tensor *out) {
  static const smx_port in_ports[] = {
      {"logits", SMX_SHAPE_DIMS, 0, "", "... c"},
      {"target", SMX_SHAPE_DIMS, SMX_PORT_INT | SMX_PORT_TARGET | SMX_PORT_OPTIONAL, "", "... | < c"}};
  static const smx_port out_ports[] = {{"out", SMX_SHAPE_DIMS, 0, "", "... s"}};
  static const tensor_functions functions = {several_forward, NULL, several_sizes, true};
  several s = {.op = {.name = "smx_scores",
                      .inputs = in_ports,
                      .input_count = 2,
                      .outputs = out_ports,
                      .output_count = 1},
               .count = (int)count};
  smx_status status = SMX_OK;
  if (count < 1 || count > SCORE_ROWS)
    return smx_fail(SMX_ERR_PARAM, "smx_scores: count is %d, not 1..%d", (int)count, SCORE_ROWS);
  if (!ops) return smx_fail(SMX_ERR_NULL, "smx_scores: scores is NULL");
  for (int32_t i = 0; i < count && status == SMX_OK; i++)
    status = take_score(&s, i, ops[i], params ? params + i : NULL, target != NULL);
  if (status != SMX_OK) return status;
  const smx_tensor *in[] = {logits, target}, *outs[] = {out};
  return tensors_forward(&s.op, &functions, ctx, NULL, 2, in, 1, outs);
}
