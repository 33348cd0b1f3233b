/* completion.c - completion scripts for bash and zsh, written from the same tables as the help. The
 * two differ in how words are offered; the cases are the same. */
#include "fault.h"
#include "help.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* How a shell says things. */
typedef struct dialect {
  const char *begin, *third;      /* the third word of the line */
  const char *value;              /* case for an option of a verb or operator: the words that may follow it */
  const char *operators, *finish; /* offers $operators; offers $options and files */
} dialect;

static const dialect bash = {
    .begin = "# bash completion of softmax(1)\n_softmax() {\n"
             "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} "
             "at=$COMP_CWORD\n"
             "  COMPREPLY=()",
    .third = "${COMP_WORDS[2]-}",
    .value = "    %s:--%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n",
    .operators = "    COMPREPLY=($(compgen -W \"$operators\" -- \"$cur\"))\n    return",
    .finish = "    COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n  fi\n"
              "  COMPREPLY+=($(compgen -f -- \"$cur\"))\n}\n"
              "complete -o filenames -F _softmax softmax",
};
static const dialect zsh = {
    .begin = "#compdef softmax\n# zsh completion of softmax(1)\n_softmax() {\n"
             "  local cur=${words[CURRENT]} prev=${words[CURRENT-1]} verb=${words[2]} at=$((CURRENT - 1))",
    .third = "${words[3]-}",
    .value = "    %s:--%s) compadd -- ${=:-%s}; return ;;\n",
    .operators = "    compadd -- ${=operators}\n    return",
    .finish = "    compadd -- ${=options}\n  fi\n  _files\n}\n"
              "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _softmax \"$@\"; else compdef _softmax "
              "softmax; fi",
};
static const dialect *d;

static void value_case(const char *of, const char *option, const char *words) {
  printf(d->value, of, option, words);
}

static void setting_case(const char *of, const setting *s) {
  char words[1024];
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
  /* its parameters are options then; else all its words may be operators */
  bool first = v->operators && v->groups & FOR_OPERATOR;
  printf("    %s) operator=%s every=%s operators='", *v->name ? v->name : "*",
         first     ? d->third
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

static int print_script(const dialect *of) {
  const smx_op *op;
  d = of;
  puts(d->begin);
  puts("  local operator= operators= every= options=");
  verb_names();
  value_cases();
  verb_cases();
  choice_cases();
  puts("  if [[ -n $operators && ( $at == 2 || ( -n $every && $cur != -* && $prev != -* ) ) ]]; then");
  puts(d->operators);
  puts("  fi\n  case $operator in");
  for (size_t i = 0; (op = smx_op_at(i)); i++) operator_case(op);
  puts("  esac");
  puts("  ((at > 1)) || options+=\" $verbs\"");
  puts("  if [[ $cur == -* || $at == 1 ]]; then");
  puts(d->finish);
  return EXIT_OK;
}

int help_completion(void) { return print_script(&bash); }

int help_completion_zsh(void) { return print_script(&zsh); }
