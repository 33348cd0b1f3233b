/* source.h - the bytes of an input file, mapped where possible. */
#ifndef CLI_SOURCE_H
#define CLI_SOURCE_H

#include "io.h"

/* path "-" is standard input; source->name is set by the caller. */
int source_open(const char *path, io_source *source);
void source_close(io_source *source);

#endif
