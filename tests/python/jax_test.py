"""The package beside JAX on the board: both see the same one, and measure() counts what JAX did."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tpuboard

import jax
import jax.numpy as jnp
import numpy as np


class JaxOnTheBoard(unittest.TestCase):
    """One board for both."""

    def test_measures_a_block(self) -> None:
        self.assertEqual([device.platform for device in jax.devices()], ["tpu"] * 8)
        x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7
        product = jax.jit(jnp.matmul)
        held = jax.device_put(x, jax.devices()[2])
        product(held, held).block_until_ready()
        with tpuboard.measure(output=None) as figures:
            y = product(held, held)
        np.testing.assert_array_equal(y, x @ x)
        self.assertEqual((figures.cores, figures.programs), ([2], 1))
        flops = figures.mxu * figures.cycles * tpuboard.board().peak_flops_per_cycle
        self.assertAlmostEqual(flops / (2 * 64**3), 1)
        self.assertGreaterEqual(tpuboard.board().devices[2].hbm_used, 2 * x.nbytes)

    def test_what_an_idle_core_waits_for(self) -> None:
        small, large = np.ones((64, 64), np.float32), np.ones((1024, 1024), np.float32)
        double = jax.jit(lambda a: a + a)
        double(small).block_until_ready()
        with tpuboard.measure(output=None) as uploads:  # 4 MiB through PCIe, and little to compute
            jax.block_until_ready((jax.device_put(large), double(small)))
        self.assertGreater(uploads.idle_input, 0.9)
        self.assertAlmostEqual(uploads.idle_input + uploads.idle_host, uploads.idle)
        with tpuboard.measure(output=None) as launches:
            x = double(small)
            for _ in range(50):
                x = double(x)
        self.assertGreater(launches.idle_host, 0.1)
        self.assertLess(launches.idle_input, 0.1)

    def test_times_of_operations(self) -> None:
        x = np.ones((256, 256), np.float32)
        mixed = jax.jit(lambda a: jnp.sort(jnp.tanh(a @ a), axis=0))
        mixed(x).block_until_ready()
        text = io.StringIO()
        before = tpuboard.board().counters().total("run_cycles")
        with tpuboard.measure("mixed", output=text, ops=2) as figures:
            mixed(x)
        ran = tpuboard.board().counters().total("run_cycles") - before
        self.assertEqual(sum(each.cycles for each in figures.ops), ran)
        times = sorted(figures.ops, key=lambda each: -each.cycles)
        self.assertTrue(any(each.op.startswith("dot_general") and 0 < each.cycles < ran / 2 for each in times), times)
        self.assertRegex(times[0].source, r"jax_test\.py:\d+$")
        self.assertEqual(sum(each.op == "" for each in times), 1, times)
        lines = text.getvalue().splitlines()
        self.assertEqual(len(lines), 4, text.getvalue())
        self.assertTrue(lines[2].endswith(f"{times[0].op}, {times[0].source}"), lines)
        with tpuboard.measure(output=None) as figures:
            mixed(x)
        self.assertEqual(figures.ops, [])

    def test_a_report_of_the_longest_step(self) -> None:
        x = np.ones((512, 512), np.float32)
        small, large = jax.jit(lambda a: a[:8, :8] + 1), jax.jit(lambda a: jnp.tanh(a @ a))
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            with tpuboard.measure(output=None, report=page) as figures:
                jax.block_until_ready([small(x), large(x), small(x)])
            text = page.read_text(encoding="utf-8")
            (embedded,) = re.findall(r"const report = (\{.*\});?$", text, re.MULTILINE)
            report = json.loads(embedded.replace("<\\/", "</"))
            self.assertEqual(report["program"], "jit__lambda")
            self.assertTrue(any("dot_general" in op["name"] for op in report["ops"]))
            self.assertLess(report["cycles"], figures.cycles)
            self.assertTrue(report["changes"])
            self.assertNotIn("TPUBOARD_RECORD", os.environ)
            with self.assertRaisesRegex(tpuboard.TpuError, "no step ran to its end"), \
                    tpuboard.measure(output=None, report=page):
                pass
            with self.assertRaisesRegex(OSError, "cannot be written"), \
                    tpuboard.measure(output=None, report=Path(folder) / "none" / "page.html"):
                pass
            with self.assertRaisesRegex(ZeroDivisionError, "division"), tpuboard.measure(output=None, report=page):
                print(1 / 0)
            tpuboard.configure(record=Path(folder) / "step.tpurec")
            with self.assertRaisesRegex(ValueError, "TPUBOARD_RECORD is set"), \
                    tpuboard.measure(output=None, report=page):
                pass
            large(x).block_until_ready()
            tpuboard.configure(record="")
            self.assertGreater((Path(folder) / "step.tpurec").stat().st_size, 1000)

    def test_a_record_of_a_program_that_cannot_be_changed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            record = Path(folder) / "step.tpurec"
            program = "import jax, jax.numpy as jnp; x = jnp.ones((64, 64)); print((x @ x).sum())"
            for steps, said in ((None, ""), ("1..1", ""), ("1000..1001", "no step 1000 to 1001 ran to its end")):
                record.unlink(missing_ok=True)
                environment = os.environ | {"TPUBOARD_RECORD": str(record)}
                done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                                      env=environment | ({} if steps is None else {"TPUBOARD_RECORD_STEPS": steps}))
                self.assertIn(said, done.stderr)
                self.assertEqual(record.exists(), not said, done.stderr)
            environment = os.environ | {"TPUBOARD_RECORD": str(Path(folder) / "none" / "step.tpurec")}
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False,
                                  env=environment)
            self.assertIn("cannot write record", done.stdout + done.stderr)

    def test_waves_and_lockstep_go_on_and_off(self) -> None:
        x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128) % 5
        product = jax.jit(jnp.matmul)
        expected = np.asarray(product(x, x))
        with tempfile.TemporaryDirectory() as folder:
            waves = Path(folder) / "product.fst"
            tpuboard.configure(waves=waves, mxu={"board.chip0.core0.mxu*": "lockstep"})
            board = tpuboard.board()
            self.assertEqual((board.waves, board.lockstep), (str(waves), "board.chip0.core0.mxu*=lockstep"))
            np.testing.assert_array_equal(product(x, x), expected)
            tpuboard.configure(waves="", mxu={})
            self.assertEqual((board.waves, board.lockstep), (None, None))
            self.assertGreater(waves.stat().st_size, 0)
        checks = board.counters().checks
        self.assertGreater(checks.lockstep_tiles, 0)
        self.assertEqual(checks.lockstep_mismatches, 0)
        product(x, x).block_until_ready()
        self.assertEqual(board.counters().checks, checks)

    def test_options_that_are_fixed(self) -> None:
        jax.devices()
        with self.assertRaisesRegex(tpuboard.TpuError, r"configure\(threads\): TPUBOARD_THREADS cannot change .* mxu, "
                                    ) as caught:
            tpuboard.configure(threads=1, op_times=True)
        self.assertEqual(caught.exception.code, "FailedPrecondition")
        self.assertFalse({"TPUBOARD_THREADS", "TPUBOARD_OP_TIMES"} & set(os.environ))


if __name__ == "__main__":
    unittest.main()
