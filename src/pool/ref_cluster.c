/* pool/ref_cluster.c - clusters of tokens, pooled graphs and products of sketches straight from
 * the formulas, for tests. */
#include <math.h>
#include <stdlib.h>

#include "engine/ref_draws.h"
#include "ref.h"

typedef struct tokens {
  const double *x, *weight;
  double *y;
  int64_t n, d, rows;
  int64_t *cluster; /* -1: not there */
} tokens;

static double square_of(const double *a, const double *b, int64_t d) {
  double sum = 0;
  for (int64_t j = 0; j < d; j++) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

static int64_t there(const tokens *l) {
  int64_t count = 0;
  for (int64_t i = 0; i < l->n; i++) count += l->cluster[i] >= 0;
  return count;
}

/* Clusters in the order of their first tokens. Returns how many there are. */
static int64_t number_clusters(tokens *l) {
  int64_t count = 0, *number = malloc((size_t)l->n * sizeof *number);
  for (int64_t k = 0; k < l->n; k++) number[k] = -1;
  for (int64_t i = 0; i < l->n; i++) {
    if (l->cluster[i] < 0) continue;
    if (number[l->cluster[i]] < 0) number[l->cluster[i]] = count++;
    l->cluster[i] = number[l->cluster[i]];
  }
  free(number);
  return count;
}

/* The weighted mean of a cluster, or its first token alone. False: there is none. */
static int mean_of(const tokens *l, int64_t k, double *y) {
  double total = 0, count = 0;
  for (int64_t i = 0; i < l->n; i++)
    if (l->cluster[i] == k) total += l->weight ? l->weight[i] : 1, count++;
  for (int64_t j = 0; j < l->d && count > 0; j++) {
    double sum = 0;
    for (int64_t i = 0; i < l->n; i++)
      if (l->cluster[i] == k) sum += (total > 0 && l->weight ? l->weight[i] : 1) * l->x[i * l->d + j];
    y[j] = sum / (total > 0 ? total : count);
  }
  return count > 0;
}

static int medoid_of(const tokens *l, int64_t k, double *y) {
  double least = INFINITY;
  int64_t best = -1;
  for (int64_t m = 0; m < l->n; m++) {
    double cost = 0;
    if (l->cluster[m] != k) continue;
    for (int64_t i = 0; i < l->n; i++)
      if (l->cluster[i] == k)
        cost += (l->weight ? l->weight[i] : 1) * square_of(l->x + i * l->d, l->x + m * l->d, l->d);
    if (cost < least) least = cost, best = m;
  }
  for (int64_t j = 0; j < l->d && best >= 0; j++) y[j] = l->x[best * l->d + j];
  return best >= 0;
}

typedef int stand_fn(const tokens *l, int64_t k, double *y);

static int nearest_of(const tokens *l, int64_t i, const double *centre, int64_t k) {
  int64_t best = 0;
  for (int64_t m = 1; m < k; m++)
    if (square_of(l->x + i * l->d, centre + m * l->d, l->d) <
        square_of(l->x + i * l->d, centre + best * l->d, l->d))
      best = m;
  return (int)best;
}

/* The tokens of the largest weights. */
static void first_centres(const tokens *l, int64_t k, double *centre) {
  char *taken = calloc((size_t)l->n, 1);
  for (int64_t m = 0; m < k; m++) {
    int64_t best = -1;
    for (int64_t i = 0; i < l->n; i++)
      if (l->cluster[i] >= 0 && !taken[i] && (best < 0 || (l->weight && l->weight[i] > l->weight[best])))
        best = i;
    taken[best] = 1;
    for (int64_t j = 0; j < l->d; j++) centre[m * l->d + j] = l->x[best * l->d + j];
  }
  free(taken);
}

static void lloyd(tokens *l, const double *q, stand_fn *stand) {
  const int64_t count = there(l), k = q[0] < (double)count ? (int64_t)q[0] : count;
  double *centre = calloc((size_t)(k * l->d) + 1, sizeof *centre);
  if (k == count) {
    for (int64_t i = 0, next = 0; i < l->n; i++)
      if (l->cluster[i] >= 0) l->cluster[i] = next++;
  } else {
    first_centres(l, k, centre);
    for (int step = 0; step < (int)q[1]; step++) {
      int moved = step == 0;
      for (int64_t i = 0; i < l->n; i++) {
        if (l->cluster[i] < 0) continue;
        const int to = nearest_of(l, i, centre, k);
        moved |= l->cluster[i] != to, l->cluster[i] = to;
      }
      if (!moved) break;
      for (int64_t m = 0; m < k; m++) stand(l, m, centre + m * l->d);
    }
  }
  free(centre);
}

/* Pairs of clusters, all anew for each union. */
static void ward(tokens *l, const double *q) {
  const int64_t count = there(l), most = fmax(1, floor((double)count / q[0])), first = (int64_t)q[1];
  int64_t *place = malloc((size_t)l->n * sizeof *place), n = 0, left = count - first;
  tokens seen = {.n = left > 0 ? left : 0};
  for (int64_t i = 0; i < l->n; i++)
    if (l->cluster[i] >= 0) l->cluster[i] = n, place[n++] = i;
  if (left > most) {
    seen.d = q[2] == 0 ? left : l->d;
    double *at = calloc((size_t)(left * seen.d) + 1, sizeof *at),
           *means = calloc((size_t)(2 * seen.d) + 1, 8);
    seen.x = at, seen.cluster = malloc((size_t)left * sizeof *seen.cluster);
    for (int64_t i = 0; i < left; i++)
      for (int64_t j = 0; j < seen.d; j++) {
        const double *a = l->x + place[first + i] * l->d;
        if (q[2] != 0) at[i * seen.d + j] = a[j];
        for (int64_t e = 0; e < l->d && q[2] == 0; e++)
          at[i * seen.d + j] += a[e] * l->x[place[first + j] * l->d + e];
      }
    for (int64_t i = 0; i < left; i++) seen.cluster[i] = i;
    for (int64_t groups = left; groups > most; groups--) {
      double least = INFINITY;
      int64_t best[2] = {0, 0};
      for (int64_t a = 0; a < left; a++)
        for (int64_t b = a + 1; b < left; b++) {
          double sizes[2] = {0, 0};
          if (!mean_of(&seen, a, means) || !mean_of(&seen, b, means + seen.d)) continue;
          for (int64_t i = 0; i < left; i++)
            sizes[0] += seen.cluster[i] == a, sizes[1] += seen.cluster[i] == b;
          const double d =
              2 * sizes[0] * sizes[1] / (sizes[0] + sizes[1]) * square_of(means, means + seen.d, seen.d);
          if (d < least) least = d, best[0] = a, best[1] = b;
        }
      for (int64_t i = 0; i < left; i++)
        if (seen.cluster[i] == best[1]) seen.cluster[i] = best[0];
    }
    for (int64_t i = 0; i < left; i++) l->cluster[place[first + i]] = first + seen.cluster[i];
    free(at), free(means), free(seen.cluster);
  }
  free(place);
}

/* Each lead: clusters by a method, then what stands for them. */
static void each_lead(const tensor_ref_call *c, int weight, int mask, stand_fn *stand) {
  const int64_t d = ref_last(c->in_shape[0]), n = ref_rows(c->in_shape[0]);
  const int64_t own = ref_last(c->out_shape[1]), rows = ref_rows(c->out_shape[0]) / (n / own);
  for (int64_t at = 0; at < n / own; at++) {
    tokens l = {.n = own, .d = d, .rows = rows, .x = c->in[0] + at * own * d, .y = c->out[0] + at * rows * d};
    l.weight = weight > 0 && c->in[weight] ? c->in[weight] + at * own : NULL;
    l.cluster = malloc((size_t)own * sizeof *l.cluster);
    for (int64_t i = 0; i < own; i++) l.cluster[i] = c->in[mask] && c->in[mask][at * own + i] == 0 ? -1 : 0;
    if (weight > 0) lloyd(&l, c->q, stand);
    else ward(&l, c->q);
    const int64_t count = number_clusters(&l);
    for (int64_t k = 0; k < rows * d; k++) l.y[k] = 0;
    for (int64_t k = 0; k < count; k++) {
      double length = 0;
      stand(&l, k, l.y + k * d);
      for (int64_t j = 0; j < d; j++) length = hypot(length, l.y[k * d + j]);
      for (int64_t j = 0; j < d && weight == 0 && c->q[3] != 0 && length > 0; j++) l.y[k * d + j] /= length;
    }
    for (int64_t i = 0; i < own; i++) ref_put(c, 1, at * own + i, (double)l.cluster[i]);
    ref_put(c, 2, at, (double)count);
    free(l.cluster);
  }
}

void pool_ref_kmeans(const tensor_ref_call *c) { each_lead(c, 1, 2, mean_of); }
void pool_ref_kmedoids(const tensor_ref_call *c) { each_lead(c, 1, 2, medoid_of); }
void pool_ref_ward(const tensor_ref_call *c) { each_lead(c, 0, 1, mean_of); }

/* ---- graphs ---- */

typedef struct nodes {
  int64_t leads, n, d, e, rows; /* rows: of y */
  const double *x, *mask, *from, *to;
} nodes;

static nodes nodes_of(const tensor_ref_call *c, int edge, int mask, int64_t lead) {
  nodes g = {.d = ref_last(c->in_shape[0]), .e = ref_last(c->in_shape[edge])};
  g.leads = ref_count(c->in_shape[edge]) / 2 / g.e;
  g.n = ref_rows(c->in_shape[0]) / g.leads, g.rows = ref_rows(c->out_shape[0]) / g.leads;
  g.x = c->in[0] + lead * g.n * g.d, g.mask = c->in[mask] ? c->in[mask] + lead * g.n : NULL;
  g.from = c->in[edge] + lead * 2 * g.e, g.to = g.from + g.e;
  return g;
}
static int has(const nodes *g, double i) { return !g->mask || g->mask[(int64_t)i] != 0; }

static void topk_of(const tensor_ref_call *c, const nodes *g, int64_t lead) {
  const double *p = c->in[1], *q = c->q;
  double *s = c->out[1] + lead * g->n, *y = c->out[0] + lead * g->rows * g->d, length = 0, sum = 0, most = 0,
         count = 0;
  int64_t *row = malloc((size_t)g->n * sizeof *row), kept = 0, edges = 0;
  for (int64_t j = 0; j < g->d; j++) length += p[j] * p[j];
  for (int64_t i = 0; i < g->n; i++) {
    s[i] = 0, row[i] = -1;
    for (int64_t j = 0; j < g->d; j++) s[i] += g->x[i * g->d + j] * p[j] / (q[0] == 0 ? sqrt(length) : 1);
    sum += has(g, (double)i) ? exp(s[i]) : 0, count += has(g, (double)i);
  }
  for (int64_t i = 0; i < g->n; i++) {
    if (q[0] != 0) s[i] = exp(s[i]) / sum;
    if (!has(g, (double)i)) s[i] = 0;
    else most = fmax(most, s[i]);
  }
  const double stay = fmin(count, q[2] > 0 ? q[2] : ceil(q[1] * count - 1e-9));
  for (int64_t k = 0; k < g->rows; k++) {
    int64_t best = -1;
    for (int64_t i = 0; i < g->n; i++) {
      if (!has(g, (double)i) || row[i] >= 0) continue;
      if (q[0] != 0 ? best < 0 && s[i] > fmin(most - 1e-7, q[3])
                    : (double)k < stay && (best < 0 || s[i] > s[best]))
        best = i;
    }
    const double gate = best < 0    ? 0
                        : q[0] != 0 ? s[best]
                        : q[4] != 0 ? 1 / (1 + exp(-s[best]))
                                    : tanh(s[best]);
    for (int64_t j = 0; j < g->d; j++) y[k * g->d + j] = best < 0 ? 0 : gate * g->x[best * g->d + j];
    ref_put(c, 3, lead * g->rows + k, (double)best);
    if (best >= 0) row[best] = k, kept++;
  }
  for (int64_t e = 0; e < g->e; e++)
    ref_put(c, 2, lead * g->e + e, 0),
        c->out[4][lead * 2 * g->e + e] = c->out[4][(lead * 2 + 1) * g->e + e] = -1;
  for (int64_t e = 0; e < g->e; e++) {
    const int64_t a = row[(int64_t)g->from[e]], b = row[(int64_t)g->to[e]];
    if (a < 0 || b < 0) continue;
    ref_put(c, 2, lead * g->e + edges, c->in[3] ? c->in[3][lead * g->e + e] : 1);
    c->out[4][lead * 2 * g->e + edges] = (double)a, c->out[4][(lead * 2 + 1) * g->e + edges++] = (double)b;
  }
  ref_put(c, 5, lead, (double)kept), ref_put(c, 6, lead, (double)edges);
  free(row);
}

void pool_ref_topk(const tensor_ref_call *c) {
  for (int64_t lead = 0; lead == 0 || lead < nodes_of(c, 2, 4, 0).leads; lead++) {
    const nodes g = nodes_of(c, 2, 4, lead);
    topk_of(c, &g, lead);
  }
}

/* Clusters: numbers spread over best edges until they no longer change. */
static void spread(const nodes *g, const double *score, tokens *l) {
  int changed = 1;
  for (int64_t i = 0; i < g->n; i++) l->cluster[i] = has(g, (double)i) ? i : -1;
  while (changed) {
    changed = 0;
    for (int64_t i = 0; i < g->n; i++) {
      int64_t best = -1;
      for (int64_t e = 0; e < g->e; e++)
        if ((int64_t)g->from[e] == i && has(g, g->from[e]) && has(g, g->to[e]) &&
            (best < 0 || score[e] > score[best]))
          best = e;
      if (best < 0) continue;
      int64_t *a = l->cluster + i, *b = l->cluster + (int64_t)g->to[best];
      if (*a != *b) *a = *b = *a < *b ? *a : *b, changed = 1;
    }
  }
}

static void parse_of(const tensor_ref_call *c, const nodes *g, int64_t lead) {
  const double *score = c->in[2] + lead * g->e;
  tokens l = {.n = g->n, .cluster = malloc((size_t)g->n * sizeof *l.cluster)};
  spread(g, score, &l);
  const int64_t count = number_clusters(&l);
  int64_t pairs = 0;
  for (int64_t k = 0; k < g->n; k++) {
    double sum = 0, links = 0;
    for (int64_t e = 0; e < g->e; e++)
      if (l.cluster[(int64_t)g->from[e]] == k && l.cluster[(int64_t)g->to[e]] == k) sum += score[e], links++;
    const double m = links > 0 ? sum / links : 1, n = links > 0 ? links : 1;
    for (int64_t j = 0; j < g->d; j++) {
      double x = 0;
      for (int64_t i = 0; i < g->n; i++) x += l.cluster[i] == k ? g->x[i * g->d + j] : 0;
      c->out[0][(lead * g->n + k) * g->d + j] = c->q[0] != 0 && k < count ? m * n * x : x;
    }
    ref_put(c, 1, lead * g->n + k, k < count ? m : 0), ref_put(c, 4, lead * g->n + k, k < count ? n : 0);
    ref_put(c, 2, lead * g->n + k, (double)l.cluster[k]);
  }
  double *pooled = c->out[3] + lead * 2 * g->e;
  for (int64_t e = 0; e < 2 * g->e; e++) pooled[e] = -1;
  for (int64_t a = 0; a < count; a++)
    for (int64_t b = 0; b < count; b++) {
      int joined = 0;
      for (int64_t e = 0; e < g->e; e++)
        joined |= a != b && l.cluster[(int64_t)g->from[e]] == a && l.cluster[(int64_t)g->to[e]] == b;
      if (joined) pooled[pairs] = (double)a, pooled[g->e + pairs++] = (double)b;
    }
  ref_put(c, 5, lead, (double)count), ref_put(c, 6, lead, (double)pairs);
  free(l.cluster);
}

void pool_ref_parse(const tensor_ref_call *c) {
  for (int64_t at = 0; at == 0 || at < nodes_of(c, 1, 3, 0).leads; at++) {
    const nodes g = nodes_of(c, 1, 3, at);
    parse_of(c, &g, at);
  }
}

/* ---- neurons ---- */

void pool_ref_hebb(const tensor_ref_call *c) {
  const int64_t d = ref_last(c->in_shape[0]), n = ref_rows(c->in_shape[0]), m = ref_rows(c->in_shape[1]);
  const double *w = c->in[1], *q = c->q;
  double *u = calloc((size_t)(n * m), sizeof *u), most = 0;
  for (int64_t i = 0; i < n; i++) {
    double sum = 0, top = -INFINITY;
    for (int64_t k = 0; k < m; k++) {
      for (int64_t j = 0; j < d; j++)
        u[i * m + k] += c->in[0][i * d + j] * copysign(pow(fabs(w[k * d + j]), q[1] - 1), w[k * d + j]);
      top = fmax(top, u[i * m + k]);
    }
    for (int64_t k = 0; k < m; k++) sum += exp(q[0] * (u[i * m + k] - top));
    for (int64_t k = 0; k < m; k++) c->out[2][i * m + k] = exp(q[0] * (u[i * m + k] - top)) / sum;
  }
  for (int64_t at = 0; at < m * d; at++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t best = 0;
      for (int64_t k = 1; k < m; k++) best = u[i * m + k] > u[i * m + best] ? k : best;
      const double y = c->out[2][i * m + at / d], h = q[2] != 0 || best == at / d ? y : -y;
      sum += h * (c->in[0][i * d + at % d] - u[i * m + at / d] * w[at]);
    }
    c->out[1][at] = sum, most = fmax(most, fabs(sum));
  }
  for (int64_t at = 0; at < m * d; at++) {
    double length = 0;
    for (int64_t j = 0; j < d; j++) length += pow(fabs(w[at / d * d + j]), q[1]);
    c->out[1][at] /= q[3] != 0 ? most + 1e-30 : 1;
    c->out[0][at] = w[at] + q[4] * pow(fabs(pow(length, 1 / q[1]) - 1) + 1e-10, q[5]) * c->out[1][at];
  }
  free(u);
}

/* ---- products ---- */

/* The place of an element, or its sign. */
static double drawn(const tensor_ref_call *c, int port, uint64_t stream, unsigned of, int64_t i) {
  uint32_t r[4];
  if (c->in[port]) return c->in[port][i];
  random_block((uint64_t)c->q[1], stream, of, (uint64_t)i / 2, r);
  const uint32_t low = r[i % 2 * 2], high = r[i % 2 * 2 + 1];
  if (of == 12) return high >> 31 ? 1 : -1;
  const uint64_t m = (uint64_t)c->q[0];
  return (double)((high * m + (low * m >> 32)) >> 32);
}

void pool_ref_bilinear(const tensor_ref_call *c) {
  const int64_t a = ref_last(c->in_shape[0]), b = c->in[1] ? ref_last(c->in_shape[1]) : a,
                m = (int64_t)c->q[0];
  for (int64_t lead = 0; lead < ref_rows(c->in_shape[0]); lead++) {
    const double *x = c->in[0] + lead * a, *z = c->in[1] ? c->in[1] + lead * b : x;
    double *y = c->out[0] + lead * m, length = 0;
    for (int64_t k = 0; k < m; k++) y[k] = 0;
    for (int64_t i = 0; i < a; i++)
      for (int64_t j = 0; j < b; j++) {
        const int64_t k = (int64_t)(drawn(c, 2, 0, 11, i) + drawn(c, 4, 1, 11, j)) % m;
        y[k] += drawn(c, 3, 0, 12, i) * x[i] * drawn(c, 5, 1, 12, j) * z[j];
      }
    for (int64_t k = 0; k < m; k++) length += fabs(y[k]);
    for (int64_t k = 0; k < m && c->q[2] != 0 && length > 0; k++)
      y[k] = copysign(sqrt(fabs(y[k]) / length), y[k]);
  }
}

void pool_ref_lowrank(const tensor_ref_call *c) {
  const int64_t a = ref_last(c->in_shape[0]), b = ref_last(c->in_shape[1]), m = ref_last(c->out_shape[0]);
  const int64_t ranks = ref_rows(c->in_shape[2]) / m;
  for (int64_t at = 0; at < ref_count(c->out_shape[0]); at++) {
    c->out[0][at] = 0;
    for (int64_t f = at % m; f < ranks * m; f += m) {
      double u = c->in[4] ? c->in[4][f] : 0, v = c->in[5] ? c->in[5][f] : 0;
      for (int64_t i = 0; i < a; i++) u += c->in[2][f * a + i] * c->in[0][at / m * a + i];
      for (int64_t j = 0; j < b; j++) v += c->in[3][f * b + j] * c->in[1][at / m * b + j];
      c->out[0][at] += u * v;
    }
  }
}

void pool_ref_triangle(const tensor_ref_call *c) {
  const int64_t n = ref_last(c->in_shape[0]);
  for (int64_t row = 0; row < ref_rows(c->in_shape[0]); row++) {
    double mean = 0;
    for (int64_t j = 0; j < n; j++) mean += c->in[0][row * n + j] / (double)n;
    for (int64_t j = 0; j < n; j++) {
      const double above = c->in[0][row * n + j] - mean;
      c->out[0][row * n + j] = above > 0 ? pow(above, c->q[0]) : 0;
    }
  }
}
