"""sim_scripts/torch_venv without a download: an environment is kept until the next one is complete; which faults of pip
mean that the packages cannot be had (exit code 3: the tests are skipped), and which are mistakes.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "sim_scripts"))
    loader = SourceFileLoader("torch_venv", str(ROOT / "sim_scripts/torch_venv"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("torch_venv", loader))
    loader.exec_module(module)
    return module


torch_venv = load()


class Pip:
    """In the place of subprocess.run: makes the folder, and fails as pip does."""

    def __init__(self, error: str) -> None:
        self.error = error

    def __call__(self, command: list[str], **_: Any) -> mock.Mock:
        if "venv" in command:
            Path(command[-1]).mkdir()
            return mock.Mock(returncode=0)
        return mock.Mock(returncode=1, stderr=self.error)


class Venv(unittest.TestCase):
    """Over a folder that has an environment."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = Path(folder.name, "venv")
        self.target.mkdir()
        (self.target / "works").touch()

    def fails(self, error: str, kind: type[BaseException]) -> None:
        with mock.patch.object(torch_venv.subprocess, "run", Pip(error)), \
                mock.patch.object(torch_venv, "interpreter", lambda: sys.executable), self.assertRaises(kind):
            torch_venv.make("2.9", self.target)
        self.assertTrue((self.target / "works").exists())
        self.assertEqual([path.name for path in self.target.parent.iterdir()], ["venv"])

    def test_packages_that_cannot_be_had(self) -> None:
        for error in ("Failed to establish a new connection: NewConnectionError(...)",
                      "ERROR: Could not find a version that satisfies the requirement torch_xla==2.9.0 "
                      "(from versions: none)\nERROR: No matching distribution found for torch_xla==2.9.0"):
            self.fails(error, torch_venv.NoPackagesError)

    def test_mistakes(self) -> None:
        for error in ("ERROR: Could not find a version that satisfies the requirement torch==2.9.11 "
                      "(from versions: 2.9.0, 2.9.1)\nERROR: No matching distribution found for torch==2.9.11",
                      "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
                      "ERROR: Invalid requirement: 'torch=2.9.1'"):
            self.fails(error, SystemExit)

    def test_a_signal_brings_the_old_one_back(self) -> None:
        with self.assertRaises(SystemExit), torch_venv.kept_until_complete(self.target):
            self.target.mkdir()
            signal.raise_signal(signal.SIGTERM)
        self.assertTrue((self.target / "works").exists())
        self.assertEqual([path.name for path in self.target.parent.iterdir()], ["venv"])
        self.assertEqual(signal.getsignal(signal.SIGTERM), signal.SIG_DFL)

    def test_a_run_that_was_killed_while_it_removed_the_old_one(self) -> None:
        self.target.with_name("venv.gone").mkdir()
        with self.assertRaises(ValueError), torch_venv.kept_until_complete(self.target):
            raise ValueError
        self.assertTrue((self.target / "works").exists())
        self.assertEqual([path.name for path in self.target.parent.iterdir()], ["venv"])

    def test_a_new_one_takes_the_place_when_it_is_complete(self) -> None:
        with torch_venv.kept_until_complete(self.target):
            self.assertFalse(self.target.exists())
            self.target.mkdir()
        self.assertEqual(list(self.target.iterdir()), [])
        self.assertEqual([path.name for path in self.target.parent.iterdir()], ["venv"])

    def test_after_a_run_that_was_killed(self) -> None:
        self.target.rename(self.target.with_name("venv.old"))
        self.target.mkdir()
        self.fails("No space left on device", SystemExit)


if __name__ == "__main__":
    unittest.main()
