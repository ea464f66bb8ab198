"""Python lint by ruff.toml, with the version that tests/requirements.txt pins.

Usage: ruff_test.py, by the Python of the environment that has them.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from sources import ROOT, files


def main() -> int:
    """Runs ruff over every Python file."""
    if importlib.util.find_spec("ruff") is None:
        print(f"{sys.executable} has no ruff: run sim_scripts/test, or pip install -r tests/requirements.txt in it")
        return 1
    names = [str(path.relative_to(ROOT)) for path in files(".py")]
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", *names]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
