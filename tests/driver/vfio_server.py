"""A `tpuboard serve --vfio-user` for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from vfio_user_client import Client


class Server:
    """A board whose chips are in a folder."""

    def __init__(self, tpuboard: str, *options: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="tpuboard-vfio-")
        self.errors = Path(tempfile.mkdtemp()) / "errors"
        words = [tpuboard, "serve", "--vfio-user", self.folder, *options]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout.readline().strip() == self.folder, self.text()

    def path(self, chip: int = 0) -> str:
        return f"{self.folder}/chip{chip}.sock"

    def connect(self, test: unittest.TestCase, chip: int = 0, hello: bytes | None = None) -> Client:
        client = Client(self.path(chip), hello)
        test.addCleanup(client.close)
        return client

    def cpu_seconds(self) -> float:
        """That it has had of all CPUs."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def text(self) -> str:
        return self.errors.read_text()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code
