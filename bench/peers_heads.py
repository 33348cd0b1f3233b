"""Cross-entropy of a linear layer in peers.py: PyTorch's composition beside the library. Inputs are features and weights of 32 000 classes."""
import ctypes

PREFIX = "linear_"
CLASSES = 32000
CASES = [(verb, "f32", "2048x1024") for verb in ("linear_cross_entropy", "linear_cross_entropy_dx")]


def inputs(case, at_page):
    import numpy as np
    rows, width = case.shape
    x = [at_page(shape, np.float32) for shape in ((rows, width), (CLASSES, width))]
    for seed, a in enumerate(x):
        a[...] = np.random.default_rng(seed).standard_normal(a.shape)
    x[1] /= width ** 0.5  # logits are normal
    return x


def targets(case):
    import numpy as np
    return np.arange(case.shape[0]) * 7919 % CLASSES


def libsoftmax(case, x, lib, context, _, at_page, check):
    import numpy as np
    (h, w), target, loss = x, targets(case), np.empty(case.shape[0], np.float32)
    grads = [at_page(a.shape, a.dtype) for a in x] if case.verb.endswith("dx") else [None, None]
    arrays = h, w, None, target, None, loss, *grads, None, None
    at = [ctypes.c_void_p(a.ctypes.data if a is not None else None) for a in arrays]
    sizes = [ctypes.c_size_t(n) for n in (case.shape[0], CLASSES, case.shape[1])]

    def call():
        check(lib, lib.smx_linear_cross_entropy_f32(context, *sizes, *at))
        return (loss, grads[0]) if grads[0] is not None else arrays[5]  # an address does not keep its array: this does
    return call


def torch(case, x, lib):
    """The loss of each row, and the gradients of their sum by autograd."""
    (h, w), target = (lib.from_numpy(a) for a in x), lib.from_numpy(targets(case))
    functions = lib.nn.functional

    def forward():
        with lib.inference_mode():
            return functions.cross_entropy(functions.linear(h, w), target, reduction="none")

    def backward():
        inputs = [a.detach().requires_grad_() for a in (h, w)]
        loss = functions.cross_entropy(functions.linear(*inputs), target, reduction="none")
        return loss.detach(), lib.autograd.grad(loss.sum(), inputs)[0]
    return backward if case.verb.endswith("dx") else forward
