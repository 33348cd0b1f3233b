/* map.c - weights of attention as a heat map. They come from attention itself: with one-hot values,
 * value c for the keys of cell c, the output of a query is the weight it gives to each cell. So
 * every kind of weights, mask and window is drawn without a formula of its own. */
#include "attend.h"
#include "fault.h"
#include "report/svg.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_CELLS = 96,
  MAP_SIZE = 640,
  NUMBERS = 12,
  NAMES = 64,
  LEFT = 110,
  TOP = 70,
  BAR = 16,
  BAR_STEPS = 64
};
#define FAINT 0.06 /* the shade of the smallest weight that is not 0 */

/* How a weight becomes a shade. */
typedef enum shades { SHADES_LINEAR, SHADES_LOG, SHADES_ROW } shades;
static const char *const shades_names[] = {"linear", "log", "row", NULL};

void map_shades(char *text, size_t size) {
  snprintf(text, size, "%s %s %s", shades_names[0], shades_names[1], shades_names[2]);
}

int map_read_shades(const char *text, int *choice) {
  for (*choice = -1; text && shades_names[*choice + 1]; ++*choice)
    if (strcmp(text, shades_names[*choice + 1]) == 0) return ++*choice, EXIT_OK;
  return text ? options_refuse("shades", text, "not one of linear, log, row") : EXIT_OK;
}

typedef struct map {
  int64_t queries, keys; /* of the head */
  int64_t rows, columns; /* cells */
  int64_t tall, wide;    /* queries and keys of a cell; the last may have fewer */
  double *cells, size, most;
  shades shades;
  double least;       /* what SHADES_LOG draws faintest */
  bool negative, nan; /* whether a cell is */
  const labels *names;
} map;

static int64_t cells_of(int64_t length, int64_t *each) {
  *each = (length + MOST_CELLS - 1) / MOST_CELLS;
  return *each ? (length + *each - 1) / *each : 0;
}

/* ---- Weights ---- */

/* The mean over the queries of a cell. */
static void gather_rows(map *m, const double *o) {
  for (int64_t r = 0; r < m->rows; r++) {
    int64_t first = r * m->tall, end = first + m->tall < m->queries ? first + m->tall : m->queries;
    for (int64_t c = 0; c < m->columns; c++) {
      double sum = 0;
      for (int64_t i = first; i < end; i++) sum += o[i * m->columns + c];
      double v = m->cells[r * m->columns + c] = sum / (double)(end - first);
      if (fabs(v) > m->most) m->most = fabs(v);
      m->negative |= v < 0;
      m->nan |= isnan(v);
    }
  }
}

static int compute(map *m, const attention *a) {
  size_t values = (size_t)(m->keys * m->columns), outputs = (size_t)(m->queries * m->columns);
  double *v = calloc(values + 1, sizeof *v), *o = calloc(outputs + 1, sizeof *o);
  int64_t v_shape[] = {1, 1, m->keys, m->columns}, o_shape[] = {1, 1, m->queries, m->columns};
  smx_tensor vt = {.data = v, .device = {1, 0}, .ndim = 4, .dtype = SMX_F64, .shape = v_shape}, ot = vt;
  ot.data = o;
  ot.shape = o_shape;
  m->cells = calloc((size_t)(m->rows * m->columns) + 1, sizeof *m->cells);
  int code = v && o && m->cells ? EXIT_OK : fault_memory((values + outputs) * sizeof *v);
  for (int64_t j = 0; !code && j < m->keys; j++) v[j * m->columns + j / m->wide] = 1;
  smx_status status =
      code ? SMX_OK : attend_forward(a, &a->view[Q].tensor, &a->view[K].tensor, &vt, &ot, NULL);
  if (!code && status != SMX_OK) code = attend_fault(a, status);
  if (!code) gather_rows(m, o);
  free(v);
  free(o);
  return code;
}

/* ---- Shades ---- */

static bool has_numbers(const map *m) { return m->rows <= NUMBERS && m->columns <= NUMBERS; }

static double largest_of_row(const map *m, int64_t r) {
  double most = 0;
  for (int64_t c = 0; c < m->columns; c++) most = fmax(most, fabs(m->cells[r * m->columns + c]));
  return most;
}

/* From 0 to 1. */
static double shade_of(const map *m, int64_t r, double v) {
  const double size = fabs(v);
  if (m->shades == SHADES_LOG) return size <= m->least ? 0 : log(size / m->least) / log(m->most / m->least);
  return size / (m->shades == SHADES_ROW ? largest_of_row(m, r) : m->most);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Most of the weights that are not 0 differ in a logarithmic scale that begins at the smallest
 * twentieth of them; it has six decades at most. Linear shades are the default where half the
 * weights are darker than an eighth by them, and where the numbers stand in the cells. */
static int choose_shades(map *m, int choice) {
  const int64_t all = m->rows * m->columns;
  double *sizes = malloc((size_t)all * sizeof *sizes + 1);
  int64_t n = 0;
  if (!sizes) return fault_memory((size_t)all * sizeof *sizes);
  for (int64_t i = 0; i < all; i++)
    if (m->cells[i] != 0 && !isnan(m->cells[i])) sizes[n++] = fabs(m->cells[i]);
  qsort(sizes, (size_t)n, sizeof *sizes, by_size);
  m->least = fmax(n ? fmin(sizes[n / 20], m->most / 10) : 0, m->most * 1e-6);
  const bool faint = n && sizes[n / 2] < m->most / 8;
  m->shades = choice >= 0 ? (shades)choice : faint && !has_numbers(m) ? SHADES_LOG : SHADES_LINEAR;
  free(sizes);
  return EXIT_OK;
}

/* ---- Drawing ---- */

static void draw_cell(svg *s, const map *m, int64_t r, int64_t c) {
  double v = m->cells[r * m->columns + c], x = LEFT + (double)c * m->size, y = TOP + (double)r * m->size;
  char text[32];
  if (isnan(v)) {
    svg_line(s, x, y, x + m->size, y + m->size);
    svg_line(s, x, y + m->size, x + m->size, y);
    return;
  }
  if (v != 0) svg_cell(s, x, y, m->size, m->size, FAINT + (1 - FAINT) * shade_of(m, r, v));
  if (v < 0) svg_line(s, x + 1, y + m->size / 2, x + m->size - 1, y + m->size / 2);
  if (!has_numbers(m) || v == 0) return;
  snprintf(text, sizeof text, fabs(v) < 0.001 ? "~0" : "%.2g", v);
  svg_cell(s, x + 3, y + m->size / 2 - 9, m->size - 6, 16, 0); /* numbers stand on white */
  svg_text(s, x + m->size / 2, y + m->size / 2 + 4, SVG_MIDDLE, text);
}

/* The index of a cell's first token, or its name. */
static void cell_name(const map *m, int64_t cell, int64_t each, int64_t cells, char *text, size_t size) {
  if (!m->names || each > 1 || cells > NAMES || !labels_text(m->names, cell, LABEL_COLUMNS, text, size))
    snprintf(text, size, "%" PRId64, cell * each);
}

/* Every cell that has room for a line of text gets one. */
static void draw_names(svg *s, const map *m) {
  char text[LABEL_BYTES + 1];
  int64_t every = (int64_t)(SVG_FONT / m->size) + 1;
  for (int64_t r = 0; r < m->rows; r += every) {
    cell_name(m, r, m->tall, m->rows, text, sizeof text);
    svg_text(s, LEFT - 6, TOP + ((double)r + 0.5) * m->size + 4, SVG_END, text);
  }
  for (int64_t c = 0; c < m->columns; c += every) {
    cell_name(m, c, m->wide, m->columns, text, sizeof text);
    svg_text(s, LEFT + ((double)c + 0.5) * m->size + 4, TOP + (double)m->rows * m->size + 6, SVG_DOWN, text);
  }
}

/* What the top, the middle and the end of the scale stand for. */
static void scale_text(const map *m, int place, char *text, size_t size) {
  static const char *const of_row[] = {"largest", "half", "0"};
  if (m->shades == SHADES_ROW) snprintf(text, size, "%s", of_row[place]);
  else if (m->shades == SHADES_LINEAR) snprintf(text, size, "%.3g", m->most * (2 - place) / 2);
  else snprintf(text, size, "%.2g", place == 0 ? m->most : place == 1 ? sqrt(m->most * m->least) : m->least);
}

/* What the shades stand for. */
static void draw_scale(svg *s, const map *m) {
  char text[32];
  double x = LEFT + (double)m->columns * m->size + 24, height = (double)m->rows * m->size;
  for (int i = 0; i < BAR_STEPS; i++) {
    double part = (double)(BAR_STEPS - i - 1) / (BAR_STEPS - 1);
    svg_cell(s, x, TOP + height * i / BAR_STEPS, BAR, height / BAR_STEPS + 0.5,
             part > 0 ? FAINT + (1 - FAINT) * part : 0);
  }
  for (int i = 0; i <= 2; i++) {
    scale_text(m, i, text, sizeof text);
    svg_text(s, x + BAR + 6, TOP + height * i / 2 + (i == 0 ? 10 : i == 2 ? 0 : 4), SVG_START, text);
  }
}

static void draw_frame(svg *s, const map *m) {
  double right = LEFT + (double)m->columns * m->size, bottom = TOP + (double)m->rows * m->size;
  svg_line(s, LEFT, TOP, right, TOP);
  svg_line(s, LEFT, bottom, right, bottom);
  svg_line(s, LEFT, TOP, LEFT, bottom);
  svg_line(s, right, TOP, right, bottom);
  svg_text(s, (LEFT + right) / 2, bottom + LEFT - 14, SVG_MIDDLE, "key");
  svg_text(s, 16, (TOP + bottom) / 2, SVG_UP, "query");
}

static void describe(const map *m, char *text, size_t size) {
  int used = snprintf(text, size, "%" PRId64 " queries, %" PRId64 " keys", m->queries, m->keys);
  if (m->tall * m->wide > 1)
    used += snprintf(text + used, size - (size_t)used,
                     "; a cell: the sum over %" PRId64 " keys, the mean over %" PRId64 " queries", m->wide,
                     m->tall);
  if (m->shades == SHADES_LOG) used += snprintf(text + used, size - (size_t)used, "; logarithmic shades");
  if (m->shades == SHADES_ROW)
    used += snprintf(text + used, size - (size_t)used, "; shades of a row by its largest");
  if (m->negative) used += snprintf(text + used, size - (size_t)used, "; a bar: below 0");
  if (m->nan) snprintf(text + used, size - (size_t)used, "; a cross: not a number");
}

static int draw(const map *m, const char *path, const char *title) {
  char about[256];
  svg s;
  double width = LEFT + (double)m->columns * m->size + 100, height = TOP + (double)m->rows * m->size + LEFT;
  describe(m, about, sizeof about);
  int code = svg_begin(&s, width < 520 ? 520 : width, height, title, about);
  if (code) return code;
  for (int64_t r = 0; r < m->rows; r++)
    for (int64_t c = 0; c < m->columns; c++) draw_cell(&s, m, r, c);
  draw_names(&s, m);
  draw_scale(&s, m);
  draw_frame(&s, m);
  code = svg_write(&s, path);
  svg_free(&s);
  return code;
}

/* ---- One head of all ---- */

/* What of an input broadcast to [B, H, ...] belongs to one head of one sequence. */
static void slice(view *v, int32_t ndim, int64_t batch, int64_t head, uint32_t bytes) {
  for (int32_t i = 0; i < v->tensor.ndim; i++) {
    int32_t d = i + ndim - v->tensor.ndim;
    const int64_t at = d ? head : batch;
    if (d < 0 || d > 1 || v->shape[i] == 1 || at >= v->shape[i]) continue; /* the library refuses the last */
    v->tensor.data = (unsigned char *)v->tensor.data + at * v->strides[i] * (int64_t)bytes;
    v->shape[i] = 1;
  }
}

static int check_head(const attention *a, const char *path) {
  const int64_t *q = a->view[Q].shape, *k = a->view[K].shape;
  if (a->how.query_offsets || a->how.key_offsets)
    return fault(EXIT_USAGE, "--map %s: not of packed sequences", path);
  if (a->how.block_table) return fault(EXIT_USAGE, "--map %s: not of a paged cache", path);
  if (a->way == BY_TROPICAL) return fault(EXIT_USAGE, "--map %s: the max-plus semiring has no weights", path);
  if (a->head >= q[1])
    return fault(EXIT_USAGE, "--head %" PRId64 ": %s has %" PRId64 " heads", a->head, a->in[Q].path, q[1]);
  if (a->batch >= q[0])
    return fault(EXIT_USAGE, "--batch %" PRId64 ": %s has %" PRId64 " sequences", a->batch, a->in[Q].path,
                 q[0]);
  if (!k[1] || q[1] % k[1] || k[0] != q[0])
    return fault(EXIT_REFUSED,
                 "%s: k: %" PRId64 " sequences of %" PRId64 " heads, q has %" PRId64 " of %" PRId64,
                 a->in[K].path, k[0], k[1], q[0], q[1]);
  return a->o->labels ? labels_check(&a->names, k[2], a->in[K].path) : EXIT_OK;
}

static void narrow(attention *a) {
  static const int32_t dims[TENSORS] = {
      [Q] = 4,     [K] = 4,       [MASK] = 4,   [BIAS] = 4,     [SLOPES] = 2,
      [SINKS] = 2, [LENGTHS] = 1, [SECOND] = 4, [ADDITIVE] = 3, [ROW] = 3};
  const int64_t group = a->view[Q].shape[1] / a->view[K].shape[1];
  const io_array *streams = &a->in[STREAMS].array;
  if (!a->how.streams) a->how.stream += (uint64_t)(a->batch * a->view[Q].shape[1]);
  else if (streams->ndim == 1 && a->batch < streams->shape[0])
    a->how.stream = (uint64_t)(int64_t)io_get(streams, streams->data + a->batch * streams->strides[0] *
                                                                           (int64_t)streams->type->bytes);
  a->how.stream += (uint64_t)a->head;
  a->how.streams = NULL;
  for (int i = 0; i < TENSORS; i++)
    if (a->in[i].path && dims[i])
      slice(&a->view[i], dims[i], a->batch, i == K ? a->head / group : a->head, a->in[i].want->bytes);
}

int attend_map(attention *a, const char *path) {
  map m = {
      .queries = a->view[Q].shape[2], .keys = a->view[K].shape[2], .names = a->o->labels ? &a->names : NULL};
  char title[256];
  int code = check_head(a, path);
  if (!code && !a->context) code = attend_context(a);
  if (code) return code;
  narrow(a);
  m.rows = cells_of(m.queries, &m.tall);
  m.columns = cells_of(m.keys, &m.wide);
  if (!m.rows || !m.columns) return fault(EXIT_REFUSED, "--map %s: no queries or no keys to draw", path);
  int64_t longer = m.rows > m.columns ? m.rows : m.columns;
  m.size = MAP_SIZE / (double)longer;
  if (m.size > 48) m.size = 48;
  snprintf(title, sizeof title, "Attention weights: %s%s, sequence %" PRId64 ", head %" PRId64, a->weights,
           a->how.causal ? ", causal" : "", a->batch, a->head);
  code = compute(&m, a);
  if (m.most == 0) m.most = 1;
  if (!code) code = choose_shades(&m, a->shades);
  if (!code) code = draw(&m, path, title);
  free(m.cells);
  return code;
}
