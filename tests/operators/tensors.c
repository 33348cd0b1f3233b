/* tensors.c - proves what the operator table says of operators on tensors, whose dimensions have
 * names: values against the reference in double, gradients against differences of it, the same bits
 * on every instruction set, number of threads and layout, half precision as rounded f32, and what
 * wrong calls are refused for. Every operator is found by itself. */
#define _POSIX_C_SOURCE 200809L
#include "named.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "engine/ref.h"
#include "tensors.h"

enum { SEEDS = 2 };

/* For every operator, variant and seed: a call that can be. */
#define FOR_EACH_NAMED(p) \
  for (size_t number_ = 0; named_at(number_); number_++) \
    for (int variant_ = 0; variant_ < NAMED_VARIANTS; variant_++) \
      for (uint64_t seed_ = 1; seed_ <= SEEDS; seed_++) \
        for (bool made_ = named_make(&(p), named_at(number_), variant_, seed_, NULL, 0); made_; \
             made_ = false, named_free(&(p)))

static double value_at(const smx_port *port, smx_dtype t, const unsigned char *bytes, int64_t i) {
  t = named_dtype(port, t);
  return dtype_load(t, bytes + (size_t)i * dtype_size(t));
}

/* ---- references ---- */

/* For each directory with references. */
#define SMX_TENSOR_REFS(REF) \
  REF(pool) REF(head) REF(gate) REF(score) REF(fit) REF(linear_attention) REF(pairwise) REF(attention)
#define EXTERN(family) extern tensor_ref_fn *const family##_refs[];
SMX_TENSOR_REFS(EXTERN)

static tensor_ref_fn *reference_of(const smx_op *op) {
  static const struct {
    const char *family;
    tensor_ref_fn *const *refs;
  } all[] = {
#define ENTRY(family) {#family, family##_refs},
      SMX_TENSOR_REFS(ENTRY){NULL, NULL}};
  int family;
  size_t index;
  assert_true(smx_op_place(op, &family, &index));
  for (size_t i = 0; all[i].family; i++)
    if (!strcmp(all[i].family, op->family)) return all[i].refs[index];
  return NULL;
}

/* Outputs in double: of the reference, or of the library for matrices, which have other tests. */
static bool evaluate(named *p, double **out) {
  tensor_ref_fn *ref = reference_of(p->op);
  const double *in[SMX_MAX_PORTS];
  tensor_ref_call c = {.in = in, .out = out, .q = p->params.value};
  for (int i = 0; i < SMX_MAX_PORTS; i++)
    in[i] = p->in[i], c.in_shape[i] = p->in_shape[i].dim, c.out_shape[i] = p->out_shape[i].dim;
  if (ref) return ref(&c), true;
  if (named_run(p, &(named_how){.type = SMX_F64}, false) != SMX_OK) return false;
  for (int o = 0; o < p->op->output_count; o++)
    for (int64_t k = 0; p->wanted[o] && k < named_count(p->out_shape + o); k++)
      out[o][k] = value_at(p->op->outputs + o, SMX_F64, p->out[o], k);
  return true;
}

static void open_values(const named *p, double **out) {
  for (int o = 0; o < SMX_MAX_PORTS; o++)
    out[o] =
        o < p->op->output_count ? calloc((size_t)named_count(p->out_shape + o) + 1, sizeof(double)) : NULL;
}
static void close_values(double **out) {
  for (int o = 0; o < SMX_MAX_PORTS; o++) free(out[o]);
}

/* Scores that a softcap has rounded may change places, as in support/reference.h. */
static bool may_change_places(const named *p, const smx_port *port) {
  for (int k = 0; k < p->op->param_count; k++)
    if (!strcmp(p->op->params[k].name, "softcap"))
      return port->flags & SMX_PORT_INT && p->params.value[k] < 1e300;
  return false;
}

static void values_are_those_of_the_reference(void **state) {
  static const smx_dtype types[] = {{2, 32, 1}, {2, 64, 1}};
  named p;
  FOR_EACH_NAMED(p) {
    double *want[SMX_MAX_PORTS], worst = 0;
    assert_true(reference_of(p.op) || !strcmp(p.op->family, "matrix"));
    named_round(&p, SMX_F32);
    open_values(&p, want);
    evaluate(&p, want);
    for (int t = 0; t < 2; t++) {
      const double unit = p.op->tolerance * (t ? 0x1p-50 : 0x1p-24);
      assert_int_equal(named_run(&p, &(named_how){.type = types[t]}, false), SMX_OK);
      for (int o = 0; o < p.op->output_count; o++) {
        const bool any = may_change_places(&p, p.op->outputs + o);
        const int64_t count = p.wanted[o] && !any ? named_count(p.out_shape + o) : 0;
        double scale = 0x1p-100;
        for (int64_t k = 0; k < count; k++)
          scale = isfinite(want[o][k]) ? fmax(scale, fabs(want[o][k])) : scale;
        for (int64_t k = 0; k < count; k++) {
          const double got = value_at(p.op->outputs + o, types[t], p.out[o], k), is = want[o][k];
          const bool same = got == is || (isnan(got) && isnan(is));
          if (!same && !(fabs(got - is) <= unit * scale))
            fail_msg("%s variant %d seed %d %s: %s[%d] is %.17g, not %.17g", p.op->name, variant_, (int)seed_,
                     t ? "f64" : "f32", p.op->outputs[o].name, (int)k, got, is);
          if (!same) worst = fmax(worst, fabs(got - is) / (scale * (t ? 0x1p-50 : 0x1p-24)));
        }
      }
    }
    close_values(want);
    if (variant_ == 1 && seed_ == 1) printf("%-28s %6.2f units of %g\n", p.op->name, worst, p.op->tolerance);
  }
}

/* ---- gradients ---- */

/* A parameter called gradient, or detach, chooses another one than that of the values. */
static bool other_gradient(const named *p) {
  for (int k = 0; k < p->op->param_count; k++) {
    const char *name = p->op->params[k].name;
    if ((!strcmp(name, "gradient") || !strcmp(name, "detach")) && p->params.value[k] != 0) return true;
  }
  return false;
}

/* sum of dout * out */
static double objective(named *p, double **out) {
  double sum = 0;
  if (!evaluate(p, out)) return NAN;
  for (int o = 0; o < p->op->output_count; o++)
    for (int64_t k = 0; named_has_dout(p, o) && k < named_count(p->out_shape + o); k++)
      sum += p->dout[o][k] * out[o][k];
  return sum;
}

static void gradients_are_differences(void **state) {
  named p;
  FOR_EACH_NAMED(p) {
    double *out[SMX_MAX_PORTS];
    if (!(p.op->flags & SMX_OP_BACKWARD) || p.op->flags & SMX_OP_DETACHED || other_gradient(&p)) continue;
    open_values(&p, out);
    assert_int_equal(named_run(&p, &(named_how){.type = SMX_F64}, true), SMX_OK);
    for (int i = 0; i < p.op->input_count; i++) {
      if (!named_has_din(&p, i)) continue;
      double most = 0;
      for (int64_t k = 0; k < named_count(p.in_shape + i); k++)
        most = fmax(most, fabs(value_at(p.op->inputs + i, SMX_F64, p.din[i], k)));
      for (int64_t k = 0; k < named_count(p.in_shape + i); k++) {
        const double got = value_at(p.op->inputs + i, SMX_F64, p.din[i], k), x = p.in[i][k], h = 0x1p-17;
        double at[4];
        for (int s = 0; s < 4; s++) {
          static const int step[] = {-2, -1, 1, 2};
          p.in[i][k] = x + step[s] * h;
          at[s] = objective(&p, out);
        }
        p.in[i][k] = x;
        const double want = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h);
        if (!(fabs(got - want) <= 1e-7 * fmax(1, most)))
          fail_msg("%s variant %d seed %d: d%s[%d] is %.12g, differences give %.12g", p.op->name, variant_,
                   (int)seed_, p.op->inputs[i].name, (int)k, got, want);
      }
    }
    close_values(out);
  }
}

/* ---- bits ---- */

static void expect_bytes(const named *a, const named *b, const char *how) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    if (i < a->op->output_count && a->out[i]) {
      const smx_port *port = a->op->outputs + i;
      const size_t bytes = (size_t)named_count(a->out_shape + i) * dtype_size(named_dtype(port, SMX_F32));
      if (!b->out[i] || memcmp(a->out[i], b->out[i], bytes))
        fail_msg("%s variant %d, %s: %s differs", a->op->name, a->variant, how, port->name);
    }
    if (i < a->op->input_count && a->din[i]) {
      const size_t bytes = (size_t)named_count(a->in_shape + i) * dtype_size(SMX_F32);
      if (!b->din[i] || memcmp(a->din[i], b->din[i], bytes))
        fail_msg("%s variant %d, %s: d%s differs", a->op->name, a->variant, how, a->op->inputs[i].name);
    }
  }
}

static void the_same_bits(void **state) {
  named p;
  FOR_EACH_NAMED(p) {
    named_round(&p, SMX_F32);
    assert_int_equal(named_run(&p, &(named_how){.type = SMX_F32}, true), SMX_OK);
    for (way w = {0}; next_way(&w);)
      for (uint64_t layout = 0; layout < 3; layout++) {
        named q;
        char how[64];
        assert_true(named_make(&q, p.op, variant_, seed_, NULL, 0));
        named_round(&q, SMX_F32);
        assert_int_equal(named_run(&q, &(named_how){.ctx = w.ctx, .type = SMX_F32, .layout = layout}, true),
                         SMX_OK);
        snprintf(how, sizeof how, "way %d, layout %d", w.number, (int)layout);
        expect_bytes(&p, &q, how);
        named_free(&q);
      }
  }
}

/* f16 and bf16 are widened, and results are those of f32, rounded once. */
static void half_precision_is_rounded_once(void **state) {
  static const smx_dtype halves[] = {{2, 16, 1}, {4, 16, 1}};
  named made;
  FOR_EACH_NAMED(made)
  for (int h = 0; h < 2; h++) {
    named p, q;
    named_make(&p, made.op, variant_, seed_, NULL, 0);
    named_make(&q, made.op, variant_, seed_, NULL, 0);
    named_round(&p, halves[h]), named_round(&q, halves[h]);
    assert_int_equal(named_run(&p, &(named_how){.type = SMX_F32}, false), SMX_OK);
    assert_int_equal(named_run(&q, &(named_how){.type = halves[h], .layout = seed_}, false), SMX_OK);
    for (int o = 0; o < p.op->output_count; o++)
      for (int64_t k = 0; p.out[o] && k < named_count(p.out_shape + o); k++) {
        const smx_port *port = p.op->outputs + o;
        const double want = dtype_round(named_dtype(port, halves[h]), value_at(port, SMX_F32, p.out[o], k));
        const double got = value_at(port, halves[h], q.out[o], k);
        if (got != want && !(isnan(got) && isnan(want)))
          fail_msg("%s: %s[%d] is %g, not %g", p.op->name, port->name, (int)k, got, want);
      }
    named_free(&p), named_free(&q);
  }
}

/* ---- wrong calls ---- */

static unsigned char *copy_of(const guarded *g) {
  unsigned char *bytes = malloc(g->bytes + 1);
  return memcpy(bytes, g->block, g->bytes);
}

/* Runs a call that has to be refused, with a line, and leaves outputs as they were. */
static void refused(const named *p, named_call *c, smx_context *ctx, bool backward, smx_status status,
                    const char *what) {
  guarded *written = backward ? c->din : c->out;
  unsigned char *before[SMX_MAX_PORTS] = {NULL};
  for (int i = 0; i < SMX_MAX_PORTS; i++)
    if (written[i].block) before[i] = copy_of(written + i);
  const smx_status is = backward ? named_backward(p, ctx, c) : named_forward(p, ctx, c);
  if (is != status)
    fail_msg("%s, %s: status is %d (%s), not %d", p->op->name, what, is, smx_last_error(), status);
  assert_true(strlen(smx_last_error()) > 0);
  for (int i = 0; i < SMX_MAX_PORTS; i++) {
    if (before[i] && memcmp(before[i], written[i].block, written[i].bytes))
      fail_msg("%s, %s: something was written", p->op->name, what);
    free(before[i]);
  }
}

static void wrong_tensors(void **state) {
  named p;
  FOR_EACH_NAMED(p) {
    named_call c;
    named_open(&p, &(named_how){.type = SMX_F32}, &c);
    for (int i = 0; i < p.op->input_count; i++) {
      const smx_port *port = p.op->inputs + i;
      if (!c.ins[i]) continue;
      const smx_tensor *kept = c.ins[i];
      smx_tensor *t = &c.in[i].t;
      c.ins[i] = NULL;
      if (!(port->flags & (SMX_PORT_OPTIONAL | SMX_PORT_EITHER)))
        refused(&p, &c, NULL, false, SMX_ERR_NULL, port->name);
      c.ins[i] = kept;
      t->device.device_type = 2;
      refused(&p, &c, NULL, false, SMX_ERR_DEVICE, port->name);
      t->device.device_type = 1;
      const smx_dtype type = t->dtype;
      t->dtype = port->flags & SMX_PORT_MASK ? (smx_dtype){2, 8, 1} : (smx_dtype){0, 32, 1}; /* aligned */
      if (!(port->flags & SMX_PORT_INT)) refused(&p, &c, NULL, false, SMX_ERR_DTYPE, port->name);
      t->dtype = type;
      t->ndim = SMX_MAX_DIMS + 1;
      refused(&p, &c, NULL, false, SMX_ERR_SHAPE, port->name);
      t->ndim = p.in_shape[i].ndim;
    }
    for (int o = 0; o < p.op->output_count; o++) {
      smx_tensor *t = &c.out[o].t;
      if (!c.outs[o]) continue;
      for (int32_t d = 0; d < t->ndim; d++) {
        t->shape[d]++;
        refused(&p, &c, NULL, false, SMX_ERR_SHAPE, p.op->outputs[o].name);
        const bool read = p.op->flags & SMX_OP_BACKWARD && p.op->outputs[o].flags & SMX_PORT_SAVED;
        if (read) refused(&p, &c, NULL, true, SMX_ERR_SHAPE, p.op->outputs[o].name);
        t->shape[d]--;
      }
      void *kept = t->data;
      const bool fits = guard_count(c.in) && guard_count(c.out + o) &&
                        !(p.op->flags & SMX_OP_INPLACE && o == 0) &&
                        !(p.op->outputs[o].flags & SMX_PORT_DX) && c.in[0].t.dtype.bits == t->dtype.bits;
      t->data = c.in[0].t.data;
      if (fits) refused(&p, &c, NULL, false, SMX_ERR_ALIAS, p.op->outputs[o].name);
      t->data = kept;
    }
    p.params.axis = 0;
    refused(&p, &c, NULL, false, SMX_ERR_PARAM, "axis 0");
    p.params.axis = -1;
    named_close(&c);
  }
}

/* A class of -1 is none where there is no ignore_index. */
static bool may_be_none(const smx_op *op, const smx_port *port, int64_t value) {
  for (int k = 0; k < op->param_count; k++)
    if (!strcmp(op->params[k].name, "ignore_index")) return false;
  return port->flags & SMX_PORT_TARGET && value == -1;
}

/* Whole numbers that are no classes, and offsets that do not rise. */
static void wrong_numbers(void **state) {
  named p;
  FOR_EACH_NAMED(p)
  for (int i = 0; i < p.op->input_count; i++) {
    const char *bar = strchr(p.op->inputs[i].dims, '|');
    if (!bar || !p.in[i] || !named_count(p.in_shape + i)) continue;
    static const int64_t wrong[] = {-1, INT64_MIN, INT64_MAX, 1 << 20};
    for (size_t w = 0; w < COUNT_OF(wrong); w++) {
      named_call c;
      if (may_be_none(p.op, p.op->inputs + i, wrong[w])) continue;
      named_open(&p, &(named_how){.type = SMX_F32}, &c);
      memcpy(guard_element(c.in + i, named_count(p.in_shape + i) - 1), wrong + w, 8);
      refused(&p, &c, NULL, false, bar[3] == '=' ? SMX_ERR_SHAPE : SMX_ERR_TARGET, p.op->inputs[i].name);
      named_close(&c);
    }
  }
}

/* Every allocation failing in turn. */
static void no_memory(void **state) {
  named p;
  FOR_EACH_NAMED(p)
  for (int backward = 0; backward <= !!(p.op->flags & SMX_OP_BACKWARD); backward++)
    for (int64_t fail = 0; fail < 50; fail++) {
      guard_heap heap = {.left = -1};
      named_call c;
      smx_context *ctx = guard_context(&heap, (smx_context_options){.threads = 1});
      named_open(&p, &(named_how){.type = SMX_F16, .layout = 5}, &c);
      if (backward) assert_int_equal(named_forward(&p, NULL, &c), SMX_OK);
      heap.left = fail;
      const smx_status status = backward ? named_backward(&p, ctx, &c) : named_forward(&p, ctx, &c);
      if (status == SMX_ERR_NOMEM) {
        heap.left = fail;
        refused(&p, &c, ctx, backward, SMX_ERR_NOMEM, "no memory");
      } else assert_int_equal(status, SMX_OK);
      heap.left = -1;
      smx_context_destroy(ctx);
      assert_int_equal(heap.live, 0);
      named_close(&c);
      if (status == SMX_OK) break;
    }
}

/* Every name of a dimension 0, and 1, in turn: done, or refused with a line. */
static void empty_dimensions(void **state) {
  for (size_t n = 0; named_at(n); n++)
    for (int i = 0; i < named_at(n)->input_count; i++) {
      char words[128], *rest = NULL;
      snprintf(words, sizeof words, "%s", named_at(n)->inputs[i].dims);
      for (char *w = strtok_r(words, " |<=+*", &rest); w; w = strtok_r(NULL, " |<=+*", &rest))
        for (int variant = 0; variant < NAMED_VARIANTS; variant++)
          for (int64_t size = 0; size <= 1; size++) {
            named p;
            const bool made = named_make(&p, named_at(n), variant, 1, w, size);
            if (!made) assert_true(strlen(smx_last_error()) > 0);
            const smx_status status = made ? named_run(&p, &(named_how){.type = SMX_F32}, true) : SMX_OK;
            if (status != SMX_OK && status != SMX_ERR_SHAPE && status != SMX_ERR_PARAM &&
                status != SMX_ERR_TARGET)
              fail_msg("%s with %s = %d: %d, %s", p.op->name, w, (int)size, status, smx_last_error());
            named_free(&p);
          }
    }
}

/* Ports with a gradient are saved: bindings need their shapes. Most variants can be called. */
static void the_table(void **state) {
  for (size_t n = 0; named_at(n); n++) {
    const smx_op *op = named_at(n);
    int made = 0;
    for (int variant = 0; variant < NAMED_VARIANTS; variant++) {
      named p;
      made += named_make(&p, op, variant, 1, NULL, 0);
      named_free(&p);
    }
    if (made < NAMED_VARIANTS / 2) fail_msg("%s: %d variants, %s", op->name, made, smx_last_error());
    for (int i = 0; i < op->input_count; i++) {
      const uint32_t flags = op->inputs[i].flags;
      assert_int_equal(op->inputs[i].shape, SMX_SHAPE_DIMS);
      if (flags & SMX_PORT_GRAD && !(flags & SMX_PORT_SAVED))
        fail_msg("%s: %s", op->name, op->inputs[i].name);
    }
    for (int o = 0; o < op->output_count; o++) assert_int_equal(op->outputs[o].shape, SMX_SHAPE_DIMS);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_table),
      cmocka_unit_test(values_are_those_of_the_reference),
      cmocka_unit_test(gradients_are_differences),
      cmocka_unit_test(the_same_bits),
      cmocka_unit_test(half_precision_is_rounded_once),
      cmocka_unit_test(wrong_tensors),
      cmocka_unit_test(wrong_numbers),
      cmocka_unit_test(no_memory),
      cmocka_unit_test(empty_dimensions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
