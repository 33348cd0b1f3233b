"""The examples of docs/pytorch.md, and examples/reproducible.py, mixture_of_experts.py and vocabulary_parallel.py."""
import doctest
import pathlib
import re
import subprocess
import sys
import unittest

import libsoftmax.torch  # noqa: F401  what the page is about

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/pytorch.md"


class Docs(unittest.TestCase):
    def test_examples(self):
        found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
        self.assertEqual((found.failed, found.attempted > 20), (0, True))

    def test_reproducible_training(self):
        """Eight runs, one hash. Sums over 16 sequences at once, where they are there, are not those
        over 2 x 8, so that the example could fail."""
        path = ROOT / "examples/reproducible.py"
        made = subprocess.run([sys.executable, str(path), "4"], text=True, capture_output=True)
        hashes = re.findall("weights ([0-9a-f]{16})$", made.stdout, re.M)
        self.assertEqual((made.returncode, len(hashes), len(set(hashes))), (0, 8, 1), made.stdout + made.stderr)
        program = "import reproducible as r; r.GROUP = 16; print(*[r.train(4, size)[2] for size in (16, 8)])"
        p = subprocess.run([sys.executable, "-B", "-c", program], text=True, capture_output=True, cwd=path.parent)
        self.assertEqual(len(set(p.stdout.split())), 2, p.stdout + p.stderr)

    def test_mixture_of_experts(self):
        """The layer that routes and the one that does not lose alike, and less in the end."""
        program = "import mixture_of_experts as m; [print(*losses) for losses in m.main(6)]"
        p = subprocess.run([sys.executable, "-B", "-c", program], text=True, capture_output=True, cwd=ROOT / "examples")
        routed, plain = [[float(word) for word in line.split()] for line in p.stdout.splitlines()[-2:]]
        self.assertEqual((len(routed), routed[-1] < routed[0]), (6, True), routed)
        self.assertTrue(all(abs(a - b) < 1e-12 for a, b in zip(routed, plain)), p.stdout + p.stderr)

    def test_vocabulary_parallel(self):
        """A head on 1, 2 and 4 processes has the same losses, which fall, and weights."""
        path = ROOT / "examples/vocabulary_parallel.py"
        p = subprocess.run([sys.executable, "-B", str(path), "4"], text=True, capture_output=True, timeout=500)
        found = [line.split(": ")[1] for line in p.stdout.splitlines()]
        self.assertEqual((p.returncode, len(found), len(set(found))), (0, 3, 1), p.stdout + p.stderr)
        first, *_, last, word, _ = found[0].split()
        self.assertEqual((word, float(last) < float(first)), ("weights", True), found)


if __name__ == "__main__":
    unittest.main()
