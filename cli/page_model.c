/* page_model.c - lists of a report, each of bounded length: the page stays small whatever the
 * number of rows and classes. */
#include "page_model.h"

#include "numbers.h"

#include <math.h>
#include <stdlib.h>

enum { RISKS = 200, PAIRS = 30, ERRORS = 50, CLASSES = 2000, HISTOGRAM = 40, NAME_COLUMNS = 60 };

static void add_name(json_t *object, const char *key, const labels *names, int64_t class) {
  char text[4 * NAME_COLUMNS + 1];
  if (labels_text(names, class, NAME_COLUMNS, text, sizeof text))
    json_object_set_new(object, key, json_string(text));
}

/* ---- Risk by coverage ---- */

/* The risk of the first k rows at RISKS numbers k, even apart, the last of them all rows. */
static json_t *risks(const measures *m) {
  json_t *coverage = json_array(), *risk = json_array();
  const int64_t points = m->rows < RISKS ? m->rows : RISKS;
  for (int64_t i = 1; i <= points; i++) {
    const int64_t k = (int64_t)((double)m->rows * (double)i / (double)points);
    json_array_append_new(coverage, json_number((double)k / (double)m->rows));
    json_array_append_new(risk, json_number(m->risk[k - 1]));
  }
  return json_pack("{s:o, s:o}", "coverage", coverage, "risk", risk);
}

/* ---- Pairs that are confused ---- */

typedef struct pair {
  int64_t target, predicted, count;
} pair;

static int order_of(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_classes(const void *a, const void *b) {
  const pair *x = a, *y = b;
  return x->target != y->target ? order_of(x->target, y->target) : order_of(x->predicted, y->predicted);
}

static int by_count(const void *a, const void *b) {
  const pair *x = a, *y = b;
  return x->count != y->count ? order_of(y->count, x->count) : by_classes(a, b);
}

/* Every error is a pair; equal ones become one. Returns how many are left. */
static int64_t find_pairs(const judged *j, pair *list) {
  int64_t count = 0, kept = 0;
  for (int64_t i = 0; i < j->rows; i++)
    if (j->rank[i]) list[count++] = (pair){j->target[i], j->predicted[i], 1};
  qsort(list, (size_t)count, sizeof *list, by_classes);
  for (int64_t i = 0; i < count; i++)
    if (kept && by_classes(list + kept - 1, list + i) == 0) list[kept - 1].count++;
    else list[kept++] = list[i];
  qsort(list, (size_t)kept, sizeof *list, by_count);
  return kept;
}

static json_t *pairs(const judged *j, const measures *m, const labels *names) {
  pair *list = malloc((size_t)j->rows * sizeof *list);
  if (!list) return NULL;
  const int64_t count = find_pairs(j, list);
  json_t *array = json_array();
  for (int64_t i = 0; i < count && i < PAIRS; i++) {
    json_t *one = json_pack("{s:I, s:I, s:I, s:o}", "target", (json_int_t)list[i].target, "predicted",
                            (json_int_t)list[i].predicted, "count", (json_int_t)list[i].count, "share",
                            json_number((double)list[i].count / m->of_class[list[i].target].there));
    add_name(one, "target_name", names, list[i].target);
    add_name(one, "predicted_name", names, list[i].predicted);
    json_array_append_new(array, one);
  }
  free(list);
  return array;
}

/* ---- Errors by confidence ---- */

typedef struct error {
  double confidence;
  int64_t row; /* of those that count */
} error;

static int by_confidence(const void *a, const void *b) {
  const error *x = a, *y = b;
  if (x->confidence != y->confidence) return x->confidence < y->confidence ? 1 : -1;
  return order_of(x->row, y->row);
}

static json_t *errors(const judged *j, const labels *names) {
  int64_t count = 0;
  error *list = malloc((size_t)j->rows * sizeof *list);
  if (!list) return NULL;
  for (int64_t i = 0; i < j->rows; i++)
    if (j->rank[i]) list[count++] = (error){j->score[JUDGE_MSP][i], i};
  qsort(list, (size_t)count, sizeof *list, by_confidence);
  json_t *array = json_array();
  for (int64_t k = 0; k < count && k < ERRORS; k++) {
    const int64_t i = list[k].row;
    json_t *one = json_pack("{s:I, s:I, s:I, s:o, s:o}", "row", (json_int_t)j->number[i], "target",
                            (json_int_t)j->target[i], "predicted", (json_int_t)j->predicted[i], "confidence",
                            json_number(list[k].confidence), "probability", json_number(exp(-j->loss[i])));
    add_name(one, "target_name", names, j->target[i]);
    add_name(one, "predicted_name", names, j->predicted[i]);
    json_array_append_new(array, one);
  }
  free(list);
  return array;
}

/* ---- Classes ---- */

static double share(double part, double whole) { return whole > 0 ? part / whole : NAN; }

static json_t *class_json(const class_count *c, int64_t class, const labels *names) {
  json_t *one = json_pack(
      "{s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "class", (json_int_t) class, "rows", (json_int_t)c->there,
      "predicted", (json_int_t)c->taken, "precision", json_number(share(c->right, c->taken)), "recall",
      json_number(share(c->right, c->there)), "f1", json_number(share(2 * c->right, c->there + c->taken)),
      "confidence", json_number(c->confidence / c->taken));
  add_name(one, "name", names, class);
  return one;
}

/* How many rows a class needs so that at most CLASSES have as many. */
static int64_t least_rows(const measures *m) {
  int64_t least = 1, most = m->rows + 1;
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    int64_t shown = 0;
    for (int64_t k = 0; k < m->classes; k++)
      shown += m->of_class[k].there + m->of_class[k].taken >= (double)middle;
    if (shown <= CLASSES) most = middle;
    else least = middle + 1;
  }
  return least;
}

static json_t *classes(const measures *m, const labels *names) {
  json_t *array = json_array();
  const int64_t least = least_rows(m);
  for (int64_t k = 0; k < m->classes; k++)
    if (m->of_class[k].there + m->of_class[k].taken >= (double)least)
      json_array_append_new(array, class_json(m->of_class + k, k, names));
  return array;
}

json_t *page_model(const judged *j, const measures *m, const labels *names) {
  json_t *model = measure_json(m);
  json_object_set_new(model, "file", measure_text(j->path));
  json_object_set_new(model, "type", json_string(j->type));
  json_object_set_new(model, "risk_coverage", risks(m));
  int failed = json_object_set_new(model, "confused", pairs(j, m, names));
  failed |= json_object_set_new(model, "errors", errors(j, names));
  json_object_set_new(model, "per_class", classes(m, names));
  if (!failed) return model;
  json_decref(model);
  return NULL;
}

/* ---- Histograms of scores ---- */

static void range_of(const judged *j, int score, double *low, double *high) {
  for (int64_t i = 0; i < j->rows; i++) {
    const double v = j->score[score][i];
    if (isfinite(v)) *low = fmin(*low, v), *high = fmax(*high, v);
  }
}

/* Infinite scores go to the ends. */
static json_t *counts(const judged *j, int score, double low, double high) {
  int64_t count[HISTOGRAM] = {0};
  for (int64_t i = 0; i < j->rows; i++) {
    const double at = high > low ? (j->score[score][i] - low) / (high - low) * HISTOGRAM : 0;
    count[at < 0 ? 0 : at < HISTOGRAM ? (int)at : HISTOGRAM - 1]++;
  }
  return json_counts(count, HISTOGRAM);
}

json_t *page_histograms(const judged *in, const judged *out) {
  json_t *all = json_object();
  for (int k = 0; k < JUDGE_SURE; k++) {
    double low = INFINITY, high = -INFINITY;
    range_of(in, k, &low, &high), range_of(out, k, &low, &high);
    json_object_set_new(all, judge_scores[k],
                        json_pack("{s:o, s:o, s:o, s:o}", "low", json_number(low), "high", json_number(high),
                                  "inside", counts(in, k, low, high), "outside", counts(out, k, low, high)));
  }
  return all;
}
