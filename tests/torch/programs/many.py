"""A network of many small arrays trains on one device: a program of several thousand arguments and results.

Usage: many.py [--layers N]. Each layer has two parameters, of which Adam keeps two arrays more.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch_xla
from torch import nn

STEPS = 3


def losses_of(device: torch.device | str, layers: int) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(layers)]).to(device)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-3), []
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).to(device)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        if device != "cpu":
            torch_xla.sync()
        losses.append(loss.item())
    return losses


def main() -> int:
    """Prints both curves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=400)
    options = parser.parse_args()
    device = torch_xla.device()
    torch.ones(1, device=device).cpu()  # before the first backward: autograd counts the devices there
    torch_xla._XLAC._xla_set_mat_mul_precision("highest")
    expected, found = losses_of("cpu", options.layers), losses_of(device, options.layers)
    distance = max(abs(a - b) / abs(a) for a, b in zip(expected, found, strict=True))
    print(f"{6 * options.layers} arrays of parameters and optimizer; largest distance {distance:.2e}")
    return 0 if distance <= 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
