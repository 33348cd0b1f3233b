/* listing.h - rows of several lines each on the screen: the first and last of them. */
#ifndef CLI_REPORT_LISTING_H
#define CLI_REPORT_LISTING_H

#include "table.h"

enum { LISTING_LINES = 20 }; /* of a row at most */

typedef struct listing {
  FILE *text;
  char *buffer;
  size_t size;
  int32_t ndim;
  int64_t shape[SMX_MAX_DIMS], rows, next; /* next: the row that comes next */
  int lines;                               /* of the row under way */
} listing;

/* Rows are numbered by the shape of the whole without its axis. Must be freed, after a fault
 * too. */
int listing_begin(listing *l, const smx_shape *whole, int32_t axis);
void listing_free(listing *l);

/* The next row: false where it is not shown and needs no lines. */
bool listing_row(listing *l);

/* Where the next line of the row goes, its index already written; NULL when it has enough of them.
 * The line is closed by the caller. */
FILE *listing_line(listing *l);

/* What is said instead of lines, and how many there were beyond the last. */
void listing_say(listing *l, const char *text);
void listing_more(listing *l, int64_t lines);

/* The columns' names and all lines. */
void listing_print(listing *l, const char *columns);

#endif
