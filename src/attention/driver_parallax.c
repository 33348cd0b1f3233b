/* attention/driver_parallax.c - attention of the first order: values of keys on one side of the
 * mean are weighed more.
 *
 *     w = softmax(z),   y_j = <r, k_j>,   y = sum_j w_j y_j,
 *     t_j = w_j (1 + y - y_j),   o = sum_j t_j v_j
 *
 * Parallax takes r from the caller. Local linear attention makes it of the query: o is the value at
 * q of the affine map that fits the values best, by squares weighed with w and a ridge,
 *
 *     m = sum w k,   S = sum w (k - m)(k - m)^T + ridge I,   r = -S^-1 (q - m).
 *
 * Gradients, with dt = <do, v> and s = sum_j dt_j w_j:
 *
 *     dw_j = dt_j (1 + y - y_j) + s y_j,   dy_j = w_j (s - dt_j),
 *     dr = sum dy k,   dk += dy r,   dv = t do
 *
 * and through r, with u = S^-1 dr, g_j = <u, k_j>, g = sum w g (terms that sum to 0 because those
 * of w (k - m) do are left out):
 *
 *     dq -= u,   dw_j += g_j - (g_j - g)(y_j - y),
 *     dk_j += w_j (u (1 - y_j + y) - r (g_j - g)). */
#include "base/enter.h"
#include "driver/score_block.h"
#include <string.h>

/* FACTORS: doubles of the factors of S that lie in memory */
enum { LANES = 8, FACTORS = 1 << 22, ROOM = 64 };

typedef struct tilting {
  block_job m;
  char *y, *g, *t; /* <r, k>, <u, k>, weights that are tilted: [rows][lk] */
  bool local;
  double ridge;
  double *keys; /* of a key/value head, [lk][d] */
  /* of the rows of a part: S = L L^T, [rows][d][d]; m, and two rows of scratch, [rows][3][d] */
  double *factor, *middle;
  char *r, *u, *more; /* [rows][d] */
  const attention_job *part;
} tilting;

/* Of a row, for either real type: sum_j w_j y_j over the visible keys, in 8 lanes; and t of w
 * and y. */
#define ROW_STEPS(real) \
  static double mean_##real(const real *w, const real *y, const char *visible, int64_t n) { \
    double sum[LANES] = {0}; \
    int64_t j = 0; \
    for (; j + LANES <= n; j += LANES) \
      for (int i = 0; i < LANES; i++) sum[i] += visible[j + i] ? (double)w[j + i] * (double)y[j + i] : 0; \
    for (; j < n; j++) sum[j % LANES] += visible[j] ? (double)w[j] * (double)y[j] : 0; \
    for (int half = LANES / 2; half; half /= 2) \
      for (int i = 0; i < half; i++) sum[i] += sum[i + half]; \
    return sum[0]; \
  } \
  static void tilt_##real(const real *w, const real *y, const char *visible, double mean, int64_t n, \
                          real *t) { \
    for (int64_t j = 0; j < n; j++) \
      t[j] = (real)(visible[j] ? (double)w[j] * (1 + (mean - (double)y[j])) : 0); \
  }
ROW_STEPS(float)
ROW_STEPS(double)

/* The mean of the row that begins at `from`. */
static double mean_of(const block_job *m, const attention_job *p, const char *y, int64_t from) {
  const void *w = m->y[0], *x = y;
  if (p->real_bytes == 8)
    return mean_double((const double *)w + from, (const double *)x + from, m->visible + from, p->lk);
  return mean_float((const float *)w + from, (const float *)x + from, m->visible + from, p->lk);
}

/* t from w and y. */
static void tilt(const tilting *w, const attention_job *p) {
  const block_job *m = &w->m;
  const void *x = m->y[0], *y = w->y;
  void *t = w->t;
  for (int64_t from = 0; from < p->lq * p->lk; from += p->lk) {
    const double mean = mean_of(m, p, w->y, from);
    const char *visible = m->visible + from;
    if (p->real_bytes == 8)
      tilt_double((const double *)x + from, (const double *)y + from, visible, mean, p->lk,
                  (double *)t + from);
    else
      tilt_float((const float *)x + from, (const float *)y + from, visible, mean, p->lk, (float *)t + from);
  }
}

/* ---- the local fit ---- */

/* Row i of a view [1, 1, rows, n] as doubles. */
static void load_row(const smx_view *v, int64_t i, double *to) {
  const char *from = v->data + i * v->strides[2] * smx_dtype_bytes(v->dtype);
  smx_isa_current()->f64.io->load(row_store_of(v->dtype), from, (ptrdiff_t)v->strides[3], (size_t)v->shape[3],
                                  to);
}

/* The keys of a head as doubles, those of a paged cache in their logical order. */
static void open_head(block_job *m, int64_t b, int64_t kv) {
  tilting *w = (tilting *)(void *)m;
  const attention_job *j = m->j;
  const attn_head h = attention_head(j, b, kv);
  for (int64_t i = 0; w->local && i < h.lk; i++)
    smx_isa_current()->f64.io->load((row_store)h.k.store, attention_key(&h, i), h.k.stride, (size_t)j->call.d,
                                    w->keys + i * j->call.d);
}

/* L of S = L L^T over the lower half of s. False where the keys do not span the space and there is
 * no ridge. */
static bool factorise(double *s, int64_t d) {
  for (int64_t a = 0; a < d; a++) {
    const double least = s[a * d + a] * 0x1p-48;
    for (int64_t b = 0; b <= a; b++) {
      double sum = s[a * d + b];
      for (int64_t c = 0; c < b; c++) sum -= s[a * d + c] * s[b * d + c];
      if (b == a && !(sum > least)) return false;
      s[a * d + b] = b == a ? __builtin_sqrt(sum) : sum / s[b * d + b];
    }
  }
  return true;
}

/* x becomes S^-1 x; 0 where there is no factor. */
static void solve(const double *s, int64_t d, double *x) {
  if (s[0] == 0) memset(x, 0, (size_t)d * sizeof *x);
  for (int64_t a = 0; a < d && s[0] != 0; a++) {
    for (int64_t c = 0; c < a; c++) x[a] -= s[a * d + c] * x[c];
    x[a] /= s[a * d + a];
  }
  for (int64_t a = d - 1; a >= 0 && s[0] != 0; a--) {
    for (int64_t c = a + 1; c < d; c++) x[a] -= s[c * d + a] * x[c];
    x[a] /= s[a * d + a];
  }
}

static double weight_of(const tilting *w, int64_t i) {
  return w->m.visible[i] ? real_at(w->part, w->m.y[0], i) : 0;
}

/* m, the factor of S (0 where there is none) and r of a row. */
static void fit_row(void *arg, int64_t i) {
  tilting *w = arg;
  const attention_job *p = w->part;
  const int64_t d = p->call.d, from = i * p->lk;
  double *s = w->factor + i * d * d, *mean = w->middle + 3 * i * d, *x = mean + d, *q = x + d;
  memset(s, 0, (size_t)(d * d) * sizeof *s), memset(mean, 0, (size_t)d * sizeof *mean);
  for (int64_t j = 0; j < p->lk; j++) {
    const double weight = weight_of(w, from + j);
    for (int64_t a = 0; a < d && weight != 0; a++) mean[a] += weight * w->keys[j * d + a];
  }
  for (int64_t j = 0; j < p->lk; j++) {
    const double weight = weight_of(w, from + j);
    for (int64_t a = 0; a < d && weight != 0; a++) x[a] = w->keys[j * d + a] - mean[a];
    for (int64_t a = 0; a < d && weight != 0; a++)
      for (int64_t b = 0; b <= a; b++) s[a * d + b] += weight * x[a] * x[b];
  }
  for (int64_t a = 0; a < d; a++) s[a * d + a] += w->ridge;
  if (!factorise(s, d)) s[0] = 0;
  load_row(&p->q, i, q);
  for (int64_t a = 0; a < d; a++) x[a] = mean[a] - q[a];
  solve(s, d, x);
  for (int64_t a = 0; a < d; a++) put_real(p, w->r, i * d + a, x[a]);
}

static void fit(tilting *w, const attention_job *p) {
  w->part = p;
  smx_parallel(p->ctx, p->lq, fit_row, w);
}

/* ---- forward ---- */

/* Weights and t of a part; *r becomes the view of the vectors that y is made with. */
static smx_status tilted_weights(tilting *w, const attention_job *p, smx_view *r) {
  smx_status status = score_block_weights(&w->m, p);
  if (status != SMX_OK) return status;
  *r = p->r;
  if (w->local) fit(w, p), *r = score_block_view(p, w->r, p->lq, p->call.d, false);
  status = score_block_products(&w->m, p, r, &p->k, w->y);
  if (status == SMX_OK) tilt(w, p);
  return status;
}

static smx_status forward_part(block_job *m, const attention_job *p) {
  tilting *w = (tilting *)(void *)m;
  smx_view r;
  smx_status status = p->lk ? tilted_weights(w, p, &r) : SMX_OK;
  if (status == SMX_OK) score_block_drop(p, w->t);
  return status == SMX_OK ? score_block_weighted(m, p, w->t, false, &p->v, &p->o) : status;
}

/* ---- backward ---- */

/* dy of the weights becomes dy of softmax's weights; y is kept, g becomes the gradient of y. */
static void untilt(const tilting *w, const attention_job *p) {
  const block_job *m = &w->m;
  for (int64_t from = 0; from < p->lq * p->lk; from += p->lk) {
    const double mean = mean_of(m, p, w->y, from), s = mean_of(m, p, m->dy, from);
    for (int64_t i = from; i < from + p->lk; i++) {
      const double weight = real_at(p, m->y[0], i), y = real_at(p, w->y, i), dt = real_at(p, m->dy, i);
      put_real(p, w->g, i, m->visible[i] ? weight * (s - dt) : 0);
      put_real(p, m->dy, i, m->visible[i] ? dt * (1 + (mean - y)) + s * y : 0);
    }
  }
}

/* u from dr, in its place; `more` gets dq less u. */
static void solve_rows(tilting *w, const attention_job *p) {
  const int64_t d = p->call.d;
  double *const x = w->m.row;
  for (int64_t i = 0; i < p->lq; i++) {
    for (int64_t a = 0; a < d; a++) x[a] = real_at(p, w->u, i * d + a);
    solve(w->factor + i * d * d, d, x);
    for (int64_t a = 0; a < d; a++) put_real(p, w->u, i * d + a, x[a]);
  }
}

/* With g = <u, k>: the gradient of w through r into dy, what r and u are multiplied by for dk
 * into g and y. */
static void through_fit(const tilting *w, const attention_job *p) {
  const block_job *m = &w->m;
  for (int64_t from = 0; from < p->lq * p->lk; from += p->lk) {
    const double y_mean = mean_of(m, p, w->y, from), g_mean = mean_of(m, p, w->g, from);
    for (int64_t i = from; i < from + p->lk; i++) {
      if (!m->visible[i]) continue;
      const double weight = real_at(p, m->y[0], i), y = real_at(p, w->y, i) - y_mean, g = real_at(p, w->g, i);
      put_real(p, m->dy, i, real_at(p, m->dy, i) + g - (g - g_mean) * y);
      put_real(p, w->g, i, -weight * (g - g_mean));
      put_real(p, w->y, i, weight * (1 - y));
    }
  }
}

/* What the affine fit adds to dy and dk. */
static smx_status backward_fit(tilting *w, const attention_job *p, const smx_view *r) {
  block_job *m = &w->m;
  const smx_view u = score_block_view(p, w->u, p->lq, p->call.d, false);
  smx_status status = score_block_weighted(m, p, w->g, false, &p->k, &u);
  if (status != SMX_OK) return status;
  solve_rows(w, p);
  if (p->dk.data) status = score_block_add_transposed(m, p, w->g, r, m->dk);
  if (status == SMX_OK) status = score_block_products(m, p, &u, &p->k, w->g);
  if (status != SMX_OK) return status;
  through_fit(w, p);
  if (p->dk.data) status = score_block_add_transposed(m, p, w->g, r, m->dk);
  return status == SMX_OK && p->dk.data ? score_block_add_transposed(m, p, w->y, &u, m->dk) : status;
}

/* dq: that of the scores, less u. */
static smx_status store_queries(const tilting *w, const attention_job *p) {
  const block_job *m = &w->m;
  const int64_t d = p->call.d, bytes = smx_dtype_bytes(p->dq.dtype);
  const smx_view more = score_block_view(p, w->more, p->lq, d, false);
  double *const row = m->row;
  smx_status status = score_block_weighted(m, p, m->dz, false, &p->k, &more);
  for (int64_t i = 0; status == SMX_OK && i < p->lq; i++) {
    for (int64_t a = 0; a < d; a++) row[a] = real_at(p, w->more, i * d + a) - real_at(p, w->u, i * d + a);
    attention_store(p, p->dq.data + i * p->dq.strides[2] * bytes, p->dq.strides[3], p->dq.dtype, row, d,
                    m->buffer);
  }
  return status;
}

static smx_status backward_part(block_job *m, const attention_job *p) {
  tilting *w = (tilting *)(void *)m;
  smx_view r;
  smx_status status = tilted_weights(w, p, &r);
  if (status == SMX_OK) status = score_block_upstream(m, p);
  if (status != SMX_OK) return status;
  untilt(w, p);
  score_block_drop(p, w->t);
  if (p->dv.data) status = score_block_add_transposed(m, p, w->t, &p->d_o, m->dv);
  if (status == SMX_OK && p->dr.data) status = score_block_weighted(m, p, w->g, false, &p->k, &p->dr);
  if (status == SMX_OK && w->local) status = backward_fit(w, p, &r);
  else if (status == SMX_OK && p->dk.data) status = score_block_add_transposed(m, p, w->g, &r, m->dk);
  if (status == SMX_OK) status = score_block_gradient(m, p);
  if (status == SMX_OK) status = score_block_to_products(m, p);
  if (status == SMX_OK && p->dk.data) status = score_block_add_transposed(m, p, m->dz, &p->q, m->dk);
  if (status != SMX_OK || !p->dq.data) return status;
  return w->local ? store_queries(w, p) : score_block_weighted(m, p, m->dz, false, &p->k, &p->dq);
}

/* ---- arguments ---- */

static bool take(block_job *m, bool backward) {
  tilting *w = (tilting *)(void *)m;
  const attention_job *j = m->j;
  const int64_t d = j->call.d;
  if (w->local && m->rows > FACTORS / (d * d)) m->rows = FACTORS / (d * d);
  const int64_t pairs = m->rows * j->lk * j->real_bytes, rows = m->rows * d;
  bool good = block_job_take(m, &w->y, pairs) && block_job_take(m, &w->t, pairs);
  if (good && backward) good = block_job_take(m, &w->g, pairs);
  if (!good || !w->local) return good;
  good = block_job_take(m, &w->keys, j->lk * d * 8) && block_job_take(m, &w->factor, rows * d * 8) &&
         block_job_take(m, &w->middle, 3 * rows * 8) && block_job_take(m, &w->r, rows * j->real_bytes);
  return good && backward ? block_job_take(m, &w->u, rows * j->real_bytes) &&
                                block_job_take(m, &w->more, rows * j->real_bytes)
                          : good;
}

static const block_job_steps steps = {
    .forward = forward_part, .backward = backward_part, .open = open_head, .take = take};

static smx_status check(tilting *w, const smx_attention_options *options, const smx_tensor *q,
                        const smx_tensor *k, const smx_tensor *v, const smx_tensor *r) {
  attention_job *j = w->m.j;
  smx_status status = score_block_check(&w->m, options, NULL, NULL, q, k, v);
  if (status == SMX_OK && !w->local) status = attention_tensor(j, "r", r, FLOATS, 4, j->q.shape, &j->r);
  if (status == SMX_OK && w->local && !(w->ridge >= 0 && w->ridge <= 0x1p127))
    status = smx_fail(SMX_ERR_PARAM, "%s: ridge is %g, not a finite number of at least 0", j->name, w->ridge);
  return status;
}

smx_status smx_attention_parallax(smx_context *ctx, const smx_attention_options *options, const smx_tensor *q,
                                  const smx_tensor *k, const smx_tensor *v, const smx_tensor *r,
                                  const smx_tensor *o) {
  SMX_ENTER(ctx);
  SMX_OWN(tilting, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_parallax", ctx, &steps)) return SMX_ERR_NOMEM;
  smx_status status = check(w, options, q, k, v, r);
  if (status == SMX_OK) status = score_block_check_output(&w->m, o);
  return status == SMX_OK ? block_job_run(&w->m, false) : status;
}

smx_status smx_attention_parallax_backward(smx_context *ctx, const smx_attention_options *options,
                                           const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                           const smx_tensor *r, const smx_tensor *d_o, const smx_tensor *dq,
                                           const smx_tensor *dk, const smx_tensor *dv, const smx_tensor *dr) {
  SMX_ENTER(ctx);
  SMX_OWN(tilting, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_parallax_backward", ctx, &steps)) return SMX_ERR_NOMEM;
  smx_status status = check(w, options, q, k, v, r);
  if (status == SMX_OK) status = score_block_check_gradients(&w->m, d_o, dq, dk, dv);
  if (status == SMX_OK && dr) status = attention_output(w->m.j, "dr", dr, 4, w->m.j->q.shape, &w->m.j->dr);
  return status == SMX_OK ? block_job_run(&w->m, true) : status;
}

smx_status smx_attention_local_linear(smx_context *ctx, const smx_attention_options *options, double ridge,
                                      const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                                      const smx_tensor *o) {
  SMX_ENTER(ctx);
  SMX_OWN(tilting, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_local_linear", ctx, &steps)) return SMX_ERR_NOMEM;
  w->local = true, w->ridge = ridge;
  smx_status status = check(w, options, q, k, v, NULL);
  if (status == SMX_OK) status = score_block_check_output(&w->m, o);
  return status == SMX_OK ? block_job_run(&w->m, false) : status;
}

smx_status smx_attention_local_linear_backward(smx_context *ctx, const smx_attention_options *options,
                                               double ridge, const smx_tensor *q, const smx_tensor *k,
                                               const smx_tensor *v, const smx_tensor *d_o,
                                               const smx_tensor *dq, const smx_tensor *dk,
                                               const smx_tensor *dv) {
  SMX_ENTER(ctx);
  SMX_OWN(tilting, w, ctx);
  if (!block_job_open(w ? &w->m : NULL, "smx_attention_local_linear_backward", ctx, &steps))
    return SMX_ERR_NOMEM;
  w->local = true, w->ridge = ridge;
  smx_status status = check(w, options, q, k, v, NULL);
  if (status == SMX_OK) status = score_block_check_gradients(&w->m, d_o, dq, dk, dv);
  return status == SMX_OK ? block_job_run(&w->m, true) : status;
}
