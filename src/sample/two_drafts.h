/* sample/two_drafts.h - the optimal choice between two drafts of one position (is2 of
 * multi_draft_verify): which of them is tested, so that it stands as often as any method allows.
 *
 * Drafts x and y come from q; one of them is chosen, e with probability s(e), and stands with
 * probability min(1, p(e) / s(e)). A choice that prefers some tokens can give any s with
 *
 *   s(A) >= q(A)^2 for each set A of tokens, equal for all of them,
 *
 * and of these the one whose ratios s / p are as even as possible accepts most. It falls out of the
 * order of p / q: the upper concave hull of the points (p(A), q(A)^2), A the tokens up to one in
 * that order, divides them into sections. Between sections the later one is preferred always; in a
 * section s = l p, with l the slope of the hull.
 *
 * That s comes from a random division of the section into runs of neighbours: a draft of a later
 * run is preferred, of two in one run the first. The border between neighbours i and i + 1 is there
 * for a share m of all divisions: it has to raise s / q by l (p / q at i + 1 - p / q at i), and
 * does so by the mass of q between the borders around it. Borders are given up one after another,
 * each when it has had its share; none is left with too little, since s can be reached.
 *
 * Tokens of nearly the same p / q count as one, so that there are at most DRAFT_GROUPS. */
#ifndef SMX_SAMPLE_TWO_DRAFTS_H
#define SMX_SAMPLE_TWO_DRAFTS_H
#include "decode.h"

enum { DRAFT_GROUPS = 384 };

/* Groups in ascending order of p / q: group i holds the ratios above edge[i - 1], up to edge[i]. */
typedef struct draft_groups {
  double *edge, *p, *q; /* p and q: masses; afterwards p is s / q */
  double *mark;         /* m of the border below a group */
  size_t edges;
} draft_groups;

static inline size_t draft_group(const double *edge, size_t edges, double ratio) {
  size_t low = 0;
  for (size_t left = edges, half; left > 0; left -= half) { /* no branch that depends on the ratio */
    half = (left + 1) / 2;
    low += edge[low + half - 1] < ratio ? half : 0;
  }
  return low;
}

/* 128 an octave from 1/2 to 2, 16 an octave from 1/32 to 32: choices are fine where s may be p. */
static inline void draft_grid(draft_groups *g) {
  g->edges = 0;
  for (double octave = 1.0 / 32; octave < 32; octave *= 2) {
    const int parts = octave >= 0.5 && octave < 2 ? 128 : 16;
    for (int i = 0; i < parts && g->edges < DRAFT_GROUPS - 1; i++)
      g->edge[g->edges++] = octave * (1 + (double)i / parts);
  }
}
/* The ratios themselves, each a group, of a row that has few. */
static inline void draft_sort(draft_groups *g) {
  for (size_t i = 1; i < g->edges; i++) {
    const double ratio = g->edge[i];
    size_t at = i;
    for (; at > 0 && g->edge[at - 1] > ratio; at--) g->edge[at] = g->edge[at - 1];
    g->edge[at] = ratio;
  }
}

/* A section: groups with a mass of q, by their place among those. */
typedef struct draft_section {
  size_t first;
  double p, q, before; /* before: the mass of q in earlier sections */
} draft_section;
/* Memory to choose in. The last four are of the borders of a section: the mass of q in the run
 * above one, when it is given up, and its neighbours. */
typedef struct draft_work {
  draft_section section[DRAFT_GROUPS];
  size_t at[DRAFT_GROUPS];
  double mass[DRAFT_GROUPS], end[DRAFT_GROUPS];
  size_t below[DRAFT_GROUPS + 1], above[DRAFT_GROUPS];
} draft_work;
static inline double section_gain(const draft_section *s) { return s->q * (2 * s->before + s->q); }

/* The hull, from the left. Returns how many sections there are. */
static size_t draft_hull(const draft_groups *g, const size_t *at, size_t count, draft_section *s) {
  size_t sections = 0;
  double before = 0;
  for (size_t i = 0; i < count; i++) {
    s[sections] = (draft_section){i, g->p[at[i]], g->q[at[i]], before};
    before += g->q[at[i]];
    for (; sections > 0; sections--) { /* slopes fall, or two sections are one */
      draft_section *last = s + sections, *to = last - 1;
      if (section_gain(to) * last->p > section_gain(last) * to->p) break;
      to->p += last->p, to->q += last->q;
    }
    sections++;
  }
  return sections;
}

/* Borders of the section of groups at[0..count-1], of which g->p is s / q already. */
static void draft_borders(const draft_groups *g, draft_work *w, const size_t *at, size_t count) {
  double *const mass = w->mass, *const end = w->end, now = 0;
  size_t *const below = w->below, *const above = w->above;
  for (size_t i = 0; i < count; i++) {
    mass[i] = g->q[at[i]], below[i] = i > 0 ? i - 1 : 0, above[i] = i + 1;
    if (i > 0) end[i] = (g->p[at[i]] - g->p[at[i - 1]]) / (mass[i - 1] + mass[i]);
  }
  for (below[count] = count - 1;;) {
    size_t next = 0;
    for (size_t i = above[0]; i < count; i = above[i])
      if (next == 0 || end[i] < end[next]) next = i;
    if (next == 0 || !(end[next] < 1)) break;
    const size_t low = below[next], high = above[next];
    now = end[next] > now ? end[next] : now;
    g->mark[at[next]] = now;
    if (low > 0) {
      const double had = mass[below[low]] + mass[low];
      end[low] = now + (end[low] - now) * (had / (had + mass[next]));
    }
    if (high < count) {
      const double had = mass[next] + mass[high];
      end[high] = now + (end[high] - now) * (had / (had + mass[low]));
    }
    mass[low] += mass[next], above[low] = high, below[high] = low;
  }
  for (size_t i = above[0]; i < count; i = above[i]) g->mark[at[i]] = 1;
}

/* s / q and the marks, from the masses. Returns the sum of q. */
static double draft_choose(draft_groups *g, draft_work *w) {
  draft_section *const section = w->section;
  size_t *const at = w->at, count = 0;
  double all = 0;
  for (size_t i = 0; i <= g->edges && i < DRAFT_GROUPS; i++) {
    g->mark[i] = 0;
    if (g->q[i] > 0) at[count++] = i, all += g->q[i];
  }
  for (size_t i = 0; i < count; i++) g->q[at[i]] /= all;
  const size_t sections = draft_hull(g, at, count, section);
  for (size_t k = 0; k < sections; k++) {
    const draft_section *s = section + k;
    const size_t end = k + 1 < sections ? s[1].first : count;
    const double gain = section_gain(s);
    for (size_t i = s->first; i < end; i++)
      g->p[at[i]] = s->p > 0 ? gain * (g->p[at[i]] / s->p) / g->q[at[i]] : gain / s->q;
    draft_borders(g, w, at + s->first, end - s->first);
    g->mark[at[s->first]] = 1;
  }
  return all;
}

/* Which of two drafts of groups a and b is tested, 0 or 1, by a uniform variate. */
static int draft_preferred(const draft_groups *g, size_t a, size_t b, double u) {
  double most = 0;
  for (size_t i = (a < b ? a : b) + 1; i <= a || i <= b; i++) most = g->mark[i] > most ? g->mark[i] : most;
  return u < most && b > a;
}

#endif
