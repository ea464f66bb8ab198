"""sim_scripts/tensorflow_venv without a download: which packages it installs, and when an environment is kept."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "sim_scripts/tensorflow_venv"


def load() -> ModuleType:
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "sim_scripts"))
    loader = SourceFileLoader("tensorflow_venv", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tensorflow_venv", loader))
    loader.exec_module(module)
    return module


tensorflow_venv = load()


class Venv(unittest.TestCase):
    """In a folder of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = Path(folder.name, "venv")

    def check(self, *words: str) -> int:
        return subprocess.run([SCRIPT, "--check", "--target", self.target, *words], check=False).returncode

    def make(self, client: bool) -> list[str]:
        """The requirements that pip gets."""
        asked: list[str] = []

        def install(requirements: Path, _: str, target: Path) -> None:
            asked.extend(requirements.read_text("ascii").splitlines())
            target.mkdir()

        with mock.patch.object(tensorflow_venv, "install", install), \
                mock.patch.object(tensorflow_venv, "interpreter", lambda: sys.executable):
            tensorflow_venv.make("2.20", client, self.target)
        return asked

    def test_a_client_has_the_wheel_without_a_runtime(self) -> None:
        runtime, *others = self.make(client=False)
        self.assertEqual(runtime, "tensorflow-tpu==2.20.0")
        self.assertIn("tf_keras==2.20.1", others)
        self.assertEqual(self.make(client=True), ["tensorflow-cpu==2.20.0", *others])

    def test_an_environment_is_kept_while_its_requirements_are_the_same(self) -> None:
        self.assertEqual(self.check(), 1)
        self.make(client=False)
        self.assertEqual((self.check(), self.check("--client")), (0, 1))
        self.assertEqual(self.make(client=False), [])


if __name__ == "__main__":
    unittest.main()
