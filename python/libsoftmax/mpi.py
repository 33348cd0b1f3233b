"""Operators on rows whose columns lie on the ranks of an MPI communicator, with the bits of one process: arrays of
NumPy, and mpi4py.

    from libsoftmax import mpi
    loss = mpi.cross_entropy(logits, classes).loss    # logits [rows, this rank's columns], classes of all columns

Every rank calls the same function with the columns that it holds, in the order of ranks; any cut will do, and ranks
may hold none. At multiples of 8192 (shard) no column is copied. Arrays as long as a row, and those with one value a
column, are this rank's part; all others are whole, and the same on every rank, as are results that are not as long
as a row. n (columns of all ranks) and first (where this rank's begin) may be said, and are checked then. An error on
one rank is one on all of them. comm=None is MPI.COMM_WORLD.

No second library is needed: messages travel by mpi4py, arithmetic and decisions are those of libsoftmax, so that
the results are those of libsoftmax_mpi (softmax/mpi.h) too."""
from typing import Any

import numpy
from mpi4py import MPI

from . import _arrays, _core, _split

_dtypes = _arrays._Dtypes()
_AT_ONCE = 1 << 30  # bytes that a rank sends or gets in one call; counts of MPI are int


class _Communicator:
    """A transport of _split.py. A message takes a few microseconds."""

    quick = True

    def __init__(self, comm):
        self.comm = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size, self._own = self.comm.Get_rank(), self.comm.Get_size(), None

    def gather(self, message, sizes):
        made = bytearray(sum(sizes))
        request = self.comm.Iallgatherv(message, [made, sizes, MPI.BYTE])

        def wait():
            request.Wait()
            return made
        return wait

    def scatter(self, message, to, sizes):
        made = bytearray(sum(sizes))
        request = self.comm.Ialltoallv([message, to, MPI.BYTE], [made, sizes, MPI.BYTE])

        def wait():
            request.Wait()
            return made
        return wait

    def exchange(self, sent, columns, rows, like):
        size = like.itemsize
        most = max(1, _AT_ONCE // (2 * _split.GROUP * size))
        made = [[] for _ in sent]
        for begin in range(0, rows, most):
            count = min(most, rows - begin)
            parts = [numpy.empty(0, like.dtype) if a is None else a[begin:begin + count].reshape(-1) for a in sent]
            come = numpy.empty(count * sum(columns), like.dtype)
            self.comm.Alltoallv([numpy.concatenate(parts).view(numpy.uint8), [p.size * size for p in parts], MPI.BYTE],
                                [come.view(numpy.uint8), [count * k * size for k in columns], MPI.BYTE])
            ends = numpy.cumsum([count * k for k in columns])[:-1]
            for all, k, part in zip(made, columns, numpy.split(come, ends)):
                all.append(part.reshape(count, k))
        return [numpy.concatenate(all) if all else None for all in made]

    def _relay(self):
        """A communicator without messages of others; all ranks ask for it at the same time."""
        self._own = self._own or self.comm.Dup()
        return self._own

    def send(self, data, rank):
        self._relay().Send([data, MPI.BYTE], rank)

    def receive(self, count, rank):
        made = bytearray(count)
        self._relay().Recv([made, MPI.BYTE], rank)
        return made

    def spread(self, data, count, root):
        made = bytearray(data if self.rank == root else count)
        self.comm.Bcast([made, MPI.BYTE], root)
        return made

    def close(self):
        if self._own:
            self._own.Free()

    # ---- arrays ----

    @staticmethod
    def array(value):
        a = numpy.asarray(_arrays.unmasked(value))
        if not a.dtype.isnative:
            raise TypeError("elements are not in this machine's byte order")
        return a

    @staticmethod
    def whole(a):
        return a.dtype.kind in "iub"

    @staticmethod
    def cast(a, dtype):
        return a.astype(dtype)

    @staticmethod
    def dtype(a):
        return a.dtype.name

    @staticmethod
    def empty(shape, dtype):
        return numpy.empty(shape, _dtypes[dtype])

    move = staticmethod(numpy.moveaxis)


def shard(n: int, comm: MPI.Comm | None = None) -> tuple[int, int]:
    """(first, count): an even share of n columns for this rank, cut at multiples of 8192."""
    t = _Communicator(comm)
    return _core.split_shard(n, t.size, t.rank)


def forward(name: str, *inputs: Any, n: int | None = None, first: int | None = None, comm: MPI.Comm | None = None,
            **params: Any) -> Any:
    """libsoftmax.NAME, for any operator on rows: its arguments, but for out= and where=, with one axis."""
    return _split.forward(_Communicator(comm), name, inputs, params, n, first)


def backward(name: str, *inputs: Any, n: int | None = None, first: int | None = None, comm: MPI.Comm | None = None,
             **params: Any) -> Any:
    """libsoftmax.NAME_backward, in the same way."""
    return _split.backward(_Communicator(comm), name, inputs, params, n, first)


def _make(name):
    def function(*inputs: Any, n: int | None = None, first: int | None = None, comm: MPI.Comm | None = None, **params: Any) -> Any:
        return forward(name, *inputs, n=n, first=first, comm=comm, **params)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = "libsoftmax.%s, of rows over the ranks of comm." % name
    return function


softmax, log_softmax, logsumexp, cross_entropy = map(_make, ("softmax", "log_softmax", "logsumexp", "cross_entropy"))

__all__ = ["backward", "cross_entropy", "forward", "log_softmax", "logsumexp", "shard", "softmax"]
