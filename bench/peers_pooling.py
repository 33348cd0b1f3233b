"""Pooling of images in peers.py: PyTorch's functions beside the library, windows of 2 x 2 and the mean of all cells, in C order and by channel.

pool_soft and pool_ada stand beside the formulas of their authors on PyTorch. `peers_pooling.py LIBRARY [SHAPE]` says what part of the bound of memory
the library reaches: reading the cells and writing the outputs, in turns, on the same memory, with caches flushed, the least time of each; and, where
there is PyTorch, how many times as long as soft_pool SoftPool's Python takes, as published, which sums exponentials over the channels."""
import ctypes
import sys
import time

PREFIX = "pool_"
OPERATORS = {"pool_max": "max_pool", "pool_mean": "avg_pool", "pool_bins": "adaptive_avg_pool", "pool_soft": "soft_pool", "pool_ada": "ada_pool"}
CASES = [(verb + last, "f32", shape) for shape in ("4x32x56x56", "8x64x112x112") for verb in OPERATORS for last in ("", "_last")]


def kind_of(case):
    verb = case.verb.removesuffix("_last")
    return verb, verb != case.verb, (1, 1) if verb == "pool_bins" else tuple(n // 2 for n in case.shape[2:])


def inputs(case, at_page):
    import numpy as np
    x = at_page(case.shape, np.float32)
    x[...] = np.random.default_rng(0).standard_normal(case.shape)
    return x


def image_tensor(at_page, shape, last, tensor, x=None):
    """(array in memory, tensor [N, C, H, W]) of an image whose channels come last, or not."""
    import numpy as np
    n, c, h, w = shape
    array = at_page((n, h, w, c) if last else shape, np.float32)
    if x is not None:
        array[...] = x.transpose(0, 2, 3, 1) if last else x
    made = tensor(array)
    made.shape = (ctypes.c_int64 * 4)(*shape)
    if last:
        made.kept = (ctypes.c_int64 * 4)(h * w * c, 1, w * c, c)
        made.strides = ctypes.cast(made.kept, ctypes.c_void_p)
    return array, made


def libsoftmax(case, x, lib, context, tensor, at_page, check):
    verb, last, outputs_of = kind_of(case)
    lib.smx_op_find.restype = ctypes.c_void_p
    op = ctypes.c_void_p(lib.smx_op_find(OPERATORS[verb].encode()))
    image, given = image_tensor(at_page, case.shape, last, tensor, x)
    y, made = image_tensor(at_page, (*case.shape[:2], *outputs_of), last, tensor)
    inputs, outputs = (ctypes.c_void_p * 3)(ctypes.addressof(given)), (ctypes.c_void_p * 2)(ctypes.addressof(made))
    count = 2 if verb == "pool_max" else 1

    def call():
        check(lib, lib.smx_forward(op, context, None, 1, inputs, count, outputs))
        return y.transpose(0, 3, 1, 2) if last else y
    call.kept = image, given, made  # an address does not keep its array
    return call


def torch(case, x, lib):
    verb, last, _ = kind_of(case)
    functions, there = lib.nn.functional, lib.from_numpy(x)
    if last:
        there = there.contiguous(memory_format=lib.channels_last)

    def soft():
        """As SoftPool's, without its kernels."""
        e = lib.exp(there)
        return functions.avg_pool2d(there * e, 2).mul_(4).div_(functions.avg_pool2d(e, 2).mul_(4))

    def ada():
        """Both means of adaPool's, mixed by a half."""
        mean = functions.interpolate(functions.avg_pool2d(there, 2), scale_factor=2)
        dice = lib.exp(2 * (there * mean).abs() / (there * there + mean * mean))
        return 0.5 * functions.avg_pool2d(there * dice, 2).div_(functions.avg_pool2d(dice, 2)) + 0.5 * soft()
    plain = {"pool_max": lambda: functions.max_pool2d(there, 2), "pool_mean": lambda: functions.avg_pool2d(there, 2),
             "pool_bins": lambda: functions.adaptive_avg_pool2d(there, 1), "pool_soft": soft, "pool_ada": ada}[verb]

    def call():
        with lib.inference_mode():
            return plain()
    return call


def bound(cells, outputs, read, written):
    """A call that reads so many bytes and writes so many, with the functions of the C library."""
    libc, size, at = ctypes.CDLL(None), ctypes.c_size_t, ctypes.c_void_p

    def call():
        libc.memcpy(at(outputs), at(cells), size(written))
        libc.memcmp(at(cells + written), at(cells + written), size(read - written))
    return call


def published(case, x):
    """soft_pool2d of SoftPool, as it is on a processor (github.com/alexandrosstergiou/SoftPool, pytorch/SoftPool/idea.py)."""
    import torch as lib
    pool, there = lib.nn.functional.avg_pool2d, lib.from_numpy(x)
    lib.set_num_threads(1)
    if kind_of(case)[1]:
        there = there.contiguous(memory_format=lib.channels_last)

    def call():
        with lib.inference_mode():
            e = lib.clamp(lib.sum(lib.exp(there), dim=1, keepdim=True), 0.0, float("inf"))
            y = pool(there.mul(e), (2, 2), stride=(2, 2)).mul_(4).div_(pool(e, (2, 2), stride=(2, 2)).mul_(4))
            return lib.clamp(y, 0.0, float("inf"))
    return call


def least_times(calls, before):
    """The least of 40 times of each, in turns."""
    least = [float("inf")] * len(calls)
    for _ in range(40):
        for i, each in enumerate(calls):
            before()
            begin = time.perf_counter()
            each()
            least[i] = min(least[i], time.perf_counter() - begin)
    return least


def main(library, shape="8x64x112x112"):
    import importlib.util
    import numpy as np
    import peers
    flush = np.ones(12 << 20)  # more than the caches hold
    for name in [verb + last for verb in ("pool_max", "pool_mean", "pool_bins") for last in ("", "_last")]:
        case = peers.Case("%s/f32/%s/t1" % (name, shape))
        call = peers.libsoftmax(case, inputs(case, peers.at_page), library)
        planes, high = case.shape[0] * case.shape[1], kind_of(case)[2]
        calls = call, bound(call.kept[1].data, call.kept[2].data, 4 * case.elements, 4 * planes * high[0] * high[1])
        least = least_times(calls, flush.sum)
        print("%-16s %s: %.2f of the bound" % (name, shape, least[1] / least[0]))
    for name in ("pool_soft", "pool_soft_last") if importlib.util.find_spec("torch") else ():
        case = peers.Case("%s/f32/%s/t1" % (name, shape))
        x = inputs(case, peers.at_page)
        ours, theirs = least_times((peers.libsoftmax(case, x, library), published(case, x)), lambda: None)
        print("%-16s %s: SoftPool's Python takes %.1f times as long" % (name, shape, theirs / ours))


if __name__ == "__main__":
    main(*sys.argv[1:])
