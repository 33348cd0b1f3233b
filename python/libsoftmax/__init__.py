"""Softmax and the operators around it, with the same bits everywhere.

Arrays are anything that shows itself by the buffer protocol or DLPack: of NumPy (bfloat16 of ml_dtypes too), PyTorch, JAX, array.array ...,
with any strides and without a copy. Results are arrays of the caller's kind; out= writes to one of the caller's.

>>> import array
>>> scores = array.array("f", [1, 2, 3])
>>> [round(weight, 4) for weight in softmax(scores)]
[0.09, 0.2447, 0.6652]

Every operator of the library is a function, and NAME_backward its gradient; those of the family "matrix" take matrices, not rows. help(libsoftmax.softmax) explains one, OPERATORS has the facts.
Attention is no operator on rows and has functions of its own: attention, attention_backward, attention_scores, attention_apply,
attention_column_mass, attention_select, attention_tropical, attention_tropical_backward, rope, rope_backward.
sample draws from scores through a chain of steps, and a Sampler remembers what it drew.
libsoftmax.torch and libsoftmax.jax hold the same functions with automatic gradients. Rows whose columns lie on several processes:
libsoftmax.distributed (torch.distributed) and libsoftmax.mpi (mpi4py).

>>> OPERATORS["softmax"].formula
'y_i = b^(x_i / T) / sum_j b^(x_j / T)'
>>> softmax(scores, temperature=-1)
Traceback (most recent call last):
ValueError: softmax: temperature: -1 is out of range: 0 to inf
"""
from . import _attention, _core, _functions
from ._attention import AttentionResult, RopeResult, SelectResult, TropicalResult
from ._sample import SampleResult, Sampler, sample
from ._table import (ATTENTION_KINDS, OPERATORS, SAMPLING_STEPS, AttentionKind, Operator, Param, Port,
                     SamplingStep)

__version__ = _core.version
isa = _core.isa  #: the instruction set in use; a matter of speed only


def threads(n=None):
    """Sets on how many threads calls run (-1: as many as the process may use; 1 at first), and tells on how many they do.

    >>> threads(2)
    2
    >>> threads(1)
    1
    """
    return _core.threads(n)


def infer(name, *args, **kwargs):
    """The outputs of an operator for these arguments, as [(shape, dtype)], without reading data.

    >>> infer("logsumexp", memoryview(bytes(24)).cast("f", (2, 3)))
    [((2,), 'float32')]
    """
    return _functions.infer(OPERATORS[name], args, kwargs)


_made = _functions.make(OPERATORS)
_attention_functions = {function.__name__: function for function in _attention.FUNCTIONS}
globals().update(_made, **_attention_functions)
__all__ = ["ATTENTION_KINDS", "AttentionKind", "AttentionResult", "OPERATORS", "Operator", "Param", "Port",
           "RopeResult", "SAMPLING_STEPS", "SampleResult", "Sampler", "SamplingStep", "SelectResult",
           "TropicalResult", "infer", "isa", "sample", "threads", *_attention_functions, *_made]
