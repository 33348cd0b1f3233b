/* fault.c - the one line that a failing command prints, and the table of exit codes. */
#include "fault.h"

#include "utf8.h"

#include <stdarg.h>

const exit_meaning exit_meanings[] = {
    {EXIT_OK, "success"},
    {EXIT_REFUSED,
     "the operator refused the data (shape, dtype, a row with nothing valid), or memory ran out"},
    {EXIT_USAGE, "wrong usage: an unknown operator or option, a value outside its range"},
    {EXIT_UNREADABLE, "an input file cannot be read or is malformed"},
    {EXIT_UNWRITABLE, "the output cannot be written; an earlier file of that name is untouched"},
    {130, "ended by SIGINT; no part of an output is left"},
    {143, "ended by SIGTERM; no part of an output is left"},
};
const size_t exit_meaning_count = sizeof exit_meanings / sizeof *exit_meanings;

static char line[8192]; /* a path may be 4096 long */

int fault(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  utf8_tame(line);
  return code;
}

int fault_memory(size_t bytes) { return fault(EXIT_REFUSED, "out of memory: %zu bytes", bytes); }

const char *fault_text(void) { return line; }
