"""Metrics of sets that come in batches: the definitions by NumPy, the same bits for all batches, and what is refused."""
import doctest
import importlib.util
import math
import unittest

import numpy as np

import libsoftmax
from libsoftmax import metrics
from libsoftmax.metrics import ClassificationMetrics, OutlierMetrics

RANDOM = np.random.default_rng(11)
ROWS, CLASSES, BINS = 500, 7, 10
LOGITS = RANDOM.standard_normal((ROWS, CLASSES)) * 2
TARGET = np.where(RANDOM.uniform(size=ROWS) < 0.6, LOGITS.argmax(1), RANDOM.integers(0, CLASSES, ROWS))


WEIGHT = np.where(RANDOM.uniform(size=ROWS) < 0.2, 0, RANDOM.exponential(size=ROWS))


def of(*ends, logits=LOGITS, target=TARGET, weight=None, **settings):
    found = ClassificationMetrics(bins=BINS, k=2, **settings)
    for first, last in zip((0, *ends), (*ends, len(logits))):
        found.update(logits[first:last], target[first:last], None if weight is None else weight[first:last])
    return found


class Classification(unittest.TestCase):
    def test_definitions(self):
        p = np.exp(LOGITS - LOGITS.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        is_target = np.eye(CLASSES)[TARGET]
        confidence, right = p.max(1), p.argmax(1) == TARGET
        found = of().compute()
        each = []
        for k in range(CLASSES):
            number = np.ceil(p[:, k] * BINS).clip(1) - 1
            each.append(sum(abs((p[:, k] - is_target[:, k])[number == b].sum()) for b in range(BINS)) / ROWS)
        d = right - confidence
        kernel = np.exp(-abs(confidence[:, None] - confidence) / 0.4)
        wanted = {"accuracy": right.mean(), "log_loss": -np.log(p[is_target > 0]).mean(), "brier": ((p - is_target) ** 2).sum(1).mean(),
                  "confidence": confidence.mean(), "entropy": -(p * np.log(p)).sum(1).mean(), "classwise_ece": np.mean(each),
                  "mmce": np.sqrt(d @ kernel @ d) / ROWS, "uncertainty": right.mean() * (1 - right.mean()),
                  "top_k_accuracy": np.mean([t in np.argsort(-z)[:2] for z, t in zip(LOGITS, TARGET)]),
                  "auroc": (confidence[right][:, None] > confidence[~right]).mean(),
                  "balanced_accuracy": np.mean([right[TARGET == k].mean() for k in range(CLASSES)])}
        table = np.zeros((CLASSES, CLASSES))
        np.add.at(table, (TARGET, p.argmax(1)), 1)
        wanted["macro_f1"] = np.mean(2 * np.diag(table) / (table.sum(0) + table.sum(1)))
        centred = [m - m.mean(0) for m in (is_target, np.eye(CLASSES)[p.argmax(1)])]
        wanted["matthews"] = (centred[0] * centred[1]).sum() / np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum())
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, err_msg=name)

    def test_batches(self):
        whole = of().compute()
        for ends in ((1,), (3, 3, 250), tuple(range(1, ROWS, 7)), (0, ROWS)):
            self.assertEqual({k: v.tobytes() for k, v in of(*ends).compute().items()}, {k: v.tobytes() for k, v in whole.items()})
        two = of(logits=LOGITS[:200], target=TARGET[:200])
        two.merge(of(logits=LOGITS[200:], target=TARGET[200:]))
        for name, value in two.compute().items():
            np.testing.assert_allclose(value, whole[name], rtol=1e-12)
        empty = ClassificationMetrics(bins=BINS, k=2)
        empty.merge(two)
        two.merge(ClassificationMetrics())
        self.assertEqual(empty.compute(), two.compute())

    def test_rows_that_do_not_count(self):
        mixed, target = np.repeat(LOGITS, 2, 0), np.repeat(TARGET, 2)
        mixed[::2], target[::2] = np.nan, -100
        self.assertEqual(of(logits=mixed, target=target).compute(), of().compute())

    def test_arrays_of_every_kind(self):
        single = LOGITS.astype(np.float32)
        found = of(logits=single.tolist(), target=TARGET.tolist()).compute()
        self.assertEqual(of(logits=single).compute(), found)
        if importlib.util.find_spec("torch"):
            import torch
            self.assertEqual(of(logits=torch.from_numpy(single), target=torch.from_numpy(TARGET)).compute(), found)

    def test_temperature(self):
        found, halved = of(temperature=2.0).compute(), of(logits=LOGITS / 2).compute()
        for name, value in found.items():
            np.testing.assert_allclose(value, halved[name], rtol=1e-12)

    def test_refusals(self):
        found = of()
        with self.assertRaisesRegex(ValueError, "no rows that count"):
            ClassificationMetrics().compute()
        with self.assertRaisesRegex(ValueError, "3 classes, not 7 as before"):
            found.update(np.zeros((1, 3)), [0])
        with self.assertRaisesRegex(ValueError, "7 is not one of the 7 classes"):
            found.update(LOGITS[:1], [7])
        with self.assertRaisesRegex(ValueError, "target: shape is .2,., not .1,."):
            found.update(LOGITS[:1], [1, 2])
        with self.assertRaisesRegex(ValueError, "row 1 has NaN"):
            found.update([[0.0] * 7, [np.nan] * 7], [0, 1])
        with self.assertRaisesRegex(ValueError, "other settings"):
            found.merge(of(temperature=2.0))
        found.update([], []), found.update(np.zeros((0, 7)), [])
        self.assertEqual(found.compute(), of().compute())  # nothing of them was taken
        found.reset()
        with self.assertRaisesRegex(ValueError, "no rows that count"):
            found.compute()


class Weights(unittest.TestCase):
    def test_none_one_and_copies(self):
        counts = WEIGHT > 0
        kept = of(logits=LOGITS[counts], target=TARGET[counts], weight=WEIGHT[counts]).compute()
        mixed = np.where(counts[:, None], LOGITS, np.nan)
        self.assertEqual(of(7, 200, logits=mixed, weight=WEIGHT).compute(), kept)
        self.assertEqual(of(7, 200, weight=np.ones(ROWS)).compute(), of().compute())
        half = of(logits=LOGITS[:200], target=TARGET[:200])
        half.update(LOGITS[200:], TARGET[200:], np.ones(ROWS - 200))
        self.assertEqual(half.compute(), of().compute())
        copies = RANDOM.integers(0, 4, ROWS)
        rows = np.repeat(np.arange(ROWS), copies)
        got, wanted = of(weight=copies).compute(), of(logits=LOGITS[rows], target=TARGET[rows]).compute()
        for name, value in wanted.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-12, err_msg=name)

    def test_only_ratios_count(self):
        wanted = of(weight=WEIGHT).compute()
        for unit in (2.0**-600, 2.0**400, 2.0**1000):
            got = of(weight=WEIGHT * unit).compute()
            for name, value in wanted.items():
                np.testing.assert_allclose(got[name], value, rtol=1e-12, err_msg=name)

    def test_counts_beyond_int32(self):
        room = np.zeros((2, 2), np.int32)

        def count(most):
            libsoftmax.classification_metrics(np.array([0, 1]), np.array([1, 1]), np.array([most, 7.0]), classes=2,
                                              return_confusion=True, out=(None,) * 4 + (room,) + (None,) * 3)
        count(2.0**31 - 1)
        with self.assertRaisesRegex(TypeError, "confusion: number 2 is 2147483648, beyond int32"):
            count(2.0**31)
        self.assertEqual(room.tolist(), [[0, 0], [2**31 - 1, 7]])

    def test_one_class_is_predicted(self):
        logits = np.zeros((ROWS, 3)) + [1, 0, 0]
        self.assertEqual(of(logits=logits, target=TARGET % 3, weight=WEIGHT).compute()["matthews"], 0)

    def test_outliers(self):
        score, known = RANDOM.integers(0, 9, 60) / 8, RANDOM.integers(0, 2, 60)
        found, repeated = OutlierMetrics(), OutlierMetrics()
        found.update(score[:20], known[:20], [2] * 20)
        found.update(score[20:], known[20:])
        repeated.update(np.r_[score[:20], score], np.r_[known[:20], known])
        for name, value in repeated.compute().items():
            self.assertAlmostEqual(found.compute()[name], value, 14, name)

    def test_refusals(self):
        for wrong, text in ((-1.0, "-1.0"), (np.nan, "nan"), (np.inf, "inf")):
            with self.assertRaisesRegex(ValueError, f"weight: row 2 is {text}, which has to be finite"):
                of(weight=np.where(np.arange(ROWS) == 2, wrong, 1))
            with self.assertRaisesRegex(ValueError, "weight: row 1 is"):
                OutlierMetrics().update([0.5, 0.2], [1, 0], [1, wrong])
        with self.assertRaisesRegex(ValueError, "weight: shape is .9,., not .500,."):
            ClassificationMetrics().update(LOGITS, TARGET, np.ones(9))
        with self.assertRaisesRegex(ValueError, "no rows that count"):
            of(weight=np.zeros(ROWS)).compute()

    @unittest.skipUnless(importlib.util.find_spec("sklearn"), "no scikit-learn")
    def test_scikit_learn(self):
        from sklearn import metrics as theirs
        p = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
        taken, chance, right, by = p.argmax(1), p.max(1), p.argmax(1) == TARGET, {"sample_weight": WEIGHT}
        wanted = {"accuracy": theirs.accuracy_score(TARGET, taken, **by), "log_loss": theirs.log_loss(TARGET, p, **by),
                  "top_k_accuracy": theirs.top_k_accuracy_score(TARGET, p, k=2, **by),
                  "macro_f1": theirs.f1_score(TARGET, taken, average="macro", **by), "matthews": theirs.matthews_corrcoef(TARGET, taken, **by),
                  "balanced_accuracy": theirs.balanced_accuracy_score(TARGET, taken, **by),
                  "auroc": theirs.roc_auc_score(right, chance, **by), "aupr_right": theirs.average_precision_score(right, chance, **by),
                  "aupr_wrong": theirs.average_precision_score(~right, -chance, **by)}
        fpr, tpr, _ = theirs.roc_curve(right, chance, drop_intermediate=False, **by)
        wanted["fpr95"] = fpr[tpr >= 0.95].min()
        found = of(3, 77, weight=WEIGHT).compute()
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
        tied = np.round(chance * 8) / 8  # with equal scores, the operators alone
        of_tied = libsoftmax.ranking_metrics(tied, right, weight=WEIGHT, return_average_precision=True)
        np.testing.assert_allclose(of_tied.auroc, theirs.roc_auc_score(right, tied, **by), rtol=1e-12)
        np.testing.assert_allclose(of_tied.average_precision, theirs.average_precision_score(right, tied, **by), rtol=1e-12)
        np.testing.assert_allclose(libsoftmax.brier_decomposition(tied, right, weight=WEIGHT).brier,
                                   theirs.brier_score_loss(right, tied, **by), rtol=1e-12)
        copies = np.round(WEIGHT * 3)
        table = libsoftmax.classification_metrics(taken, TARGET, weight=copies, classes=CLASSES, return_confusion=True).confusion
        np.testing.assert_array_equal(table, theirs.confusion_matrix(TARGET, taken, sample_weight=copies))


class Decisions(unittest.TestCase):
    def test_rejection(self):
        confidence, right = [0.2, 0.9, 0.5, 0.7, 0.6], [False, True, False, True, True]
        for rate, stay, good in ((0, 5, 3), (0.2, 4, 3), (0.39, 4, 3), (0.4, 3, 3), (0.99, 1, 1)):
            self.assertAlmostEqual(float(metrics.accuracy_at_rejection(confidence, right, rate)), good / stay, 15)
        self.assertEqual(float(metrics.accuracy_at_rejection([1, 1], [1, 0], 0.5)), 0.5)  # either may be the one that stays
        for word, call in (
            ("rate: 1.0 is not", lambda: metrics.accuracy_at_rejection(confidence, right, [0, 1])),
            ("rate: nan is not", lambda: metrics.accuracy_at_rejection(confidence, right, np.nan)),
            ("right: row 1 is 2", lambda: metrics.accuracy_at_rejection([1, 2], [0, 2], 0)),
            ("right: shape is", lambda: metrics.accuracy_at_rejection([1, 2], [0, 1, 1], 0)),
            ("right: no rows", lambda: metrics.accuracy_at_rejection([], [], 0)),
            ("second: shape is", lambda: metrics.mcnemar([1, 0], [1])),
            ("first: row 0 is nan", lambda: metrics.mcnemar([np.nan], [1])),
        ):
            with self.assertRaisesRegex(ValueError, word):
                call()

    def test_mcnemar(self):
        """Twice the tail of a binomial distribution, by whole numbers."""
        self.assertEqual(metrics.mcnemar([1, 0], [1, 0]), (1.0, 0, 0))
        for first, second in ((0, 1), (1, 7), (5, 5), (30, 11), (900, 700)):
            a = [True] * first + [False] * second + [True, False]
            b = [False] * first + [True] * second + [True, False]
            n, few = first + second, min(first, second)
            want = min(1, 2 * sum(math.comb(n, i) for i in range(few + 1)) / 2**n)
            p, *alone = metrics.mcnemar(a, b)
            self.assertEqual(alone, [first, second])
            self.assertAlmostEqual(p / want, 1, 11)


class Outliers(unittest.TestCase):
    def test_known_by_hand(self):
        found = OutlierMetrics()
        for score, known in (([.9, .8, .7, .7], [1, 1, 1, 0]), ([.6, .6, .3, .5, .4, .2], [1, 1, 1, 0, 0, 0])):
            found.update(score, known)
        got = found.compute()
        for name, value in {"auroc": 37 / 48, "aupr_in": .8472222222222222, "aupr_out": .7291666666666666, "fpr": .75,
                            "detection_error": 5 / 24}.items():
            self.assertAlmostEqual(got[name], value, 12)

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "no rows"):
            OutlierMetrics().compute()
        with self.assertRaisesRegex(ValueError, "known: shape is"):
            OutlierMetrics().update([0.5], [1, 0])
        for wrong in (-1, 0.5, np.nan, 2):  # -1: what predict of a detector says of an outlier
            with self.assertRaisesRegex(ValueError, f"known: {wrong}.* is neither 0 nor 1"):
                OutlierMetrics().update([0.5, 0.2], [1, wrong])


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(metrics))
    return tests


if __name__ == "__main__":
    unittest.main()
