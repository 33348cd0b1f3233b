/* pairwise/ref.c - losses of pairs straight from the formulas, for tests. */
#include "ref.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The inputs of a call; those of an operator without b have one less. */
typedef struct pairs {
  const double *a, *b, *s, *temperature, *mask, *own[3];
  int64_t n, m, d;
  bool normalise, self;
  double divisor;
} pairs;

/* Parameters begin with temperature, normalise, similarities. */
static pairs pairs_of(const tensor_ref_call *c, bool has_b) {
  const int rest = has_b ? 2 : 1;
  const bool features = c->q[2] == 0;
  pairs p = {.a = features ? c->in[0] : NULL, .b = has_b ? c->in[1] : NULL, .s = features ? NULL : c->in[0]};
  p.temperature = c->in[rest], p.mask = c->in[rest + 1];
  for (int i = 0; i < 3; i++) p.own[i] = c->in[rest + 2 + i];
  p.n = c->in_shape[0][0], p.d = c->in_shape[0][1];
  p.m = p.b ? c->in_shape[1][0] : features ? p.n : p.d;
  p.divisor = p.temperature ? *p.temperature : c->q[0], p.normalise = c->q[1] != 0;
  return p;
}

static double length_of(const double *x, int64_t d) {
  double square = 0;
  for (int64_t k = 0; k < d; k++) square += x[k] * x[k];
  return fmax(sqrt(square), 1e-12);
}

static double logit(const pairs *p, int64_t i, int64_t j) {
  if (p->s) return p->s[i * p->m + j] / p->divisor;
  const double *a = p->a + i * p->d, *b = (p->b ? p->b : p->a) + j * p->d;
  double sum = 0;
  for (int64_t k = 0; k < p->d; k++) sum += a[k] * b[k];
  return sum / (p->normalise ? length_of(a, p->d) * length_of(b, p->d) : 1) / p->divisor;
}

/* Of the pairs of a row: which are positives, which count at all. */
typedef struct row_sets {
  const char *positive, *counts;
} row_sets;
typedef enum which { ALL, POSITIVES, NEGATIVES } which;
static bool is_in(const row_sets *r, int64_t j, which w) {
  return r->counts[j] && (w == ALL || (r->positive[j] != 0) == (w == POSITIVES));
}
static double lse_of(const pairs *p, int64_t i, const row_sets *r, which w) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, w)) most = fmax(most, logit(p, i, j));
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, w)) sum += exp(logit(p, i, j) - most);
  return sum > 0 ? most + log(sum) : -INFINITY;
}

/* form 0: out, 1: in, 2: nce */
static double contrast(const pairs *p, int64_t i, const row_sets *r, int form, bool decoupled) {
  double count = 0, mean = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, POSITIVES)) count++, mean += logit(p, i, j);
  const double all = lse_of(p, i, r, decoupled ? NEGATIVES : ALL), some = lse_of(p, i, r, POSITIVES);
  if (count == 0 || isinf(all)) return 0;
  if (!decoupled && (form != 0 || count == 1)) /* the same, with the digits of small losses */
    return log1p(exp(lse_of(p, i, r, NEGATIVES) - some)) + (form == 1 ? log(count) : 0);
  return form == 0 ? all - mean / count : all - some + (form == 1 ? log(count) : 0);
}

/* Marks the pairs of row i that the mask keeps, and forgets positives. */
static void begin_row(const pairs *p, int64_t i, char *positive, char *counts) {
  for (int64_t j = 0; j < p->m; j++)
    positive[j] = 0, counts[j] = (!p->mask || p->mask[i * p->m + j] != 0) && !(p->self && i == j);
}
typedef void mark_fn(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts);

static void each_row(const tensor_ref_call *c, const pairs *p, mark_fn *mark, int form, bool decoupled) {
  char *positive = calloc(2 * (size_t)p->m + 1, 1), *counts = positive + p->m;
  for (int64_t i = 0; i < p->n; i++) {
    begin_row(p, i, positive, counts);
    mark(c, p, i, positive, counts);
    ref_put(c, 0, i, contrast(p, i, &(row_sets){positive, counts}, form, decoupled));
  }
  free(positive);
}

static void mark_key(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const double at = p->own[0] ? p->own[0][i] : (double)i;
  if (p->own[0] && at == c->q[4]) return;
  positive[(int64_t)at] = counts[(int64_t)at] = 1;
}
static void info_nce(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  each_row(c, &p, mark_key, 0, c->q[3] != 0);
}

/* Rows, and columns as rows. */
static void clip_loss(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  for (int64_t i = 0; i < p.n; i++) {
    double row = 0, column = 0;
    for (int64_t j = 0; j < p.n; j++) {
      if (!p.mask || i == j || p.mask[i * p.n + j] != 0) row += exp(logit(&p, i, j) - logit(&p, i, i));
      if (!p.mask || i == j || p.mask[j * p.n + i] != 0) column += exp(logit(&p, j, i) - logit(&p, i, i));
    }
    ref_put(c, 0, i, (log(row) + log(column)) / 2);
  }
}

static void mark_view(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const int64_t half = p->n / 2, at = c->q[4] != 0 ? i + (i % 2 ? -1 : 1) : i < half ? i + half : i - half;
  positive[at] = counts[at] = 1;
}
static void nt_xent(const tensor_ref_call *c) {
  pairs p = pairs_of(c, false);
  p.self = true;
  each_row(c, &p, mark_view, 0, c->q[3] != 0);
}

static void mark_label(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const double *label = p->own[0], *other = p->own[1] ? p->own[1] : label;
  for (int64_t j = 0; j < p->m; j++)
    positive[j] = label ? label[i] >= 0 && label[i] == other[j] : p->own[2][i * p->m + j] != 0;
}
static void supervised_contrastive(const tensor_ref_call *c) {
  pairs p = pairs_of(c, true);
  p.self = !p.b && p.n == p.m && (p.a || c->q[5] != 0);
  each_row(c, &p, mark_label, (int)c->q[4], c->q[3] != 0);
}

/* Rows by a function of their logits and sets: all of those that follow. */
typedef double row_loss(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r);
static void each_loss(const tensor_ref_call *c, const pairs *p, mark_fn *mark, row_loss *loss) {
  char *positive = calloc(2 * (size_t)p->m + 1, 1), *counts = positive + p->m;
  for (int64_t i = 0; i < p->n; i++) {
    begin_row(p, i, positive, counts);
    if (mark) mark(c, p, i, positive, counts);
    ref_put(c, 0, i, loss(c, p, i, &(row_sets){positive, counts}));
  }
  free(positive);
}
static pairs pairs_with_self(const tensor_ref_call *c, double self) {
  pairs p = pairs_of(c, true);
  p.self = !p.b && p.n == p.m && (p.a || self != 0);
  return p;
}
static double softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }

static double decoupled_row(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r) {
  const double *weight = c->in[7], lse = lse_of(p, i, r, NEGATIVES);
  double count = 0, sum = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, POSITIVES))
      count++, sum += (weight ? weight[i * p->m + j] : 1) * softplus(lse - logit(p, i, j));
  return count > 0 && !isinf(lse) ? sum / count : 0;
}
static void decoupled_softmax_loss(const tensor_ref_call *c) {
  const pairs p = pairs_with_self(c, c->q[3]);
  each_loss(c, &p, mark_label, decoupled_row);
}

static void mark_item(const tensor_ref_call *c, const pairs *p, int64_t i, char *positive, char *counts) {
  const double at = p->own[0] ? p->own[0][i] : (double)i;
  if (!p->own[0] || at != c->q[3]) positive[(int64_t)at] = counts[(int64_t)at] = 1;
}
static int64_t item_of(const pairs *p, const row_sets *r) {
  for (int64_t j = 0; j < p->m; j++)
    if (r->positive[j]) return j;
  return -1;
}
static double ranking_row(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r) {
  const int64_t own = item_of(p, r);
  double sum = 0, count = 0, bpr = 0;
  for (int64_t j = 0; own >= 0 && j < p->m; j++) {
    if (!is_in(r, j, NEGATIVES)) continue;
    const double d = logit(p, i, j) - logit(p, i, own);
    const double one[] = {1 + tanh(d), fmax(0, 1 + d), fmax(0, 1 + atan(d)), exp(d)};
    count++, bpr += softplus(d) / c->q[5];
    if (c->q[4] != 4) sum += pow(one[(int)c->q[4]], 1 / c->q[5]);
  }
  return count > 0 ? c->q[4] != 4 ? log(sum) : bpr / count : 0;
}
static void pairwise_softmax_loss(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  each_loss(c, &p, mark_item, ranking_row);
}

static double weighted_row(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r) {
  const double lse = lse_of(p, i, r, ALL);
  double sum = 0;
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, ALL)) sum += p->own[0][i * p->m + j] * (lse - logit(p, i, j));
  return sum;
}
static void soft_contrastive(const tensor_ref_call *c) {
  const pairs p = pairs_with_self(c, c->q[3]);
  each_loss(c, &p, NULL, weighted_row);
}

/* By bisection. */
static double topk_row(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r) {
  double count = 0, all = 0, low = -1e4, high = 1e4, loss = 0, k = c->q[4];
  for (int64_t j = 0; j < p->m; j++) count += is_in(r, j, POSITIVES), all += is_in(r, j, ALL);
  if (k == 0) k = count;
  if (count == 0 || k >= all) return 0;
  for (int step = 0; step < 80; step++) {
    const double t = (low + high) / 2;
    double sum = 0;
    for (int64_t j = 0; j < p->m; j++)
      if (is_in(r, j, ALL)) sum += 1 / (1 + exp(-c->q[5] * (logit(p, i, j) + t)));
    if (sum > k) high = t;
    else low = t;
  }
  for (int64_t j = 0; j < p->m; j++)
    if (is_in(r, j, POSITIVES)) loss += softplus(-c->q[5] * (logit(p, i, j) + low)) / count;
  return loss;
}
static void soft_topk_loss(const tensor_ref_call *c) {
  const pairs p = pairs_with_self(c, c->q[3]);
  each_loss(c, &p, mark_label, topk_row);
}

static double graded_row(const tensor_ref_call *c, const pairs *p, int64_t i, const row_sets *r) {
  const int64_t own = item_of(p, r);
  const double *teacher = p->own[1] + i * p->m, cold = c->q[4],
               s = own < 0 ? 0 : logit(p, i, own) * p->divisor;
  double student_sum = 0, teacher_sum = 0, loss = 0;
  for (int pass = 0; pass < 2 && own >= 0; pass++)
    for (int64_t j = 0; j < p->m; j++) {
      const double x = logit(p, i, j) * p->divisor;
      const bool near = c->q[5] == 1 ? !(x < s - c->q[6]) : c->q[5] == 2 && !(x < c->q[6] * s);
      if (!is_in(r, j, ALL) || (j != own && near)) continue;
      const double u = (x - s) / p->divisor, v = (teacher[j] - teacher[own]) / cold;
      if (pass == 0) student_sum += exp(u), teacher_sum += exp(v);
      else loss += exp(v) / teacher_sum * (v - log(teacher_sum) - u + log(student_sum));
    }
  return loss;
}
static void graded_embedding_loss(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  each_loss(c, &p, mark_item, graded_row);
}

static void global_contrastive_loss(const tensor_ref_call *c) {
  pairs p = pairs_of(c, true);
  const double *temperature = p.temperature, gamma = c->q[4];
  char *positive = calloc(2 * (size_t)p.m + 1, 1), *counts = positive + p.m;
  p.divisor = 1;
  for (int64_t i = 0; i < p.n; i++) {
    begin_row(&p, i, positive, counts);
    mark_item(c, &p, i, positive, counts);
    const row_sets r = {positive, counts};
    const int64_t own = item_of(&p, &r);
    const double t = temperature ? temperature[i] : c->q[0], old = p.own[1] ? p.own[1][i] : -INFINITY;
    double sum = 0, count = 0;
    for (int64_t j = 0; j < p.m && own >= 0; j++)
      if (is_in(&r, j, NEGATIVES)) count++, sum += exp((logit(&p, i, j) - logit(&p, i, own)) / t);
    const double state = log(isinf(old) ? sum : (1 - gamma) * exp(old) + gamma * sum);
    ref_put(c, 0, i, count > 0 ? t * (state - log(count) + c->q[5]) : 0);
    ref_put(c, 1, i, state);
  }
  free(positive);
}

/* The guide's similarity over its temperature. */
static double guide(const tensor_ref_call *c, const pairs *p, int side, int64_t i, int64_t j) {
  const double *x = p->own[side];
  const int64_t k = c->in_shape[4 + side][1];
  double sum = 0;
  if (p->s) return x[i * p->n + j] / c->q[3];
  for (int64_t t = 0; t < k; t++) sum += x[i * k + t] * x[j * k + t];
  return sum / (p->normalise ? length_of(x + i * k, k) * length_of(x + j * k, k) : 1) / c->q[3];
}
/* One direction; with: whether pair (i, i) counts. */
static double soft_direction(const tensor_ref_call *c, const pairs *p, int side, int64_t i, bool with) {
  double sum = 0, guided = 0, loss = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t j = 0; j < p->n; j++) {
      if (i == j ? !with : p->mask && p->mask[side ? j * p->n + i : i * p->n + j] == 0) continue;
      const double l = (side ? logit(p, j, i) : logit(p, i, j)) - logit(p, i, i);
      const double r = guide(c, p, side, i, j) - guide(c, p, side, i, i), beta = with ? c->q[4] : 1;
      const double target = beta * exp(r) / guided + (i == j ? 1 - beta : 0);
      if (pass == 0) sum += exp(l), guided += exp(r);
      else if (target > 0) loss += target * (log(target) - l + log(sum));
    }
  return loss;
}
static void soft_clip_loss(const tensor_ref_call *c) {
  const pairs p = pairs_of(c, true);
  for (int64_t i = 0; i < p.n; i++) {
    double loss = 0;
    for (int side = 0; side < 2; side++)
      loss += soft_direction(c, &p, side, i, true) + c->q[5] * soft_direction(c, &p, side, i, false);
    ref_put(c, 0, i, loss / 2);
  }
}

tensor_ref_fn *const pairwise_refs[] = {info_nce,
                                        clip_loss,
                                        nt_xent,
                                        supervised_contrastive,
                                        decoupled_softmax_loss,
                                        pairwise_softmax_loss,
                                        soft_contrastive,
                                        soft_topk_loss,
                                        graded_embedding_loss,
                                        global_contrastive_loss,
                                        soft_clip_loss,
                                        ref_nbc_loss,
                                        ref_flowcon_score,
                                        ref_flowcon_loss,
                                        ref_attention_separation,
                                        ref_sphereface2,
                                        ref_wcdas,
                                        ref_margin_metric_softmax,
                                        ref_adaptive_scale_margin_softmax};
