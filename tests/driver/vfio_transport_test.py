"""The driver over PCI functions: `tpuboard` against `tpuboard serve --vfio-user` has the bits that it has alone.

Usage: vfio_transport_test.py TPUBOARD TPUC
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from vfio_server import Server

import numpy as np

TPUBOARD, TPUC = sys.argv.pop(1), sys.argv.pop(1)
ROOT = Path(__file__).resolve().parents[2]
ARGUMENT = re.compile(r"^argument (\d+): (\w+)\[([\d,]*)\]", re.MULTILINE)
TYPES = {"f32": np.float32, "i32": np.int32}
BATCH = 16
TRAINING = """[program]
train = "{program}"

[state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal", "zeros*13"]

[data]
images = "{folder}/images.npy"
labels = "{folder}/labels.npy"
split_seed = 7
eval_count = 0
classes = 4

[run]
batch = 16
epochs = 1
"""


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([TPUBOARD, *words], capture_output=True, text=True, check=False, timeout=100)


class Transport(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(TPUBOARD)
        cls.folder = Path(tempfile.mkdtemp())

    @classmethod
    def tearDownClass(cls) -> None:
        assert cls.server.stop() == 0, cls.server.text()

    def connect(self) -> tuple[str, str]:
        return "--connect", f"vfio-user:{self.server.folder}"

    def output(self, *words: str) -> str:
        done = run(*words)
        self.assertEqual(done.returncode, 0, done.stderr + self.server.text())
        return done.stdout

    def program(self, artifact: str) -> tuple[str, list[str]]:
        """A compiled program, and options for arguments of it."""
        path = self.folder / f"{Path(artifact).stem}.tpuexe"
        subprocess.run([TPUC, str(ROOT / artifact), "-o", str(path)], check=True)
        random = np.random.default_rng(108)
        options = []
        for number, kind, shape in ARGUMENT.findall(self.output("objdump", str(path))):
            dims = [int(size) for size in shape.split(",") if size]
            value = random.normal(0, 0.1, dims) if kind == "f32" else np.zeros(dims)
            file = self.folder / f"{path.stem}.{number}.npy"
            np.save(file, value.astype(TYPES[kind]))
            options += ["--in", f"{number}={file}"]
        return str(path), options

    def same(self, artifact: str, *more: str) -> None:
        path, options = self.program(artifact)
        results = []
        for place, connect in (("here", ()), ("there", self.connect()), ("again", self.connect())):
            out = self.folder / f"{Path(path).stem}.{place}"
            self.output("run", path, *options, *more, "--out-dir", str(out), *connect)
            results.append({file.name: file.read_bytes() for file in sorted(out.glob("*.npy"))})
        self.assertTrue(results[0])
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_devices(self) -> None:
        here, there = (json.loads(self.output("devices", "--json", *words)) for words in ((), self.connect()))
        self.assertEqual(here, there)
        self.assertEqual(len(here["devices"]), 8)

    def test_a_layer_on_one_core_has_the_bits_of_a_board_here(self) -> None:
        self.same("examples/tanh_layer/tanh_layer.mlirbc")

    def test_training_steps_on_all_cores_have_the_bits_of_a_board_here(self) -> None:
        self.same("tests/data/mlp_adam.mlirbc", "--launches", "4")

    def test_training_on_a_terminal_tells_what_it_knows(self) -> None:
        """A guest's console is one. The functions do not tell for how long cores had a program running."""
        path, _ = self.program("tests/data/mlp_adam.mlirbc")
        config = self.folder / "train.toml"
        config.write_text(TRAINING.format(program=path, folder=self.folder))
        random = np.random.default_rng(108)
        np.save(self.folder / "images.npy", random.random((2 * BATCH, 12), np.float32))
        np.save(self.folder / "labels.npy", random.integers(0, 4, 2 * BATCH).astype(np.int32))
        out = self.folder / "trained"
        said = bytearray()
        end, terminal = pty.openpty()
        words = [TPUBOARD, "train", str(config), "--out", str(out), *self.connect()]
        with subprocess.Popen(words, stdout=terminal, stderr=subprocess.PIPE, text=True) as process:
            os.close(terminal)
            with contextlib.suppress(OSError):  # the other end is closed
                while more := os.read(end, 4096):
                    said += more
            errors = process.communicate(timeout=60)[1]
        os.close(end)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn(b"2/2", said)
        self.assertIn(b"MXU", said)
        columns = (out / "metrics.csv").read_text().splitlines()[0].split(",")
        self.assertIn("mxu_percent", columns)
        self.assertNotIn("idle_percent", columns)

    def test_mistakes_are_named(self) -> None:
        for words, text in (
                (("--connect", "vfio-user:/nowhere"), "nobody answers at /nowhere/chip0.sock"),
                ((*self.connect(), "--board", "v2_8"), "board hash"),
                ((*self.connect(), "--set", "board.chips=2", "--set", "board.torus_x=1"), "4 PCI functions"),
                ((*self.connect(), "--check"), "--check: a board whose chips are PCI functions"),
                (("--connect", "vfio-user:"), "vfio-user:FOLDER")):
            done = run("devices", *words)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(text, done.stderr)

    def test_a_hart_that_traps_in_a_gang_loses_no_board(self) -> None:
        """The others wait for it in a barrier, while nothing is in flight: the driver lets that time pass."""
        path, options = self.program("tests/data/mlp_adam.mlirbc")
        faults = self.folder / "traps.toml"
        faults.write_text("".join(f"""[[fault]]
kind = "hart_trap"
where = "core {2 * (number % 2)}"
at = "launch {3 * number + 2} + {20 * number}"
""" for number in range(6)))
        here = run("run", path, *options, "--launches", "20", "--faults", str(faults))
        server = Server(TPUBOARD, "--faults", str(faults))
        there = run("run", path, *options, "--launches", "20", "--connect", f"vfio-user:{server.folder}")
        self.assertEqual(server.stop(), 0, server.text())
        for done in (here, there):
            self.assertNotIn("Internal", done.stderr)
            self.assertNotIn("Timeout", done.stderr)
        self.assertEqual(here.returncode, there.returncode, here.stderr + there.stderr)

    def test_a_server_that_ends_is_named(self) -> None:
        server = Server(TPUBOARD)
        path, options = self.program("examples/tanh_layer/tanh_layer.mlirbc")
        words = [TPUBOARD, "run", path, *options, "--launches", "1000000", "--connect", f"vfio-user:{server.folder}"]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
            # It is connected to the last chip, and then the server has work.
            end = time.monotonic() + 90
            begun = None
            while begun is None or server.cpu_seconds() < begun + 1:
                self.assertIsNone(process.poll())
                self.assertLess(time.monotonic(), end)
                if begun is None and Path("/proc/net/unix").read_text().count(server.path(3)) > 1:
                    begun = server.cpu_seconds()
                time.sleep(0.05)
            server.process.kill()
            server.stop()
            errors = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1)
        self.assertIn("chip", errors)
        self.assertIn("Unavailable", errors)


if __name__ == "__main__":
    unittest.main()
