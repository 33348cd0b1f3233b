/* attend.c - the verb `attention`: queries, keys and values from files to smx_attention. */
#include "attend.h"

#include "fault.h"
#include "parse.h"
#include "report/table.h"
#include "rope.h"
#include "write.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K, V, MASK, BIAS, SLOPES, SINKS, LENGTHS, QUERY_OFFSETS, KEY_OFFSETS, TENSORS };

/* ---- What there is to choose ---- */

/* The kinds of weights by name, and their numbers unless --param gives others; NAN: -ln of the number of keys. */
static const struct kind {
  const char *name;
  double param[SMX_ATTENTION_PARAMS];
} kinds[SMX_ATTENTION_KINDS] = {
    [SMX_ATTENTION_SOFTMAX] = {"softmax", {0}},
    [SMX_ATTENTION_SOFTMAX_N] = {"softmax_n", {1}},
    [SMX_ATTENTION_SSMAX] = {"ssmax", {0.43}},
    [SMX_ATTENTION_SIGMOID] = {"sigmoid", {(double)NAN}},
    [SMX_ATTENTION_SOFTPICK] = {"softpick", {0}},
    [SMX_ATTENTION_SELF_ADJUST] = {"self_adjust", {0}},
    [SMX_ATTENTION_SELF_ADJUST_RANGE] = {"self_adjust_range", {0}},
    [SMX_ATTENTION_RELU] = {"relu", {SMX_ATTENTION_NORM_L1}},
    [SMX_ATTENTION_ELU] = {"elu", {SMX_ATTENTION_NORM_L1}},
    [SMX_ATTENTION_IDENTITY] = {"identity", {SMX_ATTENTION_NORM_L1}},
    [SMX_ATTENTION_SOFTPLUS] = {"softplus", {SMX_ATTENTION_NORM_L1}},
    [SMX_ATTENTION_TAYLOR] = {"taylor", {SMX_ATTENTION_NORM_L1, 3}},
    [SMX_ATTENTION_CLIPPED] = {"clipped", {-0.03, 1}},
    [SMX_ATTENTION_CENTRED] = {"centred", {1, 0, 1e-3}},
    [SMX_ATTENTION_EXP] = {"exp", {SMX_ATTENTION_NORM_COUNT, 0, 5}},
    [SMX_ATTENTION_CREDAL] = {"credal", {1}},
    [SMX_ATTENTION_SHAPED] = {"shaped", {1, 1, 1}},
    [SMX_ATTENTION_LSSA] = {"lssa", {SMX_ATTENTION_NORM_L1}},
    [SMX_ATTENTION_LSSAR] = {"lssar", {15, 1, 3}},
};

static void kind_names(char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < SMX_ATTENTION_KINDS && used < size; i++)
    if (kinds[i].name) used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", kinds[i].name);
}

static void layouts(char *text, size_t size) { snprintf(text, size, "bhld blhd"); }

/* The optional tensors come first, in the order of the enumeration. */
const setting attend_settings[] = {
    {"mask", 0, "FILE", "[B, H, Lq, Lk]: nonzero = the query sees the key; sizes of 1 and missing first dimensions broadcast", FOR_OPERATOR,
     NULL, NULL},
    {"bias", 0, "FILE", "[B, H, Lq, Lk]: added to the scores; -inf hides a key", FOR_OPERATOR, NULL, NULL},
    {"slopes", 0, "FILE", "[B, H]: ALiBi, taken from a score for each key of distance", FOR_OPERATOR, NULL, NULL},
    {"sinks", 0, "FILE", "[B, H]: the score of one more key that has no value", FOR_OPERATOR, NULL, NULL},
    {"lengths", 0, "FILE", "[B]: how many keys of each sequence there are", FOR_OPERATOR, NULL, NULL},
    {"query-offsets", 0, "FILE", "[B + 1]: where packed sequences of queries start, and the end", FOR_OPERATOR, NULL, NULL},
    {"key-offsets", 0, "FILE", "[B + 1]: the same of keys", FOR_OPERATOR, NULL, NULL},
    {"causal", 0, NULL, "a query sees the keys up to its own place; the last query stands at the last key", FOR_OPERATOR, NULL, NULL},
    {"query-start", 0, "N", "place of the first query among the keys instead", FOR_OPERATOR, NULL, NULL},
    {"window", 0, "L[,R]", "a query sees L keys before its place and R after it; -1 (default): all", FOR_OPERATOR, NULL, NULL},
    {"weights", 0, "W", "how scores become weights; softmax by default", FOR_OPERATOR, NULL, kind_names},
    {"param", 0, "A[,B,...]",
     "the numbers of the weights, see softmax.h; by default softmax_n 1, ssmax 0.43,0, sigmoid -ln(keys), relu elu identity softplus lssa "
     "2 "
     "(divided by the sum of absolute values), taylor 2,3, exp 1,0,5 (1: divided by the number of keys), clipped -0.03,1, centred "
     "1,0,0.001, "
     "credal 1, shaped 1,1,1, lssar 15,1,3",
     FOR_OPERATOR, NULL, NULL},
    {"scale", 0, "S", "of <q, k>; 1 / sqrt(size of a head) by default", FOR_OPERATOR, NULL, NULL},
    {"softcap", 0, "C", "scores become C tanh(score / C)", FOR_OPERATOR, NULL, NULL},
    {"dropout", 0, "P", "a weight is 0 with probability P, else divided by 1 - P", FOR_OPERATOR, NULL, NULL},
    {"seed", 0, "N", "of the random numbers of --dropout; 0 by default", FOR_OPERATOR, NULL, NULL},
    {"rope", 0, "R",
     "queries and keys are turned by their positions: pairs of columns apart by half a head (half), or neighbours (interleaved)",
     FOR_OPERATOR, NULL, rope_layouts},
    {"rope-base", 0, "B", "of the frequencies of --rope; 10000 by default", FOR_OPERATOR, NULL, NULL},
    {"rope-scale", 0, "S", "of the positions of --rope; 1 by default", FOR_OPERATOR, NULL, NULL},
    {"layout", 0, "L", "bhld (default): batch, heads, length, size; blhd: length before heads", FOR_OPERATOR, NULL, layouts},
    {"map", 0, "FILE", "draw the weights of one head as an SVG", FOR_OPERATOR, NULL, NULL},
    {"head", 0, "N", "the head that is drawn; 0 by default", FOR_OPERATOR, NULL, NULL},
    {"batch", 0, "N", "the sequence that is drawn; 0 by default", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

typedef struct attention {
  const options *o;
  input in[TENSORS];
  view view[TENSORS];
  smx_attention_options how;
  smx_context *context;
  labels names;
  bool heads_last; /* layout blhd */
  int64_t head, batch;
  smx_shape whole; /* of o as it is written */
  const dtype *type;
  unsigned char *out, *lse, *turned[2];
  view out_view, lse_view;
  result_file file;
} attention;

static int read_window(attention *a, const char *text) {
  double sides[2];
  int count = 0;
  const char *wrong = text ? options_numbers(text, 2, sides, &count) : NULL;
  for (int i = 0; !wrong && i < count; i++)
    if (!(sides[i] >= -1 && sides[i] <= 9007199254740992.0) || sides[i] != floor(sides[i])) wrong = "not whole numbers of at least -1";
  if (wrong) return options_refuse("window", text, wrong);
  if (count > 0) a->how.window_left = (int64_t)sides[0];
  if (count > 1) a->how.window_right = (int64_t)sides[1];
  return EXIT_OK;
}

static int read_weights(attention *a, const char *name) {
  char names[256];
  for (int i = 0; i < SMX_ATTENTION_KINDS; i++)
    if (kinds[i].name && strcmp(kinds[i].name, name) == 0) {
      a->how.weights = (smx_attention_weights)i;
      memcpy(a->how.param, kinds[i].param, sizeof a->how.param);
      return EXIT_OK;
    }
  kind_names(names, sizeof names);
  return fault(EXIT_USAGE, "--weights %s: not one of %s", name, names);
}

static int read_whole(const options *o, const char *name, int64_t *value) {
  const char *text = options_own(o, name);
  return text ? options_int(name, text, 0, INT64_MAX / 8, value) : EXIT_OK;
}

static int read_own(attention *a) {
  const options *o = a->o;
  const char *weights = options_own(o, "weights"), *param = options_own(o, "param"), *layout = options_own(o, "layout"), *wrong = NULL;
  const char *scale = options_own(o, "scale"), *softcap = options_own(o, "softcap");
  int count, code = read_window(a, options_own(o, "window"));
  a->how.causal = options_own(o, "causal") != NULL;
  if (!code && weights) code = read_weights(a, weights);
  if (!code && param) wrong = options_numbers(param, SMX_ATTENTION_PARAMS, a->how.param, &count);
  if (wrong) return options_refuse("param", param, wrong);
  if (!code && scale) code = options_number("scale", scale, &a->how.scale);
  if (!code && softcap) code = options_number("softcap", softcap, &a->how.softcap);
  if (!code) code = read_whole(o, "query-start", &a->how.query_start);
  const char *dropout = options_own(o, "dropout");
  int64_t seed = 0;
  if (!code && dropout) code = options_number("dropout", dropout, &a->how.dropout);
  if (!code) code = read_whole(o, "seed", &seed);
  a->how.seed = (uint64_t)seed;
  if (!code) code = read_whole(o, "head", &a->head);
  if (!code) code = read_whole(o, "batch", &a->batch);
  a->heads_last = layout && strcmp(layout, "blhd") == 0;
  if (!code && layout && !a->heads_last && strcmp(layout, "bhld") != 0) code = options_refuse("layout", layout, "not one of bhld, blhd");
  return code;
}

/* ---- Faults ---- */

static const char *name_of(int i) {
  static const char *const first[] = {"q", "k", "v"};
  return i < MASK ? first[i] : attend_settings[i - MASK].name;
}

/* The library's names are those of C: an underscore for a dash. */
static bool starts_with(const char *text, const char *name) {
  for (; *name; text++, name++)
    if (*text != *name && !(*text == '_' && *name == '-')) return false;
  return strchr(":[. _", *text) != NULL;
}

/* A fault of the option or file that the library's message is about. */
static int attend_fault(const attention *a, smx_status status) {
  const char *text = smx_last_error(), *file = a->in[Q].path, *option;
  if (strncmp(text, "smx_attention: ", 15) == 0) text += 15;
  if (strncmp(text, "options.", 8) == 0)
    for (const setting *s = attend_settings; s->name; s++)
      if (starts_with(text + 8, s->name) && (option = options_own(a->o, s->name))) return options_refuse(s->name, option, text);
  for (int i = 0; i < TENSORS; i++)
    if (a->in[i].path && starts_with(text, name_of(i))) file = a->in[i].path;
  return fault(EXIT_REFUSED, "%s: %s", file, *text ? text : smx_strerror(status));
}

/* ---- Inputs ---- */

static int find_files(attention *a) {
  const options *o = a->o;
  bool only_map = options_own(o, "map") && !o->out;
  for (int i = 0; i < o->file_count; i++) {
    if (i > V) return fault(EXIT_USAGE, "%s: one input too many: attention takes 3", o->files[i]);
    a->in[i].path = o->files[i];
  }
  for (int i = MASK; i < TENSORS; i++) a->in[i].path = options_own(o, name_of(i));
  if (o->file_count < (only_map ? V : V + 1))
    return fault(EXIT_USAGE, "attention: the input '%s' is missing; softmax help attention tells more", name_of(o->file_count));
  return EXIT_OK;
}

/* Missing first dimensions are 1; the layout is turned into that of the library. */
static int make_four(attention *a, int i) {
  view *v = &a->view[i];
  int32_t ndim = v->tensor.ndim, missing = 4 - ndim;
  if (ndim < 2 || ndim > 4) return fault(EXIT_REFUSED, "%s: %s: %d dimensions, not 2 to 4", a->in[i].path, name_of(i), (int)ndim);
  for (int32_t d = 3; d >= 0; d--) {
    v->shape[d] = d < missing ? 1 : v->shape[d - missing];
    v->strides[d] = d < missing ? 0 : v->strides[d - missing];
  }
  v->tensor.ndim = 4;
  if (!a->heads_last || ndim < 3) return EXIT_OK;
  int64_t shape = v->shape[1], stride = v->strides[1];
  v->shape[1] = v->shape[2], v->strides[1] = v->strides[2];
  v->shape[2] = shape, v->strides[2] = stride;
  return EXIT_OK;
}

static int read_tensor(attention *a, int i, bool *used_stdin) {
  static const uint32_t flags[TENSORS] = {
      [MASK] = SMX_PORT_MASK, [LENGTHS] = SMX_PORT_INT, [QUERY_OFFSETS] = SMX_PORT_INT, [KEY_OFFSETS] = SMX_PORT_INT};
  const smx_port port = {name_of(i), i == LENGTHS || i >= QUERY_OFFSETS ? SMX_SHAPE_OFFSETS : SMX_SHAPE_FULL, flags[i], ""};
  const blocks whole = {.step = 0};
  bool standard = strcmp(a->in[i].path, "-") == 0;
  if (standard && *used_stdin) return fault(EXIT_USAGE, "-: standard input can be only one of the inputs");
  *used_stdin |= standard;
  int code = input_read(&a->in[i], &port, a->o, i ? a->in[Q].want : NULL);
  if (!code) code = blocks_view(&whole, &a->in[i], 0, &a->view[i]);
  return code || i > V ? code : make_four(a, i);
}

static int read_tensors(attention *a) {
  const smx_tensor **const places[TENSORS] = {[MASK] = &a->how.mask,
                                              [BIAS] = &a->how.bias,
                                              [SLOPES] = &a->how.slopes,
                                              [SINKS] = &a->how.sinks,
                                              [LENGTHS] = &a->how.lengths,
                                              [QUERY_OFFSETS] = &a->how.query_offsets,
                                              [KEY_OFFSETS] = &a->how.key_offsets};
  bool used_stdin = false;
  int code = find_files(a);
  for (int i = 0; !code && i < TENSORS; i++) {
    if (!a->in[i].path) continue;
    code = read_tensor(a, i, &used_stdin);
    if (places[i]) *places[i] = &a->view[i].tensor;
  }
  const char *const paths[] = {a->in[Q].path, a->in[K].path};
  if (!code) code = rope_turn(a->o, &a->how, &a->view[Q], &a->view[K], paths, a->turned);
  if (!code && isnan(a->how.param[0])) a->how.param[0] = a->view[K].shape[2] ? -log((double)a->view[K].shape[2]) : 0;
  return code;
}

/* ---- The result ---- */

/* After the output's temporary file exists, as in a run. */
static int make_context(attention *a) {
  smx_context_options c = {.size = sizeof c, .threads = a->o->threads, .on_empty = a->o->on_empty, .on_inf = a->o->on_inf};
  smx_status status = smx_context_create(&c, &a->context);
  return status == SMX_OK ? EXIT_OK : attend_fault(a, status);
}

/* A tensor of four dimensions (lse: the first three) that lies in memory as q does in its file. */
static int make_result(const attention *a, const dtype *type, int32_t ndim, int64_t last, view *v, unsigned char **data) {
  static const int32_t orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
  int64_t stride = 1, count;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    int32_t d = orders[a->heads_last && a->in[Q].array.ndim > 2][i];
    v->shape[d] = d == 3 ? last : a->view[Q].shape[d];
    v->strides[d] = stride;
    if (__builtin_mul_overflow(stride, v->shape[d] ? v->shape[d] : 1, &stride)) return fault_memory(SIZE_MAX);
  }
  v->tensor = (smx_tensor){.device = {1, 0}, .ndim = ndim, .dtype = type->type, .shape = v->shape, .strides = v->strides};
  if (!count_elements(ndim, v->shape, &count)) return fault_memory(SIZE_MAX);
  v->tensor.data = *data = malloc((size_t)count * type->bytes + 1);
  return *data ? EXIT_OK : fault_memory((size_t)count * type->bytes);
}

static int make_results(attention *a) {
  bool wide = a->in[Q].want->type.bits == 64 || a->in[K].want->type.bits == 64 || a->in[V].want->type.bits == 64;
  a->type = a->o->type ? a->o->type : a->in[Q].want;
  a->whole.ndim = a->in[Q].array.ndim;
  memcpy(a->whole.dim, a->in[Q].array.shape, sizeof a->whole.dim);
  a->whole.dim[a->whole.ndim - 1] = a->view[V].shape[3];
  int code = make_result(a, a->type, 4, a->view[V].shape[3], &a->out_view, &a->out);
  return code ? code : make_result(a, dtype_named(wide ? "f64" : "f32"), 3, 0, &a->lse_view, &a->lse);
}

static int open_file(attention *a) {
  io_spec specs[2] = {{.name = "o", .type = a->type, .ndim = a->whole.ndim}, {.name = "lse", .type = dtype_of(a->lse_view.tensor.dtype)}};
  specs[1].ndim = a->whole.ndim - 1;
  for (int k = 0; k < 2; k++) memcpy(specs[k].shape, a->whole.dim, sizeof specs[k].shape);
  return write_begin(&a->file, a->o, 2, specs);
}

static int show(const attention *a) {
  table t;
  int32_t axis = a->whole.ndim - 1;
  table_begin(&t, "o", TABLE_VALUES, a->type, &a->whole, axis);
  table_add(&t, a->out, a->whole.ndim, a->whole.dim, axis);
  table_print(&t, stdout);
  return EXIT_OK;
}

static int put(attention *a) {
  int64_t count = 0, rows = 0;
  if (!count_elements(a->whole.ndim, a->whole.dim, &count) || !count_elements(a->whole.ndim - 1, a->whole.dim, &rows))
    return fault_memory(SIZE_MAX);
  int code = write_put(&a->file, 0, a->out, (size_t)count * a->type->bytes);
  if (!code) code = write_put(&a->file, 1, a->lse, (size_t)rows * a->lse_view.tensor.dtype.bits / 8);
  return code ? code : write_end(&a->file);
}

static int compute(attention *a) {
  const smx_tensor *lse = a->o->out ? &a->lse_view.tensor : NULL;
  int code = make_results(a);
  if (!code && a->o->out) code = open_file(a);
  if (!code) code = make_context(a);
  if (code) return code;
  smx_status status =
      smx_attention(a->context, &a->how, &a->view[Q].tensor, &a->view[K].tensor, &a->view[V].tensor, &a->out_view.tensor, lse);
  if (status != SMX_OK) return attend_fault(a, status);
  return a->o->out ? put(a) : show(a);
}

/* ---- The map ---- */

/* What of an input broadcast to [B, H, ...] belongs to one head of one sequence. */
static void slice(view *v, int32_t ndim, int64_t batch, int64_t head, uint32_t bytes) {
  for (int32_t i = 0; i < v->tensor.ndim; i++) {
    int32_t d = i + ndim - v->tensor.ndim;
    if (d < 0 || d > 1 || v->shape[i] == 1) continue;
    v->tensor.data = (unsigned char *)v->tensor.data + (d ? head : batch) * v->strides[i] * (int64_t)bytes;
    v->shape[i] = 1;
  }
}

static int check_head(const attention *a, const char *path) {
  const int64_t *q = a->view[Q].shape, *k = a->view[K].shape;
  if (a->how.query_offsets || a->how.key_offsets) return fault(EXIT_USAGE, "--map %s: not of packed sequences", path);
  if (a->head >= q[1]) return fault(EXIT_USAGE, "--head %" PRId64 ": %s has %" PRId64 " heads", a->head, a->in[Q].path, q[1]);
  if (a->batch >= q[0]) return fault(EXIT_USAGE, "--batch %" PRId64 ": %s has %" PRId64 " sequences", a->batch, a->in[Q].path, q[0]);
  if (!k[1] || q[1] % k[1] || k[0] != q[0])
    return fault(EXIT_REFUSED, "%s: k: %" PRId64 " sequences of %" PRId64 " heads, q has %" PRId64 " of %" PRId64, a->in[K].path, k[0],
                 k[1], q[0], q[1]);
  return a->o->labels ? labels_check(&a->names, k[2], a->in[K].path) : EXIT_OK;
}

static int draw_map(attention *a, const char *path) {
  static const int32_t dims[TENSORS] = {4, 4, 4, 4, 4, 2, 2, 1, 1, 1};
  const view saved_q = a->view[Q];
  char title[128];
  smx_status status = SMX_OK;
  int code = check_head(a, path);
  if (!code && !a->context) code = make_context(a);
  if (code) return code;
  int64_t group = saved_q.shape[1] / a->view[K].shape[1];
  a->how.stream += (uint64_t)(a->batch * saved_q.shape[1] + a->head);
  for (int i = 0; i < TENSORS; i++)
    if (a->in[i].path && i != V) slice(&a->view[i], dims[i], a->batch, i == K ? a->head / group : a->head, a->in[i].want->bytes);
  snprintf(title, sizeof title, "Attention weights: %s%s, sequence %" PRId64 ", head %" PRId64, kinds[a->how.weights].name,
           a->how.causal ? ", causal" : "", a->batch, a->head);
  code = map_draw(path, a->context, &a->how, &a->view[Q].tensor, &a->view[K].tensor, a->o->labels ? &a->names : NULL, title, &status);
  return status == SMX_OK ? code : attend_fault(a, status);
}

/* ---- All of it ---- */

/* The map comes last: it narrows the views to one head. */
static int attend(attention *a) {
  const char *map = options_own(a->o, "map");
  int code = read_own(a);
  if (!code && !map && (options_own(a->o, "head") || options_own(a->o, "batch") || a->o->labels))
    code = fault(EXIT_USAGE, "attention: --head, --batch and --labels are about --map FILE, which is missing");
  if (!code) code = labels_read(&a->names, a->o->labels);
  if (!code) code = read_tensors(a);
  if (!code && (a->o->out || !map)) code = compute(a);
  return !code && map ? draw_map(a, map) : code;
}

int work_attention(const options *o) {
  attention *a = calloc(1, sizeof *a);
  if (!a) return fault_memory(sizeof *a);
  a->o = o;
  smx_attention_init(&a->how);
  int code = attend(a);
  write_drop(&a->file);
  smx_context_destroy(a->context);
  labels_free(&a->names);
  for (int i = 0; i < TENSORS; i++) input_free(&a->in[i]);
  free(a->out);
  free(a->lse);
  free(a->turned[0]);
  free(a->turned[1]);
  free(a);
  return code;
}
