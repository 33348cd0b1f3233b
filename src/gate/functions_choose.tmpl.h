/* gate/functions_choose.tmpl.h - the choice of experts, for one type of scores. Before it: REAL,
 * the type, and NAME(x), the name of its functions; both end here. */

/* The best so far, the best first. */
typedef struct NAME(best) {
  REAL *value;
  int64_t *index, count, most;
} NAME(best);

static inline void NAME(insert)(NAME(best) * b, REAL value, int64_t index) {
  int64_t p = b->count < b->most ? b->count++ : b->most - 1;
  for (; p > 0 && b->value[p - 1] < value; p--) {
    b->value[p] = b->value[p - 1];
    b->index[p] = b->index[p - 1];
  }
  b->value[p] = value, b->index[p] = index;
}

/* Later ones need a larger value: of equal ones the first stays in front. */
static void NAME(find_best)(NAME(best) * b, const REAL *x, int64_t first, int64_t n) {
  const REAL *value = b->value;
  REAL bar = b->count < b->most ? (REAL)-INF : value[b->most - 1];
  for (int64_t i = 0; i < n; i += BLOCK) {
    const int64_t count = n - i < BLOCK ? n - i : BLOCK;
    if (count == BLOCK) {
      int any = 0;
      for (int j = 0; j < BLOCK; j++) any |= x[i + j] > bar;
      if (!any) continue;
    }
    for (int64_t j = i; j < i + count; j++) {
      if (!(x[j] > bar)) continue;
      NAME(insert)(b, x[j], first + j);
      if (b->count == b->most) bar = value[b->most - 1];
    }
  }
}

static bool NAME(any_nan)(const REAL *x, int64_t n) {
  int nan = 0;
  for (int64_t i = 0; i < n; i++) nan |= x[i] != x[i];
  return nan;
}

/* What experts are compared by. An expert with logit -inf does not exist, whatever its bias. */
static void NAME(make_keys)(const REAL *logits, const REAL *score, const REAL *bias, int64_t n, REAL *key) {
  for (int64_t i = 0; i < n; i++) {
    const REAL s = bias ? score[i] + bias[i] : score[i];
    key[i] = logits[i] > (REAL)-INF || logits[i] != logits[i] ? s : (REAL)-INF;
  }
}

/* A second best that is not there counts nothing. */
static REAL NAME(group_score)(const REAL *key, int64_t n, bool two) {
  REAL first = (REAL)-INF, second = (REAL)-INF;
  for (int64_t i = 0; i < n; i++) {
    const REAL x = key[i], less = x > first ? first : x;
    second = less > second ? less : second;
    first = x > first ? x : first;
  }
  return two && second > (REAL)-INF ? first + second : first;
}

static void NAME(choose_in_groups)(const gate_choice *g, const REAL *key, NAME(best) * b, void *work) {
  const int64_t size = g->experts / g->groups;
  REAL *score = work;
  NAME(best)
  groups = {score + g->groups, (int64_t *)(void *)((double *)work + 2 * g->groups), 0, g->top_groups};
  for (int64_t i = 0; i < g->groups; i++) score[i] = NAME(group_score)(key + i * size, size, g->two);
  NAME(find_best)(&groups, score, 0, g->groups);
  for (int64_t i = 0; i < g->groups; i++) score[i] = 0;
  for (int64_t i = 0; i < groups.count; i++) score[groups.index[i]] = 1;
  for (int64_t i = 0; i < g->groups; i++)
    if (score[i] != 0) NAME(find_best)(b, key + i * size, i * size, size);
}

static bool NAME(choose)(const gate_choice *g, const void *logits, const void *score, const void *bias,
                         void *work, int64_t *index) {
  double *memory = work;
  const REAL *key = logits;
  NAME(best) b = {(REAL *)(void *)(memory + g->experts), index, 0, g->k};
  if (score || bias) {
    NAME(make_keys)(logits, score ? score : logits, bias, g->experts, work);
    key = work;
  }
  const bool nan = NAME(any_nan)(key, g->experts);
  if (!nan && g->groups > 1) NAME(choose_in_groups)(g, key, &b, memory + g->experts + g->k);
  else if (!nan) NAME(find_best)(&b, key, 0, g->experts);
  for (int64_t i = b.count; i < g->k; i++) index[i] = -1;
  return !nan;
}

static void NAME(gather)(const void *from, const int64_t *index, int64_t k, double otherwise, void *to) {
  for (int64_t i = 0; i < k; i++)
    ((REAL *)to)[i] = index[i] < 0 ? (REAL)otherwise : ((const REAL *)from)[index[i]];
}
static void NAME(scale)(const void *x, double by, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++) ((REAL *)to)[i] = (REAL)(((const REAL *)x)[i] * by);
}
static void NAME(load)(const void *x, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] = (double)((const REAL *)x)[i];
}
static void NAME(store)(const double *x, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++) ((REAL *)to)[i] = (REAL)x[i];
}

#undef REAL
#undef NAME
