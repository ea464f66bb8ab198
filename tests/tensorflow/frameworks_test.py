"""The guide's convnet takes the same simulated time by Keras on TensorFlow and on JAX (benchmarks/frameworks.py).

Usage: frameworks_test.py --venv FOLDER --lowering LIBRARY --python FILE --library FILE
--venv: TensorFlow's environment; --python: that of JAX. Exits with 77 (skipped) without TensorFlow.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import run

sys.path.insert(0, str(run.ROOT / "tests/support"))

import framework_times  # noqa: E402

MOST = 0.05  # of the time with JAX
# With fewer filters what happens once an epoch is more than that: metrics are set to zero and read, array by array.
STEP = ("--convnet", "64", "--batch", "64", "--optimizer", "adam", "--steps", "12")


def main() -> int:
    """Prints the benchmark's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "lowering", "python", "library"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    run.check_environment(options.venv, options.lowering, None)
    return framework_times.compare(options.python, ["--frameworks", "keras,tensorflow", "--tf-venv", options.venv,
                                                    "--library", options.library, *STEP], MOST)


if __name__ == "__main__":
    sys.exit(main())
