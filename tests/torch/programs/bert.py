"""A small BERT classifier (transformers) trains on one device, beside torch on the CPU from the same weights.

Usage: bert.py [--base] [--layers N] [--hidden N] [--length N] [--batch N] [--steps N] [--vocabulary N] [--rate R]
               [--precision default|highest] [--type f32|bf16|xla_use_bf16]
--base: the defaults are BERT-base and 20 steps. --type: bf16 has parameters of torch.bfloat16; xla_use_bf16 sets
XLA_USE_BF16, which makes every f32 of the device a bf16. Both are beside parameters of torch.bfloat16 on the CPU.
Without dropout, so that both sides compute the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

if "xla_use_bf16" in sys.argv:  # read at the import
    os.environ["XLA_USE_BF16"] = "1"

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import transformers
from torch import nn

SMALL = {"layers": 2, "hidden": 128, "length": 24, "batch": 8, "steps": 4, "vocabulary": 200, "rate": 5e-4}
BASE = {"layers": 12, "hidden": 768, "length": 64, "batch": 4, "steps": 20, "vocabulary": 30522, "rate": 1e-5}
# Operands of products are rounded to bf16; in highest precision nothing is. With bf16 everywhere, the losses too.
BOUNDS = {"default": 0.02, "highest": 0.001}
BOUND_BF16 = 0.02


class Classifier(nn.Module):
    """A label of two for a text."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        config = transformers.BertConfig(
            num_hidden_layers=options.layers, hidden_size=options.hidden,
            num_attention_heads=max(1, options.hidden // 64), intermediate_size=4 * options.hidden,
            vocab_size=options.vocabulary, max_position_embeddings=options.length,
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
        ids = torch.randint(4, options.vocabulary // 4, (options.batch, options.length), generator=generator)
        ids[::2, 1] = 7
        lengths = torch.randint(options.length // 2, options.length + 1, (options.batch, 1), generator=generator)
        mask = (torch.arange(options.length) < lengths).long()
        found.append((ids * mask, mask, (ids[:, :4] == 7).any(1).float()))
    return found


def train(device: torch.device | str, options: argparse.Namespace) -> list[float]:
    torch.manual_seed(0)
    half = options.type == "bf16" or (options.type == "xla_use_bf16" and device == "cpu")
    dtype = torch.bfloat16 if half else torch.float32
    model = Classifier(options).to(device, dtype).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate, weight_decay=0.01)
    losses = []
    for ids, mask, labels in batches(options):
        optimizer.zero_grad()
        outputs = model(ids.to(device), mask.to(device))
        loss = nn.functional.binary_cross_entropy_with_logits(outputs, labels.view(-1, 1).to(device, dtype))
        loss.backward()
        if device == "cpu":
            optimizer.step()
        else:
            xm.optimizer_step(optimizer, barrier=True)
        losses.append(loss.item())
    return losses


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", action="store_true")
    for name, value in (BASE if "--base" in arguments else SMALL).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    parser.add_argument("--precision", choices=tuple(BOUNDS), default="default")
    parser.add_argument("--type", choices=("f32", "bf16", "xla_use_bf16"), default="f32")
    return parser.parse_args(arguments)


def main() -> int:
    """Prints both curves."""
    options = options_of(sys.argv[1:])
    device = xm.xla_device()
    torch_xla._XLAC._xla_set_mat_mul_precision(options.precision)
    start = time.perf_counter()
    expected = train("cpu", options)
    middle = time.perf_counter()
    print("CPU  ", *(f"{loss:.5f}" for loss in expected), f"{middle - start:.1f} s", flush=True)
    found = train(device, options)
    print("board", *(f"{loss:.5f}" for loss in found), f"{time.perf_counter() - middle:.1f} s")
    bound = BOUNDS[options.precision] if options.type == "f32" else BOUND_BF16
    distance = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    print(f"largest distance {distance:.5f}, at most {bound}")
    return 0 if distance <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
