/* ranks.c - see ranks.h. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(size_t bytes) {
  void *p = malloc(bytes + 1);
  if (!p) abort();
  return memset(p, 0xa5, bytes + 1);
}

/* How many columns a rank has of a port; -1: it has the port as a whole. */
static int64_t columns_of(const rank *a, const smx_port *port) {
  const bool full = port->shape == SMX_SHAPE_FULL || port->shape == SMX_SHAPE_COLUMN;
  return full ? a->count : -1;
}

/* Where a port's rows are in memory that has them whole, and in a rank's. */
static void shard_make(const problem *p, const rank *a, const smx_port *port, smx_dtype type, shard *s) {
  const int64_t columns = columns_of(a, port), length = columns < 0 ? port_length(p, port) : columns,
                rows = port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_SCALAR ? 1 : p->rows;
  const bool list = port->shape == SMX_SHAPE_COLUMN || port->shape == SMX_SHAPE_OFFSETS;
  *s = (shard){.there = true, .shape = {rows, length}};
  s->t = (smx_tensor){.device = {1, 0}, .dtype = type, .ndim = 2, .shape = s->shape};
  if (port->shape == SMX_SHAPE_ROW) s->t.ndim = 1;
  if (port->shape == SMX_SHAPE_SCALAR) s->t.ndim = 0;
  if (list) s->t.ndim = 1, s->shape[0] = port->shape == SMX_SHAPE_OFFSETS ? p->segments + 1 : length;
  s->t.data = allocate((size_t)(rows * length + p->segments + 1) * dtype_size(type));
}

static smx_dtype type_of(const smx_port *port, smx_dtype t) {
  return port->flags & SMX_PORT_MASK ? SMX_BOOL : port_dtype(port, t);
}

static void shard_values(const problem *p, const rank *a, const smx_port *port, shard *s, const double *x) {
  const int64_t columns = columns_of(a, port), whole = port_length(p, port),
                length = columns < 0 ? whole : columns;
  const size_t size = dtype_size(s->t.dtype);
  const int64_t rows = columns >= 0 && port->shape == SMX_SHAPE_COLUMN ? 1 : p->rows;
  if (port->shape == SMX_SHAPE_OFFSETS) {
    dtype_store_many(s->t.dtype, s->t.data, (int64_t)size, x, p->segments + 1);
    return;
  }
  for (int64_t r = 0; r < rows; r++)
    dtype_store_many(s->t.dtype, (unsigned char *)s->t.data + (size_t)(r * length) * size, (int64_t)size,
                     x + r * whole + (columns < 0 ? 0 : a->first), length);
}

/* The bytes of a port between a rank and memory that has all of it: copied, or compared. */
static bool shard_bytes(const problem *p, const rank *a, const smx_port *port, const shard *s,
                        const unsigned char *bytes, bool copy) {
  const int64_t columns = columns_of(a, port), whole = port_length(p, port),
                length = columns < 0 ? whole : columns;
  const size_t size = dtype_size(s->t.dtype);
  const int64_t rows = port->shape == SMX_SHAPE_SCALAR ? 1 : p->rows;
  for (int64_t r = 0; r < rows; r++) {
    unsigned char *const mine = (unsigned char *)s->t.data + (size_t)(r * length) * size;
    const unsigned char *const all = bytes + (size_t)(r * whole + (columns < 0 ? 0 : a->first)) * size;
    if (copy) memcpy(mine, all, (size_t)length * size);
    else if (memcmp(mine, all, (size_t)length * size)) return false;
  }
  return true;
}

static void rank_make(ranks *w, rank *a) {
  const problem *const p = w->p;
  const smx_op *const op = p->op;
  for (int i = 0; i < op->input_count; i++) {
    const smx_port *const port = op->inputs + i;
    const bool read = p->in[i] && (w->d == FORWARD || port->flags & SMX_PORT_SAVED);
    if (read) shard_make(p, a, port, type_of(port, w->type), a->in + i);
    if (read) shard_values(p, a, port, a->in + i, p->in[i]);
    if (w->d == BACKWARD && grad_port(p, i)) shard_make(p, a, port, w->type, a->din + i);
  }
  for (int o = 0; o < op->output_count; o++) {
    const smx_port *const port = op->outputs + o;
    if (w->d == FORWARD || port->flags & SMX_PORT_SAVED) {
      shard_make(p, a, port, port_dtype(port, w->type), a->out + o);
      if (w->d == BACKWARD) shard_bytes(p, a, port, a->out + o, p->out[o], true);
    }
    if (w->d == BACKWARD && has_gradient(p, o)) {
      shard_make(p, a, port, w->type, a->dout + o);
      shard_values(p, a, port, a->dout + o, p->dout[o]);
    }
  }
}

void ranks_make(ranks *w, const problem *p, direction d, smx_dtype type, int count, const int64_t *cuts) {
  *w = (ranks){.p = p, .d = d, .type = type, .count = count};
  for (int r = 0; r < count; r++) {
    w->at[r].first = cuts[r], w->at[r].count = cuts[r + 1] - cuts[r];
    rank_make(w, w->at + r);
  }
}

void ranks_free(ranks *w) {
  for (int r = 0; r < w->count; r++)
    for (int i = 0; i < SMX_MAX_PORTS; i++) {
      free(w->at[r].in[i].t.data), free(w->at[r].out[i].t.data);
      free(w->at[r].dout[i].t.data), free(w->at[r].din[i].t.data);
    }
}

void shard_tensors(const shard *s, const smx_tensor **t) {
  for (int i = 0; i < SMX_MAX_PORTS; i++) t[i] = s[i].there ? &s[i].t : NULL;
}

void rank_open(ranks *w, int r) {
  rank *const a = w->at + r;
  const smx_op *const op = w->p->op;
  const smx_tensor *in[SMX_MAX_PORTS], *out[SMX_MAX_PORTS], *dout[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
  const smx_split_part part = {
      sizeof part, w->p->n, a->first, w->block, w->slots, w->by_rows ? w->count : 0, r};
  smx_params params = w->p->params;
  params.axis = -1;
  shard_tensors(a->in, in), shard_tensors(a->out, out), shard_tensors(a->dout, dout),
      shard_tensors(a->din, din);
  a->opened = w->d == FORWARD ? smx_split_forward(op, a->ctx, &params, op->input_count, in, op->output_count,
                                                  out, &part, &a->split)
                              : smx_split_backward(op, a->ctx, &params, op->input_count, in, op->output_count,
                                                   out, dout, din, &part, &a->split);
  a->status = SMX_OK;
}

/* The states of ranks that pass one after another. */
static void carry(ranks *w, int64_t block, int from, int to, unsigned char **state, size_t *bytes) {
  if (from >= 0) {
    *bytes = 0;
    if (smx_split_carry(w->at[from].split, block, 0, NULL, bytes) != SMX_OK) abort();
    free(*state);
    *state = allocate(*bytes);
    if (smx_split_carry(w->at[from].split, block, 0, *state, bytes) != SMX_OK) abort();
  }
  if (to >= 0 && smx_split_carry(w->at[to].split, block, 1, *state, bytes) != SMX_OK) abort();
}

static int64_t groups_of(const rank *a) { return (a->count + SMX_SPLIT_GROUP - 1) / SMX_SPLIT_GROUP; }

/* Every rank's message has a part for each; every rank folds what is for it. */
static void scattered_round(ranks *w, int64_t block, spoiler *spoil, void *user) {
  smx_split *one = w->at[0].split;
  unsigned char *messages[RANKS_MOST], *from[RANKS_MOST];
  w->rounds++, w->scattered++;
  for (int r = 0; r < w->count; r++) {
    from[r] = messages[r] = allocate(smx_split_bytes(one, block, groups_of(w->at + r)));
    if (smx_split_next(w->at[r].split, block) != SMX_SPLIT_SCATTER) abort();
    if (smx_split_pass(w->at[r].split, block, messages[r]) != SMX_OK) abort();
  }
  for (int to = 0; to < w->count; to++) {
    size_t all = 0;
    for (int r = 0; r < w->count; r++) all += smx_split_bytes_for(one, block, groups_of(w->at + r), to);
    unsigned char *const come = allocate(all), *next = come;
    for (int r = 0; r < w->count; r++) {
      const size_t bytes = smx_split_bytes_for(w->at[to].split, block, groups_of(w->at + r), to);
      memcpy(next, from[r], bytes);
      from[r] += bytes, next += bytes;
    }
    if (spoil) spoil(user, w, block, come, &all);
    /* sizes are asked of a rank that has not folded yet */
    one = w->at[to + 1 < w->count ? to + 1 : to].split;
    w->at[to].status = smx_split_fold(w->at[to].split, block, come, all);
    free(come);
  }
  for (int r = 0; r < w->count; r++) free(messages[r]);
}

static void one_round(ranks *w, int64_t block, spoiler *spoil, void *user) {
  const int32_t next = smx_split_next(w->at[0].split, block);
  const bool relay = next == SMX_SPLIT_RELAY || next == SMX_SPLIT_RELAY_BACK;
  size_t at[RANKS_MOST + 1] = {0}, room = 0, *bytes = &room;
  unsigned char *state = NULL;
  for (int r = 0; r < w->count; r++)
    at[r + 1] = at[r] + smx_split_bytes_for(w->at[0].split, block, groups_of(w->at + r), r);
  unsigned char *const messages = allocate(at[w->count]);
  size_t all = at[w->count];
  w->rounds++, w->relays += relay;
  for (int i = 0; i < w->count; i++) {
    const int r = next == SMX_SPLIT_RELAY_BACK ? w->count - 1 - i : i,
              before = r + (next == SMX_SPLIT_RELAY ? -1 : 1);
    if (relay && i > 0) carry(w, block, before, r, &state, bytes);
    if (smx_split_next(w->at[r].split, block) != next) abort();
    w->at[r].status = smx_split_pass(w->at[r].split, block, messages + at[r]);
  }
  const int last = next == SMX_SPLIT_RELAY ? w->count - 1 : 0;
  if (relay) carry(w, block, last, -1, &state, bytes);
  for (int r = 0; r < w->count && relay; r++)
    if (r != last) carry(w, block, -1, r, &state, bytes);
  if (spoil) spoil(user, w, block, messages, &all);
  for (int r = 0; r < w->count; r++) w->at[r].status = smx_split_fold(w->at[r].split, block, messages, all);
  free(messages), free(state);
}

void ranks_run(ranks *w, spoiler *spoil, void *user) {
  for (bool going = true; going;) {
    going = false;
    for (int64_t b = 0; b < smx_split_blocks(w->at[0].split); b++) {
      const int32_t next = smx_split_next(w->at[0].split, b);
      if (next == SMX_SPLIT_DONE || next == SMX_SPLIT_LATER) continue;
      going = true;
      if (next == SMX_SPLIT_SCATTER) scattered_round(w, b, spoil, user);
      else one_round(w, b, spoil, user);
      for (int r = 0; r < w->count; r++)
        if (w->at[r].status != SMX_OK) return;
    }
  }
}

void ranks_close(ranks *w) {
  for (int r = 0; r < w->count; r++) smx_split_close(w->at[r].split), w->at[r].split = NULL;
}

const smx_port *rank_difference(const ranks *w, int r) {
  const problem *const p = w->p;
  const smx_op *const op = p->op;
  const rank *const a = w->at + r;
  for (int o = 0; w->d == FORWARD && o < op->output_count; o++)
    if (!shard_bytes(p, a, op->outputs + o, a->out + o, p->out[o], false)) return op->outputs + o;
  for (int i = 0; w->d == BACKWARD && i < op->input_count; i++)
    if (a->din[i].there && !shard_bytes(p, a, op->inputs + i, a->din + i, p->din[i], false))
      return op->inputs + i;
  return NULL;
}

void ranks_cut(rng *r, int64_t n, int count, int how, int64_t *bounds, int64_t *owned) {
  bounds[0] = 0, bounds[count] = n;
  for (int i = 1; i < count; i++) {
    int64_t ignored;
    if (how == 0) {
      if (smx_split_shard(n, count, i, bounds + i, &ignored) != SMX_OK) abort();
    } else {
      bounds[i] = how == 3 ? 0 : how == 2 && i % 2 == 0 ? bounds[i - 1] : rng_below(r, n + 1);
    }
  }
  for (int i = 2; i < count; i++) /* a few: insertion sort */
    for (int k = i; k > 1 && bounds[k - 1] > bounds[k]; k--) {
      const int64_t swap = bounds[k];
      bounds[k] = bounds[k - 1], bounds[k - 1] = swap;
    }
  if (smx_split_plan(n, count, bounds, owned) != SMX_OK) abort();
}
