/* members.c - choosing one array of a container. */
#include "members.h"

#include "../fault.h"

#include <string.h>

void member_begin(member_search *m, const char *wanted) {
  m->wanted = wanted;
  m->count = 0;
  m->found = NO_MEMBER;
  m->names[0] = 0;
}

static void note_name(member_search *m, const char *name) {
  size_t used = strlen(m->names), room = sizeof m->names - used;
  if (strlen(name) + sizeof ", ..." < room) snprintf(m->names + used, room, "%s%s", used ? ", " : "", name);
  else if (used && m->names[used - 1] != '.' && room > sizeof ", ...")
    snprintf(m->names + used, room, ", ...");
}

void member_see(member_search *m, const char *name, int64_t index) {
  m->count++;
  note_name(m, name);
  if (m->wanted ? strcmp(m->wanted, name) == 0 : m->count == 1) m->found = index;
}

int member_check(const member_search *m, const io_source *source) {
  if (m->count == 0) return fault(EXIT_UNREADABLE, "%s: holds no array", source->name);
  if (!m->wanted && m->count > 1)
    return fault(EXIT_UNREADABLE, "%s: holds %lld arrays; choose one as FILE:NAME among %s", source->name,
                 (long long)m->count, m->names);
  if (m->found == NO_MEMBER)
    return fault(EXIT_UNREADABLE, "%s: no array '%s' among %s", source->name, m->wanted, m->names);
  return EXIT_OK;
}
