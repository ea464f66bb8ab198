"""First cells of a notebook: the device, arithmetic, a layer, random numbers, types, memory and metrics."""

from __future__ import annotations

import unittest

import tpuboard

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.runtime as xr


def bf16(x: torch.Tensor) -> torch.Tensor:
    """As the matrix unit rounds its operands."""
    return x.bfloat16().float()


class Cells(unittest.TestCase):
    """One device."""

    def setUp(self) -> None:
        self.device = xm.xla_device()
        torch.manual_seed(0)

    def test_the_board_is_a_tpu(self) -> None:
        self.assertEqual(xm.xla_device_hw(self.device), "TPU")
        self.assertEqual(xr.device_type(), "TPU")
        self.assertEqual(len(xm.get_xla_supported_devices()), len(tpuboard.board().devices))
        self.assertEqual((xm.xrt_world_size(), xm.get_ordinal()), (1, 0))
        self.assertTrue(xm.is_master_ordinal())
        self.assertEqual(xr.runtime_device_attributes("xla:0")["core_on_chip"], 0)

    def test_arithmetic(self) -> None:
        a, b = torch.randn(7, 9), torch.randn(7, 9)
        torch.testing.assert_close((a.to(self.device) + b.to(self.device)).cpu(), a + b, rtol=0, atol=0)
        product = a.to(self.device).mm(b.t().to(self.device)).cpu()
        torch.testing.assert_close(product, bf16(a).mm(bf16(b).t()), rtol=1e-6, atol=1e-6)
        self.assertRegex(repr(torch.ones(2, device=self.device)), r"tensor\(\[1., 1.\], device='xla:0'\)")

    def test_layer(self) -> None:
        layer, x = torch.nn.Linear(10, 20), torch.randn(3, 10)
        expected = torch.nn.functional.linear(bf16(x), bf16(layer.weight.detach()), layer.bias.detach())
        found = layer.to(self.device)(x.to(self.device))
        torch.testing.assert_close(found.detach().cpu(), expected, rtol=1e-6, atol=1e-6)

    def test_precision_of_products(self) -> None:
        a, b = torch.randn(5, 40), torch.randn(40, 6)
        torch_xla._XLAC._xla_set_mat_mul_precision("highest")
        found = a.to(self.device).mm(b.to(self.device)).cpu()
        torch_xla._XLAC._xla_set_mat_mul_precision("default")
        torch.testing.assert_close(found, a @ b, rtol=2e-6, atol=2e-6)

    def test_types(self) -> None:
        for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bfloat16,
                      torch.float32, torch.float64):
            with self.subTest(dtype=dtype):
                x = torch.arange(12).reshape(3, 4).to(dtype)
                moved = x.to(self.device)
                self.assertEqual(moved.dtype, dtype)
                self.assertTrue(torch.equal(moved.cpu(), x))
                self.assertTrue(torch.equal(moved.t().contiguous().cpu(), x.t()))
        wide = torch.tensor([1e300, 1 / 3, -2.5e-300, 2.0**40 + 1], dtype=torch.float64)
        self.assertTrue(torch.equal(wide.to(self.device).cpu(), wide))  # bits of arrays are kept
        inside = torch.tensor([1 / 3, -5.5, 1e30], dtype=torch.float64)
        torch.testing.assert_close((inside.to(self.device) * 3).cpu(), inside * 3, rtol=1e-13, atol=0)

    def test_random_numbers(self) -> None:
        def draw() -> torch.Tensor:
            return torch.randn(1000, device=self.device).cpu()

        xm.set_rng_state(1)
        first, second = draw(), draw()
        xm.set_rng_state(1)
        self.assertTrue(torch.equal(draw(), first))
        self.assertFalse(torch.equal(first, second))
        self.assertLess(abs(first.mean().item()), 0.15)
        self.assertLess(abs(first.std().item() - 1), 0.1)
        xm.set_rng_state(42)
        self.assertEqual(xm.get_rng_state(), 42)
        dropped = torch.nn.functional.dropout(torch.ones(2000, device=self.device), 0.25).cpu()
        self.assertEqual(set(dropped.unique().tolist()), {0.0, torch.tensor(1 / 0.75).item()})
        self.assertLess(abs((dropped == 0).float().mean().item() - 0.25), 0.05)

    def test_memory_and_metrics(self) -> None:
        held = torch.zeros(1 << 20, device=self.device)
        torch_xla.sync(wait=True)
        memory = xm.get_memory_info(self.device)
        self.assertGreater(memory["bytes_used"], 4 << 20)
        self.assertLess(memory["bytes_used"], memory["bytes_limit"])
        del held
        x = torch.ones(3, 3, device=self.device)
        torch_xla.sync(wait=True)
        met.clear_all()
        for _ in range(3):
            x = x * 2 + 1
            torch_xla.sync(wait=True)
        self.assertEqual(met.metric_data("CompileTime")[0], 1)  # the same program each time
        self.assertEqual(met.counter_value("CachedCompile"), 2)

    def test_figures(self) -> None:
        a = torch.randn(128, 128, device=self.device)
        torch_xla.sync(wait=True)
        with tpuboard.measure(output=None) as figures:
            b = a @ a
        flops = figures.mxu * figures.cycles * tpuboard.board().peak_flops_per_cycle
        self.assertEqual((figures.programs, figures.cores), (1, [0]))
        self.assertAlmostEqual(flops / (2 * 128**3), 1)
        self.assertEqual(b.shape, (128, 128))


if __name__ == "__main__":
    unittest.main()
