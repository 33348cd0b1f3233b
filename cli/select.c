/* select.c - the verb `select`: a score of each row, then budget_select of all of them. */
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
    {"by", 0, "SCORE", "how much a row is worth: a score, entropy by default", FOR_OPERATOR, NULL, NULL},
    {"least", 0, NULL, "the rows with the least of it first, as of margin or msp", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

enum { LINES = 20 };

typedef struct selection {
  const options *o;
  const smx_op *op;
  smx_params params;
  double *score, *cost, spent;
  int64_t rows, chosen, *is_chosen, *order;
} selection;

/* What is not select's own is the operator's. */
static int set_params(selection *s) {
  int code = EXIT_OK;
  smx_params_init(s->op, &s->params);
  for (int i = 0; !code && i < s->o->named_count; i++) {
    const named_value *v = s->o->named + i;
    if (!strcmp(v->name, "by") || !strcmp(v->name, "least") || !strcmp(v->name, "cost")) continue;
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

static int read_costs(selection *s) {
  static const smx_port port = {"cost", SMX_SHAPE_FULL, 0, "what the label of each row costs"};
  input in = {.path = options_own(s->o, "cost")};
  int64_t count;
  if (!in.path) return EXIT_OK;
  int code = input_read(&in, &port, s->o, NULL);
  if (!code && (!count_elements(in.array.ndim, in.array.shape, &count) || count != s->rows))
    code = fault(EXIT_REFUSED, "%s: it has not a cost for each row of %s", in.path, s->o->files[0]);
  if (!code && !(s->cost = malloc((size_t)s->rows * sizeof *s->cost + 1)))
    code = fault_memory((size_t)s->rows);
  for (int64_t r = 0; !code && r < s->rows; r++) s->cost[r] = io_element(&in.array, r);
  input_free(&in);
  return code;
}

static int choose(selection *s) {
  int64_t shape[] = {s->rows};
  const size_t bytes = (size_t)s->rows * sizeof *s->order + 1;
  s->is_chosen = malloc(bytes), s->order = malloc(bytes);
  if (!s->is_chosen || !s->order) return fault_memory(bytes);
  const smx_tensor score = {s->score, {1, 0}, 1, SMX_F64, shape, NULL, 0},
                   cost = {s->cost, {1, 0}, 1, SMX_F64, shape, NULL, 0},
                   is_chosen = {s->is_chosen, {1, 0}, 1, SMX_I64, shape, NULL, 0},
                   order = {s->order, {1, 0}, 1, SMX_I64, shape, NULL, 0},
                   spent = {&s->spent, {1, 0}, 0, SMX_F64, NULL, NULL, 0};
  const smx_tensor *const in[] = {&score, s->cost ? &cost : NULL}, *const out[] = {&is_chosen, &order,
                                                                                   &spent};
  if (smx_forward(s->op, NULL, &s->params, 2, in, 3, out) != SMX_OK)
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
  printf("%12s %13s%s\n", "row", "score", s->cost ? "          cost" : "");
  for (int64_t i = 0; i < s->chosen && i < LINES; i++) {
    const int64_t row = s->order[i];
    const double score = options_own(s->o, "least") ? -s->score[row] : s->score[row];
    printf("%12" PRId64 " %13.6g", row, score);
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
  selection s = {.o = o, .op = smx_op_find(SELECT_OPERATOR)};
  int code = set_params(&s);
  if (!code) code = read_scores(&s);
  if (!code) code = read_costs(&s);
  if (!code) code = choose(&s);
  if (!code && o->out) code = write_rows(&s);
  if (!code && !o->out) print_rows(&s);
  free(s.score), free(s.cost), free(s.is_chosen), free(s.order);
  return code;
}
