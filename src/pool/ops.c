/* pool/ops.c - maxima and means of windows (pool.h). Compiled once per instruction set and real
 * type. A vector has the same cell of LANES windows side by side: neighbours in a row, or channels
 * where these are the last dimension. */
#include "ada.h"
#include "cells.h"
#include "math.h"
#include "soft.h"
#include "wide.h"

/* What is known of the windows of a vector. */
typedef struct fold {
  vreal most, place; /* the largest, and how far it is from the first cell, in cells of a plane */
  vmask good;        /* no NaN so far */
  v_wide sum;
} fold;

typedef enum what { LARGEST, PLACES, SUM } what;

SMI fold begin(void) {
  fold a = {.most = v_set1(-R_INF), .place = v_set1(0), .sum = v_wide_zero()};
  a.good = v_eq(a.place, a.place);
  return a;
}

/* The next cell of every window. A place does not matter once there was a NaN. */
SMI void take(what kind, fold *a, vreal x, int64_t distance) {
  if (kind == SUM) {
    a->sum = v_wide_add(a->sum, v_widen(x));
    return;
  }
  a->good = m_and(a->good, v_eq(x, x));
  if (kind == PLACES) a->place = v_select(v_lt(a->most, x), v_set1((real)distance), a->place);
  a->most = v_max(x, a->most);
}

/* Windows 2 or 3 apart have so many neighbours in one go; the last of an odd number is in the same
 * pair as the one before. Returns how many cells were taken. */
SMI int64_t take_pairs(what kind, fold *a, const line *l) {
  vreal x[2];
  int64_t j = 0;
  for (; j + 2 <= l->cells; j += 2) {
    split(l->p + j, 2, l->cnt, x);
    take(kind, a, x[0], l->distance + j * l->between);
    take(kind, a, x[1], l->distance + (j + 1) * l->between);
  }
  if (j == 0 || j == l->cells) return j;
  split(l->p + j - 1, 2, l->cnt, x);
  take(kind, a, x[1], l->distance + j * l->between);
  return j + 1;
}
SMI int64_t take_thirds(what kind, fold *a, const line *l) {
  vreal x[3];
  int64_t j = 0;
  for (; j + 3 <= l->cells; j += 3) {
    split(l->p + j, 3, l->cnt, x);
    for (int u = 0; u < 3; u++) take(kind, a, x[u], l->distance + (j + u) * l->between);
  }
  return j;
}

SMI void take_line(what kind, fold *a, const line *l) {
  int64_t j = 0;
  if (l->step == 1) {
    for (; j < l->cells; j++) take(kind, a, at(l->p + j * l->apart, 0, l->cnt), l->distance + j * l->between);
    return;
  }
  if (SMX_REAL == 32 && l->apart == 1) {
    if (l->step == 2) j = take_pairs(kind, a, l);
    else if (l->step == 3 && kind != PLACES) j = take_thirds(kind, a, l);
  }
  for (; j < l->cells; j++)
    take(kind, a, spaced(l->p + j * l->apart, l->step, l->cnt), l->distance + j * l->between);
}

SMI fold take_windows(what kind, const pool_windows *w, const real *x, int cnt) {
  fold a = begin();
  for (int64_t d = 0; d < w->cells[0]; d++)
    for (int64_t h = 0; h < w->cells[1]; h++) {
      const line l = line_at(w, x, d, h, cnt);
      take_line(kind, &a, &l);
    }
  return a;
}

/* The same of windows that lie side by side, as those of channels do. */
SMI fold take_neighbours(what kind, const pool_windows *w, const real *x, int cnt) {
  fold a = begin();
  for (int64_t d = 0; d < w->cells[0]; d++, x += w->apart[0]) {
    const real *high = x;
    for (int64_t h = 0; h < w->cells[1]; h++, high += w->apart[1]) {
      const real *p = high;
      int64_t distance = d * w->between[0] + h * w->between[1];
      for (int64_t j = 0; j < w->cells[2]; j++, p += w->apart[2], distance += w->between[2])
        take(kind, &a, at(p, 0, cnt), distance);
    }
  }
  return a;
}

SMI vreal largest_of(const fold *a) { return v_select(a->good, v_flush_tiny(a->most), v_set1(r_nan())); }

SMI void put_places(const fold *a, int64_t at, int64_t number, int cnt, int64_t *index) {
  real place[LANES]; /* below 0: there is none */
  const vmask some = m_and(a->good, v_lt(v_set1(-R_INF), a->most));
  v_store(place, v_select(some, a->place, v_set1(-1)));
  for (int i = 0; i < cnt; i++, at += number) {
    const int64_t own = (int64_t)place[i];
    index[i] = own < 0 ? -1 : at + own;
  }
}

/* Divisions by a power of two are exact products. */
SMI v_wide divided(const fold *a, const pool_windows *w) {
  return w->exact ? v_wide_mul(a->sum, w->inverse) : v_wide_div(a->sum, w->divisor);
}
SMI vreal mean_of(const fold *a, const pool_windows *w) { return v_clean(v_narrow(divided(a, w))); }

/* `rows` rows of windows from number r on, which begin at x. stream: outputs are whole lines of
 * memory. */
typedef struct part {
  const pool_windows *w;
  int64_t r, rows, count;
  const real *x;
  real *y;
  int64_t *index;
  bool stream;
} part;

enum { AHEAD = 4096 }; /* bytes that are fetched before they are wanted, of what no cache holds */
SMI void fetch_ahead(const real *x) { v_prefetch((const char *)x + AHEAD); }
SMI void put_whole(bool stream, real *y, vreal v) {
  if (stream) v_stream(y, v);
  else v_store(y, v);
}

SMI void next_row(part *p) {
  p->r++, p->rows--, p->x += p->w->row_step, p->y += p->w->pitch;
  if (p->index) p->index += p->w->pitch;
}
/* Windows of 2 x 2 neighbours, which lie side by side. */
SMI void four_cells(what kind, part p) {
  const bool far = p.w->far, stream = p.stream;
  for (; p.rows > 0; next_row(&p)) {
    const real *x[4] = {p.x, p.x + p.w->apart[2], p.x + p.w->apart[1], p.x + p.w->apart[1] + p.w->apart[2]};
    for (int64_t i = 0; i < p.count; i = next_whole(p.count, i)) {
      fold a = begin();
      if (far) fetch_ahead(x[0] + i), fetch_ahead(x[1] + i), fetch_ahead(x[2] + i), fetch_ahead(x[3] + i);
      a.sum = v_widen_at(x[0] + i);
      _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
        if (kind == LARGEST) take(kind, &a, v_load(x[k] + i), 0);
        else if (k > 0) a.sum = v_wide_add(a.sum, v_widen_at(x[k] + i));
      }
      put_whole(stream, p.y + i, kind == SUM ? mean_of(&a, p.w) : largest_of(&a));
    }
  }
}

/* Windows that are two neighbours wide and 2 apart: the lines of all windows become one, whose
 * neighbours are then compared. */
SMI vreal or_nan(const fold *a) { return v_select(a->good, a->most, v_set1(r_nan())); }
SMI vreal largest_of_pairs(const pool_windows *w, int64_t deep, int64_t tall, bool far, const real *x) {
  fold low = begin(), high = begin();
  for (int64_t d = 0; d < deep; d++)
    for (int64_t h = 0; h < tall; h++) {
      const real *from = x + d * w->apart[0] + h * w->apart[1];
      if (far) fetch_ahead(from), fetch_ahead(from + LANES);
      take(LARGEST, &low, v_load(from), 0), take(LARGEST, &high, v_load(from + LANES), 0);
    }
  const vreal in[2] = {or_nan(&low), or_nan(&high)};
  vreal out[2];
  v_split_2(in, out);
  const vmask good = m_and(v_eq(out[0], out[0]), v_eq(out[1], out[1]));
  return v_select(good, v_flush_tiny(v_max(out[1], out[0])), v_set1(r_nan()));
}
SMI vreal mean_of_pairs(const pool_windows *w, int64_t deep, int64_t tall, bool far, const real *x) {
  fold a = begin();
  v_wide cells[2];
  for (int64_t d = 0; d < deep; d++) _Pragma("GCC unroll 2") for (int64_t h = 0; h < tall; h++) {
      const real *from = x + d * w->apart[0] + h * w->apart[1];
      if (far) fetch_ahead(from), fetch_ahead(from + LANES);
      v_widen_pairs(from, cells);
      a.sum = v_wide_add(d + h == 0 ? cells[0] : v_wide_add(a.sum, cells[0]), cells[1]);
    }
  return v_clean(v_narrow_pairs(divided(&a, w)));
}
SMI void pairs_of(what kind, part p, int64_t deep, int64_t tall) {
  const bool far = p.w->far, stream = p.stream;
  for (; p.rows > 0; next_row(&p))
    for (int64_t i = 0; i < p.count; i = next_whole(p.count, i)) {
      const real *x = p.x + 2 * i;
      put_whole(stream, p.y + i,
                kind == SUM ? mean_of_pairs(p.w, deep, tall, far, x)
                            : largest_of_pairs(p.w, deep, tall, far, x));
    }
}
SMI void pairs(what kind, const part *p) {
  const int64_t *cells = p->w->cells;
  if (kind == SUM && cells[0] == 1 && cells[1] == 2) pairs_of(kind, *p, 1, 2);
  else pairs_of(kind, *p, cells[0], cells[1]);
}

SMI void put_any(what kind, const part *p, const fold *a, int64_t i, int cnt) {
  const pool_windows *w = p->w;
  put(p->y + i, 0, cnt, kind == SUM ? mean_of(a, w) : largest_of(a));
  if (kind == PLACES)
    put_places(a, w->at + p->r * w->row_number + i * w->number, w->number, cnt, p->index + i);
}
SMI void any_cells(what kind, part p) {
  for (; p.rows > 0; next_row(&p)) {
    int64_t i = 0;
    for (; p.w->step == 1 && i + LANES <= p.count; i += LANES) {
      const fold a = take_neighbours(kind, p.w, p.x + i, LANES);
      put_any(kind, &p, &a, i, LANES);
    }
    for (; i < p.count; i += LANES) {
      const int cnt = lanes_left((size_t)(p.count - i));
      const fold a = take_windows(kind, p.w, p.x + i * p.w->step, cnt);
      put_any(kind, &p, &a, i, cnt);
    }
  }
}

SMI void all_cells(what kind, const part *p) {
  const pool_windows *w = p->w;
  const bool two = kind != PLACES && p->count >= LANES && w->cells[2] == 2;
  if (two && w->step == 1 && w->cells[1] == 2 && w->cells[0] == 1) four_cells(kind, *p);
  else if (two && w->step == 2 && w->apart[2] == 1) pairs(kind, p);
  else any_cells(kind, *p);
}
NOINLINE void part_of_largest(const part *p) { all_cells(LARGEST, p); }
NOINLINE void part_of_places(const part *p) { all_cells(PLACES, p); }
NOINLINE void part_of_means(const part *p) { all_cells(SUM, p); }
typedef void part_fn(const part *p);

/* What no cache will hold is written by streaming stores, if its vectors are lines of memory.
 * Others would have to wait in the first-level cache for whole lines, which is slower than ordinary
 * stores. */
static void each(const pool_windows *w, const real *x, real *y, int64_t *index, part_fn *one) {
  const bool stream = w->far && w->step == 1 && (w->count | w->pitch) % LANES == 0 && (uintptr_t)y % 64 == 0;
  const part p = {w, 0, w->rows, w->count, x, y, index, stream};
  one(&p);
  if (stream) v_stream_end();
}

/* Large windows of channels line by line, so that memory is read in its order: y has what is
 * known. */
enum { TALL = 64 };
static void tall(const pool_windows *w, const real *x, real *y) {
  for (int64_t r = 0; r < w->rows; r++, x += w->row_step, y += w->pitch)
    for (int64_t d = 0; d < w->cells[0]; d++)
      for (int64_t h = 0; h < w->cells[1]; h++)
        for (int64_t i = 0; i < w->count; i += LANES) {
          const int cnt = lanes_left((size_t)(w->count - i));
          fold a = begin();
          if (d + h > 0) take(LARGEST, &a, at(y + i, 0, cnt), 0);
          const line l = line_at(w, x + i, d, h, cnt);
          take_line(LARGEST, &a, &l);
          put(y + i, 0, cnt, largest_of(&a));
        }
}

static void largest(const pool_windows *w, const void *x, void *y, int64_t *index) {
  if (index) {
    each(w, x, y, index, part_of_places);
    return;
  }
  if (w->step == 1 && w->count > LANES && w->cells[0] * w->cells[1] > 1 &&
      w->cells[0] * w->cells[1] * w->cells[2] > TALL) {
    tall(w, x, y);
    return;
  }
  each(w, x, y, NULL, part_of_largest);
}
static void means(const pool_windows *w, const void *x, void *y) { each(w, x, y, NULL, part_of_means); }

static void highest(const pool_windows *w, const void *x, void *y) {
  for (int64_t r = 0; r < w->rows; r++) {
    fold a = begin();
    for (int64_t d = 0; d < w->cells[0]; d++)
      for (int64_t h = 0; h < w->cells[1]; h++) {
        const real *p = (const real *)x + r * w->row_step + d * w->apart[0] + h * w->apart[1];
        int64_t j = 0;
        for (; j + LANES <= w->cells[2]; j += LANES) take(LARGEST, &a, v_load(p + j), 0);
        if (j < w->cells[2]) take(LARGEST, &a, v_load_n(p + j, (int)(w->cells[2] - j), -R_INF), 0);
      }
    ((real *)y)[r * w->pitch] = m_any(m_not(a.good)) ? r_nan() : r_clean(v_hmax(a.most));
  }
}

/* ---- bins ---- */

/* A line of a bin whose cells lie side by side. */
SMI double sum_of_line(const real *x, int64_t n) {
  if (n <= 8) return v_eight_total(v_eight_load(x, (int)n));
  v_eight_sums sum = v_eight_zero();
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) sum = v_eight_add(sum, v_widen_at(x + i));
  if (i < n) sum = v_eight_add(sum, v_widen(at(x, (size_t)i, (int)(n - i))));
  return v_eight_total(sum);
}

static void bins_of_cells(const pool_windows *w, const real *x, real *y) {
  for (int64_t r = 0; r < w->rows; r++, x += w->row_step) {
    double sum = 0;
    for (int64_t d = 0; d < w->cells[0]; d++)
      for (int64_t h = 0; h < w->cells[1]; h++)
        sum += sum_of_line(x + d * w->apart[0] + h * w->apart[1], w->cells[2]);
    y[r * w->pitch] = r_clean(sum / w->divisor);
  }
}

/* Sums `lane` and `lane` + 4 of a line. */
SMI v_wide lane_of(const real *x, int64_t lane, int64_t n, int64_t apart, int cnt) {
  v_wide sum = v_widen(at(x + lane * apart, 0, cnt));
  for (int64_t i = lane + 8; i < n; i += 8) sum = v_wide_add(sum, v_widen(at(x + i * apart, 0, cnt)));
  return sum;
}
SMI v_wide pair_of(const real *x, int64_t lane, int64_t n, int64_t apart, int cnt) {
  const v_wide sum = lane_of(x, lane, n, apart, cnt);
  return lane + 4 < n ? v_wide_add(sum, lane_of(x, lane + 4, n, apart, cnt)) : sum;
}
SMI v_wide short_line(const real *x, int64_t n, int64_t apart, int cnt) {
  v_wide sum = pair_of(x, 0, n, apart, cnt);
  if (n > 2) sum = v_wide_add(sum, pair_of(x, 2, n, apart, cnt));
  if (n < 2) return sum;
  const v_wide odd = pair_of(x, 1, n, apart, cnt);
  return v_wide_add(sum, n > 3 ? v_wide_add(odd, pair_of(x, 3, n, apart, cnt)) : odd);
}

/* Channels whose sums wait in the first-level cache, so that memory is read in its order; a line of
 * fewer cells waits there itself. */
enum { TOGETHER = 64, LONG = 64 };
typedef v_wide channel_sums[TOGETHER / LANES];

static void add_long_line(const real *x, int64_t n, int64_t apart, int64_t count, v_wide *sum) {
  channel_sums lane[8];
  memset(lane, 0, sizeof lane);
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < count; i += LANES) {
      v_wide *own = lane[j % 8] + i / LANES;
      *own = v_wide_add(*own, v_widen(at(x + j * apart, (size_t)i, lanes_left((size_t)(count - i)))));
    }
  for (int64_t i = 0; i * LANES < count; i++) {
    for (int half = 4; half > 0; half /= 2)
      for (int j = 0; j < half; j++) lane[j][i] = v_wide_add(lane[j][i], lane[j + half][i]);
    sum[i] = v_wide_add(sum[i], lane[0][i]);
  }
}

static void bins_of_channels(const pool_windows *w, const real *x, real *y) {
  const int64_t n = w->cells[2], apart = w->apart[2];
  channel_sums sum;
  memset(sum, 0, sizeof sum);
  for (int64_t d = 0; d < w->cells[0]; d++)
    for (int64_t h = 0; h < w->cells[1]; h++) {
      const real *p = x + d * w->apart[0] + h * w->apart[1];
      if (n > LONG) add_long_line(p, n, apart, w->count, sum);
      for (int64_t i = 0; n > 0 && n <= LONG && i < w->count; i += LANES) {
        const v_wide more = short_line(p + i, n, apart, lanes_left((size_t)(w->count - i)));
        sum[i / LANES] = v_wide_add(sum[i / LANES], more);
      }
    }
  for (int64_t i = 0; i < w->count; i += LANES) {
    const fold a = {.sum = sum[i / LANES]};
    put(y + i, 0, lanes_left((size_t)(w->count - i)), mean_of(&a, w));
  }
}

static void bins(const pool_windows *w, const void *x, void *y) {
  if (w->count == 1 && w->apart[2] == 1) {
    bins_of_cells(w, x, y);
    return;
  }
  pool_windows some = *w;
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t i = 0; i < w->count; i += TOGETHER) {
      some.count = w->count - i < TOGETHER ? w->count - i : TOGETHER;
      bins_of_channels(&some, (const real *)x + r * w->row_step + i, (real *)y + r * w->pitch + i);
    }
}

/* ---- windows as a matrix ---- */

/* Two neighbouring places of windows 2 apart. Of rows shorter than a vector, vectors are whole
 * where rows to come write over what is too much: that is faster than a masked store. */
SMI void gather_pair(const real *x, int cnt, int stored, real *to, int64_t distance) {
  vreal cells[2];
  split(x, 2, cnt, cells);
  put(to, 0, stored, cells[0]), put(to + distance, 0, stored, cells[1]);
}
NOINLINE void gather_pairs(const pool_windows *w, const real *x, real *to, int64_t distance) {
  const int few = (int)w->count;
  int64_t left = w->pitch == w->count ? w->rows * w->count : 0;
  for (int64_t r = 0; r < w->rows; r++, x += w->row_step, to += w->pitch, left -= w->count)
    if (w->count < LANES) gather_pair(x, few, left >= LANES ? LANES : few, to, distance);
    else
      for (int64_t i = 0; i < w->count; i = next_whole(w->count, i))
        gather_pair(x + 2 * i, LANES, LANES, to + i, distance);
}

static void gather(const pool_windows *w, const void *from, int64_t distance, void *matrix) {
  if (w->step == 2 && w->apart[2] == 1 && w->cells[2] == 2) {
    for (int64_t d = 0; d < w->cells[0]; d++)
      for (int64_t h = 0; h < w->cells[1]; h++)
        gather_pairs(w, (const real *)from + d * w->apart[0] + h * w->apart[1],
                     (real *)matrix + (w->place + d * w->places[0] + h * w->places[1]) * distance, distance);
    return;
  }
  for (int64_t r = 0; r < w->rows; r++)
    for (int64_t i = 0; i < w->count; i += LANES)
      gather_windows(w, (const real *)from + r * w->row_step + i * w->step,
                     lanes_left((size_t)(w->count - i)), (real *)matrix + r * w->pitch + i, distance);
}

static void weigh(const void *cells, const void *weights, int64_t places, int64_t distance, int64_t first,
                  int64_t end, void *y) {
  const vreal absent = v_set1(-R_INF);
  for (int64_t i = first; i < end; i += LANES) {
    const int cnt = lanes_left((size_t)(end - i));
    v_wide sum = v_wide_zero();
    for (int64_t k = 0; k < places; k++) {
      const vreal x = at((const real *)cells + k * distance, (size_t)i, cnt);
      const vreal p = at((const real *)weights + k * distance, (size_t)i, cnt);
      const vmask hidden = v_eq(x, absent);
      sum =
          v_wide_fold(sum, v_widen(v_select(hidden, v_set1(0), p)), v_widen(v_select(hidden, v_set1(0), x)));
    }
    put((real *)y, (size_t)i, cnt, v_clean(v_narrow(sum)));
  }
}

const pool_kernels SMX_FN(pool_kernels) = {largest, highest, means, bins, gather, weigh, SMX_FN(pool_soften),
                                           POOL_ADA};
