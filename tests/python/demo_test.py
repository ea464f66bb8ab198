"""sim_scripts/demo_jax with a built library: both loss curves are there, and agree within 2 %.

Usage: demo_test.py --build FOLDER --work FOLDER --example NAME; by the Python that has JAX.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Runs two short epochs of one example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--example", required=True)
    options = parser.parse_args()
    command = [sys.executable, str(ROOT / "sim_scripts/demo_jax"), "--python", sys.executable, "--build-dir",
               options.build, "--only", options.example, "--digits", "800", "--epochs", "2",
               "--out", str(options.work / options.example)]
    environment = os.environ | {"TPUBOARD_CACHE": "off"}
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment)
    print(done.stdout)
    if done.returncode != 0:  # demo_jax has said why
        return 1
    losses = [(float(board), float(cpu)) for board, cpu in re.findall(r"^ +\d+ +(\d\S+) +(\d\S+)$", done.stdout, re.M)]
    assert len(losses) == 2 and losses[1][0] < losses[0][0], losses
    assert all(abs(board / cpu - 1) < 0.02 for board, cpu in losses), losses
    assert "(cores: 8)" in done.stdout
    assert float(re.search(r"simulated time (\S+) ms", done.stdout)[1]) > 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
