"""`pip install .` gives a package that works. Built with portable C only, which is quick, it must give the bits of the one under test."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

PROGRAM = """
import hashlib, numpy as np, libsoftmax
x = np.random.default_rng(3).standard_normal((50, 300)).astype("float32")
found = [libsoftmax.softmax(x), libsoftmax.logsumexp(x), libsoftmax.softmax_backward(x, y=libsoftmax.softmax(x))]
print(libsoftmax.__file__, libsoftmax.isa, hashlib.sha256(b"".join(y.tobytes() for y in found)).hexdigest())
"""


def result(folder=None):
    """Where the package lies, its instruction set, a hash of results."""
    environment = dict(os.environ, PYTHONPATH=str(folder or ""))
    p = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True, cwd="/")
    return p.stdout.split()


def main():
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps"]
        subprocess.run([*pip, "--target", folder, "-C", "cmake.define.SMX_ISAS=none", str(ROOT)], check=True)
        names = sorted(p.name for p in Path(folder, "libsoftmax").iterdir())
        assert {"__init__.pyi", "torch.pyi", "jax.pyi", "py.typed", "_core.abi3.so"} <= set(names), names
        built, tested = result(folder), result()
    print("wheel: %s and %s: %s" % (built[1], tested[1], "the same bits" if built[2] == tested[2] else "OTHER BITS"))
    return not (built[0].startswith(folder) and built[2] == tested[2])


if __name__ == "__main__":
    sys.exit(main())
