/* completion.c - a completion script for bash, written from the same tables as the help. */
#include "fault.h"
#include "help.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The words that may follow an option of a verb or of an operator, as a case of the shell. */
static void value_case(const char *of, const char *option, const char *words) {
  printf("    %s:--%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", of, option, words);
}

static void setting_case(const char *of, const setting *s) {
  char words[256];
  if (!s->choices) return;
  s->choices(words, sizeof words);
  value_case(of, s->name, words);
}

static void choices_of(const smx_op *op, const smx_param *p) {
  char words[256];
  size_t used = 0;
  for (int i = 0; p->choices[i] && used < sizeof words; i++)
    used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", i ? " " : "", p->choices[i]);
  value_case(op->name, p->name, words);
}

static void value_cases(void) {
  const setting *s;
  puts("  case $verb:$prev in");
  for (size_t i = 0; i < verb_count; i++)
    for (s = verbs[i].own; s && s->name; s++) setting_case(verbs[i].name, s);
  for (size_t i = 0; (s = setting_at(i)); i++) setting_case("*", s);
  puts("  esac");
}

static void choice_cases(void) {
  const smx_op *op;
  puts("  case $operator:$prev in");
  for (size_t k = 0; (op = smx_op_at(k)); k++)
    for (int32_t i = 0; i < op->param_count; i++)
      if (op->params[i].choices) choices_of(op, &op->params[i]);
  puts("  esac");
}

static void operator_case(const smx_op *op) {
  printf("    %s) options+=' ", op->name);
  for (int32_t i = 0; i < op->param_count; i++) printf("--%s ", op->params[i].name);
  for (int32_t i = 1; i < op->input_count; i++) printf("--%s ", op->inputs[i].name);
  puts("' ;;");
}

static void operator_names(const char *family) {
  const smx_op *op;
  for (size_t i = 0; (op = smx_op_at(i)); i++)
    if (!*family || strcmp(op->family, family) == 0) printf("%s ", op->name);
}

/* What a verb offers. The first is for words that are none. */
static void verb_case(const verb *v) {
  const setting *s;
  if (v->run && !v->operators) return;
  bool first = v->operators && v->groups & FOR_OPERATOR; /* its parameters are options then; else all its words may be operators */
  printf("    %s) operator=%s every=%s operators='", *v->name ? v->name : "*",
         first     ? "${COMP_WORDS[2]-}"
         : v->runs ? v->runs
                   : "",
         v->operators && v->work && !first ? "1" : "");
  if (v->operators) operator_names(v->operators);
  printf("' options='");
  for (s = v->own; s && s->name; s++) printf("--%s ", s->name);
  for (size_t i = 0; !v->run && (s = setting_at(i)); i++)
    if (s->group & (v->groups | FOR_HELP)) printf("--%s ", s->name);
  puts("' ;;");
}

static void verb_cases(void) {
  puts("  case $verb in");
  for (size_t i = 1; i <= verb_count; i++) verb_case(&verbs[i % verb_count]);
  puts("  esac");
}

static void verb_names(void) {
  printf("  local verbs='");
  for (size_t i = 0; i < verb_count; i++) printf("%s ", verbs[i].name);
  puts("'");
}

int help_completion(void) {
  const smx_op *op;
  puts("# bash completion of softmax(1)\n_softmax() {");
  puts("  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} operator= operators= every= options=");
  verb_names();
  puts("  COMPREPLY=()");
  value_cases();
  verb_cases();
  choice_cases();
  puts("  if [[ $operators && ( $COMP_CWORD == 2 || ( $every && $cur != -* && $prev != -* ) ) ]]; then");
  puts("    COMPREPLY=($(compgen -W \"$operators\" -- \"$cur\"))\n    return\n  fi");
  puts("  case $operator in");
  for (size_t i = 0; (op = smx_op_at(i)); i++) operator_case(op);
  puts("  esac");
  puts("  ((COMP_CWORD > 1)) || options+=\" $verbs\"");
  puts("  if [[ $cur == -* || $COMP_CWORD == 1 ]]; then");
  puts("    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n  fi");
  puts("  COMPREPLY+=($(compgen -f -- \"$cur\"))\n}");
  puts("complete -o filenames -F _softmax softmax");
  return EXIT_OK;
}
