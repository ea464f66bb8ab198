"""The same training step by JAX, Keras and PyTorch/XLA takes the same simulated time (benchmarks/frameworks.py).

Usage: frameworks_test.py --venv FOLDER --python FILE --library FILE
Exits with 77 (skipped) without the environment of PyTorch/XLA.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))

import framework_times  # noqa: E402

SKIPPED = 77
MOST = 0.05  # of the time with JAX
STEP = ("--layers", "784,1024,1024,10", "--batch", "1024", "--steps", "8")


def main() -> int:
    """Prints the benchmark's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "python", "library"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    if not (options.venv / "bin/python").exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return SKIPPED
    return framework_times.compare(options.python, ["--venv", options.venv, "--library", options.library, *STEP], MOST)


if __name__ == "__main__":
    sys.exit(main())
