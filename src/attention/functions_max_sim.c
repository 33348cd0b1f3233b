/* attention/functions_max_sim.c - max_sim: how well documents answer a query, by the best of their
 * tokens for each of its own, or by softmax for tau > 0. In double, sums in index order:
 *
 *   score = sum_i best_i,  best_i = max_j s_ij or tau log sum_j e^(s_ij / tau),  s_ij = q_i d_j
 *   dq_i = g sum_j w_ij d_j,  dd_j = g sum_i w_ij q_i,  w_ij = [j is the first best], or softmax */
#include <string.h>

#include "cpu/cpu.h"
#include "driver/carve.h"
#include "functions.h"
#include "score/score.h"

enum { Q, DOCUMENT, OFFSETS, Q_MASK, MASK }; /* inputs */
enum { SCORE, INDEX };                       /* outputs */
enum { ROWS = 16 /* of a task */ };

typedef struct max_sim {
  const tensor_call *c;
  const score_kernels *math;
  int64_t items, l, d, m, b; /* l: tokens of a query; m: of all documents, of which there are b */
  int64_t longest;           /* document */
  double tau;
  bool limit;             /* products of +inf share the weight */
  const int64_t *offsets; /* NULL: all tokens are of one document */
  const unsigned char *q_mask, *mask;
  double *document, *turned; /* [m][d], [d][m] */
  double *best;              /* [items][l][b] */
  double *dq;                /* NULL: not wanted */
  smx_scratch scratch;
} max_sim;

static int64_t start_of(const max_sim *x, int64_t k) { return x->offsets ? x->offsets[k] : 0; }
static int64_t end_of(const max_sim *x, int64_t k) { return x->offsets ? x->offsets[k + 1] : x->m; }

/* Weights of tokens of one document for one token of a query, and what they make. */
typedef struct best_of {
  double value;
  int64_t at; /* the first best; -1: there is none */
} best_of;

/* Turns the products s of the document's tokens into weights. */
static best_of weigh(const max_sim *x, int64_t document, double *s) {
  const int64_t first = start_of(x, document), end = end_of(x, document);
  best_of r = {-__builtin_inf(), -1};
  double sum = 0;
  for (int64_t j = first; j < end; j++) {
    if (x->mask && !x->mask[j]) continue;
    if (r.at < 0 || s[j] > r.value || s[j] != s[j]) r.value = s[j], r.at = j;
    if (s[j] != s[j]) break;
  }
  const bool soft = x->tau > 0 && r.at >= 0 && r.value > -__builtin_inf(),
             shared = x->limit && r.value == __builtin_inf();
  for (int64_t j = first; j < end; j++) {
    const bool hidden = x->mask && !x->mask[j];
    if (!soft) s[j] = j == r.at;
    else if (hidden || shared) s[j] = !hidden && s[j] == r.value;
    else s[j] = x->math->exp((s[j] - r.value) / x->tau);
    sum += s[j];
  }
  if (!soft) return r;
  for (int64_t j = first; j < end; j++) s[j] /= sum;
  r.value += x->tau * x->math->log(sum);
  return r;
}

static void load_query(const max_sim *x, int64_t row, double *q) {
  tensor_load(x->c, x->c->in.view + Q, row * x->d, x->d, q);
}
static void products(const max_sim *x, const double *q, int64_t first, int64_t end, double *s) {
  memset(s + first, 0, (size_t)(end - first) * sizeof *s);
  for (int64_t i = 0; i < x->d; i++) add_row(q[i], x->turned + i * x->m + first, end - first, s + first);
}

/* dq of a row, from the weights of a document. */
static void query_gradient(const max_sim *x, int64_t row, int64_t document, const best_of *r,
                           const double *w) {
  const double g = tensor_upstream(x->c, SCORE, row / x->l * x->b + document);
  double *dq = x->dq + row * x->d;
  if (r->at < 0) return;
  for (int64_t j = start_of(x, document); j < end_of(x, document); j++)
    if (w[j] != 0) add_row(g * w[j], x->document + j * x->d, x->d, dq);
  for (int64_t i = 0; i < x->d && r->value != r->value; i++) dq[i] = r->value;
}

/* Rows of queries, for all documents. */
static void query_task(void *arg, int64_t number) {
  max_sim *x = arg;
  double *q = smx_scratch_take(&x->scratch), *s = q + x->d;
  for (int64_t row = number * ROWS; row < (number + 1) * ROWS && row < x->items * x->l; row++) {
    const bool hidden = x->q_mask && !x->q_mask[row];
    load_query(x, row, q);
    if (!hidden) products(x, q, 0, x->m, s);
    for (int64_t k = 0; k < x->b; k++) {
      const best_of r = hidden ? (best_of){0, -1} : weigh(x, k, s);
      if (x->dq) query_gradient(x, row, k, &r, s);
      if (x->best) x->best[row * x->b + k] = r.value;
      if (!x->best || !x->c->out.given[INDEX]) continue;
      int64_t *index = (int64_t *)(void *)x->c->out.view[INDEX].data;
      index[(row / x->l * x->b + k) * x->l + row % x->l] = r.value == r.value ? r.at : -1;
    }
  }
  smx_scratch_give(&x->scratch, q);
}

/* dd of one document: rows of queries in order. */
static void document_task(void *arg, int64_t k) {
  max_sim *x = arg;
  const int64_t first = start_of(x, k), end = end_of(x, k);
  double *q = smx_scratch_take(&x->scratch), *s = q + x->d, *to = s + x->m;
  memset(to, 0, (size_t)((end - first) * x->d) * sizeof *to);
  for (int64_t row = 0; row < x->items * x->l; row++) {
    if (x->q_mask && !x->q_mask[row]) continue;
    const double g = tensor_upstream(x->c, SCORE, row / x->l * x->b + k);
    load_query(x, row, q);
    products(x, q, first, end, s);
    const best_of r = weigh(x, k, s);
    if (r.at < 0) continue;
    for (int64_t j = first; j < end; j++)
      if (s[j] != 0) add_row(r.value == r.value ? g * s[j] : r.value, q, x->d, to + (j - first) * x->d);
  }
  tensor_store(x->c, x->c->din.view + DOCUMENT, first * x->d, (end - first) * x->d, to);
  smx_scratch_give(&x->scratch, q);
}

/* ---- calls ---- */

static max_sim max_sim_of(const tensor_call *c) {
  max_sim x = {.c = c, .math = smx_isa_current()->f64.score, .items = c->dims.lead_count};
  x.l = tensor_dim(c, "l"), x.d = tensor_dim(c, "d"), x.m = tensor_dim(c, "m"), x.b = tensor_dim(c, "b");
  x.tau = tensor_param(c, "tau"), x.limit = smx_context_on_inf(c->ctx) == SMX_INF_LIMIT;
  if (c->in.given[OFFSETS]) x.offsets = (const int64_t *)(const void *)c->in.view[OFFSETS].data;
  for (int64_t k = 0; k < x.b; k++)
    if (end_of(&x, k) - start_of(&x, k) > x.longest) x.longest = end_of(&x, k) - start_of(&x, k);
  if (c->in.given[Q_MASK]) x.q_mask = (const unsigned char *)c->in.view[Q_MASK].data;
  if (c->in.given[MASK]) x.mask = (const unsigned char *)c->in.view[MASK].data;
  return x;
}

static void lay_out(max_sim *x, carver *c, bool backward) {
  const int64_t rows = x->items * x->l, b = sizeof(double);
  x->document = carve(c, x->m, x->d, b), x->turned = carve(c, x->m, x->d, b);
  if (!backward) x->best = carve(c, rows, x->b, b);
  else if (x->c->din.given[Q]) x->dq = carve(c, rows, x->d, b);
}

static smx_status max_sim_open(max_sim *x, bool backward) {
  const int64_t rows = x->items * x->l, tasks = (rows + ROWS - 1) / ROWS, b = sizeof(double);
  const bool documents = backward && x->c->din.given[DOCUMENT];
  carver size = {.fits = true}, place = {.fits = true};
  lay_out(x, &size, backward);
  carve(&place, 1, x->d + x->m, b), carve(&place, documents ? x->longest : 0, x->d, b);
  if (!size.fits || !place.fits ||
      !smx_scratch_open(&x->scratch, x->c->ctx, (size_t)size.at + 64, (size_t)place.at + 64,
                        tasks > x->b ? tasks : x->b))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld tokens", x->c->op->name, (long long)x->m);
  lay_out(x, &(carver){.base = x->scratch.shared, .fits = true}, backward);
  tensor_load(x->c, x->c->in.view + DOCUMENT, 0, x->m * x->d, x->document);
  transpose(x->document, x->m, x->d, x->turned);
  if (x->dq) memset(x->dq, 0, (size_t)(rows * x->d) * sizeof *x->dq);
  return SMX_OK;
}

smx_status max_sim_sizes(dims *d) {
  if (dims_value(d, "b", 0) == DIMS_UNKNOWN) dims_set(d, "b", 0, 1);
  return SMX_OK;
}

smx_status max_sim_forward(const tensor_call *c) {
  max_sim x = max_sim_of(c);
  const smx_status status = max_sim_open(&x, false);
  if (status != SMX_OK) return status;
  smx_parallel(c->ctx, (x.items * x.l + ROWS - 1) / ROWS, query_task, &x);
  for (int64_t at = 0; at < x.items * x.b; at++) {
    double sum = 0;
    for (int64_t i = 0; i < x.l; i++) sum += x.best[(at / x.b * x.l + i) * x.b + at % x.b];
    tensor_put(c, SCORE, at, sum);
  }
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}

smx_status max_sim_backward(const tensor_call *c) {
  max_sim x = max_sim_of(c);
  const smx_status status = max_sim_open(&x, true);
  if (status != SMX_OK) return status;
  if (x.dq) {
    smx_parallel(c->ctx, (x.items * x.l + ROWS - 1) / ROWS, query_task, &x);
    tensor_store(c, c->din.view + Q, 0, x.items * x.l * x.d, x.dq);
  }
  if (c->din.given[DOCUMENT]) smx_parallel(c->ctx, x.b, document_task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}
