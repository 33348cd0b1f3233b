/* stream.h - descriptors that are written front to back: pipes, terminals, devices, files that
 * another program opened. */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <stdbool.h>
#include <stddef.h>

/* After a failed call: waits until a descriptor that does not block can be read (POLLIN) or written
 * (POLLOUT). True where the call can be made again, also after an interruption. */
bool stream_again(int fd, short events);

/* A new descriptor of one that this process was given and may write, at the position it has; -1,
 * see errno. */
int stream_inherit(int fd);

/* The number N where a path is /dev/fd/N, /proc/self/fd/N or another name of the same; else -1. */
int stream_number(const char *path);

/* The fault names what is written. */
int stream_write(int fd, const char *name, const void *data, size_t bytes);

/* All of a file, from its beginning. */
int stream_copy(int from, int to, const char *name);

/* A file that never has a name, in a directory; -1 where the file system has no such files. */
int stream_unnamed(const char *directory);

/* A file without a name, in TMPDIR or /tmp. */
int stream_spool(void);

/* Standard output that does not block is more than stdio can take: what is printed between the two
 * is kept, and written by the second, which waits as long as it takes. Nothing happens for one that
 * blocks. */
void stream_hold_printed(void);
int stream_release_printed(void);

#endif
