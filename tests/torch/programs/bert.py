"""A small BERT classifier (transformers) trains on one device, beside torch on the CPU from the same weights.

Usage: bert.py [--layers N] [--hidden N] [--length N] [--batch N] [--steps N] [--precision default|highest]
Without dropout, so that both compute the same.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import transformers
from torch import nn

VOCABULARY = 200


class Classifier(nn.Module):
    """A label of two for a text."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        config = transformers.BertConfig(
            num_hidden_layers=options.layers, hidden_size=options.hidden,
            num_attention_heads=max(1, options.hidden // 64), intermediate_size=4 * options.hidden,
            vocab_size=VOCABULARY, max_position_embeddings=options.length,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        self.bert = transformers.BertModel(config)
        self.head = nn.Linear(options.hidden, 1)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.bert(ids, mask)[1])


def batches(options: argparse.Namespace) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Texts of words by chance; the label says whether the word 7 is among the first four."""
    generator = torch.Generator().manual_seed(5)
    found = []
    for _ in range(options.steps):
        ids = torch.randint(4, VOCABULARY // 4, (options.batch, options.length), generator=generator)
        ids[::2, 1] = 7
        lengths = torch.randint(options.length // 2, options.length + 1, (options.batch, 1), generator=generator)
        mask = (torch.arange(options.length) < lengths).long()
        found.append((ids * mask, mask, (ids[:, :4] == 7).any(1).float()))
    return found


def train(device: torch.device | str, options: argparse.Namespace) -> list[float]:
    torch.manual_seed(0)
    model = Classifier(options).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    losses = []
    for ids, mask, labels in batches(options):
        optimizer.zero_grad()
        outputs = model(ids.to(device), mask.to(device))
        loss = nn.functional.binary_cross_entropy_with_logits(outputs, labels.view(-1, 1).to(device))
        loss.backward()
        if device == "cpu":
            optimizer.step()
        else:
            xm.optimizer_step(optimizer, barrier=True)
        losses.append(loss.item())
    return losses


def main() -> int:
    """Prints both curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 2), ("hidden", 128), ("length", 24), ("batch", 8), ("steps", 4)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--precision", choices=("default", "highest"), default="default")
    options = parser.parse_args()
    device = xm.xla_device()
    torch_xla._XLAC._xla_set_mat_mul_precision(options.precision)
    start = time.perf_counter()
    expected = train("cpu", options)
    middle = time.perf_counter()
    found = train(device, options)
    seconds = middle - start, time.perf_counter() - middle
    bound = 0.02 if options.precision == "default" else 0.001
    distance = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    print("CPU  ", *(f"{loss:.5f}" for loss in expected), f"{seconds[0]:.1f} s")
    print("board", *(f"{loss:.5f}" for loss in found), f"{seconds[1]:.1f} s")
    print(f"largest distance {distance:.5f}, at most {bound}")
    return 0 if distance <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
