/* loss/ops_margin.c - margin_softmax: cross-entropy of cosines times a scale, where the target's
 * has a margin (SphereFace, CosFace, ArcFace). theta = acos c of the target, phi = m1 theta + m2:
 *
 *   loss = log(1 + sum_(j not y) e^(s c_j - s psi)),  psi = cos phi - m3
 *   dpsi/dc = m1 sin phi / sin theta
 *
 * The side leaves the target out, so that neither its score nor the gradient is a difference. */
#include "logits.h"
#include "nontarget.h"
#include "trig.h"

enum { TARGET = 1 };
enum { M1 = 1, M2, M3, SCALE, BEYOND, DETACH };
enum { FOLD, LINEAR, CLAMP, PLAIN };
#define PI 0x1.921fb54442d18p+1

/* A NaN stays, and +inf, which the engine knows what to do with. */
SMI score score_others(const span *s, const consts *k, const real *shift, size_t i, int cnt) {
  const int64_t *target = (const int64_t *)(const void *)s->src[TARGET];
  const uint64_t lane = (uint64_t)(*target - (int64_t)(s->origin + i));
  score z = score_tempered(s, k, shift, i, cnt);
  if (lane < LANES) {
    const vmask own = v_eq(v_iota(), v_set1((real)lane)), finite = v_lt(at(s->src[0], i, cnt), v_set1(R_INF));
    z.h = v_select(m_and(own, finite), v_set1(-R_INF), z.h);
  }
  return z;
}

/* asin x, 0 <= x <= 0.71: a series within 3e-4, then Newton's method on the sine. */
SMI double margin_asin(double x) {
  const double z = x * x;
  double y =
      x * (1 + z * (1.0 / 6 + z * (3.0 / 40 + z * (15.0 / 336 + z * (105.0 / 3456 + z * 945.0 / 42240)))));
  for (int i = 0; i < 3; i++) {
    double sine, cosine;
    d_sin_cos(y, &sine, &cosine);
    y += (x - sine) / cosine;
  }
  return y;
}
/* acos c from the half angle, which keeps the digits of small angles. */
SMI double margin_acos(double c) {
  const double half = 2 * margin_asin(__builtin_sqrt((1 - (c < 0 ? -c : c)) / 2));
  return c < 0 ? PI - half : half;
}

typedef struct margin {
  double psi, slope;
} margin;

/* phi beyond pi. fold: (-1)^k cos phi - 2 k, k = floor(phi / pi), which falls all the way, as
 * SphereFace has it; linear: c - m2 sin m2, as ArcFace has it; clamp: -1; none: cos phi. */
SMI margin margin_beyond(int how, double c, double m1, double m2, double phi, double sin_theta) {
  double sine, cosine;
  d_sin_cos(phi, &sine, &cosine);
  const margin plain = {cosine, m1 * sine / sin_theta};
  if (phi <= PI || how == PLAIN) return plain;
  if (how == CLAMP) return (margin){-1, 0};
  if (how == LINEAR) {
    d_sin_cos(m2, &sine, &cosine);
    return (margin){c - m2 * sine, 1};
  }
  const int k = (int)(phi / PI), sign = k % 2 ? -1 : 1;
  return (margin){sign * plain.psi - 2 * k, sign * plain.slope};
}

static margin margin_of(const double *q, double c) {
  const double inf = (double)__builtin_inf(), m1 = q[M1], m2 = q[M2];
  if (c == -inf || (m1 == 1 && m2 == 0)) return (margin){c - q[M3], 1};
  const double kept = c > 1 ? 1 : c < -1 ? -1 : c, theta = margin_acos(kept);
  double sine = __builtin_sqrt((1 - kept) * (1 + kept));
  if (sine < 1e-4) sine = 1e-4;
  margin m = margin_beyond((int)q[BEYOND], kept, m1, m2, m1 * theta + m2, sine);
  m.psi -= q[M3];
  if (kept != c) m.slope = 0;
  return m;
}

static void margin_finalize(loss_row *r) {
  const double s = r->q[SCALE], c = r->target_inputs[0];
  const margin m = margin_of(r->q, c);
  const split p = split_at(s * m.psi - loss_lse(r, STUDENT));
  loss_put(r, LOSS, -p.log_p);
  r->coef[0] = (real)(r->g * s * p.q);
  r->at_target = (real)(-r->g * s * p.q * (r->q[DETACH] != 0 ? 1 : m.slope));
}

SMI consts margin_setup(const row_call *c, const span *s) { return loss_factor(c->params[SCALE]); }
EXP_SCORES_LOW(others, score_others)
LOSS_SIDE(margin, others, true, margin_setup)
static bool margin_terms_only(const loss_row *r) { return true; }
static const loss_body margin_body = {.side = {&margin_side},
                                      .terms_only = margin_terms_only,
                                      .finalize = margin_finalize,
                                      .write = {loss_plain_out},
                                      .along = 1u,
                                      .target = TARGET,
                                      .target_scores = &tempered_scores};
LOSS_KERNEL(margin)

OPERATOR(margin_softmax, margin, margin_grad)
