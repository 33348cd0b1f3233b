"""Basis-aware sampling (Closing the Curious Case of Neural Text Degeneration, Finlayson et al.
2023): draws from libsoftmax, the linear program from SciPy's HiGHS.

    python basis_aware.py

A language model's logits are E h with far fewer dimensions than tokens, so that it cannot give
every distribution. If each token's true probability is within 1 / (1 - eta) of the model's p, and
the true distribution agrees with p on a basis W of what the model can tell apart, then a token is
possible for certain exactly if no q has

    q[token] = 0,  0 <= q <= p / (1 - eta),  sum q = 1,  W^T q = W^T p.

Tokens of p >= eta need no program. Where the solver finds no answer, the token is not proven to be
possible and does not go out, as the paper states; its two published programs decide differently."""

import numpy as np
from scipy.optimize import linprog

import libsoftmax

TRIES, EMPTY = 10, 2  # drafts for a token; linprog's status of a program without a solution


def proven(p, basis, token, eta):
    """Whether the program has no solution. p: [V]; basis: [V, c], which may have no column."""
    most = p / max(1 - eta, 1e-10)
    most[token] = 0
    equal = np.column_stack((np.ones_like(p), basis)).T
    found = linprog(np.zeros_like(p), A_eq=equal, b_eq=equal @ p, bounds=np.stack((0 * p, most), axis=1))
    return found.status == EMPTY


def accept(p, basis, token, eta):
    """Whether the token is possible for certain."""
    return bool(p[token] >= eta) or proven(p, basis, token, eta)


def sample(logits, basis, eta, seed, stream):
    """The first of TRIES different tokens, drawn from p, that is possible; else the likeliest."""
    p = libsoftmax.softmax(logits)
    tokens = libsoftmax.gumbel_topk(logits, np.array(stream), k=min(TRIES, len(p)), seed=seed).index
    possible = (int(token) for token in tokens if accept(p, basis, token, eta))
    return next(possible, int(p.argmax()))


def check():
    """What is known of small cases."""
    p, one = np.array([0.3, 0.4, 0.3]), np.array([[1.0], [0.0], [-1.0]])
    assert proven(p, one, 1, 0.05)  # q could only be 0.5, 0, 0.5, which is too much
    assert not accept(p, one, 1, 0.5)
    skewed = np.array([0.6, 0.25, 0.1, 0.05])
    for token in range(4):  # without a basis it is a threshold; with a whole one nothing is cut
        assert proven(skewed, np.zeros((4, 0)), token, 0.08) == (skewed[token] > 0.08)
        assert proven(skewed, np.eye(4), token, 0.9)


def main():
    check()
    rng = np.random.default_rng(1)
    embedding = rng.normal(size=(2000, 64))
    basis = np.linalg.svd(embedding, full_matrices=False)[0][:, :20]
    p = libsoftmax.softmax(logits := embedding @ rng.normal(size=64) / 3)
    eta = 0.004
    drawn = [sample(logits, basis, eta, seed=7, stream=i) for i in range(50)]
    likely = sum(p[token] >= eta for token in drawn)
    print("50 tokens: %d of p >= %g, %d below it that the basis proves possible or the likeliest token"
          % (likely, eta, 50 - likely))


if __name__ == "__main__":
    main()
