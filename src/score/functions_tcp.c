/* score/functions_tcp.c - tcp_loss: a confidence, as a logit, that is to learn the probability of
 * the true class. s = sigmoid(confidence), t = softmax(logits)_target, w the weight of wrong rows:
 * w (s - t)^2, or w |s - t|^gamma (softplus(confidence) - t confidence). */
#include "cpu/cpu.h"
#include "functions.h"

enum { CONFIDENCE, LOGITS, TARGET }; /* inputs */
enum { LOSS, TRUE };                 /* outputs */
enum { ROWS = 64 };

typedef struct tcp_call {
  const tensor_call *c;
  const score_kernels *math;
  smx_scratch scratch;
  int64_t rows, classes;
  double weight, gamma;
  bool focal, gradient;
} tcp_call;

static double power(const tcp_call *x, double a, double order) {
  if (order == 0) return 1;
  return a < 0x1p-1000 ? 0 : x->math->exp(order * x->math->log(a));
}

/* The probability of the target, or NaN; *right: it is the prediction. */
static double true_chance(const tcp_call *x, int64_t row, int64_t target, double *z, bool *right) {
  const score_row one = {.temperature = 1, .sums = SCORE_PLACES};
  score_sums s;
  tensor_load(x->c, x->c->in.view + LOGITS, row * x->classes, x->classes, z);
  x->math->sums(&one, z, x->classes, NULL, &s);
  *right = s.index == target;
  return s.nan || s.valid == 0 ? __builtin_nan("") : x->math->exp(z[target] - s.max - s.log_sum);
}

/* softplus(c) - t c; where c is infinite its limit. */
static double entropy_of(double c, double t, double plus, double gap) {
  return __builtin_isinf(c) ? (gap == 0 ? 0 : __builtin_inf()) : plus - t * c;
}

/* The loss, or its derivative by c. */
static double loss_of(const tcp_call *x, double c, double t) {
  const double plus = x->math->softplus(c), s = c == __builtin_inf() ? 1 : x->math->exp(c - plus),
               other = x->math->exp(-plus), gap = s - t, a = __builtin_fabs(gap),
               entropy = entropy_of(c, t, plus, gap);
  if (!x->focal) return x->gradient ? 2 * gap * s * other : gap * gap;
  if (!x->gradient) return power(x, a, x->gamma) * entropy;
  const double slope = x->gamma > 0 ? x->gamma * power(x, a, x->gamma - 1) * s * other : 0;
  return power(x, a, x->gamma) * gap + (slope == 0 ? 0 : (gap < 0 ? -slope : slope) * entropy);
}

static void task(void *arg, int64_t number) {
  tcp_call *x = arg;
  double *z = smx_scratch_take(&x->scratch);
  const int64_t end = (number + 1) * ROWS < x->rows ? (number + 1) * ROWS : x->rows;
  for (int64_t i = number * ROWS; i < end; i++) {
    const int64_t target = ((const int64_t *)(const void *)x->c->in.view[TARGET].data)[i];
    double c, loss = 0, t = __builtin_nan("");
    bool right = true;
    tensor_load(x->c, x->c->in.view + CONFIDENCE, i, 1, &c);
    if (target >= 0) t = true_chance(x, i, target, z, &right), loss = loss_of(x, c, t);
    loss *= right ? 1 : x->weight;
    if (x->gradient) loss *= tensor_upstream(x->c, LOSS, i), tensor_store(x->c, x->c->din.view, i, 1, &loss);
    else tensor_put(x->c, LOSS, i, loss), tensor_put(x->c, TRUE, i, t);
  }
  smx_scratch_give(&x->scratch, z);
}

static smx_status run(const tensor_call *c, bool gradient) {
  tcp_call x = {
      .c = c, .math = smx_isa_current()->f64.score, .rows = c->dims.lead_count, .gradient = gradient};
  const int64_t tasks = (x.rows + ROWS - 1) / ROWS;
  x.classes = tensor_dim(c, "c"), x.weight = tensor_param(c, "weight"), x.gamma = tensor_param(c, "gamma");
  x.focal = tensor_param(c, "form") != 0;
  if (!smx_scratch_open(&x.scratch, c->ctx, 0, (size_t)(x.classes + 1) * 8, tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)x.classes);
  smx_parallel(c->ctx, tasks, task, &x);
  smx_scratch_close(&x.scratch);
  return SMX_OK;
}
smx_status score_tcp(const tensor_call *c) { return run(c, false); }
smx_status score_tcp_backward(const tensor_call *c) { return c->din.given[0] ? run(c, true) : SMX_OK; }
