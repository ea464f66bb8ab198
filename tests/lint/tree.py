"""A small source tree in a temporary folder, for tests of the checks of the source tree.

A tree is an empty folder with the scripts in their own places and the files that a test writes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINT = ROOT / "tests/lint"


class Tree(unittest.TestCase):
    """A tree in a temporary folder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve()
        shutil.copytree(LINT, self.root / "tests/lint", ignore=shutil.ignore_patterns("__pycache__"))

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def copy(self, *names: str) -> None:
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)

    def keep(self, script: str) -> None:
        """Removes checks that name pages of the real tree."""
        for path in (self.root / "tests/lint").iterdir():
            if path.name not in (Path(script).name, "sources.py"):
                path.unlink()

    def command(self, *words: str) -> str:
        """What a command that must pass prints."""
        return subprocess.run(words, check=True, capture_output=True, text=True, cwd=self.root).stdout

    def script(self, name: str, *words: str) -> tuple[int, str]:
        settings = {key: value for key, value in os.environ.items() if key != "TPU_TIDY_BASE"}
        done = subprocess.run([sys.executable, str(self.root / name), *words], capture_output=True, text=True,
                              check=False, cwd=self.root, env=settings)
        return done.returncode, done.stdout + done.stderr

    def passes(self, name: str, *words: str) -> None:
        code, text = self.script(name, *words)
        self.assertEqual(code, 0, text)

    def fails(self, expected: str, name: str, *words: str) -> None:
        code, text = self.script(name, *words)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, expected)
