/* attention/functions_sheets.c - see functions_sheets.h. Every sum is in index order. */
#include "functions_sheets.h"

#include <string.h>

enum {
  BLOCK = 1 << 18, /* scores of a block, where a sheet is smaller */
  ROWS = 16        /* of a task */
};

smx_tensor sheets_tensor(const sheets *s, double *data, int64_t shape[3]) {
  shape[0] = s->count, shape[1] = s->l, shape[2] = s->t;
  return smx_tensor_of(data, SMX_F64, 3, shape, NULL);
}

/* ---- tasks ---- */

typedef struct row_job {
  sheets *s;
  int64_t rows;
  sheet_row_fn *task;
} row_job;

static int64_t parts_of(int64_t rows) { return (rows + ROWS - 1) / ROWS; }
static void part_task(void *arg, int64_t number) {
  const row_job *j = arg;
  const int64_t sheet = number / parts_of(j->rows), first = number % parts_of(j->rows) * ROWS;
  for (int64_t i = first; i < first + ROWS && i < j->rows; i++) j->task(j->s, sheet, i);
}
void sheets_each_row(sheets *s, int64_t rows, sheet_row_fn *task) {
  row_job j = {s, rows, task};
  smx_parallel(s->c->ctx, s->count * parts_of(rows), part_task, &j);
}

/* ---- rows of the block ---- */

static void load_task(void *arg, int64_t sheet) {
  sheets *s = arg;
  const int64_t from = s->first + sheet, l = s->l, t = s->t, d = s->d, e = s->e;
  const tensor_ports *in = &s->c->in;
  tensor_load(s->c, in->view + SHEET_Q, from * l * d, l * d, s->q + sheet * l * d);
  tensor_load(s->c, in->view + SHEET_K, from * t * d, t * d, s->k + sheet * t * d);
  tensor_load(s->c, in->view + SHEET_V, from * t * e, t * e, s->v + sheet * t * e);
  transpose(s->k + sheet * t * d, t, d, s->k_turned + sheet * t * d);
  if (!s->backward) return;
  transpose(s->v + sheet * t * e, t, e, s->v_turned + sheet * t * e);
  double *dy = s->dy + sheet * l * e;
  memset(dy, 0, (size_t)(l * e) * sizeof *dy);
  if (s->c->dout.given[SHEET_Y]) tensor_load(s->c, s->c->dout.view + SHEET_Y, from * l * e, l * e, dy);
}

static void score_row(sheets *s, int64_t sheet, int64_t i) {
  const double *q = s->q + (sheet * s->l + i) * s->d, *k = s->k_turned + sheet * s->d * s->t;
  double *to = s->s + (sheet * s->l + i) * s->t;
  memset(to, 0, (size_t)s->t * sizeof *to);
  for (int64_t x = 0; x < s->d; x++) add_row(q[x], k + x * s->t, s->t, to);
  for (int64_t j = 0; j < s->t; j++)
    to[j] = sheet_hides(s, sheet, i, j) ? -__builtin_inf() : s->scale * to[j];
}

static void answer_row(sheets *s, int64_t sheet, int64_t i) {
  const int64_t at = sheet * s->l + i, to = s->first * s->l + at;
  const double *w = s->w + at * s->t, *v = s->v + sheet * s->t * s->e;
  for (int64_t j = 0; j < s->t; j++)
    if (w[j] != 0 || !sheet_hides(s, sheet, i, j)) add_row(w[j], v + j * s->e, s->e, s->y + to * s->e);
  if (s->weights) memcpy(s->weights + to * s->t, w, (size_t)s->t * sizeof *w);
}

static void upstream_row(sheets *s, int64_t sheet, int64_t i) {
  const int64_t at = sheet * s->l + i;
  const double *dy = s->dy + at * s->e, *v = s->v_turned + sheet * s->t * s->e;
  double *g = s->g + at * s->t;
  memset(g, 0, (size_t)s->t * sizeof *g);
  if (s->c->dout.given[SHEET_WEIGHTS])
    tensor_load(s->c, s->c->dout.view + SHEET_WEIGHTS, (s->first * s->l + at) * s->t, s->t, g);
  for (int64_t x = 0; x < s->e; x++) add_row(dy[x], v + x * s->t, s->t, g);
  for (int64_t j = 0; j < s->t; j++)
    if (sheet_hides(s, sheet, i, j)) g[j] = 0;
}

/* A weight, or a gradient of a score, that is 0 adds nothing. */
static void add_unless_0(double by, const double *x, int64_t n, double *to) {
  if (by != 0) add_row(by, x, n, to);
}
static void query_row(sheets *s, int64_t sheet, int64_t i) {
  const int64_t at = sheet * s->l + i;
  double *to = s->dq + (s->first * s->l + at) * s->d;
  for (int64_t j = 0; j < s->t; j++)
    add_unless_0(s->scale * s->ds[at * s->t + j], s->k + (sheet * s->t + j) * s->d, s->d, to);
}
static void key_row(sheets *s, int64_t sheet, int64_t j) {
  double *to = s->dk + ((s->first + sheet) * s->t + j) * s->d;
  for (int64_t i = sheet * s->l; i < (sheet + 1) * s->l; i++)
    add_unless_0(s->scale * s->ds[i * s->t + j], s->q + i * s->d, s->d, to);
}
static void value_row(sheets *s, int64_t sheet, int64_t j) {
  double *to = s->dv + ((s->first + sheet) * s->t + j) * s->e;
  for (int64_t i = sheet * s->l; i < (sheet + 1) * s->l; i++)
    add_unless_0(s->w[i * s->t + j], s->dy + i * s->e, s->e, to);
}

/* ---- calls ---- */

static void take(void (*part)(sheets *s), sheets *s) {
  if (part) part(s);
}

static smx_status weigh(sheets *s) {
  if (s->l == 0 || s->t == 0) return SMX_OK;
  take(s->rule->before, s);
  const smx_status status = s->rule->call(s, false);
  if (status == SMX_OK) take(s->rule->after, s);
  return status;
}
static smx_status go_back(sheets *s) {
  if (s->l == 0 || s->t == 0) return SMX_OK;
  take(s->rule->back_before, s);
  const smx_status status = s->rule->call(s, true);
  if (status == SMX_OK) take(s->rule->back_after, s);
  return status;
}

static smx_status run_block(sheets *s) {
  smx_parallel(s->c->ctx, s->count, load_task, s);
  sheets_each_row(s, s->l, score_row);
  smx_status status = weigh(s);
  if (status != SMX_OK) return status;
  if (!s->backward) return sheets_each_row(s, s->l, answer_row), SMX_OK;
  sheets_each_row(s, s->l, upstream_row);
  status = go_back(s);
  if (status != SMX_OK) return status;
  if (s->dq) sheets_each_row(s, s->l, query_row);
  if (s->dk) sheets_each_row(s, s->t, key_row);
  if (s->dv) sheets_each_row(s, s->t, value_row);
  return SMX_OK;
}

static smx_status run_blocks(sheets *s) {
  smx_status status = SMX_OK;
  for (s->first = 0; s->first < s->all && status == SMX_OK; s->first += s->count) {
    s->count = s->all - s->first < s->most ? s->all - s->first : s->most;
    status = run_block(s);
  }
  return status;
}

static void write_all(const sheets *s) {
  const tensor_call *c = s->c;
  const int64_t rows = s->all * s->l, keys = s->all * s->t;
  if (s->y && s->t == 0 && smx_context_on_empty(c->ctx) == SMX_EMPTY_NAN)
    for (int64_t i = 0; i < rows * s->e; i++) s->y[i] = __builtin_nan("");
  if (s->y) tensor_store(c, c->out.view + SHEET_Y, 0, rows * s->e, s->y);
  if (s->weights) tensor_store(c, c->out.view + SHEET_WEIGHTS, 0, rows * s->t, s->weights);
  if (s->dq) tensor_store(c, c->din.view + SHEET_Q, 0, rows * s->d, s->dq);
  if (s->dk) tensor_store(c, c->din.view + SHEET_K, 0, keys * s->d, s->dk);
  if (s->dv) tensor_store(c, c->din.view + SHEET_V, 0, keys * s->e, s->dv);
}

/* The arrays, from c->base on; what is added up comes first: *sums bytes. */
static void lay_out(sheets *s, carver *c, int64_t *sums) {
  const tensor_ports *out = &s->c->out, *din = &s->c->din;
  const int64_t m = s->most, rows = s->all * s->l, keys = s->all * s->t, cells = s->l * s->t, b = 8;
  if (!s->backward) s->y = carve(c, rows, s->e, b);
  if (s->backward && din->given[SHEET_Q]) s->dq = carve(c, rows, s->d, b);
  if (s->backward && din->given[SHEET_K]) s->dk = carve(c, keys, s->d, b);
  if (s->backward && din->given[SHEET_V]) s->dv = carve(c, keys, s->e, b);
  *sums = c->at;
  if (!s->backward && out->given[SHEET_WEIGHTS]) s->weights = carve(c, rows, s->t, b);
  s->q = carve(c, m * s->l, s->d, b), s->k = carve(c, m * s->t, s->d, b);
  s->v = carve(c, m * s->t, s->e, b), s->k_turned = carve(c, m * s->t, s->d, b);
  s->s = carve(c, m, cells, b), s->w = carve(c, m, cells, b);
  if (s->rule->room) s->rule->room(s, c);
  if (!s->backward) return;
  s->v_turned = carve(c, m * s->t, s->e, b), s->dy = carve(c, m * s->l, s->e, b);
  s->g = carve(c, m, cells, b), s->ds = carve(c, m, cells, b);
}

/* A block of heads that go together, or of more; false: there are too many scores. */
static bool make_blocks(sheets *s) {
  int64_t cells, unit, rows, keys;
  if (!smx_multiply(s->l, s->t, &cells) || !smx_multiply(cells, s->heads, &unit)) return false;
  if (!smx_multiply(s->all, s->l, &rows) || !smx_multiply(s->all, s->t, &keys)) return false;
  const int64_t most = s->heads * (unit < BLOCK ? BLOCK / (unit > 0 ? unit : 1) : 1);
  s->most = most < s->all ? most : s->all;
  return true;
}

smx_status sheets_run(const tensor_call *c, const sheet_rule *rule, void *own, bool backward) {
  const int64_t heads = dims_value(&c->dims, "h", 0), t = dims_value(&c->dims, "t", 0);
  sheets s = {.c = c, .rule = rule, .own = own, .backward = backward, .scale = attention_scale(c)};
  int64_t sums;
  s.heads = heads == DIMS_UNKNOWN ? 1 : heads, s.all = c->dims.lead_count * s.heads;
  s.l = tensor_dim(c, "l"), s.d = tensor_dim(c, "d"), s.e = tensor_dim(c, "e");
  s.t = t == DIMS_UNKNOWN ? s.l : t;
  s.causal = dims_param(&c->dims, "causal", 0) != 0;
  if (rule->mask && c->in.given[rule->mask]) s.mask = (const unsigned char *)c->in.view[rule->mask].data;
  if (s.t == 0 && s.all > 0 && s.l > 0 && smx_context_on_empty(c->ctx) == SMX_EMPTY_ERROR)
    return smx_fail(SMX_ERR_EMPTY, "%s: query 0 has no keys", c->op->name);
  carver size = {.fits = make_blocks(&s)};
  if (size.fits) lay_out(&s, &size, &sums);
  char *memory = size.fits ? smx_alloc(c->ctx, (size_t)size.at + 64) : NULL;
  if (!memory) return smx_fail(SMX_ERR_NOMEM, "%s: no memory for the scores", c->op->name);
  lay_out(&s, &(carver){.base = memory, .fits = true}, &sums);
  memset(memory, 0, (size_t)sums);
  const smx_status status = run_blocks(&s);
  if (status == SMX_OK) write_all(&s);
  if (status == SMX_OK && rule->end) rule->end(&s);
  smx_free(c->ctx, memory);
  return status;
}
