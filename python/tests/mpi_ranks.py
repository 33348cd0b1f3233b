"""libsoftmax.mpi: results on 1, 2, 3 and 5 ranks have the bits of one process, whatever the cut; an error of one rank is one of
all. Needs mpi4py and mpirun, under which this file runs itself."""
import gc
import os
import subprocess
import sys
import unittest

import numpy as np

import libsoftmax

N, ROWS = 20000, 5
ENVIRONMENT = {  # as root, more ranks than processors, and no more rights than a container has
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}


class Ranks(unittest.TestCase):
    def run_on(self, size):
        command = ["mpirun", "-n", str(size), sys.executable, "-B", __file__]
        p = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=300)
        self.assertEqual((p.returncode, p.stdout.count("every check passed")), (0, size), p.stdout)

    def test_one(self):
        self.run_on(1)

    def test_two(self):
        self.run_on(2)

    def test_three(self):
        self.run_on(3)

    def test_five(self):
        self.run_on(5)


def same(a, b):
    if a is None or b is None:
        return a is b
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def cuts(comm):
    size = comm.size
    even = [N * r // size for r in range(size + 1)]
    groups = [8192 * (3 * r // size) for r in range(size)] + [N]
    for cut in even, groups, [0] * size + [N], [0, *[7, 9, 9, 9][:size - 1], N]:
        yield slice(cut[comm.rank], cut[comm.rank + 1])


def scores(*shape, dtype="float32", seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


def hard_rows(dtype="float32"):
    x = scores(ROWS, N, dtype=dtype)
    x[1, ::3] = x[2] = -np.inf
    x[3, 15000], x[4, 100] = np.nan, np.inf
    return x


def check_cuts(mpi, comm):
    for dtype in "float32", "float64", "float16":
        x, g = hard_rows(dtype), scores(ROWS, N, dtype=dtype, seed=1)
        soft, top = libsoftmax.softmax(x), libsoftmax.softmax_topk(x, k=50)
        back, whole = libsoftmax.softmax_backward(g, y=soft), (g * 9).astype(int)
        along = libsoftmax.logcumsumexp(x)
        along_back = libsoftmax.logcumsumexp_backward(g, x=x, y=along)  # goes from the last rank to the first
        for part in cuts(comm):
            y = mpi.forward("logcumsumexp", x[:, part])
            assert same(y, along[:, part]) and same(mpi.backward("logcumsumexp", g[:, part], x=x[:, part], y=y), along_back[:, part])
            y = mpi.softmax(x[:, part])
            assert same(y, soft[:, part]) and same(mpi.backward("softmax", g[:, part], y=y), back[:, part])
            assert same(mpi.softmax(x.T[part], axis=0), libsoftmax.softmax(x.T, axis=0)[part])
            assert same(mpi.log_softmax(x[:, part]), libsoftmax.log_softmax(x)[:, part])
            assert same(mpi.logsumexp(x[:, part], keepdims=True), libsoftmax.logsumexp(x, keepdims=True))
            assert all(map(same, mpi.forward("softmax_topk", x[:, part], k=50), top))
            assert same(mpi.forward("hardmax", whole[:, part]), libsoftmax.hardmax(whole)[:, part])


def check_cross_entropy(mpi, comm):
    x, target, weight = scores(6, N), [0, N - 1, 8191, -100, 8192, 3], abs(scores(N))
    for given in {}, {"reduction": "mean"}, {"label_smoothing": 0.1, "reduction": "sum"}:
        whole = libsoftmax.cross_entropy(x, target, class_weight=weight, return_dx=True, return_lse=True, **given)
        for part in cuts(comm):
            made = mpi.cross_entropy(x[:, part], target, class_weight=weight[part], return_dx=True, return_lse=True, first=part.start, n=N,
                                     **given)
            assert same(made.loss, whole.loss) and same(made.dx, whole.dx[:, part]) and same(made.lse, whole.lse)
        part = slice(*(N * (comm.rank + i) // comm.size for i in range(2)))
        back = libsoftmax.cross_entropy_backward(np.ones(6, "f"), x=x, target=target, class_weight=weight)
        assert same(mpi.backward("cross_entropy", np.ones(6, "f"), x=x[:, part], target=target, class_weight=weight[part]), back[:, part])


def check_other_messages(mpi, comm):
    """Messages of the caller, and communicators with other ranks."""
    from mpi4py import MPI
    x, word = scores(3, N), np.zeros(1)
    waiting = comm.Irecv(word, MPI.ANY_SOURCE, MPI.ANY_TAG) if comm.size > 1 else None
    part = slice(*(N * (comm.rank + i) // comm.size for i in range(2)))
    assert same(mpi.forward("sparsemax", x[:, part]), libsoftmax.sparsemax(x)[:, part])
    assert all(map(same, mpi.forward("softmax_topk", x[:, part], k=9), libsoftmax.softmax_topk(x, k=9)))
    if waiting:
        assert not waiting.Test()
        comm.Barrier()
        comm.Send(np.array([7.0]), (comm.rank + 1) % comm.size)
        waiting.Wait()
        assert word[0] == 7
    others = comm.Split(comm.rank % 2, -comm.rank)
    part = slice(*(N * (others.rank + i) // others.size for i in range(2)))
    assert same(mpi.softmax(x[:, part], comm=others), libsoftmax.softmax(x)[:, part])
    first, count = mpi.shard(N, comm=others)
    assert same(mpi.softmax(x[:, first:first + count], comm=others), libsoftmax.softmax(x)[:, first:first + count])


def check_errors(mpi, comm):
    x, last = scores(4, N), comm.rank == comm.size - 1
    part = next(cuts(comm))
    own, target = x[:, part], np.arange(4)
    cases = [
        (ValueError, "target", lambda: mpi.cross_entropy(own, target + N * last)),
        (ValueError, "sfmax", lambda: mpi.forward("sfmax" if last else "softmax", own)),
        (TypeError, "heat", lambda: mpi.softmax(own, **({"heat": 1} if last else {}))),
        (TypeError, "where", lambda: mpi.softmax(own, **({"where": own > 0} if last else {}))),
        (ValueError, "temperature", lambda: mpi.softmax(own, temperature=-1 if last else 1)),
        (TypeError, "byte order", lambda: mpi.softmax(own.astype(">f4") if last else own)),
        (TypeError, "complex", lambda: mpi.softmax(own.astype("complex64") if last else own)),
        (ValueError, "masked", lambda: mpi.softmax(np.ma.masked_array(own, own > 0) if last else own)),
        (ValueError, "n is", lambda: mpi.softmax(own, n=N + last)),
        (ValueError, "row 2", lambda: mpi.softmax(hard_rows()[:, part], on_empty="error")),
    ]
    if comm.size > 1:
        cases += [(ValueError, "rank 0 has", lambda: mpi.softmax(own if last else own[:3])),
                  (ValueError, "another call", lambda: mpi.cross_entropy(own, target + last))]
    gc.disable()
    held = sys.getrefcount(x)
    for kind, words, function in cases:
        try:
            function()
        except kind as error:
            assert words in str(error), (words, error)
        else:
            raise AssertionError("no error with %r" % words)
        assert same(mpi.softmax(own), libsoftmax.softmax(x)[:, part])
        assert sys.getrefcount(x) == held, words  # no error keeps an array
    gc.enable()


def check_sizes(mpi, comm):
    for rows, n in ((0, N), (3, 0), (3, 1)):
        x = scores(rows, n)
        part = slice(0, n if comm.rank == comm.size - 1 else 0)
        assert same(mpi.softmax(x[:, part]), libsoftmax.softmax(x)[:, part])
    x = scores(700, 9000)  # more than two blocks
    part = slice(*(9000 * (comm.rank + i) // comm.size for i in range(2)))
    assert same(mpi.forward("entmax15", x[:, part]), libsoftmax.entmax15(x)[:, part])


def check_rows(mpi, comm):
    """Rows so long that each rank folds some of them, and blocks so small that caches hold what a gradient reads again."""
    n, kinds = 1200000, {"gather": 0, "scatter": 0}

    def counted(name):
        function = getattr(mpi._Communicator, name)

        def call(self, *args):
            kinds[name] += 1
            return function(self, *args)
        setattr(mpi._Communicator, name, call)
        return function
    before = {name: counted(name) for name in kinds}
    x, target = scores(4, n), [0, n - 1, 1100000, 8192]
    x[1, ::3], x[2, 5] = -np.inf, np.nan
    cut = [0, *[1100000] * (comm.size - 1), n]  # more than a million of one rank
    part = slice(cut[comm.rank], cut[comm.rank + 1])
    whole, made = libsoftmax.cross_entropy(x, target, return_dx=True), mpi.cross_entropy(x[:, part], target, return_dx=True)
    assert same(made.loss, whole.loss) and same(made.dx, whole.dx[:, part])
    assert same(mpi.softmax(x[:, part]), libsoftmax.softmax(x)[:, part])
    assert all(map(same, mpi.forward("softmax_topk", x[:, part], k=50), libsoftmax.softmax_topk(x, k=50)))
    assert comm.size == 1 or kinds["scatter"] >= 3, kinds
    x, kinds["gather"] = scores(64, 9000), 0
    part = slice(*(9000 * (comm.rank + i) // comm.size for i in range(2)))
    assert same(mpi.softmax(x[:, part]), libsoftmax.softmax(x)[:, part])
    assert kinds["gather"] > 4 + 2, kinds  # what all tell each other, and more than one block
    for name, function in before.items():
        setattr(mpi._Communicator, name, function)


def main():
    from mpi4py import MPI

    from libsoftmax import mpi
    mpi._AT_ONCE = 1 << 20  # so that columns travel in several messages
    try:
        for name, check in list(globals().items()):
            if name.startswith("check_"):
                check(mpi, MPI.COMM_WORLD)
    except BaseException:
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(1)
    print("every check passed", flush=True)


if __name__ == "__main__":
    main()
