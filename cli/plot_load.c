/* plot_load.c - what `plot --load` draws: how many tokens each expert has. */
#include "bind.h"
#include "fault.h"
#include "parse.h"
#include "plot.h"
#include "report/svg.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MOST_EXPERTS = 1 << 20 };

typedef struct load {
  int64_t *count, experts, tokens, chosen; /* count: of each expert */
} load;

/* experts: 0 where nobody said how many there are: as many as the largest number asks for. */
static int count_tokens(load *l, const input *in) {
  const io_array *a = &in->array;
  int64_t n;
  if (!count_elements(a->ndim, a->shape, &n)) n = 0;
  const int64_t given = l->experts, k = a->ndim ? a->shape[a->ndim - 1] : 1;
  const int64_t most = given ? given : MOST_EXPERTS;
  l->tokens = k ? n / k : 0;
  l->count = calloc((size_t)most, sizeof *l->count);
  if (!l->count) return fault_memory((size_t)most * sizeof *l->count);
  for (int64_t i = 0; i < n; i++) {
    const double e = io_element(a, i);
    if (e == -1) continue;
    if (!(e >= 0 && e < (double)most && e == (double)(int64_t)e))
      return fault(EXIT_REFUSED, "%s: element %" PRId64 " is %g, no expert of %" PRId64 " and not -1",
                   in->path, i, e, most);
    if (!given && e >= (double)l->experts) l->experts = (int64_t)e + 1;
    l->count[(int64_t)e]++, l->chosen++;
  }
  if (l->experts == 0)
    return fault(EXIT_REFUSED, "%s: no expert has a token; --experts N draws them", in->path);
  return EXIT_OK;
}

static void draw_bars(svg *s, const svg_frame *f, const load *l) {
  const double wide = f->width / (double)l->experts, base = svg_y(f, 0);
  for (int64_t e = 0; e < l->experts; e++) {
    const double top = svg_y(f, (double)l->count[e]);
    if (l->count[e]) svg_cell(s, svg_x(f, (double)e - 0.4), top, 0.8 * wide, base - top, 0.3);
  }
}

static int draw(const load *l, const char *path, const char *out) {
  char about[256], words[64];
  const double mean = (double)l->chosen / (double)l->experts;
  int64_t most = 0, idle = 0;
  svg s;
  for (int64_t e = 0; e < l->experts; e++) {
    if (l->count[e] > most) most = l->count[e];
    idle += l->count[e] == 0;
  }
  snprintf(about, sizeof about,
           "%.100s: %" PRId64 " tokens; the busiest expert has %.2f times the mean, %" PRId64 " of %" PRId64
           " have none",
           path, l->tokens, mean > 0 ? (double)most / mean : 0, idle, l->experts);
  svg_frame f = {PLOT_LEFT,  64,
                 PLOT_WIDTH, PLOT_HEIGHT,
                 -0.5,       (double)l->experts - 0.5,
                 0,          most ? 1.05 * (double)most : 1};
  int code =
      svg_begin(&s, PLOT_LEFT + PLOT_WIDTH + 30, f.top + PLOT_HEIGHT + 60, "Tokens of each expert", about);
  if (code) return code;
  svg_axes(&s, &f, "expert", "tokens", false);
  draw_bars(&s, &f, l);
  svg_line(&s, f.left, svg_y(&f, mean), f.left + f.width, svg_y(&f, mean));
  snprintf(words, sizeof words, "mean %.6g", mean);
  svg_text(&s, f.left + f.width, svg_y(&f, mean) - 4, SVG_END, words);
  code = svg_write(&s, out);
  svg_free(&s);
  return code;
}

int plot_load(const options *o) {
  static const smx_port port = {"index", SMX_SHAPE_FULL, SMX_PORT_INT, "experts of the tokens"};
  const char *experts = options_own(o, "experts");
  input in = {.path = options_own(o, "load")};
  load l = {0};
  int code = o->file_count ? fault(EXIT_USAGE, "plot %s: no operators with --load", o->files[0]) : EXIT_OK;
  if (!code && experts) code = options_int("experts", experts, 1, MOST_EXPERTS, &l.experts);
  if (!code) code = input_read(&in, &port, o, NULL);
  if (!code) code = count_tokens(&l, &in);
  if (!code) code = draw(&l, in.path, o->out ? o->out : "-");
  input_free(&in);
  free(l.count);
  return code;
}
