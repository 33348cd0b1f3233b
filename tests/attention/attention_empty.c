/* attention_empty.c - proves that every function of attention takes a call without queries, without
 * keys, without heads or sequences, and packed or paged sequences that are empty, in every layout
 * of the tensors: results are 0 (winners -1, the lse of softmax -inf, of others what stands beside
 * the keys), and nothing around the buffers is read or written, scratch memory included. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attention_calls.h"
#include "guard.h"
#include "unit.h"
#include "util.h"

/* More than could be looked at one after another. */
#define MANY ((int64_t)1 << 40)

/* What is missing: fields that are 0. */
static const struct {
  const char *name;
  attention_sizes n;
} cases[] = {
    {"no queries", {2, 4, 2, 0, 300, 20, 12, 0, 0, 0, 0, 0}},
    {"no keys", {2, 4, 2, 70, 0, 20, 12, 0, 0, 0, 0, 0}},
    {"neither", {2, 4, 2, 0, 0, 20, 12, 0, 0, 0, 0, 0}},
    {"no keys in use", {2, 4, 2, 70, 300, 20, 12, 0, 0, 0, 0, 0}},
    {"no sequences", {0, 4, 2, 7, 9, 20, 12, 0, 0, 0, 0, 0}},
    {"no heads", {2, 0, 0, 7, 9, 20, 12, 0, 0, 0, 0, 0}},
    {"one query, no keys", {1, 1, 1, 1, 0, 1, 1, 1024, 0, 0, 0, 0}},
    {"sequences of nothing", {MANY, 2, 1, 0, 0, 20, 12, 0, 0, 0, 0, 0}},
};

/* How sequences lie in the tensors. */
typedef enum pack {
  PLAIN,
  LENGTHS,
  PACKED_QUERIES,
  PACKED_KEYS,
  PACKED_LENGTHS,
  PACKED_BOTH,
  PAGES,
  PACKS
} pack;
static const char *const pack_names[] = {
    "plain", "lengths", "packed queries", "packed keys", "packed keys, lengths", "packed", "pages"};

static bool with_lengths(pack how) { return how == LENGTHS || how == PACKED_LENGTHS || how == PAGES; }

static const guard_layout layouts[] = {
    {0}, {.order = 2, .low = true}, {.gaps = 15, .order = 5}, {.reversed = 15}};

typedef struct call {
  const attention_call *f;
  attention_sizes n;
  guarded t[ATTENTION_PORTS], ints[3];
  const smx_tensor *given[ATTENTION_PORTS];
  int ports;
  smx_attention_options options;
} call;

static bool output(const call *c, int i) {
  return c->f->ports[2 * i + 1] == '=' || c->f->ports[2 * i + 1] == '~';
}

static smx_dtype dtype_of(char letter) { return letter == 'W' ? SMX_I32 : SMX_F32; }

/* What an empty row has, or a random number where nothing is promised. */
static double value_of(const call *c, char letter, rng *r) {
  if (letter == 'W') return -1;
  if (letter == 'L') return c->n.lk ? rng_normal(r) : -INFINITY;
  return rng_normal(r);
}

static void place_ints(call *c, int i, int32_t ndim, const int64_t *shape) {
  guard_tensor(c->ints + i, SMX_I32, ndim, shape, (guard_layout){0});
  memset(c->ints[i].block, 0, c->ints[i].bytes);
}

/* The options of a pack, in which every sequence is as empty as the case says. Lengths and pages
 * are those of no keys. */
static void pack_options(call *c, pack how) {
  const int64_t batch[] = {c->n.batch}, offsets[] = {c->n.batch + 1}, pages[] = {c->n.batch, 3};
  for (int i = 0; i < 3 && how != PLAIN; i++)
    place_ints(c, i, i == 2 ? 2 : 1, i == 2 ? pages : with_lengths(how) && i == 0 ? batch : offsets);
  c->n.packed_queries = how == PACKED_QUERIES || how == PACKED_BOTH;
  c->n.packed_keys = how == PACKED_KEYS || how == PACKED_LENGTHS || how == PACKED_BOTH;
  if (with_lengths(how)) c->options.lengths = &c->ints[0].t;
  if (how == PAGES) c->n.pages = 4, c->n.page = 5, c->n.lk = 15, c->options.block_table = &c->ints[2].t;
  int32_t *q = (int32_t *)(void *)c->ints[0].block, *k = (int32_t *)(void *)c->ints[1].block;
  if (c->n.packed_queries) q[c->n.batch] = (int32_t)c->n.lq, c->options.query_offsets = &c->ints[0].t;
  if (c->n.packed_keys) k[c->n.batch] = (int32_t)c->n.lk, c->options.key_offsets = &c->ints[1].t;
}

static void open_call(call *c, const attention_call *f, const attention_sizes *n, pack how,
                      guard_layout layout) {
  rng r = {n->lq + 7 * n->lk};
  *c = (call){.f = f, .n = *n, .ports = (int)strlen(f->ports) / 2};
  smx_attention_init(&c->options);
  c->options.key_start = n->key_start;
  pack_options(c, how);
  for (int i = 0; i < c->ports; i++) {
    int64_t shape[5];
    const char letter = f->ports[2 * i];
    if (letter == 'H' || (letter == 'S' && output(c, i) && (c->n.packed_queries || c->n.packed_keys)))
      continue;
    guard_layout own = letter == 'T' ? (guard_layout){.low = layout.low} : layout;
    guard_tensor(c->t + i, dtype_of(letter), attention_shape(&c->n, letter, shape), shape, own);
    for (int64_t x = 0; !output(c, i) && x < guard_count(c->t + i); x++)
      dtype_store(c->t[i].t.dtype, guard_element(c->t + i, x), value_of(c, letter, &r));
    c->given[i] = &c->t[i].t;
  }
}

static void close_call(call *c) {
  for (int i = 0; i < c->ports; i++) guard_free(c->t[i].block);
  for (int i = 0; i < 3; i++) guard_free(c->ints[i].block);
}

static void expect_empty(const call *c, const char *what) {
  for (int i = 0; i < c->ports; i++) {
    const char letter = c->f->ports[2 * i];
    if (!output(c, i) || !c->given[i] || letter == 'T') continue;
    const double want = letter == 'L' ? -INFINITY : letter == 'W' ? -1 : 0;
    for (int64_t x = 0; x < guard_count(c->t + i); x++) {
      const double have = dtype_load(c->t[i].t.dtype, guard_element(c->t + i, x));
      if (letter == 'L' && c->options.weights != SMX_ATTENTION_SOFTMAX && have == have) continue;
      if (have != want && !(letter == 'S' && have == -INFINITY))
        fail_msg("%s: tensor %d (%c), element %d is %g", what, i, letter, (int)x, have);
    }
  }
}

/* Whether a call can be: a packed sequence without heads is one, a page without keys is not. */
static bool possible(const attention_call *f, const attention_sizes *n, pack how) {
  const bool packed =
      how == PACKED_QUERIES || how == PACKED_KEYS || how == PACKED_LENGTHS || how == PACKED_BOTH;
  if (n->batch == MANY && (how != PLAIN || strchr(f->ports, 'U')))
    return false; /* these have an element a sequence */
  if (!with_lengths(how) && n->batch && n->heads && n->lq && n->lk) return false; /* rows see keys */
  if ((with_lengths(how) && !n->lk) || (how == PAGES && !(f->flags & CALL_PAGED))) return false;
  return !packed || (f->flags & CALL_PACKED && (n->batch || (!n->lq && !n->lk)));
}

static void run(const attention_call *f, int which, pack how, int layout, smx_context *ctx, int weights) {
  const attention_more more = {
      .op = smx_op_find("softmax"), .stage = weights % 4, .ridge = 1, .symmetric = weights % 2};
  char what[200];
  call c;
  attention_sizes n = cases[which].n;
  if (!possible(f, &n, how)) return;
  open_call(&c, f, &n, how, layouts[layout]);
  c.options.weights = (smx_attention_weights)(f->flags & (CALL_KINDS | CALL_GRADS) ? weights : 0);
  memcpy(c.options.param, attention_params[c.options.weights], sizeof c.options.param);
  snprintf(what, sizeof what, "%s: %s, %s, layout %d, weights %d", f->name, cases[which].name,
           pack_names[how], layout, weights);
  const smx_status status = f->run(ctx, &c.options, &more, c.given);
  const bool whole_row = status == SMX_ERR_PARAM && !strcmp(f->name, "states") &&
                         strstr(smx_last_error(), "needs the whole row");
  const bool no_gradient =
      status == SMX_ERR_NO_BACKWARD && f->flags & CALL_GRADS && strstr(smx_last_error(), "options.weights");
  if (status != SMX_OK && !whole_row && !no_gradient) fail_msg("%s: %s", what, smx_last_error());
  if (status == SMX_OK) expect_empty(&c, what);
  close_call(&c);
}

/* Kinds of weights; where there is one alone, two stages of scores, and both forms of the tropical
 * one. */
static int weights_of(const attention_call *f) {
  return f->flags & (CALL_KINDS | CALL_GRADS) ? SMX_ATTENTION_KINDS : 2;
}

static void every_function(void **state) {
  guard_heap heap = {.left = -1};
  for (int threads = 1; threads <= 3; threads += 2) {
    heap.low = threads > 1;
    smx_context *ctx = guard_context(&heap, (smx_context_options){.threads = threads});
    for (int f = 0; f < ATTENTION_CALLS; f++)
      for (int which = 0; which < (int)COUNT_OF(cases); which++)
        for (int how = 0; how < PACKS; how++)
          for (int layout = 0; layout < (int)COUNT_OF(layouts); layout++)
            for (int w = 0; w < (layout ? 1 : weights_of(attention_calls + f)); w++)
              run(attention_calls + f, which, (pack)how, layout, ctx, w);
    smx_context_destroy(ctx);
    assert_int_equal(heap.live, 0);
  }
}

/* ---- calls of other shapes, with sequences beyond number in which there is nothing ---- */

enum { HEADS = 2, COLUMNS = 4 };

static smx_tensor nothing(smx_dtype dtype, int32_t ndim, int64_t *shape) {
  return (smx_tensor){.device = {1, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
}

static void expect_ok(smx_status status, const char *what) {
  if (status != SMX_OK) fail_msg("%s: %s", what, smx_last_error());
}

static void rotary(smx_context *ctx) {
  int64_t rows[] = {MANY, HEADS, 0, COLUMNS}, pairs[] = {MANY, HEADS, 0, COLUMNS / 2};
  const smx_tensor x = nothing(SMX_F32, 4, rows), steps = nothing(SMX_F32, 4, pairs);
  smx_rope_options o = {.size = sizeof o, .positions = &steps, .cumulative = 1};
  expect_ok(smx_rope(ctx, NULL, &x, &x, NULL), "rope");
  expect_ok(smx_rope(ctx, &o, &x, &x, NULL), "rope, cumulative");
  expect_ok(smx_rope_backward(ctx, NULL, &x, NULL, &x, NULL, NULL), "rope_backward");
  expect_ok(smx_rope_backward(ctx, &o, &x, &x, &x, &steps, NULL), "rope_backward, positions");
}

/* lengths, budgets: one number for all. */
static void selected(smx_context *ctx) {
  int64_t keys[] = {MANY, HEADS, 0}, lists[] = {MANY, HEADS}, still[] = {0, 0};
  int32_t zero = 0;
  const smx_tensor mass = nothing(SMX_F32, 3, keys), kept = nothing(SMX_I32, 3, keys);
  smx_tensor numbers = nothing(SMX_I32, 1, lists), budgets = nothing(SMX_I32, 2, lists);
  numbers.data = budgets.data = &zero, numbers.strides = budgets.strides = still;
  smx_attention_select_options o = {.size = sizeof o, .lengths = &numbers, .budgets = &budgets};
  expect_ok(smx_attention_select(ctx, NULL, &mass, &kept, NULL), "select");
  expect_ok(smx_attention_select(ctx, &o, &mass, &kept, NULL), "select, lengths and budgets");
}

static void merged(smx_context *ctx) {
  int64_t rows[] = {MANY, HEADS, 0, COLUMNS},
          split[] = {MANY, HEADS, 0, 1, smx_attention_state_width(COLUMNS)};
  const smx_tensor o = nothing(SMX_F32, 4, rows), states = nothing(SMX_F32, 5, split);
  const smx_tensor *all[] = {&states, &states};
  expect_ok(smx_attention_merge(ctx, NULL, 2, all, &o, NULL), "merge");
}

/* Rows without elements, along either axis. */
static void rows_of_nothing(smx_context *ctx) {
  int64_t shapes[2][2] = {{0, MANY}, {MANY, 0}};
  for (int32_t axis = 0; axis < 2; axis++) {
    const smx_tensor x = nothing(SMX_F32, 2, shapes[axis]);
    expect_ok(smx_softmax(ctx, axis, &x, &x), "softmax");
    expect_ok(smx_log_softmax(ctx, axis, &x, &x), "log_softmax");
    expect_ok(smx_softmax_backward(ctx, axis, &x, &x, &x), "softmax_backward");
  }
}

static void others(void **state) {
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    const smx_context_options options = {.size = sizeof options, .threads = threads};
    smx_context *ctx = NULL;
    assert_int_equal(smx_context_create(&options, &ctx), SMX_OK);
    rotary(ctx), selected(ctx), merged(ctx), rows_of_nothing(ctx);
    smx_context_destroy(ctx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_function), cmocka_unit_test(others)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
