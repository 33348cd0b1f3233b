"""run.py [SUITE...] - the Python package and the test suites of others, each with its own packages; `./dev conformance` runs this in a virtual
environment that has the package. A suite whose packages or programs are not there and cannot be installed is skipped, with a word; a run in
which no suite could run has failed. Standard library only.

A suite is a program that prints what it found and leaves with 0 when nothing failed. Packages are pinned, so that a run means the same tomorrow.
Packages that the environment has already are not asked for again. Two suites run at a time, and what they print appears in the order below.
"""
import concurrent.futures
import importlib.metadata
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch_cpu

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

NUMPY = ["numpy==2.4.6"]
TABLES = ["pandas==3.1.1", "xarray==2026.9.0", "polars==2.1.0"]
JAX = NUMPY + ["ml_dtypes==0.6.0", "jax==0.10.2"]
sys.path.insert(0, str(ROOT / "python"))
from make_wheel import PACKAGES as WHEEL  # noqa: E402
TORCH = NUMPY + ["filelock==4.2.12", "fsspec==2026.9.0", "jinja2==3.1.6", "markupsafe==3.0.4", "mpmath==1.3.0", "networkx==3.6.1",
                 "setuptools==84.2.1", "sympy==1.14.0", "typing_extensions==4.16.0", "torch==2.15.0"]
METRICS = ["scipy==1.17.1", "scikit-learn==1.9.1", "lightning-utilities==0.15.3", "packaging==26.4", "torchmetrics==1.9.0",
           "matplotlib==3.11.2", "tqdm==4.70.1", "tensorboard==2.21.0", "opt_einsum==3.4.0", "pyro-api==0.1.2", "pyro-ppl==1.9.2",
           "linear_operator==0.6.1", "gpytorch==1.15.2", "netcal==1.4.0"]
PROGRAMS = {"mpi": "mpirun"}  # that a suite runs
# installed without what they require: of PyTorch that is 2.5 GB for a GPU
ALONE = {"torch", "torchmetrics", "lightning-utilities", "pyro-ppl", "linear_operator", "gpytorch", "netcal", "torchvision",
         "pytorch-ood"}
UNITTEST = [sys.executable, "-B", "-m", "unittest", "discover", "-s", str(ROOT / "python/tests")]

# name, packages, command
SUITES = [
    ("package", JAX + TABLES + ["mypy==2.4.1"], UNITTEST),
    ("torch", TORCH, [*UNITTEST, "-p", "torch_*.py"]),
    ("transformers", [*TORCH, "transformers==5.23.0"], [*UNITTEST, "-p", "transformers_*.py"]),
    ("mpi", NUMPY + ["mpi4py==4.1.2"], [*UNITTEST, "-p", "mpi_*.py"]),
    ("wheel", NUMPY + WHEEL, [sys.executable, "-B", str(HERE / "wheel.py")]),
    ("docs", NUMPY, [sys.executable, "-B", str(HERE / "docs.py")]),
    ("onnx", NUMPY + ["onnx==1.22.0"], [sys.executable, "-B", str(HERE / "onnx_nodes.py")]),  # the last release with its test data inside
    ("scipy", NUMPY + ["scipy==1.17.1"], [sys.executable, "-B", str(HERE / "peer_scipy.py")]),
    ("jax", JAX, [sys.executable, "-B", str(HERE / "peer_jax.py")]),
    ("optax", JAX + ["optax==0.2.8"], [sys.executable, "-B", str(HERE / "peer_optax.py")]),
    ("metrics", TORCH + METRICS, [sys.executable, "-B", str(HERE / "peer_metrics.py")]),
    ("outliers", TORCH + ["scipy==1.17.1", "scikit-learn==1.9.1", "torchvision==0.29.2", "pytorch-ood==0.4.0"],
     [sys.executable, "-B", str(HERE / "peer_outliers.py")]),
    ("pooling", TORCH + METRICS[:2] + ["torch_geometric==2.8.1"], [sys.executable, "-B", str(HERE / "peer_pooling.py")]),
    ("onnxruntime", NUMPY + ["onnx==1.22.0", "onnxruntime==1.31.1"], [sys.executable, "-B", str(HERE / "peer_onnxruntime.py")]),
]


def missing(packages):
    """Those that the environment does not have, or not of that version."""
    def has(name, version):
        try:
            return importlib.metadata.version(name) == version
        except importlib.metadata.PackageNotFoundError:
            return False
    return [p for p in packages if not has(*p.split("=="))]


def install(packages):
    """None, or why not."""
    if not packages:
        return None
    alone = [p for p in packages if p.split("==")[0] in ALONE]
    for options, some in (([], [p for p in packages if p not in alone]), (["--no-deps"], alone)):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", *options, *some]
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) if some else None
        if p and p.returncode:
            return (p.stdout.strip().splitlines() or ["pip failed"])[-1]
    return torch_cpu.stand_in() if alone else None


def prepare(suites):
    """name -> why its packages or programs are not there, or None. All are asked for at once; if that fails, suite by suite."""
    absent = {name: "%s: no such program" % p for name, p in PROGRAMS.items() if not shutil.which(p)}
    together = install(missing(sorted({p for name, packages, _ in suites if name not in absent for p in packages})))
    return {name: absent.get(name) or (together and install(missing(packages))) for name, packages, _ in suites}


def run(command):
    """Whether it failed, what it printed, and for how long it ran."""
    begin = time.monotonic()
    p = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return p.returncode, p.stdout, time.monotonic() - begin


def main(wanted):
    unknown = set(wanted) - {name for name, *_ in SUITES}
    if unknown:
        sys.exit("conformance: no suite %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(name for name, *_ in SUITES)))
    suites = [suite for suite in SUITES if not wanted or suite[0] in wanted]
    why_not, results = prepare(suites), []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(run, command) for name, _, command in suites if not why_not[name]}
        for name, *_ in suites:
            print("\n== %s" % name, flush=True)
            if why_not[name]:
                print("skipped: what it needs cannot be installed: %s" % why_not[name])
                results.append((name, "skipped"))
                continue
            code, text, seconds = running[name].result()
            results.append((name, "FAILED" if code else "passed"))
            print("%s%s after %.0f s" % (text, results[-1][1], seconds), flush=True)
    print("\n" + "\n".join("%-12s %s" % result for result in results))
    found = {result for _, result in results}
    if found == {"skipped"}:
        print("conformance: no suite could run, so nothing is known")
    return "FAILED" in found or found == {"skipped"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
