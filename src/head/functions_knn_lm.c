/* head/functions_knn_lm.c - a language model's distribution mixed with that of tokens which
 * followed similar contexts (Khandelwal et al. 2020; Xu, Alon, Neubig 2023):
 *
 *   y_j = log((1 - s) softmax(x)_j + s sum_(i: token_i = j) w_i),  w = softmax(-distance / T)
 *
 * With r_j = (1 - s) softmax(x)_j / e^(y_j), the part of the model, and G upstream: the log-softmax
 * has the gradient r G, the logarithm of the sum of token j the rest, (1 - r_j) G_j. */
#include <string.h>

#include "driver/operator.h"
#include "functions.h"

enum { X, DISTANCE, TOKEN }; /* inputs */

typedef struct knn {
  const tensor_call *c;
  int64_t n, classes, k, bytes;
  double temperature, keeps, takes; /* log (1 - s), log s */
  smx_scratch scratch;
  char *log_p, *up, *distance; /* real: of all rows, for gradients */
} knn;

/* What a task works in: the weights of the neighbours, relative to the nearest, their sum, and the
 * sum of each token, negative once it has been used; and two rows. */
typedef struct knn_row {
  double *weight, *sum, *y, *g, total;
  const int64_t *token;
  bool hollow; /* the model has nothing */
} knn_row;

static size_t place_of(const knn *s) { return sizeof(double) * (size_t)(s->k + 3 * s->classes); }

static knn_row open_row(const knn *s, int64_t row, double *memory) {
  const double inf = __builtin_inf();
  knn_row r = {.weight = memory, .sum = memory + s->k};
  double nearest = inf;
  r.y = r.sum + s->classes, r.g = r.y + s->classes;
  r.token = (const int64_t *)(void *)s->c->in.view[TOKEN].data + row * s->k;
  r.hollow = tensor_row_is_empty(s->c, row, s->classes);
  tensor_load(s->c, s->c->in.view + DISTANCE, row * s->k, s->k, r.weight);
  memset(r.sum, 0, sizeof *r.sum * (size_t)s->classes);
  for (int64_t i = 0; i < s->k; i++)
    if (r.weight[i] < nearest || r.weight[i] != r.weight[i]) nearest = r.weight[i];
  for (int64_t i = 0; i < s->k; i++) {
    const double d = r.weight[i];
    r.weight[i] = d == inf ? 0 : head_math()->exp((nearest - d) / s->temperature);
    r.sum[r.token[i]] += r.weight[i], r.total += r.weight[i];
  }
  return r;
}

/* log w of a token, and that of the model. */
static double log_weight(const knn *s, const knn_row *r, double sum) {
  return s->takes + head_math()->log(sum) - head_math()->log(r->total);
}
static double log_model(const knn *s, const knn_row *r, double log_p) {
  return r->hollow ? -__builtin_inf() : s->keeps + log_p;
}

static void forward_task(void *arg, int64_t row) {
  knn *s = arg;
  double *const memory = smx_scratch_take(&s->scratch);
  const knn_row r = open_row(s, row, memory);
  tensor_load(s->c, s->c->out.view, row * s->classes, s->classes, r.y);
  for (int64_t j = 0; j < s->classes && r.total != 0; j++)
    r.y[j] = r.total > 0 ? log_model(s, &r, r.y[j]) : r.total;
  for (int64_t i = 0; i < s->k; i++) {
    double *const sum = r.sum + r.token[i];
    if (!(*sum > 0)) continue;
    r.y[r.token[i]] = head_log_add(r.y[r.token[i]], log_weight(s, &r, *sum));
    *sum = -*sum;
  }
  tensor_store(s->c, s->c->out.view, row * s->classes, s->classes, r.y);
  smx_scratch_give(&s->scratch, memory);
}

/* g becomes the gradient of the log-softmax, y of a token with neighbours that of the logarithm of
 * their sum; returns the sum of these. */
static double split_gradients(const knn *s, const knn_row *r) {
  double all = 0;
  if (r->total == 0) return 0;
  for (int64_t i = 0; i < s->k; i++) {
    const int64_t j = r->token[i];
    if (!(r->sum[j] > 0)) continue;
    const double own = log_model(s, r, r->y[j]), other = log_weight(s, r, r->sum[j]),
                 y = head_log_add(own, other);
    const double g = y > -__builtin_inf() || y != y ? r->g[j] : 0;
    r->g[j] = g == 0 ? 0 : g * head_math()->exp(own - y);
    r->y[j] = g == 0 ? 0 : g * head_math()->exp(other - y);
    all += r->y[j], r->sum[j] = -r->sum[j];
  }
  for (int64_t j = 0; j < s->classes; j++)
    if (r->total != r->total) r->g[j] = r->total;
    else if (r->sum[j] == 0 && (r->hollow || s->keeps == -__builtin_inf())) r->g[j] = 0;
  return all;
}

static void backward_task(void *arg, int64_t row) {
  knn *s = arg;
  const tensor_call *c = s->c;
  const int64_t at = row * s->classes;
  double *const memory = smx_scratch_take(&s->scratch);
  const knn_row r = open_row(s, row, memory);
  smx_reals_load(c->is_f64, s->log_p + at * s->bytes, s->classes, r.y);
  tensor_load(c, c->dout.view, at, s->classes, r.g);
  const double all = split_gradients(s, &r);
  smx_reals_store(c->is_f64, r.g, s->classes, s->up + at * s->bytes);
  for (int64_t i = 0; i < s->k; i++) {
    const double sum = -r.sum[r.token[i]], w = r.weight[i];
    r.weight[i] = w == 0 ? 0 : (w / r.total * all - w / sum * r.y[r.token[i]]) / s->temperature;
  }
  smx_reals_store(c->is_f64, r.weight, s->k, s->distance + row * s->k * s->bytes);
  smx_scratch_give(&s->scratch, memory);
}

/* ---- calls ---- */

static smx_tensor rows_of(const knn *s, char *data, int64_t *shape) {
  return smx_tensor_of(data, s->c->is_f64 ? SMX_F64 : SMX_F32, 2, shape, NULL);
}

static smx_status open_knn(knn *s, const tensor_call *c, bool backward) {
  *s = (knn){.c = c, .n = tensor_dim(c, "n"), .classes = tensor_dim(c, "c"), .k = tensor_dim(c, "k")};
  const double share = tensor_param(c, "share");
  s->bytes = c->is_f64 ? 8 : 4, s->temperature = tensor_param(c, "temperature");
  s->keeps = head_math()->log(1 - share), s->takes = head_math()->log(share);
  const int64_t rows = s->n * s->classes * s->bytes,
                shared = backward ? 2 * rows + s->n * s->k * s->bytes : 0;
  if (!smx_scratch_open(&s->scratch, c->ctx, (size_t)shared, place_of(s) + 1, s->n))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows of %lld", c->op->name, (long long)s->n,
                    (long long)s->classes);
  s->log_p = s->scratch.shared, s->up = s->log_p + rows, s->distance = s->up + rows;
  return SMX_OK;
}

smx_status knn_lm_forward(const tensor_call *c) {
  knn s;
  smx_status status = open_knn(&s, c, false);
  if (status != SMX_OK) return status;
  int64_t shape[] = {s.n, s.classes};
  const smx_tensor x = rows_of(&s, c->in.view[X].data, shape), y = rows_of(&s, c->out.view[0].data, shape);
  if (s.n * s.classes > 0) status = log_softmax_along(c->ctx, -1, &x, &y);
  if (status == SMX_OK) smx_parallel(c->ctx, s.n, forward_task, &s);
  smx_scratch_close(&s.scratch);
  return status;
}

smx_status knn_lm_backward(const tensor_call *c) {
  knn s;
  smx_status status = open_knn(&s, c, true);
  if (status != SMX_OK) return status;
  int64_t shape[] = {s.n, s.classes};
  const smx_tensor x = rows_of(&s, c->in.view[X].data, shape), log_p = rows_of(&s, s.log_p, shape),
                   up = rows_of(&s, s.up, shape), dx = rows_of(&s, c->din.view[X].data, shape);
  const bool any = s.n * s.classes > 0;
  if (any) status = log_softmax_along(c->ctx, -1, &x, &log_p);
  if (status == SMX_OK) smx_parallel(c->ctx, s.n, backward_task, &s);
  if (status == SMX_OK && any && c->din.given[X])
    status = log_softmax_backward_along(c->ctx, -1, &log_p, &up, &dx);
  if (status == SMX_OK && c->din.given[DISTANCE])
    memcpy(c->din.view[DISTANCE].data, s.distance, (size_t)(s.n * s.k * s.bytes));
  smx_scratch_close(&s.scratch);
  return status;
}
