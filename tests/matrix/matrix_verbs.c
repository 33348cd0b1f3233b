/* matrix_verbs.c - proves that the operators on matrices are operators: their table, the verbs that
 * run every operator, and their results against references in long double that share nothing with
 * them. Bits, gradients, masks and NaN of their functions: matrix.c. */
#include <math.h>
#include <string.h>

#include "problem.h"
#include "status.h"

enum { R = 9, C = 9, CELLS = R * C, MOST = 5, K = 3 };

/* ---- references ---- */

static void sinkhorn_ref(const double *x, int steps, long double *y) {
  for (int i = 0; i < CELLS; i++) y[i] = x[i];
  for (int k = 1; k <= steps; k++) /* rows, then columns */
    for (int line = 0; line < R; line++) {
      const int first = k % 2 ? line * C : line, step = k % 2 ? 1 : C;
      long double most = -INFINITY, sum = 0;
      for (int i = 0; i < C; i++) most = fmaxl(most, y[first + i * step]);
      for (int i = 0; i < C; i++) sum += expl(y[first + i * step] - most);
      for (int i = 0; i < C; i++) y[first + i * step] -= most + logl(sum);
    }
  for (int i = 0; i < CELLS; i++) y[i] = expl(y[i]);
}

/* Gram and Schmidt, column by column, each made orthogonal twice. */
static void orthostochastic_ref(const double *x, long double *y) {
  for (int k = 0; k < C; k++) {
    long double length = 0;
    for (int i = 0; i < R; i++) y[i * C + k] = x[i * C + k];
    for (int pass = 0; pass < 2; pass++)
      for (int j = 0; j < k; j++) {
        long double dot = 0;
        for (int i = 0; i < R; i++) dot += y[i * C + j] * y[i * C + k];
        for (int i = 0; i < R; i++) y[i * C + k] -= dot * y[i * C + j];
      }
    for (int i = 0; i < R; i++) length += y[i * C + k] * y[i * C + k];
    for (int i = 0; i < R; i++) y[i * C + k] /= sqrtl(length);
  }
  for (int i = 0; i < CELLS; i++) y[i] *= y[i];
}

/* z = (A x - b) / mu, p = softmax(z), u = A v; gives logsumexp(z). */
static long double weights_ref(const double *const *in, double mu, int minus_b, long double *p,
                               long double *u) {
  long double most = -INFINITY, sum = 0;
  for (int i = 0; i < R; i++) {
    p[i] = minus_b ? -in[1][i] : 0, u[i] = 0;
    for (int k = 0; k < C; k++)
      p[i] += (long double)in[0][i * C + k] * in[2][k], u[i] += (long double)in[0][i * C + k] * in[3][k];
    p[i] /= mu;
    most = fmaxl(most, p[i]);
  }
  for (int i = 0; i < R; i++) sum += p[i] = expl(p[i] - most);
  for (int i = 0; i < R; i++) p[i] /= sum;
  return most + logl(sum);
}
static long double dot(const long double *a, const long double *b) {
  long double sum = 0;
  for (int i = 0; i < R; i++) sum += a[i] * b[i];
  return sum;
}
static void times_a(const double *a, const long double *w, long double *to) {
  for (int k = 0; k < C; k++) {
    to[k] = 0;
    for (int i = 0; i < R; i++) to[k] += w[i] * a[i * C + k];
  }
}

static void logsumexp_ref(const double *const *in, double mu, long double (*out)[CELLS]) {
  long double p[R], u[R], w[3][R], square[R];
  out[0][0] = mu * weights_ref(in, mu, 1, p, u);
  const long double mean = dot(p, u);
  for (int i = 0; i < R; i++) square[i] = (u[i] - mean) * (u[i] - mean);
  for (int i = 0; i < R; i++) {
    w[0][i] = p[i] * (u[i] - mean) / mu;
    w[1][i] = p[i] * u[i] / mu;
    w[2][i] = p[i] * (square[i] - dot(p, square)) / ((long double)mu * mu);
  }
  times_a(in[0], p, out[1]);
  for (int s = 0; s < 3; s++) times_a(in[0], w[s], out[2 + s]);
}

/* The Jacobian of p is J = diag p - p p^T: gradient A^T J c, Hessian times v A^T d(J c) with
 * dp = J u. */
static void regression_ref(const double *const *in, long double (*out)[CELLS]) {
  long double p[R], u[R], c[R], dp[R], s[R], ds[R];
  weights_ref(in, 1, 0, p, u);
  for (int i = 0; i < R; i++) c[i] = p[i] - in[1][i], dp[i] = p[i] * (u[i] - dot(p, u));
  out[0][0] = dot(c, c) / 2;
  for (int i = 0; i < R; i++) {
    s[i] = p[i] * c[i] - p[i] * dot(p, c);
    ds[i] = dp[i] * c[i] + p[i] * dp[i] - dp[i] * dot(p, c) - p[i] * dot(dp, c) - p[i] * dot(p, dp);
  }
  times_a(in[0], s, out[1]);
  times_a(in[0], ds, out[2]);
}

static void softmax_ref(const double *x, long double *p) {
  long double most = -INFINITY, sum = 0;
  for (int j = 0; j < C; j++) most = fmaxl(most, x[j]);
  for (int j = 0; j < C; j++) sum += p[j] = expl(x[j] - most);
  for (int j = 0; j < C; j++) p[j] /= sum;
}

static void divergence_ref(const double *const *in, long double (*out)[CELLS]) {
  long double p[R][C], w[R], mean[C] = {0}, apart[R] = {0};
  softmax_ref(in[1], w);
  for (int i = 0; i < R; i++) {
    softmax_ref(in[0] + i * C, p[i]);
    for (int j = 0; j < C; j++) mean[j] += w[i] * p[i][j];
  }
  out[0][0] = 0;
  for (int i = 0; i < R; i++) {
    for (int j = 0; j < C; j++) apart[i] += p[i][j] * logl(p[i][j] / mean[j]);
    out[0][0] += w[i] * apart[i];
    for (int j = 0; j < C; j++) out[1][i * C + j] = w[i] * p[i][j] * (logl(p[i][j] / mean[j]) - apart[i]);
  }
}

/* y_j ~ the mean, weighed, of y_j + p_ij as a geometric one, from the arithmetic mean on. */
static void centroid_ref(const double *const *in, long double *y) {
  long double p[R][C], w[R], change = 1;
  softmax_ref(in[1], w);
  for (int j = 0; j < C; j++) y[j] = 0;
  for (int i = 0; i < R; i++) {
    softmax_ref(in[0] + i * C, p[i]);
    for (int j = 0; j < C; j++) y[j] += w[i] * p[i][j];
  }
  for (int step = 0; step < 1000 && change >= 1e-10L; step++) {
    long double next[C], sum = 0;
    for (int j = 0; j < C; j++) {
      next[j] = 0;
      for (int i = 0; i < R; i++) next[j] += w[i] * logl(y[j] + p[i][j]);
      sum += next[j] = expl(next[j]);
    }
    change = 0;
    for (int j = 0; j < C; j++) change += fabsl(next[j] / sum - (step ? y[j] : 0)), y[j] = next[j] / sum;
  }
}

static void shares_ref(const double *x, const long double *weight, long double *y) {
  for (int i = 0; i < R; i++) {
    long double sum = 0;
    for (int k = 0; k < K; k++) y[i * K + k] = 0;
    for (int v = 0; v < C; v++)
      if (x[i * C + v] >= 0) y[i * K + (int)x[i * C + v]] += weight[v], sum += weight[v];
    for (int k = 0; k < K; k++) y[i * K + k] = sum > 0 ? y[i * K + k] / sum : 1.0L / K;
  }
}

static void agreement_ref(const double *x, long double *y) {
  long double skill[C], one[C];
  for (int v = 0; v < C; v++) one[v] = 1;
  shares_ref(x, one, y);
  for (int v = 0; v < C; v++) {
    int right = 0, count = 0;
    for (int i = 0; i < R; i++) {
      int top = 0;
      for (int k = 1; k < K; k++) top = y[i * K + k] > y[i * K + top] ? k : top;
      if (x[i * C + v] >= 0) count++, right += (int)x[i * C + v] == top;
    }
    skill[v] = count ? (long double)right / count : 0;
  }
  shares_ref(x, skill, y);
}

static void skene_ref(const double *x, int steps, long double *y) {
  long double one[C];
  for (int v = 0; v < C; v++) one[v] = 1;
  shares_ref(x, one, y);
  for (int step = 0; step < steps; step++) {
    long double prior[K] = {0}, error[C][K][K] = {0};
    for (int i = 0; i < R; i++)
      for (int k = 0; k < K; k++) {
        prior[k] += y[i * K + k] / R;
        for (int v = 0; v < C; v++)
          if (x[i * C + v] >= 0) error[v][k][(int)x[i * C + v]] += y[i * K + k];
      }
    for (int i = 0; i < R; i++) {
      long double product[K], sum = 0;
      for (int k = 0; k < K; k++) {
        product[k] = prior[k];
        for (int v = 0; v < C; v++)
          if (x[i * C + v] >= 0)
            product[k] *= error[v][k][(int)x[i * C + v]] / (error[v][k][0] + error[v][k][1] + error[v][k][2]);
        sum += product[k];
      }
      for (int k = 0; k < K; k++) y[i * K + k] = product[k] / sum;
    }
  }
}

/* ---- calls ---- */

/* A call of one of them in one dtype; values[p] are those of input p. */
typedef struct call {
  const smx_op *op;
  smx_params params;
  double values[MOST][CELLS];
  unsigned char bytes[4][MOST][CELLS * 8]; /* in, out, dout, din */
  smx_tensor tensor[4][MOST];
  const smx_tensor *list[4][MOST];
} call;

static int64_t square[] = {R, C}, line[] = {R}, classes[] = {R, K};

static int takes_votes(const smx_op *op) { return strstr(op->outputs[0].dims, "items") != NULL; }

static smx_tensor *place(call *c, int group, int i, const smx_port *port, smx_dtype t) {
  const char *dims = port->dims; /* "... r c", "m n", "items workers", "items k", "n", "" */
  const int ndim = strchr(dims, ' ') ? 2 : *dims != 0;
  int64_t *shape = strstr(dims, " k") ? classes : ndim == 2 ? square : line;
  c->tensor[group][i] = (smx_tensor){c->bytes[group][i], {1, 0}, ndim, t, shape, NULL, 0};
  return c->tensor[group] + i;
}

static void call_make(call *c, const smx_op *op, smx_dtype t, uint64_t seed) {
  rng r = {seed};
  memset(c, 0, sizeof *c);
  c->op = op;
  smx_params_init(op, &c->params);
  if (takes_votes(op)) c->params.value[0] = K;
  for (int i = 0; i < op->input_count; i++) {
    c->list[0][i] = place(c, 0, i, op->inputs + i, t);
    for (int k = 0; k < CELLS; k++) {
      c->values[i][k] = takes_votes(op) ? (double)rng_below(&r, K + 1) - 1 : dtype_round(t, rng_normal(&r));
      dtype_store(t, c->bytes[0][i] + (size_t)k * dtype_size(t), c->values[i][k]);
    }
    if (op->inputs[i].flags & SMX_PORT_GRAD) c->list[3][i] = place(c, 3, i, op->inputs + i, t);
  }
  for (int i = 0; i < op->output_count; i++) {
    c->list[1][i] = place(c, 1, i, op->outputs + i, t);
    if (op->flags & SMX_OP_BACKWARD) c->list[2][i] = place(c, 2, i, op->outputs + i, t);
    for (int k = 0; k < CELLS; k++)
      dtype_store(t, c->bytes[2][i] + (size_t)k * dtype_size(t), dtype_round(t, rng_normal(&r)));
  }
}
static smx_status forward(const call *c) {
  return smx_forward(c->op, NULL, &c->params, c->op->input_count, c->list[0], c->op->output_count,
                     c->list[1]);
}
static smx_status backward(const call *c) {
  return smx_backward(c->op, NULL, &c->params, c->op->input_count, c->list[0], c->op->output_count,
                      c->list[1], c->list[2], c->list[3]);
}

/* Those whose tensors are all of one dtype. */
static const smx_op *matrix_op(size_t i) {
  const smx_op *op = smx_op_at(row_op_count() + i);
  return op && !strcmp(op->family, "matrix") && !(op->outputs[0].flags & SMX_PORT_INT) ? op : NULL;
}

static double mu_of(const call *c) {
  return strcmp(c->op->name, "logsumexp_objective") ? 1 : c->params.value[0];
}

static void reference(const call *c, long double (*out)[CELLS]) {
  const double *in[] = {c->values[0], c->values[1], c->values[2], c->values[3]};
  if (!strcmp(c->op->name, "sinkhorn")) sinkhorn_ref(in[0], (int)c->params.value[0], out[0]);
  else if (!strcmp(c->op->name, "orthostochastic")) orthostochastic_ref(in[0], out[0]);
  else if (!strcmp(c->op->name, "logsumexp_objective")) logsumexp_ref(in, mu_of(c), out);
  else if (!strcmp(c->op->name, "softmax_regression")) regression_ref(in, out);
  else if (!strcmp(c->op->name, "jensen_shannon_divergence")) divergence_ref(in, out);
  else if (!strcmp(c->op->name, "jensen_shannon_centroid")) centroid_ref(in, out[0]);
  else if (!strcmp(c->op->name, "dawid_skene")) skene_ref(in[0], (int)c->params.value[1], out[0]);
  else if (!strcmp(c->op->name, "worker_agreement")) agreement_ref(in[0], out[0]);
  else fail_msg("%s has no reference", c->op->name);
}

/* Of a weight or a value its size, the largest of all; of a derivative that of its terms, which
 * cancel: |a| |u|^k / mu^k, where k is how often v stands in it. */
static double scale_of(const call *c, int p, const long double *want, int count) {
  const double *a = c->values[0], *v = c->values[3], mu = mu_of(c);
  double most = 0, slope = 0, largest_a = 0;
  for (int k = 0; k < count; k++) most = fmax(most, fabs((double)want[k]));
  if (p == 0) return most;
  for (int i = 0; i < R; i++) {
    double u = 0;
    for (int k = 0; k < C; k++) u += a[i * C + k] * v[k], largest_a = fmax(largest_a, fabs(a[i * C + k]));
    slope = fmax(slope, fabs(u) / mu);
  }
  return largest_a * (p == 1 ? 1 : p == 4 ? slope * slope : slope);
}

static void results_are_those_of_references(void **state) {
  static const smx_dtype types[] = {{2, 32, 1}, {2, 64, 1}, {2, 16, 1}};
  static const double units[] = {0x1p-24, 0x1p-50, 0x1p-11};
  static call c;
  static long double want[MOST][CELLS];
  for (size_t o = 0; matrix_op(o); o++)
    for (int t = 0; t < 3; t++)
      for (uint64_t seed = 1; seed <= 8; seed++) {
        call_make(&c, matrix_op(o), types[t], seed);
        if (!strcmp(c.op->name, "sinkhorn")) c.params.value[0] = (double)(1 + seed * seed);
        if (!strcmp(c.op->name, "logsumexp_objective")) c.params.value[0] = 0.25 * (double)seed;
        if (!strcmp(c.op->name, "dawid_skene")) c.params.value[1] = (double)seed;
        assert_int_equal(forward(&c), SMX_OK);
        reference(&c, want);
        for (int p = 0; p < c.op->output_count; p++) {
          int count = 1;
          for (int d = 0; d < c.tensor[1][p].ndim; d++) count *= (int)c.tensor[1][p].shape[d];
          const double most = scale_of(&c, p, want[p], count);
          for (int k = 0; k < count; k++) {
            const double got = dtype_load(types[t], c.bytes[1][p] + (size_t)k * dtype_size(types[t]));
            if (!(fabs(got - (double)want[p][k]) <= c.op->tolerance * units[t] * most))
              fail_msg("%s: %s[%d] is %.17g, not %.17Lg", c.op->name, c.op->outputs[p].name, k, got,
                       want[p][k]);
          }
        }
      }
}

/* The verbs give what the functions give. */
static void verbs_are_the_functions(void **state) {
  static call c;
  double want[CELLS], f;
  smx_tensor Y = {want, {1, 0}, 2, SMX_F64, square, NULL, 0}, G = {want, {1, 0}, 1, SMX_F64, line, NULL, 0};
  call_make(&c, smx_op_find("sinkhorn"), SMX_F64, 5);
  c.params.value[0] = 9;
  const smx_tensor *x = c.list[0][0], *y = c.list[1][0], *dy = c.list[2][0];
  assert_int_equal(forward(&c), SMX_OK);
  assert_int_equal(smx_sinkhorn(NULL, 9, x, &Y), SMX_OK);
  assert_memory_equal(want, c.bytes[1][0], sizeof want);
  assert_int_equal(backward(&c), SMX_OK);
  assert_int_equal(smx_sinkhorn_backward(NULL, 9, x, dy, &Y), SMX_OK);
  assert_memory_equal(want, c.bytes[3][0], sizeof want);
  c.params.value[1] = 1;
  assert_int_equal(backward(&c), SMX_OK);
  assert_int_equal(smx_sinkhorn_implicit(NULL, y, dy, &Y), SMX_OK);
  assert_memory_equal(want, c.bytes[3][0], sizeof want);
  call_make(&c, smx_op_find("orthostochastic"), SMX_F64, 6);
  assert_int_equal(backward(&c), SMX_OK);
  assert_int_equal(smx_orthostochastic_backward(NULL, c.list[0][0], c.list[2][0], &Y), SMX_OK);
  assert_memory_equal(want, c.bytes[3][0], sizeof want);
  call_make(&c, smx_op_find("softmax_regression"), SMX_F64, 7);
  const smx_tensor *const *in = c.list[0];
  assert_int_equal(forward(&c), SMX_OK);
  assert_int_equal(smx_softmax_regression(NULL, in[0], in[1], in[2], in[3], &f, NULL, &G), SMX_OK);
  assert_memory_equal(want, c.bytes[1][2], C * sizeof *want);
  assert_memory_equal(&f, c.bytes[1][0], sizeof f);
  c.list[0][3] = NULL; /* no direction: 0 */
  assert_int_equal(forward(&c), SMX_OK);
  assert_memory_equal(&f, c.bytes[1][0], sizeof f);
  for (int k = 0; k < C; k++) assert_true(dtype_load(SMX_F64, c.bytes[1][2] + (size_t)k * 8) == 0);
}

/* The operators on several distributions and on votes are functions as well; a matrix of votes is a
 * list of those that there are. */
static void distributions_are_the_functions(void **state) {
  static call c;
  static smx_vote votes[CELLS];
  double loss, want[CELLS];
  size_t count = 0;
  smx_tensor L = {&loss, {1, 0}, 0, SMX_F64, NULL, NULL, 0}, D = {want, {1, 0}, 2, SMX_F64, square, NULL, 0},
             Y = D;
  Y.ndim = 1, Y.shape = line;
  call_make(&c, smx_op_find("jensen_shannon_divergence"), SMX_F64, 8);
  assert_int_equal(forward(&c), SMX_OK);
  assert_int_equal(smx_jensen_shannon(NULL, c.list[0][1], c.list[0][0], &L, &D), SMX_OK);
  assert_memory_equal(&loss, c.bytes[1][0], sizeof loss);
  assert_memory_equal(want, c.bytes[1][1], sizeof want);
  call_make(&c, smx_op_find("jensen_shannon_centroid"), SMX_F64, 9);
  assert_int_equal(forward(&c), SMX_OK);
  assert_int_equal(smx_js_centroid(NULL, c.list[0][1], c.list[0][0], &Y), SMX_OK);
  assert_memory_equal(want, c.bytes[1][0], C * sizeof *want);
  call_make(&c, smx_op_find("dawid_skene"), SMX_F64, 10);
  dtype_store(SMX_F64, c.bytes[0][0] + 8, c.values[0][1] = NAN);
  for (int i = 0; i < CELLS; i++)
    if (c.values[0][i] >= 0) votes[count++] = (smx_vote){i / C, i % C, (int64_t)c.values[0][i]};
  assert_int_equal(forward(&c), SMX_OK);
  assert_int_equal(smx_dawid_skene(NULL, NULL, count, votes, R, C, K, want, NULL, NULL, NULL), SMX_OK);
  assert_memory_equal(want, c.bytes[1][0], R * K * sizeof *want);
}

/* Three workers, of whom the first errs once and the last is right once, on three items: skills
 * 2 / 3, 1 and 1 / 3. The fourth has no votes. */
static void agreement_has_known_values(void **state) {
  double votes[] = {1, 1, 0, 2, 2, 1, 1, 0, 0, -1, NAN, -2}, y[12];
  static const double want[] = {1.0 / 6, 5.0 / 6, 0, 0,       1.0 / 6, 5.0 / 6,
                                2.0 / 3, 1.0 / 3, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3};
  int64_t items[] = {4, 3};
  smx_tensor X = {votes, {1, 0}, 2, SMX_F64, items, NULL, 0}, Y = {y, {1, 0}, 2, SMX_F64, items, NULL, 0};
  const smx_tensor *in[] = {&X}, *out[] = {&Y};
  const smx_op *op = smx_op_find("worker_agreement");
  smx_params params;
  smx_params_init(op, &params);
  params.value[0] = 3;
  assert_int_equal(smx_forward(op, NULL, &params, 1, in, 1, out), SMX_OK);
  for (int i = 0; i < 12; i++) assert_true(fabs(y[i] - want[i]) < 1e-15);
}

static void shapes_are_inferred(void **state) {
  static call c;
  smx_shape shape[MOST];
  for (size_t o = 0; matrix_op(o); o++) {
    call_make(&c, matrix_op(o), SMX_F16, 1);
    assert_int_equal(smx_infer(c.op, &c.params, c.op->input_count, c.list[0], c.op->output_count, shape),
                     SMX_OK);
    for (int p = 0; p < c.op->output_count; p++) {
      assert_int_equal(shape[p].ndim, c.tensor[1][p].ndim);
      for (int d = 0; d < shape[p].ndim; d++) assert_int_equal(shape[p].dim[d], c.tensor[1][p].shape[d]);
      assert_int_equal(shape[p].dtype.bits, 16);
    }
  }
}

static void bad_calls_are_refused(void **state) {
  static call c;
  for (size_t o = 0; matrix_op(o); o++) {
    call_make(&c, matrix_op(o), SMX_F32, 1);
    const smx_tensor *kept = c.list[1][0];
    c.list[1][0] = NULL;
    refused(forward(&c), SMX_ERR_NULL, c.op->outputs[0].name);
    c.list[1][0] = c.list[0][0]; /* in place, or an output of another shape */
    assert_int_equal(forward(&c), c.op->flags & SMX_OP_INPLACE    ? SMX_OK
                                  : c.op->flags & SMX_OP_BACKWARD ? SMX_ERR_ALIAS
                                                                  : SMX_ERR_SHAPE);
    c.list[1][0] = kept;
    c.params.axis = 0;
    refused(forward(&c), SMX_ERR_PARAM, "axis is 0");
    refused(smx_infer(c.op, &c.params, 1, c.list[0], 0, NULL), SMX_ERR_PARAM, "axis is 0");
    c.params.axis = -1;
    assert_int_equal(forward(&c), SMX_OK);
    c.tensor[0][0].ndim = 1;
    refused(forward(&c), SMX_ERR_SHAPE, "1 dimensions");
    c.tensor[0][0].ndim = 2;
    if (c.op->flags & SMX_OP_BACKWARD) {
      c.list[3][0] = NULL; /* nothing is wanted */
      assert_int_equal(backward(&c), SMX_OK);
      c.list[3][0] = c.tensor[3];
      c.list[2][0] = NULL;
      refused(backward(&c), SMX_ERR_NULL, "dy");
    } else {
      refused(backward(&c), SMX_ERR_NO_BACKWARD, "no gradient");
      c.tensor[1][0].data = c.tensor[0][c.op->input_count > 1].data;
      refused(forward(&c), SMX_ERR_ALIAS, ": overlaps");
    }
    if (takes_votes(c.op)) {
      call_make(&c, c.op, SMX_F32, 1);
      dtype_store(SMX_F32, c.bytes[0][0] + (size_t)(2 * C + 4) * 4, K);
      refused(forward(&c), SMX_ERR_TARGET, "[2, 4] is 3, no class of 0..2");
      dtype_store(SMX_F32, c.bytes[0][0] + (size_t)(2 * C + 4) * 4, 0.5);
      refused(forward(&c), SMX_ERR_TARGET, "[2, 4] is 0.5, no class of 0..2");
    }
    refused(smx_forward(c.op, NULL, NULL, c.op->input_count + 1, c.list[0], 1, c.list[1]), SMX_ERR_SHAPE,
            "n_in");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(results_are_those_of_references),
                                     cmocka_unit_test(verbs_are_the_functions),
                                     cmocka_unit_test(distributions_are_the_functions),
                                     cmocka_unit_test(agreement_has_known_values),
                                     cmocka_unit_test(shapes_are_inferred),
                                     cmocka_unit_test(bad_calls_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
