/* page.c - the verb `report`. The page is the files of page/ with the numbers as JSON between them;
 * its script draws what the numbers say, and forms no metric of its own. */
#include "page.h"

#include "fault.h"
#include "numbers.h"
#include "grid.h"
#include "metrics.h"
#include "page_model.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 21, DIGITS = 6 }; /* a block is read for each temperature: the caches should hold it */

const setting page_settings[] = {
    METRICS_SETTINGS,
    {"title", 0, "TEXT", "of the page; the name of the file by default", FOR_OPERATOR, NULL, NULL},
    {"json", 0, NULL, "the numbers as JSON, without the page", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

typedef struct reporting {
  const options *o;
  metrics_request q;
  metrics_result m;
  grid first, second;
  labels names;
} reporting;

/* ---- The numbers ---- */

static json_t *model_json(const judged *j, const measures *m, const grid *g, const labels *names) {
  json_t *model = page_model(j, m, names);
  if (model) json_object_set_new(model, "temperatures", grid_json(g));
  return model;
}

static json_t *ood_json(const reporting *r) {
  json_t *ood = measure_json_outliers(&r->m.found);
  json_object_set_new(ood, "file", measure_text(r->q.outside));
  json_object_set_new(ood, "histograms", page_histograms(&r->m.first, &r->m.outside));
  return ood;
}

/* NULL: memory has run out. */
static json_t *all_json(const reporting *r) {
  const char *title = options_own(r->o, "title");
  json_t *all = json_pack("{s:s, s:s}", "program", "softmax report", "version", smx_version());
  if (title) json_object_set_new(all, "title", measure_text(title));
  json_object_set_new(all, "definitions", measure_json_definitions());
  int failed =
      json_object_set_new(all, "model", model_json(&r->m.first, &r->m.of_first, &r->first, &r->names));
  if (r->q.second) {
    failed |=
        json_object_set_new(all, "second", model_json(&r->m.second, &r->m.of_second, &r->second, &r->names));
    json_object_set_new(all, "comparison", measure_json_comparison(&r->m.compared));
  }
  if (r->q.outside) json_object_set_new(all, "ood", ood_json(r));
  if (!failed) return all;
  json_decref(all);
  return NULL;
}

/* ---- The page ---- */

/* Text of JSON inside a script of HTML: nothing in it can end the script or begin a comment. */
static void put_escaped(FILE *to, const char *text) {
  for (size_t n; *text; text += n) {
    n = strcspn(text, "<>&");
    fwrite(text, 1, n, to);
    if (text[n]) fprintf(to, "\\u%04x", (unsigned)text[n++]);
  }
}

static void put_page(FILE *to, const char *data) {
  static const struct {
    const char *mark;
    const unsigned char *text;
  } parts[] = {{"@STYLE@", page_css}, {"@DATA@", NULL}, {"@SCRIPT@", page_js}};
  const char *at = (const char *)page_html;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const char *mark = strstr(at, parts[i].mark);
    fwrite(at, 1, (size_t)(mark - at), to);
    if (parts[i].text) fputs((const char *)parts[i].text, to);
    else put_escaped(to, data);
    at = mark + strlen(parts[i].mark);
  }
  fputs(at, to);
}

/* The page with the numbers in it; frees them. NULL: no memory. */
static char *page_text(json_t *all, size_t *length) {
  char *text = NULL,
       *data = all ? json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(DIGITS)) : NULL;
  FILE *to = data ? open_memstream(&text, length) : NULL;
  json_decref(all);
  if (to) put_page(to, data);
  free(data);
  if (to && fclose(to) == 0) return text;
  free(text);
  return NULL;
}

static int put_all(const reporting *r, bool json) {
  size_t length = 0;
  char *text = json ? json_lines(all_json(r), &length) : page_text(all_json(r), &length);
  const int code = text ? metrics_put(r->o, text, length) : fault_memory(length);
  free(text);
  return code;
}

/* ---- The verb ---- */

static int begin(reporting *r) {
  const options *o = r->o;
  int code = metrics_options(&r->q, "report", o);
  if (!code && !o->out && !options_own(o, "json"))
    code = fault(EXIT_USAGE, "report: -o OUT.html is missing, or --json");
  if (!code) code = metrics_begin(&r->q);
  if (!code) code = labels_read(&r->names, o->labels);
  if (r->q.rows.bytes > BLOCK) r->q.rows.bytes = BLOCK;
  r->q.rows.see = grid_see;
  smx_context *context = r->q.rows.context;
  if (!code) code = grid_begin(&r->first, context, r->q.rows.temperature, r->q.rows.bins);
  return code ? code : grid_begin(&r->second, context, r->q.rows.temperature, r->q.rows.bins);
}

int work_report(const options *o) {
  reporting *r = calloc(1, sizeof *r);
  if (!r) return fault_memory(sizeof *r);
  r->o = o;
  int code = begin(r);
  if (!code) code = metrics_take(&r->m, &r->q, &r->first, &r->second);
  if (!code) code = labels_check(&r->names, r->m.first.classes, r->q.rows.path);
  if (!code) code = put_all(r, options_own(o, "json") != NULL);
  metrics_free(&r->m, &r->q), labels_free(&r->names);
  grid_free(&r->first), grid_free(&r->second), free(r);
  return code;
}
