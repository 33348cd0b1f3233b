/* bench/pairs.cc - losses with their gradients, forward and backward. pairs_clip: BATCHxWIDTH, both
 * directions of two towers, without their matrix. pairs_chain: BATCHxLENGTHxTAGS, a random field on
 * a chain. */
#include "tensor.h"

namespace {

struct Run {
  const smx_op *op;
  ContextPtr ctx;
  std::vector<int64_t> target;
  std::vector<float> ones;
  std::vector<TensorPtr> own;
  std::vector<const smx_tensor *> in, out, dout, din;

  const smx_tensor *see(std::vector<int64_t> shape, smx_dtype type = SMX_F32, const void *data = nullptr) {
    own.push_back(std::make_unique<Tensor>(std::move(shape), type, const_cast<void *>(data)));
    return &own.back()->view;
  }
  void call() const {
    require(smx_forward(op, ctx.get(), nullptr, static_cast<int32_t>(in.size()), in.data(),
                        static_cast<int32_t>(out.size()), out.data()));
    require(smx_backward(op, ctx.get(), nullptr, static_cast<int32_t>(in.size()), in.data(),
                         static_cast<int32_t>(out.size()), out.data(), dout.data(), din.data()));
  }
};

void towers(Run &run, const Problem &p) {
  for (int which = 0; which < 2; which++) {
    run.in.push_back(run.see(p.shape, SMX_F32, input(p, which)));
    run.din.push_back(run.see(p.shape));
  }
  run.out = {run.see({p.rows()})};
}

void chain(Run &run, const Problem &p) {
  const std::vector<int64_t> tokens(p.shape.begin(), p.shape.end() - 1), square = {p.n(), p.n()};
  run.target.resize(p.rows());
  for (size_t i = 0; i < run.target.size(); i++) run.target[i] = static_cast<int64_t>(i * 7919 % p.n());
  run.in = {run.see(p.shape, SMX_F32, input(p, 0)), run.see(square, SMX_F32, input(p, 1)),
            run.see(tokens, SMX_I64, run.target.data())};
  run.din = {run.see(p.shape), run.see(square), nullptr};
  run.out = {run.see({p.shape[0]}), run.see({p.shape[0]})};
}

} // namespace

bool is_pairs(const Problem &p) { return p.verb.compare(0, 6, "pairs_") == 0; }

/* An element of each tower meets the other tower three times: in the logits and in both gradients.
 * That of a chain meets its tags in sums from either end and in the gradient of the transitions. */
bool pairs_work(const Problem &p, Least *least) {
  if (!is_pairs(p)) return false;
  if (p.verb == "pairs_clip") *least = {2, 2, 3.0 * static_cast<double>(p.rows())};
  else *least = {1, 1, 3.0 * static_cast<double>(p.n())};
  return true;
}

Call pairs_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  if (threads) run->ctx = make_context(threads);
  run->op = smx_op_find(p.verb == "pairs_clip" ? "clip_loss" : "linear_chain_crf");
  if (p.verb == "pairs_clip") towers(*run, p);
  else chain(*run, p);
  const std::vector<int64_t> rows = run->own.back()->shape;
  run->ones.assign(rows[0], 1);
  run->dout.assign(run->out.size(), nullptr);
  run->dout[0] = run->see(rows, SMX_F32, run->ones.data());
  return [=] { run->call(); };
}
