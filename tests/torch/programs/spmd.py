"""SPMD: one program for eight devices, from a mesh and sharding marks. Products, training, FSDP, DTensor."""

from __future__ import annotations

import unittest

import numpy as np
import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch import nn
from torch.distributed.tensor import DeviceMesh, Replicate, Shard, distribute_module, distribute_tensor
from torch_xla.experimental.spmd_fully_sharded_data_parallel import SpmdFullyShardedDataParallel

CORES = 8


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))


def losses_of(model: nn.Module, device: torch.device | str, mesh: xs.Mesh | None, steps: int = 4) -> list[float]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 16, generator=generator)
    x, y = x.to(device), x[:, :8].argmax(1).to(device)
    if mesh is not None:
        xs.mark_sharding(x, mesh, (mesh.axis_names[0], None))
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=1e-2), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        torch_xla.sync()
        losses.append(loss.item())
    return losses


class Spmd(unittest.TestCase):
    """The devices are one to torch."""

    @classmethod
    def setUpClass(cls) -> None:
        xr.use_spmd()
        cls.device = xm.xla_device()
        torch.ones(1, device=cls.device).cpu()  # before the first backward: autograd counts the devices there

    def mesh(self, shape: tuple[int, ...], names: tuple[str, ...]) -> xs.Mesh:
        return xs.Mesh(np.arange(CORES), shape, names)

    def test_devices(self) -> None:
        self.assertEqual(xr.global_runtime_device_count(), CORES)
        self.assertEqual(len(xm.get_xla_supported_devices()), 1)

    def test_product_of_sharded_arrays(self) -> None:
        mesh = self.mesh((4, 2), ("x", "y"))
        a, b = torch.randn(16, 32), torch.randn(32, 8)
        left, right = a.to(self.device), b.to(self.device)
        xs.mark_sharding(left, mesh, ("x", "y"))
        xs.mark_sharding(right, mesh, ("y", None))
        found = (left @ right).cpu()
        torch.testing.assert_close(found, a.bfloat16().float() @ b.bfloat16().float(), rtol=1e-5, atol=1e-5)
        self.assertIn("devices=[4,2]", torch_xla._XLAC._get_xla_sharding_spec(left))

    def test_manual_sharding(self) -> None:
        """What each device does on its own shard, twice in a row."""
        mesh = self.mesh((1, CORES), ("x", "y"))
        xs.set_global_mesh(mesh)
        a, scale = torch.randn(8, 16), torch.tensor(3.0)
        whole, factor = a.to(self.device), scale.to(self.device)
        part = xs.enable_manual_sharding(whole, (None, "y")).global_tensor
        self.assertEqual(part.shape, (8, 2))
        first = xs.disable_manual_sharding(part * factor + 1, (None, "y"), whole.shape).global_tensor
        again = xs.enable_manual_sharding(first, (None, "y")).global_tensor
        found = xs.disable_manual_sharding(again.sum(0, keepdim=True), (None, "y"), (1, 16)).global_tensor
        torch.testing.assert_close(found.cpu(), (a * scale + 1).sum(0, keepdim=True), rtol=1e-5, atol=1e-4)

    def test_manual_sharding_around_an_array_of_all_devices(self) -> None:
        """A shard is read on both sides of what all devices compute."""
        xs.set_global_mesh(self.mesh((1, CORES), ("x", "y")))
        a = torch.randn(8, 8)
        part = xs.enable_manual_sharding(a.to(self.device), (None, "y")).global_tensor * 2
        whole = xs.disable_manual_sharding(part, (None, "y"), a.shape).global_tensor
        back = xs.enable_manual_sharding(whole + 1, (None, "y")).global_tensor
        found = xs.disable_manual_sharding(back * part, (None, "y"), a.shape).global_tensor
        torch.testing.assert_close(found.cpu(), (2 * a + 1) * 2 * a, rtol=1e-5, atol=1e-5)

    def test_collective_of_manual_sharding(self) -> None:
        xs.set_global_mesh(self.mesh((1, CORES), ("x", "y")))
        a = torch.randn(8, 8)
        part = xs.enable_manual_sharding(a.to(self.device), (None, None)).global_tensor
        part = torch_xla._XLAC._xla_spmd_reduce_scatter(xm.REDUCE_SUM, part, 1.0, 0, CORES, [list(range(CORES))])
        found = xs.disable_manual_sharding(part, ("y", None), a.shape).global_tensor
        torch.testing.assert_close(found.cpu(), CORES * a, rtol=1e-5, atol=1e-5)

    def test_data_parallel(self) -> None:
        expected = losses_of(network(), "cpu", None)
        found = losses_of(network().to(self.device), self.device, self.mesh((CORES,), ("data",)))
        np.testing.assert_allclose(found, expected, rtol=0.02)

    def test_fsdp(self) -> None:
        mesh = self.mesh((CORES, 1), ("fsdp", "model"))
        xs.set_global_mesh(mesh)
        expected = losses_of(network(), "cpu", None)
        model = SpmdFullyShardedDataParallel(
            network().to(self.device), mesh=mesh,
            shard_output=lambda output, mesh: xs.mark_sharding(output, mesh, ("fsdp", None)))
        found = losses_of(model, self.device, mesh)
        np.testing.assert_allclose(found, expected, rtol=0.02)
        weight = next(model.parameters())
        self.assertIn("devices=[8,1]", torch_xla._XLAC._get_xla_sharding_spec(weight))

    def test_dtensor(self) -> None:
        """torch's own names, with a mesh of the device type `xla`."""
        mesh = DeviceMesh("xla", np.arange(CORES).reshape(4, 2).tolist())
        a, b = torch.randn(16, 32), torch.randn(32, 8)
        left = distribute_tensor(a.to(self.device), mesh, [Shard(0), Shard(1)])
        right = distribute_tensor(b.to(self.device), mesh, [Replicate(), Shard(0)])
        self.assertEqual(left.global_tensor.shape, a.shape)
        self.assertEqual([tuple(shard.data.shape) for shard in left.local_shards], [(4, 16)] * CORES)
        found = (left.global_tensor @ right.global_tensor).cpu()
        torch.testing.assert_close(found, a.bfloat16().float() @ b.bfloat16().float(), rtol=1e-5, atol=1e-5)

    def test_dtensor_training(self) -> None:
        mesh = DeviceMesh("xla", list(range(CORES)))

        def shard(name: str, module: nn.Module, mesh: DeviceMesh) -> None:
            if isinstance(module, nn.Linear):
                distribute_tensor(module.weight, mesh, [Shard(0)])

        expected = losses_of(network(), "cpu", None)
        model = distribute_module(network().to(self.device), mesh, shard)
        found = losses_of(model, self.device, self.mesh((CORES,), ("data",)))
        np.testing.assert_allclose(found, expected, rtol=0.02)
        weight = next(model.parameters())
        self.assertIn("devices=[8,1]", torch_xla._XLAC._get_xla_sharding_spec(weight))


if __name__ == "__main__":
    unittest.main()
