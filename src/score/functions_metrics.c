/* score/functions_metrics.c - metrics of a set of rows: how well a score ranks, how far confidence
 * is from accuracy, and what risk is left at every coverage. Exact: sorted, with equal numbers as
 * the definitions have them. In double, in the order of the rows. */
#include "cpu/cpu.h"
#include "driver/bins.h"
#include "driver/number_sort.h"
#include "functions.h"

enum { FIRST, SECOND, WEIGHT };                                                /* inputs */
enum { AUROC, PRECISION, OTHER_PRECISION, FPR, DETECTION };                    /* of ranking_metrics */
enum { ECE, MCE, RMS, ADAPTIVE, KS, BIN_COUNT, BIN_CONFIDENCE, BIN_ACCURACY }; /* of calibration_error */
enum { AURC, EXCESS, RISK };                                                   /* of risk_coverage */
enum { KERNEL_MMCE, KERNEL_UNBIASED }; /* of kernel_calibration_error */

/* A set of rows: a number of each, and its order, the largest first. Rows of weight 0 are out. */
typedef struct metric_set {
  const tensor_call *c;
  int64_t rows, n, number; /* rows: of the tensors; n: that are left; number: of the set */
  double *x, *y, *w;       /* the inputs; y: 0 and 1 of a mask */
  const double *by;        /* with weights: those in the order */
  double all, unit;        /* the sum of the weights; what counts as one row */
  sort_entry *room[2], *order;
  sort_counts *counts;
  bool weighted, copies, nan;
} metric_set;

static smx_status set_open(metric_set *s, const tensor_call *c) {
  int64_t bytes;
  *s = (metric_set){.c = c, .rows = tensor_dim(c, "n")};
  const int64_t each = 2 * (int64_t)(sizeof(double) + sizeof(sort_entry));
  const smx_status status = score_open_weights(c, WEIGHT, &s->w);
  if (status != SMX_OK) return status;
  s->x = smx_multiply(s->rows + 1, each, &bytes) && bytes < INT64_MAX / 2
             ? smx_alloc(c->ctx, (size_t)bytes + sizeof *s->counts)
             : NULL;
  if (!s->x) {
    smx_free(c->ctx, s->w);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld rows", c->op->name, (long long)s->rows);
  }
  s->y = s->x + s->rows;
  s->room[0] = (sort_entry *)(void *)(s->y + s->rows), s->room[1] = s->room[0] + s->rows;
  s->counts = (sort_counts *)(void *)(s->room[1] + s->rows);
  return SMX_OK;
}
static void set_close(const metric_set *s) { smx_free(s->c->ctx, s->x), smx_free(s->c->ctx, s->w); }

/* With weights the number of a row goes along, and its numbers are fetched afterwards; the weights
 * go where the sort has room that it no longer needs. */
static void sort_by(metric_set *s, const double *x) {
  for (int64_t i = 0; i < s->n; i++) s->room[0][i] = (sort_entry){sort_key_descending(x[i]), s->y[i]};
  for (int64_t i = 0; i < s->n && s->weighted; i++) s->room[0][i].y = (double)i;
  s->order = sort_numbers(s->room[0], s->room[1], s->n, s->counts);
  double *by = (double *)(void *)(s->order == s->room[0] ? s->room[1] : s->room[0]);
  for (int64_t i = 0; i < s->n && s->weighted; i++) {
    const int64_t row = (int64_t)s->order[i].y;
    by[i] = s->w[row], s->order[i].y = s->y[row];
  }
  s->by = by;
}

static void load(const metric_set *s, int port, double *to) {
  const smx_view *v = s->c->in.view + port;
  const int64_t at = s->number * s->rows;
  if (!(s->c->op->inputs[port].flags & SMX_PORT_MASK)) tensor_load(s->c, v, at, s->rows, to);
  else
    for (int64_t i = 0; i < s->rows; i++) to[i] = v->data[at + i] != 0;
}

/* The rows of a set that have a weight. Where these are all 1 it is a set without. */
static void take_weights(metric_set *s) {
  const score_weights w = score_load_weights(s->c, WEIGHT, s->number, s->w);
  s->n = score_drop_rows(s->rows, s->w, 2, (double *const[]){s->x, s->y});
  s->weighted = !w.ones, s->copies = w.copies, s->all = 0;
  for (int64_t i = 0; i < s->n; i++) s->all += s->w[i];
  s->unit = s->copies ? 1 : s->all / (double)s->n;
}

/* Set `number`, in order. */
static void set_take(metric_set *s, int64_t number) {
  s->number = number, s->n = s->rows, s->nan = s->weighted = false;
  s->all = (double)s->n, s->unit = 1, s->copies = true;
  load(s, FIRST, s->x), load(s, SECOND, s->y);
  if (s->w) take_weights(s);
  for (int64_t i = 0; i < s->n; i++) s->nan |= s->x[i] != s->x[i] || s->y[i] != s->y[i];
}

static double y_at(const metric_set *s, int64_t place) { return s->order[place].y; }
static double x_at(const metric_set *s, int64_t place) { return sort_number(s->order[place].key); }
SCORE_WALK double w_at(const metric_set *s, bool weighted, int64_t place) {
  return weighted ? s->by[place] : 1;
}

/* Where the block of equal numbers that begins at a place ends. */
static int64_t block_end(const metric_set *s, int64_t from) {
  int64_t end = from + 1;
  while (end < s->n && s->order[end].key == s->order[from].key) end++;
  return end;
}

static void put(const metric_set *s, int port, double value) { tensor_put(s->c, port, s->number, value); }

/* ---- ranking_metrics ---- */

typedef struct ranking {
  double positives, negatives; /* weights: how many, without */
  uint64_t pairs;              /* twice those in order, and those that are equal, without weights */
  double weighed;              /* with weights: those in order, and half of those that are equal */
  double precision, other, fpr, detection;
} ranking;

/* The weights of the positives and of the negatives of a block. */
typedef struct sides {
  double own, others;
} sides;
SCORE_WALK sides sides_of(const metric_set *s, bool weighted, int64_t from, int64_t end) {
  int64_t own = 0;
  sides w = {0};
  for (int64_t i = from; i < end && weighted; i++) *(y_at(s, i) != 0 ? &w.own : &w.others) += s->by[i];
  for (int64_t i = from; i < end && !weighted; i++) own += y_at(s, i) != 0;
  return weighted ? w : (sides){(double)own, (double)(end - from - own)};
}

/* Sums of weights in the order of the walk, so that its last threshold finds all of them. */
static void weigh_sides(const metric_set *s, ranking *r) {
  r->positives = r->negatives = 0;
  for (int64_t from = 0, end; from < s->n; from = end) {
    end = block_end(s, from);
    const sides w = sides_of(s, true, from, end);
    r->positives += w.own, r->negatives += w.others;
  }
}

SCORE_WALK void rank_downwards(const metric_set *s, bool weighted, ranking *r) {
  const bool precision = s->c->out.given[PRECISION],
             errors = s->c->out.given[FPR] || s->c->out.given[DETECTION];
  const double p = r->positives, n = r->negatives, tpr = tensor_param(s->c, "tpr");
  double found = 0, wrong = 0;
  bool reached = false;
  r->detection = 0.5;
  for (int64_t from = 0, end; from < s->n; from = end) {
    end = block_end(s, from);
    const sides w = sides_of(s, weighted, from, end);
    found += w.own, wrong += w.others;
    if (weighted) r->weighed += w.own * (n - wrong + 0.5 * w.others);
    else r->pairs += (uint64_t)(int64_t)w.own * (uint64_t)(int64_t)(2 * (n - wrong) + w.others);
    if (precision) r->precision += w.own / p * (found / (found + wrong));
    if (!errors) continue;
    const double error = 0.5 * (1 - found / p + wrong / n);
    r->detection = error < r->detection ? error : r->detection;
    if (!reached && found / p >= tpr) reached = true, r->fpr = wrong / n;
  }
}

/* The average precision of the negatives, whose scores are the small ones. */
SCORE_WALK void rank_upwards(const metric_set *s, bool weighted, ranking *r) {
  double found = 0, wrong = 0;
  if (!s->c->out.given[OTHER_PRECISION]) return;
  for (int64_t end = s->n, from; end > 0; end = from) {
    for (from = end - 1; from > 0 && s->order[from - 1].key == s->order[end - 1].key;) from--;
    const sides w = sides_of(s, weighted, from, end);
    found += w.others, wrong += w.own;
    r->other += w.others / r->negatives * (found / (found + wrong));
  }
}

static void write_ranking(metric_set *s) {
  const double nan = __builtin_nan("");
  ranking r = {0};
  int64_t positives = 0;
  for (int64_t i = 0; i < s->n; i++) positives += s->y[i] != 0;
  r.positives = (double)positives, r.negatives = (double)(s->n - positives);
  const bool none = s->nan || r.positives == 0 || r.negatives == 0;
  if (!none) sort_by(s, s->x);
  if (!none && s->weighted) weigh_sides(s, &r), rank_downwards(s, true, &r), rank_upwards(s, true, &r);
  if (!none && !s->weighted) rank_downwards(s, false, &r), rank_upwards(s, false, &r);
  const double all = r.positives * r.negatives,
               auroc = s->weighted ? r.weighed / all : (double)r.pairs / (2 * all);
  put(s, AUROC, none ? nan : auroc), put(s, PRECISION, none ? nan : r.precision);
  put(s, OTHER_PRECISION, none ? nan : r.other), put(s, FPR, none ? nan : r.fpr);
  put(s, DETECTION, none ? nan : r.detection);
}

/* ---- calibration_error ---- */

typedef struct bin {
  double weight, confidence, correct; /* sums */
} bin;

static void add_row(bin *b, double w, double x, double y) {
  b->weight += w, b->confidence += w * x, b->correct += w * y;
}
static double gap_of(const bin *b) { return __builtin_fabs(b->correct - b->confidence); } /* times weight */

/* Bins of as many rows each, the first ones with one more, from the least confidence on. Units of
 * weight are rows here: of n floor(n / bins), and one more or what is left of one. A row on an edge
 * is in both bins, with a part of its weight. */
SCORE_WALK double adaptive_of(const metric_set *s, bool weighted, int64_t bins) {
  const double n = s->copies ? s->all : (double)s->n;
  const double least = (double)(int64_t)(n / (double)bins), rest = n - least * (double)bins;
  double sum = 0, left = 0;
  for (int64_t b = 0, i = s->n; b < bins; b++) {
    const double more = rest - (double)b;
    double room = least + (more > 1 ? 1 : more > 0 ? more : 0);
    bin own = {0};
    for (const int64_t end = i - (int64_t)room; i > end && !weighted;)
      i--, add_row(&own, 1, x_at(s, i), y_at(s, i));
    room = b == bins - 1 ? s->all : s->unit * room; /* the last takes what is left */
    while (weighted && room > 0 && (left > 0 || i > 0)) {
      if (left <= 0) left = s->by[--i];
      const double part = left < room ? left : room;
      add_row(&own, part, x_at(s, i), y_at(s, i));
      left -= part, room -= part;
    }
    sum += gap_of(&own);
  }
  return sum / s->all;
}

/* The largest distance of the sums of correct and confidence, from the least confidence on, over
 * that of the weights; where equal numbers end. */
SCORE_WALK double distance_of(const metric_set *s, bool weighted) {
  double most = 0, sum = 0;
  for (int64_t i = s->n - 1; i >= 0; i--) {
    sum += w_at(s, weighted, i) * (y_at(s, i) - x_at(s, i));
    const bool ends = i == 0 || s->order[i - 1].key != s->order[i].key;
    if (ends && __builtin_fabs(sum) > most) most = __builtin_fabs(sum);
  }
  return most / s->all;
}

static void write_bin(const metric_set *s, const bin *b, int64_t number, int64_t bins) {
  const int64_t at = s->number * bins + number;
  tensor_put(s->c, BIN_CONFIDENCE, at, b->confidence / b->weight);
  tensor_put(s->c, BIN_ACCURACY, at, b->correct / b->weight);
  if (s->c->out.given[BIN_COUNT])
    ((int64_t *)(void *)s->c->out.view[BIN_COUNT].data)[at] = score_copies(s->copies, b->weight);
}

SCORE_WALK void fill_bins(const metric_set *s, bool weighted, bin *bins, int64_t count) {
  const bool left = tensor_param(s->c, "closed") != 0;
  for (int64_t i = 0; i < s->n; i++)
    add_row(bins + bin_of(s->x[i], count, left), weighted ? s->w[i] : 1, s->x[i], s->y[i]);
}

static void write_calibration(metric_set *s, bin *bins, int64_t count) {
  double ece = 0, mce = 0, rms = 0;
  const bool none = s->nan || s->n == 0;
  const bool sorted = !none && (s->c->out.given[ADAPTIVE] || s->c->out.given[KS]);
  for (int64_t b = 0; b < count; b++) bins[b] = (bin){0};
  if (!s->nan && s->weighted) fill_bins(s, true, bins, count);
  if (!s->nan && !s->weighted) fill_bins(s, false, bins, count);
  for (int64_t b = 0; b < count; b++) {
    write_bin(s, bins + b, b, count);
    if (bins[b].weight == 0) continue;
    const double gap = gap_of(bins + b), mean = gap / bins[b].weight;
    ece += gap, mce = mean > mce ? mean : mce, rms += mean * gap;
  }
  ece /= s->all, rms = __builtin_sqrt(rms / s->all);
  const double nan = __builtin_nan("");
  double adaptive = nan, ks = nan;
  if (sorted) sort_by(s, s->x);
  if (sorted && s->weighted) adaptive = adaptive_of(s, true, count), ks = distance_of(s, true);
  if (sorted && !s->weighted) adaptive = adaptive_of(s, false, count), ks = distance_of(s, false);
  put(s, ECE, none ? nan : ece), put(s, MCE, none ? nan : mce), put(s, RMS, none ? nan : rms);
  put(s, ADAPTIVE, adaptive), put(s, KS, ks);
}

smx_status score_check_confidence(const tensor_call *c, int weight) {
  enum { CHUNK = 256 };
  const int64_t all = c->dims.lead_count * tensor_dim(c, "n");
  double x[CHUNK];
  for (int64_t i = 0; i < all; i++) {
    const int64_t at = i % CHUNK, rest = all - i;
    double w = 1;
    if (at == 0) tensor_load(c, c->in.view, i, rest < CHUNK ? rest : CHUNK, x);
    if (!(x[at] < 0 || x[at] > 1)) continue;
    if (c->in.given[weight]) tensor_load(c, c->in.view + weight, i, 1, &w);
    if (w != 0)
      return smx_fail(SMX_ERR_PARAM, "%s: confidence: number %lld is %g, not 0..1", c->op->name, (long long)i,
                      x[at]);
  }
  return SMX_OK;
}

/* ---- risk_coverage ---- */

/* psi(y + 1/2) - log y, of y from 32 on. */
static double series_of(double y) {
  const double u = 1 / (y * y);
  return u * (1.0 / 24 - u * (7.0 / 960 - u * (31.0 / 8064 - u * (127.0 / 30720))));
}

/* 1 / (a + 1) + ... + 1 / (a + w); for any w psi(a + w + 1) - psi(a + 1). Without cancelling. */
static double harmonic(double a, double w) {
  double sum = 0;
  for (; a < 32; a++) sum += w / ((a + 1) * (a + 1 + w));
  const double low = a + 0.5, more = w / low, u = 1 + more;
  const double log_u = u == 1 ? more : smx_isa_current()->f64.score->log(u) * (more / (u - 1));
  return sum + log_u + (series_of(low + w) - series_of(low));
}

/* The sum of the risks of a block of copies: of own losses and weight w, behind `at` with losses
 * `before`. The risk of a part t of w is (before + own t / w) / (at + t). */
static double block_risks(const metric_set *s, double at, double before, double w, double own) {
  const double sum = harmonic(at / s->unit, w / s->unit), part = w - at * sum;
  return before * sum + own / w * (part > 0 ? part : 0);
}

/* The mean of the losses of the k first, for every k, and the mean of that; risk NULL: not wanted.
 * Within a block of equal numbers it is that of a random order. */
SCORE_WALK double walk_risks(const metric_set *s, bool weighted, double *risk) {
  double before = 0, all = 0, at = 0;
  for (int64_t from = 0, end; from < s->n; from = end) {
    double own = 0, w = 0;
    end = block_end(s, from);
    for (int64_t i = from; i < end; i++) own += w_at(s, weighted, i) * y_at(s, i), w += w_at(s, weighted, i);
    for (int64_t i = from; i < end && (risk || !weighted); i++) {
      const double share = (double)(i + 1 - from) / (double)(end - from),
                   r = (before + own * share) / (weighted ? at + w * share : (double)(i + 1));
      all += weighted ? 0 : r;
      if (risk) risk[i] = r;
    }
    if (weighted) all += block_risks(s, at, before, w, own);
    before += own, at += w;
  }
  return all / s->all;
}
static double risks_of(const metric_set *s, double *risk) {
  return s->weighted ? walk_risks(s, true, risk) : walk_risks(s, false, risk);
}

/* The best order, the least losses first; of 0 and 1 without a sort. */
static void order_losses(metric_set *s) {
  int64_t none = 0, one = 0, at = 0;
  for (int64_t i = 0; i < s->n; i++) none += s->y[i] == 0, one += s->y[i] == 1;
  for (int64_t i = 0; i < s->n; i++) s->x[i] = -s->y[i];
  if (none + one < s->n || s->weighted) {
    sort_by(s, s->x);
    return;
  }
  s->order = s->room[0];
  while (at < none) s->order[at++] = (sort_entry){sort_key_descending(0), 0};
  while (at < s->n) s->order[at++] = (sort_entry){sort_key_descending(-1), 1};
}

static void put_risks(const metric_set *s) {
  if (s->c->out.given[RISK]) tensor_store(s->c, s->c->out.view + RISK, s->number * s->rows, s->rows, s->x);
}

static void write_risks(metric_set *s) {
  const bool none = s->nan || s->n == 0;
  const double nan = __builtin_nan("");
  double aurc = nan, excess = nan;
  if (!none) {
    sort_by(s, s->x);
    aurc = risks_of(s, s->x); /* what it held is in the order */
    for (int64_t i = s->n; i < s->rows; i++) s->x[i] = nan;
    put_risks(s);
    order_losses(s);
    excess = aurc - risks_of(s, NULL);
  }
  for (int64_t i = 0; i < s->rows && none; i++) s->x[i] = nan;
  if (none) put_risks(s);
  put(s, AURC, aurc), put(s, EXCESS, excess);
}

/* ---- kernel_calibration_error ----
 *
 * With d = w (correct - confidence): sum_ij d_i d_j e^(-|c_i - c_j| / width). Down the sorted
 * confidences c the sum over those before i is carry_i = (carry_(i-1) + d_(i-1)) e^(-(c_(i-1) -
 * c_i) / width), so all pairs take one walk. Of copies, two rows are two copies. */
SCORE_WALK void walk_kernel(metric_set *s, bool weighted, double *mmce, double *unbiased) {
  const score_kernels *math = smx_isa_current()->f64.score;
  const double width = tensor_param(s->c, "width"), nan = __builtin_nan("");
  double carry = 0, pairs = 0, own = 0, before = 0, copied = 0, at = 0, two = 0;
  for (int64_t i = 0; i < s->n; i++) {
    const double x = x_at(s, i), w = w_at(s, weighted, i), gap = y_at(s, i) - x, d = w * gap;
    if (i > 0) carry = (carry + before) * math->exp((x - x_at(s, i - 1)) / width);
    pairs += d * carry, own += d * d, before = d;
    if (weighted) copied += w * (w - 1) * gap * gap, two += w * at, at += w;
  }
  const double all = (2 * pairs + own) / (s->all * s->all);
  const double apart = s->copies ? s->all * (s->all - 1) : 2 * two;
  *mmce = all > 0 ? __builtin_sqrt(all) : 0;
  *unbiased = apart == 0 ? nan : (2 * pairs + (s->copies ? copied : 0)) / apart;
}

static void write_kernel(metric_set *s) {
  double mmce = __builtin_nan(""), unbiased = mmce;
  const bool none = s->nan || s->n == 0;
  if (!none) sort_by(s, s->x);
  if (!none && s->weighted) walk_kernel(s, true, &mmce, &unbiased);
  if (!none && !s->weighted) walk_kernel(s, false, &mmce, &unbiased);
  put(s, KERNEL_MMCE, mmce), put(s, KERNEL_UNBIASED, unbiased);
}

/* ---- calls ---- */

/* Weights, then confidences, then memory. */
static smx_status begin(metric_set *s, const tensor_call *c, bool confidence) {
  smx_status status = score_check_weight(c, WEIGHT);
  if (status == SMX_OK && confidence) status = score_check_confidence(c, WEIGHT);
  return status == SMX_OK ? set_open(s, c) : status;
}

smx_status score_ranking(const tensor_call *c) {
  metric_set s;
  const smx_status status = begin(&s, c, false);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < c->dims.lead_count; i++) set_take(&s, i), write_ranking(&s);
  set_close(&s);
  return SMX_OK;
}

smx_status score_calibration(const tensor_call *c) {
  metric_set s;
  const int64_t count = tensor_dim(c, "bins");
  smx_status status = begin(&s, c, true);
  if (status != SMX_OK) return status;
  bin *bins = smx_alloc(c->ctx, (size_t)count * sizeof *bins);
  if (!bins) status = smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld bins", c->op->name, (long long)count);
  for (int64_t i = 0; i < c->dims.lead_count && status == SMX_OK; i++)
    set_take(&s, i), write_calibration(&s, bins, count);
  smx_free(c->ctx, bins);
  set_close(&s);
  return status;
}

smx_status score_risk(const tensor_call *c) {
  metric_set s;
  const smx_status status = begin(&s, c, false);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < c->dims.lead_count; i++) set_take(&s, i), write_risks(&s);
  set_close(&s);
  return SMX_OK;
}

smx_status score_kernel(const tensor_call *c) {
  metric_set s;
  const smx_status status = begin(&s, c, true);
  if (status != SMX_OK) return status;
  for (int64_t i = 0; i < c->dims.lead_count; i++) set_take(&s, i), write_kernel(&s);
  set_close(&s);
  return SMX_OK;
}
