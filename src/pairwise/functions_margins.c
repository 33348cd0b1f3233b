/* pairwise/functions_margins.c - cross-entropy of cosines with margins that follow from the
 * classes or from the batch: margin_metric_softmax (Shu et al. 2023),
 * adaptive_scale_margin_softmax (MadaCos, Zhu et al. 2023). */
#include <stdlib.h>
#include <string.h>

#include "functions.h"

#define INF __builtin_inf()

/* ---- margin_metric_softmax ----
 *
 *     l_ij = (u_i v_j + margin (1 - v_y v_j)) / T = (u_i - margin v_y) v_j / T + margin / T
 *
 * of which the last does not matter to cross-entropy. */

static void shift_row(void *arg, int64_t i) {
  const pair_call *p = arg;
  const int64_t own = pair_key(p, i), d = p->d;
  char *const to = p->shifted + i * d * p->bytes;
  memcpy(to, p->u + i * d * p->bytes, (size_t)(d * p->bytes));
  if (own < 0) return;
  for (int64_t x = 0; x < d; x++)
    pair_set(p, to, x, pair_at(p, to, x) - p->margin * pair_at(p, p->v, own * d + x));
}
static void metric_begin(pair_call *p) {
  p->margin = tensor_param(p->c, "margin");
  smx_parallel(p->c->ctx, p->n, shift_row, p);
}
const pair_rule pair_metric_margin = {
    .roles = pair_key_roles, .row = pair_contrast, .classes = true, .shifted = true, .begin = metric_begin};

/* ---- adaptive_scale_margin_softmax ----
 *
 *     l_ij = s c_ij, l_iy = s (c_iy - m),
 *     s = max(32, log(9999999 (1 - alpha) / alpha) / (1 - med)),
 *     m = max(0, med - (log B + log(alpha / (1 - alpha))) / s)
 *
 * med is the lower median of c_iy; B that of sum_(j not y) e^(s c_ij): of the median row, or the
 * median or mean of all rows. */

enum { OF_MEDIAN_ROW, MEDIAN, MEAN }; /* `of` */
enum { OUT_SCALE = 1, OUT_MARGIN };

static int rising(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void own_cosine(void *arg, int64_t i) {
  const pair_call *p = arg;
  const int64_t own = pair_key(p, i), row = p->d * p->bytes;
  p->gathered[i] = own < 0 ? INF : pair_dot(p->c->is_f64, p->u + i * row, p->v + own * row, p->d);
}

/* The lower median of the finite numbers of p->gathered, in p->loss sorted; *at: the first row
 * that has it. NaN: there is one. */
static double median_of(pair_call *p, int64_t *count, int64_t *at) {
  *count = 0, *at = 0;
  for (int64_t i = 0; i < p->n; i++) {
    if (p->gathered[i] != p->gathered[i]) return p->gathered[i];
    if (p->gathered[i] < INF) p->loss[(*count)++] = p->gathered[i];
  }
  if (*count == 0) return 0;
  qsort(p->loss, (size_t)*count, sizeof *p->loss, rising);
  const double median = p->loss[(*count - 1) / 2];
  while (p->gathered[*at] != median) ++*at;
  return median;
}

/* log B, from those of the rows. */
static double log_others(pair_call *p, int64_t row) {
  const int of = (int)tensor_param(p->c, "of");
  int64_t count, at;
  double sum = 0;
  if (of == OF_MEDIAN_ROW) pair_ask(p, row, row + 1);
  else pair_ask(p, 0, p->n);
  if (of == OF_MEDIAN_ROW) return p->gathered[row];
  const double median = median_of(p, &count, &at), most = count && median == median ? p->loss[count - 1] : 0;
  if (of == MEDIAN || median != median || most == -INF) return median;
  for (int64_t i = 0; i < count; i++) sum += p->math->exp(p->loss[i] - most);
  return most + p->math->log(sum / (double)count);
}

static void adaptive_begin(pair_call *p) {
  const tensor_call *c = p->c;
  const double alpha = tensor_param(c, "alpha");
  int64_t count, row;
  smx_parallel(c->ctx, p->n, own_cosine, p);
  const double median = median_of(p, &count, &row), way = 1 - median < 1e-6 ? 1e-6 : 1 - median;
  double s = p->math->log(9999999 * (1 - alpha) / alpha) / way;
  if (s < 32 || count == 0) s = 32;
  if (median != median) s = median;
  if (p->in.temperature) s = p->number;
  p->temperature = 1 / s, p->ports.scale = s, p->margin = 0;
  if (count > 0 && median == median && !p->in.temperature) {
    const double m = median - (log_others(p, row) + p->math->log(alpha / (1 - alpha))) / s;
    p->margin = m < 0 ? 0 : m;
  }
  if (p->backward) return;
  if (c->out.given[OUT_SCALE]) tensor_put(c, OUT_SCALE, 0, s);
  if (c->out.given[OUT_MARGIN]) tensor_put(c, OUT_MARGIN, 0, p->margin);
}

static double adaptive_row(pair_call *p, pair_row *r) {
  const int64_t own = pair_key(p, r->i);
  if (p->asks) {
    pair_keep(p, r->l, r->role, NEGATIVES, r->x);
    return own < 0 ? INF : pair_lse(p, r->x, p->m);
  }
  if (own >= 0) pair_set(p, r->l, own, pair_at(p, r->l, own) - p->margin / p->temperature);
  return pair_contrast(p, r);
}

static smx_status check_scale(const pair_call *p) {
  if (!p->in.temperature || (p->number >= 1e-30 && p->number <= 1e30)) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: scale is %g, not 1e-30..1e30", p->c->op->name, p->number);
}
const pair_rule pair_adaptive_margin = {.check = check_scale,
                                        .roles = pair_key_roles,
                                        .row = adaptive_row,
                                        .classes = true,
                                        .number = true,
                                        .begin = adaptive_begin};
