/* table.h - a result on the screen: the first and last rows, and a line about all of them. Takes
 * the result block by block. */
#ifndef CLI_REPORT_TABLE_H
#define CLI_REPORT_TABLE_H

#include "../dtype.h"
#include "../labels.h"

#include <stdio.h>

typedef enum table_kind {
  TABLE_VALUES = 0, /* the numbers of each row */
  TABLE_CLASSES = 1 /* for weights: the classes with the largest, and the entropy */
} table_kind;

/* TABLE_INDEX: columns of a row's index */
enum { TABLE_HEAD = 10, TABLE_TAIL = 5, TABLE_LINE = 512, TABLE_INDEX = 10 };

typedef struct table {
  const char *name;
  const dtype *type;
  table_kind kind;
  const labels *labels; /* names of the classes, or NULL */
  int32_t ndim;         /* of the whole result without the axis: what rows are numbered by */
  int64_t shape[SMX_MAX_DIMS];
  int64_t rows, classes, next; /* next: the row that comes next */
  bool single;                 /* one value a row */
  int edge;                    /* how many values of a row are shown at each end */
  char lines[TABLE_HEAD + TABLE_TAIL][TABLE_LINE];
  int64_t with_nan, empty;
  double entropy, top, smallest, largest;
} table;

/* axis -1: one value a row. */
void table_begin(table *t, const char *name, table_kind kind, const dtype *type, const smx_shape *whole,
                 int32_t axis);

/* The next block of the result, contiguous, with the same axis. */
void table_add(table *t, const void *data, int32_t ndim, const int64_t *shape, int32_t axis);

void table_print(const table *t, FILE *to);

/* The index of a row: "7", or "2,7" when rows have more than one dimension. */
void row_label(int32_t ndim, const int64_t *shape, int64_t r, char *text, size_t size);

/* Where row r of `rows` is among the TABLE_HEAD + TABLE_TAIL that are shown; -1 for one in the
 * middle. */
int row_slot(int64_t rows, int64_t r);

/* A line over columns: bold where there is color. */
void print_columns(FILE *to, const char *text);

/* The columns there are: those of the terminal, 80 when there is none. */
int screen_columns(void);

/* Text in lines of at most `width`, each after `indent` spaces. */
void print_wrapped(FILE *to, const char *text, int indent, int width);

#endif
