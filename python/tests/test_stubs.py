"""The stubs: every def has the arguments, kinds and defaults of its function, and mypy takes them where it is
installed."""
import ast
import importlib.util
import inspect
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import libsoftmax
from libsoftmax import _functions

FOLDER = Path(libsoftmax.__file__).parent

PROGRAM = """
import numpy as np
from numpy.typing import NDArray
from array import array
import libsoftmax

x: NDArray[np.float32] = np.zeros((2, 3), np.float32)
y: NDArray[np.float32] = libsoftmax.softmax(x, temperature=0.5, axis=0, out=x)
m: memoryview = libsoftmax.softmax(array("f", [1, 2]))
z = libsoftmax.hardmax(x, ties="split", on_empty="nan")
n: int = libsoftmax.threads(2)
whole = libsoftmax.softmax(x, None, where=x > 0)
lse: NDArray[np.float32] = libsoftmax.logsumexp(x, (0, 1), keepdims=True)
lse, sign = libsoftmax.logsumexp(x, b=[1, -1, 1], return_sign=True)
listed = libsoftmax.softmax([[1.0, 2.5], [3.0, 4.0]], 0).mean()
loss: NDArray[np.float32] = libsoftmax.cross_entropy(x, [0, 1]).loss
dx: NDArray[np.float32] | None = libsoftmax.cross_entropy(x, np.array([0, 1]), return_dx=True).dx
value, index, *_ = libsoftmax.softmax_topk(x, k=2)
both: NDArray[np.float32] = value + index
one: NDArray[np.float32] = libsoftmax.softmax_backward(x, y=x)
several: tuple[NDArray[np.float32], ...] = libsoftmax.softmax_backward(x, y=x, temperature=2, wanted=("x",))
q: NDArray[np.float32] = np.zeros((1, 1, 2, 4), np.float32)
o: NDArray[np.float32] = libsoftmax.attention(q, q, q, causal=True)
o, sums = libsoftmax.attention(q, q, q, return_lse=True)
dq, dk = libsoftmax.attention_backward(o, q=q, k=q, v=q, o=o, lse=sums, wanted=("q", "k"))
dv: NDArray[np.float32] = libsoftmax.attention_backward(o, q=q, k=q, v=q, o=o, lse=sums, wanted="v")
kept: NDArray[np.float32] = libsoftmax.attention_select(q[0], 2).kept
seed = np.random.default_rng(0)
token: NDArray[np.float32] = libsoftmax.sample(x, 1, top_p=0.9, bias={5: -1.0}, dry=(0.8, [1, 2]), seed=seed)
told = libsoftmax.sample(x, steps=[("top_k", 3), ("repetition", 1.2, [4])], return_status=True).status
sampler = libsoftmax.Sampler(top_k=3, repetition=1.1)
sampler.feed([1, 2])
again: NDArray[np.float32] = sampler(x)
"""

WRONG = ['libsoftmax.softmax()', 'libsoftmax.softmax("text")', 'libsoftmax.softmax(x, axis="last")',
         'libsoftmax.softmax(x, heat=1)',
         'libsoftmax.hardmax(x, ties="third")', 'libsoftmax.masked_softmax(x)', 'libsoftmax.softmax(x, 0.5)',
         'libsoftmax.softmax(x, dim=0)',
         'libsoftmax.softmax(["a"])', 'libsoftmax.cross_entropy(x, [0, 1]).gradient',
         'libsoftmax.cross_entropy(x, [0, 1]).dx.sum()',
         'libsoftmax.softmax_backward(x, y=x, wanted=("x",)).sum()', 'libsoftmax.attention(q, q, q).lse',
         'libsoftmax.attention(q, q, q, return_lse=True).m',
         'libsoftmax.sample(x, 0.8)', 'libsoftmax.sample(x, topk=3)', 'libsoftmax.sample(x).log',
         'libsoftmax.Sampler(heat=1)']


def definitions(name):
    """name -> [(argument, kind, default or None)] of each def."""
    for node in ast.parse((FOLDER / name).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            a = node.args
            defaults = [None] * (len(a.args) - len(a.defaults)) + a.defaults + a.kw_defaults
            yield node.name, [(x.arg, "named" if x in a.kwonlyargs else "positional", d and ast.unparse(d))
                              for x, d in zip(a.args + a.kwonlyargs, defaults)]


def described(function):
    found = []
    for p in inspect.signature(function).parameters.values():
        infinite = p.default in (float("inf"), -float("inf"))
        default = None if p.default is p.empty else "..." if infinite else repr(p.default)
        found.append((p.name, "named" if p.kind is p.KEYWORD_ONLY else "positional", default))
    return found


def variants(name):
    """name -> the arguments of each of its defs."""
    found = {}
    for function, arguments in definitions(name):
        found.setdefault(function, []).append(arguments)
    return found


class Stubs(unittest.TestCase):
    def agree(self, variants, expected, name):
        """Each def has the arguments of the function and their defaults, but for what its result depends on;
        one has all the defaults."""
        for arguments in variants:
            self.assertEqual([a[:2] for a in arguments], [a[:2] for a in expected], name)
            for (argument, _, default), (*_, wanted) in zip(arguments, expected):
                if default is not None or not (argument == "wanted" or argument.startswith("return_")):
                    self.assertEqual(default, wanted, "%s: %s" % (name, argument))
        self.assertIn(expected, variants, name)

    def test_package(self):
        found = variants("__init__.pyi")
        functions = {n for n in libsoftmax.__all__ if inspect.isfunction(getattr(libsoftmax, n))}
        self.assertEqual(set(found), functions)
        for name, some in found.items():
            if name not in ("threads", "infer"):
                self.agree(some, described(getattr(libsoftmax, name)), name)

    def test_frameworks(self):
        for framework, file in (("torch", "torch/__init__.pyi"), ("jax", "jax.pyi")):
            found = variants(file)
            attention = {n for n in libsoftmax.__all__
                         if n.startswith(("attention", "rope")) and n + "_backward" in libsoftmax.__all__}
            operators = {op.name for op in libsoftmax.OPERATORS.values() if op.backward}
            self.assertEqual(set(found), operators | attention)
            for name, some in found.items():
                op = libsoftmax.OPERATORS.get(name)
                others = [*_functions.weights(op)] if op else []
                if op and framework == "torch":
                    others += _functions.masks(op)
                left_out = {"out", *(a.name for a in others)}
                expected = [a for a in described(getattr(libsoftmax, name)) if a[0] not in left_out]
                if framework == "torch" and name in operators:
                    expected = [("reduction", kind, "'mean'") if n == "reduction" else (n, kind, default)
                                for n, kind, default in expected]
                if name in operators:
                    expected.append(("dtype", "named", "None"))
                    if framework == "torch" and any(p.dx for p in op.outputs):
                        expected.append(("donate_logits", "named", "False"))
                self.agree(some, expected, name)

    def test_results_are_typed(self):
        """No result is anything at all, and neither is a part of one."""
        for name in ("__init__.pyi", "torch/__init__.pyi", "jax.pyi"):
            for node in ast.parse((FOLDER / name).read_text()).body:
                parts = [node.returns] if isinstance(node, ast.FunctionDef) else []
                bases = [ast.unparse(base) for base in getattr(node, "bases", [])]
                if "NamedTuple" in bases:
                    parts = [part.annotation for part in node.body]
                for part in parts:
                    self.assertNotIn("Any", [n.id for n in ast.walk(part) if isinstance(n, ast.Name)],
                                     node.name)

    @unittest.skipUnless(importlib.util.find_spec("mypy") and "site-packages" in str(FOLDER),
                         "needs mypy, and the package installed")
    def test_mypy(self):
        """It finds fault with the wrong lines only."""
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run([sys.executable, "-m", "mypy", "--strict", "-c", PROGRAM + "\n".join(WRONG)],
                               capture_output=True, text=True,
                               cwd=folder)
        first = PROGRAM.count("\n") + 1
        found = {int(n) for n in re.findall(r"<string>:(\d+): error", p.stdout)}
        self.assertEqual(found, set(range(first, first + len(WRONG))), p.stdout + p.stderr)


if __name__ == "__main__":
    unittest.main()
