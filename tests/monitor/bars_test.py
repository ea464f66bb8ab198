"""The bars of long commands on a terminal, and that there are none elsewhere. That of a training run: process_test.py.

Usage: bars_test.py TPUC TPUBOARD DATA_FOLDER
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from running_jobs import Monitored

TPUC, TPUBOARD, DATA = (Path(each).resolve() for each in sys.argv[1:4])
TAKEN_AWAY = "\r\x1b[K"
SWEEP = """
[sweep]
command = "run"
[options]
no-data = true
[grid]
program = ["{data}/dense.mlirbc", "{data}/mlp_sgd.mlirbc"]
"""


class Bars(Monitored):
    """Commands on a terminal and without."""

    tpuboard = str(TPUBOARD)

    def quiet(self, *words: str) -> str:
        """All output of a command whose streams are pipes."""
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, timeout=60, check=False,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def slow_program(self, name: str) -> Path:
        """An artifact that arrives after 2.2 seconds, so that its compilation takes more than 2."""
        path = self.folder / name
        os.mkfifo(path)

        def feed() -> None:
            with path.open("wb") as to:
                time.sleep(2.2)
                to.write((DATA / "mlp_sgd.mlirbc").read_bytes())

        threading.Thread(target=feed, daemon=True).start()  # a command that fails early leaves it waiting
        return path

    def test_a_long_compilation(self) -> None:
        commands = {"compile": (str(TPUC), str(self.slow_program("a.mlirbc")), "-o", str(self.folder / "a.tpuexe")),
                    "compile b.mlirbc": (self.tpuboard, "run", "--no-data", str(self.slow_program("b.mlirbc")))}
        shown = {}
        threads = [threading.Thread(target=lambda name=name: shown.update({name: self.on_a_terminal(*commands[name])}))
                   for name in commands]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in commands:
            self.assertRegex(shown.get(name, ""), rf"\r{name} \[#*\.+\] \d+ %  ")
            self.assertIn(TAKEN_AWAY, shown[name])
        self.assertTrue(shown["compile"].endswith(TAKEN_AWAY), shown["compile"])

    def test_a_long_compilation_without_a_terminal(self) -> None:
        self.assertEqual(self.quiet(str(TPUC), str(self.slow_program("a.mlirbc")), "-o", "a.tpuexe"), "")

    def test_a_short_compilation(self) -> None:
        words = (str(TPUC), str(DATA / "mlp_sgd.mlirbc"), "-o", str(self.folder / "a.tpuexe"))
        self.assertEqual(self.on_a_terminal(*words), "")

    def test_many_launches(self) -> None:
        words = (self.tpuboard, "run", "--no-data", "--launches", "100000000", str(DATA / "dense.mlirbc"))
        self.assertRegex(self.on_a_terminal(*words, until=" launches/s"), r"run \[\.*\] 0 %  .* left  .* launches/s")

    def test_convert(self) -> None:
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': (20000, 4), }}{' ' * 40}\n".encode()
        magic = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header))
        (self.folder / "x.npy").write_bytes(magic + header + bytes(80000))
        there = (self.tpuboard, "convert", f"x={self.folder}/x.npy", "--records", f"{self.folder}/r")
        back = (self.tpuboard, "convert", f"{self.folder}/r-00000-of-00001.tfrecord", "--numpy", str(self.folder / "n"))
        for words in (there, back):
            shown = self.on_a_terminal(*words)
            self.assertRegex(shown, r"convert \[#{30}\] 100 %  0 s left  \d+ examples/s")
            self.assertIn(TAKEN_AWAY, shown)
            self.assertNotIn("[", self.quiet(*words))

    def test_a_sweep(self) -> None:
        (self.folder / "s.toml").write_text(SWEEP.format(data=DATA))
        words = (self.tpuboard, "sweep", str(self.folder / "s.toml"), "--again", "--out", str(self.folder / "o"))
        self.assertRegex(self.on_a_terminal(*words), r"sweep \[\.+\] 0 %(.|\n)*sweep \[#{30}\] 100 %  0 s left")
        self.assertNotIn("left", self.quiet(*words))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
