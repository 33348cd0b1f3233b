/* head/functions_chain_paths.c - the best paths of a chain, one after another (functions_chain.h).
 * A tag of a token has a list of the best paths that end there,
 *
 *   s_t(j, r) = the r-th largest of s_(t-1)(i, q) + A_ij over i and q, + e_t(j)
 *
 * which the lists of the token before are merged into: each is in order. */
#include <string.h>

#include "functions_chain.h"

typedef struct lists {
  chain_walk *w;
  int64_t count, size;  /* places of a list, of the lists of all tags */
  double *now, *before; /* [k][count], -inf where there is no path */
  int32_t *tag, *rank;  /* [tokens][k][count]: where the path comes from */
  int32_t *next;        /* [k]: what is next of each list */
  int64_t *y;
} lists;

double chain_paths_bytes(const chain *m, int64_t count) {
  return 8 * (2.0 * (double)m->k * (double)count + (double)m->tokens) +
         4 * (double)m->k * (2 * (double)m->tokens * (double)count + 1);
}
static lists lists_of(chain_walk *w, int64_t count, char *memory) {
  const chain *m = w->m;
  lists l = {.w = w, .count = count, .size = m->k * count, .now = (double *)(void *)memory};
  l.before = l.now + l.size;
  l.y = (int64_t *)(void *)(l.before + l.size);
  l.tag = (int32_t *)(void *)(l.y + m->tokens);
  l.rank = l.tag + m->tokens * l.size;
  l.next = l.rank + m->tokens * l.size;
  return l;
}

/* The largest of what is next in the lists, `from` added, whose elements are `step` apart; of equal
 * ones that of the lowest tag. -inf: there is no more. */
static double next_of(lists *l, const double *from, int64_t step, int64_t *tag) {
  double most = -__builtin_inf();
  for (int64_t i = 0; i < l->w->m->k; i++) {
    if (l->next[i] == l->count) continue;
    const double x = l->before[i * l->count + l->next[i]] + from[i * step];
    l->w->bad |= x != x || x == __builtin_inf();
    if (x > most) most = x, *tag = i;
  }
  return most;
}
static void rewind_lists(lists *l) { memset(l->next, 0, sizeof *l->next * (size_t)l->w->m->k); }

static void merge(lists *l, int64_t t, int64_t j) {
  const chain *m = l->w->m;
  const int64_t at = t * l->size + j * l->count;
  double x = 0;
  rewind_lists(l);
  for (int64_t r = 0; r < l->count; r++) {
    int64_t i = 0;
    if (x > -__builtin_inf()) x = next_of(l, m->transitions + j, m->wide, &i);
    l->now[j * l->count + r] = x + l->w->e[j];
    l->tag[at + r] = (int32_t)i, l->rank[at + r] = l->next[i];
    if (x > -__builtin_inf()) l->next[i]++;
  }
}

static void take_token(lists *l, int64_t t) {
  const chain *m = l->w->m;
  chain_emission(l->w, t, l->w->e);
  for (int64_t j = 0; j < m->k; j++) {
    double *const list = l->now + j * l->count;
    for (int64_t r = 0; t == 0 && r < l->count; r++)
      list[r] = r ? -__builtin_inf() : l->w->e[j] + m->first[j];
    if (t) merge(l, t, j);
    l->w->bad |= !(list[0] < __builtin_inf());
  }
  double *const swap = l->before;
  l->before = l->now, l->now = swap;
}

/* The path that is at place `rank` of a tag of the last token, and its score. */
static double trace(const lists *l, int64_t tag, int64_t rank) {
  for (int64_t t = l->w->count - 1; t >= 0; t--) {
    const int64_t at = t * l->size + tag * l->count + rank;
    l->y[l->w->at[t]] = tag;
    if (t) tag = l->tag[at], rank = l->rank[at];
  }
  const head_sum s = chain_score(l->w, l->y);
  return s.high + s.low;
}

void chain_paths(chain_walk *w, int64_t count, char *memory, int64_t *path, double *score) {
  const chain *m = w->m;
  lists l = lists_of(w, count, memory);
  for (int64_t i = 0; i < count * m->tokens; i++) path[i] = -1;
  for (int64_t r = 0; r < count; r++) score[r] = w->count || r ? -__builtin_inf() : 0;
  for (int64_t t = 0; t < m->tokens; t++) l.y[t] = -1;
  for (int64_t t = 0; t < w->count && !w->bad; t++) take_token(&l, t);
  rewind_lists(&l);
  for (int64_t r = 0; r < count && w->count && !w->bad; r++) {
    int64_t tag = 0;
    if (next_of(&l, m->last, 1, &tag) == -__builtin_inf()) break;
    score[r] = trace(&l, tag, l.next[tag]++);
    memcpy(path + r * m->tokens, l.y, sizeof *path * (size_t)m->tokens);
  }
  if (!w->bad) return;
  for (int64_t i = 0; i < count * m->tokens; i++) path[i] = -1;
  for (int64_t r = 0; r < count; r++) score[r] = __builtin_nan("");
}
