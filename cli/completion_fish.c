/* completion_fish.c - a completion script for fish, written from the same tables as the help.
 * Unlike bash and zsh, fish is told facts, each with the condition under which it holds and a few
 * words about it. */
#include "fault.h"
#include "help.h"

#include <stdio.h>
#include <string.h>

/* Text in single quotes, up to the end of its first sentence. */
static void quoted(const char *text) {
  putchar('\'');
  for (const char *c = text; *c && !(c[0] == '.' && (c[1] == ' ' || !c[1])); c++) {
    if (*c == '\'' || *c == '\\') putchar('\\');
    putchar(*c == '\n' ? ' ' : *c);
  }
  putchar('\'');
}

/* complete -n 'CONDITION WORD...' */
static void fact(const char *condition, const char *word) {
  printf("complete -c softmax -n '%s %s'", condition, word);
}

static void described(const char *help) {
  printf(" -d ");
  quoted(help);
  putchar('\n');
}

static void option_fact(const char *condition, const char *word, const setting *s) {
  char words[1024];
  fact(condition, word);
  printf(" -l %s", s->name);
  if (s->letter) printf(" -s %c", s->letter);
  if (s->choices) {
    s->choices(words, sizeof words);
    printf(" -x -a '%s'", words);
  } else if (s->argument) {
    printf(" -r");
  }
  described(s->help);
}

static void verb_facts(const verb *v) {
  const char *name = *v->name ? v->name : "-";
  const setting *s;
  const smx_op *op;
  if (*v->name) {
    printf("complete -c softmax -n '__softmax_first' -a %s", v->name);
    described(v->help);
  }
  for (s = v->own; s && s->name; s++) option_fact("__softmax_verb", name, s);
  for (size_t i = 0; !v->run && (s = setting_at(i)); i++)
    if (s->group & (v->groups | FOR_HELP)) option_fact("__softmax_verb", name, s);
  for (size_t i = 0; v->operators && (op = smx_op_at(i)); i++) {
    if (*v->operators && strcmp(op->family, v->operators) != 0) continue;
    fact(v->groups & FOR_OPERATOR || v->run ? "__softmax_second" : "__softmax_verb", name);
    printf(" -f -a %s", op->name);
    described(op->title);
  }
}

static void operator_facts(const smx_op *op) {
  for (int32_t i = 0; i < op->param_count; i++) {
    const smx_param *p = &op->params[i];
    fact("__softmax_operator", op->name);
    printf(" -l %s -x", p->name);
    for (int k = 0; p->choices && p->choices[k]; k++) printf("%s%s", k ? " " : " -a '", p->choices[k]);
    if (p->choices) putchar('\'');
    described(p->help);
  }
  for (int32_t i = 1; i < op->input_count; i++) {
    fact("__softmax_operator", op->name);
    printf(" -l %s -r", op->inputs[i].name);
    described(op->inputs[i].help);
  }
}

/* What runs one operator, and what names one. */
static void operator_words(void) {
  puts("function __softmax_operator\n  set -l w (commandline -opc)\n  switch \"$w[2]\"");
  for (size_t i = 1; i <= verb_count; i++) {
    const verb *v = &verbs[i % verb_count]; /* the first, for words that are none, comes last */
    if (v->runs) printf("    case %s\n      test $argv[1] = %s\n", *v->name ? v->name : "'*'", v->runs);
    else if (v->work && v->operators && v->groups & FOR_OPERATOR)
      printf("    case %s\n      test \"$w[3]\" = $argv[1]\n", v->name);
    else printf("    case %s\n      false\n", v->name);
  }
  puts("  end\nend");
}

int help_completion_fish(void) {
  const smx_op *op;
  puts("# fish completion of softmax(1)");
  printf("set -g __softmax_verbs");
  for (size_t i = 1; i < verb_count; i++) printf(" %s", verbs[i].name);
  puts("\nfunction __softmax_first\n  test (count (commandline -opc)) = 1\nend");
  puts("function __softmax_verb\n  set -l w (commandline -opc)\n  if test $argv[1] = -\n    not contains -- "
       "\"$w[2]\" $__softmax_verbs");
  puts("  else\n    test \"$w[2]\" = $argv[1]\n  end\nend");
  puts("function __softmax_second\n  set -l w (commandline -opc)\n  test (count $w) = 2 -a \"$w[2]\" = "
       "$argv[1]\nend");
  operator_words();
  for (size_t i = 0; i < verb_count; i++) verb_facts(&verbs[i]);
  for (size_t i = 0; (op = smx_op_at(i)); i++) operator_facts(op);
  return EXIT_OK;
}
