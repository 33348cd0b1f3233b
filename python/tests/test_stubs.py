"""The stubs: every def has the arguments, kinds and defaults of its function, and mypy takes them where it is installed."""
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
"""

WRONG = ['libsoftmax.softmax()', 'libsoftmax.softmax("text")', 'libsoftmax.softmax(x, axis="last")', 'libsoftmax.softmax(x, heat=1)',
         'libsoftmax.hardmax(x, ties="third")', 'libsoftmax.masked_softmax(x)']


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
        default = None if p.default is p.empty else "..." if p.default in (float("inf"), -float("inf")) else repr(p.default)
        found.append((p.name, "named" if p.kind is p.KEYWORD_ONLY else "positional", default))
    return found


class Stubs(unittest.TestCase):
    def test_package(self):
        found = {}
        for name, arguments in definitions("__init__.pyi"):
            found.setdefault(name, []).append(arguments)
        functions = {n for n in libsoftmax.__all__ if inspect.isfunction(getattr(libsoftmax, n))}
        self.assertEqual(set(found), functions)
        for name, variants in found.items():
            if name not in ("threads", "infer"):
                for arguments in variants:
                    self.assertEqual(arguments, described(getattr(libsoftmax, name)), name)

    def test_frameworks(self):
        for framework in ("torch", "jax"):
            found = dict(definitions(framework + ".pyi"))
            self.assertEqual(set(found), {op.name for op in libsoftmax.OPERATORS.values() if op.backward})
            for name, arguments in found.items():
                expected = [a for a in described(getattr(libsoftmax, name)) if a[0] != "out"]
                self.assertEqual(arguments, expected)

    @unittest.skipUnless(importlib.util.find_spec("mypy") and "site-packages" in str(FOLDER), "needs mypy, and the package installed")
    def test_mypy(self):
        """It finds fault with the wrong lines only."""
        with tempfile.TemporaryDirectory() as folder:
            p = subprocess.run([sys.executable, "-m", "mypy", "--strict", "-c", PROGRAM + "\n".join(WRONG)], capture_output=True, text=True,
                               cwd=folder)
        first = PROGRAM.count("\n") + 1
        found = {int(n) for n in re.findall(r"<string>:(\d+): error", p.stdout)}
        self.assertEqual(found, set(range(first, first + len(WRONG))), p.stdout + p.stderr)


if __name__ == "__main__":
    unittest.main()
