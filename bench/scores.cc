/* bench/scores.cc - scores_all: the 17 scores of a row of logits at once, ROWSxCLASSES. */
#include "tensor.h"
#include <cstring>

namespace {

struct Run {
  ContextPtr ctx;
  std::vector<const smx_op *> scores;
  TensorPtr x, y;
};

/* Whether an operator is a score of a row of logits, and of those alone. */
bool is_row_score(const smx_op *op) {
  Tensor x({1, 2}, SMX_F32), y({1, 1}, SMX_F32);
  return !std::strcmp(op->family, "score") && op->input_count == 1 &&
         smx_scores(nullptr, 1, &op, nullptr, &x.view, nullptr, &y.view) == SMX_OK;
}

} // namespace

bool is_scores(const Problem &p) { return p.verb == "scores_all"; }

/* A read, and what logsumexp does. */
bool scores_work(const Problem &p, Least *least) {
  if (!is_scores(p)) return false;
  *least = {1, 0, 14};
  return true;
}

Call scores_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  if (threads) run->ctx = make_context(threads);
  for (size_t i = 0; const smx_op *op = smx_op_at(i); i++)
    if (is_row_score(op)) run->scores.push_back(op);
  const int64_t rows = p.rows(), count = static_cast<int64_t>(run->scores.size());
  run->x = std::make_unique<Tensor>(std::vector<int64_t>{rows, p.n()}, SMX_F32, input(p, 0));
  run->y = std::make_unique<Tensor>(std::vector<int64_t>{rows, count}, SMX_F32);
  return [=] {
    require(smx_scores(run->ctx.get(), static_cast<int32_t>(count), run->scores.data(), nullptr,
                       &run->x->view, nullptr, &run->y->view));
  };
}
