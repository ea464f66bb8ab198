"""Weights are written from the device and read where there is none: xm.save, torch_xla's serialization, torch.save."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.utils.serialization as xser
from torch import nn


class Save(unittest.TestCase):
    """A model with weights of two types and a buffer."""

    def setUp(self) -> None:
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2).bfloat16())
        self.expected = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.device = xm.xla_device()
        self.model.to(self.device)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(Path(folder.name) / "model.bin")

    def check(self, found: dict[str, torch.Tensor]) -> None:
        self.assertEqual(list(found), list(self.expected))
        for name, value in self.expected.items():
            self.assertEqual(found[name].device.type, "cpu")
            self.assertTrue(torch.equal(found[name], value), name)

    def test_xm_save(self) -> None:
        xm.save(self.model.state_dict(), self.path)
        self.check(torch.load(self.path))

    def test_serialization(self) -> None:
        xser.save(self.model.state_dict(), self.path)
        self.check(xser.load(self.path))

    def test_torch_save_and_load_on_the_device(self) -> None:
        torch.save({name: value.cpu() for name, value in self.model.state_dict().items()}, self.path)
        other = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 2).bfloat16()).to(self.device)
        other.load_state_dict(torch.load(self.path))
        torch_xla.sync()
        self.check({name: value.cpu() for name, value in other.state_dict().items()})

    def test_optimizer_state(self) -> None:
        layer = nn.Linear(4, 3).to(self.device)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            layer(torch.ones(2, 4, device=self.device)).sum().backward()
            xm.optimizer_step(optimizer, barrier=True)
        xm.save(optimizer.state_dict(), self.path)
        state = torch.load(self.path)["state"][0]
        self.assertEqual(state["exp_avg"].shape, (3, 4))
        torch.testing.assert_close(state["exp_avg"], torch.full((3, 4), 2 * (0.1 + 0.9 * 0.1)), rtol=1e-3, atol=0)


if __name__ == "__main__":
    unittest.main()
