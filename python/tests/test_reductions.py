"""Losses with a reduction: the first result is the value for all rows."""
import unittest

import numpy as np

import libsoftmax
from libsoftmax import _functions

from support import problems


def losses():
    """(operator, arguments, settings, the words of its reduction)"""
    for op, given, settings in problems(optional=False):
        if _functions.reduced_output(op) is not None:
            words = next(p.choices for p in op.params if p.name == "reduction")
            yield op, {k: np.array(a) for k, a in given.items()}, settings, words


class Reductions(unittest.TestCase):
    def test_every_loss(self):
        count = 0
        for op, given, settings, words in losses():
            function, plain = getattr(libsoftmax, op.name), _functions.plain(op)
            rows = function(**given, **settings)
            self.assertEqual(np.shape(rows[0]), (3,))
            for number, word in enumerate(words):
                with self.subTest(op.name, reduction=word):
                    flag = "return_" + op.outputs[_functions.reduced_output(op)].name
                    expected = plain(**given, **settings, reduction=word, **{flag: True})
                    for reduction in (word, number):
                        found = function(**given, **settings, reduction=reduction)
                        if word == "none":
                            np.testing.assert_array_equal(found[0], rows[0])
                            self.assertIsNone(found[_functions.reduced_output(op)])
                        else:
                            self.assertEqual(np.shape(found[0]), ())
                            np.testing.assert_array_equal(found[0], expected[_functions.reduced_output(op)])
                            self.assertIs(found[_functions.reduced_output(op)], found[0])
                            self.assertEqual(type(found), type(rows))
                    count += 1
        self.assertGreater(count, 40 * 3)

    def test_as_torch_has_it(self):
        x, target = np.float32([[1, 2, 3], [0, 4, 1], [2, 2, 2]]), [2, 0, -100]
        rows = libsoftmax.cross_entropy(x, target).loss
        self.assertAlmostEqual(float(libsoftmax.cross_entropy(x, target, reduction="mean").loss), rows.sum() / 2, 6)
        self.assertAlmostEqual(float(libsoftmax.cross_entropy(x, target, reduction="sum")[0]), rows.sum(), 6)

    def test_out(self):
        """Takes the losses of the rows, and the value for all of them."""
        x, target = np.float32([[1, 2, 3], [0, 4, 1]]), [2, 0]
        each, value = np.zeros(2, np.float32), np.zeros((), np.float32)
        arrays = {"loss": each, "reduced": value}
        found = libsoftmax.cross_entropy(x, target, reduction="mean",
                                         out=tuple(arrays.get(p.name)
                                                   for p in libsoftmax.OPERATORS["cross_entropy"].outputs))
        np.testing.assert_array_equal(each, libsoftmax.cross_entropy(x, target).loss)
        self.assertIs(found.loss, value)


if __name__ == "__main__":
    unittest.main()
