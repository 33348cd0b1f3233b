/* score/score.h - the table of the operators that say how sure a row of logits is, and the contract
 * with the kernels of one instruction set and real type that sum a row for them. */
#ifndef SMX_SCORE_H
#define SMX_SCORE_H
#include <softmax.h>
#include <stdbool.h>

/* Scores of a row, which the same sums give; the order is that of the table. */
enum {
  SCORE_msp,
  SCORE_least_confidence,
  SCORE_margin,
  SCORE_ratio,
  SCORE_max_logit,
  SCORE_logit_margin,
  SCORE_energy,
  SCORE_entropy,
  SCORE_renyi_entropy,
  SCORE_tsallis_entropy,
  SCORE_gini,
  SCORE_kl_to_uniform,
  SCORE_kl_from_uniform,
  SCORE_logit_variance,
  SCORE_label_non_uniformity,
  SCORE_doctor_alpha,
  SCORE_doctor_beta,
  SCORE_true_class_probability,
  SCORE_brier_score,
  SCORE_ROWS, /* those are scores of a row */
  SCORE_ensemble_scores = SCORE_ROWS,
  SCORE_glassbox_features,
  SCORE_evidential_score,
  SCORE_ranking_metrics,
  SCORE_calibration_error,
  SCORE_risk_coverage,
  SCORE_classification_metrics,
  SCORE_generalised_entropy,
  SCORE_react,
  SCORE_ash,
  SCORE_odin_perturb,
  SCORE_odin,
  SCORE_brier_decomposition,
  SCORE_classwise_calibration_error,
  SCORE_mean_interval,
  SCORE_paired_test,
  SCORE_budget_select,
  SCORE_stream_query,
  SCORE_kernel_calibration_error,
  SCORE_tcp_loss,
  SCORE_badge_select,
  SCORE_anchor_subpool,
  SCORE_neuronal_stream,
  SCORE_neuronal_pool,
  SCORE_COUNT
};
extern const smx_op score_table[SCORE_COUNT];

/* smx_scores of softmax/scores.h (functions_rows.c). */
smx_status scores_forward(smx_context *ctx, int32_t count, const smx_op *const *scores,
                          const smx_params *params, const smx_tensor *logits, const smx_tensor *target,
                          const smx_tensor *out);

/* Which sums a score needs, a bit each. Sums of exponentials are always made. */
enum { SCORE_VARIANCE = 1, SCORE_ABSOLUTE = 2, SCORE_POWER = 4, SCORE_PLACES = 8 };

enum { SCORE_ROOM = 16384 }; /* elements of a work area, in whole vectors: longer rows have none */

typedef struct score_row {
  double temperature, order; /* order: of SCORE_POWER */
  uint32_t sums;             /* bits as above */
  bool limit;                /* +inf entries share the mass; else they make the row NaN */
} score_row;

/* With n elements above -inf, d = (z - max) / temperature, e = e^d, s = sum e, p = e / s. */
typedef struct score_sums {
  bool nan;                        /* then nothing else counts */
  double valid, ties;              /* n, and how many are the largest */
  double max, second;              /* of the logits; second is -inf where there is no other */
  int64_t index, next;             /* where they are first, of SCORE_PLACES; -1 */
  double rest, log_sum, log_valid; /* s - 1, log s, log n */
  double below, moment, squares;   /* sums of e, e d and e^2 of what is below the largest */
  double mean, variance;           /* of d; the variance divides by n - 1 */
  double absolute, sign;           /* sums of |p - 1/n|, and of p where it is above 1/n less those below */
  double power;                    /* the logarithm of sum p^order */
} score_sums;

/* dz = p (a + b d + c p + sign sgn(p - 1/n)) + power (q - p) + level + slope d; q is the softmax of
 * order times d, and near = true: power p expm1((order - 1) (log p - at)) instead. */
typedef struct score_slope {
  double a, b, c, sign, power, level, slope, at;
  bool near;
} score_slope;

/* The outputs of ensemble_scores. */
enum {
  SCORE_INFORMATION,
  SCORE_OF_MEAN,
  SCORE_EXPECTED,
  SCORE_SIMILARITY,
  SCORE_SPREAD,
  SCORE_VARIATION,
  SCORE_VOTES,
  SCORE_PAIRWISE,
  SCORE_ENSEMBLE
};
/* Predictions of one row: logits and probabilities [members, classes], and the mean of these. */
typedef struct score_ensemble {
  const double *z;
  double *p, *mean;
  int64_t members, classes;
  double temperature;
} score_ensemble;

/* Functions of n doubles; y may be x. */
typedef struct score_runs {
  void (*exp)(const double *x, int64_t n, double *y);
  void (*expm1)(const double *x, int64_t n, double *y);           /* of x <= 0 */
  void (*log)(const double *x, int64_t n, double *y);             /* as below */
  void (*power)(double p, const double *x, int64_t n, double *y); /* of x >= 0, and p != 0 */
  /* sum_j (row_j - line_j)^2, in order, of SCORE_SIDE rows side by side: [d, SCORE_SIDE] */
  void (*squares)(const double *rows, const double *line, int64_t d, double *sum);
} score_runs;
enum { SCORE_SIDE = 16 };

/* What random words are for, by the numbers of vec/philox.h: those of two purposes have nothing to
 * do with each other. */
typedef enum score_draw {
  SCORE_DRAW_HASHES = 11,
  SCORE_DRAW_HASH_SIGNS = 12,
  SCORE_DRAW_CELLS = 15,
  SCORE_DRAW_ROWS = 18,
  SCORE_DRAW_SIGNS = 19,
  SCORE_DRAW_CLASSES = 20
} score_draw;

typedef struct score_kernels {
  /* work: room for n rounded up to whole vectors, SCORE_ROOM at most, of the real type. */
  void (*sums)(const score_row *r, const void *z, int64_t n, void *work, score_sums *s);
  /* Adds up nothing: writes all n of dz. */
  void (*gradient)(const score_row *r, const void *z, int64_t n, const score_sums *s, const score_slope *g,
                   void *dz);
  /* Makes p, mean and the values; false: a NaN, +inf, or a prediction without classes. */
  bool (*ensemble)(const score_ensemble *e, double *value);
  /* up: of the values, of which the last four have none. */
  void (*ensemble_gradient)(const score_ensemble *e, const double *up, double *dz);
  double (*exp)(double x); /* in double, as everywhere */
  double (*softplus)(double x);
  double (*expm1)(double x);
  double (*log)(double x); /* of what is no less than 2^-1022; 0: -inf */
  /* Two random words. */
  void (*draw)(uint64_t seed, uint64_t stream, score_draw of, uint64_t block, uint64_t words[2]);
  const score_runs *run; /* of f64; f32 has none */
} score_kernels;

/* From this distance of the order to 1 on sums of powers do not cancel. */
static inline bool score_is_near(double order) { return order > 0.5 && order < 1.5; }

#ifdef SMX_FN /* in kernels */
bool SMX_FN(score_ensemble_values)(const score_ensemble *e, double *value);
void SMX_FN(score_ensemble_gradient)(const score_ensemble *e, const double *up, double *dz);
extern const score_runs SMX_FN(score_runs);
#endif

#endif
