"""The examples in the documentation are true: docstrings of the package, README.md, docs/conventions.md, and examples/normalisers.py."""
import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import libsoftmax
import libsoftmax._attention
import libsoftmax._sample

ROOT = Path(__file__).parent.parent.parent
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def scripts(name):
    """Runs the blocks of Python without a prompt, each by itself: how many ran, and how many failed. Those with PyTorch run where it is."""
    ran = failed = 0
    for block in re.findall(r"^```python\n(?!>>>)(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.S | re.M):
        if "torch" in block and not importlib.util.find_spec("torch"):
            print("docs: a block of %s needs PyTorch, which is not here" % name)
            continue
        ran += 1
        p = subprocess.run([sys.executable, "-c", block], cwd=ROOT, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True)
        if p.returncode:
            failed += 1
            print(block + p.stdout + p.stderr)
    return doctest.TestResults(failed, ran)


def main():
    failed = attempted = 0
    found = [doctest.testmod(module, optionflags=OPTIONS) for module in (libsoftmax, libsoftmax._attention, libsoftmax._sample)]
    for name in ("README.md", "docs/conventions.md"):
        found.append(doctest.testfile(str(ROOT / name), module_relative=False, optionflags=OPTIONS))
    found.append(scripts("README.md"))
    for result in found:
        failed, attempted = failed + result.failed, attempted + result.attempted
    p = subprocess.run([sys.executable, str(ROOT / "examples/normalisers.py"), "--no-plot"], capture_output=True, text=True)
    if p.returncode:
        failed += 1
        print(p.stdout + p.stderr)
    print("docs: %d examples, %d failed" % (attempted + 1, failed))
    return failed > 0 or not all(r.attempted for r in found)


if __name__ == "__main__":
    sys.exit(main())
