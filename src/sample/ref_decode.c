/* sample/ref_decode.c - the operators of decoding, straight from their formulas. See ref.c. */
#include "ref.h"
#include <float.h>

static int unlikely(double v) { return !(v >= 0 && v < INFINITY); } /* no probability */

/* ---- drafts ---- */

/* Draws from weights; what comes out, or -1. */
static double draw_from(const double *w, size_t n, double u) {
  double sum = 0;
  for (size_t i = 0; i < n; i++) sum += w[i];
  return sum > 0 ? (double)walk(w, n, u) : -1;
}

static double total(const double *w, size_t n) {
  double sum = 0;
  for (size_t b = 0; b < n; b += 256) {
    double within = 0;
    for (size_t i = b; i < n && i < b + 256; i++) within += w[i];
    sum += within;
  }
  return sum;
}

/* g and (1 - (1 - b)^k) / b of k-sequential selection. */
static double sequential(const double *p, const double *q, size_t n, size_t k, double *share) {
  double low = 1, high = (double)k, b = 0;
  double *least = room_for(n);
  for (int round = 0; round <= 100; round++) {
    double g = round == 100 ? high : low + (high - low) / 2;
    for (size_t i = 0; i < n; i++) least[i] = fmin(q[i], p[i] / g);
    b = total(least, n);
    if (round == 100) break;
    if (1 - pow(1 - b, (double)k) > g * b) low = g;
    else high = g;
  }
  *share = b > 0 ? (1 - pow(1 - b, (double)k)) / b : 0;
  free(least);
  return high;
}

enum { RRS, DISTINCT, KSEQ, IS2 };

typedef struct trial {
  const double *p, *q, *draft;
  size_t n, k;
  int method;
  uint64_t seed, stream, first;
} trial;

/* ---- the choice between two drafts: see two_drafts.h ---- */

enum { GROUPS = 384 };
typedef struct choice {
  size_t groups;
  double edge[GROUPS];
  long double p[GROUPS], q[GROUPS], s[GROUPS], mark[GROUPS];
} choice;

static size_t group_of(const choice *c, double ratio) {
  size_t at = 0;
  while (at + 1 < c->groups && c->edge[at] < ratio) at++;
  return at;
}
static int rising(const void *a, const void *b) {
  double u = *(const double *)a, v = *(const double *)b;
  return (u > v) - (u < v);
}
static void make_groups(const trial *t, choice *c) {
  long double all = 0;
  size_t edges = 0;
  if (t->n < GROUPS) {
    for (size_t i = 0; i < t->n; i++)
      if (t->q[i] > 0) c->edge[edges++] = t->p[i] / t->q[i];
    qsort(c->edge, edges, sizeof *c->edge, rising);
  } else {
    for (int e = -5; e < 5; e++)
      for (int i = 0, parts = e >= -1 && e < 1 ? 128 : 16; i < parts && edges < GROUPS - 1; i++)
        c->edge[edges++] = ldexp(1 + (double)i / parts, e);
  }
  c->groups = edges + 1;
  for (size_t i = 0; i < t->n; i++) {
    if (!(t->q[i] > 0)) continue;
    const size_t at = group_of(c, t->p[i] / t->q[i]);
    c->p[at] += t->p[i], c->q[at] += t->q[i], all += t->q[i];
  }
  for (size_t i = 0; i < c->groups; i++) c->q[i] /= all;
}
/* Borders within groups first .. end - 1 by following their shares through time; s is l p, or by q
 * where there is no p. */
static void follow_borders(choice *c, size_t first, size_t end, long double l) {
  long double had[GROUPS] = {0}, now = 0;
  for (size_t i = first; i < end; i++) c->mark[i] = c->q[i] > 0 ? 1 : 0;
  for (;;) {
    long double soonest = 1 - now, mass[GROUPS] = {0};
    size_t which = 0;
    for (size_t i = first, below = first; i < end; i++) { /* mass of the run that each border begins */
      if (c->mark[i] == 1) below = i;
      mass[below] += c->q[i];
    }
    for (size_t i = first, below = first, one = first; i < end; i++) {
      if (c->q[i] == 0) continue;
      if (i > first && c->mark[i] == 1 && c->q[one] > 0) {
        const long double left = l * (c->p[i] / c->q[i] - c->p[one] / c->q[one]) - had[i],
                          rate = mass[below] + mass[i];
        if (left / rate < soonest) soonest = left / rate, which = i;
      }
      if (c->mark[i] == 1) below = i;
      one = i;
    }
    for (size_t i = first, below = first; i < end; i++) {
      if (c->mark[i] != 1) continue;
      had[i] += soonest * (mass[below] + mass[i]), below = i;
    }
    now += soonest;
    if (!which) return;
    c->mark[which] = fminl(now, 1 - LDBL_EPSILON);
  }
}
static void choose(const trial *t, choice *c) {
  memset(c, 0, sizeof *c);
  make_groups(t, c);
  long double before = 0;
  for (size_t first = 0, end; first < c->groups; first = end) {
    long double p = 0, q = 0, best = -1, mass = 0;
    end = first + 1;
    for (size_t i = first; i < c->groups; i++) { /* the steepest chord; of equal ones, the longest */
      p += c->p[i], q += c->q[i];
      const long double slope = q == 0 ? 0 : p > 0 ? q * (2 * before + q) / p : (long double)INFINITY;
      if (c->q[i] > 0 && slope >= best * (1 - 1e-15L)) best = slope, end = i + 1, mass = q;
    }
    const int bare = isinf((double)best);
    for (size_t i = first; i < end; i++)
      if (c->q[i] > 0) c->s[i] = bare ? 2 * before + mass : best * c->p[i] / c->q[i];
    follow_borders(c, first, end, bare ? 0 : best);
    before += mass;
  }
}
static long double chosen(const choice *c, const trial *t, size_t i) {
  long double all = 0;
  for (size_t k = 0; k < t->n; k++) all += t->q[k];
  return t->q[i] > 0 ? c->s[group_of(c, t->p[i] / t->q[i])] * (t->q[i] / all) : 0;
}
/* The draft that is tested, and the residual if it does not stand. */
static size_t choose_draft(const trial *t, double *r) {
  choice *c = malloc(sizeof *c);
  const size_t x = (size_t)t->draft[0], y = (size_t)t->draft[1];
  long double most = 0;
  choose(t, c);
  const size_t a = group_of(c, t->p[x] / t->q[x]), b = group_of(c, t->p[y] / t->q[y]);
  for (size_t i = (a < b ? a : b) + 1; i <= (a > b ? a : b); i++) most = fmaxl(most, c->mark[i]);
  size_t one = b > a && uniform(t->seed, t->stream, 9, 0) < (double)most;
  if (t->q[x] == 0) one = 1;
  else if (t->q[y] == 0) one = 0;
  for (size_t i = 0; i < t->n; i++) r[i] = (double)fmaxl(t->p[i] - chosen(c, t, i), 0);
  const size_t at = (size_t)t->draft[one];
  one |= uniform(t->seed, t->stream, 9, 1) * (double)chosen(c, t, at) < t->p[at] ? 0 : 2;
  free(c);
  return one; /* 2 and more: it falls */
}

static void verify(const trial *t, double *index, double *accepted) {
  double *r = room_for(t->n), *q = room_for(t->n), g = 1, share = 1;
  size_t k = 0;
  *index = *accepted = -1;
  while (k < t->k && t->draft[k] >= 0 && t->draft[k] < (double)t->n) k++;
  if (t->method == KSEQ && k > 1) g = sequential(t->p, t->q, t->n, k, &share);
  for (size_t i = 0; i < t->n; i++) r[i] = t->p[i], q[i] = t->q[i];
  const int two = t->method == IS2 && k > 1;
  if (two) {
    const size_t one = choose_draft(t, r);
    if (one < 2) *index = t->draft[one], *accepted = (double)one;
  }
  for (size_t j = 0; j < k && *accepted < 0 && !two; j++) {
    size_t x = (size_t)t->draft[j];
    double u = uniform(t->seed, t->stream, 9, t->first + j);
    if (u * (t->method == KSEQ ? g : 1) * q[x] < r[x]) {
      *index = (double)x, *accepted = (double)j;
      break;
    }
    double left = 0;
    for (size_t i = 0; t->method != KSEQ && i < t->n; i++) r[i] = fmax(r[i] - q[i], 0);
    double sum = total(r, t->n);
    for (size_t i = 0; i < t->n; i++) left += i == x ? 0 : q[i];
    for (size_t i = 0; t->method != KSEQ && j + 1 < k && i < t->n; i++) r[i] /= sum > 0 ? sum : 1;
    for (size_t i = 0; t->method == DISTINCT && i < t->n; i++) q[i] = i == x || left == 0 ? 0 : q[i] / left;
    if (sum > 0) continue;
    for (size_t i = 0; i < t->n; i++) r[i] = t->p[i];
    k = 0; /* a draw from p */
  }
  if (*accepted < 0 && k > 0 && t->method == KSEQ)
    for (size_t i = 0; i < t->n; i++) r[i] = fmax(t->p[i] - fmin(t->q[i], t->p[i] / g) * share, 0);
  if (*accepted < 0 && total(r, t->n) == 0)
    for (size_t i = 0; i < t->n; i++) r[i] = t->p[i];
  if (*accepted < 0) *index = draw_from(r, t->n, uniform(t->seed, t->stream, 10, 0));
  free(r);
  free(q);
}

static int draft_of_nothing(const row_ref_call *c) {
  int bad = 0;
  for (size_t i = 0; i < c->n; i++) bad |= unlikely(c->in[0][i]) || unlikely(c->in[1][i]);
  return bad;
}

void speculative_verify_ref(const row_ref_call *c) {
  trial t = {c->in[0],
             c->in[1],
             c->in[2],
             c->n,
             1,
             RRS,
             (uint64_t)c->q[0],
             (uint64_t)(int64_t)c->in[3][0],
             (uint64_t)c->in[4][0]};
  if (draft_of_nothing(c)) c->out[0][0] = -1, c->out[1][0] = -1;
  else verify(&t, &c->out[0][0], &c->out[1][0]);
  c->out[1][0] = c->out[1][0] >= 0;
}

void multi_draft_verify_ref(const row_ref_call *c) {
  trial t = {c->in[0],
             c->in[1],
             c->in[2],
             c->n,
             (size_t)c->q[0],
             (int)c->q[1],
             (uint64_t)c->q[2],
             (uint64_t)(int64_t)c->in[3][0],
             0};
  if (draft_of_nothing(c)) c->out[0][0] = -1, c->out[1][0] = -1;
  else verify(&t, &c->out[0][0], &c->out[1][0]);
}

/* ---- several sources ---- */

void closed_set_softmax_ref(const row_ref_call *c) {
  size_t k = (size_t)c->q[0];
  double *h = room_for(k);
  long double score = 0;
  for (size_t j = 0; j < k; j++) {
    double id = c->in[1][j];
    int member = id >= 0 && id < (double)c->n;
    for (size_t i = 0; i < j; i++) member &= c->in[1][i] != id;
    h[j] = member ? c->in[0][(size_t)id] : -INFINITY;
  }
  weights(h, k, c->out[0]);
  for (size_t j = 0; j < k; j++)
    score += c->out[0][j] * (c->in[2] && c->out[0][j] != 0 ? c->in[2][j] : (double)j);
  c->out[1][0] = (double)score;
  free(h);
}

static long double log_sum(const double *x, size_t n) {
  long double m = largest(x, n), sum = 0;
  for (size_t i = 0; i < n && m > -INFINITY; i++) sum += expl(x[i] - m);
  return isnan(m) || m == -INFINITY ? m : m + logl(sum);
}

void layer_fuse_logits_ref(const row_ref_call *c) {
  const double *x = c->in[0], *l = c->in[1];
  long double sx = log_sum(x, c->n), sl = log_sum(l, c->n), m = largest(x, c->n);
  for (size_t i = 0; i < c->n; i++) {
    int in = x[i] >= m + (c->q[1] > 0 ? logl(c->q[1]) : -INFINITY) && x[i] > -INFINITY && l[i] > -INFINITY;
    c->out[0][i] = isnan(sx) || (sx > -INFINITY && isnan(sl)) ? NAN
                   : in                                       ? (double)((x[i] - sx) + c->q[0] * (l[i] - sl))
                                                              : -INFINITY;
  }
}

static int falling(const void *a, const void *b) {
  double u = *(const double *)a, v = *(const double *)b;
  return (u < v) - (u > v);
}

void crossmax_ref(const row_ref_call *c) {
  double *a = room_for(c->n);
  int nan = 0;
  for (size_t i = 0; i < c->n; i++)
    a[i] = c->in[0][i] - (c->in[1] ? c->in[1][i] : 0), nan |= isnan(a[i]) || a[i] == INFINITY;
  size_t rank = c->q[0] == 0 ? c->n / 2 + 1 : c->q[0] < (double)c->n ? (size_t)c->q[0] : c->n;
  if (!nan) qsort(a, c->n, sizeof *a, falling);
  c->out[0][0] = nan ? NAN : c->n == 0 || a[0] == -INFINITY ? -INFINITY : a[rank - 1] - a[0];
  free(a);
}

/* ---- several answers ---- */

void soft_self_consistency_ref(const row_ref_call *c) {
  long double mean = 0, sum = 0, least = INFINITY, count = 0;
  for (size_t i = 0; i < c->n; i++) {
    if (c->in[1] && c->in[1][i] == 0) continue;
    long double x = c->in[0][i] > 0 && c->in[0][i] < INFINITY ? 0
                    : c->in[0][i] == INFINITY                 ? NAN
                                                              : c->in[0][i];
    mean += expl(x), sum += x, count++;
    if (!(x >= least)) least = x;
  }
  long double y = c->q[0] == 0   ? mean / count
                  : c->q[0] == 1 ? (isnan(mean) ? NAN : expl(least))
                  : c->q[0] == 2 ? expl(sum / count)
                                 : sum;
  c->out[0][0] = count == 0 ? 0 : (double)y;
}

void consistency_stop_ref(const row_ref_call *c) {
  const double *score = c->in[1] ? c->in[1] : c->in[0];
  double sum = 0, best = -1, nan = 0;
  size_t m = 0;
  while (m < c->n && !(m > 0 && sum >= c->q[0])) {
    sum += c->in[0][m];
    nan += isnan(c->in[0][m]) || isnan(score[m]);
    if (best < 0 || score[m] > score[(size_t)best]) best = (double)m;
    m++;
  }
  c->out[0][0] = nan > 0 ? -1 : best;
  c->out[1][0] = nan > 0 ? -1 : (double)m;
}

/* ---- the few best ---- */

typedef struct item {
  double x, place; /* place: decides ties */
  size_t index;
} item;

static int best_first(const void *a, const void *b) {
  const item *u = a, *v = b;
  return u->x != v->x ? (u->x < v->x) - (u->x > v->x) : (u->place > v->place) - (u->place < v->place);
}

/* The valid elements of a row, best first. */
static item *ranked(const double *x, size_t n, size_t *count) {
  item *v = calloc(n + 1, sizeof *v);
  if (!v) abort();
  *count = 0;
  for (size_t i = 0; i < n; i++)
    if (x[i] > -INFINITY) v[(*count)++] = (item){x[i], (double)i, i};
  qsort(v, *count, sizeof *v, best_first);
  return v;
}

void subset_softmax_confidence_ref(const row_ref_call *c) {
  double m = largest(c->in[0], c->n), y = 0;
  size_t count;
  item *v = ranked(c->in[0], c->n, &count);
  long double sum = 0, entropy = 0;
  if (count > (size_t)c->q[0]) count = (size_t)c->q[0];
  for (size_t i = 0; i < count; i++) sum += expl((long double)v[i].x - m);
  for (size_t i = 0; i < count; i++) {
    long double p = expl((long double)v[i].x - m) / sum;
    if (p > 0) entropy -= p * logl(p);
    if ((double)v[i].index == c->in[1][0]) y = (double)p;
  }
  c->out[0][0] = isnan(m) ? NAN : y;
  c->out[1][0] = isnan(m) ? NAN : count ? (double)(1 / (1 + entropy)) : 0;
  free(v);
}

void confidence_commit_ref(const row_ref_call *c) {
  double m = largest(c->in[0], c->n);
  size_t count, taken = 0;
  item *v = ranked(c->in[0], c->n, &count);
  for (size_t i = 0; i < c->n; i++) c->out[0][i] = isnan(m) ? NAN : 0;
  while (!isnan(m) && taken < count) {
    double n = (double)taken + 1;
    if (taken > 0 && (c->q[0] == 0 ? v[taken].x < c->q[1] : v[taken].x < 1 - c->q[2] / (n + 1) || n > 1024))
      break;
    c->out[0][v[taken++].index] = 1;
  }
  c->out[1][0] = isnan(m) ? -1 : (double)taken;
  free(v);
}

/* Weights of scores, in their own place. */
static void mixed(item *v, size_t n) {
  double *h = room_for(n), *w = room_for(n);
  for (size_t i = 0; i < n; i++) h[i] = v[i].x;
  weights(h, n, w);
  for (size_t i = 0; i < n; i++) v[i].x = w[i];
  free(h);
  free(w);
}

enum {
  SOFT_K,
  SOFT_T,
  SOFT_CANDIDATES,
  SOFT_TOP_P,
  SOFT_MIN_P,
  SOFT_NOISE,
  SOFT_CONCENTRATION,
  SOFT_SCALE,
  SOFT_NOISE_T,
  SOFT_SEED,
  SOFT_LOW,
  SOFT_HIGH
};

void soft_thinking_token_ref(const row_ref_call *c) {
  const double *q = c->q, m = largest(c->in[0], c->n);
  const uint64_t seed = (uint64_t)q[SOFT_SEED];
  const size_t k = (size_t)q[SOFT_K];
  size_t count, left = 0;
  item *v = ranked(c->in[0], c->n, &count);
  if (count > (size_t)q[SOFT_CANDIDATES]) count = (size_t)q[SOFT_CANDIDATES];
  if (count > 1 && q[SOFT_T] == 0) count = 1;
  for (size_t i = 0; i < count; i++)
    v[i].x = v[i].x == m ? 0 : (v[i].x - m) / q[SOFT_T], v[i].place = (double)i;
  mixed(v, count);
  for (double before = 0; left < count; before += v[left++].x)
    if (left > 0 && !(before < q[SOFT_TOP_P] && v[left].x >= q[SOFT_MIN_P] * v[0].x)) break;
  if (q[SOFT_NOISE] == 2 && left > k) left = k;
  double sum = 0;
  for (size_t i = 0; i < left; i++) sum += v[i].x;
  for (size_t i = 0; i < left; i++) {
    double p = v[i].x / sum;
    v[i].x = log(p);
    if (q[SOFT_NOISE] == 1 && p > 0)
      v[i].x = log_gamma(seed, stream_of(c), v[i].index, q[SOFT_CONCENTRATION] * p);
    if (q[SOFT_NOISE] == 2)
      v[i].x = (log(p) + q[SOFT_SCALE] * fmin(fmax(gumbel(seed, stream_of(c), 4, v[i].index), q[SOFT_LOW]),
                                              q[SOFT_HIGH])) /
               q[SOFT_NOISE_T];
  }
  qsort(v, left, sizeof *v, best_first);
  if (left > k) left = k;
  if (left > 0) mixed(v, left);
  for (size_t i = 0; i < k; i++) {
    int used = !isnan(m) && i < left && v[i].x >= 1e-300;
    c->out[0][i] = used ? (double)v[i].index : -1;
    c->out[1][i] = isnan(m) ? NAN : used ? v[i].x : 0;
  }
  free(v);
}

void multi_token_sample_ref(const row_ref_call *c) {
  size_t k = (size_t)c->q[3];
  double m = largest(c->in[0], c->n), t = c->q[0] * (c->q[1] != 0 ? (double)k : 1), *w = room_for(c->n);
  long double sum = 0;
  for (size_t i = 0; i < c->n && m > -INFINITY; i++) sum += expl(((long double)c->in[0][i] - m) / t);
  for (size_t i = 0; i < c->n && m > -INFINITY; i++) w[i] = (double)expl(((long double)c->in[0][i] - m) / t);
  for (size_t j = 0; j < k; j++) {
    c->out[0][j] = -1, c->out[1][j] = isnan(m) ? NAN : -INFINITY;
    if (!(m > -INFINITY)) continue;
    size_t drawn = walk(w, c->n, uniform((uint64_t)c->q[2], stream_of(c), 2, j));
    c->out[0][j] = (double)drawn;
    c->out[1][j] = (double)(((long double)c->in[0][drawn] - m) / t - logl(sum));
  }
  free(w);
}

/* ---- flow matching on the simplex ---- */

void gumbel_softmax_interpolant_ref(const row_ref_call *c) {
  double *h = room_for(c->n), m = largest(c->in[0], c->n),
         tau = fmax(c->q[2] * exp(-c->q[3] * c->in[2][0]), 1e-6), nan = isnan(m);
  if (fabs(m) < 524288 || m == -INFINITY) m = 0; /* scores beyond that keep their noise */
  for (size_t i = 0; i < c->n; i++) {
    double g = gumbel((uint64_t)c->q[1], stream_of(c), 4, i) / c->q[0];
    h[i] = nan ? NAN : (c->in[0][i] - m + g) / tau;
  }
  weights(h, c->n, c->out[0]);
  free(h);
}

void gumbel_flow_velocity_ref(const row_ref_call *c) {
  const double *x = c->in[0], *p = c->in[2], lambda = c->q[1], time = c->in[1][0];
  long double m = 0;
  int nan = 0;
  for (size_t i = 0; i < c->n; i++) {
    nan |= unlikely(x[i]) || (p && !isfinite(p[i]));
    m += p ? (long double)x[i] * p[i] : x[i] > 0 ? x[i] * logl(x[i]) : 0;
  }
  for (size_t i = 0; i < c->n; i++) {
    long double gain = p          ? p[i]
                       : x[i] > 0 ? logl(x[i])
                                  : 0,
                rate = p ? lambda / c->q[0] * expl(lambda * time) : lambda;
    c->out[0][i] = nan ? NAN : (double)(rate * x[i] * (gain - m));
  }
}

/* ---- sparse masks ---- */

/* The choices by recursion: with the first neighbour, then without it; y is what each weighs, next
 * the first that is not yet used. */
static void spread_choices(const double *y, size_t count, size_t *next, size_t j, size_t m, size_t left,
                           unsigned set, double *mask) {
  if (left > m - j || *next >= count) return;
  if (j == m) {
    for (size_t i = 0; i < m; i++) mask[i] += set >> i & 1 ? y[*next] : 0;
    ++*next;
    return;
  }
  if (left > 0) spread_choices(y, count, next, j + 1, m, left - 1, set | 1u << j, mask);
  spread_choices(y, count, next, j + 1, m, left, set, mask);
}

void nm_mask_sample_ref(const row_ref_call *c) {
  const size_t m = (size_t)c->q[0], kept = (size_t)c->q[1];
  size_t count = kept <= m ? (size_t)llround(exp(lgamma((double)m + 1) - lgamma((double)kept + 1) -
                                                 lgamma((double)(m - kept) + 1)))
                           : 0;
  double h[70], y[70], none[8] = {0};
  if (count > c->n) count = c->n;
  const double best = largest(c->in[0], count);
  for (size_t i = 0; i < count; i++) {
    h[i] = isnan(best) ? NAN : c->in[0][i] > -INFINITY ? c->q[2] * (c->in[0][i] - best) : -INFINITY;
    h[i] = (h[i] + (c->q[5] != 0 ? gumbel((uint64_t)c->q[6], stream_of(c), 4, i) : 0)) / c->q[3];
  }
  weights(h, count, y);
  if (c->q[4] != 0 && best > -INFINITY) {
    const size_t first = first_largest(h, count);
    for (size_t i = 0; i < count; i++) y[i] = i == first;
  }
  size_t next = 0;
  memcpy(c->out[0], none, m * sizeof *none);
  spread_choices(y, count, &next, 0, m, kept, 0, c->out[0]);
  for (size_t j = 0; isnan(best) && j < m; j++) c->out[0][j] = NAN;
}
