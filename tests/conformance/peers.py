"""What libsoftmax and another library compute for the same rows, random and adversarial.

Where they differ by intent, a Difference says where and why. It is checked too: one that no longer shows is a failure, so that the list, and
docs/conventions.md with it, stays true.
"""
import collections
import sys
from dataclasses import dataclass
from typing import Callable

import numpy as np

# Largest difference, in parts of the larger of 1 and the largest value; other libraries keep fewer digits than libsoftmax does.
TOLERANCE = {"float32": 4e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True)
class Comparison:
    name: str
    ours: Callable
    theirs: Callable
    dtypes: tuple = ("float32", "float64")


@dataclass(frozen=True)
class Difference:
    comparisons: tuple
    rows: tuple
    why: str


def rows():
    """name -> an array [rows, n] of scores in float64, finite ones within the range of float32."""
    random, inf, nan = np.random.default_rng(8), np.inf, np.nan
    normal = random.standard_normal
    return {
        "normal": normal((50, 17)) * 5,
        "lengths": normal((3, 1031)),
        "a long row": normal((1, 50257)) * 3,
        "wide": normal((20, 33)) * 60,
        "almost flat": 1 + normal((9, 100)) * 1e-6,
        "all equal": np.full((3, 7), 2.5),
        "ties for the largest": np.array([[3.0, 1, 3, 2], [0, 0, -1, -1], [-0.0, 0, -5, 0]]),
        "one element": normal((5, 1)) * 100,
        "two, far apart": np.array([[0.0, 200], [-200, 0], [1e4, -1e4], [80, -20]]),
        "one far above": np.concatenate([np.full((2, 99), -60.0), [[60.0], [88.5]]], axis=1),
        "large, close together": 1e4 + np.arange(12.0).reshape(2, 6) / 4,
        "largest floats": np.array([[3.4e38, -3.4e38, 3.4e38], [-3.4e38, -3.4e38, -3.3e38], [3.4e38, 3.3e38, 0]]),
        "smallest floats": np.array([[1e-38, -1e-38, 0], [1.5e-45, 0, -1.5e-45]]),
        "-inf among them": np.array([[-inf, 1, 2, -inf], [0, -inf, -inf, -inf], [-inf, -3.4e38, -inf, 0]]),
        "-inf only": np.full((2, 4), -inf),
        "+inf once": np.array([[inf, 1, 2], [0, -inf, inf]]),
        "+inf twice": np.array([[inf, inf, 0.0]]),
        "NaN": np.array([[nan, 1, 2], [nan, nan, nan], [1, -inf, nan]]),
        "no elements": np.zeros((3, 0)),
    }


def apart(ours, theirs, dtype):
    """How two results differ: None, or words."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return "shape %s and %s" % (ours.shape, theirs.shape)
    if ours.dtype != theirs.dtype:
        return "dtype %s and %s" % (ours.dtype, theirs.dtype)
    ours, theirs = ours.astype("f8"), theirs.astype("f8")
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return "%s and %s" % (ours[~finite][:4], theirs[~finite][:4])
    scale = max(1, np.abs(theirs[finite]).max(initial=0))
    error = np.abs(ours[finite] - theirs[finite]).max(initial=0) / scale
    return None if error <= TOLERANCE[dtype] else "%.2g apart" % error


def ask(function, x):
    """The result, or the exception instead of it."""
    try:
        with np.errstate(all="ignore"):
            return function(x), None
    except (ValueError, RuntimeError) as e:
        return None, "%s: %s" % (type(e).__name__, e)


# The largest finite numbers; beyond them a cast would make infinities of the largest floats.
LARGEST = {"float32": 3.4028234e38, "float64": 1.7e308, "float16": 65504.0, "bfloat16": 3.3895e38}


def cast(x, dtype):
    return np.where(np.isfinite(x), np.clip(x, -LARGEST[dtype], LARGEST[dtype]), x).astype(dtype)


def compare(comparison, x, dtype):
    given = cast(x, dtype)
    ours, theirs = ask(comparison.ours, given), ask(comparison.theirs, given)
    if ours[1] or theirs[1]:
        return None if ours[1] and theirs[1] else "ours: %s; theirs: %s" % (ours[1] or "a result", theirs[1] or "a result")
    return apart(ours[0], theirs[0], dtype)


def report(title, comparisons, differences, names):
    """Prints a table; True if something is wrong. names: of the rows that are asked about, None for all."""
    expected = {(o, r): d for d in differences for o in d.comparisons for r in d.rows}
    counts, seen = collections.defaultdict(collections.Counter), set()
    for comparison in comparisons:
        for name, x in rows().items():
            if names and name not in names:
                continue
            for dtype in comparison.dtypes:
                found, known = compare(comparison, x, dtype), expected.get((comparison.name, name))
                verdict = "agree" if found is None else "explained" if known else "failed"
                counts[comparison.name][verdict] += 1
                if found and known:
                    seen.add((comparison.name, name))
                if verdict == "failed":
                    print("%s, %s, %s: %s" % (comparison.name, name, dtype, found))
    stale = set(expected) - seen
    for name, row in sorted(stale):
        print("%s, %s: said to differ, but agrees" % (name, row))
    print("%-44s" % title + "".join("%12s" % v for v in ("agree", "explained", "failed")))
    for name, count in counts.items():
        print("%-44s" % name + "".join("%12d" % count[v] for v in ("agree", "explained", "failed")))
    for d in differences:
        print("  %s: %s" % (", ".join(d.rows), d.why))
    return bool(stale) or any(count["failed"] for count in counts.values())


def main(title, comparisons, differences, names=None):
    sys.exit(report(title, comparisons, differences, names))
