"""Trains a small BERT (transformers) to fill in masked bytes of text files, with PyTorch/XLA or with torch on the CPU.

Usage: bert_pages.py [--device xla|cpu] [--cores N] [--steps N] [--figures FILE] TEXT ...
With --cores 8 each core has an eighth of a batch, by `xmp.spawn`. The batches are the same for every number of cores
and every device, so the curves can be compared. --figures: writes simulated time and idle time of the training as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import transformers
from torch import nn

BATCH, LENGTH, MASKED = 32, 64, 10  # texts a step, bytes a text, masked bytes a text
MASK, VOCABULARY = 256, 257


def batch_of(text: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Masked texts, which places are masked, and what was there."""
    chance = torch.Generator().manual_seed(step)
    starts = torch.randint(len(text) - LENGTH, (BATCH,), generator=chance)
    texts = torch.stack([text[start:start + LENGTH] for start in starts])
    places = torch.stack([torch.randperm(LENGTH, generator=chance)[:MASKED] for _ in range(BATCH)])
    hidden = texts.gather(1, places)
    return texts.scatter(1, places, MASK), places, hidden


def network() -> nn.Module:
    """From the same weights wherever it is called: a thread a core would share torch's random numbers."""
    config = transformers.BertConfig(vocab_size=VOCABULARY, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=512, max_position_embeddings=LENGTH, hidden_dropout_prob=0.0,
                                     attention_probs_dropout_prob=0.0)
    model, chance = transformers.BertForMaskedLM(config), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn(weight.shape, generator=chance) * 0.02)
            else:
                weight.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
    return model.train()


def train(text: torch.Tensor, steps: int, device: torch.device | str, rank: int, cores: int) -> list[float]:
    model = network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    part, losses = slice(rank * BATCH // cores, (rank + 1) * BATCH // cores), []
    for step in range(steps):
        texts, places, hidden = (each[part].to(device) for each in batch_of(text, step))
        optimizer.zero_grad()
        scores = model(texts).logits.gather(1, places.unsqueeze(2).expand(-1, -1, VOCABULARY))
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), hidden.flatten())
        loss.backward()
        if device == "cpu":
            optimizer.step()
        else:
            import torch_xla.core.xla_model as xm

            xm.optimizer_step(optimizer, barrier=True)
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def replica(rank: int, text: torch.Tensor, options: argparse.Namespace) -> None:
    """What one core does; the first one prints."""
    import tpuboard

    import torch_xla.core.xla_model as xm

    cores = xm.xrt_world_size()
    with tpuboard.measure(output=None) as figures:
        losses = train(text, options.steps, xm.xla_device(), rank, cores)
        if cores > 1:
            losses = xm.mesh_reduce("losses", losses, lambda all_of: torch.tensor(all_of).mean(0).tolist())
    if xm.is_master_ordinal():
        show(losses)
        if options.figures:
            options.figures.write_text(json.dumps({"seconds": figures.seconds, "mxu": figures.mxu, "idle": figures.idle,
                                                   "host_seconds": figures.host_seconds, "cores": figures.cores}))


def show(losses: list[float]) -> None:
    for step in range(0, len(losses), 10):
        some = losses[step:step + 10]
        print(f"steps {step + 1} to {step + len(some)} loss {sum(some) / len(some):.4f}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="+")
    parser.add_argument("--device", choices=("xla", "cpu"), default="xla")
    parser.add_argument("--cores", type=int, choices=(1, 8), default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    text = torch.tensor(list(b"\n".join(path.read_bytes() for path in options.text)))
    if options.device == "cpu":
        begin = time.perf_counter()
        show(train(text, options.steps, "cpu", 0, 1))
        if options.figures:
            options.figures.write_text(json.dumps({"host_seconds": time.perf_counter() - begin}))
        return
    import torch_xla.distributed.xla_multiprocessing as xmp

    # Threads of one process: tpuboard.measure() needs the board there. nprocs=8 would be eight processes.
    xmp.spawn(replica, args=(text, options), nprocs=1 if options.cores == 1 else None)


if __name__ == "__main__":
    main()
