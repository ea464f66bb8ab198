"""The cycles and bytes that tpuc estimates are those of the simulated board.

Compiles the programs of tests/data, tests/golden and examples, runs each without data and compares the estimate of the
executable with the core that ran longest (sim_cycles_per_core); programs of one core also on a board with four matrix
units, those of several also in style xla2019. Bars: one core 0.5 %, all cores 5 %; bytes of HBM and links
(Executable::cost()) are equal to the counters of core 0. Left out are the programs that the board refuses to run
without data, since data decide what they do (fault NO_DATA); their list is part of the test.
Usage: estimate_test.py --bin DIR [PROGRAM ...]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("tests/data", "tests/golden/graphs", "examples")
ONE_CORE_PERCENT, ALL_CORES_PERCENT = 0.5, 5.0
NEEDS_DATA = re.compile("timing-only run")
DATA_DECIDE = {"tests/data/control.mlirbc"}
ASKS = {"own_partitioning"}  # a framework that partitions it, which tpuc has not
BYTES = ("hbm_read_bytes", "hbm_written_bytes", "link_bytes")
MORE_UNITS = ROOT / "tests/data/boards/four_mxus.toml"


def programs() -> list[Path]:
    """Every graph of the folders that tpuc takes."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.mlirbc"))]
    return [path for path in found if not path.name.startswith("bad_") and path.stem not in ASKS]


def compare(tools: Path, graph: Path, board: str = "v3_8",
            style: str = "best") -> tuple[str, int, int, int, list[str]] | None:
    """Name, cores, estimated and simulated cycles, bytes that differ; None if the program needs data."""
    with tempfile.TemporaryDirectory() as folder:
        exe, figures = Path(folder) / "program.tpuexe", Path(folder) / "figures.json"
        done = subprocess.run([str(tools / "tpuc"), str(graph), "-o", str(exe), "-v", "--board", board,
                               "--style", style], check=True, capture_output=True, text=True)
        estimate = re.search(r"about (\d+) cycles", done.stdout + done.stderr)
        if estimate is None:
            raise SystemExit(f"tpuc -v printed no estimate for {graph}: {done.stderr}")
        run = subprocess.run([str(tools / "tpuboard"), "run", str(exe), "--no-data", "--json", str(figures),
                              "--board", board], check=False, capture_output=True, text=True)
        if run.returncode != 0:
            if NEEDS_DATA.search(run.stderr):
                return None
            raise SystemExit(f"{graph}: {run.stderr}")
        ran = json.loads(figures.read_text())
        cycles = ran["sim_cycles_per_core"]
        listed = subprocess.run([str(tools / "tpuboard"), "objdump", str(exe), "--json", "-"], check=True,
                                capture_output=True, text=True)
        cost = json.loads(listed.stdout)["cost"]
        differ = [f"{key}: {cost[key]} estimated, {ran[key + '_per_core'][0]} counted" for key in BYTES
                  if cost[key] != ran[key + "_per_core"][0]]
    name = str(graph.relative_to(ROOT) if graph.is_relative_to(ROOT) else graph)
    return name, len(cycles), int(estimate[1]), max(cycles), differ


def main() -> int:
    """Prints the programs beyond the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("program", type=Path, nargs="*")
    args = parser.parse_args()
    graphs = args.program or programs()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = dict(zip(graphs, pool.map(lambda graph: compare(args.bin, graph.resolve()), graphs), strict=True))
        compared = [result for result in results.values() if result is not None]
        alone = [graph for graph, result in results.items() if result is not None and result[1] == 1]
        more = pool.map(lambda graph: compare(args.bin, graph.resolve(), str(MORE_UNITS)), alone)
        compared += [result for result in more if result is not None]
        beside = [graph for graph, result in results.items() if result is not None and result[1] > 1]
        styled = pool.map(lambda graph: compare(args.bin, graph.resolve(), style="xla2019"), beside)
        compared += [result for result in styled if result is not None]
    bad = 0
    for name, cores, estimate, simulated, differ in compared:
        error = 100 * abs(estimate - simulated) / simulated
        if error > (ONE_CORE_PERCENT if cores == 1 else ALL_CORES_PERCENT):
            print(f"{name}: estimated {estimate} cycles, simulated {simulated} ({error:.2f} % off) on {cores} cores")
            bad += 1
        for text in differ:
            print(f"{name}: {text}")
        bad += bool(differ)
    exact = sum(estimate == simulated for _, _, estimate, simulated, _ in compared)
    print(f"{len(compared)} runs compared, {exact} equal, {bad} beyond the bar")
    if args.program:
        return 1 if bad else 0
    left_out = {str(graph.relative_to(ROOT)) for graph, result in results.items() if result is None}
    for name in sorted(left_out ^ DATA_DECIDE):
        print(f"{name}: {'left out: the board wants data' if name in left_out else 'is listed, but needs no data'}")
    return 1 if bad or left_out != DATA_DECIDE or not alone else 0


if __name__ == "__main__":
    sys.exit(main())
