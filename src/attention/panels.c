/* attention/panels.c - keys and values as panels of rows, found and added (engine.h). */
#include "engine.h"

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
