"""torchax: torch programs on JAX, which sees the board as its TPUs. A forward pass and a jitted training step.

Usage: over_jax.py PYTHON: the interpreter of an environment with JAX and optax, whose packages are used beside those of
PyTorch.
"""

from __future__ import annotations

import subprocess
import sys
import unittest

sys.path.append(subprocess.run(
    [sys.argv.pop(1), "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
    check=True, stdout=subprocess.PIPE, text=True).stdout.strip())

import jax
import numpy as np
import optax
import torch
import torchax
import torchax.train
from torch import nn


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4))


def loss_of(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(scores, labels)


class OverJax(unittest.TestCase):
    """Each beside torch on the CPU."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
        cls.labels = cls.x[:, :4].argmax(1)

    def curve(self, steps: int = 6) -> list[float]:
        """Of Adam, on the CPU."""
        model, losses = network(), []
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model(self.x), self.labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def test_forward(self) -> None:
        self.assertEqual(jax.devices()[0].platform, "tpu")
        with torchax.default_env():
            found = network().to("jax")(self.x.to("jax")).jax()
        self.assertEqual(next(iter(found.devices())).platform, "tpu")
        torch.testing.assert_close(torch.from_numpy(np.array(found)), network()(self.x).detach(), rtol=0.02, atol=0.02)

    def test_jitted_step(self) -> None:
        model = network()
        with torchax.default_env():
            model.to("jax")
            weights, buffers = dict(model.named_parameters()), dict(model.named_buffers())
            optimizer = optax.adam(1e-2)

            def forward(weights: dict, buffers: dict, x: torch.Tensor) -> torch.Tensor:
                return torch.func.functional_call(model, (weights, buffers), x)

            step = torchax.interop.jax_jit(torchax.train.make_train_step(forward, loss_of, optimizer))
            state = torchax.interop.call_jax(optimizer.init, weights)
            x, labels, losses = self.x.to("jax"), self.labels.to("jax"), []
            for _ in range(6):
                loss, weights, state = step(weights, buffers, state, x, labels)
                losses.append(float(loss.jax()))
        np.testing.assert_allclose(losses, self.curve(), rtol=0.02)


if __name__ == "__main__":
    unittest.main()
