/* judge.c - numbers of each row: scores (smx_scores), and loss, class and rank (cross_entropy), a
 * read of the logits each. Rows that do not count are taken out at the end. */
#include "judge.h"

#include "blocks.h"
#include "fault.h"
#include "targets.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const judge_scores[JUDGE_SCORES] = {"msp", "energy", "max_logit", "entropy", "brier_score"};

enum { LOSS = 0, CLASS = 1, RANK = 2, LEFT_OUT = -1 };
#define MASS_TOLERANCE 1e-3 /* how far from 1 probabilities may sum: those of half precision do */

typedef struct judging {
  judged *j;
  const judge_request *r;
  input x, target, weight;
  blocks blocks;
  int64_t *classes, row; /* classes: of all rows; row: that the block begins with */
  double *logs, *given;  /* of a block of probabilities: their logarithms, the largest of each row */
  smx_params scores[JUDGE_SCORES], loss;
  const smx_op *ops[JUDGE_SCORES], *cross_entropy;
} judging;

/* ---- Operators ---- */

static int begin_operators(judging *g) {
  g->cross_entropy = smx_op_find("cross_entropy");
  smx_params_init(g->cross_entropy, &g->loss);
  smx_params_set(g->cross_entropy, &g->loss, "ignore_index", LEFT_OUT);
  smx_status status = smx_params_set(g->cross_entropy, &g->loss, "temperature", g->r->temperature);
  for (int k = 0; k < JUDGE_SCORES; k++) {
    g->ops[k] = smx_op_find(judge_scores[k]);
    smx_params_init(g->ops[k], &g->scores[k]);
    if (find_param(g->ops[k], "temperature") >= 0)
      smx_params_set(g->ops[k], &g->scores[k], "temperature", g->r->temperature);
  }
  return status == SMX_OK ? EXIT_OK : fault(EXIT_USAGE, "--temperature: %s", smx_last_error());
}

static smx_tensor tensor_of(void *data, smx_dtype type, int32_t ndim, int64_t *shape) {
  return (smx_tensor){data, {1, 0}, ndim, type, shape, NULL, 0};
}

static int score_rows(const judging *g, const judge_block *b) {
  const int32_t count = g->r->targets ? JUDGE_SCORES : JUDGE_BRIER;
  int64_t shape[] = {b->rows, count}, strides[] = {1, g->j->all};
  smx_tensor out = tensor_of(g->j->score[0] + b->first, SMX_F64, 2, shape);
  smx_tensor target = tensor_of((void *)(uintptr_t)b->target, SMX_I64, 1, shape);
  out.strides = strides;
  const smx_status status =
      smx_scores(g->r->context, count, g->ops, g->scores, &b->logits, g->r->targets ? &target : NULL, &out);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s: %s", g->x.path, smx_last_error());
}

static int lose_rows(const judging *g, const judge_block *b) {
  static const char *const names[] = {"loss", "class", "rank"};
  judged *j = g->j;
  void *const data[] = {j->loss + b->first, j->predicted + b->first, j->rank + b->first};
  int64_t shape[] = {b->rows};
  smx_tensor target = tensor_of((void *)(uintptr_t)b->target, SMX_I64, 1, shape), results[3];
  const smx_tensor *in[] = {&b->logits, &target}, *out[SMX_MAX_PORTS] = {NULL};
  const smx_op *op = g->cross_entropy;
  for (int k = 0; k < 3; k++) {
    results[k] = tensor_of(data[k], k == LOSS ? SMX_F64 : SMX_I64, 1, shape);
    out[find_output(op, names[k])] = &results[k];
  }
  const smx_status status = smx_forward(op, g->r->context, &g->loss, 2, in, op->output_count, out);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s: %s", g->x.path, smx_last_error());
}

/* ---- Input ---- */

static int read_logits(judging *g) {
  static const smx_port port = {"logits", SMX_SHAPE_FULL, 0, "logits"};
  judged *j = g->j;
  int32_t place;
  g->x.path = j->path = g->r->path;
  int code = input_read(&g->x, &port, g->r->o, NULL);
  if (!code) code = blocks_axis_last(&g->x, g->r->o->axis, &place);
  if (code) return code;
  const io_array *a = &g->x.array;
  const bool wide = g->r->probabilities || g->x.want->type.bits == 64;
  j->classes = a->shape[a->ndim - 1], j->type = a->type->name;
  j->all = 1;
  for (int32_t i = 0; i + 1 < a->ndim; i++) j->all *= a->shape[i];
  if (j->all == 0) return fault(EXIT_REFUSED, "%s: no rows", j->path);
  if (j->classes < 2)
    return fault(EXIT_REFUSED, "%s: %" PRId64 " class%s: there is no other to take a row for", j->path,
                 j->classes, j->classes == 1 ? "" : "es");
  g->x.want = dtype_named(wide ? "f64" : "f32");
  blocks_begin(&g->blocks, a, g->x.want->bytes, a->ndim - 1, g->r->bytes);
  return EXIT_OK;
}

static int check_targets(const judging *g) {
  const judged *j = g->j;
  int64_t counted = 0;
  for (int64_t i = 0; i < j->all; i++) {
    if (g->classes[i] == g->r->ignore) {
      g->classes[i] = LEFT_OUT;
      continue;
    }
    if (g->classes[i] < 0 || g->classes[i] >= j->classes)
      return fault(EXIT_REFUSED,
                   "%s: row %" PRId64 ": target %" PRId64 ", not one of the %" PRId64 " classes of %s",
                   g->target.path, i, g->classes[i], j->classes, j->path);
    counted++;
  }
  return counted ? EXIT_OK
                 : fault(EXIT_REFUSED, "%s: every row has the target %" PRId64 ", which leaves it out",
                         g->target.path, g->r->ignore);
}

static int read_targets(judging *g) {
  g->target.path = g->r->targets;
  if (!g->target.path) return EXIT_OK;
  int code = targets_read(&g->target, g->r->o, &g->x, &g->classes);
  return code ? code : check_targets(g);
}

/* Rows of weight 0 are left out. */
static int read_weights(judging *g) {
  judged *j = g->j;
  if (!g->r->weights) return EXIT_OK;
  g->weight.path = g->r->weights;
  int code = weights_read(&g->weight, g->r->o, &g->x, &j->weight);
  double sum = 0;
  for (int64_t i = 0; !code && i < j->all; i++) {
    if (j->weight[i] == 0) g->classes[i] = LEFT_OUT;
    sum += g->classes[i] == LEFT_OUT ? 0 : j->weight[i];
  }
  return code || sum > 0 ? code : fault(EXIT_REFUSED, "%s: no row that counts has a weight", g->r->weights);
}

/* A row that is left out is not looked at. */
static int take_row(judging *g, const judge_block *b, int64_t row) {
  const int64_t n = g->j->classes;
  const double *p = (const double *)b->logits.data + row * n;
  double sum = 0, most = 0;
  if (b->target && b->target[row] == LEFT_OUT) {
    for (int64_t i = 0; i < n; i++) g->logs[row * n + i] = 0;
    g->given[row] = 0;
    return EXIT_OK;
  }
  for (int64_t i = 0; i < n; i++) {
    if (!(p[i] >= 0))
      return fault(EXIT_REFUSED, "%s: row %" PRId64 ": %g is no probability", g->j->path, b->first + row,
                   p[i]);
    sum += p[i], most = fmax(most, p[i]), g->logs[row * n + i] = log(p[i]);
  }
  g->given[row] = fmin(most, 1);
  return fabs(sum - 1) <= MASS_TOLERANCE
             ? EXIT_OK
             : fault(EXIT_REFUSED, "%s: row %" PRId64 ": the probabilities sum to %.9g, not to 1", g->j->path,
                     b->first + row, sum);
}

/* The logarithms of a block of probabilities, whose softmax has the same proportions. The largest
 * are kept as they are: one that lies on the edge of a bin stays there. */
static int take_logs(judging *g, judge_block *b) {
  const size_t bytes = (size_t)(b->rows * (g->j->classes + 1)) * sizeof *g->logs;
  int code = EXIT_OK;
  if (!g->logs) g->logs = malloc(bytes); /* the first block is the largest */
  if (!g->logs) return fault_memory(bytes);
  g->given = g->logs + b->rows * g->j->classes;
  for (int64_t r = 0; !code && r < b->rows; r++) code = take_row(g, b, r);
  if (g->r->temperature == 1) b->given = g->given, b->p = b->logits.data;
  b->logits.data = g->logs;
  return code;
}

/* ---- Rows ---- */

static int reserve(judged *j) {
  const size_t rows = (size_t)j->all, bytes = rows * (JUDGE_SCORES + 1) * sizeof *j->room,
               whole = rows * 4 * sizeof *j->whole;
  if (rows > SIZE_MAX / 2 / ((JUDGE_SCORES + 1) * sizeof *j->room)) return fault_memory(SIZE_MAX);
  j->room = malloc(bytes), j->whole = malloc(whole);
  if (!j->room || !j->whole) return fault_memory(bytes + whole);
  for (size_t k = 0; k < JUDGE_SCORES; k++) j->score[k] = j->room + k * rows;
  j->loss = j->room + JUDGE_SCORES * rows;
  j->number = j->whole, j->target = j->number + rows;
  j->predicted = j->target + rows, j->rank = j->predicted + rows;
  return EXIT_OK;
}

static int check_rows(const judging *g, const judge_block *b) {
  for (int64_t i = b->first; i < b->first + b->rows; i++)
    if (isnan(g->j->score[JUDGE_MSP][i]) && !(g->classes && g->classes[i] == LEFT_OUT))
      return fault(EXIT_REFUSED, "%s: row %" PRId64 ": NaN, +inf or no class that is not -inf", g->j->path,
                   i);
  return EXIT_OK;
}

static int judge_rows(judging *g) {
  const int64_t rows = blocks_row_count(&g->blocks);
  int64_t shape[] = {rows, g->j->classes};
  view x;
  int code = blocks_rows(&g->blocks, &g->x, &x);
  if (code) return code;
  judge_block b = {.first = g->row,
                   .rows = rows,
                   .target = g->classes ? g->classes + g->row : NULL,
                   .rank = g->j->rank + g->row};
  b.logits = tensor_of(x.tensor.data, g->x.want->type, 2, shape);
  if (g->r->probabilities) code = take_logs(g, &b);
  if (!code) code = score_rows(g, &b);
  if (!code && b.given) memcpy(g->j->score[JUDGE_MSP] + b.first, b.given, (size_t)rows * sizeof *b.given);
  if (!code) code = check_rows(g, &b);
  if (!code && g->classes) code = lose_rows(g, &b);
  if (!code && g->classes)
    code = classwise_add(&g->j->of_class, g->r->context, &b.logits, b.p, b.target,
                         g->j->weight ? g->j->weight + b.first : NULL, rows, g->r->temperature);
  if (!code && g->r->see) code = g->r->see(g->r->user, &b);
  g->row += rows;
  return code;
}

/* Rows that count move to the front. */
static void keep_counted(judging *g) {
  judged *j = g->j;
  for (int64_t i = 0; i < j->all; i++) {
    if (g->classes && g->classes[i] == LEFT_OUT) continue;
    const int64_t to = j->rows++;
    j->number[to] = i;
    if (j->weight) j->weight[to] = j->weight[i];
    for (int k = 0; k < (g->classes ? JUDGE_SCORES : JUDGE_BRIER); k++) j->score[k][to] = j->score[k][i];
    if (!g->classes) continue;
    j->loss[to] = j->loss[i], j->target[to] = g->classes[i];
    j->predicted[to] = j->predicted[i], j->rank[to] = j->rank[i];
  }
}

int judge(judged *j, const judge_request *r) {
  judging g = {.j = j, .r = r};
  memset(j, 0, sizeof *j);
  int code = begin_operators(&g);
  if (!code) code = read_logits(&g);
  if (!code) code = read_targets(&g);
  if (!code) code = read_weights(&g);
  if (!code) code = reserve(j);
  if (!code && g.classes) code = classwise_begin(&j->of_class, j->classes, r->bins);
  if (!code) do
      code = judge_rows(&g);
    while (!code && blocks_next(&g.blocks));
  if (!code) keep_counted(&g);
  input_free(&g.x), input_free(&g.target), input_free(&g.weight);
  free(g.classes), free(g.logs);
  return code;
}

void judge_free(judged *j) {
  free(j->room), free(j->whole), free(j->weight), classwise_free(&j->of_class);
  j->room = NULL, j->whole = NULL, j->weight = NULL;
}
