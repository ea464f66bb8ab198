"""The chips of a v3-8 as two boards of two chips (tests/data/boards/two_boards.toml) give the bits of one board, and
cycles that differ by the cut alone: a step of the perceptron of examples/mnist_mlp, of a small convnet, and every kind
of collective. The same on v3_32 with different numbers of host threads: equal bits and cycles. Sums on v3_32 have the
documented order, which is that of one board with as many chips.

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

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "golden"))

import orders  # noqa: E402, the path is set above

TWO_BOARDS = TESTS / "data" / "boards" / "two_boards.toml"
# By cores (4 x 4 chips, 4 x 8) masks by stage: of first halves, of second halves (docs/adr/0107-dimensions-in-turn.md).
IN_TURN = {32: ((1, 2, 8, 4, 16), (1, 8, 2, 16, 4)), 64: ((1, 2, 8, 4, 16, 32), (1, 8, 2, 16, 4, 32))}
COUNT = 300_001  # numbers of a sum
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


def by_masks(masks: tuple[int, ...]) -> orders.Order:
    """Sums of all cores, stage by stage."""

    def order(values: np.ndarray, members: list[int]) -> np.ndarray:
        sums = [values[m] for m in members]
        for mask in masks:
            sums = [orders.add(sums[m], sums[m ^ mask]) for m in members]
        return sums[0]

    return order


def check_order(tools: Path, folder: Path) -> list[str]:
    """Sums on pods, and on one board of as many chips, that do not have the documented order."""
    import boards_test  # noqa: PLC0415, sets the number of JAX's devices
    import case_runner  # noqa: PLC0415, needs it

    from jax import lax  # noqa: PLC0415, needs it

    wrong = []
    for cores, boards, vmem_kib in ((32, ("v3_32", "thirty_two_cores"), 16384),
                                    (64, ("eight_boards", "sixty_four_cores"), 1024)):
        orders.PIECE_BYTES = vmem_kib * 1024 // 32  # two pieces; 36, which go in phases
        values = np.random.default_rng(3).normal(size=(cores, COUNT)).astype(np.float32)
        program = case_runner.export(lambda v: lax.psum(v, "d"), (values,), {"d": cores})
        first, second = (by_masks(masks) for masks in IN_TURN[cores])
        [expected] = orders.all_reduce([values], [range(cores)], first, second)
        [other] = orders.all_reduce([values], [range(cores)], second, first)
        if (expected == other).all():
            wrong.append("the values do not show their order")
        change = ["--set", f"core.vmem_kib={vmem_kib}"]
        for board in boards:
            [ours] = boards_test.Bench(tools, board, folder).run(program, [values], *change, tpuc_options=change)
            different = np.count_nonzero(ours.reshape(-1)[:COUNT] != expected[0])
            print(f"{board}: {different} sums in another order")
            if different != 0:
                wrong.append(f"{board}: {different} sums are not in the documented order")
    return wrong


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
        wrong = (check_threads(args.bin, Path(name)) + check_order(args.bin, Path(name)) if args.program == "v3_32"
                 else check_two_boards(args.bin, Path(name), args.program))
    for problem in wrong:
        print(f"FAILED {problem}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
