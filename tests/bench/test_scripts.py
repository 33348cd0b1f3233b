#!/usr/bin/env python3
"""Proves that the scripts of the benchmark judge rightly: what is a cliff, what is the bound, which peer is compared with what, which bar is met."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))

import bars  # noqa: E402
import document  # noqa: E402
import drawing  # noqa: E402
import results  # noqa: E402
import sweep  # noqa: E402
import turns  # noqa: E402

LENGTHS = list(range(1, 161)) + [int(160 * 1.04 ** i) for i in range(1, 150)]
ALIGNED = (0, 0)


def smooth(n):
    """A call, whole vectors of 16, and something an element."""
    return 40 + 2.0 * -(-n // 16) + 0.3 * n


def found_in(ns):
    return [n for n, _, _ in sweep.cliffs("softmax/f32", {ALIGNED: ns})]


class Cliffs(unittest.TestCase):
    def test_a_smooth_curve_has_none(self):
        self.assertEqual(found_in({n: smooth(n) for n in LENGTHS}), [])

    def test_whole_vectors_are_none(self):
        self.assertEqual(found_in({n: -(-n // 16) for n in LENGTHS}), [])

    def test_one_slow_length(self):
        self.assertEqual(found_in({n: smooth(n) * (1.5 if n == 100 else 1) for n in LENGTHS}), [100])

    def test_a_step_up_shows_where_it_begins(self):
        self.assertEqual(found_in({n: smooth(n) * (1.5 if n > 128 else 1) for n in LENGTHS})[0], 129)

    def test_a_step_down_shows_before_it(self):
        self.assertEqual(found_in({n: smooth(n) * (1.5 if n <= 128 else 1) for n in LENGTHS})[-1], 128)

    def test_neighbouring_cliffs_are_one(self):
        slow = {n: smooth(n) * (1.6 if n > 128 else 1) for n in LENGTHS}
        runs = sweep.ranges(sweep.cliffs("softmax/f32", {ALIGNED: slow, (1, 0): slow}), LENGTHS)
        self.assertEqual([(first, starts) for first, _, _, starts in runs], [(129, {ALIGNED, (1, 0)})])

    def test_the_picture_marks_them(self):
        slow = {n: smooth(n) * (1.5 if n == 100 else 1) for n in LENGTHS}
        points = {ALIGNED: slow, (1, 0): slow}
        self.assertEqual(drawing.draw({"softmax/f32": (points, sweep.cliffs("softmax/f32", points))}).count("<circle"), 1)


def result(case="softmax/f32/4096x1024/t1", reads=1, **ns):
    samples = {"memcpy": 0.4, "read": 0.2, "write": 0.4, "write_nt": 0.2, "fma": 0.01, "smx": 0.5, **ns}
    counters = {"elements": 4096 * 1024, "reads": reads, "writes": 1, "arithmetic": 16}
    return results.summarise(case, counters, {name: [t, t, t] for name, t in samples.items()}, {}, min)


class Results(unittest.TestCase):
    def test_a_row_that_stays_is_bound_by_a_copy(self):
        r = result()
        self.assertEqual((r["limit"], round(r["fraction"], 3)), ("copy", 0.8))

    def test_a_long_row_is_read_twice_and_written_past_the_cache(self):
        r = result(reads=2)
        self.assertEqual((r["limit"], round(r["bound"], 3)), ("bytes", 0.6))

    def test_arithmetic_binds_where_it_takes_longer(self):
        self.assertEqual(result(fma=0.03)["limit"], "fma")

    def test_a_peer_is_compared_with_the_library_in_its_own_process(self):
        r = result(onednn=1.0, jax=1.2, **{"smx-python": 1.0})
        self.assertEqual((r["best_peer"], round(r["ratio"], 3), round(r["ratios"]["onednn"], 3)), ("jax", 1.2, 2.0))


class Bars(unittest.TestCase):
    def test_of_memcpy(self):
        cases = {r["case"]: r for r in [result(), result("softmax/f32/1024x32768/t1", smx=0.45)]}
        (_, mark, found), = list(bars.against_bars(cases))
        self.assertEqual([(name.split("/")[2], value >= mark) for name, value in found], [("4096x1024", False), ("1024x32768", True)])

    def test_half_precision_needs_one_of_two_goals(self):
        names = ("softmax/f32/1x4194304/t1", "softmax/bf16/1x4194304/t1", "softmax/bf16/1x16384/t1")
        cases = {name: result(name, smx=ns) for name, ns in zip(names, (0.8, 0.5, 0.4))}
        self.assertEqual(bars.of_half_goal(cases[names[1]], cases), 1.0)
        cases[names[2]] = result(names[2], smx=0.46)
        self.assertGreater(bars.of_half_goal(cases[names[1]], cases), 1.0)


class Document(unittest.TestCase):
    def test_every_case_has_its_row(self):
        cases = {r["case"]: r for r in [result(onednn=1.0), result("op:softmin/f32/4096x1024/t1"), result("grad:softmin/f32/4096x1024/t1"),
                                        result("softmax/f32/1x4194304/t1")]}
        context = {"date": "2026-01-01T00:00", "libsoftmax": "0", "isa": "avx2", "num_cpus": 2, "statistic": "median"}
        text = "\n".join(document.sections(context, cases))
        for words in ("| 4 096 x 1 024 | 1 | 0.500 |", "| `softmin` | 0.500 | 80 % | 0.500 | 80 % |", "| 2.00 |", "of memcpy"):
            self.assertIn(words, text)

    def test_the_document_has_the_markers(self):
        with open(document.DOCUMENT, encoding="utf-8") as f:
            text = f.read()
        for who in (document.MEASURED, document.SWEPT):
            self.assertIn("<!-- %s writes this -->" % who, text)


class Turns(unittest.TestCase):
    class Build:
        """Takes `ns`, on a machine that slows down by a tenth with every process."""
        processes = 0

        def __init__(self, ns):
            self.ns = ns

        def run(self, case, names, repetitions, min_time):
            Turns.Build.processes += 1
            return {}, {}, {name: [self.ns * 1.1 ** Turns.Build.processes] * repetitions for name in names}, {}

    def test_a_machine_that_slows_down_changes_no_ratio(self):
        old, new = self.Build(1.0), self.Build(2.0)
        ratio = turns.measure(old, new, "softmax/f32/1x16/t1", ["smx"], 3, 0.01)["smx"][2]
        self.assertAlmostEqual(ratio, 2.0, delta=0.21)

    def test_what_a_case_may_cost(self):
        self.assertEqual([turns.allowed(case) for case in ("softmax/f32/1x16/t1", "op:sparsemax/f32/1x1024/t1", "op:sparsemax/f32/4096x1024/t1")],
                         [1.03, 1.20, 1.05])


if __name__ == "__main__":
    unittest.main()
