/* engine/topk.c - the k best of a row (topk.h). */
#include "topk.h"

size_t topk_count(const real *x, size_t n, real least) {
  vreal count[VPB], one = v_set1(1), zero = v_set1(0), bar = v_set1(least);
  size_t i = 0;
  UNROLL_BLOCK for (int u = 0; u < VPB; u++) count[u] = zero;
  for (; i + BLOCK <= n; i += BLOCK)
    UNROLL_BLOCK for (int u = 0; u < VPB; u++) count[u] =
        v_add(count[u], v_select(v_lt(v_load(x + i + (size_t)u * LANES), bar), zero, one));
  for (; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    count[0] = v_add(count[0], v_select(m_and(m_not(v_lt(at(x, i, cnt), bar)), lanes_below(cnt)), one, zero));
  }
  return (size_t)v_fold(count);
}

real topk_max(const real *x, size_t n, real low) {
  vreal max = v_set1(low);
  for (size_t i = 0; i < n; i += LANES)
    max = v_max(n - i < LANES ? v_load_n(x + i, (int)(n - i), low) : v_load(x + i), max);
  return v_hmax(max);
}

real topk_min(const real *x, size_t n) {
  vreal min = v_set1(R_INF);
  for (size_t i = 0; i < n; i += LANES)
    min = v_min(n - i < LANES ? v_load_n(x + i, (int)(n - i), R_INF) : v_load(x + i), min);
  return v_hmin(min);
}

real topk_bar(const real *x, size_t n, const real *y, size_t m, size_t k, real low) {
  rbits from = radix_key(low), to = radix_key(topk_max(y, m, topk_max(x, n, low)));
  while (from < to) { /* at least k are not below from; the answer is in from .. to */
    rbits middle = from + (to - from) / 2 + 1;
    size_t count = topk_count(x, n, radix_value(middle)) + topk_count(y, m, radix_value(middle));
    if (count < k) to = middle - 1;
    else from = middle;
    if (count == k) break;
  }
  return radix_value(from);
}

/* Keeps what is above the bar, and the first of those equal to it, as many as there is room for. */
static size_t topk_keep(topk *p, size_t kept, const real *x, const int64_t *index, size_t n, real bar,
                        size_t *equals) {
  for (size_t i = 0; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    vreal v = at(x, i, cnt);
    for (uint32_t stay = m_bits(m_and(m_not(v_lt(v, v_set1(bar))), lanes_below(cnt))); stay;
         stay &= stay - 1) {
      size_t j = i + (size_t)__builtin_ctz(stay);
      if (x[j] == bar) {
        if (*equals == 0) continue;
        --*equals;
      }
      p->x[kept] = x[j], p->index[kept++] = index[j];
    }
  }
  return kept;
}

void topk_cut(topk *p) {
  size_t kept = p->kept, equals = SIZE_MAX;
  real bar = -R_INF;
  if (p->kept + p->fresh > p->k) {
    bar = topk_bar(p->x, p->kept, p->fresh_x, p->fresh, p->k, p->bar > -R_INF ? p->bar : -R_MAX);
    const real next = radix_value(radix_key(bar) + 1);
    equals =
        p->k - (bar > R_MAX ? 0 : topk_count(p->x, p->kept, next) + topk_count(p->fresh_x, p->fresh, next));
    kept = topk_keep(p, 0, p->x, p->index, p->kept, bar, &equals);
    p->bar = bar;
  }
  p->kept = topk_keep(p, kept, p->fresh_x, p->fresh_index, p->fresh, bar, &equals);
  p->fresh = 0;
}

void topk_start(topk *p, size_t k, real *to_x, int64_t *to_index, const real *x, size_t n) {
  enum { STRIDE = 4 * LANES };
  p->k = k, p->kept = p->fresh = 0;
  p->x = to_x, p->index = to_index;
  p->bar = -R_INF;
  if (n > GROUP) n = GROUP;
  size_t strips = (4 * k + STRIDE - 1) / STRIDE; /* each of 4 vectors of maxima */
  if (strips == 0 || strips * STRIDE > TOPK_FRESH || n / STRIDE < 2 * strips) return;
  size_t steps = n / STRIDE / strips, count = strips * STRIDE;
  for (size_t s = 0; s < strips; s++) {
    vreal max[4];
    for (int u = 0; u < 4; u++) max[u] = v_set1(-R_INF);
    for (size_t i = s * steps * STRIDE; i < (s + 1) * steps * STRIDE; i += STRIDE)
      for (int u = 0; u < 4; u++) max[u] = v_max(v_load(x + i + (size_t)u * LANES), max[u]);
    for (int u = 0; u < 4; u++) v_store(p->fresh_x + s * STRIDE + (size_t)u * LANES, max[u]);
  }
  if (topk_count(p->fresh_x, count, -R_MAX) < k) return;
  real bar = topk_bar(p->fresh_x, count, NULL, 0, k, -R_MAX);
  p->bar = bar > R_MAX ? R_MAX : bar - (bar < 0 ? -bar : bar) * (real)0x1p-20 - R_TINY;
}

/* Adds those whose bits are set to the buffer. */
static __attribute__((noinline)) void topk_some(topk *p, const real *x, uint64_t above, int64_t index) {
  if (p->fresh + 4 * LANES > TOPK_FRESH) topk_cut(p);
  for (; above; above &= above - 1) {
    int lane = __builtin_ctzll(above);
    p->fresh_x[p->fresh] = x[lane], p->fresh_index[p->fresh++] = index + lane;
  }
}

void topk_group(topk *p, const real *x, size_t n, int64_t index) {
  enum { STRIDE = 4 * LANES };
  vreal bar = v_set1(p->bar);
  size_t i = 0;
  for (; i + STRIDE <= n; i += STRIDE) {
    vreal a = v_load(x + i), b = v_load(x + i + LANES), c = v_load(x + i + 2 * LANES),
          d = v_load(x + i + 3 * LANES);
    if (!m_any(v_lt(bar, v_max(v_max(a, b), v_max(c, d))))) continue;
    uint64_t low = m_bits(v_lt(bar, a)) | (uint64_t)m_bits(v_lt(bar, b)) << LANES;
    uint64_t high = m_bits(v_lt(bar, c)) | (uint64_t)m_bits(v_lt(bar, d)) << LANES;
    topk_some(p, x + i, low | high << 2 * LANES, index + (int64_t)i);
    bar = v_set1(p->bar);
  }
  for (; i < n; i += LANES) {
    int cnt = lanes_left(n - i);
    topk_some(p, x + i, m_bits(m_and(v_lt(v_set1(p->bar), at(x, i, cnt)), lanes_below(cnt))),
              index + (int64_t)i);
  }
  if (p->fresh > p->k / 2 + 64) topk_cut(p);
}

/* Sorts in place, best first: quicksort about elements chosen at random, so that no order of
 * elements is slow; the larger part is left to the loop, so that the recursion is shallow; a few
 * elements are inserted. */
static void topk_sort_part(real *x, int64_t *index, size_t low, size_t end, uint64_t *dice) {
  while (end - low > 16) {
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    const size_t pivot = low + (size_t)((*dice >> 32) % (end - low));
    const real v = x[pivot];
    const int64_t at_v = index[pivot];
    size_t i = low, j = end - 1;
    x[pivot] = x[low], index[pivot] = index[low];
    x[low] = v, index[low] = at_v;
    for (;; i++, j--) {
      while (topk_before(x[i], index[i], v, at_v)) i++;
      while (topk_before(v, at_v, x[j], index[j])) j--;
      if (i >= j) break;
      const real swap = x[i];
      const int64_t at_swap = index[i];
      x[i] = x[j], index[i] = index[j];
      x[j] = swap, index[j] = at_swap;
    }
    if (j + 1 - low < end - j - 1) topk_sort_part(x, index, low, j + 1, dice), low = j + 1;
    else topk_sort_part(x, index, j + 1, end, dice), end = j + 1;
  }
  for (size_t i = low + 1; i < end; i++) {
    const real v = x[i];
    const int64_t at_v = index[i];
    size_t j = i;
    for (; j > low && topk_before(v, at_v, x[j - 1], index[j - 1]); j--)
      x[j] = x[j - 1], index[j] = index[j - 1];
    x[j] = v, index[j] = at_v;
  }
}

void topk_sort(real *x, int64_t *index, size_t n) {
  uint64_t dice = 1;
  topk_sort_part(x, index, 0, n, &dice);
}
