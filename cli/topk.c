/* topk.c - the verb `top-k`: runs softmax_topk and lists what it found. */
#include "topk.h"

#include "dtype.h"
#include "fault.h"
#include "report/listing.h"
#include "run.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const setting topk_settings[] = {
    {"k", 'k', "K", "how many of the largest; 10 by default", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

enum { VALUE, INDEX, LOG }; /* the outputs that are listed */

typedef struct topk_report {
  listing list;
  const labels *names; /* or NULL */
  const char *type;
  int64_t rows, with_nan, empty, n, k;
  double mass; /* of the k best, added up over the rows */
} topk_report;

/* The k results of a row: element i of an output lies `start + i * stride` elements into it. */
typedef struct topk_row {
  const smx_tensor *const *out;
  int64_t k, start, stride;
} topk_row;

static double number_at(const topk_row *r, int port, int64_t i) {
  const dtype *d = dtype_of(r->out[port]->dtype);
  return d->get((const unsigned char *)r->out[port]->data + (r->start + i * r->stride) * (int64_t)d->bytes);
}

static int64_t index_at(const topk_row *r, int64_t i) { return (int64_t)number_at(r, INDEX, i); }

/* 1 for the best, whatever order the results have. */
static int64_t rank_of(const topk_row *r, int64_t i) {
  int64_t rank = 1, own = index_at(r, i);
  double log_p = number_at(r, LOG, i);
  for (int64_t j = 0; j < r->k; j++) {
    double other = number_at(r, LOG, j);
    int64_t index = index_at(r, j);
    rank += index >= 0 && (other > log_p || (other == log_p && index < own));
  }
  return rank;
}

static void list_row(topk_report *t, const topk_row *r) {
  FILE *to;
  int64_t i = 0, found = 0;
  while (found < r->k && index_at(r, found) >= 0) found++;
  for (; i < found && (to = listing_line(&t->list)); i++) {
    char name[LABEL_BYTES + 1] = "";
    if (t->names) labels_column(t->names, index_at(r, i), LABEL_COLUMNS, name, sizeof name);
    fprintf(to, " %6" PRId64 " %9" PRId64 "%s%s %13.6g %16.6g\n", rank_of(r, i), index_at(r, i),
            t->names ? "  " : "", name, number_at(r, VALUE, i), number_at(r, LOG, i));
  }
  listing_more(&t->list, found - i);
}

static void add_row(topk_report *t, const topk_row *r) {
  bool shown = listing_row(&t->list), nan = isnan(number_at(r, VALUE, 0)), empty = !nan && index_at(r, 0) < 0;
  t->rows++;
  t->with_nan += nan;
  t->empty += empty;
  for (int64_t i = 0; !nan && i < r->k; i++) t->mass += number_at(r, VALUE, i);
  if (!shown) return;
  if (nan || empty) listing_say(&t->list, nan ? "not a number" : "nothing valid");
  else list_row(t, r);
}

static int see_block(void *user, const run_block *b) {
  topk_report *t = user;
  const smx_tensor *index = b->out[INDEX];
  int64_t outer = 1, inner = 1;
  if (!t->list.text) {
    int code = listing_begin(&t->list, b->whole, b->axis);
    if (code) return code;
  }
  t->n = b->whole->dim[b->axis];
  t->k = index->shape[b->axis];
  t->type = dtype_of(b->out[VALUE]->dtype)->name;
  for (int32_t i = 0; i < index->ndim; i++) {
    if (i < b->axis) outer *= index->shape[i];
    if (i > b->axis) inner *= index->shape[i];
  }
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < inner; i++) add_row(t, &(topk_row){b->out, t->k, o * t->k * inner + i, inner});
  return EXIT_OK;
}

static void print_report(topk_report *t) {
  char columns[128];
  snprintf(columns, sizeof columns, " %6s %9s%-*s %13s %16s", "rank", "index",
           t->names ? LABEL_COLUMNS + 2 : 0, t->names ? "  label" : "", "probability", "log-probability");
  listing_print(&t->list, columns);
  printf("%" PRId64 " row%s of %" PRId64 " classes, %s; the best %" PRId64, t->rows, t->rows == 1 ? "" : "s",
         t->n, t->type, t->k);
  int64_t good = t->rows - t->with_nan - t->empty;
  if (good) printf(" have %.4f of the mass on average", t->mass / (double)good);
  if (t->with_nan) printf("; %" PRId64 " with NaN", t->with_nan);
  if (t->empty) printf("; %" PRId64 " with nothing valid", t->empty);
  putchar('\n');
}

int work_topk(const options *o) {
  if (!o->file_count) return fault(EXIT_USAGE, "top-k: no input file; softmax help top-k tells more");
  labels names;
  topk_report report = {.names = o->labels ? &names : NULL};
  run_request request = {.op = smx_op_find(TOPK_OPERATOR), .o = o, .labels = report.names, .user = &report};
  if (!o->out) request.see = see_block;
  int code = labels_read(&names, o->labels);
  if (!code) code = run_operator(&request);
  if (!code && !o->out) print_report(&report);
  listing_free(&report.list);
  labels_free(&names);
  return code;
}
