"""How results become arrays of the caller's kind. The core asks once a type and remembers."""
import sys

from . import _core


class _Dtypes(dict):
    """name -> numpy.dtype, made when first asked for; bfloat16 is there when ml_dtypes is."""

    def __missing__(self, name):
        import numpy
        if name == "bfloat16":
            import ml_dtypes  # noqa: F401  registers the name
        self[name] = numpy.dtype(name)
        return self[name]


def _numpy(numpy):
    empty, dtypes = numpy.empty, _Dtypes()
    return (lambda shape, dtype: empty(shape, dtypes[dtype])), None


def _torch(torch):
    empty, cpu, dtypes = torch.empty, torch.device("cpu"), vars(torch)
    return (lambda shape, dtype: empty(shape, dtype=dtypes[dtype], device=cpu)), None


def kind(like):
    """(empty, wrap): empty(shape, dtype) gives memory to write to, wrap makes the caller's kind of it (None: it is that already)."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy and isinstance(like, (numpy.ndarray, numpy.generic)):
        return _numpy(numpy)
    if torch and isinstance(like, torch.Tensor):
        return _torch(torch)
    if hasattr(like, "__array_namespace__"):  # JAX, and all that follow the array API
        return _core.Storage, like.__array_namespace__().from_dlpack
    if hasattr(like, "__dlpack__"):
        return _core.Storage, None
    return _core.Storage, memoryview
