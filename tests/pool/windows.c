/* windows.c - proves maxima and means of windows equal to plain loops over cells, to the bit but
 * for means of bins, for steps, sizes and numbers of channels around those of vectors; soft_pool
 * and ada_pool near their formulas; and the same bits of tensors whose channels come last in
 * memory, on every instruction set. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include <softmax.h>

#include "cpu/cpu.h"

enum { AXES = 3, ROOM = 1 << 16 };

/* A call on [2, channels, ...]; sizes that a test does not name are 1. */
typedef struct problem {
  const char *op;
  int spatial;
  int64_t channels, n[AXES], kernel[AXES], stride[AXES], padding[AXES], step[AXES], bins[AXES];
  bool ceil, padded, indexed, twice; /* twice: f64 */
} problem;

enum { IMAGES = 2 };

static double numbers[ROOM];
static float x32[ROOM], y32[ROOM];
static double x64[ROOM], y64[ROOM];
static int64_t places[ROOM];

/* Numbers, some of which are special. */
static void fill_numbers(const double *special, int count) {
  uint64_t state = 9;
  for (int i = 0; i < ROOM; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    numbers[i] = (float)((double)(int64_t)state * 0x1p-60); /* -8..8 */
    if (i % 2 == 0) numbers[i] = floor(numbers[i]);         /* ties */
    if (state >> 33 & 1 && i % 61 == 0) numbers[i] = special[(int)(state >> 40 & 7) % count];
  }
}
static const double any_special[] = {NAN, INFINITY, -INFINITY, -0.0, 0, 1e-42, -1e-42, 3e38};
static void fill_any(void) { fill_numbers(any_special, sizeof any_special / sizeof *any_special); }

static bool adaptive(const problem *p) { return p->bins[0] > 0; }
static int64_t outputs(const problem *p, int a) {
  if (a < AXES - p->spatial) return 1;
  if (adaptive(p)) return p->bins[a];
  const int64_t reach = p->n[a] + 2 * p->padding[a] - p->step[a] * (p->kernel[a] - 1) - 1;
  const int64_t o = (reach + (p->ceil ? p->stride[a] - 1 : 0)) / p->stride[a] + 1;
  return p->ceil && (o - 1) * p->stride[a] >= p->n[a] + p->padding[a] ? o - 1 : o;
}

/* Cell j of output o along an axis, or -1; *count: cells with those of the padding. */
static int64_t cell_of(const problem *p, int a, int64_t o, int64_t j, int64_t *count) {
  const int64_t m = outputs(p, a), n = p->n[a];
  if (a < AXES - p->spatial) return *count = 1, j == 0 ? 0 : -1;
  if (adaptive(p)) {
    const int64_t first = o * n / m, end = ((o + 1) * n + m - 1) / m;
    return *count = end - first, j < end - first ? first + j : -1;
  }
  const int64_t at = o * p->stride[a] - p->padding[a];
  *count = 0;
  for (int64_t k = 0; k < p->kernel[a]; k++) *count += at + k * p->step[a] < n + p->padding[a];
  return j < p->kernel[a] && at + j * p->step[a] >= 0 && at + j * p->step[a] < n ? at + j * p->step[a] : -1;
}

typedef struct answer {
  double most, mean, soft, ada;
  int64_t place;
  bool finite;
} answer;

enum { CELLS = 64 };

/* The mean by a softmax of scores. */
static double weighed(const double *x, const double *score, int64_t n) {
  double top = -INFINITY, all = 0, sum = 0;
  for (int64_t i = 0; i < n; i++) top = fmax(top, score[i]);
  for (int64_t i = 0; i < n; i++) all += exp(score[i] - top), sum += exp(score[i] - top) * x[i];
  return sum / all;
}
static double mixed(const double *x, int64_t n, double mean, double soft) {
  double dice[CELLS];
  for (int64_t i = 0; i < n; i++)
    dice[i] = x[i] == 0 && mean == 0 ? 1 : 2 * fabs(x[i] * mean) / (x[i] * x[i] + mean * mean);
  return 0.5 * weighed(x, dice, n) + 0.5 * soft;
}

/* Output o of a plane, by a plain loop over its cells. */
static answer answer_of(const problem *p, int64_t plane, const int64_t *o) {
  answer r = {.most = -INFINITY, .place = -1, .finite = true};
  double own[CELLS] = {0};
  int64_t cells = p->n[0] * p->n[1] * p->n[2], there = 0, all[AXES] = {0}, at[AXES];
  bool nan = false;
  for (int64_t d = 0; d < p->n[0] + p->kernel[0] + 1; d++)
    for (int64_t h = 0; h < p->n[1] + p->kernel[1] + 1; h++)
      for (int64_t w = 0; w < p->n[2] + p->kernel[2] + 1; w++) {
        at[0] = cell_of(p, 0, o[0], d, all), at[1] = cell_of(p, 1, o[1], h, all + 1);
        at[2] = cell_of(p, 2, o[2], w, all + 2);
        if (at[0] < 0 || at[1] < 0 || at[2] < 0) continue;
        const int64_t cell = (at[0] * p->n[1] + at[1]) * p->n[2] + at[2];
        const double x = numbers[plane * cells + cell];
        if (there < CELLS) own[there] = x;
        there++, r.mean += x, nan |= isnan(x), r.finite = r.finite && isfinite(x);
        if (x > r.most) r.most = x, r.place = cell;
      }
  if (nan) r.most = NAN, r.place = -1;
  r.mean /= (double)(p->padded ? all[0] * all[1] * all[2] : there);
  if (there > 0 && there <= CELLS)
    r.soft = weighed(own, own, there), r.ada = mixed(own, there, r.mean, r.soft);
  return r;
}

static double cleaned(const problem *p, double v) {
  if (isnan(v)) return v;
  const double x = p->twice ? v : (float)v;
  return fabs(x) < (p->twice ? DBL_MIN : FLT_MIN) ? 0 : x;
}

/* Of all outputs of a problem, plane by plane. */
static answer answers[ROOM];
static void answer_all(const problem *p) {
  const int64_t o[] = {outputs(p, 0), outputs(p, 1), outputs(p, 2)}, all = o[0] * o[1] * o[2];
  assert_true(IMAGES * p->channels * all <= ROOM);
  for (int64_t i = 0; i < IMAGES * p->channels * all; i++) {
    const int64_t at[] = {i % all / (o[1] * o[2]), i / o[2] % o[1], i % o[2]};
    answers[i] = answer_of(p, i / all, at);
  }
}

/* A tensor [2, channels, n...]; by channel: its strides say so. */
typedef struct shaped {
  smx_tensor t;
  int64_t shape[AXES + 2], strides[AXES + 2];
} shaped;
static void shape_of(const problem *p, const int64_t *n, bool by_channel, void *data, smx_dtype type,
                     shaped *s) {
  const int ndim = p->spatial + 2;
  s->shape[0] = IMAGES, s->shape[1] = p->channels;
  int64_t step = by_channel ? p->channels : 1;
  for (int d = p->spatial - 1; d >= 0; step *= n[AXES - p->spatial + d], d--)
    s->shape[d + 2] = n[AXES - p->spatial + d], s->strides[d + 2] = step;
  s->strides[1] = by_channel ? 1 : step, s->strides[0] = by_channel ? step : step * p->channels;
  s->t = (smx_tensor){data, {1, 0}, ndim, type, s->shape, s->strides, 0};
}

static int64_t number_in(const shaped *s, int64_t image, int64_t channel, int64_t cell) {
  const int64_t last = s->strides[s->t.ndim - 1]; /* spatial dimensions are packed, but for a factor */
  return image * s->strides[0] + channel * s->strides[1] + cell * last;
}

static void settle(const smx_op *op, smx_params *params, const char *name, double value) {
  assert_int_equal(smx_params_set(op, params, name, value), SMX_OK);
}
static void settings_of(const problem *p, const smx_op *op, smx_params *params) {
  static const char *const axis[] = {"_d", "_h", ""};
  char name[32];
  smx_params_init(op, params);
  settle(op, params, "spatial", p->spatial);
  for (int a = AXES - p->spatial; a < AXES; a++) {
    const struct {
      const char *name;
      int64_t value;
    } all[] = {{"kernel", p->kernel[a]},
               {"stride", p->stride[a]},
               {"padding", p->padding[a]},
               {"dilation", p->step[a]},
               {"size", p->bins[a]}};
    for (int i = adaptive(p) ? 4 : 0; i < (adaptive(p) ? 5 : 4); i++)
      snprintf(name, sizeof name, "%s%s", all[i].name, axis[a]),
          settle(op, params, name, (double)all[i].value);
  }
  if (adaptive(p)) return;
  settle(op, params, "ceil", p->ceil);
  if (!strcmp(p->op, "avg_pool")) settle(op, params, "count", p->padded);
}

static double value_at(const problem *p, int64_t i) { return p->twice ? y64[i] : y32[i]; }

static void check_value(const problem *p, const answer *r, double have) {
  const bool largest = strstr(p->op, "max") != NULL, soft = !strcmp(p->op, "soft_pool");
  const double want = cleaned(p, largest ? r->most : r->mean);
  if (soft || !strcmp(p->op, "ada_pool")) { /* of what is not finite: the same bits, no more */
    const double mean = soft ? r->soft : r->ada;
    if (r->finite) assert_true(fabs(mean - have) <= (p->twice ? 1e-13 : 1e-6) * (1 + fabs(mean)));
  } else if (adaptive(p) && !largest && isfinite(want))
    assert_true(fabs(want - have) <= 1e-6 * fabs(want) + 1e-6);
  else if (isnan(want)) assert_true(isnan(have));
  else assert_true(memcmp(&want, &have, sizeof want) == 0);
}

/* Outputs of the first call of a problem. */
static double first[ROOM];

/* One call, compared with the plain loop and with the first. x, y: whether these are by channel. */
static void check_call(const problem *p, bool begins, bool x, bool y) {
  const smx_op *op = smx_op_find(p->op);
  const smx_dtype type = p->twice ? SMX_F64 : SMX_F32;
  const int64_t o[] = {outputs(p, 0), outputs(p, 1), outputs(p, 2)};
  const int64_t cells = p->n[0] * p->n[1] * p->n[2], all = o[0] * o[1] * o[2];
  const bool largest = strstr(p->op, "max") != NULL;
  shaped in, out, index;
  smx_params params;
  settings_of(p, op, &params);
  shape_of(p, p->n, x, p->twice ? (void *)x64 : (void *)x32, type, &in);
  shape_of(p, o, y, p->twice ? (void *)y64 : (void *)y32, type, &out);
  shape_of(p, o, y, places, SMX_I64, &index);
  for (int64_t plane = 0; plane < IMAGES * p->channels; plane++)
    for (int64_t i = 0; i < cells; i++) {
      const int64_t to = number_in(&in, plane / p->channels, plane % p->channels, i);
      x64[to] = numbers[plane * cells + i], x32[to] = (float)numbers[plane * cells + i];
    }
  const smx_tensor *ins[] = {&in.t}, *outs[] = {&out.t, p->indexed ? &index.t : NULL};
  assert_int_equal(smx_forward(op, NULL, &params, 1, ins, largest ? 2 : 1, outs), SMX_OK);
  for (int64_t plane = 0; plane < IMAGES * p->channels; plane++)
    for (int64_t i = 0; i < all; i++) {
      const int64_t to = number_in(&out, plane / p->channels, plane % p->channels, i);
      const answer r = answers[plane * all + i];
      const double have = value_at(p, to);
      check_value(p, &r, have);
      if (begins) first[plane * all + i] = have;
      assert_memory_equal(first + plane * all + i, &have, sizeof have);
      if (p->indexed) assert_int_equal(places[to], r.place);
    }
}

static void check(const problem *p) {
  answer_all(p);
  for (int i = 0; i < smx_isa_count(); i++) {
    smx_isa_set(smx_isa_at(i));
    for (int way = 0; way < 4; way++) check_call(p, i == 0 && way == 0, way & 1, way & 2);
  }
  smx_isa_set(smx_isa_at(0));
}

/* A problem of two dimensions, the same along both but for the width. */
static problem images(const char *op, int64_t channels, int64_t high, int64_t wide, int64_t kernel,
                      int64_t stride, int64_t padding) {
  return (problem){.op = op,
                   .spatial = 2,
                   .channels = channels,
                   .n = {1, high, wide},
                   .step = {1, 1, 1},
                   .kernel = {1, kernel, kernel},
                   .stride = {1, stride, stride},
                   .padding = {0, padding, padding}};
}

static void each_kind(problem p) {
  static const char *const windows[] = {"max_pool", "avg_pool"}, *const bins[] = {"adaptive_max_pool",
                                                                                  "adaptive_avg_pool"};
  for (int mean = 0; mean < 2; mean++)
    for (int way = 0; way < 4; way++) {
      p.op = adaptive(&p) ? bins[mean] : windows[mean];
      p.indexed = !mean && way & 1, p.padded = mean && way & 1 && !adaptive(&p), p.twice = way & 2;
      check(&p);
    }
}

static void steps(void **state) {
  static const int64_t of[][3] = {{2, 2, 0}, {3, 2, 1}, {3, 3, 0}, {3, 1, 1}, {2, 1, 1},
                                  {5, 2, 2}, {4, 4, 0}, {5, 3, 1}, {1, 2, 0}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    each_kind(images("", 3, 9, 41, of[i][0], of[i][1], of[i][2]));
}
static void widths(void **state) {
  for (int64_t wide = 4; wide < 70; wide += 7) each_kind(images("", 2, 4, wide, 2, 2, 0));
  for (int64_t channels = 2; channels < 40; channels += 5) each_kind(images("", channels, 5, 6, 3, 2, 1));
}
static void dilated(void **state) {
  for (int64_t stride = 1; stride < 6; stride++) {
    problem p = images("", 2, 11, 23, 3, stride, 1);
    p.step[1] = p.step[2] = 2;
    each_kind(p);
    p.step[1] = 3, p.ceil = true;
    each_kind(p);
    p.step[1] = p.step[2] = 1;
    each_kind(p);
  }
}
/* Windows that reach over more cells than there are: with ceil, one of those that are there. */
static void narrow(void **state) {
  for (int64_t wide = 1; wide < 5; wide++) {
    problem p = images("", 3, 2, wide, 4, 4, wide % 2);
    p.ceil = true;
    each_kind(p);
    p.step[2] = 2, p.stride[2] = 9;
    each_kind(p);
  }
}
static void dimensions(void **state) {
  problem p = images("", 3, 6, 20, 2, 2, 1);
  p.n[0] = 5, p.kernel[0] = 3, p.stride[0] = 1, p.padding[0] = 1, p.spatial = 3;
  each_kind(p);
  p = images("", 4, 1, 300, 7, 3, 2);
  p.spatial = 1;
  each_kind(p);
}
static void bins(void **state) {
  static const int64_t of[][2] = {{1, 1}, {3, 4}, {4, 7}, {12, 25}, {2, 30}, {6, 3}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++)
    for (int64_t channels = 3; channels < 24; channels += 17) {
      problem p = {.spatial = 2,
                   .channels = channels,
                   .n = {1, 12, 25},
                   .step = {1, 1, 1},
                   .bins = {1, of[i][0], of[i][1]}};
      each_kind(p);
    }
  const problem wide = {.spatial = 2, .channels = 71, .n = {1, 2, 150}, .step = {1, 1, 1}, .bins = {1, 1, 2}};
  each_kind(wide);
  const problem deep = {.spatial = 3, .channels = 300, .n = {3, 4, 5}, .step = {1, 1, 1}, .bins = {2, 1, 2}};
  each_kind(deep);
}

/* Rows shorter and longer than a vector, which are gathered or not, and few and many channels. The
 * first numbers are near one another, those of the second are not, and the last are no numbers. */
static void soft(void **state) {
  static const double near[] = {0, -0.0, 1e-42}, far[] = {-60, 60, 5000, -5000, 1e-42, -0.0, 500, -500};
  for (int kind = 0; kind < 3; kind++) {
    if (kind == 2) fill_any();
    else fill_numbers(kind ? far : near, kind ? 8 : 3);
    for (int op = 0; op < 4; op++) {
      problem p;
      for (int64_t wide = 4; wide < 70; wide += 5)
        p = images(op & 1 ? "ada_pool" : "soft_pool", 3, 6, wide, 2, 2, 0), p.twice = op & 2, check(&p);
      for (int64_t channels = 2; channels < 40; channels += 5)
        p = images(p.op, channels, 5, 6, 2, 2, 0), p.twice = op & 2, check(&p);
      p = images(p.op, 140, 4, 5, 2, 2, 0), check(&p);
      for (int64_t wide = 5; wide < 90; wide += 28)
        p = images(p.op, 3, 7, wide, 3, 2, 1), check(&p), p.padding[1] = 0, check(&p);
      p = images(p.op, 2, 5, 40, 2, 1, 1), check(&p);
    }
  }
  fill_any();
}

int main(void) {
  fill_any();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps),      cmocka_unit_test(widths), cmocka_unit_test(dilated),
      cmocka_unit_test(dimensions), cmocka_unit_test(bins),   cmocka_unit_test(narrow),
      cmocka_unit_test(soft),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
