"""The losses of optax beside those of libsoftmax, and their gradients by jax.grad beside ours, which come from the same read of the logits. Rows
are finite logits, each shape of which is a program to compile; targets are made for them, the same for both."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import losses

import libsoftmax
from peers import Comparison, main

jax.config.update("jax_enable_x64", True)


def labels(x):
    """A class for each row."""
    return np.arange(x.shape[0]) * 7 % max(x.shape[-1], 1)


def masses(x):
    """A distribution for each row, a third of its classes without mass."""
    parts = np.where((np.arange(x.size) * 5 % 11).reshape(x.shape) % 3 == 0, 0, 1.0 + np.arange(x.size).reshape(x.shape) % 7)
    return (parts / np.maximum(parts.sum(axis=-1, keepdims=True), 1)).astype(x.dtype)


def present(x):
    return (np.arange(x.size).reshape(x.shape) % 3 == 0).astype(x.dtype)


def teacher(x):
    """Other logits, finite."""
    return np.cos(np.arange(x.size)).reshape(x.shape).astype(x.dtype)


def spread(x):
    return np.asarray(jax.nn.softmax(teacher(x), axis=-1))


def one_hot(x):
    return np.eye(max(x.shape[-1], 1))[labels(x)].astype(x.dtype)[:, :x.shape[-1]]


def sums(function, **how):
    """What optax leaves for each class, added up."""
    return lambda x, t: jnp.sum(function(x, t, **how), axis=-1)


def divergence(function):
    return lambda x, t: function(jax.nn.log_softmax(x, axis=-1), t)


LOSSES = {  # name -> the function of optax, its target, our operator, our inputs after x (a dict: by name), our settings
    "softmax_cross_entropy": (losses.softmax_cross_entropy, masses, "cross_entropy", lambda x: {"soft_target": masses(x)}, {}),
    "softmax_cross_entropy_with_integer_labels": (
        losses.softmax_cross_entropy_with_integer_labels, labels, "cross_entropy", lambda x: (labels(x),), {}),
    "sigmoid_binary_cross_entropy": (
        sums(losses.sigmoid_binary_cross_entropy), present, "quality_focal_loss", lambda x: (present(x),), {"form": "plain"}),
    "sigmoid_focal_loss": (
        sums(losses.sigmoid_focal_loss, alpha=0.25, gamma=2.0), present, "sigmoid_focal_loss", lambda x: (present(x),), {}),
    "poly_loss_cross_entropy": (losses.poly_loss_cross_entropy, one_hot, "poly_loss", lambda x: (labels(x),), {"epsilon1": 2}),
    "kl_divergence": (divergence(losses.kl_divergence), spread, "knowledge_distillation", lambda x: (teacher(x),), {}),
    "generalized_kl_divergence": (
        divergence(losses.generalized_kl_divergence), spread, "knowledge_distillation", lambda x: (teacher(x),), {}),
}


@jax.jit
def program(x, targets):
    """All losses of the rows, and the gradients of their sums, as one program, which compiles faster than many."""
    return {name: (loss(x, targets[name]), jax.grad(lambda v: jnp.sum(loss(v, targets[name])))(x)) for name, (loss, *_) in LOSSES.items()}


@functools.lru_cache
def said(text, shape, dtype):
    x = np.frombuffer(text, dtype).reshape(shape)
    return program(x, {name: target(x) for name, (_, target, *_) in LOSSES.items()})


def theirs(name, which):
    return lambda x: np.asarray(said(x.tobytes(), x.shape, x.dtype.str)[name][which])


def ours(name):
    _, _, operator, inputs, how = LOSSES[name]
    def ask(x):
        given = inputs(x)
        after, named = ((), given) if isinstance(given, dict) else (given, {})
        return getattr(libsoftmax, operator)(x, *after, **named, return_dx=True, **how)
    return ask


def comparisons():
    for name in LOSSES:
        ask = ours(name)
        yield Comparison(name, lambda x, ask=ask: ask(x).loss, theirs(name, 0))
        yield Comparison(name + ", gradient", lambda x, ask=ask: ask(x).dx, theirs(name, 1))


COMPARISONS = list(comparisons())

ROWS = ("normal", "lengths", "wide", "almost flat", "ties for the largest")

if __name__ == "__main__":
    main("optax %s" % optax.__version__, COMPARISONS, [], ROWS)
