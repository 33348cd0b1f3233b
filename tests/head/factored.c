/* factored.c - proves layers that are kept as factors: the catalogue's losses, many steps beside
 * gradient descent on the layer itself, whose losses are other operators, steps that cannot be
 * taken, ignored and bad numbers, and the same bits every way. */
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { ROWS = 33, WIDTH = 20, CLASSES = 150, STATE = 3 * WIDTH + 2, TIMES = 40 };
typedef struct layer {
  int64_t n, t, d, c, target[ROWS];
  double h[ROWS * WIDTH], v[CLASSES * WIDTH], state[STATE * WIDTH], grad[ROWS], loss[ROWS], dh[ROWS * WIDTH],
      rows[ROWS * WIDTH], next[STATE * WIDTH], condition, w[CLASSES * WIDTH];
} layer;
/* A form of the loss, and the operator on logits that is the same. */
typedef struct form {
  const char *name, *op, *epsilon;
} form;
static const form forms[] = {{"z_loss", "z_loss", "1e-12"},
                             {"mse", "spherical_loss", "0.01"},
                             {"log_spherical", "spherical_loss", "0.01"},
                             {"log_taylor", "spherical_loss", "0.01"}};

static layer *open_layer(int64_t n, int64_t d, int64_t c) {
  layer *l = calloc(1, sizeof *l);
  assert_non_null(l);
  l->n = n, l->t = 1, l->d = d, l->c = c, l->condition = -1;
  for (int i = 0; i < ROWS; i++) l->grad[i] = 1;
  return l;
}

static smx_status state_of(layer *l, smx_context *ctx) {
  int64_t vs[] = {l->c, l->d}, ss[] = {3 * l->d + 2, l->d};
  const smx_tensor v = F64(l->v, 2, vs), state = F64(l->state, 2, ss), *const in[] = {&v}, *out[] = {&state};
  return smx_forward(smx_op_find("factored_spherical_state"), ctx, NULL, 1, in, 1, out);
}
static smx_status weights_of(layer *l, double *w) {
  int64_t vs[] = {l->c, l->d}, ss[] = {3 * l->d + 2, l->d};
  const smx_tensor v = F64(l->v, 2, vs), state = F64(l->state, 2, ss),
                   to = F64(w, 2, vs), *const in[] = {&v, &state}, *out[] = {&to};
  return smx_forward(smx_op_find("factored_spherical_weights"), NULL, NULL, 2, in, 1, out);
}

/* The losses and the gradient of h, as a head and as a step; the step is in rows and next. */
static smx_status run(layer *l, smx_context *ctx, const form *f, const char *lr, bool step) {
  const smx_op *op = smx_op_find(step ? "factored_spherical_step" : "factored_spherical_head");
  int64_t hs[] = {l->n, l->d}, vs[] = {l->c, l->d}, ss[] = {3 * l->d + 2, l->d}, ts[] = {l->n, l->t},
          rs[] = {l->n, l->t, l->d};
  const smx_tensor h = F64(l->h, 2, hs), v = F64(l->v, 2, vs), state = F64(l->state, 2, ss),
                   target = tensor(l->target, SMX_I64, 2, ts), grad = F64(l->grad, 1, hs),
                   loss = F64(l->loss, 1, hs), dh = F64(l->dh, 2, hs), rows = F64(l->rows, 3, rs),
                   next = F64(l->next, 2, ss), condition = F64(&l->condition, 0, NULL);
  const smx_tensor *const in[] = {&h, &v, &state, &target, NULL, step ? &grad : NULL},
                          *out[] = {&loss, &dh, &rows, &next, &condition}, *dout[] = {&grad},
                          *din[] = {&dh, NULL, NULL, NULL, NULL};
  smx_params p;
  good(smx_params_init(op, &p));
  good(smx_params_parse(op, &p, "form", f->name)), good(smx_params_parse(op, &p, "epsilon", f->epsilon));
  if (step) {
    good(smx_params_parse(op, &p, "lr", lr));
    return smx_forward(op, ctx, &p, 6, in, 5, out);
  }
  const smx_status status = smx_forward(op, ctx, &p, 5, in, 1, out);
  return status == SMX_OK ? smx_backward(op, ctx, &p, 5, in, 1, NULL, dout, din) : status;
}

static void take_step(layer *l) {
  for (int64_t i = 0; i < l->n; i++)
    if (l->target[i] >= 0)
      memcpy(l->v + l->target[i] * l->d, l->rows + i * l->d, sizeof *l->v * (size_t)l->d);
  memcpy(l->state, l->next, sizeof *l->state * (size_t)((3 * l->d + 2) * l->d));
}

/* o = X, the target 0: catalogue, spherical_losses. */
static void the_losses(void **state) {
  static const double want[] = {0.234312784, 3.01, 0.411267031, 0.599385801};
  const double x[] = {2, 1, .1, -1}, g[] = {-0.05783419, 0.07407004, 0.02305682, -0.03929267};
  layer *l = open_layer(1, 1, 4);
  l->h[0] = 1, memcpy(l->v, x, sizeof x);
  good(state_of(l, NULL));
  for (int k = 0; k < 4; k++)
    for (int step = 0; step < 2; step++) {
      good(run(l, NULL, forms + k, "0", step));
      near(l->loss, want + k, 1, 5e-9);
    }
  double slope = 0;
  for (int j = 0; j < 4; j++) slope += g[j] * x[j]; /* 0: the loss has no scale */
  good(run(l, NULL, forms, "0", false));
  near(l->dh, &slope, 1, 5e-8);
  free(l);
}

static void fill(layer *l, uint64_t seed) {
  rng r = {seed};
  for (int64_t i = 0; i < l->n * l->d; i++) l->h[i] = rng_normal(&r);
  for (int64_t i = 0; i < l->n; i++)
    l->target[i] = i % 9 == 8 ? -100 : rng_below(&r, 12); /* often the same */
  for (int64_t i = 0; i < l->n; i++) l->grad[i] = rng_uniform(&r);
}

/* A step on w itself, with the gradients of an operator on logits. */
static void plain_step(const layer *l, const form *f, double lr, double *w, double *loss, double *dh) {
  static double o[ROWS * CLASSES], g[ROWS * CLASSES];
  const smx_op *op = smx_op_find(f->op);
  int64_t os[] = {l->n, l->c};
  const smx_tensor x = F64(o, 2, os), target = tensor((void *)(uintptr_t)l->target, SMX_I64, 1, os),
                   to = F64(loss, 1, os), up = F64((double *)(uintptr_t)l->grad, 1, os), dx = F64(g, 2, os);
  const smx_tensor *const in[] = {&x, &target}, *out[] = {&to}, *dout[] = {&up}, *din[] = {&dx, NULL};
  smx_params p;
  good(smx_params_init(op, &p));
  if (strcmp(f->op, "z_loss") != 0) good(smx_params_parse(op, &p, "form", f->name));
  for (int64_t i = 0; i < l->n * l->c; i++) {
    o[i] = 0;
    for (int64_t j = 0; j < l->d; j++) o[i] += l->h[i / l->c * l->d + j] * w[i % l->c * l->d + j];
  }
  good(smx_forward(op, NULL, &p, 2, in, 1, out));
  good(smx_backward(op, NULL, &p, 2, in, 1, NULL, dout, din));
  memset(dh, 0, sizeof *dh * (size_t)(l->n * l->d));
  for (int64_t i = 0; i < l->n * l->c; i++)
    for (int64_t j = 0; j < l->d; j++) dh[i / l->c * l->d + j] += g[i] * w[i % l->c * l->d + j];
  for (int64_t i = 0; i < l->n * l->c; i++)
    for (int64_t j = 0; j < l->d; j++) w[i % l->c * l->d + j] -= lr * g[i] * l->h[i / l->c * l->d + j];
}

/* Fewer and more rows than columns. */
static void many_steps(void **state) {
  static const int64_t sizes[] = {7, ROWS};
  for (int k = 0; k < 8; k++) {
    layer *l = open_layer(sizes[k / 4], WIDTH, CLASSES), *kept = open_layer(1, WIDTH, CLASSES);
    static double w[CLASSES * WIDTH], loss[ROWS], dh[ROWS * WIDTH];
    const form *const f = forms + k % 4;
    const char *const lr = k % 4 == 1 || k % 4 == 2 ? "0.001" : "0.05"; /* steep ones are unstable */
    rng r = {3};
    for (int i = 0; i < CLASSES * WIDTH; i++) w[i] = l->v[i] = rng_normal(&r) / 4;
    good(state_of(l, NULL));
    for (int step = 0; step < TIMES; step++) {
      fill(l, 100 + (uint64_t)step);
      plain_step(l, f, atof(lr), w, loss, dh);
      good(run(l, NULL, f, lr, false)); /* the head says what the step says */
      near(l->loss, loss, (int)l->n, 1e-10), near(l->dh, dh, (int)(l->n * l->d), 1e-10);
      memset(l->dh, 0, sizeof l->dh);
      good(run(l, NULL, f, lr, true));
      near(l->loss, loss, (int)l->n, 1e-10), near(l->dh, dh, (int)(l->n * l->d), 1e-10);
      assert_true(l->condition >= 1 && l->condition < 1e3);
      take_step(l);
    }
    good(weights_of(l, l->w));
    near(l->w, w, CLASSES * WIDTH, 1e-11);
    memcpy(kept->v, w, sizeof w); /* Q and sums are those of the layer */
    good(state_of(kept, NULL));
    near(l->state + 2 * WIDTH * WIDTH, kept->state + 2 * WIDTH * WIDTH, WIDTH * WIDTH, 1e-9);
    near(l->state + (STATE - 1) * WIDTH, kept->state + (STATE - 1) * WIDTH, WIDTH, 1e-10);
    free(l), free(kept);
  }
}

/* w (1 - 2 lr h^2) of a squared error: nothing is left of U where that is 0. */
static void no_step(void **state) {
  layer *l = open_layer(1, 1, 4);
  l->h[0] = 1, l->v[0] = 1;
  good(state_of(l, NULL));
  good(run(l, NULL, forms + 1, "0.5", true));
  assert_false(l->condition < 1e6);
  assert_true(l->v[0] == 1 && l->state[0] == 1);
  l->h[0] = NAN;
  good(run(l, NULL, forms + 1, "0.1", true));
  assert_true(isnan(l->loss[0]) && isnan(l->dh[0]) && isnan(l->condition));
  l->target[0] = -100; /* whatever an ignored row holds */
  good(run(l, NULL, forms + 1, "0.1", true));
  assert_true(l->loss[0] == 0 && l->dh[0] == 0 && l->rows[0] == 0 && l->condition == 1);
  assert_memory_equal(l->next, l->state, sizeof l->state);
  good(run(l, NULL, forms, "0.1", false));
  assert_true(l->loss[0] == 0 && l->dh[0] == 0);
  l->target[0] = 4;
  refused(run(l, NULL, forms, "0.1", true), SMX_ERR_TARGET, "target");
  free(l);
}

/* Scores that are all equal have z = 0 and no gradient; no classes of a row, no rows. */
static void edges(void **state) {
  layer *l = open_layer(2, 3, 5);
  const double half = log(2);
  for (int i = 0; i < 15; i++) l->v[i] = 0.1 * (1 + i % 3);
  for (int i = 0; i < 6; i++) l->h[i] = 0.3 + i;
  good(state_of(l, NULL));
  good(run(l, NULL, forms, "0.1", true));
  near(l->loss, (double[]){half, half}, 2, 1e-15), near(l->dh, (double[6]){0}, 6, 0);
  l->t = 0, l->loss[0] = 1;
  good(run(l, NULL, forms + 1, "0.1", true));
  assert_true(l->loss[0] == 0);
  near(&l->condition, (double[]){1}, 1, 1e-15);
  l->t = 1, l->n = 0, l->condition = 0;
  good(run(l, NULL, forms + 3, "0.1", true));
  near(&l->condition, (double[]){1}, 1, 1e-15);
  assert_memory_equal(l->next, l->state, sizeof(double) * 33);
  free(l);
}

/* Scores whose squares no number holds have no loss, as in spherical_loss, but for a squared error,
 * which is infinite; those of a class that is no target too. */
static void beyond_numbers(void **state) {
  for (int k = 0; k < 8; k++) {
    layer *l = open_layer(1, 1, 4);
    for (int i = 0; i < 4; i++) l->v[i] = 1 + i;
    l->h[0] = k < 4 ? 1e200 : 1;
    if (k >= 4) l->v[3] = INFINITY;
    good(state_of(l, NULL));
    good(run(l, NULL, forms + k % 4, "0.1", true));
    if (k % 4 == 1) assert_true(isinf(l->loss[0]) && l->loss[0] > 0);
    else assert_true(isnan(l->loss[0]) && isnan(l->dh[0]) && isnan(l->condition));
    free(l);
  }
}

static layer *after_a_step(smx_context *ctx, const form *f) {
  layer *l = open_layer(ROWS, WIDTH, CLASSES);
  rng r = {9};
  for (int i = 0; i < CLASSES * WIDTH; i++) l->v[i] = rng_normal(&r);
  fill(l, 4);
  good(state_of(l, ctx));
  for (int k = 0; k < 2; k++) {
    good(run(l, ctx, f, "0.01", true));
    take_step(l);
  }
  return l;
}
static void every_way(void **state) {
  for (int k = 0; k < 4; k++) {
    layer *a = after_a_step(NULL, forms + k);
    for (way w = {0}; next_way(&w);) {
      layer *b = after_a_step(w.ctx, forms + k);
      assert_memory_equal(a, b, sizeof *a);
      free(b);
    }
    free(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_losses), cmocka_unit_test(many_steps),     cmocka_unit_test(no_step),
      cmocka_unit_test(edges),      cmocka_unit_test(beyond_numbers), cmocka_unit_test(every_way),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
