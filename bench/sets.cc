/* bench/sets.cc - what an instruction set brings: each operator on the fastest set of this machine
 * and on the next, in turns, as CPU time.
 *   softmax_sets [PATTERN]    operators whose name contains PATTERN; all without one
 * A line a case: operator, verb, dtype, shape, microseconds on the fastest, and how many times as
 * long the next one takes (the median of pairs). Every set gives the same bytes; which are worth
 * their size stands in docs/design.md. */
#include "bench.h"
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>

extern "C" { /* cpu/cpu.h */
int smx_isa_count(void);
const char *smx_isa_at(int i);
int smx_isa_set(const char *name);
}

namespace {

enum { PAIRS = 9 };
const double SAMPLE = 2e5; /* ns, at least */
const double LONG = 3e8;   /* ns of a call that is measured fewer times */

/* Short rows and long ones in cache, and rows that come from memory. */
const std::vector<std::vector<int64_t>> shapes = {{2048, 24}, {64, 1024}, {2048, 4096}};

double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

double time_of(const char *isa, const Call &call, int calls) {
  smx_isa_set(isa);
  const double begin = now();
  for (int i = 0; i < calls; i++) call();
  return (now() - begin) / calls;
}

void measure(const Problem &p, const char *const isa[2]) {
  smx_isa_set(isa[0]);
  const Call call = operator_call(p, false);
  if (!call) return;
  call();
  const double once = time_of(isa[0], call, 1);
  const int calls = once < SAMPLE ? static_cast<int>(SAMPLE / once) + 1 : 1, pairs = once > LONG ? 3 : PAIRS;
  std::vector<double> ratio, best;
  for (int i = 0; i < pairs; i++) {
    double ns[2];
    for (int turn = 0; turn < 2; turn++) ns[(i + turn) % 2] = time_of(isa[(i + turn) % 2], call, calls);
    best.push_back(ns[0]);
    ratio.push_back(ns[1] / ns[0]);
  }
  std::sort(ratio.begin(), ratio.end());
  printf("%s %s %s %lldx%lld %.1f %.3f\n", p.op()->name, p.gradient() ? "backward" : "forward",
         p.dtype.c_str(), static_cast<long long>(p.shape[0]), static_cast<long long>(p.shape[1]),
         *std::min_element(best.begin(), best.end()) / 1e3, ratio[ratio.size() / 2]);
  fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
  if (smx_isa_count() < 2) return fputs("softmax_sets: this machine has one instruction set\n", stderr), 1;
  const char *const isa[2] = {smx_isa_at(0), smx_isa_at(1)};
  printf("# %s, and %s in its place\n", isa[0], isa[1]);
  for (size_t i = 0; i < smx_op_count(); i++) {
    const smx_op *op = smx_op_at(i);
    if (argc > 1 && !strstr(op->name, argv[1])) continue;
    for (const char *verb : {"op:", "grad:"})
      for (const char *dtype : {"f32", "f64"})
        for (const auto &shape : shapes) try {
            if (*verb == 'o' || op->flags & SMX_OP_BACKWARD)
              measure({verb + std::string(op->name), shape, -1, dtype, 1}, isa);
          } catch (const std::runtime_error &e) { fprintf(stderr, "%s: %s\n", op->name, e.what()); }
  }
  return 0;
}
