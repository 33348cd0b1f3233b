/* bench/routing.cc - mixtures of experts. route_softmax, route_groups: TOKENSxEXPERTS, the 8 best
 * of all experts by logits, or by sigmoids and a bias those of the 4 best of 8 groups.
 * route_permutation: TOKENSxK indices of 256 experts to rows. route_dispatch, route_combine:
 * TOKENSxWIDTH to the rows of 2 of 64 experts, and back. */
#include "tensor.h"

namespace {

enum { EXPERTS = 256, FEW = 64, EACH = 2, BEST = 8 };

struct Run {
  ContextPtr ctx;
  std::vector<float> bias, weight;
  std::vector<int64_t> index, slot, source, offset;
  std::vector<TensorPtr> tensors;

  const smx_tensor *see(std::vector<int64_t> shape, smx_dtype type, const void *data) {
    tensors.push_back(std::make_unique<Tensor>(std::move(shape), type, const_cast<void *>(data)));
    return &tensors.back()->view;
  }
};
using RunPtr = std::shared_ptr<Run>;

const smx_dtype WHOLE = SMX_I64;

Call choose(const Problem &p, const RunPtr &run) {
  const int64_t tokens = p.rows(), experts = p.n();
  const bool groups = p.verb == "route_groups";
  smx_gate gate = {};
  gate.size = sizeof gate, gate.k = BEST;
  if (groups) gate.score = SMX_GATE_SIGMOID, gate.groups = 8, gate.top_groups = 4, gate.scale = 2.5;
  run->bias.resize(experts), run->weight.resize(tokens * BEST), run->index.resize(tokens * BEST);
  for (int64_t e = 0; e < experts; e++) run->bias[e] = 0.02F * static_cast<float>(e % 7 - 3);
  const smx_tensor *x = run->see({tokens, experts}, SMX_F32, input(p, 0)),
                   *bias = groups ? run->see({experts}, SMX_F32, run->bias.data()) : nullptr,
                   *weight = run->see({tokens, BEST}, SMX_F32, run->weight.data()),
                   *index = run->see({tokens, BEST}, WHOLE, run->index.data());
  return [=] { require(smx_gate_topk(run->ctx.get(), &gate, x, bias, weight, index)); };
}

/* Experts of tokens by a sequence that looks random, and where they go. */
Call permute(const RunPtr &run, int64_t tokens, int64_t k, int64_t experts) {
  const int64_t pairs = tokens * k;
  smx_moe moe = {};
  moe.size = sizeof moe, moe.experts = experts;
  run->index.resize(pairs), run->slot.resize(pairs), run->source.resize(pairs),
      run->offset.resize(experts + 1);
  for (int64_t i = 0; i < pairs; i++) run->index[i] = (i * 2654435761 >> 16) % experts;
  const smx_tensor *index = run->see({tokens, k}, WHOLE, run->index.data()),
                   *slot = run->see({tokens, k}, WHOLE, run->slot.data()),
                   *source = run->see({pairs}, WHOLE, run->source.data()),
                   *offset = run->see({experts + 1}, WHOLE, run->offset.data());
  return [=] {
    require(smx_moe_permutation(run->ctx.get(), &moe, index, nullptr, slot, source, offset, nullptr));
  };
}

Call move(const Problem &p, const RunPtr &run) {
  const int64_t tokens = p.rows(), width = p.n(), rows = tokens * EACH;
  permute(run, tokens, EACH, FEW)();
  run->weight.assign(rows, 0.5F);
  const bool dispatch = p.verb == "route_dispatch";
  float *to = static_cast<float *>(output(p.bytes() * EACH));
  static std::vector<float> there; /* rows, shared by all cases */
  if (!dispatch && there.size() < static_cast<size_t>(rows * width)) there.assign(rows * width, 1);
  const smx_tensor *slot = run->see({ tokens, EACH }, WHOLE, run->slot.data()),
                   *source = run->see({rows}, WHOLE, run->source.data()),
                   *weight = run->see({ tokens, EACH }, SMX_F32, run->weight.data());
  if (dispatch) {
    const smx_tensor *x = run->see({tokens, width}, SMX_F32, input(p, 0)),
                     *y = run->see({rows, width}, SMX_F32, to);
    return [=] { require(smx_moe_dispatch(run->ctx.get(), x, source, y)); };
  }
  const smx_tensor *x = run->see({rows, width}, SMX_F32, there.data()),
                   *y = run->see({tokens, width}, SMX_F32, to);
  return [=] { require(smx_moe_combine(run->ctx.get(), x, slot, weight, y)); };
}

} // namespace

bool is_routing(const Problem &p) { return p.verb.compare(0, 6, "route_") == 0; }

/* A whole number is two elements of f32. */
bool routing_work(const Problem &p, Least *least) {
  if (!is_routing(p)) return false;
  const double n = static_cast<double>(p.n());
  if (p.verb == "route_permutation") *least = {2, 4, 0};
  else if (p.verb == "route_dispatch") *least = { 1, EACH, 0 };
  else if (p.verb == "route_combine") *least = { EACH, 1, 0 };
  else *least = {1, 3 * BEST / n, 0};
  return true;
}

Call routing_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  if (threads) run->ctx = make_context(threads);
  if (p.verb == "route_permutation") return permute(run, p.rows(), p.n(), EXPERTS);
  if (p.verb == "route_dispatch" || p.verb == "route_combine") return move(p, run);
  return choose(p, run);
}
