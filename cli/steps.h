/* steps.h - the steps of a chain of processors (smx_step) from the command line. */
#ifndef CLI_STEPS_H
#define CLI_STEPS_H

#include "bind.h"
#include "help.h"

/* Writes an option for each kind of step, by its number; how many there are. */
size_t steps_settings(setting *list, size_t most);

/* The facts about the kind of step i; false past the last. */
bool steps_entry(size_t i, entry *e);

typedef struct chain {
  smx_step *steps;
  named_value *options; /* which option each step is */
  size_t count;
} chain;

/* The steps among the options, in their order; each is an option of the name and at the place of
 * its kind in `settings`. Must be freed, after a fault too. */
int chain_read(chain *c, const setting *settings, const options *o);
void chain_free(chain *c);

/* The status of smx_sample: a fault that names the option of the step, or the file. */
int chain_fault(const chain *c, const char *path, smx_status status);

#endif
