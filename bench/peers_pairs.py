"""Losses of pairs and of chains, with their gradients, in peers.py: PyTorch's composition and pytorch-crf beside the library."""
import ctypes

PREFIX = "pairs_"
CASES = [("pairs_clip", "f32", "4096x512"), ("pairs_chain", "f32", "64x512x32")]


def inputs(case, at_page):
    """Two towers; or scores of tags, and of one before another."""
    import numpy as np
    x = [at_page(case.shape, np.float32), at_page(case.shape if case.verb == "pairs_clip" else 2 * case.shape[-1:], np.float32)]
    for seed, a in enumerate(x):
        a[...] = np.random.default_rng(seed).standard_normal(a.shape)
    return x


def tags(case):
    import numpy as np
    return (np.arange(case.shape[0] * case.shape[1]) * 7919 % case.shape[2]).reshape(case.shape[:2])


def libsoftmax(case, x, lib, context, tensor, at_page, check):
    import numpy as np
    lib.smx_op_find.restype = ctypes.c_void_p
    clip, loss, ones = case.verb == "pairs_clip", np.empty(case.shape[0], np.float32), np.ones(case.shape[0], np.float32)
    op = ctypes.c_void_p(lib.smx_op_find(b"clip_loss" if clip else b"linear_chain_crf"))
    grads = [at_page(a.shape, a.dtype) for a in x]
    given, results = list(x), [loss]
    if not clip:
        given, results = [*x, tags(case)], [loss, np.empty_like(loss)]
    ports = {"in": given, "out": results, "dout": [ones, None][:len(results)], "din": [*grads, None][:len(given)]}
    kind = type(tensor(x[0]))
    kept = {name: [None if a is None else tensor(a) for a in arrays] for name, arrays in ports.items()}
    if not clip:
        kept["in"][2].code, kept["in"][2].bits = 0, 64  # whole numbers
    at = {name: (ctypes.POINTER(kind) * len(ts))(*[ctypes.pointer(t) if t is not None else None for t in ts]) for name, ts in kept.items()}

    def call():
        check(lib, lib.smx_forward(op, context, None, len(given), at["in"], len(results), at["out"]))
        check(lib, lib.smx_backward(op, context, None, len(given), at["in"], len(results), at["out"], at["dout"], at["din"]))
        return (loss, grads[0]) if ports else ()  # an address does not keep its array: this does
    return call


def torch(case, x, lib):
    """The loss of each row, and the gradients of their sum by autograd."""
    return torch_clip(x, lib) if case.verb == "pairs_clip" else torch_chain(case, x, lib)


def torch_clip(x, lib):
    functions = lib.nn.functional

    def call():
        a, b = (lib.from_numpy(v).requires_grad_() for v in x)
        logits, own = functions.normalize(a) @ functions.normalize(b).T / 0.07, lib.arange(len(a))
        loss = (functions.cross_entropy(logits, own, reduction="none") + functions.cross_entropy(logits.T, own, reduction="none")) / 2
        return loss.detach(), lib.autograd.grad(loss.sum(), [a, b])[0]
    return call


def torch_chain(case, x, lib):
    import torchcrf  # pytorch-crf
    crf = torchcrf.CRF(case.shape[2], batch_first=True)
    with lib.no_grad():
        crf.transitions.copy_(lib.from_numpy(x[1]))
        crf.start_transitions.zero_(), crf.end_transitions.zero_()
    target = lib.from_numpy(tags(case))

    def call():
        e = lib.from_numpy(x[0]).requires_grad_()
        loss = -crf(e, target, reduction="none")
        return loss.detach(), lib.autograd.grad(loss.sum(), [e, crf.transitions])[0]
    return call
