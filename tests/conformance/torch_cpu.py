"""PyTorch without a GPU, from the wheel that has everything: it wants 2.5 GB of CUDA's libraries,
which its CPU part loads and never calls.

stand_in() puts one small library in their place, with all the functions that PyTorch's own
libraries look for; each returns 100, which is cudaErrorNoDevice. Where the true ones are installed
it does nothing."""

import collections
import re
import subprocess
import sysconfig
from pathlib import Path

FOREIGN = re.compile(r"lib(cu|nv|nccl)")  # libraries, and the versions of their symbols
UNVERSIONED = re.compile(r"cuFile|cusparseLt|nccl|nvshmem|cu[A-Z]")


def tool(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def wanted(libraries):
    """(names of libraries, version -> symbols) that these libraries need of CUDA's."""
    needed, undefined, defined, versions = set(), set(), set(), collections.defaultdict(set)
    for library in libraries:
        needed |= set(re.findall(r"NEEDED.*\[(.*)\]", tool("readelf", "-d", str(library))))
        for line in tool("nm", "-D", str(library)).splitlines():
            *_, kind, symbol = line.split()
            (undefined if kind in "Uwv" else defined).add(symbol)
    for symbol in undefined - defined:
        name, _, version = symbol.partition("@")
        if FOREIGN.match(version) or version == "NVSHMEM" or (not version and UNVERSIONED.match(name)):
            versions[version].add(name)
    return {name for name in needed if FOREIGN.match(name)}, versions


def stand_in():
    """None, or why there is no PyTorch that could run."""
    torch = Path(sysconfig.get_path("platlib"), "torch")
    folder = torch.parent / "nvidia/cu13/lib"  # where PyTorch's libraries look, after their own folder
    if list(folder.glob("libcudart*")):
        return None
    try:
        libraries, versions = wanted(sorted((torch / "lib").glob("*.so*")))
        make(folder, libraries, versions)
    except (OSError, subprocess.CalledProcessError) as e:
        return "no stand-in for the libraries of CUDA: %s" % e
    return None


def make(folder, libraries, versions):
    folder.mkdir(parents=True, exist_ok=True)
    source, script, library = (folder / ("stand_in" + end) for end in (".c", ".map", ".so"))
    source.write_text(
        "".join(
            "int %s(void) { return 100; }\n" % name for names in versions.values() for name in sorted(names)
        )
    )
    script.write_text(
        "".join(
            "%s { global: %s; };\n" % (v, "; ".join(sorted(names)))
            for v, names in sorted(versions.items())
            if v
        )
    )
    tool(
        "cc",
        "-w",
        "-fno-builtin",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-Wl,--version-script=%s" % script,
    )
    for name in libraries:
        (folder / name).symlink_to(library.name)
