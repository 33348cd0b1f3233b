/* gate/functions_losses.c - what keeps experts busy alike: losses of a router, and the steps of
 * those that have none. Sums over tokens are in double and in their order. */
#include "cpu/cpu.h"
#include "functions.h"
#include "functions_rows.h"

enum { LOGITS, INDEX };                     /* inputs */
enum { LOSS, COUNT, MEAN, ENTROPY };        /* outputs of load_balancing_loss */
enum { WEIGHT, RELU_LOSS, SPARSITY, NEXT }; /* of gate_relu */
enum { BIAS, LOAD };                        /* inputs of expert_bias_update */

static void put(const tensor_call *c, int port, const double *x, int64_t n) {
  if (c->out.given[port]) tensor_store(c, c->out.view + port, 0, n, x);
}

static void load_softmax(const gate_rows *r, int64_t i, double *row) {
  smx_reals_load(r->c->is_f64, r->p + i * r->experts * r->bytes, r->experts, row);
}

/* ---- load_balancing_loss ---- */

typedef struct balance {
  const int64_t *index;
  int64_t k, live; /* tokens that have an expert */
  double *count, *sum, *row;
} balance;

static bool is_live(const balance *b, int64_t t) {
  for (int64_t j = 0; j < b->k; j++)
    if (b->index[t * b->k + j] >= 0) return true;
  return false;
}

static void count_all(balance *b, int64_t tokens) {
  for (int64_t t = 0; t < tokens; t++) b->live += is_live(b, t);
  for (int64_t i = 0; i < tokens * b->k; i++)
    if (b->index[i] >= 0) b->count[b->index[i]]++;
}

static smx_status open_balance(gate_rows *r, balance *b, const tensor_call *c) {
  const int64_t tokens = tensor_dim(c, "t"), experts = tensor_dim(c, "e");
  *b = (balance){.index = (const int64_t *)(const void *)c->in.view[INDEX].data, .k = tensor_dim(c, "k")};
  const smx_status status = gate_rows_open(r, c, tokens, experts, 3 * experts);
  if (status != SMX_OK) return status;
  b->count = r->own, b->sum = b->count + experts, b->row = b->sum + experts;
  count_all(b, tokens);
  return SMX_OK;
}

/* scale E / (T k) / T, what counts and sums of probabilities are multiplied by. */
static double balance_factor(const gate_rows *r, const balance *b) {
  const double live = (double)b->live;
  if (b->live == 0) return 0;
  return tensor_param(r->c, "scale") * (double)r->experts / (live * (double)b->k) / live;
}

static void add_probabilities(gate_rows *r, void *arg) {
  const balance *b = arg;
  for (int64_t i = 0; i < r->count; i++) {
    if (!is_live(b, r->first + i)) continue;
    load_softmax(r, i, b->row);
    for (int64_t e = 0; e < r->experts; e++) b->sum[e] += b->row[e];
  }
}

smx_status gate_load_balancing(const tensor_call *c) {
  gate_rows r;
  balance b;
  smx_status status = open_balance(&r, &b, c);
  if (status != SMX_OK) return status;
  status = gate_rows_each(&r, false, add_probabilities, &b);
  double loss = 0;
  for (int64_t e = 0; e < r.experts; e++) loss += b.count[e] * b.sum[e];
  loss *= balance_factor(&r, &b);
  for (int64_t e = 0; e < r.experts; e++) b.sum[e] /= b.live ? (double)b.live : 1;
  if (status == SMX_OK) {
    const double entropy = smx_isa_current()->f64.gate->entropy(b.count, r.experts);
    tensor_put(c, LOSS, 0, loss), put(c, MEAN, b.sum, r.experts), tensor_put(c, ENTROPY, 0, entropy);
    for (int64_t e = 0; c->out.given[COUNT] && e < r.experts; e++)
      ((int64_t *)(void *)c->out.view[COUNT].data)[e] = (int64_t)b.count[e];
  }
  gate_rows_close(&r);
  return status;
}

/* dP_e = upstream count_e factor, and for means upstream_e / T; sum has it. */
static void balance_rows(gate_rows *r, void *arg) {
  const balance *b = arg;
  for (int64_t i = 0; i < r->count; i++) {
    const bool live = is_live(b, r->first + i);
    double dot = 0;
    load_softmax(r, i, b->row);
    for (int64_t e = 0; e < r->experts; e++) dot += b->row[e] * b->sum[e];
    for (int64_t e = 0; e < r->experts; e++) b->row[e] = live ? b->row[e] * (b->sum[e] - dot) : 0;
    tensor_store(r->c, r->c->din.view + LOGITS, (r->first + i) * r->experts, r->experts, b->row);
  }
}

smx_status gate_load_balancing_backward(const tensor_call *c) {
  gate_rows r;
  balance b;
  if (!c->din.given[LOGITS]) return SMX_OK;
  smx_status status = open_balance(&r, &b, c);
  if (status != SMX_OK) return status;
  const double factor = balance_factor(&r, &b) * tensor_upstream(c, LOSS, 0);
  if (c->dout.given[MEAN]) tensor_load(c, c->dout.view + MEAN, 0, r.experts, b.sum);
  for (int64_t e = 0; e < r.experts; e++)
    b.sum[e] = b.sum[e] / (b.live ? (double)b.live : 1) + b.count[e] * factor;
  status = gate_rows_each(&r, false, balance_rows, &b);
  gate_rows_close(&r);
  return status;
}

/* ---- router_z_loss ---- */

typedef struct z_sum {
  double sum, factor;
  int64_t live;
} z_sum;

static double lse_of(const gate_rows *r, int64_t i) {
  double lse;
  smx_reals_load(r->c->is_f64, r->lse + i * r->bytes, 1, &lse);
  return lse;
}

static void add_squares(gate_rows *r, void *arg) {
  z_sum *z = arg;
  for (int64_t i = 0; i < r->count; i++) {
    const double lse = lse_of(r, i);
    if (lse != -__builtin_inf()) z->sum += lse * lse, z->live++;
  }
}
static void square_rows(gate_rows *r, void *arg) {
  const z_sum *z = arg;
  double *row = r->own;
  for (int64_t i = 0; i < r->count; i++) {
    const double lse = lse_of(r, i), by = lse == -__builtin_inf() ? 0 : 2 * z->factor * lse;
    load_softmax(r, i, row);
    for (int64_t e = 0; e < r->experts; e++) row[e] *= by;
    tensor_store(r->c, r->c->din.view + LOGITS, (r->first + i) * r->experts, r->experts, row);
  }
}

static smx_status open_z(gate_rows *r, const tensor_call *c) {
  return gate_rows_open(r, c, c->dims.lead_count, tensor_dim(c, "e"), tensor_dim(c, "e"));
}

smx_status gate_z_loss(const tensor_call *c) {
  gate_rows r;
  z_sum z = {0};
  smx_status status = open_z(&r, c);
  if (status != SMX_OK) return status;
  status = gate_rows_each(&r, true, add_squares, &z);
  const double loss = z.live ? tensor_param(c, "scale") * z.sum / (double)z.live : 0;
  if (status == SMX_OK) tensor_put(c, LOSS, 0, loss);
  gate_rows_close(&r);
  return status;
}

smx_status gate_z_loss_backward(const tensor_call *c) {
  gate_rows r;
  z_sum z = {0};
  if (!c->din.given[LOGITS]) return SMX_OK;
  smx_status status = open_z(&r, c);
  if (status != SMX_OK) return status;
  status = gate_rows_each(&r, true, add_squares, &z);
  z.factor = z.live ? tensor_param(c, "scale") * tensor_upstream(c, LOSS, 0) / (double)z.live : 0;
  if (status == SMX_OK) status = gate_rows_each(&r, true, square_rows, &z);
  gate_rows_close(&r);
  return status;
}

/* ---- gate_relu ---- */

typedef struct relu_call {
  const tensor_call *c;
  int64_t tokens, experts;
  double *active, *sum, *row; /* of each expert */
} relu_call;

static smx_status open_relu(relu_call *r, const tensor_call *c) {
  *r = (relu_call){.c = c, .tokens = tensor_dim(c, "t"), .experts = tensor_dim(c, "e")};
  r->active = smx_alloc(c->ctx, (size_t)(3 * r->experts) * sizeof(double));
  if (!r->active)
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld experts", c->op->name, (long long)r->experts);
  r->sum = r->active + r->experts, r->row = r->sum + r->experts;
  for (int64_t e = 0; e < 2 * r->experts; e++) r->active[e] = 0;
  return SMX_OK;
}

/* Counts, and sums of weights; the weights themselves go to `to`. */
static void relu_rows(relu_call *r, const smx_view *to) {
  for (int64_t t = 0; t < r->tokens; t++) {
    tensor_load(r->c, r->c->in.view + LOGITS, t * r->experts, r->experts, r->row);
    for (int64_t e = 0; e < r->experts; e++) {
      r->active[e] += r->row[e] > 0;
      r->row[e] = r->row[e] > 0 || r->row[e] != r->row[e] ? r->row[e] : 0;
      r->sum[e] += r->row[e];
    }
    if (to) tensor_store(r->c, to, t * r->experts, r->experts, r->row);
  }
}

/* lambda E / (k T^2) */
static double relu_factor(const relu_call *r) {
  const double t = (double)r->tokens;
  if (r->tokens == 0) return 0;
  return tensor_param(r->c, "lambda") * (double)r->experts / tensor_param(r->c, "k") / t / t;
}

smx_status gate_relu(const tensor_call *c) {
  relu_call r;
  const smx_status status = open_relu(&r, c);
  if (status != SMX_OK) return status;
  relu_rows(&r, c->out.view + WEIGHT);
  double loss = 0, active = 0;
  for (int64_t e = 0; e < r.experts; e++) loss += r.active[e] * r.sum[e], active += r.active[e];
  loss *= relu_factor(&r);
  const double cells = (double)r.tokens * (double)r.experts, sparsity = cells > 0 ? 1 - active / cells : 0;
  const double target = 1 - tensor_param(c, "k") / (double)r.experts;
  const double lambda = tensor_param(c, "lambda"), alpha = tensor_param(c, "alpha");
  const double next = sparsity < target ? lambda * alpha : lambda / alpha;
  tensor_put(c, RELU_LOSS, 0, loss), tensor_put(c, SPARSITY, 0, sparsity), tensor_put(c, NEXT, 0, next);
  smx_free(c->ctx, r.active);
  return SMX_OK;
}

smx_status gate_relu_backward(const tensor_call *c) {
  relu_call r;
  if (!c->din.given[LOGITS]) return SMX_OK;
  const smx_status status = open_relu(&r, c);
  if (status != SMX_OK) return status;
  relu_rows(&r, NULL);
  const double factor = relu_factor(&r) * tensor_upstream(c, RELU_LOSS, 0);
  double *g = r.sum; /* the sums are not wanted */
  for (int64_t t = 0; t < r.tokens; t++) {
    const int64_t at = t * r.experts;
    tensor_load(c, c->in.view + LOGITS, at, r.experts, r.row);
    for (int64_t e = 0; e < r.experts; e++) g[e] = 0;
    if (c->dout.given[WEIGHT]) tensor_load(c, c->dout.view + WEIGHT, at, r.experts, g);
    for (int64_t e = 0; e < r.experts; e++) r.row[e] = r.row[e] > 0 ? g[e] + factor * r.active[e] : 0;
    tensor_store(c, c->din.view + LOGITS, at, r.experts, r.row);
  }
  smx_free(c->ctx, r.active);
  return SMX_OK;
}

/* ---- expert_bias_update ---- */

smx_status gate_bias_update(const tensor_call *c) {
  const int64_t experts = tensor_dim(c, "e"), *load = (const int64_t *)(const void *)c->in.view[LOAD].data;
  double all = 0;
  for (int64_t e = 0; e < experts; e++) all += (double)load[e];
  for (int64_t e = 0; e < experts; e++) {
    const double less = all / (double)experts - (double)load[e];
    double bias;
    tensor_load(c, c->in.view + BIAS, e, 1, &bias);
    bias += tensor_param(c, "rate") * ((less > 0) - (less < 0));
    tensor_store(c, c->out.view, e, 1, &bias);
  }
  return SMX_OK;
}
