/* measure_show.c - metrics as a table for the screen, and as JSON. */
#include "measure.h"

#include "numbers.h"
#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A metric: its name in JSON and on the screen, and what it is. */
typedef struct shown {
  const char *key, *title, *about;
  size_t at;
  int mean; /* the number of its interval; -1: it has none */
} shown;

#define AT(field) offsetof(measures, field)
/* clang-format off */
static const shown metrics[] = {
    {"accuracy", "accuracy", "the share of rows that are right; micro F1 too", AT(accuracy), 0},
    {"top_k_accuracy", "top-k accuracy", "the target is among the k largest", AT(top_k), -1},
    {"balanced_accuracy", "balanced accuracy", "the mean of recall over the true classes", AT(balanced), -1},
    {"macro_f1", "macro F1", "the mean of F1 over the classes that occur", AT(macro_f1), -1},
    {"matthews", "Matthews", "the correlation of predictions and targets", AT(matthews), -1},
    {"log_loss", "log loss", "nats, the mean of -log p of the target", AT(log_loss), 1},
    {"brier", "Brier score", "between 0 and 2", AT(brier), 2},
    {"confidence", "mean confidence", "of the largest probabilities", AT(confidence), -1},
    {"entropy", "mean entropy", "nats", AT(entropy), -1},
    {"ece", "ECE", "bins (a, b] of equal width", AT(ece), -1},
    {"mce", "MCE", "the largest gap of a bin", AT(mce), -1},
    {"rms_ce", "RMS calibration error", "the root of the mean squared gap", AT(rms), -1},
    {"adaptive_ece", "adaptive ECE", "bins of as many rows each", AT(adaptive), -1},
    {"ks", "KS", "without bins", AT(ks), -1},
    {"debiased_ce", "debiased error", "RMS, less what chance makes of it", AT(debiased), -1},
    {"classwise_ece", "classwise ECE", "the mean over the classes of the ECE of each", AT(classwise), -1},
    {"mmce", "MMCE", "without bins, by a kernel", AT(mmce), -1},
    {"reliability", "reliability", "of confidence as a forecast; 0 is best", AT(reliability), -1},
    {"resolution", "resolution", "how far it tells rows apart; large is good", AT(resolution), -1},
    {"uncertainty", "uncertainty", "of whether a row is right", AT(uncertainty), -1},
    {"auroc", "AUROC", "right rows above wrong ones, by confidence", AT(auroc), -1},
    {"aupr_right", "AUPR right", "right rows as those to be found", AT(precision), -1},
    {"aupr_wrong", "AUPR wrong", "wrong rows as those to be found", AT(other_precision), -1},
    {"fpr95", "FPR95", "wrong rows above a threshold that 95 % of the right ones reach", AT(fpr), -1},
    {"aurc", "AURC", "the mean error rate over all coverages", AT(aurc), -1},
    {"e_aurc", "E-AURC", "AURC above that of the best order", AT(excess), -1},
};
/* clang-format on */
enum { METRICS = sizeof metrics / sizeof *metrics, NAME_COLUMNS = 22, TEXT = 128 };

static const char *const score_titles[JUDGE_SURE] = {"msp", "energy", "max_logit"};

static double value_of(const measures *m, const shown *s) {
  double v;
  memcpy(&v, (const char *)m + s->at, sizeof v);
  return v;
}

/* ---- The screen ---- */

static void number_text(double v, char *text, size_t size) {
  if (isnan(v)) snprintf(text, size, "-");
  else snprintf(text, size, "%.6g", v);
}

static void print_line(FILE *to, const char *name, double v, const interval *range, const char *about) {
  char number[TEXT], low[TEXT], high[TEXT], both[2 * TEXT + 8] = "";
  number_text(v, number, sizeof number);
  if (range && !isnan(range->low)) {
    number_text(range->low, low, sizeof low), number_text(range->high, high, sizeof high);
    snprintf(both, sizeof both, "%s to %s", low, high);
  }
  fprintf(to, "%-*s %10s", NAME_COLUMNS, name, number);
  if (*about) fprintf(to, "  %-25s %s", both, about);
  else if (*both) fprintf(to, "  %s", both);
  fputc('\n', to);
}

void measure_print(FILE *to, const measures *m) {
  char text[TEXT];
  fprintf(to, "%-*s %10s  %-25s %s\n", NAME_COLUMNS, "metric", "value", "95 % interval", "what it is");
  for (int i = 0; i < METRICS; i++) {
    const shown *s = metrics + i;
    const bool top = s->at == AT(top_k);
    if (top) snprintf(text, sizeof text, "top-%" PRId64 " accuracy", m->k);
    print_line(to, top ? text : s->title, value_of(m, s), s->mean < 0 ? NULL : &m->mean[s->mean], s->about);
  }
  fprintf(to, "%" PRId64 " row%s of %" PRId64 " classes", m->rows, m->rows == 1 ? "" : "s", m->classes);
  if (m->rows != m->all) fprintf(to, "; %" PRId64 " left out", m->all - m->rows);
  if (m->weighted) fprintf(to, "; weight %g", m->weight);
  if (m->temperature != 1) fprintf(to, "; temperature %g", m->temperature);
  if (m->draws.count) fprintf(to, "; %" PRId64 " draws", m->draws.count);
  fprintf(to, "; %" PRId64 " bins\n", m->bin_count);
}

void measure_print_outliers(FILE *to, const outliers *u) {
  fprintf(to, "\n%-*s %10s %10s %10s %10s %10s\n", NAME_COLUMNS, "inside from outside by", "AUROC", "AUPR",
          "AUPR out", "FPR95", "error");
  for (int k = 0; k < JUDGE_SURE; k++)
    fprintf(to, "%-*s %10.6g %10.6g %10.6g %10.6g %10.6g\n", NAME_COLUMNS, score_titles[k], u->auroc[k],
            u->precision[k], u->other_precision[k], u->fpr[k], u->error[k]);
  fprintf(to, "%" PRId64 " rows inside, %" PRId64 " outside\n", u->inside, u->outside);
}

void measure_print_comparison(FILE *to, const comparison *c) {
  fputc('\n', to);
  print_line(to, "accuracy, second less", c->accuracy, &c->accuracy_range, "");
  print_line(to, "log loss, second less", c->log_loss, &c->log_loss_range, "");
  print_line(to, "McNemar p, exact", c->p, NULL, "");
  if (!isnan(c->drawn)) print_line(to, "log loss p, by signs", c->drawn, NULL, "");
  fprintf(to,
          "right: both %" PRId64 ", first alone %" PRId64 ", second alone %" PRId64 ", neither %" PRId64 "\n",
          c->both, c->first, c->second, c->neither);
}

/* ---- JSON ---- */

json_t *measure_text(const char *text) {
  char *tame = strdup(text);
  if (tame) utf8_tame(tame);
  json_t *string = json_string(tame);
  free(tame);
  return string;
}

static json_t *range_json(const interval *r) {
  return json_pack("[o, o]", json_number(r->low), json_number(r->high));
}

json_t *measure_json(const measures *m) {
  json_t *values = json_object(), *ranges = json_object();
  for (int i = 0; i < METRICS; i++) {
    const shown *s = metrics + i;
    json_object_set_new(values, s->key, json_number(value_of(m, s)));
    if (s->mean >= 0) json_object_set_new(ranges, s->key, range_json(&m->mean[s->mean]));
  }
  json_t *all = json_pack(
      "{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:{s:o, s:o, s:o}}", "rows", (json_int_t)m->rows, "left_out",
      (json_int_t)(m->all - m->rows), "classes", (json_int_t)m->classes, "k", (json_int_t)m->k, "temperature",
      json_number(m->temperature), "metrics", values, "intervals", ranges, "bins", "count",
      json_counts(m->bin_rows, m->bin_count), "confidence", json_numbers(m->bin_mean, m->bin_count),
      "accuracy", json_numbers(m->bin_accuracy, m->bin_count));
  if (m->weighted) json_object_set_new(all, "weight", json_number(m->weight));
  if (m->draws.count)
    json_object_set_new(
        all, "draws",
        json_pack("{s:I, s:I}", "count", (json_int_t)m->draws.count, "seed", (json_int_t)m->draws.seed));
  return all;
}

json_t *measure_json_definitions(void) {
  json_t *array = json_array();
  for (int i = 0; i < METRICS; i++)
    json_array_append_new(array, json_pack("{s:s, s:s, s:s}", "key", metrics[i].key, "title",
                                           metrics[i].title, "about", metrics[i].about));
  return array;
}

json_t *measure_json_outliers(const outliers *u) {
  json_t *scores = json_object();
  for (int k = 0; k < JUDGE_SURE; k++)
    json_object_set_new(scores, score_titles[k],
                        json_pack("{s:o, s:o, s:o, s:o, s:o}", "auroc", json_number(u->auroc[k]), "aupr_in",
                                  json_number(u->precision[k]), "aupr_out",
                                  json_number(u->other_precision[k]), "fpr95", json_number(u->fpr[k]),
                                  "detection_error", json_number(u->error[k])));
  return json_pack("{s:I, s:I, s:o}", "inside", (json_int_t)u->inside, "outside", (json_int_t)u->outside,
                   "scores", scores);
}

json_t *measure_json_comparison(const comparison *c) {
  json_t *all = json_pack("{s:{s:I, s:I, s:I, s:I}, s:s, s:o, s:{s:o, s:o}, s:{s:o, s:o}}", "right", "both",
                          (json_int_t)c->both, "first", (json_int_t)c->first, "second", (json_int_t)c->second,
                          "neither", (json_int_t)c->neither, "test", "McNemar, exact, two sides", "p",
                          json_number(c->p), "accuracy", "difference", json_number(c->accuracy), "interval",
                          range_json(&c->accuracy_range), "log_loss", "difference", json_number(c->log_loss),
                          "interval", range_json(&c->log_loss_range));
  if (!isnan(c->drawn))
    json_object_set_new(json_object_get(all, "log_loss"), "p_by_signs", json_number(c->drawn));
  return all;
}
