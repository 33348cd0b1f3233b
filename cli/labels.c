/* labels.c - names of classes. */
#include "labels.h"

#include "fault.h"
#include "io/source.h"
#include "utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reading ---- */

static int64_t count_lines(const io_source *s) {
  int64_t lines = 0;
  for (size_t i = 0; i < s->size; i++) lines += s->data[i] == '\n';
  return lines + (s->size && s->data[s->size - 1] != '\n');
}

static int find_lines(labels *l) {
  const io_source *s = &l->source;
  const unsigned char *zero = s->size ? memchr(s->data, 0, s->size) : NULL;
  if (zero)
    return fault(EXIT_UNREADABLE, "%s: labels: byte %zu is 0: not a text with a name a line", s->name,
                 (size_t)(zero - s->data));
  l->count = count_lines(s);
  l->starts = malloc(((size_t)l->count + 1) * sizeof *l->starts);
  if (!l->starts) return fault_memory(((size_t)l->count + 1) * sizeof *l->starts);
  size_t at = s->size >= 3 && memcmp(s->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
  for (int64_t i = 0; i < l->count; i++) {
    l->starts[i] = at;
    const unsigned char *stop = memchr(s->data + at, '\n', s->size - at);
    at = stop ? (size_t)(stop - s->data) + 1 : s->size + 1;
  }
  l->starts[l->count] = at;
  return l->count ? EXIT_OK : fault(EXIT_UNREADABLE, "%s: no names in it", s->name);
}

int labels_read(labels *l, const char *path) {
  memset(l, 0, sizeof *l);
  if (!path) return EXIT_OK;
  if (strcmp(path, "-") == 0)
    return fault(EXIT_USAGE, "--labels -: standard input can be only one of the inputs");
  l->source.name = path;
  int code = source_open(path, &l->source);
  return code ? code : find_lines(l);
}

void labels_free(labels *l) {
  if (l->source.name) source_close(&l->source);
  free(l->starts);
  l->starts = NULL;
}

int labels_check(const labels *l, int64_t n, const char *x) {
  if (l->count <= n) return EXIT_OK;
  return fault(EXIT_REFUSED, "%s: labels: %" PRId64 " names for the %" PRId64 " classes of %s",
               l->source.name, l->count, n, x);
}

/* ---- On the screen ---- */

/* Characters that terminals show two columns wide: East Asian scripts and pictures. */
static int width_of(uint32_t c) {
  static const uint32_t wide[][2] = {{0x1100, 0x115f}, {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},
                                     {0xf900, 0xfaff}, {0xfe30, 0xfe6f},   {0xff00, 0xff60},
                                     {0xffe0, 0xffe6}, {0x1f300, 0x1faff}, {0x20000, 0x3fffd}};
  for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
    if (c >= wide[i][0] && c <= wide[i][1]) return 2;
  return 1;
}

static size_t line_end(const labels *l, int64_t i) {
  size_t end = l->starts[i + 1] - 1; /* the end of the line, or of the file */
  return end > l->starts[i] && l->source.data[end - 1] == '\r' ? end - 1 : end;
}

int labels_text(const labels *l, int64_t class, int columns, char *text, size_t size) {
  size_t used = 0;
  int width = 0;
  text[0] = 0;
  if (class < 0 || class >= l->count) return 0;
  size_t at = l->starts[class], end = line_end(l, class), n;
  for (; at < end; at += n) {
    uint32_t c = utf8_next(l->source.data + at, end - at, &n);
    bool shown = c != '?' && !utf8_moves_cursor(c);
    size_t bytes = shown ? n : 1;
    if (width + width_of(c) > columns || used + bytes >= size) break;
    if (shown) memcpy(text + used, l->source.data + at, bytes);
    else text[used] = '?';
    used += bytes;
    width += shown ? width_of(c) : 1;
  }
  text[used] = 0;
  return width;
}

void labels_column(const labels *l, int64_t class, int columns, char *text, size_t size) {
  int width = labels_text(l, class, columns, text, size);
  size_t used = strlen(text);
  while (width++ < columns && used + 1 < size) text[used++] = ' ';
  text[used] = 0;
}
