/* states.c - proves linear_attention on the worked examples of the catalogue of papers, that its
 * bits do not depend on how tokens are cut into calls, on threads and instruction sets, that its
 * gradients are differences over several chunks, and that hidden keys change nothing. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { IN = 7, OUT = 2 };

/* A call: q [heads, queries, d], k, v of `groups` heads. */
typedef struct call_of {
  const char *map, *norm;
  int causal, decay; /* decay: 0 none, 1 of a head, 2 of each element */
  bool beta, past, mask;
  int64_t heads, groups, queries, keys, d, e;
} call_of;

/* Its tensors; `in` and `out` in the order of the operator. */
typedef struct made_call {
  smx_params params;
  int64_t shape[IN + OUT][3];
  double *x[IN + OUT];
  smx_tensor t[IN + OUT];
  const smx_tensor *given[IN], *out[OUT];
} made_call;

static const smx_op *op(void) { return smx_op_find("linear_attention"); }
static int64_t count_of(const smx_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
  return n;
}

static void set(smx_params *p, const char *name, const char *value) {
  good(smx_params_parse(op(), p, name, value));
}

static void make(const call_of *c, rng *r, made_call *m) {
  const bool norm = strcmp(c->norm, "none") != 0,
             there[] = {true, true, true, c->decay > 0, c->beta, c->past, c->mask};
  const int64_t g = c->groups, rows = c->d + norm, columns = c->e + norm;
  const int64_t shapes[][3] = {{c->heads, c->queries, c->d},
                               {g, c->keys, c->d},
                               {g, c->keys, c->e},
                               {g, c->keys, c->decay == 2 ? c->d : 1},
                               {g, c->keys},
                               {g, rows, columns},
                               {c->keys},
                               {c->heads, c->queries, c->e},
                               {g, rows, columns}};
  static const int ndim[] = {3, 3, 3, 3, 2, 3, 1, 3, 3};
  memset(m, 0, sizeof *m);
  smx_params_init(op(), &m->params);
  set(&m->params, "map", c->map), set(&m->params, "norm", c->norm),
      set(&m->params, "causal", c->causal ? "yes" : "no");
  for (int i = 0; i < IN + OUT; i++) {
    memcpy(m->shape[i], shapes[i], sizeof shapes[i]);
    m->t[i] = F64(NULL, ndim[i], m->shape[i]);
    const int64_t n = count_of(m->t + i);
    m->t[i].data = m->x[i] = calloc((size_t)n + 1, sizeof(double));
    for (int64_t j = 0; j < n && i < IN; j++) m->x[i][j] = i == 4 ? rng_uniform(r) : rng_normal(r) / 2;
    for (int64_t j = 0; j < n && i == 3; j++) m->x[i][j] = -fabs(m->x[i][j]) / 4;
    for (int64_t j = 0; j < n && i == 6; j++) m->x[i][j] = rng_below(r, 4) != 0;
    if (i >= IN) m->out[i - IN] = m->t + i;
    else if (there[i]) m->given[i] = m->t + i;
  }
}
static void drop(made_call *m) {
  for (int i = 0; i < IN + OUT; i++) free(m->x[i]);
}
/* A mask is bytes. */
static void run_with(made_call *m, smx_context *ctx) {
  unsigned char *mask = calloc((size_t)m->shape[6][0] + 1, 1);
  for (int64_t j = 0; j < m->shape[6][0]; j++) mask[j] = m->x[6][j] != 0;
  m->t[6].dtype = SMX_U8, m->t[6].data = mask;
  good(smx_forward(op(), ctx, &m->params, IN, m->given, OUT, m->out));
  m->t[6].data = NULL;
  free(mask);
}

/* ---- worked examples ---- */

static void the_four_rules(void **state) {
  static const struct {
    bool decay, beta;
    double y[2], left[2];
  } rules[] = {{false, false, {2, 2.2}, {2.6, .8}},
               {true, false, {2, 1.6}, {1.6, .8}},
               {false, true, {1, .8}, {1.12, .16}},
               {true, true, {1, .65}, {.71, .28}}};
  double k[] = {1, 0, .6, .8}, v[] = {2, 1}, decay[] = {0, -0.69314718055994530942}, beta[] = {.5, .5}, y[2],
         left[2];
  int64_t keys[] = {1, 2, 2}, values[] = {1, 2, 1}, rates[] = {1, 2}, rest[] = {1, 2, 1};
  const smx_tensor tk = F64(k, 3, keys), tv = F64(v, 3, values), ta = F64(decay, 3, values),
                   tb = F64(beta, 2, rates), ty = F64(y, 3, values), ts = F64(left, 3, rest);
  for (size_t i = 0; i < COUNT_OF(rules); i++) {
    smx_params p;
    smx_params_init(op(), &p);
    set(&p, "scale", "1");
    good(smx_forward(
        op(), NULL, &p, 5,
        (const smx_tensor *[]){&tk, &tk, &tv, rules[i].decay ? &ta : NULL, rules[i].beta ? &tb : NULL}, 2,
        (const smx_tensor *[]){&ty, &ts}));
    near(y, rules[i].y, 2, 1e-15), near(left, rules[i].left, 2, 1e-15);
  }
}

/* One query (1, 1/2), keys (1, 0), (0, 1), (-1, 1), values (1, 0), (0, 1), (1, 1). */
static void the_norms(void **state) {
  static const struct {
    const char *map, *norm, *eps;
    double y[2];
  } all[] = {{"elu1", "sum", "0", {.648771797744, .613648977518}},
             {"elu1", "mala", "1e-6", {.588727151419, .435753211463}},
             {"identity", "inline", "0", {.627382956601, .509531826403}},
             {"identity", "count", "0", {0.117851130198, 0}}};
  double q[] = {1, .5}, k[] = {1, 0, 0, 1, -1, 1}, v[] = {1, 0, 0, 1, 1, 1}, y[2], left[9];
  int64_t one[] = {1, 1, 2}, three[] = {1, 3, 2}, rest[] = {1, 3, 3};
  const smx_tensor tq = F64(q, 3, one), tk = F64(k, 3, three), tv = F64(v, 3, three), ty = F64(y, 3, one),
                   ts = F64(left, 3, rest);
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    smx_params p;
    smx_params_init(op(), &p);
    set(&p, "causal", "no"), set(&p, "map", all[i].map), set(&p, "norm", all[i].norm),
        set(&p, "eps", all[i].eps);
    good(smx_forward(op(), NULL, &p, 3, (const smx_tensor *[]){&tq, &tk, &tv}, 2,
                     (const smx_tensor *[]){&ty, &ts}));
    near(y, all[i].y, 2, 2e-12);
  }
}

/* ---- many tokens ---- */

static const call_of calls[] = {
    {"identity", "none", 1, 0, false, true, true, 4, 2, 150, 150, 5, 17},
    {"silu", "none", 1, 1, false, true, true, 2, 1, 131, 131, 18, 3},
    {"identity", "none", 1, 2, false, true, false, 2, 2, 97, 97, 4, 16},
    {"identity", "none", 1, 0, true, true, true, 2, 2, 70, 70, 3, 5},
    {"identity", "none", 1, 2, true, true, true, 4, 2, 75, 75, 3, 16},
    {"elu1", "sum", 1, 1, false, true, true, 2, 1, 140, 140, 6, 7},
    {"relu2", "count", 1, 0, false, false, true, 2, 1, 80, 80, 6, 7},
    {"elu1", "mala", 1, 0, false, true, false, 2, 2, 90, 90, 6, 7},
    {"exp", "inline", 1, 0, false, true, true, 1, 1, 90, 90, 6, 7},
    {"elu1", "sum", 0, 0, false, true, true, 4, 2, 67, 150, 6, 7},
    {"elu1", "mala", 0, 0, false, false, true, 2, 2, 80, 33, 5, 6},
    /* whole vectors of values, whose norm the kernel keeps apart */
    {"elu1", "sum", 1, 0, false, true, true, 2, 1, 140, 140, 5, 16},
    {"elu1", "sum", 1, 0, false, false, true, 2, 2, 53, 53, 70, 80},
    {"relu", "sum", 1, 0, false, true, false, 1, 1, 20, 20, 0, 16},
    /* an odd number of the vectors of a panel */
    {"identity", "none", 1, 2, false, true, true, 1, 1, 45, 45, 140, 48},
    {"identity", "none", 1, 1, true, true, false, 1, 1, 40, 40, 70, 32},
};
#define EACH_CALL(c) for (const call_of *c = calls; c < calls + COUNT_OF(calls); c++)

/* Tokens first..end - 1 of a call in f32, its state in and out. */
static void run_part(const made_call *m, float *const *x, int64_t first, int64_t end, float *past,
                     float *state, float *y) {
  smx_tensor t[IN + OUT];
  int64_t shape[IN + OUT][3];
  const smx_tensor *given[IN] = {NULL};
  for (int i = 0; i < IN + OUT; i++) {
    static const int axis[] = {1, 1, 1, 1, 1, -1, 0, 1, -1};
    memcpy(shape[i], m->shape[i], sizeof shape[i]);
    t[i] = m->t[i], t[i].dtype = i == 6 ? SMX_U8 : SMX_F32, t[i].shape = shape[i];
    t[i].data = i == 5 ? past : i == 7 ? y : i == 8 ? state : x[i];
    if (axis[i] >= 0) {
      const int64_t width = t[i].ndim == 3 ? shape[i][2] : 1, size = i == 6 ? 1 : 4;
      int64_t *strides = calloc(3, sizeof *strides);
      strides[0] = t[i].ndim == 1 ? 1 : shape[i][1] * width, strides[1] = width, strides[2] = 1;
      shape[i][axis[i]] = end - first, t[i].strides = strides;
      t[i].data = (char *)t[i].data + first * width * size;
    }
    if (i < IN && (m->given[i] || (i == 5 && past))) given[i] = t + i;
  }
  good(smx_forward(op(), NULL, &m->params, IN, given, OUT, (const smx_tensor *[]){t + 7, t + 8}));
  for (int i = 0; i < IN + OUT; i++)
    if (i != 5 && i != 8) free(t[i].strides);
}

static void the_same_bits_in_parts(void **state) {
  EACH_CALL(c) {
    if (!c->causal) continue;
    made_call m;
    float *x[IN + OUT], *y[3], *left[3];
    make(c, &(rng){7}, &m);
    for (int i = 0; i < IN + OUT; i++) {
      const int64_t n = count_of(m.t + i);
      x[i] = calloc((size_t)n + 1, sizeof(float));
      for (int64_t j = 0; j < n; j++)
        if (i == 6) ((unsigned char *)x[i])[j] = m.x[i][j] != 0;
        else x[i][j] = (float)m.x[i][j];
    }
    const int64_t steps[] = {c->keys, 1, 37}, ny = count_of(m.t + 7), ns = count_of(m.t + 8);
    for (int how = 0; how < 3; how++) {
      y[how] = calloc((size_t)ny + 1, sizeof(float)), left[how] = calloc((size_t)ns + 1, sizeof(float));
      float *past = calloc((size_t)ns + 1, sizeof(float));
      if (c->past) memcpy(past, x[5], (size_t)ns * sizeof(float));
      for (int64_t first = 0; first < c->keys; first += steps[how]) {
        const int64_t end = first + steps[how] < c->keys ? first + steps[how] : c->keys;
        run_part(&m, x, first, end, past, left[how], y[how]);
        memcpy(past, left[how], (size_t)ns * sizeof(float));
      }
      free(past);
      if (memcmp(y[how], y[0], (size_t)ny * sizeof(float)) ||
          memcmp(left[how], left[0], (size_t)ns * sizeof(float)))
        fail_msg("%s %s, decay %d, beta %d: other bits in parts of %d", c->map, c->norm, c->decay, c->beta,
                 (int)steps[how]);
    }
    for (int how = 0; how < 3; how++) free(y[how]), free(left[how]);
    for (int i = 0; i < IN + OUT; i++) free(x[i]);
    drop(&m);
  }
}

/* The same in the range of subnormal numbers, which fading states come to: keys and values of
 * 1e-19, queries of 1e6. */
static void faint_states_in_parts(void **state) {
  enum { TOKENS = 60, D = 4, E = 16 };
  static float q[TOKENS * D], k[TOKENS * D], v[TOKENS * E], decay[TOKENS], beta[TOKENS], y[2][TOKENS * E],
      left[2][D * E], past[D * E];
  rng r = {31};
  for (int i = 0; i < TOKENS * D; i++)
    q[i] = (float)rng_normal(&r) * 1e6F, k[i] = (float)rng_normal(&r) * 1e-19F;
  for (int i = 0; i < TOKENS * E; i++) v[i] = (float)rng_normal(&r) * 1e-19F;
  for (int i = 0; i < TOKENS; i++) decay[i] = -0.5F, beta[i] = 0.5F;
  for (int delta = 0; delta < 2; delta++)
    for (int how = 0; how < 2; how++) {
      memset(past, 0, sizeof past);
      for (int64_t t = 0, n = how ? 1 : TOKENS; t < TOKENS; t += n) {
        int64_t of_d[] = {1, n, D}, of_e[] = {1, n, E}, one[] = {1, n, 1}, rates[] = {1, n},
                rest[] = {1, D, E};
        const smx_tensor in[] = {tensor(q + t * D, SMX_F32, 3, of_d), tensor(k + t * D, SMX_F32, 3, of_d),
                                 tensor(v + t * E, SMX_F32, 3, of_e), tensor(decay + t, SMX_F32, 3, one),
                                 tensor(beta + t, SMX_F32, 2, rates), tensor(past, SMX_F32, 3, rest)},
                         out[] = {tensor(y[how] + t * E, SMX_F32, 3, of_e),
                                  tensor(left[how], SMX_F32, 3, rest)};
        good(smx_forward(op(), NULL, NULL, 6,
                         (const smx_tensor *[]){in, in + 1, in + 2, in + 3, delta ? in + 4 : NULL, in + 5}, 2,
                         (const smx_tensor *[]){out, out + 1}));
        memcpy(past, left[how], sizeof past);
      }
    }
  assert_memory_equal(y[1], y[0], sizeof y[0]);
  assert_memory_equal(left[1], left[0], sizeof left[0]);
  assert_true(y[0][0] != 0 && fabsf(left[0][0]) < FLT_MIN);
}

/* One token of so many heads that streaming stores write their states, against each head alone. A
 * NaN in a state is the canonical one. */
static void states_by_streaming_stores(void **state) {
  enum { HEADS = 150, D = 128 };
  const int64_t all = HEADS * D * D;
  float *past = malloc((size_t)all * sizeof *past), *left = aligned_alloc(64, (size_t)all * sizeof *left);
  static float q[HEADS * D], k[HEADS * D], v[HEADS * D], y[HEADS * D], alone[D * D], row[D];
  rng r = {37};
  for (int i = 0; i < HEADS * D; i++)
    q[i] = (float)rng_normal(&r), k[i] = (float)rng_normal(&r), v[i] = (float)rng_normal(&r);
  for (int64_t i = 0; i < all; i++) past[i] = (float)rng_normal(&r);
  const unsigned odd = 0xffc12345;
  memcpy(past + 5, &odd, sizeof odd);
  for (int single = 0; single < 2; single++) {
    const int64_t n = single ? 1 : HEADS;
    for (int64_t at = 0; at < HEADS; at += n) {
      int64_t rows[] = {n, 1, D}, squares[] = {n, D, D};
      const bool whole = n == HEADS;
      const smx_tensor tq = tensor(q + at * D, SMX_F32, 3, rows), tk = tensor(k + at * D, SMX_F32, 3, rows),
                       tv = tensor(v + at * D, SMX_F32, 3, rows),
                       tp = tensor(past + at * D * D, SMX_F32, 3, squares),
                       ty = tensor(whole ? y : row, SMX_F32, 3, rows),
                       ts = tensor(whole ? left : alone, SMX_F32, 3, squares);
      good(smx_forward(op(), NULL, NULL, 6, (const smx_tensor *[]){&tq, &tk, &tv, NULL, NULL, &tp}, 2,
                       (const smx_tensor *[]){&ty, &ts}));
      if (whole) continue;
      assert_memory_equal(row, y + at * D, sizeof row);
      assert_memory_equal(alone, left + at * D * D, sizeof alone);
    }
  }
  const float canonical = NAN;
  assert_memory_equal(left + 5, &canonical, sizeof canonical);
  free(past), free(left);
}

static void the_same_bits_every_way(void **state) {
  EACH_CALL(c) {
    made_call m;
    make(c, &(rng){3}, &m);
    uint64_t hash = 0;
    for (way w = {0}; next_way(&w);) {
      run_with(&m, w.ctx);
      uint64_t is = FNV1A_START;
      for (int o = IN; o < IN + OUT; o++) is = fnv1a(is, m.x[o], (size_t)count_of(m.t + o) * sizeof(double));
      if (w.number == 1) hash = is;
      assert_true(is == hash);
    }
    drop(&m);
  }
}

/* ---- gradients: along a random direction of one input, the difference of sum dy y + sum ds
 * state ---- */

static double objective(made_call *m, double *const *upstream) {
  double sum = 0;
  run_with(m, NULL);
  for (int o = 0; o < OUT; o++)
    for (int64_t j = 0; j < count_of(m->t + IN + o); j++) sum += upstream[o][j] * m->x[IN + o][j];
  return sum;
}

static double difference(made_call *m, int input, const double *direction, double *const *upstream) {
  static const double places[] = {1, -1, 2, -2}, weights[] = {8, -8, -1, 1};
  const double h = 1e-4;
  const int64_t n = count_of(m->t + input);
  double sum = 0, *kept = malloc((size_t)(n + 1) * sizeof *kept);
  memcpy(kept, m->x[input], (size_t)n * sizeof *kept);
  for (int i = 0; i < 4; i++) {
    for (int64_t j = 0; j < n; j++) m->x[input][j] = kept[j] + places[i] * h * direction[j];
    sum += weights[i] * objective(m, upstream);
  }
  memcpy(m->x[input], kept, (size_t)n * sizeof *kept);
  free(kept);
  return sum / (12 * h);
}

static void backward(made_call *m, double *const *upstream, double **grad) {
  smx_tensor g[IN], d[OUT];
  const smx_tensor *gs[IN] = {NULL}, *ds[] = {d, d + 1};
  for (int i = 0; i < IN; i++) {
    g[i] = m->t[i], g[i].data = grad[i] = calloc((size_t)count_of(m->t + i) + 1, sizeof(double));
    if (m->given[i] && i < 6) gs[i] = g + i;
  }
  for (int o = 0; o < OUT; o++) d[o] = m->t[IN + o], d[o].data = upstream[o];
  unsigned char *mask = calloc((size_t)m->shape[6][0] + 1, 1);
  for (int64_t j = 0; j < m->shape[6][0]; j++) mask[j] = m->x[6][j] != 0;
  m->t[6].dtype = SMX_U8, m->t[6].data = mask;
  good(smx_backward(op(), NULL, &m->params, IN, m->given, OUT, m->out, ds, gs));
  free(mask);
}

static void gradients_are_differences(void **state) {
  EACH_CALL(c) {
    made_call m;
    rng r = {11};
    double *upstream[OUT], *grad[IN];
    make(c, &r, &m);
    for (int o = 0; o < OUT; o++) {
      upstream[o] = malloc((size_t)(count_of(m.t + IN + o) + 1) * sizeof(double));
      for (int64_t j = 0; j < count_of(m.t + IN + o); j++) upstream[o][j] = rng_normal(&r);
    }
    run_with(&m, NULL);
    backward(&m, upstream, grad);
    for (int i = 0; i < 6; i++) {
      if (!m.given[i]) continue;
      const int64_t n = count_of(m.t + i);
      double *direction = malloc((size_t)(n + 1) * sizeof *direction), is = 0;
      for (int64_t j = 0; j < n; j++) direction[j] = rng_normal(&r), is += direction[j] * grad[i][j];
      const double want = difference(&m, i, direction, upstream);
      if (!(fabs(is - want) <= 1e-6 * (1 + fabs(want))))
        fail_msg("%s %s, decay %d, beta %d: along input %d %.12g, not %.12g", c->map, c->norm, c->decay,
                 c->beta, i, is, want);
      free(direction);
    }
    for (int o = 0; o < OUT; o++) free(upstream[o]);
    for (int i = 0; i < IN; i++) free(grad[i]);
    drop(&m);
  }
}

/* ---- slots ---- */

/* Tokens first..end - 1 of a call with 2 items, its states in and out. */
static void slots_part(float *const *x, int64_t first, int64_t end, float *const *past, float *const *state,
                       float *y) {
  enum { TOKENS = 70, D = 5, E = 17, SLOTS = 3 };
  static const int64_t width[] = {D, D, E, SLOTS, E};
  const smx_op *slots = smx_op_find("gated_slot_attention");
  int64_t shape[5][3], strides[5][3], states[2][3] = {{2, SLOTS, D}, {2, SLOTS, E}};
  smx_tensor t[5], before[2], behind[2];
  for (int i = 0; i < 5; i++) {
    const int64_t of[] = {2, end - first, width[i]}, by[] = {TOKENS * width[i], width[i], 1};
    memcpy(shape[i], of, sizeof of), memcpy(strides[i], by, sizeof by);
    t[i] = tensor((i < 4 ? x[i] : y) + first * width[i], SMX_F32, 3, shape[i]), t[i].strides = strides[i];
  }
  for (int i = 0; i < 2; i++)
    before[i] = tensor(past[i], SMX_F32, 3, states[i]), behind[i] = tensor(state[i], SMX_F32, 3, states[i]);
  good(smx_forward(slots, NULL, NULL, 6, (const smx_tensor *[]){t, t + 1, t + 2, t + 3, before, before + 1},
                   4, (const smx_tensor *[]){t + 4, behind, behind + 1, NULL}));
}

static void slots_in_parts(void **state) {
  static float q[700], k[700], v[2380], decay[420], keys[2][30], values[2][102], y[3][2380], end[3][132];
  float *const x[] = {q, k, v, decay}, *const all[] = {keys[0], values[0], keys[1], values[1]};
  const int steps[] = {70, 1, 37};
  rng r = {23};
  for (int i = 0; i < 700; i++) q[i] = (float)rng_normal(&r), k[i] = (float)rng_normal(&r);
  for (int i = 0; i < 2380; i++) v[i] = (float)rng_normal(&r);
  for (int i = 0; i < 420; i++) decay[i] = -(float)fabs(rng_normal(&r)) / 4;
  for (int how = 0; how < 3; how++) {
    memset(keys, 0, sizeof keys), memset(values, 0, sizeof values);
    for (int first = 0; first < 70; first += steps[how]) {
      slots_part(x, first, first + steps[how] < 70 ? first + steps[how] : 70, all, all + 2, y[how]);
      memcpy(keys[0], keys[1], sizeof keys[0]), memcpy(values[0], values[1], sizeof values[0]);
    }
    memcpy(end[how], keys[0], sizeof keys[0]), memcpy(end[how] + 30, values[0], sizeof values[0]);
    assert_memory_equal(y[how], y[0], sizeof y[0]);
    assert_memory_equal(end[how], end[0], sizeof end[0]);
  }
}

/* Of one slot that keeps half: keys 1, 2 and values 10, 20 leave 1.25 and 12.5. */
static void one_slot(void **state) {
  double q[] = {1, 1}, k[] = {1, 2}, v[] = {10, 20},
         decay[] = {-0.69314718055994530942, -0.69314718055994530942}, y[2], left[2], lse[2];
  int64_t two[] = {2, 1}, one[] = {1, 1};
  const smx_tensor tq = F64(q, 2, two), tk = F64(k, 2, two), tv = F64(v, 2, two), ta = F64(decay, 2, two),
                   ty = F64(y, 2, two), ts = F64(left, 2, one), tz = F64(left + 1, 2, one),
                   tl = F64(lse, 1, two);
  good(smx_forward(smx_op_find("gated_slot_attention"), NULL, NULL, 4,
                   (const smx_tensor *[]){&tq, &tk, &tv, &ta}, 4,
                   (const smx_tensor *[]){&ty, &ts, &tz, &tl}));
  near(y, (double[]){5, 12.5}, 2, 1e-14), near(left, (double[]){1.25, 12.5}, 2, 1e-14);
  near(lse, (double[]){.5, 1.25}, 2, 1e-15);
  q[1] = HUGE_VAL; /* a logit of +inf: NaN, in y and in lse */
  good(smx_forward(smx_op_find("gated_slot_attention"), NULL, NULL, 4,
                   (const smx_tensor *[]){&tq, &tk, &tv, &ta}, 4,
                   (const smx_tensor *[]){&ty, &ts, &tz, &tl}));
  assert_true(y[0] == 5 && isnan(y[1]) && lse[0] == .5 && isnan(lse[1]));
}

/* Of one key, y is v times (k q) b / (b |k|^2 + ridge); and tokens one by one leave the state
 * of all at once. */
static void least_squares(void **state) {
  enum { TOKENS = 40, D = 3, E = 2 };
  const smx_op *mesa = smx_op_find("mesa_attention");
  float q[TOKENS * D], k[TOKENS * D], v[TOKENS * E], y[2][TOKENS * E], h[2][D * D], c[2][D * E],
      ridges[] = {.5F, .5F, .5F};
  double one[] = {2}, two[] = {3}, ten[] = {10}, ridge[] = {.25}, b[] = {.5}, got[3];
  int64_t of_d[] = {TOKENS, D}, of_e[] = {TOKENS, E}, square[] = {D, D}, product[] = {D, E}, width = D,
          unit[] = {1, 1};
  const smx_tensor t1 = F64(one, 2, unit), t2 = F64(two, 2, unit), t3 = F64(ten, 2, unit),
                   t4 = F64(ridge, 1, unit), t5 = F64(b, 1, unit), o1 = F64(got, 2, unit),
                   o2 = F64(got + 1, 2, unit), o3 = F64(got + 2, 2, unit);
  rng r = {29};
  good(smx_forward(mesa, NULL, NULL, 6, (const smx_tensor *[]){&t1, &t2, &t3, &t4, NULL, &t5}, 3,
                   (const smx_tensor *[]){&o1, &o2, &o3}));
  near(got, (double[]){10. * 6 * .5 / (.5 * 9 + .25), 4.5, 15}, 3, 1e-14);
  for (int i = 0; i < TOKENS * D; i++) q[i] = (float)rng_normal(&r), k[i] = (float)rng_normal(&r);
  for (int i = 0; i < TOKENS * E; i++) v[i] = (float)rng_normal(&r);
  for (int how = 0; how < 2; how++)
    for (int64_t first = 0; first < TOKENS; first += of_d[0]) {
      of_d[0] = of_e[0] = how == 0 ? TOKENS : 1;
      const smx_tensor tq = tensor(q + first * D, SMX_F32, 2, of_d),
                       tk = tensor(k + first * D, SMX_F32, 2, of_d),
                       tv = tensor(v + first * E, SMX_F32, 2, of_e), tl = tensor(ridges, SMX_F32, 1, &width),
                       ty = tensor(y[how] + first * E, SMX_F32, 2, of_e),
                       th = tensor(h[how], SMX_F32, 2, square), tc = tensor(c[how], SMX_F32, 2, product);
      float past[D * D + D * E];
      memcpy(past, h[how], sizeof h[how]), memcpy(past + D * D, c[how], sizeof c[how]);
      const smx_tensor ph = tensor(past, SMX_F32, 2, square), pc = tensor(past + D * D, SMX_F32, 2, product);
      good(smx_forward(
          mesa, NULL, NULL, 8,
          (const smx_tensor *[]){&tq, &tk, &tv, &tl, NULL, NULL, first ? &ph : NULL, first ? &pc : NULL}, 3,
          (const smx_tensor *[]){&ty, &th, &tc}));
    }
  assert_memory_equal(y[0], y[1], sizeof y[0]);
  assert_memory_equal(h[0], h[1], sizeof h[0]), assert_memory_equal(c[0], c[1], sizeof c[0]);
}

/* ---- random features ---- */

enum { ROWS = 70, WIDE = 6, MANY = 15 };

static void performer(const char *shift, const char *map, const double *x, const double *dy, double *y,
                      double *dx) {
  const smx_op *features = smx_op_find("performer_features");
  int64_t of_x[] = {ROWS, WIDE}, of_y[] = {ROWS, MANY};
  const smx_tensor tx = F64((double *)(uintptr_t)x, 2, of_x), ty = F64(y, 2, of_y), tdx = F64(dx, 2, of_x),
                   tdy = F64((double *)(uintptr_t)dy, 2, of_y);
  smx_params p;
  smx_params_init(features, &p);
  good(smx_params_parse(features, &p, "shift", shift)), good(smx_params_parse(features, &p, "map", map));
  good(smx_params_set(features, &p, "features", MANY)), good(smx_params_set(features, &p, "eps", 0));
  good(smx_forward(features, NULL, &p, 2, (const smx_tensor *[]){&tx, NULL}, 1, (const smx_tensor *[]){&ty}));
  if (dx)
    good(smx_backward(features, NULL, &p, 2, (const smx_tensor *[]){&tx, NULL}, 1,
                      (const smx_tensor *[]){&ty}, (const smx_tensor *[]){&tdy},
                      (const smx_tensor *[]){&tdx, NULL}));
}

/* A shift divides the features of a row by a number, which has no gradient. */
static void a_shift_is_a_factor(void **state) {
  static double x[ROWS * WIDE], y[2][ROWS * MANY], dy[2][ROWS * MANY], dx[2][ROWS * WIDE];
  rng r = {17};
  for (int i = 0; i < ROWS * WIDE; i++) x[i] = rng_normal(&r);
  for (int i = 0; i < ROWS * MANY; i++) dy[1][i] = rng_normal(&r);
  for (int all = 0; all < 2; all++) {
    performer(all ? "all" : "row", "exp", x, dy[1], y[1], dx[1]);
    performer("none", "exp", x, dy[1], y[0], NULL);
    for (int i = 0; i < ROWS * MANY; i++) {
      const double factor = y[1][i - i % MANY] / y[0][i - i % MANY];
      dy[0][i] = dy[1][i] * factor;
      assert_true(fabs(y[1][i] - factor * y[0][i]) <= 1e-13 * y[1][i]);
      assert_true(y[1][i] <= 1 / sqrt(MANY));
    }
    performer("none", "exp", x, dy[0], y[0], dx[0]);
    near(dx[1], dx[0], ROWS * WIDE, 1e-12);
  }
}

/* Rows of omega, from the features of unit vectors, are orthogonal in blocks of d. */
static void directions_are_orthogonal(void **state) {
  static double x[ROWS * WIDE], omega[ROWS * MANY];
  for (int i = 0; i < WIDE; i++) x[i * WIDE + i] = sqrt(sqrt(WIDE));
  performer("none", "none", x, NULL, omega, NULL);
  for (int a = 0; a < MANY; a++)
    for (int b = 0; b < MANY; b++) {
      double dot = 0;
      for (int i = 0; i < WIDE; i++) dot += omega[i * MANY + a] * omega[i * MANY + b];
      if (a == b) assert_true(dot > 0.1 && dot < 40);
      else if (a / WIDE == b / WIDE) assert_true(fabs(dot) < 1e-14);
    }
}

/* ---- what is hidden or wrong ---- */

static void hidden_keys_change_nothing(void **state) {
  EACH_CALL(c) {
    if (!c->mask) continue;
    made_call a, b;
    make(c, &(rng){5}, &a), make(c, &(rng){5}, &b);
    static const int inputs[] = {1, 2, 3, 4};
    for (int64_t t = 0; t < c->keys; t++)
      for (int64_t g = 0; g < c->groups && b.x[6][t] == 0; g++)
        for (size_t i = 0; i < COUNT_OF(inputs); i++) {
          const int in = inputs[i];
          const int64_t width = b.t[in].ndim == 3 ? b.shape[in][2] : 1;
          for (int64_t j = 0; j < width; j++) b.x[in][(g * c->keys + t) * width + j] = NAN;
        }
    run_with(&a, NULL), run_with(&b, NULL);
    for (int o = IN; o < IN + OUT; o++)
      assert_memory_equal(a.x[o], b.x[o], (size_t)count_of(a.t + o) * sizeof(double));
    drop(&a), drop(&b);
  }
}

static void refused_call(const call_of *c, smx_status status, const char *text) {
  made_call m;
  make(c, &(rng){1}, &m);
  refused(smx_forward(op(), NULL, &m.params, IN, m.given, OUT, m.out), status, text);
  drop(&m);
}

static void wrong_calls(void **state) {
  refused_call(&(call_of){"identity", "none", 1, 0, false, false, false, 3, 2, 4, 4, 2, 2}, SMX_ERR_SHAPE,
               "q has 3 heads, which is no multiple of the 2 of k");
  refused_call(&(call_of){"identity", "none", 1, 0, false, false, false, 2, 2, 4, 5, 2, 2}, SMX_ERR_SHAPE,
               "causal: q has 4 tokens, k has 5");
  refused_call(&(call_of){"identity", "sum", 1, 0, true, false, false, 2, 2, 4, 4, 2, 2}, SMX_ERR_PARAM,
               "beta: norm is to be none, not sum");
  refused_call(&(call_of){"identity", "mala", 1, 1, false, false, false, 2, 2, 4, 4, 2, 2}, SMX_ERR_PARAM,
               "decay: norm is to be none or sum, not mala");
  refused_call(&(call_of){"identity", "none", 0, 1, false, false, false, 2, 2, 4, 4, 2, 2}, SMX_ERR_PARAM,
               "causal is no: there is no decay and no beta");
  const call_of with_past = {"identity", "sum", 1, 0, false, true, false, 2, 2, 4, 4, 2, 3};
  static const char *const texts[] = {"past: shape[1] is 2, not 3, which is m",
                                      "past: shape[2] is 3, not 4, which is n"};
  for (int k = 0; k < 2; k++) {
    made_call m;
    make(&with_past, &(rng){1}, &m);
    m.shape[5][1 + k]--;
    refused(smx_forward(op(), NULL, &m.params, IN, m.given, OUT, m.out), SMX_ERR_SHAPE, texts[k]);
    drop(&m);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_four_rules),
      cmocka_unit_test(the_norms),
      cmocka_unit_test(the_same_bits_in_parts),
      cmocka_unit_test(faint_states_in_parts),
      cmocka_unit_test(states_by_streaming_stores),
      cmocka_unit_test(the_same_bits_every_way),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(slots_in_parts),
      cmocka_unit_test(one_slot),
      cmocka_unit_test(least_squares),
      cmocka_unit_test(a_shift_is_a_factor),
      cmocka_unit_test(directions_are_orthogonal),
      cmocka_unit_test(hidden_keys_change_nothing),
      cmocka_unit_test(wrong_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
