"""The start of a TPU node up to TensorFlow, which a module that says what it finds replaces.

Usage: tpu_worker_test.py, with TPU_LIBRARY_PATH and PYTHONPATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LIBRARY = Path(os.environ["TPU_LIBRARY_PATH"])


def start(library: str, folder: Path) -> str:
    """What it prints in `folder`, where the library may have a relative name."""
    with tempfile.TemporaryDirectory() as packages:
        fake = Path(packages, "tensorflow.py")
        fake.write_text("import os\nraise ImportError('library ' + os.environ['TPU_LIBRARY_PATH'])\n", encoding="utf-8")
        variables = dict(os.environ, TPU_LIBRARY_PATH=library, PYTHONPATH=f"{packages}:{os.environ['PYTHONPATH']}")
        done = subprocess.run([sys.executable, "-m", "tpuboard.tpu_worker", "--port", "0"], cwd=folder, env=variables,
                              check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done
    return done.stderr


class Library(unittest.TestCase):
    """Which one TensorFlow gets."""

    def test_a_relative_name_is_of_this_folder(self) -> None:
        text = start(LIBRARY.name, LIBRARY.parent)
        self.assertEqual(text, f"tpu_worker: library {LIBRARY.resolve()}; install tensorflow-tpu "
                               "(docs/tensorflow.md)\n")

    def test_one_that_is_missing(self) -> None:
        text = start(f"/opt/none/{LIBRARY.name}", LIBRARY.parent)
        self.assertIn(f"tpu_worker: /opt/none/{LIBRARY.name} does not exist; TPU_LIBRARY_PATH has to name", text)


if __name__ == "__main__":
    unittest.main()
