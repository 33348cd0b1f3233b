/* routing.c - proves routing on the worked examples of the catalogue of papers, the choice of
 * experts against a plain search for many sizes and ties and against itself with experts that do
 * not exist, many tokens for the same bits, and the functions of softmax/routing.h. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "tensors.h"
#include "status.h"
#include "util.h"
#include <softmax.h>

static smx_tensor doubles(double *data, int32_t ndim, int64_t *shape) {
  return (smx_tensor){data, {1, 0}, ndim, SMX_F64, shape, NULL, 0};
}
static smx_tensor wholes(int64_t *data, int32_t ndim, int64_t *shape) {
  return (smx_tensor){data, {1, 0}, ndim, SMX_I64, shape, NULL, 0};
}

/* An operator with these parameters, "k=2 score=sigmoid". */
static void call(const char *name, const char *settings, int32_t n_in, const smx_tensor *const *in,
                 int32_t n_out, const smx_tensor *const *out) {
  const smx_op *op = smx_op_find(name);
  char words[128], *rest = NULL;
  smx_params params;
  smx_params_init(op, &params);
  snprintf(words, sizeof words, "%s", settings);
  for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(w, '=');
    *value++ = 0;
    good(smx_params_parse(op, &params, w, value));
  }
  good(smx_forward(op, NULL, &params, n_in, in, n_out, out));
}

/* ---- worked examples ---- */

static void gates(void **state) {
  double z[] = {2, 1, 0, -1}, h[] = {1, .2, -.5, .9, .8, -2}, b[] = {-.1, 0, 0, 0, 0, .2}, w[8];
  int64_t i[8], four = 4, six = 6, two = 2;
  const smx_tensor tz = doubles(z, 1, &four), th = doubles(h, 1, &six), tb = doubles(b, 1, &six);
  const smx_tensor tw = doubles(w, 1, &two), ti = wholes(i, 1, &two), *out[] = {&tw, &ti};
  call("gate_topk", "k=2", 1, (const smx_tensor *[]){&tz}, 2, out);
  near_all(w, (double[]){.731059, .268941}, 2, 1e-6);
  call("gate_topk", "k=2 renormalise=no", 1, (const smx_tensor *[]){&tz}, 2, out);
  near_all(w, (double[]){.643914, .236883}, 2, 1e-6);
  call("gate_topk", "k=2 score=sigmoid groups=3 top_groups=2 scale=2.5", 2, (const smx_tensor *[]){&th, &tb},
       2, out);
  near_all(w, (double[]){1.23257, 1.26743}, 2, 1e-5);
  assert_true(i[0] == 3 && i[1] == 0);
  double e[] = {1, 0, 0, 1, 2, 0, .5, 0};
  int64_t tokens[] = {4, 2}, chosen[] = {2, 2};
  const smx_tensor te = doubles(e, 2, tokens), tew = doubles(w, 2, chosen), tei = wholes(i, 2, chosen);
  call("gate_expert_choice", "capacity=2", 1, (const smx_tensor *[]){&te}, 2,
       (const smx_tensor *[]){&tew, &tei});
  near_all(w, (double[]){.880797, .731059, .731059, .377541}, 4, 1e-6);
  assert_memory_equal(i, ((int64_t[]){2, 0, 1, 3}), sizeof(int64_t[4]));
  double r[] = {.5, 0, .2, 0, .1, 0, .3, 0, 0, 0, 0, .4}, rw[12], loss, sparsity, next;
  int64_t rows[] = {4, 3};
  const smx_tensor tr = doubles(r, 2, rows), trw = doubles(rw, 2, rows), tl = doubles(&loss, 0, NULL),
                   ts = doubles(&sparsity, 0, NULL), tn = doubles(&next, 0, NULL);
  call("gate_relu", "k=1 lambda=1", 1, (const smx_tensor *[]){&tr}, 4,
       (const smx_tensor *[]){&trw, &tl, &ts, &tn});
  near_all((double[]){loss, sparsity, next}, (double[]){.54375, .583333333, 1.2}, 3, 1e-8);
}

static void losses(void **state) {
  double z[] = {2, 0, 1, 0, 0, 1}, loss, mean[2];
  int64_t index[] = {0, 0, 1}, tokens[] = {3, 2}, one[] = {3, 1}, two = 2;
  const smx_tensor tz = doubles(z, 2, tokens), ti = wholes(index, 2, one), tl = doubles(&loss, 0, NULL),
                   tm = doubles(mean, 1, &two);
  call("load_balancing_loss", "scale=0.01", 2, (const smx_tensor *[]){&tz, &ti}, 3,
       (const smx_tensor *[]){&tl, NULL, &tm});
  near_all((double[]){loss, mean[0], mean[1]}, (double[]){.0108462, .626932, .373068}, 3, 1e-6);
  call("router_z_loss", "scale=0.001", 1, (const smx_tensor *[]){&tz}, 1, (const smx_tensor *[]){&tl});
  near_all(&loss, (double[]){.0026577118}, 1, 1e-10);
  double gate[] = {.2, -.1}, mu[] = {1, -.5}, log_s[] = {log(.5), log(1.2)}, y = .7;
  const smx_tensor tg = doubles(gate, 1, &two), tmu = doubles(mu, 1, &two), ts = doubles(log_s, 1, &two),
                   ty = doubles(&y, 0, NULL);
  call("moe_gaussian_nll", "", 4, (const smx_tensor *[]){&tg, &tmu, &ts, &ty}, 1,
       (const smx_tensor *[]){&tl});
  near_all(&loss, (double[]){.757905}, 1, 1e-6);
  double scores[] = {1, 0, -1, 0, .5, .2};
  int64_t shape[] = {2, 3}, label = 1;
  const smx_tensor te = doubles(scores, 2, shape), tt = wholes(&label, 0, NULL);
  call("moe_multinomial_nll", "", 3, (const smx_tensor *[]){&tg, &te, &tt}, 1, (const smx_tensor *[]){&tl});
  near_all(&loss, (double[]){1.13359}, 1, 1e-5);
}

/* Chances 1, 2, 4 of three experts; weights of two with an index. */
static void importance(void **state) {
  double v[] = {1, 2, 4}, loss, sum[4], dw[3], w[] = {.75, .25, 1, 0};
  int64_t row[] = {1, 3}, pairs[] = {2, 2}, index[] = {1, 0, 1, -1}, three = 3, four = 4;
  const smx_tensor tv = doubles(v, 2, row), tl = doubles(&loss, 0, NULL), ts = doubles(sum, 1, &three),
                   tdw = doubles(dw, 2, row), *in[] = {&tv, NULL};
  call("importance_loss", "", 1, in, 2, (const smx_tensor *[]){&tl, &ts});
  near_all((double[]){loss, sum[2]}, (double[]){.428571, 4}, 2, 1e-6);
  call("importance_loss", "variance=population", 1, in, 2, (const smx_tensor *[]){&tl, NULL});
  near_all(&loss, (double[]){.285714}, 1, 1e-6);
  const smx_op *op = smx_op_find("importance_loss");
  smx_params params;
  smx_params_init(op, &params);
  good(smx_params_set(op, &params, "variance", 1));
  double one = 1;
  const smx_tensor up = doubles(&one, 0, NULL);
  const smx_tensor *dout[] = {&up, NULL}, *din[] = {&tdw, NULL}, *out[] = {NULL, NULL};
  good(smx_backward(op, NULL, &params, 2, in, 2, out, dout, din));
  near_all(dw, (double[]){-.244898, -.122449, .122449}, 3, 1e-6);
  const smx_tensor tw = doubles(w, 2, pairs), ti = wholes(index, 2, pairs), tf = doubles(sum, 1, &four);
  call("importance_loss", "experts=4", 2, (const smx_tensor *[]){&tw, &ti}, 2,
       (const smx_tensor *[]){&tl, &tf});
  near_all(sum, (double[]){.25, 1.75, 0, 0}, 4, 1e-15);
  smx_params_init(op, &params);
  good(smx_params_set(op, &params, "experts", 4));
  refused(smx_forward(op, NULL, &params, 1, in, 2, (const smx_tensor *[]){&tl, &tf}), SMX_ERR_SHAPE,
          "experts is 4");
}

/* The experts that stay, at temperatures from low to high. */
static void dense_to_sparse(void **state) {
  double z[] = {0, 1, -INFINITY, 3}, w[4], y[4];
  int64_t index[4], four = 4;
  const smx_tensor tz = doubles(z, 1, &four), tw = doubles(w, 1, &four), ti = wholes(index, 1, &four),
                   ty = doubles(y, 1, &four), *in[] = {&tz}, *out[] = {&tw, &ti};
  for (way w_of = {0}; next_way(&w_of);) {
    call("gate_dense_to_sparse", "temperature=1e-3", 1, in, 2, out);
    near_all(w, (double[]){1, 0, 0, 0}, 4, 1e-15);
    assert_memory_equal(index, ((int64_t[]){3, 1, 0, -1}), sizeof index);
    call("gate_dense_to_sparse", "temperature=1e9", 1, in, 2, out);
    near_all(w, (double[]){1. / 3, 1. / 3, 1. / 3, 0}, 4, 1e-8);
    call("gate_dense_to_sparse", "threshold=0.1", 1, in, 2, out);
    near_all(w, (double[]){.843794734, .114195199, 0, 0}, 4, 1e-8);
    assert_memory_equal(index, ((int64_t[]){3, 1, -1, -1}), sizeof index);
    call("gate_dense_to_sparse", "threshold=1 renormalise=yes", 1, in, 2, out);
    near_all(w, (double[]){1, 0, 0, 0}, 4, 0);
    assert_memory_equal(index, ((int64_t[]){3, -1, -1, -1}), sizeof index);
    call("gate_dense_to_sparse", "activation=gelu noise=gumbel", 1, in, 2, out);
    assert_true(index[3] == -1 && fabs(w[0] + w[1] + w[2] - 1) < 1e-15);
  }
  double far[] = {3e300, -4e300, 0, 0};
  const smx_tensor tx = doubles(far, 1, &four);
  call("gate_modified", "", 1, (const smx_tensor *[]){&tx}, 1, (const smx_tensor *[]){&ty});
  near_all(y, (double[]){.6, -.8, 0, 0}, 4, 1e-15);
}

static void soft(void **state) {
  double x[] = {1, 0, 0, 1, 1, 1}, phi[] = {1, 0, -1, 2}, d[6], c[6];
  int64_t tokens[] = {3, 2}, slots[] = {2, 2};
  const smx_tensor tx = doubles(x, 2, tokens), tp = doubles(phi, 2, slots), td = doubles(d, 2, tokens),
                   tc = doubles(c, 2, tokens);
  call("soft_moe", "normalise=no", 2, (const smx_tensor *[]){&tx, &tp}, 2, (const smx_tensor *[]){&td, &tc});
  near_all(d, (double[]){.422319, .035119, .155362, .705385, .422319, .259496}, 6, 1e-6);
  near_all(c, (double[]){.880797, .119203, .119203, .880797, .5, .5}, 6, 1e-6);
}

/* ---- the choice ---- */

enum { MOST = 3000 };

static void choose_plainly(const double *x, int64_t n, int64_t k, int64_t *index) {
  static bool taken[MOST];
  memset(taken, 0, sizeof taken);
  for (int64_t j = 0; j < k; j++) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
      if (!taken[i] && x[i] > -INFINITY && (best < 0 || x[i] > x[best])) best = i;
    if (best >= 0) taken[best] = true;
    index[j] = best;
  }
}

/* Few values, so that most are ties, or many; some experts do not exist. */
static void the_choice_is_that_of_a_search(void **state) {
  static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 128, 257, MOST};
  static const int64_t ks[] = {1, 2, 8, 15, 16, 17, 64, 200};
  static double x[MOST], y[MOST];
  static float small[MOST], small_y[MOST];
  static int64_t want[MOST], is[MOST], is_small[MOST];
  rng r = {7};
  for (way w = {0}; next_way(&w);)
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
      for (size_t t = 0; t < COUNT_OF(ks) && ks[t] <= sizes[s]; t++)
        for (int kind = 0; kind < 3; kind++) {
          int64_t n = sizes[s], k = ks[t];
          for (int64_t i = 0; i < n; i++) {
            x[i] = kind == 0 ? (double)rng_below(&r, 4) : (double)(float)rng_normal(&r);
            if (kind == 2 && rng_below(&r, 3) == 0) x[i] = -INFINITY;
            small[i] = (float)x[i];
          }
          const smx_tensor tx = doubles(x, 1, &n), ty = doubles(y, 1, &k), ti = wholes(is, 1, &k);
          const smx_tensor sx = {small, {1, 0}, 1, SMX_F32, &n, NULL, 0};
          const smx_tensor sy = {small_y, {1, 0}, 1, SMX_F32, &k, NULL, 0}, si = wholes(is_small, 1, &k);
          const smx_gate gate = {.size = sizeof gate, .k = k};
          choose_plainly(x, n, k, want);
          good(smx_gate_topk(w.ctx, &gate, &tx, NULL, &ty, &ti));
          good(smx_gate_topk(w.ctx, &gate, &sx, NULL, &sy, &si));
          assert_memory_equal(is, want, (size_t)k * sizeof *is);
          assert_memory_equal(is_small, want, (size_t)k * sizeof *is);
        }
}

/* Experts that do not exist at the end of each group change nothing: such groups are not whole
 * vectors of numbers, which have a way of their own. Logits are random, of few values, or too large
 * for it. Random ones are multiples of 1/1024: sigmoids of neighbours would be one number in single
 * precision and two in the double that choose_of_groups() takes. */
enum { CROWD = 9, ROOM = 20 * 48 };

static void widen(const float *x, int64_t groups, int64_t size, int64_t more, float with, float *to) {
  for (int64_t q = 0; q < groups; q++)
    for (int64_t j = 0; j < size + more; j++) *to++ = j < size ? x[q * size + j] : with;
}
/* Experts of the best groups, which count by their best or by the sum of their two best. */
static void choose_of_groups(const float *z, int64_t size, const smx_gate *gate, int64_t *index) {
  static double key[ROOM], score[ROOM];
  const bool sigmoid = gate->score == SMX_GATE_SIGMOID, two = gate->group == SMX_GATE_GROUP_TWO;
  const int64_t groups = gate->groups;
  int64_t kept[ROOM], best[2];
  for (int64_t i = 0; i < groups * size; i++) key[i] = sigmoid ? 1 / (1 + exp(-(double)z[i])) : (double)z[i];
  for (int64_t q = 0; q < groups; q++) {
    choose_plainly(key + q * size, size, 2, best);
    score[q] = key[q * size + best[0]] + (two ? key[q * size + best[1]] : 0);
  }
  choose_plainly(score, groups, gate->top_groups, kept);
  for (int64_t q = 0; q < groups; q++) {
    bool stays = false;
    for (int64_t j = 0; j < gate->top_groups; j++) stays = stays || kept[j] == q;
    for (int64_t j = 0; j < size && !stays; j++) key[q * size + j] = -INFINITY;
  }
  choose_plainly(key, groups * size, gate->k, index);
}
static void choose_both(smx_context *ctx, rng *r, const smx_gate *gate, int64_t size, bool biased, int kind) {
  static float z[CROWD * ROOM], wide_z[CROWD * ROOM], b[ROOM], wide_b[ROOM], w[2][CROWD * 32];
  static int64_t index[2][CROWD * 32];
  const int64_t groups = gate->groups, more = kind == 1 ? 5 : 16, n = groups * size;
  int64_t narrow[] = {CROWD, n}, wide[] = {CROWD, n + groups * more}, chosen[] = {CROWD, gate->k};
  for (int64_t i = 0; i < CROWD * n; i++)
    z[i] = kind == 1 ? (float)rng_below(r, 4) : (float)(rint(rng_normal(r) * 1024) / (kind == 2 ? 17 : 1024));
  for (int64_t i = 0; i < n; i++) b[i] = (float)rng_below(r, 3) / 16;
  widen(z, CROWD * groups, size, more, -INFINITY, wide_z), widen(b, groups, size, more, 1, wide_b);
  for (int side = 0; side < 2; side++) {
    const int64_t *shape = side ? wide : narrow;
    const smx_tensor tz = {side ? wide_z : z, {1, 0}, 2, SMX_F32, (int64_t *)(uintptr_t)shape, NULL, 0},
                     tb = {side ? wide_b : b, {1, 0}, 1, SMX_F32, (int64_t *)(uintptr_t)(shape + 1), NULL, 0},
                     tw = {w[side], {1, 0}, 2, SMX_F32, chosen, NULL, 0}, ti = wholes(index[side], 2, chosen);
    good(smx_gate_topk(ctx, gate, &tz, biased ? &tb : NULL, &tw, &ti));
  }
  for (int64_t i = 0; i < CROWD * gate->k; i++) {
    const int64_t at = index[1][i], q = at / (size + more);
    assert_int_equal(index[0][i], at < 0 ? at : q * size + at % (size + more));
  }
  assert_memory_equal(w[0], w[1], (size_t)(CROWD * gate->k) * sizeof(float));
  for (int64_t t = 0; t < CROWD && !biased && kind < 2; t++) {
    choose_of_groups(z + t * n, size, gate, index[1]);
    assert_memory_equal(index[0] + t * gate->k, index[1], (size_t)gate->k * sizeof(int64_t));
  }
}
static void absent_experts_change_nothing(void **state) {
  static const int64_t groups[] = {1, 3, 8, 16, 20}, ks[] = {2, 8, 17};
  rng r = {5};
  for (way w = {0}; next_way(&w);)
    for (size_t q = 0; q < COUNT_OF(groups); q++)
      for (size_t j = 0; j < COUNT_OF(ks); j++)
        for (int size = 16; size <= 32; size += 16)
          for (int kind = 0; kind < 3; kind++)
            for (int how = 0; how < 3; how++) { /* by logits, by sigmoids, by the two best sigmoids */
              const smx_gate gate = {.size = sizeof gate,
                                     .k = ks[j],
                                     .groups = groups[q],
                                     .top_groups = (groups[q] + 1) / 2,
                                     .group = how == 2 ? SMX_GATE_GROUP_TWO : SMX_GATE_GROUP_BEST,
                                     .score = how > 0 ? SMX_GATE_SIGMOID : SMX_GATE_SOFTMAX};
              if (ks[j] > gate.top_groups * size) continue;
              choose_both(w.ctx, &r, &gate, size, how > 0 && (kind + size / 16) % 2, kind);
            }
}

/* ---- many tokens: several tasks, several chunks ---- */

enum { TOKENS = 5000, EXPERTS = 40, WIDTH = 24, CHOSEN = 3 };

typedef struct crowd {
  float *z, *x, *out[4];
  int64_t *index, *source, *whole_out;
} crowd;

/* inputs: a letter each; z logits, x and p rows, i and s whole numbers, y a number a token. */
typedef struct crowd_call {
  const char *op, *inputs, *names[4];
  double values[4];
} crowd_call;

static smx_tensor input_of(const crowd *c, char letter) {
  static int64_t wide[] = {TOKENS, EXPERTS}, narrow[] = {TOKENS, WIDTH}, phi[] = {EXPERTS, WIDTH},
                 pairs[] = {TOKENS, CHOSEN};
  smx_tensor t = {c->z, {1, 0}, 2, SMX_F32, wide, NULL, 0};
  if (letter == 'x' || letter == 'p') t.data = c->x, t.shape = letter == 'x' ? narrow : phi;
  if (letter == 'y') t.ndim = 1;
  if (letter == 'i') t.data = c->index, t.dtype = SMX_I64, t.shape = pairs;
  if (letter == 's') t.data = c->source, t.dtype = SMX_I64, t.ndim = 1;
  return t;
}

/* sizes: of its float outputs */
static void run_crowd(const crowd *c, const crowd_call *how, smx_context *ctx, int64_t *sizes) {
  const smx_op *op = smx_op_find(how->op);
  const int count = (int)strlen(how->inputs), outputs = op->output_count < 4 ? op->output_count : 4;
  smx_tensor t[SMX_MAX_PORTS], o[SMX_MAX_PORTS];
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS];
  smx_shape shapes[SMX_MAX_PORTS];
  smx_params params;
  smx_params_init(op, &params);
  for (int i = 0; i < 4 && how->names[i]; i++)
    good(smx_params_set(op, &params, how->names[i], how->values[i]));
  for (int i = 0; i < count; i++) t[i] = input_of(c, how->inputs[i]), in[i] = t + i;
  good(smx_infer(op, &params, count, in, outputs, shapes));
  for (int i = 0; i < outputs; i++) {
    const bool whole = op->outputs[i].flags & SMX_PORT_INT;
    o[i] = (smx_tensor){c->out[i], {1, 0}, shapes[i].ndim, SMX_F32, shapes[i].dim, NULL, 0};
    if (whole) o[i].dtype = SMX_I64, o[i].data = c->whole_out;
    sizes[i] = !whole;
    for (int d = 0; d < shapes[i].ndim; d++) sizes[i] *= shapes[i].dim[d];
    out[i] = o + i;
  }
  good(smx_forward(op, ctx, &params, count, in, outputs, out));
}

static float *floats(rng *r, int64_t n) {
  float *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (float)rng_normal(r);
  return x;
}
static int64_t *numbers_below(rng *r, int64_t n, int64_t bound) {
  int64_t *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = (int64_t)rng_below(r, bound);
  return x;
}

static void same_every_way(const crowd *c, const crowd_call *how) {
  float *first[4] = {NULL};
  int64_t sizes[4] = {0};
  for (way w = {0}; next_way(&w);) {
    run_crowd(c, how, w.ctx, sizes);
    for (int o = 0; o < 4; o++) {
      const size_t bytes = (size_t)sizes[o] * sizeof(float);
      if (first[o] && memcmp(first[o], c->out[o], bytes))
        fail_msg("%s, way %d: output %d", how->op, w.number, o);
      if (!first[o] && bytes) first[o] = memcpy(malloc(bytes), c->out[o], bytes);
    }
  }
  for (int o = 0; o < 4; o++) free(first[o]);
}

static void many_tokens_have_the_same_bits(void **state) {
  static const crowd_call calls[] = {
      {"gate_topk", "z", {"k"}, {3}},
      {"gate_topk", "z", {"score", "groups", "top_groups", "group"}, {1, 8, 4, 2}},
      {"gate_topk", "z", {"k", "renormalise", "temperature"}, {3, 0, 0.5}},
      {"gate_noisy_topk", "zz", {"k"}, {3}},
      {"gate_dense_to_sparse", "z", {"k", "noise", "activation"}, {3, 1, 3}},
      {"gate_modified", "x", {NULL}, {0}},
      {"importance_loss", "z", {NULL}, {0}},
      {"gate_expert_choice", "z", {NULL}, {0}},
      {"moe_dispatch", "xs", {NULL}, {0}},
      {"moe_combine", "xi", {NULL}, {0}},
      {"moe_gaussian_nll", "zzzy", {NULL}, {0}},
      {"load_balancing_loss", "zi", {NULL}, {0}},
      {"router_z_loss", "z", {NULL}, {0}},
      {"soft_moe", "xp", {NULL}, {0}},
  };
  rng r = {11};
  crowd c = {.z = floats(&r, TOKENS * EXPERTS), .x = floats(&r, TOKENS * WIDTH)};
  c.index = numbers_below(&r, TOKENS * CHOSEN, EXPERTS), c.source = numbers_below(&r, TOKENS, TOKENS);
  c.whole_out = numbers_below(&r, TOKENS * EXPERTS, 1);
  for (int o = 0; o < 4; o++) c.out[o] = floats(&r, TOKENS * EXPERTS);
  for (size_t k = 0; k < COUNT_OF(calls); k++) same_every_way(&c, calls + k);
  free(c.z), free(c.x), free(c.index), free(c.source), free(c.whole_out);
  for (int o = 0; o < 4; o++) free(c.out[o]);
}

/* ---- softmax/routing.h ---- */

/* Tokens to rows and back: with weights that sum to 1 and experts that do nothing, the same. */
static void there_and_back(void **state) {
  enum { T = 37, E = 8, K = 3, D = 5 };
  static double z[T * E], x[T * D], w[T * K], y[T * D], dz[T * E], dw[T * K];
  static int64_t index[T * K], slot[T * K], offset[E + 1], count[E];
  int64_t experts[] = {T, E}, pairs[] = {T, K}, tokens[] = {T, D}, offsets = E + 1, each = E, rows,
          dropped = 0;
  rng r = {3};
  for (int i = 0; i < T * E; i++) z[i] = rng_normal(&r);
  for (int i = 0; i < T * D; i++) x[i] = rng_normal(&r);
  const smx_gate gate = {
      .size = sizeof gate, .k = K, .groups = 4, .top_groups = 2, .group = SMX_GATE_GROUP_BEST};
  const smx_moe moe = {.size = sizeof moe, .experts = E, .align = 4};
  const smx_tensor tz = doubles(z, 2, experts), tw = doubles(w, 2, pairs), ti = wholes(index, 2, pairs),
                   tx = doubles(x, 2, tokens), ty = doubles(y, 2, tokens), tdz = doubles(dz, 2, experts),
                   tdw = doubles(dw, 2, pairs);
  good(smx_gate_topk(NULL, &gate, &tz, NULL, &tw, &ti));
  good(smx_moe_rows(&moe, T, K, &rows));
  assert_int_equal(rows, (T * K + E * 3 + 3) / 4 * 4);
  int64_t matrix[] = {rows, D};
  int64_t *source = malloc((size_t)rows * sizeof *source);
  double *made = malloc((size_t)(rows * D) * sizeof *made);
  const smx_tensor ts = wholes(slot, 2, pairs), tsource = wholes(source, 1, &rows),
                   to = wholes(offset, 1, &offsets), tc = wholes(count, 1, &each),
                   tr = doubles(made, 2, matrix);
  good(smx_moe_permutation(NULL, &moe, &ti, NULL, &ts, &tsource, &to, &tc));
  good(smx_moe_dispatch(NULL, &tx, &tsource, &tr));
  good(smx_moe_combine(NULL, &tr, &ts, &tw, &ty));
  near_all(y, x, T * D, 1e-15);
  for (int e = 0; e < E; e++) assert_true(offset[e + 1] == offset[e] + (count[e] + 3) / 4 * 4);
  for (int i = 0; i < T * K; i++) assert_int_equal(source[slot[i]], i / K);
  for (int i = 0; i < T * K; i++) dw[i] = 1; /* the sum of the weights does not move */
  good(smx_gate_topk_backward(NULL, &gate, &tz, NULL, &ti, &tdw, &tdz));
  for (int i = 0; i < T * E; i++) assert_true(fabs(dz[i]) < 1e-15);
  const smx_moe full = {.size = sizeof full, .experts = E, .capacity = 5, .fixed = 1};
  good(smx_moe_rows(&full, T, K, &rows));
  assert_int_equal(rows, 5 * E);
  good(smx_moe_permutation(NULL, &full, &ti, NULL, &ts, &tsource, &to, &tc));
  for (int i = 0; i < T * K; i++) dropped += slot[i] < 0;
  for (int e = 0; e < E; e++) dropped -= count[e] > 5 ? count[e] - 5 : 0;
  assert_int_equal(dropped, 0);
  free(source), free(made);
}

/* Tokens that no cache holds are read once each, and written wherever they go: rows of whole cache
 * lines and others, rows without a token, tokens without a row, and NaNs as they are. */
static void dispatch_of_many_tokens(void **state) {
  static const int64_t widths[] = {128, 131};
  for (size_t j = 0; j < COUNT_OF(widths); j++) {
    const int64_t d = widths[j], t = (1 << 22) / 4 / d + 100, n = t + t / 2;
    int64_t tokens[] = {t, d}, made[] = {n, d}, count = n;
    rng r = {13};
    float *x = floats(&r, t * d), *y = floats(&r, n * d);
    int64_t *source = numbers_below(&r, n, t);
    uint32_t nan = 0x7f812345; /* a signalling one */
    for (int64_t i = 0; i < n; i += 7) source[i] = -1;
    memcpy(x + d * source[1], &nan, sizeof nan);
    const smx_tensor tx = {x, {1, 0}, 2, SMX_F32, tokens, NULL, 0}, ts = wholes(source, 1, &count),
                     ty = {y, {1, 0}, 2, SMX_F32, made, NULL, 0};
    for (way w = {0}; next_way(&w);) {
      memset(y, 1, (size_t)(n * d) * sizeof *y);
      good(smx_moe_dispatch(w.ctx, &tx, &ts, &ty));
      for (int64_t i = 0; i < n; i++) {
        static const float nothing[131];
        const float *want = source[i] < 0 ? nothing : x + source[i] * d;
        assert_memory_equal(y + i * d, want, (size_t)d * sizeof *y);
      }
    }
    free(x), free(y), free(source);
  }
}

/* Pairs in the order of service, one after another, by first choices first or by position. */
static void permutation_of_many_tokens(void **state) {
  enum { PAIRS = TOKENS * CHOSEN, EACH = 300, ALIGN = 8, MADE = EXPERTS * 304 };
  static int64_t slot[PAIRS], source[MADE], offset[EXPERTS + 1], want[PAIRS];
  int64_t pairs[] = {TOKENS, CHOSEN}, rows, offsets = EXPERTS + 1;
  rng r = {17};
  int64_t *index = numbers_below(&r, PAIRS, EXPERTS);
  for (int64_t i = 0; i < PAIRS; i += 11) index[i] = -1;
  for (way w = {0}; next_way(&w);)
    for (int order = SMX_MOE_POSITION; order <= SMX_MOE_CHOICE; order++) {
      const smx_moe moe = {
        .size = sizeof moe,
        .experts = EXPERTS,
        .capacity = EACH,
        .order = (smx_moe_order)order,
        .align = ALIGN,
        .fixed = 1
      };
      int64_t count[EXPERTS] = {0}, taken = 0;
      for (int64_t n = 0; n < PAIRS; n++) {
        const int64_t i = order == SMX_MOE_CHOICE ? n % TOKENS * CHOSEN + n / TOKENS : n, e = index[i];
        want[i] = e < 0 || count[e] == EACH
        ? -1 : e * 304 + count[e]++;
        taken += want[i] >= 0;
      }
      good(smx_moe_rows(&moe, TOKENS, CHOSEN, &rows));
      assert_int_equal(rows, MADE);
      const smx_tensor ti = wholes(index, 2, pairs), ts = wholes(slot, 2, pairs),
                       to = wholes(source, 1, &rows), tf = wholes(offset, 1, &offsets);
      memset(source, 1, sizeof source);
      good(smx_moe_permutation(w.ctx, &moe, &ti, NULL, &ts, &to, &tf, NULL));
      assert_memory_equal(slot, want, sizeof slot);
      for (int64_t i = 0; i < PAIRS; i++) assert_true(slot[i] < 0 || source[slot[i]] == i / CHOSEN);
      for (int64_t i = 0; i < MADE; i++) taken -= source[i] >= 0 && source[i] < TOKENS;
      for (int64_t i = 0; i < MADE; i++) assert_true(source[i] >= -1 && source[i] < TOKENS);
      assert_int_equal(taken, 0);
    }
  free(index);
}

/* No subnormal numbers, and one NaN, whatever instruction made it. */
static void results_are_clean(void **state) {
  float rows[] = {INFINITY, 0x1p-100f}, w[] = {0, 0x1p-40f}, y[2], scores[] = {1, 0};
  int64_t slot[] = {0}, one[] = {1, 1}, wide[] = {1, 2}, two = 2, index[2];
  uint32_t bits;
  const smx_tensor tr = {rows, {1, 0}, 2, SMX_F32, wide, NULL, 0},
                   ty = {y, {1, 0}, 2, SMX_F32, wide, NULL, 0};
  smx_tensor tw = {w, {1, 0}, 2, SMX_F32, one, NULL, 0};
  const smx_tensor ts = wholes(slot, 2, one), ti = wholes(index, 1, &two);
  const smx_tensor tz = {scores, {1, 0}, 1, SMX_F32, &two, NULL, 0},
                   tk = {y, {1, 0}, 1, SMX_F32, &two, NULL, 0};
  for (way way_of = {0}; next_way(&way_of);) {
    tw.data = w;
    good(smx_moe_combine(way_of.ctx, &tr, &ts, &tw, &ty));
    memcpy(&bits, y, sizeof bits);
    assert_int_equal(bits, 0x7fc00000);
    tw.data = w + 1;
    good(smx_moe_combine(way_of.ctx, &tr, &ts, &tw, &ty));
    assert_true(y[0] == INFINITY && y[1] == 0);
    const smx_gate gate = {.size = sizeof gate, .scale = 0x1p-126};
    good(smx_gate_topk(way_of.ctx, &gate, &tz, NULL, &tk, &ti));
    assert_true(y[0] == 0 && y[1] == 0);
  }
}

static void wrong_calls(void **state) {
  double z[4] = {1, 2, 3, 4}, w[4];
  int64_t i[4] = {0}, four = 4, rows;
  const smx_tensor tz = doubles(z, 1, &four), tw = doubles(w, 1, &four), ti = wholes(i, 1, &four);
  smx_gate gate = {.size = sizeof gate, .k = 5};
  smx_moe moe = {.size = sizeof moe};
  refused(smx_gate_topk(NULL, &gate, &tz, NULL, &tw, &ti), SMX_ERR_PARAM, "k is 5, but there are 4 experts");
  gate.k = 4, gate.groups = 3, gate.top_groups = 1;
  refused(smx_gate_topk(NULL, &gate, &tz, NULL, &tw, &ti), SMX_ERR_PARAM, "groups is 3");
  gate.groups = 2;
  refused(smx_gate_topk(NULL, &gate, &tz, NULL, &tw, &ti), SMX_ERR_PARAM, "k is 4, but 1 groups have 2");
  gate.size = 8;
  refused(smx_gate_topk(NULL, &gate, &tz, NULL, &tw, &ti), SMX_ERR_STRUCT, "gate.size is 8");
  refused(smx_gate_topk(NULL, NULL, NULL, NULL, &tw, &ti), SMX_ERR_NULL, "logits");
  refused(smx_moe_rows(&moe, 1, 1, &rows), SMX_ERR_PARAM, "experts");
  const smx_moe two = {.size = sizeof two, .experts = 2};
  const smx_tensor one = wholes(i, 1, &four), pairs = wholes((int64_t[]){0, 1, -1, 7}, 2, (int64_t[]){2, 2});
  refused(smx_moe_permutation(NULL, &two, &one, NULL, NULL, NULL, NULL, NULL), SMX_ERR_SHAPE,
          "index: has 1 dimensions, not 2; they are t k");
  assert_null(strchr(smx_last_error(), '<'));
  int64_t slots[4], sources[4], offsets[3], three = 3;
  const smx_tensor ts = wholes(slots, 2, pairs.shape), tsource = wholes(sources, 1, &four),
                   to = wholes(offsets, 1, &three);
  refused(smx_moe_permutation(NULL, &two, &pairs, NULL, &ts, &tsource, &to, NULL), SMX_ERR_TARGET,
          "index: number 3 is 7, not 0..1 or -1");
  refused(smx_moe_rows(NULL, 1, 1, &rows), SMX_ERR_NULL, "moe");
  moe.experts = 1000000000, moe.align = 1000000000;
  refused(smx_moe_rows(&moe, 1, 1, &rows), SMX_ERR_SHAPE, "too many rows");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gates),
      cmocka_unit_test(losses),
      cmocka_unit_test(importance),
      cmocka_unit_test(dense_to_sparse),
      cmocka_unit_test(soft),
      cmocka_unit_test(the_choice_is_that_of_a_search),
      cmocka_unit_test(absent_experts_change_nothing),
      cmocka_unit_test(there_and_back),
      cmocka_unit_test(dispatch_of_many_tokens),
      cmocka_unit_test(permutation_of_many_tokens),
      cmocka_unit_test(wrong_calls),
      cmocka_unit_test(results_are_clean),
      cmocka_unit_test(many_tokens_have_the_same_bits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
