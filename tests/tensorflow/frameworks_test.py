"""The guide's convnet takes the same simulated time by Keras on TensorFlow and on JAX (benchmarks/frameworks.py).

Usage: frameworks_test.py --venv FOLDER --lowering LIBRARY --python FILE --library FILE
--venv: TensorFlow's environment; --python: that of JAX. Exits with 77 (skipped) without TensorFlow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import run

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks/frameworks.py"
MOST = 0.05  # of the time with JAX
# With fewer filters what happens once an epoch is more than that: metrics are set to zero and read, array by array.
STEP = ("--convnet", "64", "--batch", "64", "--optimizer", "adam", "--steps", "12", "--rounds", "3")


def main() -> int:
    """Prints the benchmark's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "lowering", "python", "library"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    run.check_environment(options.venv, options.lowering, None)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        done = subprocess.run([options.python, BENCHMARK, "--frameworks", "keras,tensorflow",
                               "--tf-venv", options.venv, "--python", options.python, "--library", options.library,
                               *STEP, "--json", figures], check=False)
        if done.returncode != 0:
            return 1
        ratios = {name: each["simulated_ratio"] for name, each in json.loads(figures.read_text("utf-8")).items()}
    far = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > MOST}
    if far:
        print(f"simulated time differs by more than {MOST:.0%} of that with JAX: {far}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
