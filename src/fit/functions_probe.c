/* fit/functions_probe.c - probe_fit: multinomial logistic regression on features;
 * crowd_temperature: a temperature for each of several opinions on the same items, with which they
 * agree best. Both by L-BFGS in double. */
#include "driver/operator.h"
#include "functions.h"
#include "functions_minimise.h"

enum { MOST_STEPS = 1000 };
static const double TOLERANCE = 1e-12;
#define NAN_ __builtin_nan("")

/* ---- probe_fit: mean cross-entropy + l2 / 2 |W|^2 ----
 *
 * Features are taken less their mean m, W h + b = W (h - m) + (b + W m): the penalty is of W alone,
 * so the minimum is the same, and a mean far from 0 no longer makes the search slow. */

enum { FEATURES, TARGET };   /* inputs */
enum { WEIGHT, BIAS, LOSS }; /* outputs */
enum { CE_REDUCED = 6, CE_PORTS };

typedef struct probe {
  const tensor_call *c;
  int64_t rows, d, classes;
  double *h, *each, *bias, l2, loss; /* bias: -inf of a class without rows; loss: without the penalty */
  double *mean;
  bool *occurs;
} probe;

static smx_status probe_loss(void *arg, const double *x, double *f, double *g) {
  probe *p = arg;
  const smx_op *op = smx_op_find("cross_entropy");
  smx_params params;
  int64_t rows[] = {p->rows, p->d}, of_w[] = {p->classes, p->d}, k = p->classes;
  const int64_t weights = k * p->d;
  const smx_tensor h = smx_tensor_of(p->h, SMX_F64, 2, rows, NULL),
                   w = smx_tensor_of(x, SMX_F64, 2, of_w, NULL),
                   b = smx_tensor_of(p->bias, SMX_F64, 1, &k, NULL),
                   dw = smx_tensor_of(g, SMX_F64, 2, of_w, NULL),
                   db = smx_tensor_of(g + weights, SMX_F64, 1, &k, NULL),
                   one = smx_tensor_of(&p->loss, SMX_F64, 0, NULL, NULL),
                   each = smx_tensor_of(p->each, SMX_F64, 1, &p->rows, NULL),
                   *in[] = {NULL, p->c->in.given[TARGET]},
                   *out[CE_PORTS] = {[0] = &each, [CE_REDUCED] = &one};
  const smx_linear linear = {.size = sizeof linear, .h = &h, .w = &w, .bias = &b, .dw = &dw, .dbias = &db};
  for (int64_t j = 0; j < k; j++) p->bias[j] = p->occurs[j] ? x[weights + j] : -__builtin_inf();
  smx_params_init(op, &params);
  smx_params_set(op, &params, "ignore_index", -1);
  smx_params_set(op, &params, "reduction", SMX_REDUCE_MEAN);
  const smx_status status = smx_linear_forward(op, p->c->ctx, &params, &linear, 2, in, CE_PORTS, out);
  double penalty = 0;
  for (int64_t i = 0; i < weights && status == SMX_OK; i++) penalty += x[i] * x[i], g[i] += p->l2 * x[i];
  *f = p->loss + p->l2 / 2 * penalty;
  return status;
}

/* The mean of the rows that count leaves the features. */
static void probe_centre(const probe *p, int64_t counted) {
  const int64_t *target = fit_whole(p->c, TARGET), d = p->d;
  for (int64_t j = 0; j < d; j++) p->mean[j] = 0;
  for (int64_t i = 0; i < p->rows; i++)
    for (int64_t j = 0; j < d && target[i] >= 0; j++) p->mean[j] += p->h[i * d + j] / (double)counted;
  for (int64_t i = 0; i < p->rows; i++)
    for (int64_t j = 0; j < d; j++) p->h[i * d + j] -= p->mean[j];
}

/* The biases of features as they are. */
static void probe_shift(const probe *p, const double *weight) {
  for (int64_t k = 0; k < p->classes; k++)
    for (int64_t j = 0; j < p->d; j++) p->bias[k] -= weight[k * p->d + j] * p->mean[j];
}

/* Memory; and which classes occur. The number of rows that count, or -1 without memory. */
static int64_t probe_open(probe *p, const tensor_call *c, double **x) {
  *p = (probe){
      .c = c, .rows = tensor_dim(c, "n"), .d = tensor_dim(c, "d"), .classes = tensor_dim(c, "classes")};
  const int64_t n = p->classes * (p->d + 1);
  int64_t numbers, counted = 0;
  const bool fits = smx_multiply(p->rows + 1, p->d + 1, &numbers) && numbers < INT64_MAX / 64 - 2 * n;
  p->h = fit_reserve(c, fits ? numbers + 2 * n + 2 * p->classes : INT64_MAX / 8 - 1);
  if (!p->h) return -1;
  *x = p->h + p->rows * p->d, p->each = *x + 2 * n, p->bias = p->each + p->rows;
  p->mean = p->bias + p->classes;
  p->occurs = (bool *)(void *)(p->mean + p->d), p->l2 = tensor_param(c, "l2"), p->loss = NAN_;
  tensor_load(c, c->in.view + FEATURES, 0, p->rows * p->d, p->h);
  for (int64_t i = 0; i < n; i++) (*x)[i] = 0;
  for (int64_t j = 0; j < p->classes; j++) p->occurs[j] = false, p->bias[j] = 0;
  for (int64_t i = 0; i < p->rows; i++) {
    const int64_t target = fit_whole(c, TARGET)[i];
    if (target >= 0) counted++, p->occurs[target] = true;
  }
  probe_centre(p, counted);
  return counted;
}

smx_status fit_probe(const tensor_call *c) {
  probe p;
  double *x, f = NAN_;
  const int64_t counted = probe_open(&p, c, &x), n = p.classes * (p.d + 1);
  if (counted < 0) return SMX_ERR_NOMEM;
  const fit_search search = {probe_loss, &p, n, MOST_STEPS, TOLERANCE};
  smx_status status = SMX_OK;
  if (counted > 0 && p.d > 0) status = fit_minimise(c->ctx, &search, x, &f);
  if (status == SMX_OK && counted > 0 && p.d > 0) status = probe_loss(&p, x, &f, x + n);
  if (p.loss == p.loss) probe_shift(&p, x);
  if (status == SMX_OK) {
    tensor_store(c, c->out.view + WEIGHT, 0, p.classes * p.d, x);
    tensor_store(c, c->out.view + BIAS, 0, p.classes, p.bias);
    tensor_put(c, LOSS, 0, p.loss);
  }
  smx_free(c->ctx, p.h);
  return status;
}

/* ---- crowd_temperature ----
 *
 * mean over pairs a < b and items of JS(p_a, p_b) + penalty sum_a T_a^2, p_a = softmax(l_a / T_a),
 * l = max(log p, -15). With T = e^u, m = (p_a + p_b) / 2: d JS / d p_aj = log(p_aj / m_j) / 2 up to
 * what is the same for all j, and d p_aj / d u_a = -p_aj (l_aj - sum_k p_ak l_ak) / T_a. */

enum { TEMPERATURE, LABEL, OBJECTIVE }; /* outputs */
enum { ITEMS = 16 };
static const double LEAST_LOG = -15, LEAST = 0.0625; /* of log p; of a temperature */

typedef struct crowd {
  const tensor_call *c;
  int64_t methods, items, classes;
  double *l, *p, *each, penalty; /* l, p: [methods, items, classes]; each: [items, 1 + methods] */
  const double *u;
} crowd;

static double *at(const crowd *x, double *of, int64_t method, int64_t item) {
  return of + (method * x->items + item) * x->classes;
}

/* p of an item, of every method. */
static void soften(const crowd *x, int64_t item) {
  for (int64_t a = 0; a < x->methods; a++) {
    const double *l = at(x, x->l, a, item), by = fit_math()->exp(-x->u[a]);
    double *p = at(x, x->p, a, item), most = -__builtin_inf(), sum = 0;
    for (int64_t j = 0; j < x->classes; j++) most = l[j] > most ? l[j] : most;
    for (int64_t j = 0; j < x->classes; j++) sum += p[j] = fit_math()->exp((l[j] - most) * by);
    for (int64_t j = 0; j < x->classes; j++) p[j] /= sum;
  }
}

/* p log(p / m); 0 log 0 = 0 */
static double part(double p, double m) {
  return p < 0x1p-1000 ? 0 : p * (fit_math()->log(p) - fit_math()->log(m));
}

/* Of a pair of methods: the divergence, and its derivatives by u. */
static void add_pair(const crowd *x, int64_t item, int64_t a, int64_t b, double *to) {
  const double *pa = at(x, x->p, a, item), *pb = at(x, x->p, b, item), *la = at(x, x->l, a, item),
               *lb = at(x, x->l, b, item);
  double js = 0, da = 0, db = 0, mean_a = 0, mean_b = 0;
  for (int64_t j = 0; j < x->classes; j++) mean_a += pa[j] * la[j], mean_b += pb[j] * lb[j];
  for (int64_t j = 0; j < x->classes; j++) {
    const double m = 0.5 * (pa[j] + pb[j]), in_a = part(pa[j], m), in_b = part(pb[j], m);
    js += 0.5 * (in_a + in_b);
    da -= 0.5 * in_a * (la[j] - mean_a), db -= 0.5 * in_b * (lb[j] - mean_b);
  }
  to[0] += js;
  to[1 + a] += da * fit_math()->exp(-x->u[a]), to[1 + b] += db * fit_math()->exp(-x->u[b]);
}

static void item_task(void *arg, int64_t task) {
  const crowd *x = arg;
  for (int64_t i = task * ITEMS; i < fit_task_end(task, x->items, ITEMS); i++) {
    double *to = x->each + i * (1 + x->methods);
    for (int64_t k = 0; k <= x->methods; k++) to[k] = 0;
    soften(x, i);
    for (int64_t a = 0; a < x->methods; a++)
      for (int64_t b = a + 1; b < x->methods; b++) add_pair(x, i, a, b, to);
  }
}

static smx_status crowd_loss(void *arg, const double *u, double *f, double *g) {
  crowd *x = arg;
  const double m = (double)x->methods, pairs = m * (m - 1) / 2 * (double)x->items;
  x->u = u, *f = 0;
  smx_parallel(x->c->ctx, fit_tasks(x->items, ITEMS), item_task, x);
  for (int64_t a = 0; a < x->methods; a++) g[a] = 0;
  for (int64_t i = 0; i < x->items; i++) {
    const double *from = x->each + i * (1 + x->methods);
    *f += from[0] / pairs;
    for (int64_t a = 0; a < x->methods; a++) g[a] += from[1 + a] / pairs;
  }
  for (int64_t a = 0; a < x->methods; a++) {
    const double square = x->penalty * fit_math()->exp(2 * u[a]);
    *f += square, g[a] += 2 * square;
  }
  return SMX_OK;
}

/* True: a number that is no probability. */
static bool take_logs(const crowd *x) {
  const int64_t count = x->methods * x->items * x->classes;
  bool wrong = false;
  tensor_load(x->c, x->c->in.view, 0, count, x->l);
  for (int64_t i = 0; i < count; i++) {
    wrong |= !(x->l[i] >= 0 && x->l[i] < __builtin_inf());
    const double l = x->l[i] < 0x1p-1000 ? LEAST_LOG : fit_math()->log(x->l[i]);
    x->l[i] = l < LEAST_LOG ? LEAST_LOG : l;
  }
  return wrong;
}

/* The mean of the opinions, as they are after soften. */
static void write_labels(const crowd *x, bool wrong) {
  for (int64_t i = 0; i < x->items * x->classes; i++) {
    double sum = 0;
    for (int64_t a = 0; a < x->methods; a++) sum += x->p[a * x->items * x->classes + i];
    tensor_put(x->c, LABEL, i, wrong ? NAN_ : sum / (double)x->methods);
  }
}

smx_status fit_crowd(const tensor_call *c) {
  crowd x = {
      .c = c, .methods = tensor_dim(c, "m"), .items = tensor_dim(c, "n"), .classes = tensor_dim(c, "c")};
  int64_t rows, numbers;
  const bool fits = smx_multiply(x.methods + 1, x.items + 1, &rows) &&
                    smx_multiply(rows, 2 * x.classes + 2, &numbers) && numbers < INT64_MAX / 64;
  x.l = fit_reserve(c, fits ? numbers + 2 * x.methods : INT64_MAX / 8 - 1);
  if (!x.l) return SMX_ERR_NOMEM;
  x.p = x.l + x.methods * x.items * x.classes, x.each = x.p + x.methods * x.items * x.classes;
  double *u = x.each + x.items * (1 + x.methods), f = NAN_;
  x.penalty = tensor_param(c, "penalty");
  const bool wrong = take_logs(&x) || x.items == 0 || x.classes == 0;
  const fit_search search = {crowd_loss, &x, x.methods, MOST_STEPS, TOLERANCE};
  const double start = x.methods > 1 ? fit_math()->log(1.5) : 0, least = fit_math()->log(LEAST);
  smx_status status = SMX_OK;
  for (int64_t a = 0; a < x.methods; a++) u[a] = start;
  if (!wrong && x.methods > 1) {
    status = fit_minimise(c->ctx, &search, u, &f);
    for (int64_t a = 0; a < x.methods; a++) u[a] = u[a] < least ? least : u[a];
    if (status == SMX_OK) status = crowd_loss(&x, u, &f, u + x.methods);
  } else if (!wrong && x.methods == 1) {
    x.u = u;
    for (int64_t i = 0; i < x.items; i++) soften(&x, i);
  }
  if (status == SMX_OK) {
    for (int64_t a = 0; a < x.methods; a++)
      tensor_put(c, TEMPERATURE, a, wrong ? NAN_ : fit_math()->exp(u[a]));
    write_labels(&x, wrong || x.methods == 0);
    tensor_put(c, OBJECTIVE, 0, f);
  }
  smx_free(c->ctx, x.l);
  return status;
}
