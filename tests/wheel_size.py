#!/usr/bin/env python3
"""What the Python wheel weighs: wheel_size.py STRIP PACKAGE

The package as a wheel holds it, the extension module stripped, all of it deflated, stays within its budget."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
from make_wheel import BUDGET  # noqa: E402


def main(strip, package):
    with tempfile.TemporaryDirectory() as folder:
        wheel = os.path.join(folder, "package.whl")
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(package).rglob("*")):
                if not path.is_file() or "__pycache__" in path.parts:
                    continue
                held = path
                if path.suffix == ".so":
                    held = Path(folder, path.name)
                    subprocess.run([strip, "-o", str(held), str(path)], check=True)
                archive.write(held, path.relative_to(package))
        size = os.path.getsize(wheel)
    print("wheel: %d bytes, of %d" % (size, BUDGET))
    return size > BUDGET


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
