/* bench/bench.h - what a case is, and who can run it. */
#ifndef BENCH_H
#define BENCH_H
#include <softmax.h>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/* A case is one verb on one shape: what every implementation is asked to do. */
struct Problem {
  std::string verb; /* "softmax", "log_softmax", "logsumexp", "softmax_backward", or "op:NAME" */
  std::vector<int64_t> shape;
  int axis = -1; /* -1 or an index */
  std::string dtype;
  int threads = 1;

  int64_t elements() const;
  int64_t n() const;    /* the length of a row */
  int64_t rows() const; /* all other sizes multiplied */
  bool contiguous() const { return axis < 0 || axis == static_cast<int>(shape.size()) - 1; }
  smx_dtype type() const;
  size_t bytes() const { return static_cast<size_t>(elements()) * type().bits / 8; }
};

/* One call, ready to be timed; empty when the implementation cannot do the case. It owns what it needs. */
using Call = std::function<void()>;

struct Implementation {
  std::string name;
  std::function<Call(const Problem &)> make;
};

/* Buffers shared by all cases, at least `bytes` long. Inputs hold normal * 5 in the dtype; outputs are touched once. */
void *input(const Problem &p, int which); /* 0 or 1 */
void *output(size_t bytes);

std::vector<Implementation> library_implementations();
std::vector<Implementation> peer_implementations();
std::vector<Implementation> ceiling_implementations(); /* memcpy, read, write, write_nt on the bytes of the case */

/* How many times the least traffic goes over a tensor: inputs are read once if a row stays in the second-level cache, else twice. */
struct Traffic {
  double reads, writes;
};
Traffic least_traffic(const Problem &p);

#endif
