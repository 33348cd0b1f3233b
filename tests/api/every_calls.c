/* every_calls.c - the cases of softmax.h but for attention. See every.h. */
#include "every.h"

#include <string.h>

#include "problem.h"

/* ---- memory and tensors ---- */

void stage_open(stage *s) {
  s->r.state = 20;
  s->in_used = s->out_used = 0;
}

static void *take(unsigned char *base, size_t *used, size_t bytes) {
  void *p = base + *used;
  *used += (bytes + 127) / 64 * 64;
  if (*used > STAGE_BYTES) __builtin_trap();
  return p;
}
void *stage_in(stage *s, size_t bytes) { return take(s->in, &s->in_used, bytes); }
void *stage_out(stage *s, size_t bytes) {
  size_t before = s->out_used;
  void *p = take(s->out, &s->out_used, bytes);
  memset(s->out + before, CANARY, s->out_used - before);
  return p;
}

void stage_begin(stage *s, const char *function) {
  s->function = function;
  s->proof->before(s);
}
void stage_end(stage *s, smx_status status) {
  s->status = status;
  s->proof->after(s);
}

static smx_tensor *new_tensor(stage *s, smx_dtype t, int ndim, const int64_t *shape, int64_t *count) {
  smx_tensor *v = stage_in(s, sizeof *v);
  *v = (smx_tensor){
      .device = {1, 0}, .ndim = ndim, .dtype = t, .shape = stage_in(s, SMX_MAX_DIMS * sizeof(int64_t))};
  *count = 1;
  for (int d = 0; d < ndim; d++) *count *= v->shape[d] = shape[d];
  return v;
}

smx_tensor *in_values(stage *s, smx_dtype t, int ndim, const int64_t *shape, const double *values) {
  int64_t count;
  smx_tensor *v = new_tensor(s, t, ndim, shape, &count);
  v->data = stage_in(s, (size_t)count * dtype_size(t));
  dtype_store_many(t, v->data, (int64_t)dtype_size(t), values, count);
  return v;
}

static double *numbers(stage *s, int ndim, const int64_t *shape, int64_t *count) {
  *count = 1;
  for (int d = 0; d < ndim; d++) *count *= shape[d];
  return stage_in(s, (size_t)*count * sizeof(double));
}

smx_tensor *in_floats(stage *s, smx_dtype t, int ndim, const int64_t *shape) {
  int64_t count;
  double *x = numbers(s, ndim, shape, &count);
  for (int64_t i = 0; i < count; i++) x[i] = 2 * rng_normal(&s->r);
  return in_values(s, t, ndim, shape, x);
}

smx_tensor *in_wholes(stage *s, smx_dtype t, int ndim, const int64_t *shape, int64_t most) {
  int64_t count;
  double *x = numbers(s, ndim, shape, &count);
  for (int64_t i = 0; i < count; i++) x[i] = (double)rng_below(&s->r, most);
  return in_values(s, t, ndim, shape, x);
}

smx_tensor *out_tensor(stage *s, smx_dtype t, int ndim, const int64_t *shape) {
  int64_t count;
  smx_tensor *v = new_tensor(s, t, ndim, shape, &count);
  v->data = stage_out(s, (size_t)count * dtype_size(t));
  return v;
}

/* ---- about the library, contexts, operators as data ---- */

static void versions(stage *s) { GIVES(s, smx_version, const char *, ); }
static void isa_name(stage *s) { GIVES(s, smx_isa_name, const char *, ); }
static void strerror_(stage *s) { GIVES(s, smx_strerror, const char *, SMX_ERR_SHAPE); }
static void last_error(stage *s) { /* each thread has its own */
  stage_begin(s, "smx_last_error");
  const char *text = smx_last_error();
  stage_end(s, text ? SMX_OK : SMX_ERR_NULL);
}
static void set_error(stage *s) { CALL(s, smx_set_error, SMX_OK, "a text"); }
static void op_count(stage *s) { GIVES(s, smx_op_count, size_t, ); }
static void op_at(stage *s) { GIVES(s, smx_op_at, const smx_op *, 3); }
static void op_find(stage *s) { GIVES(s, smx_op_find, const smx_op *, "entmax"); }
static void kind_count(stage *s) { GIVES(s, smx_attention_kind_count, size_t, ); }
static void kind_at(stage *s) { GIVES(s, smx_attention_kind_at, const smx_attention_kind *, 3); }
static void kind_find(stage *s) { GIVES(s, smx_attention_kind_find, const smx_attention_kind *, "sigmoid"); }
static void step_count(stage *s) { GIVES(s, smx_step_count, size_t, ); }
static void step_at(stage *s) { GIVES(s, smx_step_at, const smx_step_info *, 3); }
static void step_find(stage *s) { GIVES(s, smx_step_find, const smx_step_info *, "top_p"); }
static void sample_scratch(stage *s) { GIVES(s, smx_sample_scratch, size_t, NULL, 1000, 0); }
static void context_threads(stage *s) {
  int32_t *to = stage_in(s, sizeof *to);
  stage_begin(s, "smx_context_threads");
  *to = smx_context_threads(s->ctx);
  stage_end(s, SMX_OK);
}

static void context_create(stage *s) {
  smx_context_options *o = stage_in(s, sizeof *o);
  smx_context *made = NULL;
  *o = (smx_context_options){.size = sizeof *o, .threads = -1};
  CALL(s, smx_context_create, o, &made);
  smx_context_destroy(made);
}
static void context_destroy(stage *s) {
  smx_context *made = NULL;
  smx_context_options o = {.size = sizeof o, .threads = 3};
  float x[] = {1, 2}, y[2];
  if (smx_context_create(&o, &made) != SMX_OK) return;
  smx_softmax_strided_f32(made, 1, 2, x, 2, y, 2);
  stage_begin(s, "smx_context_destroy");
  smx_context_destroy(made);
  stage_end(s, SMX_OK);
}

static void params_init(stage *s) {
  CALL(s, smx_params_init, smx_op_find("entmax"), stage_out(s, sizeof(smx_params)));
}
static void params_set(stage *s) {
  smx_params *p = stage_out(s, sizeof *p);
  smx_params_init(smx_op_find("softmax"), p);
  CALL(s, smx_params_set, smx_op_find("softmax"), p, "temperature", 0.7);
}
static void params_parse(stage *s) {
  smx_params *p = stage_out(s, sizeof *p);
  smx_params_init(smx_op_find("softmax"), p);
  CALL(s, smx_params_parse, smx_op_find("softmax"), p, "temperature", "0.3333333333333333333");
}
static void infer(stage *s) {
  const smx_tensor **in = stage_in(s, sizeof *in);
  in[0] = in_floats(s, SMX_F32, SHAPE(3, 4));
  void *to = stage_out(s, sizeof(smx_shape));
  CALL(s, smx_infer, smx_op_find("softmax"), NULL, 1, in, 1, to);
}

/* ---- every operator ---- */

static smx_dtype port_type(const stage *s, const smx_port *port) {
  return port->flags & SMX_PORT_INT ? SMX_I64 : port->flags & SMX_PORT_MASK ? SMX_BOOL : s->t;
}

/* The dimensions of a port of a problem. */
static int port_shape(const problem *p, const smx_port *port, int64_t shape[2]) {
  const int64_t length = port_length(p, port);
  switch (port->shape) {
    case SMX_SHAPE_SCALAR: return 0;
    case SMX_SHAPE_OFFSETS: return shape[0] = p->segments + 1, 1;
    case SMX_SHAPE_COLUMN: return shape[0] = p->n, 1;
    case SMX_SHAPE_ROW: return shape[0] = p->rows, 1;
    default: return shape[0] = p->rows, shape[1] = length, 2;
  }
}

typedef struct ports {
  problem p;
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} ports;

/* Kept until another is asked for: proofs run a case many times. */
static const problem *problem_of(const stage *s) {
  static const kind kinds[] = {KIND_NORMAL, KIND_HOLES, KIND_WIDE, KIND_NORMAL, KIND_TIES};
  static problem p;
  static int variant;
  if (p.op != s->op || p.rows != s->rows || p.n != s->n || variant != s->variant) {
    problem_free(&p);
    problem_make(&p, s->op, s->rows, s->n, variant = s->variant, 7, kinds, 5);
  }
  return &p;
}

/* Inputs of a row operator; operators on matrices have a table of their own. False where the shape
 * cannot be. */
static bool open_ports(stage *s, ports *q) {
  int64_t shape[2];
  memset(q, 0, sizeof *q);
  if (!problem_possible(s->op, s->n)) return false;
  q->p = *problem_of(s);
  for (int i = 0; i < s->op->input_count; i++) {
    if (!q->p.in[i]) continue;
    const int ndim = port_shape(&q->p, s->op->inputs + i, shape);
    q->in[i] = in_values(s, port_type(s, s->op->inputs + i), ndim, shape, q->p.in[i]);
  }
  return true;
}
static void open_outputs(stage *s, ports *q) {
  int64_t shape[2];
  for (int i = 0; i < s->op->output_count; i++) {
    const int ndim = port_shape(&q->p, s->op->outputs + i, shape);
    q->out[i] = out_tensor(s, port_type(s, s->op->outputs + i), ndim, shape);
  }
}

static void forward(stage *s) {
  ports q;
  if (open_ports(s, &q)) {
    open_outputs(s, &q);
    CALL(s, smx_forward, s->op, s->ctx, &q.p.params, s->op->input_count, q.in, s->op->output_count, q.out);
  }
}

static void backward(stage *s) {
  ports q;
  int64_t shape[2];
  if (s->op->flags & SMX_OP_BACKWARD && open_ports(s, &q)) {
    open_outputs(s, &q);
    smx_forward(s->op, NULL, &q.p.params, s->op->input_count, q.in, s->op->output_count, q.out);
    for (int i = 0; i < s->op->output_count; i++) {
      const int ndim = port_shape(&q.p, s->op->outputs + i, shape);
      if (has_gradient(&q.p, i)) q.dout[i] = in_values(s, s->t, ndim, shape, q.p.dout[i]);
    }
    for (int i = 0; i < s->op->input_count; i++)
      if (grad_port(&q.p, i))
        q.din[i] = out_tensor(s, s->t, port_shape(&q.p, s->op->inputs + i, shape), shape);
    CALL(s, smx_backward, s->op, s->ctx, &q.p.params, s->op->input_count, q.in, s->op->output_count, q.out,
         q.dout, q.din);
  }
}

/* Operators on matrices through the verb: x, then what the table asks for. */
static void matrix_operators(stage *s, const char *name, int32_t n_in, const smx_tensor *const *in,
                             int32_t n_out, const smx_tensor *const *out) {
  CALL(s, smx_forward, smx_op_find(name), s->ctx, NULL, n_in, in, n_out, out);
}
static void op_sinkhorn(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(3, 4, 5))},
                   *out[] = {out_tensor(s, s->t, SHAPE(3, 4, 5))};
  matrix_operators(s, "sinkhorn", 1, in, 1, out);
}
static void op_orthostochastic(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(3, 5, 5))},
                   *out[] = {out_tensor(s, s->t, SHAPE(3, 5, 5))};
  matrix_operators(s, "orthostochastic", 1, in, 1, out);
}
static void op_objective(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(300, 5)), in_floats(s, s->t, SHAPE(300)),
                            in_floats(s, s->t, SHAPE(5)), in_floats(s, s->t, SHAPE(5))};
  const smx_tensor *out[] = {out_tensor(s, s->t, 0, NULL), out_tensor(s, s->t, SHAPE(5)),
                             out_tensor(s, s->t, SHAPE(5)), out_tensor(s, s->t, SHAPE(5)),
                             out_tensor(s, s->t, SHAPE(5))};
  matrix_operators(s, "logsumexp_objective", 4, in, 5, out);
}
static void op_regression(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(300, 5)), in_floats(s, s->t, SHAPE(300)),
                            in_floats(s, s->t, SHAPE(5)), in_floats(s, s->t, SHAPE(5))};
  const smx_tensor *out[] = {out_tensor(s, s->t, 0, NULL), out_tensor(s, s->t, SHAPE(5)),
                             out_tensor(s, s->t, SHAPE(5))};
  matrix_operators(s, "softmax_regression", 4, in, 3, out);
}
static void op_divergence(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(4, 5)), in_floats(s, s->t, SHAPE(4))};
  const smx_tensor *out[] = {out_tensor(s, s->t, 0, NULL), out_tensor(s, s->t, SHAPE(4, 5))};
  matrix_operators(s, "jensen_shannon_divergence", 2, in, 2, out);
}
static void op_centroid(stage *s) {
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(4, 5)), in_floats(s, s->t, SHAPE(4))},
                   *out[] = {out_tensor(s, s->t, SHAPE(5))};
  matrix_operators(s, "jensen_shannon_centroid", 2, in, 1, out);
}
static void votes_operator(stage *s, const char *name) {
  smx_params p;
  const smx_op *op = smx_op_find(name);
  const smx_tensor *in[] = {in_wholes(s, s->t, SHAPE(7, 4), 3)}, *out[] = {out_tensor(s, s->t, SHAPE(7, 3))};
  smx_params_init(op, &p);
  p.value[0] = 3; /* classes */
  CALL(s, smx_forward, op, s->ctx, &p, 1, in, 1, out);
}
static void op_dawid_skene(stage *s) { votes_operator(s, "dawid_skene"); }
static void op_agreement(stage *s) { votes_operator(s, "worker_agreement"); }
static void matrix_backward(stage *s, const char *name, double implicit) {
  const smx_op *op = smx_op_find(name);
  smx_params p;
  const smx_tensor *in[] = {in_floats(s, s->t, SHAPE(3, 5, 5))},
                   *out[] = {out_tensor(s, s->t, SHAPE(3, 5, 5))};
  const smx_tensor *dout[] = {in_floats(s, s->t, SHAPE(3, 5, 5))},
                   *din[] = {out_tensor(s, s->t, SHAPE(3, 5, 5))};
  smx_params_init(op, &p);
  if (implicit != 0) p.value[1] = implicit;
  smx_forward(op, NULL, &p, 1, in, 1, out);
  CALL(s, smx_backward, op, s->ctx, &p, 1, in, 1, out, dout, din);
}
static void op_sinkhorn_back(stage *s) { matrix_backward(s, "sinkhorn", 0); }
static void op_sinkhorn_limit(stage *s) { matrix_backward(s, "sinkhorn", 1); }
static void op_orthostochastic_back(stage *s) { matrix_backward(s, "orthostochastic", 0); }

/* ---- by name ---- */

enum { ROWS = 5, N = 19, LONG = 2500 };

/* Contiguous rows, in and out alike. */
#define BY_NAME(test, function, dtype, rows, n) \
  static void test(stage *s) { \
    void *given = in_floats(s, dtype, SHAPE(rows, n))->data; \
    void *to = stage_out(s, (rows) * (n)*dtype_size(dtype)); \
    CALL(s, function, rows, n, given, to); \
  }
BY_NAME(softmax_f32, smx_softmax_f32, SMX_F32, ROWS, N)
BY_NAME(softmax_f32_long, smx_softmax_f32, SMX_F32, 2, 100000)
BY_NAME(softmax_f64, smx_softmax_f64, SMX_F64, ROWS, N)
BY_NAME(softmax_f64_long, smx_softmax_f64, SMX_F64, 2, 100000)
BY_NAME(softmax_f16, smx_softmax_f16, SMX_F16, ROWS, N)
BY_NAME(softmax_bf16, smx_softmax_bf16, SMX_BF16, ROWS, N)
BY_NAME(softmax_bf16_long, smx_softmax_bf16, SMX_BF16, 3, 70000)
BY_NAME(log_softmax_f32, smx_log_softmax_f32, SMX_F32, ROWS, N)

/* Rows that are read as they lie, the last of them not ordinary. */
static void softmax_f16_long(stage *s) {
  uint16_t *x = in_floats(s, SMX_F16, SHAPE(ROWS, LONG))->data;
  x[(ROWS - 1) * LONG + 3] = 0x7e00;
  void *to = stage_out(s, ROWS * LONG * 2);
  CALL(s, smx_softmax_f16, ROWS, LONG, x, to);
}
static void logsumexp_f32(stage *s) {
  void *given = in_floats(s, SMX_F32, SHAPE(ROWS, N))->data;
  void *to = stage_out(s, ROWS * 4);
  CALL(s, smx_logsumexp_f32, ROWS, N, given, to);
}
static void softmax_backward_f32(stage *s) {
  const float *y = in_floats(s, SMX_F32, SHAPE(ROWS, N))->data,
              *dy = in_floats(s, SMX_F32, SHAPE(ROWS, N))->data;
  void *to = stage_out(s, ROWS * N * 4);
  CALL(s, smx_softmax_backward_f32, ROWS, N, y, dy, to);
}
static void strided_f32(stage *s) {
  const float *x = in_floats(s, SMX_F32, SHAPE(ROWS, N + 3))->data;
  void *to = stage_out(s, ROWS * (N + 1) * 4);
  CALL(s, smx_softmax_strided_f32, s->ctx, ROWS, N, x, N + 3, to, N + 1);
}
static void cross_entropy_f32(stage *s) {
  smx_cross_entropy_options *o = stage_in(s, sizeof *o);
  float *lse = stage_out(s, ROWS * 4), *loss = stage_out(s, ROWS * 4), *dx = stage_out(s, ROWS * N * 4),
        *sum = stage_out(s, 4);
  const float *x = in_floats(s, SMX_F32, SHAPE(ROWS, N))->data;
  const int64_t *target = in_wholes(s, SMX_I64, SHAPE(ROWS), N)->data;
  *o = (smx_cross_entropy_options){
      .size = sizeof *o, .reduction = SMX_REDUCE_MEAN, .label_smoothing = 0.1f, .softcap = 30, .lse = lse};
  o->z_weight = 1e-4f, o->temperature = 0.7f;
  CALL(s, smx_cross_entropy_f32, s->ctx, ROWS, N, x, target, o, loss, dx, sum);
}
static void cross_entropy_params(stage *s) {
  smx_cross_entropy_options *o = stage_in(s, sizeof *o);
  smx_params *to = stage_out(s, sizeof *to);
  *o = (smx_cross_entropy_options){.size = sizeof *o, .reduction = SMX_REDUCE_MEAN, .z_weight = 1e-4f};
  CALL(s, smx_cross_entropy_params, o, to);
}
static void softmax_tensor(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(s->rows, s->n));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(s->rows, s->n));
  CALL(s, smx_softmax, s->ctx, -1, x, to);
}
static void softmax_across(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(s->n, s->rows));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(s->n, s->rows));
  CALL(s, smx_softmax, s->ctx, 0, x, to);
}
/* An odd row among those that lie side by side: they go by tiles. */
static void softmax_across_odd(stage *s) {
  smx_tensor *x = in_floats(s, SMX_F32, SHAPE(50, 600));
  ((float *)x->data)[599] = __builtin_nanf("");
  smx_tensor *to = out_tensor(s, SMX_F32, SHAPE(50, 600));
  CALL(s, smx_softmax, s->ctx, 0, x, to);
}
static void softmax_odd_half(stage *s) {
  smx_tensor *x = in_floats(s, SMX_F16, SHAPE(40, 5000));
  for (int r = 0; r < 40; r += 3) ((uint16_t *)x->data)[r * 5000 + 4999] = 0x7e00;
  smx_tensor *to = out_tensor(s, SMX_F16, SHAPE(40, 5000));
  CALL(s, smx_softmax, s->ctx, -1, x, to);
}
static void log_softmax_tensor(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(s->rows, s->n));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(s->rows, s->n));
  CALL(s, smx_log_softmax, s->ctx, -1, x, to);
}
static void logsumexp_tensor(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(s->rows, s->n));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(s->rows));
  CALL(s, smx_logsumexp, s->ctx, -1, x, to);
}
static void softmax_backward_tensor(stage *s) {
  const smx_tensor *y = in_floats(s, s->t, SHAPE(s->rows, s->n)),
                   *dy = in_floats(s, s->t, SHAPE(s->rows, s->n));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(s->rows, s->n));
  CALL(s, smx_softmax_backward, s->ctx, -1, y, dy, to);
}

/* ---- matrices, distributions and votes ---- */

static void sinkhorn(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(3, 4, 5));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(3, 4, 5));
  CALL(s, smx_sinkhorn, s->ctx, 5, x, to);
}
static void sinkhorn_backward(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(3, 4, 5)), *dy = in_floats(s, s->t, SHAPE(3, 4, 5));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(3, 4, 5));
  CALL(s, smx_sinkhorn_backward, s->ctx, 5, x, dy, to);
}
static void sinkhorn_implicit(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(6, 4, 4)), *dy = in_floats(s, s->t, SHAPE(6, 4, 4));
  const smx_tensor *y = out_tensor(s, s->t, SHAPE(6, 4, 4));
  smx_sinkhorn(NULL, 50, x, y);
  smx_tensor *to = out_tensor(s, s->t, SHAPE(6, 4, 4));
  CALL(s, smx_sinkhorn_implicit, s->ctx, y, dy, to);
}
static void orthostochastic(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(6, 5, 5));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(6, 5, 5));
  CALL(s, smx_orthostochastic, s->ctx, x, to);
}
static void orthostochastic_backward(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(6, 5, 5)), *dy = in_floats(s, s->t, SHAPE(6, 5, 5));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(6, 5, 5));
  CALL(s, smx_orthostochastic_backward, s->ctx, x, dy, to);
}
static void logsumexp_objective(stage *s) {
  const smx_tensor *a = in_floats(s, s->t, SHAPE(600, 7)), *b = in_floats(s, s->t, SHAPE(600)),
                   *x = in_floats(s, s->t, SHAPE(7));
  const smx_tensor *v = in_floats(s, s->t, SHAPE(7)), *out[4];
  for (int i = 0; i < 4; i++) out[i] = out_tensor(s, s->t, SHAPE(7));
  void *to = stage_out(s, 8);
  CALL(s, smx_logsumexp_objective, s->ctx, 0.3, a, b, x, v, to, out[0], out[1], out[2], out[3]);
}
static void softmax_regression(stage *s) {
  const smx_tensor *a = in_floats(s, s->t, SHAPE(600, 7)), *b = in_floats(s, s->t, SHAPE(600)),
                   *x = in_floats(s, s->t, SHAPE(7));
  const smx_tensor *v = in_floats(s, s->t, SHAPE(7)), *out[2];
  for (int i = 0; i < 2; i++) out[i] = out_tensor(s, s->t, SHAPE(7));
  void *to = stage_out(s, 8);
  CALL(s, smx_softmax_regression, s->ctx, a, b, x, v, to, out[0], out[1]);
}
static void jensen_shannon(stage *s) {
  const smx_tensor *mix = in_floats(s, s->t, SHAPE(4)), *x = in_floats(s, s->t, SHAPE(5, 4, 6)),
                   *loss = out_tensor(s, s->t, SHAPE(5));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(5, 4, 6));
  CALL(s, smx_jensen_shannon, s->ctx, mix, x, loss, to);
}
static void js_centroid(stage *s) {
  const smx_tensor *mix = in_floats(s, s->t, SHAPE(4)), *x = in_floats(s, s->t, SHAPE(3, 4, 6));
  smx_tensor *to = out_tensor(s, s->t, SHAPE(3, 6));
  CALL(s, smx_js_centroid, s->ctx, mix, x, to);
}
static void dawid_skene(stage *s) {
  enum { VOTES = 60, ITEMS = 12, WORKERS = 6, CLASSES = 3 };
  smx_vote *v = stage_in(s, VOTES * sizeof *v);
  double *posterior = stage_out(s, ITEMS * CLASSES * 8), *prior = stage_out(s, CLASSES * 8);
  double *errors = stage_out(s, WORKERS * CLASSES * CLASSES * 8);
  for (int i = 0; i < VOTES; i++)
    v[i] = (smx_vote){i % ITEMS, rng_below(&s->r, WORKERS), rng_below(&s->r, CLASSES)};
  void *to = stage_out(s, 8);
  CALL(s, smx_dawid_skene, s->ctx, NULL, VOTES, v, ITEMS, WORKERS, CLASSES, posterior, prior, errors, to);
}

/* ---- sampling and decoding ---- */

/* Every step there is. */
static smx_sample_options *sampling(stage *s, size_t rows) {
  static const int64_t text[] = {1, 2, 3, 1, 2};
  static const double values[] = {0.5, -1, 2, 0.25, 1};
  static const smx_step steps[] = {
      {.kind = SMX_STEP_BIAS, .tokens = text, .values = values, .token_count = 5},
      {.kind = SMX_STEP_REPETITION, .a = 1.1, .tokens = text, .token_count = 5},
      {.kind = SMX_STEP_FREQUENCY, .a = 0.3, .b = 0.1, .tokens = text, .token_count = 5},
      {.kind = SMX_STEP_DRY, .a = 0.8, .b = 1.75, .c = 2, .tokens = text, .token_count = 5},
      {.kind = SMX_STEP_NO_REPEAT, .a = 3, .tokens = text, .token_count = 5},
      {.kind = SMX_STEP_BAN, .tokens = text, .token_count = 1},
      {.kind = SMX_STEP_TEMPERATURE, .a = 0.7},
      {.kind = SMX_STEP_DYNAMIC_TEMPERATURE, .a = 1, .b = 0.3, .c = 1.1},
      {.kind = SMX_STEP_QUADRATIC, .a = 0.1, .b = 1.5},
      {.kind = SMX_STEP_TOP_K, .a = 300},
      {.kind = SMX_STEP_TYPICAL, .a = 0.99},
      {.kind = SMX_STEP_TAIL_FREE, .a = 0.99},
      {.kind = SMX_STEP_TOP_P, .a = 0.98},
      {.kind = SMX_STEP_MIN_P, .a = 0.001},
      {.kind = SMX_STEP_EPSILON, .a = 1e-5},
      {.kind = SMX_STEP_ETA, .a = 1e-5},
      {.kind = SMX_STEP_TOP_N_SIGMA, .a = 5},
      {.kind = SMX_STEP_TOP_H, .a = 0.99},
      {.kind = SMX_STEP_SURPRISE, .a = 20},
      {.kind = SMX_STEP_XTC, .a = 0.5, .b = 0.2},
  };
  smx_sample_options *o = stage_in(s, sizeof *o);
  *o = (smx_sample_options){
      .size = sizeof *o, .steps = steps, .step_count = COUNT_OF(steps), .draw = SMX_DRAW_CDF, .seed = 3};
  o->status = stage_out(s, rows * sizeof *o->status);
  return o;
}
static void sample_f32(stage *s) {
  smx_sample_options *o = sampling(s, 30);
  const float *x = in_floats(s, SMX_F32, SHAPE(30, 500))->data;
  void *to = stage_out(s, 30 * 8);
  void *to1 = stage_out(s, 30 * 4);
  CALL(s, smx_sample_f32, s->ctx, o, 30, 500, x, to, to1);
}
static void sample_f64(stage *s) {
  smx_sample_options *o = sampling(s, 30);
  const double *x = in_floats(s, SMX_F64, SHAPE(30, 500))->data;
  void *to = stage_out(s, 30 * 8);
  void *to1 = stage_out(s, 30 * 8);
  CALL(s, smx_sample_f64, s->ctx, o, 30, 500, x, to, to1);
}
static void sample_gumbel(stage *s) {
  smx_sample_options *o = stage_in(s, sizeof *o);
  const float *x = in_floats(s, SMX_F32, SHAPE(9, 20000))->data;
  *o = (smx_sample_options){.size = sizeof *o, .seed = 3};
  void *to = stage_out(s, 9 * 8);
  void *to1 = stage_out(s, 9 * 4);
  CALL(s, smx_sample_f32, s->ctx, o, 9, 20000, x, to, to1);
}
static void sample_mirostat(stage *s) {
  static const smx_step step = {.kind = SMX_STEP_MIROSTAT, .a = 5};
  smx_sample_options *o = stage_in(s, sizeof *o);
  const float *x = in_floats(s, SMX_F32, SHAPE(9, 2000))->data;
  *o = (smx_sample_options){.size = sizeof *o, .seed = 3, .steps = &step, .step_count = 1};
  void *to = stage_out(s, 9 * 8);
  void *to1 = stage_out(s, 9 * 4);
  CALL(s, smx_sample_f32, s->ctx, o, 9, 2000, x, to, to1);
}
static void beam_step(stage *s) {
  static const double score[] = {-1, -2, -1.5};
  static const smx_beam_options o = {sizeof o, 2, 1.3};
  const float *x = in_floats(s, SMX_F32, SHAPE(3, 11))->data;
  smx_beam *next = stage_out(s, 3 * sizeof *next);
  void *to = stage_out(s, 3 * sizeof *next);
  CALL(s, smx_beam_step_f32, s->ctx, &o, 3, 11, score, x, next, to);
}
static void mix_embeddings(stage *s) {
  const int64_t *index = in_wholes(s, SMX_I64, SHAPE(6, 4), 9)->data;
  const float *weight = in_floats(s, SMX_F32, SHAPE(6, 4))->data;
  const void *table = in_floats(s, SMX_BF16, SHAPE(9, 300))->data;
  void *to = stage_out(s, 6 * 300 * 4);
  CALL(s, smx_mix_embeddings_f32, s->ctx, 6, 4, index, weight, 9, 300, SMX_BF16, table, to);
}
static void mix_embeddings_backward(stage *s) {
  const int64_t *index = in_wholes(s, SMX_I64, SHAPE(6, 4), 9)->data;
  const float *dout = in_floats(s, SMX_F32, SHAPE(6, 300))->data;
  const void *table = in_floats(s, SMX_F16, SHAPE(9, 300))->data;
  void *to = stage_out(s, 6 * 4 * 4);
  CALL(s, smx_mix_embeddings_backward_f32, s->ctx, 6, 4, index, 9, 300, SMX_F16, table, dout, to);
}
static void cad_plan(stage *s) {
  static const double confidence[] = {0.3, 0.45, 0.61, 0.37};
  void *to = stage_out(s, sizeof(smx_cad));
  CALL(s, smx_cad_plan, NULL, 4, confidence, 0.35, 0.61, 300, to);
}

const every_case every_calls[] = {
    {"version", versions, CASE_ONCE},
    {"isa_name", isa_name, CASE_ONCE},
    {"strerror", strerror_, CASE_ONCE},
    {"last_error", last_error, CASE_ONCE},
    {"set_error", set_error, CASE_ONCE},
    {"op_count", op_count, CASE_ONCE},
    {"op_at", op_at, CASE_ONCE},
    {"op_find", op_find, CASE_ONCE},
    {"attention_kind_count", kind_count, CASE_ONCE},
    {"attention_kind_at", kind_at, CASE_ONCE},
    {"attention_kind_find", kind_find, CASE_ONCE},
    {"step_count", step_count, CASE_ONCE},
    {"step_at", step_at, CASE_ONCE},
    {"step_find", step_find, CASE_ONCE},
    {"sample_scratch", sample_scratch, CASE_ONCE},
    {"context_threads", context_threads, CASE_ONCE},
    {"context_create", context_create, CASE_ONCE},
    {"context_destroy", context_destroy, CASE_ONCE},
    {"params_init", params_init, CASE_ONCE},
    {"params_set", params_set, CASE_ONCE},
    {"params_parse", params_parse, CASE_ONCE},
    {"infer", infer, CASE_ONCE},
    {"forward", forward, CASE_OPERATOR},
    {"backward", backward, CASE_OPERATOR},
    {"sinkhorn, by the verb", op_sinkhorn, CASE_FLOATS},
    {"orthostochastic, by the verb", op_orthostochastic, CASE_FLOATS},
    {"logsumexp_objective, by the verb", op_objective, CASE_FLOATS},
    {"softmax_regression, by the verb", op_regression, CASE_FLOATS},
    {"jensen_shannon_divergence, by the verb", op_divergence, CASE_FLOATS},
    {"jensen_shannon_centroid, by the verb", op_centroid, CASE_FLOATS},
    {"dawid_skene, by the verb", op_dawid_skene, CASE_FLOATS},
    {"worker_agreement, by the verb", op_agreement, CASE_FLOATS},
    {"gradient of sinkhorn, by the verb", op_sinkhorn_back, CASE_FLOATS},
    {"gradient of its limit, by the verb", op_sinkhorn_limit, CASE_FLOATS},
    {"gradient of orthostochastic, by the verb", op_orthostochastic_back, CASE_FLOATS},
    {"softmax_f32", softmax_f32, CASE_ONCE},
    {"softmax_f32, long rows", softmax_f32_long, CASE_ONCE},
    {"softmax_f64", softmax_f64, CASE_ONCE},
    {"softmax_f64, long rows", softmax_f64_long, CASE_ONCE},
    {"softmax_f16", softmax_f16, CASE_ONCE},
    {"softmax_f16, an odd row", softmax_f16_long, CASE_ONCE},
    {"softmax_bf16", softmax_bf16, CASE_ONCE},
    {"softmax_bf16, long rows", softmax_bf16_long, CASE_ONCE},
    {"log_softmax_f32", log_softmax_f32, CASE_ONCE},
    {"logsumexp_f32", logsumexp_f32, CASE_ONCE},
    {"softmax_backward_f32", softmax_backward_f32, CASE_ONCE},
    {"softmax_strided_f32", strided_f32, CASE_ONCE},
    {"cross_entropy_f32", cross_entropy_f32, CASE_ONCE},
    {"cross_entropy_params", cross_entropy_params, CASE_ONCE},
    {"softmax", softmax_tensor, CASE_ROWS},
    {"softmax of columns", softmax_across, CASE_ROWS},
    {"softmax of columns, an odd one", softmax_across_odd, CASE_ONCE},
    {"softmax, odd rows of f16", softmax_odd_half, CASE_ONCE},
    {"log_softmax", log_softmax_tensor, CASE_ROWS},
    {"logsumexp", logsumexp_tensor, CASE_ROWS},
    {"softmax_backward", softmax_backward_tensor, CASE_ROWS},
    {"sinkhorn", sinkhorn, CASE_FLOATS},
    {"sinkhorn_backward", sinkhorn_backward, CASE_FLOATS},
    {"sinkhorn_implicit", sinkhorn_implicit, CASE_FLOATS},
    {"orthostochastic", orthostochastic, CASE_FLOATS},
    {"orthostochastic_backward", orthostochastic_backward, CASE_FLOATS},
    {"logsumexp_objective", logsumexp_objective, CASE_FLOATS},
    {"softmax_regression", softmax_regression, CASE_FLOATS},
    {"jensen_shannon", jensen_shannon, CASE_FLOATS},
    {"js_centroid", js_centroid, CASE_FLOATS},
    {"dawid_skene", dawid_skene, CASE_ONCE},
    {"sample_f32", sample_f32, CASE_ONCE},
    {"sample_f64", sample_f64, CASE_ONCE},
    {"sample_f32, by noise", sample_gumbel, CASE_ONCE},
    {"sample_f32, mirostat", sample_mirostat, CASE_ONCE},
    {"beam_step_f32", beam_step, CASE_ONCE},
    {"mix_embeddings_f32", mix_embeddings, CASE_ONCE},
    {"mix_embeddings_backward_f32", mix_embeddings_backward, CASE_ONCE},
    {"cad_plan", cad_plan, CASE_ONCE},
};
const size_t every_calls_count = COUNT_OF(every_calls);
