/* source.c - maps a regular file, or collects what comes through a pipe. */
#include "source.h"

#include "../fault.h"
#include "../signals.h"
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 16 };

static int unreadable(const io_source *s) {
  return fault(EXIT_UNREADABLE, "%s: cannot be read: %s", s->name, strerror(errno));
}

/* Reads to the end. Memory doubles as bytes arrive, so it stays within twice of them. */
static int collect(int fd, io_source *s) {
  size_t room = 0;
  unsigned char *data = NULL;
  for (;;) {
    if (room - s->size < CHUNK) {
      room = room ? 2 * room : (size_t)2 * CHUNK;
      unsigned char *larger = realloc(data, room);
      s->data = larger ? larger : data;
      if (!larger) return fault_memory(room);
      data = larger;
    }
    ssize_t n = read(fd, data + s->size, room - s->size);
    if (n == 0) return EXIT_OK;
    if (n < 0 && !stream_again(fd, POLLIN)) return unreadable(s);
    if (n > 0) s->size += (size_t)n;
  }
}

static int map(int fd, size_t size, io_source *s) {
  void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (base == MAP_FAILED) return unreadable(s);
  madvise(base, size, MADV_SEQUENTIAL);
  s->data = base;
  s->size = size;
  s->mapped = true;
  signals_watch(base, size, s->name);
  return EXIT_OK;
}

int source_open(const char *path, io_source *s) {
  bool standard_input = strcmp(path, "-") == 0;
  int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) != 0) {
    int code = unreadable(s);
    if (fd > 0) close(fd);
    return code;
  }
  bool whole = S_ISREG(st.st_mode) && (!standard_input || lseek(fd, 0, SEEK_CUR) == 0);
  int code = whole && st.st_size > 0 ? map(fd, (size_t)st.st_size, s) : collect(fd, s);
  if (!standard_input) close(fd);
  return code;
}

void source_close(io_source *s) {
  if (s->mapped) {
    signals_unwatch(s->data);
    munmap((void *)(uintptr_t)s->data, s->size);
  } else {
    free((void *)(uintptr_t)s->data);
  }
  s->data = NULL;
  s->mapped = false;
}
