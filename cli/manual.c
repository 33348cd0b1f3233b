/* manual.c - the manual page in mdoc, written from the same tables as the help. */
#include "fault.h"
#include "help.h"
#include "io/io.h"
#include "options.h"

#include <stdbool.h>
#include <string.h>

#define MANUAL_DATE "November 21, 2026"
enum { LINE = 76 };

static void character(char c) {
  if (c == '\\') fputs("\\e", stdout);
  else if (c == '-') fputs("\\-", stdout);
  else if (c == '^') fputs("\\(ha", stdout);
  else if (c == '~') fputs("\\(ti", stdout);
  else putchar(c);
}

static void word(const char *t) {
  while (*t) character(*t++);
}

/* Words of roff text, in lines short enough. A sentence starts a line, as roff wants it; no line
 * starts with a control character. */
static void text(const char *t) {
  int column = 0;
  bool sentence = false;
  while (*t) {
    int n = (int)strcspn(t, " ");
    if (column && (sentence || column + n >= LINE)) {
      putchar('\n');
      column = 0;
    }
    fputs(column ? " " : *t == '.' || *t == '\'' ? "\\&" : "", stdout);
    for (int i = 0; i < n; i++) character(t[i]);
    column += n + 1;
    sentence = n > 1 && t[n - 1] == '.' && t[n - 2] != '.'; /* not after an ellipsis */
    t += n;
    t += strspn(t, " ");
  }
  putchar('\n');
}

static void literal(const char *t) {
  puts(".Bd -literal -offset indent");
  text(t);
  puts(".Ed");
}

static void begin_list(void) { puts(".Bl -tag -width Ds"); }

static void end_list(void) { puts(".El"); }

static void ports(const char *heading, const smx_op *op, int32_t count, const smx_port *list) {
  char line[512];
  printf(".Pp\n%s\n", heading);
  begin_list();
  for (int32_t i = 0; i < count; i++) {
    port_text(op, &list[i], line, sizeof line);
    printf(".It Ar %s\n", list[i].name);
    text(line);
  }
  end_list();
}

static void param(const smx_param *p) {
  char line[512];
  param_line(p, line, sizeof line - 1);
  printf(".It Fl \\-%s Ar %s\n", p->name, p->choices ? "choice" : "number");
  strcat(line, ".");
  text(line);
}

static void operator(const smx_op *op) {
  printf(".Ss %s: %s\n", op->name, op->title);
  literal(op->formula);
  puts(".Pp");
  text(op->about);
  ports("Inputs:", op, op->input_count, op->inputs);
  ports("Outputs:", op, op->output_count, op->outputs);
  if (op->param_count) {
    puts(".Pp\nParameters:");
    begin_list();
    for (int32_t i = 0; i < op->param_count; i++) param(&op->params[i]);
    end_list();
  }
  puts(".Pp\nExample:");
  literal(op->example);
  puts(".Pp\nSource:");
  text(op->source);
}

static void call(const verb *v) {
  puts(".Nm");
  if (*v->name) printf(".%s %s\n", *v->name == '-' ? "Fl" : "Cm", v->name + (*v->name == '-'));
  if (*v->arguments) text(v->arguments);
}

static void synopsis(void) {
  puts(".Sh NAME\n.Nm softmax\n.Nd softmax and the operators around it, on files\n.Sh SYNOPSIS");
  for (size_t i = 0; i < verb_count; i++) call(&verbs[i]);
}

static void description(void) {
  puts(".Sh DESCRIPTION");
  for (size_t i = 0; i < verb_count; i++) {
    if (i) puts(".Pp");
    call(&verbs[i]);
    puts(".Bd -filled -offset indent -compact");
    text(verbs[i].help);
    puts(".Ed");
  }
}

static void show_examples(void) {
  puts(".Sh EXAMPLES");
  for (size_t i = 0; i < example_count; i++) {
    if (i) puts(".Pp");
    text(examples[i].what);
    literal(examples[i].command);
  }
}

static void option(const setting *s) {
  printf(".It ");
  if (s->letter) printf("Fl %c , ", s->letter);
  printf("Fl \\-");
  word(s->name);
  if (s->argument) printf(" Ar %s", s->argument);
  putchar('\n');
  text(s->help);
}

static void show_entry(const entry *e) {
  char line[512];
  printf(".It Cm %s\n", e->name);
  snprintf(line, sizeof line, "%s:", e->title);
  text(line);
  literal(e->formula);
  text(e->about);
  for (int32_t i = 0; i < e->param_count; i++) {
    printf(".Ar %s :\n", e->params[i].name);
    param_line(&e->params[i], line, sizeof line - 1);
    strcat(line, ".");
    text(line);
  }
  snprintf(line, sizeof line, "Source: %s.", e->source);
  text(line);
}

static void entries(const verb *v) {
  entry e;
  puts(".Pp");
  text(v->entries_heading);
  begin_list();
  for (size_t i = 0; v->entry(i, &e); i++) show_entry(&e);
  end_list();
}

static void settings(void) {
  const setting *s;
  puts(".Sh OPTIONS\nThe parameters of an operator are options too; see\n.Sx OPERATORS .\nNot every verb "
       "takes every option.");
  begin_list();
  for (size_t i = 0; (s = setting_at(i)); i++) option(s);
  end_list();
  for (size_t i = 0; i < verb_count; i++) {
    if (!verbs[i].own) continue;
    printf(".Ss Options of %s\n", verbs[i].name);
    begin_list();
    for (s = verbs[i].own; s->name; s++) option(s);
    end_list();
    if (verbs[i].entry) entries(&verbs[i]);
  }
}

static void formats(void) {
  const io_format *f;
  puts(".Sh FILES\nThe format follows from the extension, or from\n.Fl \\-format ;");
  text("standard input is npy, npz, safetensors or png when it starts like one, csv otherwise. An existing "
       "file of exactly the name goes before FILE:NAME. npy, safetensors and raw files are mapped and taken "
       "in blocks, so they may be larger than memory.");
  begin_list();
  for (size_t i = 0; (f = io_format_at(i)); i++) {
    printf(".It Pa %s\n", f->extensions);
    text(f->about);
  }
  end_list();
}

static void statuses(void) {
  puts(".Sh EXIT STATUS");
  begin_list();
  for (size_t i = 0; i < exit_meaning_count; i++) {
    printf(".It %d\n", exit_meanings[i].code);
    text(exit_meanings[i].meaning);
  }
  end_list();
}

int help_manual(void) {
  const smx_op *op;
  puts(".Dd " MANUAL_DATE "\n.Dt SOFTMAX 1\n.Os");
  synopsis();
  description();
  settings();
  puts(".Sh OPERATORS");
  for (size_t i = 0; (op = smx_op_at(i)); i++) operator(op);
  puts(".Sh ENVIRONMENT");
  begin_list();
  puts(".It Ev NO_COLOR\nWhen set and not empty, nothing is colored.");
  puts(".It Ev SMX_ISA\nNames a lower instruction set than the best of this machine; the results do not "
       "change.");
  end_list();
  formats();
  statuses();
  show_examples();
  return EXIT_OK;
}
