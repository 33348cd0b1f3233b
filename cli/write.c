/* write.c - the file of the results: its format, its arrays, its end. */
#include "write.h"

#include "fault.h"

#include <string.h>
#include <unistd.h>

static int choose_format(const options *o, const io_format **format) {
  if (o->out_format) *format = io_format_named(o->out_format);
  else *format = strcmp(o->out, "-") == 0 ? io_format_named("npy") : io_format_of(o->out);
  if (*format && !(*format)->begin)
    return fault(EXIT_USAGE, "%s: format %s is only read; softmax pool draws results with --preview", o->out,
                 (*format)->name);
  return *format ? EXIT_OK
                 : fault(EXIT_USAGE, "%s: the extension is that of no format; --out-format F chooses one",
                         o->out);
}

/* Bytes that are no text make a mess of a terminal. */
static int check_terminal(const options *o, const io_format *format) {
  if (strcmp(o->out, "-") != 0 || format->separator || !isatty(STDOUT_FILENO)) return EXIT_OK;
  return fault(
      EXIT_USAGE,
      "-o -: standard output is a terminal, and %s is not text; -o FILE, a pipe, or --out-format csv",
      format->name);
}

int write_begin(result_file *f, const options *o, int32_t count, const io_spec *specs) {
  io_writer *w = &f->writer;
  int code = choose_format(o, &w->format);
  if (!code) code = check_terminal(o, w->format);
  if (code) return code;
  w->count = w->format->container ? count : 1;
  w->out = &f->file;
  memcpy(w->spec, specs, (size_t)w->count * sizeof *specs);
  f->open = true;
  code = output_open(&f->file, o->out, w->count > 1);
  return code ? code : w->format->begin(w);
}

int write_put(result_file *f, int32_t i, const void *data, size_t bytes) {
  return i < f->writer.count ? f->writer.format->put(&f->writer, i, data, bytes) : EXIT_OK;
}

int write_end(result_file *f) {
  int code = f->writer.format->end ? f->writer.format->end(&f->writer) : EXIT_OK;
  return code ? code : output_commit(&f->file);
}

void write_drop(result_file *f) {
  if (!f->open) return;
  if (f->writer.format->drop) f->writer.format->drop(&f->writer);
  output_abandon(&f->file);
  f->open = false;
}

int write_file(const char *path, const void *data, size_t bytes) {
  output file;
  int code = output_open(&file, path, false);
  if (!code) code = output_write(&file, 0, data, bytes);
  if (!code) code = output_commit(&file);
  if (code) output_abandon(&file);
  return code;
}
