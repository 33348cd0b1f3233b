"""Training with the same weights everywhere, bit for bit: on 1 and 2 threads, with a batch of 16 or
2 x 8 accumulated, under AVX2 and AVX-512. Needs libsoftmax and PyTorch.

    python reproducible.py [steps]

A small transformer learns the characters of this file. It prints the hash of all weights after
each run, and fails if one differs.

What PyTorch breaks, and what is done instead:

- torch.nn.Linear and every sum (of rows, batches, LayerNorm, broadcasts backward) have an order
  that may depend on threads, batch, instruction set and version. Here all of them are products of
  matrices by libsoftmax.attention_apply, whose sums have one order.
- The gradient of a weight is the sum over groups of GROUP sequences, one group after another: what
  accumulating batches of GROUP does.
- tanh, exp and normal random numbers differ between instruction sets: ReLU and uniform numbers.
- Optimisers may fuse a product and a sum: here each is rounded by itself.

Additions, products, quotients and square roots of single elements are PyTorch's: IEEE 754 leaves
them no choice."""

import hashlib
import os
import pathlib
import subprocess
import sys

import torch

import libsoftmax
import libsoftmax.torch as smx

GROUP, BATCH = 8, 16  # sequences
LENGTH, WIDTH, HEADS, LAYERS = 32, 32, 4, 2
RATE, MOMENTUM = 0.5, 0.875


def product(a, b):
    """a @ b of matrices, every sum in the library's order."""
    return libsoftmax.attention_apply(a.detach()[None, None], b.detach()[None, None])[0, 0]


class Linear(torch.autograd.Function):
    """x W^T for x [B, L, in] and W [out, in]."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return product(x.flatten(0, 1), w.T).unflatten(0, x.shape[:2])

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx, dw = product(dy.flatten(0, 1), w).unflatten(0, x.shape[:2]), None
        if ctx.needs_input_grad[1]:
            for first in range(0, len(x), GROUP):
                part = slice(first, first + GROUP)
                own = product(dy[part].flatten(0, 1).T, x[part].flatten(0, 1))
                dw = own if dw is None else dw + own
        return dx, dw


def linear(x, w):
    return Linear.apply(x, w)


def norm(x):
    """RMSNorm. The mean square comes in every column, so that no gradient is a sum over them."""
    return x / torch.sqrt(linear(x * x, torch.full((WIDTH, WIDTH), 1 / WIDTH)) + 1e-5)


class Model(torch.nn.Module):
    def __init__(self, characters):
        super().__init__()

        def weight(rows, columns):
            return torch.nn.Parameter((torch.rand(rows, columns) - 0.5) * (2 * columns ** -0.5))
        self.embed, self.where = weight(WIDTH, characters), weight(WIDTH, LENGTH)
        self.layers = torch.nn.ParameterList()
        for _ in range(LAYERS):
            for shape in ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)):
                self.layers.append(weight(*shape))
        self.head = weight(characters, WIDTH)

    def forward(self, ids):
        one_hot = torch.nn.functional.one_hot
        x = linear(one_hot(ids, self.embed.shape[1]).float(), self.embed)
        x = x + linear(one_hot(torch.arange(LENGTH).expand_as(ids), LENGTH).float(), self.where)
        for i in range(LAYERS):
            mix, out, up, down = self.layers[4 * i:4 * i + 4]
            q, k, v = (a.unflatten(2, (HEADS, -1)).transpose(1, 2)
                       for a in linear(norm(x), mix).chunk(3, -1))
            x = x + linear(smx.attention(q, k, v, causal=True).transpose(1, 2).flatten(2), out)
            x = x + linear(torch.relu(linear(norm(x), up)), down)
        return linear(norm(x), self.head)


def train(steps, size):
    """(first loss, last loss, hash of all weights) of training with batches of `size`."""
    torch.manual_seed(0)
    text = pathlib.Path(__file__).read_text()
    characters = sorted(set(text))
    text = torch.tensor([characters.index(c) for c in text])
    model, losses = Model(len(characters)), []
    speeds = [torch.zeros_like(p) for p in model.parameters()]
    for _ in range(steps):
        first = torch.randint(0, len(text) - LENGTH, (BATCH, 1))
        ids, total = text[first + torch.arange(LENGTH + 1)], 0.0
        for part in ids.split(size):
            loss = smx.cross_entropy(model(part[:, :-1]), part[:, 1:], axis=-1, reduction="sum")
            loss = loss / (BATCH * LENGTH)  # a power of two: exact
            loss.backward()
            total += loss.item()
        losses.append(total)
        with torch.no_grad():
            for p, speed in zip(model.parameters(), speeds):
                speed.mul_(MOMENTUM).add_(p.grad)
                p.sub_(speed * RATE)
                p.grad = None
    digest = hashlib.sha256()
    for p in model.parameters():
        digest.update(p.detach().numpy().tobytes())
    return losses[0], losses[-1], digest.hexdigest()[:16]


def runs(steps):
    """All runs under one instruction set."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        libsoftmax.threads(threads)
        for size in (BATCH, GROUP):
            first, last, digest = train(steps, size)
            print("%-8s %d threads  %d x %-3d loss %.3f to %.3f  weights %s"
                  % (libsoftmax.isa, threads, BATCH // size, size, first, last, digest), flush=True)


def main(steps):
    found = ""
    for isa in ("avx2", "avx512"):
        given = {**os.environ, "SMX_ISA": isa, "ATEN_CPU_CAPABILITY": isa}
        made = subprocess.run([sys.executable, __file__, str(steps), "runs"], env=given, text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        print(made, end="", flush=True)
        found += made
    same = len({line.split()[-1] for line in found.splitlines()}) == 1
    print("the same weights" if same else "DIFFERENT weights")
    return 0 if same else 1


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    sys.exit(runs(count) if len(sys.argv) > 2 else main(count))
