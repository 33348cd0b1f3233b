/* score/ref.c - scores straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

/* In long double, because small scores cancel in these formulas. A row: logits z, log-probabilities
 * l, probabilities p; first and second are where the largest are; q: the second parameter. */
typedef struct ref_row {
  const double *z;
  long double *l, *p, q, temperature, lse;
  int64_t n, first, second, target;
} ref_row;

static void make_row(ref_row *r) {
  long double sum = 0;
  r->first = 0, r->second = -1;
  for (int64_t i = 1; i < r->n; i++)
    if (r->z[i] > r->z[r->first]) r->first = i;
  for (int64_t i = 0; i < r->n; i++)
    if (i != r->first && (r->second < 0 || r->z[i] > r->z[r->second])) r->second = i;
  for (int64_t i = 0; i < r->n; i++) sum += expl((r->z[i] - r->z[r->first]) / r->temperature);
  r->lse = r->z[r->first] / r->temperature + logl(sum);
  for (int64_t i = 0; i < r->n; i++) r->l[i] = r->z[i] / r->temperature - r->lse, r->p[i] = expl(r->l[i]);
}

static long double sum_of(const ref_row *r, long double (*term)(const ref_row *r, int64_t i)) {
  long double sum = 0;
  for (int64_t i = 0; i < r->n; i++) sum += term(r, i);
  return sum;
}
static long double second_of(const ref_row *r) { return r->second < 0 ? 0 : r->p[r->second]; }
static long double power_term(const ref_row *r, int64_t i) { return expl(r->q * r->l[i]); }
static long double entropy_term(const ref_row *r, int64_t i) { return -r->p[i] * r->l[i]; }
static long double other_term(const ref_row *r, int64_t i) { return i == r->first ? 0 : r->p[i]; }
static long double two_term(const ref_row *r, int64_t i) { return r->p[i] * (1 - r->p[i]); }
static long double same_term(const ref_row *r, int64_t i) { return r->p[i] * r->p[i]; }
static long double logit_term(const ref_row *r, int64_t i) {
  return r->z[i] / r->temperature / (long double)r->n;
}
static long double uniform_term(const ref_row *r, int64_t i) {
  return fabsl(r->p[i] - 1 / (long double)r->n);
}
static long double square_term(const ref_row *r, int64_t i) {
  const long double d = r->z[i] / r->temperature - sum_of(r, logit_term);
  return d * d / (long double)(r->n - 1);
}

static long double msp(const ref_row *r) { return r->p[r->first]; }
static long double least_confidence(const ref_row *r) {
  if (r->n == 1) return 0;
  return sum_of(r, other_term) / (r->q != 0 ? 1 - 1 / (long double)r->n : 1);
}
static long double margin(const ref_row *r) { return r->p[r->first] - second_of(r); }
static long double ratio(const ref_row *r) { return second_of(r) / r->p[r->first]; }
static long double max_logit(const ref_row *r) { return r->z[r->first]; }
static long double logit_margin(const ref_row *r) {
  return r->second < 0 ? INFINITY : r->z[r->first] - r->z[r->second];
}
static long double energy(const ref_row *r) { return r->temperature * r->lse; }
static long double entropy(const ref_row *r) {
  if (r->n == 1) return 0;
  return sum_of(r, entropy_term) / (r->q != 0 ? logl((long double)r->n) : 1);
}
static long double renyi(const ref_row *r) {
  return r->q == 1 ? sum_of(r, entropy_term) : logl(sum_of(r, power_term)) / (1 - r->q);
}
static long double tsallis(const ref_row *r) {
  return r->q == 1 ? sum_of(r, entropy_term) : (1 - sum_of(r, power_term)) / (r->q - 1);
}
static long double gini(const ref_row *r) { return sum_of(r, two_term); }
static long double kl_to(const ref_row *r) { return logl((long double)r->n) - sum_of(r, entropy_term); }
static long double kl_from(const ref_row *r) {
  return r->lse - sum_of(r, logit_term) - logl((long double)r->n);
}
static long double variance(const ref_row *r) { return r->n == 1 ? NAN : sum_of(r, square_term); }
static long double non_uniformity(const ref_row *r) { return sum_of(r, uniform_term) / (r->q != 0 ? 2 : 1); }
static long double doctor_alpha(const ref_row *r) { return gini(r) / sum_of(r, same_term); }
static long double doctor_beta(const ref_row *r) { return sum_of(r, other_term) / r->p[r->first]; }
static long double brier(const ref_row *r) {
  long double sum = 0;
  for (int64_t i = 0; i < r->n; i++) sum += (r->p[i] - (i == r->target)) * (r->p[i] - (i == r->target));
  return sum;
}
static long double true_class(const ref_row *r) { return r->p[r->target] / (r->q != 0 ? r->p[r->first] : 1); }

static long double (*const scores[SCORE_ROWS])(const ref_row *r) = {
    msp,         least_confidence, margin, ratio, max_logit, logit_margin, energy,         entropy,
    renyi,       tsallis,          gini,   kl_to, kl_from,   variance,     non_uniformity, doctor_alpha,
    doctor_beta, true_class,       brier};

static void each_row(const tensor_ref_call *c, int which) {
  const int64_t n = ref_last(c->in_shape[0]);
  long double *work = calloc((size_t)(2 * n), sizeof *work);
  const bool second = which == SCORE_least_confidence || which == SCORE_entropy ||
                      which == SCORE_renyi_entropy || which == SCORE_tsallis_entropy ||
                      which == SCORE_label_non_uniformity || which == SCORE_true_class_probability;
  for (int64_t i = 0; i < ref_rows(c->in_shape[0]); i++) {
    ref_row r = {c->in[0] + i * n, work, work + n, second ? c->q[1] : 0, c->q[0]};
    r.n = n, r.target = which >= SCORE_true_class_probability ? (int64_t)c->in[1][i] : 0;
    make_row(&r);
    c->out[0][i] = (double)scores[which](&r);
  }
  free(work);
}

/* ---- ensemble_scores ---- */

static long double log_or_0(long double p) { return p > 0 ? logl(p) : 0; }

static void ensemble_row(const double *z, int64_t m, int64_t n, double temperature, long double *p,
                         long double *y) {
  long double *mean = p + m * n, most = 0;
  for (int64_t i = 0; i < n; i++) mean[i] = 0;
  for (int o = 0; o < SCORE_ENSEMBLE; o++) y[o] = 0;
  for (int64_t k = 0; k < m; k++) {
    long double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += p[k * n + i] = expl(z[k * n + i] / (long double)temperature);
    for (int64_t i = 0; i < n; i++) p[k * n + i] /= sum, mean[i] += p[k * n + i] / (long double)m;
  }
  for (int64_t i = 0; i < n; i++) {
    long double votes = 0;
    y[SCORE_OF_MEAN] -= mean[i] * log_or_0(mean[i]);
    for (int64_t a = 0; a < m; a++) {
      const long double pa = p[a * n + i];
      int64_t best = 0;
      for (int64_t c = 1; c < n; c++)
        if (z[a * n + c] > z[a * n + best]) best = c;
      votes += best == i;
      y[SCORE_EXPECTED] -= pa * log_or_0(pa) / (long double)m;
      y[SCORE_SPREAD] += (pa - mean[i]) * (pa - mean[i]) / (long double)m;
      for (int64_t b = 0; b < m; b++) {
        const long double pb = p[b * n + i], pairs = (long double)(m * (m - 1));
        if (a != b)
          y[SCORE_SIMILARITY] += pa * pb / pairs,
              y[SCORE_PAIRWISE] += pa * (log_or_0(pa) - log_or_0(pb)) / pairs;
      }
    }
    most = fmaxl(most, votes / (long double)m);
    y[SCORE_VOTES] -= votes / (long double)m * log_or_0(votes / (long double)m);
  }
  y[SCORE_INFORMATION] = y[SCORE_OF_MEAN] - y[SCORE_EXPECTED], y[SCORE_VARIATION] = 1 - most;
  if (m == 1) y[SCORE_SIMILARITY] = y[SCORE_PAIRWISE] = NAN;
}

static void ensemble_scores_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  int dims = 0;
  while (dims < 8 && c->in_shape[0][dims] > 0) dims++;
  const int64_t m = c->in_shape[0][dims - 2], rows = ref_rows(c->in_shape[0]) / m;
  long double *p = calloc((size_t)((m + 1) * n), sizeof *p), y[SCORE_ENSEMBLE];
  for (int64_t r = 0; r < rows; r++) {
    ensemble_row(c->in[0] + r * m * n, m, n, c->q[0], p, y);
    for (int o = 0; o < SCORE_ENSEMBLE; o++)
      if (c->out[o]) c->out[o][r] = (double)y[o];
  }
  free(p);
}

/* ---- glassbox_features ---- */

static void glassbox_features_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), length = ref_last(c->in_shape[1]);
  long double *work = calloc((size_t)(2 * n), sizeof *work);
  for (int64_t i = 0; i < ref_rows(c->in_shape[1]); i++) {
    long double y[6] = {0};
    for (int64_t t = i * length; t < (i + 1) * length; t++) {
      ref_row r = {c->in[0] + t * n, work, work + n, 0, c->q[0]};
      if (c->in[1][t] < 0) continue;
      r.n = n, r.target = (int64_t)c->in[1][t];
      make_row(&r);
      const long double l = r.l[r.target];
      y[0] += l, y[1] += sum_of(&r, entropy_term), y[2] += n > 1 ? sum_of(&r, square_term) : NAN;
      y[3] = y[5] == 0 ? l : fminl(y[3], l), y[5]++;
    }
    for (int k = 0; k < 3; k++) y[k] /= y[5];
    y[4] = expl(-y[0]);
    for (int o = 0; o < 6; o++)
      if (c->out[o]) c->out[o][i] = (double)y[o];
  }
  free(work);
}

/* ---- evidential_score ---- */

static void evidential_score_ref(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t r = 0; r < ref_rows(c->in_shape[0]); r++) {
    const double *z = c->in[0] + r * n;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++)
      for (int64_t i = 0; i < n; i++) {
        const double forms[] = {fmax(z[i], 0), log1p(exp(z[i])), exp(fmin(fmax(z[i], -10), 10))};
        const double alpha = forms[(int)c->q[0]] + 1;
        if (pass == 0) sum += alpha;
        else c->out[0][r * n + i] = alpha / sum;
      }
    if (c->out[1]) c->out[1][r] = (double)n / sum;
  }
}

#define REF(name) \
  static void name##_ref(const tensor_ref_call *c) { each_row(c, SCORE_##name); }
REF(msp)
REF(least_confidence)
REF(margin)
REF(ratio)
REF(max_logit)
REF(logit_margin)
REF(energy)
REF(entropy)
REF(renyi_entropy)
REF(tsallis_entropy)
REF(gini)
REF(kl_to_uniform)
REF(kl_from_uniform)
REF(logit_variance)
REF(label_non_uniformity)
REF(doctor_alpha)
REF(doctor_beta)
REF(true_class_probability)
REF(brier_score)

tensor_ref_fn *const score_refs[] = {msp_ref,
                                     least_confidence_ref,
                                     margin_ref,
                                     ratio_ref,
                                     max_logit_ref,
                                     logit_margin_ref,
                                     energy_ref,
                                     entropy_ref,
                                     renyi_entropy_ref,
                                     tsallis_entropy_ref,
                                     gini_ref,
                                     kl_to_uniform_ref,
                                     kl_from_uniform_ref,
                                     logit_variance_ref,
                                     label_non_uniformity_ref,
                                     doctor_alpha_ref,
                                     doctor_beta_ref,
                                     true_class_probability_ref,
                                     brier_score_ref,
                                     ensemble_scores_ref,
                                     glassbox_features_ref,
                                     evidential_score_ref,
                                     ranking_metrics_ref,
                                     calibration_error_ref,
                                     risk_coverage_ref,
                                     classification_metrics_ref,
                                     generalised_entropy_ref,
                                     react_ref,
                                     ash_ref,
                                     odin_perturb_ref,
                                     odin_ref,
                                     brier_decomposition_ref,
                                     classwise_calibration_error_ref,
                                     mean_interval_ref,
                                     paired_test_ref,
                                     budget_select_ref,
                                     stream_query_ref,
                                     kernel_calibration_error_ref,
                                     tcp_loss_ref,
                                     badge_select_ref,
                                     anchor_subpool_ref,
                                     neuronal_stream_ref,
                                     neuronal_pool_ref};
