"""PyTorch, as the core is told of it: how plain tensors are opened and made without a detour, and
what tells that somebody looks on."""

import ctypes
import os

import torch
from torch.autograd import forward_ad

from .. import _core

KINDS = (torch.Tensor, torch.nn.Parameter)
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8", "bool")


def _maker():
    """Functions of PyTorch's stable C interface that make tensors, or None in one that lacks them."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        functions = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in (
                "aoti_torch_empty_strided",
                "aoti_torch_get_data_ptr",
                "torch_tensor_to_pyobject",
                "aoti_torch_delete_tensor_object",
                "aoti_torch_grad_mode_is_enabled",
            )
        ]
        codes = {name: getattr(library, "aoti_torch_dtype_" + name)() for name in DTYPES}
        return (*functions, library.aoti_torch_device_type_cpu(), codes)
    except (OSError, AttributeError):
        return None


def _quiet():
    """(function, None, what it gives) and (names, name, value), while nobody looks on."""
    functions = [
        (torch._C, "_len_torch_dispatch_stack", 0),
        (torch._C._functorch, "peek_interpreter_stack", None),
        (torch._C, "_is_tracing", False),
    ]
    names = [(forward_ad, "_current_level", -1)]
    return tuple(
        [(getattr(module, name), None, value) for module, name, value in functions if hasattr(module, name)]
        + [(vars(module), name, value) for module, name, value in names if hasattr(module, name)]
    )


_core.open_torch({
    "tensor": KINDS[0],
    "parameter": KINDS[1],
    "grad_enabled": torch.is_grad_enabled,
    "keep_graph": getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None),
    "is_neg": torch.Tensor.is_neg,
    "quiet": _quiet(),
    "maker": _maker(),
})
