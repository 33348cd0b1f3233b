"""libsoftmax as the attention of models of transformers: small ones with random weights."""

import unittest
from unittest import mock

import torch

import libsoftmax
import libsoftmax.torch.transformers as registered
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

SIZES = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
             eos_token_id=None)
PROMPTS = [[5, 9, 3], [40, 2, 77, 31, 8, 15, 90], [66, 7, 13, 52, 4]]
NEW = 10


def padded(prompts, side):
    """(tokens, mask), as tokenizers pad."""
    length, rows = max(map(len, prompts)), []
    for p in prompts:
        pad = [0] * (length - len(p))
        rows.append(pad + p if side == "left" else p + pad)
    tokens = torch.tensor(rows)
    return tokens, (tokens != 0).long()


class Transformers(unittest.TestCase):
    def setUp(self):
        # PyTorch without the libraries of a GPU dies when it is asked about one
        patch = mock.patch("torch.cuda.is_current_stream_capturing", return_value=False)
        patch.start()
        self.addCleanup(patch.stop)
        torch.manual_seed(0)
        self.models = [LlamaForCausalLM(LlamaConfig(**SIZES)),
                       Gemma2ForCausalLM(Gemma2Config(**SIZES, sliding_window=4, query_pre_attn_scalar=8))]
        for model in self.models:
            model.set_attn_implementation("libsoftmax")
            model.eval().generation_config.update(pad_token_id=0, eos_token_id=None)

    def logits(self, model, tokens, mask):
        with torch.no_grad():
            return model(tokens, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits

    def test_logits(self):
        """Those of the model's own attention."""
        for model in self.models:
            for side in ("left", "right"):
                tokens, mask = padded(PROMPTS, side)
                model.set_attn_implementation("eager")
                wanted = self.logits(model, tokens, mask)
                with mock.patch.object(registered, "scaled_dot_product_attention",
                                       wraps=registered.scaled_dot_product_attention) as called:
                    model.set_attn_implementation("libsoftmax")
                    found = self.logits(model, tokens, mask)
                self.assertEqual(called.call_count, 2)
                torch.testing.assert_close(found[mask.bool()], wanted[mask.bool()], atol=1e-4, rtol=1e-4)

    def test_greedy_text(self):
        """The same for every batch size, padding side and number of threads."""
        threads, model = torch.get_num_threads(), self.models[0]
        self.addCleanup(torch.set_num_threads, threads)
        self.addCleanup(libsoftmax.threads, 1)
        texts = set()
        for n in (1, 2):
            torch.set_num_threads(n)
            libsoftmax.threads(n)
            for batch in (1, 2, 3):
                made = []
                for i in range(0, 3, batch):
                    tokens, mask = padded(PROMPTS[i:i + batch], "left")
                    out = model.generate(tokens, attention_mask=mask, max_new_tokens=NEW, do_sample=False)
                    made += [tuple(row[-NEW:].tolist()) for row in out]
                texts.add(tuple(made))
            texts.add(tuple(self.on_the_right(model)))
        self.assertEqual(len(texts), 1, texts)

    def on_the_right(self, model):
        """Greedy texts of one batch that is padded on the right, where every new token goes next to
        its text."""
        texts = [list(p) for p in PROMPTS]
        for _ in range(NEW):
            tokens, mask = padded(texts, "right")
            best = self.logits(model, tokens, mask).argmax(-1)
            for row, text in zip(best, texts):
                text.append(int(row[len(text) - 1]))
        return [tuple(text[-NEW:]) for text in texts]

    def test_gradients(self):
        """Training: as the model's own attention."""
        tokens, mask = padded(PROMPTS, "right")
        model = self.models[0].train()
        found = []
        for name in ("eager", "libsoftmax"):
            model.set_attn_implementation(name)
            loss = model(tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss
            found.append(torch.autograd.grad(loss, list(model.parameters())))
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
