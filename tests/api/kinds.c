/* kinds.c - proves that the tables of kinds of attention weights and of steps of sampling are what
 * the library goes by: complete, in the order of their numbers, with defaults that a call takes and
 * ranges that it refuses anything beyond. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"
#include "util.h"

/* What smx_attention_kind and smx_step_info have in common. */
typedef struct facts {
  const char *texts[5]; /* name, title, formula, about, source */
  const smx_param *params;
  int32_t param_count;
} facts;

static facts kind_at(size_t i) {
  const smx_attention_kind *k = smx_attention_kind_at(i);
  return (facts){{k->name, k->title, k->formula, k->about, k->source}, k->params, k->param_count};
}
static facts step_at(size_t i) {
  const smx_step_info *s = smx_step_at(i);
  return (facts){{s->name, s->title, s->formula, s->about, s->source}, s->params, s->param_count};
}

static void check_name(const char *name) {
  assert_true(islower((unsigned char)name[0]));
  for (const char *c = name; *c; c++)
    assert_true(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
}

static void check_param(const char *of, const smx_param *p) {
  check_name(p->name);
  assert_true(p->help && *p->help);
  if (!(p->min < p->max)) fail_msg("%s: %s: an empty range", of, p->name);
  if (!isnan(p->def) && !(p->def >= p->min && p->def <= p->max))
    fail_msg("%s: %s: %g is out of range", of, p->name, p->def);
  if (p->flags & SMX_PARAM_INT) assert_true(p->def == floor(p->def));
  double choices = 0;
  while (p->choices && p->choices[(int)choices]) choices++;
  if (p->choices) assert_true(p->min == 0 && p->max == choices - 1);
}

static void check_facts(size_t count, facts (*at)(size_t), int most) {
  for (size_t i = 0; i < count; i++) {
    const facts f = at(i);
    for (size_t t = 0; t < COUNT_OF(f.texts); t++)
      if (!f.texts[t] || !*f.texts[t]) fail_msg("%d: text %d is missing", (int)i, (int)t);
    check_name(f.texts[0]);
    for (size_t j = 0; j < i; j++) assert_string_not_equal(f.texts[0], at(j).texts[0]);
    assert_true(f.param_count >= 0 && f.param_count <= most);
    for (int32_t p = 0; p < f.param_count; p++) {
      check_param(f.texts[0], f.params + p);
      /* a number that may be left out has none after it that may not */
      if (p && (f.params[p].flags & SMX_PARAM_REQUIRED))
        assert_true(f.params[p - 1].flags & SMX_PARAM_REQUIRED);
    }
  }
}

static void the_tables_are_whole(void **state) {
  check_facts(smx_attention_kind_count(), kind_at, SMX_ATTENTION_PARAMS);
  check_facts(smx_step_count(), step_at, 3);
  for (size_t i = 0; i < SMX_ATTENTION_KINDS; i++) {
    assert_int_equal(smx_attention_kind_at(i)->id, i);
    assert_ptr_equal(smx_attention_kind_find(smx_attention_kind_at(i)->name), smx_attention_kind_at(i));
  }
  for (size_t i = 0; i < SMX_STEP_KINDS; i++) {
    assert_int_equal(smx_step_at(i)->id, i);
    assert_ptr_equal(smx_step_find(smx_step_at(i)->name), smx_step_at(i));
  }
  assert_true(smx_attention_kind_count() == SMX_ATTENTION_KINDS && smx_step_count() == SMX_STEP_KINDS);
  assert_null(smx_attention_kind_at(SMX_ATTENTION_KINDS));
  assert_null(smx_attention_kind_at(SIZE_MAX));
  assert_null(smx_step_at(SMX_STEP_KINDS));
  assert_null(smx_attention_kind_find("no such kind"));
  assert_null(smx_attention_kind_find(NULL));
  assert_null(smx_step_find(NULL));
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { ROWS = 3, KEYS = 5, WIDTH = 2 };

typedef struct small {
  double q[ROWS * WIDTH], k[KEYS * WIDTH], o[ROWS * WIDTH], lse[ROWS];
  int64_t rows[4], keys[4];
  smx_tensor tq, tk, to, tl;
  smx_attention_options options;
} small;

static void begin(small *s) {
  *s = (small){.rows = {1, 1, ROWS, WIDTH}, .keys = {1, 1, KEYS, WIDTH}};
  for (int i = 0; i < ROWS * WIDTH; i++) s->q[i] = sin(1 + i);
  for (int i = 0; i < KEYS * WIDTH; i++) s->k[i] = cos(2 * i);
  s->tq = (smx_tensor){.data = s->q, .ndim = 4, .dtype = SMX_F64, .shape = s->rows};
  s->tk = (smx_tensor){.data = s->k, .ndim = 4, .dtype = SMX_F64, .shape = s->keys};
  s->to = s->tl = s->tq;
  s->to.data = s->o, s->tl.data = s->lse, s->tl.ndim = 3;
  smx_attention_init(&s->options);
}

static smx_status forward(small *s) {
  return smx_attention(NULL, &s->options, &s->tq, &s->tk, &s->tk, &s->to, &s->tl);
}

static void weights_have_their_defaults(void **state) {
  for (int w = 0; w < SMX_ATTENTION_KINDS; w++) {
    const smx_attention_kind *kind = smx_attention_kind_at((size_t)w);
    small s;
    begin(&s);
    for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) s.options.param[i] = 99;
    assert_int_equal(smx_attention_set_weights(&s.options, (smx_attention_weights)w), SMX_OK);
    assert_int_equal(s.options.weights, w);
    for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) {
      const double want = i < kind->param_count ? kind->params[i].def : 0;
      assert_true(s.options.param[i] == want || (isnan(want) && isnan(s.options.param[i])));
    }
    if (forward(&s)) fail_msg("%s: %s", kind->name, smx_last_error());
    for (int i = 0; i < ROWS * WIDTH; i++) assert_true(isfinite(s.o[i]));
  }
  small s;
  begin(&s);
  refused(smx_attention_set_weights(NULL, SMX_ATTENTION_SOFTMAX), SMX_ERR_NULL, "options");
  refused(smx_attention_set_weights(&s.options, SMX_ATTENTION_KINDS), SMX_ERR_PARAM, "weights is");
  assert_int_equal(s.options.weights, SMX_ATTENTION_SOFTMAX);
}

/* A number beyond either end of each parameter, one that is not whole, NaN, and one that the kind
 * does not have. */
static void weights_refuse_other_numbers(void **state) {
  for (int w = 0; w < SMX_ATTENTION_KINDS; w++) {
    const smx_attention_kind *kind = smx_attention_kind_at((size_t)w);
    for (int i = 0; i < SMX_ATTENTION_PARAMS; i++) {
      const smx_param *p = i < kind->param_count ? kind->params + i : NULL;
      const double wrong[] = {p ? nextafter(p->min, -INFINITY) : 1, p ? nextafter(p->max, INFINITY) : -1,
                              p && (p->flags & SMX_PARAM_INT) ? p->min + 0.5 : INFINITY,
                              p && isnan(p->def) ? -INFINITY : NAN};
      char part[64];
      snprintf(part, sizeof part, "options.param[%d] is ", i);
      for (size_t x = 0; x < COUNT_OF(wrong); x++) {
        small s;
        begin(&s);
        smx_attention_set_weights(&s.options, (smx_attention_weights)w);
        s.options.param[i] = wrong[x];
        s.o[0] = 7;
        refused(forward(&s), SMX_ERR_PARAM, part);
        assert_non_null(strstr(smx_last_error(), kind->name));
        if (p) assert_non_null(strstr(smx_last_error(), p->name));
        assert_true(s.o[0] == 7);
      }
    }
  }
}

/* The default that depends on the call is -ln of the keys, pages or not, and not to be had where
 * keys are split. */
static void the_shift_of_sigmoid(void **state) {
  small by_default, given;
  int32_t pages[KEYS] = {0, 1, 2, 3, 4};
  int64_t lengths[] = {KEYS - 1}, one[] = {1}, table[] = {1, KEYS}, cache[] = {KEYS, 1, 1, WIDTH};
  double states[1];
  smx_tensor tl = {.data = lengths, .ndim = 1, .dtype = SMX_I64, .shape = one};
  smx_tensor tt = {.data = pages, .ndim = 2, .dtype = SMX_I32, .shape = table},
             ts = {.data = states, .dtype = SMX_F64};
  for (int paged = 0; paged < 2; paged++) {
    begin(&by_default), begin(&given);
    for (small *s = &by_default; s; s = s == &by_default ? &given : NULL) {
      smx_attention_set_weights(&s->options, SMX_ATTENTION_SIGMOID);
      s->options.lengths = &tl;
      if (paged) s->options.block_table = &tt, memcpy(s->keys, cache, sizeof cache);
    }
    given.options.param[0] = -log(KEYS);
    assert_int_equal(forward(&by_default), SMX_OK);
    assert_int_equal(forward(&given), SMX_OK);
    for (int i = 0; i < ROWS * WIDTH; i++) assert_true(fabs(by_default.o[i] - given.o[i]) < 1e-15);
    given.options.param[0] = 0;
    assert_int_equal(forward(&given), SMX_OK);
    assert_true(fabs(by_default.o[0] - given.o[0]) > 1e-3);
  }
  begin(&by_default);
  smx_attention_set_weights(&by_default.options, SMX_ATTENTION_SIGMOID);
  refused(
      smx_attention_states(NULL, &by_default.options, &by_default.tq, &by_default.tk, &by_default.tk, &ts),
      SMX_ERR_PARAM, "options.param[0] is nan");
  by_default.options.key_start = 1024;
  refused(forward(&by_default), SMX_ERR_PARAM, "options.param[0] is nan");
}

/* ---- steps ----------------------------------------------------------------------------------- */

static smx_status draw(const smx_step_info *info, double a, double b, double c) {
  static const double z[] = {1, 3, 2, -1};
  static const int64_t tokens[] = {0, 2};
  static const double values[] = {0.5, -0.5};
  const smx_step step = {(smx_step_kind)info->id, a, b, c, tokens, values, COUNT_OF(tokens)};
  const smx_sample_options o = {.size = sizeof o, .steps = &step, .step_count = 1};
  int64_t index = -7;
  smx_status status = smx_sample_f64(NULL, &o, 1, COUNT_OF(z), z, &index, NULL);
  assert_true(status ? index == -7 : index >= 0 && index < 4);
  return status;
}

static void steps_take_the_numbers_of_their_table(void **state) {
  for (size_t i = 0; i < smx_step_count(); i++) {
    const smx_step_info *info = smx_step_at(i);
    double v[3] = {0};
    for (int32_t p = 0; p < info->param_count; p++) v[p] = info->params[p].def;
    if (draw(info, v[0], v[1], v[2])) fail_msg("%s: %s", info->name, smx_last_error());
    for (int32_t p = 0; p < info->param_count; p++) {
      const smx_param *param = info->params + p;
      const double wrong[] = {nextafter(param->min, -INFINITY), nextafter(param->max, INFINITY), NAN,
                              param->flags & SMX_PARAM_INT ? param->min + 0.5 : INFINITY};
      for (size_t x = 0; x < COUNT_OF(wrong); x++) {
        double w[3] = {v[0], v[1], v[2]};
        char part[96];
        w[p] = wrong[x];
        snprintf(part, sizeof part, "step 0, %s: %s is ", info->name, param->name);
        refused(draw(info, w[0], w[1], w[2]), SMX_ERR_PARAM, part);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_tables_are_whole),
      cmocka_unit_test(weights_have_their_defaults),
      cmocka_unit_test(weights_refuse_other_numbers),
      cmocka_unit_test(the_shift_of_sigmoid),
      cmocka_unit_test(steps_take_the_numbers_of_their_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
