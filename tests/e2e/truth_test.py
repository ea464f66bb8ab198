"""benchmarks/truth.py on a small network: its error, classes that sum to the step, and clear words for what it refuses.

Usage: truth_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TRUTH = Path(__file__).resolve().parent.parent.parent / "benchmarks/truth.py"
SMALL = "paradnn-L32-N1024-B1024"
CLOSES = 1e-3  # of a step
ERROR = 12  # percent, the bar of docs/timing_truth.md


def truth(*options: str | Path) -> subprocess.CompletedProcess:
    """A run of the script."""
    return subprocess.run([sys.executable, TRUTH, *options], capture_output=True, text=True, check=False)


def check_step(tools: Path, out: Path) -> None:
    """A measured network in both styles."""
    figures = out / "figures.json"
    done = truth("--bin", tools, "--out", out, "--only", SMALL, "--style", "xla2019", "--style", "best", "--json",
                 figures)
    assert done.returncode == 0, done.stderr
    xla, best = json.loads(figures.read_text(encoding="utf-8"))
    for row in (xla, best):
        total = sum(row["split_ms"].values())
        assert abs(total / row["simulated_ms"] - 1) < CLOSES, f"{row['style']}: {total} of {row['simulated_ms']} ms"
    assert abs(xla["error"]) < ERROR, xla["error"]
    assert best["simulated_ms"] < xla["simulated_ms"], "the best style is not faster"


def check_refused(tools: Path, out: Path) -> None:
    """What it says without a traceback."""
    good = ("--bin", tools, "--out", out)
    for options, code, text in (((*good, "--style", "xla2018"), 2, "invalid choice: 'xla2018'"),
                                ((*good, "--only", "alexnet"), 1, "no network has a name like alexnet"),
                                (("--bin", out / "none", "--out", out), 1, "there is no tpuc"),
                                ((*good, "--only", SMALL, "--set", "hbm.gbps=1"), 1, "unknown key hbm.gbps")):
        done = truth(*options)
        assert done.returncode == code and text in done.stderr, f"{options}: {done.returncode}: {done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_step(args.bin, Path(folder))
        check_refused(args.bin, Path(folder))


if __name__ == "__main__":
    main()
