/* signals.h - what is left to do when a signal ends the command: remove the unfinished output,
 * explain a file that shrank. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include <signal.h>
#include <stddef.h>

void signals_install(void);

/* Blocks the signals that end the command while a temporary file is made or renamed. */
void signals_hold(sigset_t *old);
void signals_release(const sigset_t *old);

/* The file to remove; NULL = none. */
void signals_set_temporary(const char *path);

/* Memory whose loss means that the named file has become shorter. */
void signals_watch(const void *base, size_t size, const char *name);
void signals_unwatch(const void *base);

#endif
