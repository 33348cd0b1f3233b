/* loss/rows.h - the stages in which a loss goes through a row of logits, and what its arithmetic
 * gets in each.
 *
 *     early sums   over the logits as they are: a mean, a deviation (if the loss asks for them),
 *                  or a program of the loss's own: moments of both rows, a choice of classes
 *     sides        e^score summed: the student's row, the teacher's (none, one or both; exp_rows.c)
 *     late sums    over scores and weights: entropy, divergence, the target's rank (if asked for)
 *     finalize     scalars: the loss, other values of the row, the coefficients of the gradient
 *     gradient     element by element, from weights and those coefficients (if the caller wants it)
 *
 * Scores are taken relative to the row's largest: log p_j = (z_j - top) - log1p(others), where
 * `sum_without_max` is the sum of e^(z - top) without the first largest element and S = others + 1.
 * So a loss near 0 keeps its digits, and 1 - p of the target is a sum of the others.
 *
 * A row whose target is ignored gives loss 0 and gradient 0 whatever it holds; a row with nothing
 * valid gives loss 0 (by on_empty) and gradient 0; a row with a NaN gives NaN. Under SMX_INF_LIMIT
 * a row with +inf is shifted by +inf: those elements become 0, others -inf.
 *
 * Conventions: output 0 is the loss, output 1 the gradient of input 0; a loss with a target has
 * ignore_index as parameter 0. */
#ifndef SMX_LOSS_ROWS_H
#define SMX_LOSS_ROWS_H
#include "engine/exp.h"

enum { STUDENT, TEACHER, SIDES };
enum { LOSS = 0, DX = 1 };
/* no loss saves an output, so the slot is free for early sums, for scores that need them */
enum { SRC_SUMS = SRC_Y };
enum {
  STAGE_EARLY,
  STAGE_CENTRED,
  STAGE_STUDENT,
  STAGE_TEACHER,
  STAGE_LATE,
  STAGE_LAST,
  STAGE_GRADIENT,
  STAGE_FILL
};

/* What is known of a row when its outputs are formed. */
typedef struct loss_row {
  const double *q; /* the parameters */
  size_t n;
  span on[SIDES]; /* the row as each side gets it: src[0] is the side's own */
  consts k[SIDES];
  exp_row side[SIDES];
  const exp_scores *scores[SIDES]; /* NULL: no such side */
  int64_t top[SIDES];              /* the first largest element */
  int64_t target;                  /* or -1: none, or ignored */
  bool ignored, backward;
  row_writing stream;
  double g, g_other;           /* the factor of the gradient, and that of rows of the other set */
  double (*total)[ROW_SUMS];   /* the sums, by stage */
  const double *target_inputs; /* FULL and COLUMN inputs at the target, by port */
  const real *stored;          /* terms of the student, or NULL = form them again */
  /* what is read next, prefetched while a gradient is written; where nothing is, some address in
   * the cache */
  const real *next;
  real *dx[SIDES];                        /* where gradients go, or NULL */
  real h[SIDES], l[SIDES];                /* the target's score, once the side is summed */
  uint32_t inputs, outputs;               /* those of the call, a bit each */
  bool wanted;                            /* whether a gradient is wanted */
  real coef[ROW_COEFS], at_target, least; /* least: of loss_parts_of */
} loss_row;

typedef void loss_sums_fn(const loss_row *r, size_t i, size_t n, double *sums);
typedef void loss_write_fn(const loss_row *r, size_t i, size_t n);

/* The passes of a loss that needs more than early sums before anything else. The last next() stores
 * the results in total[STAGE_EARLY] and total[STAGE_CENTRED], where scores may read them; a NaN in
 * the first makes the row NaN. */
typedef struct loss_before {
  void (*begin)(const row_call *c, row_state *st);
  void (*pass)(const row_call *c, row_state *st, row_part *parts);
  bool (*next)(const row_call *c, row_state *st);
} loss_before;

typedef struct loss_body loss_body;
struct loss_body {
  const loss_before *before;          /* NULL = none; such rows take the row program whatever their length */
  const exp_body *side[SIDES];        /* of kind EXP_SUMS; NULL = no sum over this side */
  loss_sums_fn *sums[STAGE_GRADIENT]; /* by stage */
  /* whether this call needs the sums of a stage; STAGE_STUDENT: of a row that is ignored;
   * NULL = yes for sums, no for those */
  bool (*wants)(const loss_row *r, int stage);
  /* Short rows, several at a time; false, with nothing written, when the call needs something else.
   * NULL = none. brief: whether a row with a target needs only the student's sum, and of its
   * largest element only whether it is the target. */
  bool (*small)(const loss_body *b, const row_kernel *kernel, row_call *c, bool backward);
  bool (*brief)(const loss_row *r);
  /* whether only the student's terms are read once they are formed; NULL = no */
  bool (*terms_only)(const loss_row *r);
  void (*finalize)(loss_row *r); /* the loss, coef and at_target; not for rows that are NaN or empty */
  /* other outputs of such rows; NULL = there are none */
  void (*special)(const loss_row *r, bool nan, double none);
  loss_write_fn *write[SIDES];
  uint32_t along;      /* inputs that run along the row, a bit each */
  int target, teacher; /* ports, or 0 */
  /* the target's scores, where the sides leave the target out; NULL = those of the side */
  const exp_scores *target_scores;
  /* the logit of an element, where input 0 is of f16 or bf16; else NULL */
  real (*logit_at)(const span *s, size_t i);
};

/* ---- what arithmetic is made of ---- */

SMI const real *loss_in(const loss_row *r, int port) { return r->on[STUDENT].src[port]; }
SMI bool loss_has(const loss_row *r, int port) { return r->inputs >> port & 1; }
SMI double loss_upstream(const loss_row *r, int output) {
  const real *dy = loss_in(r, SRC_DY + output);
  return r->backward && dy ? (double)*dy : 0;
}

/* A ROW output; those of whole numbers. */
SMI void loss_put(const loss_row *r, int output, double value) {
  real *y = r->on[STUDENT].dst[output];
  if (!r->backward && y) *y = r_clean(value);
}
SMI void loss_put_gradient(const loss_row *r, int input, double value) { /* of a ROW input */
  real *y = r->on[STUDENT].dst[input];
  if (r->backward && y) *y = r_clean(value);
}
SMI void loss_put_whole(const loss_row *r, int output, int64_t value) {
  if (!r->backward && r->on[STUDENT].dst[output]) *(int64_t *)(void *)r->on[STUDENT].dst[output] = value;
}

SMI score loss_score(const loss_row *r, int side, score_fn *f, size_t i, int cnt) {
  return score_at(f, &r->on[side], &r->k[side], &r->side[side].shift, i, cnt);
}
/* Weights, from the score or from stored terms; and the distance of a score below the largest. */
SMI vreal loss_weight(const loss_row *r, int side, score z, bool scaled, size_t i, int cnt) {
  vreal d, e = side == STUDENT && r->stored ? at(r->stored, i, cnt)
                                            : exp_term(z, scaled, r->side[side].scale_exp, &d);
  return exp_weight(e, &r->side[side], true);
}
SMI vreal loss_below(const loss_row *r, int side, score z) {
  vreal below = v_add(v_sub(v_set1(r->side[side].top), z.h), v_sub(v_set1(r->side[side].top_l), z.l));
  return v_select(v_eq(z.h, v_set1(-R_INF)), v_set1(R_INF), below);
}
SMI vreal loss_log(const loss_row *r, int side, score z) { /* of the weight */
  return v_sub(v_set1(-r->side[side].log), loss_below(r, side, z));
}
SMI double loss_lse(const loss_row *r, int side) { return r->side[side].max + r->side[side].log1p; }

/* The target's place in a vector, and a value put there. */
SMI vreal loss_at_target(const loss_row *r, vreal v, real value, size_t i) {
  uint64_t lane = (uint64_t)(r->target - (int64_t)(r->on[STUDENT].origin + i));
  if (lane >= LANES) return v;
  return v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(value), v);
}

/* log p, p and 1 - p of the target. */
typedef struct loss_hit {
  double log_p, p, q;
} loss_hit;
SMI double loss_log_p(const loss_row *r, int side) {
  const exp_row *e = &r->side[side];
  if (r->target == r->top[side]) return -e->log1p;
  if (r->h[side] == -R_INF) return -(double)__builtin_inf();
  return -(((double)e->top - (double)r->h[side]) + ((double)e->top_l - (double)r->l[side])) - e->log1p;
}
SMI loss_hit loss_hit_of(const loss_row *r, int side) {
  const double log_p = loss_log_p(r, side), others = r->side[side].sum_without_max,
               inf = (double)__builtin_inf();
  if (r->target == r->top[side])
    return (loss_hit){log_p, 1 / (1 + others), others < inf ? others / (1 + others) : 1};
  const double p = log_p > -inf ? d_exp(log_p) : 0;
  return (loss_hit){log_p, p, 1 - p};
}

/* ---- groups ---- */

/* Sums of COUNT terms an element; what absent lanes add must be +0. */
typedef void loss_add_fn(const loss_row *r, size_t i, int cnt, vreal *acc);
SMI void loss_sums_of(const loss_row *r, loss_add_fn *add, const int count, size_t first, size_t n,
                      double *sums) {
  vreal acc[VPB][ROW_SUMS];
#if WHOLE_LANES
#define EACH_SUM _Pragma("GCC unroll 4") for (int a = 0; a < count; a++)
#else
#define EACH_SUM for (int a = 0; a < count; a++)
#endif
  for (int u = 0; u < VPB; u++) EACH_SUM acc[u][a] = v_set1(0);
#define STEP(u, i, cnt) add(r, i, cnt, acc[u])
  FOR_EACH_VECTOR_COMPACT(first, n, STEP, EACH_SUM NEXT_LANES_OF(acc, [a]))
#undef STEP
  EACH_SUM {
    vreal lanes[VPB];
    for (int u = 0; u < VPB; u++) lanes[u] = acc[u][a];
    sums[a] = (double)v_fold(lanes);
  }
#undef EACH_SUM
}
#define LOSS_SUMS_OF(name, add, count) \
  NOINLINE void name(const loss_row *r, size_t i, size_t n, double *sums) { \
    loss_sums_of(r, add, count, i, n, sums); \
  }

/* Gradients from weights, which are 0 where a loss has no scores. What every value needs is in a
 * struct that no store can change, so that it stays in registers. */
typedef struct loss_out {
  const loss_row *r;
  real coef[ROW_COEFS], at_target;
  int64_t target; /* relative to this row */
} loss_out;
typedef vreal loss_value_fn(const loss_out *w, vreal p, size_t i, int cnt);
SMI vreal loss_hit_target(const loss_out *w, vreal v, size_t i) {
  uint64_t lane = (uint64_t)(w->target - (int64_t)i);
  return lane < LANES ? v_select(v_eq(v_iota(), v_set1((real)lane)), v_set1(w->at_target), v) : v;
}
/* The gradient of most losses: the weights times a coefficient, and another value at the target. */
SMI vreal loss_plain_value(const loss_out *w, vreal p, size_t i, int cnt) {
  return loss_hit_target(w, v_mul(p, v_set1(w->coef[0])), i);
}
/* The write loop of a loss: elements first .. first + n - 1, whose weights are p. */
typedef void loss_write_staged_fn(const loss_row *r, int side, const real *p, row_writing stream,
                                  size_t first, size_t n);
SMI void loss_write_of(const loss_row *r, int side, loss_value_fn *value, const real *p, row_writing stream,
                       size_t first, size_t n) {
  real *const y = r->dx[side];
  loss_out out = {.r = r, .at_target = r->at_target, .target = r->target - (int64_t)r->on[STUDENT].origin};
  for (int a = 0; a < ROW_COEFS; a++) out.coef[a] = r->coef[a];
  const loss_out w = out;
#define STEP(j, cnt) \
  { \
    const vreal v = v_clean(value(&w, v_load(p + (j)), first + (j), cnt)); \
    if (stream && (cnt) == LANES) put_uncached(y + first + (j), v, stream); \
    else put(y, first + (j), cnt, v); \
  }
  FOR_EACH_LANES(n, STEP)
#undef STEP
}
#define loss_write_staged SMX_FN(loss_write_staged)
void loss_write_staged(const loss_row *r, int side, loss_write_staged_fn *write, size_t i, size_t n);
#define LOSS_WRITE_OF(name, side, value) \
  NOINLINE void name##_write(const loss_row *r, int s, const real *p, row_writing stream, size_t i, \
                             size_t n) { \
    loss_write_of(r, s, value, p, stream, i, n); \
  } \
  static void name(const loss_row *r, size_t i, size_t n) { loss_write_staged(r, side, name##_write, i, n); }

/* The smallest term with a part of the gradient, e inv coef with two roundings, that is not
 * flushed. */
SMI real loss_least(const exp_row *e, real coef) {
  const real size = coef < 0 ? -coef : coef;
  if (size == 0) return R_INF;
  if (!(size < 1)) return e->tiny;
  real least = R_TINY / size / e->inv;
  while (least * e->inv * size >= R_TINY) least = r_from(r_bits(least) - 1);
  while (least * e->inv * size < R_TINY) least = r_from(r_bits(least) + 1);
  return least < e->tiny ? e->tiny : least;
}
SMI bool loss_parts_fit(const loss_row *r) {
  return r->side[STUDENT].shift == 0 && r->coef[0] >= -R_MAX && r->coef[0] <= R_MAX;
}
/* What loss_parts_of needs to know of a row whose scalars are known. */
SMI void loss_ready(const loss_body *b, loss_row *r) {
  if (b->side[STUDENT] && r->wanted && loss_parts_fit(r))
    r->least = loss_least(&r->side[STUDENT], r->coef[0]);
}

/* A side with the scores `from`. product: they are x times v[0] + v[1] of the consts. */
#define LOSS_SIDE(name, from, product, setup_name) \
  static const exp_body name##_side = {.setup = setup_name, \
                                       .scores = &from##_scores, \
                                       .kind = EXP_SUMS, \
                                       .scaled = product, \
                                       .sum_without_max = true};

/* ---- the program (stages.c) ---- */

#define loss_engine SMX_FN(loss_engine)
#define loss_grad_engine SMX_FN(loss_grad_engine)
extern const row_engine loss_engine, loss_grad_engine; /* their body: a loss_body */

/* The kernels of a loss, forward and backward. */
#define LOSS_KERNEL(name) \
  static const row_kernel name##_kernel = {.engine = &loss_engine, .body = &name##_body}, \
                          name##_grad_kernel = {.engine = &loss_grad_engine, .body = &name##_body};

#endif
