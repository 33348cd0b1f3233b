"""The examples in the documentation are true: docstrings of the package, README.md, docs/conventions.md, and examples/normalisers.py."""
import doctest
import subprocess
import sys
from pathlib import Path

import libsoftmax

ROOT = Path(__file__).parent.parent.parent
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def main():
    failed = attempted = 0
    found = [doctest.testmod(libsoftmax, optionflags=OPTIONS)]
    for name in ("README.md", "docs/conventions.md"):
        found.append(doctest.testfile(str(ROOT / name), module_relative=False, optionflags=OPTIONS))
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
