/* gate/ref.c - routing straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ref.h"
#include "engine/ref_draws.h"

static int dims_of(const int64_t *shape) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return n;
}
static void softmax_row(const double *z, int64_t n, double *p) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, z[i]);
  for (int64_t i = 0; i < n; i++) sum += p[i] = exp(z[i] - most);
  for (int64_t i = 0; i < n; i++) p[i] /= sum;
}

/* The k best of n keys, and takes them away. */
static void best_of(double *key, int64_t n, int64_t k, int64_t *index) {
  for (int64_t j = 0; j < k; j++) {
    index[j] = -1;
    for (int64_t i = 0; i < n; i++)
      if (key[i] > -INFINITY && (index[j] < 0 || key[i] > key[index[j]])) index[j] = i;
    if (index[j] >= 0) key[index[j]] = -INFINITY;
  }
}

/* ---- gate_topk ---- */

enum { K, SCORE, RENORMALISE, GROUPS, TOP_GROUPS, GROUP, SCALE, TEMPERATURE };

/* Experts of groups that do not take part are no more. */
static void leave_groups(const double *q, int two, double *key, int64_t n) {
  const int64_t groups = (int64_t)q[GROUPS], top = (int64_t)q[TOP_GROUPS], size = n / groups;
  double *score = calloc((size_t)groups, sizeof *score), *rest = calloc((size_t)size, sizeof *rest);
  int64_t *kept = calloc((size_t)(top + 2), sizeof *kept);
  for (int64_t g = 0; g < groups; g++) {
    int64_t first[2];
    memcpy(rest, key + g * size, (size_t)size * sizeof *rest);
    best_of(rest, size, 2, first);
    score[g] = key[g * size + first[0]] + (two && first[1] >= 0 ? key[g * size + first[1]] : 0);
  }
  best_of(score, groups, top, kept);
  for (int64_t g = 0; g < groups; g++) {
    int stays = 0;
    for (int64_t j = 0; j < top; j++) stays |= kept[j] == g;
    for (int64_t i = 0; i < size && !stays; i++) key[g * size + i] = -INFINITY;
  }
  free(score), free(rest), free(kept);
}

static void topk_row(const tensor_ref_call *c, int64_t row, double *work, int64_t *index) {
  const int64_t n = ref_last(c->in_shape[0]), k = (int64_t)c->q[K];
  double *z = work, *s = work + n, *key = s + n, whole = 0;
  for (int64_t i = 0; i < n; i++) z[i] = c->in[0][row * n + i] / c->q[TEMPERATURE];
  softmax_row(z, n, s);
  for (int64_t i = 0; i < n && c->q[SCORE] != 0; i++) s[i] = 1 / (1 + exp(-z[i]));
  for (int64_t i = 0; i < n; i++) key[i] = s[i] + (c->in[1] ? c->in[1][i] : 0);
  if (c->q[TOP_GROUPS] > 0) leave_groups(c->q, c->q[GROUP] == 2 || (c->q[GROUP] == 0 && c->in[1]), key, n);
  best_of(key, n, k, index);
  for (int64_t j = 0; j < k; j++) whole += s[index[j]];
  for (int64_t j = 0; j < k; j++) {
    if (c->out[0]) c->out[0][row * k + j] = c->q[SCALE] * s[index[j]] / (c->q[RENORMALISE] != 0 ? whole : 1);
    if (c->out[1]) c->out[1][row * k + j] = (double)index[j];
  }
}

static void gate_topk(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *work = calloc((size_t)(3 * n), sizeof *work);
  int64_t *index = calloc((size_t)c->q[K], sizeof *index);
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) topk_row(c, row, work, index);
  free(work), free(index);
}

/* ---- gate_noisy_topk ---- */

static void noisy_row(const tensor_ref_call *c, int64_t row, int64_t n, double *h, double *s) {
  const int64_t k = (int64_t)c->q[0], more = k < n ? k + 1 : k;
  const double *z = c->in[0] + row * n;
  double *key = s + n, sum = 0;
  int64_t *index = calloc((size_t)more, sizeof *index);
  for (int64_t i = 0; i < n; i++) {
    const uint64_t stream = (uint64_t)(c->in[2] ? c->in[2][row] : (double)row);
    s[i] = c->in[1] ? log(1 + exp(c->in[1][row * n + i])) + c->q[1] : c->q[2] / (double)n;
    h[i] = z[i] + s[i] * normal(uniform((uint64_t)c->q[3], stream, 5, (uint64_t)i));
    key[i] = h[i];
  }
  best_of(key, n, more, index);
  for (int64_t j = 0; j < k; j++) sum += exp(h[index[j]] - h[index[0]]);
  for (int64_t j = 0; j < k; j++) {
    c->out[0][row * k + j] = exp(h[index[j]] - h[index[0]]) / sum;
    c->out[1][row * k + j] = (double)index[j];
  }
  for (int64_t i = 0; c->out[2] && i < n; i++) {
    const double threshold = more > k && h[i] > h[index[k]] ? h[index[k]] : h[index[k - 1]];
    c->out[2][row * n + i] = more > k ? 0.5 * erfc(-(z[i] - threshold) / s[i] / sqrt(2)) : 1;
  }
  free(index);
}
static void gate_noisy_topk(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *work = calloc((size_t)(3 * n), sizeof *work);
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) noisy_row(c, row, n, work, work + n);
  free(work);
}

/* ---- gate_dense_to_sparse, gate_modified ---- */

static double activated(int kind, double x) {
  const double functions[] = {x, tanh(x), 1 / (1 + exp(-x)), 0.5 * x * erfc(-x / sqrt(2)), fmax(x, 0)};
  return functions[kind];
}

enum { DENSE_K, DENSE_TEMPERATURE, THRESHOLD, DENSE_RENORMALISE, ACTIVATION, NOISE, DENSE_SEED };

static void gate_dense_to_sparse(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), k = c->q[DENSE_K] > 0 ? (int64_t)c->q[DENSE_K] : n;
  double *p = calloc((size_t)(2 * n), sizeof *p), *key = p + n;
  int64_t *index = calloc((size_t)k, sizeof *index);
  for (int64_t t = 0; t < ref_rows(c->in_shape[0]); t++) {
    double whole = 0;
    for (int64_t i = 0; i < n; i++) {
      const uint64_t stream = (uint64_t)(c->in[3] ? c->in[3][t] : (double)t);
      key[i] = activated((int)c->q[ACTIVATION], c->in[0][t * n + i]) + (c->in[1] ? c->in[1][i] : 0);
      if (c->q[NOISE] != 0) key[i] += gumbel((uint64_t)c->q[DENSE_SEED], stream, 4, (uint64_t)i);
      key[i] *= (c->in[2] ? *c->in[2] : 1) / c->q[DENSE_TEMPERATURE];
    }
    softmax_row(key, n, p);
    best_of(key, n, k, index);
    for (int64_t j = 0; j < k; j++) {
      if (j > 0 && index[j] >= 0 && (index[j - 1] < 0 || p[index[j]] < c->q[THRESHOLD])) index[j] = -1;
      whole += index[j] < 0 ? 0 : p[index[j]];
    }
    for (int64_t j = 0; j < k; j++) {
      c->out[0][t * k + j] = index[j] < 0 ? 0 : p[index[j]] / (c->q[DENSE_RENORMALISE] != 0 ? whole : 1);
      c->out[1][t * k + j] = (double)index[j];
    }
  }
  free(p), free(index);
}

static void gate_modified(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t t = 0; t < ref_rows(c->in_shape[0]); t++) {
    const double *x = c->in[0] + t * n;
    double square = 0;
    for (int64_t i = 0; i < n; i++) square += x[i] * x[i];
    for (int64_t i = 0; i < n; i++)
      c->out[0][t * n + i] = c->q[0] != 0 ? tanh(x[i]) : x[i] / fmax(sqrt(square), 1e-12);
  }
}

/* ---- the other gates ---- */

static void gate_expert_choice(const tensor_ref_call *c) {
  const int64_t tokens = c->in_shape[0][0], experts = c->in_shape[0][1], capacity = c->out_shape[0][1];
  double *p = calloc((size_t)(tokens * experts), sizeof *p), *key = calloc((size_t)tokens, sizeof *key);
  int64_t *index = calloc((size_t)capacity, sizeof *index);
  for (int64_t t = 0; t < tokens; t++) softmax_row(c->in[0] + t * experts, experts, p + t * experts);
  for (int64_t e = 0; e < experts; e++) {
    for (int64_t t = 0; t < tokens; t++) key[t] = p[t * experts + e];
    best_of(key, tokens, capacity, index);
    for (int64_t i = 0; i < capacity; i++) {
      c->out[0][e * capacity + i] = p[index[i] * experts + e];
      c->out[1][e * capacity + i] = (double)index[i];
    }
  }
  free(p), free(key), free(index);
}

static void gate_relu(const tensor_ref_call *c) {
  const int64_t tokens = c->in_shape[0][0], experts = c->in_shape[0][1];
  const double k = c->q[0], lambda = c->q[1], t = (double)tokens, e = (double)experts;
  double loss = 0, active = 0;
  for (int64_t i = 0; i < experts; i++) {
    double n = 0, sum = 0;
    for (int64_t r = 0; r < tokens; r++) {
      const double w = fmax(c->in[0][r * experts + i], 0);
      c->out[0][r * experts + i] = w, n += w > 0, sum += w;
    }
    loss += n * sum, active += n;
  }
  const double sparsity = 1 - active / (t * e);
  if (c->out[1]) *c->out[1] = lambda * e / (k * t * t) * loss;
  if (c->out[2]) *c->out[2] = sparsity;
  if (c->out[3]) *c->out[3] = sparsity < 1 - k / e ? lambda * c->q[2] : lambda / c->q[2];
}

/* ---- places ---- */

enum { EXPERTS, CAPACITY, FACTOR, ORDER, BLOCK, LAYOUT };

typedef struct service {
  double first, second; /* smaller ones are served first */
  int64_t pair;
} service;

static int compare(const void *a, const void *b) {
  const service *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->second != y->second) return x->second < y->second ? -1 : 1;
  return x->pair < y->pair ? -1 : x->pair > y->pair;
}

static void order_pairs(const tensor_ref_call *c, service *s) {
  const int64_t k = c->in_shape[0][1], pairs = c->in_shape[0][0] * k;
  for (int64_t i = 0; i < pairs; i++) {
    double most = -INFINITY;
    for (int64_t j = 0; j < k && c->in[1]; j++) most = fmax(most, c->in[1][i / k * k + j]);
    s[i] = (service){0, 0, i};
    if (c->q[ORDER] == 1 || c->q[ORDER] == 2) s[i].first = (double)(i % k);
    if (c->q[ORDER] == 2) s[i].second = -most;
    if (c->q[ORDER] == 3) s[i].first = -c->in[1][i];
  }
  qsort(s, (size_t)pairs, sizeof *s, compare);
}

static void moe_permutation(const tensor_ref_call *c) {
  const int64_t k = c->in_shape[0][1], pairs = c->in_shape[0][0] * k, experts = (int64_t)c->q[EXPERTS];
  const int64_t rows = c->out_shape[1][0], block = (int64_t)c->q[BLOCK];
  double capacity = c->q[CAPACITY] > 0 ? c->q[CAPACITY]
                    : c->q[FACTOR] > 0 ? ceil((double)pairs * c->q[FACTOR] / c->q[EXPERTS])
                                       : 1e15;
  service *s = calloc((size_t)pairs, sizeof *s);
  int64_t start = 0, dropped = 0;
  order_pairs(c, s);
  capacity = fmax(capacity, 1);
  for (int p = 1; p <= 6; p++)
    for (int64_t i = 0; c->out[p] && (p == 1 || p >= 5) && i < rows; i++) c->out[p][i] = -1;
  for (int64_t e = 0; e < experts; e++) {
    int64_t n = 0, size;
    if (c->out[2]) c->out[2][e] = (double)start;
    for (int64_t i = 0; i < pairs; i++) {
      const int64_t pair = s[i].pair, row = start + n;
      if (c->in[0][pair] < 0) c->out[0][pair] = -1;
      if (c->in[0][pair] != (double)e) continue;
      const int fits = (double)n++ < capacity;
      c->out[0][pair] = fits ? (double)row : -1, dropped += !fits;
      if (fits && c->out[1]) c->out[1][row] = (double)(pair / k);
      if (fits && c->out[6]) c->out[6][row] = (double)pair;
    }
    if (c->out[3]) c->out[3][e] = (double)n;
    size = (int64_t)ceil((c->q[LAYOUT] != 0 ? capacity : fmin((double)n, capacity)) / (double)block) * block;
    for (int64_t i = start; c->out[5] && i < start + size; i++) c->out[5][i] = (double)e;
    start += size;
  }
  if (c->out[2]) c->out[2][experts] = (double)start;
  if (c->out[4]) *c->out[4] = (double)dropped;
  free(s);
}

/* ---- rows ---- */

static void moe_dispatch(const tensor_ref_call *c) {
  const int64_t d = c->in_shape[0][1];
  for (int64_t r = 0; r < c->in_shape[1][0]; r++)
    for (int64_t i = 0; i < d; i++)
      c->out[0][r * d + i] = c->in[1][r] < 0 ? 0 : c->in[0][(int64_t)c->in[1][r] * d + i];
}

static void moe_combine(const tensor_ref_call *c) {
  const int64_t d = c->in_shape[0][1], k = c->in_shape[1][1];
  for (int64_t t = 0; t < c->in_shape[1][0]; t++)
    for (int64_t i = 0; i < d; i++) {
      double y = 0;
      for (int64_t p = t * k; p < (t + 1) * k; p++)
        if (c->in[1][p] >= 0) y += (c->in[2] ? c->in[2][p] : 1) * c->in[0][(int64_t)c->in[1][p] * d + i];
      c->out[0][t * d + i] = y;
    }
}

/* ---- losses ---- */

static void load_balancing_loss(const tensor_ref_call *c) {
  const int64_t tokens = c->in_shape[0][0], e = c->in_shape[0][1], k = c->in_shape[1][1];
  double *p = calloc((size_t)(3 * e), sizeof *p), *mean = p + e, *count = mean + e, live = 0, loss = 0;
  double all = 0, entropy = 0;
  for (int64_t t = 0; t < tokens; t++) {
    int any = 0;
    for (int64_t j = 0; j < k; j++)
      if (c->in[1][t * k + j] >= 0) any = 1, count[(int64_t)c->in[1][t * k + j]]++;
    softmax_row(c->in[0] + t * e, e, p);
    for (int64_t i = 0; i < e; i++) mean[i] += any ? p[i] : 0;
    live += any;
  }
  for (int64_t i = 0; i < e; i++) all += count[i];
  for (int64_t i = 0; i < e; i++) entropy += count[i] > 0 ? -count[i] / all * log(count[i] / all) : 0;
  if (c->out[3]) *c->out[3] = entropy;
  for (int64_t i = 0; i < e; i++) {
    mean[i] /= live > 0 ? live : 1, loss += live > 0 ? count[i] / (live * (double)k) * mean[i] : 0;
    if (c->out[1]) c->out[1][i] = count[i];
    if (c->out[2]) c->out[2][i] = mean[i];
  }
  *c->out[0] = c->q[0] * (double)e * loss;
  free(p);
}

static void importance_loss(const tensor_ref_call *c) {
  const int64_t tokens = c->in_shape[0][0], k = c->in_shape[0][1];
  const int64_t n = c->q[0] > 0 ? (int64_t)c->q[0] : k;
  double *v = calloc((size_t)n, sizeof *v), mean = 0, variance = 0;
  for (int64_t i = 0; i < tokens * k; i++) {
    const double e = c->in[1] ? c->in[1][i] : (double)(i % k);
    if (e >= 0) v[(int64_t)e] += c->in[0][i];
  }
  for (int64_t e = 0; e < n; e++) mean += v[e] / (double)n;
  for (int64_t e = 0; e < n; e++) variance += (v[e] - mean) * (v[e] - mean);
  variance /= c->q[2] != 0 || n == 1 ? (double)n : (double)(n - 1);
  *c->out[0] = c->q[1] * variance / (mean * mean + 1e-10);
  for (int64_t e = 0; c->out[1] && e < n; e++) c->out[1][e] = v[e];
  free(v);
}

static void router_z_loss(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]), tokens = ref_rows(c->in_shape[0]);
  double sum = 0;
  for (int64_t t = 0; t < tokens; t++) {
    double most = -INFINITY, all = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, c->in[0][t * n + i]);
    for (int64_t i = 0; i < n; i++) all += exp(c->in[0][t * n + i] - most);
    sum += (most + log(all)) * (most + log(all));
  }
  *c->out[0] = c->q[0] * sum / (double)tokens;
}

static void expert_bias_update(const tensor_ref_call *c) {
  const int64_t n = c->in_shape[0][0];
  double mean = 0;
  for (int64_t e = 0; e < n; e++) mean += c->in[1][e] / (double)n;
  for (int64_t e = 0; e < n; e++) {
    const double less = mean - c->in[1][e]; /* counts are small: a mean is exact to 1e-9 */
    c->out[0][e] = c->in[0][e] + (fabs(less) < 1e-9 ? 0 : less > 0 ? c->q[0] : -c->q[0]);
  }
}

static void soft_moe(const tensor_ref_call *c) {
  const int dims = dims_of(c->in_shape[0]);
  const int64_t d = ref_last(c->in_shape[0]), t = c->in_shape[0][dims - 2], s = c->in_shape[1][0];
  double *z = calloc((size_t)(2 * t * s + t), sizeof *z), *p = z + t * s, *column = p + t * s;
  for (int64_t b = 0; b < ref_rows(c->in_shape[0]) / t; b++) {
    const double *x = c->in[0] + b * t * d, *mask = c->in[3] ? c->in[3] + b * t : NULL;
    for (int64_t i = 0; i < t * s; i++) {
      double dot = 0, xx = 1e-6, pp = 1e-6;
      for (int64_t k = 0; k < d; k++) {
        const double u = x[i / s * d + k], v = c->in[1][i % s * d + k];
        dot += u * v, xx += u * u, pp += v * v;
      }
      z[i] = (c->in[2] ? *c->in[2] : 1) * dot / (c->q[0] != 0 ? sqrt(xx) * sqrt(pp) : 1);
    }
    for (int64_t i = 0; i < t; i++) {
      softmax_row(z + i * s, s, p);
      for (int64_t k = 0; k < s; k++) c->out[1][(b * t + i) * s + k] = mask && mask[i] == 0 ? 0 : p[k];
    }
    for (int64_t k = 0; k < s; k++) {
      int any = 0;
      for (int64_t i = 0; i < t; i++) {
        column[i] = mask && mask[i] == 0 ? -INFINITY : z[i * s + k];
        any |= column[i] > -INFINITY;
      }
      softmax_row(column, t, p);
      for (int64_t i = 0; i < t; i++) c->out[0][(b * t + i) * s + k] = any ? p[i] : 0;
    }
  }
  free(z);
}

/* ---- mixtures ---- */

/* Tokens of the router's logits; terms of a token come from its number. */
static void mixture(const tensor_ref_call *c,
                    double (*term)(const tensor_ref_call *c, int64_t token, int64_t e)) {
  const int64_t n = ref_last(c->in_shape[0]);
  double *p = calloc((size_t)n, sizeof *p);
  for (int64_t t = 0; t < ref_rows(c->in_shape[0]); t++) {
    double sum = 0;
    softmax_row(c->in[0] + t * n, n, p);
    for (int64_t e = 0; e < n; e++) sum += p[e] * exp(term(c, t, e));
    c->out[0][t] = -log(sum);
  }
  free(p);
}
static double normal_term(const tensor_ref_call *c, int64_t t, int64_t e) {
  const int64_t at = t * ref_last(c->in_shape[0]) + e;
  const double q = (c->in[3][t] - c->in[1][at]) / exp(c->in[2][at]);
  return -0.5 * log(2 * 3.14159265358979323846) - c->in[2][at] - 0.5 * q * q;
}
static double class_term(const tensor_ref_call *c, int64_t t, int64_t e) {
  const int64_t classes = ref_last(c->in_shape[1]);
  const double *z = c->in[1] + (t * ref_last(c->in_shape[0]) + e) * classes;
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < classes; i++) most = fmax(most, z[i]);
  for (int64_t i = 0; i < classes; i++) sum += exp(z[i] - most);
  return z[(int64_t)c->in[2][t]] - most - log(sum);
}
static void moe_gaussian_nll(const tensor_ref_call *c) { mixture(c, normal_term); }
static void moe_multinomial_nll(const tensor_ref_call *c) { mixture(c, class_term); }

tensor_ref_fn *const gate_refs[] = {
    gate_topk,        gate_expert_choice,  gate_relu,       moe_permutation,      moe_dispatch,
    moe_combine,      load_balancing_loss, router_z_loss,   expert_bias_update,   soft_moe,
    moe_gaussian_nll, moe_multinomial_nll, gate_noisy_topk, gate_dense_to_sparse, gate_modified,
    importance_loss};
