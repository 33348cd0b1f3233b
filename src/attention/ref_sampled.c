/* attention/ref_sampled.c - attention to sampled keys, through landmarks, and with numbers of each
 * head, straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ref_draws.h"
#include "ref.h"

typedef struct sizes {
  int64_t l, t, d, e, items;
  double scale;
} sizes;

/* The size `back` from the end. */
static int64_t size(const int64_t *shape, int back) {
  int n = 0;
  while (n < 8 && shape[n] > 0) n++;
  return n < back ? 1 : shape[n - back];
}
static sizes sizes_of(const tensor_ref_call *c) {
  sizes s = {size(c->in_shape[0], 2),
             size(c->in_shape[1], 2),
             size(c->in_shape[0], 1),
             size(c->in_shape[2], 1),
             ref_count(c->in_shape[0]) / size(c->in_shape[0], 2),
             c->q[0]};
  s.items /= s.d;
  if (s.scale == 0) s.scale = 1 / sqrt((double)s.d);
  return s;
}
static double dot_of(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

/* ---- codes ---- */

/* planes: [tables bits][d], drawn once. */
static double *planes_of(uint64_t seed, int64_t bits, int64_t tables, int64_t d) {
  double *p = malloc((size_t)(bits * tables * d + 1) * sizeof *p);
  for (int64_t at = 0; at < bits * tables * d; at++)
    p[at] = normal(uniform(seed, (uint64_t)(at / (bits * d)), 5, (uint64_t)(at % (bits * d))));
  return p;
}
static int64_t code_of(const double *planes, int64_t bits, int64_t d, int64_t table, const double *x) {
  int64_t code = 0;
  for (int64_t b = 0; b < bits; b++)
    if (dot_of(planes + (table * bits + b) * d, x, d) > 0) code += (int64_t)1 << b;
  return code;
}
/* Where a code stands in Gray's order, by counting: the k-th code is k ^ k / 2. */
static int64_t place_of(int64_t code, int64_t bits) {
  for (int64_t k = 0; k < (int64_t)1 << bits; k++)
    if ((k ^ k / 2) == code) return k;
  return -1;
}

void lsh_codes_ref(const tensor_ref_call *c) {
  const int64_t d = size(c->in_shape[0], 1), bits = (int64_t)c->q[0], tables = (int64_t)c->q[1];
  double *drawn = planes_of((uint64_t)c->q[3], bits, tables, d);
  for (int64_t at = 0; at < ref_rows(c->in_shape[0]) * tables; at++) {
    const int64_t code =
        code_of(c->in[1] ? c->in[1] : drawn, bits, d, at % tables, c->in[0] + at / tables * d);
    c->out[0][at] = (double)(c->q[2] != 0 ? place_of(code, bits) : code);
  }
  free(drawn);
}

/* ---- magicpig ---- */

/* The upper tail of the binomial distribution, in logarithms. */
static double tail(double n, double a, double least) {
  double sum = 0;
  for (double j = least; j <= n; j++)
    sum += exp(lgamma(n + 1) - lgamma(j + 1) - lgamma(n - j + 1) + j * log(a) + (n - j) * log1p(-a));
  return a >= 1 ? 1 : sum;
}

void magicpig_attention_ref(const tensor_ref_call *c) {
  const sizes s = sizes_of(c);
  const int64_t bits = (int64_t)c->q[1], tables = (int64_t)c->q[2];
  const int causal = c->q[8] != 0;
  double *planes = planes_of((uint64_t)c->q[9], bits, tables, s.d), *near = calloc((size_t)s.d, sizeof *near),
         *mean = calloc((size_t)s.d, sizeof *mean), *w = calloc((size_t)s.t, sizeof *w);
  for (int64_t row = 0; row < s.items * s.l; row++) {
    const int64_t item = row / s.l, i = row % s.l,
                  end = causal && i + s.t - s.l < s.t - 1 ? i + s.t - s.l + 1 : s.t;
    const double *q = c->in[0] + row * s.d, *keys = c->in[1] + item * s.t * s.d;
    double count = 0, sum = 0;
    int64_t looked = 0;
    memset(mean, 0, (size_t)s.d * sizeof *mean);
    for (int64_t j = 0; j < s.t; j++) {
      int seen = 0;
      for (int64_t r = 0; r < s.l; r++)
        seen |= !(causal && j - r > s.t - s.l) && !(c->in[3] && c->in[3][(item * s.l + r) * s.t + j] == 0);
      for (int64_t x = 0; x < s.d && seen; x++) mean[x] += keys[j * s.d + x];
      count += seen;
    }
    for (int64_t x = 0; x < s.d; x++) mean[x] = c->q[7] != 0 && count > 0 ? mean[x] / count : 0;
    for (int64_t j = 0; j < s.t; j++) {
      const double *k = keys + j * s.d;
      int64_t agree = 0;
      w[j] = 0;
      if (j >= end || (c->in[3] && c->in[3][row * s.t + j] == 0)) continue;
      const int sure = (double)j < c->q[4] || (double)j >= (double)end - c->q[5] ||
                       (c->in[4] && c->in[4][item * s.t + j] != 0);
      for (int64_t x = 0; x < s.d; x++) near[x] = k[x] - mean[x];
      for (int64_t h = 0; h < tables; h++)
        agree += code_of(planes, bits, s.d, h, q) == code_of(planes, bits, s.d, h, near);
      if (!sure && (double)agree < c->q[3]) continue;
      const double cosine = dot_of(q, near, s.d) / sqrt(dot_of(q, q, s.d) * dot_of(near, near, s.d)),
                   one = 1 - acos(fmax(-1, fmin(1, cosine))) / 3.14159265358979323846;
      w[j] = exp(s.scale * dot_of(q, k, s.d)) /
             (sure ? 1 : tail((double)tables, pow(one, (double)bits), c->q[3]) + c->q[6]);
      sum += w[j], looked++;
    }
    for (int64_t x = 0; x < s.e; x++) {
      c->out[0][row * s.e + x] = 0;
      for (int64_t j = 0; j < s.t && sum > 0; j++)
        c->out[0][row * s.e + x] += w[j] / sum * c->in[2][(item * s.t + j) * s.e + x];
    }
    c->out[1][row] = log(sum), c->out[2][row] = (double)looked;
  }
  free(planes), free(near), free(mean), free(w);
}

/* ---- kde ---- */

/* The place of row i among n rows by Gray's order of their codes. */
static int64_t sorted_place(const double *rows, int64_t n, int64_t d, const double *planes, int64_t bits,
                            int64_t i) {
  const int64_t own = place_of(code_of(planes, bits, d, 0, rows + i * d), bits);
  int64_t before = 0;
  for (int64_t j = 0; j < n; j++) {
    const int64_t other = place_of(code_of(planes, bits, d, 0, rows + j * d), bits);
    before += other < own || (other == own && j < i);
  }
  return before;
}

/* Twenty steps of the power method on the matrix itself. */
static double eigenvalue(const double *v, int64_t t, int64_t e) {
  const int64_t n = e + 1;
  double *m = calloc((size_t)(n * n), sizeof *m), *x = calloc((size_t)n, sizeof *x),
         *y = calloc((size_t)n, sizeof *y), length = 0;
  for (int64_t j = 0; j < t; j++)
    for (int64_t a = 0; a < n * n; a++)
      m[a] += (a / n < e ? v[j * e + a / n] : 1) * (a % n < e ? v[j * e + a % n] : 1);
  for (int64_t a = 0; a < n; a++) x[a] = 1 / sqrt((double)n);
  for (int step = 0; step < 20; step++) {
    for (int64_t a = 0; a < n; a++) y[a] = dot_of(m + a * n, x, n);
    length = sqrt(dot_of(y, y, n));
    for (int64_t a = 0; a < n; a++) x[a] = y[a] / length;
  }
  free(m), free(x), free(y);
  return length;
}

void kde_attention_ref(const tensor_ref_call *c) {
  const sizes s = sizes_of(c);
  const int64_t bits = (int64_t)c->q[1], block = (int64_t)c->q[2], samples = (int64_t)c->q[3];
  const int64_t blocks = (s.t + block - 1) / block, queries = (s.l + blocks - 1) / blocks;
  const uint64_t seed = (uint64_t)c->q[4];
  double *planes = planes_of(seed, bits, 1, s.d), *p = calloc((size_t)s.t, sizeof *p),
         *w = calloc((size_t)s.t, sizeof *w);
  for (int64_t row = 0; row < s.items * s.l; row++) {
    const int64_t item = row / s.l, i = row % s.l;
    const double *q = c->in[0] + item * s.l * s.d, *k = c->in[1] + item * s.t * s.d,
                 *v = c->in[2] + item * s.t * s.e;
    const int64_t own = sorted_place(q, s.l, s.d, planes, bits, i) / queries;
    const double norm = eigenvalue(v, s.t, s.e);
    double all = 0, sum = 0;
    for (int64_t j = 0; j < s.t; j++) {
      w[j] = sorted_place(k, s.t, s.d, planes, bits, j) / block == own;
      all += p[j] = sqrt(dot_of(v + j * s.e, v + j * s.e, s.e) + 1) / norm + 1 / (double)s.t;
    }
    for (int64_t n = 0; n < samples; n++) {
      double left = uniform(seed, 0, 18, (uint64_t)n) * all;
      int64_t j = 0;
      while (j < s.t - 1 && left >= p[j]) left -= p[j++];
      if (sorted_place(k, s.t, s.d, planes, bits, j) / block != own) w[j] += all / (p[j] * (double)samples);
    }
    for (int64_t j = 0; j < s.t; j++) sum += w[j] *= exp(s.scale * dot_of(q + i * s.d, k + j * s.d, s.d));
    for (int64_t x = 0; x < s.e; x++) {
      c->out[0][row * s.e + x] = 0;
      for (int64_t j = 0; j < s.t && sum > 0; j++) c->out[0][row * s.e + x] += w[j] / sum * v[j * s.e + x];
    }
    ref_put(c, 1, row, log(sum));
  }
  free(planes), free(p), free(w);
}

/* ---- landmarks ---- */

/* to = sign x y, and `unit` more on the diagonal, of matrices [n][n]. */
static void product(const double *x, const double *y, int64_t n, double unit, double sign, double *to) {
  for (int64_t a = 0; a < n * n; a++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += x[a / n * n + j] * y[j * n + a % n];
    to[a] = (a % (n + 1) == 0 ? unit : 0) + sign * sum;
  }
}
/* Softmax of scale x y^T by rows. */
static double *softmaxes(const double *x, const double *y, int64_t rows, int64_t n, int64_t d, double scale) {
  double *w = calloc((size_t)(rows * n), sizeof *w);
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += w[i * n + j] = exp(scale * dot_of(x + i * d, y + j * d, d));
    for (int64_t j = 0; j < n; j++) w[i * n + j] /= sum;
  }
  return w;
}
static double *segment_means(const double *x, int64_t n, int64_t m, int64_t d) {
  double *to = calloc((size_t)(m * d), sizeof *to);
  for (int64_t a = 0; a < m; a++)
    for (int64_t i = a * n / m; i < (a + 1) * n / m; i++)
      for (int64_t k = 0; k < d; k++) to[a * d + k] += x[i * d + k] / (double)((a + 1) * n / m - a * n / m);
  return to;
}

void nystrom_attention_ref(const tensor_ref_call *c) {
  const sizes s = sizes_of(c);
  const int64_t m = (int64_t)fmin(c->q[1], (double)(s.l < s.t ? s.l : s.t)), n = m * m;
  double *z = calloc((size_t)n, sizeof *z), *p = calloc((size_t)n, sizeof *p),
         *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
  for (int64_t item = 0; item < s.items; item++) {
    const double *q = c->in[0] + item * s.l * s.d, *k = c->in[1] + item * s.t * s.d,
                 *v = c->in[2] + item * s.t * s.e;
    double *qm = segment_means(q, s.l, m, s.d), *km = segment_means(k, s.t, m, s.d), most = 0;
    double *f = softmaxes(q, km, s.l, m, s.d, s.scale), *a = softmaxes(qm, km, m, m, s.d, s.scale),
           *b = softmaxes(qm, k, m, s.t, s.d, s.scale);
    for (int64_t j = 0; j < m; j++) {
      double sum = 0;
      for (int64_t i = 0; i < m; i++) sum += a[i * m + j];
      most = fmax(most, sum);
    }
    for (int64_t i = 0; i < n; i++) z[i] = a[i % m * m + i / m] / most;
    for (int step = 0; step < (int)c->q[2]; step++) {
      product(a, z, m, 0, 1, p);
      product(p, p, m, 0, -1, x);
      for (int64_t i = 0; i < n; i++) x[i] += 7 * p[i];
      for (int64_t i = 0; i < n; i++) x[i] = (i % (m + 1) == 0 ? 15 : 0) - x[i];
      product(p, x, m, 13, -1, y), product(z, y, m, 0, .25, x);
      memcpy(z, x, (size_t)n * sizeof *z);
    }
    for (int64_t at = 0; at < s.l * s.e; at++) {
      const int64_t i = at / s.e;
      double sum = 0;
      for (int64_t g = 0; g < m; g++)
        for (int64_t h = 0; h < m; h++)
          for (int64_t j = 0; j < s.t && (m < s.l || m < s.t); j++)
            sum += f[i * m + g] * z[g * m + h] * b[h * s.t + j] * v[j * s.e + at % s.e];
      for (int64_t j = 0; j < s.t && m == s.l && m == s.t; j++) sum += b[i * s.t + j] * v[j * s.e + at % s.e];
      c->out[0][item * s.l * s.e + at] = sum;
    }
    free(qm), free(km), free(f), free(a), free(b);
  }
  free(z), free(p), free(x), free(y);
}

void additive_scores_ref(const tensor_ref_call *c) {
  const int64_t l = size(c->in_shape[1], 2), t = size(c->in_shape[2], 2), d = size(c->in_shape[1], 1);
  for (int64_t at = 0; at < ref_count(c->in_shape[1]) / d * t; at++) {
    const int64_t row = at / t, key = row / l * t + at % t;
    c->out[0][at] = 0;
    for (int64_t i = 0; i < d; i++)
      c->out[0][at] += c->in[0][row / l * d + i] * tanh(c->in[1][row * d + i] + c->in[2][key * d + i]);
  }
}

/* ---- numbers of heads ---- */

/* Weights of n scores, by bisection between the levels at which the largest is 1 and 1 / n. */
static void entmax(double *x, int64_t n, double alpha) {
  const double a = alpha - 1;
  double most = -INFINITY, count = 0;
  for (int64_t j = 0; j < n; j++) most = fmax(most, x[j]), count += x[j] > -INFINITY;
  double full = a * most - 1, least = a * most - pow(count, -a);
  for (int step = 0; step < 200; step++) {
    const double t = full + (least - full) / 2;
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += x[j] > -INFINITY && a * x[j] > t ? pow(a * x[j] - t, 1 / a) : 0;
    if (sum >= 1) full = t;
    else least = t;
  }
  for (int64_t j = 0; j < n; j++)
    x[j] = x[j] > -INFINITY && a * x[j] > full ? pow(a * x[j] - full, 1 / a) : 0;
}
static void standardise(double *x, int64_t n, double gamma, double beta, double eps) {
  double mean = 0, square = 0, count = 0;
  for (int64_t j = 0; j < n; j++) count += x[j] > -INFINITY;
  for (int64_t j = 0; j < n; j++) mean += x[j] > -INFINITY ? x[j] / count : 0;
  for (int64_t j = 0; j < n; j++) square += x[j] > -INFINITY ? (x[j] - mean) * (x[j] - mean) / count : 0;
  for (int64_t j = 0; j < n; j++)
    x[j] = x[j] > -INFINITY ? gamma * (x[j] - mean) / (sqrt(square) + eps) + beta : 0;
}

/* gain softmax(x) - mean / count, and identity more for the key `own`. */
static void shape(double *x, int64_t n, int64_t own, double identity, double gain, double mean) {
  double most = -INFINITY, sum = 0, count = 0;
  for (int64_t j = 0; j < n; j++) most = fmax(most, x[j]), count += x[j] > -INFINITY;
  for (int64_t j = 0; j < n; j++) sum += x[j] > -INFINITY ? exp(x[j] - most) : 0;
  for (int64_t j = 0; j < n; j++)
    x[j] = x[j] > -INFINITY ? gain * exp(x[j] - most) / sum - mean / count + (j == own ? identity : 0) : 0;
}

/* `count` numbers: alpha; gamma and beta; identity, gain and mean. */
static void of_heads(const tensor_ref_call *c, int count) {
  const sizes s = sizes_of(c);
  const int64_t heads = size(c->in_shape[0], 3);
  const double *mask = c->in[3 + count], *bias = c->in[4 + count];
  double *w = calloc((size_t)s.t, sizeof *w);
  for (int64_t row = 0; row < s.items * s.l; row++) {
    const int64_t sheet = row / s.l, i = row % s.l, head = sheet % heads;
    for (int64_t j = 0; j < s.t; j++) {
      const int hidden =
          (c->q[1] != 0 && j - i > s.t - s.l) || (mask && mask[(sheet / heads * s.l + i) * s.t + j] == 0);
      w[j] = s.scale * dot_of(c->in[0] + row * s.d, c->in[1] + (sheet * s.t + j) * s.d, s.d) +
             (bias ? bias[row * s.t + j] : 0);
      if (hidden) w[j] = -INFINITY;
    }
    if (count == 1) entmax(w, s.t, c->in[3][head]);
    else if (count == 2) standardise(w, s.t, c->in[3][head], c->in[4][head], c->q[2]);
    else shape(w, s.t, i + s.t - s.l, c->in[3][head], c->in[4][head], c->in[5][head]);
    for (int64_t x = 0; x < s.e; x++) {
      c->out[0][row * s.e + x] = 0;
      for (int64_t j = 0; j < s.t; j++)
        c->out[0][row * s.e + x] += w[j] * c->in[2][(sheet * s.t + j) * s.e + x];
    }
    for (int64_t j = 0; j < s.t; j++) ref_put(c, 1, row * s.t + j, w[j]);
  }
  free(w);
}
void entmax_attention_ref(const tensor_ref_call *c) { of_heads(c, 1); }
void nap_attention_ref(const tensor_ref_call *c) { of_heads(c, 2); }
void shaped_attention_ref(const tensor_ref_call *c) { of_heads(c, 3); }
