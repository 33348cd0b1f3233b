/* gate/functions_lines.tmpl.h - the loops of functions_lines.h, for one type. Before it: REAL, the
 * type, and NAME(x), the name of its functions; both end here. */

static void NAME(gather)(const void *from, const int64_t *index, int64_t k, double otherwise, void *to) {
  for (int64_t i = 0; i < k; i++)
    ((REAL *)to)[i] = index[i] < 0 ? (REAL)otherwise : ((const REAL *)from)[index[i]];
}
static void NAME(scale)(const void *x, double by, int64_t n, void *to) {
  for (int64_t i = 0; i < n; i++) ((REAL *)to)[i] = (REAL)(((const REAL *)x)[i] * by);
}

#undef REAL
#undef NAME
