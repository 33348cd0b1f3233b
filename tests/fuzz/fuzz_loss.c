/* fuzz_loss.c - any bytes as a call of a loss: of its operator with wider rows than fuzz_operator
 * has, or of smx_cross_entropy_f32. */
#include "operators.h"

#include <string.h>

static const smx_op *loss(bytes *b) {
  size_t count = 0, which;
  for (size_t i = 0; i < smx_op_count(); i++) count += !strcmp(smx_op_at(i)->family, "loss");
  which = (size_t)pick(b, (int64_t)count);
  for (size_t i = 0;; i++)
    if (!strcmp(smx_op_at(i)->family, "loss") && which-- == 0) return smx_op_at(i);
}

/* Now and then NULL. */
static void *array(call *c, smx_dtype t, int64_t n, bool output, values v, int64_t below) {
  void *p = call_array(c, t, n, output, v, below);
  return rarely(&c->b, 64) ? NULL : p;
}
static float *numbers(call *c, int64_t n, bool output) {
  return array(c, SMX_F32, n, output, VALUES_SCORES, 0);
}

static void cross_entropy(call *c) {
  bytes *b = &c->b;
  const int64_t rows = pick(b, 9), n = rarely(b, 4) ? pick(b, 6000) : pick(b, 70);
  smx_cross_entropy_options o = {.size = sizeof o, .reduction = (smx_reduction)pick(b, 5)};
  if (rarely(b, 4)) o.ignore_index = call_whole(c);
  if (rarely(b, 4)) o.label_smoothing = (float)call_number(c);
  if (rarely(b, 4)) o.z_weight = (float)call_number(c);
  if (rarely(b, 4)) o.softcap = (float)call_number(c);
  if (rarely(b, 4)) o.temperature = (float)call_number(c);
  if (rarely(b, 64)) o.size = (size_t)call_whole(c);
  const bool in_place = rarely(b, 4);
  float *x = numbers(c, rows * n, in_place), *dx = in_place       ? x
                                                   : rarely(b, 2) ? numbers(c, rows * n, true)
                                                                  : NULL;
  const int64_t *target = array(c, SMX_I64, rows, false, VALUES_BELOW, n);
  if (rarely(b, 2)) o.ignore_index = -1;
  if (rarely(b, 3)) o.class_weight = numbers(c, n, false);
  if (rarely(b, 3)) o.lse = numbers(c, rows, true);
  float *each = numbers(c, rows, true), *reduced = rarely(b, 2) ? numbers(c, 1, true) : NULL;
  const uint64_t huge = rarely(b, 64) ? take(b, 8) | (uint64_t)1 << 62 : 0; /* rows * n overflows then */
  call_ready(c);
  const smx_status status =
      smx_cross_entropy_f32(c->ctx, n > 1 && huge ? (size_t)huge : (size_t)rows, (size_t)n, x, target,
                            rarely(b, 8) ? NULL : &o, each, dx, reduced);
  call_check(c, status);
  call_close(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static call c;
  call_open(&c, data, size);
  if (rarely(&c.b, 4)) cross_entropy(&c);
  else fuzz_operator(&c, loss(&c.b), 9000);
  return 0;
}
