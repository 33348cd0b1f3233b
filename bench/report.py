#!/usr/bin/env python3
"""Runs softmax_bench case by case and prints a table: ns per element, ratio to the best peer, fraction of the bound.

Cases are named VERB/DTYPE/SHAPE/tTHREADS. Each case is one process in which the implementations take turns in random order.
"""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile

PEERS = ("xnnpack", "onednn", "expf")
CEILINGS = ("memcpy", "read", "write", "write_nt")
SLOW_ISAS = ("smx-fma", "smx-portable")
UNIT = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
QUICK = r"^softmax/f32/(1x16|1x1024|1x262144|1x4194304|65536x16|4096x128|4096x1024|1024x32768)/"


def options():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--program", help="softmax_bench, as built with -DSMX_BENCH=ON")
    p.add_argument("--filter", default="", metavar="REGEX", help="cases to run: '^softmax/f32/', '/t1$', 'logsumexp|op:'")
    p.add_argument("--impl", default="", metavar="REGEX", help="implementations beside the ceilings (default: all but fma, portable)")
    p.add_argument("--quick", action="store_true", help="eight shapes of f32 softmax, a few minutes")
    p.add_argument("--repetitions", type=int, default=0, help="samples of each implementation (15; 7 with --quick)")
    p.add_argument("--min-time", type=float, default=0.01, metavar="SECONDS", help="length of a sample (0.01)")
    p.add_argument("--min", action="store_true", help="take the fastest sample, not the median: for a machine that others use too")
    p.add_argument("-o", "--output", metavar="FILE", help="write the results as JSON")
    p.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="two such files: print what changed, run nothing")
    p.add_argument("--list", action="store_true", help="print the names of the cases")
    return p.parse_args()


# ---- Running ---------------------------------------------------------------------------------------------------------------------------


def wanted_implementation(name, pattern):
    if name in CEILINGS:
        return True
    return re.search(pattern, name) is not None if pattern else name not in SLOW_ISAS


def list_cases(args):
    """{case: [implementation, ...]} in the order of the program."""
    lines = subprocess.run([args.program, "--benchmark_list_tests=true"], check=True, capture_output=True, text=True).stdout.split()
    cases = {}
    for line in lines:
        case, implementation = line.rsplit("/real_time", 1)[0].rsplit("/", 1)
        if re.search(args.filter, case) and (not args.quick or re.search(QUICK, case)):
            if wanted_implementation(implementation, args.impl):
                cases.setdefault(case, []).append(implementation)
    return cases


def repetitions_for(args, case):
    elements = math.prod(int(size) for size in case.split("/")[2].split("@")[0].split("x"))
    usual = args.repetitions or (7 if args.quick else 15)
    return usual if elements < 1 << 24 else max(3, usual // 3)  # one sample of a long case is many milliseconds anyway


def run_case(args, case, implementations):
    pattern = "^%s/(%s)/real_time$" % (case, "|".join(implementations))  # no character of a name means more than itself
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [args.program, "--benchmark_filter=" + pattern, "--benchmark_repetitions=%d" % repetitions_for(args, case),
                   "--benchmark_enable_random_interleaving=true", "--benchmark_min_time=%g" % args.min_time,
                   "--benchmark_out_format=json", "--benchmark_out=" + out.name]
        # OpenMP's workers wait awake for some microseconds, not for a whole slice of a processor that others want too.
        environment = {"GOMP_SPINCOUNT": "20000", **os.environ}
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with open(out.name, encoding="utf-8") as f:
            return json.load(f)


def spread(samples):
    """Half the distance between the quartiles, as a fraction of the median."""
    if len(samples) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / 2 / middle


def summarise(case, data, statistic):
    """One thread is timed in CPU time, which leaves out the slices that other programs get; several threads in real time."""
    samples, counters = {}, {}
    clock = "cpu_time" if case.endswith("/t1") else "real_time"
    for b in data["benchmarks"]:
        if b["run_type"] != "iteration" or b.get("error_occurred"):
            continue
        name = b["name"].rsplit("/real_time", 1)[0].rsplit("/", 1)[1]
        samples.setdefault(name, []).append(b[clock] * UNIT[b["time_unit"]] / b["elements"])
        counters = b
    result = {"case": case, "elements": counters["elements"], "reads": counters["reads"], "writes": counters["writes"]}
    result["ns"] = {name: statistic(s) for name, s in samples.items()}
    result["spread"] = {name: spread(s) for name, s in samples.items()}
    return judge(result)


def judge(r):
    """Adds the bound, the best peer, and what libsoftmax makes of both."""
    ns = r["ns"]
    ours = min((ns[name] for name in ("smx", "smx-tensor") if name in ns), default=None)
    peers = {name: ns[name] for name in PEERS if name in ns}
    best = min(peers, key=peers.get, default=None)
    if r["reads"] == 1 and r["writes"] == 1:
        bound = ns["memcpy"]
    else:
        write = min(ns["write"], ns.get("write_nt", ns["write"]))
        bound = r["reads"] * ns["read"] + r["writes"] * write
    r.update(ours=ours, bound=bound, best_peer=best, ratio=None, fraction=None)
    if ours:
        r["fraction"] = bound / ours
        r["ratio"] = peers[best] / ours if best else None
    return r


# ---- Printing --------------------------------------------------------------------------------------------------------------------------

COLUMNS = (("smx", "smx"), ("tensor", "smx-tensor"), ("avx2", "smx-avx2"), ("fma", "smx-fma"), ("portable", "smx-portable"),
           ("xnnpack", "xnnpack"), ("onednn", "onednn"), ("expf", "expf"))


def number(value, width, digits):
    if value is None:
        return "-".rjust(width)
    return ("%.*f" % (digits if value < 100 else 1, value)).rjust(width)


def header(columns):
    names = "".join(label.rjust(9) for label, _ in columns)
    return "%-40s%s%9s%9s%8s%8s%8s" % ("case; ns per element", names, "memcpy", "bound", "x peer", "bound%", "+-%")


def row(r, columns):
    ns = r["ns"]
    values = "".join(number(ns.get(key), 9, 3) for _, key in columns)
    fraction = r["fraction"] and 100 * r["fraction"]
    main = max((r["spread"].get(name, 0) for name in ("smx", "smx-tensor")), default=0)
    return "%-40s%s%s%s%s%s%s" % (r["case"], values, number(ns["memcpy"], 9, 3), number(r["bound"], 9, 3), number(r["ratio"], 8, 2),
                                  number(fraction, 8, 0), number(100 * main, 8, 1))


def used_columns(cases):
    used = {name for implementations in cases.values() for name in implementations}
    return [c for c in COLUMNS if c[1] in used]


def run(args):
    cases = list_cases(args)
    if not cases:
        sys.exit("report.py: no case matches")
    if args.list:
        print("\n".join(cases))
        return
    columns, report = used_columns(cases), {"context": None, "cases": []}
    print(header(columns), flush=True)
    for case, implementations in cases.items():
        data = run_case(args, case, implementations)
        report["context"] = report["context"] or data["context"]
        report["cases"].append(summarise(case, data, min if args.min else statistics.median))
        print(row(report["cases"][-1], columns), flush=True)
        if args.output:
            save(report, args.output)
    context = report["context"]
    print("\nlibsoftmax %s on %s; %s processors; x peer: best peer's time / ours; bound%%: bound / ours" %
          (context.get("libsoftmax"), context.get("isa"), context.get("num_cpus")))


def save(report, path):
    """The whole file or the old one: never half of it."""
    with open(path + ".part", "w", encoding="utf-8") as f:
        json.dump(report, f, indent=1)
        f.write("\n")
    os.replace(path + ".part", path)


# ---- Comparing -------------------------------------------------------------------------------------------------------------------------


def load(path):
    with open(path, encoding="utf-8") as f:
        return {r["case"]: r for r in json.load(f)["cases"]}


def compare(old_path, new_path):
    """The machine may have been faster or slower as a whole, so times are also shown relative to memcpy of the same run."""
    old, new = load(old_path), load(new_path)
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
    if args.compare:
        compare(*args.compare)
    elif not args.program:
        sys.exit("report.py: --program is needed")
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
