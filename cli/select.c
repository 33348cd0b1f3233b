/* select.c - the verb `select`: a score of each row, then budget_select of all of them; or
 * badge_select, of rows and their features. */
#include "select.h"

#include "bind.h"
#include "fault.h"
#include "parse.h"
#include "score.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const setting select_settings[] = {
    {"by", 0, "SCORE", "how much a row is worth: a score, entropy by default; or badge", FOR_OPERATOR, NULL,
     NULL},
    {"least", 0, NULL, "the rows with the least of it first, as of margin or msp", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

enum { LINES = 20 };

typedef struct selection {
  const options *o;
  const smx_op *op;
  smx_params params;
  double *score, *cost, spent;
  double *features, *logits; /* of --by badge, in place of score */
  int64_t rows, features_shape[2], logits_shape[2], chosen, *is_chosen, *order;
} selection;

static bool by_badge(const options *o) {
  const char *by = options_own(o, "by");
  return by && !strcmp(by, "badge");
}

/* What is not select's own is the operator's. */
static int set_params(selection *s) {
  int code = EXIT_OK;
  smx_params_init(s->op, &s->params);
  for (int i = 0; !code && i < s->o->named_count; i++) {
    const named_value *v = s->o->named + i;
    if (!strcmp(v->name, "by") || !strcmp(v->name, "least") || !strcmp(v->name, "cost")) continue;
    if (by_badge(s->o) && !strcmp(v->name, "features")) continue;
    if (find_param(s->op, v->name) < 0)
      code = fault(EXIT_USAGE, "--%s: select has no such option; softmax help select tells more", v->name);
    else if (smx_params_parse(s->op, &s->params, v->name, v->text) != SMX_OK)
      code = fault(EXIT_USAGE, "--%s %s: %s", v->name, v->text, smx_last_error());
  }
  return code;
}

static int read_scores(selection *s) {
  const char *by = options_own(s->o, "by");
  int code = score_rows(s->o, by ? by : "entropy", s->o->files[0], &s->score, &s->rows);
  for (int64_t r = 0; !code && options_own(s->o, "least") && r < s->rows; r++) s->score[r] = -s->score[r];
  return code;
}

/* The numbers of a file, and its shape, of so many dimensions if ndim says how many. */
static int read_numbers(const options *o, const smx_port *port, const char *path, int ndim, int64_t *shape,
                        double **to) {
  input in = {.path = path};
  int64_t count = 0;
  int code = input_read(&in, port, o, NULL);
  if (!code && ndim && in.array.ndim != ndim)
    code = fault(EXIT_REFUSED, "%s: ndim is %d, not %d", path, (int)in.array.ndim, ndim);
  if (!code && !count_elements(in.array.ndim, in.array.shape, &count)) code = fault_memory(SIZE_MAX);
  if (!code && !(*to = malloc((size_t)count * sizeof **to + 1))) code = fault_memory((size_t)count);
  for (int64_t r = 0; !code && r < count; r++) (*to)[r] = io_element(&in.array, r);
  if (!code && ndim) memcpy(shape, in.array.shape, (size_t)ndim * sizeof *shape);
  if (!code && !ndim) *shape = count;
  input_free(&in);
  return code;
}

static int read_costs(selection *s) {
  static const smx_port port = {"cost", SMX_SHAPE_FULL, 0, "what the label of each row costs"};
  const char *path = options_own(s->o, "cost");
  int64_t count = 0;
  if (!path) return EXIT_OK;
  int code = read_numbers(s->o, &port, path, 0, &count, &s->cost);
  if (!code && count != s->rows)
    code = fault(EXIT_REFUSED, "%s: it has not a cost for each row of %s", path, s->o->files[0]);
  return code;
}

static int read_gradients(selection *s) {
  static const smx_port features = {"features", SMX_SHAPE_FULL, 0, "of each row, before the last layer"},
                        logits = {"logits", SMX_SHAPE_FULL, 0, "of each row"};
  static const char *const alien[] = {"cost", "least"};
  const char *path = options_own(s->o, "features");
  for (size_t i = 0; i < sizeof alien / sizeof *alien; i++)
    if (options_own(s->o, alien[i])) return fault(EXIT_USAGE, "--%s: not with --by badge", alien[i]);
  if (!path) return fault(EXIT_USAGE, "--by badge: needs --features FILE, of each row before the last layer");
  int code = read_numbers(s->o, &logits, s->o->files[0], 2, s->logits_shape, &s->logits);
  if (!code) code = read_numbers(s->o, &features, path, 2, s->features_shape, &s->features);
  s->rows = s->logits_shape[0];
  if (!code && s->features_shape[0] != s->rows)
    code = fault(EXIT_REFUSED, "%s: of %" PRId64 " rows, not of %" PRId64 ", as %s is", path,
                 s->features_shape[0], s->rows, s->o->files[0]);
  return code;
}

static int choose(selection *s) {
  int64_t shape[] = {s->rows};
  const size_t bytes = (size_t)s->rows * sizeof *s->order + 1;
  s->is_chosen = malloc(bytes), s->order = malloc(bytes);
  if (!s->is_chosen || !s->order) return fault_memory(bytes);
  const smx_tensor score = {s->score, {1, 0}, 1, SMX_F64, shape, NULL, 0},
                   cost = {s->cost, {1, 0}, 1, SMX_F64, shape, NULL, 0},
                   features = {s->features, {1, 0}, 2, SMX_F64, s->features_shape, NULL, 0},
                   logits = {s->logits, {1, 0}, 2, SMX_F64, s->logits_shape, NULL, 0},
                   is_chosen = {s->is_chosen, {1, 0}, 1, SMX_I64, shape, NULL, 0},
                   order = {s->order, {1, 0}, 1, SMX_I64, shape, NULL, 0},
                   spent = {&s->spent, {1, 0}, 0, SMX_F64, NULL, NULL, 0};
  const smx_tensor *const by_score[] = {&score, s->cost ? &cost : NULL},
                          *const by_gradient[] = {&features, &logits},
                          *const out[] = {&is_chosen, &order, &spent};
  if (smx_forward(s->op, NULL, &s->params, 2, s->features ? by_gradient : by_score, s->op->output_count,
                  out) != SMX_OK)
    return fault(EXIT_REFUSED, "select: %s", smx_last_error());
  while (s->chosen < s->rows && s->order[s->chosen] >= 0) s->chosen++;
  return EXIT_OK;
}

static int write_rows(const selection *s) {
  result_file file = {.open = false};
  const io_spec spec = {
      .name = "rows", .type = dtype_named("i64"), .ndim = 1, .shape = {s->chosen}, .column = true};
  int code = write_begin(&file, s->o, 1, &spec);
  if (!code) code = write_put(&file, 0, s->order, (size_t)s->chosen * sizeof *s->order);
  if (!code) code = write_end(&file);
  write_drop(&file);
  return code;
}

static void print_rows(const selection *s) {
  printf("%12s%s%s\n", "row", s->score ? "         score" : "", s->cost ? "          cost" : "");
  for (int64_t i = 0; i < s->chosen && i < LINES; i++) {
    const int64_t row = s->order[i];
    printf("%12" PRId64, row);
    if (s->score) printf(" %13.6g", options_own(s->o, "least") ? -s->score[row] : s->score[row]);
    if (s->cost) printf(" %13.6g", s->cost[row]);
    putchar('\n');
  }
  if (s->chosen > LINES) printf("%12s %" PRId64 " more\n", "...", s->chosen - LINES);
  printf("%" PRId64 " of %" PRId64 " rows", s->chosen, s->rows);
  if (s->cost) printf(", which cost %.6g", s->spent);
  putchar('\n');
}

int work_select(const options *o) {
  if (!o->file_count) return fault(EXIT_USAGE, "select: no input file; softmax help select tells more");
  if (o->file_count > 1) return fault(EXIT_USAGE, "%s: one input too many: select takes 1", o->files[1]);
  selection s = {.o = o, .op = smx_op_find(by_badge(o) ? "badge_select" : SELECT_OPERATOR)};
  int code = set_params(&s);
  if (!code) code = by_badge(o) ? read_gradients(&s) : read_scores(&s);
  if (!code && !by_badge(o)) code = read_costs(&s);
  if (!code) code = choose(&s);
  if (!code && o->out) code = write_rows(&s);
  if (!code && !o->out) print_rows(&s);
  free(s.score), free(s.cost), free(s.features), free(s.logits), free(s.is_chosen), free(s.order);
  return code;
}
