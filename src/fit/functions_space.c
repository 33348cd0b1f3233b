/* fit/functions_space.c - what is fitted to features of known rows: class means with their shared
 * covariance (Mahalanobis), and the space that rows leave free, beside what the logits tell (ViM).
 * Blocks of rows in double, moments as products of matrices. */
#include "functions.h"
#include "functions_eigen.h"

enum { FEATURES, TARGET }; /* inputs of mahalanobis_fit */
enum { BLOCK = 512, ROWS = 16, COLUMNS = 64 };
#define NAN_ __builtin_nan("")
#define INF __builtin_inf()

/* ---- moments of rows ---- */

/* Rows less what each has as its centre, block by block. */
typedef struct moments {
  const tensor_call *c;
  int64_t rows, d, from, count; /* count rows from row `from` on are in x */
  const double *centres;        /* [.., d] */
  double *x, *product, *sum;    /* sum [d, d] of x^T x */
} moments;

static int64_t centre_of(const moments *m, int64_t row) {
  return m->c->op - fit_table == FIT_mahalanobis_fit ? fit_whole(m->c, TARGET)[row] : 0;
}

static void centre_task(void *arg, int64_t task) {
  const moments *m = arg;
  for (int64_t i = task * ROWS; i < fit_task_end(task, m->count, ROWS); i++) {
    const int64_t k = centre_of(m, m->from + i);
    double *x = m->x + i * m->d;
    if (k >= 0) tensor_load(m->c, m->c->in.view + FEATURES, (m->from + i) * m->d, m->d, x);
    for (int64_t j = 0; j < m->d; j++) x[j] = k < 0 ? 0 : x[j] - m->centres[k * m->d + j];
  }
}

static bool next_rows(moments *m) {
  m->from += m->count;
  m->count = m->rows - m->from < BLOCK ? m->rows - m->from : BLOCK;
  smx_parallel(m->c->ctx, fit_tasks(m->count, ROWS), centre_task, m);
  return m->count > 0 && m->d > 0;
}

/* sum += a^T b of [count, d] */
static smx_status add_product(const moments *m, int64_t count, const double *a, const double *b) {
  const smx_status status = fit_product(m->c->ctx, m->d, m->d, count, a, true, b, true, m->product);
  for (int64_t i = 0; i < m->d * m->d && status == SMX_OK; i++) m->sum[i] += m->product[i];
  return status;
}

static smx_status moments_of(moments *m) {
  smx_status status = SMX_OK;
  m->from = m->count = 0;
  for (int64_t i = 0; i < m->d * m->d; i++) m->sum[i] = 0;
  while (status == SMX_OK && next_rows(m)) status = add_product(m, m->count, m->x, m->x);
  return status;
}

/* ---- mahalanobis_fit ---- */

enum { MEAN, WHITEN, COUNT, MEAN_ALL, WHITEN_ALL }; /* outputs */

typedef struct class_means {
  const tensor_call *c;
  int64_t rows, d, classes;
  double *mean, *all; /* sums of rows, and what they are divided by */
  int64_t *count;
} class_means;

static void means_task(void *arg, int64_t task) {
  const class_means *x = arg;
  const int64_t from = task * COLUMNS, n = fit_task_end(task, x->d, COLUMNS) - from;
  double line[COLUMNS];
  for (int64_t i = 0; i < x->rows; i++) {
    const int64_t k = fit_whole(x->c, TARGET)[i];
    if (k < 0) continue;
    tensor_load(x->c, x->c->in.view + FEATURES, i * x->d + from, n, line);
    for (int64_t j = 0; j < n; j++) x->mean[k * x->d + from + j] += line[j], x->all[from + j] += line[j];
  }
}

/* Means of the classes that have rows, NaN of others, and of all rows; returns how many rows. */
static double means_of(class_means *x) {
  double counted = 0;
  for (int64_t i = 0; i < (x->classes + 1) * x->d; i++) x->mean[i] = 0;
  for (int64_t k = 0; k < x->classes; k++) x->count[k] = 0;
  for (int64_t i = 0; i < x->rows; i++)
    if (fit_whole(x->c, TARGET)[i] >= 0) x->count[fit_whole(x->c, TARGET)[i]]++, counted++;
  smx_parallel(x->c->ctx, fit_tasks(x->d, COLUMNS), means_task, x);
  for (int64_t k = 0; k < x->classes; k++)
    for (int64_t j = 0; j < x->d; j++) x->mean[k * x->d + j] /= (double)x->count[k];
  for (int64_t j = 0; j < x->d; j++) x->all[j] /= counted;
  return counted;
}

/* sum becomes that of rows less the mean of all: what classes have around theirs is added. */
static smx_status add_between(const moments *m, const class_means *x) {
  smx_status status = SMX_OK;
  for (int64_t k = 0; k < x->classes && status == SMX_OK; k += BLOCK) {
    const int64_t count = x->classes - k < BLOCK ? x->classes - k : BLOCK;
    for (int64_t i = 0; i < count * m->d; i++) {
      const int64_t class = k + i / m->d, j = i % m->d;
      const double way = x->mean[class * m->d + j] - x->all[j];
      m->x[i] = x->count[class] > 0 ? __builtin_sqrt((double)x->count[class]) * way : 0;
    }
    status = add_product(m, count, m->x, m->x);
  }
  return status;
}

/* Writes W of the covariance sum / rows, whose diagonal gets ridge times its mean. */
static void put_whiten(const moments *m, double rows, int port) {
  const int64_t d = m->d;
  double trace = 0;
  for (int64_t i = 0; i < d * d; i++) m->sum[i] /= rows;
  for (int64_t i = 0; i < d; i++) trace += m->sum[i * d + i];
  const double ridge = tensor_param(m->c, "ridge") * trace / (double)d;
  for (int64_t i = 0; i < d; i++) m->sum[i * d + i] += ridge;
  (void)fit_whiten(m->c->ctx, d, m->sum, m->product);
  tensor_store(m->c, m->c->out.view + port, 0, d * d, m->product);
}

smx_status fit_mahalanobis(const tensor_call *c) {
  moments m = {.c = c, .rows = tensor_dim(c, "n"), .d = tensor_dim(c, "d")};
  class_means x = {.c = c, .rows = m.rows, .d = m.d, .classes = tensor_dim(c, "classes")};
  const int64_t d = m.d;
  const bool all = c->out.given[WHITEN_ALL];
  int64_t room;
  if (!smx_multiply(d, x.classes + 1 + BLOCK, &room))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  x.mean = fit_reserve(c, room + 3 * d * d + x.classes);
  if (!x.mean) return SMX_ERR_NOMEM;
  x.all = x.mean + x.classes * d, m.centres = x.mean, m.x = x.all + d;
  m.product = m.x + BLOCK * d, m.sum = m.product + d * d;
  double *within = m.sum + d * d;
  x.count = (int64_t *)(void *)(within + d * d);
  const double counted = means_of(&x);
  smx_status status = moments_of(&m);
  memcpy(within, m.sum, (size_t)(d * d) * sizeof *within);
  if (status == SMX_OK && all && d > 0) status = add_between(&m, &x);
  if (status == SMX_OK) {
    tensor_store(c, c->out.view + MEAN, 0, x.classes * d, x.mean);
    memcpy(c->out.view[COUNT].data, x.count, (size_t)x.classes * sizeof *x.count);
    if (c->out.given[MEAN_ALL]) tensor_store(c, c->out.view + MEAN_ALL, 0, d, x.all);
    if (all) put_whiten(&m, counted, WHITEN_ALL);
    m.sum = within;
    put_whiten(&m, counted, WHITEN);
  }
  smx_free(c->ctx, x.mean);
  return status;
}

/* ---- mahalanobis ----
 *
 * score = -(min_k |W h - W mean_k|^2 - |W_all h - W_all mean_all|^2), the second where W_all is
 * given; its gradient is -2 W^T (W h - W mean_k) + 2 W_all^T (...). */

enum { H, MEANS, W, ALL, W_ALL }; /* inputs */

typedef struct whitened {
  const tensor_call *c;
  int64_t rows, d, k, from, count;
  double *h, *v, *v_all;           /* a block: rows, times W^T, times W_all^T */
  double *w, *w_all, *means, *all; /* means: times W^T and turned to [d, k] */
  double *score, *distance;        /* of a block; distance [count, k] */
  int64_t *nearest;
} whitened;

static void distances_task(void *arg, int64_t task) {
  const whitened *x = arg;
  const int64_t d = x->d, k = x->k;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->count, ROWS); i++) {
    double *sum = x->distance + i * k, all = 0, least = INF;
    const double *v = x->v + i * d, *v_all = x->v_all + i * d;
    for (int64_t t = 0; t < k; t++) sum[t] = 0;
    for (int64_t j = 0; j < d; j++)
      for (int64_t t = 0; t < k; t++) sum[t] += (v[j] - x->means[j * k + t]) * (v[j] - x->means[j * k + t]);
    for (int64_t j = 0; j < d && x->c->in.given[W_ALL]; j++)
      all += (v_all[j] - x->all[j]) * (v_all[j] - x->all[j]);
    x->nearest[i] = -1;
    for (int64_t t = 0; t < k; t++)
      if (sum[t] < least) least = sum[t], x->nearest[i] = t;
    x->score[i] = x->nearest[i] < 0 ? NAN_ : all - least;
  }
}

/* What W^T and W_all^T are applied to: -2 g (v - mean), 2 g (v_all - all). */
static void slopes_task(void *arg, int64_t task) {
  const whitened *x = arg;
  const int64_t d = x->d;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->count, ROWS); i++) {
    const int64_t at = x->nearest[i];
    const double g = 2 * tensor_upstream(x->c, 0, x->from + i);
    for (int64_t j = 0; j < d; j++) {
      x->v[i * d + j] = at < 0 ? NAN_ : -g * (x->v[i * d + j] - x->means[j * x->k + at]);
      if (x->c->in.given[W_ALL]) x->v_all[i * d + j] = g * (x->v_all[i * d + j] - x->all[j]);
    }
  }
}

/* to [m, d] = rows W^T, or rows W */
static smx_status whiten(const whitened *x, int64_t m, const double *rows, const double *w, bool back,
                         double *to) {
  if (m == 0 || x->d == 0) return SMX_OK;
  return fit_product(x->c->ctx, m, x->d, x->d, rows, false, w, back, to);
}

static smx_status block_distances(whitened *x) {
  tensor_load(x->c, x->c->in.view + H, x->from * x->d, x->count * x->d, x->h);
  smx_status status = whiten(x, x->count, x->h, x->w, false, x->v);
  if (status == SMX_OK && x->c->in.given[W_ALL])
    status = whiten(x, x->count, x->h, x->w_all, false, x->v_all);
  if (status == SMX_OK) smx_parallel(x->c->ctx, fit_tasks(x->count, ROWS), distances_task, x);
  return status;
}

static smx_status block_gradient(whitened *x) {
  const bool all = x->c->in.given[W_ALL];
  smx_parallel(x->c->ctx, fit_tasks(x->count, ROWS), slopes_task, x);
  smx_status status = whiten(x, x->count, x->v, x->w, true, x->h);
  if (status == SMX_OK && all) status = whiten(x, x->count, x->v_all, x->w_all, true, x->v);
  for (int64_t i = 0; i < x->count * x->d && all; i++) x->h[i] += x->v[i];
  if (status == SMX_OK) tensor_store(x->c, x->c->din.view + H, x->from * x->d, x->count * x->d, x->h);
  return status;
}

/* Matrices in double, and means as rows are. */
static smx_status load_fit(whitened *x) {
  const tensor_call *c = x->c;
  const int64_t d = x->d, k = x->k;
  double *rows = x->means + k * d;
  tensor_load(c, c->in.view + W, 0, d * d, x->w);
  tensor_load(c, c->in.view + MEANS, 0, k * d, rows);
  smx_status status = whiten(x, k, rows, x->w, false, rows + k * d);
  for (int64_t t = 0; t < k; t++)
    for (int64_t j = 0; j < d; j++) x->means[j * k + t] = rows[(k + t) * d + j];
  if (!c->in.given[W_ALL]) return status;
  tensor_load(c, c->in.view + W_ALL, 0, d * d, x->w_all);
  for (int64_t j = 0; j < d; j++) x->h[j] = 0;
  if (c->in.given[ALL]) tensor_load(c, c->in.view + ALL, 0, d, x->h);
  return status == SMX_OK ? whiten(x, 1, x->h, x->w_all, false, x->all) : status;
}

static smx_status distances(const tensor_call *c, bool backward) {
  whitened x = {.c = c, .rows = c->dims.lead_count, .d = tensor_dim(c, "d"), .k = tensor_dim(c, "k")};
  const int64_t d = x.d, k = x.k;
  if (backward && !c->din.given[H]) return SMX_OK;
  x.h = fit_reserve(c, 2 * d * d + 3 * k * d + d + BLOCK * (3 * d + k + 2));
  if (!x.h) return SMX_ERR_NOMEM;
  x.v = x.h + BLOCK * d, x.v_all = x.v + BLOCK * d, x.w = x.v_all + BLOCK * d, x.w_all = x.w + d * d;
  x.all = x.w_all + d * d, x.score = x.all + d, x.distance = x.score + BLOCK;
  x.nearest = (int64_t *)(void *)(x.distance + BLOCK * k), x.means = (double *)(void *)(x.nearest + BLOCK);
  smx_status status = load_fit(&x);
  for (; x.from < x.rows && status == SMX_OK; x.from += x.count) {
    x.count = x.rows - x.from < BLOCK ? x.rows - x.from : BLOCK;
    status = block_distances(&x);
    if (status == SMX_OK && backward) status = block_gradient(&x);
    if (status != SMX_OK || backward) continue;
    tensor_store(c, c->out.view, x.from, x.count, x.score);
    for (int64_t i = 0; i < x.count && c->out.given[1]; i++)
      ((int64_t *)(void *)c->out.view[1].data)[x.from + i] = x.nearest[i];
  }
  smx_free(c->ctx, x.h);
  return status;
}
smx_status fit_distances(const tensor_call *c) { return distances(c, false); }
smx_status fit_distances_backward(const tensor_call *c) { return distances(c, true); }

/* ---- vim_fit ---- */

enum { V_FEATURES, V_WEIGHT, V_BIAS }; /* inputs */
enum { ORIGIN, RESIDUAL, ALPHA };      /* outputs */

typedef struct vim {
  moments m; /* of features less the origin */
  int64_t classes;
  double *weight, *bias, *origin, *values, *room, *y; /* y: of a block, [count, d] and [count, classes] */
} vim;

/* u = -W^+ b, where W u = -b as near as can be, with the least |u|: -W^T Q L^+ Q^T b of W W^T =
 * Q L Q^T, or where there are more classes than features -Q L^+ Q^T W^T b of W^T W. */
static smx_status origin_of(vim *x) {
  const int64_t d = x->m.d, c = x->classes, n = c <= d ? c : d;
  const bool few = c <= d;
  double *g = x->m.sum, *y = x->y, *t = x->y + n, *u = x->origin;
  for (int64_t j = 0; j < d; j++) u[j] = 0;
  if (n == 0) return SMX_OK;
  const smx_status status = fit_product(x->m.c->ctx, n, n, few ? d : c, x->weight, !few, x->weight, !few, g);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < n; i++) {
    y[i] = few ? x->bias[i] : 0, t[i] = 0;
    for (int64_t k = 0; k < c && !few; k++) y[i] += x->weight[k * d + i] * x->bias[k];
  }
  const bool good = fit_eigen(x->m.c->ctx, n, g, x->values, x->room);
  for (int64_t e = 0; e < n && x->values[e] > (double)(c + d) * 0x1p-52 * x->values[0]; e++) {
    double along = 0;
    for (int64_t i = 0; i < n; i++) along += g[e * n + i] * y[i];
    for (int64_t i = 0; i < n; i++) t[i] += along / x->values[e] * g[e * n + i];
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < d; j++) u[j] -= few ? x->weight[i * d + j] * t[i] : i == j ? t[i] : 0;
  for (int64_t j = 0; j < d && !good; j++) u[j] = NAN_;
  return SMX_OK;
}

static int64_t dim_of(const tensor_call *c, int64_t d) {
  const int64_t given = (int64_t)tensor_param(c, "dim"), rule = d >= 2048 ? 1000 : d >= 768 ? 512 : d / 2;
  return given == 0 ? rule : given < d ? given : d;
}

/* P = R^T R of the eigenvectors R of the second moments behind the first dim, and of those that no
 * row reaches. It goes to m.product. */
static smx_status residual_of(vim *x) {
  const moments *m = &x->m;
  const int64_t d = m->d;
  int64_t first = dim_of(m->c, d);
  for (int64_t i = 0; i < d * d; i++) m->sum[i] /= (double)m->rows;
  const bool good = fit_eigen(m->c->ctx, d, m->sum, x->values, x->room);
  while (good && first > 0 && x->values[first - 1] <= (double)d * 0x1p-52 * x->values[0]) first--;
  for (int64_t i = 0; i < d * d; i++) m->product[i] = good ? 0 : NAN_;
  if (!good || first == d) return SMX_OK;
  const double *r = m->sum + first * d;
  return fit_product(m->c->ctx, d, d, d - first, r, true, r, true, m->product);
}

/* The mean of the largest logits over that of |P (x - u)|; NaN where known rows have no such part.
 * The logits are W (x - u) + b + W u; what follows W of them goes to bias. */
static smx_status alpha_of(vim *x, double *alpha) {
  moments *m = &x->m;
  const int64_t d = m->d, c = x->classes;
  smx_status status = SMX_OK;
  double logits = 0, norms = 0, lengths = 0;
  for (int64_t k = 0; k < c; k++)
    for (int64_t j = 0; j < d; j++) x->bias[k] += x->weight[k * d + j] * x->origin[j];
  m->from = m->count = 0;
  while (c > 0 && status == SMX_OK && next_rows(m)) {
    double *part = x->y, *z = x->y + m->count * d;
    status = fit_product(m->c->ctx, m->count, d, d, m->x, false, m->product, false, part);
    if (status == SMX_OK) status = fit_product(m->c->ctx, m->count, c, d, m->x, false, x->weight, false, z);
    for (int64_t i = 0; i < m->count && status == SMX_OK; i++) {
      double most = -INF, norm = 0, length = 0;
      for (int64_t k = 0; k < c; k++)
        if (z[i * c + k] + x->bias[k] > most) most = z[i * c + k] + x->bias[k];
      for (int64_t j = 0; j < d; j++) {
        norm += part[i * d + j] * part[i * d + j], length += m->x[i * d + j] * m->x[i * d + j];
      }
      logits += most, norms += __builtin_sqrt(norm), lengths += __builtin_sqrt(length);
    }
  }
  *alpha = norms > 0x1p-40 * lengths ? logits / norms : NAN_;
  return status;
}

smx_status fit_vim(const tensor_call *c) {
  vim x = {.m = {.c = c, .rows = tensor_dim(c, "n"), .d = tensor_dim(c, "d")}, .classes = tensor_dim(c, "c")};
  const int64_t d = x.m.d, k = x.classes;
  double alpha = NAN_;
  x.m.x = fit_reserve(c, BLOCK * (2 * d + k) + 3 * d * d + 6 * d + k * d + k + 2 * d);
  if (!x.m.x) return SMX_ERR_NOMEM;
  x.y = x.m.x + BLOCK * d, x.m.product = x.y + BLOCK * (d + k), x.m.sum = x.m.product + d * d;
  x.room = x.m.sum + d * d, x.weight = x.room + d * d + 6 * d, x.bias = x.weight + k * d;
  x.origin = x.bias + k, x.values = x.origin + d, x.m.centres = x.origin;
  tensor_load(c, c->in.view + V_WEIGHT, 0, k * d, x.weight);
  for (int64_t i = 0; i < k; i++) x.bias[i] = 0;
  if (c->in.given[V_BIAS]) tensor_load(c, c->in.view + V_BIAS, 0, k, x.bias);
  smx_status status = origin_of(&x);
  if (status == SMX_OK) status = moments_of(&x.m);
  if (status == SMX_OK) status = residual_of(&x);
  if (status == SMX_OK) status = alpha_of(&x, &alpha);
  if (status == SMX_OK) {
    tensor_store(c, c->out.view + ORIGIN, 0, d, x.origin);
    tensor_store(c, c->out.view + RESIDUAL, 0, d * d, x.m.product);
    tensor_put(c, ALPHA, 0, alpha);
  }
  smx_free(c->ctx, x.m.x);
  return status;
}

/* ---- vim ---- */

enum { VIM_H, VIM_ORIGIN, VIM_RESIDUAL, VIM_LOGITS }; /* inputs */

typedef struct vim_call {
  const tensor_call *c;
  int64_t d, classes, from, count;
  double *x, *part, *p, *origin, *z; /* of a block: less the origin, its part in the space of P, logits */
  double alpha;
} vim_call;

/* logsumexp of a row's logits, as energy has it. */
static double energy_of(const vim_call *x, const double *z) {
  const score_row row = {.temperature = 1, .limit = smx_context_on_inf(x->c->ctx) == SMX_INF_LIMIT};
  score_sums s;
  fit_math()->sums(&row, z, x->classes, NULL, &s);
  return s.nan ? NAN_ : s.valid == 0 ? -INF : s.max + s.log_sum;
}

static void vim_task(void *arg, int64_t task) {
  const vim_call *x = arg;
  const int64_t d = x->d;
  for (int64_t i = task * ROWS; i < fit_task_end(task, x->count, ROWS); i++) {
    double norm = 0;
    for (int64_t j = 0; j < d; j++) norm += x->part[i * d + j] * x->part[i * d + j];
    norm = __builtin_sqrt(norm);
    const double energy = x->c->in.given[VIM_LOGITS] ? energy_of(x, x->z + i * x->classes) : 0;
    tensor_put(x->c, 0, x->from + i, energy - x->alpha * norm);
    tensor_put(x->c, 1, x->from + i, norm);
  }
}

smx_status fit_vim_apply(const tensor_call *c) {
  vim_call x = {.c = c, .d = tensor_dim(c, "d"), .alpha = tensor_param(c, "alpha")};
  const int64_t d = x.d, rows = c->dims.lead_count;
  x.classes = c->in.given[VIM_LOGITS] ? tensor_dim(c, "c") : 0;
  x.x = fit_reserve(c, BLOCK * (2 * d + x.classes) + d * d + d);
  if (!x.x) return SMX_ERR_NOMEM;
  x.part = x.x + BLOCK * d, x.z = x.part + BLOCK * d, x.p = x.z + BLOCK * x.classes, x.origin = x.p + d * d;
  tensor_load(c, c->in.view + VIM_ORIGIN, 0, d, x.origin);
  tensor_load(c, c->in.view + VIM_RESIDUAL, 0, d * d, x.p);
  smx_status status = SMX_OK;
  for (; x.from < rows && status == SMX_OK; x.from += x.count) {
    x.count = rows - x.from < BLOCK ? rows - x.from : BLOCK;
    tensor_load(c, c->in.view + VIM_H, x.from * d, x.count * d, x.x);
    if (x.classes > 0) tensor_load(c, c->in.view + VIM_LOGITS, x.from * x.classes, x.count * x.classes, x.z);
    for (int64_t i = 0; i < x.count * d; i++) x.x[i] -= x.origin[i % d];
    if (d > 0) status = fit_product(c->ctx, x.count, d, d, x.x, false, x.p, false, x.part);
    if (status == SMX_OK) smx_parallel(c->ctx, fit_tasks(x.count, ROWS), vim_task, &x);
  }
  smx_free(c->ctx, x.x);
  return status;
}
