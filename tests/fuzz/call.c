/* call.c - see call.h. */
#include "call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what) {
  fprintf(stderr, "%s; last error: %s\n", what, smx_last_error());
  abort();
}

/* More memory than there is makes malloc return NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }

void call_open(call *c, const uint8_t *data, size_t size) {
  static const int32_t threads[] = {1, 1, 1, 3};
  memset(c, 0, sizeof *c);
  c->b = (bytes){data, size};
  const uint64_t how = take(&c->b, 1);
  c->heap.low = how & 1;
  c->heap.left = how >> 5 == 7 ? pick(&c->b, 12) : -1;
  const smx_on_empty on_empty = how >> 1 & 1 ? (smx_on_empty)(how >> 2 & 1) + 1 : SMX_EMPTY_ZERO;
  smx_context_options o = {
      .threads = threads[how >> 3 & 3], .on_empty = on_empty, .on_inf = (smx_on_inf)(how >> 2 & 1)};
  const int64_t left = c->heap.left;
  c->heap.left = -1;
  if (how) c->ctx = guard_context(&c->heap, o);
  c->heap.left = left;
  c->random = take(&c->b, 2) + 1;
}

void call_close(call *c) {
  smx_context_destroy(c->ctx);
  if (c->heap.live) fail("memory was not given back");
  for (int i = 0; i < c->count; i++) {
    guard_free(c->t[i].g.block);
    free(c->t[i].before);
  }
}

uint64_t call_random(call *c) {
  uint64_t z = c->random += 0x9e3779b97f4a7c15u; /* splitmix64 */
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static const smx_dtype floats[] = {{2, 32, 1}, {2, 64, 1}, {2, 16, 1}, {4, 16, 1}};

smx_dtype call_float(call *c) {
  const uint64_t how = take(&c->b, 1);
  for (size_t i = 0; how < 192 && c->count && i < sizeof floats / sizeof *floats; i++)
    if (!memcmp(floats + i, &c->t[0].g.t.dtype, sizeof *floats)) return floats[i];
  return floats[how % 4];
}

/* ---- values ---- */

static void put(unsigned char *at, smx_dtype t, uint64_t bits) { memcpy(at, &bits, t.bits / 8); }

/* A float of ordinary size by its bits, or one that is not. */
static uint64_t float_bits(call *c, smx_dtype t, unsigned wild) {
  const int fraction = t.bits == 64 ? 52 : t.bits == 32 ? 23 : t.code == 4 ? 7 : 10;
  const int exponent = t.bits - 1 - fraction;
  const uint64_t r = call_random(c), all = ((uint64_t)1 << exponent) - 1, sign = (r >> 1 & 1) << (t.bits - 1);
  const uint64_t low = call_random(c) & (((uint64_t)1 << fraction) - 1);
  if ((r >> 8) % 256 < wild)
    return sign | (r >> 2 & 1 ? low : 0) | (r >> 3 & 1 ? all : r >> 4 & 1 ? all - 1 : 0) << fraction;
  return sign | low | (all / 2 - 3 + (r >> 16) % 5) << fraction;
}

void call_fill(call *c, const guarded *g, values v, int64_t below) {
  const smx_dtype t = g->t.dtype;
  const size_t size = t.bits / 8;
  const uint64_t how = take(&c->b, 1);
  const unsigned wild = how > 160 ? 8 : 0;
  const int64_t beyond = how > 200 || below < 1; /* of whole numbers: -1 and below, too */
  for (size_t i = 0; size && i + size <= g->bytes && v != VALUES_NONE; i += size) {
    uint64_t bits = v == VALUES_MASK ? call_random(c) % 4 != 0 : float_bits(c, t, wild);
    if (v == VALUES_BELOW)
      bits = (uint64_t)((int64_t)(call_random(c) % (uint64_t)(below + 2 * beyond)) - beyond);
    if (v != VALUES_BELOW && t.code != 2 && t.code != 4) bits &= 1;
    put(g->block + i, t, bits);
  }
}

/* ---- tensors ---- */

static guard_layout layout(call *c, int32_t ndim, bool output) {
  guard_layout how = {.low = take(&c->b, 1) & 1};
  if (!rarely(&c->b, 2)) return how;
  how.order = (unsigned)take(&c->b, 1), how.gaps = (unsigned)pick(&c->b, 1 << ndim);
  if (rarely(&c->b, 2)) how.reversed = (unsigned)pick(&c->b, 1 << ndim);
  if (rarely(&c->b, output ? 16 : 4)) how.repeated = (unsigned)pick(&c->b, 1 << ndim);
  return how;
}

static call_tensor *add(call *c, smx_dtype t, int32_t ndim, const int64_t *shape, bool output) {
  int64_t count = 1;
  for (int32_t d = 0; d < ndim; d++)
    count = shape[d] ? count : 0; /* whatever the others are, there are no elements */
  for (int32_t d = 0; d < ndim; d++)
    if (shape[d] < 0 || __builtin_mul_overflow(count, shape[d], &count) || count > CALL_ELEMENTS) return NULL;
  if (c->count == CALL_TENSORS) return NULL;
  call_tensor *x = c->t + c->count++;
  *x = (call_tensor){.output = output, .exact = true};
  guard_tensor(&x->g, t, ndim, shape, layout(c, ndim, output));
  if (rarely(&c->b, 4) && guard_count(&x->g) && x->g.t.strides == x->g.strides) {
    bool packed = true;
    for (int64_t d = ndim - 1, span = 1; d >= 0; span *= shape[d], d--) packed &= x->g.strides[d] == span;
    if (packed) x->g.t.strides = NULL;
  }
  return x;
}

smx_tensor *call_input(call *c, smx_dtype t, int32_t ndim, const int64_t *shape, values v, int64_t below) {
  call_tensor *x = add(c, t, ndim, shape, false);
  if (!x) return NULL;
  call_fill(c, &x->g, v, below);
  return &x->g.t;
}

smx_tensor *call_output(call *c, smx_dtype t, int32_t ndim, const int64_t *shape) {
  call_tensor *x = add(c, t, ndim, shape, true);
  return x ? &x->g.t : NULL;
}

void *call_array(call *c, smx_dtype t, int64_t n, bool output, values v, int64_t below) {
  if (c->count == CALL_TENSORS || n > CALL_ELEMENTS) return NULL;
  call_tensor *x = c->t + c->count++;
  *x = (call_tensor){.output = output};
  guard_tensor(&x->g, t, 1, &n, (guard_layout){.low = take(&c->b, 1) & 1});
  call_fill(c, &x->g, v, below);
  return x->g.block;
}

smx_tensor *call_spread(call *c, smx_dtype t, int32_t ndim, const int64_t *shape, values v, int64_t below) {
  int64_t own[SMX_MAX_DIMS];
  const unsigned ones = rarely(&c->b, 2) ? (unsigned)pick(&c->b, 1 << ndim) : 0;
  const int32_t dropped = rarely(&c->b, 4) ? (int32_t)pick(&c->b, ndim + 1) : 0;
  for (int32_t d = dropped; d < ndim; d++) own[d - dropped] = ones >> d & 1 ? 1 : shape[d];
  smx_tensor *x = call_input(c, t, ndim - dropped, own, v, below);
  if (x) c->t[c->count - 1].exact = false;
  return x;
}

/* ---- what is wrong ---- */

static const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 2, (int64_t)1 << 40, -1};

/* A stride that is used by no element, or one that leaves the address space. */
static void spoil_stride(call *c, guarded *g) {
  const int32_t d = (int32_t)pick(&c->b, g->t.ndim);
  const bool used = g->shape[d] > 1 && guard_count(g);
  g->strides[d] = extremes[pick(&c->b, used ? 2 : 6)];
  g->t.strides = g->strides;
}

static void spoil_shape(call *c, call_tensor *x) {
  guarded *g = &x->g;
  const int32_t d = (int32_t)pick(&c->b, g->t.ndim);
  const int64_t sizes[] = {
      0, g->shape[d] ? g->shape[d] - 1 : 0, -1, INT64_MIN, g->shape[d] + 1, INT64_MAX, (int64_t)1 << 40};
  g->shape[d] = sizes[pick(&c->b, x->exact ? 7 : 4)];
}

static void spoil_dtype(call *c, smx_tensor *t) {
  static const smx_dtype all[] = {{2, 16, 1}, {4, 16, 1}, {2, 32, 1}, {2, 64, 1}, {0, 32, 1},
                                  {0, 64, 1}, {1, 8, 1},  {6, 8, 1},  {9, 32, 1}, {2, 0, 1},
                                  {2, 32, 4}, {0, 0, 0},  {0, 8, 1},  {2, 8, 1}};
  const smx_dtype other = all[pick(&c->b, sizeof all / sizeof *all)];
  if (other.bits <= t->dtype.bits) t->dtype = other; /* no larger elements than there is memory for */
}

static void spoil_pointer(call *c, guarded *g) {
  const bool any = guard_count(g) > 0;
  switch (pick(&c->b, 4)) {
    case 0: g->t.data = NULL; break;
    case 1: g->t.shape = NULL; break;
    case 2: g->t.device.device_type = 2; break;
    default:
      if (any && g->t.dtype.bits > 8) g->t.byte_offset = 1;
      else if (!any) g->t.byte_offset = UINT64_MAX / (1 + (uint64_t)pick(&c->b, 3));
  }
}

/* One tensor twice: an input that an output stands for as well may be written, in place. */
static void spoil_alias(call *c, const smx_tensor **given, int count) {
  const smx_tensor *t = given[pick(&c->b, count)];
  for (int i = 0; i < c->count; i++) c->t[i].output |= t == &c->t[i].g.t;
  given[pick(&c->b, count)] = t;
}

/* Fewer dimensions of a tensor without elements could leave some, for which there is no memory. */
static void spoil_ndim(call *c, guarded *g) {
  const int32_t ndim = (int32_t)pick(&c->b, SMX_MAX_DIMS + 3) - 1;
  if (ndim < 0 || ndim > g->t.ndim || guard_count(g)) g->t.ndim = ndim;
}

void call_spoil(call *c, const smx_tensor **given, int count) {
  if (!c->count || !rarely(&c->b, 3)) return;
  call_tensor *x = c->t + pick(&c->b, c->count);
  if (rarely(&c->b, 8)) given[pick(&c->b, count)] = NULL;
  else if (rarely(&c->b, 8)) spoil_alias(c, given, count);
  else if (rarely(&c->b, 8)) spoil_ndim(c, &x->g);
  else if (rarely(&c->b, 4)) spoil_dtype(c, &x->g.t);
  else if (rarely(&c->b, 4)) spoil_pointer(c, &x->g);
  else if (x->g.t.ndim && rarely(&c->b, 2)) spoil_shape(c, x);
  else if (x->g.t.ndim) spoil_stride(c, &x->g);
}

/* ---- before and after ---- */

void call_ready(call *c) {
  for (int i = 0; i < c->count; i++) {
    call_tensor *x = c->t + i;
    if (!x->output) guard_read_only(x->g.block);
    else {
      free(x->before); /* of a call before */
      if (!(x->before = malloc(x->g.bytes + 1))) fail("no memory");
      memcpy(x->before, x->g.block, x->g.bytes);
    }
  }
}

void call_check(call *c, smx_status status) {
  if (status == SMX_OK) return;
  if (!*smx_last_error()) fail("an error without a line");
  if (status == SMX_ERR_EMPTY) return; /* the rows before may have been written */
  for (int i = 0; i < c->count; i++)
    if (c->t[i].output && memcmp(c->t[i].before, c->t[i].g.block, c->t[i].g.bytes))
      fail("an error, and something was written");
}

/* ---- numbers of options ---- */

double call_number(call *c) {
  static const double some[] = {0,    1,    -1,     0.5,  2,   3,   1e-3,   1e3,      1e9,       1e300,
                                1e18, 1e30, 1e-300, -0.5, 0.9, 100, -1e300, INFINITY, -INFINITY, NAN};
  const uint64_t how = take(&c->b, 1);
  if (how < 96) return some[how % (sizeof some / sizeof *some)];
  if (how < 224) return (double)(int64_t)take(&c->b, 1) / 16 - 4;
  const uint64_t bits = take(&c->b, 8);
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

int64_t call_whole(call *c) {
  const uint64_t how = take(&c->b, 1);
  if (how < 200) return (int64_t)how % 20 - 2;
  if (how < 240) return (int64_t)take(&c->b, 2);
  return how < 248 ? extremes[how % 6] : (int64_t)take(&c->b, 8);
}
