"""Jobs for tests of the monitor: `tpuboard train` as processes that go on until they are stopped."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

CONFIG = """
[program]
train = "{data}/mlp_sgd.mlirbc"
[state]
seed = 1
init = ["zeros", "he_normal", "zeros", "he_normal", "zeros", "he_normal"]
[data]
images = "images.raw"
labels = "labels.raw"
split_seed = 7
eval_count = 16
classes = 4
[run]
batch = 16
epochs = 1000000
"""


class Monitored(unittest.TestCase):
    """Each test has a folder of its own, in which the jobs tell of themselves."""

    tpuboard = ""  # the program

    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": holder.name}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, run to its end."""
        return subprocess.run([self.tpuboard, *words], capture_output=True, text=True, env=self.environment, timeout=60,
                              check=False)

    def report_of(self, pid: int) -> dict[str, Any] | None:
        """What a process has told of itself last; nothing before it has."""
        try:
            return json.loads((self.folder / "tpuboard" / f"{pid}.json").read_text())
        except FileNotFoundError:
            return None

    def wait_for(self, what: Callable[[], object], seconds: float = 60) -> None:
        """Until it is true."""
        end = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.02)

    def on_a_terminal(self, *words: str, until: str = "") -> str:
        """What a command shows where both streams are a terminal of 160 columns; it is killed once it has shown
        `until`."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("4H", 40, 160, 0, 0))
        with subprocess.Popen(words, stdout=follower, stderr=follower, env=self.environment) as process:
            os.close(follower)
            shown = b""
            with contextlib.suppress(OSError):  # the terminal's end, once nobody has it open
                while piece := os.read(leader, 65536):
                    shown += piece
                    if until and until in shown.decode():
                        process.kill()
            os.close(leader)
            code = process.wait()
        self.assertEqual(code, -signal.SIGKILL if until else 0, shown)
        return shown.decode()


class JobTest(Monitored):
    """Jobs are training runs."""

    data = Path()  # tests/data

    def setUp(self) -> None:
        super().setUp()
        (self.folder / "images.raw").write_bytes(bytes(i % 251 for i in range(96 * 12)))
        (self.folder / "labels.raw").write_bytes(bytes(i % 4 for i in range(96)))
        (self.folder / "c.toml").write_text(CONFIG.format(data=self.data))

    @contextlib.contextmanager
    def job(self, *words: str, name: str = "out") -> Iterator[subprocess.Popen[str]]:
        """A training run that goes on until it is stopped, and has come to a step that others see."""
        command = [self.tpuboard, "train", str(self.folder / "c.toml"), "--out", str(self.folder / name), *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=self.environment) as process:
            try:
                while not self.steps_of(process.pid):
                    if process.poll() is not None:
                        assert process.stderr
                        self.fail(f"the job has ended: {process.stderr.read()}")
                    time.sleep(0.02)
                yield process
            finally:
                process.kill()

    def steps_of(self, pid: int) -> int:
        """Steps that the job has told of."""
        report = self.report_of(pid)
        return report["progress"]["step"] if report and report["progress"] else 0
