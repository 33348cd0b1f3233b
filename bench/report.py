#!/usr/bin/env python3
"""Runs the benchmark case by case and prints a table: ns per element, ratio to the best peer, fraction of the bound.

Cases are named VERB/DTYPE/SHAPE/tTHREADS. Each case is one process in which the implementations take turns in random order, and with --peers
a second one for those that live in Python.
"""
import argparse
import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from bars import print_bars
from document import write_document
from results import CEILINGS, NATIVE_PEERS, PYTHON_PEERS, load, main_spread, save, summarise
from turns import compare_builds, elements

HERE = os.path.dirname(os.path.abspath(__file__))
SLOW_ISAS = ("smx-portable",)
UNIT = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
QUICK = r"^softmax/f32/(1x16|1x1024|1x262144|1x4194304|65536x16|4096x128|4096x1024|1024x32768)/"


def options():
    p = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    p.add_argument("--build", metavar="FOLDER", help="where -DSMX_BENCH=ON was built")
    p.add_argument("--filter", default="", metavar="REGEX", help="cases to run: '^softmax/f32/', '/t1$', 'logsumexp|op:'")
    p.add_argument("--impl", metavar="NAMES", help="implementations beside the ceilings, exact names with commas between: smx,smx-avx2,onednn "
                                                   "(all but smx-portable)")
    p.add_argument("--quick", action="store_true", help="eight shapes of f32 softmax, a few minutes")
    p.add_argument("--peers", action="store_true", help="NumPy, ONNX Runtime and JAX too, in a virtual environment in the build folder")
    p.add_argument("--repetitions", type=int, default=0, help="samples of each implementation (15; 7 with --quick)")
    p.add_argument("--min-time", type=float, default=0.01, metavar="SECONDS", help="length of a sample (0.01)")
    p.add_argument("--min", action="store_true", help="take the fastest sample, not the median: for a machine that others use too")
    p.add_argument("-o", "--output", metavar="FILE", help="write the results as JSON, after every case")
    p.add_argument("--list", action="store_true", help="print the names of the cases")
    p.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="two such files: print what changed, run nothing; or two folders that "
                                                                      "were built with -DSMX_BENCH=ON: run both in turns")
    p.add_argument("--bars", metavar="FILE", help="such a file against the bars; runs nothing")
    p.add_argument("--document", metavar="FILE", help="write such a file into docs/performance.md; runs nothing")
    return p.parse_args()


# ---- The two instruments: each lists its cases, and runs one -------------------------------------------------------------------------------


class Native:
    """softmax_bench."""

    def __init__(self, build):
        self.program = os.path.join(build, "bin", "softmax_bench")

    def cases(self):
        """{case: [implementation, ...]} in the order of the program."""
        lines = subprocess.run([self.program, "--benchmark_list_tests=true"], check=True, capture_output=True, text=True).stdout.split()
        cases = {}
        for line in lines:
            case, implementation = line.rsplit("/real_time", 1)[0].rsplit("/", 1)
            cases.setdefault(case, []).append(implementation)
        return cases

    def run(self, case, implementations, repetitions, min_time):
        """The context, the counters of the case, samples, errors."""
        pattern = "^%s/(%s)/real_time$" % (case, "|".join(implementations))  # no character of a name means more than itself
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            command = [self.program, "--benchmark_filter=" + pattern, "--benchmark_repetitions=%d" % repetitions,
                       "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=%g" % min_time,
                       "--benchmark_out_format=json", "--benchmark_out=" + out.name]
            # OpenMP's workers wait awake for some microseconds, not for a whole slice of a processor that others want too.
            environment = {"GOMP_SPINCOUNT": "20000", **os.environ}
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            with open(out.name, encoding="utf-8") as f:
                return self.read(case, json.load(f))

    @staticmethod
    def read(case, data):
        """One thread is timed in CPU time, which leaves out the slices that other programs get; several threads in real time."""
        samples, errors, counters = {}, {}, {}
        clock = "cpu_time" if case.endswith("/t1") else "real_time"
        for b in (b for b in data["benchmarks"] if b["run_type"] == "iteration"):
            name = b["name"].rsplit("/real_time", 1)[0].rsplit("/", 1)[1]
            if not b.get("error_occurred"):
                samples.setdefault(name, []).append(b[clock] * UNIT[b["time_unit"]] / b["work"])
                counters = {key: b[key] for key in ("elements", "reads", "writes", "arithmetic")}
            elif b["error_message"] != "not in this implementation":
                errors[name] = b["error_message"]
        context = {key: value for key, value in data["context"].items() if key not in ("host_name", "executable")}
        return context, counters, samples, errors


class Python:
    """peers.py, in a virtual environment of its own."""

    def __init__(self, build):
        self.folder, self.library = os.path.join(build, "peers"), os.path.join(build, "libsoftmax.so")
        self.python = os.path.join(self.folder, "bin", "python3")
        self.script, self.wanted = os.path.join(HERE, "peers.py"), os.path.join(HERE, "peers.txt")

    def install(self):
        """True when the environment is there. It is made anew when peers.txt has changed."""
        stamp = os.path.join(self.folder, "peers.txt")
        with open(self.wanted, encoding="utf-8") as f:
            wanted = f.read()
        if os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == wanted:
            return True
        print("report.py: installing %s into %s" % (" ".join(wanted.split()), self.folder), file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", "--clear", self.folder], [self.python, "-m", "pip", "install", "-q", "-r", self.wanted]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                last = (done.stdout + done.stderr).strip().splitlines()[-1:]
                print("report.py: the peers in Python are left out: %s" % "".join(last), file=sys.stderr)
                return False
        with open(stamp, "w", encoding="utf-8") as f:
            f.write(wanted)
        return True

    def output(self, *arguments):
        return subprocess.run([self.python, "-B", self.script, *arguments], check=True, capture_output=True, text=True).stdout

    @functools.cached_property
    def cases(self):
        return set(self.output("--list").split())

    def run(self, case, repetitions, min_time):
        """The context, samples."""
        data = json.loads(self.output("--library", self.library, "--case", case, "--repetitions", str(repetitions), "--min-time", str(min_time)))
        return data["context"], data["samples"]


# ---- Running ---------------------------------------------------------------------------------------------------------------------------


def chosen(args, native):
    """The cases to run, each with its implementations."""
    wanted = args.impl.split(",") if args.impl else None
    all_cases = native.cases()
    known = {name for names in all_cases.values() for name in names}
    for name in wanted or ():
        if name not in known:
            sys.exit("report.py: no implementation '%s'; there are %s" % (name, ", ".join(sorted(known - set(CEILINGS)))))
    cases = {}
    for case, names in all_cases.items():
        if re.search(args.filter, case) and (not args.quick or re.search(QUICK, case)):
            cases[case] = [n for n in names if n in CEILINGS or (n in wanted if wanted else n not in SLOW_ISAS)]
    if not cases:
        sys.exit("report.py: no case matches")
    return cases


def repetitions_for(args, case):
    usual = args.repetitions or (7 if args.quick else 15)
    return usual if elements(case) < 1 << 24 else max(3, usual // 3)  # one sample of a long case is many milliseconds anyway


def run_case(args, case, names, native, python):
    """The context, and the case's result."""
    repetitions = repetitions_for(args, case)
    context, counters, samples, errors = native.run(case, names, repetitions, args.min_time)
    if python and case in python.cases:
        peers_context, peers_samples = python.run(case, repetitions, args.min_time)
        context["peers"] = peers_context
        samples.update(peers_samples)
    return context, summarise(case, counters, samples, errors, min if args.min else statistics.median)


def run(args):
    native = Native(args.build)
    cases = chosen(args, native)
    if args.list:
        print("\n".join(cases))
        return
    python = Python(args.build) if args.peers else None
    if python and not python.install():
        python = None
    columns, report = used_columns(cases, python), {"context": {}, "cases": []}
    print(header(columns), flush=True)
    for case, names in cases.items():
        context, result = run_case(args, case, names, native, python)
        report["context"].update(context, statistic="fastest" if args.min else "median")
        report["cases"].append(result)
        print(row(result, columns), flush=True)
        for name, error in result["errors"].items():
            print("    %s: %s" % (name, error), flush=True)
        if args.output:
            save(report, args.output)
    context = report["context"]
    print("\nlibsoftmax %s on %s; %s processors; x peer: best peer's time / ours; bound%%: bound / ours" %
          (context.get("libsoftmax"), context.get("isa"), context.get("num_cpus")))


# ---- Printing --------------------------------------------------------------------------------------------------------------------------

COLUMNS = (("smx", "smx"), ("tensor", "smx-tensor"), ("avx2", "smx-avx2"), ("portable", "smx-portable"),
           ("python", "smx-python"), *((name, name) for name in NATIVE_PEERS), ("numpy", "numpy"), ("ort", "onnxruntime"), ("jax", "jax"),
           ("entmax", "entmax"), ("torch", "torch"))


def used_columns(cases, python):
    used = {name for implementations in cases.values() for name in implementations}
    return [c for c in COLUMNS if c[1] in used or (python and c[1] in ("smx-python", *PYTHON_PEERS))]


def number(value, width, digits):
    if value is None:
        return "-".rjust(width)
    return ("%.*f" % (digits if value < 100 else 1, value)).rjust(width)


def header(columns):
    names = "".join(label.rjust(9) for label, _ in columns)
    return "%-40s%s%9s%9s%6s%8s%12s%8s%8s" % ("case; ns per element", names, "memcpy", "bound", "of", "x peer", "", "bound%", "+-%")


def row(r, columns):
    ns = r["ns"]
    values = "".join(number(ns.get(key), 9, 3) for _, key in columns)
    fraction = r["fraction"] and 100 * r["fraction"]
    return "%-40s%s%s%s%6s%s %-11s%s%s" % (r["case"], values, number(ns["memcpy"], 9, 3), number(r["bound"], 9, 3), r["limit"],
                                           number(r["ratio"], 8, 2), r["best_peer"] or "", number(fraction, 8, 0),
                                           number(100 * main_spread(r), 8, 1))


def compare(old_path, new_path):
    """The machine may have been faster or slower as a whole, so times are also shown relative to memcpy of the same run."""
    (_, old), (_, new) = load(old_path), load(new_path)
    print("%-40s%-14s%10s%10s%9s%11s%8s  %s" % ("case", "implementation", "old ns", "new ns", "change", "/memcpy", "+-%", ""))
    for case in (c for c in old if c in new):
        a, b = old[case], new[case]
        for name in (n for n in a["ns"] if n in b["ns"] and n.startswith("smx")):
            change = b["ns"][name] / a["ns"][name]
            relative = change * a["ns"]["memcpy"] / b["ns"]["memcpy"]
            noise = a["spread"][name] + b["spread"][name]
            beyond = abs(change - 1) > max(0.03, 2 * noise)
            print("%-40s%-14s%10.4f%10.4f%+8.1f%%%+10.1f%%%8.1f  %s" % (
                case, name, a["ns"][name], b["ns"][name], 100 * (change - 1), 100 * (relative - 1), 100 * noise,
                ("slower" if change > 1 else "faster") if beyond else ""))


def main():
    args = options()
    if args.compare and all(map(os.path.isdir, args.compare)):
        compare_builds(*map(Native, args.compare), args.filter, args.impl and args.impl.split(","), args.repetitions or 3, args.min_time)
    elif args.compare:
        compare(*args.compare)
    elif args.bars:
        print_bars(load(args.bars)[1])
    elif args.document:
        write_document(*load(args.document))
    elif not args.build:
        sys.exit("report.py: --build is needed")
    else:
        run(args)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as e:
        sys.exit("report.py: %s\n%s" % (e, e.stderr or ""))
    except OSError as e:
        sys.exit("report.py: %s" % e)
    except KeyboardInterrupt:
        sys.exit(130)
