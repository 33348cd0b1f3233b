/* help.c - help for a person: the command, and each operator in full. */
#include "help.h"

#include "fault.h"
#include "io/io.h"
#include "nearest.h"
#include "options.h"
#include "report/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, DEEP = 6, FLAG_WIDTH = 22 };

void param_text(const smx_param *p, double value, char *text, size_t size) {
  if (p->choices && value >= 0 && value <= p->max) snprintf(text, size, "%s", p->choices[(int)value]);
  else if (fabs(value) == 0x1p53) snprintf(text, size, "%s2^53", value < 0 ? "-" : "");
  else if (fabs(value) == 0x1p127) snprintf(text, size, "%s2^127", value < 0 ? "-" : "");
  else snprintf(text, size, "%.7g", value);
}

void param_range(const smx_param *p, char *text, size_t size) {
  char low[32], high[32];
  size_t used = (size_t)snprintf(text, size, "%s", p->choices ? "one of" : "");
  for (int i = 0; p->choices && p->choices[i] && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s %s", i ? "," : "", p->choices[i]);
  if (p->choices) return;
  param_text(p, p->min, low, sizeof low);
  param_text(p, p->max, high, sizeof high);
  bool open = p->flags & SMX_PARAM_OPEN_MIN;
  snprintf(text, size, "a %snumber %s %s%s %s%s",
           p->flags & SMX_PARAM_EVEN  ? "even "
           : p->flags & SMX_PARAM_INT ? "whole "
                                      : "",
           open ? "above" : "from", low, open ? ", up to" : " to", high,
           p->flags & SMX_PARAM_NONZERO ? ", not 0" : "");
}

void param_line(const smx_param *p, char *text, size_t size) {
  char range[256], value[32], how[64] = "";
  param_range(p, range, sizeof range);
  param_text(p, p->def, value, sizeof value);
  if (p->flags & SMX_PARAM_REQUIRED) snprintf(how, sizeof how, ", say %s", value);
  else if (!isnan(p->def)) snprintf(how, sizeof how, "; %s by default", value);
  snprintf(text, size, "%s; %s%s", p->help, range, how);
}

bool has_rows(const smx_op *op) { return op->inputs[0].shape != SMX_SHAPE_DIMS; }

/* "[..., n, d]", and what its whole numbers are. */
static void dims_text(const char *dims, char *text, size_t size) {
  const char *bar = strchr(dims, '|');
  const size_t end = bar ? (size_t)(bar - dims) : strlen(dims);
  size_t used = (size_t)snprintf(text, size, "[");
  for (size_t i = 0; i < end && used + 3 < size; i++) {
    if (dims[i] != ' ') text[used++] = dims[i];
    else if (i + 1 < end) text[used++] = ',', text[used++] = ' ';
  }
  text[used] = 0;
  if (!bar) snprintf(text + used, size - used, "]");
  else if (strncmp(bar, "| <= ", 5) == 0)
    snprintf(text + used, size - used, "], offsets from 0 to %s", bar + 5);
  else snprintf(text + used, size - used, "], each below %s", bar + 4);
}

void port_text(const smx_op *op, const smx_port *port, char *text, size_t size) {
  static const char *const rules[] = {"the shape of x",   "one value a row",
                                      "a list",           "one value an element of the axis",
                                      "k along the axis", "one value for all rows"};
  char dims[128];
  const char *rule = port == &op->inputs[0] ? "any" : rules[has_rows(op) ? port->shape : 0];
  if (!has_rows(op)) dims_text(port->dims, dims, sizeof dims), rule = dims;
  const char *type = port->flags & SMX_PORT_MASK  ? " Type: bool or u8."
                     : port->flags & SMX_PORT_INT ? " Type: i32 or i64."
                                                  : "";
  snprintf(text, size, "%s. Shape: %s.%s%s", port->help, rule, type,
           port->flags & SMX_PORT_OPTIONAL ? " Optional." : "");
}

static void print_heading(const char *text) { printf("\n%s\n", text); }

static void print_param(const smx_param *p) {
  char text[512];
  param_line(p, text, sizeof text);
  printf("%*s--%s %s\n", INDENT, "", p->name, p->choices ? "CHOICE" : "NUMBER");
  print_wrapped(stdout, text, DEEP, screen_columns());
}

static void print_ports(const char *heading, const smx_op *op, int32_t count, const smx_port *ports) {
  char text[512];
  print_heading(heading);
  for (int32_t i = 0; i < count; i++) {
    port_text(op, &ports[i], text, sizeof text);
    printf("%*s%s\n", INDENT, "", ports[i].name);
    print_wrapped(stdout, text, DEEP, screen_columns());
  }
}

int help_operator(const smx_op *op) {
  int width = screen_columns();
  char text[256];
  printf("%s - %s (%s)\n\n", op->name, op->title, op->family);
  print_wrapped(stdout, op->formula, INDENT, width);
  putchar('\n');
  print_wrapped(stdout, op->about, 0, width);
  print_ports("Inputs, in order; all but the first also as --NAME FILE:", op, op->input_count, op->inputs);
  print_ports("Outputs:", op, op->output_count, op->outputs);
  if (op->param_count) print_heading("Parameters:");
  for (int32_t i = 0; i < op->param_count; i++) print_param(&op->params[i]);
  snprintf(text, sizeof text, "%s; %s; f32 results within %g units of 2^-24 of their scale.",
           op->flags & SMX_OP_BACKWARD ? "Has a gradient (--backward)" : "No gradient",
           op->flags & SMX_OP_INPLACE ? "can work in place" : "does not work in place", op->tolerance);
  putchar('\n');
  print_wrapped(stdout, text, 0, width);
  print_heading("Example:");
  print_wrapped(stdout, op->example, INDENT, width);
  print_heading("Source:");
  print_wrapped(stdout, op->source, INDENT, width);
  return EXIT_OK;
}

static void print_item(const char *name, const char *text) {
  if ((int)strlen(name) >= FLAG_WIDTH - INDENT) printf("%*s%s\n%*s", INDENT, "", name, FLAG_WIDTH, "");
  else printf("%*s%-*s", INDENT, "", FLAG_WIDTH - INDENT, name);
  int room = screen_columns() - FLAG_WIDTH;
  while (*text) {
    int n = (int)strlen(text);
    if (n > room)
      for (n = room; n > 1 && text[n] != ' '; n--) continue;
    printf("%.*s\n", n, text);
    text += n + (text[n] == ' ');
    if (*text) printf("%*s", FLAG_WIDTH, "");
  }
}

static void print_setting(const setting *s) {
  char name[64], letter[8] = "";
  if (s->letter) snprintf(letter, sizeof letter, "-%c, ", s->letter);
  snprintf(name, sizeof name, "%s--%s%s%s", letter, s->name, s->argument ? " " : "",
           s->argument ? s->argument : "");
  print_item(name, s->help);
}

const example examples[] = {
    {"softmax logits.npy", "the weights and the entropy of each row"},
    {"softmax logits.csv --axis 0 -o weights.npy", "along the columns of text, into a file of NumPy"},
    {"softmax model.safetensors:head --dtype bf16 -o weights.safetensors",
     "one tensor of several, rounded to bf16"},
    {"softmax - < logits.csv", "what comes through a pipe"},
    {"softmax loss cross_entropy logits.npy --targets labels.npy",
     "the mean loss, the accuracy and the mean entropy"},
    {"softmax score msp,entropy,energy logits.npy", "how sure the rows are"},
    {"softmax metrics logits.npy --targets labels.npy", "how right, and how rightly sure"},
    {"softmax report logits.npy --targets labels.npy -o report.html", "the same as a page for a browser"},
    {"softmax calibrate fit temperature logits.npy --targets labels.npy -o fit.json",
     "how sure it should be"},
    {"softmax calibrate apply fit.json logits.npy -o p.npy", "the calibrated probabilities"},
    {"softmax top-k -k 5 logits.npy --labels names.txt", "the five best of each row, with their names"},
    {"softmax sample --temperature 0.8 --top-p 0.95 --seed 1 --draws 10 logits.npy", "ten draws of each row"},
    {"softmax attention q.npy k.npy v.npy --causal -o o.npy",
     "attention, each query seeing the keys up to its own"},
    {"softmax attention q.npy k.npy --head 3 --map map.svg", "the weights of a head as a picture"},
    {"softmax attention q.npy k.npy --result keys --keep 512 --last 32 -o keys.npy",
     "which keys a cache should keep"},
    {"softmax plot softmax sparsemax entmax:alpha=1.5 -o weights.svg", "how three operators differ"},
    {"softmax loss --help", "the options that a verb has of its own"},
};
const size_t example_count = sizeof examples / sizeof *examples;

const verb *verb_named(const char *name) {
  for (size_t i = 0; i < verb_count; i++)
    if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
  return NULL;
}

static void print_verb(const verb *v) {
  printf("  softmax%s%s%s%s\n", *v->name ? " " : "", v->name, *v->arguments ? " " : "", v->arguments);
  print_wrapped(stdout, v->help, DEEP, screen_columns());
}

static void print_entry(const entry *e) {
  char text[512];
  const int width = screen_columns();
  snprintf(text, sizeof text, "%s - %s", e->name, e->title);
  print_wrapped(stdout, text, INDENT, width);
  print_wrapped(stdout, e->formula, DEEP, width);
  print_wrapped(stdout, e->about, DEEP, width);
  for (int32_t i = 0; i < e->param_count; i++) {
    const int used = snprintf(text, sizeof text, "%s: ", e->params[i].name);
    param_line(&e->params[i], text + used, sizeof text - (size_t)used);
    print_wrapped(stdout, text, DEEP, width);
  }
  snprintf(text, sizeof text, "Source: %s", e->source);
  print_wrapped(stdout, text, DEEP, width);
}

bool help_entry(const char *name) {
  entry e;
  bool found = false;
  for (size_t v = 0; v < verb_count; v++)
    for (size_t i = 0; verbs[v].entry && verbs[v].entry(i, &e); i++) {
      if (strcmp(e.name, name) != 0) continue;
      printf("%sOf softmax %s:\n", found ? "\n" : "", verbs[v].name);
      print_entry(&e);
      found = true;
    }
  return found;
}

static bool is_own(const verb *v, const char *name) {
  for (const setting *s = v->own; s && s->name; s++)
    if (strcmp(s->name, name) == 0) return true;
  return false;
}

int help_verb(const verb *v) {
  const setting *s;
  entry e;
  puts("Usage:");
  print_verb(v);
  if (v->own) print_heading("Options of its own:");
  for (s = v->own; s && s->name; s++) print_setting(s);
  if (v->entry) putchar('\n'), print_wrapped(stdout, v->entries_heading, 0, screen_columns());
  for (size_t i = 0; v->entry && v->entry(i, &e); i++) print_entry(&e);
  const smx_op *op = v->runs ? smx_op_find(v->runs) : NULL;
  if (op) printf("\nParameters of %s:\n", op->name);
  for (int32_t i = 0; op && i < op->param_count; i++)
    if (!is_own(v, op->params[i].name)) print_param(&op->params[i]);
  print_heading(v->groups & FOR_OPERATOR ? "Other options; the parameters of the operator are options too:"
                                         : "Other options:");
  for (size_t i = 0; (s = setting_at(i)); i++)
    if (s->group & (v->groups | FOR_HELP)) print_setting(s);
  return EXIT_OK;
}

int help_command(void) {
  const setting *s;
  const io_format *f;
  char name[64];
  puts("softmax - softmax and the operators around it, on files\n\nUsage:");
  for (size_t i = 0; i < verb_count; i++) print_verb(&verbs[i]);
  print_heading("Examples:");
  for (size_t i = 0; i < example_count; i++)
    printf("  %s\n%*s%s\n", examples[i].command, DEEP, "", examples[i].what);
  print_heading("Options of a run; the parameters of the operator are options too:");
  for (size_t i = 0; (s = setting_at(i)); i++) print_setting(s);
  print_heading("Formats, by extension or --format; FILE may be - for standard input:");
  for (size_t i = 0; (f = io_format_at(i)); i++) print_item(f->extensions, f->about);
  print_heading("Exit status:");
  for (size_t i = 0; i < exit_meaning_count; i++) {
    snprintf(name, sizeof name, "%d", exit_meanings[i].code);
    print_item(name, exit_meanings[i].meaning);
  }
  return EXIT_OK;
}

int help_list(void) {
  const smx_op *op;
  for (size_t i = 0; (op = smx_op_at(i)); i++) printf("%-24s %-8s %s\n", op->name, op->family, op->title);
  return EXIT_OK;
}

const smx_op *help_find(const char *name) {
  const smx_op *op = smx_op_find(name), *other;
  nearest near = nearest_begin(name, nearest_usual(name));
  if (op) return op;
  for (size_t i = 0; (other = smx_op_at(i)); i++) nearest_try(&near, other->name);
  fault(EXIT_USAGE, "%s: no such operator%s%s; softmax list shows them all", name,
        near.found ? "; is it " : "", near.found ? near.found : "");
  return NULL;
}
