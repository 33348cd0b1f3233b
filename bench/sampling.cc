/* bench/sampling.cc - smx_sample of ROWSxTOKENS logits through one step and a draw by the inverse
 * of the distribution function: what a step costs. */
#include "tensor.h"

namespace {

struct Run {
  ContextPtr ctx;
  std::vector<smx_step> steps;
  std::vector<int64_t> tokens, index;
  smx_draw draw = SMX_DRAW_CDF;
};

smx_step step_of(smx_step_kind kind, double a, double b = 0) {
  smx_step step = {};
  step.kind = kind, step.a = a, step.b = b;
  return step;
}

/* By what is after "sample_"; false: there is no such case. */
bool take(const std::string &name, int64_t n, Run *run) {
  if (name == "greedy") run->draw = SMX_DRAW_GREEDY;
  else if (name == "typical") run->steps = {step_of(SMX_STEP_TYPICAL, 0.9)};
  else if (name == "sigma") run->steps = {step_of(SMX_STEP_TOP_N_SIGMA, 1)};
  else if (name == "xtc") run->steps = {step_of(SMX_STEP_XTC, 1, 0.1)};
  else if (name == "top_p") /* before the temperature */
    run->steps = {step_of(SMX_STEP_TOP_P, 0.95), step_of(SMX_STEP_TEMPERATURE, 0.8)};
  else if (name == "allow") {
    for (int64_t i = 0; i < 1000; i++) run->tokens.push_back(i * (n / 1000));
    run->steps = {step_of(SMX_STEP_ALLOW, 0)};
    run->steps[0].tokens = run->tokens.data(), run->steps[0].token_count = run->tokens.size();
  } else return false;
  return true;
}

} // namespace

bool is_sampling(const Problem &p) { return p.verb.compare(0, 7, "sample_") == 0; }

/* A read. */
bool sampling_work(const Problem &p, Least *least) {
  if (!is_sampling(p)) return false;
  *least = {1, 0, 0};
  return true;
}

Call sampling_call(const Problem &p, int threads) {
  auto run = std::make_shared<Run>();
  if (!take(p.verb.substr(7), p.n(), run.get())) return {};
  if (threads) run->ctx = make_context(threads);
  run->index.resize(p.rows());
  const float *x = static_cast<const float *>(input(p, 0));
  const size_t rows = p.rows(), n = p.n();
  return [=] {
    smx_sample_options o = {};
    o.size = sizeof o;
    o.steps = run->steps.data(), o.step_count = run->steps.size(), o.draw = run->draw;
    require(smx_sample_f32(run->ctx.get(), &o, rows, n, x, run->index.data(), nullptr));
  };
}
