/* attend_results.c - what the verb `attention` can give: a table of entry points of the library and
 * their results. */
#include "attend.h"
#include "fault.h"
#include "parse.h"
#include "report/table.h"

#include <stdlib.h>
#include <string.h>

/* ---- Adding results ---- */

static const dtype *real_type(const attention *a) {
  for (int i = Q; i <= V; i++)
    if (a->in[i].path && a->in[i].want->type.bits == 64) return dtype_named("f64");
  return dtype_named("f32");
}

static const dtype *type_or(const attention *a, const dtype *other) {
  return a->o->type ? a->o->type : other;
}

/* A result of the library's shape. It is written without its first `missing` dimensions, and with
 * heads_last the length before the heads. */
static int add(attention *a, const char *name, const dtype *type, int32_t ndim, const int64_t *shape,
               int32_t missing, bool heads_last) {
  static const int32_t orders[2][5] = {{0, 1, 2, 3, 4}, {0, 2, 1, 3, 4}};
  attend_result *r = &a->out[a->count++];
  view *v = &r->view;
  int64_t stride = 1, count;
  r->name = name, r->type = type, r->whole.ndim = ndim - missing;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    const int32_t d = orders[heads_last][i];
    v->shape[d] = shape[d], v->strides[d] = stride;
    if (i >= missing) r->whole.dim[i - missing] = shape[d];
    if (__builtin_mul_overflow(stride, shape[d] ? shape[d] : 1, &stride)) return fault_memory(SIZE_MAX);
  }
  v->tensor = (smx_tensor){
      .device = {1, 0}, .ndim = ndim, .dtype = type->type, .shape = v->shape, .strides = v->strides};
  if (!count_elements(ndim, v->shape, &count) || count > INT64_MAX / 8) return fault_memory(SIZE_MAX);
  v->tensor.data = r->data = malloc((size_t)count * type->bytes + 1);
  return r->data ? EXIT_OK : fault_memory((size_t)count * type->bytes);
}

/* One of an input's layout. */
static int add_like(attention *a, const char *name, const dtype *type, const input *like, int32_t ndim,
                    const int64_t *shape) {
  const int32_t missing = 4 - like->array.ndim;
  return add(a, name, type, ndim, shape, missing, a->heads_last && missing < 2);
}

/* One of heads before lengths, whatever the layout. */
static int add_matrix(attention *a, const char *name, const dtype *type, int32_t ndim, const int64_t *shape) {
  return add(a, name, type, ndim, shape, 4 - a->in[Q].array.ndim, false);
}

/* ---- Acts ---- */

static const smx_tensor *given(const attention *a, int i) {
  return a->in[i].path ? &a->view[i].tensor : NULL;
}

smx_status attend_forward(const attention *a, const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                          const smx_tensor *o, const smx_tensor *second) {
  const smx_attention_options *how = &a->how;
  switch (a->way) {
    case BY_OPERATOR:
      return smx_attention_rows_input(a->context, how, a->op, &a->params, given(a, ROW), q, k, v, o);
    case BY_TROPICAL: return smx_attention_tropical(a->context, how, a->symmetric, q, k, v, o, second);
    case BY_PARALLAX: return smx_attention_parallax(a->context, how, q, k, v, &a->view[SECOND].tensor, o);
    case BY_LOCAL: return smx_attention_local_linear(a->context, how, a->ridge, q, k, v, o);
    case BY_ADDITIVE: return smx_attention_additive(a->context, how, &a->view[ADDITIVE].tensor, q, k, v, o);
    default: return smx_attention(a->context, how, q, k, v, o, second);
  }
}

/* lse, or the winners of the max-plus semiring; other ways have no second output. */
static int add_second(attention *a, const int64_t *o) {
  if (a->way == BY_TROPICAL) return add_like(a, "winners", dtype_named("i32"), &a->in[Q], 4, o);
  return a->way == BY_KIND ? add_like(a, "lse", real_type(a), &a->in[Q], 3, o) : EXIT_OK;
}

static int plan_o(attention *a) {
  const int64_t *q = a->view[Q].shape, o[] = {q[0], q[1], q[2], a->view[V].shape[3]};
  int code = add_like(a, "o", type_or(a, a->in[Q].want), &a->in[Q], 4, o);
  return code || !a->o->out ? code : add_second(a, o);
}
static smx_status run_o(attention *a) {
  const smx_tensor *second = a->count > 1 ? &a->out[1].view.tensor : NULL;
  return attend_forward(a, &a->view[Q].tensor, &a->view[K].tensor, &a->view[V].tensor, &a->out[0].view.tensor,
                        second);
}

static int plan_scores(attention *a) {
  const int64_t *q = a->view[Q].shape, *k = a->view[K].shape,
                *pages = a->how.block_table ? a->view[BLOCK_TABLE].shape : NULL;
  int64_t s[] = {q[0], q[1], q[2], k[2]};
  if (pages && a->how.block_table->ndim == 2 && __builtin_mul_overflow(k[2], pages[1], &s[3]))
    return fault_memory(SIZE_MAX);
  return add_matrix(a, a->act->name, type_or(a, a->in[Q].want), 4, s);
}

static int plan_mass(attention *a) {
  const int64_t *q = a->view[Q].shape, *k = a->view[K].shape, o[] = {q[0], q[1], q[2], 1};
  int code = add_matrix(a, "mass", real_type(a), 3, k);
  if (!code) code = add_matrix(a, "o", real_type(a), 4, o);
  if (!code) code = add_matrix(a, "lse", real_type(a), 3, o);
  for (int i = 1; i < a->count; i++) a->out[i].hidden = true;
  return code;
}
static smx_status run_mass(attention *a) {
  const smx_tensor *q = &a->view[Q].tensor, *k = &a->view[K].tensor, *lse = &a->out[2].view.tensor;
  view v = a->view[K]; /* any values will do: only lse is wanted */
  v.shape[3] = v.shape[3] < 1 ? v.shape[3] : 1;
  v.tensor.shape = v.shape, v.tensor.strides = v.strides;
  smx_status status = smx_attention(a->context, &a->how, q, k, &v.tensor, &a->out[1].view.tensor, lse);
  if (status != SMX_OK) return status;
  return smx_attention_column_mass(a->context, &a->how, q, k, lse, given(a, ROW_WEIGHTS),
                                   &a->out[0].view.tensor);
}

static int plan_keys(attention *a) {
  const int64_t *k = a->view[K].shape, keys[] = {k[0], a->shared ? 1 : k[1], a->keep};
  int code = plan_mass(a);
  a->out[0].hidden = true;
  if (!code) code = add_matrix(a, "keys", dtype_named("i32"), 3, keys);
  return code ? code : add_matrix(a, "kept", dtype_named("i32"), 2, keys);
}
static smx_status run_keys(attention *a) {
  smx_status status = run_mass(a);
  a->select.lengths = a->how.lengths;
  if (status != SMX_OK) return status;
  return smx_attention_select(a->context, &a->select, &a->out[0].view.tensor, &a->out[3].view.tensor,
                              &a->out[4].view.tensor);
}

static int plan_states(attention *a) {
  const int64_t *q = a->view[Q].shape, keys = a->view[K].shape[2];
  const int64_t s[] = {q[0], q[1], q[2], keys / 1024 + (keys % 1024 != 0),
                       smx_attention_state_width(a->view[V].shape[3])};
  return add(a, "states", real_type(a), 5, s, 0, false);
}
static smx_status run_states(attention *a) {
  return smx_attention_states(a->context, &a->how, &a->view[Q].tensor, &a->view[K].tensor, &a->view[V].tensor,
                              &a->out[0].view.tensor);
}

static int plan_merged(attention *a) {
  const int64_t *s = a->state_views[0].shape, o[] = {s[0], s[1], s[2], a->size};
  const dtype *real = a->states[0].want;
  int code = add(a, "o", type_or(a, real), 4, o, 0, a->heads_last);
  return code || !a->o->out ? code : add(a, "lse", real, 3, o, 0, a->heads_last);
}
static smx_status run_merged(attention *a) {
  const int count = a->o->file_count;
  const smx_tensor **states = calloc((size_t)count, sizeof *states);
  if (!states) return SMX_ERR_NOMEM;
  for (int i = 0; i < count; i++) states[i] = &a->state_views[i].tensor;
  smx_status status = smx_attention_merge(a->context, &a->how, count, states, &a->out[0].view.tensor,
                                          a->count > 1 ? &a->out[1].view.tensor : NULL);
  free(states);
  return status;
}

static int plan_applied(attention *a) {
  const int64_t *w = a->view[Q].shape, o[] = {w[0], w[1], w[2], a->view[K].shape[3]};
  return add_like(a, "o", type_or(a, a->in[K].want), &a->in[K], 4, o);
}
static smx_status run_applied(attention *a) {
  return smx_attention_apply(a->context, &a->how, &a->view[Q].tensor, &a->view[K].tensor,
                             &a->out[0].view.tensor);
}

/* ---- Gradients ---- */

enum { D_Q, D_K, D_V, D_OTHER };

/* Inputs beside q, k and v that may have a gradient. */
enum { ADDED = 4 };
static const int added_inputs[ADDED] = {BIAS, SLOPES, SINKS, ROW};

/* Whether one of them has: sinks with a kind of weights, numbers of rows with an operator, which
 * gives none of bias where sequences are packed. */
static bool has_added(const attention *a, int i) {
  const bool packed = a->how.query_offsets || a->how.key_offsets;
  if (!a->in[i].path) return false;
  if (a->way == BY_OPERATOR) return i != SINKS && !(i == BIAS && packed);
  return a->way == BY_KIND;
}

/* Of bias, slopes, sinks and numbers of rows; of r or u. */
static int add_others(attention *a) {
  static const char *const names[ADDED] = {"dbias", "dslopes", "dsinks", "drow"};
  const int64_t *q = a->view[Q].shape, u[] = {q[0], q[1], q[3]};
  int code = EXIT_OK;
  for (int n = 0; !code && n < ADDED; n++) {
    const int i = added_inputs[n];
    if (has_added(a, i))
      code = add(a, names[n], type_or(a, a->in[i].want), a->view[i].tensor.ndim, a->view[i].shape, 0, false);
  }
  if (a->way == BY_PARALLAX) return add_like(a, "dr", type_or(a, a->in[SECOND].want), &a->in[SECOND], 4, q);
  return a->way == BY_ADDITIVE ? add_matrix(a, "du", type_or(a, a->in[ADDITIVE].want), 3, u) : code;
}

/* Gradients, then what some are made from: o, and lse or the winners. */
static int plan_gradients(attention *a) {
  static const char *const names[] = {"dq", "dk", "dv"};
  const int64_t *q = a->view[Q].shape, o[] = {q[0], q[1], q[2], a->view[V].shape[3]};
  int code = EXIT_OK;
  for (int i = Q; !code && i <= V; i++)
    code = add_like(a, names[i], type_or(a, a->in[i].want), &a->in[i], 4, a->view[i].shape);
  if (!code) code = add_others(a);
  const int shown = a->count;
  if (!code && (a->way == BY_KIND || a->way == BY_TROPICAL))
    code = add_like(a, "o", real_type(a), &a->in[Q], 4, o);
  if (!code) code = add_second(a, o);
  for (int i = shown; i < a->count; i++) a->out[i].hidden = true;
  return code;
}

/* Places for gradients of these inputs; how many there are. */
static int find_added(const attention *a, const smx_tensor *const *d, const smx_tensor **added) {
  int count = 0;
  for (int n = 0; n < ADDED; n++) added[n] = has_added(a, added_inputs[n]) ? d[D_OTHER + count++] : NULL;
  return count;
}

static smx_status run_kinds(attention *a, const smx_tensor *const *in, const smx_tensor *d_o,
                            const smx_tensor *const *d) {
  const smx_tensor *added[ADDED], *o = d[a->count - 2], *lse = d[a->count - 1];
  const smx_tensor *d_lse = a->dout[1].path ? &a->dout_view[1].tensor : NULL;
  const int count = find_added(a, d, added);
  smx_status status = smx_attention(a->context, &a->how, in[Q], in[K], in[V], o, lse);
  if (status == SMX_OK)
    status = smx_attention_backward(a->context, &a->how, in[Q], in[K], in[V], o, lse, d_o, d_lse, d[D_Q],
                                    d[D_K], d[D_V]);
  if (status == SMX_OK && count)
    status = smx_attention_backward_bias(a->context, &a->how, in[Q], in[K], in[V], o, lse, d_o, d_lse,
                                         added[0], added[1], added[2]);
  return status;
}

static smx_status run_tropical(attention *a, const smx_tensor *const *in, const smx_tensor *d_o,
                               const smx_tensor *const *d) {
  const smx_tensor *winners = d[a->count - 1];
  smx_status status = smx_attention_tropical(a->context, &a->how, a->symmetric, in[Q], in[K], in[V],
                                             d[a->count - 2], winners);
  if (status != SMX_OK) return status;
  return smx_attention_tropical_backward(a->context, &a->how, a->symmetric, in[Q], in[K], in[V], winners, d_o,
                                         d[D_Q], d[D_K], d[D_V]);
}

static smx_status run_backward(attention *a, const smx_tensor *const *in, const smx_tensor *d_o,
                               const smx_tensor *const *d) {
  const smx_attention_options *how = &a->how;
  const smx_tensor *q = in[Q], *k = in[K], *v = in[V], *dq = d[D_Q], *dk = d[D_K], *dv = d[D_V],
                   *other = d[D_OTHER], *added[ADDED];
  switch (a->way) {
    case BY_OPERATOR:
      find_added(a, d, added);
      return smx_attention_rows_input_backward(a->context, how, a->op, &a->params, given(a, ROW), q, k, v,
                                               d_o, dq, dk, dv, added[0], added[1], added[3]);
    case BY_TROPICAL: return run_tropical(a, in, d_o, d);
    case BY_PARALLAX:
      return smx_attention_parallax_backward(a->context, how, q, k, v, &a->view[SECOND].tensor, d_o, dq, dk,
                                             dv, other);
    case BY_LOCAL:
      return smx_attention_local_linear_backward(a->context, how, a->ridge, q, k, v, d_o, dq, dk, dv);
    case BY_ADDITIVE:
      return smx_attention_additive_backward(a->context, how, &a->view[ADDITIVE].tensor, q, k, v, d_o, other,
                                             dq, dk, dv);
    default: return run_kinds(a, in, d_o, d);
  }
}

static smx_status run_gradients(attention *a) {
  const smx_tensor *d[SMX_MAX_PORTS + 1] = {NULL},
                                      *in[] = {&a->view[Q].tensor, &a->view[K].tensor, &a->view[V].tensor};
  for (int i = 0; i < a->count; i++) d[i] = &a->out[i].view.tensor;
  smx_status status = run_backward(a, in, &a->dout_view[0].tensor, d);
  for (int i = 0; status == SMX_OK && i < 2; i++) status = rope_back(&a->rope, i, d[i]);
  return status;
}

/* ---- The table ---- */

static smx_status run_stage(attention *a);

/* clang-format off */
static const attend_act acts[] = {
    {"products", 2, false, false, plan_scores, run_stage}, /* in the order of smx_attention_stage */
    {"capped", 2, false, false, plan_scores, run_stage},
    {"scores", 2, false, false, plan_scores, run_stage},
    {"weights", 2, false, false, plan_scores, run_stage},
    {"o", 3, true, false, plan_o, run_o},
    {"mass", 2, false, false, plan_mass, run_mass},
    {"keys", 2, false, false, plan_keys, run_keys},
    {"states", 3, false, false, plan_states, run_states},
    {"merged", 0, false, false, plan_merged, run_merged},
    {"applied", 2, false, true, plan_applied, run_applied},
};
/* clang-format on */
static const attend_act gradients = {"o", 3, true, false, plan_gradients, run_gradients};
enum { ACTS = sizeof acts / sizeof *acts };

static smx_status run_stage(attention *a) {
  const smx_attention_stage stage = (smx_attention_stage)(a->act - acts);
  return smx_attention_scores(a->context, &a->how, stage, &a->view[Q].tensor, &a->view[K].tensor,
                              &a->out[0].view.tensor);
}

void attend_acts(char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < ACTS && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", acts[i].name);
}

const attend_act *attend_find(const options *o) {
  const char *name = options_own(o, "result");
  char names[128];
  for (int i = 0; i < ACTS; i++) {
    if (strcmp(name ? name : "o", acts[i].name) != 0) continue;
    if (!o->backward) return &acts[i];
    if (acts[i].plan == plan_o) return &gradients;
    return options_refuse("result", name, "not with --backward"), NULL;
  }
  attend_acts(names, sizeof names);
  return fault(EXIT_USAGE, "--result %s: not one of %s", name, names), NULL;
}

/* ---- Giving ---- */

static int32_t shown(attention *a, attend_result **list) {
  int32_t count = 0;
  for (int i = 0; i < a->count; i++)
    if (!a->out[i].hidden) list[count++] = &a->out[i];
  return count;
}

static int open_file(attention *a) {
  attend_result *list[SMX_MAX_PORTS];
  io_spec specs[SMX_MAX_PORTS];
  const int32_t count = shown(a, list);
  for (int32_t i = 0; i < count; i++) {
    specs[i] = (io_spec){.name = list[i]->name, .type = list[i]->type, .ndim = list[i]->whole.ndim};
    memcpy(specs[i].shape, list[i]->whole.dim, sizeof specs[i].shape);
  }
  return write_begin(&a->file, a->o, count, specs);
}

static void show(const attend_result *r) {
  const int32_t axis = r->whole.ndim - 1;
  table t;
  table_begin(&t, r->name, TABLE_VALUES, r->type, &r->whole, axis);
  table_add(&t, r->data, r->whole.ndim, r->whole.dim, axis);
  table_print(&t, stdout);
}

static int put_all(attention *a) {
  attend_result *list[SMX_MAX_PORTS];
  const int32_t count = shown(a, list);
  int code = EXIT_OK;
  int64_t n = 0;
  for (int32_t i = 0; !code && i < count; i++) {
    if (!a->o->out) show(list[i]);
    else if (!count_elements(list[i]->whole.ndim, list[i]->whole.dim, &n)) code = fault_memory(SIZE_MAX);
    else code = write_put(&a->file, i, list[i]->data, (size_t)n * list[i]->type->bytes);
  }
  return !code && a->o->out ? write_end(&a->file) : code;
}

int attend_give(attention *a) {
  int code = a->act->plan(a);
  if (!code && a->o->out) code = open_file(a);
  if (!code) code = attend_context(a);
  if (code) return code;
  smx_status status = a->act->run(a);
  return status == SMX_OK ? put_all(a) : attend_fault(a, status);
}

void attend_free(attention *a) {
  write_drop(&a->file);
  for (int i = 0; i < a->count; i++) free(a->out[i].data);
}
