/* svg.h - drawings: text, lines, shaded cells, axes. Black on white, told apart by dashes and
 * marks, so that they can be printed. */
#ifndef CLI_REPORT_SVG_H
#define CLI_REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct svg {
  FILE *to;
  char *text;
  size_t size;
} svg;

/* Where text stands beside its point. */
typedef enum svg_anchor {
  SVG_START = 0,
  SVG_MIDDLE = 1,
  SVG_END = 2,
  SVG_UP = 3,
  SVG_DOWN = 4
} svg_anchor; /* turned; DOWN ends at its point */

/* A part of the drawing with numbers along its sides; y grows upwards. */
typedef struct svg_frame {
  double left, top, width, height;
  double x0, x1, y0, y1; /* what its sides stand for */
} svg_frame;

enum { SVG_STYLES = 8, SVG_FONT = 12 };

/* Must be freed, after a fault too. */
int svg_begin(svg *s, double width, double height, const char *title, const char *about);
void svg_free(svg *s);

/* Closes the drawing and writes it to a file, whole or not at all. */
int svg_write(svg *s, const char *path);

void svg_text(svg *s, double x, double y, svg_anchor anchor, const char *text);
void svg_line(svg *s, double x0, double y0, double x1, double y1);

/* A cell from white (0) to black (1). */
void svg_cell(svg *s, double x, double y, double width, double height, double shade);

double svg_x(const svg_frame *f, double x);
double svg_y(const svg_frame *f, double y);

/* The frame's sides with numbers, the names of what they stand for and, where `grid`, lines
 * across. */
void svg_axes(svg *s, const svg_frame *f, const char *x, const char *y, bool grid);

/* A line through points of the frame; styles differ in dashes and marks. A point that is not a
 * number is left out. */
void svg_curve(svg *s, const svg_frame *f, int style, int count, const double *x, const double *y);

/* A line of the legend: a piece of the curve and its name. */
void svg_legend(svg *s, double x, double y, int style, const char *name);

#endif
