"""Detectors of pytorch-ood beside those of libsoftmax: where they are the same, and where another definition gives another number, as
docs/conventions.md says. Theirs are large for outliers. A difference that no longer shows is a failure too."""
import importlib.metadata
import logging
import sys
import warnings

import numpy as np
import pytorch_ood.detector as theirs
import torch
from pytorch_ood.detector.ash import ash_b, ash_p, ash_s

import libsoftmax

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
TOLERANCE = 1e-5  # of the largest: theirs are float32
random = np.random.default_rng(5)
ROWS, WIDTH, CLASSES = 400, 8, 5
y = random.integers(0, CLASSES, ROWS)
known = (random.standard_normal((ROWS, WIDTH)) + 2 * np.eye(WIDTH)[y]).astype(np.float32)
query = (2 * random.standard_normal((150, WIDTH))).astype(np.float32)
weight, bias = (random.standard_normal(shape).astype(np.float32) for shape in ((CLASSES, WIDTH), CLASSES))
known_logits, logits = known @ weight.T + bias, query @ weight.T + bias
maps = np.abs(random.standard_normal((20, 6, 4, 4))).astype(np.float32)  # as after a ReLU


def of_logits(name, *fit, **settings):
    detector = getattr(theirs, name)(None, **settings)
    return (detector.fit_logits(*map(torch.from_numpy, fit)) if fit else detector).predict_logits(torch.from_numpy(logits)).numpy()


def of_features(name, *more, **settings):
    detector = getattr(theirs, name)(None, *more, **settings)
    return detector.fit_features(torch.from_numpy(known), torch.from_numpy(y)).predict_features(torch.from_numpy(query)).numpy()


def by_templates():
    """The class of a row is that of its largest logit."""
    template = libsoftmax.kl_matching_fit(known_logits).template
    return -libsoftmax.kl_matching(logits, template).score, of_logits("KLMatching", known_logits, y)


def vim():
    fit = libsoftmax.vim_fit(known, weight, bias, dim=3)
    ours = libsoftmax.vim(query, fit.origin, fit.residual, logits, alpha=float(fit.alpha)).score
    return -ours, of_features("ViM", 3, torch.from_numpy(weight), torch.from_numpy(bias))


def react():
    known_maps = np.abs(random.standard_normal((30, 6, 4, 4))).astype(np.float32)
    ours = libsoftmax.react(maps, threshold=float(libsoftmax.react_fit(known_maps.reshape(30, -1), percentile=90)))
    cut = []
    detector = theirs.ReAct(None, lambda x: cut.append(x) or x.mean(dim=(2, 3)), percentile=0.9)
    detector.fit_feature_maps(torch.from_numpy(known_maps), torch.zeros(30, dtype=torch.int64))
    detector.predict_feature_maps(torch.from_numpy(maps))
    return ours, cut[0].numpy()


def pruned(form, function):
    flat = maps.reshape(len(maps), -1)
    return libsoftmax.ash(flat, percentile=65, form=form), function(torch.from_numpy(maps), 0.65).numpy().reshape(flat.shape)


SAME = {  # name -> ours, theirs
    "MSP": lambda: (-libsoftmax.msp(logits), of_logits("MaxSoftmax")),
    "MSP at a temperature": lambda: (-libsoftmax.msp(logits, temperature=3), of_logits("MaxSoftmax", t=3.0)),
    "largest logit": lambda: (-libsoftmax.max_logit(logits), of_logits("MaxLogit")),
    "energy": lambda: (-libsoftmax.energy(logits), of_logits("EnergyBased")),
    "entropy": lambda: (libsoftmax.entropy(logits), of_logits("Entropy")),
    "KL matching": by_templates,
    "k nearest neighbours": lambda: (-libsoftmax.knn_score(query, known, k=10), of_features("KNN", k=10)),
    "the same of features as they are": lambda: (
        -libsoftmax.knn_score(query, known, k=10, normalise="no"), of_features("KNN", k=10, normalize=False)),
    "ViM": vim,
    "ReAct": react,
    "ASH-P": lambda: pruned("p", ash_p),
    "ASH-B": lambda: pruned("b", ash_b),
    "ASH-S": lambda: pruned("s", ash_s),
}


def mahalanobis(name, relative):
    fit = libsoftmax.mahalanobis_fit(known, y, classes=CLASSES, ridge=0.0, return_mean_all=True, return_whiten_all=True)
    over_all = (fit.mean_all, fit.whiten_all) if relative else ()
    ours = -libsoftmax.mahalanobis(query, fit.mean, fit.whiten, *over_all).score
    return ours, of_features(name), ours / ROWS / (1 if relative else 2)


def generalised():
    """Of logits of which no probability is near 1, where 1 - p of float32 says little."""
    flat = logits / 8
    p = np.clip(libsoftmax.softmax(flat), 1e-7, 1 - 1e-7)
    there = theirs.GEN(None).predict_logits(torch.from_numpy(flat)).numpy()
    return -libsoftmax.generalised_entropy(flat, gamma=0.1), there, (p**0.1 * (1 - p)**0.1).mean(axis=1)


DIFFERENT = {  # name -> ours, theirs, what theirs is by its definition; and why
    "Mahalanobis": (lambda: mahalanobis("Mahalanobis", False), "half of it, with a scatter matrix, not divided by the rows, in place of the covariance"),
    "relative Mahalanobis": (lambda: mahalanobis("RMD", True), "with such matrices too, and not halved"),
    "GEN": (generalised, "a mean over the classes in place of the sum, of probabilities between 1e-7 and 1 - 1e-7"),
}


def apart(a, b):
    a, b = np.asarray(a, float), np.asarray(b, float)
    return float(np.abs(a - b).max() / max(1e-30, np.abs(b).max()))


def main():
    failed = 0
    print("pytorch-ood %s" % importlib.metadata.version("pytorch-ood"))
    for name, both in SAME.items():
        d = apart(*both())
        failed += not d <= TOLERANCE
        print("%-46s %s" % (name, "the same" if d <= TOLERANCE else "FAILED: %g apart" % d))
    for name, (all_three, why) in DIFFERENT.items():
        our, their, told = all_three()
        good = apart(our, their) > 1e-3 and apart(their, told) <= 20 * TOLERANCE
        failed += not good
        print("%-46s %s" % (name, "theirs: %s" % why if good else "FAILED: %g from ours, %g from its definition"
                            % (apart(our, their), apart(their, told))))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
