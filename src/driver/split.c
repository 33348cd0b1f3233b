/* driver/split.c - who has which columns, and the opening and the end of a call whose rows lie on
 * several ranks. See split.h. */
#include "split.h"
#include "driver/carve.h"
#include <softmax/split.h>

/* ---- columns ---- */

static smx_status check_ranks(const char *verb, int64_t n, int64_t ranks) {
  if (n < 0) return smx_fail(SMX_ERR_SHAPE, "%s: n is %lld, not at least 0", verb, (long long)n);
  if (ranks < 1) return smx_fail(SMX_ERR_SHAPE, "%s: ranks is %lld, not at least 1", verb, (long long)ranks);
  return SMX_OK;
}

smx_status split_shard(int64_t n, int64_t ranks, int64_t rank, int64_t *first, int64_t *count) {
  static const char verb[] = "smx_split_shard";
  const smx_status status = check_ranks(verb, n, ranks);
  if (status != SMX_OK) return status;
  if (!first || !count) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", verb, first ? "count" : "first");
  if (rank < 0 || rank >= ranks)
    return smx_fail(SMX_ERR_SHAPE, "%s: rank is %lld, not 0..%lld", verb, (long long)rank,
                    (long long)ranks - 1);
  const int64_t groups = long_row_groups(n), each = groups / ranks, more = groups % ranks;
  const int64_t from = rank * each + (rank < more ? rank : more), to = from + each + (rank < more);
  *first = from * ROW_GROUP;
  *count = (to < groups ? to * ROW_GROUP : n) - (from < groups ? *first : n);
  if (from >= groups) *first = n;
  return SMX_OK;
}

smx_status split_plan(int64_t n, int64_t ranks, const int64_t *bounds, int64_t *owned) {
  static const char verb[] = "smx_split_plan";
  const smx_status status = check_ranks(verb, n, ranks);
  if (status != SMX_OK) return status;
  if (!bounds || !owned) return smx_fail(SMX_ERR_NULL, "%s: %s is NULL", verb, bounds ? "owned" : "bounds");
  for (int64_t r = 0; r <= ranks; r++) {
    const int64_t low = r == 0 ? 0 : bounds[r - 1], high = r == 0 ? 0 : n;
    if (bounds[r] < low || bounds[r] > high || (r == ranks && bounds[r] != n))
      return smx_fail(SMX_ERR_SHAPE, "%s: bounds[%lld] is %lld, not %lld..%lld", verb, (long long)r,
                      (long long)bounds[r], (long long)(r == ranks ? n : low), (long long)high);
  }
  owned[0] = 0;
  for (int64_t r = 0; r < ranks; r++) {
    /* the group in which this rank ends: most of it is held up to this rank, or behind it */
    const int64_t end = bounds[r + 1], from = end / ROW_GROUP * ROW_GROUP,
                  to = n - from < ROW_GROUP ? n : from + ROW_GROUP;
    int64_t low = 0, high = 0;
    for (int64_t q = r; q >= 0 && bounds[q + 1] > from; q--) {
      const int64_t held = bounds[q + 1] - (bounds[q] > from ? bounds[q] : from);
      if (held > low) low = held;
    }
    for (int64_t q = r + 1; q < ranks && bounds[q] < to; q++) {
      const int64_t held = (bounds[q + 1] < to ? bounds[q + 1] : to) - bounds[q];
      if (held > high) high = held;
    }
    owned[r + 1] = low > 0 && low >= high ? to : from;
  }
  return SMX_OK;
}

/* So few that the caches keep the columns of a rank, and what the first pass makes of them, for the
 * next one; of rows too long for that, many for each message. */
int64_t split_rows(int64_t n, int64_t most) {
  enum {
    ROWS = 256,
    CACHED = 1 << 18, /* elements of a rank in a block, if a row of it has no more than LONG */
    LONG = 1 << 20,
    MOST_PARTS = 1 << 22 /* groups of all rows of a block, but for a block of one row */
  };
  const int64_t groups = n > 0 ? n / ROW_GROUP + 1 : 1, parts = MOST_PARTS / groups + 1,
                rows = parts < ROWS ? parts : ROWS;
  if (most <= 0 || most > LONG || CACHED / most >= rows) return rows;
  return CACHED / most ? CACHED / most : 1;
}

/* ---- opening ---- */

smx_split *split_no_memory(void) {
  static smx_split none = {.status = SMX_ERR_NOMEM}; /* never written */
  return &none;
}

smx_split *split_new(const char *verb, smx_context *ctx, smx_split **split, smx_status *status) {
  smx_split *const s = split ? smx_alloc(ctx, sizeof *s) : NULL;
  *status = s       ? SMX_OK
            : split ? smx_fail(SMX_ERR_NOMEM, "%s: no memory for a call", verb)
                    : smx_fail(SMX_ERR_NULL, "%s: split is NULL", verb);
  if (split) *split = s ? s : split_no_memory();
  if (!s) return NULL;
  memset(s, 0, sizeof *s);
  s->ctx = ctx, s->empty = -1;
  return s;
}

smx_status split_operation(smx_split *s, const operation_columns *columns, const split_call *c) {
  return c->backward
             ? operation_backward(&s->o, columns, c->op, c->ctx, c->params, c->n_in, c->in, c->n_out, c->out,
                                  c->dout, c->din)
             : operation_forward(&s->o, columns, c->op, c->ctx, c->params, c->n_in, c->in, c->n_out, c->out);
}

smx_status split_check_part(const char *verb, const smx_op *op, const smx_split_part *part,
                            operation_columns *columns) {
  int family;
  size_t index;
  if (!part) return smx_fail(SMX_ERR_NULL, "%s: part is NULL", verb);
  if (part->size != sizeof *part)
    return smx_fail(SMX_ERR_STRUCT, "%s: part.size is %zu, not %zu", verb, part->size, sizeof *part);
  if (part->n < 0)
    return smx_fail(SMX_ERR_SHAPE, "%s: part.n is %lld, not at least 0", verb, (long long)part->n);
  if (part->first < 0 || part->first > part->n || (part->first % ROW_GROUP && part->first != part->n))
    return smx_fail(SMX_ERR_SHAPE, "%s: part.first is %lld, not a multiple of %d up to %lld, or that", verb,
                    (long long)part->first, ROW_GROUP, (long long)part->n);
  if (part->block < 0)
    return smx_fail(SMX_ERR_PARAM, "%s: part.block is %lld, not at least 0", verb, (long long)part->block);
  if (part->slots < 0)
    return smx_fail(SMX_ERR_PARAM, "%s: part.slots is %d, not at least 0", verb, (int)part->slots);
  if (part->folders < 0)
    return smx_fail(SMX_ERR_PARAM, "%s: part.folders is %d, not at least 0", verb, (int)part->folders);
  if (part->folders && (part->folder < -1 || part->folder >= part->folders))
    return smx_fail(SMX_ERR_PARAM, "%s: part.folder is %d, not -1..%d", verb, (int)part->folder,
                    (int)part->folders - 1);
  const bool known = op && smx_op_place(op, &family, &index);
  if (known && family >= SMX_FAMILY_COUNT)
    return smx_fail(SMX_ERR_PARAM, "%s: op is %s, which is no operator on rows", verb, op->name);
  for (int32_t i = 0; known && i < op->input_count; i++)
    if (op->inputs[i].shape == SMX_SHAPE_OFFSETS)
      return smx_fail(SMX_ERR_PARAM, "%s: %s has segments, so its rows cannot be split", verb, op->name);
  *columns = (operation_columns){part->n, part->first};
  return SMX_OK;
}

/* Whether the rows can be split, and where this rank's columns end. */
static smx_status check_columns(const smx_split *s) {
  const checked *const k = &s->o.check;
  const int64_t count = k->shape[k->axis], end = k->first + count;
  if (!row_has_program(s->o.job.kernel))
    return smx_fail(SMX_ERR_PARAM, "%s: needs whole rows, so they cannot be split", k->op->name);
  if (end % ROW_GROUP && end != k->n)
    return smx_fail(
        SMX_ERR_SHAPE, "%s: shape[%d] is %lld: columns from %lld on end at %lld, not at a multiple of %d",
        k->op->name, (int)k->axis, (long long)count, (long long)k->first, (long long)end, ROW_GROUP);
  return SMX_OK;
}

/* Terms are kept where kernels write an output of own columns, and caches hold those of a block. */
enum { KEPT_MOST = 1 << 22 };
static size_t kept_of_row(const smx_split *s) {
  const job *const j = &s->o.job;
  bool writes = false;
  for (int p = 0; p < ROW_DST; p++) writes |= j->dst[p].present && j->dst[p].full;
  const size_t bytes = s->own > KEPT_MOST / ROW_GROUP ? KEPT_MOST : (size_t)split_runs(s) * split_run_kept(s);
  return writes && !s->source && !scratched(j) && bytes <= KEPT_MOST / (size_t)s->block ? bytes : 0;
}

static void divide(smx_split *s, carver *c) {
  const job *const j = &s->o.job;
  s->parts = carve(c, long_row_groups(j->n), 1, sizeof *s->parts);
  s->work = carve(c, 1, 1, (int64_t)smx_job_own(j));
  s->counts = s->weighted ? carve(c, j->rows, 1, sizeof(double)) : NULL;
  s->slot = carve(c, s->slots, 1, sizeof *s->slot);
  for (int64_t i = 0; i < s->slots && c->fits; i++) {
    char *const memory = carve(c, s->block, 1, (int64_t)s->row_bytes);
    int64_t *const which = carve(c, s->block, 1, sizeof *which);
    row_part *const parts = carve(c, s->own, s->block, sizeof *parts);
    char *const kept = s->kept_bytes ? carve(c, s->block, 1, (int64_t)s->kept_bytes) : NULL;
    if (c->base) s->slot[i] = (split_block){.memory = memory, .which = which, .parts = parts, .kept = kept};
  }
}

smx_status split_open(smx_split *s, const smx_split_part *part) {
  job *const j = &s->o.job;
  smx_status status = check_columns(s);
  if (status == SMX_OK) status = operation_open(&s->o);
  if (status != SMX_OK) return status;
  job_prepare(j);
  job_stores(j, false, false);
  s->first = (s->o.check.first + ROW_GROUP - 1) / ROW_GROUP;
  s->own = long_row_groups(s->o.check.shape[s->o.check.axis]);
  s->block = part->block && part->block < j->rows ? part->block : j->rows;
  const int64_t blocks = s->block ? (j->rows + s->block - 1) / s->block : 0;
  s->slots = part->slots ? part->slots : 1;
  s->folders = s->source ? 0 : part->folders, s->folder = part->folder;
  if (s->slots > blocks) s->slots = blocks;
  s->weighted = s->o.targets.index && s->o.targets.weights && !s->o.backward;
  const size_t cells = (size_t)(long_row_cells(j) + 1) * sizeof(double);
  s->row_bytes = smx_job_list(j) + smx_whole_lines(sizeof(split_row)) + smx_whole_lines(cells);
  s->kept_bytes = s->block ? kept_of_row(s) : 0;
  carver c = {.fits = true};
  divide(s, &c);
  s->memory = c.fits ? smx_alloc(s->ctx, (size_t)c.at + s->row_bytes) : NULL;
  if (!s->memory || !smx_scratch_open(&s->scratch, s->ctx, 0, long_row_place(j), INT64_MAX))
    return smx_fail(SMX_ERR_NOMEM, "%s: no memory for blocks of %lld rows", s->o.check.op->name,
                    (long long)s->block);
  double *const spare = (double *)(void *)(s->memory + c.at);
  c = (carver){.base = s->memory, .fits = true};
  divide(s, &c);
  s->blocks = blocks + 1;
  s->call = split_call_hash(s, spare);
  return SMX_OK;
}

void split_close(smx_split *s) {
  if (!s || s == split_no_memory()) return;
  smx_context *const ctx = s->ctx;
  operation_close(&s->o, SMX_ERR_PARAM); /* a call that was not finished */
  if (s->source) s->source->close(s->source);
  smx_scratch_close(&s->scratch);
  smx_free(ctx, s->memory);
  smx_free(ctx, s);
}
