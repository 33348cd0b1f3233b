/* fuzz_sample.c - any bytes as rows of logits and a chain of steps: a draw is an element of the row that has a probability, or -1 with a status that says
 * why; what is wrong is refused. */
#include "fuzz.h"

#include <math.h>

enum { STEPS = 6, TOKENS = 8, LENGTH = 3000 };

typedef struct bytes {
  const uint8_t *data;
  size_t size;
} bytes;

static uint32_t take(bytes *b, size_t count) {
  uint32_t v = 0;
  for (; count && b->size; count--, b->size--) v = v << 8 | *b->data++;
  return v;
}

/* A number: a bit pattern, or one of ordinary size. */
static float number(bytes *b) {
  const uint32_t how = take(b, 1);
  float v = (float)(int32_t)(take(b, 2) - 32768) / 1024;
  if (how == 255) {
    const uint32_t bits = take(b, 4);
    memcpy(&v, &bits, sizeof v);
  }
  return v;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static float x[LENGTH];
  bytes b = {data, size};
  smx_step steps[STEPS];
  int64_t tokens[STEPS][TOKENS], index;
  double values[STEPS][TOKENS];
  float log_p = 1;
  smx_row_status status = SMX_ROW_OK;
  const size_t n = take(&b, 1) % 8 == 0 ? take(&b, 2) % LENGTH : take(&b, 1) % 64, count = take(&b, 1) % STEPS;
  for (size_t s = 0; s < count; s++) {
    steps[s] = (smx_step){.kind = (smx_step_kind)(take(&b, 1) % (SMX_STEP_DRY + 2)), .tokens = tokens[s], .values = values[s]};
    steps[s].a = (double)number(&b), steps[s].b = (double)number(&b), steps[s].c = (double)(take(&b, 1) % 4);
    if (take(&b, 1) % 2) steps[s].a = floor(fabs(steps[s].a)), steps[s].b = floor(fabs(steps[s].b));
    steps[s].token_count = take(&b, 1) % (TOKENS + 1);
    for (size_t t = 0; t < steps[s].token_count; t++) {
      const uint32_t token = take(&b, 1);
      tokens[s][t] = n && token < 250 ? (int64_t)(token % n) : (int64_t)token - 251, values[s][t] = (double)number(&b);
    }
  }
  smx_sample_options o = {.size = sizeof o, .steps = steps, .step_count = count, .status = &status};
  o.draw = (smx_draw)(take(&b, 1) % 3), o.seed = take(&b, 4), o.stream = take(&b, 4);
  float first = number(&b);
  for (size_t i = 0; i < n; i++) x[i] = b.size ? number(&b) : first - (float)(i % 7);
  if (smx_sample_f32(NULL, &o, 1, n, x, &index, &log_p) != SMX_OK) return 0;
  if (index < -1 || index >= (int64_t)n || (index >= 0) != (status == SMX_ROW_OK)) abort();
  if (index >= 0 && !(x[index] > -INFINITY && x[index] < INFINITY)) abort();
  if (index >= 0 && !(log_p <= 0 && log_p > -INFINITY)) abort();
  for (size_t s = 0; s < count && index >= 0; s++)
    for (size_t t = 0; steps[s].kind == SMX_STEP_BAN && t < steps[s].token_count; t++)
      if (tokens[s][t] == index) abort();
  return 0;
}
