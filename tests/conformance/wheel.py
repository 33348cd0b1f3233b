"""The source distribution builds a wheel that works, under a manylinux name. Built with portable C only, which is quick, it must give the bits of the
package under test."""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
import make_wheel  # noqa: E402

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
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
        source, made = make_wheel.make(Path(folder, "wheel"), ["cmake.define.SMX_ISAS=none"])
        assert source.name.endswith(".tar.gz") and "-abi3-" in made.name and ("manylinux" in made.name or "musllinux" in made.name), made.name
        assert made.stat().st_size <= make_wheel.BUDGET, made.stat().st_size
        subprocess.run([*pip, "--target", folder, str(made)], check=True)
        package = Path(folder, "libsoftmax")
        names = {str(p.relative_to(package)) for p in package.rglob("*")}
        wanted = {"__init__.pyi", "torch/__init__.py", "torch/__init__.pyi", "jax.pyi", "py.typed", "_core.abi3.so"}
        assert wanted <= names, sorted(names)
        built, tested = result(folder), result()
    print("wheel: %s and %s: %s" % (built[1], tested[1], "the same bits" if built[2] == tested[2] else "OTHER BITS"))
    return not (built[0].startswith(folder) and built[2] == tested[2])


if __name__ == "__main__":
    sys.exit(main())
