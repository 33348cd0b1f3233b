/* every_attention.c - the cases of attention. See every.h. */
#include "every.h"

enum { B = 2, HQ = 4, HKV = 2, LQ = 7, LK = 9, D = 7, E = 6 };

typedef struct qkv {
  smx_attention_options *o;
  smx_tensor *q, *k, *v;
} qkv;

/* Every optional input that weights and gradients share. */
static qkv all_of_it(stage *s, bool sinks) {
  qkv a = {.o = stage_in(s, sizeof *a.o)};
  smx_attention_init(a.o);
  a.o->softcap = 20;
  a.o->causal = 1;
  a.o->mask = in_wholes(s, SMX_BOOL, SHAPE(B, 1, LQ, LK), 4);
  a.o->bias = in_floats(s, s->t, SHAPE(HQ, LQ, LK));
  a.o->slopes = in_floats(s, s->t, SHAPE(HQ));
  if (sinks) a.o->sinks = in_floats(s, s->t, SHAPE(B, HQ));
  a.o->lengths = in_wholes(s, SMX_I32, SHAPE(B), LK);
  a.o->dropout = 0.1;
  a.q = in_floats(s, s->t, SHAPE(B, HQ, LQ, D));
  a.k = in_floats(s, s->t, SHAPE(B, HKV, LK, D));
  a.v = in_floats(s, s->t, SHAPE(B, HKV, LK, E));
  return a;
}

/* Without options, in one piece: b heads of lq queries and lk keys. */
static qkv plain(stage *s, int64_t b, int64_t lq, int64_t lk) {
  qkv a = {.o = stage_in(s, sizeof *a.o)};
  smx_attention_init(a.o);
  a.q = in_floats(s, s->t, SHAPE(b, HQ, lq, D));
  a.k = in_floats(s, s->t, SHAPE(b, HKV, lk, D));
  a.v = in_floats(s, s->t, SHAPE(b, HKV, lk, E));
  return a;
}

/* Sequences of several lengths one after another: the longest is the last. */
static qkv packed(stage *s) {
  static const double queries[] = {0, 2, 5, 40}, keys[] = {0, 3, 20, 320};
  qkv a = plain(s, 1, 40, 320);
  a.o->query_offsets = in_values(s, SMX_I64, SHAPE(4), queries);
  a.o->key_offsets = in_values(s, SMX_I32, SHAPE(4), keys);
  return a;
}

static smx_tensor *like(stage *s, const smx_tensor *t) { return out_tensor(s, t->dtype, t->ndim, t->shape); }
static smx_tensor *output(stage *s, const qkv *a) {
  return out_tensor(s, s->t, SHAPE(a->q->shape[0], HQ, a->q->shape[2], a->v->shape[3]));
}
static smx_tensor *upstream(stage *s, const qkv *a) {
  return in_floats(s, s->t, SHAPE(a->q->shape[0], HQ, a->q->shape[2], a->v->shape[3]));
}
static smx_tensor *sums(stage *s, const qkv *a) {
  return out_tensor(s, SMX_F64, SHAPE(a->q->shape[0], HQ, a->q->shape[2]));
}

static void set_weights(stage *s) {
  smx_attention_options *o = stage_out(s, sizeof *o);
  smx_attention_init(o);
  CALL(s, smx_attention_set_weights, o, SMX_ATTENTION_SIGMOID);
}
static void init(stage *s) { CALL(s, smx_attention_init, stage_out(s, sizeof(smx_attention_options))); }
static void state_width(stage *s) { GIVES(s, smx_attention_state_width, int64_t, E); }

/* ---- attention ---- */

static void forward(stage *s, const qkv *a) {
  const smx_tensor *o = output(s, a);
  smx_tensor *to = sums(s, a);
  CALL(s, smx_attention, s->ctx, a->o, a->q, a->k, a->v, o, to);
}
static void attention(stage *s) {
  const qkv a = all_of_it(s, true);
  forward(s, &a);
}
static void attention_defaults(stage *s) {
  const qkv a = plain(s, B, LQ, LK);
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention, s->ctx, NULL, a.q, a.k, a.v, to, NULL);
}
static void attention_packed(stage *s) {
  const qkv a = packed(s);
  forward(s, &a);
}
static void attention_long(stage *s) { /* one query: threads share the keys */
  const qkv a = plain(s, 1, 1, 3000);
  forward(s, &a);
}
static void attention_paged(stage *s) {
  static const double pages[] = {2, 0, 1, 3, 4, 5}, lengths[] = {7, 12};
  qkv a = plain(s, B, LQ, LK);
  a.k = in_floats(s, s->t, SHAPE(6, HKV, 4, D)), a.v = in_floats(s, s->t, SHAPE(6, HKV, 4, E));
  a.o->block_table = in_values(s, SMX_I32, SHAPE(B, 3), pages);
  a.o->lengths = in_values(s, SMX_I64, SHAPE(B), lengths);
  forward(s, &a);
}
static void kinds(stage *s, smx_attention_weights weights) {
  static const double params[SMX_ATTENTION_KINDS][4] = {
      [SMX_ATTENTION_SOFTMAX_N] = {1},
      [SMX_ATTENTION_SSMAX] = {0.43, 0.1},
      [SMX_ATTENTION_SIGMOID] = {-2},
      [SMX_ATTENTION_RELU] = {2, 0.1},
      [SMX_ATTENTION_ELU] = {1},
      [SMX_ATTENTION_IDENTITY] = {3},
      [SMX_ATTENTION_SOFTPLUS] = {2},
      [SMX_ATTENTION_TAYLOR] = {2, 4},
      [SMX_ATTENTION_CLIPPED] = {-0.03, 1.03},
      [SMX_ATTENTION_CENTRED] = {1, 0.5, 0.3},
      [SMX_ATTENTION_EXP] = {2, 0, 5},
      [SMX_ATTENTION_CREDAL] = {1},
      [SMX_ATTENTION_SHAPED] = {1, 1, 1},
      [SMX_ATTENTION_LSSA] = {2},
      [SMX_ATTENTION_LSSAR] = {15, 1, 3},
      [SMX_ATTENTION_UNIFIED] = {0.5, -2, 2},
  };
  qkv a = plain(s, B, LQ, LK);
  a.o->weights = weights;
  for (int i = 0; i < 4; i++) a.o->param[i] = params[weights][i];
  forward(s, &a);
}
#define KIND(name, weights) \
  static void name(stage *s) { kinds(s, weights); }
KIND(softmax_n, SMX_ATTENTION_SOFTMAX_N)
KIND(ssmax, SMX_ATTENTION_SSMAX)
KIND(sigmoid, SMX_ATTENTION_SIGMOID)
KIND(softpick, SMX_ATTENTION_SOFTPICK)
KIND(self_adjust, SMX_ATTENTION_SELF_ADJUST)
KIND(self_adjust_range, SMX_ATTENTION_SELF_ADJUST_RANGE)
KIND(relu, SMX_ATTENTION_RELU)
KIND(elu, SMX_ATTENTION_ELU)
KIND(identity, SMX_ATTENTION_IDENTITY)
KIND(softplus, SMX_ATTENTION_SOFTPLUS)
KIND(taylor, SMX_ATTENTION_TAYLOR)
KIND(clipped, SMX_ATTENTION_CLIPPED)
KIND(centred, SMX_ATTENTION_CENTRED)
KIND(exp_kind, SMX_ATTENTION_EXP)
KIND(credal, SMX_ATTENTION_CREDAL)
KIND(shaped, SMX_ATTENTION_SHAPED)
KIND(lssa, SMX_ATTENTION_LSSA)
KIND(lssar, SMX_ATTENTION_LSSAR)
KIND(unified, SMX_ATTENTION_UNIFIED)

static void backward(stage *s, const qkv *a) {
  const smx_tensor *o = output(s, a), *lse = sums(s, a), *d_o = upstream(s, a);
  const smx_tensor *d_lse = in_floats(s, SMX_F32, lse->ndim, lse->shape);
  const smx_tensor *dq = like(s, a->q), *dk = like(s, a->k), *dv = like(s, a->v);
  smx_attention(NULL, a->o, a->q, a->k, a->v, o, lse);
  CALL(s, smx_attention_backward, s->ctx, a->o, a->q, a->k, a->v, o, lse, d_o, d_lse, dq, dk, dv);
}
static void attention_backward(stage *s) {
  const qkv a = all_of_it(s, true);
  backward(s, &a);
}
static void attention_backward_packed(stage *s) {
  const qkv a = packed(s);
  backward(s, &a);
}
static void attention_backward_few(stage *s) { /* fewer heads than threads can share */
  const qkv a = plain(s, 1, 500, 300);
  backward(s, &a);
}
static void backward_bias(stage *s) {
  const qkv a = all_of_it(s, true);
  const smx_tensor *o = output(s, &a), *lse = sums(s, &a), *d_o = upstream(s, &a);
  const smx_tensor *bias = like(s, a.o->bias), *slopes = like(s, a.o->slopes), *sinks = like(s, a.o->sinks);
  smx_attention(NULL, a.o, a.q, a.k, a.v, o, lse);
  CALL(s, smx_attention_backward_bias, s->ctx, a.o, a.q, a.k, a.v, o, lse, d_o, NULL, bias, slopes, sinks);
}
static void column_mass(stage *s) {
  const qkv a = plain(s, B, LQ, LK);
  const smx_tensor *o = output(s, &a), *lse = sums(s, &a), *rows = in_floats(s, s->t, SHAPE(B, HQ, LQ));
  smx_attention(NULL, a.o, a.q, a.k, a.v, o, lse);
  smx_tensor *to = out_tensor(s, s->t, SHAPE(B, HKV, LK));
  CALL(s, smx_attention_column_mass, s->ctx, a.o, a.q, a.k, lse, rows, to);
}
static void selection(stage *s) {
  smx_attention_select_options *o = stage_in(s, sizeof *o);
  const smx_tensor *mass = in_floats(s, s->t, SHAPE(B, HQ, 40)),
                   *keys = out_tensor(s, SMX_I32, SHAPE(B, HQ, 12));
  *o = (smx_attention_select_options){.size = sizeof *o, .first = 2, .last = 3, .kernel = 5};
  smx_tensor *to = out_tensor(s, SMX_I32, SHAPE(B, HQ));
  CALL(s, smx_attention_select, s->ctx, o, mass, keys, to);
}

/* ---- split keys, scores, weights ---- */

static smx_dtype real(const stage *s) { return s->t.bits == 64 ? SMX_F64 : SMX_F32; }

static void states(stage *s) {
  const qkv a = plain(s, B, LQ, 1500);
  const smx_tensor *to = out_tensor(s, real(s), SHAPE(B, HQ, LQ, 2, smx_attention_state_width(E)));
  CALL(s, smx_attention_states, s->ctx, a.o, a.q, a.k, a.v, to);
}
static void merge(stage *s) {
  const qkv a = plain(s, B, LQ, 1500);
  const smx_tensor **from = stage_in(s, sizeof *from);
  from[0] = out_tensor(s, real(s), SHAPE(B, HQ, LQ, 2, smx_attention_state_width(E)));
  smx_attention_states(NULL, a.o, a.q, a.k, a.v, from[0]);
  const smx_tensor *o = output(s, &a);
  smx_tensor *to = out_tensor(s, SMX_F32, SHAPE(B, HQ, LQ));
  CALL(s, smx_attention_merge, s->ctx, NULL, 1, from, o, to);
}
static void scores(stage *s) {
  const qkv a = all_of_it(s, true);
  const smx_tensor *to = out_tensor(s, s->t, SHAPE(B, HQ, LQ, LK));
  CALL(s, smx_attention_scores, s->ctx, a.o, SMX_ATTENTION_WEIGHTS, a.q, a.k, to);
}
static void apply(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *w = in_floats(s, s->t, SHAPE(B, HQ, LQ, LK));
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention_apply, s->ctx, a.o, w, a.v, to);
}

/* ---- by sheets ---- */

static void rows_of(stage *s, const qkv *a, const char *op) {
  smx_tensor *to = output(s, a);
  CALL(s, smx_attention_rows, s->ctx, a->o, smx_op_find(op), NULL, a->q, a->k, a->v, to);
}
static void rows(stage *s) {
  const qkv a = all_of_it(s, false);
  rows_of(s, &a, "sparsemax");
}
static void rows_packed(stage *s) {
  const qkv a = packed(s);
  rows_of(s, &a, "entmax");
}
static void rows_masked(stage *s) {
  const qkv a = packed(s);
  rows_of(s, &a, "masked_softmax");
}
static void rows_input(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *row = in_floats(s, s->t, SHAPE(HQ, 1));
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention_rows_input, s->ctx, a.o, smx_op_find("sink_softmax"), NULL, row, a.q, a.k, a.v, to);
}
static void rows_input_backward(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *row = in_floats(s, s->t, SHAPE(HQ, 1)), *d_o = upstream(s, &a), *dq = like(s, a.q),
                   *dk = like(s, a.k), *dv = like(s, a.v), *d_row = like(s, row);
  CALL(s, smx_attention_rows_input_backward, s->ctx, a.o, smx_op_find("sink_softmax"), NULL, row, a.q, a.k,
       a.v, d_o, dq, dk, dv, NULL, NULL, d_row);
}
static void rows_backward_of(stage *s, const qkv *a, const char *op) {
  const smx_tensor *d_o = upstream(s, a), *dq = like(s, a->q), *dk = like(s, a->k), *dv = like(s, a->v);
  CALL(s, smx_attention_rows_backward, s->ctx, a->o, smx_op_find(op), NULL, a->q, a->k, a->v, d_o, dq, dk,
       dv);
}
static void rows_backward(stage *s) {
  const qkv a = all_of_it(s, false);
  rows_backward_of(s, &a, "sparsemax");
}
static void rows_backward_packed(stage *s) {
  const qkv a = packed(s);
  rows_backward_of(s, &a, "softmax");
}
static void parallax(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *r = in_floats(s, s->t, SHAPE(B, HQ, LQ, D));
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention_parallax, s->ctx, a.o, a.q, a.k, a.v, r, to);
}
static void parallax_backward(stage *s) {
  const qkv a = packed(s);
  const smx_tensor *r = in_floats(s, s->t, a.q->ndim, a.q->shape), *d_o = upstream(s, &a);
  const smx_tensor *dq = like(s, a.q), *dk = like(s, a.k), *dv = like(s, a.v), *dr = like(s, r);
  CALL(s, smx_attention_parallax_backward, s->ctx, a.o, a.q, a.k, a.v, r, d_o, dq, dk, dv, dr);
}
static void local_linear(stage *s) {
  const qkv a = packed(s);
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention_local_linear, s->ctx, a.o, 0.37, a.q, a.k, a.v, to);
}
static void local_linear_backward(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *d_o = upstream(s, &a), *dq = like(s, a.q), *dk = like(s, a.k), *dv = like(s, a.v);
  CALL(s, smx_attention_local_linear_backward, s->ctx, a.o, 0.37, a.q, a.k, a.v, d_o, dq, dk, dv);
}
static void additive(stage *s) {
  const qkv a = packed(s);
  const smx_tensor *u = in_floats(s, s->t, SHAPE(HQ, D));
  smx_tensor *to = output(s, &a);
  CALL(s, smx_attention_additive, s->ctx, a.o, u, a.q, a.k, a.v, to);
}
static void additive_backward(stage *s) {
  const qkv a = packed(s);
  const smx_tensor *u = in_floats(s, s->t, SHAPE(HQ, D)), *d_o = upstream(s, &a),
                   *du = out_tensor(s, s->t, SHAPE(3, HQ, D));
  const smx_tensor *dq = like(s, a.q), *dk = like(s, a.k), *dv = like(s, a.v);
  CALL(s, smx_attention_additive_backward, s->ctx, a.o, u, a.q, a.k, a.v, d_o, du, dq, dk, dv);
}

/* ---- the max-plus semiring, rotary positions ---- */

static void tropical(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *o = output(s, &a);
  smx_tensor *to = out_tensor(s, SMX_I32, o->ndim, o->shape);
  CALL(s, smx_attention_tropical, s->ctx, a.o, 1, a.q, a.k, a.v, o, to);
}
static void tropical_backward(stage *s) {
  const qkv a = all_of_it(s, false);
  const smx_tensor *o = output(s, &a), *d_o = upstream(s, &a),
                   *winners = out_tensor(s, SMX_I32, o->ndim, o->shape);
  const smx_tensor *dq = like(s, a.q), *dk = like(s, a.k), *dv = like(s, a.v);
  smx_attention_tropical(NULL, a.o, 0, a.q, a.k, a.v, o, winners);
  CALL(s, smx_attention_tropical_backward, s->ctx, a.o, 0, a.q, a.k, a.v, winners, d_o, dq, dk, dv);
}

enum { LENGTH = 600, PAIRS = 4 };
static smx_rope_options *turning(stage *s) {
  smx_rope_options *o = stage_in(s, sizeof *o);
  *o = (smx_rope_options){.size = sizeof *o, .dims = 2 * PAIRS, .scale = 0.3, .start = 5};
  return o;
}
static smx_rope_options *walking(stage *s) {
  smx_rope_options *o = turning(s);
  o->start = 0, o->cumulative = 1, o->layout = SMX_ROPE_INTERLEAVED;
  o->positions = in_floats(s, s->t, SHAPE(B, HQ, LENGTH, PAIRS));
  o->frequencies = in_floats(s, s->t, SHAPE(HQ, PAIRS));
  return o;
}
static void rope(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(B, HQ, LENGTH, 10));
  smx_rope_options *given = turning(s);
  smx_tensor *to = like(s, x);
  CALL(s, smx_rope, s->ctx, given, x, to, NULL);
}
static void rope_cumulative(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(B, HQ, LENGTH, 10)), *y = like(s, x);
  smx_rope_options *given = walking(s);
  smx_tensor *to = out_tensor(s, SMX_F64, SHAPE(B, HQ, PAIRS));
  CALL(s, smx_rope, s->ctx, given, x, y, to);
}
static void rope_backward(stage *s) {
  const smx_tensor *x = in_floats(s, s->t, SHAPE(B, HQ, LENGTH, 10)),
                   *dy = in_floats(s, s->t, x->ndim, x->shape), *dx = like(s, x);
  const smx_tensor *positions = out_tensor(s, s->t, SHAPE(B, HQ, LENGTH, PAIRS)),
                   *f = out_tensor(s, s->t, SHAPE(B, HQ, PAIRS));
  smx_rope_options *given = walking(s);
  CALL(s, smx_rope_backward, s->ctx, given, dy, x, dx, positions, f);
}

const every_case every_attention[] = {
    {"attention_init", init, CASE_ONCE},
    {"attention_set_weights", set_weights, CASE_ONCE},
    {"attention_state_width", state_width, CASE_ONCE},
    {"attention", attention, CASE_FLOATS},
    {"attention without options", attention_defaults, CASE_FLOATS},
    {"attention, packed", attention_packed, CASE_FLOATS},
    {"attention, one query", attention_long, CASE_FLOATS},
    {"attention, paged", attention_paged, CASE_FLOATS},
    {"attention softmax_n", softmax_n, CASE_FLOATS},
    {"attention ssmax", ssmax, CASE_FLOATS},
    {"attention sigmoid", sigmoid, CASE_FLOATS},
    {"attention softpick", softpick, CASE_FLOATS},
    {"attention self_adjust", self_adjust, CASE_FLOATS},
    {"attention self_adjust_range", self_adjust_range, CASE_FLOATS},
    {"attention relu", relu, CASE_FLOATS},
    {"attention elu", elu, CASE_FLOATS},
    {"attention identity", identity, CASE_FLOATS},
    {"attention softplus", softplus, CASE_FLOATS},
    {"attention taylor", taylor, CASE_FLOATS},
    {"attention clipped", clipped, CASE_FLOATS},
    {"attention centred", centred, CASE_FLOATS},
    {"attention exp", exp_kind, CASE_FLOATS},
    {"attention credal", credal, CASE_FLOATS},
    {"attention shaped", shaped, CASE_FLOATS},
    {"attention lssa", lssa, CASE_FLOATS},
    {"attention lssar", lssar, CASE_FLOATS},
    {"attention unified", unified, CASE_FLOATS},
    {"attention_backward", attention_backward, CASE_FLOATS},
    {"attention_backward, packed", attention_backward_packed, CASE_FLOATS},
    {"attention_backward, few heads", attention_backward_few, CASE_FLOATS},
    {"attention_backward_bias", backward_bias, CASE_FLOATS},
    {"attention_column_mass", column_mass, CASE_FLOATS},
    {"attention_select", selection, CASE_FLOATS},
    {"attention_states", states, CASE_FLOATS},
    {"attention_merge", merge, CASE_FLOATS},
    {"attention_scores", scores, CASE_FLOATS},
    {"attention_apply", apply, CASE_FLOATS},
    {"attention_rows", rows, CASE_FLOATS},
    {"attention_rows, packed", rows_packed, CASE_FLOATS},
    {"attention_rows, masked", rows_masked, CASE_FLOATS},
    {"attention_rows_input", rows_input, CASE_FLOATS},
    {"attention_rows_input_backward", rows_input_backward, CASE_FLOATS},
    {"attention_rows_backward", rows_backward, CASE_FLOATS},
    {"attention_rows_backward, packed", rows_backward_packed, CASE_FLOATS},
    {"attention_parallax", parallax, CASE_FLOATS},
    {"attention_parallax_backward", parallax_backward, CASE_FLOATS},
    {"attention_local_linear", local_linear, CASE_FLOATS},
    {"attention_local_linear_backward", local_linear_backward, CASE_FLOATS},
    {"attention_additive", additive, CASE_FLOATS},
    {"attention_additive_backward", additive_backward, CASE_FLOATS},
    {"attention_tropical", tropical, CASE_FLOATS},
    {"attention_tropical_backward", tropical_backward, CASE_FLOATS},
    {"rope", rope, CASE_FLOATS},
    {"rope, cumulative", rope_cumulative, CASE_FLOATS},
    {"rope_backward", rope_backward, CASE_FLOATS},
};
const size_t every_attention_count = COUNT_OF(every_attention);
