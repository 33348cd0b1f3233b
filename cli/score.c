/* score.c - the verb `score`: several scores of each row of a file, from one read, by blocks. */
#include "score.h"

#include "bind.h"
#include "blocks.h"
#include "fault.h"
#include "parse.h"
#include "targets.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const setting score_settings[] = {
    {"targets", 0, "FILE", "the class of each row, for true_class_probability", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

enum { MOST = 32, NAME = 64 };

/* What is told of a score: over the rows whose score is a number. */
typedef struct summary {
  double sum, least, most;
  int64_t rows, others;
} summary;

typedef struct scorer {
  const options *o;
  const char *list, *path; /* of scores, of the logits */
  char names[MOST][NAME];
  const smx_op *ops[MOST];
  smx_params params[MOST];
  summary told[MOST];
  int count;
  input x, target;
  blocks blocks;
  smx_context *context;
  result_file file;
  const dtype *type; /* of results */
  int64_t n, row;    /* of a row; that the block starts with */
  int64_t *classes;  /* of the rows of the file, or NULL */
  unsigned char *out;
  double *kept; /* the first score of all rows, where they are wanted; or NULL */
} scorer;

/* ---- Which scores ---- */

static int take_name(scorer *s, const char *name, size_t length) {
  if (s->count == MOST) return fault(EXIT_USAGE, "score: more than %d scores", MOST);
  if (length >= NAME) length = NAME - 1;
  memcpy(s->names[s->count], name, length);
  int code = bind_operator("score", s->names[s->count], &s->ops[s->count], &s->params[s->count]);
  if (!code && strcmp(s->ops[s->count]->family, "score"))
    code =
        fault(EXIT_USAGE, "score %s: it is no score of a row; softmax list shows those of the family score",
              s->names[s->count]);
  s->count++;
  return code;
}

static int read_names(scorer *s) {
  int code = EXIT_OK;
  for (const char *at = s->list, *end; !code; at = end + 1) {
    end = strchr(at, ',');
    code = take_name(s, at, end ? (size_t)(end - at) : strlen(at));
    if (!end) break;
  }
  return code;
}

/* A parameter goes to every score that has it. */
static int set_params(scorer *s) {
  int code = EXIT_OK;
  for (int i = 0; !code && i < s->o->named_count; i++) {
    const named_value *v = s->o->named + i;
    bool taken = !strcmp(v->name, "targets");
    for (int k = 0; !code && k < s->count; k++) {
      if (find_param(s->ops[k], v->name) < 0) continue;
      taken = true;
      if (smx_params_parse(s->ops[k], &s->params[k], v->name, v->text) != SMX_OK)
        code = fault(EXIT_USAGE, "--%s %s: %s", v->name, v->text, smx_last_error());
    }
    if (!code && !taken) code = fault(EXIT_USAGE, "--%s: none of %s has such a parameter", v->name, s->list);
  }
  return code;
}

/* ---- Input ---- */

static int read_logits(scorer *s) {
  static const smx_port port = {"logits", SMX_SHAPE_FULL, 0, "logits"};
  s->x.path = s->path;
  int code = input_read(&s->x, &port, s->o, NULL);
  int32_t place;
  if (!code) code = blocks_axis_last(&s->x, s->o->axis, &place);
  if (code) return code;
  const io_array *a = &s->x.array;
  s->n = a->shape[a->ndim - 1];
  s->type = s->o->type ? s->o->type : dtype_named(s->x.want->type.bits == 64 ? "f64" : "f32");
  s->x.want = dtype_named(s->x.want->type.bits == 64 ? "f64" : "f32");
  blocks_begin(&s->blocks, a, s->x.want->bytes, a->ndim - 1, s->o->block);
  return EXIT_OK;
}

static int read_targets(scorer *s) {
  s->target.path = options_own(s->o, "targets");
  for (int k = 0; !s->target.path && k < s->count; k++)
    if (s->ops[k]->input_count > 1)
      return fault(EXIT_USAGE, "score %s: --targets FILE is missing", s->names[k]);
  return s->target.path ? targets_read(&s->target, s->o, &s->x, &s->classes) : EXIT_OK;
}

/* ---- Output ---- */

static int open_output(scorer *s) {
  io_spec specs[MOST];
  if (!s->o->out) return EXIT_OK;
  for (int k = 0; k < s->count; k++) {
    specs[k] = (io_spec){.name = s->names[k], .type = s->type, .ndim = s->x.array.ndim - 1};
    memcpy(specs[k].shape, s->x.array.shape, sizeof specs[k].shape);
    specs[k].column = true;
  }
  return write_begin(&s->file, s->o, s->count, specs);
}

static void tell(summary *t, double value) {
  if (isnan(value)) {
    t->others++;
    return;
  }
  t->sum += value;
  t->least = t->rows == 0 || value < t->least ? value : t->least;
  t->most = t->rows == 0 || value > t->most ? value : t->most;
  t->rows++;
}

static int emit(scorer *s, int64_t rows) {
  int code = EXIT_OK;
  const size_t column = (size_t)rows * s->type->bytes;
  for (int k = 0; !code && k < s->count; k++) {
    const unsigned char *at = s->out + (size_t)k * column;
    if (s->file.open) code = write_put(&s->file, k, at, column);
    for (int64_t r = 0; r < rows; r++) {
      const double value = s->type->get(at + r * (int64_t)s->type->bytes);
      tell(&s->told[k], value);
      if (s->kept && k == 0) s->kept[s->row + r] = value;
    }
  }
  return code;
}

static void print_report(const scorer *s) {
  printf("%-24s %13s %13s %13s\n", "score", "mean", "least", "most");
  for (int k = 0; k < s->count; k++) {
    const summary *t = &s->told[k];
    printf("%-24s %13.6g %13.6g %13.6g", s->names[k], t->sum / (double)t->rows, t->rows ? t->least : NAN,
           t->rows ? t->most : NAN);
    if (t->others) printf("  %" PRId64 " without", t->others);
    putchar('\n');
  }
  printf("%" PRId64 " row%s of %" PRId64 " classes, %s\n", s->row, s->row == 1 ? "" : "s", s->n,
         s->x.array.type->name);
}

/* ---- All of it ---- */

/* Columns lie one after another, so that each is a piece of its array. */
static int score_block(scorer *s) {
  const int64_t rows = blocks_row_count(&s->blocks);
  int64_t shape[] = {rows, s->n}, columns[] = {rows, s->count}, strides[] = {1, rows};
  view x;
  int code = blocks_rows(&s->blocks, &s->x, &x);
  if (code) return code;
  const smx_tensor logits = {x.tensor.data, {1, 0}, 2, s->x.want->type, shape, NULL, 0};
  const smx_tensor out = {s->out, {1, 0}, 2, s->type->type, columns, strides, 0};
  const smx_tensor target = {s->classes ? s->classes + s->row : NULL, {1, 0}, 1, SMX_I64, shape, NULL, 0};
  const smx_status status =
      smx_scores(s->context, s->count, s->ops, s->params, &logits, s->classes ? &target : NULL, &out);
  if (status != SMX_OK) return fault(EXIT_REFUSED, "%s: %s", s->x.path, smx_last_error());
  code = emit(s, rows);
  s->row += rows;
  return code;
}

static int score_blocks(scorer *s) {
  const smx_context_options c = {
      .size = sizeof c, .threads = s->o->threads, .on_empty = s->o->on_empty, .on_inf = s->o->on_inf};
  const size_t bytes = ((size_t)blocks_row_count(&s->blocks) + 1) * (size_t)s->count * s->type->bytes;
  if (smx_context_create(&c, &s->context) != SMX_OK)
    return fault(EXIT_REFUSED, "score: %s", smx_last_error());
  s->out = malloc(bytes);
  int code = s->out ? EXIT_OK : fault_memory(bytes);
  do {
    if (!code) code = score_block(s);
  } while (!code && blocks_next(&s->blocks));
  return code;
}

static scorer *scorer_new(const options *o, const char *list, const char *path) {
  scorer *s = calloc(1, sizeof *s);
  if (s) s->o = o, s->list = list, s->path = path;
  return s;
}
static void scorer_free(scorer *s) {
  write_drop(&s->file);
  smx_context_destroy(s->context);
  input_free(&s->x), input_free(&s->target);
  free(s->classes), free(s->out), free(s);
}

int work_score(const options *o) {
  if (o->file_count < 2)
    return fault(EXIT_USAGE, "score: %s; softmax help score tells more",
                 o->file_count ? "no input file" : "no scores");
  if (o->file_count > 2) return fault(EXIT_USAGE, "%s: one input too many: score takes 1", o->files[2]);
  scorer *s = scorer_new(o, o->files[0], o->files[1]);
  if (!s) return fault_memory(sizeof *s);
  int code = read_names(s);
  if (!code) code = set_params(s);
  if (!code) code = read_logits(s);
  if (!code) code = read_targets(s);
  if (!code) code = open_output(s);
  if (!code) code = score_blocks(s);
  if (!code && o->out) code = write_end(&s->file);
  if (!code && !o->out) print_report(s);
  scorer_free(s);
  return code;
}

int score_rows(const options *o, const char *score, const char *path, double **values, int64_t *rows) {
  scorer *s = scorer_new(o, score, path);
  if (!s) return fault_memory(sizeof *s);
  int code = take_name(s, score, strlen(score));
  if (!code) code = read_logits(s);
  if (!code && s->ops[0]->input_count > 1)
    code = fault(EXIT_USAGE, "%s: a score that needs the class of each row", score);
  if (!code && !count_elements(s->x.array.ndim - 1, s->x.array.shape, rows)) code = fault_memory(SIZE_MAX);
  if (!code && !(s->kept = malloc((size_t)*rows * sizeof *s->kept + 1))) code = fault_memory((size_t)*rows);
  if (!code) code = score_blocks(s);
  if (code) free(s->kept);
  else *values = s->kept;
  scorer_free(s);
  return code;
}
