/* output.c - a file without a name until it is whole; where there is no such thing, one of a
 * temporary name. */
#include "output.h"

#include "../fault.h"
#include "../signals.h"
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".softmax-XXXXXX"
enum { LINKS_MAX = 40, LETTERS = 6, TRIES = 1000 };

static int unwritable(const output *o, const char *what) {
  return fault(EXIT_UNWRITABLE, "%s: %s: %s", o->name, what, strerror(errno));
}

/* ---- Names ---- */

/* A name in the directory of another; an absolute one stays. */
static char *beside(const char *path, const char *name) {
  const char *slash = *name == '/' ? NULL : strrchr(path, '/');
  size_t directory = slash ? (size_t)(slash - path) + 1 : 0, length = strlen(name) + 1;
  char *text = malloc(directory + length);
  if (!text) return NULL;
  memcpy(text, path, directory);
  memcpy(text + directory, name, length);
  return text;
}

/* What a symbolic link says, seen from where the link is. */
static char *link_target(const char *path) {
  char to[PATH_MAX];
  ssize_t n = readlink(path, to, sizeof to - 1);
  if (n < 0) return NULL;
  to[n] = 0;
  return beside(path, to);
}

/* The name at the end of the links, whether anything is there or not, so that the links survive; or
 * the number of a descriptor of ours that they lead to, which has no name that could be replaced.
 * NULL: see errno. */
static char *follow(const char *path, int *number) {
  struct stat st;
  char *at = strdup(path);
  for (int links = 0; at; links++) {
    *number = stream_number(at);
    if (*number >= 0) return at;
    bool there = lstat(at, &st) == 0;
    if (there ? !S_ISLNK(st.st_mode) : errno == ENOENT) return at;
    errno = there && links == LINKS_MAX ? ELOOP : errno;
    char *next = there && links < LINKS_MAX ? link_target(at) : NULL;
    free(at);
    at = next;
  }
  return NULL;
}

/* ---- Opening ---- */

/* The permissions of the file that will be replaced, or those of a new file. */
static mode_t wanted_mode(bool exists, const struct stat *old) {
  mode_t mask = umask(0);
  umask(mask);
  return exists ? old->st_mode & 0777 : 0666 & ~mask;
}

static void own_path(int fd, char *text, size_t size) { snprintf(text, size, "/proc/self/fd/%d", fd); }

/* A file without a name, in the directory of the final one. It needs a way to get a name later. */
static int open_unnamed(const output *o) {
  char way[32], *directory = beside(o->path, ".");
  int fd = directory ? stream_unnamed(directory) : -1;
  free(directory);
  if (fd < 0) return -1;
  own_path(fd, way, sizeof way);
  if (access(way, F_OK) == 0) return fd;
  close(fd);
  return -1;
}

static int open_named(output *o) {
  sigset_t held;
  signals_hold(&held);
  o->fd = mkstemp(o->temporary);
  o->named = o->fd >= 0;
  if (o->named) signals_set_temporary(o->temporary);
  signals_release(&held);
  return o->named ? EXIT_OK : unwritable(o, "cannot make a file in its directory");
}

static int open_file(output *o, mode_t mode) {
  o->temporary = beside(o->path, TEMPORARY);
  if (!o->temporary) return fault_memory(strlen(o->path) + sizeof TEMPORARY);
  errno = ENAMETOOLONG;
  if (strlen(o->temporary) >= PATH_MAX) return unwritable(o, "cannot be made");
  o->fd = open_unnamed(o);
  int code = o->fd < 0 ? open_named(o) : EXIT_OK;
  if (!code && fchmod(o->fd, mode) != 0) code = unwritable(o, "cannot set its permissions");
  return code;
}

static int open_stream(output *o, int number, bool random) {
  o->fd = number >= 0 ? stream_inherit(number) : open(o->path, O_WRONLY | O_CLOEXEC);
  if (o->fd < 0) return unwritable(o, "cannot be written");
  o->stream = !random;
  if (!random) return EXIT_OK;
  o->target = o->fd;
  o->fd = stream_spool();
  return o->fd < 0 ? unwritable(o, "cannot make a temporary file") : EXIT_OK;
}

int output_open(output *o, const char *path, bool random) {
  struct stat st;
  int number = STDOUT_FILENO;
  bool standard = strcmp(path, "-") == 0;
  memset(o, 0, sizeof *o);
  o->fd = o->target = -1;
  o->name = standard ? "standard output" : path;
  if (standard) return open_stream(o, number, random);
  o->path = follow(path, &number);
  if (!o->path) return unwritable(o, "cannot be made");
  if (number >= 0) return open_stream(o, number, random);
  bool exists = stat(o->path, &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return fault(EXIT_UNWRITABLE, "%s: is a directory", path);
  bool stream = exists && !S_ISREG(st.st_mode);
  return stream ? open_stream(o, number, random) : open_file(o, wanted_mode(exists, &st));
}

/* ---- Writing ---- */

int output_write(output *o, uint64_t offset, const void *data, size_t bytes) {
  const unsigned char *p = data;
  if (o->stream) {
    if (offset != o->position) return fault(EXIT_UNWRITABLE, "%s: cannot be written out of order", o->name);
    o->position += bytes;
    return stream_write(o->fd, o->name, p, bytes);
  }
  while (bytes) {
    ssize_t n = pwrite(o->fd, p, bytes, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unwritable(o, "cannot be written");
    p += n;
    offset += (uint64_t)n;
    bytes -= (size_t)n;
  }
  return EXIT_OK;
}

/* ---- The end ---- */

static int close_all(output *o) {
  int failed = 0;
  if (o->fd >= 0) failed |= close(o->fd);
  if (o->target >= 0) failed |= close(o->target);
  o->fd = o->target = -1;
  return failed ? unwritable(o, "cannot be closed") : EXIT_OK;
}

/* Makes the new name last as well; not every file system can. */
static void sync_directory(const char *path) {
  char *directory = beside(path, ".");
  int fd = directory ? open(directory, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    if (fsync(fd) != 0) errno = 0;
    close(fd);
  }
  free(directory);
}

static bool link_as(const output *o, const char *name) {
  char way[32];
  own_path(o->fd, way, sizeof way);
  return linkat(AT_FDCWD, way, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
}

/* A temporary name for a file that has none, in place of the letters X. */
static bool name_it(output *o) {
  char *letters = o->temporary + strlen(o->temporary) - LETTERS;
  for (int i = 0; i < TRIES && !o->named; i++) {
    snprintf(letters, LETTERS + 1, "%06x", ((unsigned)getpid() * TRIES + (unsigned)i) & 0xffffff);
    o->named = link_as(o, o->temporary);
    if (!o->named && errno != EEXIST) break;
  }
  return o->named;
}

/* A file takes the place of another under a name of its own: between the two calls that this takes
 * no signal is let in. */
static bool replace(output *o) {
  sigset_t held;
  signals_hold(&held);
  bool done = (o->named || name_it(o)) && rename(o->temporary, o->path) == 0;
  if (!done && o->named) unlink(o->temporary);
  o->named = false;
  signals_set_temporary(NULL);
  signals_release(&held);
  return done;
}

static int give_name(output *o) {
  bool done = !o->named && link_as(o, o->path);
  if (!done && (o->named || errno == EEXIST)) done = replace(o);
  if (!done) return unwritable(o, "cannot be given its name");
  sync_directory(o->path);
  return EXIT_OK;
}

int output_commit(output *o) {
  int code = o->target >= 0 ? stream_copy(o->fd, o->target, o->name) : EXIT_OK;
  if (!code && o->temporary && fsync(o->fd) != 0) code = unwritable(o, "cannot be written to disk");
  if (!code && o->temporary) code = give_name(o);
  if (!code) code = close_all(o);
  output_abandon(o);
  return code;
}

void output_abandon(output *o) {
  int saved = errno;
  if (o->fd >= 0) close(o->fd);
  if (o->target >= 0) close(o->target);
  o->fd = o->target = -1;
  if (o->named) {
    unlink(o->temporary);
    signals_set_temporary(NULL);
    o->named = false;
  }
  free(o->temporary);
  free(o->path);
  o->temporary = o->path = NULL;
  errno = saved;
}
