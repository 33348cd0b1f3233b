#!/usr/bin/env python3
"""What the library weighs: size.py NM STRIP LIBRARY ISA OBJECT...

The shared library, stripped, stays within its budget. In each kernel set no code is compiled twice: no two objects
have a function of the same name and size, but for those listed here, and what list.h takes from another set is not
compiled. And an operator that is not fused has at most 6 KB of code in one kernel set, forward and backward, on the
average of all of them.
"""

import os
import re
import subprocess
import sys
import tempfile

LIBRARY = 16_000_000  # with all operators; a third of them took 10 MB at most
OPERATOR = 6144
SMALL = 96  # bytes: what is no loop

# Functions that may stand in several objects, and why. Besides, those that headers mark SMI may in portable kernels:
# there the compiler decides what it inlines (vec_portable.h), because inlined everywhere they take five times as much.
TWICE = {
    "v_hsums": "of the portable vector layer, made by a macro",
    "v_hmaxs": "the same",
    "teacher_topk_count_next": "98 bytes: a step towards the k largest, of a teacher's row and of the row's own",
    "fma_lanes": "the portable emulation of FMA, a static of the vector layer",
}
SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src")
# Files whose operators have loops of their own, named in list.h or asked for by the bars of attention.
FUSED = {
    "row/ops.c", "row/ops_masked.c", "row/ops_topk.c", "sample/ops.c", "sample/ops_sampler.c", "loss/ops.c",
    "attention/ops.c", "attention/ops_backward.c", "attention/ops_weights.c", "attention/ops_tropical.c",
}  # fmt: skip


def symbols(nm, paths):
    """What nm says of each object: {path: its lines}."""
    found, lines = {}, []
    for line in subprocess.run([nm, "-S", *paths], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.endswith(":"):
            lines = found.setdefault(line[:-1], [])
        else:
            lines.append(line)
    return found


def functions(lines):
    """(name, bytes) of each function of an object."""
    for line in lines:
        fields = line.split()
        if len(fields) == 4 and fields[2] in "tT":
            yield re.sub(r"\.(part|constprop|isra|cold)\..*", "", fields[3]), int(fields[1], 16)


def marked_inline():
    """Names of functions that headers mark SMI or static inline, macros that define such functions included."""
    names = set()
    for folder, _, files in os.walk(SOURCE):
        for file in files:
            with open(os.path.join(folder, file)) as f:
                names.update(re.findall(r"\b(?:SMI|static inline) [\w *]*?\b(\w+)\(", f.read()))
    return names


def operators(lines):
    """Names of operators that an object has, and that it takes from others."""
    out = "\n".join(lines)
    return re.findall(r" [RDrd] (op_\w+)", out), re.findall(r" U (op_\w+)", out)


def source_of(path):
    return re.sub(r"\.(o|obj)$", "", path.split("/src/")[-1])


def check_set(nm, name, paths):
    faults, seen, total, staged, of_staged = [], {}, 0, 0, 0
    made, taken = set(), set()
    may = set(TWICE) | (marked_inline() if name.startswith("portable") else set())
    for path, lines in symbols(nm, paths).items():
        source, own = source_of(path), 0
        for function, size in functions(lines):
            own += size
            first = seen.setdefault((function, size), source)
            if first != source and size >= SMALL and function not in may:
                faults.append(f"{name}: {function}, {size} bytes, stands in {first} and in {source}")
        has, takes = operators(lines)
        made.update(has)
        taken.update(takes)
        total += own
        if has and source not in FUSED:
            staged, of_staged = staged + len(has), of_staged + own
    each = of_staged // max(staged, 1)
    print(f"{name}: {total} bytes of code in {len(paths)} objects, {each} for each of {staged} staged operators")
    faults += [f"{name}: {op} is compiled, but list.h takes it from another set" for op in sorted(made - taken)]
    if each > OPERATOR:
        faults.append(f"{name}: a staged operator has {each} bytes of code, more than {OPERATOR}")
    return faults


def check_library(strip, path):
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "library")
        subprocess.run([strip, "-o", copy, path], check=True)
        size = os.path.getsize(copy)
    print(f"{os.path.basename(path)}: {size} bytes stripped, of {LIBRARY}")
    return [f"{path} has {size} bytes, more than {LIBRARY}"] if size > LIBRARY else []


def main(nm, strip, library, *objects):
    sets = {}
    for path in objects:
        if path.endswith(".gch"):
            continue  # a precompiled header, which CMake counts among the objects
        sets.setdefault(re.search(r"kernels_(\w+)\.dir", path).group(1), []).append(path)
    faults = check_library(strip, library) if library != "-" else []
    for name in sorted(sets):
        faults += check_set(nm, name, sets[name])
    print(*faults, sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
