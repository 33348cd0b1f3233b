"""How results become arrays of the caller's kind. The core asks once a type and remembers."""
import sys
from collections.abc import Sequence

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
    last = {4: torch.channels_last, 5: torch.channels_last_3d}
    return (lambda shape, dtype: empty(shape, dtype=dtypes[dtype], device=cpu)), None, torch.empty_like, (
        lambda shape, dtype: empty(shape, dtype=dtypes[dtype], device=cpu, memory_format=last[len(shape)]))


def _asarray(object):
    try:
        import numpy
    except ImportError:
        raise TypeError("%s shows no array by the buffer protocol or DLPack, and there is no NumPy to make "
                        "one of it"
                        % type(object).__name__) from None
    return numpy.asarray(object)


def _plain(masked):
    """The array of a masked one in which nothing is masked."""
    if masked.mask.any():
        raise ValueError("some elements are masked, and there is no mask here: fill them, or leave them out")
    return masked.data


def unmasked(object):
    """The object; of a masked array its data, where nothing is masked."""
    numpy = sys.modules.get("numpy")
    return _plain(object) if numpy and isinstance(object, numpy.ma.MaskedArray) else object


def _apart(masked, keep):
    """(array, which elements exist) of a masked array and what was given as the latter; None for all."""
    import numpy
    if not masked.mask.any():
        return masked.data, keep
    own = ~numpy.ma.getmaskarray(masked)
    return masked.data, own if keep is None else own & numpy.asarray(keep, dtype=bool)


def _readable(object):
    """Whether the core can open it as it is."""
    try:
        memoryview(object)
    except TypeError:
        return hasattr(object, "__dlpack__")
    except (BufferError, ValueError):  # a buffer all the same, if one that memoryview has no word for
        pass
    return True


def adopter(object):
    """What is to be done with arrays of this type before the core can open them: nothing (None); a function
    that gives an array to open; or for masked arrays a tuple of it and a function that gives the mask too."""
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(object, numpy.ma.MaskedArray):
        return _plain, _apart
    if _readable(object):
        return None
    listed = isinstance(object, (Sequence, int, float)) and not isinstance(object, str)
    return _asarray if listed or hasattr(object, "__array__") else None


def kind(like):
    """(empty, wrap): empty(shape, dtype) gives memory to write to, wrap makes the caller's kind of it (None:
    it is that already). A third, where there is one, makes an array of the shape and dtype of another, and a
    fourth is like the first and puts dimension 1 last in memory."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy and (isinstance(like, (numpy.ndarray, numpy.generic)) or adopter(like)):
        return _numpy(numpy)
    if torch and isinstance(like, torch.Tensor):
        return _torch(torch)
    if hasattr(like, "__array_namespace__"):  # JAX, and all that follow the array API
        return _core.Storage, like.__array_namespace__().from_dlpack
    if hasattr(like, "__dlpack__"):
        return _core.Storage, None
    return _core.Storage, memoryview
