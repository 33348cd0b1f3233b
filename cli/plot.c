/* plot.c - the verb `plot`: curves of operators, one panel over a sweep of one score, one over a
 * row of a file. */
#include "plot.h"

#include "bind.h"
#include "fault.h"
#include "help.h"
#include "parse.h"
#include "report/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 241, MOST_OTHERS = 64, BEST = 50, MOST_BEST = 10000 };
enum { TOP = 40, GAP = 80, LINE = 20, BOTTOM = 60 };

const setting plot_settings[] = {
    {"row", 0, "FILE", "scores to weigh in a second panel: a row of an array of any shape", FOR_OPERATOR,
     NULL, NULL},
    {"number", 0, "R", "which row of it, its rows counted along the last axis; 0 by default", FOR_OPERATOR,
     NULL, NULL},
    {"best", 0, "N", "how many of its elements to show, largest scores first; 50 by default", FOR_OPERATOR,
     NULL, NULL},
    {"from", 0, "A", "where the sweep begins; -6 by default", FOR_OPERATOR, NULL, NULL},
    {"to", 0, "B", "where the sweep ends; 6 by default", FOR_OPERATOR, NULL, NULL},
    {"others", 0, "S,...", "the other scores of the row whose first is swept; 1,0,-1 by default",
     FOR_OPERATOR, NULL, NULL},
    {"load", 0, "FILE", "instead: the tokens of each expert, from the output index of route (o.npz:index)",
     FOR_OPERATOR, NULL, NULL},
    {"experts", 0, "N", "how many experts --load has; as many as it names by default", FOR_OPERATOR, NULL,
     NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

/* An operator with its parameters, as text too. */
typedef struct curve {
  const char *text;
  const smx_op *op;
  smx_params params;
} curve;

typedef struct plot {
  const options *o;
  curve curves[SVG_STYLES];
  int count;
  double from, to, others[MOST_OTHERS];
  int other_count;
  int64_t number, best;
  double *row; /* of the file, or NULL */
  int64_t n;   /* its length */
} plot;

/* ---- Reading ---- */

/* Whether the operator gives every element of a row of scores a number, from the row alone. */
static int check_operator(const smx_op *op) {
  const smx_port *y = &op->outputs[0];
  for (int32_t i = 1; i < op->input_count; i++)
    if (!(op->inputs[i].flags & SMX_PORT_OPTIONAL) || op->inputs[i].flags & SMX_PORT_EITHER)
      return fault(EXIT_USAGE, "plot %s: it needs the input '%s' beside the scores", op->name,
                   op->inputs[i].name);
  if (y->shape != SMX_SHAPE_FULL || !has_rows(op) || y->flags & SMX_PORT_INT)
    return fault(EXIT_USAGE, "plot %s: it gives no weight to each element of a row", op->name);
  return EXIT_OK;
}

static int read_curve(curve *c, const char *text) {
  c->text = text;
  int code = bind_operator("plot", text, &c->op, &c->params);
  return code ? code : check_operator(c->op);
}

static int read_curves(plot *p) {
  const options *o = p->o;
  int code = o->file_count ? EXIT_OK : fault(EXIT_USAGE, "plot: no operator; softmax list shows them all");
  if (o->file_count > SVG_STYLES)
    return fault(EXIT_USAGE, "plot %s: more than %d curves cannot be told apart", o->files[SVG_STYLES],
                 SVG_STYLES);
  for (; !code && p->count < o->file_count; p->count++)
    code = read_curve(&p->curves[p->count], o->files[p->count]);
  return code;
}

static int read_end(const options *o, const char *name, double *value) {
  const char *text = options_own(o, name);
  int code = text ? options_number(name, text, value) : EXIT_OK;
  return code || isfinite(*value) ? code : options_refuse(name, text, "not finite");
}

static int read_own(plot *p) {
  const options *o = p->o;
  const char *others = options_own(o, "others"), *number = options_own(o, "number"),
             *best = options_own(o, "best");
  p->from = -6, p->to = 6, p->best = BEST;
  int code = read_end(o, "from", &p->from);
  if (!code) code = read_end(o, "to", &p->to);
  if (!code && !(p->to > p->from)) code = fault(EXIT_USAGE, "--to %g: not above --from %g", p->to, p->from);
  const char *wrong = options_numbers(others ? others : "1,0,-1", MOST_OTHERS, p->others, &p->other_count);
  if (!code && wrong) code = options_refuse("others", others, wrong);
  if (!code && number) code = options_int("number", number, 0, INT64_MAX, &p->number);
  if (!code && best) code = options_int("best", best, 2, MOST_BEST, &p->best);
  if (!code && (number || best) && !options_own(o, "row"))
    code = fault(EXIT_USAGE, "--%s: --row FILE is missing", number ? "number" : "best");
  return code;
}

static int copy_row(plot *p, const input *in) {
  const io_array *a = &in->array;
  int64_t rows, last = a->ndim - 1, index = p->number;
  if (a->ndim < 1) return fault(EXIT_REFUSED, "%s: a single number, not a row", in->path);
  p->n = a->shape[last];
  if (!count_elements(a->ndim - 1, a->shape, &rows)) rows = 0;
  if (p->number >= rows)
    return fault(EXIT_REFUSED, "--number %" PRId64 ": %s has %" PRId64 " rows", p->number, in->path, rows);
  if (p->n < 2) return fault(EXIT_REFUSED, "%s: rows of %" PRId64 ", not at least 2", in->path, p->n);
  const unsigned char *at = a->data;
  for (int64_t d = last - 1; d >= 0; d--) {
    at += index % a->shape[d] * a->strides[d] * (int64_t)a->type->bytes;
    index /= a->shape[d];
  }
  p->row = malloc((size_t)p->n * sizeof *p->row);
  if (!p->row) return fault_memory((size_t)p->n * sizeof *p->row);
  for (int64_t i = 0; i < p->n; i++)
    p->row[i] = io_get(a, at + i * a->strides[last] * (int64_t)a->type->bytes);
  return EXIT_OK;
}

static int read_row(plot *p) {
  static const smx_port port = {"x", SMX_SHAPE_FULL, 0, "scores"};
  input in = {.path = options_own(p->o, "row")};
  if (!in.path) return EXIT_OK;
  int code = input_read(&in, &port, p->o, NULL);
  if (!code) code = copy_row(p, &in);
  input_free(&in);
  return code;
}

/* ---- Panels ---- */

/* A panel: what lies along x, and the curves' values, count of them each. */
typedef struct panel {
  int count;
  double *x, *y; /* y: of curve k from k * count on */
} panel;

static int run_curve(const curve *c, int64_t rows, int64_t n, double *x, double *y) {
  int64_t shape[] = {rows, n};
  const smx_tensor in = {.data = x, .device = {1, 0}, .ndim = 2, .dtype = SMX_F64, .shape = shape};
  smx_tensor out = in;
  out.data = y;
  const smx_tensor *ins[] = {&in}, *outs[] = {&out};
  smx_status status = smx_forward(c->op, NULL, &c->params, 1, ins, 1, outs);
  return status == SMX_OK ? EXIT_OK : fault(EXIT_REFUSED, "plot %s: %s", c->text, smx_last_error());
}

/* The weight of the first score while it moves. */
static int sweep(const plot *p, panel *a) {
  int64_t n = p->other_count + 1;
  double *x = malloc(2 * POINTS * (size_t)n * sizeof *x), *y = x ? x + POINTS * n : NULL;
  int code = x ? EXIT_OK : fault_memory(2 * POINTS * (size_t)n * sizeof *x);
  for (int i = 0; !code && i < POINTS; i++) {
    a->x[i] = x[i * n] = p->from + (p->to - p->from) * i / (POINTS - 1);
    memcpy(x + i * n + 1, p->others, (size_t)p->other_count * sizeof *x);
  }
  for (int k = 0; !code && k < p->count; k++) {
    code = run_curve(&p->curves[k], POINTS, n, x, y);
    for (int i = 0; !code && i < POINTS; i++) a->y[k * a->count + i] = y[i * n];
  }
  free(x);
  return code;
}

typedef struct place {
  double score;
  int64_t index;
} place;

/* Largest first, what is not a number last. */
static int by_score(const void *a, const void *b) {
  const place *x = a, *y = b;
  bool more = x->score > y->score || (isnan(y->score) && !isnan(x->score)),
       less = y->score > x->score || (isnan(x->score) && !isnan(y->score));
  return more ? -1 : less ? 1 : x->index < y->index ? -1 : 1;
}

/* The weights of the row's best. */
static int weigh(const plot *p, panel *a) {
  size_t n = (size_t)p->n;
  place *order = malloc(n * sizeof *order);
  double *y = malloc(n * sizeof *y);
  int code = order && y ? EXIT_OK : fault_memory(n * sizeof *order);
  for (size_t i = 0; !code && i < n; i++) order[i] = (place){p->row[i], (int64_t)i};
  if (!code) qsort(order, n, sizeof *order, by_score);
  for (int i = 0; !code && i < a->count; i++) a->x[i] = i + 1;
  for (int k = 0; !code && k < p->count; k++) {
    code = run_curve(&p->curves[k], 1, p->n, p->row, y);
    for (int i = 0; !code && i < a->count; i++) a->y[k * a->count + i] = y[order[i].index];
  }
  free(order);
  free(y);
  return code;
}

/* From 0, or below where a weight is, to a little above the largest. */
static svg_frame frame_of(const plot *p, const panel *a, double top) {
  svg_frame f = {PLOT_LEFT, top, PLOT_WIDTH, PLOT_HEIGHT, a->x[0], a->x[a->count - 1], 0, 0};
  for (int i = 0; i < p->count * a->count; i++) {
    if (!isfinite(a->y[i])) continue;
    if (a->y[i] < f.y0) f.y0 = a->y[i];
    if (a->y[i] > f.y1) f.y1 = a->y[i];
  }
  if (f.y1 - f.y0 <= 0) f.y1 = f.y0 + 1;
  f.y1 += 0.05 * (f.y1 - f.y0);
  return f;
}

static void draw_panel(svg *s, const plot *p, const panel *a, double top, const char *x, const char *y) {
  svg_frame f = frame_of(p, a, top);
  svg_axes(s, &f, x, y, true);
  for (int k = 0; k < p->count; k++) svg_curve(s, &f, k, a->count, a->x, a->y + k * a->count);
}

static void sweep_words(const plot *p, char *text, size_t size) {
  int used = snprintf(text, size, "score of the element; the others have");
  for (int i = 0; i < p->other_count && used < (int)size - 8; i++)
    used += snprintf(text + used, size - (size_t)used, "%s %.4g", i ? "," : "", p->others[i]);
}

static int draw(const plot *p, const panel *first, const panel *second) {
  char words[192];
  svg s;
  double legend = TOP + (PLOT_HEIGHT + GAP) * (second ? 2 : 1) - GAP + BOTTOM,
         height = legend + LINE * p->count + 10;
  int code = svg_begin(&s, PLOT_LEFT + PLOT_WIDTH + 30, height,
                       "The weight of an element while its score moves", NULL);
  if (code) return code;
  sweep_words(p, words, sizeof words);
  draw_panel(&s, p, first, TOP, words, "weight");
  if (second) {
    snprintf(words, sizeof words,
             "elements of row %" PRId64 " of %.60s (%" PRId64 " in all), largest score first", p->number,
             options_own(p->o, "row"), p->n);
    draw_panel(&s, p, second, TOP + PLOT_HEIGHT + GAP, words, "weight");
  }
  for (int k = 0; k < p->count; k++)
    svg_legend(&s, PLOT_LEFT, legend - 10 + LINE * (k + 1), k, p->curves[k].text);
  code = svg_write(&s, p->o->out ? p->o->out : "-");
  svg_free(&s);
  return code;
}

static int make_panel(panel *a, int count, int curves) {
  a->count = count;
  a->x = calloc((size_t)count * (size_t)(curves + 1), sizeof *a->x);
  a->y = a->x ? a->x + count : NULL;
  return a->x ? EXIT_OK : fault_memory((size_t)count * (size_t)(curves + 1) * sizeof *a->x);
}

int work_plot(const options *o) {
  plot p = {.o = o};
  panel first = {0}, second = {0};
  if (options_own(o, "load")) return plot_load(o);
  int code = options_own(o, "experts") ? fault(EXIT_USAGE, "--experts: --load FILE is missing") : EXIT_OK;
  if (!code) code = read_curves(&p);
  if (!code) code = read_own(&p);
  if (!code) code = read_row(&p);
  if (!code) code = make_panel(&first, POINTS, p.count);
  if (!code) code = sweep(&p, &first);
  if (!code && p.row) code = make_panel(&second, (int)(p.n < p.best ? p.n : p.best), p.count);
  if (!code && p.row) code = weigh(&p, &second);
  if (!code) code = draw(&p, &first, p.row ? &second : NULL);
  free(first.x);
  free(second.x);
  free(p.row);
  return code;
}
