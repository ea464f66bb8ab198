"""What the places in the model where faults can happen cost: processor time of a step of examples/mnist_convnet,
without a fault file, and with one whose fault never comes, in turns. Without a file there is less of this: one test
finds that there are no faults. The steps are timing only, so that no arithmetic hides the cost.

Usage: fault_cost.py --bin BUILD/bin [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEP = Path(__file__).resolve().parents[1] / "examples/mnist_convnet/train_step.mlirbc"
LAUNCHES = 4
NEVER = '[[fault]]\nkind = "hbm"\nwhere = "core 0"\nat = "cycle 4000000000000"\n'


def seconds(command: list) -> float:
    """Processor time of a command, without that of the system."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main() -> int:
    """Prints both times and their ratio; 1 where cycles differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"without": [], "with": []}
    cycles = set()
    with tempfile.TemporaryDirectory(prefix="tpuboard_fault_cost_") as name:
        folder = Path(name)
        exe, figures, faults = folder / "p.tpuexe", folder / "figures.json", folder / "faults.toml"
        subprocess.run([options.bin / "tpuc", STEP, "-o", exe], check=True)
        faults.write_text(NEVER)
        command = [options.bin / "tpuboard", "run", exe, "--no-data", "--launches", str(LAUNCHES), "--threads", "1",
                   "--json", figures]
        for _ in range(options.rounds):
            for kind, more in (("without", []), ("with", ["--faults", faults, "--fault-log", folder / "log.txt"])):
                times[kind].append(seconds([*command, *more]))
                cycles.add(json.loads(figures.read_text())["sim_cycles"])
    ratio = statistics.median(b / a for a, b in zip(times["without"], times["with"], strict=True))
    for kind, each in times.items():
        print(f"{kind} a fault file: {min(each):.3f} s at least, median {statistics.median(each):.3f} s")
    print(f"{options.rounds} rounds: median of the ratios {100 * (ratio - 1):+.1f} %, cycles {cycles}")
    return 0 if len(cycles) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
