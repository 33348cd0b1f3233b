/* svg.c - drawings. The file is self-contained: one style sheet, no scripts, no colors that carry
 * meaning. */
#include "svg.h"

#include "../fault.h"
#include "../write.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TICKS = 8, TICK = 5, MARKS = 12, LEGEND_LINE = 44 };

static const char *const dashes[SVG_STYLES] = {"none", "8 4", "2 3",         "9 3 2 3",
                                               "14 4", "4 4", "9 3 2 3 2 3", "1 5"};
static const char *const colors[SVG_STYLES] = {"#000000", "#a63603", "#08519c", "#238b45",
                                               "#6a3d9a", "#525252", "#b8860b", "#c51b7d"};

int svg_begin(svg *s, double width, double height, const char *title, const char *about) {
  s->text = NULL;
  s->to = open_memstream(&s->text, &s->size);
  if (!s->to) return fault_memory(0);
  fprintf(s->to,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
          "role=\"img\">\n",
          width, height, width, height);
  fputs("<style>rect { shape-rendering: crispEdges } text { font: 12px system-ui, sans-serif; fill: #1f2328 "
        "} .grid { stroke: #d8dee4 } "
        ".side { stroke: #1f2328 } "
        ".curve { fill: none; stroke-width: 1.8 } .mark { fill: #ffffff; stroke-width: 1.4 }</style>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        s->to);
  svg_text(s, 12, 24, SVG_START, title);
  if (about) svg_text(s, 12, 42, SVG_START, about);
  return EXIT_OK;
}

void svg_free(svg *s) {
  if (s->to) fclose(s->to);
  free(s->text);
  s->to = NULL;
  s->text = NULL;
}

int svg_write(svg *s, const char *path) {
  fputs("</svg>\n", s->to);
  bool failed = ferror(s->to) || fflush(s->to) != 0;
  return failed ? fault_memory(s->size) : write_file(path, s->text, s->size);
}

/* Bytes that XML does not take as they are; control characters have no place in it at all. */
static void escaped(FILE *to, const char *text) {
  for (; *text; text++) {
    if (*text == '&') fputs("&amp;", to);
    else if (*text == '<') fputs("&lt;", to);
    else if (*text == '>') fputs("&gt;", to);
    else fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, to);
  }
}

void svg_text(svg *s, double x, double y, svg_anchor anchor, const char *text) {
  static const char *const names[] = {"start", "middle", "end", "middle", "end"};
  fprintf(s->to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", x, y, names[anchor]);
  if (anchor >= SVG_UP) fprintf(s->to, " transform=\"rotate(-90 %.1f %.1f)\"", x, y);
  fputs(">", s->to);
  escaped(s->to, text);
  fputs("</text>\n", s->to);
}

static void line(svg *s, const char *kind, double x0, double y0, double x1, double y1) {
  fprintf(s->to, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", kind, x0, y0, x1, y1);
}

void svg_line(svg *s, double x0, double y0, double x1, double y1) { line(s, "side", x0, y0, x1, y1); }

void svg_cell(svg *s, double x, double y, double width, double height, double shade) {
  int level = 255 - (int)lround(255 * (shade < 0 ? 0 : shade > 1 ? 1 : shade));
  fprintf(s->to, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%02x%02x%02x\"/>\n", x,
          y, width, height, (unsigned)level, (unsigned)level, (unsigned)level);
}

double svg_x(const svg_frame *f, double x) { return f->left + f->width * (x - f->x0) / (f->x1 - f->x0); }
double svg_y(const svg_frame *f, double y) {
  return f->top + f->height * (1 - (y - f->y0) / (f->y1 - f->y0));
}

/* 1, 2 or 5 times a power of ten, so that a span has at most TICKS steps. */
static double step_of(double span) {
  double step = pow(10, floor(log10(span / TICKS)));
  const double factors[] = {1, 2, 5, 10};
  for (size_t i = 0; i < 4; i++)
    if (span / (step * factors[i]) <= TICKS) return step * factors[i];
  return step * 10;
}

/* The number of a tick without the dust of its sum. */
static void number(char *text, size_t size, double v, double step) {
  snprintf(text, size, "%.6g", fabs(v) < step / 1000 ? 0 : v);
}

void svg_axes(svg *s, const svg_frame *f, const char *x, const char *y, bool grid) {
  char text[32];
  double bottom = f->top + f->height, right = f->left + f->width;
  double x_step = step_of(f->x1 - f->x0), y_step = step_of(f->y1 - f->y0);
  for (double k = ceil(f->x0 / x_step); k * x_step <= f->x1 * (1 + 1e-12); k++) {
    double at = svg_x(f, k * x_step);
    if (grid) line(s, "grid", at, f->top, at, bottom);
    line(s, "side", at, bottom, at, bottom + TICK);
    number(text, sizeof text, k * x_step, x_step);
    svg_text(s, at, bottom + TICK + SVG_FONT + 1, SVG_MIDDLE, text);
  }
  for (double k = ceil(f->y0 / y_step); k * y_step <= f->y1 + y_step * 1e-9; k++) {
    double at = svg_y(f, k * y_step);
    if (grid) line(s, "grid", f->left, at, right, at);
    line(s, "side", f->left - TICK, at, f->left, at);
    number(text, sizeof text, k * y_step, y_step);
    svg_text(s, f->left - TICK - 3, at + SVG_FONT / 3.0, SVG_END, text);
  }
  line(s, "side", f->left, f->top, f->left, bottom);
  line(s, "side", f->left, bottom, right, bottom);
  svg_text(s, f->left + f->width / 2, bottom + 38, SVG_MIDDLE, x);
  svg_text(s, f->left - 46, f->top + f->height / 2, SVG_UP, y);
}

/* Four shapes: a circle, a square, a diamond, a triangle; the first style has none. */
static void mark(svg *s, double x, double y, int style) {
  static const char *const shapes[] = {"m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", "m-3 -3h6v6h-6z",
                                       "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z", "m0 -4.5l4 7.5h-8z"};
  if (style == 0) return;
  fprintf(s->to, "<path class=\"mark\" stroke=\"%s\" d=\"M%.1f %.1f%s\"/>\n", colors[style], x, y,
          shapes[(style - 1) % 4]);
}

static void begin_curve(svg *s, int style) {
  fprintf(s->to, "<path class=\"curve\" stroke=\"%s\" stroke-dasharray=\"%s\" d=\"", colors[style],
          dashes[style]);
}

void svg_curve(svg *s, const svg_frame *f, int style, int count, const double *x, const double *y) {
  bool down = false; /* whether the pen is */
  begin_curve(s, style);
  for (int i = 0; i < count; i++) {
    bool good = isfinite(y[i]);
    if (good) fprintf(s->to, "%c%.1f %.1f", down ? 'L' : 'M', svg_x(f, x[i]), svg_y(f, y[i]));
    down = good;
  }
  fputs("\"/>\n", s->to);
  int every = count / MARKS + 1; /* other places for other styles, so that marks do not cover each other */
  for (int i = style * every / SVG_STYLES; i < count; i += every)
    if (isfinite(y[i])) mark(s, svg_x(f, x[i]), svg_y(f, y[i]), style);
}

void svg_legend(svg *s, double x, double y, int style, const char *name) {
  begin_curve(s, style);
  fprintf(s->to, "M%.1f %.1fh%d\"/>\n", x, y - SVG_FONT / 3.0, LEGEND_LINE);
  mark(s, x + LEGEND_LINE / 2.0, y - SVG_FONT / 3.0, style);
  svg_text(s, x + LEGEND_LINE + 8, y, SVG_START, name);
}
