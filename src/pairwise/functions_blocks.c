/* pairwise/functions_blocks.c - the engine: memory, unit rows, blocks of logits, and gradients. The
 * products are those of linear layers (head/driver_products.c), with u as the features and v as the
 * weights of classes. */
#include <string.h>

#include "driver/carve.h"
#include "functions.h"

enum { KEEP = 32 << 20 /* bytes of logits and gradients */ };
#define EPS 1e-12 /* the least that a row is divided by */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- memory ---- */

static void *carve_if(carver *c, bool wanted, int64_t rows, int64_t columns, int64_t bytes) {
  return wanted ? carve(c, rows, columns, bytes) : NULL;
}

/* A gradient: the caller's tensor, or memory where there is none but its numbers are needed. */
static char *gradient(const pair_call *p, carver *c, const smx_view *of, bool needed, int64_t rows) {
  return of ? of->data : carve_if(c, needed, rows, p->d, p->bytes);
}

static smx_view matrix_of(const pair_call *p, char *data, int64_t rows, int64_t width) {
  return (smx_view){.data = data,
                    .dtype = p->c->is_f64 ? SMX_F64 : SMX_F32,
                    .ndim = 2,
                    .shape = {rows, width},
                    .strides = {width, 1}};
}

static const smx_view *guide_of(const pair_call *p) {
  return p->rule->guide ? pair_input(p, &p->c->in, IN_OWN) : NULL;
}
static void divide_guide(pair_call *p, carver *c) {
  const smx_view *guide = guide_of(p);
  if (!guide) return;
  const int64_t width = guide->shape[1];
  const bool unit = p->in.a && p->normalise;
  p->w = unit ? carve(c, p->n, width, p->bytes) : guide->data;
  p->norm_w = carve_if(c, unit, 1, p->n, 8);
  p->guide_ports = (linear_ports){.h = matrix_of(p, p->w, p->n, width),
                                  .w = matrix_of(p, p->w, p->n, width),
                                  .scale = 1 / tensor_param(p->c, "guide_temperature")};
  p->guide = p->run;
  p->guide.p = &p->guide_ports, p->guide.width = width;
  p->guide.z = carve(c, p->run.most, p->run.pitch, p->bytes);
}

static void divide(pair_call *p, carver *c) {
  linear_run *l = &p->run;
  const bool features = p->in.a, unit = features && p->normalise, both = p->rule->columns;
  char *const a = features ? p->in.a->data : NULL, *const b = p->in.b ? p->in.b->data : a;
  l->z = carve(c, l->most, l->pitch, p->bytes);
  l->dz = carve_if(c, p->backward, l->most, l->pitch, p->bytes);
  p->loss = carve(c, 1, p->n, 8), p->slope = carve_if(c, p->backward, 1, p->n, 8);
  p->u = unit ? carve(c, p->n, p->d, p->bytes) : a;
  p->v = !p->in.b ? p->u : unit ? carve(c, p->m, p->d, p->bytes) : b;
  p->norm_u = carve_if(c, unit, 1, p->n, 8), p->norm_v = carve_if(c, unit && p->in.b, 1, p->m, 8);
  const bool dv = p->in.b ? p->din.b : p->din.a;
  p->ports = (linear_ports){.h = matrix_of(p, p->u, p->n, p->d),
                            .w = matrix_of(p, p->v, p->m, p->d),
                            .dh = matrix_of(p, gradient(p, c, p->din.a, false, p->n), p->n, p->d),
                            .dw = matrix_of(p, gradient(p, c, p->din.b, dv, p->m), p->m, p->d),
                            .scale = 1 / p->temperature};
  p->shifted = carve_if(c, p->rule->shifted, p->n, p->d, p->bytes);
  if (p->shifted) p->ports.h.data = p->shifted;
  l->packed = carve_if(c, dv, linear_tiles(l->most) * linear_tiles(p->d), HEAD_TILE, p->bytes);
  p->reference = carve_if(c, both, 1, p->m, p->bytes);
  p->sum = carve_if(c, both || p->rule->column_number, 1, p->m, 8);
  p->column = carve_if(c, both || p->rule->column_number, 1, p->m, 8);
  p->gathered = carve_if(c, p->rule->classes, 1, p->n, 8), p->own = carve_if(c, both, 1, p->m, 8);
  p->share = carve_if(c, both, 1, p->m, 8);
  divide_guide(p, c);
}

/* Rows of a block: whole chains, of sizes that follow from m alone. */
static int64_t rows_kept(const pair_call *p) {
  const int64_t fit = KEEP / (2 * p->bytes) / p->run.pitch;
  const int64_t most = fit < HEAD_CHAIN ? HEAD_CHAIN : least(fit / HEAD_CHAIN * HEAD_CHAIN, LINEAR_MOST);
  return p->n > most ? most : p->n > 0 ? p->n : 1;
}

smx_status pair_no_memory(const tensor_call *c) {
  return smx_fail(SMX_ERR_NOMEM, "%s: no memory for pairs of %lld rows", c->op->name,
                  (long long)tensor_dim(c, "n"));
}

static smx_status reserve(pair_call *p) {
  linear_run *l = &p->run;
  carver c = {.fits = p->m < INT64_MAX / 64};
  *l = (linear_run){.p = &p->ports, .ctx = p->c->ctx, .is_f64 = p->c->is_f64, .bytes = p->bytes};
  l->kernels = l->is_f64 ? &smx_isa_current()->f64 : &smx_isa_current()->f32;
  l->n = p->n, l->classes = p->m, l->width = p->d, l->slab = HEAD_PANEL;
  l->pitch = c.fits ? linear_tiles(p->m) * HEAD_PANEL + 16 : 16;
  l->most = rows_kept(p);
  while (l->slab < 4 * HEAD_PANEL && p->d >= 2 * l->slab * smx_context_threads(l->ctx)) l->slab *= 2;
  divide(p, &c);
  p->memory = c.fits ? smx_alloc(p->c->ctx, (size_t)c.at + 1) : NULL;
  if (!p->memory) return pair_no_memory(p->c);
  c = (carver){.base = p->memory, .fits = true};
  divide(p, &c);
  const size_t line = smx_whole_lines((size_t)(p->m * p->bytes)), place = linear_place(l);
  p->row_room = 2 * line + smx_whole_lines((size_t)p->m * sizeof(double)) + smx_whole_lines((size_t)p->m);
  if (smx_scratch_open(&l->scratch, l->ctx, 0, place > p->row_room ? place : p->row_room, INT64_MAX)) {
    p->guide.scratch = l->scratch;
    return SMX_OK;
  }
  smx_free(p->c->ctx, p->memory);
  return pair_no_memory(p->c);
}

/* ---- unit rows ---- */

typedef struct unit_rows {
  const pair_call *p;
  const char *from;
  char *to;
  double *norm;
  int64_t width;
} unit_rows;

static void unit_row(void *arg, int64_t i) {
  const unit_rows *u = arg;
  const int64_t at = i * u->width * u->p->bytes;
  u->norm[i] = pair_unit(u->p->c->is_f64, u->from + at, EPS, u->width, u->to + at);
}

static void make_rows(const pair_call *p, const smx_view *from, char *to, double *norm) {
  unit_rows rows = {p, from ? from->data : NULL, to, norm, from ? from->shape[1] : 0};
  if (norm) smx_parallel(p->c->ctx, from->shape[0], unit_row, &rows);
}
static void make_units(const pair_call *p) {
  make_rows(p, p->in.a, p->u, p->norm_u), make_rows(p, p->in.b, p->v, p->norm_v);
  make_rows(p, guide_of(p), p->w, p->norm_w);
}

/* Gradients of rows that became unit rows. more: where b is a, what it gives as v. */
typedef struct unit_gradients {
  const pair_call *p;
  const char *u, *more;
  char *g;
  const double *norm;
} unit_gradients;

static void unit_gradient(void *arg, int64_t i) {
  const unit_gradients *t = arg;
  const int64_t d = t->p->d, at = i * d * t->p->bytes;
  if (t->more) pair_join(t->p->c->is_f64, t->more + at, d, t->g + at);
  if (t->norm) pair_unit_slope(t->p->c->is_f64, t->u + at, t->norm[i], EPS, d, t->g + at);
}

static void finish_gradients(const pair_call *p) {
  unit_gradients a = {p, p->u, p->in.b ? NULL : p->ports.dw.data, p->ports.dh.data, p->norm_u},
                 b = {p, p->v, NULL, p->ports.dw.data, p->norm_v};
  if (a.g && (a.norm || a.more)) smx_parallel(p->c->ctx, p->n, unit_gradient, &a);
  if (b.g && b.norm) smx_parallel(p->c->ctx, p->m, unit_gradient, &b);
}

/* ---- blocks ---- */

static char *block_row(const pair_call *p, char *block, int64_t r) {
  return block ? block + r * p->run.pitch * p->bytes : NULL;
}

static void logits_row(void *arg, int64_t r) {
  const pair_call *p = arg;
  pair_scale(p->c->is_f64, p->in.s->data + (p->run.first + r) * p->m * p->bytes, 1 / p->temperature, p->m,
             block_row(p, p->run.z, r));
}
static void guide_row(void *arg, int64_t r) {
  const pair_call *p = arg;
  pair_scale(p->c->is_f64, p->w + (p->run.first + r) * p->m * p->bytes, p->guide_ports.scale, p->m,
             block_row(p, p->guide.z, r));
}
static void block_logits(pair_call *p) {
  p->guide.first = p->run.first, p->guide.rows = p->run.rows;
  if (p->u) linear_block_logits(&p->run);
  else smx_parallel(p->c->ctx, p->run.rows, logits_row, p);
  if (p->w && p->u) linear_block_logits(&p->guide);
  else if (p->w) smx_parallel(p->c->ctx, p->run.rows, guide_row, p);
}

static void row_task(void *arg, int64_t i) {
  pair_call *p = arg;
  char *room = smx_scratch_take(&p->run.scratch);
  const size_t line = smx_whole_lines((size_t)(p->m * p->bytes));
  pair_row r = {.i = p->run.first + i, .l = block_row(p, p->run.z, i), .g = block_row(p, p->run.dz, i)};
  r.x = room, r.y = room + line, r.v = (double *)(void *)(room + 2 * line);
  r.role = (unsigned char *)(r.v + (p->m + 7) / 8 * 8), r.guide = block_row(p, p->guide.z, i);
  r.up = p->backward ? tensor_upstream(p->c, OUT_LOSS, r.i) : 0;
  p->rule->roles(p, r.i, r.role);
  *(p->asks ? p->gathered + r.i : p->loss + r.i) = p->rule->row(p, &r);
  if (p->backward && p->din.temperature && !p->rule->row_temperature && !p->rule->number)
    p->slope[r.i] = pair_dot(p->c->is_f64, r.l, r.g, p->m);
  smx_scratch_give(&p->run.scratch, room);
}

/* The gradient of similarities. */
static void slope_row(void *arg, int64_t r) {
  const pair_call *p = arg;
  pair_scale(p->c->is_f64, block_row(p, p->run.dz, r), 1 / p->temperature, p->m,
             p->din.s->data + (p->run.first + r) * p->m * p->bytes);
}

/* The gradient of a number of each column. */
static void column_slopes(void *arg, int64_t task) {
  const pair_call *p = arg;
  const int64_t from = task * PAIR_COLUMNS, n = least(PAIR_COLUMNS, p->m - from);
  for (int64_t r = 0; r < p->run.rows; r++)
    pair_sum(p->c->is_f64, block_row(p, p->run.z, r) + from * p->bytes, n, p->sum + from);
}

/* Without rows the sums of dv are still to be made. */
static void walk(pair_call *p, int64_t from, int64_t to) {
  linear_run *l = &p->run;
  for (l->first = from; l->first < to || (to == 0 && l->first == 0); l->first += l->most) {
    l->rows = least(l->most, to - l->first);
    if (l->rows) block_logits(p);
    smx_parallel(p->c->ctx, l->rows, row_task, p);
    if (p->rule->columns && !p->backward) pair_columns_block(p);
    if (p->backward && p->rule->column_number)
      smx_parallel(p->c->ctx, pair_column_tasks(p), column_slopes, p);
    if (p->backward && p->u) linear_block_gradients(l);
    if (p->backward && p->din.s) smx_parallel(p->c->ctx, l->rows, slope_row, p);
  }
}

void pair_ask(pair_call *p, int64_t from, int64_t to) {
  const bool backward = p->backward;
  char *const dz = p->run.dz;
  p->backward = false, p->run.dz = NULL, p->asks = true;
  walk(p, from, to);
  p->backward = backward, p->run.dz = dz, p->asks = false;
}

/* The columns first, where the gradient needs them. */
static void walk_columns(pair_call *p) {
  char *const dz = p->run.dz;
  p->backward = false, p->run.dz = NULL;
  pair_columns_begin(p), walk(p, 0, p->n), pair_columns_end(p);
  p->backward = true, p->run.dz = dz;
}

static void put_slope(const pair_call *p) {
  double sum = 0;
  if (p->rule->row_temperature) {
    tensor_store(p->c, p->din.temperature, 0, p->n, p->slope);
    return;
  }
  for (int64_t i = 0; i < p->n; i++) sum += p->slope[i];
  if (!p->rule->number) sum *= -1 / p->temperature;
  tensor_store(p->c, p->din.temperature, 0, 1, &sum);
}

/* ---- calls ---- */

static smx_status check_columns(const pair_call *p) {
  const char *const name = p->c->op->name;
  const int64_t known = dims_value(&p->c->dims, "m", 0);
  if (p->in.s && p->rule->square && p->n != p->m)
    return smx_fail(SMX_ERR_SHAPE, "%s: a is %lld x %lld, but these similarities are a square", name,
                    (long long)p->n, (long long)p->m);
  if (known >= 0 && known != p->m)
    return smx_fail(SMX_ERR_SHAPE, "%s: there are %lld columns, but inputs for %lld", name, (long long)p->m,
                    (long long)known);
  return SMX_OK;
}

static smx_status check(pair_call *p) {
  const tensor_call *c = p->c;
  const char *const name = c->op->name;
  if (p->in.b && p->in.s)
    return smx_fail(SMX_ERR_PARAM, "%s: %s is given beside similarities", name, c->op->inputs[IN_B].name);
  if (p->in.a && !p->in.b && !p->rule->alone)
    return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", name, c->op->inputs[IN_B].name);
  if (p->in.temperature && !p->rule->row_temperature)
    tensor_load(c, p->in.temperature, 0, 1, p->rule->number ? &p->number : &p->temperature);
  if (!(p->temperature >= 1e-30 && p->temperature <= 1e30))
    return smx_fail(SMX_ERR_PARAM, "%s: temperature is %g, not 1e-30..1e30", name, p->temperature);
  const smx_status status = check_columns(p);
  return status == SMX_OK && p->rule->check ? p->rule->check(p) : status;
}

static pair_inputs inputs_of(const pair_call *p, const tensor_ports *of) {
  const smx_view *a = pair_input(p, of, IN_A);
  const bool s = pair_choice(p->c, "similarities");
  return (pair_inputs){.a = s ? NULL : a,
                       .s = s ? a : NULL,
                       .b = pair_input(p, of, IN_B),
                       .temperature = pair_input(p, of, IN_TEMPERATURE),
                       .mask = pair_input(p, of, IN_MASK),
                       .number = p->rule->column_number ? pair_input(p, of, IN_OWN + 1) : NULL};
}

static void open_call(pair_call *p, const tensor_call *c, const pair_rule *rule, bool backward) {
  *p = (pair_call){.c = c, .rule = rule, .backward = backward};
  p->logsumexp = smx_op_find("logsumexp"), p->math = smx_isa_current()->f64.score;
  p->in = inputs_of(p, &c->in), p->din = inputs_of(p, &c->din);
  p->n = tensor_dim(c, "n"), p->d = tensor_dim(c, "d"), p->bytes = c->is_f64 ? 8 : 4;
  p->m = p->in.s ? p->d : p->in.b ? p->in.b->shape[0] : p->n;
  if (p->in.s) p->d = 0;
  p->temperature = rule->row_temperature || rule->number ? 1 : tensor_param(c, "temperature");
  p->normalise = pair_choice(c, "normalise"), p->decoupled = pair_choice(c, "decoupled");
  const double form = dims_param(&c->dims, "form", 1); /* out, in, nce */
  p->spread = form != 0, p->log_count = form == 1;
  p->self = rule->alone && !p->in.b && p->n == p->m && (p->in.a || dims_param(&c->dims, "self", 1) != 0);
}

smx_status pair_open(pair_call *p, const tensor_call *c, const pair_rule *rule, bool backward) {
  open_call(p, c, rule, backward);
  const smx_status status = check(p);
  return status == SMX_OK ? reserve(p) : status;
}

void pair_go(pair_call *p) {
  make_units(p);
  if (p->rule->begin) p->rule->begin(p);
  if (p->rule->columns && p->backward) walk_columns(p);
  if (p->rule->columns && !p->backward) pair_columns_begin(p);
  walk(p, 0, p->n);
  if (p->rule->columns && !p->backward) pair_columns_end(p);
  if (p->backward) finish_gradients(p);
  if (p->backward && p->din.temperature) put_slope(p);
  if (p->backward && p->din.number) tensor_store(p->c, p->din.number, 0, p->m, p->sum);
  if (!p->backward) tensor_store(p->c, p->c->out.view + OUT_LOSS, 0, p->n, p->loss);
}

smx_status pair_close(pair_call *p) {
  smx_scratch_close(&p->run.scratch);
  smx_free(p->c->ctx, p->memory);
  return (smx_status)atomic_load(&p->status);
}

smx_status pair_run(const tensor_call *c, const pair_rule *rule, bool backward) {
  SMX_OWN(pair_call, p, c->ctx);
  if (!p) return pair_no_memory(c);
  const smx_status status = pair_open(p, c, rule, backward);
  if (status != SMX_OK) return status;
  pair_go(p);
  return pair_close(p);
}
