/* new_kind/use.c - a program against the library with one more kind of weights (stable.patch): the
 * kind is found by its name, has its defaults, and gives what its reference gives; its gradient is
 * that of differences. */
#include <math.h>
#include <stdio.h>

#include "attention/ref.h"

enum { ROWS = 2, KEYS = 70, WIDTH = 3 };

static int differ(double got, double want) { return !(fabs(got - want) <= 1e-14 * (1 + fabs(want))); }

/* of the sum of o with respect to q[1] */
static double gradient(const smx_attention_options *options, const smx_tensor *q, const smx_tensor *k,
                       const smx_tensor *v, const smx_tensor *o, const smx_tensor *lse) {
  double ones[ROWS * WIDTH], dq[ROWS * WIDTH];
  smx_tensor d_o = *q, out = *q;
  d_o.data = ones, out.data = dq;
  for (int i = 0; i < ROWS * WIDTH; i++) ones[i] = 1;
  if (!smx_attention_backward(NULL, options, q, k, v, o, lse, &d_o, NULL, &out, NULL, NULL)) return dq[1];
  printf("%s\n", smx_last_error());
  return NAN;
}

int main(void) {
  double q[ROWS * WIDTH], k[KEYS * WIDTH], v[KEYS * WIDTH], o[ROWS * WIDTH], lse[ROWS];
  double want[ROWS * WIDTH], want_lse[ROWS], size[ROWS * WIDTH];
  int64_t rows[] = {1, 1, ROWS, WIDTH}, keys[] = {1, 1, KEYS, WIDTH};
  smx_tensor tq = {.data = q, .ndim = 4, .dtype = SMX_F64, .shape = rows}, to = tq, tl = tq, tk = tq, tv = tq;
  smx_attention_options options;
  to.data = o, tl.data = lse, tl.ndim = 3, tk.data = k, tv.data = v, tk.shape = tv.shape = keys;
  for (int i = 0; i < ROWS * WIDTH; i++) q[i] = 2 * sin(1 + 3 * i);
  for (int i = 0; i < KEYS * WIDTH; i++) k[i] = cos(2 * i), v[i] = sin(i);
  const smx_attention_kind *kind = smx_attention_kind_find("stable");
  smx_attention_init(&options);
  if (!kind || smx_attention_set_weights(&options, (smx_attention_weights)kind->id) ||
      smx_attention(NULL, &options, &tq, &tk, &tv, &to, &tl)) {
    printf("%s\n", kind ? smx_last_error() : "there is no such kind");
    return 1;
  }
  const attention_ref ref = {.lq = ROWS,
                             .lk = KEYS,
                             .d = WIDTH,
                             .e = WIDTH,
                             .q = q,
                             .k = k,
                             .v = v,
                             .scale = 1 / sqrt(WIDTH),
                             .sink = -INFINITY,
                             .offset = KEYS - ROWS,
                             .left = -1,
                             .right = -1,
                             .weights = options.weights,
                             .param = options.param,
                             .o = want,
                             .lse = want_lse,
                             .size = size};
  attention_ref_run(&ref);
  int wrong = 0;
  for (int i = 0; i < ROWS * WIDTH; i++) wrong += differ(o[i], want[i]);
  for (int i = 0; i < ROWS; i++) wrong += differ(lse[i], want_lse[i]);
  const double dq = gradient(&options, &tq, &tk, &tv, &to, &tl), step = 0x1p-16;
  double difference = 0;
  for (int side = -1; side <= 1; side += 2) {
    q[1] += side * step;
    attention_ref_run(&ref);
    for (int i = 0; i < ROWS * WIDTH; i++) difference += side * want[i] / (2 * step);
    q[1] -= side * step;
  }
  wrong += !(fabs(dq - difference) <= 1e-8);
  printf("dq[1] = %.10g, differences say %.10g\n", dq, difference);
  printf("%s: o[0] = %.15g; %d wrong\n", kind->name, o[0], wrong);
  return wrong != 0;
}
