/* head/ref_chain.c - random fields on a chain by logarithms of sums over paths, for tests. */
#include <math.h>
#include <stdlib.h>

#include "ref.h"

typedef struct field {
  int64_t k, count;
  const double *e, *a, *start, *end;
  int64_t *at; /* the tokens that are there */
  long double *forward, *backward;
} field;

static long double together(long double a, long double b) {
  const long double most = fmaxl(a, b), least = fminl(a, b);
  return most == -INFINITY ? most : most + log1pl(expl(least - most));
}
static long double emission(const field *f, int64_t t, int64_t j) {
  return (long double)f->e[f->at[t] * f->k + j] + (t == 0 && f->start ? (long double)f->start[j] : 0);
}

static long double find_forward(field *f) {
  long double z = f->count ? -INFINITY : 0;
  for (int64_t t = 0; t < f->count; t++)
    for (int64_t j = 0; j < f->k; j++) {
      long double sum = t ? -INFINITY : 0;
      for (int64_t i = 0; t && i < f->k; i++)
        sum = together(sum, f->forward[(t - 1) * f->k + i] + (long double)f->a[i * f->k + j]);
      f->forward[t * f->k + j] = sum + emission(f, t, j);
    }
  for (int64_t j = 0; f->count && j < f->k; j++)
    z = together(z, f->forward[(f->count - 1) * f->k + j] + (f->end ? (long double)f->end[j] : 0));
  return z;
}
static void find_backward(field *f) {
  for (int64_t t = f->count - 1; t >= 0; t--)
    for (int64_t i = 0; i < f->k; i++) {
      long double sum = t < f->count - 1 ? -INFINITY : f->end ? (long double)f->end[i] : 0;
      for (int64_t j = 0; t < f->count - 1 && j < f->k; j++)
        sum = together(sum, (long double)f->a[i * f->k + j] + emission(f, t + 1, j) +
                                f->backward[(t + 1) * f->k + j]);
      f->backward[t * f->k + i] = sum;
    }
}

/* Sequence s; ports from `first` on are start, end, mask. target: its tags, or NULL. */
static field open_field(const tensor_ref_call *c, int64_t s, int first, const double *target) {
  const int64_t l = ref_size(c->in_shape[0], 2), k = ref_size(c->in_shape[0], 1);
  field f = {
      .k = k, .e = c->in[0] + s * l * k, .a = c->in[1], .start = c->in[first], .end = c->in[first + 1]};
  f.at = calloc((size_t)l, sizeof *f.at);
  f.forward = calloc((size_t)(l * k), sizeof *f.forward);
  f.backward = calloc((size_t)(l * k), sizeof *f.backward);
  for (int64_t t = 0; t < l; t++)
    if ((!c->in[first + 2] || c->in[first + 2][s * l + t] != 0) && (!target || target[t] != c->q[0]))
      f.at[f.count++] = t;
  return f;
}
static void close_field(field *f) { free(f->at), free(f->forward), free(f->backward); }

static int64_t sequences(const tensor_ref_call *c) {
  return ref_rows(c->in_shape[0]) / ref_size(c->in_shape[0], 2);
}

void ref_linear_chain_crf(const tensor_ref_call *c) {
  const int64_t l = ref_size(c->in_shape[0], 2);
  for (int64_t s = 0; s < sequences(c); s++) {
    const double *target = c->in[2] + s * l;
    field f = open_field(c, s, 3, target);
    const long double z = find_forward(&f);
    long double score = 0;
    int64_t y = 0, before = 0;
    for (int64_t t = 0; t < f.count; t++, before = y) {
      y = (int64_t)target[f.at[t]];
      score += emission(&f, t, y) + (t ? (long double)f.a[before * f.k + y] : 0);
    }
    if (f.count && f.end) score += (long double)f.end[y];
    ref_put(c, 0, s, (double)(z - score)), ref_put(c, 1, s, (double)z);
    close_field(&f);
  }
}

void ref_crf_marginals(const tensor_ref_call *c) {
  const int64_t l = ref_size(c->in_shape[0], 2), k = ref_size(c->in_shape[0], 1);
  for (int64_t s = 0; s < sequences(c); s++) {
    field f = open_field(c, s, 2, NULL);
    const long double z = find_forward(&f);
    find_backward(&f);
    for (int64_t i = 0; i < l * k; i++) ref_put(c, 0, s * l * k + i, 0);
    for (int64_t i = 0; i < k * k; i++) ref_put(c, 1, s * k * k + i, 0);
    for (int64_t t = 0; t < f.count; t++)
      for (int64_t i = 0; i < k; i++) {
        const long double here = f.forward[t * k + i] - z;
        ref_put(c, 0, (s * l + f.at[t]) * k + i, (double)expl(here + f.backward[t * k + i]));
        for (int64_t j = 0; c->out[1] && t + 1 < f.count && j < k; j++)
          c->out[1][(s * k + i) * k + j] += (double)expl(
              here + (long double)f.a[i * k + j] + emission(&f, t + 1, j) + f.backward[(t + 1) * k + j]);
      }
    ref_put(c, 2, s, (double)z);
    close_field(&f);
  }
}

/* `forward` has the best scores of paths to a tag, `backward` the tags before. */
void ref_crf_viterbi(const tensor_ref_call *c) {
  const int64_t l = ref_size(c->in_shape[0], 2), k = ref_size(c->in_shape[0], 1);
  for (int64_t s = 0; s < sequences(c); s++) {
    field f = open_field(c, s, 2, NULL);
    int64_t y = 0;
    for (int64_t t = 0; t < f.count; t++)
      for (int64_t j = 0; j < k; j++) {
        long double *most = f.forward + t * k + j, *from = f.backward + t * k + j;
        *most = t ? -INFINITY : 0;
        for (int64_t i = 0; t && i < k; i++) {
          const long double x = f.forward[(t - 1) * k + i] + (long double)f.a[i * k + j];
          if (x > *most) *most = x, *from = (long double)i;
        }
        *most += emission(&f, t, j);
      }
    long double *last = f.forward + (f.count - 1) * k;
    for (int64_t j = 0; f.count && j < k; j++) {
      if (f.end) last[j] += (long double)f.end[j];
      if (last[j] > last[y]) y = j;
    }
    ref_put(c, 1, s, f.count ? (double)last[y] : 0);
    for (int64_t t = 0; t < l; t++) ref_put(c, 0, s * l + t, -1);
    for (int64_t t = f.count - 1; t >= 0; t--) {
      ref_put(c, 0, s * l + f.at[t], (double)y);
      y = (int64_t)f.backward[t * k + y];
    }
    close_field(&f);
  }
}

/* Paths to tag j of token t, at ((t k) + j) count: what is left of all there could be. */
typedef struct ref_paths {
  long double *score;
  int64_t *from; /* the place in the lists of the token before */
} ref_paths;

/* The best of `places` places before, each with `more` of its tag, that is worse than `last`, or as
 * good and later than place `after`. */
static int64_t next_place(const ref_paths *p, int64_t first, int64_t places, int64_t count,
                          const double *more, int64_t step, long double last, int64_t after, long double *x) {
  int64_t best = -1;
  for (int64_t i = 0; i < places; i++) {
    const long double s = p->score[first + i] + (more ? (long double)more[i / count * step] : 0);
    if (s > last || (s == last && i <= after) || (best >= 0 && s <= *x)) continue;
    best = i, *x = s;
  }
  return best;
}

void ref_crf_k_best(const tensor_ref_call *c) {
  const int64_t l = ref_size(c->in_shape[0], 2), k = ref_size(c->in_shape[0], 1), count = (int64_t)c->q[0];
  ref_paths p = {calloc((size_t)(l * k * count), sizeof *p.score),
                 calloc((size_t)(l * k * count), sizeof *p.from)};
  for (int64_t s = 0; s < sequences(c); s++) {
    field f = open_field(c, s, 2, NULL);
    for (int64_t t = 0; t < f.count; t++)
      for (int64_t j = 0; j < k; j++) {
        long double x = INFINITY;
        for (int64_t r = 0, at = -1; r < count; r++) {
          const int64_t here = (t * k + j) * count + r;
          if (t) at = next_place(&p, (t - 1) * k * count, k * count, count, f.a + j, k, x, at, &x);
          else x = r ? -INFINITY : 0;
          if (t && at < 0) x = -INFINITY;
          p.score[here] = x + emission(&f, t, j), p.from[here] = at;
        }
      }
    long double x = INFINITY;
    for (int64_t r = 0, at = -1; r < count; r++) {
      if (f.count && x > -INFINITY)
        at = next_place(&p, (f.count - 1) * k * count, k * count, count, f.end, 1, x, at, &x);
      if (at < 0 || x == -INFINITY) at = -1, x = -INFINITY;
      ref_put(c, 1, s * count + r, f.count || r ? (double)x : 0);
      for (int64_t t = 0; t < l; t++) ref_put(c, 0, (s * count + r) * l + t, -1);
      for (int64_t t = f.count - 1, place = at; t >= 0 && at >= 0; t--) {
        ref_put(c, 0, (s * count + r) * l + f.at[t], (double)(place / count));
        place = p.from[t * k * count + place];
      }
    }
    close_field(&f);
  }
  free(p.score), free(p.from);
}
