"""make.py MODEL FILE - writes queries, keys and values of a sentence encoder, which attention_accuracy.c reads.

MODEL: a directory with all-MiniLM-L6-v2 of sentence-transformers (Apache-2.0: 6 layers of 12 heads, 32 wide). The text is from the beginning
of docs/numerics.md. FILE: for each head of HEADS, q, k and v, TOKENS rows of 32 floats each, little-endian. Needs torch and transformers.
"""
import sys

import torch
from transformers import AutoTokenizer, BertModel

HEADS = [(0, 2), (1, 11), (5, 10)]  # (layer, head): README.md says why these
TOKENS, WIDTH = 64, 32
TEXT = """A result is a function of the operator, its parameters, the input values, the shapes and the dtypes (and the seed, where
numbers are drawn). It does not depend on the instruction set: AVX-512, AVX2, NEON, portable C with or without hardware FMA; the compiler
and its optimisation level; the number of threads, or which of them did what; the rows around a row, or how a file is cut into blocks."""


def activations(model, text):
    """(layer, head) -> q, k, v of the heads, before the scale."""
    tokens = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt", truncation=True, max_length=TOKENS)
    network = BertModel.from_pretrained(model).eval()
    found = {}
    for layer, block in enumerate(network.encoder.layer):
        own = block.attention.self
        for name in "query", "key", "value":
            getattr(own, name).register_forward_hook(
                lambda module, given, y, at=(layer, name): found.__setitem__(at, y[0].detach().reshape(-1, 12, WIDTH)))
    with torch.no_grad():
        network(**tokens)
    return {(layer, head): [found[layer, name][:, head].contiguous() for name in ("query", "key", "value")]
            for layer in range(6) for head in range(12)}


def main():
    torch.set_num_threads(1)
    heads = activations(sys.argv[1], TEXT)
    with open(sys.argv[2], "wb") as out:
        for at in HEADS:
            for rows in heads[at]:
                assert rows.shape == (TOKENS, WIDTH), rows.shape
                out.write(rows.numpy().astype("<f4").tobytes())


if __name__ == "__main__":
    main()
