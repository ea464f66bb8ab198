"""A training step of BERT-base, compiled and not run: whether it fits into a core's 16 GiB.

Usage: memory.py [--batch N] [--length N] [--layers N] [--vocabulary N] [--fails]
With dropout and AdamW, as the notebook trains it; the variable XLA_USE_BF16=1 makes every f32 a bf16, as there. The
vocabulary of the multilingual model has 119,547 words. --fails: the error is expected, and names the largest arrays.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time

import torch
import torch_xla
import transformers
from torch import nn

WIDTH = 768


class Classifier(nn.Module):
    """The notebook's model."""

    def __init__(self, layers: int, vocabulary: int) -> None:
        super().__init__()
        config = transformers.BertConfig(num_hidden_layers=layers, vocab_size=vocabulary)
        self.bert, self.drop, self.head = transformers.BertModel(config), nn.Dropout(0.3), nn.Linear(WIDTH, 1)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.bert(ids, attention_mask=mask, token_type_ids=kinds)[1]))


def collect_step(options: argparse.Namespace) -> None:
    """What the next step will run: that of a model with the state of its optimizer."""
    device = torch_xla.device()
    model = Classifier(options.layers, options.vocabulary).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    for weight in model.parameters():
        optimizer.state[weight] = {"step": torch.tensor(1.0), "exp_avg": torch.zeros_like(weight),
                                   "exp_avg_sq": torch.zeros_like(weight)}
    ids = torch.zeros(options.batch, options.length, dtype=torch.long, device=device)
    mask, kinds = torch.ones_like(ids), torch.zeros_like(ids)
    labels = torch.zeros(options.batch, 1, device=device)
    torch_xla.sync(wait=True)
    loss = nn.functional.binary_cross_entropy_with_logits(model(ids, mask, kinds), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    start = time.perf_counter()
    torch_xla.sync()  # compiles, then runs beside this thread
    print(f"fits; compiled in {time.perf_counter() - start:.1f} s", flush=True)
    os._exit(1 if options.fails else 0)


def main() -> int:
    """Ends the process as soon as the step is compiled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("batch", 128), ("length", 224), ("layers", 12), ("vocabulary", 30522)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--fails", action="store_true")
    options = parser.parse_args()
    try:
        collect_step(options)
    except (RuntimeError, ValueError) as error:
        text = str(error)
        print(text)
        largest = 2 * options.vocabulary * WIDTH  # bytes of the embedding's weight, in bf16
        named = re.search(rf"{largest} bytes: argument \d+", text) and re.search(r"\d+ bytes: bf16\[.*\] of ", text)
        return 0 if options.fails and "a core has 16 GiB" in text and named else 1
    return 1


if __name__ == "__main__":
    sys.exit(main())
