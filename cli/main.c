/* main.c - the softmax command: its verbs, and the one place that prints a fault. */
#include "fault.h"
#include "help.h"
#include "options.h"
#include "run.h"
#include "signals.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_OPERATOR "softmax"

static int no_more(const char *after, int argc, const char **argv) {
  return argc ? fault(EXIT_USAGE, "%s: unexpected after %s", argv[0], after) : EXIT_OK;
}

static int run_default(int argc, const char **argv) {
  options o;
  int code = options_parse(&o, argc, argv);
  if (!code && o.help) code = help_command();
  else if (!code && !o.file_count) code = fault(EXIT_USAGE, "no input file; softmax help tells more");
  else if (!code) code = run_operator(smx_op_find(DEFAULT_OPERATOR), &o, 0, TABLE_CLASSES);
  options_free(&o);
  return code;
}

static int run_named(const options *o) {
  if (!o->file_count) return o->help ? help_command() : fault(EXIT_USAGE, "run: no operator; softmax list shows them all");
  const smx_op *op = help_find(o->files[0]);
  if (!op) return EXIT_USAGE;
  return o->help ? help_operator(op) : run_operator(op, o, 1, TABLE_VALUES);
}

static int run_run(int argc, const char **argv) {
  options o;
  int code = options_parse(&o, argc, argv);
  if (!code) code = run_named(&o);
  options_free(&o);
  return code;
}

static int run_list(int argc, const char **argv) {
  bool json = argc && strcmp(argv[0], "--json") == 0;
  int code = no_more("list", argc - json, argv + json);
  return code ? code : json ? help_json() : help_list();
}

static int run_help(int argc, const char **argv) {
  if (!argc) return help_command();
  const smx_op *op = help_find(argv[0]);
  if (!op) return EXIT_USAGE;
  int code = no_more(argv[0], argc - 1, argv + 1);
  return code ? code : help_operator(op);
}

static int run_version(int argc, const char **argv) {
  int code = no_more("--version", argc, argv);
  if (!code) printf("softmax %s (%s)\n", smx_version(), smx_isa_name());
  return code;
}

static int run_man(int argc, const char **argv) {
  int code = no_more("--man", argc, argv);
  return code ? code : help_manual();
}

static int run_completion(int argc, const char **argv) {
  int code = no_more("--bash-completion", argc, argv);
  return code ? code : help_completion();
}

/* The first is what is done when no other is named. */
const verb verbs[] = {
    {"", "FILE [OPTIONS]",
     "The softmax of each row of the array in FILE: a table of the classes with the largest weights and the entropy, "
     "or with -o the weights as a file.",
     run_default},
    {"run", "OPERATOR FILE... [OPTIONS]",
     "Any operator. FILEs are its inputs in order; an input can also be given as --NAME FILE, and a "
     "parameter as --NAME VALUE. Shows the result, or writes it with -o.",
     run_run},
    {"list", "[--json]", "All operators, a line each, or everything about them as JSON.", run_list},
    {"help", "[OPERATOR]", "This help, or all there is to know about an operator.", run_help},
    {"--version", "", "The version of the library and the instruction set in use.", run_version},
    {"--man", "", "The manual page, in mdoc.", run_man},
    {"--bash-completion", "", "A completion script for bash.", run_completion},
};
const size_t verb_count = sizeof verbs / sizeof *verbs;

static int dispatch(int argc, const char **argv) {
  for (size_t i = 1; argc > 1 && i < verb_count; i++)
    if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 2, argv + 2);
  return verbs[0].run(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
  signals_install();
  int code = dispatch(argc, (const char **)(void *)argv);
  errno = 0;
  if ((fflush(stdout) != 0 || ferror(stdout)) && !code)
    code = fault(EXIT_UNWRITABLE, "standard output: cannot be written: %s", strerror(errno));
  if (code) fprintf(stderr, "softmax: %s\n", fault_text());
  return code;
}
