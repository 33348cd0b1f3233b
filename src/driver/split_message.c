/* driver/split_message.c - what travels between ranks: heads, and whether messages belong to the
 * same call, round and library. */
#include "split.h"
#include <softmax/split.h>

/* "SMX1" as a number, which other byte orders read otherwise; and what must be alike in the
 * libraries of all ranks: parts and states travel as they lie in memory. */
enum { MAGIC = 0x534d5831, FORMAT = 1 };

static uint64_t hash(uint64_t h, const void *bytes, size_t count) {
  const unsigned char *p = bytes;
  for (size_t i = 0; i < count; i++) h = (h ^ p[i]) * 0x100000001b3u;
  return h;
}
#define HASH(h, value) (h) = hash((h), &(value), sizeof(value))

static uint32_t version(void) {
  const uint32_t facts[] = {FORMAT,
                            SMX_VERSION_MAJOR,
                            SMX_VERSION_MINOR,
                            SMX_VERSION_PATCH,
                            (uint32_t)sizeof(row_part),
                            (uint32_t)sizeof(row_state),
                            (uint32_t)sizeof(split_head)};
  uint64_t h = 0xcbf29ce484222325u;
  HASH(h, facts);
  return (uint32_t)(h ^ h >> 32);
}

split_head split_head_of(const smx_split *s, int64_t block, int kind) {
  const split_block *const b = block > 0 ? split_slot(s, block) : NULL;
  const bool elements = s->o.counted.about == SMX_MEAN_ELEMENTS;
  split_head h = {.magic = MAGIC,
                  .version = version(),
                  .call = s->call,
                  .block = block,
                  .round = b ? b->round : s->opening,
                  .first = s->first,
                  .groups = s->own,
                  .elements = elements ? s->o.counted.total : 0,
                  .status = s->status,
                  .kind = kind};
  if (b && b->next == SMX_SPLIT_STATES) {
    const bool folds = s->folder >= 0;
    h.first = folds ? split_folder_row(s, b, s->folder) : 0;
    h.groups = folds ? split_folder_row(s, b, s->folder + 1) - h.first : 0;
    h.status = b->failed;
  }
  return h;
}

/* Whether this library can read it. */
static smx_status check_version(const split_head *h, long long number) {
  if (h->magic != MAGIC)
    return smx_fail(SMX_ERR_BACKEND, "smx_split: message %lld is none of a split", number);
  if (h->version != version())
    return smx_fail(SMX_ERR_BACKEND, "smx_split: message %lld is of version %08x, not %08x", number,
                    (unsigned)h->version, (unsigned)version());
  return SMX_OK;
}

smx_status split_check_head(const smx_split *s, int64_t block, int kind, const split_head *h, int64_t which) {
  const split_head own = split_head_of(s, block, kind);
  const long long number = (long long)which;
  const smx_status status = check_version(h, number);
  if (status != SMX_OK) return status;
  if (h->call != own.call)
    return smx_fail(SMX_ERR_BACKEND,
                    "smx_split: message %lld is of another call: op, shape, parameter or small input",
                    number);
  if (h->block != block || h->round != own.round || h->kind != kind)
    return smx_fail(SMX_ERR_BACKEND,
                    "smx_split: message %lld is of block %lld, round %lld, not of %lld, %lld", number,
                    (long long)h->block, (long long)h->round, (long long)block, (long long)own.round);
  return SMX_OK;
}

uint64_t split_call_hash(const smx_split *s, double *cells) {
  const job *const j = &s->o.job;
  const size_t inputs = (size_t)long_row_inputs(j) * sizeof *cells;
  uint64_t h = 0xcbf29ce484222325u;
  HASH(h, s->o.check.op->id);
  HASH(h, s->o.backward);
  HASH(h, j->n);
  HASH(h, j->rows);
  HASH(h, j->is_f64);
  HASH(h, j->call.inputs);
  HASH(h, j->call.outputs);
  HASH(h, j->call.on_empty);
  HASH(h, j->call.on_inf);
  HASH(h, s->o.check.params.value);
  HASH(h, s->o.check.has_out);
  HASH(h, s->block);
  HASH(h, s->slots);
  HASH(h, s->folders);
  if (s->source) HASH(h, s->source->facts);
  memset(cells, 0, inputs); /* floats fill half of a cell */
  for (int64_t row = 0; row < j->rows && inputs; row++) {
    long_row_open(j, row, cells);
    h = hash(h, cells, inputs);
  }
  return h;
}

bool split_walk_on(const smx_split *s, int64_t block, split_walk *w) {
  if (w->left < sizeof w->head) return false;
  memcpy(&w->head, w->at, sizeof w->head);
  const split_block *const b = split_under_way(s, block);
  const bool states = b && b->next == SMX_SPLIT_STATES;
  const int64_t groups = w->head.groups, most = states ? b->taking : long_row_groups(s->o.job.n);
  if (groups < 0 || groups > most) return false;
  const size_t bytes = states ? split_states_bytes(s, groups) : split_bytes(s, block, groups, s->folder);
  if (bytes > w->left) return false;
  w->body = w->at + sizeof w->head;
  w->at += bytes, w->left -= bytes;
  return true;
}

/* The first status that is not SMX_OK. Only openings tell one, and there a message is a head. */
static smx_status check_statuses(const smx_split *s, const char *at, size_t bytes) {
  smx_status failed = SMX_OK;
  for (size_t i = 0; i < bytes / sizeof(split_head); i++) {
    split_head h;
    memcpy(&h, at + i * sizeof h, sizeof h);
    const smx_status status = check_version(&h, (long long)i);
    if (status != SMX_OK) return status;
    if (failed != SMX_OK || h.status == SMX_OK) continue;
    failed = (smx_status)h.status;
    if (failed != s->status) /* else there is a text that says more */
      smx_fail(failed, "smx_split: message %zu: %s", i, smx_strerror(failed));
  }
  return failed;
}

smx_status split_check(const smx_split *s, int64_t block, const void *messages, size_t bytes) {
  split_walk w = {.at = messages, .left = bytes};
  int64_t next = 0;
  const split_block *const b = split_under_way(s, block);
  const bool states = b && b->next == SMX_SPLIT_STATES;
  const int64_t most = states ? b->taking : long_row_groups(s->o.job.n);
  const char *const what = states ? "rows" : "groups";
  smx_status status = block == 0 && s->opening == 0 ? check_statuses(s, messages, bytes) : SMX_OK;
  if (status == SMX_OK) status = s->status;
  for (int64_t i = 0; status == SMX_OK && w.left >= sizeof w.head; i++) {
    memcpy(&w.head, w.at, sizeof w.head);
    status = split_check_head(s, block, SPLIT_MESSAGE, &w.head, i);
    if (status == SMX_OK && (w.head.first != next || !split_walk_on(s, block, &w)))
      status =
          smx_fail(SMX_ERR_BACKEND, "smx_split: message %lld has %lld %s from %lld on, %lld were next",
                   (long long)i, (long long)w.head.groups, what, (long long)w.head.first, (long long)next);
    if (status == SMX_OK && states && w.head.status != SMX_OK)
      status = smx_fail((smx_status)w.head.status, "smx_split: message %lld: %s", (long long)i,
                        smx_strerror((smx_status)w.head.status));
    next += w.head.groups;
  }
  if (status == SMX_OK && (w.left || next != most))
    return smx_fail(SMX_ERR_BACKEND, "smx_split: %zu bytes have %lld %s, not %lld", bytes, (long long)next,
                    what, (long long)most);
  return status;
}
