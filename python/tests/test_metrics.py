"""Metrics of sets that come in batches: the definitions by NumPy, the same bits for all batches, and what is refused."""
import doctest
import unittest

import numpy as np

from libsoftmax import metrics
from libsoftmax.metrics import ClassificationMetrics, OutlierMetrics

RANDOM = np.random.default_rng(11)
ROWS, CLASSES, BINS = 500, 7, 10
LOGITS = RANDOM.standard_normal((ROWS, CLASSES)) * 2
TARGET = np.where(RANDOM.uniform(size=ROWS) < 0.6, LOGITS.argmax(1), RANDOM.integers(0, CLASSES, ROWS))


def of(*ends, logits=LOGITS, target=TARGET, **settings):
    found = ClassificationMetrics(bins=BINS, k=2, **settings)
    for first, last in zip((0, *ends), (*ends, len(logits))):
        found.update(logits[first:last], target[first:last])
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
        import importlib.util
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
