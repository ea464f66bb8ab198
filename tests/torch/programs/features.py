"""What PyTorch/XLA has around a training loop: compilers, autocast, checkpoints of activations, scan, cache, profiler.

The variables XLA_IR_DEBUG and XLA_HLO_DEBUG have to be 1: operations then have the Python lines that made them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import tpuboard

import torch
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.runtime as xr
from torch import nn

CACHE = tempfile.TemporaryDirectory()  # of compiled programs


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [weight.grad.float().cpu() for weight in model.parameters()]


class Features(unittest.TestCase):
    """Each beside torch on the CPU."""

    @classmethod
    def setUpClass(cls) -> None:
        xr.initialize_cache(CACHE.name, readonly=False)
        cls.device = xm.xla_device()
        cls.x = torch.randn(6, 12, generator=torch.Generator().manual_seed(1))
        torch_xla._XLAC._xla_set_mat_mul_precision("highest")

    def expected(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model = network()
        loss = model(self.x).square().mean()
        loss.backward()
        return loss.detach(), gradients(model)

    def same(self, loss: torch.Tensor, model: nn.Module, tolerance: float = 1e-4) -> None:
        wanted, grads = self.expected()
        torch.testing.assert_close(loss.detach().float().cpu(), wanted, rtol=tolerance, atol=tolerance)
        for a, b in zip(gradients(model), grads, strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    def test_dynamo(self) -> None:
        model = network().to(self.device).eval()
        compiled = torch.compile(model, backend="openxla")
        with torch.no_grad():
            for rows in (6, 3):
                found = compiled(self.x[:rows].to(self.device))
                torch.testing.assert_close(found.cpu(), network()(self.x[:rows]).detach(), rtol=1e-5, atol=1e-5)

    def test_dynamo_training(self) -> None:
        model = network().to(self.device)
        compiled = torch.compile(model, backend="openxla")
        loss = compiled(self.x.to(self.device)).square().mean()
        loss.backward()
        torch_xla.sync()
        self.same(loss, model)

    def test_compiled_step(self) -> None:
        model = network().to(self.device)

        @torch_xla.compile
        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        self.same(step(self.x.to(self.device)), model)

    def test_autocast(self) -> None:
        from torch_xla.amp import autocast

        model = network().to(self.device)
        with autocast(self.device, dtype=torch.bfloat16):
            inner = model[0](self.x.to(self.device))
            loss = model(self.x.to(self.device)).square().mean()
        self.assertEqual(inner.dtype, torch.bfloat16)
        loss.backward()
        self.same(loss, model, tolerance=0.03)

    def test_gradient_checkpoint(self) -> None:
        from torch_xla.utils.checkpoint import checkpoint

        model = network().to(self.device)
        x = self.x.to(self.device).requires_grad_()
        loss = checkpoint(model, x).square().mean()
        loss.backward()
        self.same(loss, model)

    def test_gradient_checkpoint_of_layers_saves_memory(self) -> None:
        """A program keeps its memory as long as it is loaded: what a step adds is what it needs."""
        from torch_xla.utils.checkpoint import checkpoint

        def step(*, again: bool) -> tuple[int, torch.Tensor, list[torch.Tensor]]:
            torch.manual_seed(0)
            model = nn.ModuleList(nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
                                  for _ in range(4)).to(self.device)
            x = torch.ones(4096, 128, device=self.device, requires_grad=True)
            torch_xla.sync(wait=True)
            before = xm.get_memory_info(self.device)["bytes_used"]
            y = x
            for layer in model:
                y = y + (checkpoint(layer, y) if again else layer(y))
            loss = y.square().mean()
            loss.backward()
            torch_xla.sync(wait=True)
            return xm.get_memory_info(self.device)["bytes_used"] - before, loss.detach().cpu(), gradients(model)

        least, loss, grads = step(again=True)
        most, wanted, wanted_grads = step(again=False)
        self.assertLess(least, 0.6 * most)
        torch.testing.assert_close(loss, wanted, rtol=0, atol=0)
        torch.testing.assert_close(grads, wanted_grads, rtol=1e-5, atol=1e-6)

    def test_metrics(self) -> None:
        met.clear_all()
        (torch.ones(3, device=self.device) + 1).cpu()
        for name in ("CompileTime", "ExecuteTime", "TransferFromDeviceTime"):
            self.assertIn(f"Metric: {name}", met.metrics_report())
        self.assertIn("CreateXlaTensor", met.counter_names())

    def test_python_lines(self) -> None:
        self.assertEqual((os.environ.get("XLA_IR_DEBUG"), os.environ.get("XLA_HLO_DEBUG")), ("1", "1"))
        a = torch.randn(256, 256, device=self.device)
        torch_xla.sync(wait=True)
        with tpuboard.measure(output=None, ops=5) as figures:
            b = a @ a
        self.assertEqual(b.shape, (256, 256))
        self.assertTrue(any("features.py" in each.source for each in figures.ops), figures.ops)

    def test_profiler(self) -> None:
        def work() -> None:
            (torch.ones(64, 64, device=self.device) @ torch.ones(64, 64, device=self.device)).cpu()

        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            server = xp.start_server(port)
            if hasattr(xp, "start_trace"):
                xp.start_trace(folder)
                work()
                xp.stop_trace()
            else:  # 2.5: another thread asks the server
                tracer = threading.Thread(target=xp.trace, args=(f"localhost:{port}", folder),
                                          kwargs={"duration_ms": 1500})
                tracer.start()
                while tracer.is_alive():
                    work()
            del server
            traces = list(Path(folder).rglob("*.xplane.pb"))
            self.assertEqual(len(traces), 1)
            self.assertIn(b"/device:TPU:0", traces[0].read_bytes())

    def test_report(self) -> None:
        """The page of a step names the Python lines."""
        a = torch.randn(256, 256, device=self.device)
        torch_xla.sync(wait=True)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            with tpuboard.measure(output=None, report=page):
                b = (a @ a).relu() @ a
            self.assertEqual(b.shape, (256, 256))
            self.assertIn("features.py", page.read_text(encoding="utf-8"))

    def test_timeline(self) -> None:
        """As the report; the variable is read when the device is opened."""
        with tempfile.TemporaryDirectory() as folder:
            trace, program = Path(folder) / "run.pftrace", Path(folder) / "product_of_ones.py"
            program.write_text("import torch, torch_xla\na = torch.ones(256, 256, device=torch_xla.device())\n"
                               "print((a @ a)[0, 0].item())\n", encoding="ascii")
            done = subprocess.run([sys.executable, program], env=os.environ | {"TPUBOARD_TIMELINE": str(trace)},
                                  check=True, stdout=subprocess.PIPE, text=True)
            self.assertEqual(done.stdout.split()[-1], "256.0")
            self.assertTrue(b"product_of_ones.py" in trace.read_bytes())

    def test_persistent_cache(self) -> None:
        (torch.arange(7, device=self.device) * 3).cpu()
        self.assertTrue(any(Path(CACHE.name).iterdir()))

    def test_scan(self) -> None:
        try:
            from torch_xla.experimental.scan_layers import scan_layers
        except ImportError:
            self.skipTest("2.5 has no scan_layers")
        torch.manual_seed(0)
        layers = [nn.Linear(12, 12) for _ in range(4)]
        expected = self.x
        for layer in layers:
            expected = layer(expected)
        found = scan_layers([layer.to(self.device) for layer in layers], self.x.to(self.device))
        torch_xla.sync()
        torch.testing.assert_close(found.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
