/* loss/ops_preference.c - losses of answers that are preferred: of pairs, against a reference or
 * without one, and of single answers. An element is a pair, or an answer; x is the log-probability
 * of the answer. See ops_elementwise.c. */
#include "engine/long_steps.h"
#include "choice.h"
#include "elementwise.h"

/* A gradient that would not be finite is 0. */
SMI vreal finite(vreal x) { return v_select(v_lt(v_abs(x), v_set1(R_INF)), x, zero()); }

/* All that is made of s(u) = 1 / (1 + e^-u), from one exponential: -log s(u), -log s(-u), both. */
typedef struct logistic {
  vreal log_yes, log_no, yes, no;
} logistic;
NOINLINE logistic logistic_of(vreal u) {
  const vreal e = v_exp_down(negative(v_abs(u))), log = v_log1p_unit(e), all = v_add(one(), e);
  const vmask below = v_lt(u, zero()), good = v_eq(u, u);
  const vreal large = v_div(one(), all), small = v_div(e, all);
  return (logistic){v_select(good, v_add(log, v_max(negative(u), zero())), u),
                    v_select(good, v_add(log, v_max(u, zero())), u), v_select(below, small, large),
                    v_select(below, large, small)};
}

/* ---- pairs: f(a, b), a and b the scores of the answer that is chosen and of the other ---- */

enum { REJECTED = 1, REFERENCE, REFERENCE_REJECTED, OFFSET, PAIR_WEIGHT }; /* inputs of dpo_loss */
enum { FORM, BETA, SMOOTHING, MARGIN, NLL, OVER, TAU, DIVERGENCE, ALPHA }; /* of cpo_loss up to OVER */
enum {
  SIGMOID,
  HINGE,
  IPO,
  ODDS,
  ROBUST = ODDS,
  EXO,
  NCA,
  BCO,
  SPPO,
  APO_ZERO,
  APO_DOWN,
  DISCOPOP
};                                                     /* FORM */
enum { REVERSE_KL, FORWARD_KL, JS, ALPHA_DIVERGENCE }; /* DIVERGENCE */
enum { SUM_PAIRS, SUM_AHEAD, SUM_REWARD };
enum { PAIRS_RIGHT = 3, PAIRS_MARGIN }; /* outputs behind `reduced` */
#define SCORE_MOST 80                   /* exponents of e are kept below */

/* f, and its derivatives by a and b. */
typedef struct pair_loss {
  vreal loss, by_a, by_b;
} pair_loss;

/* What forms have in common: f(z), z = beta (a - b) - m. */
SMI pair_loss pair_by_z(real beta, vreal loss, vreal slope) {
  const vreal by = no_less(v_set1(beta), slope);
  return (pair_loss){loss, by, negative(by)};
}
/* (1 - e) -log s(z) + e -log s(-z); less, and over 1 - 2 e, where robust. */
SMI pair_loss pair_smoothed(const double *q, const logistic *l, bool robust) {
  const double e = q[SMOOTHING], all = robust ? 1 - 2 * e : 1;
  const vreal yes = v_set1((real)((1 - e) / all)), no = v_set1((real)((robust ? -e : e) / all));
  return pair_by_z((real)q[BETA], v_add(no_less(yes, l->log_yes), no_less(no, l->log_no)),
                   v_sub(no_less(no, l->yes), v_mul(yes, l->no)));
}
/* D([s(z), s(-z)] || [1 - e, e]) */
SMI pair_loss pair_exo(const double *q, const logistic *l, vreal z) {
  const double e = q[SMOOTHING];
  const real log_e = e > 0 ? (real)d_log(e, 0) : -R_INF, log_rest = (real)d_log_1pf(-e, 0, 0);
  const vreal loss = v_sub(negative(no_less(l->yes, v_add(l->log_yes, v_set1(log_rest)))),
                           no_less(l->no, v_add(l->log_no, v_set1(log_e))));
  const vreal none = v_select(v_lt(z, v_set1(R_INF)), v_set1(R_INF), loss); /* a mass that has no share */
  return pair_by_z((real)q[BETA], e > 0 ? loss : v_select(v_eq(z, z), none, z),
                   no_less(v_mul(l->yes, l->no), v_sub(z, v_set1(log_rest - log_e))));
}
/* -log s(z) s(-z / t) + e^-z s(z / t) */
SMI pair_loss pair_discopop(const double *q, const logistic *l, vreal z) {
  const vreal inverse = v_set1((real)(1 / q[TAU])), t = v_mul(z, inverse);
  const logistic mix = logistic_of(t);
  const vreal large = v_max(mix.yes, mix.no),
              e = v_mul(v_exp(v_sub(v_min(t, zero()), z)), large); /* e^-z s(z / t) */
  const vreal less = no_less(mix.no, l->log_yes);
  const vreal slope = v_sub(no_less(v_sub(v_mul(mix.no, inverse), one()), e),
                            v_fma(l->no, mix.no, v_mul(v_mul(less, mix.yes), inverse)));
  return pair_by_z((real)q[BETA], v_add(less, e), slope);
}
SMI pair_loss pair_ipo(const double *q, vreal d) {
  const vreal away = v_sub(d, v_set1((real)(0.5 / q[BETA]))), by = v_add(away, away);
  return (pair_loss){v_mul(away, away), by, negative(by)};
}
SMI pair_loss pair_sppo(const double *q, vreal a, vreal b) {
  const vreal half = v_set1((real)(0.5 / q[BETA])), first = v_sub(a, half), second = v_add(b, half);
  return (pair_loss){v_fma(first, first, v_mul(second, second)), v_add(first, first), v_add(second, second)};
}
/* Forms of each answer's own reward, p and q: of a and b. */
SMI pair_loss pair_apart(int form, real beta, const logistic *p, const logistic *q) {
  const vreal half = v_set1((real)0.5), by = v_set1(beta);
  if (form == NCA)
    return (pair_loss){v_add(p->log_yes, v_mul(half, v_add(p->log_no, q->log_no))),
                       v_mul(by, v_sub(v_mul(half, p->yes), p->no)), v_mul(by, v_mul(half, q->yes))};
  if (form == BCO)
    return (pair_loss){v_add(p->log_yes, q->log_no), negative(v_mul(by, p->no)), v_mul(by, q->yes)};
  const vreal first = v_mul(by, v_mul(p->yes, p->no)), second = v_mul(by, v_mul(q->yes, q->no));
  if (form == APO_ZERO) return (pair_loss){v_add(p->no, q->yes), negative(first), second};
  return (pair_loss){v_add(p->yes, q->no), v_sub(first, second), second}; /* APO_DOWN: q of a - b */
}

NOINLINE pair_loss dpo_pair(const double *q, vreal a, vreal b, vreal offset) {
  const int form = (int)q[FORM];
  const vreal beta = v_set1((real)q[BETA]), m = v_add(offset, v_set1((real)q[MARGIN]));
  const vreal z = v_sub(v_mul(beta, v_sub(a, b)), m);
  const bool own = form == NCA || form == APO_ZERO, shifted = form == BCO, down = form == APO_DOWN;
  if (form == SPPO) return pair_sppo(q, a, b);
  if (form == IPO) return pair_ipo(q, v_sub(v_sub(a, b), v_div(m, beta)));
  if (form == HINGE)
    return pair_by_z((real)q[BETA], v_max(v_sub(one(), z), zero()),
                     v_select(v_lt(z, one()), v_set1(-1), zero()));
  vreal u = z;
  if (own || down) u = v_mul(beta, a);
  if (shifted) u = v_sub(v_mul(beta, a), m);
  const logistic first = logistic_of(u);
  if (form == EXO) return pair_exo(q, &first, z);
  if (form == DISCOPOP) return pair_discopop(q, &first, z);
  if (form == SIGMOID || form == ROBUST) return pair_smoothed(q, &first, form == ROBUST);
  u = v_mul(beta, b);
  if (shifted) u = v_sub(u, m);
  if (down) u = z;
  const logistic second = logistic_of(u);
  return pair_apart(form, (real)q[BETA], &first, &second);
}

/* What a log-ratio counts under a divergence, and the derivative of that. */
typedef struct divergence_score {
  vreal s, slope;
} divergence_score;
NOINLINE divergence_score score_of_ratio(const double *q, vreal r) {
  const int form = (int)q[DIVERGENCE];
  const double power = form == FORWARD_KL ? -1 : q[ALPHA] - 1;
  if (form == REVERSE_KL || (form == ALPHA_DIVERGENCE && power == 0)) return (divergence_score){r, one()};
  if (form == JS) {
    const logistic l = logistic_of(r);
    return (divergence_score){negative(l.log_yes), l.no};
  }
  const vreal t = v_mul(v_set1((real)power), r), most = v_set1(SCORE_MOST), e = v_exp(v_min(t, most));
  return (divergence_score){v_select(v_eq(r, r), v_mul(v_set1((real)(1 / power)), e), r),
                            v_select(v_lt(most, t), zero(), e)};
}

/* A pair where it lies. */
typedef struct dpo {
  vreal x, weight;
  divergence_score a, b;
  pair_loss f;
} dpo;
SMI dpo dpo_at(const loss_row *r, size_t i, int cnt) {
  const vreal x = log_probability(loss_in(r, 0), i, cnt),
              first = v_sub(x, log_probability(loss_in(r, REFERENCE), i, cnt)),
              second = v_sub(log_probability(loss_in(r, REJECTED), i, cnt),
                             log_probability(loss_in(r, REFERENCE_REJECTED), i, cnt));
  const vreal offset = loss_has(r, OFFSET) ? at(loss_in(r, OFFSET), i, cnt) : zero(),
              weight = loss_has(r, PAIR_WEIGHT) ? at(loss_in(r, PAIR_WEIGHT), i, cnt) : one();
  const divergence_score a = score_of_ratio(r->q, first), b = score_of_ratio(r->q, second);
  return (dpo){x, weight, a, b, dpo_pair(r->q, a.s, b.s, offset)};
}
/* A NaN of v makes the sum NaN. */
SMI vreal spoiled(vreal term, vreal v) { return v_select(v_eq(v, v), term, v); }
/* What the sum is multiplied by: each term, so that the sum of many stays in range. */
SMI double pairs_scale(const loss_row *r) { return r->q[OVER] != 0 ? 1 / (double)r->n : 1; }
typedef dpo pair_fn(const loss_row *r, size_t i, int cnt);
SMI void pairs_add(const loss_row *r, pair_fn *pair, size_t i, int cnt, vreal *acc) {
  const dpo p = pair(r, i, cnt);
  const vreal ahead = v_sub(p.a.s, p.b.s), in = v_select(lanes_below(cnt), one(), zero());
  vreal term = no_less(p.weight, p.f.loss);
  if (r->q[NLL] != 0) term = v_sub(term, v_mul(v_set1((real)r->q[NLL]), p.x));
  term = v_mul(spoiled(spoiled(spoiled(term, ahead), p.x), p.weight), v_set1((real)pairs_scale(r)));
  acc[SUM_PAIRS] = v_add(acc[SUM_PAIRS], v_select(lanes_below(cnt), term, zero()));
  acc[SUM_AHEAD] = v_add(acc[SUM_AHEAD], v_select(v_lt(zero(), ahead), in, zero()));
  acc[SUM_REWARD] = v_fma(v_mul(in, v_set1((real)(1 / (double)r->n))), finite(ahead), acc[SUM_REWARD]);
}
static void pairs_finalize(loss_row *r) {
  const double *sum = r->total[STAGE_LATE];
  loss_put(r, LOSS, sum[SUM_PAIRS]);
  loss_put_whole(r, PAIRS_RIGHT, (int64_t)sum[SUM_AHEAD]);
  loss_put(r, PAIRS_MARGIN, r->q[BETA] * sum[SUM_REWARD]);
  r->coef[0] = (real)(r->n > 0 ? r->g * pairs_scale(r) : 0);
}
static void pairs_special(const loss_row *r, bool nan, double none) {
  loss_put_whole(r, PAIRS_RIGHT, -1);
  loss_put(r, PAIRS_MARGIN, none);
}
SMI vreal pairs_value(const loss_out *w, pair_fn *pair, bool chosen, size_t i, int cnt) {
  const dpo p = pair(w->r, i, cnt);
  const divergence_score *own = chosen ? &p.a : &p.b;
  vreal v = no_less(own->slope, no_less(p.weight, chosen ? p.f.by_a : p.f.by_b));
  if (chosen) v = v_sub(v, v_set1((real)w->r->q[NLL]));
  return finite(v_mul(v_set1(w->coef[0]), v));
}

#define PAIRS(name, inputs) \
  static const loss_body name##_body = {.sums = {[STAGE_LATE] = name##_late}, \
                                        .finalize = pairs_finalize, \
                                        .special = pairs_special, \
                                        .write = {name##_out, name##_rejected_out}, \
                                        .along = inputs, \
                                        .teacher = REJECTED}; \
  LOSS_KERNEL(name)

/* ---- dpo_loss ---- */

SMI void dpo_add(const loss_row *r, size_t i, int cnt, vreal *acc) { pairs_add(r, dpo_at, i, cnt, acc); }
LOSS_SUMS_OF(dpo_late, dpo_add, 3)
SMI vreal dpo_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return pairs_value(w, dpo_at, true, i, cnt);
}
SMI vreal dpo_rejected_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return pairs_value(w, dpo_at, false, i, cnt);
}
LOSS_WRITE_OF(dpo_out, STUDENT, dpo_value)
LOSS_WRITE_OF(dpo_rejected_out, TEACHER, dpo_rejected_value)
PAIRS(dpo,
      1u | 1u << REJECTED | 1u << REFERENCE | 1u << REFERENCE_REJECTED | 1u << OFFSET | 1u << PAIR_WEIGHT)

/* ---- cpo_loss: the same of log-probabilities, or of the logarithms of their odds ---- */

enum { FREE_OFFSET = 2, FREE_WEIGHT }; /* inputs of cpo_loss behind REJECTED */

/* log(p / (1 - p)) of log p = x, which is at most 0: -log(e^-x - 1). */
NOINLINE divergence_score log_odds(vreal x) {
  const vreal away = negative(x), most = v_set1(40), e = v_expm1_pos(v_max(v_min(away, most), zero()));
  const vmask far = v_lt(most, away), none = v_lt(e, v_set1(R_TINY));
  const vreal log = v_log_scaled(v_max(e, v_set1(R_TINY)), zero());
  const vreal s = v_select(far, x, v_select(none, v_set1(R_INF), negative(log)));
  const vreal slope = v_select(far, one(), v_div(v_add(e, one()), e));
  const vmask good = m_not(v_lt(away, zero()));
  return (divergence_score){v_select(m_and(good, v_eq(x, x)), s, v_set1(r_nan())), slope};
}
SMI dpo cpo_at(const loss_row *r, size_t i, int cnt) {
  const vreal x = log_probability(loss_in(r, 0), i, cnt), y = log_probability(loss_in(r, REJECTED), i, cnt);
  const vreal offset = loss_has(r, FREE_OFFSET) ? at(loss_in(r, FREE_OFFSET), i, cnt) : zero(),
              weight = loss_has(r, FREE_WEIGHT) ? at(loss_in(r, FREE_WEIGHT), i, cnt) : one();
  if (r->q[FORM] != ODDS) {
    const divergence_score a = {x, one()}, b = {y, one()};
    return (dpo){x, weight, a, b, dpo_pair(r->q, x, y, offset)};
  }
  const divergence_score a = log_odds(x), b = log_odds(y);
  const real beta = (real)r->q[BETA];
  const logistic l = logistic_of(v_sub(v_sub(v_sub(a.s, b.s), offset), v_set1((real)r->q[MARGIN])));
  pair_loss f = pair_smoothed(r->q, &l, false);
  f.loss = v_mul(v_set1(beta), f.loss);
  return (dpo){x, weight, a, b, f};
}
SMI void cpo_add(const loss_row *r, size_t i, int cnt, vreal *acc) { pairs_add(r, cpo_at, i, cnt, acc); }
LOSS_SUMS_OF(cpo_late, cpo_add, 3)
SMI vreal cpo_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return pairs_value(w, cpo_at, true, i, cnt);
}
SMI vreal cpo_rejected_value(const loss_out *w, vreal none, size_t i, int cnt) {
  return pairs_value(w, cpo_at, false, i, cnt);
}
LOSS_WRITE_OF(cpo_out, STUDENT, cpo_value)
LOSS_WRITE_OF(cpo_rejected_out, TEACHER, cpo_rejected_value)
PAIRS(cpo, 1u | 1u << REJECTED | 1u << FREE_OFFSET | 1u << FREE_WEIGHT)

/* ---- kto_loss: t w s(-u) + (1 - t) w' s(u), u = beta (x - reference - z), or -log s for s ---- */

enum { KTO_REFERENCE = 1, DESIRABLE, KTO_KL };          /* inputs */
enum { KTO_FORM, KTO_BETA, KTO_YES, KTO_NO, KTO_OVER }; /* parameters */
enum { KTO_SIGMOID, KTO_BCO };                          /* KTO_FORM */
enum { SUM_KTO };

typedef struct kto {
  vreal x, t, away; /* away: x - reference */
  logistic l;
} kto;
SMI real kto_centre(const loss_row *r) {
  const real *kl = loss_in(r, KTO_KL), z = kl ? *kl : 0;
  return r->q[KTO_FORM] == KTO_SIGMOID && z < 0 ? 0 : z;
}
SMI kto kto_at(const loss_row *r, size_t i, int cnt) {
  const vreal x = log_probability(loss_in(r, 0), i, cnt),
              away = v_sub(x, log_probability(loss_in(r, KTO_REFERENCE), i, cnt));
  const vreal u = v_mul(v_set1((real)r->q[KTO_BETA]), v_sub(away, v_set1(kto_centre(r))));
  return (kto){x, at(loss_in(r, DESIRABLE), i, cnt), away, logistic_of(u)};
}
/* What an answer counts, by whether it is desirable. */
SMI vreal kto_mix(const loss_row *r, const kto *k, vreal yes, vreal no) {
  const vreal first = no_less(v_mul(v_set1((real)r->q[KTO_YES]), k->t), yes);
  return v_add(first, no_less(v_mul(v_set1((real)r->q[KTO_NO]), v_sub(one(), k->t)), no));
}
SMI void kto_add(const loss_row *r, size_t i, int cnt, vreal *acc) {
  const kto k = kto_at(r, i, cnt);
  const bool bco = r->q[KTO_FORM] == KTO_BCO;
  const vreal term = kto_mix(r, &k, bco ? k.l.log_yes : k.l.no, bco ? k.l.log_no : k.l.yes);
  const vreal centre = v_set1(kto_centre(r));
  acc[SUM_KTO] = v_add(
      acc[SUM_KTO], v_select(lanes_below(cnt), spoiled(spoiled(spoiled(term, k.away), k.t), centre), zero()));
}
LOSS_SUMS_OF(kto_late, kto_add, 1)
static void kto_finalize(loss_row *r) {
  const double scale = r->q[KTO_OVER] != 0 ? (r->n > 0 ? 1 / (double)r->n : 0) : 1;
  loss_put(r, LOSS, scale * r->total[STAGE_LATE][SUM_KTO]);
  r->coef[0] = (real)(r->g * scale);
}
SMI vreal kto_value(const loss_out *w, vreal none, size_t i, int cnt) {
  const kto k = kto_at(w->r, i, cnt);
  const bool bco = w->r->q[KTO_FORM] == KTO_BCO;
  const vreal both = v_mul(k.l.yes, k.l.no);
  const vreal slope = kto_mix(w->r, &k, negative(bco ? k.l.no : both), bco ? k.l.yes : both);
  return finite(v_mul(v_set1(w->coef[0]), v_mul(v_set1((real)w->r->q[KTO_BETA]), slope)));
}
SMI vreal kto_target_value(const loss_out *w, vreal none, size_t i, int cnt) {
  const kto k = kto_at(w->r, i, cnt);
  const bool bco = w->r->q[KTO_FORM] == KTO_BCO;
  const vreal yes = no_less(v_set1((real)w->r->q[KTO_YES]), bco ? k.l.log_yes : k.l.no),
              no = no_less(v_set1((real)w->r->q[KTO_NO]), bco ? k.l.log_no : k.l.yes);
  return finite(v_mul(v_set1(w->coef[0]), v_sub(yes, no)));
}
LOSS_WRITE_OF(kto_out, STUDENT, kto_value)
LOSS_WRITE_OF(kto_target_out, TEACHER, kto_target_value)
static const loss_body kto_body = {.sums = {[STAGE_LATE] = kto_late},
                                   .finalize = kto_finalize,
                                   .write = {kto_out, kto_target_out},
                                   .along = 1u | 1u << KTO_REFERENCE | 1u << DESIRABLE,
                                   .teacher = DESIRABLE};
LOSS_KERNEL(kto)

OPERATOR(dpo_loss, dpo, dpo_grad)
OPERATOR(cpo_loss, cpo, cpo_grad)
OPERATOR(kto_loss, kto, kto_grad)
