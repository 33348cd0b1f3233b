/* metrics.c - the verb `metrics`; and what the verb `report` shares with it. */
#include "metrics.h"

#include "fault.h"
#include "numbers.h"
#include "write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 15, TOP = 5, DRAWS_MOST = 1000000 };
#define TEMPERATURE_LEAST 1e-20 /* with four times as much and a fourth, operators take them */
#define TEMPERATURE_MOST 1e20

const setting metrics_settings[] = {
    METRICS_SETTINGS,
    {"weights", 0, "FILE", "the weight of each row, 0: it does not count; not with --compare", FOR_OPERATOR,
     NULL, NULL},
    {"json", 0, NULL, "the numbers as JSON", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

static int whole_number(const options *o, const char *name, int64_t usual, int64_t least, int64_t most,
                        int64_t *value) {
  const char *text = options_own(o, name);
  *value = usual;
  return text ? options_int(name, text, least, most, value) : EXIT_OK;
}

static int read_temperature(const options *o, double *value) {
  const char *text = options_own(o, "temperature");
  *value = 1;
  int code = text ? options_number("temperature", text, value) : EXIT_OK;
  if (code || (*value >= TEMPERATURE_LEAST && *value <= TEMPERATURE_MOST)) return code;
  return options_refuse("temperature", text, "not within 1e-20 and 1e20");
}

/* Each input is read for itself, so standard input can be one of them. */
static int check_files(const metrics_request *q) {
  const char *const paths[] = {q->rows.path, q->rows.targets, q->rows.weights, q->second, q->outside};
  int streams = 0;
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) streams += paths[i] && strcmp(paths[i], "-") == 0;
  return streams > 1 ? fault(EXIT_USAGE, "-: standard input can be only one of the inputs") : EXIT_OK;
}

int metrics_options(metrics_request *q, const char *verb, const options *o) {
  *q = (metrics_request){.rows = {.o = o}};
  if (!o->file_count) return fault(EXIT_USAGE, "%s: no input file; softmax help %s tells more", verb, verb);
  if (o->file_count > 1)
    return fault(EXIT_USAGE, "%s: one input too many: %s takes 1; others are --targets, --compare, --ood",
                 o->files[1], verb);
  q->rows.path = o->files[0], q->rows.targets = options_own(o, "targets"), q->rows.bytes = o->block;
  q->second = options_own(o, "compare"), q->outside = options_own(o, "ood");
  q->rows.probabilities = options_own(o, "probabilities") != NULL;
  q->rows.weights = options_own(o, "weights");
  if (q->rows.weights && q->second)
    return fault(EXIT_USAGE, "--weights: not with --compare, whose tests count whole rows");
  if (!q->rows.targets) return fault(EXIT_USAGE, "%s: --targets FILE is missing", verb);
  int code = whole_number(o, "bins", BINS, 1, MEASURE_BINS_MOST, &q->rows.bins);
  if (!code) code = whole_number(o, "draws", 0, 1, DRAWS_MOST, &q->draws.count);
  if (!code) code = whole_number(o, "seed", 0, 0, 1LL << 53, &q->draws.seed);
  if (!code && options_own(o, "seed") && !q->draws.count)
    code = fault(EXIT_USAGE, "--seed: without --draws there is nothing to draw");
  if (!code) code = whole_number(o, "k", TOP, 1, INT64_MAX, &q->k);
  if (!code) code = whole_number(o, "ignore-index", -100, -(1LL << 53), 1LL << 53, &q->rows.ignore);
  if (!code) code = read_temperature(o, &q->rows.temperature);
  return code ? code : check_files(q);
}

static int check_classes(const judged *j, const judged *first) {
  return j->classes == first->classes ? EXIT_OK
                                      : fault(EXIT_REFUSED, "%s: %" PRId64 " classes, but %s has %" PRId64,
                                              j->path, j->classes, first->path, first->classes);
}

static measure_request request_of(const metrics_request *q) {
  return (measure_request){q->rows.context, q->rows.temperature, q->k, q->rows.bins, q->draws};
}

static int take_second(metrics_result *m, const metrics_request *q, void *see) {
  judge_request r = q->rows;
  r.path = q->second, r.user = see;
  int code = judge(&m->second, &r);
  if (!code) code = check_classes(&m->second, &m->first);
  const measure_request as = request_of(q);
  if (!code) code = measure(&m->of_second, &m->second, &as);
  return code ? code : measure_comparison(&m->compared, &m->first, &m->second, &as);
}

static int take_outside(metrics_result *m, const metrics_request *q) {
  judge_request r = q->rows;
  r.path = q->outside, r.targets = r.weights = NULL, r.see = NULL;
  int code = judge(&m->outside, &r);
  if (!code) code = check_classes(&m->outside, &m->first);
  return code ? code : measure_outliers(&m->found, &m->first, &m->outside, r.context);
}

int metrics_begin(metrics_request *q) {
  const options *o = q->rows.o;
  const smx_context_options c = {.size = sizeof c, .threads = o->threads, .on_inf = o->on_inf};
  return smx_context_create(&c, &q->rows.context) == SMX_OK ? EXIT_OK
                                                            : fault(EXIT_REFUSED, "%s", smx_last_error());
}

int metrics_take(metrics_result *m, const metrics_request *q, void *see_first, void *see_second) {
  judge_request r = q->rows;
  r.user = see_first;
  int code = judge(&m->first, &r);
  const measure_request as = request_of(q);
  if (!code) code = measure(&m->of_first, &m->first, &as);
  if (!code && q->second) code = take_second(m, q, see_second);
  return !code && q->outside ? take_outside(m, q) : code;
}

void metrics_free(metrics_result *m, metrics_request *q) {
  judge_free(&m->first), judge_free(&m->second), judge_free(&m->outside);
  measure_free(&m->of_first), measure_free(&m->of_second);
  smx_context_destroy(q->rows.context);
}

int metrics_put(const options *o, const char *text, size_t length) {
  if (o->out) return write_file(o->out, text, length);
  fwrite(text, 1, length, stdout);
  return EXIT_OK;
}

/* ---- The verb ---- */

static int print_text(const metrics_result *m, const metrics_request *q) {
  char *text = NULL;
  size_t length = 0;
  FILE *to = open_memstream(&text, &length);
  if (!to) return fault_memory(0);
  measure_print(to, &m->of_first);
  if (q->second) {
    fprintf(to, "\n%s\n", q->second);
    measure_print(to, &m->of_second), measure_print_comparison(to, &m->compared);
  }
  if (q->outside) measure_print_outliers(to, &m->found);
  int code = fclose(to) == 0 ? metrics_put(q->rows.o, text, length) : fault_memory(length);
  free(text);
  return code;
}

static int print_json(const metrics_result *m, const metrics_request *q) {
  json_t *all = measure_json(&m->of_first);
  if (q->second) {
    json_object_set_new(all, "second", measure_json(&m->of_second));
    json_object_set_new(all, "comparison", measure_json_comparison(&m->compared));
  }
  if (q->outside) json_object_set_new(all, "ood", measure_json_outliers(&m->found));
  size_t length = 0;
  char *text = json_lines(all, &length);
  int code = text ? metrics_put(q->rows.o, text, length) : fault_memory(0);
  free(text);
  return code;
}

int work_metrics(const options *o) {
  metrics_request q;
  metrics_result m = {0};
  int code = metrics_options(&q, "metrics", o);
  if (!code) code = metrics_begin(&q);
  if (!code) code = metrics_take(&m, &q, NULL, NULL);
  if (!code) code = options_own(o, "json") ? print_json(&m, &q) : print_text(&m, &q);
  metrics_free(&m, &q);
  return code;
}
