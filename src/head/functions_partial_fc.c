/* head/functions_partial_fc.c - partial_fc: classes for a step, by chance. Shards are tasks. In a
 * shard a class has a word of 64 random bits, and the least words are kept; a histogram of their
 * first 16 bits says where the last of them is, so that only the words of one bucket are sorted. */
#include "functions.h"
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1 << 16, STREAM_BITS = 40 };

/* A class that may be kept. */
typedef struct candidate {
  uint64_t word;
  int64_t class;
} candidate;

/* The memory of a shard under way. */
typedef struct place {
  candidate *candidate;
  int64_t *count; /* [BUCKETS] */
} place;

typedef struct sampling {
  const tensor_call *c;
  const score_kernels *kernels;
  int64_t classes, keep, shards;
  uint64_t seed;
  char *state;   /* of each class: whether it is kept */
  int64_t *kept; /* [shards][keep] */
  smx_scratch scratch;
  _Atomic int64_t full; /* a shard with more classes of targets than keep, or -1 */
} sampling;

/* Shard s begins at its class; of `shards` the first classes % shards have one more. */
static int64_t shard_begin(int64_t classes, int64_t shards, int64_t s) {
  const int64_t more = classes % shards;
  return s * (classes / shards) + (s < more ? s : more);
}

smx_status partial_fc_sizes(dims *d) {
  const int64_t classes = (int64_t)dims_param(d, "classes", 1), keep = (int64_t)dims_param(d, "keep", 1),
                shards = (int64_t)dims_param(d, "shards", 1);
  int64_t m;
  if (keep > classes / shards)
    return smx_fail(SMX_ERR_PARAM, "%s: keep is %lld, more than the %lld classes of a shard", d->op->name,
                    (long long)keep, (long long)(classes / shards));
  if (!smx_multiply(keep, shards, &m)) return smx_fail(SMX_ERR_SHAPE, "%s: keep is too large", d->op->name);
  dims_set(d, "m", 0, m);
  return SMX_OK;
}

/* The words of a shard's classes come from a stream of its own, apart from those of other
 * operators. */
static uint64_t word_of(const sampling *p, int64_t shard, int64_t class) {
  uint64_t words[2];
  p->kernels->draw(p->seed, (uint64_t)shard + ((uint64_t)1 << STREAM_BITS), SCORE_DRAW_ROWS,
                   (uint64_t) class / 2, words);
  return words[class % 2];
}

static int by_word(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->word != y->word) return x->word < y->word ? -1 : 1;
  return x->class < y->class ? -1 : x->class > y->class;
}

/* Keeps `need` of the candidates: whole buckets first, then the least of the next bucket. */
static void keep_least(sampling *p, const place *at, int64_t count, int64_t need) {
  int64_t before = 0, bucket = 0, in = 0;
  memset(at->count, 0, BUCKETS * sizeof *at->count);
  for (int64_t i = 0; i < count; i++) at->count[at->candidate[i].word >> 48]++;
  while (before + at->count[bucket] < need) before += at->count[bucket++];
  for (int64_t i = 0; i < count; i++) {
    const candidate x = at->candidate[i];
    const int64_t b = (int64_t)(x.word >> 48);
    if (b < bucket) p->state[x.class] = 1;
    if (b == bucket) at->candidate[in++] = x;
  }
  qsort(at->candidate, (size_t)in, sizeof *at->candidate, by_word);
  for (int64_t i = 0; i < need - before; i++) p->state[at->candidate[i].class] = 1;
}

static void sample_shard(void *arg, int64_t shard) {
  sampling *const p = arg;
  const int64_t from = shard_begin(p->classes, p->shards, shard),
                end = shard_begin(p->classes, p->shards, shard + 1);
  int64_t count = 0, *to = p->kept + shard * p->keep;
  char *const memory = smx_scratch_take(&p->scratch);
  const place at = {(candidate *)(void *)(memory + BUCKETS * sizeof *at.count), (int64_t *)(void *)memory};
  for (int64_t j = from; j < end; j++)
    if (!p->state[j]) at.candidate[count++] = (candidate){word_of(p, shard, j), j};
  const int64_t need = p->keep - (end - from - count);
  if (need > 0) keep_least(p, &at, count, need);
  if (need < 0) p->full = shard;
  for (int64_t j = from; j < end && need >= 0; j++)
    if (p->state[j]) *to++ = j;
  smx_scratch_give(&p->scratch, memory);
}

/* Where a class is among the kept ones, which are in order. */
static int64_t place_of(const sampling *p, int64_t class) {
  int64_t low = 0, high = p->shards * p->keep;
  while (low + 1 < high) {
    const int64_t mid = low + (high - low) / 2;
    if (p->kept[mid] <= class) low = mid;
    else high = mid;
  }
  return low;
}

static void put(const sampling *p, const int64_t *target, int64_t ignore) {
  const tensor_call *const c = p->c;
  int64_t *const moved = (int64_t *)(void *)c->out.view[1].data;
  memcpy(c->out.view[0].data, p->kept, (size_t)(p->shards * p->keep) * sizeof *p->kept);
  for (int64_t i = 0; i < tensor_dim(c, "n"); i++)
    moved[i] = target[i] == ignore ? ignore : place_of(p, target[i]);
}

smx_status partial_fc(const tensor_call *c) {
  sampling p = {.c = c, .kernels = head_math(), .full = -1};
  const int64_t *const target = (const int64_t *)(const void *)c->in.view[0].data;
  const int64_t ignore = (int64_t)tensor_param(c, "ignore_index");
  p.classes = (int64_t)tensor_param(c, "classes"), p.keep = (int64_t)tensor_param(c, "keep");
  p.shards = (int64_t)tensor_param(c, "shards"), p.seed = (uint64_t)tensor_param(c, "seed");
  const size_t kept = (size_t)(p.shards * p.keep) * sizeof *p.kept, most = (size_t)(p.classes / p.shards + 1),
               room = BUCKETS * sizeof(int64_t) + most * sizeof(candidate);
  p.kept = smx_alloc(c->ctx, kept + (size_t)p.classes);
  const bool fits = p.kept && smx_scratch_open(&p.scratch, c->ctx, 0, room, p.shards);
  if (!fits) {
    smx_free(c->ctx, p.kept);
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld classes", c->op->name, (long long)p.classes);
  }
  p.state = (char *)p.kept + kept;
  memset(p.state, 0, (size_t)p.classes);
  for (int64_t i = 0; i < tensor_dim(c, "n"); i++)
    if (target[i] != ignore) p.state[target[i]] = 1;
  smx_parallel(c->ctx, p.shards, sample_shard, &p);
  if (p.full < 0) put(&p, target, ignore);
  smx_scratch_close(&p.scratch);
  smx_free(c->ctx, p.kept);
  if (p.full < 0) return SMX_OK;
  return smx_fail(SMX_ERR_PARAM, "%s: keep is %lld, but a shard has more classes of targets", c->op->name,
                  (long long)p.keep);
}
