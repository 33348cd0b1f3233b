"""Detectors with fit and predict: values by NumPy, thresholds, files, arrays of every kind, and what is refused."""
import doctest
import os
import pickle
import tempfile
import unittest

import numpy as np

from libsoftmax import outliers
from libsoftmax.outliers import KNN, Centroids, KLMatching, Mahalanobis, ReAct, RelativeUncertainty, TrustScore, ViM, load

RANDOM = np.random.default_rng(3)
ROWS, D, CLASSES = 120, 6, 4
Y = np.arange(ROWS) % CLASSES
FEATURES = RANDOM.standard_normal((ROWS, D)) + 3 * np.eye(D)[Y]
FAR = 8 * RANDOM.standard_normal((40, D))
WEIGHT, BIAS = RANDOM.standard_normal((CLASSES, D)), RANDOM.standard_normal(CLASSES)
LOGITS = 3 * FEATURES[:, :CLASSES]
FLAT = RANDOM.standard_normal((40, CLASSES)) / 10

FITS = {  # name -> a detector, what fit takes, and rows that are unlike them
    "kl": (KLMatching(), (LOGITS,), {}, FLAT), "centroids": (Centroids(), (LOGITS, Y), {}, FLAT),
    "rel_u": (RelativeUncertainty(lambda_=0.3), (LOGITS, Y), {}, FLAT), "mahalanobis": (Mahalanobis(), (FEATURES, Y), {}, FAR),
    "relative": (Mahalanobis(relative=True, tpr=0.9), (FEATURES, Y), {}, FAR),
    "vim": (ViM(dim=3), (FEATURES,), {"weight": WEIGHT, "bias": BIAS}, FAR), "knn": (KNN(k=5, normalise="no"), (FEATURES,), {}, FAR),
}


def without_itself(rows, bank):
    """Distances to the other rows of a bank that has the rows, the nearest first."""
    return np.sort(np.linalg.norm(rows[:, None] - bank, axis=2), axis=1)[:, 1:]


class Detectors(unittest.TestCase):
    def setUp(self):
        for fit, data, more, _ in FITS.values():
            fit.fit(*data, **more)

    def test_the_share_of_rows_that_are_known(self):
        for name, (fit, data, _, unlike) in FITS.items():
            scores = fit.score_samples(data[0])
            self.assertEqual(scores.shape, (ROWS,))
            self.assertGreaterEqual((fit.predict(data[0]) == 1).mean(), fit.tpr, name)
            own = -without_itself(FEATURES, FEATURES)[:, fit.k - 1] if name == "knn" else scores
            self.assertGreaterEqual((own >= fit.threshold_).mean(), fit.tpr, name)
            self.assertLess((own > fit.threshold_).mean(), fit.tpr, name)
            np.testing.assert_array_equal(fit.decision_function(data[0]), scores - fit.threshold_)
            if name != "rel_u":  # of flat rows it depends on which classes are taken for each other
                self.assertLess((fit.predict(unlike) == 1).mean(), 0.5, name)

    def test_values(self):
        mean = np.stack([FEATURES[Y == k].mean(0) for k in range(CLASSES)])
        away = FEATURES - mean[Y]
        covariance = away.T @ away / ROWS
        covariance += 1e-6 * np.trace(covariance) / D * np.eye(D)
        d = FAR[:, None] - mean
        want = -np.einsum("nkd,de,nke->nk", d, np.linalg.inv(covariance), d).min(1)
        np.testing.assert_allclose(FITS["mahalanobis"][0].score_samples(FAR), want, rtol=1e-5)
        distance = np.sort(np.linalg.norm(FAR[:, None] - FEATURES, axis=2), axis=1)
        np.testing.assert_allclose(FITS["knn"][0].score_samples(FAR), -distance[:, 4], rtol=1e-12)

    def test_trust(self):
        trust = TrustScore().fit(FEATURES, Y)
        chosen = np.zeros(len(FAR), int)
        d = np.stack([np.linalg.norm(FAR[:, None] - FEATURES[Y == k], axis=2).min(1) for k in range(CLASSES)], axis=1)
        np.testing.assert_allclose(trust.score_samples(FAR, chosen), d[:, 1:].min(1) / (d[:, 0] + 1e-12), rtol=1e-9)
        self.assertGreater((trust.predict(FEATURES, Y) == 1).mean(), 0.9)
        self.assertEqual(trust.predict(FEATURES[:1], [(Y[0] + 1) % CLASSES]).tolist(), [-1])

    def test_new_rows_of_what_is_known(self):
        # a row of fit is no neighbour of itself in the threshold: 0 would be the nearest distance of all
        new = RANDOM.standard_normal((ROWS, D)) + 3 * np.eye(D)[Y]
        nearest, trust = KNN(k=1, normalise="no").fit(FEATURES), TrustScore(tpr=0.9).fit(FEATURES, Y)
        for share in ((nearest.predict(new) == 1).mean(), (trust.predict(new, Y) == 1).mean()):
            self.assertGreater(share, 0.8)
        self.assertAlmostEqual(nearest.threshold_, -np.sort(without_itself(FEATURES, FEATURES)[:, 0])[113], 12)
        scores = [min(np.linalg.norm(x - FEATURES[Y != k], axis=1)) / np.sort(np.linalg.norm(x - FEATURES[Y == k], axis=1))[1]
                  for x, k in zip(FEATURES, Y)]
        self.assertAlmostEqual(trust.threshold_, np.sort(scores)[ROWS - 108], 9)

    def test_classes_of_one_row(self):
        trust = TrustScore().fit([[0.0], [1.0], [5.0]], [0, 0, 1])
        self.assertAlmostEqual(trust.threshold_, 4)  # of 5 / 1 and 4 / 1
        self.assertEqual(TrustScore().fit([[0.0], [1.0]], [0, 0]).threshold_, np.inf)
        with self.assertRaisesRegex(ValueError, "no row of fit has a score"):
            TrustScore().fit([[0.0], [1.0]], [0, 1])

    def test_react(self):
        cut = ReAct(percentile=80).fit(FEATURES)
        self.assertAlmostEqual(float(cut.threshold_), np.percentile(FEATURES, 80), 12)
        np.testing.assert_array_equal(cut.fit_transform(FEATURES), np.minimum(FEATURES, cut.threshold_))

    def test_files_and_copies(self):
        every = [(fit, (data[0],)) for fit, data, *_ in FITS.values()] + [(TrustScore().fit(FEATURES, Y), (FEATURES, Y))]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fit.json")
            for fit, arguments in every:
                fit.save(path)
                for other in (load(path), pickle.loads(pickle.dumps(fit))):
                    self.assertEqual(other.get_params(), fit.get_params())
                    np.testing.assert_array_equal(other.predict(*arguments), fit.predict(*arguments))
                    np.testing.assert_array_equal(other.score_samples(*arguments), fit.score_samples(*arguments))
            with open(path, "w", encoding="utf-8") as file:
                file.write('{"format": "softmax-fit", "version": 1, "method": "temperature"}')
            with self.assertRaisesRegex(ValueError, "method is 'temperature'"):
                load(path)

    def test_lists_and_float32(self):
        small = FEATURES.astype(np.float32)
        fit = Mahalanobis().fit(small.tolist(), Y.tolist())
        np.testing.assert_allclose(fit.score_samples(small), FITS["mahalanobis"][0].score_samples(FEATURES), rtol=1e-4)

    def test_refused(self):
        for call, words in (
            (lambda: Mahalanobis().score_samples(FEATURES), "fit comes first"), (lambda: Mahalanobis(k=3), "no setting 'k'"),
            (lambda: KNN(tpr=0).fit(FEATURES), "tpr is 0"), (lambda: KNN().fit(FEATURES[0]), "ndim is 1"),
            (lambda: Mahalanobis().fit(FEATURES, Y - 1), "not the class"), (lambda: Mahalanobis().fit(FEATURES, Y / 2), "whole numbers"),
            (lambda: KNN().fit(np.full((3, 2), np.nan)), "no row of fit has a score"),
        ):
            with self.assertRaisesRegex((ValueError, TypeError), words):
                call()

    def test_example(self):
        self.assertEqual(doctest.testmod(outliers).failed, 0)


if __name__ == "__main__":
    unittest.main()
