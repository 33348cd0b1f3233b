/* members.h - which array of a container is meant: the one that is named, or the only one. */
#ifndef CLI_MEMBERS_H
#define CLI_MEMBERS_H

#include "io.h"

enum { NO_MEMBER = -1 };

typedef struct member_search {
  const char *wanted; /* NULL = the only one */
  int64_t count;      /* members seen */
  int64_t found;      /* index of the match, or NO_MEMBER */
  char names[256];    /* the first few, for the message */
} member_search;

void member_begin(member_search *m, const char *wanted);

/* Sees the next member; index is the caller's own number of it. */
void member_see(member_search *m, const char *name, int64_t index);

/* A fault unless exactly one was found. */
int member_check(const member_search *m, const io_source *source);

#endif
