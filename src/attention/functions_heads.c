/* attention/functions_heads.c - attention whose weights an operator on rows makes, with numbers of
 * each head that have gradients: entmax_attention (alpha), nap_attention (gamma, beta) and
 * shaped_attention (gain, mean, identity). With s = scale q k^T + bias, -inf where hidden,
 *
 *   w = entmax(s, alpha_h), or gamma_h n + beta_h, n = (s - mean) / (deviation + eps), or
 *       gain_h n - mean_h / count + identity_h of the key where the row stands, n = softmax(s)
 *   dbias = ds,  dgamma = sum g n,  dbeta = sum of g where a key is seen */
#include <string.h>

#include "functions_sheets.h"

typedef struct head_numbers {
  const char *op;
  int bias, count, numbers[3];  /* inputs */
  double *value[3], *change[3]; /* [heads]: they, and their gradients */
  double *row, *drow;           /* [most][l]: alpha of every row, and its gradient */
  double *n;                    /* sheets, unless there is alpha alone */
  double *dbias;                /* of all sheets; NULL: not wanted */
} head_numbers;

enum { GAIN, SHIFT, IDENTITY }; /* SHIFT: of shaped_attention the mean */
static bool alone(const head_numbers *h) { return h->count == 1; }

static void room(sheets *s, carver *c) {
  head_numbers *h = s->own;
  const int64_t b = sizeof(double), cells = s->l * s->t;
  for (int i = 0; i < h->count; i++) {
    h->value[i] = carve(c, 1, s->heads, b);
    if (s->backward) h->change[i] = carve(c, 1, s->heads, b);
  }
  if (!alone(h)) h->n = carve(c, s->most, cells, b);
  else h->row = carve(c, s->most, s->l, b), h->drow = carve(c, s->most, s->l, b);
  if (s->backward && s->c->din.given[h->bias]) h->dbias = carve(c, s->all * s->l, s->t, b);
}

/* ---- scores ---- */

static void add_bias(sheets *s, int64_t sheet, int64_t i) {
  const head_numbers *h = s->own;
  const int64_t at = (sheet * s->l + i) * s->t;
  double *bias = s->w + at; /* weights come later */
  tensor_load(s->c, s->c->in.view + h->bias, (s->first * s->l) * s->t + at, s->t, bias);
  for (int64_t j = 0; j < s->t; j++)
    if (bias[j] == -__builtin_inf() || !sheet_hides(s, sheet, i, j))
      s->s[at + j] = bias[j] == -__builtin_inf() ? bias[j] : s->s[at + j] + bias[j];
}

static void before(sheets *s) {
  head_numbers *h = s->own;
  for (int i = 0; i < h->count; i++) {
    tensor_load(s->c, s->c->in.view + h->numbers[i], 0, s->heads, h->value[i]);
    if (s->first == 0 && s->backward) memset(h->change[i], 0, (size_t)s->heads * sizeof(double));
  }
  for (int64_t r = 0; r < s->count * s->l && alone(h); r++) h->row[r] = h->value[0][r / s->l % s->heads];
  if (s->c->in.given[h->bias]) sheets_each_row(s, s->l, add_bias);
}

/* ---- weights ---- */

static smx_status call(sheets *s, bool back) {
  const head_numbers *h = s->own;
  const smx_op *op = smx_op_find(h->op);
  int64_t shape[3];
  const smx_tensor x = sheets_tensor(s, s->s, shape), y = sheets_tensor(s, alone(h) ? s->w : h->n, shape),
                   g = sheets_tensor(s, s->g, shape), dx = sheets_tensor(s, s->ds, shape),
                   row = smx_tensor_of(h->row, SMX_F64, 2, shape, NULL),
                   drow = smx_tensor_of(h->drow, SMX_F64, 2, shape, NULL);
  const smx_tensor *in[SMX_MAX_PORTS] = {&x, alone(h) ? &row : NULL}, *out[] = {&y}, *dout[] = {&g},
                   *din[SMX_MAX_PORTS] = {&dx, alone(h) ? &drow : NULL};
  smx_params params;
  smx_params_init(op, &params);
  if (h->count == 2) smx_params_set(op, &params, "eps", tensor_param(s->c, "eps"));
  return back ? operator_backward(op, s->c->ctx, &params, op->input_count, in, 1, out, dout, din)
              : operator_forward(op, s->c->ctx, &params, op->input_count, in, 1, out);
}

/* What the second number of a head is multiplied by, where a key is seen; the key where row i
 * stands, if it has a number of its own and is seen, or -1. */
static double share_of(const sheets *s, int64_t sheet, int64_t i, int64_t *own) {
  const head_numbers *h = s->own;
  const double *z = s->s + (sheet * s->l + i) * s->t;
  double count = 0;
  *own = -1;
  if (h->count == 2) return 1;
  for (int64_t j = 0; j < s->t; j++) count += z[j] != -__builtin_inf();
  const int64_t at = i + s->t - s->l;
  if (at >= 0 && z[at] != -__builtin_inf()) *own = at;
  return count > 0 ? -1 / count : 0;
}

static void scale_row(sheets *s, int64_t sheet, int64_t i) {
  const head_numbers *h = s->own;
  const int64_t head = sheet % s->heads, first = (sheet * s->l + i) * s->t;
  int64_t own;
  const double shift = share_of(s, sheet, i, &own) * h->value[SHIFT][head];
  for (int64_t at = first; at < first + s->t; at++)
    s->w[at] = s->s[at] == -__builtin_inf() ? h->n[at] : h->value[GAIN][head] * h->n[at] + shift;
  if (own >= 0) s->w[first + own] += h->value[IDENTITY][head];
}
static void after(sheets *s) {
  if (!alone(s->own)) sheets_each_row(s, s->l, scale_row);
}

/* ---- gradients: sheets of a head in order ---- */

static void learn_task(void *arg, int64_t head) {
  sheets *s = arg;
  const head_numbers *h = s->own;
  for (int64_t sheet = head; sheet < s->count; sheet += s->heads) {
    double gain = 0, shift = 0, identity = 0;
    for (int64_t i = 0; i < s->l; i++) {
      const int64_t first = (sheet * s->l + i) * s->t;
      int64_t own;
      const double share = share_of(s, sheet, i, &own);
      if (own >= 0) identity += s->g[first + own];
      for (int64_t at = first; at < first + s->t; at++) {
        if (s->s[at] == -__builtin_inf()) continue;
        gain += s->g[at] * h->n[at], shift += share * s->g[at];
        s->g[at] *= h->value[GAIN][head];
      }
    }
    h->change[GAIN][head] += gain, h->change[SHIFT][head] += shift;
    if (h->count > IDENTITY) h->change[IDENTITY][head] += identity;
  }
}
static void back_before(sheets *s) {
  if (!alone(s->own)) smx_parallel(s->c->ctx, s->heads, learn_task, s);
}
static void back_after(sheets *s) {
  const head_numbers *h = s->own;
  const int64_t cells = s->l * s->t;
  for (int64_t r = 0; r < s->count * s->l && alone(h); r++) h->change[0][r / s->l % s->heads] += h->drow[r];
  if (h->dbias) memcpy(h->dbias + s->first * cells, s->ds, (size_t)(s->count * cells) * sizeof(double));
}

static void end(sheets *s) {
  const head_numbers *h = s->own;
  const bool none = s->all == 0 || s->l == 0 || s->t == 0;
  for (int i = 0; i < h->count && s->backward; i++) {
    if (none) memset(h->change[i], 0, (size_t)s->heads * sizeof(double));
    if (s->c->din.given[h->numbers[i]])
      tensor_store(s->c, s->c->din.view + h->numbers[i], 0, s->heads, h->change[i]);
  }
  if (h->dbias) tensor_store(s->c, s->c->din.view + h->bias, 0, s->all * s->l * s->t, h->dbias);
}

/* ---- calls ---- */

enum { ENTMAX_ALPHA = SHEET_OWN, ENTMAX_MASK, ENTMAX_BIAS };
enum { NAP_GAMMA = SHEET_OWN, NAP_BETA, NAP_MASK, NAP_BIAS };
enum { SHAPED_IDENTITY = SHEET_OWN, SHAPED_GAIN, SHAPED_MEAN, SHAPED_MASK, SHAPED_BIAS };

static const sheet_rule entmax_rule = {ENTMAX_MASK, call, before, after, back_before, back_after, room, end},
                        nap_rule = {NAP_MASK, call, before, after, back_before, back_after, room, end},
                        shaped_rule = {SHAPED_MASK, call, before, after, back_before, back_after, room, end};

static smx_status entmax_run(const tensor_call *c, bool backward) {
  head_numbers own = {.op = "entmax", .bias = ENTMAX_BIAS, .count = 1, .numbers = {ENTMAX_ALPHA}};
  return sheets_run(c, &entmax_rule, &own, backward);
}
static smx_status nap_run(const tensor_call *c, bool backward) {
  head_numbers own = {
      .op = "normalized_attention", .bias = NAP_BIAS, .count = 2, .numbers = {NAP_GAMMA, NAP_BETA}};
  return sheets_run(c, &nap_rule, &own, backward);
}
static smx_status shaped_run(const tensor_call *c, bool backward) {
  head_numbers own = {.op = "softmax",
                      .bias = SHAPED_BIAS,
                      .count = 3,
                      .numbers = {SHAPED_GAIN, SHAPED_MEAN, SHAPED_IDENTITY}};
  return sheets_run(c, &shaped_rule, &own, backward);
}
smx_status entmax_attention_forward(const tensor_call *c) { return entmax_run(c, false); }
smx_status entmax_attention_backward(const tensor_call *c) { return entmax_run(c, true); }
smx_status nap_attention_forward(const tensor_call *c) { return nap_run(c, false); }
smx_status nap_attention_backward(const tensor_call *c) { return nap_run(c, true); }
smx_status shaped_attention_forward(const tensor_call *c) { return shaped_run(c, false); }
smx_status shaped_attention_backward(const tensor_call *c) { return shaped_run(c, true); }
