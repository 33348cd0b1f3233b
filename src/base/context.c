/* base/context.c - contexts: threads, memory, policies. NULL is the context of one thread, malloc and default policies. */
#define _POSIX_C_SOURCE 200809L
#include "base.h"
#include <stdlib.h>
#include <string.h>

struct smx_context {
  smx_context_options options;
  smx_pool *pool;
};

static void *default_alloc(void *user, size_t bytes, size_t alignment) {
  void *p = NULL;
  (void)user;
  return posix_memalign(&p, alignment, bytes ? bytes : 1) ? NULL : p;
}
static void default_release(void *user, void *p) {
  (void)user;
  free(p);
}

static const smx_context_options defaults = {.size = sizeof defaults, .threads = 1, .alloc = default_alloc, .release = default_release};

static smx_status check_options(const smx_context_options *o) {
  if (o->size != sizeof *o) return smx_fail(SMX_ERR_STRUCT, "smx_context_create: options.size is %zu, not %zu", o->size, sizeof *o);
  if (o->threads < -1) return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.threads is %d", (int)o->threads);
  if (!o->alloc != !o->release)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.alloc and options.release must both be set or both NULL");
  if ((int)o->on_empty < 0 || o->on_empty > SMX_EMPTY_ERROR)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.on_empty is %d", (int)o->on_empty);
  if ((int)o->on_inf < 0 || o->on_inf > SMX_INF_LIMIT)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.on_inf is %d", (int)o->on_inf);
  return SMX_OK;
}

smx_status smx_context_create(const smx_context_options *options, smx_context **out) {
  smx_context_options o = defaults;
  if (!out) return smx_fail(SMX_ERR_NULL, "smx_context_create: out is NULL");
  if (options) {
    smx_status status = check_options(options);
    if (status != SMX_OK) return status;
    o = *options;
    if (!o.alloc) o.alloc = default_alloc, o.release = default_release;
    if (o.threads == 0) o.threads = 1;
    if (o.threads == -1) o.threads = smx_usable_cpus();
  }
  smx_context *ctx = o.alloc(o.alloc_user, sizeof *ctx, 64);
  if (!ctx) return smx_fail(SMX_ERR_NOMEM, "smx_context_create: no memory for the context");
  *ctx = (smx_context){.options = o};
  if (o.threads > 1 && !o.parallel_for) {
    ctx->pool = smx_pool_create(o.threads);
    if (!ctx->pool) {
      o.release(o.alloc_user, ctx);
      return smx_fail(SMX_ERR_NOMEM, "smx_context_create: no memory for %d threads", (int)o.threads);
    }
  }
  *out = ctx;
  return SMX_OK;
}

void smx_context_destroy(smx_context *ctx) {
  if (!ctx) return;
  smx_pool_destroy(ctx->pool);
  smx_context_options o = ctx->options;
  o.release(o.alloc_user, ctx);
}

int32_t smx_context_threads(const smx_context *ctx) { return ctx ? ctx->options.threads : 1; }
smx_on_empty smx_context_on_empty(const smx_context *ctx) { return ctx ? ctx->options.on_empty : SMX_EMPTY_ZERO; }
smx_on_inf smx_context_on_inf(const smx_context *ctx) { return ctx ? ctx->options.on_inf : SMX_INF_NAN; }

void *smx_alloc(smx_context *ctx, size_t bytes) {
  const smx_context_options *o = ctx ? &ctx->options : &defaults;
  return o->alloc(o->alloc_user, bytes, 64);
}
void smx_free(smx_context *ctx, void *p) {
  const smx_context_options *o = ctx ? &ctx->options : &defaults;
  if (p) o->release(o->alloc_user, p);
}

void smx_parallel(smx_context *ctx, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  if (ctx && count > 1 && ctx->options.parallel_for && ctx->options.threads > 1) {
    ctx->options.parallel_for(ctx->options.parallel_user, count, task, arg);
  } else if (ctx && count > 1 && ctx->pool) {
    smx_pool_run(ctx->pool, count, task, arg);
  } else {
    for (int64_t i = 0; i < count; i++) task(arg, i);
  }
}
