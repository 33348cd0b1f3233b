/* attention/driver_rope.c - rotary position embedding: angles are computed here, in double and in
 * the order of rows; the kernels rotate by them. */
#include "base/enter.h"
#include "driver/attention.h"
#include "driver/view.h"

enum { ROWS = 64, CHUNK = 256 }; /* rows of a task, whose angles lie in memory */

typedef struct rope {
  attention_job j; /* for its name, its context and its checks of tensors */
  const smx_rope_options *options;
  smx_rope_options own; /* a copy of the caller's, whose struct may be shorter */
  /* x, y: gradients in the backward call; data NULL: absent */
  smx_view x, y, positions, frequencies, carry, cosines, sines;
  smx_view other, d_positions, d_frequencies, carry_out;
  int64_t batch, heads, length, columns, pairs;
  int64_t together, chunk, chunks; /* heads and rows of a task */
  bool back;
  double scale, powers[ATTN_MAX_HEAD / 2];
  const attention_kernels *kernels;
  smx_scratch scratch;
} rope;

/* The angles of some rows. */
typedef struct walk {
  rope *r;
  int64_t b, h;
  /* [ROWS][pairs], [ROWS][pairs], [pairs], [pairs] with the scale */
  double *phases, *angles, *sums, *frequencies;
  double *cross, *d_frequencies; /* [rows][pairs], [pairs]; NULL: not wanted */
  double *room;                  /* of the kernel */
} walk;

/* ---- tasks ---- */

/* One row of a view whose last axis is pairs, from (b, h) or (b, h, i) on. */
static char *pairs_at(const smx_view *v, int64_t b, int64_t h, int64_t i) {
  const int64_t step = v->ndim == 4 ? v->strides[2] : 0;
  return v->data + (b * v->strides[0] + h * v->strides[1] + i * step) * smx_dtype_bytes(v->dtype);
}
static void load_pairs(const smx_view *v, int64_t b, int64_t h, int64_t i, double *to) {
  matrix_load(v, pairs_at(v, b, h, i), v->shape[v->ndim - 1], to);
}

static void open_walk(walk *w) {
  const rope *r = w->r;
  for (int64_t p = 0; p < r->pairs; p++) w->sums[p] = 0, w->frequencies[p] = r->powers[p];
  if (r->carry.data) load_pairs(&r->carry, w->b, w->h, 0, w->sums);
  if (r->frequencies.data) load_pairs(&r->frequencies, w->b, w->h, 0, w->frequencies);
  for (int64_t p = 0; p < r->pairs; p++) w->frequencies[p] *= r->scale;
}

static void find_angles(walk *w, int64_t first, int64_t rows) {
  const rope *r = w->r;
  for (int64_t i = 0; i < rows; i++) {
    double *phases = w->phases + i * r->pairs, *angles = w->angles + i * r->pairs;
    if (r->cosines.data) {
      load_pairs(&r->cosines, w->b, w->h, first + i, phases),
          load_pairs(&r->sines, w->b, w->h, first + i, angles);
      continue;
    }
    if (r->positions.data) load_pairs(&r->positions, w->b, w->h, first + i, phases);
    for (int64_t p = 0; p < r->pairs; p++) {
      if (!r->positions.data) phases[p] = (double)(r->options->start + first + i);
      if (r->options->cumulative) phases[p] = w->sums[p] += phases[p];
      angles[p] = phases[p] * w->frequencies[p];
    }
  }
}

static void rotate_rows(walk *w, int64_t first, int64_t rows) {
  rope *r = w->r;
  const bool half = r->options->layout == SMX_ROPE_HALF;
  attn_rotate t = {.rows = rows,
                   .heads = r->together,
                   .columns = r->columns,
                   .pairs = r->pairs,
                   .back = r->back,
                   .angles = w->angles,
                   .room = w->room};
  if (r->cosines.data) t.cosines = w->phases;
  t.near = half ? 1 : 2, t.far = half ? r->pairs : 1;
  t.x = attention_rows_of(&r->x, w->b, w->h, first), t.y = attention_rows_of(&r->y, w->b, w->h, first);
  if (w->cross)
    t.other = attention_rows_of(&r->other, w->b, w->h, first), t.cross = w->cross + first * r->pairs;
  find_angles(w, first, rows);
  r->kernels->rotate(&t);
  for (int64_t i = 0; i < rows && w->cross; i++)
    for (int64_t p = 0; p < r->pairs; p++)
      w->d_frequencies[p] += t.cross[i * r->pairs + p] * (w->phases[i * r->pairs + p] * r->scale);
}

/* Gradients of positions and frequencies from those of the angles: a step of the position counts in
 * all rows from its own on. */
static void store_gradients(walk *w) {
  const rope *r = w->r;
  for (int64_t p = 0; p < r->pairs; p++) w->sums[p] = 0;
  for (int64_t i = r->length - 1; i >= 0 && r->d_positions.data; i--) {
    double *row = w->cross + i * r->pairs;
    for (int64_t p = 0; p < r->pairs; p++) {
      row[p] *= w->frequencies[p];
      if (r->options->cumulative) row[p] = w->sums[p] += row[p];
    }
    matrix_store(&r->d_positions, row, r->pairs, pairs_at(&r->d_positions, w->b, w->h, i));
  }
  if (r->d_frequencies.data)
    matrix_store(&r->d_frequencies, w->d_frequencies, r->pairs, pairs_at(&r->d_frequencies, w->b, w->h, 0));
}

static void rope_task(void *arg, int64_t at) {
  rope *r = arg;
  const int64_t groups = r->heads / r->together, first = at % r->chunks * r->chunk;
  const int64_t end = first + r->chunk < r->length ? first + r->chunk : r->length,
                room = (2 * ROWS + 3) * r->pairs;
  const bool gradients = r->d_positions.data || r->d_frequencies.data;
  walk w = {.r = r, .b = at / r->chunks / groups, .h = at / r->chunks % groups * r->together};
  w.room = smx_scratch_take(&r->scratch);
  w.phases = w.room + ATTN_ROTATE_ROOM;
  w.angles = w.phases + ROWS * r->pairs, w.sums = w.angles + ROWS * r->pairs;
  w.frequencies = w.sums + r->pairs, w.d_frequencies = w.frequencies + r->pairs;
  if (gradients) w.cross = w.phases + room;
  memset(w.d_frequencies, 0, (size_t)r->pairs * sizeof(double));
  open_walk(&w);
  for (int64_t i = first; i < end; i += ROWS) rotate_rows(&w, i, end - i < ROWS ? end - i : ROWS);
  for (int64_t g = 0; g < r->together && r->carry_out.data; g++)
    memcpy(pairs_at(&r->carry_out, w.b, w.h + g, 0), w.sums, (size_t)r->pairs * sizeof(double));
  if (gradients) store_gradients(&w);
  smx_scratch_give(&r->scratch, w.room);
}

/* ---- arguments ---- */

static smx_status check_options(rope *r) {
  const smx_rope_options *o = r->options;
  const int64_t dims = o->dims ? o->dims : r->columns;
  if (o->size != sizeof *o && o->size != offsetof(smx_rope_options, cosines))
    return smx_fail(SMX_ERR_STRUCT, "%s: options.size is %zu, not %zu", r->j.name, o->size, sizeof *o);
  if ((int)o->layout < 0 || o->layout > SMX_ROPE_INTERLEAVED)
    return smx_fail(SMX_ERR_PARAM, "%s: options.layout is %d, not 0..%d", r->j.name, (int)o->layout,
                    SMX_ROPE_INTERLEAVED);
  if (o->dims && (dims < 2 || dims > r->columns || dims % 2))
    return smx_fail(SMX_ERR_PARAM, "%s: options.dims is %lld, not an even number of 2..%lld", r->j.name,
                    (long long)dims, (long long)r->columns);
  if (!(o->base == 0 || (o->base >= 0x1p-127 && o->base <= 0x1p127)))
    return smx_fail(SMX_ERR_PARAM, "%s: options.base is %g, not a finite number above 0", r->j.name, o->base);
  if (!(o->scale >= -0x1p127 && o->scale <= 0x1p127))
    return smx_fail(SMX_ERR_PARAM, "%s: options.scale is %g, not a finite number", r->j.name, o->scale);
  if (o->positions && o->start)
    return smx_fail(SMX_ERR_PARAM, "%s: options.start is %lld, which is not possible beside positions",
                    r->j.name, (long long)o->start);
  if (o->start > INT64_MAX / 4 || o->start < -(INT64_MAX / 4))
    return smx_fail(SMX_ERR_PARAM, "%s: options.start is %lld, too large", r->j.name, (long long)o->start);
  if (o->cumulative && !o->positions)
    return smx_fail(SMX_ERR_NULL, "%s: positions is NULL: cumulative needs it", r->j.name);
  if (!o->cosines != !o->sines)
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL: cosines and sines go together", r->j.name,
                    o->cosines ? "sines" : "cosines");
  if (o->cosines &&
      (o->positions || o->frequencies || o->cumulative || o->start || o->base != 0 || o->scale != 0))
    return smx_fail(
        SMX_ERR_PARAM,
        "%s: cosines are not possible beside base, scale, start, positions, frequencies or cumulative",
        r->j.name);
  if (o->carry && !o->cumulative)
    return smx_fail(SMX_ERR_PARAM, "%s: carry is not possible without cumulative", r->j.name);
  r->pairs = dims / 2;
  r->scale = o->scale == 0 ? 1 : o->scale;
  return SMX_OK;
}

/* Inputs, and x to y (dy to dx). */
static smx_status check(rope *r, const smx_rope_options *options, const smx_tensor *x, const char *x_name,
                        const smx_tensor *y, const char *y_name) {
  static const smx_rope_options defaults = {.size = sizeof defaults};
  const attention_job *j = &r->j;
  smx_status status = attention_tensor(j, x_name, x, FLOATS, 4, (int64_t[]){-1, -1, -1, -1}, &r->x);
  if (status == SMX_OK) status = attention_tensor(j, y_name, y, FLOATS, 4, r->x.shape, &r->y);
  if (status != SMX_OK) return status;
  r->batch = r->x.shape[0], r->heads = r->x.shape[1], r->length = r->x.shape[2], r->columns = r->x.shape[3];
  r->options = options ? options : &defaults;
  if (r->columns < 2 || r->columns > ATTN_MAX_HEAD || (r->columns % 2 && !r->options->dims))
    return smx_fail(SMX_ERR_SHAPE, "%s: %s: shape[3] is %lld, not an even number of 2..%d", j->name, x_name,
                    (long long)r->columns, ATTN_MAX_HEAD);
  if (r->options->size == offsetof(smx_rope_options, cosines)) {
    memcpy(&r->own, r->options, r->options->size);
    r->options = &r->own;
  }
  status = check_options(r);
  const int64_t full[] = {r->batch, r->heads, r->length, r->pairs}, state[] = {r->batch, r->heads, r->pairs};
  if (status == SMX_OK)
    status = attention_broadcast(j, "positions", r->options->positions, NUMBERS, 4, full, &r->positions);
  if (status == SMX_OK)
    status =
        attention_broadcast(j, "frequencies", r->options->frequencies, FLOATS, 3, state, &r->frequencies);
  if (status == SMX_OK)
    status = attention_broadcast(j, "cosines", r->options->cosines, FLOATS, 4, full, &r->cosines);
  if (status == SMX_OK)
    status = attention_broadcast(j, "sines", r->options->sines, FLOATS, 4, full, &r->sines);
  if (status == SMX_OK)
    status = attention_broadcast(j, "carry", r->options->carry, FLOATS, 3, state, &r->carry);
  return status;
}

/* Checks that an output does not overlap any other tensor of the call. x and y (dy and dx) may be
 * the same. */
static smx_status check_apart(const rope *r, const char *port, const smx_view *out) {
  const struct {
    const char *name;
    const smx_view *view;
  } others[] = {{r->back ? "dy" : "x", &r->x},
                {r->back ? "dx" : "y", &r->y},
                {"x", &r->other},
                {"positions", &r->positions},
                {"frequencies", &r->frequencies},
                {"options.carry", &r->carry},
                {"cosines", &r->cosines},
                {"sines", &r->sines},
                {"carry", &r->carry_out},
                {"d_positions", &r->d_positions},
                {"d_frequencies", &r->d_frequencies}};
  if (!smx_view_injective(out))
    return smx_fail(SMX_ERR_ALIAS, "%s: %s: two of its elements share an address", r->j.name, port);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    const smx_view *v = others[i].view;
    if (v == out || !v->data || !smx_view_overlap(out, v) ||
        (out == &r->y && v == &r->x && smx_view_same(out, v)))
      continue;
    return smx_fail(SMX_ERR_ALIAS, "%s: %s: overlaps %s", r->j.name, port, others[i].name);
  }
  return SMX_OK;
}

static bool differs(const smx_view *v) { return v->data && v->shape[1] > 1 && v->strides[1] != 0; }

static smx_status run(rope *r) {
  const bool gradients = r->d_positions.data || r->d_frequencies.data,
             is_f64 = smx_same_dtype(r->x.dtype, SMX_F64);
  const smx_isa *isa = smx_isa_current();
  const smx_view *const outputs[] = {&r->y, &r->carry_out, &r->d_positions, &r->d_frequencies};
  if (!attention_writes_any(outputs, sizeof outputs / sizeof *outputs)) return SMX_OK;
  r->kernels = is_f64 ? isa->f64.attention : isa->f32.attention;
  r->together = gradients || differs(&r->positions) || differs(&r->frequencies) || differs(&r->carry) ||
                        differs(&r->cosines) || differs(&r->sines)
                    ? 1
                    : r->heads;
  r->chunk = gradients || r->options->cumulative ? r->length : CHUNK;
  r->chunks = gradients || r->options->cumulative ? 1 : (r->length + CHUNK - 1) / CHUNK;
  r->kernels->frequencies(r->options->base == 0 ? 10000 : r->options->base, r->pairs, r->powers);
  const int64_t tasks = r->batch * (r->heads / r->together) * r->chunks;
  const int64_t cells = ATTN_ROTATE_ROOM + (2 * ROWS + 3 + (gradients ? r->length : 0)) * r->pairs;
  if (!smx_scratch_open(&r->scratch, r->j.ctx, 0, (size_t)cells * sizeof(double), tasks))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for angles", r->j.name);
  smx_parallel(r->j.ctx, tasks, rope_task, r);
  smx_scratch_close(&r->scratch);
  return SMX_OK;
}

smx_status smx_rope(smx_context *ctx, const smx_rope_options *options, const smx_tensor *x,
                    const smx_tensor *y, const smx_tensor *carry) {
  SMX_ENTER(ctx);
  SMX_OWN(rope, r, ctx);
  if (!attention_open(r ? &r->j : NULL, "smx_rope", ctx)) return SMX_ERR_NOMEM;
  smx_status status = check(r, options, x, "x", y, "y");
  if (status == SMX_OK && carry) {
    status = attention_tensor(&r->j, "carry", carry, FLOATS, 3, (int64_t[]){r->batch, r->heads, r->pairs},
                              &r->carry_out);
    if (status == SMX_OK && !r->options->cumulative)
      status = smx_fail(SMX_ERR_PARAM, "%s: carry is not possible without cumulative", r->j.name);
    if (status == SMX_OK && !smx_same_dtype(r->carry_out.dtype, SMX_F64))
      status = smx_fail(SMX_ERR_DTYPE, "%s: carry: dtype is %s, not f64", r->j.name,
                        smx_dtype_name(r->carry_out.dtype));
    if (status == SMX_OK && r->carry_out.strides[2] != 1)
      status = smx_fail(SMX_ERR_SHAPE, "%s: carry: strides[2] is %lld, not 1", r->j.name,
                        (long long)r->carry_out.strides[2]);
    if (status == SMX_OK) status = check_apart(r, "carry", &r->carry_out);
  }
  if (status == SMX_OK) status = check_apart(r, "y", &r->y);
  return status == SMX_OK ? run(r) : status;
}

static smx_status check_gradient(rope *r, const char *port, const smx_tensor *t, int32_t ndim,
                                 const int64_t *shape, smx_view *v) {
  if (!t) return SMX_OK;
  if (r->cosines.data)
    return smx_fail(SMX_ERR_NO_BACKWARD, "%s: %s: cosines and sines have no gradient", r->j.name, port);
  smx_status status = attention_tensor(&r->j, port, t, FLOATS, ndim, shape, v);
  if (status == SMX_OK && !r->other.ndim)
    status = smx_fail(SMX_ERR_NULL, "%s: x is NULL: %s needs it", r->j.name, port);
  return status == SMX_OK ? check_apart(r, port, v) : status;
}

smx_status smx_rope_backward(smx_context *ctx, const smx_rope_options *options, const smx_tensor *dy,
                             const smx_tensor *x, const smx_tensor *dx, const smx_tensor *d_positions,
                             const smx_tensor *d_frequencies) {
  SMX_ENTER(ctx);
  SMX_OWN(rope, r, ctx);
  if (!attention_open(r ? &r->j : NULL, "smx_rope_backward", ctx)) return SMX_ERR_NOMEM;
  r->back = true;
  smx_status status = check(r, options, dy, "dy", dx, "dx");
  if (status != SMX_OK) return status;
  const int64_t full[] = {r->batch, r->heads, r->length, r->pairs}, state[] = {r->batch, r->heads, r->pairs};
  if (x) status = attention_tensor(&r->j, "x", x, FLOATS, 4, r->x.shape, &r->other);
  if (status == SMX_OK) status = check_gradient(r, "d_positions", d_positions, 4, full, &r->d_positions);
  if (status == SMX_OK)
    status = check_gradient(r, "d_frequencies", d_frequencies, 3, state, &r->d_frequencies);
  if (status == SMX_OK) status = check_apart(r, "dx", &r->y);
  return status == SMX_OK ? run(r) : status;
}
