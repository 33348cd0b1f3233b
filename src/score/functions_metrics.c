/* score/functions_metrics.c - metrics of a set of rows: how well a score ranks, how far confidence
 * is from accuracy, and what risk is left at every coverage. Exact: sorted, with equal numbers as
 * the definitions have them. In double, in the order of the rows. */
#include "cpu/cpu.h"
#include "driver/bins.h"
#include "driver/number_sort.h"
#include "functions.h"

enum { FIRST, SECOND };                                                        /* inputs */
enum { AUROC, PRECISION, OTHER_PRECISION, FPR, DETECTION };                    /* of ranking_metrics */
enum { ECE, MCE, RMS, ADAPTIVE, KS, BIN_COUNT, BIN_CONFIDENCE, BIN_ACCURACY }; /* of calibration_error */
enum { AURC, EXCESS, RISK };                                                   /* of risk_coverage */
enum { KERNEL_MMCE, KERNEL_UNBIASED }; /* of kernel_calibration_error */

/* A set of n rows: a number of each, and its order, the largest first. */
typedef struct metric_set {
  const tensor_call *c;
  int64_t n, number; /* number: of the set */
  double *x, *y;     /* the inputs; y: 0 and 1 of a mask */
  sort_entry *room[2], *order;
  sort_counts *counts;
  bool nan;
} metric_set;

static smx_status set_open(metric_set *s, const tensor_call *c) {
  int64_t bytes;
  *s = (metric_set){.c = c, .n = tensor_dim(c, "n")};
  const int64_t each = 2 * (int64_t)(sizeof(double) + sizeof(sort_entry));
  s->x = smx_multiply(s->n + 1, each, &bytes) && bytes < INT64_MAX / 2
             ? smx_alloc(c->ctx, (size_t)bytes + sizeof *s->counts)
             : NULL;
  if (!s->x) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)s->n);
  s->y = s->x + s->n;
  s->room[0] = (sort_entry *)(void *)(s->y + s->n), s->room[1] = s->room[0] + s->n;
  s->counts = (sort_counts *)(void *)(s->room[1] + s->n);
  return SMX_OK;
}

static void sort_by(metric_set *s, const double *x) {
  for (int64_t i = 0; i < s->n; i++) s->room[0][i] = (sort_entry){sort_key_descending(x[i]), s->y[i]};
  s->order = sort_numbers(s->room[0], s->room[1], s->n, s->counts);
}

static void load(const metric_set *s, int port, double *to) {
  const smx_view *v = s->c->in.view + port;
  const int64_t at = s->number * s->n;
  if (!(s->c->op->inputs[port].flags & SMX_PORT_MASK)) tensor_load(s->c, v, at, s->n, to);
  else
    for (int64_t i = 0; i < s->n; i++) to[i] = v->data[at + i];
}

/* Set `number`, in order. */
static void set_take(metric_set *s, int64_t number) {
  s->number = number, s->nan = false;
  load(s, FIRST, s->x), load(s, SECOND, s->y);
  for (int64_t i = 0; i < s->n; i++) s->nan |= s->x[i] != s->x[i] || s->y[i] != s->y[i];
}

static double y_at(const metric_set *s, int64_t place) { return s->order[place].y; }
static double x_at(const metric_set *s, int64_t place) { return sort_number(s->order[place].key); }

/* Where the block of equal numbers that begins at a place ends. */
static int64_t block_end(const metric_set *s, int64_t from) {
  int64_t end = from + 1;
  while (end < s->n && s->order[end].key == s->order[from].key) end++;
  return end;
}

static void put(const metric_set *s, int port, double value) { tensor_put(s->c, port, s->number, value); }

/* ---- ranking_metrics ---- */

typedef struct ranking {
  uint64_t positives, negatives, pairs; /* pairs: twice those in order, and those that are equal */
  double precision, other, fpr, detection;
} ranking;

static void rank_downwards(const metric_set *s, double tpr, ranking *r) {
  const bool precision = s->c->out.given[PRECISION],
             errors = s->c->out.given[FPR] || s->c->out.given[DETECTION];
  const double p = (double)r->positives, n = (double)r->negatives;
  uint64_t found = 0, wrong = 0;
  bool reached = false;
  r->detection = 0.5;
  for (int64_t from = 0, end; from < s->n; from = end) {
    uint64_t own = 0;
    end = block_end(s, from);
    for (int64_t i = from; i < end; i++) own += y_at(s, i) != 0;
    const uint64_t others = (uint64_t)(end - from) - own;
    found += own, wrong += others;
    r->pairs += own * (2 * (r->negatives - wrong) + others);
    if (precision) r->precision += (double)own / p * ((double)found / (double)(found + wrong));
    if (!errors) continue;
    const double error = 0.5 * (1 - (double)found / p + (double)wrong / n);
    r->detection = error < r->detection ? error : r->detection;
    if (!reached && (double)found / p >= tpr) reached = true, r->fpr = (double)wrong / n;
  }
}

/* The average precision of the negatives, whose scores are the small ones. */
static void rank_upwards(const metric_set *s, ranking *r) {
  uint64_t found = 0, wrong = 0;
  if (!s->c->out.given[OTHER_PRECISION]) return;
  for (int64_t end = s->n, from; end > 0; end = from) {
    uint64_t own = 0;
    for (from = end; from > 0 && s->order[from - 1].key == s->order[end - 1].key; from--)
      own += y_at(s, from - 1) == 0;
    found += own, wrong += (uint64_t)(end - from) - own;
    r->other += (double)own / (double)r->negatives * ((double)found / (double)(found + wrong));
  }
}

static void write_ranking(metric_set *s) {
  const double nan = __builtin_nan("");
  ranking r = {0};
  for (int64_t i = 0; i < s->n; i++) r.positives += s->y[i] != 0;
  r.negatives = (uint64_t)s->n - r.positives;
  const bool none = s->nan || r.positives == 0 || r.negatives == 0;
  if (!none) sort_by(s, s->x), rank_downwards(s, tensor_param(s->c, "tpr"), &r), rank_upwards(s, &r);
  const double auroc = (double)r.pairs / (2 * (double)r.positives * (double)r.negatives);
  put(s, AUROC, none ? nan : auroc), put(s, PRECISION, none ? nan : r.precision);
  put(s, OTHER_PRECISION, none ? nan : r.other), put(s, FPR, none ? nan : r.fpr);
  put(s, DETECTION, none ? nan : r.detection);
}

/* ---- calibration_error ---- */

typedef struct bin {
  double count, confidence, correct; /* sums */
} bin;

static double gap_of(const bin *b) { return __builtin_fabs(b->correct - b->confidence); } /* times count */

/* Bins of as many rows each, the first ones with one more, from the least confidence on. */
static double adaptive_of(const metric_set *s, int64_t bins) {
  double sum = 0;
  for (int64_t b = 0, from = 0; b < bins; b++) {
    const int64_t count = s->n / bins + (b < s->n % bins);
    bin own = {0};
    for (int64_t i = from; i < from + count; i++)
      own.confidence += x_at(s, s->n - 1 - i), own.correct += y_at(s, s->n - 1 - i);
    sum += gap_of(&own), from += count;
  }
  return sum / (double)s->n;
}

/* The largest distance of the sums of correct and confidence, from the least confidence on, over n;
 * where equal numbers end. */
static double distance_of(const metric_set *s) {
  double most = 0, sum = 0;
  for (int64_t i = s->n - 1; i >= 0; i--) {
    sum += y_at(s, i) - x_at(s, i);
    const bool ends = i == 0 || s->order[i - 1].key != s->order[i].key;
    if (ends && __builtin_fabs(sum) > most) most = __builtin_fabs(sum);
  }
  return most / (double)s->n;
}

static void write_bin(const metric_set *s, const bin *b, int64_t number, int64_t bins) {
  const int64_t at = s->number * bins + number;
  tensor_put(s->c, BIN_CONFIDENCE, at, b->confidence / b->count);
  tensor_put(s->c, BIN_ACCURACY, at, b->correct / b->count);
  if (s->c->out.given[BIN_COUNT]) ((int64_t *)(void *)s->c->out.view[BIN_COUNT].data)[at] = (int64_t)b->count;
}

static void write_calibration(metric_set *s, bin *bins, int64_t count) {
  double ece = 0, mce = 0, rms = 0;
  const bool left = tensor_param(s->c, "closed") != 0, none = s->nan || s->n == 0;
  const bool sorted = !none && (s->c->out.given[ADAPTIVE] || s->c->out.given[KS]);
  for (int64_t b = 0; b < count; b++) bins[b] = (bin){0};
  for (int64_t i = 0; i < s->n && !s->nan; i++) {
    bin *own = bins + bin_of(s->x[i], count, left);
    own->count++, own->confidence += s->x[i], own->correct += s->y[i];
  }
  for (int64_t b = 0; b < count; b++) {
    write_bin(s, bins + b, b, count);
    if (bins[b].count == 0) continue;
    const double gap = gap_of(bins + b), mean = gap / bins[b].count;
    ece += gap, mce = mean > mce ? mean : mce, rms += mean * gap;
  }
  ece /= (double)s->n, rms = __builtin_sqrt(rms / (double)s->n);
  if (sorted) sort_by(s, s->x);
  const double nan = __builtin_nan(""), adaptive = sorted ? adaptive_of(s, count) : nan;
  const double ks = sorted ? distance_of(s) : nan;
  put(s, ECE, none ? nan : ece), put(s, MCE, none ? nan : mce), put(s, RMS, none ? nan : rms);
  put(s, ADAPTIVE, adaptive), put(s, KS, ks);
}

smx_status score_check_confidence(const tensor_call *c) {
  const int64_t all = c->dims.lead_count * tensor_dim(c, "n");
  for (int64_t i = 0; i < all; i++) {
    double x;
    tensor_load(c, c->in.view, i, 1, &x);
    if (x < 0 || x > 1)
      return smx_fail(SMX_ERR_PARAM, "%s: confidence: number %lld is %g, not 0..1", c->op->name, (long long)i,
                      x);
  }
  return SMX_OK;
}

/* ---- risk_coverage ---- */

/* The mean of the losses of the k first, for every k, and the mean of that; risk NULL: not wanted.
 * Within a block of equal numbers it is that of a random order. */
static double risks_of(const metric_set *s, double *risk) {
  double before = 0, all = 0;
  for (int64_t from = 0, end; from < s->n; from = end) {
    double own = 0;
    end = block_end(s, from);
    for (int64_t i = from; i < end; i++) own += y_at(s, i);
    for (int64_t i = from; i < end; i++) {
      const double share = (double)(i + 1 - from) / (double)(end - from),
                   r = (before + own * share) / (double)(i + 1);
      all += r;
      if (risk) risk[i] = r;
    }
    before += own;
  }
  return all / (double)s->n;
}

/* The best order, the least losses first; of 0 and 1 without a sort. */
static void order_losses(metric_set *s) {
  int64_t none = 0, one = 0, at = 0;
  for (int64_t i = 0; i < s->n; i++) none += s->y[i] == 0, one += s->y[i] == 1;
  for (int64_t i = 0; i < s->n; i++) s->x[i] = -s->y[i];
  if (none + one < s->n) {
    sort_by(s, s->x);
    return;
  }
  s->order = s->room[0];
  while (at < none) s->order[at++] = (sort_entry){sort_key_descending(0), 0};
  while (at < s->n) s->order[at++] = (sort_entry){sort_key_descending(-1), 1};
}

static void put_risks(const metric_set *s) {
  if (s->c->out.given[RISK]) tensor_store(s->c, s->c->out.view + RISK, s->number * s->n, s->n, s->x);
}

static void write_risks(metric_set *s) {
  const bool none = s->nan || s->n == 0;
  const double nan = __builtin_nan("");
  double aurc = nan, excess = nan;
  if (!none) {
    sort_by(s, s->x);
    aurc = risks_of(s, s->x); /* what it held is in the order */
    put_risks(s);
    order_losses(s);
    excess = aurc - risks_of(s, NULL);
  }
  for (int64_t i = 0; i < s->n && none; i++) s->x[i] = nan;
  if (none) put_risks(s);
  put(s, AURC, aurc), put(s, EXCESS, excess);
}

/* ---- kernel_calibration_error ----
 *
 * With d = correct - confidence: sum_ij d_i d_j e^(-|c_i - c_j| / w). Down the sorted confidences c
 * the sum over those before i is carry_i = (carry_(i-1) + d_(i-1)) e^(-(c_(i-1) - c_i) / w), so
 * all pairs take one walk. */
static void write_kernel(metric_set *s) {
  const score_kernels *math = smx_isa_current()->f64.score;
  const double width = tensor_param(s->c, "width"), n = (double)s->n, nan = __builtin_nan("");
  double carry = 0, pairs = 0, own = 0, before = 0;
  const bool none = s->nan || s->n == 0;
  if (!none) sort_by(s, s->x);
  for (int64_t i = 0; i < s->n && !none; i++) {
    const double x = x_at(s, i), d = y_at(s, i) - x;
    if (i > 0) carry = (carry + before) * math->exp((x - x_at(s, i - 1)) / width);
    pairs += d * carry, own += d * d, before = d;
  }
  const double all = (2 * pairs + own) / (n * n);
  put(s, KERNEL_MMCE, none ? nan : all > 0 ? __builtin_sqrt(all) : 0);
  put(s, KERNEL_UNBIASED, none || s->n < 2 ? nan : 2 * pairs / (n * (n - 1)));
}

/* ---- calls ---- */

smx_status score_ranking(const tensor_call *c) {
  metric_set s;
  const smx_status status = set_open(&s, c);
  for (int64_t i = 0; i < c->dims.lead_count && status == SMX_OK; i++) set_take(&s, i), write_ranking(&s);
  if (status == SMX_OK) smx_free(c->ctx, s.x);
  return status;
}

smx_status score_calibration(const tensor_call *c) {
  metric_set s;
  const int64_t count = tensor_dim(c, "bins");
  smx_status status = score_check_confidence(c);
  if (status == SMX_OK) status = set_open(&s, c);
  if (status != SMX_OK) return status;
  bin *bins = smx_alloc(c->ctx, (size_t)count * sizeof *bins);
  if (!bins) status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bins", c->op->name, (long long)count);
  for (int64_t i = 0; i < c->dims.lead_count && status == SMX_OK; i++)
    set_take(&s, i), write_calibration(&s, bins, count);
  smx_free(c->ctx, bins);
  smx_free(c->ctx, s.x);
  return status;
}

smx_status score_risk(const tensor_call *c) {
  metric_set s;
  const smx_status status = set_open(&s, c);
  for (int64_t i = 0; i < c->dims.lead_count && status == SMX_OK; i++) set_take(&s, i), write_risks(&s);
  if (status == SMX_OK) smx_free(c->ctx, s.x);
  return status;
}

smx_status score_kernel(const tensor_call *c) {
  metric_set s;
  smx_status status = score_check_confidence(c);
  if (status == SMX_OK) status = set_open(&s, c);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < c->dims.lead_count; i++) set_take(&s, i), write_kernel(&s);
  smx_free(c->ctx, s.x);
  return SMX_OK;
}
