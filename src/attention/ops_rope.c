/* attention/ops_rope.c - rotary position embedding (RoFormer, Su et al. 2021): pairs of columns of
 * a row are rotated by an angle each.
 *
 *     y_a = x_a cos w - x_b sin w,   y_b = x_a sin w + x_b cos w
 *
 * Angles, sines and cosines are doubles, rounded to the real type once; the heads of a row share
 * them. Compiled once per instruction set and real type. */
#include "engine.h"
#include "vec/trig.h"

/* A part of the room: numbers of a row, filled up to whole vectors. */
enum { ROOM = ATTN_ROTATE_ROOM / ATTN_ROTATE_PARTS };
enum { COSINE, SINE, FIRST, SECOND, REST, OTHER, OTHER_SECOND };
static real *part_of(const attn_rotate *t, int which) { return (real *)t->room + which * ROOM; }

void SMX_FN(attention_rotate)(const attn_rotate *t);
void SMX_FN(attention_frequencies)(double base, int64_t pairs, double *out);

/* Every `near`-th column of m, from column `first` on. */
static attn_rows columns_of(const attn_rows *m, int64_t first, int64_t near) {
  attn_rows part = *m;
  part.data += first * m->stride * store_bytes(m->store);
  part.stride *= near;
  return part;
}

/* x from row i of head g, and zeros up to a whole vector. */
static void load_part(const attn_rows *m, int64_t i, int64_t g, int64_t n, real *x) {
  dtype_load((row_store)m->store, cell(m, i, g), m->stride, (size_t)n, x);
  for (int64_t c = n; c < round_up(n, LANES); c++) x[c] = 0;
}

/* One row of one head; cross: NULL, or where the gradients of its angles go. */
static void rotate_row(const attn_rotate *t, int64_t i, int64_t g, double *cross) {
  const attn_rows xa = columns_of(&t->x, 0, t->near), xb = columns_of(&t->x, t->far, t->near),
                  rest = columns_of(&t->x, 2 * t->pairs, 1);
  const attn_rows ya = columns_of(&t->y, 0, t->near), yb = columns_of(&t->y, t->far, t->near),
                  kept = columns_of(&t->y, 2 * t->pairs, 1);
  const int64_t n = t->pairs, more = t->columns - 2 * n;
  const real *const cosine = part_of(t, COSINE), *const sine = part_of(t, SINE);
  real *const a = part_of(t, FIRST), *const b = part_of(t, SECOND), *const left = part_of(t, REST);
  load_part(&xa, i, g, n, a), load_part(&xb, i, g, n, b), load_part(&rest, i, g, more, left);
  for (int64_t p = 0; p < n; p += LANES) {
    const vreal x = v_load(a + p), y = v_load(b + p), c = v_load(cosine + p), s = v_load(sine + p);
    v_store(a + p, v_fnma(y, s, v_mul(x, c)));
    v_store(b + p, v_fma(x, s, v_mul(y, c)));
  }
  if (cross) {
    const attn_rows oa = columns_of(&t->other, 0, t->near), ob = columns_of(&t->other, t->far, t->near);
    real *const u = part_of(t, OTHER), *const v = part_of(t, OTHER_SECOND);
    load_part(&oa, i, g, n, u), load_part(&ob, i, g, n, v);
    for (int64_t p = 0; p < n; p++) cross[p] = (double)u[p] * (double)b[p] - (double)v[p] * (double)a[p];
  }
  store_clean(&ya, i, g, a, n), store_clean(&yb, i, g, b, n), store_clean(&kept, i, g, left, more);
}

void SMX_FN(attention_rotate)(const attn_rotate *t) {
  real *const cosine = part_of(t, COSINE), *const sine = part_of(t, SINE);
  for (int64_t p = t->pairs; p < round_up(t->pairs, LANES); p++) cosine[p] = sine[p] = 0;
  for (int64_t i = 0; i < t->rows; i++) {
    for (int64_t p = 0; p < t->pairs; p++) {
      double s = t->angles[i * t->pairs + p], c;
      if (t->cosines) c = t->cosines[i * t->pairs + p];
      else d_sin_cos(s, &s, &c);
      cosine[p] = (real)c, sine[p] = (real)(t->back ? -s : s);
    }
    for (int64_t g = 0; g < t->heads; g++)
      rotate_row(t, i, g, t->other.data ? t->cross + i * t->pairs : NULL);
  }
}

void SMX_FN(attention_frequencies)(double base, int64_t pairs, double *out) {
  for (int64_t p = 0; p < pairs; p++) out[p] = d_exp(-(double)p / (double)pairs * d_log(base, 0));
}
