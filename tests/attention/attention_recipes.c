/* attention_recipes.c - proves that operators of the literature are attention with other inputs, as
 * docs/conventions.md says: the example of the catalogue and its known answers, and bits where two
 * ways give one result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "attention_case.h"
#include "unit.h"

/* One query (1, 0.5), three keys, scale 1 / sqrt 2. */
static double Q[] = {1, 0.5}, K[] = {1, 0, 0, 1, -1, 1}, V[] = {1, 0, 0, 1, 1, 1};

/* A tensor [1, 1, rows, columns] of doubles. */
typedef struct matrix {
  int64_t shape[4];
  smx_tensor t;
} matrix;
static const smx_tensor *matrix_of(matrix *m, double *data, int64_t rows, int64_t columns) {
  *m = (matrix){.shape = {1, 1, rows, columns}};
  m->t = smx_tensor_of(data, SMX_F64, 4, m->shape, NULL);
  return &m->t;
}

static void expect_ok(smx_status status) {
  if (status) fail_msg("status %d: %s", status, smx_last_error());
}
static void expect_near(const char *what, const double *got, const double *want, int n) {
  for (int i = 0; i < n; i++)
    if (!(fabs(got[i] - want[i]) < 2e-10)) fail_msg("%s[%d] is %.12g, not %.12g", what, i, got[i], want[i]);
}

static smx_attention_options defaults(void) {
  smx_attention_options o;
  smx_attention_init(&o);
  return o;
}

/* Attention of one query of width d with n keys. */
static void attend(const smx_attention_options *options, double *q, double *k, double *v, int64_t n,
                   int64_t d, int64_t e, double *o, double *lse) {
  matrix mq, mk, mv, mo, ml;
  const smx_tensor *l = matrix_of(&ml, lse, 1, 1);
  ml.t.ndim = 3;
  expect_ok(smx_attention(NULL, options, matrix_of(&mq, q, 1, d), matrix_of(&mk, k, n, d),
                          matrix_of(&mv, v, n, e), matrix_of(&mo, o, 1, e), lse ? l : NULL));
}

/* ---- what multiplies a scale comes before cap, bias and slopes ---- */

/* ssmax and lssa with all of them against softmax and softplus whose scale is that number times as
 * large. */
static void lengths_multiply_the_scale_alone(void **state) {
  double bias[] = {0.3, -0.2, 0.6}, slope[] = {0.25}, plain[2], same[2], lse[2], check[2];
  int64_t one = 1, shape[] = {1, 1, 1, 3};
  const smx_tensor tb = smx_tensor_of(bias, SMX_F64, 4, shape, NULL),
                   ts = smx_tensor_of(slope, SMX_F64, 1, &one, NULL);
  smx_attention_options o = defaults();
  o.weights = SMX_ATTENTION_SSMAX, o.param[0] = 0.43; /* the catalogue's answer, without */
  attend(&o, Q, K, V, 3, 2, 2, check, NULL);
  expect_near("ssmax", check, (double[]){0.654910990499, 0.592181523387}, 2);
  for (int kind = 0; kind < 2; kind++) {
    smx_attention_options a = defaults(), b = defaults();
    a.bias = b.bias = &tb, a.slopes = b.slopes = &ts, a.softcap = b.softcap = 2, a.scale = 0.5;
    a.weights = kind ? SMX_ATTENTION_LSSA : SMX_ATTENTION_SSMAX;
    b.weights = kind ? SMX_ATTENTION_SOFTPLUS : SMX_ATTENTION_SOFTMAX;
    if (kind) a.param[0] = b.param[0] = SMX_ATTENTION_NORM_L1;
    else a.param[0] = 0.43, a.param[1] = 0.1;
    b.scale = 0.5 * (kind ? log(2) * log(3) : 0.43 * log(3) + 0.1);
    attend(&a, Q, K, V, 3, 2, 2, plain, lse);
    attend(&b, Q, K, V, 3, 2, 2, same, lse + 1);
    expect_near("o", plain, same, 2);
    expect_near("lse", lse, lse + 1, 1);
  }
}

/* ---- lists of keys ---- */

/* A cache whose pages hold one key each: the list is a row of its table. */
static void a_list_of_keys_is_a_table_of_pages(void **state) {
  enum { N = 1300, LISTED = 1100, D = 8, E = 16, HEADS = 4, KV = 2, ROWS = 3 };
  acase a = acase_new(1, HEADS, KV, ROWS, N, D, E);
  acase_fill(&a, 1, 1);
  double *k = malloc(sizeof *k * KV * LISTED * D), *v = malloc(sizeof *v * KV * LISTED * E), list[LISTED];
  for (int64_t i = 0, j = 0; i < LISTED; i++) {
    list[i] = (double)j;
    for (int64_t h = 0; h < KV; h++) {
      memcpy(k + (h * LISTED + i) * D, a.k + (h * N + j) * D, D * sizeof *k);
      memcpy(v + (h * LISTED + i) * E, a.v + (h * N + j) * E, E * sizeof *v);
    }
    j += 1 + (i % 6 == 0 && i / 6 < N - LISTED);
  }
  acase gathered = acase_new(1, HEADS, KV, ROWS, LISTED, D, E);
  gathered.q = a.q, gathered.k = k, gathered.v = v;
  results want;
  expect_ok(acase_run(&gathered, NULL, ORDER_BHLD, &want));
  placed_case in;
  placed o, lse, table, length;
  acase_place(&a, ORDER_BHLD, &in);
  place(&o, 3, ORDER_BHLD, SMX_F32, 4, (int64_t[]){1, HEADS, ROWS, E}, NULL);
  place(&lse, 4, ORDER_BHLD, SMX_F32, 3, (int64_t[]){1, HEADS, ROWS}, NULL);
  place(&table, 5, ORDER_BHLD, SMX_I32, 2, (int64_t[]){1, LISTED}, list);
  place(&length, 6, ORDER_BHLD, SMX_I32, 1, (int64_t[]){1}, (double[]){LISTED});
  placed *pages[] = {&in.k, &in.v};
  for (int i = 0; i < 2; i++) { /* [1, KV, N, d] as [N, KV, 1, d] */
    const int64_t step = pages[i]->strides[2];
    pages[i]->shape[0] = N, pages[i]->strides[0] = step;
    pages[i]->shape[2] = 1, pages[i]->strides[2] = step;
  }
  in.options.block_table = &table.t, in.options.lengths = &length.t;
  expect_ok(smx_attention(NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, &o.t, &lse.t));
  unsigned char *got = malloc(want.o_bytes);
  fetch(&o, got);
  assert_memory_equal(got, want.o, want.o_bytes);
  fetch(&lse, got);
  assert_memory_equal(got, want.lse, want.lse_bytes);
  free(got), free(k), free(v);
  results_free(&want);
  acase_free(&a);
}

/* Re-ttention: weights on a list of keys times rho = e^(lse of the list - lse of all) are those
 * among all keys. */
static void the_share_of_a_list(void **state) {
  double o[2], list, all, w[3], part[3];
  matrix mq, mk, mw;
  attend(NULL, Q, K, V, 3, 2, 2, o, &all);
  attend(NULL, Q, K, V, 2, 2, 2, o, &list);
  expect_ok(smx_attention_scores(NULL, NULL, SMX_ATTENTION_WEIGHTS, matrix_of(&mq, Q, 1, 2),
                                 matrix_of(&mk, K, 3, 2), matrix_of(&mw, w, 1, 3)));
  expect_ok(smx_attention_scores(NULL, NULL, SMX_ATTENTION_WEIGHTS, matrix_of(&mq, Q, 1, 2),
                                 matrix_of(&mk, K, 2, 2), matrix_of(&mw, part, 1, 2)));
  const double rho = exp(list - all), want[] = {0.830978071943, 0.488182167425, 0.342795904518};
  expect_near("rho", (double[]){rho, rho * part[0], rho * part[1]}, want, 3);
  expect_near("w", w, want + 1, 2);
}

/* ---- merged sets of keys ---- */

/* Prefix-tuning: states of prefix and content, each at a multiple of 1024, merged; alpha is the
 * weight of the prefix. */
static void a_prefix_is_merged(void **state) {
  const int64_t width = smx_attention_state_width(2);
  int64_t shape[] = {1, 1, 1, 1, width};
  double *one = malloc(sizeof *one * (size_t)width), *two = malloc(sizeof *two * (size_t)width), o[2], lse,
         prefix, unused[2];
  smx_tensor s[] = {smx_tensor_of(one, SMX_F64, 5, shape, NULL), smx_tensor_of(two, SMX_F64, 5, shape, NULL)};
  const smx_tensor *both[] = {s, s + 1};
  smx_attention_options options = defaults();
  matrix mq, mk, mv, mo, ml;
  options.query_start = 5000; /* without a mask positions do not matter */
  expect_ok(smx_attention_states(NULL, &options, matrix_of(&mq, Q, 1, 2), matrix_of(&mk, K + 4, 1, 2),
                                 matrix_of(&mv, V + 4, 1, 2), s));
  options.key_start = 1024;
  expect_ok(
      smx_attention_states(NULL, &options, &mq.t, matrix_of(&mk, K, 2, 2), matrix_of(&mv, V, 2, 2), s + 1));
  matrix_of(&ml, &lse, 1, 1), ml.t.ndim = 3;
  expect_ok(smx_attention_merge(NULL, &options, 2, both, matrix_of(&mo, o, 1, 2), &ml.t));
  expect_near("o", o, (double[]){0.657204095482, 0.511817832575}, 2);
  expect_near("lse", &lse, (double[]){1.42417343007}, 1);
  attend(NULL, Q, K + 4, V + 4, 1, 2, 2, unused, &prefix);
  expect_near("alpha", (double[]){exp(prefix - lse)}, (double[]){0.169021928057}, 1);
  free(one), free(two);
}

/* The states of one query q over n keys of width 1 from key_start on, with at most the last
 * `window` of them. */
static void slot_states(double *q, double *k, double *v, int64_t n, int64_t key_start, int64_t window,
                        const smx_tensor *states) {
  matrix mq, mk, mv;
  smx_attention_options options = defaults();
  options.scale = 1, options.key_start = key_start, options.query_start = n - 1;
  if (window >= 0) options.causal = 1, options.window_left = window;
  expect_ok(smx_attention_states(NULL, &options, matrix_of(&mq, q, 1, 1), matrix_of(&mk, k, n, 1),
                                 matrix_of(&mv, v, n, 1), states));
}

/* Native hybrid attention: a window of the cache and slots, which hold what has left it, under one
 * softmax. Of keys 1, 2, 3 and a window of one key, the slot is a decaying mean of the first two;
 * without slots it is attention over the window. */
static void a_window_and_slots(void **state) {
  const int64_t width = smx_attention_state_width(1);
  int64_t shape[] = {1, 1, 1, 1, width};
  double *one = malloc(sizeof *one * (size_t)width), *two = malloc(sizeof *two * (size_t)width), o, lse[3],
         want;
  double q = 1, k[] = {1, 2, 3}, v[] = {10, 20, 30}, slot = 0, value = 0;
  const smx_tensor s[] = {smx_tensor_of(one, SMX_F64, 5, shape, NULL),
                          smx_tensor_of(two, SMX_F64, 5, shape, NULL)},
                   *both[] = {s, s + 1};
  smx_attention_options options = defaults();
  matrix mo, ml;
  for (int t = 0; t < 2; t++) slot = slot / 2 + k[t] / 2, value = value / 2 + v[t] / 2;
  expect_near("slot", (double[]){slot, value}, (double[]){1.25, 12.5}, 2);
  slot_states(&q, k, v, 3, 0, 0, s), slot_states(&q, &slot, &value, 1, 1024, -1, s + 1);
  for (int i = 0; i < 3; i++) {
    matrix_of(&ml, lse + i, 1, 1), ml.t.ndim = 3;
    expect_ok(smx_attention_merge(NULL, &options, i ? 1 : 2, both + (i ? i - 1 : 0),
                                  matrix_of(&mo, i ? &want : &o, 1, 1), &ml.t));
  }
  expect_near("o", &o, (double[]){27.4091740344}, 1);
  expect_near("shares", (double[]){exp(lse[2] - lse[0]), exp(lse[1] - lse[0])},
              (double[]){0.148047198032, 0.851952801968}, 2);
  slot_states(&q, k, v, 3, 0, 2, s);
  expect_ok(smx_attention_merge(NULL, &options, 1, both, matrix_of(&mo, &o, 1, 1), NULL));
  options.scale = 1;
  attend(&options, &q, k, v, 3, 1, 1, &want, NULL);
  assert_true(o == want);
  free(one), free(two);
}

/* ---- other scores ---- */

/* q' = (q, -|q|^2 / 2, 1), k' = (k, 1, -|k|^2 / 2): scores -|q - k|^2 / (2 c). */
static void gaussian(void **state) {
  double q[] = {1, 0.5, -0.625, 1}, k[] = {1, 0, 1, -0.5, 0, 1, 1, -0.5, -1, 1, 1, -1}, o[2];
  smx_attention_options options = defaults();
  options.scale = 1;
  options.weights = SMX_ATTENTION_EXP;
  attend(&options, q, k, V, 3, 4, 2, o, NULL);
  expect_near("o", o, (double[]){1.00192987085, 0.654694396786}, 2);
  options.weights = SMX_ATTENTION_SOFTMAX;
  attend(&options, q, k, V, 3, 4, 2, o, NULL);
  expect_near("o", o, (double[]){0.651792572116, 0.425903007032}, 2);
}

/* Forgetting attention: z += c_i - c_j by two columns, which is the bias without its memory. */
static void forgetting(void **state) {
  const double c[] = {-0.1, -0.7, -0.9}, scale = 1 / sqrt(2);
  double q[] = {Q[0] * scale, Q[1] * scale, -0.9, 1}, k[12], b[3], o[2], want[2];
  matrix mb;
  smx_attention_options options = defaults();
  for (int j = 0; j < 3; j++) {
    memcpy(k + 4 * j, K + 2 * j, 2 * sizeof *k);
    k[4 * j + 2] = 1, k[4 * j + 3] = -c[j], b[j] = c[2] - c[j];
  }
  options.bias = matrix_of(&mb, b, 1, 3);
  attend(&options, Q, K, V, 3, 2, 2, want, NULL);
  options = defaults();
  options.scale = 1;
  attend(&options, q, k, V, 3, 4, 2, o, NULL);
  expect_near("o", o, want, 2);
}

/* SWAT: sigmoid, ALiBi with slopes of either sign, and RoPE before (here at position 0). */
static void swat(void **state) {
  double slope = 0.5, o[2];
  int64_t one[] = {1};
  const smx_tensor slopes = smx_tensor_of(&slope, SMX_F64, 1, one, NULL);
  smx_attention_options options = defaults();
  options.weights = SMX_ATTENTION_SIGMOID, options.slopes = &slopes, options.causal = 1;
  attend(&options, Q, K, V, 3, 2, 2, o, NULL);
  expect_near("o", o, (double[]){0.839816706365, 0.875974639765}, 2);
}

/* FlashDecoding++: e^(z - phi) without a maximum, whose fallback recomputes a row with a score out
 * of range. Softmax has the value of both: within range it is that of weights without a maximum,
 * phi by a bias, and beyond, scores times 300, that of the largest. */
static void unified_maximum(void **state) {
  smx_attention_options options = defaults();
  double far[2] = {Q[0] * 300, Q[1] * 300}, o[2];
  attend(&options, Q, K, V, 3, 2, 2, o, NULL);
  expect_near("o", o, (double[]){0.657204095482, 0.511817832575}, 2);
  for (double phi = -50; phi <= 10; phi += 30) {
    double minus = -phi;
    int64_t one[] = {1};
    const smx_tensor bias = smx_tensor_of(&minus, SMX_F64, 1, one, NULL);
    options.weights = SMX_ATTENTION_EXP, options.param[0] = SMX_ATTENTION_NORM_L1, options.param[2] = 80,
    options.bias = &bias;
    attend(&options, Q, K, V, 3, 2, 2, o, NULL);
    expect_near("o", o, (double[]){0.657204095482, 0.511817832575}, 2);
  }
  options = defaults();
  attend(&options, far, K, V, 3, 2, 2, o, NULL);
  expect_near("o", o, V, 2);
}

/* DAB-DETR: heads are (content, position), positions are (1, 0, 1, 0 ..) turned by 2 pi x, those of
 * queries times a ratio of widths. */
static void box_modulated(void **state) {
  const double x[] = {0.5, 0.1, 0.8, 0.33}, ratio = 1.7, two_pi = 6.283185307179586;
  double ones[] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}, at[4], pe[16], q[6], k[18], b[3], o[2],
         want[2];
  int64_t rows[] = {4, 1};
  for (int i = 0; i < 4; i++) at[i] = two_pi * x[i];
  const smx_tensor positions = smx_tensor_of(at, SMX_F64, 2, rows, NULL);
  smx_rope_options turn = {.size = sizeof turn, .layout = SMX_ROPE_INTERLEAVED, .positions = &positions};
  matrix mo, mp, mb;
  expect_ok(smx_rope(NULL, &turn, matrix_of(&mo, ones, 4, 4), matrix_of(&mp, pe, 4, 4), NULL));
  expect_near("PE", pe, (double[]){-1, 0, 0.99950656036573, 0.0314107590781}, 4);
  for (int i = 0; i < 4; i++) q[2 + i] = pe[i] * ratio;
  memcpy(q, Q, 2 * sizeof *q);
  for (int j = 0; j < 3; j++) {
    memcpy(k + 6 * j, K + 2 * j, 2 * sizeof *k), memcpy(k + 6 * j + 2, pe + 4 * (j + 1), 4 * sizeof *k);
    b[j] = 0;
    for (int t = 0; t < 2; t++) /* the widths are 2 + 2, doubled by positions */
      b[j] += ratio * cos((at[0] - at[j + 1]) * pow(10000, -t / 2.0)) / 2;
  }
  smx_attention_options options = defaults();
  options.scale = 0.5; /* 1 / sqrt(2 d) */
  attend(&options, q, k, V, 3, 6, 2, o, NULL);
  options.bias = matrix_of(&mb, b, 1, 3);
  attend(&options, Q, K, V, 3, 2, 2, want, NULL);
  expect_near("o", o, want, 2);
}

/* ---- other weights and outputs ---- */

/* A learnt key is one more key; with a value of 0 it is a sink whose score depends on the query. */
static void a_learnt_key(void **state) {
  double k[8] = {0.5, 0.5}, v[8] = {0}, o[2];
  memcpy(k + 2, K, sizeof K), memcpy(v + 2, V, sizeof V);
  attend(NULL, Q, k, v, 4, 2, 2, o, NULL);
  expect_near("o", o, (double[]){0.466406355, 0.3632282443}, 2);
}

/* Fourier attention and a divisor of the row's own: the identity without a norm, then a product
 * with each row. */
static void products_over_a_divisor(void **state) {
  double o[2], lse;
  smx_attention_options options = defaults();
  options.weights = SMX_ATTENTION_IDENTITY, options.param[0] = SMX_ATTENTION_NORM_NONE;
  attend(&options, Q, K, V, 3, 2, 2, o, &lse);
  expect_near("o / eta", (double[]){o[0] / 3, o[1] / 3}, (double[]){0.11785113019776, 0}, 2);
}

/* UniAttn: weights of another layer from its q, k and lse, for values of this one. */
static void shared_weights(void **state) {
  double other[] = {3, -1, 0.5, 2, -2, 4}, w[3], o[2], want[2], lse;
  matrix mq, mk, mw, mv, mo;
  attend(NULL, Q, K, other, 3, 2, 2, want, &lse);
  expect_ok(smx_attention_scores(NULL, NULL, SMX_ATTENTION_WEIGHTS, matrix_of(&mq, Q, 1, 2),
                                 matrix_of(&mk, K, 3, 2), matrix_of(&mw, w, 1, 3)));
  expect_ok(smx_attention_apply(NULL, NULL, &mw.t, matrix_of(&mv, other, 3, 2), matrix_of(&mo, o, 1, 2)));
  expect_near("o", o, want, 2);
}

/* H2O, SnapKV, FastKV: the mass of keys under the rows of a window, here of two rows, the last keys
 * being theirs. */
static void mass_of_a_window(void **state) {
  double z[] = {0, 1, 0, 2, 0, -INFINITY, 1, 0, 0, 2, 0, 0}, zeros[24] = {0}, o[2], lse[2], mass[6];
  const double want[] = {0.26897881021, 0.278271358601, 0.147178238245, 1.08750825893};
  smx_attention_options options = defaults();
  matrix mq, mk, mz, mo, ml, mm;
  options.bias = matrix_of(&mz, z, 2, 6);
  matrix_of(&ml, lse, 2, 1), ml.t.ndim = 3;
  matrix_of(&mm, mass, 6, 1), mm.t.ndim = 3;
  matrix_of(&mq, zeros, 2, 2), matrix_of(&mk, zeros, 6, 2);
  matrix mv;
  expect_ok(smx_attention(NULL, &options, &mq.t, &mk.t, matrix_of(&mv, zeros, 6, 1), matrix_of(&mo, o, 2, 1),
                          &ml.t));
  expect_ok(smx_attention_column_mass(NULL, &options, &mq.t, &mk.t, &ml.t, NULL, &mm.t));
  expect_near("mass", mass, want, 4);
}

/* ---- which keys to keep ---- */

static void select_from(const smx_attention_select_options *options, const double *mass, int64_t heads,
                        int64_t n, int32_t *keys, int64_t lists, int64_t most) {
  int64_t rows[] = {1, heads, n}, list[] = {1, lists, most};
  const smx_tensor m = smx_tensor_of(mass, SMX_F64, 3, rows, NULL),
                   k = smx_tensor_of(keys, SMX_I32, 3, list, NULL);
  expect_ok(smx_attention_select(NULL, options, &m, &k, NULL));
}

/* SnapKV: the mass of a window of rows, pooled; each key head goes on with a list of its own, as a
 * sequence of its own. */
static void each_head_keeps_its_keys(void **state) {
  enum { HEADS = 4, KV = 2, N = 300, WINDOW = 8, KEEP = 40, D = 8 };
  acase a = acase_new(1, HEADS, KV, WINDOW, N, D, D);
  a.dtype = SMX_F64, a.options.causal = 1;
  acase_fill(&a, 5, 1);
  double *o = malloc(sizeof *o * HEADS * WINDOW * D),
         *want = malloc(sizeof *want * (HEADS / KV) * WINDOW * D);
  double lse[HEADS * WINDOW], mass[KV * N], k[KEEP * D], v[KEEP * D];
  int32_t keys[KV * KEEP], kept[KV] = {KEEP, KEEP};
  int64_t rows[] = {1, HEADS, WINDOW, D}, shape[] = {1, KV, N, D}, few[] = {1, 1, KEEP, D};
  smx_tensor tq = smx_tensor_of(a.q, SMX_F64, 4, rows, NULL), to = smx_tensor_of(o, SMX_F64, 4, rows, NULL);
  smx_tensor tk = smx_tensor_of(a.k, SMX_F64, 4, shape, NULL),
             tv = smx_tensor_of(a.v, SMX_F64, 4, shape, NULL);
  const smx_tensor tl = smx_tensor_of(lse, SMX_F64, 3, rows, NULL),
                   tm = smx_tensor_of(mass, SMX_F64, 3, shape, NULL);
  expect_ok(smx_attention(NULL, &a.options, &tq, &tk, &tv, &to, &tl));
  expect_ok(smx_attention_column_mass(NULL, &a.options, &tq, &tk, &tl, NULL, &tm));
  const smx_attention_select_options by = {.size = sizeof by, .last = WINDOW, .kernel = 5};
  select_from(&by, mass, KV, N, keys, KV, KEEP);
  for (int h = 1; h < KV; h++)
    for (int i = 0; i < KEEP; i++) keys[h * KEEP + i] += h * N; /* of one page for each key of each head */
  int64_t grouped[] = {KV, HEADS / KV, WINDOW, D}, pages[] = {KV * N, 1, 1, D}, table[] = {KV, KEEP};
  const smx_tensor block_table = smx_tensor_of(keys, SMX_I32, 2, table, NULL),
                   lengths = smx_tensor_of(kept, SMX_I32, 1, table, NULL);
  smx_attention_options listed = defaults();
  listed.block_table = &block_table, listed.lengths = &lengths;
  tq.shape = to.shape = grouped, tk.shape = tv.shape = pages;
  expect_ok(smx_attention(NULL, &listed, &tq, &tk, &tv, &to, NULL));
  for (int h = 0; h < KV; h++) {
    const size_t head = (size_t)(HEADS / KV) * WINDOW * D;
    for (int i = 0; i < KEEP; i++)
      for (int x = 0; x < D; x++)
        k[i * D + x] = a.k[keys[h * KEEP + i] * D + x], v[i * D + x] = a.v[keys[h * KEEP + i] * D + x];
    int64_t one[] = {1, HEADS / KV, WINDOW, D};
    const smx_tensor q = smx_tensor_of(a.q + (size_t)h * head, SMX_F64, 4, one, NULL),
                     w = smx_tensor_of(want, SMX_F64, 4, one, NULL);
    const smx_tensor some_k = smx_tensor_of(k, SMX_F64, 4, few, NULL),
                     some_v = smx_tensor_of(v, SMX_F64, 4, few, NULL);
    expect_ok(smx_attention(NULL, NULL, &q, &some_k, &some_v, &w, NULL));
    assert_memory_equal(want, o + (size_t)h * head, head * sizeof *o);
  }
  free(o), free(want);
  acase_free(&a);
}

/* TokenSelect: the votes of all heads on the keys between the first and the last ones, by softmax
 * over these alone. */
static void heads_vote(void **state) {
  enum { HEADS = 3, N = 50, FIRST = 4, LAST = 6, KEEP = 20, D = 4 };
  acase a = acase_new(1, HEADS, HEADS, 1, N, D, 1);
  a.dtype = SMX_F64;
  acase_fill(&a, 8, 2);
  uint8_t between[N] = {0};
  double o[HEADS], lse[HEADS], mass[HEADS * N], votes[N] = {0};
  int32_t keys[KEEP];
  memset(between + FIRST, 1, N - FIRST - LAST);
  int64_t rows[] = {1, HEADS, 1, D}, shape[] = {1, HEADS, N, D}, one[] = {1, HEADS, 1, 1},
          values[] = {1, HEADS, N, 1}, row[] = {N};
  const smx_tensor q = smx_tensor_of(a.q, SMX_F64, 4, rows, NULL),
                   k = smx_tensor_of(a.k, SMX_F64, 4, shape, NULL);
  const smx_tensor v = smx_tensor_of(a.v, SMX_F64, 4, values, NULL),
                   to = smx_tensor_of(o, SMX_F64, 4, one, NULL);
  const smx_tensor tl = smx_tensor_of(lse, SMX_F64, 3, one, NULL),
                   tm = smx_tensor_of(mass, SMX_F64, 3, shape, NULL);
  const smx_tensor mask = smx_tensor_of(between, SMX_U8, 1, row, NULL);
  smx_attention_options hidden = defaults();
  hidden.mask = &mask;
  expect_ok(smx_attention(NULL, &hidden, &q, &k, &v, &to, &tl));
  expect_ok(smx_attention_column_mass(NULL, &hidden, &q, &k, &tl, NULL, &tm));
  const smx_attention_select_options by = {.size = sizeof by, .first = FIRST, .last = LAST};
  select_from(&by, mass, HEADS, N, keys, 1, KEEP);
  for (int h = 0; h < HEADS; h++) {
    double w[N] = {0}, sum = 0;
    for (int j = FIRST; j < N - LAST; j++) {
      for (int x = 0; x < D; x++) w[j] += a.q[h * D + x] * a.k[(h * N + j) * D + x] / 2;
      sum += w[j] = exp(w[j]);
    }
    for (int j = FIRST; j < N - LAST; j++) votes[j] += w[j] / sum;
  }
  double least = INFINITY; /* of the votes on keys that are kept */
  for (int i = 0; i < KEEP; i++) {
    const int j = keys[i];
    if (i < FIRST || i >= KEEP - LAST) assert_int_equal(j, i < FIRST ? i : N - KEEP + i);
    else least = fmin(least, votes[j]), votes[j] = -1;
  }
  for (int j = FIRST; j < N - LAST; j++) assert_true(votes[j] < least + 1e-12);
  acase_free(&a);
}

/* DynamicKV, and budgets of heads: of the best of all layers together a layer keeps as many as are
 * its own, and these very ones. */
static void layers_share_a_budget(void **state) {
  enum { LAYERS = 5, N = 200, ALL = 100 };
  rng r = {3};
  double mass[LAYERS * N];
  int32_t all[ALL], keys[LAYERS * N], budgets[LAYERS] = {0};
  for (int i = 0; i < LAYERS * N; i++) mass[i] = rng_uniform(&r) * (1 + i / N);
  select_from(NULL, mass, 1, LAYERS * N, all, 1, ALL);
  for (int i = 0; i < ALL; i++) budgets[all[i] / N]++;
  int64_t layers[] = {LAYERS};
  const smx_tensor of_layers = smx_tensor_of(budgets, SMX_I32, 1, layers, NULL);
  const smx_attention_select_options by = {.size = sizeof by, .budgets = &of_layers};
  select_from(&by, mass, LAYERS, N, keys, LAYERS, N);
  for (int layer = 0, at = 0; layer < LAYERS; layer++) {
    for (int i = 0; i < budgets[layer]; i++) assert_int_equal(keys[layer * N + i] + layer * N, all[at++]);
    assert_int_equal(keys[layer * N + budgets[layer]], -1);
  }
}

/* PrefixKV: all layers keep one share of their mass, such that together they keep so many keys:
 * those with the least share before them. */
static void layers_keep_one_share(void **state) {
  const double sorted[2][6] = {{0.7, 0.1, 0.05, 0.05, 0.05, 0.05}, {0.2, 0.2, 0.2, 0.2, 0.1, 0.1}};
  double before[12];
  int32_t all[7], kept[2] = {0};
  for (int layer = 0; layer < 2; layer++) {
    double share = 0;
    for (int i = 0; i < 6; share += sorted[layer][i++]) before[layer * 6 + i] = -share;
  }
  select_from(NULL, before, 1, 12, all, 1, 7);
  for (int i = 0; i < 7; i++) kept[all[i] / 6]++;
  assert_int_equal(kept[0], 3);
  assert_int_equal(kept[1], 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(lengths_multiply_the_scale_alone),
      cmocka_unit_test(a_list_of_keys_is_a_table_of_pages),
      cmocka_unit_test(the_share_of_a_list),
      cmocka_unit_test(a_prefix_is_merged),
      cmocka_unit_test(a_window_and_slots),
      cmocka_unit_test(gaussian),
      cmocka_unit_test(forgetting),
      cmocka_unit_test(swat),
      cmocka_unit_test(unified_maximum),
      cmocka_unit_test(box_modulated),
      cmocka_unit_test(a_learnt_key),
      cmocka_unit_test(products_over_a_divisor),
      cmocka_unit_test(shared_weights),
      cmocka_unit_test(mass_of_a_window),
      cmocka_unit_test(each_head_keeps_its_keys),
      cmocka_unit_test(heads_vote),
      cmocka_unit_test(layers_share_a_budget),
      cmocka_unit_test(layers_keep_one_share),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
