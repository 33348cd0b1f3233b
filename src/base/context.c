/* base/context.c - contexts: threads, memory, policies. NULL is the context of one thread, malloc
 * and default policies. */
#define _POSIX_C_SOURCE 200809L
#include "base.h"
#include "fpenv.h"
#include <stdlib.h>
#include <string.h>

/* The memory that a purse lends (base.h). */
typedef struct purse {
  smx_context *parent;
  bool asking, short_of_memory;
  size_t most, held, used; /* bytes asked for at once, while measuring and while lending */
  int32_t loans;
  char *memory, error[SMX_ERROR_BYTES];
} purse;

struct smx_context {
  smx_context_options options;
  smx_pool *pool;
  purse *purse; /* or NULL */
};

static void *default_alloc(void *user, size_t bytes, size_t alignment) {
  void *p = NULL;
  return posix_memalign(&p, alignment, bytes ? bytes : 1) ? NULL : p;
}
static void default_release(void *user, void *p) { free(p); }

static const smx_context_options defaults = {
    .size = sizeof defaults, .threads = 1, .alloc = default_alloc, .release = default_release};

static smx_status check_options(const smx_context_options *o) {
  if (o->size != sizeof *o)
    return smx_fail(SMX_ERR_STRUCT, "smx_context_create: options.size is %zu, not %zu", o->size, sizeof *o);
  if (o->threads < -1)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.threads is %d", (int)o->threads);
  if (!o->alloc != !o->release)
    return smx_fail(SMX_ERR_PARAM,
                    "smx_context_create: options.alloc and options.release must both be set or both NULL");
  if ((int)o->on_empty < 0 || o->on_empty > SMX_EMPTY_ERROR)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.on_empty is %d", (int)o->on_empty);
  if ((int)o->on_inf < 0 || o->on_inf > SMX_INF_LIMIT)
    return smx_fail(SMX_ERR_PARAM, "smx_context_create: options.on_inf is %d", (int)o->on_inf);
  return SMX_OK;
}

static smx_status create(const smx_context_options *options, smx_context **out) {
  smx_context_options o = defaults;
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

smx_status smx_context_create(const smx_context_options *options, smx_context **out) {
  if (!out) return smx_fail(SMX_ERR_NULL, "smx_context_create: out is NULL");
  const int cancel = smx_cancel_off();
  const smx_status status = create(options, out);
  smx_cancel_back(cancel);
  return status;
}

void smx_context_destroy(smx_context *ctx) {
  if (!ctx) return;
  const int cancel = smx_cancel_off();
  smx_pool_destroy(ctx->pool);
  smx_context_options o = ctx->options;
  o.release(o.alloc_user, ctx);
  smx_cancel_back(cancel);
}

int32_t smx_context_threads(const smx_context *ctx) { return ctx ? ctx->options.threads : 1; }
smx_on_empty smx_context_on_empty(const smx_context *ctx) {
  return ctx ? ctx->options.on_empty : SMX_EMPTY_ZERO;
}
smx_on_inf smx_context_on_inf(const smx_context *ctx) { return ctx ? ctx->options.on_inf : SMX_INF_NAN; }

bool smx_context_waits(const smx_context *ctx) {
  return ctx && (ctx->pool || ctx->options.parallel_for || ctx->options.alloc != default_alloc);
}

/* ---- memory ---- */

static void *raw_alloc(const smx_context *ctx, size_t bytes) {
  const smx_context_options *o = ctx ? &ctx->options : &defaults;
  return o->alloc(o->alloc_user, bytes, 64);
}
static void raw_free(const smx_context *ctx, void *p) {
  const smx_context_options *o = ctx ? &ctx->options : &defaults;
  if (p) o->release(o->alloc_user, p);
}

/* Loans lie one after another, until all have been given back. Only the thread of the call takes
 * them. */
static void *purse_alloc(purse *w, size_t bytes) {
  const size_t whole = smx_whole_lines(bytes);
  if (w->asking) {
    void *p = raw_alloc(w->parent, bytes);
    if (p) w->held += whole, w->loans++;
    else w->short_of_memory = true; /* what the call would have asked for after this is unknown */
    return p;
  }
  if (whole > w->most - w->used) return NULL;
  char *p = w->memory + w->used;
  w->used += whole, w->loans++;
  return p;
}
static void purse_free(purse *w, void *p) {
  if (!p) return;
  if (w->asking) raw_free(w->parent, p);
  if (--w->loans == 0) w->used = w->held = 0;
}

void *smx_alloc(smx_context *ctx, size_t bytes) {
  return ctx && ctx->purse ? purse_alloc(ctx->purse, bytes) : raw_alloc(ctx, bytes);
}
void smx_free(smx_context *ctx, void *p) {
  if (ctx && ctx->purse) purse_free(ctx->purse, p);
  else raw_free(ctx, p);
}

bool smx_purse_asks(smx_context *ctx, size_t bytes) {
  purse *w = ctx ? ctx->purse : NULL;
  if (!w || !w->asking) return false;
  if (w->held + bytes > w->most) w->most = w->held + bytes;
  return true;
}

smx_context *smx_context_with_zeros(smx_context *ctx) {
  smx_context *const copy = smx_alloc(ctx, sizeof *copy);
  if (!copy) return NULL;
  *copy = ctx ? *ctx : (smx_context){.options = defaults};
  copy->options.on_empty = SMX_EMPTY_ZERO;
  return copy;
}

smx_context *smx_purse_open(smx_context *ctx) {
  struct both {
    smx_context context;
    purse purse;
  } *b = raw_alloc(ctx, sizeof *b);
  if (!b) return NULL;
  b->context = ctx ? *ctx : (smx_context){.options = defaults};
  b->context.purse = &b->purse;
  b->purse = (purse){.parent = ctx, .asking = true};
  memcpy(b->purse.error, smx_error_text(), SMX_ERROR_BYTES);
  return &b->context;
}

bool smx_purse_fill(smx_context *ctx) {
  purse *w = ctx->purse;
  memcpy(smx_error_text(), w->error, SMX_ERROR_BYTES);
  w->asking = false;
  if (w->short_of_memory) return false;
  w->most = smx_whole_lines(w->most);
  w->memory = w->most ? raw_alloc(w->parent, w->most) : NULL;
  return w->memory || !w->most;
}

void smx_purse_close(smx_context *ctx) {
  if (!ctx) return;
  raw_free(ctx->purse->parent, ctx->purse->memory);
  raw_free(ctx->purse->parent, ctx);
}

/* ---- threads ---- */

/* A task on a thread of the caller's, whose floating-point environment may be any. */
typedef struct lent {
  void (*task)(void *arg, int64_t i);
  void *arg;
} lent;
static void on_a_lent_thread(void *arg, int64_t i) {
  const lent *l = arg;
  const smx_fpenv env = smx_fpenv_enter();
  l->task(l->arg, i);
  smx_fpenv_leave(env);
}

void smx_parallel(smx_context *ctx, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  if (ctx && count > 1 && ctx->options.parallel_for && ctx->options.threads > 1) {
    lent l = {task, arg};
    ctx->options.parallel_for(ctx->options.parallel_user, count, on_a_lent_thread, &l);
  } else if (ctx && count > 1 && ctx->pool) {
    smx_pool_run(ctx->pool, count, task, arg);
  } else {
    for (int64_t i = 0; i < count; i++) task(arg, i);
  }
}
