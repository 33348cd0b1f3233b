/* bench/operators.cc - any operator of the table, forward or backward: inputs follow from the rules of its ports. */
#include "tensor.h"
#include <cstring>

namespace {

template <class T> void fill(Tensor &t, T (*value)(int64_t)) {
  T *data = static_cast<T *>(t.view.data);
  for (int64_t i = 0, count = static_cast<int64_t>(t.own.size() / sizeof(T)); i < count; i++) data[i] = value(i);
}

/* Sixteen segments of about one length; masks keep seven of eight; classes are small; a value a row is 1. */
TensorPtr build_input(const Problem &p, const smx_port &port, int which) {
  if (port.shape == SMX_SHAPE_OFFSETS) {
    auto t = std::make_unique<Tensor>(std::vector<int64_t>{17}, SMX_I64);
    int64_t *offset = static_cast<int64_t *>(t->view.data);
    for (int64_t i = 0; i <= 16; i++) offset[i] = p.n() * i / 16;
    return t;
  }
  if (port.shape != SMX_SHAPE_FULL && port.shape != SMX_SHAPE_ROW)
    throw std::runtime_error(std::string(port.name) + ": no such input here");
  const std::vector<int64_t> shape = port.shape == SMX_SHAPE_ROW ? p.shape_of_rows() : p.shape;
  if (port.flags & SMX_PORT_MASK) {
    auto t = std::make_unique<Tensor>(shape, SMX_BOOL);
    fill<uint8_t>(*t, [](int64_t i) { return static_cast<uint8_t>(i % 8 != 5); });
    return t;
  }
  if (port.flags & SMX_PORT_INT) {
    auto t = std::make_unique<Tensor>(shape, SMX_I64);
    fill<int64_t>(*t, [](int64_t i) { return i % 16; });
    return t;
  }
  if (port.shape == SMX_SHAPE_FULL) return std::make_unique<Tensor>(shape, p.type(), input(p, which > 0));
  auto t = std::make_unique<Tensor>(shape, SMX_F32);
  fill<float>(*t, [](int64_t) { return 1.0f; });
  return t;
}

/* The tensors of one kind, in the order of the ports; NULL where none is given. */
struct Tensors {
  std::vector<TensorPtr> own;
  std::vector<const smx_tensor *> view;

  void add(TensorPtr t) {
    view.push_back(t ? &t->view : nullptr);
    own.push_back(std::move(t));
  }
  int32_t count() const { return static_cast<int32_t>(view.size()); }
};

struct Run {
  const smx_op *op;
  ContextPtr ctx;
  Tensors in, out, dout, din;

  void forward() const { require(smx_forward(op, ctx.get(), nullptr, in.count(), in.view.data(), out.count(), out.view.data())); }
  void backward() const {
    require(
        smx_backward(op, ctx.get(), nullptr, in.count(), in.view.data(), out.count(), out.view.data(), dout.view.data(), din.view.data()));
  }
};

/* The first result of the call that is timed goes to the shared buffer. */
void build_outputs(Run &run, const Problem &p, bool shared) {
  std::vector<smx_shape> shape(run.op->output_count);
  require(smx_infer(run.op, nullptr, run.in.count(), run.in.view.data(), run.op->output_count, shape.data()));
  for (const smx_shape &s : shape) {
    void *data = shared && run.out.own.empty() ? output(p.bytes()) : nullptr;
    run.out.add(std::make_unique<Tensor>(std::vector<int64_t>(s.dim, s.dim + s.ndim), s.dtype, data));
  }
}

/* Upstream gradients for every output; gradients of every input that has one and is given. */
void build_gradients(Run &run, const Problem &p) {
  for (const TensorPtr &y : run.out.own) {
    const bool full = y->shape == p.shape;
    run.dout.add(std::make_unique<Tensor>(y->shape, y->view.dtype, full ? input(p, 1) : nullptr));
    if (!full) memset(run.dout.own.back()->own.data(), 0x3c, run.dout.own.back()->own.size()); /* small, in any dtype */
  }
  for (int32_t i = 0; i < run.op->input_count; i++) {
    const bool wanted = run.in.own[i] && run.op->inputs[i].flags & SMX_PORT_GRAD;
    run.din.add(wanted ? std::make_unique<Tensor>(run.in.own[i]->shape, p.type(), i ? nullptr : output(p.bytes())) : nullptr);
  }
}

} // namespace

Call operator_call(const Problem &p, bool optional) {
  auto run = std::make_shared<Run>();
  bool any_optional = false;
  run->op = p.op();
  run->ctx = make_context(p.threads);
  for (int32_t i = 0; i < run->op->input_count; i++) {
    const smx_port &port = run->op->inputs[i];
    any_optional |= (port.flags & SMX_PORT_OPTIONAL) != 0;
    run->in.add(optional || !(port.flags & SMX_PORT_OPTIONAL) ? build_input(p, port, i) : nullptr);
  }
  if (optional && !any_optional) return {};
  build_outputs(*run, p, !p.gradient());
  if (!p.gradient()) return [run] { run->forward(); };
  run->forward();
  build_gradients(*run, p);
  return [run] { run->backward(); };
}
