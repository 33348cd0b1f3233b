#!/usr/bin/env python3
"""Measures a call at every length and several starts, looks for cliffs, and with --document draws docs/sweep.svg.

A length is a cliff when its call takes more than 1.3 times what its neighbours say it should. The five lengths measured below say: as long as
theirs, times the ratio of the lengths (or of the whole vectors they take). The five above say: no longer than theirs. Each five has a median,
the smaller of the two counts: so a step upwards and a length that would gain from padding both show, and the cost of a call, which all
neighbours share, does not. What a start away from the boundary costs is told beside it: it is the same for all lengths, no cliff.
"""
import argparse
import bisect
import os
import statistics
import subprocess
import sys

from document import write_sweep
from drawing import draw

REFERENCE = "memcpy/f32"  # has cliffs of its own, which are not ours
SERIES = ("softmax/f32", "softmax/f32/16384", "softmax/f64", "softmax/bf16", "softmax/f16", "softmax/bf16/16384", "log_softmax/f32",
          "logsumexp/f32", "softmax_backward/f32", REFERENCE)
PICTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "sweep.svg")
LIMIT, RUNS = 1.3, 5
WINDOW = 5  # lengths on either side
VECTOR_BYTES = 64
SIZES = {"f32": 4, "f64": 8, "bf16": 4, "f16": 4}  # of an element in a vector: half precision is computed in f32


# ---- Cliffs ----------------------------------------------------------------------------------------------------------------------------


def expected(lengths, ns, i, lanes):
    """What the neighbours of lengths[i] let one expect, in ns a row."""
    def longer(a, b):
        return max(b / a, -(-b // lanes) / -(-a // lanes))
    n = lengths[i]
    below = [ns[m] * longer(m, n) for m in lengths[max(0, i - WINDOW):i]]
    above = [ns[m] for m in lengths[i + 1:i + 1 + WINDOW]]
    return min(statistics.median(side) for side in (below, above) if side)


def cliffs(series, points):
    """[(n, start, ratio), ...]; points: {start: {n: ns}}."""
    lanes, found = VECTOR_BYTES // SIZES[series.split("/")[1]], []
    for start, ns in points.items():
        lengths = sorted(ns)
        ratios = [(n, start, ns[n] / expected(lengths, ns, i, lanes)) for i, n in enumerate(lengths)]
        found += [each for each in ratios if each[2] > LIMIT]
    return found


def ranges(found, lengths):
    """Cliffs of neighbouring lengths, whatever their starts, as one: (first, last, worst ratio, starts)."""
    runs = []
    for n, start, ratio in sorted(found):
        if runs and bisect.bisect_left(lengths, n) - bisect.bisect_left(lengths, runs[-1][1]) <= 2:
            first, _, worst, starts = runs[-1]
            runs[-1] = first, n, max(worst, ratio), starts | {start}
        else:
            runs.append((n, n, ratio, {start}))
    return runs


def cost_of_start(points, start):
    """How many times longer than from the boundary: median and worst of the lengths from 1024 on."""
    ratios = [ns / points[0, 0][n] for n, ns in points[start].items() if n >= 1024]
    return statistics.median(ratios), max(ratios)


# ---- Running ---------------------------------------------------------------------------------------------------------------------------


def measure(program, series, rounds):
    """{(x start, y start): {n: ns a row}}."""
    out = subprocess.run([program, series, str(rounds)], check=True, capture_output=True, text=True).stdout
    points = {}
    for line in out.splitlines():
        n, x, y, ns = line.split()
        points.setdefault((int(x), int(y)), {})[int(n)] = float(ns)
    return points


def settle(program, series, rounds):
    """Points and cliffs. A point keeps the fastest of its times, and runs are added until the cliffs stay the same: noise does not."""
    points, found = {}, None
    for _ in range(RUNS):
        for start, ns in measure(program, series, rounds).items():
            best = points.setdefault(start, {})
            for n, t in ns.items():
                best[n] = min(t, best.get(n, t))
        before, found = found, cliffs(series, points)
        if not found or before and {f[:2] for f in before} == {f[:2] for f in found}:
            break
    return points, found


def words_of(run):
    first, last, ratio, _ = run
    return "n = %s: %.2f" % (first if first == last else "%d to %d" % (first, last), ratio)


def describe(series, points, runs):
    print("%s: %d lengths, %d starts, %d cliffs" % (series, len(points[0, 0]), len(points), len(runs)))
    for run in runs:
        print("  %s times the neighbours, at %d of the starts" % (words_of(run), len(run[3])))
    costs = ["x + %d, y + %d: %.2f (%.2f)" % (*start, *cost_of_start(points, start)) for start in sorted(points) if start != (0, 0)]
    print("  starts, median (worst) against the boundary from n = 1024 on: %s" % "; ".join(costs), flush=True)


def row_of(series, points, runs):
    """A line of the table in docs/performance.md."""
    return series, "; ".join(map(words_of, runs)) or "none", max(cost_of_start(points, start)[0] for start in points)


def main():
    p = argparse.ArgumentParser(prog="./dev sweep", description=__doc__.splitlines()[0])
    p.add_argument("--build", required=True, metavar="FOLDER", help="where -DSMX_BENCH=ON was built")
    p.add_argument("--series", metavar="NAMES", help="with commas between: VERB/DTYPE, or VERB/DTYPE/ELEMENTS for calls of many rows (%s)" %
                   ",".join(SERIES))
    p.add_argument("--rounds", type=int, default=20, help="samples of each point in a run, of which the fastest counts (20)")
    p.add_argument("--document", action="store_true", help="draw docs/sweep.svg and write the table into docs/performance.md")
    args = p.parse_args()
    program, result, rows, worst = os.path.join(args.build, "bin", "softmax_sweep"), {}, [], 0
    for series in args.series.split(",") if args.series else SERIES:
        points, found = settle(program, series, args.rounds)
        runs = ranges(found, sorted(points[0, 0]))
        describe(series, points, runs)
        result[series] = points, found
        rows.append(row_of(series, points, runs))
        if series != REFERENCE:
            worst = max([worst] + [ratio for _, _, ratio in found])
    if args.document:
        with open(PICTURE, "w", encoding="utf-8") as f:
            f.write(draw(result))
        write_sweep(rows)
    sys.exit("no point may be more than %.1f times slower than its neighbours; the worst is %.2f" % (LIMIT, worst) if worst else 0)


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, OSError) as e:
        sys.exit("sweep.py: %s\n%s" % (e, getattr(e, "stderr", "") or ""))
    except KeyboardInterrupt:
        sys.exit(130)
