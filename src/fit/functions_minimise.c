/* fit/functions_minimise.c - see functions_minimise.h. */
#include "functions_minimise.h"

enum { PAIRS = 10, TRIALS = 40 };
static const double DECREASE = 1e-4, FLATTER = 0.9, NOISE = 1e-14;

/* A point of the line: x + step d. */
typedef struct point {
  double step, f, slope;
} point;

typedef struct state {
  const fit_search *search;
  int64_t n;
  double *x, *g, *d;     /* where the search is */
  double *at, *slope_at; /* a point that is tried */
  double *steps, *turns; /* the last pairs: changes of x and of g */
  double inverse[PAIRS]; /* of their products */
  int count, next;       /* pairs there are; the place of the next */
  point here, tried;
} state;

static double dot(const double *a, const double *b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}
static void add(double *a, double by, const double *b, int64_t n) {
  for (int64_t i = 0; i < n; i++) a[i] += by * b[i];
}
static double largest(const double *a, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = __builtin_fabs(a[i]) > most ? __builtin_fabs(a[i]) : most;
  return most;
}

/* ---- the line ---- */

static smx_status try_step(state *s, double step) {
  for (int64_t i = 0; i < s->n; i++) s->at[i] = s->x[i] + step * s->d[i];
  s->tried.step = step;
  const smx_status status = s->search->function(s->search->arg, s->at, &s->tried.f, s->slope_at);
  if (status == SMX_OK) s->tried.slope = dot(s->d, s->slope_at, s->n);
  return status;
}

/* Whether the point that was tried lies low enough, and whether the slope is flat enough. */
static bool is_low(const state *s) {
  const point *p = &s->tried, *h = &s->here;
  if (p->f <= h->f + DECREASE * p->step * h->slope) return true;
  return p->f <= h->f + NOISE * (1 + __builtin_fabs(h->f)) && p->slope <= (2 * DECREASE - 1) * h->slope;
}
static bool is_flat(const state *s) { return __builtin_fabs(s->tried.slope) <= -FLATTER * s->here.slope; }

/* Between two points: the least of the cubic through them, or the middle where that is too near. */
static double between(const point *a, const point *b) {
  const double span = b->step - a->step, middle = a->step + span / 2;
  const double c = a->slope + b->slope - 3 * (b->f - a->f) / span, square = c * c - a->slope * b->slope;
  if (!(square >= 0)) return middle;
  const double root = span > 0 ? __builtin_sqrt(square) : -__builtin_sqrt(square);
  const double step = b->step - span * (b->slope + root - c) / (b->slope - a->slope + 2 * root);
  const double share = (step - a->step) / span;
  return share > 0.1 && share < 0.9 ? step : middle;
}

/* Finds a step that is low and flat, between `low` and `high` once there is such a pair; *found:
 * whether there is one, which is in `tried` then. */
static smx_status search_line(state *s, double first, bool *found) {
  point low = s->here, high = {0};
  bool bracket = false;
  double step = first;
  *found = false;
  for (int trial = 0; trial < TRIALS; trial++) {
    const smx_status status = try_step(s, step);
    if (status != SMX_OK) return status;
    const bool finite = s->tried.f - s->tried.f == 0 && s->tried.slope - s->tried.slope == 0;
    if (!finite) {
      high = (point){step, low.f, 0}, bracket = true;
      step = low.step + (step - low.step) / 8;
      continue;
    }
    if (!is_low(s) || (trial > 0 && s->tried.f > low.f + NOISE * (1 + __builtin_fabs(low.f))))
      high = s->tried, bracket = true;
    else if (is_flat(s)) return *found = true, SMX_OK;
    else {
      if (s->tried.slope * (bracket ? high.step - low.step : 1) >= 0) high = low, bracket = true;
      low = s->tried;
    }
    step = bracket ? between(&low, &high) : 2 * step;
    if (bracket && (step == low.step || step == high.step)) return SMX_OK;
  }
  return SMX_OK;
}

/* ---- the direction ---- */

static double *pair_of(double *pairs, const state *s, int back) { /* back: 1 for the last */
  return pairs + (s->next - back + PAIRS) % PAIRS * s->n;
}

/* d = -H g, H the inverse of the matrix of second derivatives that the pairs tell of. */
static void turn(state *s) {
  double share[PAIRS];
  for (int64_t i = 0; i < s->n; i++) s->d[i] = -s->g[i];
  for (int k = 1; k <= s->count; k++) {
    const double *step = pair_of(s->steps, s, k), *turned = pair_of(s->turns, s, k);
    share[k - 1] = s->inverse[(s->next - k + PAIRS) % PAIRS] * dot(step, s->d, s->n);
    add(s->d, -share[k - 1], turned, s->n);
  }
  if (s->count) {
    const double *turned = pair_of(s->turns, s, 1);
    const double scale = 1 / (s->inverse[(s->next - 1 + PAIRS) % PAIRS] * dot(turned, turned, s->n));
    for (int64_t i = 0; i < s->n; i++) s->d[i] *= scale;
  }
  for (int k = s->count; k >= 1; k--) {
    const double *step = pair_of(s->steps, s, k), *turned = pair_of(s->turns, s, k);
    const double other = s->inverse[(s->next - k + PAIRS) % PAIRS] * dot(turned, s->d, s->n);
    add(s->d, share[k - 1] - other, step, s->n);
  }
}

/* Goes to the point that was tried, and remembers the pair where the function curves upwards. */
static void go(state *s) {
  double *step = s->steps + s->next * s->n, *turned = s->turns + s->next * s->n;
  for (int64_t i = 0; i < s->n; i++) step[i] = s->at[i] - s->x[i], turned[i] = s->slope_at[i] - s->g[i];
  const double product = dot(step, turned, s->n);
  for (int64_t i = 0; i < s->n; i++) s->x[i] = s->at[i], s->g[i] = s->slope_at[i];
  s->here.f = s->tried.f;
  if (!(product > 0)) return;
  s->inverse[s->next] = 1 / product;
  s->next = (s->next + 1) % PAIRS;
  if (s->count < PAIRS) s->count++;
}

static smx_status walk(state *s) {
  for (int k = 0; k < s->search->most; k++) {
    const double most = largest(s->g, s->n), scale = __builtin_fabs(s->here.f);
    bool found;
    if (!(most > s->search->tolerance * (scale > 1 ? scale : 1))) return SMX_OK;
    turn(s);
    s->here.slope = dot(s->d, s->g, s->n);
    if (!(s->here.slope < 0)) s->count = 0, turn(s), s->here.slope = dot(s->d, s->g, s->n);
    const smx_status status = search_line(s, s->count ? 1 : 1 / (1 + most), &found);
    if (status != SMX_OK) return status;
    if (found) go(s);
    else if (s->count) s->count = 0; /* once more, straight down */
    else return SMX_OK;
  }
  return SMX_OK;
}

smx_status fit_minimise(smx_context *ctx, const fit_search *search, double *x, double *f) {
  const int64_t n = search->n, arrays = 4 + 2 * PAIRS;
  state s = {.search = search, .n = n, .x = x};
  int64_t bytes;
  s.g = smx_multiply(n, arrays * 8, &bytes) ? smx_alloc(ctx, (size_t)bytes + 64) : NULL;
  if (!s.g) return smx_fail(SMX_ERR_NOMEM, "no memory for %lld variables", (long long)n);
  s.d = s.g + n, s.at = s.d + n, s.slope_at = s.at + n, s.steps = s.slope_at + n;
  s.turns = s.steps + PAIRS * n;
  smx_status status = search->function(search->arg, x, &s.here.f, s.g);
  if (status == SMX_OK && s.here.f - s.here.f == 0) status = walk(&s);
  *f = s.here.f;
  smx_free(ctx, s.g);
  return status;
}
