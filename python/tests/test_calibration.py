"""Fits with fit and predict: the worked examples, arrays of every kind, files, and what is refused."""
import doctest
import json
import os
import pickle
import tempfile
import unittest

import numpy as np

from libsoftmax import calibration
from libsoftmax.calibration import (BetaCalibration, ConformalClassifier, DirichletCalibration, HistogramBinning, IsotonicCalibration,
                                    MatrixScaling, PlattScaling, TemperatureScaling, VectorScaling, load)

LOGITS = np.array([[2, 1, 0], [1, 2, 0], [0, 1, 2], [3, 0, 0], [0, 3, 1], [1, 0, 2], [1, 1.5, 0], [2, 0, 1.5], [.5, 0, 1]])
Y = [0, 1, 2, 0, 1, 2, 0, 2, 1]
X, IS = np.array([-2, -1, -.5, .3, .8, 1, 2.5, 3]), [0, 0, 1, 0, 1, 1, 1, 1]
CHANCE = 1 / (1 + np.exp(-X))

FITS = {
    "temperature": (TemperatureScaling(), LOGITS, Y), "vector": (VectorScaling(l2=.03), LOGITS, Y),
    "matrix": (MatrixScaling(), LOGITS, Y), "dirichlet": (DirichletCalibration(l2_diagonal=.1), LOGITS, Y),
    "platt": (PlattScaling(), X, IS), "beta": (BetaCalibration(), CHANCE, IS), "isotonic": (IsotonicCalibration(), X, IS),
    "histogram": (HistogramBinning(bins=4), CHANCE, IS),
    "conformal": (ConformalClassifier(coverage=.8, method="adaptive", penalty=.1, rank=1), LOGITS, Y),
}


def applied(fit, x):
    return fit.predict_set(x) if isinstance(fit, ConformalClassifier) else fit.predict_proba(x)


def loss(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


class Fits(unittest.TestCase):
    def setUp(self):
        for fit, x, y in FITS.values():
            fit.fit(x, y)

    def test_worked_examples(self):
        self.assertAlmostEqual(float(FITS["temperature"][0].temperature_), 0.6788285293588364, 14)
        self.assertAlmostEqual(float(FITS["platt"][0].slope_), -0.7010188622835906, 6)
        self.assertAlmostEqual(float(FITS["platt"][0].offset_), -0.2239006798873402, 6)

    def test_losses_are_those_of_the_probabilities(self):
        before = loss(np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True), Y)
        for name in ("temperature", "vector", "matrix", "dirichlet"):
            fit = FITS[name][0]
            self.assertAlmostEqual(float(fit.loss_), loss(fit.predict_proba(LOGITS), Y), 12)
            self.assertAlmostEqual(float(fit.before_), before, 12)
            self.assertLess(fit.loss_, fit.before_)
            self.assertTrue((fit.predict(LOGITS) == fit.predict_proba(LOGITS).argmax(1)).all())

    def test_rising_maps_rise(self):
        for name in ("platt", "beta", "isotonic"):
            fit, x, _ = FITS[name]
            self.assertTrue((np.diff(fit.predict_proba(np.sort(x))) >= 0).all(), name)

    def test_bins(self):
        fit = HistogramBinning(bins=5).fit([.5, .55, .9, .95], [1, 0, 1, 1])
        self.assertEqual(fit.predict_proba([.41, .99, .3]).round(12).tolist(), [.5, 1, .3])

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "fit.json")
            for name, (fit, x, _) in FITS.items():
                fit.save(path)
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(json.load(file)["method"], name)
                again = load(path)
                self.assertEqual(repr(again), repr(fit))
                self.assertEqual(applied(again, x).tobytes(), applied(fit, x).tobytes(), name)
                self.assertEqual(applied(pickle.loads(pickle.dumps(fit)), x).tobytes(), applied(fit, x).tobytes(), name)
            full = ConformalClassifier(coverage=1).fit(LOGITS, Y)
            full.save(path)
            self.assertEqual(load(path).threshold_, np.inf)
            self.assertTrue(load(path).predict_set(LOGITS).all())
            for text, words in (("[]", "not a softmax-fit"), ('{"format": "softmax-fit", "version": 2}', "version is 2"),
                                ('{"format": "softmax-fit", "version": 1, "method": "x"}', "method is 'x'")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(ValueError, words):
                    load(path)

    def test_arrays_of_every_kind(self):
        for name, (fit, x, y) in FITS.items():
            want = applied(fit, x)
            lists = type(fit)(**fit.get_params()).fit(x.tolist(), np.array(y, np.int32))
            self.assertEqual(applied(lists, x.tolist()).tobytes(), want.tobytes(), name)
            single = type(fit)(**fit.get_params()).fit(x.astype(np.float32), y)
            got = applied(single, x.astype(np.float32))
            self.assertEqual(got.dtype, want.dtype if name == "conformal" else np.float32)
            np.testing.assert_allclose(got, want, atol=1e-5)

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "fit comes first"):
            TemperatureScaling().predict_proba(LOGITS)
        with self.assertRaisesRegex(ValueError, "logits: ndim is 1, not 2"):
            TemperatureScaling().fit(X, IS)
        with self.assertRaisesRegex(TypeError, "y: dtype is float64"):
            TemperatureScaling().fit(LOGITS, np.array(Y) * 1.0)
        with self.assertRaisesRegex(ValueError, "target"):
            TemperatureScaling().fit(LOGITS, [0, 1, 3, 0, 0, 0, 0, 0, 0])
        nan = np.where(LOGITS > 2.5, np.nan, LOGITS)
        for fit in (TemperatureScaling(), VectorScaling(), MatrixScaling(), ConformalClassifier()):
            with self.assertRaisesRegex(ValueError, "not finite|NaN"):
                fit.fit(nan, Y)
        with self.assertRaisesRegex(ValueError, "logits: row [0-9]+ has a NaN"):
            TemperatureScaling().fit(LOGITS, Y).predict(nan)
        with self.assertRaisesRegex(ValueError, "no row counts"):
            TemperatureScaling().fit(LOGITS, [-1] * 9)
        with self.assertRaisesRegex(ValueError, "no row counts"):
            PlattScaling().fit([], np.zeros(0, int))
        with self.assertRaisesRegex(TypeError, "no setting 'l1'"):
            VectorScaling(l1=0)
        with self.assertRaisesRegex(ValueError, "l2"):
            VectorScaling(l2=-1).fit(LOGITS, Y)

    def test_the_module(self):
        self.assertEqual(doctest.testmod(calibration).failed, 0)


if __name__ == "__main__":
    unittest.main()
