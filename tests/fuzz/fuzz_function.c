/* fuzz_function.c - any bytes as a call of a function that is no operator and whose tensors do not
 * follow from those of attention: rows by pointers, tensors by name, draws, rotary positions, what
 * caches keep, states, votes, beams, mixtures, objectives, settings by name. */
#include "call.h"

#include <string.h>

static smx_tensor *floats_of(call *c, int32_t ndim, const int64_t *shape, bool output) {
  const smx_dtype t = call_float(c);
  return output ? call_output(c, t, ndim, shape) : call_input(c, t, ndim, shape, VALUES_SCORES, 0);
}
static bool half(call *c) { return rarely(&c->b, 2); }
static const smx_tensor *maybe(call *c, const smx_tensor *t) { return rarely(&c->b, 3) ? NULL : t; }

/* n elements that are there, or NULL. */
static void *array(call *c, smx_dtype t, int64_t n, bool output) {
  void *p = call_array(c, t, n, output, t.code ? VALUES_SCORES : VALUES_BELOW, 6);
  return (n == 0 && half(c)) || rarely(&c->b, 64) ? NULL : p;
}

/* A size of which there are so many elements that nothing has to be done for each of them. */
static size_t many(call *c, size_t n, bool empty) {
  return empty && rarely(&c->b, 4) ? (size_t)1 << (40 + pick(&c->b, 24)) : n;
}

/* Sizes that no other tensor repeats do not grow: there is no memory for more. */
static void spoil(call *c, const smx_tensor **given, int count) {
  for (int i = 0; i < c->count; i++) c->t[i].exact = false;
  call_spoil(c, given, count);
}

/* ---- rows by pointers ---- */

static smx_status rows(call *c) {
  bytes *b = &c->b;
  const int which = (int)pick(b, 8);
  const smx_dtype t = which == 1 ? SMX_F64 : which == 2 ? SMX_F16 : which == 3 ? SMX_BF16 : SMX_F32;
  const int64_t n = rarely(b, 4) ? pick(b, 5000) : pick(b, 80), r = pick(b, 7);
  const int64_t gap = which == 7 && r > 1 ? pick(b, 5) : 0, all = r ? r * (n + gap) - gap : 0;
  const bool in_place = half(c);
  void *x = array(c, t, all, in_place), *y = in_place ? x : array(c, t, which == 5 ? r : all, true);
  const float *dy = which == 6 ? array(c, t, all, false) : NULL;
  const size_t count = many(c, (size_t)r, n == 0 && which != 5), length = many(c, (size_t)n, r == 0);
  if (in_place && which == 5) return SMX_OK;
  call_ready(c);
  switch (which) {
    case 0: return smx_softmax_f32(count, length, x, y);
    case 1: return smx_softmax_f64(count, length, x, y);
    case 2: return smx_softmax_f16(count, length, x, y);
    case 3: return smx_softmax_bf16(count, length, x, y);
    case 4: return smx_log_softmax_f32(count, length, x, y);
    case 5: return smx_logsumexp_f32(count, length, x, y);
    case 6: return smx_softmax_backward_f32(count, length, x, dy, y);
    default: return smx_softmax_strided_f32(c->ctx, count, length, x, n + gap, y, n + gap);
  }
}

/* ---- tensors by name ---- */

static smx_status matrices(call *c, int which, const smx_tensor *const *t) {
  const int32_t steps = half(c) ? 3 : (int32_t)call_whole(c);
  switch (which) {
    case 0: return smx_sinkhorn(c->ctx, steps > 9 ? 9 : steps, t[0], t[2]);
    case 1: return smx_sinkhorn_backward(c->ctx, steps > 9 ? 9 : steps, t[0], t[1], t[2]);
    case 2: return smx_sinkhorn_implicit(c->ctx, t[0], t[1], t[2]);
    case 3: return smx_orthostochastic(c->ctx, t[0], t[2]);
    default: return smx_orthostochastic_backward(c->ctx, t[0], t[1], t[2]);
  }
}

static smx_status tensors(call *c) {
  bytes *b = &c->b;
  const int which = (int)pick(b, 9);
  int64_t shape[4], reduced[4];
  const int32_t ndim = which < 5 ? 2 + (int32_t)pick(b, 3) : 1 + (int32_t)pick(b, 4);
  for (int32_t d = 0; d < ndim; d++) shape[d] = rarely(b, 8) ? pick(b, 1200) : pick(b, 9);
  if (which < 5) shape[ndim - 2] = pick(b, 9), shape[ndim - 1] = half(c) ? shape[ndim - 2] : pick(b, 9);
  const int32_t along = (int32_t)pick(b, ndim), axis = rarely(b, 16) ? (int32_t)call_whole(c)
                                                       : half(c)     ? along
                                                                     : along - ndim;
  for (int32_t d = 0; d < ndim; d++) reduced[d] = shape[d < along ? d : d + 1 < ndim ? d + 1 : d];
  const bool sum = which == 7;
  const smx_tensor *t[3] = {floats_of(c, ndim, shape, false), floats_of(c, ndim, shape, false),
                            floats_of(c, ndim - sum, sum ? reduced : shape, true)};
  spoil(c, t, 3);
  call_ready(c);
  switch (which) {
    case 5: return smx_softmax(c->ctx, axis, t[0], t[2]);
    case 6: return smx_log_softmax(c->ctx, axis, t[0], t[2]);
    case 7: return smx_logsumexp(c->ctx, axis, t[0], t[2]);
    case 8: return smx_softmax_backward(c->ctx, axis, t[0], t[1], t[2]);
    default: return matrices(c, which, t);
  }
}

/* ---- draws ---- */

static void step(call *c, smx_step *s, int64_t n) {
  bytes *b = &c->b;
  const int64_t count = pick(b, 9);
  *s = (smx_step){.kind = (smx_step_kind)(rarely(b, 32) ? call_whole(c) : pick(b, SMX_STEP_KINDS))};
  const smx_step_info *info = smx_step_at((size_t)s->kind);
  double *const numbers[] = {&s->a, &s->b, &s->c};
  for (int32_t i = 0; i < 3; i++) {
    const bool known = info && i < info->param_count;
    *numbers[i] = known && !rarely(b, 3) ? info->params[i].def : call_number(c);
  }
  if (!info || !(info->flags & SMX_STEP_HAS_TOKENS)) return;
  s->token_count = (size_t)count;
  s->tokens = rarely(b, 32) ? NULL : call_array(c, SMX_I64, count, false, VALUES_BELOW, n);
  s->values = half(c) ? NULL : call_array(c, SMX_F64, count, false, VALUES_SCORES, 0);
}

/* Memory for a call with all threads of its context. */
static void lend(call *c, smx_sample_options *o, int64_t n, bool wide) {
  o->scratch_bytes = smx_sample_scratch(c->ctx, (size_t)n, wide);
  if (rarely(&c->b, 8) && o->scratch_bytes) o->scratch_bytes -= 64;
  o->scratch = array(c, SMX_I64, (int64_t)o->scratch_bytes / 8, true);
}

static smx_status draws(call *c) {
  enum { STEPS = 5 };
  bytes *b = &c->b;
  const bool wide = half(c), in_place = rarely(b, 4);
  const smx_dtype t = wide ? SMX_F64 : SMX_F32;
  const int64_t r = pick(b, 5), n = rarely(b, 4) ? pick(b, 5000) : pick(b, 80);
  const int64_t gap = !in_place && rarely(b, 4) ? pick(b, 9) : 0, each = rarely(b, 4) ? pick(b, 70) : 0;
  const int64_t all = r ? r * (n + gap) - gap : 0, words = (n + 31) / 32 + pick(b, 2),
                drawn = r * (each + !each);
  smx_step steps[STEPS];
  smx_sample_options o = {.size = sizeof o, .steps = steps, .step_count = (size_t)pick(b, STEPS + 1)};
  for (size_t i = 0; i < o.step_count; i++) step(c, steps + i, n);
  o.draw = (smx_draw)pick(b, 3), o.seed = take(b, 2), o.stream = take(b, 2);
  if (rarely(b, 64)) o.draw = (smx_draw)call_whole(c);
  if (gap || half(c)) o.row_stride = (size_t)(n + gap);
  o.draws = (size_t)each;
  if (rarely(b, 3)) o.seeds = call_array(c, SMX_I64, r, false, VALUES_BELOW, 1000);
  if (rarely(b, 3)) o.streams = call_array(c, SMX_I64, r, false, VALUES_BELOW, 1000);
  if (rarely(b, 3)) o.masks = call_array(c, SMX_I32, r * words, false, VALUES_BELOW, INT32_MAX);
  if (o.masks) o.mask_stride = (size_t)words;
  if (rarely(b, 3)) lend(c, &o, n, wide);
  if (half(c)) o.status = array(c, SMX_I32, r, true);
  void *x = array(c, t, all, in_place), *log_p = half(c) ? array(c, t, drawn, true) : NULL;
  int64_t *index = array(c, SMX_I64, drawn, true);
  o.processed = in_place ? x : half(c) ? array(c, t, r * n, true) : NULL;
  if (rarely(b, 8)) o.size = half(c) ? offsetof(smx_sample_options, draws) : (size_t)call_whole(c);
  const size_t rows_ = (size_t)r;
  call_ready(c);
  return wide ? smx_sample_f64(c->ctx, rarely(b, 16) ? NULL : &o, rows_, (size_t)n, x, index, log_p)
              : smx_sample_f32(c->ctx, rarely(b, 16) ? NULL : &o, rows_, (size_t)n, x, index, log_p);
}

/* ---- settings by name ---- */

/* A text with its end, of the table or of any bytes. */
static const char *text(call *c, const char *known) {
  bytes *b = &c->b;
  const int64_t length = rarely(b, 3) || !known ? pick(b, 12) : (int64_t)strlen(known);
  char *to = call_array(c, SMX_U8, length + 1, false, VALUES_NONE, 0);
  for (int64_t i = 0; i < length; i++)
    to[i] = known && (size_t)length == strlen(known) ? known[i] : (char)(1 + take(b, 1) % 255);
  to[length] = 0;
  return rarely(b, 64) ? NULL : to;
}

static smx_status settings(call *c) {
  static const char *const values_[] = {"0.5",  "1e400",    "-nan", "0x1p-3",
                                        "mean", "infinity", "  3",  "1e-320"};
  bytes *b = &c->b;
  const smx_op *op = smx_op_at((size_t)pick(b, (int64_t)smx_op_count()));
  const bool weights = rarely(b, 4);
  const int64_t size = weights ? (int64_t)sizeof(smx_attention_options) : (int64_t)sizeof(smx_params);
  void *to = call_array(c, SMX_I64, size / 8, true, VALUES_NONE, 0);
  const int64_t which = op->param_count ? pick(b, op->param_count) : 0;
  const char *name = text(c, op->param_count ? op->params[which].name : NULL),
             *value = text(c, values_[pick(b, 8)]);
  const double number = call_number(c);
  if (weights) {
    const smx_attention_weights kind = (smx_attention_weights)(half(c) ? call_whole(c) : pick(b, 20));
    if (half(c)) smx_attention_init(to);
    call_ready(c);
    return smx_attention_set_weights(to, kind);
  }
  if (!rarely(b, 8)) smx_params_init(op, to);
  if (rarely(b, 32)) op = NULL;
  call_ready(c);
  return half(c) ? smx_params_set(op, to, name, number) : smx_params_parse(op, to, name, value);
}

/* ---- rotary positions ---- */

static smx_status rope(call *c) {
  bytes *b = &c->b;
  const int64_t d = rarely(b, 8) ? pick(b, 514) : 2 * pick(b, 20), dims = half(c) ? d : 2 * pick(b, 12);
  const int64_t x[] = {pick(b, 3), pick(b, 3), pick(b, 20), d}, pairs[] = {x[0], x[1], x[2], dims / 2};
  const int64_t each[] = {x[0], x[1], dims / 2};
  smx_rope_options o = {
      .size = sizeof o, .layout = (smx_rope_layout)pick(b, 2), .dims = half(c) && dims == d ? 0 : dims};
  if (rarely(b, 4)) o.base = call_number(c);
  if (rarely(b, 4)) o.scale = call_number(c);
  if (rarely(b, 4)) o.start = call_whole(c);
  o.cumulative = rarely(b, 3);
  if (half(c))
    o.positions = call_spread(c, half(c) ? call_float(c) : SMX_I64, 4, pairs,
                              half(c) ? VALUES_BELOW : VALUES_SCORES, 9);
  if (rarely(b, 3)) o.frequencies = call_spread(c, call_float(c), 3, each, VALUES_SCORES, 0);
  if (rarely(b, 3)) o.carry = call_spread(c, call_float(c), 3, each, VALUES_SCORES, 0);
  if (rarely(b, 4)) o.cosines = call_spread(c, call_float(c), 4, pairs, VALUES_SCORES, 0);
  if (o.cosines || rarely(b, 16)) o.sines = call_spread(c, call_float(c), 4, pairs, VALUES_SCORES, 0);
  const smx_tensor *t[5] = {floats_of(c, 4, x, false), floats_of(c, 4, x, true)};
  const bool back = half(c);
  if (back) {
    t[2] = maybe(c, floats_of(c, 4, x, false));
    t[3] = maybe(c, floats_of(c, 4, pairs, true)), t[4] = maybe(c, floats_of(c, 3, each, true));
  } else t[2] = maybe(c, call_output(c, SMX_F64, 3, each));
  spoil(c, t, 5);
  call_ready(c);
  return back ? smx_rope_backward(c->ctx, &o, t[0], t[2], t[1], t[3], t[4])
              : smx_rope(c->ctx, half(c) ? &o : NULL, t[0], t[1], t[2]);
}

/* ---- attention beside its calls ---- */

static smx_status keep_keys(call *c) {
  bytes *b = &c->b;
  const int64_t mass[] = {pick(b, 4), pick(b, 4), pick(b, 100)}, lists = half(c) ? 1 : mass[1];
  const int64_t keys[] = {mass[0], lists, pick(b, 30)};
  const int64_t kernels[] = {1, 2 * pick(b, 6) + 1, call_whole(c)};
  smx_attention_select_options o = {.size = sizeof o, .pool = (smx_attention_pool)pick(b, 2)};
  if (rarely(b, 3)) o.first = call_whole(c);
  if (rarely(b, 3)) o.last = pick(b, 5);
  if (rarely(b, 3)) o.kernel = half(c) ? call_whole(c) : 2 * pick(b, 60) + 1;
  if (rarely(b, 4)) o.kernels = kernels, o.kernel_count = (size_t)pick(b, 3) + half(c);
  if (rarely(b, 3))
    o.lengths = call_input(c, half(c) ? SMX_I32 : SMX_I64, 1, mass, VALUES_BELOW, mass[2] + 1);
  if (rarely(b, 3))
    o.budgets = call_spread(c, half(c) ? SMX_I32 : SMX_I64, 2, keys, VALUES_BELOW, keys[2] + 1);
  const smx_tensor *t[] = {floats_of(c, 3, mass, false), call_output(c, SMX_I32, 3, keys),
                           maybe(c, call_output(c, SMX_I32, 2, keys))};
  if (rarely(b, 2)) spoil(c, t, 3);
  call_ready(c);
  return smx_attention_select(c->ctx, half(c) ? &o : NULL, t[0], t[1], t[2]);
}

static smx_status merge(call *c) {
  bytes *b = &c->b;
  const int64_t o[] = {pick(b, 3), pick(b, 3), pick(b, 5), rarely(b, 8) ? pick(b, 514) : 1 + pick(b, 20)};
  const smx_dtype real = half(c) ? SMX_F32 : SMX_F64;
  const smx_tensor *t[6] = {floats_of(c, 4, o, true), maybe(c, call_output(c, real, 3, o))};
  smx_attention_options options;
  smx_attention_init(&options);
  if (half(c)) options.weights = (smx_attention_weights)pick(b, SMX_ATTENTION_KINDS);
  if (rarely(b, 4)) options.param[0] = call_number(c);
  if (rarely(b, 4)) options.sinks = call_spread(c, call_float(c), 2, o, VALUES_SCORES, 0);
  const int32_t count = rarely(b, 32) ? (int32_t)call_whole(c) : (int32_t)pick(b, 4);
  for (int32_t i = 0; i < count && i < 4; i++) {
    const int64_t states[] = {o[0], o[1], o[2], pick(b, 4), smx_attention_state_width(o[3])};
    t[2 + i] = call_input(c, real, 5, states, VALUES_SCORES, 0);
  }
  spoil(c, t, 6);
  call_ready(c);
  return smx_attention_merge(c->ctx, &options, count > 4 ? 4 : count, t + 2, t[0], t[1]);
}

/* ---- votes, beams, mixtures, plans ---- */

static smx_status votes(call *c) {
  bytes *b = &c->b;
  const int64_t items = pick(b, 6), workers = pick(b, 5), classes = pick(b, 5), count = pick(b, 30);
  int64_t *v = call_array(c, SMX_I64, 3 * count, false, VALUES_NONE, 0);
  for (int64_t i = 0; i < 3 * count; i++) {
    const int64_t most = i % 3 == 0 ? items : i % 3 == 1 ? workers : classes;
    v[i] = rarely(b, 200) ? call_whole(c) : most ? pick(b, most) : 0;
  }
  smx_dawid_skene_options o = {.size = sizeof o, .steps = pick(b, 5)};
  if (rarely(b, 4)) o.tolerance = call_number(c);
  double *posterior = array(c, SMX_F64, items * classes, true),
         *prior = half(c) ? array(c, SMX_F64, classes, true) : NULL;
  double *errors = half(c) ? array(c, SMX_F64, workers * classes * classes, true) : NULL;
  int64_t *steps = half(c) ? array(c, SMX_I64, 1, true) : NULL;
  call_ready(c);
  return smx_dawid_skene(
      c->ctx, half(c) ? &o : NULL, (size_t)count, count || half(c) ? (const smx_vote *)(const void *)v : NULL,
      many(c, (size_t)items, classes == 0 && rarely(b, 8)), many(c, (size_t)workers, classes == 0),
      (size_t)classes, posterior, prior, errors, steps);
}

static smx_status beams(call *c) {
  bytes *b = &c->b;
  const int64_t count = pick(b, 6), n = rarely(b, 4) ? pick(b, 3000) : pick(b, 12);
  smx_beam_options o = {.size = sizeof o, .eos = pick(b, 6) - 1, .penalty = half(c) ? 1 : call_number(c)};
  const double *score = array(c, SMX_F64, count, false);
  const float *log_p = array(c, SMX_F32, count * n, false);
  smx_beam *next = array(c, SMX_I64, 3 * count, true), *finished = array(c, SMX_I64, 3 * count, true);
  call_ready(c);
  return smx_beam_step_f32(c->ctx, rarely(b, 32) ? NULL : &o, (size_t)count, many(c, (size_t)n, count == 0),
                           score, log_p, next, finished);
}

static smx_status mix(call *c) {
  bytes *b = &c->b;
  const int64_t r = pick(b, 5), k = pick(b, 7), n = pick(b, 8),
                width = rarely(b, 4) ? pick(b, 700) : pick(b, 9);
  const smx_dtype t = rarely(b, 16) ? SMX_F64 : half(c) ? SMX_F32 : half(c) ? SMX_F16 : SMX_BF16;
  const bool back = half(c);
  const int64_t *index = call_array(c, SMX_I64, r * k, false, VALUES_BELOW, n);
  const void *table = array(c, t, n * width, false);
  const float *from = array(c, SMX_F32, r * (back ? width : k), false);
  float *to = array(c, SMX_F32, r * (back ? k : width), true);
  const size_t count = many(c, (size_t)r, k == 0 && width == 0);
  call_ready(c);
  if (back)
    return smx_mix_embeddings_backward_f32(c->ctx, count, (size_t)k, index, (size_t)n, (size_t)width, t,
                                           table, from, to);
  return smx_mix_embeddings_f32(c->ctx, count, (size_t)k, index, from, (size_t)n, (size_t)width, t, table,
                                to);
}

static smx_status cad(call *c) {
  bytes *b = &c->b;
  smx_cad_options o = {.size = sizeof o};
  int64_t *const fields[] = {&o.block_min, &o.block_max,      &o.block_base,      &o.steps_base,
                             &o.steps_max, &o.vocabulary_min, &o.vocabulary_base, &o.vocabulary_max};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (rarely(b, 3)) *fields[i] = call_whole(c);
  const int64_t count = pick(b, 9);
  double *confidence = call_array(c, SMX_F64, count, false, VALUES_NONE, 0);
  for (int64_t i = 0; i < count; i++) confidence[i] = (double)take(b, 1) / 254;
  const double progress = (double)take(b, 1) / 254, repetition = (double)take(b, 1) / 254;
  smx_cad *out = array(c, SMX_I64, 3, true);
  call_ready(c);
  return smx_cad_plan(half(c) ? &o : NULL, (size_t)count, confidence, progress, repetition, call_whole(c),
                      out);
}

/* ---- objectives, distributions and votes ---- */

static smx_status objective(call *c) {
  bytes *b = &c->b;
  const int64_t a[] = {pick(b, 9), pick(b, 9)}, *m = a, *n = a + 1;
  const smx_tensor *t[8] = {floats_of(c, 2, a, false), floats_of(c, 1, m, false), floats_of(c, 1, n, false),
                            maybe(c, floats_of(c, 1, n, false))};
  for (int i = 4; i < 8; i++) t[i] = maybe(c, floats_of(c, 1, n, true));
  double *f = array(c, SMX_F64, 1, true);
  const double mu = half(c) ? 1 : call_number(c);
  spoil(c, t, 8);
  call_ready(c);
  if (half(c)) return smx_softmax_regression(c->ctx, t[0], t[1], t[2], t[3], f, t[4], t[5]);
  return smx_logsumexp_objective(c->ctx, mu, t[0], t[1], t[2], t[3], f, t[4], t[5], t[6], t[7]);
}

static smx_status distributions(call *c) {
  bytes *b = &c->b;
  const int64_t x[] = {pick(b, 4), pick(b, 6), pick(b, 12)}, y[] = {x[0], x[2]};
  const bool centroid = half(c);
  const smx_tensor *t[4] = {maybe(c, floats_of(c, 1, x + 1, false)), floats_of(c, 3, x, false),
                            floats_of(c, centroid ? 2 : 1, y, true), maybe(c, floats_of(c, 3, x, true))};
  spoil(c, t, 4);
  call_ready(c);
  return centroid ? smx_js_centroid(c->ctx, t[0], t[1], t[2])
                  : smx_jensen_shannon(c->ctx, t[0], t[1], t[2], t[3]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static smx_status (*const functions[])(call * c) = {rows,    rope,  keep_keys, merge,     votes,
                                                      beams,   mix,   cad,       objective, distributions,
                                                      tensors, draws, settings};
  static call c;
  call_open(&c, data, size);
  const smx_status status = functions[pick(&c.b, sizeof functions / sizeof *functions)](&c);
  call_check(&c, status);
  call_close(&c);
  return 0;
}
