/* attention/functions_lsh.c - see functions_lsh.h; lsh_codes. */
#include "functions_lsh.h"

#include <string.h>

#include "cpu/cpu.h"
#include "driver/operator.h"
#include "score/score.h"

enum { X, PLANES, CODE = 0 }; /* inputs, and the output */
enum { ROWS = 16 };           /* of a task */

static void lay_out(lsh *h, carver *c) {
  int64_t planes = 0;
  c->fits = c->fits && smx_multiply(h->bits, h->tables, &planes);
  h->planes = carve(c, planes, h->d, sizeof(double));
  h->stream = carve(c, 1, h->tables, sizeof(int64_t));
}
bool lsh_open(lsh *h, const tensor_call *c, const carver *task, int64_t tasks, smx_scratch *scratch) {
  carver size = {.fits = true};
  lay_out(h, &size);
  if (!size.fits || !task->fits ||
      !smx_scratch_open(scratch, c->ctx, (size_t)size.at + 64, (size_t)task->at + 64, tasks > 0 ? tasks : 1))
    return false;
  lay_out(h, &(carver){.base = scratch->shared, .fits = true});
  return true;
}

smx_status lsh_draw(const lsh *h, const tensor_call *c) {
  const smx_op *op = smx_op_find("normal_noise");
  int64_t shape[2] = {h->tables, h->bits * h->d};
  const smx_tensor x = smx_tensor_of(h->planes, SMX_F64, 2, shape, NULL),
                   stream = smx_tensor_of(h->stream, SMX_I64, 1, shape, NULL);
  const smx_tensor *in[] = {&x, &stream}, *out[] = {&x};
  smx_params params;
  if (h->d == 0) return SMX_OK;
  memset(h->planes, 0, (size_t)(shape[0] * shape[1]) * sizeof *h->planes);
  for (int64_t k = 0; k < h->tables; k++) h->stream[k] = k;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "sigma", 1), smx_params_set(op, &params, "seed", tensor_param(c, "seed"));
  return operator_forward(op, c->ctx, &params, 2, in, 1, out);
}

void lsh_codes_of(const lsh *h, const double *x, int64_t *codes) {
  bool number = true;
  for (int64_t i = 0; i < h->d; i++) number = number && x[i] == x[i];
  for (int64_t k = 0; k < h->tables; k++) {
    codes[k] = number ? 0 : -1;
    for (int64_t b = 0; b < h->bits && number; b++) {
      const double *plane = h->planes + (k * h->bits + b) * h->d;
      double side = 0;
      for (int64_t i = 0; i < h->d; i++) side += x[i] * plane[i];
      codes[k] |= (int64_t)(side > 0) << b;
    }
  }
}

int64_t lsh_of_gray(int64_t code) {
  if (code < 0) return code;
  for (int64_t shift = 1; shift < 64; shift *= 2) code ^= code >> shift;
  return code;
}

double listed_soften(bool limit, double *z, int64_t count) {
  const score_kernels *math = smx_isa_current()->f64.score;
  double most = -__builtin_inf(), sum = 0;
  for (int64_t x = 0; x < count; x++)
    if (z[x] > most || z[x] != z[x]) most = z[x];
  const bool shared = limit && most == __builtin_inf();
  for (int64_t x = 0; x < count; x++) sum += z[x] = shared ? z[x] == most : math->exp(z[x] - most);
  for (int64_t x = 0; x < count; x++) z[x] /= sum;
  return count > 0 ? most + math->log(sum) : most;
}

/* ---- lsh_codes ---- */

typedef struct codes {
  const tensor_call *c;
  lsh hash;
  bool gray;
  int64_t rows;
  smx_scratch scratch;
} codes;

static void task(void *arg, int64_t number) {
  codes *x = arg;
  const int64_t h = x->hash.tables, d = x->hash.d;
  double *row = smx_scratch_take(&x->scratch);
  for (int64_t r = number * ROWS; r < (number + 1) * ROWS && r < x->rows; r++) {
    int64_t *to = (int64_t *)(void *)x->c->out.view[CODE].data + r * h;
    tensor_load(x->c, x->c->in.view + X, r * d, d, row);
    lsh_codes_of(&x->hash, row, to);
    for (int64_t k = 0; k < h && x->gray; k++) to[k] = lsh_of_gray(to[k]);
  }
  smx_scratch_give(&x->scratch, row);
}

smx_status lsh_codes_sizes(dims *d) {
  const int64_t bits = (int64_t)dims_param(d, "bits", 0), tables = (int64_t)dims_param(d, "tables", 0),
                planes = dims_value(d, "p", 0);
  if (planes != DIMS_UNKNOWN && planes != bits * tables)
    return smx_fail(SMX_ERR_PARAM, "%s: there are %lld planes, but %lld tables of %lld bits", d->op->name,
                    (long long)planes, (long long)tables, (long long)bits);
  dims_set(d, "h", 0, tables);
  return SMX_OK;
}

smx_status lsh_codes_forward(const tensor_call *c) {
  codes x = {.c = c, .gray = tensor_param(c, "order") != 0};
  carver row = {.fits = true};
  x.hash =
      (lsh){(int64_t)tensor_param(c, "bits"), (int64_t)tensor_param(c, "tables"), tensor_dim(c, "d"), NULL};
  x.rows = c->dims.lead_count * tensor_dim(c, "t");
  const int64_t planes = x.hash.bits * x.hash.tables, tasks = (x.rows + ROWS - 1) / ROWS;
  carve(&row, 1, x.hash.d, sizeof(double));
  if (!lsh_open(&x.hash, c, &row, tasks, &x.scratch))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for %lld planes", c->op->name, (long long)planes);
  smx_status status = SMX_OK;
  if (!c->in.given[PLANES]) status = lsh_draw(&x.hash, c);
  else tensor_load(c, c->in.view + PLANES, 0, planes * x.hash.d, x.hash.planes);
  if (status == SMX_OK) smx_parallel(c->ctx, tasks, task, &x);
  smx_scratch_close(&x.scratch);
  return status;
}
