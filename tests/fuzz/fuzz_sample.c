/* fuzz_sample.c - any bytes as rows of logits and a chain of steps: a draw, of the chain or of an
 * operator, is an element of the row that has a probability, or -1 with a status that says why;
 * draws without replacement differ; what is wrong is refused. */
#include "bytes.h"
#include "fuzz.h"

#include <math.h>

enum { STEPS = 6, TOKENS = 8, LENGTH = 3000 };

/* A number: a bit pattern, or one of ordinary size. */
static float number(bytes *b) {
  const uint64_t how = take(b, 1);
  float v = (float)((int32_t)take(b, 2) - 32768) / 1024;
  if (how == 255) {
    const uint32_t bits = (uint32_t)take(b, 4);
    memcpy(&v, &bits, sizeof v);
  }
  return v;
}

static bool listed(const smx_step *s, int64_t index) {
  for (size_t t = 0; t < s->token_count; t++)
    if (s->tokens[t] == index) return true;
  return false;
}

/* The operators that draw elements, on one row. */
enum { DRAWS = 4 };
static void operators(float *x, size_t n, int64_t stream) {
  static const struct {
    const char *name, *set;
    double value;
    int64_t k; /* draws */
  } ways[] = {{"categorical_sample", "method", 0, 0},
              {"categorical_sample", "method", 1, 0},
              {"multi_token_sample", "k", DRAWS, DRAWS},
              {"gumbel_topk", "k", 1, 1},
              {"gumbel_topk", "k", DRAWS, DRAWS}};
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
    const smx_op *op = smx_op_find(ways[w].name);
    int64_t full[] = {(int64_t)n}, many[] = {ways[w].k}, index[DRAWS];
    float value[DRAWS];
    const int32_t dims = ways[w].k > 0;
    smx_tensor tx = {.data = x, .ndim = 1, .dtype = SMX_F32, .shape = full},
               ts = {.data = &stream, .dtype = SMX_I64};
    smx_tensor ti = {.data = index, .ndim = dims, .dtype = SMX_I64, .shape = many};
    smx_tensor tv = {.data = value, .ndim = dims, .dtype = SMX_F32, .shape = many};
    const smx_tensor *in[] = {&tx, &ts}, *out[] = {&ti, &tv};
    smx_params params;
    smx_params_init(op, &params);
    smx_params_set(op, &params, ways[w].set, ways[w].value);
    if (smx_forward(op, NULL, &params, 2, in, 2, out) != SMX_OK) continue; /* k > n */
    for (int64_t j = 0; j < (dims ? ways[w].k : 1); j++) {
      if (index[j] < -1 || index[j] >= (int64_t)n) abort();
      if (index[j] >= 0 && !(x[index[j]] > -INFINITY && x[index[j]] < INFINITY && value[j] > -INFINITY))
        abort();
      for (int64_t i = 0; i < j && index[j] >= 0; i++)
        if (!strcmp(ways[w].name, "gumbel_topk") && index[i] == index[j]) abort();
    }
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static float x[LENGTH];
  bytes b = {data, size};
  smx_step steps[STEPS];
  int64_t tokens[STEPS][TOKENS], index;
  double values[STEPS][TOKENS];
  float log_p = 1;
  smx_row_status status = SMX_ROW_OK;
  const size_t n = take(&b, 1) % 8 == 0 ? take(&b, 2) % LENGTH : take(&b, 1) % 64,
               count = take(&b, 1) % STEPS;
  for (size_t s = 0; s < count; s++) {
    steps[s] = (smx_step){.kind = (smx_step_kind)(take(&b, 1) % (SMX_STEP_KINDS + 1)),
                          .tokens = tokens[s],
                          .values = values[s]};
    steps[s].a = (double)number(&b), steps[s].b = (double)number(&b), steps[s].c = (double)(take(&b, 1) % 4);
    if (take(&b, 1) % 2) steps[s].a = floor(fabs(steps[s].a)), steps[s].b = floor(fabs(steps[s].b));
    steps[s].token_count = take(&b, 1) % (TOKENS + 1);
    for (size_t t = 0; t < steps[s].token_count; t++) {
      const uint64_t token = take(&b, 1);
      tokens[s][t] = n && token < 250 ? (int64_t)(token % n) : (int64_t)token - 251,
      values[s][t] = (double)number(&b);
    }
  }
  smx_sample_options o = {.size = sizeof o, .steps = steps, .step_count = count, .status = &status};
  o.draw = (smx_draw)(take(&b, 1) % 3), o.seed = take(&b, 4), o.stream = take(&b, 4);
  float first = number(&b);
  for (size_t i = 0; i < n; i++) x[i] = b.size ? number(&b) : first - (float)(i % 7);
  operators(x, n, (int64_t)o.stream);
  if (smx_sample_f32(NULL, &o, 1, n, x, &index, &log_p) != SMX_OK) return 0;
  if (index < -1 || index >= (int64_t)n || (index >= 0) != (status == SMX_ROW_OK)) abort();
  if (index >= 0 && !(x[index] > -INFINITY && x[index] < INFINITY)) abort();
  if (index >= 0 && !(log_p <= 0 && log_p > -INFINITY)) abort();
  for (size_t s = 0; s < count && index >= 0; s++) {
    if (steps[s].kind == SMX_STEP_BAN && listed(steps + s, index)) abort();
    if (steps[s].kind == SMX_STEP_ALLOW && !listed(steps + s, index)) abort();
  }
  return 0;
}
