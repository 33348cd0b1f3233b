/* pairwise/functions_rows.c - what is done to a row of logits: sums and exponentials of some of its
 * pairs, by logsumexp and its gradient, and the loss of a row that has positive pairs. */
#include <string.h>

#include "driver/operator.h"
#include "functions.h"

#define REAL float
#define NAME(x) x##_f32
#include "functions_loops.tmpl.h"

#define REAL double
#define NAME(x) x##_f64
#include "functions_loops.tmpl.h"

#define INF __builtin_inf()
/* Rows of more logits are summed in parts of so many, which operators take without memory of their
 * own. */
enum { PART = 1 << 15 };

#define AT(x) ((void *)(uintptr_t)(x))

void pair_keep(const pair_call *p, const char *l, const unsigned char *role, unsigned set, char *x) {
  if (p->c->is_f64) keep_f64(AT(l), role, set, p->m, AT(x));
  else keep_f32(AT(l), role, set, p->m, AT(x));
}
void pair_scale(bool f64, const char *x, double factor, int64_t n, char *to) {
  if (f64) scale_f64(AT(x), factor, n, AT(to));
  else scale_f32(AT(x), (float)factor, n, AT(to));
}
void pair_add(bool f64, const char *x, const double *factor, int64_t n, char *g) {
  if (f64) add_f64(AT(x), factor, n, AT(g));
  else add_f32(AT(x), factor, n, AT(g));
}
void pair_join(bool f64, const char *x, int64_t n, char *g) {
  if (f64) join_f64(AT(x), n, AT(g));
  else join_f32(AT(x), n, AT(g));
}
double pair_dot(bool f64, const char *l, const char *g, int64_t n) {
  return f64 ? dot_f64(AT(l), AT(g), n) : dot_f32(AT(l), AT(g), n);
}
void pair_raise(bool f64, const char *l, int64_t n, char *most) {
  if (f64) raise_f64(AT(l), n, AT(most));
  else raise_f32(AT(l), n, AT(most));
}
void pair_minus(bool f64, const char *l, const char *r, int64_t n, char *x) {
  if (f64) minus_f64(AT(l), AT(r), n, AT(x));
  else minus_f32(AT(l), AT(r), n, AT(x));
}
void pair_sum(bool f64, const char *x, int64_t n, double *sum) {
  if (f64) sum_f64(AT(x), n, sum);
  else sum_f32(AT(x), n, sum);
}

double pair_unit(bool f64, const char *x, double least, int64_t n, char *to) {
  return f64 ? unit_f64(AT(x), least, n, AT(to)) : unit_f32(AT(x), least, n, AT(to));
}
void pair_unit_slope(bool f64, const char *u, double norm, double least, int64_t n, char *g) {
  if (f64) unit_slope_f64(AT(u), norm, least, n, AT(g));
  else unit_slope_f32(AT(u), norm, least, n, AT(g));
}

void pair_set(const pair_call *p, char *x, int64_t j, double value) {
  smx_reals_store(p->c->is_f64, &value, 1, x + j * p->bytes);
}
double pair_at(const pair_call *p, const char *x, int64_t j) {
  double value;
  smx_reals_load(p->c->is_f64, x + j * p->bytes, 1, &value);
  return value;
}

int64_t pair_count(const pair_call *p, const unsigned char *role, unsigned set) {
  int64_t count = 0;
  for (int64_t j = 0; j < p->m; j++) count += set >> role[j] & 1;
  return count;
}

/* ---- exponentials ---- */

static smx_tensor reals_of(const pair_call *p, const void *data, int32_t ndim, int64_t *n) {
  return smx_tensor_of(data, p->c->is_f64 ? SMX_F64 : SMX_F32, ndim, n, NULL);
}
static void note(pair_call *p, smx_status status) {
  if (status != SMX_OK) atomic_store(&p->status, (int)status);
}

static double part_lse(pair_call *p, const char *x, int64_t n) {
  double room = 0;
  const smx_tensor tx = reals_of(p, x, 1, &n), ty = reals_of(p, &room, 0, NULL), *in = &tx, *out = &ty;
  note(p, operator_forward(p->logsumexp, NULL, NULL, 1, &in, 1, &out));
  return pair_at(p, (const char *)&room, 0);
}

double pair_lse(pair_call *p, const char *x, int64_t n) {
  double all = -INF;
  for (int64_t from = 0; from < n; from += PART) {
    const double one = part_lse(p, x + from * p->bytes, n - from < PART ? n - from : PART);
    const double high = one > all || one != one ? one : all, low = one > all ? all : one;
    all = from == 0 || low == -INF ? high : high + p->math->softplus(low - high);
  }
  return all;
}

/* factor times the gradient of logsumexp */
static void part_softmax(pair_call *p, const char *x, int64_t n, double factor, char *g) {
  double room = 0;
  pair_set(p, (char *)&room, 0, factor);
  const smx_tensor tx = reals_of(p, x, 1, &n), ty = reals_of(p, &room, 0, NULL), tg = reals_of(p, g, 1, &n);
  const smx_tensor *in = &tx, *out = NULL, *dout = &ty, *din = &tg;
  note(p, operator_backward(p->logsumexp, NULL, NULL, 1, &in, 1, &out, &dout, &din));
}

void pair_exp(pair_call *p, const char *x, int64_t n, double offset, double factor, char *g) {
  for (int64_t from = 0; from < n; from += PART) {
    const int64_t count = n - from < PART ? n - from : PART;
    const double lse = part_lse(p, x + from * p->bytes, count);
    const double share = lse == -INF ? 0 : factor * p->math->exp(lse - offset);
    part_softmax(p, x + from * p->bytes, count, share, g + from * p->bytes);
  }
}

void pair_softmax(pair_call *p, const char *x, int64_t n, double lse, double factor, char *g) {
  if (n <= PART) {
    if (n > 0) part_softmax(p, x, n, factor, g);
  } else pair_exp(p, x, n, lse, factor, g);
}

double pair_sigmoid(const pair_call *p, double x) { return p->math->exp(-p->math->softplus(-x)); }

/* ---- a row with positives W and negatives N ----
 *
 *     lse_(N + W) l - (mean_W l  or  lse_W l),  decoupled: lse_N l - the same
 *
 * The second form, and one positive, are softplus(lse_N l - lse_W l), which keeps the digits of
 * losses next to 0; with t what is in brackets, its gradient is s(t) (softmax_N - softmax_W). */

/* Takes off what the positives of the row have: their softmax, or the same of each. */
static void less_positives(pair_call *p, pair_row *r, double count, double top, double factor) {
  const bool even = count == 1 || !p->spread;
  if (!even) pair_keep(p, r->l, r->role, POSITIVES, r->x), pair_softmax(p, r->x, p->m, top, factor, r->y);
  for (int64_t j = 0; j < p->m; j++)
    if (r->role[j] == PAIR_POSITIVE)
      pair_set(p, r->g, j, pair_at(p, r->g, j) - (even ? factor / count : pair_at(p, r->y, j)));
}

double pair_contrast(pair_call *p, pair_row *r) {
  double count = 0, mean = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (r->role[j] == PAIR_POSITIVE) count++, mean += pair_at(p, r->l, j);
  if (r->g) memset(r->g, 0, (size_t)(p->m * p->bytes));
  if (count == 0) return 0;
  const bool spread = p->spread || count == 1, coupled = spread && !p->decoupled;
  double top = mean / count;
  if (spread && count > 1) {
    pair_keep(p, r->l, r->role, POSITIVES, r->x);
    top = pair_lse(p, r->x, p->m);
  }
  pair_keep(p, r->l, r->role, spread || p->decoupled ? NEGATIVES : NEGATIVES | POSITIVES, r->x);
  const double lse = pair_lse(p, r->x, p->m), t = lse - top, more = p->log_count ? p->math->log(count) : 0;
  if (lse == -INF) return coupled ? more : 0;
  const double factor = r->up * (coupled ? pair_sigmoid(p, t) : 1);
  if (r->g) pair_softmax(p, r->x, p->m, lse, factor, r->g), less_positives(p, r, count, top, factor);
  return (coupled ? p->math->softplus(t) : t) + more;
}
