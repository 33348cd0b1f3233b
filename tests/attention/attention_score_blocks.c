/* attention_score_blocks.c - proves Parallax, local linear and additive attention: known answers,
 * values against formulas in double that share nothing with the library, gradients against
 * differences, refusals. */
#include "attention_kinds.h"

/* ---- the formulas ---- */

enum { MOST_KEYS = 64, MOST_SIZE = 8 };

static bool visible(const acase *a, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t at = i + acase_offset(a), pair = ((b * a->heads + h) * a->lq + i) * a->lk + j;
  if (a->mask && a->mask[pair] == 0) return false;
  if (a->bias && a->bias[pair] == -INFINITY) return false;
  if (a->options.window_left >= 0 && j < at - a->options.window_left) return false;
  return !a->options.causal || j <= at;
}

static double score(const kcase *k, int64_t b, int64_t h, int64_t i, int64_t j) {
  const acase *a = &k->a;
  const int64_t kv = h / (a->heads / a->kv_heads), pair = ((b * a->heads + h) * a->lq + i) * a->lk + j;
  const double *q = a->q + ((b * a->heads + h) * a->lq + i) * a->d,
               *key = a->k + ((b * a->kv_heads + kv) * a->lk + j) * a->d;
  double z = 0;
  for (int64_t c = 0; c < a->d; c++)
    z += k->kind == ADDITIVE ? k->extra[(b * a->heads + h) * a->d + c] * tanh(q[c] + key[c])
                             : q[c] * key[c] / sqrt((double)a->d);
  if (a->options.softcap > 0) z = a->options.softcap * tanh(z / a->options.softcap);
  if (a->bias) z += a->bias[pair];
  if (a->slopes) z -= a->slopes[b * a->heads + h] * fabs((double)(i + acase_offset(a) - j));
  return z;
}

/* x of M x = (1, 0, ...) by Gauss and Jordan; M [n][n]. */
static void first_column_of_inverse(double m[][MOST_SIZE + 1], int n, double *x) {
  for (int c = 0; c < n; c++) x[c] = c == 0;
  for (int c = 0; c < n; c++) {
    int best = c;
    for (int r = c; r < n; r++)
      if (fabs(m[r][c]) > fabs(m[best][c])) best = r;
    double t = x[c];
    x[c] = x[best], x[best] = t;
    for (int e = 0; e < n; e++) t = m[c][e], m[c][e] = m[best][e], m[best][e] = t;
    for (int r = 0; r < n; r++) {
      const double factor = r == c ? 0 : m[r][c] / m[c][c];
      for (int e = 0; e < n; e++) m[r][e] -= factor * m[c][e];
      x[r] -= factor * x[c];
    }
  }
  for (int c = 0; c < n; c++) x[c] /= m[c][c];
}

/* What the values of a row are multiplied by. Parallax as the quotients of two sums of values and
 * two of weights; the local fit by its normal equations around the query, for the constant and the
 * slopes together. */
static void multipliers(const kcase *k, int64_t b, int64_t h, int64_t i, const double *w, double *t) {
  const acase *a = &k->a;
  const int n = (int)a->d + 1;
  const double *keys = a->k + (b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->lk * a->d;
  const int64_t row = ((b * a->heads + h) * a->lq + i) * a->d;
  if (k->kind == ADDITIVE) memcpy(t, w, (size_t)a->lk * sizeof *t);
  double second[MOST_KEYS] = {0}, mean = 0, m[MOST_SIZE + 1][MOST_SIZE + 1] = {{0}}, x[MOST_SIZE + 1];
  for (int64_t j = 0; j < a->lk && k->kind == PARALLAX; j++) {
    for (int64_t c = 0; c < a->d; c++) second[j] += k->extra[row + c] * keys[j * a->d + c];
    mean += w[j] * second[j];
  }
  for (int64_t j = 0; j < a->lk && k->kind == PARALLAX; j++) t[j] = w[j] * (1 + mean) - w[j] * second[j];
  if (k->kind != LOCAL) return;
  for (int64_t j = 0; j < a->lk; j++)
    for (int r = 0; r < n; r++)
      for (int c = 0; c < n; c++)
        m[r][c] += w[j] * (r ? keys[j * a->d + r - 1] - a->q[row + r - 1] : 1) *
                   (c ? keys[j * a->d + c - 1] - a->q[row + c - 1] : 1);
  for (int c = 1; c < n; c++) m[c][c] += k->ridge;
  first_column_of_inverse(m, n, x);
  for (int64_t j = 0; j < a->lk; j++) {
    t[j] = w[j] * x[0];
    for (int c = 1; c < n; c++) t[j] += w[j] * x[c] * (keys[j * a->d + c - 1] - a->q[row + c - 1]);
  }
}

static void reference_row(const kcase *k, int64_t b, int64_t h, int64_t i, const double *kept, double *o) {
  const acase *a = &k->a;
  double w[MOST_KEYS], t[MOST_KEYS], sum = 0, most = -INFINITY;
  for (int64_t j = 0; j < a->lk; j++)
    w[j] = visible(a, b, h, i, j) ? score(k, b, h, i, j) : -INFINITY, most = fmax(most, w[j]);
  for (int64_t j = 0; j < a->lk; j++) sum += w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - most);
  for (int64_t j = 0; j < a->lk && sum > 0; j++) w[j] /= sum;
  memset(o, 0, (size_t)a->e * sizeof *o);
  if (sum == 0) return;
  multipliers(k, b, h, i, w, t);
  for (int64_t j = 0; j < a->lk; j++)
    for (int64_t x = 0; x < a->e; x++)
      o[x] += t[j] * (kept ? kept[i * a->lk + j] : 1) *
              a->v[((b * a->kv_heads + h / (a->heads / a->kv_heads)) * a->lk + j) * a->e + x];
}

static void values_are_those_of_the_formulas(void **state) {
  double worst[2] = {0};
  for (int way = 0; way < 60; way++) {
    kcase k = new_kind((kind)(way % KINDS), way);
    outcome f = {0};
    k.a.dtype = way / 4 % 2 ? SMX_F64 : SMX_F32;
    fill(&k, (uint64_t)way);
    run(&k, NULL, way % ORDERS, &f);
    for (int64_t r = 0; r < k.a.batch * k.a.heads; r++) {
      double *kept = acase_keep(&k.a, r / k.a.heads, r % k.a.heads), want[MOST_SIZE];
      for (int64_t i = 0; i < k.a.lq; i++) {
        reference_row(&k, r / k.a.heads, r % k.a.heads, i, kept, want);
        for (int64_t x = 0; x < k.a.e; x++) {
          const double got = result_at(k.a.dtype, f.o, (r * k.a.lq + i) * k.a.e + x),
                       e = fabs(got - want[x]) / fmax(1, fabs(want[x]));
          const int wide = k.a.dtype.bits == 64;
          if (!(e < (wide ? 1e-12 : 2e-5)))
            fail_msg("%s %d: row %d of head %d: %.9g, not %.9g", names[k.kind], way, (int)i, (int)r, got,
                     want[x]);
          worst[wide] = fmax(worst[wide], e);
        }
      }
      free(kept);
    }
    free_outcome(&f);
    free_kind(&k);
  }
  printf("worst error: f32 %.2g, f64 %.2g\n", worst[0], worst[1]);
}

/* ---- known answers ---- */

/* One query, `n` keys of size 2, values of size 2. */
static void answer(kind which, double ridge, double *q, double *k, double *v, int64_t n, double *extra,
                   const double *want) {
  double o[2];
  int64_t one[] = {1, 1, 1, 2}, many[] = {1, 1, n, 2}, list[] = {1, 1, 2};
  const kcase c = {.kind = which, .ridge = ridge};
  const smx_tensor tq = {.data = q, .device = {1, 0}, .ndim = 4, .dtype = SMX_F64, .shape = one};
  smx_tensor tk = tq, tv = tq, to = tq, te = tq;
  tk.data = k, tk.shape = many, tv.data = v, tv.shape = many, to.data = o, te.data = extra;
  if (which == ADDITIVE) te.ndim = 3, te.shape = list;
  if (forward(&c, NULL, NULL, &tq, &tk, &tv, &te, &to)) fail_msg("%s", smx_last_error());
  for (int i = 0; i < 2; i++)
    if (!(fabs(o[i] - want[i]) < 2e-9))
      fail_msg("%s, ridge %g: o[%d] is %.12f, not %.12f", names[which], ridge, i, o[i], want[i]);
}

static void known_answers(void **state) {
  double q[] = {1, 0.5}, k[] = {1, 0, 0, 1, -1, 1}, v[] = {1, 0, 0, 1, 1, 1}, fit[6], inside[] = {0.1, 0.2};
  const double softmax[] = {0.657204095482, 0.511817832575}, local[] = {0.565098966166, 0.316044891551};
  answer(PARALLAX, 0, q, k, v, 3, (double[]){0, 0}, softmax);
  answer(PARALLAX, 0, q, k, v, 3, (double[]){0.2, -0.1}, (double[]){0.618588046128, 0.603278632461});
  answer(PARALLAX, 0, q, k, v, 3, (double[]){-1.97188749267, -1.83955108449}, local);
  answer(LOCAL, 0.1, q, k, v, 3, NULL, local);
  answer(LOCAL, 1e9, q, k, v, 3, NULL, softmax);
  /* values that are an affine map of keys: o is its value at q, here (4.5, 1.5) */
  for (int j = 0; j < 3; j++)
    fit[2 * j] = 2 * k[2 * j] + 3 * k[2 * j + 1] + 1, fit[2 * j + 1] = k[2 * j] - k[2 * j + 1] + 1;
  answer(LOCAL, 0, q, k, fit, 3, NULL, (double[]){4.5, 1.5});
  answer(LOCAL, 0, inside, k, fit, 3, NULL, (double[]){1.8, 0.9});
  /* two keys do not span the plane: softmax */
  answer(LOCAL, 0, q, k, v, 2, NULL, (double[]){0.58747900084, 0.41252099916});
  answer(ADDITIVE, 0, q, k, v, 3, (double[]){0, 0}, (double[]){2 / 3., 2 / 3.});
  const double z[] = {tanh(2) - tanh(0.5), tanh(1) - tanh(1.5), tanh(0) - tanh(1.5)};
  const double e[] = {exp(z[0]), exp(z[1]), exp(z[2])}, sum = e[0] + e[1] + e[2];
  answer(ADDITIVE, 0, q, k, v, 3, (double[]){1, -1}, (double[]){(e[0] + e[2]) / sum, (e[1] + e[2]) / sum});
}

/* ---- gradients ---- */

static double loss(const kcase *k, const double *d_o) {
  outcome f = {0};
  double sum = 0;
  run(k, NULL, ORDER_BHLD, &f);
  for (size_t i = 0; i < f.o_bytes / 8; i++) sum += d_o[i] * result_at(SMX_F64, f.o, (int64_t)i);
  free_outcome(&f);
  return sum;
}

static void gradients_are_differences(void **state) {
  double worst = 0;
  for (int way = 0; way < 36; way++) {
    kcase k = new_kind((kind)(way % KINDS), way / 2);
    k.a.dtype = SMX_F64;
    fill(&k, (uint64_t)way);
    double *d_o = upstream(&k.a), *value[] = {k.a.q, k.a.k, k.a.v, k.extra};
    outcome f = {.d_o = d_o};
    run(&k, NULL, way % ORDERS, &f);
    for (int i = 0; i < 4; i++)
      for (size_t x = 0; x < f.bytes[i] / 8; x++) {
        const double h = 0x1p-18, at = value[i][x], got = result_at(SMX_F64, f.d[i], (int64_t)x);
        value[i][x] = at + h;
        const double up = loss(&k, d_o);
        value[i][x] = at - h;
        const double want = (up - loss(&k, d_o)) / (2 * h), e = fabs(got - want) / fmax(1, fabs(want));
        value[i][x] = at;
        if (!(e < 1e-6))
          fail_msg("%s %d: d%c[%d] is %.9g, differences say %.9g", names[k.kind], way, "qkvx"[i], (int)x, got,
                   want);
        worst = fmax(worst, e);
      }
    free(d_o);
    free_outcome(&f);
    free_kind(&k);
  }
  printf("worst error %.2g\n", worst);
}

/* ---- bad input ---- */

static void bad_input(void **state) {
  placed_case in;
  placed o, extra;
  int64_t more[4];
#define BAD(which, change, code, message) \
  do { \
    kcase k = new_kind(which, 0); \
    fill(&k, 1); \
    acase_place(&k.a, ORDER_BHLD, &in); \
    place(&o, 3, ORDER_BHLD, SMX_F32, 4, (int64_t[]){1, 2, 4, 2}, NULL); \
    place(&extra, 4, ORDER_BHLD, SMX_F32, extra_shape(&k, more), more, k.extra); \
    const smx_tensor *e = &extra.t; \
    change; \
    const int got = forward(&k, NULL, &in.options, &in.q.t, &in.k.t, &in.v.t, e, &o.t); \
    if (got != (code) || !strstr(smx_last_error(), message)) \
      fail_msg("%s: status %d, '%s'", #change, got, smx_last_error()); \
    free_kind(&k); \
  } while (0)
  BAD(PARALLAX, e = NULL, SMX_ERR_NULL, "r");
  BAD(PARALLAX, extra.shape[3] = 2, SMX_ERR_SHAPE, "smx_attention_parallax: r: shape[3] is 2, not 3");
  BAD(PARALLAX, extra.t.dtype = SMX_I32, SMX_ERR_DTYPE, "r: dtype is i32");
  BAD(PARALLAX, o.t.data = extra.t.data, SMX_ERR_ALIAS, "o: overlaps r");
  BAD(PARALLAX, in.options.weights = SMX_ATTENTION_RELU, SMX_ERR_PARAM,
      "options.weights is not possible here");
  BAD(LOCAL, k.ridge = -1, SMX_ERR_PARAM,
      "smx_attention_local_linear: ridge is -1, not a finite number of at least 0");
  BAD(LOCAL, k.ridge = NAN, SMX_ERR_PARAM, "ridge is nan");
  BAD(LOCAL, in.options.sinks = &o.t, SMX_ERR_SHAPE, "sinks");
  BAD(ADDITIVE, e = NULL, SMX_ERR_NULL, "smx_attention_additive: u is NULL");
  BAD(ADDITIVE, extra.shape[2] = 2, SMX_ERR_SHAPE, "u: shape[2] is 2 and does not broadcast to 3");
  BAD(ADDITIVE, in.options.scale = 2, SMX_ERR_PARAM, "options.scale is 2, which is not possible");
  BAD(ADDITIVE, in.options.softcap = 3, SMX_ERR_PARAM, "options.softcap is 3, which is not possible");
  BAD(ADDITIVE, o.shape[3] = 3, SMX_ERR_SHAPE, "o: shape[3] is 3, not 2");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(known_answers),
      cmocka_unit_test(values_are_those_of_the_formulas),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(bad_input),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
