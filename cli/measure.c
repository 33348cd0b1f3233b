/* measure.c - the metrics of a set. Sums go over the rows in their order, in double. */
#include "measure.h"

#include "bind.h"
#include "fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define Z95 1.959963984540054 /* 95 % of a normal distribution are within so many deviations */

/* ---- Operators of a set ---- */

/* An output that is wanted: its name, and where it goes. */
typedef struct wanted {
  const char *name;
  void *to;
  smx_dtype type;
  int64_t count; /* 0: one number */
} wanted;

/* Inputs of n numbers: y, a mask where `mask`, and the weights may be NULL. */
typedef struct set {
  int64_t n;
  const double *x;
  const void *y;
  bool mask;
  const double *w;
} set;

static int run_set(smx_context *context, const char *name, const smx_params *given, const set *s, int count,
                   const wanted *want) {
  const smx_op *op = smx_op_find(name);
  smx_params params;
  int64_t shape[] = {s->n};
  smx_tensor inputs[] = {{(void *)(uintptr_t)s->x, {1, 0}, 1, SMX_F64, shape, NULL, 0},
                         {(void *)(uintptr_t)s->y, {1, 0}, 1, s->mask ? SMX_U8 : SMX_F64, shape, NULL, 0},
                         {(void *)(uintptr_t)s->w, {1, 0}, 1, SMX_F64, shape, NULL, 0}};
  smx_tensor results[SMX_MAX_PORTS];
  const smx_tensor *in[SMX_MAX_PORTS] = {&inputs[0]}, *out[SMX_MAX_PORTS] = {NULL};
  int32_t given_in = 1;
  if (s->y) in[given_in++] = &inputs[1];
  if (s->w) in[given_in++] = &inputs[2]; /* the last input of all that have it */
  smx_params_init(op, &params);
  for (int k = 0; k < count; k++) {
    int64_t *length = (int64_t *)(uintptr_t)&want[k].count;
    results[k] = (smx_tensor){want[k].to, {1, 0}, want[k].count ? 1 : 0, want[k].type, length, NULL, 0};
    out[find_output(op, want[k].name)] = &results[k];
  }
  const smx_status status =
      smx_forward(op, context, given ? given : &params, given_in, in, op->output_count, out);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "%s", smx_last_error());
}

/* Confidences, and whether they are right. */
static set confidences(const judged *j, const unsigned char *right) {
  return (set){j->rows, j->score[JUDGE_MSP], right, true, j->weight};
}

static int calibrate(measures *m, smx_context *context, const judged *j, const unsigned char *right) {
  const smx_op *op = smx_op_find("calibration_error");
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "bins", (double)m->bin_count);
  const wanted want[] = {{"ece", &m->ece, SMX_F64, 0},
                         {"mce", &m->mce, SMX_F64, 0},
                         {"rms", &m->rms, SMX_F64, 0},
                         {"adaptive", &m->adaptive, SMX_F64, 0},
                         {"ks", &m->ks, SMX_F64, 0},
                         {"mean", m->bin_mean, SMX_F64, m->bin_count},
                         {"accuracy", m->bin_accuracy, SMX_F64, m->bin_count}};
  double ece;
  const wanted rows[] = {{"ece", &ece, SMX_F64, 0}, {"count", m->bin_rows, SMX_I64, m->bin_count}};
  set s = confidences(j, right);
  int code = run_set(context, op->name, &params, &s, sizeof want / sizeof *want, want);
  s.w = NULL; /* how many rows there are is no matter of weights */
  return code ? code : run_set(context, op->name, &params, &s, 2, rows);
}

/* The parts of the Brier score of being right, and the calibration error less what chance makes. */
static int decompose(measures *m, smx_context *context, const judged *j, const unsigned char *right) {
  const smx_op *op = smx_op_find("brier_decomposition");
  smx_params params;
  double whole;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "bins", (double)m->bin_count);
  const wanted want[] = {{"brier", &whole, SMX_F64, 0},
                         {"reliability", &m->reliability, SMX_F64, 0},
                         {"resolution", &m->resolution, SMX_F64, 0},
                         {"uncertainty", &m->uncertainty, SMX_F64, 0},
                         {"debiased", &m->debiased, SMX_F64, 0}};
  const set s = confidences(j, right);
  return run_set(context, op->name, &params, &s, sizeof want / sizeof *want, want);
}

static int weigh_pairs(measures *m, smx_context *context, const judged *j, const unsigned char *right) {
  double unbiased;
  const wanted want[] = {{"mmce", &m->mmce, SMX_F64, 0}, {"unbiased", &unbiased, SMX_F64, 0}};
  const set s = confidences(j, right);
  return run_set(context, "kernel_calibration_error", NULL, &s, 2, want);
}

static int rank(double *auroc, double *precision, double *other, double *fpr, double *error,
                smx_context *context, const set *s) {
  const wanted want[] = {{"auroc", auroc, SMX_F64, 0},
                         {"average_precision", precision, SMX_F64, 0},
                         {"average_precision_negative", other, SMX_F64, 0},
                         {"fpr", fpr, SMX_F64, 0},
                         {"detection_error", error, SMX_F64, 0}};
  return run_set(context, "ranking_metrics", NULL, s, error ? 5 : 4, want);
}

static int cover(measures *m, smx_context *context, const judged *j, const unsigned char *right) {
  double *wrong = malloc((size_t)j->rows * sizeof *wrong + 1);
  if (!wrong) return fault_memory((size_t)j->rows * sizeof *wrong);
  for (int64_t i = 0; i < j->rows; i++) wrong[i] = !right[i];
  const wanted want[] = {{"aurc", &m->aurc, SMX_F64, 0},
                         {"excess", &m->excess, SMX_F64, 0},
                         {"risk", m->risk, SMX_F64, j->rows}};
  const set s = {j->rows, j->score[JUDGE_MSP], wrong, false, j->weight};
  int code = run_set(context, "risk_coverage", NULL, &s, 3, want);
  free(wrong);
  return code;
}

/* ---- Means and their intervals ---- */

static double weight_of(const judged *j, int64_t row) { return j->weight ? j->weight[row] : 1; }

static double mean_of(const judged *j, const double *x) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < j->rows; i++) sum += weight_of(j, i) * x[i], all += weight_of(j, i);
  return sum / all;
}

/* Of a share of n, by Wilson's score. */
static interval wilson(double share, int64_t n) {
  const double count = (double)n, by = 1 + Z95 * Z95 / count, middle = (share + Z95 * Z95 / (2 * count)) / by,
               half = Z95 * sqrt(share * (1 - share) / count + Z95 * Z95 / (4 * count * count)) / by;
  return (interval){share > 0 ? middle - half : 0, share < 1 ? middle + half : 1}; /* exact at the ends */
}

/* Of a mean of n numbers, by the normal distribution; of fewer than two, or of some that are not
 * finite, NaN. */
static interval normal(double mean, double squares, int64_t n) {
  const double half = n > 1 ? Z95 * sqrt(squares / (double)(n - 1) / (double)n) : NAN;
  return (interval){mean - half, mean + half};
}

static interval interval_of(const double *x, double mean, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
  return normal(mean, squares, n);
}

/* An operator with the draws that are asked for. */
static int run_draws(const measure_request *r, const char *name, const set *s, int count,
                     const wanted *want) {
  const smx_op *op = smx_op_find(name);
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "draws", (double)r->draws.count);
  smx_params_set(op, &params, "seed", (double)r->draws.seed);
  return run_set(r->context, name, &params, s, count, want);
}

/* By mean_interval. */
static int draw_interval(interval *i, const double *x, const judged *j, const measure_request *r) {
  double mean;
  const wanted want[] = {
      {"mean", &mean, SMX_F64, 0}, {"low", &i->low, SMX_F64, 0}, {"high", &i->high, SMX_F64, 0}};
  return run_draws(r, "mean_interval", &(set){j->rows, x, NULL, false, j->weight}, 3, want);
}

static int draw_intervals(measures *m, const judged *j, const unsigned char *right,
                          const measure_request *r) {
  if (!r->draws.count) return EXIT_OK;
  double *is = malloc((size_t)j->rows * sizeof *is);
  int code = is ? EXIT_OK : fault_memory((size_t)j->rows * sizeof *is);
  for (int64_t i = 0; !code && i < j->rows; i++) is[i] = right[i];
  const double *const x[MEASURE_MEANS] = {is, j->loss, j->score[JUDGE_BRIER]};
  for (int k = 0; !code && k < MEASURE_MEANS; k++) code = draw_interval(&m->mean[k], x[k], j, r);
  free(is);
  return code;
}

/* ---- Classes ---- */

static void count_classes(measures *m, const judged *j) {
  for (int64_t i = 0; i < j->rows; i++) {
    const double w = weight_of(j, i);
    class_count *taken = m->of_class + j->predicted[i];
    m->of_class[j->target[i]].there += w;
    taken->taken += w, taken->right += j->predicted[i] == j->target[i] ? w : 0;
    taken->confidence += w * j->score[JUDGE_MSP][i];
  }
}

/* What classification_metrics has, whose table of who was taken for whom is too large for the
 * classes of a vocabulary. A quotient of nothing is 0; classes that do not occur take no part. */
static void average_classes(measures *m) {
  int power; /* of two, about all weights, which have fourth powers here */
  const double all = frexp(m->weight, &power);
  double right = 0, both = 0, taken = 0, there = 0, some = 0, true_ones = 0, f1 = 0, recall = 0;
  for (int64_t k = 0; k < m->classes; k++) {
    const class_count *c = m->of_class + k;
    const double p = ldexp(c->taken, -power), t = ldexp(c->there, -power), r = ldexp(c->right, -power);
    right += r, both += p * t, taken += p * p, there += t * t;
    if (p > 0 || t > 0) some++, f1 += 2 * r / (p + t);
    if (t > 0) true_ones++, recall += r / t;
  }
  const double by = (all * all - taken) * (all * all - there);
  m->macro_f1 = f1 / some, m->balanced = recall / true_ones;
  m->matthews = by > 0 ? (right * all - both) / sqrt(by) : 0;
}

/* ---- All of it ---- */

static int reserve(measures *m) {
  const size_t bins = (size_t)m->bin_count;
  m->of_class = calloc((size_t)m->classes, sizeof *m->of_class);
  m->bin_rows = calloc(bins, sizeof *m->bin_rows);
  m->bin_mean = calloc(2 * bins + (size_t)m->rows, sizeof *m->bin_mean);
  if (!m->of_class || !m->bin_rows || !m->bin_mean)
    return fault_memory((size_t)m->classes * sizeof *m->of_class + (size_t)m->rows * sizeof *m->bin_mean);
  m->bin_accuracy = m->bin_mean + bins, m->risk = m->bin_accuracy + bins;
  return EXIT_OK;
}

static void average(measures *m, const judged *j, const unsigned char *right) {
  double good = 0, near = 0;
  for (int64_t i = 0; i < j->rows; i++) {
    const double w = weight_of(j, i);
    m->weight += w, good += right[i] ? w : 0, near += j->rank[i] < m->k ? w : 0;
  }
  m->accuracy = good / m->weight, m->top_k = near / m->weight;
  m->log_loss = mean_of(j, j->loss), m->brier = mean_of(j, j->score[JUDGE_BRIER]);
  m->confidence = mean_of(j, j->score[JUDGE_MSP]), m->entropy = mean_of(j, j->score[JUDGE_ENTROPY]);
  for (int k = 0; k < MEASURE_MEANS; k++) m->mean[k] = (interval){NAN, NAN};
  if (j->weight) return; /* Wilson's is of counts, and the normal one of rows that are alike */
  m->mean[0] = wilson(m->accuracy, j->rows);
  m->mean[1] = interval_of(j->loss, m->log_loss, j->rows);
  m->mean[2] = interval_of(j->score[JUDGE_BRIER], m->brier, j->rows);
}

int measure(measures *m, const judged *j, const measure_request *r) {
  smx_context *context = r->context;
  *m = (measures){.rows = j->rows, .all = j->all, .classes = j->classes, .bin_count = r->bins};
  m->weighted = j->weight != NULL;
  m->k = r->k < j->classes ? r->k : j->classes, m->temperature = r->temperature, m->draws = r->draws;
  m->classwise = classwise_error(&j->of_class);
  unsigned char *right = malloc((size_t)j->rows);
  int code = right ? reserve(m) : fault_memory((size_t)j->rows);
  for (int64_t i = 0; !code && i < j->rows; i++) right[i] = j->predicted[i] == j->target[i];
  if (!code) average(m, j, right), count_classes(m, j), average_classes(m);
  if (!code) code = draw_intervals(m, j, right, r);
  if (!code) code = calibrate(m, context, j, right);
  if (!code) code = decompose(m, context, j, right);
  if (!code) code = weigh_pairs(m, context, j, right);
  if (!code)
    code = rank(&m->auroc, &m->precision, &m->other_precision, &m->fpr, NULL, context,
                &(set){j->rows, j->score[JUDGE_MSP], right, true, j->weight});
  if (!code) code = cover(m, context, j, right);
  free(right);
  return code;
}

void measure_free(measures *m) { free(m->of_class), free(m->bin_rows), free(m->bin_mean); }

/* ---- Outliers ---- */

int measure_outliers(outliers *u, const judged *in, const judged *out, smx_context *context) {
  const int64_t n = in->rows + out->rows;
  int code = EXIT_OK;
  double *score = malloc(2 * (size_t)n * sizeof *score), *const w = score ? score + n : NULL;
  unsigned char *inside = malloc((size_t)n);
  *u = (outliers){.inside = in->rows, .outside = out->rows};
  if (!score || !inside) code = fault_memory((size_t)n * sizeof *score);
  for (int64_t i = 0; !code && i < n; i++) inside[i] = i < in->rows, w[i] = inside[i] ? weight_of(in, i) : 1;
  for (int k = 0; !code && k < JUDGE_SURE; k++) {
    memcpy(score, in->score[k], (size_t)in->rows * sizeof *score);
    memcpy(score + in->rows, out->score[k], (size_t)out->rows * sizeof *score);
    code = rank(&u->auroc[k], &u->precision[k], &u->other_precision[k], &u->fpr[k], &u->error[k], context,
                &(set){n, score, inside, true, in->weight ? w : NULL});
  }
  free(score), free(inside);
  return code;
}

/* ---- Two models ---- */

/* The probability of at most `few` heads of n tosses, doubled: the terms get smaller from `few`
 * down, each by a ratio of whole numbers. */
static double mcnemar(int64_t few, int64_t n) {
  double sum = 1, term = 1;
  if (2 * few >= n) return 1;
  for (int64_t i = few; i > 0 && term > sum * 0x1p-60; i--)
    term *= (double)i / (double)(n - i + 1), sum += term;
  const double log_first = lgamma((double)n + 1) - lgamma((double)few + 1) - lgamma((double)(n - few) + 1);
  return fmin(1, 2 * sum * exp(log_first - (double)n * log(2)));
}

/* By paired_test: of the differences, each with either sign. */
static int draw_signs(comparison *c, const judged *a, const judged *b, const measure_request *r) {
  double difference;
  if (!r->draws.count) return EXIT_OK;
  const wanted want[] = {{"difference", &difference, SMX_F64, 0}, {"p", &c->drawn, SMX_F64, 0}};
  return run_draws(r, "paired_test", &(set){a->rows, b->loss, a->loss, false, NULL}, 2, want);
}

int measure_comparison(comparison *c, const judged *a, const judged *b, const measure_request *r) {
  double losses = 0, squares = 0;
  *c = (comparison){.drawn = NAN};
  for (int64_t i = 0; i < a->rows; i++) {
    const bool first = a->rank[i] == 0, second = b->rank[i] == 0;
    ++*(first ? (second ? &c->both : &c->first) : second ? &c->second : &c->neither);
    losses += b->loss[i] - a->loss[i];
  }
  const double n = (double)a->rows, moved = (double)(c->first + c->second);
  c->accuracy = (double)(c->second - c->first) / n, c->log_loss = losses / n;
  for (int64_t i = 0; i < a->rows; i++) {
    const double d = b->loss[i] - a->loss[i] - c->log_loss;
    squares += d * d;
  }
  c->p = mcnemar(c->first < c->second ? c->first : c->second, c->first + c->second);
  c->accuracy_range = normal(c->accuracy, moved - n * c->accuracy * c->accuracy, a->rows);
  c->log_loss_range = normal(c->log_loss, squares, a->rows);
  return draw_signs(c, a, b, r);
}
