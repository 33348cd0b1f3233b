/* rope.c - proves rotary position embedding: known answers, values against long double, gradients
 * against differences of these, that bits depend on neither instruction set, threads, layout in
 * memory, nor on the rows of a call, and what bad input gives. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/internal.h"
#include "attention_case.h"
#include "cpu/cpu.h"
#include "unit.h"

enum { B = 2, H = 3, L = 70, D = 12, MOST = B * H * L * D };

/* A call and what it is given, as values in C order. Absent: NULL. */
typedef struct rope_case {
  smx_dtype dtype, position_type;
  int64_t shape[4], pairs;
  smx_rope_options options;
  double *x, *positions, *frequencies, *carry; /* positions [B, H, L, pairs], the others [B, H, pairs] */
  int shared;                                  /* positions are [L, 1] */
} rope_case;

static double store[8][MOST];

static void fill(double *to, int64_t n, uint64_t seed, double size, smx_dtype t) {
  rng r = {seed};
  for (int64_t i = 0; i < n; i++)
    to[i] = t.code == 0 ? floor(size * 100 * rng_normal(&r)) : dtype_round(t, size * rng_normal(&r));
}

/* way: which of the options there are. */
static rope_case new_case(int way) {
  rope_case c = {.dtype = SMX_F32,
                 .position_type = SMX_F64,
                 .shape = {B, H, L, D},
                 .options = {.size = sizeof c.options}};
  c.options.layout = way & 1 ? SMX_ROPE_INTERLEAVED : SMX_ROPE_HALF;
  c.options.dims = way & 2 ? 8 : 0;
  c.pairs = way & 2 ? 4 : D / 2;
  if (way & 4) c.options.base = 500, c.options.scale = 0.25;
  c.options.start = way & 8 ? 0 : way * 1000;
  if (way & 8) {
    c.position_type = way & 16 ? SMX_F32 : SMX_I64;
    c.shared = way % 3 == 0;
    c.positions = store[1];
    fill(c.positions, B * H * L * c.pairs, (uint64_t)way, 3, c.position_type);
  }
  if (way & 32) c.frequencies = store[2], fill(c.frequencies, B * H * c.pairs, 5, 0.5, SMX_F64);
  if ((way & 64) && c.positions)
    c.options.cumulative = 1, c.carry = store[3], fill(c.carry, B * H * c.pairs, 6, 9, SMX_F64);
  c.x = store[0];
  fill(c.x, MOST, (uint64_t)way + 1, 1, SMX_F16);
  return c;
}
enum { WAYS = 128 };

typedef struct placed_rope {
  placed x, y, positions, frequencies, carry, out;
  smx_rope_options options;
} placed_rope;

static void place_case(const rope_case *c, int order, placed_rope *p) {
  const int64_t full[] = {c->shape[0], c->shape[1], c->shape[2], c->pairs},
                state[] = {c->shape[0], c->shape[1], c->pairs};
  p->options = c->options;
  place(&p->x, 0, order, c->dtype, 4, c->shape, c->x);
  place(&p->y, 1, order, c->dtype, 4, c->shape, NULL);
  place(&p->out, 5, ORDER_BHLD, SMX_F64, 3, state, NULL);
  if (c->positions && c->shared)
    place(&p->positions, 2, ORDER_BHLD, c->position_type, 2, (int64_t[]){full[2], 1}, c->positions);
  else if (c->positions) place(&p->positions, 2, order, c->position_type, 4, full, c->positions);
  if (c->positions) p->options.positions = &p->positions.t;
  if (c->frequencies)
    place(&p->frequencies, 3, ORDER_BHLD, SMX_F64, 3, state, c->frequencies),
        p->options.frequencies = &p->frequencies.t;
  if (c->carry) place(&p->carry, 4, ORDER_BHLD, SMX_F64, 3, state, c->carry), p->options.carry = &p->carry.t;
}

static void expect_ok(smx_status status) {
  if (status) fail_msg("status %d: %s", status, smx_last_error());
}

static void run(const rope_case *c, smx_context *ctx, int order, unsigned char *y, unsigned char *carry) {
  placed_rope p;
  place_case(c, order, &p);
  expect_ok(smx_rope(ctx, &p.options, &p.x.t, &p.y.t, c->options.cumulative ? &p.out.t : NULL));
  fetch(&p.y, y);
  if (carry && c->options.cumulative) fetch(&p.out, carry);
}

/* ---- the formula ---- */

static double position_at(const rope_case *c, int64_t head, int64_t i, int64_t t) {
  if (!c->positions) return (double)(c->options.start + i);
  return c->shared ? c->positions[i] : c->positions[(head * c->shape[2] + i) * c->pairs + t];
}

static void formula(const rope_case *c, double *y, long double *most) {
  const long double base = c->options.base == 0 ? 10000 : (long double)c->options.base,
                    scale = c->options.scale == 0 ? 1 : c->options.scale;
  const int64_t d = c->shape[3], n = c->pairs, half = c->options.layout == SMX_ROPE_HALF;
  *most = 0;
  for (int64_t head = 0; head < c->shape[0] * c->shape[1]; head++)
    for (int64_t t = 0; t < n; t++) {
      const long double frequency =
          c->frequencies ? c->frequencies[head * n + t] : powl(base, -(long double)t / n);
      long double sum = c->carry ? c->carry[head * n + t] : 0;
      for (int64_t i = 0; i < c->shape[2]; i++) {
        const long double at = position_at(c, head, i, t);
        sum += at;
        const long double w = scale * (c->options.cumulative ? sum : at) * frequency;
        const double *x = c->x + (head * c->shape[2] + i) * d;
        double *to = y + (head * c->shape[2] + i) * d;
        const int64_t a = half ? t : 2 * t, b = half ? t + n : 2 * t + 1;
        *most = fmaxl(*most, fabsl(w));
        to[a] = (double)(x[a] * cosl(w) - x[b] * sinl(w));
        to[b] = (double)(x[a] * sinl(w) + x[b] * cosl(w));
        for (int64_t z = 2 * n; z < d; z++) to[z] = x[z];
      }
    }
}

static void known_answers(void **state) {
  const double want[] = {-3.14403911702, 1.91960534656, -0.339143082816, 4.03919736005};
  double x[] = {1, 2, 3, 4}, y[4];
  int64_t shape[] = {1, 1, 1, 4};
  smx_rope_options o = {.size = sizeof o, .start = 2};
  smx_tensor tx = smx_tensor_of(x, SMX_F64, 4, shape, NULL), ty = smx_tensor_of(y, SMX_F64, 4, shape, NULL);
  expect_ok(smx_rope(NULL, &o, &tx, &ty, NULL));
  for (int i = 0; i < 4; i++) assert_true(fabs(y[i] - want[i]) < 1e-11);
  expect_ok(smx_rope(NULL, NULL, &tx, &ty, NULL)); /* at position 0 nothing turns */
  assert_memory_equal(x, y, sizeof x);
}

/* x = (1, 0) becomes (cos w, sin w). */
static void sines_and_cosines(void **state) {
  enum { N = 20000 };
  double *x = calloc(2 * N, sizeof *x), *y = calloc(2 * N, sizeof *x), *w = calloc(N, sizeof *w), worst = 0,
         at = 0;
  rng r = {1};
  for (int i = 0; i < N; i++) {
    const double size = ldexp(1, (int)(rng_bits(&r) % 41) - 10);
    x[2 * i] = 1, w[i] = (rng_uniform(&r) * 2 - 1) * size;
    if (i % 4 == 0) w[i] = nearbyint(w[i] / 1.5707963267948966) * 1.5707963267948966; /* beside a zero */
  }
  int64_t shape[] = {1, 1, N, 2}, angles[] = {N, 1};
  smx_tensor tx = smx_tensor_of(x, SMX_F64, 4, shape, NULL), ty = smx_tensor_of(y, SMX_F64, 4, shape, NULL);
  smx_tensor tw = smx_tensor_of(w, SMX_F64, 2, angles, NULL);
  smx_rope_options o = {.size = sizeof o, .positions = &tw};
  expect_ok(smx_rope(NULL, &o, &tx, &ty, NULL));
  for (int i = 0; i < N; i++) {
    const double e = fmax(fabs((double)(y[2 * i] - cosl(w[i]))), fabs((double)(y[2 * i + 1] - sinl(w[i]))));
    if (!(e <= worst)) worst = e, at = w[i];
  }
  printf("sine and cosine within %.2f x 2^-53, at %a\n", worst * 0x1p53, at);
  assert_true(worst <= 0x1p-52);
  w[0] = 0x1p31, w[1] = NAN, w[2] = -INFINITY;
  expect_ok(smx_rope(NULL, &o, &tx, &ty, NULL));
  for (int i = 0; i < 6; i++) assert_true(isnan(y[i]));
  free(x), free(y), free(w);
}

static void values_are_those_of_the_formula(void **state) {
  double worst[FLOAT_DTYPES] = {0};
  for (int way = 0; way < WAYS; way++)
    for (int t = 0; t < FLOAT_DTYPES; t++) {
      unsigned char y[MOST * 8], carry[B * H * D * 4];
      long double most;
      double *want = store[4];
      rope_case c = new_case(way);
      c.dtype = float_dtypes[t];
      run(&c, NULL, way % ORDERS, y, carry);
      formula(&c, want, &most);
      for (int64_t i = 0; i < MOST; i++) {
        const double unit = c.dtype.bits == 64   ? 0x1p-53 * (1 + (double)most)
                            : c.dtype.bits == 32 ? 0x1p-24
                            : c.dtype.code == 2  ? 0x1p-11
                                                 : 0x1p-8;
        const double e = fabs(result_at(c.dtype, y, i) - want[i]) / unit;
        if (!(e < 64))
          fail_msg("way %d, %s: y[%d] is %g, not %g", way, float_dtype_names[t], (int)i,
                   result_at(c.dtype, y, i), want[i]);
        worst[t] = fmax(worst[t], e);
      }
    }
  for (int t = 0; t < FLOAT_DTYPES; t++)
    printf("%s: within %.1f units of rounding\n", float_dtype_names[t], worst[t]);
}

/* ---- gradients ---- */

static long double loss(const rope_case *c, const double *dy) {
  long double most, sum = 0;
  formula(c, store[4], &most);
  for (int64_t i = 0; i < c->shape[0] * c->shape[1] * c->shape[2] * c->shape[3]; i++)
    sum += (long double)dy[i] * store[4][i];
  return sum;
}

static void gradients_are_differences(void **state) {
  double worst = 0, *dy = store[5];
  for (int way = 0; way < WAYS; way++) {
    rope_case c = new_case(way);
    c.dtype = c.position_type = SMX_F64, c.shape[0] = 1, c.shape[1] = 2, c.shape[2] = 5, c.options.start %= 9;
    if (c.positions) c.shared = 0, fill(c.positions, 10 * c.pairs, 8, 0.7, SMX_F64);
    const int64_t full[] = {1, 2, 5, c.pairs}, state_shape[] = {1, 2, c.pairs};
    placed_rope p;
    placed x, dp, df;
    place_case(&c, way % ORDERS, &p);
    fill(dy, 10 * D, 3, 1, SMX_F64);
    place(&p.x, 0, way % ORDERS, SMX_F64, 4, c.shape, dy);
    place(&x, 6, ORDER_BHLD, SMX_F64, 4, c.shape, c.x);
    place(&dp, 7, way % ORDERS, SMX_F64, 4, full, NULL),
        place(&df, 8, ORDER_BHLD, SMX_F64, 3, state_shape, NULL);
    expect_ok(smx_rope_backward(NULL, &p.options, &p.x.t, &x.t, &p.y.t, c.positions ? &dp.t : NULL, &df.t));
    const placed *out[] = {&p.y, &dp, &df};
    double *value[] = {c.x, c.positions, c.frequencies}, got[10 * D];
    const int64_t count[] = {10 * D, 10 * c.pairs, 2 * c.pairs};
    for (int k = 0; k < 3; k++) {
      if (!value[k]) continue;
      fetch(out[k], got);
      for (int64_t i = 0; i < count[k]; i++) {
        const double h = 0x1p-14, at = value[k][i];
        value[k][i] = at + h;
        const long double up = loss(&c, dy);
        value[k][i] = at - h;
        const double want = (double)((up - loss(&c, dy)) / (2 * h)),
                     e = fabs(got[i] - want) / fmax(1, fabs(want));
        value[k][i] = at;
        if (!(e < 1e-5))
          fail_msg("way %d: %s[%d] is %.9g, differences say %.9g", way,
                   k ? k > 1 ? "d_frequencies" : "d_positions" : "dx", (int)i, got[i], want);
        worst = fmax(worst, e);
      }
    }
  }
  printf("worst error %.2g\n", worst);
}

/* ---- bits ---- */

static void bits_do_not_depend_on_how(void **state) {
  const char *fastest = smx_isa_name();
  smx_context *seven;
  assert_int_equal(
      smx_context_create(&(smx_context_options){.size = sizeof(smx_context_options), .threads = 7}, &seven),
      0);
  for (int way = 0; way < WAYS; way += 3) {
    static unsigned char want[MOST * 8], got[MOST * 8], carry[2][B * H * D * 4];
    rope_case c = new_case(way);
    c.dtype = float_dtypes[way % FLOAT_DTYPES];
    const size_t bytes = MOST * dtype_size(c.dtype),
                 states = c.options.cumulative ? (size_t)(B * H * c.pairs) * 8 : 0;
    run(&c, NULL, ORDER_BHLD, want, carry[0]);
    for (int i = 0; i < smx_isa_count() + ORDERS; i++) {
      if (i < smx_isa_count()) smx_isa_set(smx_isa_at(i));
      run(&c, i % 2 ? seven : NULL, i % ORDERS, got, carry[1]);
      smx_isa_set(fastest);
      if (memcmp(want, got, bytes) || memcmp(carry[0], carry[1], states)) fail_msg("way %d, %d", way, i);
    }
    placed_rope p; /* in place */
    place_case(&c, ORDER_GAPS, &p);
    expect_ok(smx_rope(NULL, &p.options, &p.x.t, &p.x.t, NULL));
    fetch(&p.x, got);
    assert_memory_equal(want, got, bytes);
  }
  smx_context_destroy(seven);
}

/* A token at a time, from what the one before carried, as decoding does. */
static void rows_one_by_one(void **state) {
  for (int way = 0; way < WAYS; way += 5) {
    static float want[MOST], row[B * H * D];
    static double carry[B * H * D], position[B * H * D], x[B * H * D];
    rope_case c = new_case(way), one = c;
    double last[B * H * D];
    run(&c, NULL, ORDER_BHLD, (unsigned char *)want, (unsigned char *)last);
    if (c.carry) memcpy(carry, c.carry, (size_t)(B * H * c.pairs) * sizeof *carry), one.carry = carry;
    one.shape[2] = 1, one.x = x;
    if (c.positions) one.positions = position;
    for (int64_t i = 0; i < L; i++) {
      one.options.start = c.positions ? 0 : c.options.start + i;
      for (int64_t h = 0; h < B * H; h++) {
        for (int64_t k = 0; k < D; k++) x[h * D + k] = c.x[(h * L + i) * D + k];
        for (int64_t t = 0; c.positions && t < c.pairs; t++)
          position[c.shared ? 0 : h * c.pairs + t] = position_at(&c, h, i, t);
      }
      double next[B * H * D];
      run(&one, NULL, ORDER_BHLD, (unsigned char *)row, (unsigned char *)next);
      for (int64_t h = 0; h < B * H; h++)
        if (memcmp(row + h * D, want + (h * L + i) * D, D * sizeof *row))
          fail_msg("way %d, row %d", way, (int)i);
      if (c.carry) memcpy(carry, next, sizeof carry);
    }
    if (c.carry) assert_memory_equal(carry, last, (size_t)(B * H * c.pairs) * 8);
  }
}

/* ---- bad input ---- */

#define BAD(change, status, message) \
  do { \
    rope_case c = new_case(1 + 8 + 64); \
    placed_rope p; \
    place_case(&c, ORDER_BHLD, &p); \
    unsigned char before[MOST * 4]; \
    const void *y = p.y.t.data; \
    memcpy(before, y, sizeof before); \
    change; \
    int got = smx_rope(NULL, &p.options, &p.x.t, &p.y.t, &p.out.t); \
    if (got != status || !strstr(smx_last_error(), message)) \
      fail_msg("%s: status %d, message '%s'", #change, got, smx_last_error()); \
    if (memcmp(before, y, sizeof before)) fail_msg("%s: wrote something", #change); \
  } while (0)

static void bad_input(void **state) {
  BAD(p.options.size = 4, SMX_ERR_STRUCT, "options.size is 4");
  BAD(p.options.layout = 7, SMX_ERR_PARAM, "options.layout is 7");
  BAD(p.options.dims = 7, SMX_ERR_PARAM, "options.dims is 7, not an even number of 2..12");
  BAD(p.options.dims = 14, SMX_ERR_PARAM, "options.dims is 14");
  BAD(p.options.base = -1, SMX_ERR_PARAM, "options.base is -1");
  BAD(p.options.scale = INFINITY, SMX_ERR_PARAM, "options.scale is inf");
  BAD(p.options.start = 5, SMX_ERR_PARAM, "options.start is 5, which is not possible beside positions");
  BAD(p.options.positions = NULL, SMX_ERR_NULL, "positions is NULL: cumulative needs it");
  BAD(p.options.cumulative = 0, SMX_ERR_PARAM, "carry is not possible without cumulative");
  BAD((p.options.cumulative = 0, p.options.carry = NULL), SMX_ERR_PARAM,
      "carry is not possible without cumulative");
  BAD(p.positions.t.dtype = SMX_U8, SMX_ERR_DTYPE, "positions: dtype is u8");
  BAD(p.positions.shape[3] = 5, SMX_ERR_SHAPE, "positions: shape[3] is 5 and does not broadcast to 6");
  BAD(p.out.t.dtype = SMX_F32, SMX_ERR_DTYPE, "carry: dtype is f32, not f64");
  BAD(p.y.shape[2] = 7, SMX_ERR_SHAPE, "y: shape[2] is 7, not 70");
  BAD(p.x.shape[3] = p.y.shape[3] = 11, SMX_ERR_SHAPE, "x: shape[3] is 11, not an even number");
  BAD(p.y.t.data = (char *)p.x.t.data + 4, SMX_ERR_ALIAS, "y: overlaps x");
  BAD(p.out.t.data = p.x.t.data, SMX_ERR_ALIAS, "carry: overlaps x");
  rope_case c = new_case(8);
  placed_rope p;
  placed dp;
  place_case(&c, ORDER_BHLD, &p);
  place(&dp, 6, ORDER_BHLD, SMX_F32, 4, (int64_t[]){B, H, L, c.pairs}, NULL);
  assert_int_equal(smx_rope_backward(NULL, &p.options, &p.x.t, NULL, &p.y.t, &dp.t, NULL), SMX_ERR_NULL);
  assert_non_null(strstr(smx_last_error(), "x is NULL: d_positions needs it"));
}

/* The cosines and sines of another program, here those of the angles themselves, and some of no
 * angle (ONNX's tests). */
static void tables_in_place_of_angles(void **state) {
  enum { ROWS_OF_X = 9, WIDTH = 8, HALF = WIDTH / 2 };
  float x[ROWS_OF_X][WIDTH], want[ROWS_OF_X][WIDTH], got[ROWS_OF_X][WIDTH];
  double c[ROWS_OF_X][HALF], s[ROWS_OF_X][HALF];
  int64_t shape[] = {1, 1, ROWS_OF_X, WIDTH}, table[] = {ROWS_OF_X, HALF};
  rng r = {2};
  for (int i = 0; i < ROWS_OF_X; i++)
    for (int k = 0; k < WIDTH; k++) x[i][k] = (float)rng_normal(&r);
  for (int i = 0; i < ROWS_OF_X; i++)
    for (int p = 0; p < HALF; p++)
      c[i][p] = cos((5 + i) * pow(10000, -p / 4.0)), s[i][p] = sin((5 + i) * pow(10000, -p / 4.0));
  const smx_tensor tx = smx_tensor_of(x, SMX_F32, 4, shape, NULL),
                   tw = smx_tensor_of(want, SMX_F32, 4, shape, NULL);
  const smx_tensor tg = smx_tensor_of(got, SMX_F32, 4, shape, NULL),
                   tc = smx_tensor_of(c, SMX_F64, 2, table, NULL);
  const smx_tensor ts = smx_tensor_of(s, SMX_F64, 2, table, NULL);
  smx_rope_options by_angle = {.size = sizeof by_angle, .start = 5},
                   by_table = {.size = sizeof by_table, .cosines = &tc, .sines = &ts};
  expect_ok(smx_rope(NULL, &by_angle, &tx, &tw, NULL));
  expect_ok(smx_rope(NULL, &by_table, &tx, &tg, NULL));
  for (int i = 0; i < ROWS_OF_X; i++)
    for (int k = 0; k < WIDTH; k++) assert_true(fabsf(got[i][k] - want[i][k]) < 1e-6f);
  for (int i = 0; i < ROWS_OF_X; i++)
    for (int p = 0; p < HALF; p++) c[i][p] = rng_normal(&r), s[i][p] = rng_normal(&r);
  expect_ok(smx_rope(NULL, &by_table, &tx, &tg, NULL));
  for (int i = 0; i < ROWS_OF_X; i++)
    for (int p = 0; p < HALF; p++) {
      const double a = (double)x[i][p], b = (double)x[i][p + HALF];
      assert_true(fabs((double)got[i][p] - (a * c[i][p] - b * s[i][p])) < 1e-5);
      assert_true(fabs((double)got[i][p + HALF] - (b * c[i][p] + a * s[i][p])) < 1e-5);
    }
  by_table.base = 10;
  assert_int_equal(smx_rope(NULL, &by_table, &tx, &tg, NULL), SMX_ERR_PARAM);
  by_table.base = 0, by_table.sines = NULL;
  assert_int_equal(smx_rope(NULL, &by_table, &tx, &tg, NULL), SMX_ERR_NULL);
  by_angle.size = offsetof(smx_rope_options, cosines); /* a caller who does not know of tables */
  by_angle.cosines = &tc;
  expect_ok(smx_rope(NULL, &by_angle, &tx, &tg, NULL));
  assert_memory_equal(got, want, sizeof got);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(tables_in_place_of_angles),
      cmocka_unit_test(sines_and_cosines),
      cmocka_unit_test(values_are_those_of_the_formula),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(bits_do_not_depend_on_how),
      cmocka_unit_test(rows_one_by_one),
      cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
