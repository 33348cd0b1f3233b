/* options.c - reads the options of a verb with popt. */
#include "options.h"

#include "fault.h"
#include "help.h"
#include "io/io.h"
#include "nearest.h"
#include "parse.h"

#include <limits.h>
#include <popt.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BLOCK = 64 << 20 };

/* ---- The settings ---- */

int options_refuse(const char *option, const char *text, const char *what) {
  return fault(EXIT_USAGE, "--%s %s: %s", option, text, what);
}

int options_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value) {
  return parse_int(text, min, max, value) ? EXIT_OK
                                          : options_refuse(option, text, "not a whole number in its range");
}

int options_number(const char *option, const char *text, double *value) {
  return parse_f64(text, strlen(text), value) ? EXIT_OK : options_refuse(option, text, "not a number");
}

const char *options_numbers(const char *text, int most, double *values, int *count) {
  *count = 0;
  for (const char *at = text;; at++) {
    size_t n = strcspn(at, ",");
    if (*count == most) return "too many numbers";
    if (!parse_f64(at, n, &values[(*count)++])) return "not a number, or numbers with commas between";
    at += n;
    if (!*at) return NULL;
  }
}

static int set_axis(options *o, const char *text) {
  int64_t v = -1;
  int code = options_int("axis", text, -SMX_MAX_DIMS, SMX_MAX_DIMS - 1, &v);
  o->axis = (int32_t)v;
  return code;
}

static int set_threads(options *o, const char *text) {
  int64_t v = -1;
  int code = strcmp(text, "all") == 0 ? EXIT_OK : options_int("threads", text, 1, 65536, &v);
  o->threads = (int32_t)v;
  return code;
}

static int set_block(options *o, const char *text) {
  return options_int("block", text, 1, INT64_MAX, &o->block);
}

static void number_types(char *text, size_t size) { dtype_names(true, text, size); }
static void all_types(char *text, size_t size) { dtype_names(false, text, size); }

static int set_type(options *o, const char *text) {
  char names[128];
  o->type = dtype_named(text);
  number_types(names, sizeof names);
  return o->type && o->type->number ? EXIT_OK : fault(EXIT_USAGE, "--dtype %s: not one of %s", text, names);
}

static int set_type_in(options *o, const char *text) {
  char names[128];
  o->type_in = dtype_named(text);
  all_types(names, sizeof names);
  return o->type_in ? EXIT_OK : fault(EXIT_USAGE, "--dtype-in %s: not one of %s", text, names);
}

static int set_shape(options *o, const char *text) {
  const char *wrong = parse_shape(text, &o->shape);
  o->has_shape = true;
  return wrong ? options_refuse("shape", text, wrong) : EXIT_OK;
}

static void format_names(char *text, size_t size) {
  const io_format *f;
  size_t used = 0;
  for (size_t i = 0; (f = io_format_at(i)) && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", f->name);
}

static int check_format(const char *option, const char *text) {
  return io_format_named(text) ? EXIT_OK
                               : options_refuse(option, text, "no such format; softmax help lists them");
}

static int set_format(options *o, const char *text) {
  o->format = text;
  return check_format("format", text);
}

static int set_out_format(options *o, const char *text) {
  o->out_format = text;
  return check_format("out-format", text);
}

static int set_out(options *o, const char *text) {
  o->out = text;
  return *text ? EXIT_OK : options_refuse("output", text, "an empty name");
}

static int set_labels(options *o, const char *text) {
  o->labels = text;
  return EXIT_OK;
}

static int set_header(options *o, const char *text) {
  o->header = true;
  return EXIT_OK;
}

static int set_backward(options *o, const char *text) {
  o->backward = true;
  return EXIT_OK;
}

static int set_help(options *o, const char *text) {
  o->help = true;
  return EXIT_OK;
}

static int set_dout(options *o, const char *text) {
  if (o->dout_count == SMX_MAX_PORTS) return options_refuse("dout", text, "too many of them");
  o->dout[o->dout_count++] = text;
  return EXIT_OK;
}

static const char *const empty_words[] = {"zero", "nan", "error", NULL};
static const char *const inf_words[] = {"nan", "limit", NULL};

/* The index of a word in a list. */
static int choose(const char *option, const char *text, const char *const *words, int *index) {
  for (*index = 0; words[*index]; ++*index)
    if (strcmp(words[*index], text) == 0) return EXIT_OK;
  return options_refuse(option, text, "no such choice");
}

static int set_on_empty(options *o, const char *text) {
  int i, code = choose("on-empty", text, empty_words, &i);
  o->on_empty = (smx_on_empty)i;
  return code;
}

static int set_on_inf(options *o, const char *text) {
  int i, code = choose("on-inf", text, inf_words, &i);
  o->on_inf = (smx_on_inf)i;
  return code;
}

static void join(const char *const *words, char *text, size_t size) {
  size_t used = 0;
  for (; *words && used < size; words++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", *words);
}

static void empty_choices(char *text, size_t size) { join(empty_words, text, size); }
static void inf_choices(char *text, size_t size) { join(inf_words, text, size); }

static const setting settings[] = {
    {"axis", 'a', "A", "the axis that rows run along; negative counts from the end; -1 by default", FOR_ROWS,
     set_axis, NULL},
    {"output", 'o', "OUT",
     "write the result to OUT, in the format of its extension; - is standard output. A format of one array "
     "has the first of several results",
     FOR_OUTPUT, set_out, NULL},
    {"dtype", 0, "T", "type of the result: f16, bf16, f32 or f64; that of the input by default", FOR_TYPE,
     set_type, number_types},
    {"threads", 0, "N", "threads to use; all (the cores the process may use) by default", FOR_THREADS,
     set_threads, NULL},
    {"labels", 0, "FILE", "names of the classes, one a line, shown beside their indices", FOR_LABELS,
     set_labels, NULL},
    {"backward", 0, NULL, "give the gradients of the inputs instead of the outputs", FOR_GRADIENT,
     set_backward, NULL},
    {"dout", 0, "FILE",
     "gradient of the next output, with --backward; once for each output that is not of whole numbers",
     FOR_GRADIENT | MANY, set_dout, NULL},
    {"format", 0, "F", "format of the inputs, whatever their extension", FOR_INPUT, set_format, format_names},
    {"out-format", 0, "F", "format of the output; npy by default for standard output", FOR_FORMAT,
     set_out_format, format_names},
    {"shape", 0, "2,3", "shape of raw inputs", FOR_INPUT, set_shape, NULL},
    {"dtype-in", 0, "T", "type of raw inputs, or f32 to read text as f32", FOR_INPUT, set_type_in, all_types},
    {"header", 0, NULL, "skip the first line of text inputs, even if it has numbers", FOR_INPUT, set_header,
     NULL},
    {"on-empty", 0, "P", "rows with nothing valid: zero (default), nan or error", FOR_POLICY, set_on_empty,
     empty_choices},
    {"on-inf", 0, "P", "rows of scores with +inf: nan (default), or limit: they share the mass", FOR_INF,
     set_on_inf, inf_choices},
    {"block", 0, "BYTES", "how much of the input to take at a time; 67108864 by default", FOR_ROWS, set_block,
     NULL},
    {"help", 'h', NULL, "show help and do nothing else", FOR_HELP, set_help, NULL},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

const setting *setting_at(size_t i) { return i < SETTINGS ? &settings[i] : NULL; }

/* ---- Names of the operators' parameters and inputs ---- */

/* The name of the i-th parameter or input of one operator; NULL past the last. */
static const char *own_name_at(const smx_op *op, int32_t i) {
  if (i < op->param_count) return op->params[i].name;
  i -= op->param_count;
  return i < op->input_count ? op->inputs[i].name : NULL;
}

/* ---- Parsing ---- */

/* popt's table, and what its entries mean: a setting, or NULL for a name of operators. The values
 * are positions + 1. */
typedef struct option_table {
  struct poptOption *options;
  const setting **settings;
  const char **given; /* what each was given so far, NULL if it was not */
  const char **names; /* what it is another spelling of, itself in memory of its own; or NULL */
  int count;
} option_table;

static void add_option(option_table *t, const setting *s, const char *name) {
  t->settings[t->count] = s;
  t->options[t->count] =
      (struct poptOption){.longName = name, .shortName = s ? s->letter : 0, .val = t->count + 1};
  t->options[t->count].argInfo = s && !s->argument ? POPT_ARG_NONE : POPT_ARG_STRING;
  t->count++;
}

static bool has_setting(const setting *list, const char *name) {
  for (; list && list->name; list++)
    if (strcmp(list->name, name) == 0) return true;
  return false;
}

/* The verb that has an option of this name, for itself or of the groups it takes; NULL when none
 * has. */
static const verb *verb_with(const char *name) {
  for (size_t i = 0; i < verb_count; i++) {
    if (has_setting(verbs[i].own, name)) return &verbs[i];
    for (size_t k = 0; k < SETTINGS; k++)
      if (settings[k].group & verbs[i].groups && strcmp(settings[k].name, name) == 0) return &verbs[i];
  }
  return NULL;
}

/* top-groups for top_groups, unless a verb has an option of that name. */
static void add_spelling(option_table *t, const char *name) {
  char *dashed = strchr(name, '_') ? strdup(name) : NULL;
  for (char *c = dashed; c && *c; c++) *c = *c == '_' ? '-' : *c;
  if (!dashed || verb_with(dashed)) {
    free(dashed);
    return;
  }
  add_option(t, NULL, dashed);
  t->names[t->count - 1] = name;
}

/* The names of all operators' parameters and inputs, each once. */
static void add_operator_names(option_table *t) {
  const int first = t->count;
  const char *name;
  for (size_t k = 0; k < smx_op_count(); k++)
    for (int32_t i = 0; (name = own_name_at(smx_op_at(k), i)); i++) {
      int at = first;
      while (at < t->count && strcmp(t->options[at].longName, name) != 0) at++;
      if (at < t->count) continue;
      add_option(t, NULL, name);
      add_spelling(t, name);
    }
}

/* A verb's own options go before what has the same name elsewhere. */
static int make_table(option_table *t, uint32_t groups, const setting *own) {
  size_t room = SETTINGS + 1;
  for (size_t i = 0; own && own[i].name; i++) room++;
  for (size_t k = 0; k < smx_op_count(); k++)
    room += 2 * (size_t)(smx_op_at(k)->param_count + smx_op_at(k)->input_count);
  t->options = calloc(room, sizeof *t->options);
  t->settings = calloc(room, sizeof *t->settings);
  t->given = calloc(room, sizeof *t->given);
  t->names = calloc(room, sizeof *t->names);
  t->count = 0;
  if (!t->options || !t->settings || !t->given || !t->names) return fault_memory(room * sizeof *t->options);
  for (size_t i = 0; own && own[i].name; i++) add_option(t, &own[i], own[i].name);
  for (size_t i = 0; i < SETTINGS; i++)
    if (settings[i].group & groups) add_option(t, &settings[i], settings[i].name);
  if (groups & FOR_OPERATOR) add_operator_names(t);
  return EXIT_OK;
}

/* What is given twice: neither value is taken, unless both are the same. */
static int check_once(const option_table *t, int at, const char *text) {
  const char *before = t->given[at];
  if (before && strcmp(before, text) != 0 && !(t->settings[at] && t->settings[at]->group & MANY))
    return fault(EXIT_USAGE, "--%s %s: given before, as %s", t->options[at].longName, text, before);
  t->given[at] = text;
  return EXIT_OK;
}

static int apply(options *o, const option_table *t, int value, char *text) {
  const setting *s = t->settings[value - 1];
  if (text) o->texts[o->text_count++] = text;
  int code = check_once(t, value - 1, text ? text : "");
  if (code) return code;
  if (s && s->set) return s->set(o, text ? text : "");
  const char *name = t->names[value - 1] ? t->names[value - 1] : t->options[value - 1].longName;
  o->named[o->named_count++] = (named_value){name, text ? text : ""};
  return EXIT_OK;
}

static int collect_files(options *o, poptContext c) {
  const char **left = poptGetArgs(c);
  for (; left && *left; left++) {
    char *copy = strdup(*left);
    if (!copy) return fault_memory(strlen(*left));
    o->texts[o->text_count++] = copy;
    o->files[o->file_count++] = copy;
  }
  return EXIT_OK;
}

/* An option that nobody knows here, with the one that may be meant. */
static int refuse_unknown(const option_table *t, const char *given) {
  char word[64];
  const char *name = given + strspn(given, "-");
  snprintf(word, sizeof word, "%.*s", (int)strcspn(name, "="), name);
  nearest near = nearest_begin(word, nearest_usual(word));
  for (int i = 0; i < t->count && strlen(word) > 1; i++) nearest_try(&near, t->options[i].longName);
  for (size_t i = 0; i < verb_count && strlen(word) > 1; i++)
    if (*verbs[i].name == '-') nearest_try(&near, verbs[i].name + 2);
  const verb *other = near.found && near.limit == 0 ? NULL : verb_with(word);
  if (other) return fault(EXIT_USAGE, "%s: not an option here, but one of softmax %s", given, other->name);
  if (!near.found) return fault(EXIT_USAGE, "%s: no such option; --help lists them", given);
  return fault(EXIT_USAGE, "%s: no such option; did you mean --%s?", given, near.found);
}

static int read_all(options *o, poptContext c, const option_table *table) {
  int value, code;
  while ((value = poptGetNextOpt(c)) > 0)
    if ((code = apply(o, table, value, poptGetOptArg(c)))) return code;
  if (value == POPT_ERROR_BADOPT) return refuse_unknown(table, poptBadOption(c, POPT_BADOPTION_NOALIAS));
  if (value < -1)
    return fault(EXIT_USAGE, "%s: %s", poptBadOption(c, POPT_BADOPTION_NOALIAS), poptStrerror(value));
  return collect_files(o, c);
}

static void free_table(option_table *t) {
  for (int i = 0; t->names && i < t->count; i++)
    if (t->names[i]) free((char *)(uintptr_t)t->options[i].longName);
  free(t->options);
  free(t->settings);
  free(t->given);
  free(t->names);
}

int options_parse(options *o, uint32_t groups, const setting *own, int argc, const char **argv) {
  size_t room = (size_t)argc + 1;
  option_table table;
  memset(o, 0, sizeof *o);
  o->axis = o->threads = -1;
  o->block = DEFAULT_BLOCK;
  o->files = calloc(room, sizeof *o->files);
  o->named = calloc(room, sizeof *o->named);
  o->texts = calloc(2 * room, sizeof *o->texts);
  int code = make_table(&table, groups | FOR_HELP, own);
  poptContext c = code ? NULL : poptGetContext("softmax", argc, argv, table.options, POPT_CONTEXT_KEEP_FIRST);
  bool good = o->files && o->named && o->texts && c;
  if (!code) code = good ? read_all(o, c, &table) : fault_memory(room);
  poptFreeContext(c);
  free_table(&table);
  return code;
}

const char *options_own(const options *o, const char *name) {
  const char *text = NULL;
  for (int i = 0; i < o->named_count; i++)
    if (strcmp(o->named[i].name, name) == 0) text = o->named[i].text;
  return text;
}

void options_free(options *o) {
  for (int i = 0; i < o->text_count; i++) free(o->texts[i]);
  free(o->texts);
  free(o->named);
  free(o->files);
}
