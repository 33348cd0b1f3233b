/* fault.h - how the command fails: an exit code and one line for standard error. Functions that can
 * fail return the code, 0 for success. */
#ifndef CLI_FAULT_H
#define CLI_FAULT_H

#include <stdio.h>

enum { EXIT_OK = 0, EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_UNREADABLE = 3, EXIT_UNWRITABLE = 4 };

typedef struct exit_meaning {
  int code;
  const char *meaning;
} exit_meaning;

/* Every exit status the command can have, for help and the manual. */
extern const exit_meaning exit_meanings[];
extern const size_t exit_meaning_count;

/* Keeps the line and returns the code. The line names the file, then the argument and its value. */
int fault(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same when memory has run out. */
int fault_memory(size_t bytes);

/* The last line kept, without "softmax: ". Nothing in it can end a line or move the cursor. */
const char *fault_text(void);

#endif
