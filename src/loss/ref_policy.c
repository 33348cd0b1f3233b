/* loss/ref_policy.c - losses of policy gradients, and of preferred answers. See ref.c. */
#include "ref.h"

/* e^t - 1 - t */
static real raised(real t) { return fabsl(t) < 0.01L ? bend(t) : isinf(t) && t > 0 ? t : expl(t) - 1 - t; }
/* A log-probability that is +inf is none. */
static real log_p(double x) { return isinf(x) && x > 0 ? (real)NAN : (real)x; }
/* What a derivative is where it has no number. */
static double number(real x) { return isfinite(x) ? (double)x : 0; }
/* That of a function of e^away: infinite where e^away overflows, unless `away` is. */
static double number_of(real x, real away) { return isfinite(away) ? (double)x : number(x); }

/* ---- policy gradients ---- */

enum { X, OLD, ADVANTAGE, TOKEN_ADVANTAGE, REFERENCE, MASK, LENGTH, WEIGHT };
enum { KL_WEIGHT, ESTIMATOR, OVER, MAX_LENGTH, OWN };
enum { TOKENS = 3, KL_MEAN, CLIPPED };

typedef struct token {
  real loss, slope;
  int limited;
} token;
typedef token token_of(const row_ref_call *c, real x, real ratio, real a);

static int there(const row_ref_call *c, size_t t) {
  return (!c->in[MASK] || c->in[MASK][t] != 0) && (!c->in[LENGTH] || (double)t < c->in[LENGTH][0]);
}
/* e^t may be more than a float holds, where the library's is infinite. */
static void policy(const row_ref_call *c, token_of *f, int whole, int shared) {
  real count = 0, mean = 0, loss = 0, kl = 0, clipped = 0, all = 0, weight = c->q[KL_WEIGHT];
  real *slope = numbers(c->n), *bent = numbers(c->n);
  int nan = 0;
  for (size_t t = 0; t < c->n; t++)
    if (there(c, t)) count++, mean += log_p(c->in[X][t]) - log_p(c->in[OLD][t]);
  real some = count > 0 ? count : 1;
  mean /= some;
  for (size_t t = 0; t < c->n; t++) {
    if (!there(c, t)) continue;
    real x = log_p(c->in[X][t]), old = log_p(c->in[OLD][t]),
         a = c->in[ADVANTAGE] ? c->in[ADVANTAGE][0] : c->in[TOKEN_ADVANTAGE][t];
    real w = c->in[WEIGHT] ? c->in[WEIGHT][t] : 1, ratio = expl(whole ? mean : x - old);
    real up = log_p(c->in[c->in[REFERENCE] ? REFERENCE : OLD][t]) - x;
    token k = f(c, x, ratio, a);
    nan |= isnan(ratio) || !isfinite(a) || isnan(w) || (weight != 0 && isnan(up));
    loss += part(w, k.loss);
    slope[t] = part(w, k.slope);
    all += slope[t];
    clipped += k.limited;
    kl += c->q[ESTIMATOR] == 0 ? -up : c->q[ESTIMATOR] == 1 ? up * up / 2 : raised(up);
    bent[t] = c->q[ESTIMATOR] == 0 ? 1 : c->q[ESTIMATOR] == 1 ? -up : -expm1l(up);
    nan |= isnan(kl);
  }
  real most = c->q[MAX_LENGTH] > 0 ? (real)c->q[MAX_LENGTH] : (real)c->n;
  real over = fmaxl(1, c->q[OVER] == 0 ? count : c->q[OVER] == 3 ? most : 1);
  loss = (loss + part(weight, kl)) / over;
  nan |= isnan(loss);
  give(c, nan ? (double)NAN : (double)loss);
  c->out[TOKENS][0] = nan ? -1 : (double)count;
  c->out[KL_MEAN][0] = nan ? (double)NAN : (double)(kl / some);
  c->out[CLIPPED][0] = nan ? (double)NAN : (double)(clipped / some);
  for (size_t t = 0; t < c->n && !nan; t++) {
    real x = c->in[X][t], away = whole ? mean : x - c->in[OLD][t];
    real up = c->in[c->in[REFERENCE] ? REFERENCE : OLD][t] - x;
    c->out[DX][t] = !there(c, t) ? 0
                                 : number_of((shared ? all / some : slope[t]) / over, away) +
                                       number_of(part(weight, bent[t]) / over, up);
  }
  free(slope);
  free(bent);
}

static token clipped_token(const row_ref_call *c, real x, real ratio, real a) {
  real low = 1 - (real)c->q[OWN + 1], high = 1 + (real)c->q[OWN + 2], dual = c->q[OWN + 3];
  real kept = a > 0 ? fminl(ratio, high) : fminl(fmaxl(ratio, low), dual), loss = -part(a, kept);
  return (token){loss, kept == ratio ? loss : 0, kept != ratio && a != 0};
}
void policy_loss_ref(const row_ref_call *c) {
  int whole = c->q[OWN] == 1;
  policy(c, clipped_token, whole, whole && c->q[OWN + 4] == 0);
}
static token gated_token(const row_ref_call *c, real x, real ratio, real a) {
  real tau = a > 0 ? c->q[OWN] : c->q[OWN + 1], u = tau * (ratio - 1);
  return (token){-part(a, 4 / tau * sigmoid(u)), -part(a, part(4 * sigmoid(u) * sigmoid(-u), ratio)), 0};
}
void soft_gated_policy_loss_ref(const row_ref_call *c) { policy(c, gated_token, 0, 0); }
static token cispo_token(const row_ref_call *c, real x, real ratio, real a) {
  real slope = -part(a, fminl(ratio, (real)c->q[OWN]));
  return (token){part(slope, x), slope, ratio > (real)c->q[OWN]};
}
void cispo_loss_ref(const row_ref_call *c) { policy(c, cispo_token, 0, 0); }

/* ---- pairs ---- */

enum { FORM, BETA, SMOOTHING, MARGIN, NLL, OVER_N, TAU, DIVERGENCE, ALPHA };

typedef struct slopes {
  real loss, a, b;
} slopes;
static real log_s(real u) { return -softplus(-u); }
static slopes by_z(real beta, real loss, real slope) { return (slopes){loss, beta * slope, -beta * slope}; }
static slopes dpo_form(int form, const double *q, real a, real b, real m) {
  real beta = q[BETA], e = q[SMOOTHING], z = beta * (a - b) - m, A = beta * a, B = beta * b;
  real half = 1 / (2 * beta), tau = q[TAU], ipo = a - b - m / beta - half;
  real yes = sigmoid(z), no = sigmoid(-z), mix = sigmoid(z / tau);
  real burst = z > 0 ? expl(-z) * mix : expl(z / tau - z) / (1 + expl(z / tau));
  switch (form) {
    case 0: return by_z(beta, -part(1 - e, log_s(z)) - part(e, log_s(-z)), e * yes - (1 - e) * no);
    case 1: return by_z(beta, fmaxl(0, 1 - z), z < 1 ? -1 : 0);
    case 2: return (slopes){ipo * ipo, 2 * ipo, -2 * ipo};
    case 3:
      return by_z(beta, (-part(1 - e, log_s(z)) + part(e, log_s(-z))) / (1 - 2 * e),
                  (-(1 - e) * no - e * yes) / (1 - 2 * e));
    case 4:
      return by_z(beta, part(yes, log_s(z) - log1pl(-e)) + part(no, log_s(-z) - logl(e)),
                  part(yes * no, z - log1pl(-e) + logl(e)));
    case 5:
      return (slopes){-log_s(A) - log_s(-A) / 2 - log_s(-B) / 2, beta * (sigmoid(A) / 2 - sigmoid(-A)),
                      beta * sigmoid(B) / 2};
    case 6: return (slopes){-log_s(A - m) - log_s(m - B), -beta * sigmoid(m - A), beta * sigmoid(B - m)};
    case 7:
      return (slopes){(a - half) * (a - half) + (b + half) * (b + half), 2 * (a - half), 2 * (b + half)};
    case 8:
      return (slopes){sigmoid(-A) + sigmoid(B), -beta * sigmoid(A) * sigmoid(-A),
                      beta * sigmoid(B) * sigmoid(-B)};
    case 9: return (slopes){sigmoid(A) + no, beta * (sigmoid(A) * sigmoid(-A) - yes * no), beta * yes * no};
    default:
      return by_z(beta, part(1 - mix, -log_s(z)) + burst,
                  -no * (1 - mix) - part(mix * (1 - mix) / tau, -log_s(z)) +
                      part(burst, (1 - mix) / tau - 1));
  }
}

/* The score of a log-ratio, and its derivative. */
static real divergence_of(const double *q, real r, real *slope) {
  int form = (int)q[DIVERGENCE];
  real power = form == 1 ? -1 : (real)q[ALPHA] - 1, t = power * r;
  *slope = 1;
  if (form == 0 || (form == 3 && power == 0)) return r;
  if (form == 2) return *slope = sigmoid(-r), log_s(r);
  *slope = t > 80 ? 0 : expl(t);
  return expl(fminl(t, 80)) / power;
}

typedef struct pair_at {
  real x, a, b, slope_a, slope_b, w;
  slopes f;
} pair_at;
static void pairs(const row_ref_call *c, const pair_at *p) {
  real sum = 0, margin = 0, n = (real)c->n, scale = c->q[OVER_N] == 1 && n > 0 ? 1 / n : 1;
  double right = 0;
  int nan = 0;
  for (size_t j = 0; j < c->n; j++) {
    real ahead = p[j].a - p[j].b;
    sum += part(p[j].w, p[j].f.loss) - part((real)c->q[NLL], p[j].x);
    nan |= isnan(ahead) || isnan(p[j].x) || isnan(p[j].w);
    right += ahead > 0;
    margin += isfinite(ahead) ? ahead : 0;
  }
  nan |= isnan(sum);
  give(c, nan ? (double)NAN : (double)(scale * sum));
  c->out[3][0] = nan ? -1 : right;
  c->out[4][0] = nan ? (double)NAN : (double)(n > 0 ? (real)c->q[BETA] * margin / n : 0);
  for (size_t j = 0; j < c->n && !nan; j++)
    c->out[DX][j] = number(scale * (part(p[j].slope_a, part(p[j].w, p[j].f.a)) - (real)c->q[NLL]));
}

void dpo_loss_ref(const row_ref_call *c) {
  pair_at *p = calloc(c->n + 1, sizeof *p);
  if (!p) abort();
  for (size_t j = 0; j < c->n; j++) {
    pair_at *k = p + j;
    k->x = log_p(c->in[0][j]), k->w = c->in[5] ? c->in[5][j] : 1;
    k->a = divergence_of(c->q, k->x - log_p(c->in[2][j]), &k->slope_a);
    k->b = divergence_of(c->q, log_p(c->in[1][j]) - log_p(c->in[3][j]), &k->slope_b);
    k->f = dpo_form((int)c->q[FORM], c->q, k->a, k->b, (real)c->q[MARGIN] + (c->in[4] ? c->in[4][j] : 0));
  }
  pairs(c, p);
  free(p);
}

static real log_odds(real x, real *slope) {
  *slope = -1 / expm1l(x);
  if (x > 0) return (real)NAN;
  return -x > 40 ? x - log1pl(-expl(x)) : -logl(expm1l(-x));
}
void cpo_loss_ref(const row_ref_call *c) {
  pair_at *p = calloc(c->n + 1, sizeof *p);
  real beta = c->q[BETA];
  if (!p) abort();
  for (size_t j = 0; j < c->n; j++) {
    pair_at *k = p + j;
    real m = (real)c->q[MARGIN] + (c->in[2] ? c->in[2][j] : 0);
    double one[TAU + 1] = {0};
    k->x = k->a = log_p(c->in[0][j]), k->b = log_p(c->in[1][j]), k->w = c->in[3] ? c->in[3][j] : 1;
    k->slope_a = k->slope_b = 1;
    for (int q = 0; q < TAU; q++) one[q] = c->q[q];
    one[TAU] = 1;
    if (c->q[FORM] == 3)
      k->a = log_odds(k->a, &k->slope_a), k->b = log_odds(k->b, &k->slope_b), one[BETA] = 1;
    k->f = dpo_form(c->q[FORM] == 3 ? 0 : (int)c->q[FORM], one, k->a, k->b, m);
    if (c->q[FORM] == 3) k->f = (slopes){beta * k->f.loss, beta * k->f.a, beta * k->f.b};
  }
  pairs(c, p);
  free(p);
}

void kto_loss_ref(const row_ref_call *c) {
  real sum = 0, beta = c->q[1], yes = c->q[2], no = c->q[3], z = c->in[3] ? c->in[3][0] : 0;
  real scale = c->q[4] == 1 && c->n > 0 ? 1 / (real)c->n : 1;
  int bco = c->q[0] == 1, nan = 0;
  if (!bco && z < 0) z = 0;
  for (size_t j = 0; j < c->n; j++) {
    real t = c->in[2][j], u = beta * (log_p(c->in[0][j]) - log_p(c->in[1][j]) - z), d = part(yes, t),
         e = part(no, 1 - t);
    sum += part(d, bco ? -log_s(u) : sigmoid(-u)) + part(e, bco ? -log_s(-u) : sigmoid(u));
    nan |= isnan(u) || isnan(t);
    real both = sigmoid(u) * sigmoid(-u);
    c->out[DX][j] = number(scale * beta * (bco ? e * sigmoid(u) - d * sigmoid(-u) : (e - d) * both));
  }
  if (nan || isnan(sum)) give(c, (double)NAN);
  c->out[LOSS][0] = nan ? (double)NAN : (double)(scale * sum);
}
