/* attend.c - the verb `attention`: its options, and queries, keys and values from files. */
#include "attend.h"

#include "fault.h"
#include "parse.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What there is to choose ---- */

static void kind_names(char *text, size_t size) {
  const smx_attention_kind *kind;
  size_t used = 0;
  for (size_t i = 0; (kind = smx_attention_kind_at(i)) && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", kind->name);
}

bool attend_entry(size_t i, entry *e) {
  const smx_attention_kind *kind = smx_attention_kind_at(i);
  if (kind)
    *e = (entry){kind->name,   kind->title,  kind->formula,    kind->about,
                 kind->source, kind->params, kind->param_count};
  return kind != NULL;
}

static void layouts(char *text, size_t size) { snprintf(text, size, "bhld blhd"); }
static void semirings(char *text, size_t size) { snprintf(text, size, "symmetric one-sided"); }
static void pools(char *text, size_t size) { snprintf(text, size, "mean max"); }

#define OWN(name, argument, help) \
  { name, 0, argument, help, FOR_OPERATOR, NULL, NULL }

/* The optional tensors come first, in the order of the enumeration. */
const setting attend_settings[] = {
    OWN("mask", "FILE",
        "[B, H, Lq, Lk]: nonzero = the query sees the key; sizes of 1 and missing first dimensions "
        "broadcast"),
    OWN("bias", "FILE", "[B, H, Lq, Lk]: added to the scores; -inf hides a key"),
    OWN("slopes", "FILE", "[B, H]: ALiBi, taken from a score for each key of distance"),
    OWN("sinks", "FILE", "[B, H]: the score of one more key that has no value"),
    OWN("lengths", "FILE", "[B]: how many keys of each sequence there are"),
    OWN("query-offsets", "FILE", "[B + 1]: where packed sequences of queries start, and the end"),
    OWN("key-offsets", "FILE", "[B + 1]: the same of keys"),
    OWN("block-table", "FILE",
        "[B, pages]: K and V are pages [pages, heads, page length, size] of a cache; needs --lengths"),
    OWN("streams", "FILE",
        "[B]: the stream of random numbers of the first head of each sequence; the other heads follow"),
    OWN("row-weights", "FILE",
        "[B, H, Lq]: how much each query counts, with --result mass or keys; 1 by default"),
    OWN("budgets", "FILE", "[B, H]: how many keys each list of --result keys has at most; --keep by default"),
    OWN("parallax", "FILE",
        "[B, H, Lq, size]: rows r beside the queries; values weigh more on one side of the mean of <r, key>"),
    OWN("additive", "FILE", "[B, H, size]: u of the scores sum u tanh(query + key), instead of products"),
    OWN("row", "FILE",
        "[B, H, Lq], or [H, 1]: where an operator on rows makes the weights, a number for each row in place "
        "of its parameter, as alpha of entmax"),
    {"result", 0, "R",
     "what to give: o (default; and lse, in a file of several arrays); products, capped, scores or weights: "
     "the matrix at that stage; mass: how much weight each key gets; keys: the --keep keys with the most; "
     "states: what each 1024 keys contribute; merged: o from files of states; applied: o from a file of "
     "weights and V",
     FOR_OPERATOR, NULL, attend_acts},
    OWN("causal", NULL, "a query sees the keys up to its own place; the last query stands at the last key"),
    OWN("query-start", "N", "place of the first query among the keys instead"),
    OWN("window", "L[,R]", "a query sees L keys before its place and R after it; -1 (default): all"),
    OWN("key-start", "N", "place of the first key, a multiple of 1024; 0 by default"),
    {"weights", 0, "W",
     "how scores become weights: KIND[:NAME=VALUE,...], softmax by default; or OPERATOR[:NAME=VALUE,...], an "
     "operator on rows as entmax:alpha=1.5, without lse",
     FOR_OPERATOR, NULL, kind_names},
    OWN("param", "A[,B,...]",
        "the numbers of the weights, in their order; or with their names as --weights taylor:terms=5"),
    {"tropical", 0, "M",
     "max-plus semiring: the largest value less the distance of its key, by Hilbert's metric (symmetric) or "
     "one-sided",
     FOR_OPERATOR, NULL, semirings},
    OWN("local-linear", "RIDGE",
        "o is the value at the query of the affine map that fits keys and values best, by squares weighed as "
        "in softmax"),
    OWN("scale", "S", "of <q, k>; 1 / sqrt(size of a head) by default"),
    OWN("softcap", "C", "scores become C tanh(score / C)"),
    OWN("dropout", "P", "a weight is 0 with probability P, else divided by 1 - P"),
    OWN("seed", "N", "of the random numbers of --dropout; 0 by default"),
    OWN("stream", "N", "of the random numbers of the first head; 0 by default; the other heads follow"),
    {"rope", 0, "R",
     "queries and keys are turned by their positions: pairs of columns apart by half a head (half), or "
     "neighbours (interleaved)",
     FOR_OPERATOR, NULL, rope_layouts},
    OWN("rope-base", "B", "of the frequencies of --rope; 10000 by default"),
    OWN("rope-scale", "S", "of the positions of --rope; 1 by default"),
    OWN("rope-dims", "N", "how many columns --rope turns; all by default"),
    OWN("rope-frequencies", "FILE",
        "[dims / 2], or with heads before: the frequencies of --rope, instead of --rope-base"),
    OWN("rope-positions", "FILE",
        "[Lk, 1], or [B, H, Lk, dims / 2]: the keys' positions for --rope, any numbers; a query has that of "
        "its place"),
    {"layout", 0, "L", "bhld (default): batch, heads, length, size; blhd: length before heads", FOR_OPERATOR,
     NULL, layouts},
    OWN("keep", "N", "how many keys a list of --result keys has"),
    OWN("first", "N", "so many of the first keys are in every list; 0 by default"),
    OWN("last", "N", "so many of the last keys are; 0 by default"),
    OWN("kernel", "N[,N,...]",
        "the other keys are judged by N neighbours, an odd number; 1 by default; several: each takes its "
        "share in turn"),
    {"pool", 0, "P", "by their mean (default), or their max", FOR_OPERATOR, NULL, pools},
    OWN("shared", NULL, "one list for all heads, by the sum of their masses"),
    OWN("size", "N", "of a value, with --result merged"),
    OWN("map", "FILE", "draw the weights of one head as an SVG"),
    OWN("head", "N", "the head that is drawn; 0 by default"),
    OWN("batch", "N", "the sequence that is drawn; 0 by default"),
    {"shades", 0, "S",
     "of the map: linear; log, of the logarithm; row, by the largest of each row; linear by default, or log "
     "where that would be faint",
     FOR_OPERATOR, NULL, map_shades},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

/* ---- Options ---- */

static int read_window(attention *a, const char *text) {
  double sides[2];
  int count = 0;
  const char *wrong = text ? options_numbers(text, 2, sides, &count) : NULL;
  for (int i = 0; !wrong && i < count; i++)
    if (!(sides[i] >= -1 && sides[i] <= 9007199254740992.0) || sides[i] != floor(sides[i]))
      wrong = "not whole numbers of at least -1";
  if (wrong) return options_refuse("window", text, wrong);
  if (count > 0) a->how.window_left = (int64_t)sides[0];
  if (count > 1) a->how.window_right = (int64_t)sides[1];
  return EXIT_OK;
}

/* NAME=VALUE of a kind. */
static const char *read_param(attention *a, const smx_attention_kind *kind, char *item) {
  char *value = strchr(item, '=');
  int32_t i = 0, choice = 0;
  if (!value) return "not NAME=VALUE with commas between";
  *value++ = 0;
  while (i < kind->param_count && strcmp(kind->params[i].name, item) != 0) i++;
  if (i == kind->param_count) return "no parameter of that name";
  const char *const *choices = kind->params[i].choices;
  while (choices && choices[choice] && strcmp(choices[choice], value) != 0) choice++;
  if (choices && choices[choice]) return a->how.param[i] = choice, NULL;
  return parse_f64(value, strlen(value), &a->how.param[i]) ? NULL : "a value is no number";
}

/* KIND[:NAME=VALUE,...] of the library, which goes before an operator of its name; *found: whether
 * it is one. */
static int read_kind(attention *a, const char *text, bool *found) {
  char spec[256], *rest = NULL;
  snprintf(spec, sizeof spec, "%s", text);
  char *at = strchr(spec, ':');
  if (at) *at++ = 0;
  const smx_attention_kind *kind = smx_attention_kind_find(spec);
  *found = kind != NULL;
  if (!kind) return EXIT_OK;
  smx_attention_set_weights(&a->how, (smx_attention_weights)kind->id);
  for (char *item = at ? strtok_r(at, ",", &rest) : NULL; item; item = strtok_r(NULL, ",", &rest)) {
    const char *wrong = read_param(a, kind, item);
    if (wrong) return options_refuse("weights", text, wrong);
  }
  return EXIT_OK;
}

static int read_weights(attention *a, const char *name) {
  bool found;
  char names[1024];
  int code = read_kind(a, name, &found);
  if (found) return code;
  code = bind_operator("--weights", name, &a->op, &a->params);
  if (!code || strchr(name, ':')) return code;
  kind_names(names, sizeof names);
  return fault(EXIT_USAGE, "--weights %s: neither an operator on rows nor one of %s", name, names);
}

/* One of two words. */
static int read_word(const options *o, const char *name, const char *first, const char *second,
                     bool *is_second) {
  const char *text = options_own(o, name);
  *is_second = text && strcmp(text, second) == 0;
  if (!text || *is_second || strcmp(text, first) == 0) return EXIT_OK;
  char wrong[64];
  snprintf(wrong, sizeof wrong, "not one of %s, %s", first, second);
  return options_refuse(name, text, wrong);
}

static int read_whole(const options *o, const char *name, int64_t *value) {
  const char *text = options_own(o, name);
  return text ? options_int(name, text, 0, INT64_MAX / 8, value) : EXIT_OK;
}

static int read_wholes(attention *a) {
  int64_t seed = 0, stream = 0;
  const struct {
    const char *name;
    int64_t *value;
  } wholes[] = {{"query-start", &a->how.query_start},
                {"key-start", &a->how.key_start},
                {"seed", &seed},
                {"stream", &stream},
                {"head", &a->head},
                {"batch", &a->batch},
                {"keep", &a->keep},
                {"first", &a->select.first},
                {"last", &a->select.last},
                {"size", &a->size}};
  int code = EXIT_OK;
  for (size_t i = 0; !code && i < sizeof wholes / sizeof *wholes; i++)
    code = read_whole(a->o, wholes[i].name, wholes[i].value);
  a->how.seed = (uint64_t)seed, a->how.stream = (uint64_t)stream;
  return code;
}

static int read_numbers(attention *a) {
  const struct {
    const char *name;
    double *value;
  } numbers[] = {{"scale", &a->how.scale}, {"softcap", &a->how.softcap}, {"dropout", &a->how.dropout}};
  int code = EXIT_OK;
  for (size_t i = 0; !code && i < sizeof numbers / sizeof *numbers; i++) {
    const char *text = options_own(a->o, numbers[i].name);
    if (text) code = options_number(numbers[i].name, text, numbers[i].value);
  }
  return code;
}

static int read_kernels(attention *a) {
  const char *text = options_own(a->o, "kernel"), *wrong;
  double values[64];
  int count = 0;
  if (!text) return EXIT_OK;
  wrong = options_numbers(text, 64, values, &count);
  for (int i = 0; !wrong && i < count; i++) {
    if (!(values[i] >= 0 && values[i] <= 9007199254740992.0 && values[i] == floor(values[i])))
      wrong = "not whole numbers";
    else a->kernels[i] = (int64_t)values[i];
  }
  a->select.kernels = a->kernels, a->select.kernel_count = (size_t)count;
  return wrong ? options_refuse("kernel", text, wrong) : EXIT_OK;
}

/* The option of a way of its own, of which there may be one. */
static int read_way(attention *a) {
  static const struct {
    const char *option;
    attend_way way;
  } ways[] = {{"tropical", BY_TROPICAL},
              {"parallax", BY_PARALLAX},
              {"local-linear", BY_LOCAL},
              {"additive", BY_ADDITIVE}};
  const char *found = NULL, *ridge = options_own(a->o, "local-linear");
  a->way = a->op ? BY_OPERATOR : BY_KIND;
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    if (!options_own(a->o, ways[i].option)) continue;
    if (found) return fault(EXIT_USAGE, "--%s: not with --%s", ways[i].option, found);
    if (options_own(a->o, "weights")) return fault(EXIT_USAGE, "--weights: not with --%s", ways[i].option);
    found = ways[i].option, a->way = ways[i].way;
  }
  if (found && !a->act->any_way) return fault(EXIT_USAGE, "--%s: not with --result %s", found, a->act->name);
  if (a->op && !a->act->any_way)
    return fault(EXIT_USAGE, "--weights %s: not with --result %s", a->weights, a->act->name);
  if (a->way != BY_OPERATOR && options_own(a->o, "row"))
    return fault(EXIT_USAGE, "--row: --weights OPERATOR is missing, an operator on rows");
  a->weights = found ? found : a->weights ? a->weights : smx_attention_kind_at(0)->name;
  return ridge ? options_number("local-linear", ridge, &a->ridge) : EXIT_OK;
}

static int read_own(attention *a) {
  const options *o = a->o;
  const char *param = options_own(o, "param"), *wrong = NULL;
  bool one_sided = false, max = false;
  int count, code = read_window(a, options_own(o, "window"));
  a->weights = options_own(o, "weights");
  a->how.causal = options_own(o, "causal") != NULL;
  a->shared = options_own(o, "shared") != NULL;
  if (!code && a->weights) code = read_weights(a, a->weights);
  if (!code) code = read_way(a);
  if (!code) code = read_kernels(a);
  if (!code && param) wrong = options_numbers(param, SMX_ATTENTION_PARAMS, a->how.param, &count);
  if (wrong) return options_refuse("param", param, wrong);
  if (!code && param && a->op)
    return options_refuse("param", param,
                          "the parameters of an operator follow its name: --weights entmax:alpha=1.5");
  if (!code) code = read_numbers(a);
  if (!code) code = read_wholes(a);
  if (!code) code = read_word(o, "layout", "bhld", "blhd", &a->heads_last);
  if (!code) code = map_read_shades(options_own(o, "shades"), &a->shades);
  if (!code) code = read_word(o, "tropical", "symmetric", "one-sided", &one_sided);
  if (!code) code = read_word(o, "pool", "mean", "max", &max);
  a->symmetric = !one_sided, a->select.pool = max ? SMX_ATTENTION_POOL_MAX : SMX_ATTENTION_POOL_MEAN;
  return code;
}

/* Options about scores, where there are none: only what hides keys is used there. */
static int check_scores(const attention *a) {
  static const char *const about[] = {"param", "scale", "softcap", "dropout", "bias", "slopes", "sinks"};
  for (size_t i = 0; i < sizeof about / sizeof *about && (a->way == BY_TROPICAL || a->act->weighed); i++)
    if (options_own(a->o, about[i]))
      return fault(EXIT_USAGE, "--%s: not with %s", about[i],
                   a->act->weighed ? "--result applied" : "--tropical");
  return EXIT_OK;
}

/* Options that only some results have. */
static int check_own(const attention *a) {
  static const struct {
    const char *option, *results;
  } only[] = {{"row-weights", "mass keys"},
              {"budgets", "keys"},
              {"keep", "keys"},
              {"first", "keys"},
              {"last", "keys"},
              {"kernel", "keys"},
              {"pool", "keys"},
              {"shared", "keys"},
              {"size", "merged"}};
  const char *map = options_own(a->o, "map"), *name = a->act->name;
  for (size_t i = 0; i < sizeof only / sizeof *only; i++)
    if (options_own(a->o, only[i].option) && !strstr(only[i].results, name))
      return fault(EXIT_USAGE, "--%s: not with %s", only[i].option,
                   a->o->backward ? "--backward" : "this --result");
  if (!map && (options_own(a->o, "head") || options_own(a->o, "batch") || options_own(a->o, "shades") ||
               a->o->labels))
    return fault(EXIT_USAGE,
                 "attention: --head, --batch, --shades and --labels are about --map FILE, which is missing");
  if (map && (a->act->files == 0 || a->o->backward || strcmp(name, "applied") == 0))
    return fault(EXIT_USAGE, "--map %s: not with %s", map, a->o->backward ? "--backward" : "these files");
  if (options_own(a->o, "block-table") && !options_own(a->o, "lengths"))
    return fault(EXIT_USAGE, "--block-table: --lengths FILE is missing");
  if (strcmp(name, "keys") == 0 && !options_own(a->o, "keep"))
    return fault(EXIT_USAGE, "--result keys: --keep N is missing");
  if (strcmp(name, "merged") == 0 && !options_own(a->o, "size"))
    return fault(EXIT_USAGE, "--result merged: --size N is missing");
  return EXIT_OK;
}

/* ---- Faults ---- */

static const char *name_of(const attention *a, int i) {
  static const char *const first[] = {"q", "k", "v"}, *const applied[] = {"w", "v"};
  static const char *const inputs[TENSORS] = {[SECOND] = "r", [ADDITIVE] = "u"};
  if (inputs[i]) return inputs[i];
  if (i >= MASK) return attend_settings[i - MASK].name;
  return a->act->weighed ? applied[i] : first[i];
}

/* The library's names are those of C: an underscore for a dash. */
static bool starts_with(const char *text, const char *name) {
  for (; *name; text++, name++)
    if (*text != *name && !(*text == '_' && *name == '-')) return false;
  return strchr(":[. _", *text) != NULL;
}

int attend_fault(const attention *a, smx_status status) {
  const char *text = smx_last_error(), *colon = strstr(text, ": "), *file = a->in[Q].path, *option;
  if (colon && strncmp(text, "smx_", 4) == 0) text = colon + 2;
  if (strncmp(text, "ridge ", 6) == 0)
    return options_refuse("local-linear", options_own(a->o, "local-linear"), text);
  if (strncmp(text, "options.", 8) == 0) {
    text += 8;
    for (const setting *s = attend_settings; s->name; s++)
      if (starts_with(text, s->name) && (option = options_own(a->o, s->name)))
        return options_refuse(s->name, option, text);
    if (strncmp(text, "param[", 6) == 0 && a->weights) return options_refuse("weights", a->weights, text);
    if (strncmp(text, "kernels", 7) == 0) return options_refuse("kernel", options_own(a->o, "kernel"), text);
  }
  for (int i = 0; i < TENSORS; i++)
    if (a->in[i].path && starts_with(text, name_of(a, i))) file = a->in[i].path;
  if (a->dout[0].path && starts_with(text, "d_o")) file = a->dout[0].path;
  if (a->dout[1].path && starts_with(text, "d_lse")) file = a->dout[1].path;
  return fault(EXIT_REFUSED, "%s: %s", file, *text ? text : smx_strerror(status));
}

/* ---- Inputs ---- */

static int find_files(attention *a) {
  const options *o = a->o;
  const bool only_map = options_own(o, "map") && !o->out;
  const int files = a->act->files;
  for (int i = 0; i < o->file_count && files; i++) {
    if (i >= files)
      return fault(EXIT_USAGE, "%s: one input too many: attention takes %d", o->files[i], files);
    a->in[i].path = o->files[i];
  }
  for (int i = MASK; i < TENSORS; i++) a->in[i].path = options_own(o, attend_settings[i - MASK].name);
  if (!files && !o->file_count) return fault(EXIT_USAGE, "--result %s: no file of states", a->act->name);
  if (o->file_count < (only_map ? V : files))
    return fault(EXIT_USAGE, "attention: the input '%s' is missing; softmax help attention tells more",
                 name_of(a, o->file_count));
  return EXIT_OK;
}

/* Missing first dimensions are 1; the layout is turned into that of the library. */
static int make_dims(view *v, int32_t wanted, bool heads_last, const char *path, const char *name) {
  const int32_t ndim = v->tensor.ndim, missing = wanted - ndim;
  if (missing < 0 || missing > 2)
    return fault(EXIT_REFUSED, "%s: %s: %d dimensions, not %d to %d", path, name, (int)ndim, (int)wanted - 2,
                 (int)wanted);
  for (int32_t d = wanted - 1; d >= 0; d--) {
    v->shape[d] = d < missing ? 1 : v->shape[d - missing];
    v->strides[d] = d < missing ? 0 : v->strides[d - missing];
  }
  v->tensor.ndim = wanted;
  if (!heads_last || missing > 1) return EXIT_OK;
  int64_t shape = v->shape[1], stride = v->strides[1];
  v->shape[1] = v->shape[2], v->strides[1] = v->strides[2];
  v->shape[2] = shape, v->strides[2] = stride;
  return EXIT_OK;
}

static int read_array(const attention *a, input *in, view *v, const smx_port *port, bool *used_stdin) {
  const blocks whole = {.step = 0};
  bool standard = strcmp(in->path, "-") == 0;
  if (standard && *used_stdin) return fault(EXIT_USAGE, "-: standard input can be only one of the inputs");
  *used_stdin |= standard;
  int code = input_read(in, port, a->o, in == a->in ? NULL : a->in[Q].want);
  if (in == &a->in[BLOCK_TABLE]) in->want = dtype_named("i32");
  return code ? code : blocks_view(&whole, in, 0, -1, v);
}

/* Sizes of 1, and first dimensions that are missing, become those of the queries. */
static int spread_rows(attention *a, view *v) {
  int code = make_dims(v, 3, false, a->in[ROW_WEIGHTS].path, name_of(a, ROW_WEIGHTS));
  for (int32_t d = 0; d < 3 && !code; d++)
    if (v->shape[d] == 1) v->shape[d] = a->view[Q].shape[d], v->strides[d] = 0;
  return code;
}

static int read_tensor(attention *a, int i, bool *used_stdin) {
  static const uint32_t flags[TENSORS] = {
      [MASK] = SMX_PORT_MASK,       [LENGTHS] = SMX_PORT_INT,     [QUERY_OFFSETS] = SMX_PORT_INT,
      [KEY_OFFSETS] = SMX_PORT_INT, [BLOCK_TABLE] = SMX_PORT_INT, [STREAMS] = SMX_PORT_INT,
      [BUDGETS] = SMX_PORT_INT};
  const bool list = i == LENGTHS || i == QUERY_OFFSETS || i == KEY_OFFSETS || i == STREAMS;
  const smx_port port = {name_of(a, i), list ? SMX_SHAPE_OFFSETS : SMX_SHAPE_FULL, flags[i], ""};
  int code = read_array(a, &a->in[i], &a->view[i], &port, used_stdin);
  if (!code && i == ROW_WEIGHTS) code = spread_rows(a, &a->view[i]);
  if (code || (i > V && i != SECOND)) return code;
  return make_dims(&a->view[i], 4, a->heads_last && !(a->act->weighed && i == Q), a->in[i].path,
                   name_of(a, i));
}

static int read_douts(attention *a, bool *used_stdin) {
  static const smx_port port = {"dout", SMX_SHAPE_FULL, 0, ""};
  const int most = a->way == BY_KIND ? 2 : 1;
  int code = EXIT_OK;
  if (a->o->backward && !a->o->dout_count) return fault(EXIT_USAGE, "--backward: --dout FILE is missing");
  if (!a->o->backward && a->o->dout_count)
    return fault(EXIT_USAGE, "--dout %s: only with --backward", a->o->dout[0]);
  if (a->o->dout_count > most)
    return fault(EXIT_USAGE, "--dout %s: attention has %d outputs with a gradient", a->o->dout[most], most);
  for (int i = 0; !code && i < a->o->dout_count; i++) {
    a->dout[i].path = a->o->dout[i];
    code = read_array(a, &a->dout[i], &a->dout_view[i], &port, used_stdin);
    if (!code) code = make_dims(&a->dout_view[i], 4 - i, a->heads_last, a->dout[i].path, "dout");
  }
  return code;
}

static int read_states(attention *a, bool *used_stdin) {
  static const smx_port port = {"states", SMX_SHAPE_FULL, 0, ""};
  const int count = a->o->file_count;
  int code = EXIT_OK;
  a->states = calloc((size_t)count, sizeof *a->states);
  a->state_views = calloc((size_t)count, sizeof *a->state_views);
  if (!a->states || !a->state_views) return fault_memory((size_t)count * sizeof *a->states);
  for (int i = 0; !code && i < count; i++) {
    a->states[i].path = a->o->files[i];
    code = read_array(a, &a->states[i], &a->state_views[i], &port, used_stdin);
    if (!code && a->state_views[i].tensor.ndim != 5)
      code = fault(EXIT_REFUSED, "%s: %d dimensions, not the 5 of states", a->states[i].path,
                   (int)a->state_views[i].tensor.ndim);
  }
  return code;
}

static int read_tensors(attention *a) {
  const smx_tensor **const places[TENSORS] = {[MASK] = &a->how.mask,
                                              [BIAS] = &a->how.bias,
                                              [SLOPES] = &a->how.slopes,
                                              [SINKS] = &a->how.sinks,
                                              [LENGTHS] = &a->how.lengths,
                                              [QUERY_OFFSETS] = &a->how.query_offsets,
                                              [KEY_OFFSETS] = &a->how.key_offsets,
                                              [BLOCK_TABLE] = &a->how.block_table,
                                              [STREAMS] = &a->how.streams,
                                              [BUDGETS] = &a->select.budgets};
  const char *const paths[] = {a->in[Q].path, a->in[K].path};
  bool used_stdin = false;
  int code = a->act->files ? EXIT_OK : read_states(a, &used_stdin);
  for (int i = 0; !code && i < TENSORS; i++) {
    if (!a->in[i].path) continue;
    code = read_tensor(a, i, &used_stdin);
    if (places[i]) *places[i] = &a->view[i].tensor;
  }
  if (!code) code = read_douts(a, &used_stdin);
  if (!code && a->act->files && !a->act->weighed)
    code = rope_turn(&a->rope, a->o, &a->how, &a->view[Q], &a->view[K], paths);
  return code;
}

/* ---- All of it ---- */

int attend_context(attention *a) {
  smx_context_options c = {
      .size = sizeof c, .threads = a->o->threads, .on_empty = a->o->on_empty, .on_inf = a->o->on_inf};
  smx_status status = smx_context_create(&c, &a->context);
  return status == SMX_OK ? EXIT_OK : attend_fault(a, status);
}

static int attend(attention *a) {
  const char *map = options_own(a->o, "map");
  a->act = attend_find(a->o);
  int code = a->act ? read_own(a) : EXIT_USAGE;
  if (!code) code = check_own(a);
  if (!code) code = check_scores(a);
  if (!code) code = labels_read(&a->names, a->o->labels);
  if (!code) code = find_files(a);
  if (!code) code = read_tensors(a);
  if (!code && (a->o->out || !map)) code = attend_give(a);
  return !code && map ? attend_map(a, map) : code;
}

int work_attention(const options *o) {
  attention *a = calloc(1, sizeof *a);
  if (!a) return fault_memory(sizeof *a);
  a->o = o;
  a->select.size = sizeof a->select;
  smx_attention_init(&a->how);
  int code = attend(a);
  attend_free(a);
  smx_context_destroy(a->context);
  labels_free(&a->names);
  for (int i = 0; i < TENSORS; i++) input_free(&a->in[i]);
  for (int i = 0; i < 2; i++) input_free(&a->dout[i]);
  for (int i = 0; a->states && i < o->file_count; i++) input_free(&a->states[i]);
  rope_free(&a->rope);
  free(a->states);
  free(a->state_views);
  free(a);
  return code;
}
