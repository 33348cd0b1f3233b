/* attention/weights.h - the interface between a kind of attention weights and the engine: how the
 * scores of a row become weights, and the sums of a row its output.
 *
 * The engine forms scores, sums weights times values and folds splits. A kind sees one row of one
 * split at a time:
 *
 *     stat    optional: a first pass over all splits of the row, if weights depend on all of it
 *     weigh   scores in, weights out: of one or two value channels, and up to three scalars, all of
 *             them relative to e^shift 2^scale_exp
 *     finish  once a row: what o is multiplied by, and the logarithm of the normaliser
 *     grad    weights and gradients of scores from scores, lse, and two dot products
 *     measure, settle   optional: walks over all splits of the row before, if the gradient depends
 *             on more of it; sums over its pairs, then what grad reads of them
 *
 * A score of -inf is a key that is not visible: its weight is +0. exp_open handles the shift, the
 * reference and NaN, so most kinds are a few lines. */
#ifndef SMX_ATTENTION_WEIGHTS_H
#define SMX_ATTENTION_WEIGHTS_H
#include "attention.h"
#include "engine/program.h"
#include "vec/math.h"

/* How scalars and the second channel of splits are folded: as sums relative to the reference (1),
 * as plain sums, or the larger is taken. */
typedef enum attn_fold { FOLD_SCALED, FOLD_PLAIN, FOLD_MAX } attn_fold;

/* A sum is e^shift 2^scale_exp times the number that stands for it. */
typedef struct attn_unit {
  double scale_exp, shift;
} attn_unit;

/* One row of a task. */
typedef struct attn_row {
  int64_t i, g;      /* row of the sequence, query head of the group */
  int64_t at;        /* where the row stands among the keys */
  int64_t low, high; /* keys low .. high - 1 may be visible, by logical index */
  double count;      /* number of visible keys, if the kind asks for it */
  double sink;       /* an additional key with this score and no value; -inf: none */
  real scale, slope; /* of the scores; slope of ALiBi */
  attn_unit unit;    /* the unit of the sums so far, */
  double gain;       /* and a factor that is still to be applied to them, scalars too */
  double a[ATTN_SCALARS];
  attn_unit stat_unit;
  double stat[ATTN_SCALARS];
  bool any; /* whether a key was visible */
} attn_row;

/* One row of one split. */
typedef struct weighing {
  real *z, *second;      /* in: scores; out: weights of both channels */
  int64_t first;         /* logical index of the key of z[0] */
  int from, to;          /* of the split; from is a multiple of ATTN_PANEL, to of LANES */
  real top;              /* the largest score */
  real scale_exp, shift; /* out: the unit of what follows, */
  real gain;             /* and a factor that is still to be applied (1 unless set) */
  real a[ATTN_SCALARS];
} weighing;

/* What a finished row is made of: out = o[0] factor[0] + o[1] factor[1]. */
typedef struct finished {
  double factor[2], lse;
  bool silent; /* lse is not an output: only whether it is NaN is used */
} finished;

/* Numbers of a row that its gradient needs. DELTA is <do, o> - dlse; the last are the kind's. */
enum { STAT_LSE, STAT_DELTA, STAT_SCALE, STAT_A, STAT_B, STAT_C, STAT_D };

/* n pairs of a row and keys, or of a key and rows: in scores and <do, v>; out weights and
 * gradients of the scores. */
typedef struct grading {
  real *z, *dp;
  const real *stat[ATTN_STATS]; /* of pair j at j * step: step is 1, or 0 for LANES times one number */
  int n, step;                  /* n is a multiple of ATTN_PANEL */
  /* z and dp come from the walk before, or from `measure` to `grad`: so the first walk of measure
   * may replace scores by what the later ones want, but for hidden ones */
  bool held;
  int64_t own; /* the pair whose row stands at its key, unless below 0 or from n on */
} grading;

SMI vreal graded(const grading *g, int which, int j) { return v_load(g->stat[which] + j * g->step); }

typedef struct weigher {
  int values; /* channels: 1 or 2 */
  bool counts;
  attn_fold scalar[ATTN_SCALARS];
  /* of the scores, besides that of the call; NULL: 1 */
  double (*scale)(const attn_call *c, const attn_row *row);
  double (*constant)(const attn_call *c); /* the score of one more sink; NULL: none */
  void (*stat)(const attn_call *c, attn_row *row, weighing *w);
  void (*weigh)(const attn_call *c, const attn_row *row, weighing *w);
  void (*finish)(const attn_call *c, const attn_row *row, finished *f);
  void (*grad)(const attn_call *c, const grading *g);
  int walks; /* of measure */
  /* Adds the pairs of one row and one split to ATTN_MEASURES sums, which start from 0. */
  void (*measure)(const attn_call *c, int walk, const grading *g, double *sums);
  void (*settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums, real *stat);
} weigher;

extern const weigher SMX_FN(attn_weighers)[];

/* Of kinds that measure (ops_weights_grad.c). */
#define MEASURED(name) \
  void SMX_FN(name##_measure)(const attn_call *c, int walk, const grading *g, double *sums); \
  void SMX_FN(name##_settle)(const attn_call *c, int walk, const attn_row *row, double dlse, double *sums, \
                             real *stat); \
  void SMX_FN(name##_grad)(const attn_call *c, const grading *g);
MEASURED(clipped)
MEASURED(shaped)
MEASURED(self_adjust_range)
MEASURED(centred)
MEASURED(lssar)
#define MEASURES(name, count) \
  .walks = count, .measure = SMX_FN(name##_measure), .settle = SMX_FN(name##_settle), \
  .grad = SMX_FN(name##_grad)

/* ---- units ---- */

#define ATTN_FAR ((real)0x1p19) /* scores beyond are shifted first */
#define ATTN_LN2 0x1.62e42fefa39efp-1

/* What two sums are multiplied by before they are added; the larger unit of the two becomes *to.
 * Powers of two, but between different shifts. */
static inline void align(attn_unit *to, attn_unit from, double *mine, double *its) {
  *mine = *its = 1;
  if (to->scale_exp == from.scale_exp && to->shift == from.shift) return;
  double at = to->shift + to->scale_exp * ATTN_LN2, from_at = from.shift + from.scale_exp * ATTN_LN2;
  bool exact = to->shift == from.shift;
  if (at >= from_at) {
    *its = exact ? d_scale(1, from.scale_exp - to->scale_exp) : d_exp(from_at - at);
  } else {
    *mine = exact ? d_scale(1, to->scale_exp - from.scale_exp) : d_exp(at - from_at);
    *to = from;
  }
}

/* ---- helpers of operators ---- */

SMI vmask v_hidden(vreal z) { return v_eq(z, v_set1(-R_INF)); }
SMI vreal hide(vreal z, vreal x) { return v_select(v_hidden(z), v_set1(0), x); }
static inline double inverse(double s) { return s == 0 ? 0 : 1 / s; }

/* Lanes of a sum, from 0. */
#define LANE_SUM(name) \
  vreal name[VPB]; \
  for (int u_ = 0; u_ < VPB; u_++) name[u_] = v_set1(0)

/* Weights and gradients of all pairs: `pair` gives dz and sets w, from z and dp, a vector of them
 * each, which stand at j. A hidden pair has weight and gradient 0. */
#define GRAD_PAIRS(g, pair) \
  for (int j = 0; j < (g)->n; j += LANES) { \
    const vreal z = v_load((g)->z + j), dp = v_load((g)->dp + j); \
    vreal w, dz = pair; \
    v_store((g)->z + j, hide(z, w)); \
    v_store((g)->dp + j, hide(z, dz)); \
  }

/* What lssar's weights are of s = softplus(z): y^power over its sum, y = gain lift s + less. From
 * the number of keys, and the sum and the largest s. Where no y is above 0 but by rounding, they
 * are s / sum. lift: a power of two that keeps the gain of very small s in range. */
typedef struct lssar_terms {
  real gain, lift, less, power;
} lssar_terms;
static inline lssar_terms lssar_of(const attn_call *c, double count, double sum, double most) {
  const double lift = sum < 0x1p-60 ? 0x1p64 : 1, gain = count * inverse(lift * sum);
  const double offset = count <= c->param[2] ? 0 : c->param[1];
  const bool flat = gain * (lift * most) - offset <= 0x1p-16;
  return (lssar_terms){(real)gain, (real)lift, flat ? 0 : (real)-offset, flat ? 1 : (real)c->param[0]};
}

/* The deviation of n numbers from their mean and the sum of their squares. */
static inline double deviation(double n, double mean, double squares) {
  const double variance = squares / n - mean * mean;
  return __builtin_sqrt(variance > 0 ? variance : 0);
}

/* Sets shift and scale_exp of a split whose weights are sums of e^score, and of e^floor where the
 * kind has such a term. */
static inline void exp_open(const attn_call *c, weighing *w, real floor) {
  real top = w->top > floor ? w->top : floor;
  w->shift = 0;
  if (top == R_INF) { /* the +inf share the mass, or make the row NaN */
    const bool limit = c->on_inf == SMX_INF_LIMIT;
    for (int j = w->from; j < w->to; j++)
      w->z[j] = w->z[j] == R_INF ? (limit ? 0 : r_nan()) : w->z[j] == w->z[j] ? -R_INF : w->z[j];
    w->scale_exp = limit ? R_INF : 0;
    return;
  }
  if (top > ATTN_FAR || top < -ATTN_FAR) {
    for (int j = w->from; j < w->to; j += LANES) v_store(w->z + j, v_sub(v_load(w->z + j), v_set1(top)));
    w->shift = top;
    top = 0;
  }
  w->scale_exp = v_first(exp_k(v_set1(top)));
}

/* e^z relative to the reference. */
SMI vreal exp_weight(vreal z, real scale_exp) {
  vreal k, p = v_exp_pair(z, &k);
  return v_scale(p, v_sub(k, v_set1(scale_exp == R_INF ? 0 : scale_exp)));
}

/* Weights without an exponent. */
static inline void direct_open(const attn_call *c, weighing *w) {
  w->scale_exp = w->shift = 0;
  if (w->top < R_INF || c->on_inf == SMX_INF_LIMIT) return;
  for (int j = w->from; j < w->to; j++) w->z[j] = w->z[j] == R_INF ? r_nan() : w->z[j];
}

/* Walks whole panels: u is the vector of the lanes, j the key. */
#define EACH_VECTOR(unroll, from, to, u, j) \
  for (int panel_ = from; panel_ < (to); panel_ += ATTN_PANEL) \
  unroll for (int u = 0, j = panel_; u < VPB; u++, j += LANES)
#define ROLLED _Pragma("GCC unroll 1")

/* Walks the scores of a row. Keys from `to` on would add +0 to their lanes. Unrolled, a function is
 * two to three times as long, which is for what most calls are. */
#define EACH_SCORE_BY(unroll, w, u, j) EACH_VECTOR(unroll, (w)->from, (w)->to, u, j) if (j < (w)->to)
#define EACH_SCORE(w, u, j) EACH_SCORE_BY(ROLLED, w, u, j)
#if SMX_REAL == 32 && !defined(V_PORTABLE)
#define EACH_SCORE_UNROLLED(w, u, j) EACH_SCORE_BY(_Pragma("GCC unroll 4"), w, u, j)
#else
#define EACH_SCORE_UNROLLED EACH_SCORE
#endif

#endif
