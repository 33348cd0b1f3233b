/* help.h - everything the command says about itself, written from its tables and the operator
 * table. All return an exit code. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "options.h"

#include <stddef.h>

/* Something that an option of a verb names, with numbers of its own: a kind of weights, a step. */
typedef struct entry {
  const char *name, *title, *formula, *about, *source;
  const smx_param *params;
  int32_t param_count;
} entry;

/* What the command can be told to do. */
typedef struct verb {
  const char *name, *arguments, *help;
  /* its first word is an operator: "" = any, "loss" = one of that family; or NULL */
  const char *operators;
  const char *runs;                        /* what it runs, where that is one operator; or NULL */
  int (*run)(int argc, const char **argv); /* takes the words after the verb; or NULL, and: */
  int (*work)(const options *o);           /* takes them as options of these groups, and of its own */
  bool ranks;                              /* it works over ranks of MPI */
  uint32_t groups;
  const setting *own; /* up to one without a name; or NULL */
  const char *entries_heading;
  bool (*entry)(size_t i, entry *e); /* what else it knows, false past the last; or NULL */
} verb;

extern const verb verbs[];
extern const size_t verb_count;

typedef struct example {
  const char *command, *what;
} example;

extern const example examples[];
extern const size_t example_count;

const verb *verb_named(const char *name); /* NULL when there is none */

int help_command(void);
int help_verb(const verb *v);
int help_operator(const smx_op *op);

/* What verbs know by that name besides operators; false: nothing. */
bool help_entry(const char *name);

int help_list(void);
int help_json(void);
int help_manual(void);
int help_completion(void);
int help_completion_zsh(void);
int help_completion_fish(void);

/* The operator, or NULL after a fault that says which name is near. */
const smx_op *help_find(const char *name);

/* Whether rows run along an axis; otherwise the dimensions of its ports have names. */
bool has_rows(const smx_op *op);

/* A parameter's value as text: a choice's name, "inf", "0.5". */
void param_text(const smx_param *p, double value, char *text, size_t size);

/* "a number above 0, up to inf", "one of first, split". */
void param_range(const smx_param *p, char *text, size_t size);

/* All of it: help, range, default. */
void param_line(const smx_param *p, char *text, size_t size);

/* What a port is, and its shape. */
void port_text(const smx_op *op, const smx_port *port, char *text, size_t size);

#endif
