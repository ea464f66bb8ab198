"""What looking at a run costs: processor time of `tpuboard bench` with a view of the board and without, in turns.

Each round runs the program once without a view and once with each; the time of the process and of its helper counts,
less that of a run of one launch with the same view, so that opening the board and the file is left out. Printed: the
median over the rounds of the ratio within a round, and the lowest and the highest. `plain` is the same run again, and
says what the ratios are worth on this host.

Usage: probe_cost.py --bin BUILD/bin [--program PROGRAM] [--launches N] [--rounds N] [--with-data] [VIEW ..]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

STEP = Path(__file__).resolve().parent.parent / "examples" / "mnist_convnet" / "train_step.mlirbc"


def views(folder: Path, launches: int) -> dict[str, list[str]]:
    """Options of each."""
    steps = f"0..{launches - 1}"
    return {
        "plain": [],
        "waves": ["--waves", f"{folder}/w.fst", "--waves-steps", steps, "--waves-scope", "board.chip0.core0"],
        "waves-all": ["--waves", f"{folder}/w.fst", "--waves-steps", steps],
        "timeline": ["--timeline", f"{folder}/t.pftrace"],
        "xprof": ["--xprof", f"{folder}/x"],
        "check": ["--check"],
    }


def seconds(words: list[str]) -> float:
    """Processor time of the process and of those that it has waited for."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, use = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: ended with {process.returncode}")
    return use.ru_utime + use.ru_stime


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("view", nargs="*", help="default: all")
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--program", type=Path, default=STEP)
    parser.add_argument("--launches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--with-data", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "step.tpuexe"
        if arguments.program.suffix == ".tpuexe":
            program = arguments.program
        else:
            subprocess.run([arguments.bin / "tpuc", arguments.program, "-o", program], check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        data = ["--with-data"] if arguments.with_data else []

        def run(launches: int, options: list[str]) -> float:
            return seconds([str(arguments.bin / "tpuboard"), "bench", str(program), "--threads", "1", "--launches",
                            str(launches), *data, *options])  # fmt: skip

        known = views(folder, arguments.launches)
        unknown = set(arguments.view) - set(known)
        if unknown:
            raise SystemExit(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
        ratios: dict[str, list[float]] = {view: [] for view in arguments.view or known}
        for _ in range(arguments.rounds):
            base = run(arguments.launches, []) - run(1, [])
            for view, each in ratios.items():
                each.append((run(arguments.launches, known[view]) - run(1, known[view])) / base)
        for view, each in ratios.items():
            print(f"{view:<10}{statistics.median(each):6.2f} x   {min(each):.2f} .. {max(each):.2f}")


if __name__ == "__main__":
    main()
