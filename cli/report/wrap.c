/* wrap.c - text that fits the screen. */
#include "table.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80, LEAST = 40, MOST = 120 };

int screen_columns(void) {
  struct winsize size;
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || !size.ws_col)
    return DEFAULT_COLUMNS;
  return size.ws_col < LEAST ? LEAST : size.ws_col > MOST ? MOST : size.ws_col;
}

void print_wrapped(FILE *to, const char *text, int indent, int width) {
  int column = 0;
  while (*text) {
    int n = (int)strcspn(text, " ");
    if (column && column + 1 + n > width) {
      fputc('\n', to);
      column = 0;
    }
    column += fprintf(to, "%*s%.*s", column ? 1 : indent, "", n, text);
    text += n;
    text += strspn(text, " ");
  }
  fputc('\n', to);
}
