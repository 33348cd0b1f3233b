/* fit/functions_scaling.c - fits of a temperature, of a scale and a bias for each class, and of a
 * matrix: the least mean of the negative log-likelihood, plus penalties. */
#include "driver/operator.h"
#include "functions.h"
#include "functions_minimise.h"

enum { LOGITS, TARGET };                /* inputs */
enum { TEMPERATURE, T_LOSS, T_BEFORE }; /* of temperature_fit */
enum { SCALE, BIAS, LOSS, BEFORE };     /* of the others */
enum { CE_LOSS, CE_DX, CE_REDUCED = 6, CE_PORTS };
enum { MOST_STEPS = 500, ROWS = 64, COLUMNS = 64 };
static const double TOLERANCE = 1e-12;

/* Rows of logits in double, and the class of each. */
typedef struct fit_set {
  const tensor_call *c;
  int64_t rows, classes, counted;
  double *z;     /* [rows, classes] */
  double *moved; /* the same, after the map; or numbers of each row */
  const double *map;
  double *slope; /* of the map */
  double *each;  /* the loss of each row */
  double loss;   /* the mean over the rows that count, without penalties */
  double l2, l2_bias, l2_diagonal;
} fit_set;

static smx_status set_open(fit_set *s, const tensor_call *c, int64_t more) {
  int64_t count;
  *s = (fit_set){.c = c, .rows = tensor_dim(c, "n"), .classes = tensor_dim(c, "c")};
  if (!smx_multiply(s->rows, s->classes, &count) || count > INT64_MAX / 64)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)s->rows);
  s->z = fit_reserve(c, count + s->rows + more);
  if (!s->z) return SMX_ERR_NOMEM;
  s->each = s->z + count, s->moved = s->each + s->rows;
  tensor_load(c, c->in.view + LOGITS, 0, count, s->z);
  for (int64_t i = 0; i < s->rows; i++) s->counted += fit_whole(c, TARGET)[i] >= 0;
  return SMX_OK;
}

/* ---- a temperature ----
 *
 * With b = 1 / T and z' = z - max: loss(b) = mean(log sum e^(b z') - b z'_target) is convex, and
 * its derivative is mean(sum z' e^(b z') / sum e^(b z') - z'_target). */

enum { LEAST_INVERSE = -10, MOST_INVERSE = 10 }; /* powers of 2 */

typedef struct temperature_set {
  fit_set *s;
  double inverse;
} temperature_set;

static void temperature_task(void *arg, int64_t task) {
  const temperature_set *t = arg;
  const fit_set *s = t->s;
  const score_row row = {.temperature = 1 / t->inverse};
  score_sums sums;
  for (int64_t i = task * ROWS; i < fit_task_end(task, s->rows, ROWS); i++) {
    const int64_t target = fit_whole(s->c, TARGET)[i];
    const double *z = s->z + i * s->classes;
    double *to = s->moved + 2 * i;
    to[0] = to[1] = 0;
    if (target < 0) continue;
    fit_math()->sums(&row, z, s->classes, NULL, &sums);
    const double below = z[target] - sums.max, nan = __builtin_nan("");
    to[0] = sums.nan || sums.valid == 0 ? nan : sums.log_sum - t->inverse * below;
    to[1] = sums.moment / (sums.rest + 1) / t->inverse - below;
  }
}

/* The derivative of the loss, which is left in s->loss. */
static double temperature_slope(fit_set *s, double inverse) {
  temperature_set t = {s, inverse};
  double slope = 0;
  smx_parallel(s->c->ctx, fit_tasks(s->rows, ROWS), temperature_task, &t);
  s->loss = 0;
  for (int64_t i = 0; i < s->rows; i++) s->loss += s->moved[2 * i], slope += s->moved[2 * i + 1];
  s->loss /= (double)s->counted;
  return slope;
}

/* Where the slope is 0 between two numbers where its signs differ: inverse quadratic interpolation
 * where that is safe, else the middle (Chandrupatla 1997). */
static double root_between(fit_set *s, double a, double fa, double b, double fb) {
  double c = a, fc = fa, share = 0.5;
  for (int k = 0; k < 100; k++) {
    const double x = a + share * (b - a), f = temperature_slope(s, x);
    if ((f > 0) == (fa > 0)) c = a, fc = fa;
    else c = b, fc = fb, b = a, fb = fa;
    a = x, fa = f;
    const double best = __builtin_fabs(fa) < __builtin_fabs(fb) ? a : b;
    const double near = 4 * 0x1p-52 * __builtin_fabs(best) / __builtin_fabs(b - a);
    if (near > 0.5 || fa == 0) return fa == 0 ? a : best;
    const double xi = (a - b) / (c - b), phi = (fa - fb) / (fc - fb);
    const bool safe = phi * phi < xi && (1 - phi) * (1 - phi) < 1 - xi;
    share =
        safe ? fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb) : 0.5;
    share = share < near ? near : share > 1 - near ? 1 - near : share;
  }
  return a;
}

/* From 1 on, where the slope is fa, by powers of 2 to where its sign changes, or to the end of the
 * range. */
static double best_inverse(fit_set *s, double fa) {
  double a = 1;
  const bool up = fa < 0;
  if (fa == 0) return 1;
  for (int k = 1; k <= (up ? MOST_INVERSE : -LEAST_INVERSE); k++) {
    const double b = up ? 2 * a : a / 2, fb = temperature_slope(s, b);
    if (up ? fb > 0 : fb < 0) return fa == 0 ? a : root_between(s, a, fa, b, fb);
    a = b, fa = fb;
  }
  return a;
}

smx_status fit_temperature(const tensor_call *c) {
  fit_set s;
  const double nan = __builtin_nan("");
  const smx_status status = set_open(&s, c, 2 * tensor_dim(c, "n"));
  if (status != SMX_OK) return status;
  double inverse = 1, before = nan, slope = nan;
  s.loss = nan;
  if (s.counted > 0) slope = temperature_slope(&s, 1), before = s.loss;
  if (before - before == 0) inverse = best_inverse(&s, slope), (void)temperature_slope(&s, inverse);
  tensor_put(c, TEMPERATURE, 0, 1 / inverse);
  tensor_put(c, T_LOSS, 0, s.loss), tensor_put(c, T_BEFORE, 0, before);
  smx_free(c->ctx, s.z);
  return SMX_OK;
}

/* ---- a scale and a bias for each class ---- */

static void move_task(void *arg, int64_t task) {
  const fit_set *s = arg;
  const double *scale = s->map, *bias = s->map + s->classes;
  for (int64_t i = task * ROWS * s->classes; i < fit_task_end(task, s->rows, ROWS) * s->classes;
       i += s->classes)
    for (int64_t j = 0; j < s->classes; j++) {
      const double z = s->z[i + j];
      s->moved[i + j] = z == -__builtin_inf() ? z : scale[j] * z + bias[j];
    }
}

static void slope_task(void *arg, int64_t task) {
  const fit_set *s = arg;
  const int64_t first = task * COLUMNS, end = fit_task_end(task, s->classes, COLUMNS);
  double *scale = s->slope, *bias = s->slope + s->classes;
  for (int64_t j = first; j < end; j++) scale[j] = bias[j] = 0;
  for (int64_t i = 0; i < s->rows * s->classes; i += s->classes)
    for (int64_t j = first; j < end; j++) {
      const double g = s->moved[i + j], z = s->z[i + j];
      scale[j] += g * (z == -__builtin_inf() ? 0 : z), bias[j] += g;
    }
}

/* cross_entropy with its mean, over the rows that count. */
static smx_params mean_of(const smx_op *op) {
  smx_params params;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "ignore_index", -1);
  smx_params_set(op, &params, "reduction", SMX_REDUCE_MEAN);
  return params;
}

static double penalty(const fit_set *s, const double *x, double *g, int64_t n, double by, double from) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const double d = x[i] - from;
    sum += d * d, g[i] += 2 * by * d;
  }
  return by * sum;
}

static smx_status vector_loss(void *arg, const double *x, double *f, double *g) {
  fit_set *s = arg;
  const smx_op *op = smx_op_find("cross_entropy");
  const smx_params params = mean_of(op);
  int64_t shape[] = {s->rows, s->classes}, c = s->classes;
  const smx_tensor z = smx_tensor_of(s->moved, SMX_F64, 2, shape, NULL),
                   one = smx_tensor_of(&s->loss, SMX_F64, 0, NULL, NULL),
                   each = smx_tensor_of(s->each, SMX_F64, 1, &s->rows, NULL),
                   *in[] = {&z, s->c->in.given[TARGET]},
                   *out[CE_PORTS] = {[CE_LOSS] = &each, [CE_DX] = &z, [CE_REDUCED] = &one};
  s->map = x, s->slope = g;
  smx_parallel(s->c->ctx, fit_tasks(s->rows, ROWS), move_task, s);
  const smx_status status = operator_forward(op, s->c->ctx, &params, 2, in, CE_PORTS, out);
  if (status != SMX_OK) return status;
  smx_parallel(s->c->ctx, fit_tasks(c, COLUMNS), slope_task, s);
  *f = s->loss;
  *f += penalty(s, x, g, c, s->l2 / (double)c, 1);
  *f += penalty(s, x + c, g + c, c, s->l2_bias / (double)c, 0);
  return SMX_OK;
}

/* ---- a matrix and a bias ---- */

/* Of the elements off the diagonal, of 1 less those on it, and of the bias. */
static double matrix_penalty(const fit_set *s, const double *x, double *g) {
  const int64_t c = s->classes;
  const double off = c > 1 ? s->l2 / ((double)c * (double)(c - 1)) : 0, on = s->l2_diagonal / (double)c;
  double sum = 0;
  for (int64_t i = 0; i < c; i++)
    for (int64_t j = 0; j < c; j++) {
      const double d = x[i * c + j] - (i == j), by = i == j ? on : off;
      sum += by * d * d, g[i * c + j] += 2 * by * d;
    }
  return sum + penalty(s, x + c * c, g + c * c, c, s->l2_bias / (double)c, 0);
}

static smx_status matrix_loss(void *arg, const double *x, double *f, double *g) {
  fit_set *s = arg;
  const smx_op *op = smx_op_find("cross_entropy");
  const smx_params params = mean_of(op);
  int64_t c = s->classes, rows[] = {s->rows, c}, square[] = {c, c};
  const smx_tensor h = smx_tensor_of(s->z, SMX_F64, 2, rows, NULL),
                   w = smx_tensor_of(x, SMX_F64, 2, square, NULL),
                   b = smx_tensor_of(x + c * c, SMX_F64, 1, &c, NULL),
                   dw = smx_tensor_of(g, SMX_F64, 2, square, NULL),
                   db = smx_tensor_of(g + c * c, SMX_F64, 1, &c, NULL),
                   one = smx_tensor_of(&s->loss, SMX_F64, 0, NULL, NULL),
                   each = smx_tensor_of(s->each, SMX_F64, 1, &s->rows, NULL),
                   *in[] = {NULL, s->c->in.given[TARGET]},
                   *out[CE_PORTS] = {[CE_LOSS] = &each, [CE_REDUCED] = &one};
  const smx_linear linear = {.size = sizeof linear, .h = &h, .w = &w, .bias = &b, .dw = &dw, .dbias = &db};
  const smx_status status = smx_linear_forward(op, s->c->ctx, &params, &linear, 2, in, CE_PORTS, out);
  if (status == SMX_OK) *f = s->loss + matrix_penalty(s, x, g);
  return status;
}

/* ---- fits of either ---- */

/* scales: elements of the scale, or of the matrix; from the identity on. */
static smx_status fit_map(fit_set *s, fit_function *function, int64_t scales) {
  const int64_t c = s->classes, n = scales + c;
  const double nan = __builtin_nan("");
  double *x = fit_reserve(s->c, 2 * n), f, before = nan;
  smx_status status = x ? SMX_OK : SMX_ERR_NOMEM;
  if (!x) return status;
  for (int64_t i = 0; i < n; i++) x[i] = i < scales && (scales == c || i % (c + 1) == 0);
  s->loss = nan;
  if (s->counted > 0 && c > 0) {
    const fit_search search = {function, s, n, MOST_STEPS, TOLERANCE};
    status = function(s, x, &f, x + n);
    before = s->loss;
    if (status == SMX_OK && before - before == 0) status = fit_minimise(s->c->ctx, &search, x, &f);
    if (status == SMX_OK) status = function(s, x, &f, x + n);
  }
  if (status == SMX_OK) {
    tensor_store(s->c, s->c->out.view + SCALE, 0, scales, x);
    tensor_store(s->c, s->c->out.view + BIAS, 0, c, x + scales);
    tensor_put(s->c, LOSS, 0, s->loss), tensor_put(s->c, BEFORE, 0, before);
  }
  smx_free(s->c->ctx, x);
  return status;
}

static smx_status fit_linear(const tensor_call *c, bool matrix) {
  fit_set s;
  const int64_t classes = tensor_dim(c, "c");
  smx_status status = set_open(&s, c, matrix ? 0 : tensor_dim(c, "n") * classes);
  if (status != SMX_OK) return status;
  s.l2 = tensor_param(c, "l2"), s.l2_bias = tensor_param(c, "l2_bias");
  if (matrix) s.l2_diagonal = tensor_param(c, "l2_diagonal");
  status = fit_map(&s, matrix ? matrix_loss : vector_loss, matrix ? classes * classes : classes);
  smx_free(c->ctx, s.z);
  return status;
}
smx_status fit_vector(const tensor_call *c) { return fit_linear(c, false); }
smx_status fit_matrix(const tensor_call *c) { return fit_linear(c, true); }
