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
  /* "softmax", "log_softmax", "logsumexp", "softmax_backward", "cross_entropy", "cross_entropy_dx"
   * (the loss with its gradient); "op:NAME" or "grad:NAME" of the operator table; "attention_..."
   * (attention.cc), "linear_cross_entropy", "linear_cross_entropy_dx" (heads.cc), "route_..."
   * (routing.cc), "sample_..." (sampling.cc), "scores_all" (scores.cc), "state_..." (states.cc),
   * "pairs_..." (pairs.cc) */
  std::string verb;
  std::vector<int64_t> shape;
  int axis = -1; /* -1 or an index */
  std::string dtype;
  int threads = 1;

  int64_t elements() const;
  int64_t n() const;    /* the length of a row */
  int64_t rows() const; /* all other sizes multiplied */
  bool contiguous() const { return axis < 0 || axis == static_cast<int>(shape.size()) - 1; }
  smx_dtype type() const;
  std::vector<int64_t> shape_of_rows() const; /* the shape without the axis */
  const smx_op *op() const;                   /* that "op:NAME" and "grad:NAME" name; NULL for other verbs */
  bool gradient() const { return verb.compare(0, 5, "grad:") == 0; }
  size_t bytes() const { return static_cast<size_t>(elements()) * type().bits / 8; }
};

/* One call, ready to be timed; empty when the implementation does not do such cases. It owns what
 * it needs. */
using Call = std::function<void()>;

struct Implementation {
  std::string name;
  /* throws std::runtime_error when it should do the case, and cannot */
  std::function<Call(const Problem &)> make;
  double elements = 0; /* of a call; 0 = those of the case */
};

/* Buffers shared by all cases, at least `bytes` long. Inputs hold normal * 5 in the dtype; outputs
 * are touched once. */
void *input(const Problem &p, int which); /* 0 or 1 */
void *output(size_t bytes);

std::vector<Implementation> library_implementations();
std::vector<Implementation> peer_implementations();
/* memcpy, read, write, write_nt on the bytes of the case; fma, fma_avx2 */
std::vector<Implementation> ceiling_implementations();

/* Operators of the table through smx_forward and smx_backward; `optional`: with the optional inputs
 * too. */
Call operator_call(const Problem &p, bool optional);

/* Attention, by the verbs "attention_..."; threads 0: without a context. */
Call attention_call(const Problem &p, int threads);

/* Cross-entropy of a linear layer, alike. */
bool is_head(const Problem &p);
Call heads_call(const Problem &p, int threads);

/* Mixtures of experts, by the verbs "route_...", alike. */
bool is_routing(const Problem &p);
Call routing_call(const Problem &p, int threads);

/* smx_sample, by the verbs "sample_...", alike. */
bool is_sampling(const Problem &p);
Call sampling_call(const Problem &p, int threads);

bool is_scores(const Problem &p);
Call scores_call(const Problem &p, int threads);

/* Losses of pairs and chains, by the verbs "pairs_...", alike. */
bool is_pairs(const Problem &p);
Call pairs_call(const Problem &p, int threads);

/* Linear attention, by the verbs "state_...". */
bool is_state(const Problem &p);
Call states_call(const Problem &p, int threads);

/* What any implementation does at least, per element. Inputs are read once if a row stays in the
 * second-level cache, else twice. */
struct Least {
  double reads, writes; /* of a whole tensor */
  double arithmetic;    /* instructions of the units that multiply and add */
};
Least least_work(const Problem &p);
bool attention_work(const Problem &p, Least *least); /* whether it is such a verb */
bool heads_work(const Problem &p, Least *least);
bool routing_work(const Problem &p, Least *least);
bool sampling_work(const Problem &p, Least *least);
bool scores_work(const Problem &p, Least *least);
bool states_work(const Problem &p, Least *least);
bool pairs_work(const Problem &p, Least *least);

#endif
