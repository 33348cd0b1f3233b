/* head/ops.c - products of matrices by tiles that stay in registers and the first-level cache
 * (head.h). Compiled once per instruction set and real type. */
#include "engine/dtype_io.h"
#include "engine/loops.h"
#include "head.h"
#include "vec/columns.h"

/* Rows and vectors of a tile in registers: 6 x 4 where there are 32 registers of 64 bytes, 6 x 1
 * elsewhere; where FMA is emulated, few, so that there is little code. */
#if defined(V_PORTABLE)
enum { HIGH = 2, WIDE = 1, ALONE = 1 };
#elif defined(__AVX512F__)
enum { HIGH = 6, WIDE = 4, ALONE = 4 };
#else
enum { HIGH = 6, WIDE = 1, ALONE = 4 }; /* a row alone has more vectors, or it waits for each FMA */
#endif
enum { SUMS = HIGH * WIDE > ALONE ? HIGH *WIDE : ALONE };
#define EACH_ROW(r, n) _Pragma("GCC unroll 6") for (int r = 0; r < (n); r++)
#define EACH_VECTOR(v) _Pragma("GCC unroll 4") for (int v = 0; v < wide; v++)

/* Adds chains to their sums: those of some rows and columns from x on. */
NOINLINE void add_chains(const head_product *p, int64_t row, int rows, int wide, int x, const real *chain) {
  const vreal factor = v_set1((real)p->factor);
  for (int r = 0; r < rows; r++, chain += wide * LANES) {
    real *const c = (real *)p->c + (row + r) * p->c_row + x;
    for (int v = 0; v < wide * LANES && x + v < p->columns; v += LANES) {
      const int cnt = lanes_left((size_t)(p->columns - x - v));
      vreal sum = v_load(chain + v);
      if (!p->first) sum = v_add(at(c, (size_t)v, cnt), sum);
      if (p->last) sum = v_clean(v_mul(sum, factor));
      put(c, (size_t)v, cnt, sum);
    }
  }
}

/* One term of the chains of `rows` rows and `wide` vectors of columns. */
SMI void add_term(int rows, int wide, const head_product *p, const real *a, const real *b, vreal *sum) {
  vreal at_k[ALONE];
  EACH_VECTOR(v) at_k[v] = v_load(b + v * LANES);
  EACH_ROW(r, rows) {
    const vreal one = v_set1(a[r * p->a_row]);
    EACH_VECTOR(v) sum[r * wide + v] = v_fma(one, at_k[v], sum[r * wide + v]);
  }
}

/* How many lines of p->fetch have been prefetched before `row`: as late as may be, LINES beside
 * each HIGH rows and the last ones two parts before the end. Lines that come early are evicted
 * again, and of many prefetches at once the processor drops some. */
enum { LINES = 32, LINES_A_ROW = HEAD_PANEL * sizeof(real) / 64 };
SMI int64_t lines_before(const head_product *p, int64_t row) {
  const int64_t lines = p->fetch.at ? p->fetch.rows * LINES_A_ROW : 0,
                begun = lines - LINES * ((p->rows - row) / HIGH - 2);
  return begun < 0 ? 0 : begun < lines ? begun : lines;
}
/* Inlined: GCC drops a call of a function that only prefetches, which to it has no effect. */
SMI void fetch_line(const head_fetch *f, int64_t line) {
  v_prefetch(f->at + line / LINES_A_ROW * f->step + line % LINES_A_ROW * 64);
}

/* Four terms at a time keep the multipliers of a Xeon busier (Sapphire Rapids, in the first-level
 * cache: 153 and 173 GFLOP/s, where independent FMAs on constants reach 237). */
SMI void product_part(int rows, int wide, const head_product *p, int64_t row, int x) {
  const real *a = (const real *)p->a + row * p->a_row, *b = (const real *)p->b + x;
  real *const c = (real *)p->c + row * p->c_row + x, chain[SUMS * LANES] __attribute__((aligned(64)));
  vreal sum[SUMS];
  int64_t k = 0;
  EACH_ROW(r, rows) EACH_VECTOR(v) if (!p->first) v_prefetch(c + r * p->c_row + v * LANES);
  EACH_ROW(r, rows) EACH_VECTOR(v) sum[r * wide + v] = v_set1(0);
  int64_t line = lines_before(p, row);
  const int64_t end = x ? line : lines_before(p, row + HIGH);
  for (; rows == HIGH && k + 4 <= p->depth; k += 4) {
    for (int i = 0; i < 2 && line < end; i++) fetch_line(&p->fetch, line++);
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++, a += p->a_depth, b += HEAD_PANEL)
        add_term(rows, wide, p, a, b, sum);
  }
  for (; k < p->depth; k++, a += p->a_depth, b += HEAD_PANEL) add_term(rows, wide, p, a, b, sum);
  if (p->last || p->columns - x < wide * LANES) {
    EACH_ROW(r, rows) EACH_VECTOR(v) v_store(chain + (r * wide + v) * LANES, sum[r * wide + v]);
    add_chains(p, row, rows, wide, x, chain);
    return;
  }
  /* all are read before the first is written: rows may be a multiple of 4096 bytes apart */
  EACH_ROW(r, rows) EACH_VECTOR(v) {
    vreal *const s = sum + r * wide + v;
    if (!p->first) *s = v_add(v_load(c + r * p->c_row + v * LANES), *s);
  }
  EACH_ROW(r, rows) EACH_VECTOR(v) v_store(c + r * p->c_row + v * LANES, sum[r * wide + v]);
}
SMI void product_rows(int rows, const head_product *p, int64_t row) {
  const int wide = rows == 1 ? ALONE : WIDE;
  for (int x = 0; x < p->columns; x += wide * LANES) product_part(rows, wide, p, row, x);
}

static void product(const head_product *p) {
  int64_t row = 0;
  for (; p->rows - row >= HIGH; row += HIGH) product_rows(HIGH, p, row);
  if (HIGH > 4 && p->rows - row >= 4) product_rows(4, p, row), row += 4;
  if (HIGH > 2 && p->rows - row >= 2) product_rows(2, p, row), row += 2;
  if (p->rows - row == 1) product_rows(1, p, row);
}

/* ---- packing ---- */

static bool is_real(const head_tile *t) {
  return t->store == (SMX_REAL == 32 ? STORE_F32 : STORE_F64) && t->column == 1;
}

static void load_rows(const head_tile *t, real *out) {
  for (int64_t r = 0; r < t->rows; r++, out += HEAD_PANEL) {
    const char *from = t->data + r * t->row;
    if (t->columns == HEAD_PANEL && is_real(t)) {
      memcpy(out, from, HEAD_PANEL * sizeof *out);
      continue;
    }
    dtype_load((row_store)t->store, from, t->column, (size_t)t->columns, out);
    for (int64_t x = t->columns; x < HEAD_PANEL; x++) out[x] = 0;
  }
}

/* A tile that is turned is copied first: its rows are often a multiple of 4096 bytes apart, and
 * then all of them have one set of the first-level cache. */
static void pack(const head_tile *t) {
  real *const tile = t->tile, *const rows = t->turned ? t->room : tile;
  load_rows(t, rows);
  if (!t->turned) return;
  memset(rows + t->rows * HEAD_PANEL, 0, (size_t)((HEAD_PANEL - t->rows) * HEAD_PANEL) * sizeof(real));
  for (int64_t k = 0; k < t->columns; k += REAL_STEP)
    for (int r = 0; r < HEAD_PANEL; r += LANES) {
      vreal columns[REAL_STEP];
      v_columns((const char *)(rows + r * HEAD_PANEL + k), HEAD_PANEL * (int64_t)sizeof(real), columns);
      _Pragma("GCC unroll 4") for (int i = 0; i < REAL_STEP; i++)
          v_store(tile + (k + i) * HEAD_PANEL + r, columns[i]);
    }
}

/* ---- what else is done to rows ---- */

#define EACH_PART(i, n) for (int64_t i = 0, cnt; cnt = lanes_left((size_t)((n)-i)), i < (n); i += LANES)

static void finish(void *scores, int64_t n, double scale, const void *bias, double cap) {
  real *const z = scores;
  EACH_PART(i, n) {
    vreal x = v_mul(at(z, (size_t)i, (int)cnt), v_set1((real)scale));
    if (bias) x = v_add(x, at(bias, (size_t)i, (int)cnt));
    if (cap > 0) x = v_mul(v_set1((real)cap), v_tanh(v_div(x, v_set1((real)cap))));
    put(z, (size_t)i, (int)cnt, v_clean(x));
  }
}

static void uncap(void *gradient, const void *scores, int64_t n, double cap) {
  real *const dz = gradient;
  EACH_PART(i, n) {
    const vreal t = v_div(at(scores, (size_t)i, (int)cnt), v_set1((real)cap));
    const vreal g = at(dz, (size_t)i, (int)cnt);
    put(dz, (size_t)i, (int)cnt, v_mul(g, v_fnma(t, t, v_set1(1))));
  }
}

static void sum_rows(const void *x, int64_t row, int64_t rows, int64_t n, void *sums, bool first, bool last) {
  real *const to = sums;
  EACH_PART(i, n) {
    vreal sum = v_set1(0);
    for (int64_t r = 0; r < rows; r++) sum = v_add(sum, at((const real *)x + r * row, (size_t)i, (int)cnt));
    if (!first) sum = v_add(at(to, (size_t)i, (int)cnt), sum);
    put(to, (size_t)i, (int)cnt, last ? v_clean(sum) : sum);
  }
}

static void round_sums(const double *sum, double factor, int64_t n, void *out) {
  for (int64_t i = 0; i < n; i++) ((real *)out)[i] = r_clean(sum[i] * factor);
}

#if SMX_REAL == 64
#define CHAIN &SMX_FN(head_chain)
#else
#define CHAIN NULL
#endif
const head_kernels SMX_FN(head_kernels) = {pack, product, finish, uncap, sum_rows, round_sums, CHAIN};
