"""Processes that use the board through the plugin, JAX and the Python package, as `tpuboard monitor` sees them.

Usage: clients_test.py TPUBOARD PYTHON. The environment names the library: TPU_LIBRARY_PATH.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running_jobs import Monitored

TPUBOARD, PYTHON = sys.argv[1], sys.argv[2]
PACKAGE = Path(__file__).resolve().parents[2] / "python"
# Work until standard input ends; the first line says that the board has run a program.
JAX = """
import sys, threading
import jax, jax.numpy as jnp
wanted = True
def end():
    global wanted
    sys.stdin.read()
    wanted = False
threading.Thread(target=end).start()
f = jax.jit(lambda a: jnp.tanh(a @ a))
x = f(jnp.ones((256, 256))).block_until_ready()
print('ready', flush=True)
while wanted:
    x = f(x)
    x.block_until_ready()
"""
PACKAGE_ALONE = f"""
import sys
sys.path.insert(0, {str(PACKAGE)!r})
import tpuboard
board = tpuboard.board()
print('ready', flush=True)
sys.stdin.read()
"""


class Clients(Monitored):
    """A process with a board of its own, and who looks at it."""

    tpuboard = TPUBOARD

    @contextmanager
    def client(self, code: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A Python process that has opened the board and goes on until its standard input ends."""
        script = self.folder / "client.py"
        script.write_text(code)
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [PYTHON, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env={**self.environment, **variables}) as process:
            try:
                assert process.stdout
                if process.stdout.readline() != "ready\n":
                    errors.seek(0)
                    self.fail(errors.read())
                yield process
            finally:
                process.kill()

    def test_a_process_of_jax(self) -> None:
        with self.client(JAX) as process:
            self.wait_for(lambda: (self.report_of(process.pid) or {"lately": {"mxu": 0}})["lately"]["mxu"] > 0)
            one = self.call("monitor", "--once", "--json")
            self.assertEqual(one.returncode, 0, one.stderr)
            report = json.loads(one.stdout)
            self.assertEqual((report["pid"], report["board"]), (process.pid, "v3_8"))
            self.assertTrue(report["command"].endswith("client.py"), report["command"])
            self.assertIsNone(report["progress"])
            self.assertGreater(report["cores"][0]["programs"], 0)
            self.assertAlmostEqual(sum(report["lately"]["time"].values()), 1, places=9)
            view = self.call("monitor", "--once").stdout
            self.assertIn("client.py  (process ", view)
            self.assertNotIn("step", view)
            assert process.stdin
            process.stdin.close()
            self.assertEqual(process.wait(), 0)
            self.assertIn("no job is running", self.call("monitor", "--once").stderr)
            self.assertEqual(list((self.folder / "tpuboard").iterdir()), [])

    def test_a_killed_process_of_jax(self) -> None:
        with self.client(JAX) as process:
            self.wait_for(lambda: self.report_of(process.pid))
            with subprocess.Popen([TPUBOARD, "monitor", "--interval", "0.05"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env=self.environment) as monitor:
                assert monitor.stdout and monitor.stderr
                self.assertEqual(json.loads(monitor.stdout.readline())["pid"], process.pid)
                process.kill()
                process.wait()
                self.assertIn(f"job {process.pid} was killed", monitor.communicate()[1])

    def test_who_does_not_want_to_be_seen(self) -> None:
        with self.client(PACKAGE_ALONE, TPUBOARD_MONITOR="0"):
            self.assertIn("no job is running", self.call("monitor", "--once").stderr)
        self.assertFalse((self.folder / "tpuboard").exists())

    def test_the_python_package_alone(self) -> None:
        with self.client(PACKAGE_ALONE) as process:
            self.wait_for(lambda: self.report_of(process.pid))
            view = self.call("monitor", "--once")
            self.assertIn("MXU 0.00 %  idle 100.00 %", view.stdout, view.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
