/* pairs.c - proves losses of pairs on the worked examples of the catalogue of papers, against the
 * operators on rows that they are made of, over several blocks and rows of several parts; that
 * bits do not depend on threads and instruction sets; and rows that are masked, empty, or not
 * numbers. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

/* One call on features or similarities, with a loss and gradients in double; NULL: not there. */
typedef struct pair_test {
  const char *op;
  double *a, *b, *s;
  double *temperature;
  unsigned char *mask;
  int64_t *whole[2]; /* target; label, label_b */
  unsigned char *positive;
  double *numbers; /* weight, teacher, state */
  double *guide[2];
  double after[1]; /* new_state */
  int64_t n, m, d;
  smx_params params;
  smx_context *ctx;
  double *loss, *up; /* up NULL: 1 of each */
  double *da, *db, *ds, *dtemperature;
} pair_test;

static const smx_op *op_of(const pair_test *t) { return smx_op_find(t->op); }
static void set(pair_test *t, const char *name, const char *value) {
  if (!t->params.size) smx_params_init(op_of(t), &t->params);
  good(smx_params_parse(op_of(t), &t->params, name, value));
}

enum { PORTS = 9 };
static smx_status pairs_of(pair_test *t) {
  const smx_op *op = op_of(t);
  int64_t a[] = {t->n, t->d}, b[] = {t->m, t->d}, s[] = {t->n, t->m};
  smx_tensor in[PORTS], din[PORTS], loss = F64(t->loss, 1, &t->n), dloss = loss, after = loss;
  const smx_tensor *given[PORTS] = {NULL}, *wanted[PORTS] = {NULL}, *out[] = {&loss, &after},
                   *dout[] = {&dloss, NULL};
  double *const ones = malloc((size_t)(t->n + 1) * sizeof *ones), *const state =
                                                                      calloc((size_t)t->n + 1, sizeof *state);
  int whole = 0;
  for (int i = 0; i < op->input_count; i++) {
    const char *name = op->inputs[i].name;
    void *x = NULL, *g = NULL;
    in[i] = F64(NULL, 2, s);
    if (!strcmp(name, "a")) x = t->a, g = t->da, in[i].shape = a;
    if (!strcmp(name, "a") && t->s) x = t->s, g = t->ds, in[i].shape = s;
    if (!strcmp(name, "b")) x = t->b, g = t->db, in[i].shape = b;
    if (!strcmp(name, "temperature"))
      x = t->temperature, g = t->dtemperature, in[i].ndim = op->inputs[i].dims[0] == 'n';
    if (!strcmp(name, "weight") || !strcmp(name, "teacher")) x = t->numbers;
    if (!strcmp(name, "state")) x = t->numbers, in[i].ndim = 1;
    if (!strncmp(name, "guide_", 6)) x = t->guide[name[6] - 'a'], in[i].shape = t->s ? s : a;
    if (!strcmp(name, "mask")) x = t->mask, in[i].dtype = SMX_U8;
    if (!strcmp(name, "positive")) x = t->positive, in[i].dtype = SMX_U8;
    if (op->inputs[i].flags & SMX_PORT_INT)
      x = t->whole[whole], in[i].dtype = SMX_I64, in[i].ndim = 1, in[i].shape = whole++ ? &t->m : &t->n;
    din[i] = in[i], in[i].data = x, din[i].data = g;
    if (x) given[i] = in + i;
    if (g) wanted[i] = din + i;
  }
  if (t->s) set(t, "similarities", "yes");
  for (int64_t i = 0; i < t->n; i++) ones[i] = t->up ? t->up[i] : 1;
  dloss.data = ones, after.data = state;
  if (!t->params.size) smx_params_init(op, &t->params);
  smx_status status = smx_forward(op, t->ctx, &t->params, op->input_count, given, op->output_count, out);
  if (status == SMX_OK && (t->da || t->db || t->ds || t->dtemperature))
    status =
        smx_backward(op, t->ctx, &t->params, op->input_count, given, op->output_count, out, dout, wanted);
  if (t->n) t->after[0] = state[0];
  free(ones), free(state);
  return status;
}

/* ---- worked examples ---- */

static double x_row[] = {2, 1, .1, -1};

static void clip(void **state) {
  double s[] = {.9, .2, .1, .7}, loss[2], ds[4], dt, up[] = {.5, .5}, t = .5;
  pair_test c = {.op = "clip_loss",
                 .s = s,
                 .n = 2,
                 .m = 2,
                 .temperature = &t,
                 .up = up,
                 .loss = loss,
                 .ds = ds,
                 .dtemperature = &dt};
  good(pairs_of(&c));
  near((double[]){(loss[0] + loss[1]) / 2}, (double[]){.245215576}, 1, 1e-9);
  near(ds, (double[]){-.1828989, .2333788, .1997284, -.2502083}, 4, 1e-7);
  near(&dt, (double[]){.5462124}, 1, 1e-7);
}

static void views_on_a_circle(void **state) {
  static const double angle[] = {0, 1, .2, 1.5};
  double a[8], loss[4], beside[8];
  for (int i = 0; i < 4; i++) a[2 * i] = 3 * cos(angle[i]), a[2 * i + 1] = 3 * sin(angle[i]);
  pair_test c = {.op = "nt_xent", .a = a, .n = 4, .m = 4, .d = 2, .loss = loss};
  good(pairs_of(&c));
  near((double[]){(loss[0] + loss[1] + loss[2] + loss[3]) / 4}, (double[]){.560148507}, 1, 1e-9);
  for (int i = 0; i < 8; i++) beside[i] = a[(i / 4 + 2 * (i / 2 % 2)) * 2 + i % 2];
  c.a = beside, set(&c, "views", "interleaved");
  good(pairs_of(&c));
  near((double[]){(loss[0] + loss[1] + loss[2] + loss[3]) / 4}, (double[]){.560148507}, 1, 1e-9);
}

static void positives_of_a_row(void **state) {
  static const struct {
    const char *form;
    double loss, ds[4];
  } all[] = {{"nce", .309926244, {-.2318252, .2347315, -.03467377, .03176745}},
             {"in", .309926244 + 0.69314718056, {-.2318252, .2347315, -.03467377, .03176745}},
             {"out", 1.399313, {.1380664, .2347315, -.4045653, .03176745}}};
  unsigned char positive[] = {1, 0, 1, 0};
  for (size_t i = 0; i < COUNT_OF(all); i++) {
    double loss, ds[4];
    pair_test c = {.op = "supervised_contrastive",
                   .s = x_row,
                   .n = 1,
                   .m = 4,
                   .positive = positive,
                   .loss = &loss,
                   .ds = ds};
    set(&c, "temperature", "1"), set(&c, "form", all[i].form);
    good(pairs_of(&c));
    near(&loss, &all[i].loss, 1, 1e-6), near(ds, all[i].ds, 4, 1e-7);
  }
}

typedef struct example {
  const char *op, *names[4], *values[4];
  int64_t m;
  double s[4];
  unsigned char positive[4];
  double numbers[4];
  double loss, ds[4]; /* ds[0] 0: not known */
} example;

static const example examples[] = {
    {"decoupled_softmax_loss",
     {"temperature"},
     {"1"},
     4,
     {2, 1, .1, -1},
     {1, 0, 1, 0},
     {1, 1, 1, 1},
     .841015422,
     {-.1473077, .4540224, -.3681599, .06144525}},
    {"soft_topk_loss",
     {"temperature", "k"},
     {"1", "2"},
     4,
     {2, 1, .1, -1},
     {1, 0, 1, 0},
     {0},
     .640498133,
     {.02228914, .3083979, -.3941028, .06341572}},
    {"pairwise_softmax_loss",
     {"outer"},
     {".5"},
     4,
     {.6, .2, .7, -.1},
     {0},
     {0},
     .559763116,
     {-2.137294, .6062418, 1.244096, .2869559}},
    {"pairwise_softmax_loss",
     {"outer", "activation"},
     {".5", "relu"},
     4,
     {.6, .2, .7, -.1},
     {0},
     {0},
     .506817602,
     {0}},
    {"pairwise_softmax_loss",
     {"outer", "activation"},
     {".5", "atan"},
     4,
     {.6, .2, .7, -.1},
     {0},
     {0},
     .55651256,
     {0}},
    {"pairwise_softmax_loss",
     {"outer", "activation"},
     {".5", "exp"},
     4,
     {.6, .2, .7, -.1},
     {0},
     {0},
     .650932908,
     {0}},
    {"pairwise_softmax_loss", {"activation"}, {"bpr"}, 2, {1.2, .4}, {0}, {0}, .3711006659, {0}},
    {"graded_embedding_loss", {NULL}, {NULL}, 3, {.8, .5, .3}, {0}, {.9, .6, .2}, 4.113929e-5, {0}},
};

static void the_examples(void **state) {
  for (const example *e = examples; e < examples + COUNT_OF(examples); e++) {
    example is = *e;
    double loss, ds[4];
    pair_test c = {.op = is.op,
                   .s = is.s,
                   .n = 1,
                   .m = is.m,
                   .positive = is.positive,
                   .numbers = is.numbers,
                   .loss = &loss,
                   .ds = ds};
    for (int k = 0; is.names[k]; k++) set(&c, is.names[k], is.values[k]);
    good(pairs_of(&c));
    near(&loss, &is.loss, 1, 1e-6 * is.loss);
    if (is.ds[0] != 0) near(ds, is.ds, (int)is.m, 1e-6);
  }
}

/* Two series of one step, two views of each: the losses of SoftCLT, soft and hard. */
static void views_with_weights(void **state) {
  double a[] = {1, 0, .2, .9, .8, .3, 0, 1}, loss[4];
  for (int hard = 0; hard < 2; hard++) {
    double w[16];
    for (int i = 0; i < 16; i++) w[i] = i / 4 % 2 == i % 2 ? 1 : hard ? 0 : .3;
    pair_test c = {.op = "soft_contrastive", .a = a, .n = 4, .m = 4, .d = 2, .numbers = w, .loss = loss};
    good(pairs_of(&c));
    near((double[]){(loss[0] + loss[1] + loss[2] + loss[3]) / 4},
         (double[]){hard ? .7366715507 : 1.5491744811}, 1, 1e-9);
  }
}

/* The exact gradient of the global objective, with gamma = 1 and without a state. */
static void global_objective(void **state) {
  double s[] = {0, -.4, .1, -.7}, loss[2], ds[4], t = .5, dt;
  pair_test c = {.op = "global_contrastive_loss",
                 .s = s,
                 .n = 1,
                 .m = 4,
                 .temperature = &t,
                 .loss = loss,
                 .ds = ds,
                 .dtemperature = &dt};
  set(&c, "rho", "0.3");
  for (int gamma = 0; gamma < 2; gamma++) {
    if (gamma) c.numbers = (double[]){7}, set(&c, "gamma", "1");
    good(pairs_of(&c));
    near(loss, (double[]){-.0738396903}, 1, 1e-9), near(&dt, (double[]){.09245596}, 1, 1e-7);
    near(ds + 1, (double[]){.2343516, .6370336, .1286149}, 3, 1e-7);
    near(ds, (double[]){-1}, 1, 1e-12);
  }
  set(&c, "gamma", "0.25"); /* (3/4 e^7 + 1/4 sum): what is kept of an old sum */
  good(pairs_of(&c));
  const double sum = exp(-.8) + exp(.2) + exp(-1.4), now = .75 * exp(7) + .25 * sum;
  near(loss, (double[]){.5 * (log(now / 3) + .3)}, 1, 1e-12), near(c.after, (double[]){log(now)}, 1, 1e-12);
  near(ds + 1, (double[]){exp(-.8) / now, exp(.2) / now, exp(-1.4) / now}, 3, 1e-12);
}

/* Every row, and every column in another order, is that of the catalogue. */
static void soft_clip(void **state) {
  static const double x[] = {2, 1, .1, -1}, r[] = {3, 2, .5, 0};
  double s[16], guide_a[16], guide_b[16], loss[4], want[4];
  for (int i = 0; i < 16; i++) {
    const int from = (i % 4 - i / 4 + 4) % 4, to = (i / 4 - i % 4 + 4) % 4;
    s[i] = x[from], guide_a[i] = r[from], guide_b[i] = r[to];
  }
  static const char *const lambda[] = {"0", "1", "2"};
  for (int k = 0; k < 3; k++) {
    pair_test c = {.op = "soft_clip_loss", .s = s, .n = 4, .m = 4, .guide = {guide_a, guide_b}, .loss = loss};
    set(&c, "temperature", "1"), set(&c, "guide_temperature", "1"), set(&c, "negatives", lambda[k]);
    good(pairs_of(&c));
    for (int i = 0; i < 4; i++) want[i] = .1837924571 + k * .0281119392;
    near(loss, want, 4, 1e-9);
  }
}

/* A loss of 2e-17 is not 0: it is log(1 + e^-38.45). */
static void small_losses_keep_their_digits(void **state) {
  double s[] = {1, -1.6916}, loss, want = log1p(exp(-2.6916 / .07));
  pair_test c = {.op = "info_nce", .s = s, .n = 1, .m = 2, .loss = &loss};
  good(pairs_of(&c));
  near(&loss, &want, 1, want * 1e-12);
}

/* ---- larger calls ---- */

typedef struct large {
  int64_t n, m, d;
} large;
static const large sizes[] = {{600, 600, 5}, {3, 33000, 2}, {70, 70, 70}};

static double *normals(rng *r, int64_t n) {
  double *x = malloc((size_t)(n + 1) * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = rng_normal(r);
  return x;
}

/* info_nce of plain products is cross_entropy of their matrix: loss and gradients. */
static void info_nce_is_cross_entropy(void **state) {
  for (const large *z = sizes; z < sizes + COUNT_OF(sizes); z++) {
    rng r = {3};
    double *a = normals(&r, z->n * z->d), *b = normals(&r, z->m * z->d), *loss = normals(&r, z->n),
           *da = normals(&r, z->n * z->d), *db = normals(&r, z->m * z->d), *want = normals(&r, z->n),
           *dh = normals(&r, z->n * z->d), *dw = normals(&r, z->m * z->d);
    int64_t *target = malloc((size_t)z->n * sizeof *target), of_a[] = {z->n, z->d}, of_b[] = {z->m, z->d};
    for (int64_t i = 0; i < z->n; i++) target[i] = i % 5 ? rng_below(&r, z->m) : -100;
    pair_test c = {
        .op = "info_nce", .a = a, .b = b, .n = z->n, .m = z->m, .d = z->d, .loss = loss, .da = da, .db = db};
    c.whole[0] = target, set(&c, "normalise", "no"), set(&c, "temperature", "1.5");
    good(pairs_of(&c));
    const smx_tensor ta = F64(a, 2, of_a), tb = F64(b, 2, of_b), th = F64(dh, 2, of_a), tw = F64(dw, 2, of_b),
                     tl = F64(want, 1, of_a), tt = tensor(target, SMX_I64, 1, of_a);
    const smx_op *op = smx_op_find("linear_cross_entropy_gradient");
    smx_params p;
    smx_params_init(op, &p);
    good(smx_params_parse(op, &p, "temperature", "1.5"));
    const smx_tensor *in[] = {&ta, &tb, &tt}, *out[] = {&tl, NULL, &th, &tw};
    good(smx_forward(op, NULL, &p, 3, in, 4, out));
    near(loss, want, (int)z->n, 1e-13);
    near(da, dh, (int)(z->n * z->d), 1e-13), near(db, dw, (int)(z->m * z->d), 1e-13);
    free(a), free(b), free(loss), free(da), free(db), free(want), free(dh), free(dw), free(target);
  }
}

/* clip_loss is the mean of info_nce of s and of s turned; so is its gradient. */
static void clip_is_both_directions(void **state) {
  enum { N = 600 };
  rng r = {5};
  double *s = normals(&r, N * N), *turned = normals(&r, N * N), *up = normals(&r, N), t = .3;
  double *loss[3], *ds[3], dt[3];
  static unsigned char mask[N * N], mask_turned[N * N];
  for (int64_t i = 0; i < N * N; i++) {
    const int64_t at = i % N * N + i / N;
    turned[at] = s[i], mask_turned[at] = mask[i] = rng_below(&r, 8) != 0;
  }
  for (int k = 0; k < 3; k++) {
    loss[k] = normals(&r, N), ds[k] = normals(&r, N * N);
    pair_test c = {.op = k ? "info_nce" : "clip_loss",
                   .s = k == 2 ? turned : s,
                   .n = N,
                   .m = N,
                   .loss = loss[k],
                   .ds = ds[k],
                   .up = up,
                   .temperature = &t,
                   .dtemperature = dt + k};
    c.mask = k == 2 ? mask_turned : mask;
    good(pairs_of(&c));
  }
  for (int64_t i = 0; i < N; i++) loss[1][i] = (loss[1][i] + loss[2][i]) / 2;
  for (int64_t i = 0; i < N * N; i++) ds[1][i] = (ds[1][i] + ds[2][i % N * N + i / N]) / 2;
  dt[1] = (dt[1] + dt[2]) / 2;
  near(loss[0], loss[1], N, 1e-13), near(ds[0], ds[1], N * N, 1e-13), near(dt, dt + 1, 1, 1e-9);
  for (int k = 0; k < 3; k++) free(loss[k]), free(ds[k]);
  free(s), free(turned), free(up);
}

/* ---- bits ---- */

/* Of the same a, b, labels and numbers. */
static const struct {
  const char *name;
  bool b, labels;
} all_ops[] = {{"info_nce", true, false},
               {"clip_loss", true, false},
               {"nt_xent", false, false},
               {"supervised_contrastive", false, true},
               {"decoupled_softmax_loss", false, true},
               {"pairwise_softmax_loss", true, false},
               {"soft_contrastive", false, false},
               {"soft_topk_loss", false, true},
               {"graded_embedding_loss", true, false},
               {"global_contrastive_loss", true, false},
               {"soft_clip_loss", true, false}};

static uint64_t hash_of(uint64_t h, const double *x, int64_t n) { return fnv1a(h, x, (size_t)n * sizeof *x); }

static void the_same_bits_every_way(void **state) {
  enum { N = 600, D = 3 };
  rng r = {7};
  double *a = normals(&r, N * D), *b = normals(&r, N * D), *loss = normals(&r, N), *da = normals(&r, N * D),
         *db = normals(&r, N * D), *numbers = normals(&r, N * N), *t = normals(&r, N), *dt = normals(&r, N);
  int64_t label[N];
  for (int i = 0; i < N; i++) label[i] = rng_below(&r, 9), t[i] = .5;
  for (size_t o = 0; o < COUNT_OF(all_ops); o++) {
    uint64_t hash = 0;
    for (way w = {0}; next_way(&w);) {
      pair_test c = {.op = all_ops[o].name,
                     .a = a,
                     .b = all_ops[o].b ? b : NULL,
                     .n = N,
                     .m = N,
                     .d = D,
                     .temperature = t,
                     .ctx = w.ctx,
                     .loss = loss,
                     .da = da,
                     .db = all_ops[o].b ? db : NULL,
                     .dtemperature = dt,
                     .guide = {a, b},
                     .numbers = numbers};
      if (all_ops[o].labels) c.whole[0] = label;
      good(pairs_of(&c));
      uint64_t is = hash_of(hash_of(hash_of(FNV1A_START, loss, N), da, N * D), dt, 1);
      if (all_ops[o].b) is = hash_of(is, db, N * D);
      if (w.number == 1) hash = is;
      if (is != hash) fail_msg("%s: other bits in way %d", all_ops[o].name, w.number);
    }
  }
  free(a), free(b), free(loss), free(da), free(db), free(numbers), free(t), free(dt);
}

/* ---- what is not there ---- */

static void masked_pairs_do_not_exist(void **state) {
  double s[] = {1, NAN, 2, .5, 1, INFINITY, 3, 2, 1}, loss[3], ds[9];
  unsigned char mask[] = {1, 0, 1, 1, 1, 0, 1, 1, 1};
  pair_test c = {.op = "info_nce", .s = s, .n = 3, .m = 3, .mask = mask, .loss = loss, .ds = ds};
  set(&c, "temperature", "1");
  good(pairs_of(&c));
  near(loss, (double[]){log1p(exp(1)), log1p(exp(-.5)), log1p(exp(1) + exp(2))}, 3, 1e-14);
  near((double[]){ds[1], ds[5]}, (double[]){0, 0}, 2, 0);
  double left[3], dleft[9], two[] = {1, NAN, NAN, .5, 1, NAN, 3, 2, 1};
  unsigned char lower[] = {1, 0, 0, 1, 1, 0, 1, 1, 1};
  pair_test e = {.op = "clip_loss", .s = two, .n = 3, .m = 3, .mask = lower, .loss = left, .ds = dleft};
  set(&e, "temperature", "1");
  good(pairs_of(&e));
  near(left,
       (double[]){log1p(exp(-.5) + exp(2)) / 2, (log1p(exp(-.5)) + log1p(exp(1))) / 2,
                  log1p(exp(2) + exp(1)) / 2},
       3, 1e-14);
  near((double[]){dleft[1], dleft[2], dleft[5]}, (double[]){0, 0, 0}, 3, 0);
}

static void rows_of_nothing(void **state) {
  double s[] = {NAN, NAN, 1, 2}, loss[2], ds[4], one = 3, a[] = {1, 2}, da[2];
  int64_t target[] = {-100, 1}, label[] = {0, 1};
  pair_test c = {.op = "info_nce", .s = s, .n = 2, .m = 2, .loss = loss, .ds = ds, .whole = {target}};
  set(&c, "temperature", "1");
  good(pairs_of(&c)); /* an ignored row of NaN */
  near(loss, (double[]){0, log1p(exp(-1))}, 2, 1e-15), near(ds, (double[]){0, 0}, 2, 0);
  c.whole[0] = NULL;
  good(pairs_of(&c)); /* it is not ignored */
  assert_true(isnan(loss[0]) && isnan(ds[0]) && isnan(ds[1]) && !isnan(loss[1]));
  for (size_t o = 0; o < 2; o++) { /* one pair: nothing to compare with */
    pair_test e = {.op = all_ops[o].name, .s = &one, .n = 1, .m = 1, .loss = loss, .ds = ds};
    good(pairs_of(&e));
    near((double[]){loss[0], ds[0]}, (double[]){0, 0}, 2, 0);
  }
  pair_test f = {.op = "supervised_contrastive", .a = a, .n = 2, .m = 2, .d = 1, .loss = loss, .da = da};
  f.whole[0] = label;
  good(pairs_of(&f)); /* no positives */
  near(loss, (double[]){0, 0}, 2, 0), near(da, (double[]){0, 0}, 2, 0);
  label[0] = label[1] = -1;
  good(pairs_of(&f)); /* no labels */
  near(loss, (double[]){0, 0}, 2, 0);
  double zero[] = {0, 0, 1, 0, 0, 1, 1, 1}, dzero[8], four[4];
  pair_test g = {.op = "nt_xent", .a = zero, .n = 4, .m = 4, .d = 2, .loss = four, .da = dzero};
  good(pairs_of(&g)); /* a row of zeros has cosines of 0 */
  near(four, (double[]){log(3)}, 1, 1e-15);
  for (int i = 0; i < 8; i++) assert_true(isfinite(dzero[i]));
}

static void no_rows(void **state) {
  double none = 0, db[] = {5, 5}, b[] = {1, 2}, loss;
  pair_test c = {
      .op = "info_nce", .a = &none, .b = b, .n = 0, .m = 2, .d = 1, .loss = &loss, .da = &none, .db = db};
  good(pairs_of(&c));
  near(db, (double[]){0, 0}, 2, 0);
}

static void wrong_calls(void **state) {
  double s[12] = {0}, loss[4], cold = 0;
  int64_t label[4] = {0};
  unsigned char positive[12] = {0};
  pair_test c = {.op = "info_nce", .s = s, .n = 4, .m = 3, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_SHAPE, "without target, 4 rows have no 4 keys");
  c.n = 3, c.m = 4, c.temperature = &cold;
  refused(pairs_of(&c), SMX_ERR_PARAM, "temperature is 0, not");
  c.temperature = NULL, c.b = s, c.d = c.m;
  refused(pairs_of(&c), SMX_ERR_PARAM, "b is given beside similarities");
  c = (pair_test){.op = "clip_loss", .s = s, .n = 3, .m = 4, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_SHAPE, "a is 3 x 4, but these similarities are a square");
  c = (pair_test){.op = "clip_loss", .a = s, .n = 3, .m = 3, .d = 1, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_NULL, "b is NULL");
  c = (pair_test){.op = "nt_xent", .a = s, .n = 3, .m = 3, .d = 1, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_SHAPE, "3 rows are no pairs of views");
  c.op = "soft_contrastive";
  refused(pairs_of(&c), SMX_ERR_NULL, "weight is NULL");
  c = (pair_test){.op = "graded_embedding_loss", .s = s, .n = 3, .m = 3, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_NULL, "teacher is NULL");
  c = (pair_test){.op = "supervised_contrastive", .a = s, .n = 3, .m = 3, .d = 1, .loss = loss};
  refused(pairs_of(&c), SMX_ERR_PARAM, "give one of label and positive");
  c.whole[0] = label, c.positive = positive;
  refused(pairs_of(&c), SMX_ERR_PARAM, "give one of label and positive");
  c.positive = NULL, c.b = s, c.m = 4;
  refused(pairs_of(&c), SMX_ERR_SHAPE, "label_b is NULL, and there are 3 rows and 4 columns");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clip),
      cmocka_unit_test(views_on_a_circle),
      cmocka_unit_test(positives_of_a_row),
      cmocka_unit_test(the_examples),
      cmocka_unit_test(views_with_weights),
      cmocka_unit_test(global_objective),
      cmocka_unit_test(soft_clip),
      cmocka_unit_test(small_losses_keep_their_digits),
      cmocka_unit_test(info_nce_is_cross_entropy),
      cmocka_unit_test(clip_is_both_directions),
      cmocka_unit_test(the_same_bits_every_way),
      cmocka_unit_test(masked_pairs_do_not_exist),
      cmocka_unit_test(rows_of_nothing),
      cmocka_unit_test(no_rows),
      cmocka_unit_test(wrong_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
