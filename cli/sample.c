/* sample.c - the verb `sample`: the chain of smx_sample over the rows of a file, block by block.
 * Draw d of row r has the stream r + d 2^32, so that more draws leave the first ones as they
 * are. */
#include "sample.h"

#include "bind.h"
#include "blocks.h"
#include "fault.h"
#include "labels.h"
#include "progress.h"
#include "report/listing.h"
#include "steps.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DRAWS = 1 << 24, STREAM_BITS = 32 };

static const char *const methods[] = {"gumbel", "cdf", "greedy", NULL};

static void method_choices(char *text, size_t size) {
  snprintf(text, size, "%s %s %s", methods[0], methods[1], methods[2]);
}

/* The steps come first, in the order of their kinds: sample_begin() fills them in. */
enum { OTHERS = 5 };
setting sample_settings[SMX_STEP_KINDS + OTHERS];

static const setting others[OTHERS] = {
    {"seed", 0, "N", "of the random numbers; 0 by default", FOR_OPERATOR, NULL, NULL},
    {"stream", 0, "N", "of the first row; the next rows have the next; 0 by default", FOR_OPERATOR, NULL,
     NULL},
    {"draws", 0, "N", "draws of each row; 1 by default", FOR_OPERATOR, NULL, NULL},
    {"method", 0, "M",
     "gumbel (default): the best after noise; cdf: one random number a draw; greedy: the best", FOR_OPERATOR,
     NULL, method_choices},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

void sample_begin(void) {
  const size_t steps = steps_settings(sample_settings, SMX_STEP_KINDS);
  memcpy(sample_settings + steps, others, sizeof others);
}

typedef struct sampler {
  const options *o;
  input x;
  blocks blocks;
  chain chain;
  smx_sample_options how;
  smx_context *context;
  labels names;
  listing list;
  result_file file;
  smx_shape whole; /* of x as it lies in the file */
  int32_t axis;
  int64_t n, draws, row, nothing; /* row: that the block starts with */
  uint64_t *streams;              /* of a block */
  int64_t *index, *drawn;         /* [rows, draws] and [rows] */
  smx_row_status *status;         /* [rows] */
  double *log_p;                  /* [rows, draws] */
  void *drawn_log;
  double log_sum;
} sampler;

/* ---- Options ---- */

static int read_own(sampler *s) {
  const char *seed = options_own(s->o, "seed"), *stream = options_own(s->o, "stream"),
             *draws = options_own(s->o, "draws");
  const char *method = options_own(s->o, "method");
  int64_t v = 0;
  int code = EXIT_OK, m = 0;
  s->how.size = sizeof s->how;
  s->draws = 1;
  if (seed && !code) code = options_int("seed", seed, 0, INT64_MAX, &v);
  s->how.seed = (uint64_t)v;
  v = 0;
  if (stream && !code) code = options_int("stream", stream, 0, INT64_MAX, &v);
  s->how.stream = (uint64_t)v;
  if (draws && !code) code = options_int("draws", draws, 1, MOST_DRAWS, &s->draws);
  while (method && methods[m] && strcmp(methods[m], method) != 0) m++;
  if (!code && !methods[m]) code = options_refuse("method", method, "not one of gumbel, cdf, greedy");
  s->how.draw = (smx_draw)m;
  if (!code) code = chain_read(&s->chain, sample_settings, s->o);
  s->how.steps = s->chain.steps;
  s->how.step_count = s->chain.count;
  return code;
}

/* ---- Input ---- */

/* The axis goes to the end; half precision is taken as f32, as everywhere. */
static int read_logits(sampler *s) {
  static const smx_port port = {"x", SMX_SHAPE_FULL, 0, "logits"};
  const options *o = s->o;
  if (!o->file_count) return fault(EXIT_USAGE, "sample: no input file; softmax help sample tells more");
  if (o->file_count > 1) return fault(EXIT_USAGE, "%s: one input too many: sample takes 1", o->files[1]);
  s->x.path = o->files[0];
  int code = input_read(&s->x, &port, o, NULL);
  if (code) return code;
  io_array *a = &s->x.array;
  s->whole.ndim = a->ndim;
  memcpy(s->whole.dim, a->shape, sizeof s->whole.dim);
  code = blocks_axis_last(&s->x, o->axis, &s->axis);
  if (code) return code;
  s->n = a->shape[a->ndim - 1];
  s->x.want = dtype_named(s->x.want->type.bits == 64 ? "f64" : "f32");
  if (o->labels) code = labels_check(&s->names, s->n, s->x.path);
  int64_t more = s->draws * 16 / (s->n * s->x.want->bytes + 1); /* what a row's draws need, in rows */
  blocks_begin(&s->blocks, a, s->x.want->bytes, a->ndim - 1, o->block / (more + 1));
  return code;
}

static smx_status draw(sampler *s, int64_t rows, const void *logits) {
  size_t count = (size_t)rows, n = (size_t)s->n;
  if (s->x.want->bytes == 8)
    return smx_sample_f64(s->context, &s->how, count, n, logits, s->drawn, s->drawn_log);
  return smx_sample_f32(s->context, &s->how, count, n, logits, s->drawn, s->drawn_log);
}

/* A wrong step is told before anything is opened or read. */
static int check_steps(sampler *s) {
  smx_status status = draw(s, 0, NULL);
  return status == SMX_OK ? EXIT_OK : chain_fault(&s->chain, s->x.path, status);
}

/* ---- Output ---- */

static int open_output(sampler *s) {
  io_spec specs[2] = {{.name = "index", .type = dtype_named("i64")},
                      {.name = "log", .type = dtype_named("f64")}};
  if (!s->o->out) return listing_begin(&s->list, &s->whole, s->axis);
  for (int k = 0; k < 2; k++) {
    specs[k].ndim = s->whole.ndim;
    memcpy(specs[k].shape, s->x.array.shape, sizeof specs[k].shape);
    specs[k].shape[s->whole.ndim - 1] = s->draws;
  }
  return write_begin(&s->file, s->o, 2, specs);
}

typedef struct tally {
  int64_t index, count;
  double log_p; /* of its first draw */
} tally;

static int by_index(const void *a, const void *b) {
  int64_t x = ((const tally *)a)->index, y = ((const tally *)b)->index;
  return (x > y) - (x < y);
}

static int by_count(const void *a, const void *b) {
  int64_t x = ((const tally *)a)->count, y = ((const tally *)b)->count;
  return x != y ? (x < y ? 1 : -1) : by_index(a, b);
}

/* The distinct tokens of a row's draws, most frequent first; how many there are. */
static int64_t count_tokens(const sampler *s, const int64_t *index, const double *log_p, tally *tokens) {
  int64_t found = 0;
  for (int64_t d = 0; d < s->draws; d++) tokens[d] = (tally){index[d], 1, log_p[d]};
  qsort(tokens, (size_t)s->draws, sizeof *tokens, by_index);
  for (int64_t d = 1; d < s->draws; d++) {
    if (tokens[d].index == tokens[found].index) tokens[found].count++;
    else tokens[++found] = tokens[d];
  }
  qsort(tokens, (size_t)++found, sizeof *tokens, by_count);
  return found;
}

static int list_row(sampler *s, const int64_t *index, const double *log_p, smx_row_status status) {
  static const char *const nothing[] = {[SMX_ROW_OK] = "",
                                        [SMX_ROW_EMPTY] = "nothing left",
                                        [SMX_ROW_NAN] = "not a number",
                                        [SMX_ROW_INF] = "a score of +inf"};
  FILE *to;
  int64_t i = 0;
  tally *tokens = malloc((size_t)s->draws * sizeof *tokens);
  if (!tokens) return fault_memory((size_t)s->draws * sizeof *tokens);
  int64_t found = count_tokens(s, index, log_p, tokens);
  if (tokens[0].index < 0) listing_say(&s->list, nothing[status]);
  for (; tokens[0].index >= 0 && i < found && (to = listing_line(&s->list)); i++) {
    char name[LABEL_BYTES + 1] = "";
    if (s->o->labels) labels_column(&s->names, tokens[i].index, LABEL_COLUMNS, name, sizeof name);
    fprintf(to, " %9" PRId64 "%s%s %9" PRId64 " %9.4f %13.6g\n", tokens[i].index, s->o->labels ? "  " : "",
            name, tokens[i].count, (double)tokens[i].count / (double)s->draws, exp(tokens[i].log_p));
  }
  if (i) listing_more(&s->list, found - i);
  free(tokens);
  return EXIT_OK;
}

static int emit(sampler *s, int64_t rows) {
  size_t count = (size_t)(rows * s->draws);
  int code = EXIT_OK;
  for (size_t i = 0; i < count; i++) {
    s->nothing += s->index[i] < 0;
    if (s->index[i] >= 0) s->log_sum += s->log_p[i];
  }
  if (s->file.open) {
    code = write_put(&s->file, 0, s->index, count * sizeof *s->index);
    return code ? code : write_put(&s->file, 1, s->log_p, count * sizeof *s->log_p);
  }
  for (int64_t r = 0; !code && r < rows; r++)
    if (listing_row(&s->list))
      code = list_row(s, s->index + r * s->draws, s->log_p + r * s->draws, s->status[r]);
  return code;
}

static void print_report(sampler *s) {
  char columns[128];
  int64_t rows = s->row, all = rows * s->draws;
  snprintf(columns, sizeof columns, " %9s%-*s %9s %9s %13s", "index", s->o->labels ? LABEL_COLUMNS + 2 : 0,
           s->o->labels ? "  label" : "", "count", "share", "probability");
  listing_print(&s->list, columns);
  printf("%" PRId64 " row%s of %" PRId64 " classes, %s; %" PRId64 " draw%s each, %s, seed %" PRIu64, rows,
         rows == 1 ? "" : "s", s->n, s->x.array.type->name, s->draws, s->draws == 1 ? "" : "s",
         methods[s->how.draw], s->how.seed);
  if (all > s->nothing) printf("; mean surprise %.4f nats", 0 - s->log_sum / (double)(all - s->nothing));
  if (s->nothing) printf("; %" PRId64 " without a result", s->nothing);
  putchar('\n');
}

/* ---- All of it ---- */

static int make_room(sampler *s) {
  size_t rows = (size_t)blocks_row_count(&s->blocks) + 1, count;
  if (__builtin_mul_overflow(rows, (size_t)s->draws, &count) || count > SIZE_MAX / 16)
    return fault_memory(SIZE_MAX);
  s->streams = malloc(rows * sizeof *s->streams);
  s->drawn = malloc(rows * sizeof *s->drawn);
  s->drawn_log = malloc(rows * sizeof(double));
  s->index = malloc(count * sizeof *s->index);
  s->log_p = malloc(count * sizeof *s->log_p);
  s->status = malloc(rows * sizeof *s->status);
  s->how.streams = s->streams;
  s->how.status = s->status;
  return s->streams && s->status && s->drawn && s->drawn_log && s->index && s->log_p
             ? EXIT_OK
             : fault_memory(count * 16);
}

static int draw_block(sampler *s) {
  view x;
  int64_t rows = blocks_row_count(&s->blocks);
  int code = blocks_rows(&s->blocks, &s->x, &x);
  for (int64_t d = 0; !code && d < s->draws; d++) {
    for (int64_t r = 0; r < rows; r++)
      s->streams[r] = s->how.stream + (uint64_t)(s->row + r) + ((uint64_t)d << STREAM_BITS);
    smx_status status = draw(s, rows, x.tensor.data);
    if (status != SMX_OK) return chain_fault(&s->chain, s->x.path, status);
    for (int64_t r = 0; r < rows; r++) {
      s->index[r * s->draws + d] = s->drawn[r];
      s->log_p[r * s->draws + d] =
          s->x.want->get((const unsigned char *)s->drawn_log + r * (int64_t)s->x.want->bytes);
    }
  }
  if (!code) code = emit(s, rows);
  s->row += rows;
  return code;
}

static int draw_blocks(sampler *s) {
  progress p;
  int64_t done = 0;
  int code;
  progress_begin(&p, s->blocks.total);
  do {
    code = draw_block(s);
    progress_step(&p, ++done);
  } while (!code && blocks_next(&s->blocks));
  progress_end(&p);
  return code;
}

static int make_context(sampler *s) {
  smx_context_options c = {.size = sizeof c, .threads = s->o->threads};
  smx_status status = smx_context_create(&c, &s->context);
  return status == SMX_OK ? EXIT_OK : chain_fault(&s->chain, s->x.path, status);
}

static void free_sampler(sampler *s) {
  write_drop(&s->file);
  listing_free(&s->list);
  smx_context_destroy(s->context);
  chain_free(&s->chain);
  labels_free(&s->names);
  input_free(&s->x);
  free(s->streams);
  free(s->drawn);
  free(s->status);
  free(s->drawn_log);
  free(s->index);
  free(s->log_p);
}

int work_sample(const options *o) {
  sampler s;
  memset(&s, 0, sizeof s);
  s.o = o;
  int code = read_own(&s);
  if (!code) code = labels_read(&s.names, o->labels);
  if (!code) code = read_logits(&s);
  if (!code) code = make_room(&s);
  if (!code) code = check_steps(&s);
  if (!code) code = open_output(&s);
  if (!code) code = make_context(&s);
  if (!code) code = draw_blocks(&s);
  if (!code && o->out) code = write_end(&s.file);
  if (!code && !o->out) print_report(&s);
  free_sampler(&s);
  return code;
}
