/* fit/functions_recovery.c - label_recovery: what the gradient of the last layer tells of the row
 * that it is of, for audits of privacy.
 *
 * The gradient of the cross-entropy of one row x with the label y is G = (p - y) x^T, p = softmax(W
 * x + b), and p - y for the bias. With that of the bias x = G_r / g_r, y = p - g. Without it x = f
 * G_r of a row r and an unknown f, and y(f) = softmax(f W G_r + b) - v / f, v = G G_r / |G_r|^2;
 * the true f is where all but one (smoothed labels) or two (mixed ones) of the elements of y are
 * equal. */
#include "functions.h"

enum { WEIGHT, GRADIENT, BIAS, BIAS_GRADIENT }; /* inputs */
enum { FEATURES, LABEL, FACTOR, CERTAIN };      /* outputs */
enum { STEPS = 321, REFINE = 60, NEWTON = 30 };
#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

typedef struct recovery {
  const tensor_call *c;
  int64_t classes, d, large;           /* large: elements of y that may differ */
  double *w, *bias, *g, *g_bias, *row; /* row: G_r, or x */
  double *slope, *v, *p, *y;           /* slope: W G_r */
  int64_t top[2];                      /* the largest elements of y */
} recovery;

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* p = softmax(f slope + b) */
static void chances(const recovery *x, double f) {
  double most = -INF, sum = 0;
  for (int64_t j = 0; j < x->classes; j++) {
    x->p[j] = f * x->slope[j] + x->bias[j];
    most = x->p[j] > most || x->p[j] != x->p[j] ? x->p[j] : most;
  }
  for (int64_t j = 0; j < x->classes; j++) sum += x->p[j] = fit_math()->exp(x->p[j] - most);
  for (int64_t j = 0; j < x->classes; j++) x->p[j] /= sum;
}

/* Whether element j of y is one of those that are equal in a label. */
static bool is_small(const recovery *x, int64_t j) {
  return j != x->top[0] && (x->large < 2 || j != x->top[1]);
}

/* y(f), its two largest elements, and the variance of the small ones. */
static double variance_at(recovery *x, double f) {
  const double count = (double)(x->classes - x->large);
  double mean = 0, sum = 0;
  chances(x, f);
  x->top[0] = x->top[1] = -1;
  for (int64_t j = 0; j < x->classes; j++) {
    x->y[j] = x->p[j] - x->v[j] / f;
    if (x->top[0] < 0 || x->y[j] > x->y[x->top[0]]) x->top[1] = x->top[0], x->top[0] = j;
    else if (x->top[1] < 0 || x->y[j] > x->y[x->top[1]]) x->top[1] = j;
  }
  for (int64_t j = 0; j < x->classes; j++) mean += is_small(x, j) ? x->y[j] / count : 0;
  for (int64_t j = 0; j < x->classes; j++) sum += is_small(x, j) ? (x->y[j] - mean) * (x->y[j] - mean) : 0;
  return sum / count;
}

/* By which f changes to where the small elements, taken as linear, vary least (Gauss, Newton). */
static double newton(const recovery *x, double f) {
  const double lean = dot(x->p, x->slope, x->classes), count = (double)(x->classes - x->large);
  double mean_y = 0, mean_s = 0, down = 0, curve = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < x->classes; j++) {
      const double s = x->p[j] * (x->slope[j] - lean) + x->v[j] / (f * f), y = x->y[j];
      if (!is_small(x, j)) continue;
      if (pass == 0) mean_y += y / count, mean_s += s / count;
      else down += (y - mean_y) * (s - mean_s), curve += (s - mean_s) * (s - mean_s);
    }
  return curve > 0 ? -down / curve : 0;
}

/* From between two factors that enclose a least one: by ternary search in the logarithm, then by
 * Newton's steps as long as they help. */
static double refine(recovery *x, double low, double high, double *least) {
  const double from = low, to = high;
  for (int k = 0; k < REFINE; k++) {
    const double by = __builtin_sqrt(__builtin_sqrt(high / low)), a = low * by, b = high / by;
    if (variance_at(x, a) < variance_at(x, b)) high = b;
    else low = a;
  }
  double f = low;
  *least = variance_at(x, f);
  for (int k = 0; k < NEWTON; k++) {
    const double next = f + newton(x, f);
    if (!((next - from) * (next - to) < 0)) break; /* it left what encloses it */
    const double value = variance_at(x, next);
    if (!(value < *least)) break;
    f = next, *least = value;
  }
  return f;
}

/* Of the least values within the range, of both signs, the smallest; NaN: there is none. */
static double find_factor(recovery *x) {
  const double step = fit_math()->exp(0.125 * fit_math()->log(2));
  double best = NAN_, least = INF;
  for (int sign = -1; sign <= 1; sign += 2) {
    double before = INF, here = INF, f = sign * 0x1p-20;
    for (int k = 0; k < STEPS; k++, f *= step) {
      const double after = variance_at(x, f);
      if (here < before && here <= after) {
        double value;
        const double own = refine(x, f / step / step, f, &value);
        if (value < least) least = value, best = own;
      }
      before = here, here = after;
    }
  }
  return best;
}

static void take(recovery *x) {
  const tensor_call *c = x->c;
  tensor_load(c, c->in.view + WEIGHT, 0, x->classes * x->d, x->w);
  tensor_load(c, c->in.view + GRADIENT, 0, x->classes * x->d, x->g);
  for (int64_t j = 0; j < x->classes; j++) x->bias[j] = x->g_bias[j] = 0;
  if (c->in.given[BIAS]) tensor_load(c, c->in.view + BIAS, 0, x->classes, x->bias);
  if (c->in.given[BIAS_GRADIENT]) tensor_load(c, c->in.view + BIAS_GRADIENT, 0, x->classes, x->g_bias);
}

/* The row that tells most: with the largest gradient of the bias, or else the longest. */
static int64_t telling(const recovery *x) {
  const bool closed = x->c->in.given[BIAS_GRADIENT];
  double most = 0;
  int64_t best = -1;
  for (int64_t j = 0; j < x->classes; j++) {
    const double size = closed ? __builtin_fabs(x->g_bias[j]) : dot(x->g + j * x->d, x->g + j * x->d, x->d);
    if (size > most && size < INF) most = size, best = j;
  }
  return best;
}

/* The factor, with y in place; NaN: there is none. */
static double recover(recovery *x) {
  const int64_t r = telling(x), d = x->d;
  if (r < 0 || x->classes - x->large < (x->c->in.given[BIAS_GRADIENT] ? 1 : 3)) return NAN_;
  for (int64_t i = 0; i < d; i++) x->row[i] = x->g[r * d + i];
  for (int64_t j = 0; j < x->classes; j++) {
    x->slope[j] = dot(x->w + j * d, x->row, d);
    x->v[j] = dot(x->g + j * d, x->row, d) / dot(x->row, x->row, d);
  }
  const bool closed = x->c->in.given[BIAS_GRADIENT];
  const double f = closed ? 1 / x->g_bias[r] : find_factor(x);
  if (closed) /* the same y(f), without rounding of v */
    for (int64_t j = 0; j < x->classes; j++) x->v[j] = x->g_bias[j] * f;
  return f;
}

/* A probability each, and the small ones equal: the label is that of the row. */
static bool is_certain(const recovery *x, double variance) {
  bool good = variance < 1e-9;
  for (int64_t j = 0; j < x->classes; j++) good &= x->y[j] >= -1e-6 && x->y[j] <= 1 + 1e-6;
  return good;
}

smx_status fit_recovery(const tensor_call *c) {
  recovery x = {.c = c, .classes = tensor_dim(c, "c"), .d = tensor_dim(c, "d")};
  int64_t numbers;
  x.large = 1 + (tensor_param(c, "form") != 0);
  const bool fits = smx_multiply(x.classes + 1, x.d + 8, &numbers) && numbers < INT64_MAX / 64;
  x.w = fit_reserve(c, fits ? 2 * numbers : INT64_MAX / 8 - 1);
  if (!x.w) return SMX_ERR_NOMEM;
  x.g = x.w + x.classes * x.d, x.row = x.g + x.classes * x.d;
  double **const each[] = {&x.bias, &x.g_bias, &x.slope, &x.v, &x.p, &x.y};
  for (size_t k = 0; k < sizeof each / sizeof *each; k++) *each[k] = x.row + x.d + (int64_t)k * x.classes;
  take(&x);
  const double f = recover(&x), variance = f == f ? variance_at(&x, f) : NAN_;
  for (int64_t i = 0; i < x.d; i++) tensor_put(c, FEATURES, i, f == f ? f * x.row[i] : NAN_);
  for (int64_t j = 0; j < x.classes; j++) tensor_put(c, LABEL, j, f == f ? x.y[j] : NAN_);
  tensor_put(c, FACTOR, 0, f);
  *(int64_t *)(void *)c->out.view[CERTAIN].data = f == f && is_certain(&x, variance);
  smx_free(c->ctx, x.w);
  return SMX_OK;
}
