"""Probes, cascades and predictions that can be relied on: values by NumPy and by hand, files, arrays of every kind, and what is refused."""
import doctest
import os
import tempfile
import unittest

import numpy as np

from libsoftmax import _made as _call
from libsoftmax import reliability, softmax
from libsoftmax.reliability import SDM, Cascade, Probe, load

RANDOM = np.random.default_rng(5)
ROWS, D, CLASSES = 200, 5, 3
Y = np.arange(ROWS) % CLASSES
FEATURES = RANDOM.standard_normal((ROWS, D)) + 3 * np.eye(D)[Y]
LOGITS = 2 * FEATURES[:, :CLASSES]


def again(fit):
    """From its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fit.json")
        fit.save(path)
        return load(path)


class Probes(unittest.TestCase):
    def test_where_the_gradient_is_nothing(self):
        fit = Probe(l2=0.01).fit(FEATURES, Y)
        p = fit.predict_proba(FEATURES)
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
        rest = p - np.eye(CLASSES)[Y]
        np.testing.assert_allclose(rest.T @ FEATURES / ROWS + 0.01 * fit.weight_, 0, atol=1e-6)
        np.testing.assert_allclose(rest.mean(0), 0, atol=1e-6)
        self.assertEqual(fit.score(FEATURES, Y), (p.argmax(1) == Y).mean())
        self.assertGreater(fit.score(FEATURES, Y), 0.9)

    def test_rows_that_do_not_count(self):
        some = np.where(np.arange(ROWS) < 150, Y, -1)
        fit = Probe().fit(FEATURES, some)
        np.testing.assert_array_equal(fit.weight_, Probe().fit(FEATURES[:150], Y[:150]).weight_)
        self.assertEqual(fit.score(FEATURES, some), fit.score(FEATURES[:150], Y[:150]))
        with self.assertRaisesRegex(ValueError, "y: no row counts"):
            fit.score(FEATURES, Y * 0 - 1)

    def test_lists_and_files(self):
        fit = Probe().fit(FEATURES.astype(np.float32).tolist(), Y.tolist())
        np.testing.assert_array_equal(again(fit).predict_proba(FEATURES), fit.predict_proba(FEATURES))

    def test_refused(self):
        fit = Probe().fit(FEATURES, Y)
        for words, call in (("features: shape", lambda: fit.predict(FEATURES[:, 1:])), ("y: shape", lambda: fit.fit(FEATURES, Y[1:])),
                            ("y: no row", lambda: fit.fit(FEATURES, Y * 0 - 1)), ("not finite", lambda: fit.fit(FEATURES * np.nan, Y)),
                            ("features: row 0 has a NaN", lambda: fit.predict(FEATURES * np.nan)),
                            ("fit comes first", lambda: Probe().predict(FEATURES)), ("ndim is 1", lambda: fit.predict(FEATURES[0])),
                            ("y: shape", lambda: fit.score(FEATURES, Y[:, None]))):
            self.assertRaisesRegex(ValueError, words, call)
        self.assertRaisesRegex(TypeError, "whole", fit.fit, FEATURES, Y + 0.5)
        self.assertRaisesRegex(TypeError, "no setting 'C'", Probe, C=1)


class Cascades(unittest.TestCase):
    CONFIDENCE = [[0.9, 0.6, 0.8, 0.5], [0.7, 0.9, 0.95, 0.9]]
    CORRECT = [[1, 0, 1, 0], [1, 1, 1, 1]]

    def test_by_hand(self):
        fit = Cascade().fit(self.CONFIDENCE, self.CORRECT)
        np.testing.assert_allclose(fit.threshold_, [0.8, 0.7])
        np.testing.assert_allclose(fit.accuracy_, [1, 1])
        np.testing.assert_allclose(fit.coverage_, [0.5, 1])
        now = [[0.8, 0.79, np.nan], [0.1, 0.2, 0.3]]
        self.assertEqual(fit.predict(now).tolist(), [0, 1, 1])  # the last answers whatever
        self.assertEqual(fit.choose(now, [[1, 2, 3], [4, 5, 6]]).tolist(), [1, 5, 6])
        self.assertAlmostEqual(fit.cost(now), 5 / 3)
        self.assertAlmostEqual(fit.cost(now, [1, 10]), (1 + 11 + 11) / 3)
        np.testing.assert_array_equal(again(fit).predict(now), fit.predict(now))
        self.assertLessEqual(Cascade(slack=0.4).fit(self.CONFIDENCE, self.CORRECT).threshold_[0], 0.6)

    def test_refused(self):
        fit = Cascade().fit(self.CONFIDENCE, self.CORRECT)
        for words, call in (("correct: shape", lambda: fit.fit(self.CONFIDENCE, [1, 0])), ("of 1 models", lambda: fit.predict([[1.0]])),
                            ("answers: shape", lambda: fit.choose([[1.0], [1.0]], [1])), ("fit comes first", lambda: Cascade().cost([[1]])),
                            ("no row counts", lambda: Cascade().fit([[np.nan]], [[1]]))):
            self.assertRaisesRegex(ValueError, words, call)


class Reliable(unittest.TestCase):
    def setUp(self):
        self.known = slice(100, 200)
        self.fit = SDM(alpha=0.9).fit(FEATURES[:100], Y[:100], LOGITS[:100].argmax(1), features=FEATURES[100:], logits=LOGITS[100:], y=Y[100:])

    def test_by_numpy(self):
        fit, bank, predicted = self.fit, FEATURES[:100], LOGITS[:100].argmax(1)
        q = []
        for row, chosen in zip(FEATURES, LOGITS.argmax(1)):
            near = np.argsort(np.linalg.norm(bank - row, axis=1), kind="stable")
            agree = (Y[:100] == predicted)[near] & (predicted[near] == chosen)
            q.append(100 if agree.all() else agree.argmin())
        distance = np.array([np.linalg.norm(bank - row, axis=1).min() for row in FEATURES])
        q, counts = np.array(q, float), np.array(q)[100:] > 0
        d = np.min([1 - (distance[100:][counts & (Y[100:] == k)][:, None] < distance).mean(0) for k in range(CLASSES)], axis=0)
        z = LOGITS * (d * np.log(2 + q))[:, None]
        want = np.exp(z - z.max(1, keepdims=True))
        want /= want.sum(1, keepdims=True)
        np.testing.assert_allclose(fit.predict_proba(FEATURES, LOGITS), want, rtol=1e-9)
        rescaled = np.minimum(q, (2 + q) ** want.max(1))
        np.testing.assert_allclose(fit.score_samples(FEATURES, LOGITS), rescaled, rtol=1e-9)
        over = want >= fit.threshold_
        inside = (rescaled >= max(1, float(fit.least_))) & over[np.arange(ROWS), LOGITS.argmax(1)] & (over.sum(1) == 1)
        np.testing.assert_array_equal(fit.accept(FEATURES, LOGITS), inside)

    def test_bounds_by_numpy(self):
        fit, n = self.fit, np.array([((Y[100:] == k).sum()) for k in range(CLASSES)])
        known, rescaled = fit.score_samples(FEATURES[100:], LOGITS[100:]), fit.score_samples(FEATURES, LOGITS)
        size = np.stack([np.searchsorted(np.sort(known[Y[100:] == k]), rescaled) for k in range(CLASSES)], axis=1)
        size = np.minimum(size, n - 1)
        error = np.where(size > 0, np.sqrt(np.log(2 / (1 - fit.alpha)) / (2 * np.maximum(size, 1))), 1).clip(max=1).max(1)
        q = np.asarray(_call["sdm_similarity"](FEATURES, fit.bank_, fit.label_, LOGITS.argmax(1), fit.predicted_, classes=CLASSES).similarity)
        d = fit._of(FEATURES, LOGITS)[2]
        found = fit.bounds(FEATURES, LOGITS)
        np.testing.assert_array_equal(found.size, size)
        np.testing.assert_allclose(found.error, error, rtol=1e-12)
        np.testing.assert_allclose(found.low, np.maximum(0, d - error), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(found.high, np.minimum(1, d + error), rtol=1e-12)
        for end in ("low", "high"):
            want = softmax(LOGITS * (getattr(found, end) * np.log(2 + q))[:, None])
            np.testing.assert_allclose(fit.predict_proba(FEATURES, LOGITS, end=end), want, rtol=1e-9)
            np.testing.assert_allclose(fit.score_samples(FEATURES, LOGITS, end=end), np.minimum(q, (2 + q) ** want.max(1)), rtol=1e-9)
        low, usual = fit.accept(FEATURES, LOGITS, end="low"), fit.accept(FEATURES, LOGITS)
        self.assertFalse((low & ~usual).any())
        np.testing.assert_array_equal(again(fit).accept(FEATURES, LOGITS, end="low"), low)

    def test_what_is_accepted_is_right(self):
        accepted = self.fit.accept(FEATURES[100:], LOGITS[100:])
        self.assertGreater(accepted.sum(), 10)
        self.assertGreaterEqual((self.fit.predict(FEATURES[100:], LOGITS[100:]) == Y[100:])[accepted].mean(), 0.9)
        far = FEATURES + 100
        self.assertFalse(self.fit.accept(far, LOGITS).any())
        np.testing.assert_allclose(self.fit.predict_proba(far, LOGITS), 1 / CLASSES)

    def test_lists_and_files(self):
        same = again(self.fit)
        for a, b in ((FEATURES, LOGITS), (FEATURES.astype(np.float32).tolist(), LOGITS.tolist())):
            np.testing.assert_array_equal(same.accept(a, b), self.fit.accept(a, b))
            np.testing.assert_array_equal(same.predict_proba(a, b), self.fit.predict_proba(a, b))

    def test_a_region_that_is_empty(self):
        random = RANDOM.integers(0, CLASSES, 100)
        fit = SDM(alpha=0.99).fit(FEATURES[:100], Y[:100], LOGITS[:100].argmax(1), features=FEATURES[100:], logits=LOGITS[100:], y=random)
        self.assertEqual(fit.least_, np.inf)
        self.assertFalse(again(fit).accept(FEATURES, LOGITS).any())

    def test_refused(self):
        for words, call in (("end: is 'least', not 'low'", lambda: self.fit.accept(FEATURES, LOGITS, end="least")),
                            ("logits: of 3 rows, not of 200", lambda: self.fit.accept(FEATURES, LOGITS[:3])),
                            ("logits: shape", lambda: self.fit.accept(FEATURES, LOGITS[:, :2])),
                            ("fit comes first", lambda: SDM().accept(FEATURES, LOGITS)),
                            ("label: shape", lambda: SDM().fit(FEATURES, Y[1:], Y, features=FEATURES, logits=LOGITS, y=Y)),
                            ("y: no row", lambda: SDM().fit(FEATURES, Y, Y, features=FEATURES, logits=LOGITS, y=Y * 0 - 1))):
            self.assertRaisesRegex(ValueError, words, call)


class Documentation(unittest.TestCase):
    def test_examples(self):
        self.assertEqual(doctest.testmod(reliability).failed, 0)


if __name__ == "__main__":
    unittest.main()
