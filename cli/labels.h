/* labels.h - names of classes from a file, one a line, shown beside their indices. */
#ifndef CLI_LABELS_H
#define CLI_LABELS_H

#include "io/io.h"

typedef struct labels {
  io_source source;
  int64_t count;
  size_t *starts; /* of each name, and the end */
} labels;

enum { LABEL_COLUMNS = 12, LABEL_BYTES = 4 * LABEL_COLUMNS + 1 };

/* path NULL: no names. Must be freed, after a fault too. */
int labels_read(labels *l, const char *path);
void labels_free(labels *l);

/* More names than the `n` classes of the file `x` are a fault; classes without a name are not:
 * vocabularies are padded. */
int labels_check(const labels *l, int64_t n, const char *x);

/* The name of a class in `columns` columns at most, cut where it is longer; "" without one. Nothing
 * in it can end a line or move the cursor. Returns how many columns it takes. */
int labels_text(const labels *l, int64_t class, int columns, char *text, size_t size);

/* The same, filled up with spaces. */
void labels_column(const labels *l, int64_t class, int columns, char *text, size_t size);

#endif
