/* attention/functions_budgets.c - how many keys each layer keeps of its cache, and which: whole
 * numbers from sums of weights. */
#include <string.h>

#include "driver/carve.h"
#include "driver/merge_sort.h"
#include "functions.h"

enum { MASS };          /* input */
enum { INDEX, BUDGET }; /* outputs */

typedef struct budgets {
  const tensor_call *c;
  int64_t layers, heads, t; /* heads: of a layer, 1 without */
  smx_scratch scratch;
} budgets;

/* What a task works in: [layers][heads][t], but for budget and votes of layers. */
typedef struct budget_work {
  double *mass, *value;
  int64_t *order, *spare, *budget, *votes;
  unsigned char *kept;
} budget_work;

static int64_t cells_of(const budgets *b) { return b->layers * b->heads * b->t; }

static void lay_out(const budgets *b, carver *c, budget_work *w) {
  const int64_t n = cells_of(b) + b->layers; /* values of layers fit too */
  w->mass = carve(c, n, 1, sizeof *w->mass), w->value = carve(c, n, 1, sizeof *w->value);
  w->order = carve(c, n, 1, sizeof *w->order), w->spare = carve(c, n, 1, sizeof *w->spare);
  w->budget = carve(c, b->layers, 1, sizeof *w->budget), w->votes = carve(c, b->layers, 1, sizeof *w->votes);
  w->kept = carve(c, n, 1, 1);
}

static bool larger_first(const void *arg, int64_t a, int64_t b) {
  const double *x = arg;
  return x[a] != x[b] ? x[a] > x[b] : a < b;
}
static bool smaller_first(const void *arg, int64_t a, int64_t b) {
  const double *x = arg;
  return x[a] != x[b] ? x[a] < x[b] : a < b;
}

/* Numbers from `first` on, by x; ties by index. */
static const int64_t *sorted(budget_work *w, const double *x, int64_t first, int64_t count,
                             bool (*is_before)(const void *, int64_t, int64_t)) {
  for (int64_t i = 0; i < count; i++) w->order[i] = first + i;
  return smx_merge_sort(w->order, w->spare, count, is_before, x);
}

/* Keeps the largest of the `count` masses from `first` on that are not kept yet. */
static void keep_largest(budget_work *w, int64_t first, int64_t count, int64_t most) {
  const int64_t *order = sorted(w, w->mass, first, count, larger_first);
  for (int64_t i = 0; i < count && most > 0; i++)
    if (!w->kept[order[i]]) w->kept[order[i]] = 1, most--;
}

static void write_item(const budgets *b, int64_t item, const budget_work *w, bool valid) {
  const int64_t n = cells_of(b), rows = b->layers * b->heads;
  int64_t *index = (int64_t *)(void *)b->c->out.view[INDEX].data + item * n;
  int64_t *budget = (int64_t *)(void *)b->c->out.view[BUDGET].data + item * b->layers;
  for (int64_t i = 0; i < b->layers; i++) budget[i] = valid ? w->budget[i] : -1;
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = r * b->t;
    for (int64_t j = 0; j < b->t && valid; j++)
      if (w->kept[r * b->t + j]) index[at++] = j;
    while (at < (r + 1) * b->t) index[at++] = -1;
  }
}

/* False: some mass is negative, infinite or no number. */
static bool load_item(const budgets *b, int64_t item, budget_work *w) {
  const int64_t n = cells_of(b);
  tensor_load(b->c, b->c->in.view + MASS, item * n, n, w->mass);
  memset(w->kept, 0, (size_t)n);
  for (int64_t i = 0; i < n; i++)
    if (!(w->mass[i] >= 0 && w->mass[i] < __builtin_inf())) return false;
  return true;
}

/* ---- prefix: the tokens with the least mass before them in their layer ---- */

/* value: the share of the mass of the layer's larger ones. Where the sum of masses might
 * overflow they are scaled by a power of two. */
static void prefix_shares(const budgets *b, int64_t layer, budget_work *w) {
  const int64_t first = layer * b->t;
  const int64_t *order = sorted(w, w->mass, first, b->t, larger_first);
  const double unit = b->t > 0 && w->mass[order[0]] > 0x1p960 ? 0x1p-64 : 1;
  double all = 0, before = 0;
  for (int64_t j = 0; j < b->t; j++) all += unit * w->mass[order[j]];
  for (int64_t j = 0; j < b->t; j++) {
    w->value[first + j] = all > 0 ? before / all : (double)j / (double)b->t;
    before += unit * w->mass[order[j]];
  }
}

static void prefix_task(void *arg, int64_t item) {
  budgets *b = arg;
  char *memory = smx_scratch_take(&b->scratch);
  const int64_t t = b->t, first = (int64_t)tensor_param(b->c, "first"),
                last = (int64_t)tensor_param(b->c, "last"), whole = first + last < t ? first + last : t,
                asked = (int64_t)tensor_param(b->c, "keep");
  int64_t left = (asked > 0 ? asked : (b->layers * t + 1) / 2) - b->layers * whole;
  budget_work w;
  lay_out(b, &(carver){.base = memory, .fits = true}, &w);
  const bool valid = load_item(b, item, &w);
  for (int64_t i = 0; i < b->layers && valid; i++) prefix_shares(b, i, &w), w.budget[i] = whole;
  if (valid) {
    const int64_t *order = sorted(&w, w.value, 0, b->layers * t, smaller_first);
    for (int64_t i = 0; i < b->layers * t && left > 0; i++) {
      if (order[i] % t >= t - whole) continue; /* the layer is kept as a whole before */
      w.budget[order[i] / t]++, left--;
    }
    for (int64_t i = 0; i < b->layers; i++) {
      for (int64_t j = 0; j < t; j++) w.kept[i * t + j] = j < first || j >= t - last;
      keep_largest(&w, i * t, t, w.budget[i] - whole);
    }
  }
  write_item(b, item, &w, valid);
  smx_scratch_give(&b->scratch, memory);
}

/* ---- dynamic: shares of the votes, by largest remainders, with a cap ---- */

/* votes * seats / all, rounded down, and what is left. */
static int64_t quota(int64_t votes, int64_t seats, int64_t all, int64_t *rest) {
  *rest = votes * seats % all;
  return votes * seats / all;
}

/* Layers above the cap have it, and the others share what is left. */
static void cap_layers(const budgets *b, budget_work *w, int64_t cap, int64_t *seats, int64_t *all) {
  for (bool again = true; again && *all > 0;) {
    const int64_t round_seats = *seats, round_all = *all;
    int64_t rest;
    again = false;
    for (int64_t i = 0; i < b->layers; i++) {
      if (w->budget[i] >= 0 || w->votes[i] == 0) continue;
      const int64_t share = quota(w->votes[i], round_seats, round_all, &rest);
      if (share < cap || (share == cap && rest == 0)) continue;
      w->budget[i] = cap, *seats -= cap, *all -= w->votes[i], again = true;
    }
  }
}

static void apportion(const budgets *b, budget_work *w, int64_t cap, int64_t seats, int64_t all) {
  int64_t left, rest;
  for (int64_t i = 0; i < b->layers; i++) w->budget[i] = -1;
  cap_layers(b, w, cap, &seats, &all);
  left = all > 0 ? seats : 0;
  for (int64_t i = 0; i < b->layers; i++) {
    w->value[i] = -1;
    if (w->budget[i] >= 0) continue;
    w->budget[i] = all > 0 ? quota(w->votes[i], seats, all, &rest) : 0;
    left -= w->budget[i];
    if (all > 0) w->value[i] = (double)rest;
  }
  const int64_t *order = sorted(w, w->value, 0, b->layers, larger_first);
  for (int64_t i = 0; i < left; i++) w->budget[order[i]]++;
}

static void dynamic_task(void *arg, int64_t item) {
  budgets *b = arg;
  char *memory = smx_scratch_take(&b->scratch);
  const int64_t t = b->t, rows = b->layers * b->heads, last = (int64_t)tensor_param(b->c, "last"),
                kept = (int64_t)tensor_param(b->c, "keep"), there = t > last ? t - last : 0;
  const int64_t base = kept < there ? kept : there;
  const double most = tensor_param(b->c, "most") * (double)base;
  const int64_t cap = most < (double)there ? (int64_t)most : there;
  budget_work w;
  lay_out(b, &(carver){.base = memory, .fits = true}, &w);
  const bool valid = load_item(b, item, &w);
  if (valid) {
    memset(w.votes, 0, (size_t)b->layers * sizeof *w.votes);
    for (int64_t i = 0; i < rows * t; i++) w.value[i] = i % t < there ? w.mass[i] : -1;
    const int64_t *order = sorted(&w, w.value, 0, rows * t, larger_first);
    for (int64_t i = 0; i < base * rows; i++) w.votes[order[i] / (b->heads * t)]++;
    apportion(b, &w, cap, base * b->layers, base * rows);
    for (int64_t r = 0; r < rows; r++) {
      keep_largest(&w, r * t, there, w.budget[r / b->heads]);
      for (int64_t j = there; j < t; j++) w.kept[r * t + j] = 1;
    }
    for (int64_t i = 0; i < b->layers; i++) w.budget[i] += t - there;
  }
  write_item(b, item, &w, valid);
  smx_scratch_give(&b->scratch, memory);
}

/* ---- calls ---- */

static smx_status run(const tensor_call *c, void (*task)(void *, int64_t)) {
  const int64_t heads = dims_value(&c->dims, "h", 0);
  budgets b = {.c = c, .layers = tensor_dim(c, "n"), .heads = heads == DIMS_UNKNOWN ? 1 : heads};
  b.t = tensor_dim(c, "t");
  int64_t cells, square;
  budget_work none;
  carver size = {.fits = smx_multiply(b.layers, b.heads, &cells) && smx_multiply(cells, b.t, &cells) &&
                         smx_multiply(cells + b.layers, 64, &square) && smx_multiply(cells, cells, &square)};
  if (size.fits) lay_out(&b, &size, &none);
  if (!size.fits || !smx_scratch_open(&b.scratch, c->ctx, 0, (size_t)size.at + 64, c->dims.lead_count))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the keys of %lld layers", c->op->name,
                    (long long)b.layers);
  smx_parallel(c->ctx, c->dims.lead_count, task, &b);
  smx_scratch_close(&b.scratch);
  return SMX_OK;
}
smx_status kv_budget_prefix_forward(const tensor_call *c) { return run(c, prefix_task); }
smx_status kv_budget_dynamic_forward(const tensor_call *c) { return run(c, dynamic_task); }

smx_status kv_budget_prefix_sizes(dims *d) {
  const int64_t layers = dims_value(d, "n", 0), t = dims_value(d, "t", 0);
  const double keep = dims_param(d, "keep", 0), always = dims_param(d, "first", 0) + dims_param(d, "last", 0);
  const double all = (double)layers * (double)t,
               least = (double)layers * (always < (double)t ? always : (double)t);
  if (keep > 0 && keep > all)
    return smx_fail(SMX_ERR_PARAM, "%s: keep is %.0f, but there are %.0f keys", d->op->name, keep, all);
  if (keep > 0 && keep < least)
    return smx_fail(SMX_ERR_PARAM, "%s: keep is %.0f, but %.0f keys are kept anyway", d->op->name, keep,
                    least);
  return SMX_OK;
}
