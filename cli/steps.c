/* steps.c - steps from text: "0.9", "1,0.5", "1.2:5,7,9", "5=-2,7=1". */
#include "steps.h"

#include "fault.h"
#include "parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* What the text of a step is: numbers; numbers, a colon and tokens; TOKEN=VALUE,...; or tokens
 * alone. */
typedef enum form { NUMBERS, NUMBERS_AND_TOKENS, PAIRS, TOKENS } form;

static form form_of(const smx_step_info *info) {
  if (!(info->flags & SMX_STEP_HAS_TOKENS)) return NUMBERS;
  if (info->param_count) return NUMBERS_AND_TOKENS;
  return info->flags & SMX_STEP_HAS_VALUES ? PAIRS : TOKENS;
}
static form form_at(const smx_step *s) { return form_of(smx_step_at((size_t)s->kind)); }
static bool is_text(const smx_step *s) { return smx_step_at((size_t)s->kind)->flags & SMX_STEP_HAS_TEXT; }

/* ---- Options --------------------------------------------------------------------------------- */

enum { NAME = 32, ARGUMENT = 64, HELP = 256 };

/* "SIGMAS[,DDOF]:TOKENS" */
static void write_argument(const smx_step_info *info, char *text) {
  static const char *const ends[] = {"", ":TOKENS", "TOKEN=VALUE,...", "TOKENS"};
  size_t used = 0;
  bool open = false;
  for (int32_t i = 0; i < info->param_count && used < ARGUMENT; i++) {
    const bool needed = info->params[i].flags & SMX_PARAM_REQUIRED;
    used += (size_t)snprintf(text + used, ARGUMENT - used, "%s%s%s", needed || open ? "" : "[", i ? "," : "",
                             info->params[i].name);
    open |= !needed;
  }
  for (size_t i = 0; i < used && text[i]; i++) text[i] = (char)toupper(text[i]);
  if (used >= ARGUMENT) return;
  const char *end = info->flags & SMX_STEP_HAS_TEXT ? ":TEXT" : ends[form_of(info)];
  snprintf(text + used, ARGUMENT - used, "%s%s", open ? "]" : "", end);
}

size_t steps_settings(setting *list, size_t most) {
  static struct { char name[NAME], argument[ARGUMENT], help[HELP]; } texts[SMX_STEP_KINDS];
  const smx_step_info *info;
  size_t count = 0;
  for (; count < most && count < SMX_STEP_KINDS && (info = smx_step_at(count)); count++) {
    char *name = texts[count].name;
    snprintf(name, NAME, "%s", info->name);
    for (; *name; name++)
      if (*name == '_') *name = '-';
    write_argument(info, texts[count].argument);
    snprintf(texts[count].help, HELP, "step: %s", info->title);
    list[count] = (setting){
        texts[count].name, 0, texts[count].argument, texts[count].help, FOR_OPERATOR | MANY, NULL, NULL};
  }
  return count;
}

bool steps_entry(size_t i, entry *e) {
  const smx_step_info *s = smx_step_at(i);
  if (s) *e = (entry){s->name, s->title, s->formula, s->about, s->source, s->params, s->param_count};
  return s != NULL;
}

/* ---- From text ------------------------------------------------------------------------------- */

static int read_numbers(smx_step *s, const named_value *v, const char *text) {
  const smx_step_info *info = smx_step_at((size_t)s->kind);
  double numbers[3] = {0};
  char few[64];
  int count = 0, least = 0;
  for (int32_t i = 0; i < info->param_count; i++) {
    numbers[i] = info->params[i].def;
    least += (info->params[i].flags & SMX_PARAM_REQUIRED) != 0;
  }
  const char *wrong = options_numbers(text, info->param_count, numbers, &count);
  snprintf(few, sizeof few, "%d numbers are needed", least);
  if (!wrong && count < least) wrong = few;
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
  const bool text = is_text(s);
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
  return parse_int(item, least, INT64_MAX, &p->token) &&
         (!equals || parse_f64(equals, strlen(equals), &p->value));
}

/* "5,7" or "5=1.5,7=-2"; -1 in a text. */
static int read_list(smx_step *s, const named_value *v, const char *text) {
  const bool with_values = form_at(s) == PAIRS;
  const int64_t least = is_text(s) ? -1 : 0;
  size_t most = count_items(text), count = 0;
  pair *pairs = calloc(most, sizeof *pairs);
  bool good = pairs;
  for (const char *at = text; good && count < most; at++) {
    size_t n = strcspn(at, ",");
    good = read_pair(at, n, with_values, least, &pairs[count++]);
    at += n;
  }
  int code = good    ? set_tokens(s, pairs, count)
             : pairs ? options_refuse(v->name, v->text,
                                      with_values ? "not TOKEN=VALUE with commas between"
                                                  : "not whole numbers with commas between")
                     : fault_memory(most * sizeof *pairs);
  free(pairs);
  return code;
}

static int read_array(smx_step *s, const io_array *a) {
  int64_t count = 0;
  if (!count_elements(a->ndim, a->shape, &count)) return fault_memory(SIZE_MAX);
  pair *pairs = calloc((size_t)count + 1, sizeof *pairs);
  if (!pairs) return fault_memory((size_t)count * sizeof *pairs);
  for (int64_t i = 0; i < count; i++)
    pairs[i] = (pair){(int64_t)io_get(a, a->data + (size_t)i * a->type->bytes), 1};
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
  int code = strcmp(path, "-") == 0 ? fault(EXIT_USAGE, "-: standard input can be only one of the inputs")
                                    : input_read(&in, &port, &plain, NULL);
  if (!code) code = read_array(s, &in.array);
  input_free(&in);
  return code;
}

static int read_tokens(smx_step *s, const named_value *v, const char *text, const options *o) {
  const char *digits = is_text(s) ? "0123456789,-" : "0123456789,";
  return strspn(text, digits) == strlen(text) && strcmp(text, "-") != 0 ? read_list(s, v, text)
                                                                        : read_file(s, text, o);
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
  switch (form_at(s)) {
    case NUMBERS_AND_TOKENS: return read_penalty(s, v, o);
    case PAIRS: return read_list(s, v, v->text);
    case TOKENS: return read_tokens(s, v, v->text, o);
    default: return read_numbers(s, v, v->text);
  }
}

/* The kind that an option stands for; -1 for another option. */
static int kind_of(const setting *settings, const char *name) {
  for (int k = 0; k < SMX_STEP_KINDS; k++)
    if (strcmp(settings[k].name, name) == 0) return k;
  return -1;
}

int chain_read(chain *c, const setting *settings, const options *o) {
  size_t most = (size_t)o->named_count + 1;
  int code = EXIT_OK;
  c->count = 0;
  c->steps = calloc(most, sizeof *c->steps);
  c->options = calloc(most, sizeof *c->options);
  if (!c->steps || !c->options) return fault_memory(most * sizeof *c->steps);
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
  bool named = status == SMX_ERR_PARAM && sscanf(text, "smx_sample: step %zu, %*[^:]: %n", &step, &at) == 1 &&
               at && step < c->count;
  if (named) return fault(EXIT_USAGE, "--%s %s: %s", c->options[step].name, c->options[step].text, text + at);
  return fault(EXIT_REFUSED, "%s: %s", path, *text ? text : smx_strerror(status));
}
