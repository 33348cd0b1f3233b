"""A mixture of experts in PyTorch, routed by libsoftmax, on a CPU.

Each token goes to two of eight experts. libsoftmax chooses them, sorts the tokens by expert, so that
an expert is one product, and adds up what comes back; its gradients are autograd's. The same layer in
plain PyTorch sends every token through every expert. Both are trained side by side: the same losses,
a quarter of the products, and what a token gets does not depend on the tokens beside it.

    python3 examples/mixture_of_experts.py
"""

import torch

import libsoftmax.torch as smx

TOKENS, WIDTH, EXPERTS, K, STEPS, RATE = 512, 32, 8, 2, 20, 0.05


def experts_of(logits, bias):
    """The weights and experts of each token; the bias takes part in the choice only."""
    return smx.gate_topk(logits, bias=bias, k=K)


def routed(x, router, up, down, bias):
    """Tokens by expert, one product an expert, and back."""
    weight, index = experts_of(x @ router, bias)
    slot, source, offset, count, *_ = smx.moe_permutation(index, experts=EXPERTS, return_count=True)
    rows, ends = smx.moe_dispatch(x, source), offset.tolist()
    made = [torch.relu(rows[a:b] @ up[e]) @ down[e] for e, (a, b) in enumerate(zip(ends, ends[1:]))]
    return smx.moe_combine(torch.cat(made), slot, weight=weight), index, count


def plain(x, router, up, down, bias):
    """Every token through every expert."""
    logits = x @ router
    index = (logits.softmax(-1) + bias).topk(K, dim=-1)[1]
    weight = torch.zeros_like(logits).scatter(1, index, logits.gather(1, index).softmax(-1))
    every = torch.relu(torch.einsum("td,edh->teh", x, up))
    return torch.einsum("te,teh,ehd->td", weight, every, down), index, None


def train(layer, steps=STEPS):
    """The loss of each step. The bias of busy experts falls, so that no loss has to balance them."""
    torch.manual_seed(0)
    made = torch.randn(WIDTH, EXPERTS), torch.randn(EXPERTS, WIDTH, 64), torch.randn(EXPERTS, 64, WIDTH)
    weights = [(w.double() / 6).requires_grad_() for w in made]
    x, wanted = torch.randn(TOKENS, WIDTH).double(), torch.randn(TOKENS, WIDTH).double()
    bias, losses = torch.zeros(EXPERTS).double(), []
    for _ in range(steps):
        y, index, count = layer(x, *weights, bias)
        loss = (y - wanted).square().mean()
        loss = loss + smx.load_balancing_loss(x @ weights[0], index, scale=0.01)[0]
        for w, g in zip(weights, torch.autograd.grad(loss, weights)):
            w.data -= RATE * g
        if count is None:
            count = torch.bincount(index.flatten(), minlength=EXPERTS)
        bias = smx.expert_bias_update(bias, count, rate=0.001)
        losses.append(loss.item())
    return losses


def main(steps=STEPS):
    """The losses of both ways; they differ by the order of additions alone."""
    both = train(routed, steps), train(plain, steps)
    for step, (ours, theirs) in enumerate(zip(*both)):
        print("%4d  routed %.12f  plain %.12f" % (step, ours, theirs))
    return both


if __name__ == "__main__":
    main()
