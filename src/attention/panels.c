/* attention/panels.c - keys and values as panels of rows: packed, found and added (engine.h). */
#include "engine.h"

/* ---- packing (pack.h) ---- */

/* n rows of reals, four at a time; the last once more where there are no four. */
static inline void pack_fours(const char *const *at, int n, int64_t columns, int64_t pitch, real *out) {
  for (int r = 0; r < n; r += 4) {
    const char *p[4];
    for (int i = 0; i < 4; i++) p[i] = at[r + i < n ? r + i : n - 1];
    for (int64_t x = 0; x < columns; x += REAL_STEP)
      v_four_columns(p, x * (int64_t)sizeof *out, out + x * pitch + r, pitch);
  }
}

/* n rows, at most PACKED: out[column][row], columns `pitch` reals apart. */
static inline void pack_some(const attn_rows *m, const char *const *at, int n, int64_t columns, int64_t pitch,
                             real *out, real *buffer, ahead *next) {
  const int64_t whole = columns / COLUMNS * COLUMNS, wide = round_up(columns, COLUMNS);
  const int64_t step = n == PACKED ? at[1] - at[0] : 0;
  const char *copies[PACKED];
  if (whole == columns && m->stride == 1 && loads_directly(m->store)) {
    if (n == PACKED && rows_are_even(at, n, step)) {
      if (m->store == REAL_STORE) pack_columns(REAL_STORE, at[0], step, columns, pitch, out, next);
      else if (m->store == STORE_F16) pack_columns(STORE_F16, at[0], step, columns, pitch, out, next);
      else pack_columns(STORE_BF16, at[0], step, columns, pitch, out, next);
      return;
    }
    if (m->store == REAL_STORE) {
      pack_fours(at, n, columns, pitch, out);
      return;
    }
  }
  for (int r = 0; r < n; r++) {
    copies[r] = (const char *)(buffer + r * wide);
    dtype_load((row_store)m->store, at[r], m->stride, (size_t)columns, buffer + r * wide);
    fetch(next, next->bytes);
  }
  pack_fours(copies, n, whole, pitch, out);
  for (int64_t x = whole; x < columns; x++)
    for (int r = 0; r < round_up(n, 4); r++) out[x * pitch + r] = buffer[(r < n ? r : n - 1) * wide + x];
}

void pack_rows(const attn_rows *m, const char *const *at, int n, int64_t pitch, int64_t columns, real *out,
               real *buffer, ahead *next) {
  const int64_t blank = n / PACKED * PACKED;
  for (int64_t x = 0; x < columns && pitch >= PACKED; x++)
    for (int64_t r = blank; r < pitch; r += LANES) v_store(out + x * pitch + r, v_set1(0));
  for (int r = 0; r < PACKED && pitch < PACKED; r += LANES) v_store(out + columns * pitch + r, v_set1(0));
  if (pitch == 1) {
    if (m->stride == 1 && m->store == REAL_STORE) memcpy(out, at[0], (size_t)columns * sizeof *out);
    else dtype_load((row_store)m->store, at[0], m->stride, (size_t)columns, out);
    return;
  }
  for (int r = 0; r < n; r += PACKED) {
    const int first = n - r >= PACKED || n < PACKED ? r : n - PACKED;
    pack_some(m, at + first, n - first < PACKED ? n - first : PACKED, columns, pitch, out + first, buffer,
              next);
  }
}

/* ---- panels ---- */

const real *packed_panel(panels *s, int p) {
  real *out = s->packed + (s->keep ? p : 0) * ATTN_PANEL * s->columns;
  const char *at[ATTN_PANEL];
  ahead none = {0};
  if (s->keep && (s->is_packed >> p & 1)) return out;
  s->is_packed |= 1u << p;
  const int n = addresses(s, p, at);
  pack_rows(&s->m, at, n, panel_pitch(s, p), s->columns, out, s->buffer, s->next ? s->next : &none);
  return out;
}

void find_rows(panels *s, int p) {
  real *out = s->staged + (s->keep ? p : 0) * ATTN_PANEL * s->padded;
  const char *at[ATTN_PANEL];
  s->hand = p, s->rows = (rows_at){(const char *)out, s->padded * (int64_t)sizeof *out, REAL_STORE, s->next};
  if (s->keep && (s->is_staged >> p & 1)) return;
  if (s->padded == s->columns && (s->raw || s->m.store == REAL_STORE) && panel_as_it_lies(s, p, &s->rows))
    return;
  const int n = addresses(s, p, at);
  s->is_staged |= 1u << p;
  for (int x = 0; x < n; x++) {
    real *to = out + x * s->padded;
    dtype_load((row_store)s->m.store, at[x], s->m.stride, (size_t)s->columns, to);
    for (int64_t i = s->columns; i < s->padded; i++) to[i] = 0;
  }
}

void add_panel(const block *b, panels *s, int p, const real *weights, const uint64_t *bits, real *o,
               int64_t o_pitch) {
  int64_t from = clamp(b->low - p * ATTN_PANEL, 0, ATTN_PANEL),
          to = clamp(b->high - p * ATTN_PANEL, 0, ATTN_PANEL);
  const real *at = weights + p * ATTN_PANEL;
  const rows_at *rows = row_panel(s, p);
  if (!(b->mixed >> p & 1) || (s->finite >> p & 1)) {
    const rows_at seen = rows_from(rows, from);
    values_block(b->rows, at + from, &seen, (int)(to - from), o, o_pitch, s->padded);
    return;
  }
  for (int r = 0; r < b->rows; r++)
    for (uint64_t left = bits[r * ATTN_PANELS + p]; left; left &= left - 1) {
      int j = __builtin_ctzll(left);
      const rows_at one = rows_from(rows, j);
      values_block(1, at + r * PITCH + j, &one, 1, o + r * o_pitch, o_pitch, s->padded);
    }
}
