/* output.c - writes under a temporary name and renames at the end; streams and devices are written as they are. */
#include "output.h"

#include "../fault.h"
#include "../signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMPORARY ".softmax-XXXXXX"
enum { COPY_SIZE = 1 << 16 };

static int unwritable(const output *o, const char *what) { return fault(EXIT_UNWRITABLE, "%s: %s: %s", o->name, what, strerror(errno)); }

/* The file that a link stands for, so that the link survives. */
static char *final_name(const char *path) {
  char *resolved = realpath(path, NULL);
  return resolved ? resolved : strdup(path);
}

static char *temporary_name(const char *path) {
  const char *slash = strrchr(path, '/');
  size_t directory = slash ? (size_t)(slash - path) + 1 : 0;
  char *name = malloc(directory + sizeof TEMPORARY);
  if (!name) return NULL;
  memcpy(name, path, directory);
  memcpy(name + directory, TEMPORARY, sizeof TEMPORARY);
  return name;
}

/* The permissions of the file that will be replaced, or those of a new file. */
static mode_t wanted_mode(bool exists, const struct stat *old) {
  mode_t mask = umask(0);
  umask(mask);
  return exists ? old->st_mode & 0777 : 0666 & ~mask;
}

static int open_temporary(output *o, mode_t mode) {
  sigset_t held;
  o->temporary = temporary_name(o->path);
  if (!o->temporary) return fault_memory(strlen(o->path) + sizeof TEMPORARY);
  signals_hold(&held);
  o->fd = mkstemp(o->temporary);
  if (o->fd >= 0) signals_set_temporary(o->temporary);
  signals_release(&held);
  if (o->fd < 0) {
    int code = unwritable(o, "cannot make a file in its directory");
    free(o->temporary);
    o->temporary = NULL;
    return code;
  }
  if (fchmod(o->fd, mode) != 0) return unwritable(o, "cannot set its permissions");
  return EXIT_OK;
}

/* An unnamed file that will be copied to the stream. */
static int open_spool(output *o) {
  FILE *f = tmpfile();
  if (!f) return unwritable(o, "cannot make a temporary file");
  o->target = o->fd;
  o->fd = dup(fileno(f));
  fclose(f);
  o->stream = false;
  return o->fd < 0 ? unwritable(o, "cannot make a temporary file") : EXIT_OK;
}

static int open_stream(output *o, const char *path, bool random) {
  o->fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
  if (o->fd < 0) return unwritable(o, "cannot be written");
  o->stream = true;
  return random ? open_spool(o) : EXIT_OK;
}

int output_open(output *o, const char *path, bool random) {
  struct stat st;
  bool standard = strcmp(path, "-") == 0;
  memset(o, 0, sizeof *o);
  o->fd = o->target = -1;
  o->name = standard ? "standard output" : path;
  bool exists = !standard && stat(path, &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return fault(EXIT_UNWRITABLE, "%s: is a directory", path);
  if (standard || (exists && !S_ISREG(st.st_mode))) return open_stream(o, path, random);
  o->path = final_name(path);
  return o->path ? open_temporary(o, wanted_mode(exists, &st)) : fault_memory(strlen(path));
}

static int write_stream(output *o, int fd, const unsigned char *p, size_t bytes) {
  while (bytes) {
    ssize_t n = write(fd, p, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unwritable(o, "cannot be written");
    p += n;
    bytes -= (size_t)n;
  }
  return EXIT_OK;
}

int output_write(output *o, uint64_t offset, const void *data, size_t bytes) {
  const unsigned char *p = data;
  if (o->stream) {
    if (offset != o->position) return fault(EXIT_UNWRITABLE, "%s: cannot be written out of order", o->name);
    o->position += bytes;
    return write_stream(o, o->fd, p, bytes);
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

static int copy_spool(output *o) {
  unsigned char buffer[COPY_SIZE];
  off_t at = 0;
  ssize_t n;
  while ((n = pread(o->fd, buffer, sizeof buffer, at)) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unwritable(o, "cannot read its temporary file");
    int code = write_stream(o, o->target, buffer, (size_t)n);
    if (code) return code;
    at += n;
  }
  return EXIT_OK;
}

static int close_all(output *o) {
  int failed = 0;
  if (o->fd >= 0) failed |= close(o->fd);
  if (o->target >= 0) failed |= close(o->target);
  o->fd = o->target = -1;
  return failed ? unwritable(o, "cannot be closed") : EXIT_OK;
}

/* Makes the new name last as well; not every file system can. */
static void sync_directory(const char *path) {
  char *name = temporary_name(path);
  if (!name) return;
  char *slash = strrchr(name, '/');
  if (slash) slash[1] = 0;
  int fd = open(slash ? name : ".", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    if (fsync(fd) != 0) errno = 0;
    close(fd);
  }
  free(name);
}

static int give_name(output *o) {
  if (rename(o->temporary, o->path) != 0) return unwritable(o, "cannot be given its name");
  signals_set_temporary(NULL);
  free(o->temporary);
  o->temporary = NULL;
  sync_directory(o->path);
  return EXIT_OK;
}

int output_commit(output *o) {
  int code = o->target >= 0 ? copy_spool(o) : EXIT_OK;
  if (!code && o->temporary && fsync(o->fd) != 0) code = unwritable(o, "cannot be written to disk");
  if (!code) code = close_all(o);
  if (!code && o->temporary) code = give_name(o);
  output_abandon(o);
  return code;
}

void output_abandon(output *o) {
  int saved = errno;
  if (o->fd >= 0) close(o->fd);
  if (o->target >= 0) close(o->target);
  o->fd = o->target = -1;
  if (o->temporary) {
    unlink(o->temporary);
    signals_set_temporary(NULL);
  }
  free(o->temporary);
  free(o->path);
  o->temporary = o->path = NULL;
  errno = saved;
}
