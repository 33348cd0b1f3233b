"""A head whose classes lie on several processes, trained to the same weights, bit for bit, on 1, 2 and 4 of them.
Needs libsoftmax and PyTorch.

    python vocabulary_parallel.py [steps [processes ...]]

Each process has the rows of the head's weight that belong to its classes, and so the columns of the logits; the layer
below is on every process, which all compute the same of it. It prints the losses and the hash of all weights for each
number of processes, and fails if one differs.

What depends on the number of processes, and what is done instead:

- The sums of softmax over all classes: libsoftmax.distributed.cross_entropy, whose sums have one order.
- The product of the logits may depend on how many classes a process has: products of matrices by
  libsoftmax.attention_apply, whose sums have one order too (examples/reproducible.py).
- The gradient of the layer below is a sum over all classes, and all_reduce adds up what processes have. Here each
  makes one part for each group of GROUP classes, and all add up these parts in the order of the classes."""

import hashlib
import pathlib
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing

import libsoftmax
from libsoftmax import distributed

CLASSES, GROUP = 40000, 8192  # shard() cuts between groups
ROWS, WIDTH, FEATURES = 64, 32, 16
RATE = 4.0


def product(a, b):
    """a @ b of matrices, every sum in the library's order."""
    return libsoftmax.attention_apply(a.detach()[None, None], b.detach()[None, None])[0, 0]


class Linear(torch.autograd.Function):
    """x W^T of what every process has."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return product(x, w.T)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return product(dy, w), product(dy.T, x)


class Head(torch.autograd.Function):
    """h W^T for the rows of W, and the columns of the result, that this process has."""

    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return product(w, h.T).T.contiguous()

    @staticmethod
    def backward(ctx, dz):
        h, w = ctx.saved_tensors
        parts = [product(dz[:, at:at + GROUP], w[at:at + GROUP]) for at in range(0, len(w), GROUP)]
        return sum_in_order(parts, h), product(dz.T, h) if len(w) else torch.empty_like(w)


def sum_in_order(parts, like):
    """The sum of the parts of all processes, one after another."""
    size, groups = dist.get_world_size(), -(-CLASSES // GROUP)
    most = -(-groups // size)  # shares of shard() differ by one group at most
    mine = torch.stack(parts + [torch.zeros_like(like)] * (most - len(parts)))
    every = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(every, mine)
    total = torch.zeros_like(like)
    for rank, theirs in enumerate(every):
        for part in theirs[:groups // size + (rank < groups % size)]:
            total = total + part
    return total


def train(steps):
    """The loss of each step, and the hash of all weights in the end; the same on every process."""
    random = torch.Generator().manual_seed(0)

    def numbers(*shape):
        return torch.rand(*shape, generator=random) - 0.5
    x, target = numbers(ROWS, FEATURES), torch.randint(0, CLASSES, (ROWS,), generator=random)
    below, whole = numbers(WIDTH, FEATURES), numbers(CLASSES, WIDTH)
    first, count = distributed.shard(CLASSES)
    weights, losses = [below, whole[first:first + count].clone()], []
    for w in weights:
        w.requires_grad_()
    for _ in range(steps):
        h = torch.relu(Linear.apply(x, weights[0]))
        logits = Head.apply(h, weights[1])
        loss = distributed.cross_entropy(logits, target, first=first, n=CLASSES)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients):
                w.sub_(RATE * g)
        losses.append("%.9g" % loss.item())
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, weights[1].detach().numpy().tobytes())
    digest = hashlib.sha256(weights[0].detach().numpy().tobytes() + b"".join(parts))
    return " ".join([*losses, "weights", digest.hexdigest()[:16]])


def work(rank, size, folder, steps):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://%s/store%d" % (folder, size), rank=rank, world_size=size)
    found = train(steps)
    if rank == 0:
        pathlib.Path(folder, "found%d" % size).write_text(found)
    dist.barrier()
    dist.destroy_process_group()


def main(steps, sizes):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            torch.multiprocessing.spawn(work, (size, folder, steps), size)
            found.append(pathlib.Path(folder, "found%d" % size).read_text())
            print("%d processes: %s" % (size, found[-1]), flush=True)
    return len(set(found)) == 1


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]] or [8]
    if not main(given[0], given[1:] or [1, 2, 4]):
        sys.exit("they differ")
