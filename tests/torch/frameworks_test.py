"""The same training step by JAX, Keras and PyTorch/XLA takes the same simulated time (benchmarks/frameworks.py).

Usage: frameworks_test.py --venv FOLDER --python FILE --library FILE
Exits with 77 (skipped) without the environment of PyTorch/XLA.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks/frameworks.py"
SKIPPED = 77
MOST = 0.05  # of the time with JAX
STEP = ("--layers", "784,1024,1024,10", "--batch", "1024", "--steps", "8", "--rounds", "3")


def main() -> int:
    """Prints the benchmark's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("venv", "python", "library"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    if not (options.venv / "bin/python").exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        done = subprocess.run([options.python, BENCHMARK, "--venv", options.venv, "--python", options.python,
                               "--library", options.library, *STEP, "--json", figures], check=False)
        if done.returncode != 0:
            return 1
        ratios = {name: each["simulated_ratio"] for name, each in json.loads(figures.read_text("utf-8")).items()}
    far = {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > MOST}
    if far:
        print(f"simulated time differs by more than {MOST:.0%} of JAX's: {far}")
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
