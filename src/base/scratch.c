/* base/scratch.c - scratch memory of a call. See base.h. */
#define _POSIX_C_SOURCE 200809L
#include "base.h"
#include <sched.h>
#include <string.h>

smx_owned smx_own(smx_context *ctx, size_t bytes) {
  const smx_owned o = {ctx, smx_alloc(ctx, bytes)};
  if (o.memory) memset(o.memory, 0, bytes);
  return o;
}
void smx_disown(const smx_owned *o) { smx_free(o->ctx, o->memory); }

/* A byte for each place says whether it is taken. */
bool smx_scratch_open(smx_scratch *s, smx_context *ctx, size_t shared, size_t place, int64_t tasks) {
  const int32_t threads = smx_context_threads(ctx);
  *s = (smx_scratch){.ctx = ctx, .place = smx_whole_lines(place)};
  s->places = tasks < 1 ? 1 : tasks < threads ? (int32_t)tasks : threads;
  size_t bytes, flags = smx_whole_lines((size_t)s->places);
  if (__builtin_mul_overflow(s->place, (size_t)s->places, &bytes) ||
      __builtin_add_overflow(bytes, flags + smx_whole_lines(shared), &bytes))
    return false;
  if (smx_purse_asks(ctx, bytes)) return false;
  if (!shared && !place) return true;
  s->memory = smx_alloc(ctx, bytes);
  if (!s->memory) return false;
  s->shared = s->memory + flags, s->first = s->shared + smx_whole_lines(shared);
  _Atomic unsigned char *taken = (_Atomic unsigned char *)s->memory;
  for (int32_t i = 0; i < s->places; i++) atomic_init(taken + i, 0);
  return true;
}

void smx_scratch_close(smx_scratch *s) { smx_free(s->ctx, s->memory); }

/* More tasks than places run at once only where the caller's loop has more threads than it said:
 * then tasks wait. Places of no bytes need no waiting. */
void *smx_scratch_take(smx_scratch *s) {
  _Atomic unsigned char *taken = (_Atomic unsigned char *)s->memory;
  if (!s->place) return NULL;
  for (;; sched_yield())
    for (int32_t i = 0; i < s->places; i++)
      if (!atomic_exchange_explicit(taken + i, 1, memory_order_acquire))
        return s->first + s->place * (size_t)i;
}

void smx_scratch_give(smx_scratch *s, const void *place) {
  _Atomic unsigned char *taken = (_Atomic unsigned char *)s->memory;
  if (s->place)
    atomic_store_explicit(taken + (size_t)((const char *)place - s->first) / s->place, 0,
                          memory_order_release);
}
