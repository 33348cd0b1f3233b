/* pool/functions_bilinear.c - compact_bilinear_pool: the products of all elements of two vectors,
 * sketched. Compact Bilinear Pooling (Gao, Beijbom, Zhang, Darrell 2016); Multimodal Compact
 * Bilinear Pooling (Fukui et al. 2016).
 *
 * A count sketch P_h = sum_{i: h_i = h} s_i x_i has few places with elements. The circular
 * convolution of two, y_k = sum_h P_h Q_{(k - h) mod m}, is formed of those places alone, in their
 * order: at most a b products, which is less than transforms of m numbers take until a b is many
 * times m. Gradient: dP_h = sum_k dy_k Q_{(k - h) mod m}, dx_i = s_i dP_{h_i}.
 *
 * The root: r = sgn(y) sqrt |y|, then r / |r|. It is the same of sketches times a number, which are
 * about 1 so. Its gradient at 0 is 0. */
#include "driver/merge_sort.h"
#include "functions_cluster.h"

enum { X, OTHER };                 /* inputs, as what is sketched */
enum { HASH = 2, SIGN, STEP = 2 }; /* tables of x, and those of other behind them */

/* How a vector is sketched: element i goes to place at[slot[i]], times sign[i]. */
typedef struct sketch {
  int64_t n, places;
  int64_t *slot, *at; /* at: rising */
  double *sign;
} sketch;

typedef struct bilinear {
  const tensor_call *c;
  int64_t size;
  bool root, twice; /* twice: x is the other vector too */
  sketch of[2];
  smx_scratch scratch;
} bilinear;

/* The memory of a row: elements, then values of the places, and their gradients; the product. */
typedef struct row {
  double *x[2], *p[2], *dp[2], *y, *g;
  double by[2]; /* what p was multiplied by */
} row;

/* ---- tables ---- */

static uint64_t word_of(const bilinear *b, int which, score_draw of, int64_t i) {
  uint64_t words[2];
  smx_isa_current()->f64.score->draw((uint64_t)tensor_param(b->c, "seed"), (uint64_t)which, of,
                                     (uint64_t)i / 2, words);
  return words[i % 2];
}

/* word * size / 2^64; size is below 2^32. */
static int64_t place_of(uint64_t word, int64_t size) {
  const uint64_t m = (uint64_t)size;
  return (int64_t)(((word >> 32) * m + ((word & UINT32_MAX) * m >> 32)) >> 32);
}

static bool is_smaller(const void *slots, int64_t a, int64_t b) {
  const int64_t *place = slots;
  return place[a] != place[b] ? place[a] < place[b] : a < b;
}

/* Tables that the caller gave, or drawn ones; elements of one place have one slot. */
static void take_tables(const bilinear *b, int which, sketch *s, int64_t *order, int64_t *spare) {
  const tensor_call *c = b->c;
  const int hash = HASH + STEP * which, sign = SIGN + STEP * which;
  for (int64_t i = 0; i < s->n; i++) {
    s->slot[i] = c->in.given[hash] ? *pool_whole_at(c->in.view + hash, i)
                                   : place_of(word_of(b, which, SCORE_DRAW_HASHES, i), b->size);
    s->sign[i] = word_of(b, which, SCORE_DRAW_HASH_SIGNS, i) >> 63 ? 1 : -1;
    order[i] = i;
  }
  if (c->in.given[sign]) tensor_load(c, c->in.view + sign, 0, s->n, s->sign);
  const int64_t *sorted = smx_merge_sort(order, spare, s->n, is_smaller, s->slot);
  s->places = 0;
  for (int64_t k = 0; k < s->n; k++) {
    const int64_t place = s->slot[sorted[k]];
    if (s->places == 0 || s->at[s->places - 1] != place) s->at[s->places++] = place;
  }
  for (int64_t k = 0, slot = 0; k < s->n; k++) { /* places become slots, in the same order */
    while (s->at[slot] != s->slot[sorted[k]]) slot++;
    s->slot[sorted[k]] = slot;
  }
}

/* ---- rows ---- */

static void sketch_row(const bilinear *b, int which, int64_t lead, row *r) {
  const sketch *s = b->of + which;
  const int port = b->twice ? X : which;
  tensor_load(b->c, b->c->in.view + port, lead * s->n, s->n, r->x[which]);
  for (int64_t k = 0; k < s->places; k++) r->p[which][k] = 0;
  double most = 0;
  for (int64_t i = 0; i < s->n; i++) {
    const double size = r->x[which][i] < 0 ? -r->x[which][i] : r->x[which][i];
    most = size > most ? size : most;
  }
  r->by[which] = b->root ? pool_power_of(most) : 1;
  for (int64_t i = 0; i < s->n; i++) r->p[which][s->slot[i]] += s->sign[i] * (r->by[which] * r->x[which][i]);
}

/* The place of a product. */
static int64_t sum_of(const bilinear *b, int64_t p, int64_t q) {
  return p < b->size - q ? p + q : p - (b->size - q);
}

static void convolve(const bilinear *b, const row *r) {
  const sketch *p = b->of, *q = b->of + 1;
  for (int64_t k = 0; k < b->size; k++) r->y[k] = 0;
  for (int64_t u = 0; u < p->places; u++)
    for (int64_t v = 0; v < q->places; v++) r->y[sum_of(b, p->at[u], q->at[v])] += r->p[0][u] * r->p[1][v];
}

/* y becomes its signed root; returns the length of that. */
static double take_root(const bilinear *b, double *y) {
  double sum = 0;
  for (int64_t k = 0; k < b->size; k++) {
    const double size = y[k] < 0 ? -y[k] : y[k], root = __builtin_sqrt(size);
    sum += size, y[k] = y[k] < 0 ? -root : root;
  }
  return __builtin_sqrt(sum);
}

static void divide_row(const bilinear *b, carver *c, row *r) {
  for (int w = 0; w < 2; w++) {
    const int64_t n = b->of[w].n;
    r->x[w] = carve(c, n, 1, 8), r->p[w] = carve(c, n, 1, 8), r->dp[w] = carve(c, n, 1, 8);
  }
  r->y = carve(c, b->size, 1, 8), r->g = carve(c, b->size, 1, 8);
}

static row take_row(bilinear *b, int64_t lead, void **place) {
  row r;
  carver c = {.base = *place = smx_scratch_take(&b->scratch), .fits = true};
  divide_row(b, &c, &r);
  for (int w = 0; w < 2; w++) sketch_row(b, w, lead, &r);
  if (!b->c->dout.given[0] || b->root) convolve(b, &r);
  return r;
}

static void forward_task(void *arg, int64_t lead) {
  bilinear *b = arg;
  void *place;
  const row r = take_row(b, lead, &place);
  const double length = b->root ? take_root(b, r.y) : 1;
  for (int64_t k = 0; k < b->size && length != 0; k++) r.y[k] /= length;
  tensor_store(b->c, b->c->out.view, lead * b->size, b->size, r.y);
  smx_scratch_give(&b->scratch, place);
}

/* The gradient of the products, from that of their roots. */
static void give_root(const bilinear *b, const row *r) {
  const double length = take_root(b, r->y);
  double along = 0;
  for (int64_t k = 0; k < b->size; k++) along += r->g[k] * r->y[k];
  for (int64_t k = 0; k < b->size; k++) {
    const double root = r->y[k] < 0 ? -r->y[k] : r->y[k];
    r->g[k] = root == 0 ? 0 : (r->g[k] - r->y[k] / length * (along / length)) / (2 * length * root);
  }
}

static void give_places(const bilinear *b, const row *r) {
  const sketch *p = b->of, *q = b->of + 1;
  for (int64_t v = 0; v < q->places; v++) r->dp[1][v] = 0;
  for (int64_t u = 0; u < p->places; u++) {
    double sum = 0;
    for (int64_t v = 0; v < q->places; v++) {
      const double g = r->g[sum_of(b, p->at[u], q->at[v])];
      sum += g * r->p[1][v], r->dp[1][v] += g * r->p[0][u];
    }
    r->dp[0][u] = sum;
  }
}

static void backward_task(void *arg, int64_t lead) {
  bilinear *b = arg;
  const tensor_call *c = b->c;
  void *place;
  const row r = take_row(b, lead, &place);
  tensor_load(c, c->dout.view, lead * b->size, b->size, r.g);
  if (b->root) give_root(b, &r);
  give_places(b, &r);
  for (int w = 0; w < 2; w++)
    for (int64_t i = 0; i < b->of[w].n; i++) {
      const double dx = b->of[w].sign[i] * (r.by[w] * r.dp[w][b->of[w].slot[i]]);
      r.x[w][i] = b->twice && w ? r.x[0][i] + dx : dx;
    }
  if (c->din.given[X]) tensor_store(c, c->din.view + X, lead * b->of[0].n, b->of[0].n, r.x[b->twice ? 1 : 0]);
  if (c->din.given[OTHER]) tensor_store(c, c->din.view + OTHER, lead * b->of[1].n, b->of[1].n, r.x[1]);
  smx_scratch_give(&b->scratch, place);
}

/* ---- calls ---- */

static void divide_shared(bilinear *b, carver *c, int64_t **order, int64_t **spare) {
  const int64_t most = b->of[0].n > b->of[1].n ? b->of[0].n : b->of[1].n;
  for (int w = 0; w < 2; w++) {
    sketch *s = b->of + w;
    s->slot = carve(c, s->n, 1, 8), s->at = carve(c, s->n, 1, 8), s->sign = carve(c, s->n, 1, 8);
  }
  *order = carve(c, most, 1, 8), *spare = carve(c, most, 1, 8);
}

static smx_status run(const tensor_call *c, void (*task)(void *arg, int64_t lead)) {
  bilinear b = {.c = c, .size = tensor_dim(c, "size"), .root = tensor_param(c, "normalise") != 0};
  carver place = {.fits = true}, shared = {.fits = true};
  int64_t *order, *spare;
  row none;
  b.twice = !c->in.given[OTHER];
  b.of[0].n = tensor_dim(c, "a"), b.of[1].n = tensor_dim(c, "b");
  if (b.twice && b.of[0].n != b.of[1].n)
    return smx_fail(SMX_ERR_SHAPE, "%s: tables are of %lld elements, and x, which is other too, has %lld",
                    c->op->name, (long long)b.of[1].n, (long long)b.of[0].n);
  divide_row(&b, &place, &none), divide_shared(&b, &shared, &order, &spare);
  if (!place.fits || !shared.fits ||
      !smx_scratch_open(&b.scratch, c->ctx, (size_t)shared.at, (size_t)place.at, c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld products", c->op->name, (long long)b.size);
  shared = (carver){.base = b.scratch.shared, .fits = true};
  divide_shared(&b, &shared, &order, &spare);
  for (int w = 0; w < 2; w++) take_tables(&b, w, b.of + w, order, spare);
  smx_parallel(c->ctx, c->dims.lead_count, task, &b);
  smx_scratch_close(&b.scratch);
  return SMX_OK;
}

/* Without another vector x is that. */
smx_status pool_bilinear_sizes(dims *d) {
  if (dims_value(d, "b", 0) < 0) dims_set(d, "b", 0, dims_value(d, "a", 0));
  return SMX_OK;
}
smx_status pool_bilinear(const tensor_call *c) { return run(c, forward_task); }
smx_status pool_bilinear_backward(const tensor_call *c) { return run(c, backward_task); }
