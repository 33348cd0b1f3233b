/* pooling.c - proves the functions of softmax/pooling.h: windows of one to three dimensions against
 * plain loops over the cells, gradients against sums of what went forward, boxes against the
 * operators, and that what cannot be is refused by the name of the field. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "status.h"
#include "tensors.h"
#include "util.h"

enum { MOST = 2000, PLANES = 2 };

typedef struct windows {
  smx_window w;
  int spatial;
  int64_t cells[3], kernel[3], stride[3], padding[3], outputs[3], dilation[3]; /* by dimension; 1 of others */
  int64_t n, m; /* cells and outputs of a plane */
} windows;

/* Fields that are left at 0 where that says the same, half of the time. */
static windows some(rng *r, int spatial) {
  windows s = {.w = {.size = sizeof s.w, .spatial = spatial == 2 ? 0 : spatial}, .spatial = spatial};
  s.n = s.m = 1;
  for (int i = 0; i < 3; i++) s.cells[i] = s.kernel[i] = s.stride[i] = s.outputs[i] = s.dilation[i] = 1;
  for (int i = 0; i < spatial; i++) {
    s.kernel[i] = 1 + (int64_t)rng_below(r, 3);
    if (i > 0 && rng_below(r, 2)) s.kernel[i] = s.kernel[0];
    s.w.kernel[i] = i > 0 && s.kernel[i] == s.kernel[0] ? 0 : s.kernel[i];
    s.stride[i] = 1 + (int64_t)rng_below(r, 3);
    s.w.stride[i] = s.stride[i] == s.kernel[i] ? 0 : s.stride[i];
    s.w.padding[i] = s.padding[i] = (int64_t)rng_below(r, s.kernel[i] / 2 + 1);
    s.dilation[i] = 1 + (int64_t)rng_below(r, 2);
    s.w.dilation[i] = s.dilation[i] == (i > 0 ? s.dilation[0] : 1) ? 0 : s.dilation[i];
    const int64_t reach = s.dilation[i] * (s.kernel[i] - 1) + 1;
    s.cells[i] = reach + (int64_t)rng_below(r, 5);
    s.outputs[i] = (s.cells[i] + 2 * s.padding[i] - reach) / s.stride[i] + 1;
    s.n *= s.cells[i], s.m *= s.outputs[i];
  }
  return s;
}

/* The cell at place p of a window o along dimension i, or -1. */
static int64_t cell_of(const windows *s, int i, int64_t o, int64_t p) {
  const int64_t at = o * s->stride[i] - s->padding[i] + p * s->dilation[i];
  return at < 0 || at >= s->cells[i] ? -1 : at;
}

/* The cells of output o, -1 for those of the padding. */
static int cells_of(const windows *s, int64_t o, int64_t *cells) {
  int count = 0;
  const int64_t at[3] = {o / s->outputs[2] / s->outputs[1], o / s->outputs[2] % s->outputs[1],
                         o % s->outputs[2]};
  for (int64_t a = 0; a < s->kernel[0]; a++)
    for (int64_t b = 0; b < s->kernel[1]; b++)
      for (int64_t c = 0; c < s->kernel[2]; c++) {
        const int64_t x = cell_of(s, 0, at[0], a), y = cell_of(s, 1, at[1], b), z = cell_of(s, 2, at[2], c);
        cells[count++] = x < 0 || y < 0 || z < 0 ? -1 : (x * s->cells[1] + y) * s->cells[2] + z;
      }
  return count;
}

typedef struct wanted {
  double most, mean, padded, soft;
  int64_t index;
} wanted;

static wanted plainly(const windows *s, const double *x, int64_t o, double beta) {
  int64_t cells[27];
  const int count = cells_of(s, o, cells);
  double sum = 0, e = 0, ex = 0;
  wanted w = {-INFINITY, 0, 0, 0, -1};
  int there = 0;
  for (int k = 0; k < count; k++) {
    if (cells[k] < 0) continue;
    const double v = x[cells[k]];
    if (v > w.most) w.most = v, w.index = cells[k];
    sum += v, there++, e += exp(beta * v), ex += v * exp(beta * v);
  }
  w.mean = sum / there, w.padded = sum / count, w.soft = ex / e;
  return w;
}

static void close_to(double is, double should, const char *what) {
  if (!(fabs(is - should) <= 1e-12 * fmax(1, fabs(should))))
    fail_msg("%s is %.17g, not %.17g", what, is, should);
}

typedef struct memory {
  double x[MOST], y[MOST], dy[MOST], dx[MOST], want[MOST];
  int64_t index[MOST], in[4], out[4];
  smx_tensor tx, ty, tdy, tdx, ti;
} memory;

static void open_memory(memory *m, const windows *s, rng *r) {
  smx_shape shape;
  m->in[0] = PLANES;
  for (int i = 0; i < s->spatial; i++) m->in[i + 1] = s->cells[i];
  assert_true(PLANES * s->n <= MOST && PLANES * s->m <= MOST);
  m->tx = F64(m->x, s->spatial + 1, m->in);
  m->tx.data = NULL;
  good(smx_window_outputs(&s->w, &m->tx, &shape));
  assert_true(shape.ndim == s->spatial + 1 && shape.dim[0] == PLANES);
  assert_memory_equal(&shape.dtype, &m->tx.dtype, sizeof shape.dtype);
  memcpy(m->out, shape.dim, sizeof m->out);
  for (int i = 0; i < s->spatial; i++) assert_int_equal(m->out[i + 1], s->outputs[i]);
  m->tx.data = m->x;
  m->tdx = F64(m->dx, s->spatial + 1, m->in);
  m->ty = F64(m->y, s->spatial + 1, m->out), m->tdy = F64(m->dy, s->spatial + 1, m->out);
  m->ti = tensor(m->index, SMX_I64, s->spatial + 1, m->out);
  for (int i = 0; i < MOST; i++) m->x[i] = rng_normal(r), m->dy[i] = rng_normal(r);
}

/* What is wanted of dx: dy to the cells of each window by a weight. */
typedef double weight_fn(const windows *s, const double *x, int64_t o, int64_t cell, int count, int there);
static double of_most(const windows *s, const double *x, int64_t o, int64_t cell, int count, int there) {
  return plainly(s, x, o, 1).index == cell;
}
static double of_mean(const windows *s, const double *x, int64_t o, int64_t cell, int count, int there) {
  return 1.0 / there;
}
static double of_padded(const windows *s, const double *x, int64_t o, int64_t cell, int count, int there) {
  return 1.0 / count;
}
enum { BETA = 2 };
static double of_soft(const windows *s, const double *x, int64_t o, int64_t cell, int count, int there) {
  int64_t cells[27];
  double e = 0;
  const int n = cells_of(s, o, cells);
  for (int k = 0; k < n; k++) e += cells[k] < 0 ? 0 : exp(BETA * x[cells[k]]);
  return exp(BETA * x[cell]) / e * (1 + BETA * (x[cell] - plainly(s, x, o, BETA).soft));
}

static void gradient_is(memory *m, const windows *s, weight_fn *weight) {
  int64_t cells[27];
  memset(m->want, 0, sizeof m->want);
  for (int p = 0; p < PLANES; p++)
    for (int64_t o = 0; o < s->m; o++) {
      const int n = cells_of(s, o, cells);
      int there = 0;
      for (int k = 0; k < n; k++) there += cells[k] >= 0;
      for (int k = 0; k < n; k++)
        if (cells[k] >= 0)
          m->want[p * s->n + cells[k]] +=
              m->dy[p * s->m + o] * weight(s, m->x + p * s->n, o, cells[k], n, there);
    }
  for (int64_t i = 0; i < PLANES * s->n; i++) close_to(m->dx[i], m->want[i], "dx");
}

static void forward_is(const memory *m, const windows *s, const char *what, size_t field) {
  for (int p = 0; p < PLANES; p++)
    for (int64_t o = 0; o < s->m; o++) {
      const wanted w = plainly(s, m->x + p * s->n, o, BETA);
      close_to(m->y[p * s->m + o], *(const double *)(const void *)((const char *)&w + field), what);
    }
}

static void windows_are_those_of_loops(void **state) {
  static memory m;
  rng r = {5};
  for (int trial = 0; trial < 150; trial++) {
    const windows s = some(&r, 1 + trial % 3);
    const smx_window *w = &s.w;
    open_memory(&m, &s, &r);
    good(smx_max_pool(NULL, w, &m.tx, &m.ty, &m.ti));
    forward_is(&m, &s, "max", offsetof(wanted, most));
    for (int64_t o = 0; o < PLANES * s.m; o++)
      assert_int_equal(m.index[o], plainly(&s, m.x + o / s.m * s.n, o % s.m, 1).index);
    good(smx_max_pool(NULL, w, &m.tx, &m.ty, NULL));
    good(smx_max_pool_backward(NULL, w, &m.tx, &m.tdy, &m.tdx));
    gradient_is(&m, &s, of_most);
    good(smx_soft_pool(NULL, w, BETA, &m.tx, &m.ty));
    forward_is(&m, &s, "soft", offsetof(wanted, soft));
    good(smx_soft_pool_backward(NULL, w, BETA, &m.tx, &m.ty, &m.tdy, &m.tdx));
    gradient_is(&m, &s, of_soft);
    good(smx_avg_pool(NULL, w, 0, &m.tx, &m.ty));
    forward_is(&m, &s, "mean", offsetof(wanted, mean));
    good(smx_avg_pool_backward(NULL, w, 0, &m.tx, &m.tdy, &m.tdx));
    gradient_is(&m, &s, of_mean);
    good(smx_avg_pool(NULL, w, 1, &m.tx, &m.ty));
    forward_is(&m, &s, "padded mean", offsetof(wanted, padded));
    good(smx_avg_pool_backward(NULL, w, 1, &m.tx, &m.tdy, &m.tdx));
    gradient_is(&m, &s, of_padded);
  }
}

/* Every operator of the family with windows takes them; a last window that is not whole counts. */
static void other_operators(void **state) {
  double x[5] = {3, 4, 6, 8, 5}, y[3];
  int64_t cells = 5, outputs = 3;
  const smx_tensor tx = F64(x, 1, &cells), ty = F64(y, 1, &outputs), *in[] = {&tx}, *out[] = {&ty};
  const smx_window w = {.size = sizeof w, .spatial = 1, .ceil = 1, .kernel = {2}};
  smx_params p;
  const smx_op *op = smx_op_find("lp_pool");
  good(smx_window_params(op, &w, &p));
  good(smx_params_set(op, &p, "power", 1));
  good(smx_forward(op, NULL, &p, 1, in, 1, out));
  near_all(y, (double[]){7, 14, 5}, 3, 1e-14);
  int count = 0;
  for (size_t i = 0; (op = smx_op_at(i)); i++) {
    if (strcmp(op->family, "pool") != 0) continue;
    bool windowed = false;
    for (int32_t k = 0; k < op->param_count; k++) windowed |= !strcmp(op->params[k].name, "kernel");
    const smx_window plain = {.size = sizeof plain, .spatial = 3, .kernel = {2, 3, 4}};
    if (windowed) good(smx_window_params(op, &plain, &p)), count++;
    else refused(smx_window_params(op, &plain, &p), SMX_ERR_PARAM, "it has no windows");
  }
  assert_true(count >= 12);
  const smx_window far = {.size = sizeof far, .kernel = {2}, .dilation = {2}};
  refused(smx_window_params(smx_op_find("max_unpool"), &far, &p), SMX_ERR_PARAM, "dilation");
}

static void boxes_are_those_of_the_operators(void **state) {
  double boxes[16] = {0, 0, 9, 9, 1, 1, 10, 10, 20, 20, 29, 29, 5, 0, 14, 9}, score[4] = {.9, .8, .7, .6};
  double kept[4];
  int64_t index[4], count, label[4] = {0, 1, 0, 0}, shape[2] = {4, 4};
  const smx_tensor tb = F64(boxes, 2, shape), ts = F64(score, 1, shape), tk = F64(kept, 1, shape),
                   tl = tensor(label, SMX_I64, 1, shape), ti = tensor(index, SMX_I64, 1, shape),
                   tc = tensor(&count, SMX_I64, 0, NULL);
  good(smx_nms(NULL, NULL, &tb, &ts, NULL, &ti, &tc, &tk));
  assert_true(count == 3 && index[0] == 0 && index[1] == 2 && index[2] == 3 && index[3] == -1);
  smx_nms_options o = {.size = sizeof o, .threshold = 0.3, .pixels = 1};
  good(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, &tc, NULL));
  assert_true(count == 2 && index[0] == 0 && index[1] == 2);
  good(smx_nms(NULL, &o, &tb, &ts, &tl, &ti, &tc, NULL));
  assert_true(count == 3 && index[0] == 0 && index[1] == 1 && index[2] == 2);
  o = (smx_nms_options){.size = sizeof o, .least = 0.65, .most = 2};
  good(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, &tc, &tk));
  assert_true(count == 2 && index[1] == 2 && kept[1] == .7);
  o = (smx_nms_options){.size = sizeof o, .method = SMX_NMS_LINEAR, .pixels = 1};
  good(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, &tc, &tk));
  near_all(kept, (double[]){.9, .7, .4, .160976}, 4, 1e-6);
  o.method = SMX_NMS_GAUSSIAN;
  good(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, &tc, &tk));
  near_all(kept, (double[]){.9, .7, .480442, .240901}, 4, 1e-6);
  double twice[] = {0, 0, 2, 1, 0, 0, 1, 1}; /* an overlap of a half */
  int64_t two[2] = {2, 4};
  const smx_tensor t2 = F64(twice, 2, two), s2 = F64(score, 1, two), i2 = tensor(index, SMX_I64, 1, two);
  good(smx_nms(NULL, NULL, &t2, &s2, NULL, &i2, &tc, NULL));
  assert_int_equal(count, 2);
  o = (smx_nms_options){.size = sizeof o, .inclusive = 1};
  good(smx_nms(NULL, &o, &t2, &s2, NULL, &i2, &tc, NULL));
  assert_int_equal(count, 1);
  o.method = (smx_nms_method)3;
  refused(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, NULL, NULL), SMX_ERR_PARAM, "method: 3");
  o.method = SMX_NMS_LINEAR;
  refused(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, NULL, NULL), SMX_ERR_PARAM, "inclusive");
  o = (smx_nms_options){.size = sizeof o, .threshold = NAN};
  refused(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, NULL, NULL), SMX_ERR_PARAM, "threshold");
  o.size--;
  refused(smx_nms(NULL, &o, &tb, &ts, NULL, &ti, NULL, NULL), SMX_ERR_STRUCT, "options.size is");
  refused(smx_nms(NULL, NULL, &tb, NULL, NULL, &ti, NULL, NULL), SMX_ERR_NULL, "score");
}

static void wrong_calls(void **state) {
  double x[36] = {0}, y[36];
  int64_t shape[2] = {6, 6}, out[2] = {3, 3};
  const smx_tensor tx = F64(x, 2, shape), ty = F64(y, 2, out);
  const smx_window w = {.size = sizeof w, .kernel = {2}};
  smx_shape s;
  smx_params p;
  static const struct {
    smx_window w;
    smx_status status;
    const char *words;
  } wrong[] = {
      {{sizeof w, 0, 0, {0}, {0}, {0}, {0}}, SMX_ERR_PARAM, "window.kernel[0] is 0, not 1 or more"},
      {{sizeof w, 0, 0, {2, -1}, {0}, {0}, {0}}, SMX_ERR_PARAM, "window.kernel[1] is -1"},
      {{sizeof w, 0, 0, {2}, {0, -3}, {0}, {0}}, SMX_ERR_PARAM, "window.stride[1] is -3, not 0 or more"},
      {{sizeof w, 0, 0, {2}, {0}, {-1}, {0}}, SMX_ERR_PARAM, "window.padding[0] is -1, not 0 or more"},
      {{sizeof w, 0, 0, {2}, {0}, {2}, {0}}, SMX_ERR_PARAM, "padding: 2 is more than half"},
      {{sizeof w, 4, 0, {2}, {0}, {0}, {0}}, SMX_ERR_PARAM, "spatial: 4"},
      {{sizeof w, -1, 0, {2}, {0}, {0}, {0}}, SMX_ERR_PARAM, "spatial: -1"},
      {{sizeof w, 0, 0, {2}, {0}, {0}, {-1}}, SMX_ERR_PARAM, "window.dilation[0] is -1, not 0 or more"},
      {{sizeof w, 0, 0, {2}, {0}, {0}, {2, -5}}, SMX_ERR_PARAM, "window.dilation[1] is -5"},
      {{sizeof w, 0, 0, {INT64_MAX}, {0}, {0}, {0}}, SMX_ERR_PARAM, "kernel_h: 9.22337e+18"},
      {{sizeof w, 0, 0, {7}, {0}, {0}, {0}}, SMX_ERR_SHAPE, "kernel: reaches over 7 cells"},
      {{sizeof w, 3, 0, {2}, {0}, {0}, {0}}, SMX_ERR_SHAPE, "x"},
      {{sizeof w - 1, 0, 0, {2}, {0}, {0}, {0}}, SMX_ERR_STRUCT, "window.size is"},
  };
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    refused(smx_max_pool(NULL, &wrong[i].w, &tx, &ty, NULL), wrong[i].status, wrong[i].words);
    refused(smx_window_outputs(&wrong[i].w, &tx, &s), wrong[i].status, wrong[i].words);
  }
  refused(smx_max_pool(NULL, NULL, &tx, &ty, NULL), SMX_ERR_NULL, "window is NULL");
  refused(smx_avg_pool(NULL, &w, 0, NULL, &ty), SMX_ERR_NULL, "x");
  refused(smx_soft_pool(NULL, &w, NAN, &tx, &ty), SMX_ERR_PARAM, "beta");
  refused(smx_soft_pool_backward(NULL, &w, 1, &tx, NULL, &ty, &tx), SMX_ERR_NULL, "y");
  refused(smx_window_outputs(&w, &tx, NULL), SMX_ERR_NULL, "y is NULL");
  refused(smx_window_params(NULL, &w, &p), SMX_ERR_NULL, "op is NULL");
  refused(smx_window_params(smx_op_find("max_pool"), &w, NULL), SMX_ERR_NULL, "params is NULL");
  refused(smx_window_params(smx_op_find("softmax"), &w, &p), SMX_ERR_PARAM, "softmax: it has no windows");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_those_of_loops),
      cmocka_unit_test(other_operators),
      cmocka_unit_test(boxes_are_those_of_the_operators),
      cmocka_unit_test(wrong_calls),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
