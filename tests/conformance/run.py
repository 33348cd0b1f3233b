"""run.py [SUITE...] - the Python package and the test suites of others, each with its own packages; `./dev conformance` runs this in a virtual
environment that has the package. A suite whose packages cannot be installed is skipped, with a word. Standard library only.

A suite is a program that prints what it found and leaves with 0 when nothing failed. Packages are pinned, so that a run means the same tomorrow.
"""
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

NUMPY = ["numpy==2.4.6"]
JAX = NUMPY + ["ml_dtypes==0.6.0", "jax==0.10.2"]
UNITTEST = [sys.executable, "-B", "-m", "unittest", "discover", "-s", str(ROOT / "python/tests")]

# name, packages, command
SUITES = [
    ("package", JAX + ["mypy==2.4.1"], UNITTEST),  # its PyTorch part runs where PyTorch is: that is 3 GB, and not fetched for a test
    ("wheel", NUMPY + ["scikit-build-core==1.1.2"], [sys.executable, "-B", str(HERE / "wheel.py")]),
    ("docs", NUMPY, [sys.executable, "-B", str(HERE / "docs.py")]),
    ("onnx", NUMPY + ["onnx==1.22.0"], [sys.executable, "-B", str(HERE / "onnx_nodes.py")]),  # the last release with its test data inside
    ("scipy", NUMPY + ["scipy==1.17.1"], [sys.executable, "-B", str(HERE / "opinion_scipy.py")]),
    ("jax", JAX, [sys.executable, "-B", str(HERE / "opinion_jax.py")]),
    ("onnxruntime", NUMPY + ["onnx==1.22.0", "onnxruntime==1.31.1"], [sys.executable, "-B", str(HERE / "opinion_onnxruntime.py")]),
]


def install(packages):
    """None, or why not."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", *packages]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return None if p.returncode == 0 else (p.stdout.strip().splitlines() or ["pip failed"])[-1]


def main(wanted):
    unknown = set(wanted) - {name for name, *_ in SUITES}
    if unknown:
        sys.exit("conformance: no suite %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(name for name, *_ in SUITES)))
    results = []
    for name, packages, command in SUITES:
        if wanted and name not in wanted:
            continue
        print("\n== %s" % name, flush=True)
        why_not, begin = install(packages), time.monotonic()
        if why_not:
            print("skipped: its packages cannot be installed: %s" % why_not)
            results.append((name, "skipped"))
            continue
        code = subprocess.run(command, cwd=ROOT).returncode
        results.append((name, "FAILED" if code else "passed"))
        print("%s after %.0f s" % (results[-1][1], time.monotonic() - begin))
    print("\n" + "\n".join("%-12s %s" % result for result in results))
    return any(result == "FAILED" for _, result in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
