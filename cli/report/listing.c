/* listing.c - rows of several lines. The text is kept until all went well. */
#include "listing.h"

#include "../fault.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int listing_begin(listing *l, const smx_shape *whole, int32_t axis) {
  memset(l, 0, sizeof *l);
  l->rows = 1;
  for (int32_t i = 0; i < whole->ndim; i++) {
    if (i == axis) continue;
    l->shape[l->ndim++] = whole->dim[i];
    l->rows *= whole->dim[i];
  }
  l->text = open_memstream(&l->buffer, &l->size);
  return l->text ? EXIT_OK : fault_memory(0);
}

void listing_free(listing *l) {
  if (l->text) fclose(l->text);
  free(l->buffer);
  memset(l, 0, sizeof *l);
}

bool listing_row(listing *l) {
  int64_t r = l->next++;
  l->lines = 0;
  if (row_slot(l->rows, r) >= 0) return true;
  if (r == TABLE_HEAD) fprintf(l->text, "%*s\n", TABLE_INDEX, "...");
  return false;
}

FILE *listing_line(listing *l) {
  char index[64] = "";
  if (l->lines == LISTING_LINES) return NULL;
  if (l->lines++ == 0) row_label(l->ndim, l->shape, l->next - 1, index, sizeof index);
  fprintf(l->text, "%*s", TABLE_INDEX, index);
  return l->text;
}

void listing_say(listing *l, const char *text) {
  FILE *to = listing_line(l);
  if (to) fprintf(to, "  %s\n", text);
}

void listing_more(listing *l, int64_t lines) {
  if (lines > 0) fprintf(l->text, "%*s  ... %" PRId64 " more\n", TABLE_INDEX, "", lines);
}

void listing_print(listing *l, const char *columns) {
  char head[TABLE_LINE];
  fflush(l->text);
  snprintf(head, sizeof head, "%*s%s", TABLE_INDEX, "row", columns);
  print_columns(stdout, head);
  fwrite(l->buffer, 1, l->size, stdout);
}
