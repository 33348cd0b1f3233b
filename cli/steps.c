/* steps.c - steps from text: "0.9", "1,0.5", "1.2:5,7,9", "5=-2,7=1". */
#include "steps.h"

#include "fault.h"
#include "parse.h"

#include <stdlib.h>
#include <string.h>

/* What the text of each kind of step is: numbers, least to most of them, the others as they stand here; then what else. */
typedef enum what {
  NUMBERS,
  PENALTY /* :TOKENS */,
  TEXT /* :TOKENS, in their order */,
  PAIRS /* TOKEN=VALUE,... alone */,
  TOKENS /* alone */
} what;

static const struct form {
  what what;
  int least, most;
  double numbers[3];
} forms[] = {
    [SMX_STEP_TEMPERATURE] = {NUMBERS, 1, 1, {0}},  [SMX_STEP_TOP_K] = {NUMBERS, 1, 1, {0}},
    [SMX_STEP_TOP_P] = {NUMBERS, 1, 1, {0}},        [SMX_STEP_MIN_P] = {NUMBERS, 1, 1, {0}},
    [SMX_STEP_TYPICAL] = {NUMBERS, 1, 1, {0}},      [SMX_STEP_EPSILON] = {NUMBERS, 1, 1, {0}},
    [SMX_STEP_ETA] = {NUMBERS, 1, 1, {0}},          [SMX_STEP_TOP_N_SIGMA] = {NUMBERS, 1, 2, {0}},
    [SMX_STEP_SURPRISE] = {NUMBERS, 1, 1, {0}},     [SMX_STEP_XTC] = {NUMBERS, 2, 2, {0}},
    [SMX_STEP_REPETITION] = {PENALTY, 1, 1, {0}},   [SMX_STEP_FREQUENCY] = {PENALTY, 1, 2, {0}},
    [SMX_STEP_BIAS] = {PAIRS, 0, 0, {0}},           [SMX_STEP_BAN] = {TOKENS, 0, 0, {0}},
    [SMX_STEP_ALLOW] = {TOKENS, 0, 0, {0}},         [SMX_STEP_DYNAMIC_TEMPERATURE] = {NUMBERS, 2, 3, {0, 0, 1}},
    [SMX_STEP_QUADRATIC] = {NUMBERS, 1, 2, {0, 1}}, [SMX_STEP_TAIL_FREE] = {NUMBERS, 1, 1, {0}},
    [SMX_STEP_TOP_H] = {NUMBERS, 1, 1, {0}},        [SMX_STEP_MIROSTAT] = {NUMBERS, 1, 1, {0}},
    [SMX_STEP_NO_REPEAT] = {TEXT, 1, 1, {0}},       [SMX_STEP_DRY] = {TEXT, 1, 3, {0, 1.75, 2}},
};
enum { KINDS = sizeof forms / sizeof *forms };

static int read_numbers(smx_step *s, const named_value *v, const char *text) {
  const struct form *f = &forms[s->kind];
  double numbers[3];
  int count = 0;
  memcpy(numbers, f->numbers, sizeof numbers);
  const char *wrong = options_numbers(text, f->most, numbers, &count);
  if (!wrong && count < f->least) wrong = "two numbers are needed";
  s->a = numbers[0];
  s->b = numbers[1];
  s->c = numbers[2];
  return wrong ? options_refuse(v->name, v->text, wrong) : EXIT_OK;
}

/* A token and its value; where one is listed several times the values add up. */
typedef struct pair {
  int64_t token;
  double value;
} pair;

static int by_token(const void *a, const void *b) {
  int64_t x = ((const pair *)a)->token, y = ((const pair *)b)->token;
  return (x > y) - (x < y);
}

/* Of a text, the tokens as they are; else each once. */
static int set_tokens(smx_step *s, pair *pairs, size_t count) {
  const bool text = forms[s->kind].what == TEXT;
  int64_t *tokens = calloc(count + 1, sizeof *tokens);
  double *values = calloc(count + 1, sizeof *values);
  s->tokens = tokens;
  s->values = values;
  if (!tokens || !values) return fault_memory(count * (sizeof *tokens + sizeof *values));
  if (!text) qsort(pairs, count, sizeof *pairs, by_token);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || text || pairs[i].token != pairs[i - 1].token) tokens[s->token_count++] = pairs[i].token;
    values[s->token_count - 1] += pairs[i].value;
  }
  return EXIT_OK;
}

static size_t count_items(const char *text) {
  size_t n = 1;
  for (; *text; text++) n += *text == ',';
  return n;
}

/* TOKEN, or TOKEN=VALUE. */
static bool read_pair(const char *text, size_t length, bool with_value, int64_t least, pair *p) {
  char item[64];
  if (length >= sizeof item) return false;
  snprintf(item, sizeof item, "%.*s", (int)length, text);
  char *equals = strchr(item, '=');
  if ((equals != NULL) != with_value) return false;
  if (equals) *equals++ = 0;
  p->value = 1;
  return parse_int(item, least, INT64_MAX, &p->token) && (!equals || parse_f64(equals, strlen(equals), &p->value));
}

/* "5,7" or "5=1.5,7=-2"; -1 in a text. */
static int read_list(smx_step *s, const named_value *v, const char *text) {
  const bool with_values = forms[s->kind].what == PAIRS;
  const int64_t least = forms[s->kind].what == TEXT ? -1 : 0;
  size_t room = count_items(text), count = 0;
  pair *pairs = calloc(room, sizeof *pairs);
  bool good = pairs;
  for (const char *at = text; good && count < room; at++) {
    size_t n = strcspn(at, ",");
    good = read_pair(at, n, with_values, least, &pairs[count++]);
    at += n;
  }
  int code = good    ? set_tokens(s, pairs, count)
             : pairs ? options_refuse(v->name, v->text,
                                      with_values ? "not TOKEN=VALUE with commas between" : "not whole numbers with commas between")
                     : fault_memory(room * sizeof *pairs);
  free(pairs);
  return code;
}

static int read_array(smx_step *s, const io_array *a) {
  int64_t count = 0;
  if (!count_elements(a->ndim, a->shape, &count)) return fault_memory(SIZE_MAX);
  pair *pairs = calloc((size_t)count + 1, sizeof *pairs);
  if (!pairs) return fault_memory((size_t)count * sizeof *pairs);
  for (int64_t i = 0; i < count; i++) pairs[i] = (pair){(int64_t)io_get(a, a->data + (size_t)i * a->type->bytes), 1};
  int code = set_tokens(s, pairs, (size_t)count);
  free(pairs);
  return code;
}

/* An array of whole numbers in a file. */
static int read_file(smx_step *s, const char *path, const options *o) {
  static const smx_port port = {"tokens", SMX_SHAPE_COLUMN, SMX_PORT_INT, ""};
  options plain = *o; /* what says how to read logits does not say it of tokens */
  plain.format = NULL;
  plain.has_shape = false;
  input in = {.path = path};
  int code =
      strcmp(path, "-") == 0 ? fault(EXIT_USAGE, "-: standard input can be only one of the inputs") : input_read(&in, &port, &plain, NULL);
  if (!code) code = read_array(s, &in.array);
  input_free(&in);
  return code;
}

static int read_tokens(smx_step *s, const named_value *v, const char *text, const options *o) {
  const char *digits = forms[s->kind].what == TEXT ? "0123456789,-" : "0123456789,";
  return strspn(text, digits) == strlen(text) && strcmp(text, "-") != 0 ? read_list(s, v, text) : read_file(s, text, o);
}

static int read_penalty(smx_step *s, const named_value *v, const options *o) {
  char numbers[128];
  const char *colon = strchr(v->text, ':');
  size_t n = colon ? (size_t)(colon - v->text) : 0;
  if (!colon || n >= sizeof numbers) return options_refuse(v->name, v->text, "not NUMBER:TOKENS");
  memcpy(numbers, v->text, n);
  numbers[n] = 0;
  int code = read_numbers(s, v, numbers);
  return code ? code : read_tokens(s, v, colon + 1, o);
}

static int read_step(smx_step *s, const named_value *v, const options *o) {
  switch (forms[s->kind].what) {
    case PENALTY:
    case TEXT: return read_penalty(s, v, o);
    case PAIRS: return read_list(s, v, v->text);
    case TOKENS: return read_tokens(s, v, v->text, o);
    default: return read_numbers(s, v, v->text);
  }
}

/* The kind that an option stands for; -1 for another option. */
static int kind_of(const setting *settings, const char *name) {
  for (int k = 0; k < KINDS; k++)
    if (strcmp(settings[k].name, name) == 0) return k;
  return -1;
}

int chain_read(chain *c, const setting *settings, const options *o) {
  size_t room = (size_t)o->named_count + 1;
  int code = EXIT_OK;
  c->count = 0;
  c->steps = calloc(room, sizeof *c->steps);
  c->options = calloc(room, sizeof *c->options);
  if (!c->steps || !c->options) return fault_memory(room * sizeof *c->steps);
  for (int i = 0; !code && i < o->named_count; i++) {
    int kind = kind_of(settings, o->named[i].name);
    if (kind < 0) continue;
    smx_step *s = &c->steps[c->count];
    c->options[c->count++] = o->named[i];
    s->kind = (smx_step_kind)kind;
    code = read_step(s, &o->named[i], o);
  }
  return code;
}

void chain_free(chain *c) {
  for (size_t i = 0; i < c->count; i++) {
    free((void *)(uintptr_t)c->steps[i].tokens);
    free((void *)(uintptr_t)c->steps[i].values);
  }
  free(c->steps);
  free(c->options);
}

int chain_fault(const chain *c, const char *path, smx_status status) {
  const char *text = smx_last_error();
  size_t step = 0;
  int at = 0;
  bool named = status == SMX_ERR_PARAM && sscanf(text, "smx_sample: step %zu, %*[^:]: %n", &step, &at) == 1 && at && step < c->count;
  if (named) return fault(EXIT_USAGE, "--%s %s: %s", c->options[step].name, c->options[step].text, text + at);
  return fault(EXIT_REFUSED, "%s: %s", path, *text ? text : smx_strerror(status));
}
