/* pool/ref.c - pooling straight from the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

enum { AXES = 3 };

/* The cells of output o along an axis, by number; -1: absent. Returns how many places there are. */
typedef struct axis {
  int64_t n, m;
  const double *q; /* the parameters of windows, or NULL */
  int64_t kernel, stride, padding, dilation;
} axis;

static int64_t first_of(const axis *a, int64_t o) {
  return a->q ? o * a->stride - a->padding : (int64_t)floor((double)o * (double)a->n / (double)a->m);
}
static int64_t places_of(const axis *a, int64_t o) {
  return a->q ? a->kernel : (int64_t)ceil((double)(o + 1) * (double)a->n / (double)a->m) - first_of(a, o);
}

typedef struct window {
  double *x; /* the cells that are there */
  int64_t *cell, *place;
  int64_t count, padded, places, plane, output, cells, outputs; /* cells, outputs: of a plane */
  const tensor_ref_call *call;
} window;

static void collect(const axis *a, const int64_t *o, const double *plane, window *w) {
  int64_t first[AXES], places[AXES], at[AXES];
  w->count = w->padded = w->places = 0;
  for (int k = 0; k < AXES; k++) first[k] = first_of(a + k, o[k]), places[k] = places_of(a + k, o[k]);
  for (at[0] = 0; at[0] < places[0]; at[0]++)
    for (at[1] = 0; at[1] < places[1]; at[1]++)
      for (at[2] = 0; at[2] < places[2]; at[2]++) {
        int64_t cell = 0, there = 1, padded = 1;
        for (int k = 0; k < AXES; k++) {
          const int64_t c = first[k] + at[k] * a[k].dilation;
          there &= c >= 0 && c < a[k].n, padded &= c < a[k].n + a[k].padding;
          cell = cell * a[k].n + c;
        }
        w->padded += padded;
        if (there) w->x[w->count] = plane[cell], w->place[w->count] = w->places, w->cell[w->count++] = cell;
        w->places++;
      }
}

/* The value of a window; *index: its largest cell. */
typedef double value_fn(const window *w, const double *own, int64_t *index);

static double largest(const window *w, const double *own, int64_t *index) {
  double y = -INFINITY;
  *index = -1;
  for (int64_t i = 0; i < w->count; i++)
    if (w->x[i] > y) y = w->x[i], *index = w->cell[i];
  return y;
}
static double mean(const window *w, const double *own, int64_t *index) {
  double sum = 0;
  for (int64_t i = 0; i < w->count; i++) sum += w->x[i];
  return sum / (own && own[1] > 0 ? own[1] : (double)(own && own[0] != 0 ? w->padded : w->count));
}
static double soft(const window *w, const double *own, int64_t *index) {
  const double beta = own[0], most = largest(w, own, index);
  double sum = 0, all = 0;
  for (int64_t i = 0; i < w->count; i++) {
    const double e = exp(beta * (w->x[i] - most));
    sum += e * w->x[i], all += e;
  }
  return sum / all;
}
static double lse(const window *w, const double *own, int64_t *index) {
  const double most = largest(w, own, index);
  double all = 0;
  for (int64_t i = 0; i < w->count; i++) all += exp(w->x[i] - most);
  return most + log(all);
}
static double mixed(const window *w, const double *own, int64_t *index) {
  const double a = w->call->in[1] ? *w->call->in[1] : own[0];
  return a * largest(w, own, index) + (1 - a) * mean(w, NULL, index);
}

static double norm(const window *w, const double *own, int64_t *index) {
  double sum = 0;
  for (int64_t i = 0; i < w->count; i++) sum += pow(fabs(w->x[i]), own[0]);
  return pow(sum, 1 / own[0]);
}
static double ada(const window *w, const double *own, int64_t *index) {
  const double *map = w->call->in[2], *mix = w->call->in[1];
  const double share = fmin(fmax(map ? map[w->output] : mix ? *mix : own[0], 0), 1);
  const double m = mean(w, NULL, index), one = 1;
  double sum = 0, all = 0;
  for (int64_t i = 0; i < w->count; i++) {
    const double q = w->x[i] * w->x[i] + m * m, e = exp(q > 0 ? 2 * fabs(w->x[i] * m) / q : 1);
    sum += e * w->x[i], all += e;
  }
  return share * sum / all + (1 - share) * soft(w, &one, index);
}
static double inverse(const window *w, const double *own, int64_t *index) {
  const double m = mean(w, NULL, index);
  double sum = 0, all = 0, equal = 0;
  for (int64_t i = 0; i < w->count; i++) {
    const double a = 1 / fabs(w->x[i] - m);
    if (isinf(a)) equal++;
    else sum += a * w->x[i], all += a;
  }
  return equal > 0 ? m : sum / all;
}

/* A word of Philox4x32-10. */
static uint64_t word_of(uint64_t seed, uint64_t stream, uint32_t purpose, uint64_t index) {
  uint32_t c[4] = {(uint32_t)(index / 2), (uint32_t)(index / 2 >> 32) | purpose << 24, (uint32_t)stream,
                   (uint32_t)(stream >> 32)};
  uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t p = 0xD2511F53ull * c[0], q = 0xCD9E8D57ull * c[2];
    c[0] = (uint32_t)(q >> 32) ^ c[1] ^ k[0], c[2] = (uint32_t)(p >> 32) ^ c[3] ^ k[1];
    c[1] = (uint32_t)q, c[3] = (uint32_t)p, k[0] += 0x9E3779B9, k[1] += 0xBB67AE85;
  }
  return index % 2 ? c[2] | (uint64_t)c[3] << 32 : c[0] | (uint64_t)c[1] << 32;
}
static double stochastic(const window *w, const double *own, int64_t *index) {
  const double most = largest(w, own, index);
  const double u =
      ((double)(word_of((uint64_t)own[2], (uint64_t)own[3] + (uint64_t)w->plane, 15, (uint64_t)w->output) >>
                12) +
       0.5) *
      0x1p-52;
  double sum = 0, so_far = 0, y = 0;
  *index = -1;
  for (int64_t i = 0; i < w->count; i++) sum += own[0] != 0 ? fmax(w->x[i], 0) : exp(w->x[i] - most);
  if (sum == 0) return 0;
  for (int64_t i = 0; i < w->count; i++) {
    const double p = (own[0] != 0 ? fmax(w->x[i], 0) : exp(w->x[i] - most)) / sum;
    y += p * w->x[i], so_far += p;
    if (own[1] == 0 && so_far > u) return *index = w->cell[i], w->x[i];
  }
  return y;
}
/* The sigmoid, or the sum, of the cells under a row of filters. */
static double filtered(const window *w, int port, int64_t row) {
  double sum = 0;
  for (int64_t i = 0; i < w->count; i++) sum += w->call->in[port][row * w->places + w->place[i]] * w->x[i];
  return sum;
}
static double gate(double u) { return 1 / (1 + exp(-u)); }
static double gated(const window *w, const double *own, int64_t *index) {
  const double a = gate(filtered(w, 1, 0));
  return a * largest(w, own, index) + (1 - a) * mean(w, NULL, index);
}
static double node(const window *w, int64_t k, int64_t nodes) {
  if (k >= nodes) return filtered(w, 1, k - nodes);
  const double a = gate(filtered(w, 2, k));
  return a * node(w, 2 * k + 1, nodes) + (1 - a) * node(w, 2 * k + 2, nodes);
}
static double tree(const window *w, const double *own, int64_t *index) {
  return node(w, 0, w->call->in_shape[2][0]);
}

static int dimensions_of(const tensor_ref_call *c) {
  int ndim = 0;
  while (ndim < 8 && c->in_shape[0][ndim] > 0) ndim++;
  return ndim;
}

/* Shares of y, to the cells. */
static double unpool(const window *w, const double *own, int64_t *index) {
  const double *map = w->call->in[3], *mix = w->call->in[2],
               y = w->call->in[1][w->plane * w->outputs + w->output];
  const double share = fmin(fmax(map ? map[w->output] : mix ? *mix : own[0], 0), 1), m = mean(w, NULL, index);
  double dice[2] = {0}, own_mass[2] = {0};
  for (int pass = 0; pass < 2; pass++)
    for (int64_t i = 0; i < w->count; i++) {
      const double q = w->x[i] * w->x[i] + m * m, d = exp(q > 0 ? 2 * fabs(w->x[i] * m) / q : 1),
                   e = exp(w->x[i]);
      dice[pass] += d, own_mass[pass] += e;
      if (pass)
        w->call->out[0][w->plane * w->cells + w->cell[i]] =
            y * (share * d / dice[0] + (1 - share) * e / own_mass[0]);
    }
  return 0;
}

static double guided(const window *w, const double *own, int64_t *index) {
  int64_t channels = 1;
  for (int d = 0; dimensions_of(w->call) - d > (int)w->call->q[0]; d++) channels = w->call->in_shape[0][d];
  const double *s = w->call->in[1] + w->plane / channels * w->cells;
  double all = 0, sum = 0, y = 0, most = -INFINITY, top = -INFINITY;
  for (int64_t i = 0; i < w->cells; i++) most = fmax(most, own[0] * s[i]);
  for (int64_t i = 0; i < w->cells; i++) all += exp(own[0] * s[i] - most);
  for (int64_t i = 0; i < w->count; i++) top = fmax(top, exp(own[0] * s[w->cell[i]] - most) / all / own[1]);
  for (int64_t i = 0; i < w->count; i++) {
    const double e = exp(exp(own[0] * s[w->cell[i]] - most) / all / own[1] - top);
    sum += e, y += e * w->x[i];
  }
  return w->count > 0 ? y / sum : 0;
}

/* A parameter of the height or depth that means that of the width. */
static int64_t of(const double *q, int least, int a) {
  const double own = q[AXES - 1 - a];
  return (int64_t)(a < AXES - 1 && own < least ? q[0] : own);
}

static void run(const tensor_ref_call *c, value_fn *value, int adaptive) {
  const int spatial = (int)c->q[0];
  const int ndim = dimensions_of(c);
  axis a[AXES];
  int64_t planes = 1, cells = 1, outputs = 1;
  const int64_t *sizes = value == unpool ? c->in_shape[1] : c->out_shape[0];
  for (int k = 0; k < AXES; k++) {
    const int d = ndim - AXES + k, here = k >= AXES - spatial;
    a[k] = (axis){here ? c->in_shape[0][d] : 1, here ? sizes[d] : 1, NULL, 1, 1, 0, 1};
    if (here && !adaptive) {
      const int64_t kernel = of(c->q + 1, 1, k), stride = of(c->q + 4, 1, k);
      a[k] = (axis){a[k].n,
                    a[k].m,
                    c->q,
                    kernel,
                    stride > 0 ? stride : kernel,
                    of(c->q + 7, 0, k),
                    of(c->q + 10, 1, k)};
    }
    cells *= a[k].n, outputs *= a[k].m;
  }
  for (int d = 0; d < ndim - spatial; d++) planes *= c->in_shape[0][d];
  window w = {.x = calloc((size_t)cells, sizeof(double)), .call = c};
  w.cell = calloc((size_t)cells, sizeof(int64_t)), w.place = calloc((size_t)cells, sizeof(int64_t));
  for (int64_t p = 0; p < planes; p++)
    for (int64_t i = 0; i < outputs; i++) {
      const int64_t o[AXES] = {i / (a[1].m * a[2].m), i / a[2].m % a[1].m, i % a[2].m};
      int64_t index = -1;
      w.plane = p, w.output = i, w.cells = cells, w.outputs = outputs;
      collect(a, o, c->in[0] + p * cells, &w);
      const double y = value(&w, c->q + (adaptive ? 4 : 14), &index);
      if (value != unpool) c->out[0][p * outputs + i] = y;
      if (c->out[1]) c->out[1][p * outputs + i] = (double)index;
    }
  free(w.x), free(w.cell), free(w.place);
}

static double plain_mean(const window *w, const double *own, int64_t *index) { return mean(w, NULL, index); }

static void max_pool(const tensor_ref_call *c) { run(c, largest, 0); }
static void avg_pool(const tensor_ref_call *c) { run(c, mean, 0); }
static void soft_pool(const tensor_ref_call *c) { run(c, soft, 0); }
static void lse_pool(const tensor_ref_call *c) { run(c, lse, 0); }
static void mixed_pool(const tensor_ref_call *c) { run(c, mixed, 0); }
static void lp_pool(const tensor_ref_call *c) { run(c, norm, 0); }
static void ada_pool(const tensor_ref_call *c) { run(c, ada, 0); }
static void gated_pool(const tensor_ref_call *c) { run(c, gated, 0); }
static void tree_pool(const tensor_ref_call *c) { run(c, tree, 0); }
static void stochastic_pool(const tensor_ref_call *c) { run(c, stochastic, 0); }
static void ada_unpool(const tensor_ref_call *c) {
  const double q[15] = {c->q[0], c->q[1], c->q[2], c->q[3], 0, 0, 0, 0, 0, 0, 1, 0, 0, c->q[4], c->q[5]};
  tensor_ref_call own = *c;
  int64_t count = 1;
  for (int d = 0; d < 8 && c->out_shape[0][d] > 0; d++) count *= c->out_shape[0][d];
  for (int64_t i = 0; i < count; i++) c->out[0][i] = 0;
  own.q = q, run(&own, unpool, 0);
}
static void max_unpool(const tensor_ref_call *c) {
  const int spatial = (int)c->q[0], ndim = dimensions_of(c);
  int64_t outputs = 1, cells = 1, planes = 1;
  for (int d = 0; d < ndim; d++)
    if (d < ndim - spatial) planes *= c->in_shape[0][d];
    else outputs *= c->in_shape[0][d], cells *= c->out_shape[0][d];
  for (int64_t i = 0; i < planes * cells; i++) c->out[0][i] = 0;
  for (int64_t i = 0; i < planes * outputs; i++)
    if (c->in[1][i] >= 0) c->out[0][i / outputs * cells + (int64_t)c->in[1][i]] = c->in[0][i];
}
static void prompt_guided_pool(const tensor_ref_call *c) { run(c, guided, 0); }
static void idw_pool(const tensor_ref_call *c) { run(c, inverse, 0); }
static void adaptive_max_pool(const tensor_ref_call *c) { run(c, largest, 1); }
static void adaptive_avg_pool(const tensor_ref_call *c) { run(c, plain_mean, 1); }
static void adaptive_soft_pool(const tensor_ref_call *c) { run(c, soft, 1); }

/* ---- boxes ---- */

static double overlap(const double *a, const double *b, double pixel) {
  const double w = fmin(a[2], b[2]) - fmax(a[0], b[0]) + pixel,
               h = fmin(a[3], b[3]) - fmax(a[1], b[1]) + pixel;
  const double inter = fmax(w, 0) * fmax(h, 0);
  const double area_a = fmax(a[2] - a[0] + pixel, 0) * fmax(a[3] - a[1] + pixel, 0);
  const double area_b = fmax(b[2] - b[0] + pixel, 0) * fmax(b[3] - b[1] + pixel, 0);
  const double all = area_a + area_b - inter;
  return all > 0 ? inter / all : 0;
}

/* What a box that goes next leaves another of its score; below 0: nothing, it is gone. */
typedef double factor_fn(const double *q, double iou);

static double hard_factor(const double *q, double iou) {
  return iou > 0 && (iou > q[0] || (q[4] != 0 && iou == q[0])) ? -1 : 1;
}
static double soft_factor(const double *q, double iou) {
  if (q[0] == 2) return exp(-iou * iou / q[2]);
  return iou <= q[1] ? 1 : q[0] == 1 ? 1 - iou : 0;
}

/* Where the results of an image go, and what it has. */
typedef struct image {
  const double *boxes, *class_of;
  double *score, *index, *kept;
  int64_t n;
} image;

static int64_t suppress_image(const image *m, const double *q, factor_fn *factor,
                              const double *least_most_pixel) {
  for (int64_t k = 0; k < m->n; k++) {
    int64_t best = -1;
    for (int64_t i = 0; i < m->n; i++)
      if (m->score[i] >= least_most_pixel[0] && (best < 0 || m->score[i] > m->score[best])) best = i;
    if (best < 0 || (least_most_pixel[1] != 0 && (double)k >= least_most_pixel[1])) return k;
    m->index[k] = (double)best;
    if (m->kept) m->kept[k] = m->score[best];
    for (int64_t i = 0; i < m->n; i++) {
      const double f = factor(q, overlap(m->boxes + best * 4, m->boxes + i * 4, least_most_pixel[2]));
      if (!m->class_of || m->class_of[i] == m->class_of[best]) m->score[i] = f < 0 ? NAN : m->score[i] * f;
    }
    m->score[best] = NAN;
  }
  return m->n;
}

static void suppress(const tensor_ref_call *c, factor_fn *factor, const double *least_most_pixel) {
  int ndim = 0;
  int64_t images = 1;
  while (ndim < 8 && c->in_shape[1][ndim] > 0) ndim++;
  const int64_t n = c->in_shape[1][ndim - 1];
  for (int d = 0; d < ndim - 1; d++) images *= c->in_shape[1][d];
  double *score = calloc((size_t)n, sizeof *score);
  for (int64_t at = 0; at < images; at++) {
    const image m = {c->in[0] + at * n * 4, c->in[2] ? c->in[2] + at * n : NULL,   score,
                     c->out[0] + at * n,    c->out[2] ? c->out[2] + at * n : NULL, n};
    for (int64_t i = 0; i < n; i++) score[i] = c->in[1][at * n + i], m.index[i] = -1;
    for (int64_t i = 0; m.kept && i < n; i++) m.kept[i] = 0;
    const int64_t kept = suppress_image(&m, c->q, factor, least_most_pixel);
    if (c->out[1]) c->out[1][at] = (double)kept;
  }
  free(score);
}

static void nms(const tensor_ref_call *c) { suppress(c, hard_factor, c->q + 1); }
static void soft_nms(const tensor_ref_call *c) { suppress(c, soft_factor, c->q + 3); }

tensor_ref_fn *const pool_refs[] = {max_pool,
                                    avg_pool,
                                    soft_pool,
                                    lse_pool,
                                    mixed_pool,
                                    adaptive_max_pool,
                                    adaptive_avg_pool,
                                    adaptive_soft_pool,
                                    nms,
                                    soft_nms,
                                    pool_ref_gem,
                                    pool_ref_gnp,
                                    pool_ref_smoothed,
                                    pool_ref_layer_max,
                                    pool_ref_maxout,
                                    pool_ref_splade,
                                    pool_ref_flops,
                                    pool_ref_layer_mix,
                                    pool_ref_selective,
                                    pool_ref_attsets,
                                    pool_ref_mil,
                                    pool_ref_weighted_mean,
                                    pool_ref_segments,
                                    pool_ref_upsample,
                                    pool_ref_gsp,
                                    pool_ref_histogram,
                                    lp_pool,
                                    ada_pool,
                                    gated_pool,
                                    tree_pool,
                                    pool_ref_moving,
                                    stochastic_pool,
                                    idw_pool,
                                    ada_unpool,
                                    pool_ref_sim,
                                    pool_ref_query,
                                    prompt_guided_pool,
                                    pool_ref_ponet,
                                    pool_ref_kmeans,
                                    pool_ref_kmedoids,
                                    pool_ref_ward,
                                    pool_ref_topk,
                                    pool_ref_parse,
                                    pool_ref_hebb,
                                    pool_ref_bilinear,
                                    pool_ref_lowrank,
                                    pool_ref_prior,
                                    pool_ref_moving_mil,
                                    max_unpool,
                                    pool_ref_triangle};
