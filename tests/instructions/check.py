#!/usr/bin/env python3
"""Counts the instructions of the hot kernels under callgrind and compares them with a table: a slower kernel shows on any machine, in any mood.

SMX_INSTRUCTIONS_WRITE=PATH writes the table of this build instead. Instructions are what one compiler made of the source, so a table holds for
that compiler only; with another one, or without valgrind, the test is skipped. Valgrind has no AVX-512: its kernels are not counted.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOLERANCE = 0.03
SKIPPED = 77  # as CMakeLists.txt tells ctest
ISAS = ("avx2", "portable")
INTRODUCTION = """\
# Instructions of one call of each hot kernel, counted by callgrind (count.c). The test allows 3 % either way; a change that means to change
# more writes the table again: SMX_INSTRUCTIONS_WRITE={path} ./dev test -R instructions
compiler: {compiler}

"""


class Skip(Exception):
    pass


# ---- Counting --------------------------------------------------------------------------------------------------------------------------


def collected(path):
    """What callgrind collected between two calls: the totals of one dump."""
    with open(path, encoding="utf-8") as f:
        return int(re.search(r"^totals: (\d+)", f.read(), re.MULTILINE).group(1))


def count(program, isa):
    """{case: instructions}, or None when this build or machine has no such kernels."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=counted_call", "--dump-after=counted_call",
                   "--callgrind-out-file=" + out, program]
        run = subprocess.run(command, env={**os.environ, "SMX_ISA": isa}, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit("%s under valgrind, %s: exit %d\n%s" % (program, isa, run.returncode, run.stderr))
        name, *cases = run.stdout.split()
        if name != isa:
            return None
        return {case: collected("%s.%d" % (out, i)) for i, case in enumerate(cases, 1)}  # one dump a call, numbered from 1


# ---- The table -------------------------------------------------------------------------------------------------------------------------


def write(path, compiler, counts):
    isas, cases = list(counts), list(next(iter(counts.values())))
    with open(path, "w", encoding="utf-8") as f:
        f.write(INTRODUCTION.format(path=os.path.relpath(path), compiler=compiler))
        f.write("%-36s%s\n" % ("case", "".join("%12s" % isa for isa in isas)))
        for case in cases:
            f.write("%-36s%s\n" % (case, "".join("%12d" % counts[isa][case] for isa in isas)))


def read(path):
    """The compiler, and {instruction set: {case: instructions}}."""
    with open(path, encoding="utf-8") as f:
        lines = [line.rstrip("\n") for line in f if line.strip() and not line.startswith("#")]
    compiler, isas = lines[0].split(": ", 1)[1], lines[1].split()[1:]
    rows = [line.split() for line in lines[2:]]
    return compiler, {isa: {row[0]: int(row[1 + i]) for row in rows} for i, isa in enumerate(isas)}


def compare(isa, want, got):
    """Prints what is beyond the tolerance; returns how many."""
    bad = 0
    for case in sorted(want.keys() | got.keys()):
        if case not in want or case not in got:
            print("%s %s: %s" % (isa, case, "not in the table" if case in got else "in the table, but not counted"))
            bad += 1
        elif abs(got[case] / want[case] - 1) > TOLERANCE:
            print("%s %s: %d instructions, %d in the table (%+.1f %%)" % (isa, case, got[case], want[case], 100 * (got[case] / want[case] - 1)))
            bad += 1
    return bad


def check(args):
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    wanted = os.environ.get("SMX_INSTRUCTIONS_WRITE")
    compiler, table = (None, {}) if wanted else read(args.table)
    if compiler and compiler != args.compiler:
        raise Skip("the table is from %s, this build from %s" % (compiler, args.compiler))
    counts = {isa: count(args.program, isa) for isa in ISAS}
    for isa in (isa for isa in ISAS if counts[isa] is None):
        print("%s: not in this build, or not on this machine" % isa)
    counts = {isa: cases for isa, cases in counts.items() if cases is not None}
    if wanted:
        if len(counts) < len(ISAS):
            sys.exit("a table needs all of %s" % ", ".join(ISAS))
        write(wanted, args.compiler, counts)
        return
    bad = sum(compare(isa, table[isa], counts[isa]) for isa in counts)
    print("%d counts on %s: %d differ by more than %g %%" % (sum(map(len, counts.values())), ", ".join(counts), bad, 100 * TOLERANCE))
    if bad:
        sys.exit("If that was meant: SMX_INSTRUCTIONS_WRITE=%s ./dev test -R instructions" % os.path.relpath(args.table))


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("program", help="test_instructions")
    p.add_argument("table", help="the committed table")
    p.add_argument("compiler", help="of this build: its name, major version and build type")
    try:
        check(p.parse_args())
    except Skip as reason:
        print("skipped: %s" % reason)
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
