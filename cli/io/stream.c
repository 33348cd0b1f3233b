/* stream.c - writing to descriptors that may not block, may be shared, and may have no name. */
#include "stream.h"

#include "../fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define OWN_DESCRIPTORS "/proc/self/fd"
enum { COPY_SIZE = 1 << 16, DIGITS_MAX = 9 };

/* Standard output as it was given, while what is printed is kept in a file of memory; else -1. */
static int held = -1;

bool stream_again(int fd, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) return false;
  struct pollfd p = {.fd = fd, .events = events};
  return poll(&p, 1, -1) > 0 || errno == EINTR;
}

int stream_inherit(int fd) {
  int given = fd == STDOUT_FILENO && held >= 0 ? held : fd;
  int flags = fcntl(given, F_GETFL);
  if (flags < 0) return -1;
  if ((flags & O_ACCMODE) == O_RDONLY) {
    errno = EBADF;
    return -1;
  }
  return fcntl(given, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* Whether a directory is that of the descriptors of this process, or of this thread of it. */
static bool holds_own(const char *found) {
  static const char *const folders[] = {OWN_DESCRIPTORS, "/proc/thread-self/fd"};
  char own[PATH_MAX];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (realpath(folders[i], own) && strcmp(found, own) == 0) return true;
  return false;
}

int stream_number(const char *path) {
  const char *slash = strrchr(path, '/'), *digits = slash ? slash + 1 : path;
  size_t n = strspn(digits, "0123456789");
  char directory[PATH_MAX], found[PATH_MAX];
  if (!n || n > DIGITS_MAX || digits[n]) return -1;
  size_t length = (size_t)(digits - path);
  if (length + 1 >= sizeof directory) return -1;
  snprintf(directory, sizeof directory, "%.*s.", (int)length, path);
  return realpath(directory, found) && holds_own(found) ? atoi(digits) : -1;
}

int stream_write(int fd, const char *name, const void *data, size_t bytes) {
  for (const unsigned char *p = data; bytes;) {
    ssize_t n = write(fd, p, bytes);
    if (n < 0 && stream_again(fd, POLLOUT)) continue;
    if (n < 0) return fault(EXIT_UNWRITABLE, "%s: cannot be written: %s", name, strerror(errno));
    p += n;
    bytes -= (size_t)n;
  }
  return EXIT_OK;
}

int stream_copy(int from, int to, const char *name) {
  unsigned char buffer[COPY_SIZE];
  off_t at = 0;
  ssize_t n;
  while ((n = pread(from, buffer, sizeof buffer, at)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fault(EXIT_UNWRITABLE, "%s: cannot read its temporary file: %s", name, strerror(errno));
    int code = stream_write(to, name, buffer, (size_t)n);
    if (code) return code;
    at += n;
  }
  return EXIT_OK;
}

int stream_unnamed(const char *directory) {
#ifdef O_TMPFILE
  return open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
#else
  errno = EOPNOTSUPP;
  return -1;
#endif
}

int stream_spool(void) {
  const char *named = getenv("TMPDIR"), *directory = named && *named ? named : "/tmp";
  char path[PATH_MAX];
  int fd = stream_unnamed(directory);
  if (fd >= 0) return fd;
  if ((size_t)snprintf(path, sizeof path, "%s/.softmax-XXXXXX", directory) >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  fd = mkstemp(path);
  if (fd >= 0) unlink(path);
  return fd;
}

/* A terminal opened again is a terminal still, and blocks; the flag of the one that was given is
 * not ours to change. */
static void open_again(void) {
  int fd = open(OWN_DESCRIPTORS "/1", O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) return;
  dup2(fd, STDOUT_FILENO);
  close(fd);
}

void stream_hold_printed(void) {
  int flags = fcntl(STDOUT_FILENO, F_GETFL);
  if (flags < 0 || !(flags & O_NONBLOCK)) return;
  if (isatty(STDOUT_FILENO)) {
    open_again();
    return;
  }
  int kept = memfd_create("printed", MFD_CLOEXEC);
  int given = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (kept >= 0 && given >= 0 && dup2(kept, STDOUT_FILENO) >= 0) held = given;
  else if (given >= 0) close(given);
  if (kept >= 0) close(kept);
}

int stream_release_printed(void) {
  if (held < 0) return EXIT_OK;
  return stream_copy(STDOUT_FILENO, held, "standard output");
}
