"""sim_scripts/demo_tf with built libraries: both loss curves fall, and agree within 2 %.

Usage: demo_test.py --venv FOLDER --build FOLDER --lowering LIBRARY --work FOLDER. Exits with 77 (skipped) without an
environment.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import run

sys.path.insert(0, str(run.ROOT / "tests/support"))

import demo_setup  # noqa: E402


def check_order() -> None:
    """The environment comes before the build, which needs its headers."""
    demo_setup.check_calls("demo_tf", "PLUGIN", {
        (): ["setup", "tensorflow_venv", "cmake", "cmake"], ("--venv", "x"): ["setup", "cmake", "cmake"],
        ("--build-dir", "x"): ["setup", "tensorflow_venv"]})


def main() -> int:
    """Runs two epochs of a small network."""
    check_order()
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("venv", "build", "lowering", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    run.check_environment(options.venv, options.lowering, None)
    done = subprocess.run([sys.executable, run.ROOT / "sim_scripts/demo_tf", "--venv", options.venv, "--build-dir",
                           options.build, "--epochs", "2", "--small", "--out", options.work], check=False,
                          stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    if done.returncode != 0:  # demo_tf has said why
        return 1
    rows = [tuple(map(float, row)) for row in re.findall(r"^ +\d+ +(\d\S+) +(\d\S+)$", done.stdout, re.M)]
    assert len(rows) == 2 and rows[1][0] < 0.9 * rows[0][0], rows
    assert all(abs(board / cpu - 1) < 0.02 for board, cpu in rows), rows
    time = re.search(r"simulated time (\S+) ms", done.stdout)
    assert time is not None and float(time[1]) > 0, done.stdout
    return 0


if __name__ == "__main__":
    sys.exit(main())
