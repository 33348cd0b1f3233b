/* completion.c - a completion script for bash, written from the same tables as the help. */
#include "fault.h"
#include "help.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>

/* The words that may follow an option, as a case of the shell. */
static void value_case(const char *option, const char *words) {
  printf("    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", option, words);
}

static void choices_of(const smx_param *p) {
  char words[256];
  size_t used = 0;
  for (int i = 0; p->choices[i] && used < sizeof words; i++)
    used += (size_t)snprintf(words + used, sizeof words - used, "%s%s", i ? " " : "", p->choices[i]);
  value_case(p->name, words);
}

static void value_cases(void) {
  char words[256];
  const setting *s;
  const smx_op *op;
  puts("  case $prev in");
  for (size_t i = 0; (s = setting_at(i)); i++)
    if (s->choices) {
      s->choices(words, sizeof words);
      value_case(s->name, words);
    }
  for (size_t k = 0; (op = smx_op_at(k)); k++)
    for (int32_t i = 0; i < op->param_count; i++)
      if (op->params[i].choices) choices_of(&op->params[i]);
  puts("  esac");
}

static void operator_case(const smx_op *op) {
  printf("      %s) names='", op->name);
  for (int32_t i = 0; i < op->param_count; i++) printf("--%s ", op->params[i].name);
  for (int32_t i = 1; i < op->input_count; i++) printf("--%s ", op->inputs[i].name);
  puts("' ;;");
}

static void word_lists(void) {
  const setting *s;
  const smx_op *op;
  printf("  local verbs='");
  for (size_t i = 0; i < verb_count; i++) printf("%s ", verbs[i].name);
  printf("'\n  local operators='");
  for (size_t i = 0; (op = smx_op_at(i)); i++) printf("%s ", op->name);
  printf("'\n  local options='");
  for (size_t i = 0; (s = setting_at(i)); i++) printf("--%s ", s->name);
  puts("'");
}

int help_completion(void) {
  const smx_op *op;
  puts("# bash completion of softmax(1)\n_softmax() {");
  puts("  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} names=");
  word_lists();
  puts("  COMPREPLY=()");
  value_cases();
  puts("  if ((COMP_CWORD == 2)) && [[ $verb == run || $verb == help ]]; then");
  puts("    COMPREPLY=($(compgen -W \"$operators\" -- \"$cur\"))\n    return\n  fi");
  puts("  if [[ $cur == -* || $COMP_CWORD == 1 ]]; then");
  puts("    local operator=softmax\n    [[ $verb == run ]] && operator=${COMP_WORDS[2]}\n    case $operator in");
  for (size_t i = 0; (op = smx_op_at(i)); i++) operator_case(op);
  puts("    esac\n    ((COMP_CWORD == 1)) && names+=\" $verbs\"");
  puts("    COMPREPLY=($(compgen -W \"$options $names\" -- \"$cur\"))\n  fi");
  puts("  COMPREPLY+=($(compgen -f -- \"$cur\"))\n}");
  puts("complete -o filenames -F _softmax softmax");
  return EXIT_OK;
}
