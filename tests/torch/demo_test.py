"""sim_scripts/demo_torch with a built library: the curves of one core and of eight agree with the CPU's within 2 %.

Usage: demo_test.py --venv FOLDER --build FOLDER --work FOLDER. Exits with 77 (skipped) without an environment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import demo_setup  # noqa: E402

SKIPPED = 77


def check_order() -> None:
    """Debian packages come before the environment, which needs python3-venv and g++."""
    demo_setup.check_calls("demo_torch", "LIBRARY", {
        (): ["setup", "torch_venv", "cmake"], ("--venv", "x"): ["setup", "cmake"],
        ("--build-dir", "x"): ["setup", "torch_venv"]})


def main() -> int:
    """Runs twenty steps."""
    check_order()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("venv", "build", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    if not (options.venv / "bin/python").exists():
        print(f"skipped: {options.venv} has no PyTorch/XLA; make it with sim_scripts/torch_venv")
        return SKIPPED
    done = subprocess.run([sys.executable, ROOT / "sim_scripts/demo_torch", "--venv", options.venv, "--build-dir",
                           options.build, "--steps", "20", "--out", options.work], check=False, stdout=subprocess.PIPE,
                          text=True)
    print(done.stdout)
    if done.returncode != 0:  # demo_torch has said why
        return 1
    rows = [tuple(map(float, row)) for row in re.findall(r"^ +\d+ +(\d\S+) +(\d\S+) +(\d\S+)$", done.stdout, re.M)]
    assert len(rows) == 2 and rows[1][0] < 0.9 * rows[0][0], rows
    assert all(abs(board / row[0] - 1) < 0.02 for row in rows for board in row[1:]), rows
    times = [float(time) for time in re.findall(r"simulated time (\S+) ms", done.stdout)]
    assert len(times) == 2 and 0 < times[1] < times[0], times
    return 0


if __name__ == "__main__":
    sys.exit(main())
