/* pool/ref_sets.c - pooling of sets straight from the formulas, for tests. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "ref.h"

enum { X, MASK, OFFSETS, OWN, MORE }; /* inputs of what takes sets */
enum { SCORE = 1, HIDES, BEGINS };    /* of those with scores, behind x */

static int dims_of(const int64_t *shape) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return n;
}

/* The items of one channel of a set. */
typedef struct items {
  int64_t count, *number;
  double *x;
} items;

typedef struct channel {
  int64_t lead, set, channel, n, channels, sets;
} channel;
typedef double channel_fn(const tensor_ref_call *c, const channel *at, const items *i, int64_t *index);

static void each_channel_of(const tensor_ref_call *c, int mask, int offsets, channel_fn *f) {
  const int last = dims_of(c->in_shape[X]) - 1;
  const int64_t channels = c->in_shape[X][last], n = c->in_shape[X][last - 1];
  const int64_t sets = c->in[offsets] ? ref_last(c->in_shape[offsets]) - 1 : 1;
  const int64_t leads = ref_count(c->in_shape[X]) / n / channels;
  items all = {0, calloc((size_t)n, sizeof(int64_t)), calloc((size_t)n, sizeof(double))};
  for (int64_t k = 0; k < leads * sets * channels; k++) {
    const channel at = {k / channels / sets, k / channels % sets, k % channels, n, channels, sets};
    const int64_t from = c->in[offsets] ? (int64_t)c->in[offsets][at.set] : 0;
    const int64_t to = c->in[offsets] ? (int64_t)c->in[offsets][at.set + 1] : n;
    int64_t index = -1;
    all.count = 0;
    for (int64_t i = from; i < to; i++)
      if (!c->in[mask] || c->in[mask][at.lead * n + i] != 0) {
        all.number[all.count] = i;
        all.x[all.count++] = c->in[X][(at.lead * n + i) * channels + at.channel];
      }
    c->out[0][k] = all.count ? f(c, &at, &all, &index) : 0;
    ref_put(c, 1, k, (double)index);
  }
  free(all.number), free(all.x);
}

static void each_channel(const tensor_ref_call *c, channel_fn *f) { each_channel_of(c, MASK, OFFSETS, f); }

static double of_group(const tensor_ref_call *c, const channel *at, int port, double otherwise) {
  if (!c->in[port]) return otherwise;
  return c->in[port][at->channel / (at->channels / ref_count(c->in_shape[port]))];
}

static double gem(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  const double p = of_group(c, at, OWN, c->q[0]);
  double sum = 0;
  for (int64_t i = 0; i < s->count; i++) sum += pow(fmax(s->x[i], c->q[1]), p);
  return pow(sum / (double)s->count, 1 / p);
}
static double gnp(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  const double p = of_group(c, at, OWN, c->q[0]), q = of_group(c, at, MORE, c->q[1]);
  double sum = 0;
  for (int64_t i = 0; i < s->count; i++) sum += pow(fabs(s->x[i]), p);
  return pow((double)s->count, -q) * pow(sum, 1 / p);
}
static double smoothed(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  const double tau = of_group(c, at, OWN, c->q[0]);
  double sum = 0, most = -INFINITY;
  if (tau <= 0) return NAN;
  for (int64_t i = 0; i < s->count; i++) most = fmax(most, s->x[i]);
  for (int64_t i = 0; i < s->count; i++) sum += exp((s->x[i] - most) / tau);
  return most + tau * log(sum / (double)s->count);
}
static double largest(const items *s, int64_t first, int64_t *index) {
  int64_t best = first;
  for (int64_t i = first; i < s->count; i++)
    if (s->x[i] > s->x[best]) best = i;
  *index = s->number[best];
  return s->x[best];
}
static double layer_max(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  const int64_t last = (int64_t)c->q[0];
  return largest(s, last > 0 && last < s->count ? s->count - last : 0, index);
}
static double splade(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  double sum = 0;
  if (c->q[0] == 0) return log1p(fmax(largest(s, 0, index), 0));
  for (int64_t i = 0; i < s->count; i++) sum += log1p(fmax(s->x[i], 0));
  return sum;
}
static double weighted_mean(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < s->count; i++) sum += (double)(i + 1) * s->x[i], all += (double)(i + 1);
  return sum / all;
}
static double mil(const tensor_ref_call *c, const channel *at, const items *s, int64_t *index) {
  double sum = 0, all = 0;
  for (int64_t i = 0; i < s->count; i++) {
    const double e = exp(c->in[SCORE][at->lead * at->n + s->number[i]]);
    sum += e * s->x[i], all += e;
  }
  return c->q[0] != 0 ? 1 / (1 + exp(-sum / all)) : sum / all;
}

void pool_ref_gem(const tensor_ref_call *c) { each_channel(c, gem); }
void pool_ref_gnp(const tensor_ref_call *c) { each_channel(c, gnp); }
void pool_ref_smoothed(const tensor_ref_call *c) { each_channel(c, smoothed); }
void pool_ref_layer_max(const tensor_ref_call *c) { each_channel(c, layer_max); }
void pool_ref_splade(const tensor_ref_call *c) { each_channel(c, splade); }
void pool_ref_weighted_mean(const tensor_ref_call *c) { each_channel(c, weighted_mean); }
void pool_ref_mil(const tensor_ref_call *c) { each_channel_of(c, HIDES, BEGINS, mil); }

void pool_ref_attsets(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[X]) - 1;
  const int64_t d = c->in_shape[X][last], n = c->in_shape[X][last - 1];
  const int64_t m = c->in_shape[SCORE][dims_of(c->in_shape[SCORE]) - 2];
  const int64_t sets = c->in[BEGINS] ? ref_last(c->in_shape[BEGINS]) - 1 : 1;
  for (int64_t k = 0; k < ref_count(c->out_shape[0]); k++) {
    const int64_t lead = k / d / m / sets, set = k / d / m % sets;
    const int64_t from = c->in[BEGINS] ? (int64_t)c->in[BEGINS][set] : 0;
    const int64_t to = c->in[BEGINS] ? (int64_t)c->in[BEGINS][set + 1] : n;
    double sum = 0, all = 0;
    for (int64_t i = from; i < to; i++) {
      if (c->in[HIDES] && c->in[HIDES][lead * n + i] == 0) continue;
      const double e = exp(c->in[SCORE][(lead * n + i) * m * d + k % (m * d)]);
      sum += e * c->in[X][(lead * n + i) * d + k % d], all += e;
    }
    c->out[0][k] = all > 0 ? sum / all : 0;
  }
}

/* x [leads, n, each]; the score of an item is at lead of_lead + i of_item + channel / k. */
static void mix(const tensor_ref_call *c, int64_t n, int64_t each, int64_t of_lead, int64_t of_item,
                int64_t k, double scale) {
  for (int64_t at = 0; at < ref_count(c->out_shape[0]); at++) {
    double sum = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
      const double e = exp(c->in[1][at / each * of_lead + i * of_item + at % each / k]);
      sum += e * c->in[0][(at / each * n + i) * each + at % each], all += e;
    }
    c->out[0][at] = scale * sum / all;
  }
}
void pool_ref_layer_mix(const tensor_ref_call *c) {
  const int64_t channels = ref_last(c->in_shape[0]);
  mix(c, c->in_shape[1][0], channels, 0, 1, channels, c->in[2] ? c->in[2][0] : 1);
}
void pool_ref_selective(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[0]) - 1;
  const int64_t k = c->in_shape[0][last], channels = c->in_shape[0][last - 1], n = c->in_shape[0][last - 2];
  mix(c, n, channels * k, n * channels, channels, k, 1);
}

void pool_ref_maxout(const tensor_ref_call *c) {
  const int64_t k = (int64_t)c->q[0], m = ref_last(c->out_shape[0]);
  for (int64_t at = 0; at < ref_count(c->out_shape[0]); at++) {
    const double *row = c->in[0] + at / m * m * k;
    int64_t best = 0;
    double most = -INFINITY;
    for (int64_t j = 0; j < k; j++) {
      const double x = row[c->q[1] != 0 ? j * m + at % m : at % m * k + j];
      if (x > most) most = x, best = j;
    }
    c->out[0][at] = most;
    ref_put(c, 1, at, (double)best);
  }
}

void pool_ref_flops(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0], columns = c->in_shape[0][1];
  double loss = 0;
  for (int64_t j = 0; j < columns; j++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs(c->in[0][i * columns + j]);
    loss += pow(sum / (double)n, 2);
  }
  c->out[0][0] = loss;
}

/* ---- segments ---- */

void pool_ref_segments(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[0]) - 1;
  const int64_t d = c->in_shape[0][last], n = c->in_shape[0][last - 1], rows = c->out_shape[0][last - 1];
  for (int64_t k = 0; k < ref_count(c->out_shape[0]); k++) {
    const int64_t lead = k / d / rows, row = k / d % rows;
    const double *bits = c->in[1] + lead * n;
    double sum = 0, count = 0;
    int64_t segment = 1, ends = 0;
    for (int64_t t = 0; t < n; t++) {
      if (segment == row) sum += c->in[0][(lead * n + t) * d + k % d], count++, ends |= bits[t] > 0.5;
      segment += bits[t] > 0.5;
    }
    c->out[0][k] = ends ? sum / count : row == 0 && c->in[2] ? c->in[2][k % d] : 0;
    c->out[1][lead] = (double)(segment - 1);
  }
}

void pool_ref_upsample(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[0]) - 1;
  const int64_t d = c->in_shape[0][last], rows = c->in_shape[0][last - 1], n = ref_last(c->in_shape[1]);
  for (int64_t k = 0; k < ref_count(c->out_shape[0]); k++) {
    const int64_t lead = k / d / n;
    int64_t row = 0;
    for (int64_t t = 0; t <= k / d % n; t++) row += c->in[1][lead * n + t] > 0.5;
    c->out[0][k] = row < rows ? c->in[0][(lead * rows + row) * d + k % d] : 0;
  }
}

/* ---- a budget of mass ---- */

/* b by Newton's steps, halved where they leave the bracket. */
static double shift_of(const double *l, int64_t n, double budget) {
  double low = -800, high = 800, at = 0;
  for (int step = 0; step < 400; step++) {
    double mass = 0, slope = 0;
    for (int64_t j = 0; j < n; j++) {
      const double s = 1 / (1 + exp(-at - l[j]));
      mass += s, slope += s * (1 - s);
    }
    if (mass < budget) low = at;
    else high = at;
    at += (budget - mass) / slope;
    if (!(at > low && at < high)) at = (low + high) / 2;
  }
  return at;
}

static void gsp_of(const tensor_ref_call *c, int64_t lead, int64_t m, int64_t n, int64_t d, double *l,
                   int64_t *has) {
  int64_t count = 0;
  for (int64_t j = 0; j < n; j++) {
    double sum = 0;
    if (c->in[2] && c->in[2][lead * n + j] == 0) continue;
    for (int64_t i = 0; i < m; i++) sum += exp(-c->q[1] * c->in[0][(lead * m + i) * n + j]);
    has[count] = j, l[count++] = log(sum);
  }
  const double budget = c->q[0] * (double)count, b = shift_of(l, count, budget);
  for (int64_t i = 0; i < d; i++) c->out[0][lead * d + i] = 0;
  for (int64_t j = 0; j < n; j++) c->out[1][lead * n + j] = 0;
  for (int64_t i = 0; i < m; i++) c->out[2][lead * m + i] = 0;
  for (int64_t k = 0; k < count; k++) {
    const double w = c->q[0] == 1 ? 1 / (double)count : 1 / (1 + exp(-b - l[k])) / budget;
    c->out[1][lead * n + has[k]] = w;
    for (int64_t i = 0; i < d; i++) c->out[0][lead * d + i] += w * c->in[1][(lead * n + has[k]) * d + i];
    for (int64_t i = 0; i < m; i++)
      c->out[2][lead * m + i] += w * exp(-c->q[1] * c->in[0][(lead * m + i) * n + has[k]] - l[k]);
  }
}
void pool_ref_gsp(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[0]) - 1;
  const int64_t n = c->in_shape[0][last], m = c->in_shape[0][last - 1], d = ref_last(c->in_shape[1]);
  double *l = calloc((size_t)n, sizeof *l);
  int64_t *has = calloc((size_t)n, sizeof *has);
  for (int64_t lead = 0; lead < ref_count(c->in_shape[0]) / m / n; lead++) gsp_of(c, lead, m, n, d, l, has);
  free(l), free(has);
}

void pool_ref_histogram(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), bins = ref_last(c->in_shape[1]);
  const int64_t m = c->in[2] ? ref_last(c->in_shape[2]) : n;
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) {
    const double *x = c->in[0] + row * n, *counted = c->in[2] ? c->in[2] + row * m : x;
    double mean = 0, sd = 0;
    for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) sd += (x[i] - mean) * (x[i] - mean);
    sd = n > 1 ? sqrt(sd / (double)(n - 1)) : 0;
    for (int64_t k = 0; k < bins; k++) {
      double *h = c->out[0] + row * bins + k;
      *h = 0;
      for (int64_t i = 0; i < m; i++) {
        double all = 0, own = 0;
        for (int64_t j = 0; j < bins; j++) {
          const double e = exp(c->q[0] * exp(-pow(mean + c->in[1][j] * sd - counted[i], 2) / c->q[1]));
          all += e, own = j == k ? e : own;
        }
        *h += own / all / (double)m;
      }
    }
  }
}

void pool_ref_moving(const tensor_ref_call *c) {
  const int last = dims_of(c->in_shape[0]) - 1;
  const int64_t channels = c->in_shape[0][last], n = c->in_shape[0][last - 1];
  const double tau = c->q[0], rate = c->q[1];
  for (int64_t k = 0; k < ref_count(c->out_shape[0]); k++) {
    const double old = c->in[1] ? c->in[1][k] : -INFINITY;
    double most = -INFINITY, sum = 0, count = 0;
    for (int pass = 0; pass < 2; pass++)
      for (int64_t i = 0; i < n; i++) {
        const double x = c->in[0][(k / channels * n + i) * channels + k % channels] / tau;
        if (c->in[2] && c->in[2][k / channels * n + i] == 0) continue;
        if (pass == 0) most = fmax(most, x);
        else sum += exp(x - most), count++;
      }
    const double m = most + log(sum / count), top = fmax(old, m);
    double next = old == -INFINITY ? m : top + log((1 - rate) * exp(old - top) + rate * exp(m - top));
    if (count == 0) next = old;
    c->out[1][k] = next;
    c->out[0][k] = next == -INFINITY && count == 0 ? 0 : tau * next;
  }
}

void pool_ref_prior(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) {
    double k = 0, all = 0;
    for (int64_t i = row * n; i < (row + 1) * n; i++)
      if (!c->in[1] || c->in[1][i] != 0) k += c->in[0][i], all++;
    const double log_p = lgamma(all + 1) - lgamma(k + 1) - lgamma(all - k + 1) + k * log(c->q[0]) +
                         (all - k) * log1p(-c->q[0]);
    c->out[0][row] = all > 0 ? -log_p / all : 0;
  }
}

/* As the authors have it: both averages themselves. */
void pool_ref_moving_mil(const tensor_ref_call *c) {
  const int64_t channels = ref_last(c->in_shape[0]), n = ref_last(c->in_shape[1]);
  const double rate = c->q[1];
  for (int64_t k = 0; k < ref_count(c->out_shape[0]); k++) {
    const int64_t lead = k / channels;
    const bool known = c->in[2] && c->in[3];
    double top = 0, bottom = 0, count = 0, level = known ? c->in[2][lead] : -INFINITY;
    double mean = known ? c->in[3][k] : 0;
    for (int64_t i = 0; i < n; i++) {
      if (c->in[4] && c->in[4][lead * n + i] == 0) continue;
      const double e = exp(c->in[1][lead * n + i]);
      top += e * c->in[0][(lead * n + i) * channels + k % channels], bottom += e, count++;
    }
    const double share = level == -INFINITY ? 1 : rate;
    if (count > 0) {
      const double down = (1 - share) * exp(level) + share * bottom / count;
      mean = (mean * (1 - share) * exp(level) + share * top / count) / down, level = log(down);
    }
    c->out[2][k] = mean, c->out[1][lead] = level;
    c->out[0][k] = count == 0 && level == -INFINITY ? 0 : c->q[0] != 0 ? 1 / (1 + exp(-mean)) : mean;
  }
}
