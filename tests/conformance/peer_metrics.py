"""Metrics of scikit-learn, torchmetrics and netcal beside those of libsoftmax: where they are the same, and where another definition gives
another number, as the tables of docs/conventions.md say. A difference that no longer shows is a failure too."""
import importlib.metadata
import sys
import warnings

import netcal.metrics
import numpy as np
import sklearn.calibration
import sklearn.isotonic
import sklearn.linear_model
import sklearn.metrics
import torch
import torchmetrics.functional.classification as classification

import libsoftmax

warnings.simplefilter("ignore")
TOLERANCE = 2e-7  # some of theirs are float32, and some of ours are where both arrays hold whole numbers
random = np.random.default_rng(5)
ROWS, CLASSES = 700, 6
logits = random.standard_normal((ROWS, CLASSES)) * 2
logits[:, CLASSES - 1] -= 50  # a class that nobody predicts
target = np.where(random.uniform(size=ROWS) < 0.6, logits.argmax(axis=1), random.integers(0, CLASSES - 1, ROWS))
probability = libsoftmax.softmax(logits)
confidence, prediction = probability.max(axis=1), probability.argmax(axis=1)
correct = prediction == target
tied = np.round(confidence * 8) / 8



def calibration(how, x=confidence, bins=15):
    right = torch.from_numpy(correct.astype(np.int64))
    return float(classification.binary_calibration_error(torch.from_numpy(x), right, n_bins=bins, norm=how))


def top_three():
    chance, classes = torch.from_numpy(probability), torch.from_numpy(target)
    return float(classification.multiclass_accuracy(chance, classes, CLASSES, top_k=3, average="micro"))


def ours(x, *more, **settings):
    return getattr(libsoftmax, x)(*more, **settings)


def fpr_by_curve(score):
    fpr, tpr, _ = sklearn.metrics.roc_curve(correct, score, drop_intermediate=False)
    return fpr[tpr >= 0.95].min()


def f1_over_all():
    return float(classification.multiclass_f1_score(torch.from_numpy(prediction), torch.from_numpy(target), CLASSES, average="macro"))


def platt():
    a = libsoftmax.platt_fit(logits[:, 0], target == 0)
    fit = sklearn.calibration._sigmoid_calibration(logits[:, 0], (target == 0).astype(float))
    return np.array([float(a.slope), float(a.offset)]), np.array(fit)


def isotonic():
    fit = libsoftmax.isotonic_fit(confidence, correct)
    theirs = sklearn.isotonic.IsotonicRegression(out_of_bounds="clip").fit(confidence, correct)
    grid = np.linspace(-0.1, 1.1, 200)
    return libsoftmax.isotonic(grid, fit.x, fit.y), theirs.predict(grid)


def probe():
    rows = logits[:, :3]
    fit = libsoftmax.probe_fit(rows, target, classes=CLASSES, l2=1 / (0.5 * ROWS))
    theirs = sklearn.linear_model.LogisticRegression(C=0.5, tol=1e-10, max_iter=10000).fit(rows, target)
    return libsoftmax.softmax(rows @ fit.weight.T + fit.bias)[:, theirs.classes_], theirs.predict_proba(rows)


def of_netcal(kind, x=confidence, bins=15):
    return getattr(netcal.metrics, kind)(bins).measure(x, correct.astype(int))


def left(x=confidence, bins=15, **how):
    return ours("calibration_error", x, correct, bins=bins, closed="left", return_mce=True, return_mean=True, return_accuracy=True, **how)


def gaps():
    """The ECE, ACE, and the mean of the gaps of bins that have rows."""
    found = left()
    return float(found.ece), of_netcal("ACE"), np.nanmean(abs(found.mean - found.accuracy))


def on_edges():
    x = np.minimum(tied, 0.875) - (tied == 0.5) * 0.25
    return ece(x, bins=4), of_netcal("ECE", x, 4), float(left(x, 4).ece)


def ece(x=confidence, **how):
    return float(ours("calibration_error", x, correct, **how).ece)


SAME = {  # name -> ours, theirs
    "AUROC, scikit-learn": lambda: (ours("ranking_metrics", confidence, correct).auroc, sklearn.metrics.roc_auc_score(correct, confidence)),
    "AUROC with ties, scikit-learn": lambda: (ours("ranking_metrics", tied, correct).auroc, sklearn.metrics.roc_auc_score(correct, tied)),
    "average precision with ties, scikit-learn": lambda: (
        ours("ranking_metrics", tied, correct, return_average_precision=True).average_precision,
        sklearn.metrics.average_precision_score(correct, tied)),
    "FPR at 95 % TPR, scikit-learn's roc_curve": lambda: (
        ours("ranking_metrics", tied, correct, return_fpr=True).fpr, fpr_by_curve(tied)),
    "accuracy, scikit-learn": lambda: (
        ours("classification_metrics", prediction, target, classes=CLASSES).accuracy, sklearn.metrics.accuracy_score(target, prediction)),
    "macro F1, scikit-learn": lambda: (
        ours("classification_metrics", prediction, target, classes=CLASSES, return_macro_f1=True).macro_f1,
        sklearn.metrics.f1_score(target, prediction, average="macro")),
    "balanced accuracy, scikit-learn": lambda: (
        ours("classification_metrics", prediction, target, classes=CLASSES, return_balanced_accuracy=True).balanced_accuracy,
        sklearn.metrics.balanced_accuracy_score(target, prediction)),
    "Matthews correlation, scikit-learn": lambda: (
        ours("classification_metrics", prediction, target, classes=CLASSES, return_matthews=True).matthews,
        sklearn.metrics.matthews_corrcoef(target, prediction)),
    "confusion matrix, scikit-learn": lambda: (
        ours("classification_metrics", prediction, target, classes=CLASSES, return_confusion=True).confusion,
        sklearn.metrics.confusion_matrix(target, prediction, labels=range(CLASSES))),
    "log loss, scikit-learn": lambda: (
        libsoftmax.cross_entropy(logits, target).loss.mean(), sklearn.metrics.log_loss(target, probability, labels=range(CLASSES))),
    "Platt scaling, scikit-learn": platt,
    "isotonic regression, scikit-learn": isotonic,
    "ECE, torchmetrics": lambda: (ece(), calibration("l1")),
    "MCE, torchmetrics": lambda: (ours("calibration_error", confidence, correct, return_mce=True).mce, calibration("max")),
    "RMS calibration error, torchmetrics": lambda: (
        ours("calibration_error", confidence, correct, return_rms=True).rms, calibration("l2")),
    "ECE, netcal": lambda: (ece(), of_netcal("ECE")),
    "MCE, netcal": lambda: (left().mce, of_netcal("MCE")),
    "MMCE, netcal": lambda: (ours("kernel_calibration_error", confidence, correct).mmce, netcal.metrics.MMCE().measure(probability, target)),
    "logistic regression, scikit-learn": probe,
    "accuracy of the first three, torchmetrics": lambda: (
        (libsoftmax.cross_entropy(logits, target, return_rank=True).rank < 3).mean(), top_three()),
}


def brier():
    two = np.stack([logits[:, 0], np.zeros(ROWS)], axis=1)
    of_two = libsoftmax.brier_score(two, (target != 0).astype(np.int64)).mean()
    return of_two, 2 * sklearn.metrics.brier_score_loss(target == 0, libsoftmax.softmax(two)[:, 0])


def edges():
    """Of confidences of which half lie on edges of bins; none is 1."""
    x = np.minimum(tied, 0.875)
    return ece(x, bins=4), calibration("l1", x, 4), ece(x, bins=4, closed="left")


def certain():
    """Of rows that are sure: one bin more holds those of exactly 1."""
    x, right = np.array([0.95, 0.97, 1, 1]), np.array([True, True, True, False])
    theirs = classification.binary_calibration_error(torch.tensor(x), torch.tensor([1, 1, 1, 0]), n_bins=10, norm="l1")
    apart = (abs(x[:2].mean() - 1) * 2 + abs(1 - 0.5) * 2) / 4
    return float(libsoftmax.calibration_error(x, right, bins=10).ece), float(theirs), apart


DIFFERENT = {  # name -> ours, theirs, what theirs is by its definition; and why
    "Brier score of two classes, scikit-learn": (
        lambda: (brier()[0], brier()[1] / 2, brier()[0] / 2), "one class of the two is counted"),
    "ECE of confidences of 1, torchmetrics": (certain, "they have a bin of their own"),
    "ACE, netcal": (gaps, "bins count alike, whatever rows they have"),
    "ECE of confidences on edges, netcal": (on_edges, "bins are closed on the left"),
    "ECE of confidences on edges, torchmetrics": (edges, "bins are closed on the left"),
}


def apart(a, b):
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max())


def main():
    failed = 0
    for name in ("scikit-learn", "torchmetrics", "netcal"):
        print("%s %s" % (name, importlib.metadata.version(name)))
    for name, both in SAME.items():
        d = apart(*both())
        failed += not d <= TOLERANCE
        print("%-46s %s" % (name, "the same" if d <= TOLERANCE else "FAILED: %g apart" % d))
    for name, (all_three, why) in DIFFERENT.items():
        our, their, told = all_three()
        good = apart(our, their) > 1e-4 and apart(their, told) <= TOLERANCE
        failed += not good
        print("%-46s %s" % (name, "%.6g, theirs %.6g: %s" % (our, their, why) if good else
                            "FAILED: %.9g, theirs %.9g, not %.9g" % (our, their, told)))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
