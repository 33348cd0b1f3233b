"""Five ways to turn the scores of a classifier into weights, and what each does to them.

Run it from anywhere. It needs the package (pip install . in the root of the repository) and NumPy; Matplotlib is for the picture:

    python examples/normalisers.py [--no-plot]

The lines that begin with # %% make it a notebook for editors that know them.
"""

# %% The scores: 450 images of handwritten digits that a classifier has not seen, ten scores each, and the digits that they show.
import sys
from pathlib import Path

import numpy as np

import libsoftmax

folder = Path(__file__).parent
scores = np.load(folder / "digits_logits.npy")
labels = np.load(folder / "digits_labels.npy")
print("%d rows of %d scores, %s; libsoftmax %s on %s" % (*scores.shape, scores.dtype, libsoftmax.__version__, libsoftmax.isa))

# %% Softmax makes weights of them: positive, and 1 in sum. The first image is not a clear case.
weights = libsoftmax.softmax(scores)
print("\nImage 0 shows a %d. Scores and weights:" % labels[0])
for digit in np.argsort(-weights[0])[:4]:
    print("  %d  %8.3f  %.4f" % (digit, scores[0, digit], weights[0, digit]))

# %% Five normalisers. help(libsoftmax.sparsemax) and the like tell what each one is.
normalisers = {
    "softmax": libsoftmax.softmax,
    "softmax, temperature 3": lambda x: libsoftmax.softmax(x, temperature=3),
    "entmax15": libsoftmax.entmax15,
    "sparsemax": libsoftmax.sparsemax,
    "hardmax": libsoftmax.hardmax,
}

# %% How they differ: how sure they are, how many digits they leave in play, and what their mistakes cost.
rows = np.arange(len(scores))
print("\n%-26s %9s %9s %9s %9s %10s" % ("", "right", "top", "entropy", "nonzero", "log loss"))
for name, normalise in normalisers.items():
    w = normalise(scores)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.nansum(-w * np.log(w), axis=-1).mean()
        loss = -np.log(w[rows, labels]).mean()
    right = (w.argmax(-1) == labels).mean()
    print("%-26s %9.4f %9.4f %9.4f %9.2f %10.4f" % (name, right, w.max(-1).mean(), entropy, (w > 0).sum(-1).mean(), loss))
print("All agree on the digit; they differ in how sure they are. A weight of 0 for what turns out true costs infinitely much.")

# %% The temperature that makes the weights honest is the one with the least log loss: -log_softmax at the true digit, and no weight is 0.
temperatures = np.geomspace(0.25, 4, 33)
losses = [-libsoftmax.log_softmax(scores, temperature=t)[rows, labels].mean() for t in temperatures]
best = temperatures[int(np.argmin(losses))]
print("\nThe log loss is least at temperature %.2f: %.4f, and %.4f at 1." % (best, min(losses), losses[len(losses) // 2]))

# %% A draw in place of the best digit: the sharper the weights, the more often it is the right one.
print("\nDrawn once an image, at four temperatures: " + ", ".join(
    "%g: %.3f right" % (t, (libsoftmax.sample(scores, temperature=t, seed=1) == labels).mean()) for t in (0, 0.5, 1, 4)))

# %% The gradient of that loss is weights minus one-hot, which the library gives for any operator.
upstream = np.zeros_like(scores)
upstream[rows, labels] = -1
gradient = libsoftmax.log_softmax_backward(upstream, y=libsoftmax.log_softmax(scores))
one_hot = np.eye(scores.shape[1], dtype=np.float32)[labels]
print("Gradient of the log loss against weights - one-hot: %.1e apart at most." % np.abs(gradient - (weights - one_hot)).max())

# %% The picture.
try:
    import matplotlib
except ImportError:
    matplotlib = None
if matplotlib and "--no-plot" not in sys.argv:
    import matplotlib.pyplot as plt

    figure, (bars, curve) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for i, (name, normalise) in enumerate(normalisers.items()):
        bars.bar(np.arange(10) + (i - 2) * 0.17, normalise(scores[:1])[0], 0.17, label=name)
    bars.set(title="Image 0, a %d" % labels[0], xlabel="digit", ylabel="weight", xticks=range(10))
    bars.legend()
    curve.plot(temperatures, losses)
    curve.axvline(best, linestyle=":")
    curve.set(title="Log loss by temperature", xlabel="temperature", xscale="log", ylabel="mean log loss")
    figure.savefig("normalisers.png")
    print("\nPicture: normalisers.png")
