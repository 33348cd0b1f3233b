/* bench/library.cc - libsoftmax: the plain calls, the tensor calls with a context of threads, any operator of the table. */
#include "bench.h"
#include <cstdio>
#include <cstdlib>
#include <memory>

extern "C" { /* cpu/cpu.h: the instruction sets of this machine, fastest first */
int smx_isa_count(void);
const char *smx_isa_at(int i);
int smx_isa_set(const char *name);
}

namespace {

[[noreturn]] void die(const std::string &what) {
  fprintf(stderr, "softmax_bench: %s: %s\n", what.c_str(), smx_last_error());
  exit(1);
}

void check(smx_status status, const char *what) {
  if (status != SMX_OK) die(what);
}

std::shared_ptr<smx_context> context(int threads) {
  smx_context_options options = {};
  options.size = sizeof options;
  options.threads = threads;
  smx_context *ctx = nullptr;
  check(smx_context_create(&options, &ctx), "context");
  return {ctx, smx_context_destroy};
}

/* ---- Plain calls --------------------------------------------------------------------------------------------------------------------- */

Call plain_softmax(const Problem &p) {
  const size_t rows = p.rows(), n = p.n();
  const void *x = input(p, 0);
  void *y = output(p.bytes());
  using U16 = uint16_t;
  if (p.dtype == "f32") return [=] { smx_softmax_f32(rows, n, static_cast<const float *>(x), static_cast<float *>(y)); };
  if (p.dtype == "bf16") return [=] { smx_softmax_bf16(rows, n, static_cast<const U16 *>(x), static_cast<U16 *>(y)); };
  return [=] { smx_softmax_f16(rows, n, static_cast<const U16 *>(x), static_cast<U16 *>(y)); };
}

Call plain_call(const Problem &p) {
  if (p.threads != 1 || !p.contiguous()) return {};
  if (p.verb == "softmax") return plain_softmax(p);
  if (p.dtype != "f32") return {};
  const size_t rows = p.rows(), n = p.n();
  const float *x = static_cast<const float *>(input(p, 0));
  float *y = static_cast<float *>(output(p.bytes()));
  if (p.verb == "log_softmax") return [=] { smx_log_softmax_f32(rows, n, x, y); };
  if (p.verb == "logsumexp") return [=] { smx_logsumexp_f32(rows, n, x, y); };
  if (p.verb != "softmax_backward") return {};
  const float *dy = static_cast<const float *>(input(p, 1));
  return [=] { smx_softmax_backward_f32(rows, n, x, dy, y); };
}

/* ---- Tensor calls -------------------------------------------------------------------------------------------------------------------- */

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<char> own;
  smx_tensor view = {};

  Tensor(std::vector<int64_t> dims, smx_dtype type, void *data) : shape(std::move(dims)) {
    view.ndim = static_cast<int32_t>(shape.size());
    view.shape = shape.data();
    view.dtype = type;
    view.data = data;
  }
  Tensor(const Tensor &) = delete;

  void *allocate() {
    int64_t count = 1;
    for (int64_t d : shape) count *= d;
    own.resize(static_cast<size_t>(count) * view.dtype.bits / 8);
    return view.data = own.data();
  }
};
using TensorPtr = std::unique_ptr<Tensor>;

std::vector<int64_t> without_axis(const Problem &p) {
  std::vector<int64_t> shape = p.shape;
  shape.erase(p.axis < 0 ? shape.end() - 1 : shape.begin() + p.axis);
  return shape;
}

struct Tensors {
  std::shared_ptr<smx_context> ctx;
  TensorPtr x, dy, y;
};

Call tensor_call(const Problem &p) {
  auto s = std::make_shared<Tensors>();
  const int axis = p.axis;
  s->ctx = context(p.threads);
  s->x = std::make_unique<Tensor>(p.shape, p.type(), input(p, 0));
  s->y = std::make_unique<Tensor>(p.verb == "logsumexp" ? without_axis(p) : p.shape, p.type(), output(p.bytes()));
  if (p.verb == "softmax") return [=] { smx_softmax(s->ctx.get(), axis, &s->x->view, &s->y->view); };
  if (p.verb == "log_softmax") return [=] { smx_log_softmax(s->ctx.get(), axis, &s->x->view, &s->y->view); };
  if (p.verb == "logsumexp") return [=] { smx_logsumexp(s->ctx.get(), axis, &s->x->view, &s->y->view); };
  if (p.verb != "softmax_backward") return {};
  s->dy = std::make_unique<Tensor>(p.shape, p.type(), input(p, 1));
  return [=] { smx_softmax_backward(s->ctx.get(), axis, &s->x->view, &s->dy->view, &s->y->view); };
}

/* ---- Any operator: inputs follow from the rules of its ports ------------------------------------------------------------------------- */

template <class T> void fill(Tensor &t, T (*value)(int64_t)) {
  T *data = static_cast<T *>(t.allocate());
  for (int64_t i = 0, count = static_cast<int64_t>(t.own.size() / sizeof(T)); i < count; i++) data[i] = value(i);
}

TensorPtr build_input(const Problem &p, const smx_port &port, int at) {
  if (port.shape == SMX_SHAPE_OFFSETS) { /* 16 segments of about one length */
    auto t = std::make_unique<Tensor>(std::vector<int64_t>{17}, SMX_I64, nullptr);
    int64_t *offset = static_cast<int64_t *>(t->allocate());
    for (int64_t i = 0; i <= 16; i++) offset[i] = p.n() * i / 16;
    return t;
  }
  const bool column = port.shape == SMX_SHAPE_COLUMN;
  const std::vector<int64_t> shape = column ? std::vector<int64_t>{p.n()} : port.shape == SMX_SHAPE_ROW ? without_axis(p) : p.shape;
  if (port.flags & SMX_PORT_INT) {
    auto t = std::make_unique<Tensor>(shape, SMX_I64, nullptr);
    static thread_local int64_t n;
    n = p.n();
    fill<int64_t>(*t, [](int64_t i) { return i * 7 % n; });
    return t;
  }
  if (port.flags & SMX_PORT_MASK) { /* seven of eight are kept */
    auto t = std::make_unique<Tensor>(shape, SMX_BOOL, nullptr);
    fill<uint8_t>(*t, [](int64_t i) { return static_cast<uint8_t>(i % 8 != 5); });
    return t;
  }
  if (port.shape == SMX_SHAPE_FULL) return std::make_unique<Tensor>(shape, p.type(), input(p, at > 0));
  auto t = std::make_unique<Tensor>(shape, SMX_F32, nullptr);
  fill<float>(*t, [](int64_t) { return 1.0f; });
  return t;
}

struct Run {
  const smx_op *op;
  std::shared_ptr<smx_context> ctx;
  std::vector<TensorPtr> inputs, outputs;
  std::vector<const smx_tensor *> in, out;

  void forward() const {
    smx_forward(op, ctx.get(), nullptr, static_cast<int32_t>(in.size()), in.data(), static_cast<int32_t>(out.size()), out.data());
  }
};

void build_outputs(Run &run, const Problem &p) {
  std::vector<smx_shape> shape(run.op->output_count);
  check(smx_infer(run.op, nullptr, run.op->input_count, run.in.data(), run.op->output_count, shape.data()), run.op->name);
  for (const smx_shape &s : shape) {
    run.outputs.push_back(std::make_unique<Tensor>(std::vector<int64_t>(s.dim, s.dim + s.ndim), s.dtype, nullptr));
    if (run.outputs.size() == 1) run.outputs[0]->view.data = output(p.bytes());
    else run.outputs.back()->allocate();
    run.out.push_back(&run.outputs.back()->view);
  }
}

Call operator_call(const Problem &p, bool optional) {
  auto run = std::make_shared<Run>();
  run->op = smx_op_find(p.verb.c_str() + 3);
  run->ctx = context(p.threads);
  bool any_optional = false;
  for (int32_t i = 0; i < run->op->input_count; i++) {
    const smx_port &port = run->op->inputs[i];
    const bool wanted = optional || !(port.flags & SMX_PORT_OPTIONAL);
    any_optional |= (port.flags & SMX_PORT_OPTIONAL) != 0;
    run->inputs.push_back(wanted ? build_input(p, port, i) : nullptr);
    run->in.push_back(wanted ? &run->inputs.back()->view : nullptr);
  }
  if (optional && !any_optional) return {};
  build_outputs(*run, p);
  const int32_t n_in = static_cast<int32_t>(run->in.size()), n_out = static_cast<int32_t>(run->out.size());
  check(smx_forward(run->op, run->ctx.get(), nullptr, n_in, run->in.data(), n_out, run->out.data()), run->op->name);
  return [run] { run->forward(); };
}

/* ---- The list ------------------------------------------------------------------------------------------------------------------------ */

bool is_operator(const Problem &p) { return p.verb.compare(0, 3, "op:") == 0; }

Call any_call(const Problem &p, const std::string &isa, bool tensor) {
  if (smx_isa_set(isa.c_str())) return {};
  if (is_operator(p)) return operator_call(p, tensor);
  if (tensor) return tensor_call(p);
  Call call = plain_call(p);
  return call || isa == smx_isa_at(0) ? call : tensor_call(p);
}

} // namespace

/* smx: the plain call. smx-tensor: the tensor call with a context. smx-ISA: either, on a lower instruction set.
 * For an operator: smx with the required inputs only, smx-tensor with the optional ones too. */
std::vector<Implementation> library_implementations() {
  const std::string best = smx_isa_name();
  std::vector<Implementation> all = {
      {"smx", [=](const Problem &p) { return any_call(p, best, false); }},
      {"smx-tensor", [=](const Problem &p) { return any_call(p, best, true); }},
  };
  for (int i = 1; i < smx_isa_count(); i++) {
    const std::string isa = smx_isa_at(i);
    if (isa != best) all.push_back({"smx-" + isa, [=](const Problem &p) { return is_operator(p) ? Call() : any_call(p, isa, false); }});
  }
  return all;
}
