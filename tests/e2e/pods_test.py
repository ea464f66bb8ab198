"""The chips of a v3-8 as two boards of two chips (tests/data/boards/two_boards.toml) give the bits of one board, and
cycles that differ by the cut alone: a step of the perceptron of examples/mnist_mlp, of a small convnet, and every kind
of collective. The same on v3_32 with different numbers of host threads: equal bits and cycles.

Usage: pods_test.py --bin DIR --program NAME
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import determinism_test
import jax_reference as reference
import order_test

TWO_BOARDS = Path(__file__).resolve().parent.parent / "data" / "boards" / "two_boards.toml"
MOST_CYCLES = 0.025  # off by so much of one board's


def figures(tools: Path, folder: Path, board: str, graph: bytes, arrays: list, *options: str) -> dict:
    """The JSON figures of a program on a board."""
    program, exe = folder / "p.mlirbc", folder / "p.tpuexe"
    program.write_bytes(graph)
    subprocess.run([tools / "tpuc", program, "-o", exe, "--board", board], check=True)
    inputs = reference.save_inputs(folder, arrays)
    return determinism_test.figures(tools, exe, inputs, folder, ["--board", board, *options])


def bytes_over_the_cut(tools: Path, folder: Path) -> int:
    """Of a step of the program of figures() on the two boards, which are one above the other."""
    subprocess.run([tools / "tpuboard", "report", folder / "p.tpuexe", "--board", TWO_BOARDS, "--changes", "0",
                    "--json", folder / "report.json"], check=True, stdout=subprocess.DEVNULL)
    links = json.loads((folder / "report.json").read_text())["links"]
    return sum(link["bytes"] for link in links if link["axis"] == "y")


def check_two_boards(tools: Path, folder: Path, name: str) -> list[str]:
    """What differs between one board and two."""
    graph, arrays = order_test.PROGRAMS[name]()
    one = figures(tools, folder, "v3_8", graph, arrays)
    two = figures(tools, folder, str(TWO_BOARDS), graph, arrays)
    off = two["sim_cycles"] / one["sim_cycles"] - 1
    print(f"{name}: {one['sim_cycles']} cycles on one board, {two['sim_cycles']} on two: {off:+.2%}")
    crossed = bytes_over_the_cut(tools, folder)
    print(f"{name}: {crossed} bytes between the boards")
    wrong = [] if one["digest"] == two["digest"] else [f"{name}: other bits"]
    wrong += [] if crossed > 0 else [f"{name}: nothing was sent from board to board"]
    return wrong if abs(off) <= MOST_CYCLES else [*wrong, f"{name}: cycles off by {off:.2%}"]


def check_threads(tools: Path, folder: Path) -> list[str]:
    """A step on v3_32 whose bits or cycles depend on threads or on whether values are computed."""
    import boards_test  # noqa: PLC0415, has another example's module

    devices = subprocess.run([tools / "tpuboard", "devices", "--board", "v3_32"], check=True, capture_output=True,
                             text=True).stdout
    if "TPU:31  chip 15  core 1  coordinates (3,3)" not in devices:
        return [devices]
    bench = boards_test.Bench(tools, "v3_32", folder)
    program, arrays = boards_test.training_step(bench)
    runs = {options: figures(tools, folder, "v3_32", program.mlir_module_serialized, arrays, *options.split())
            for options in ("--threads 1", "--threads 3", "--threads 2 --check", "--no-data")}
    cycles = {run["sim_cycles"] for run in runs.values()}
    digests = {run["digest"] for options, run in runs.items() if options != "--no-data"}
    print(f"v3_32: cycles {cycles}, digests {digests}")
    return [] if len(cycles) == len(digests) == 1 else [f"v3_32: cycles {cycles}, digests {digests}"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--program", choices=[*order_test.PROGRAMS, "v3_32"], required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        wrong = (check_threads(args.bin, Path(name)) if args.program == "v3_32"
                 else check_two_boards(args.bin, Path(name), args.program))
    for problem in wrong:
        print(f"FAILED {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
