"""Training steps of the convnet example on the board against JAX on the CPU.

A small variant with odd sizes, on 8 cores and on 1, after 0 and 3 steps from the same state: every output within
relative L2 1e-3, the loss within 1e-4 of the same graph with operands of dots and convolutions rounded to bf16 (why
these bounds: train_step_test.py), with the checker for unsynchronised accesses on. --full: one step of the example.

Usage: convnet_step_test.py --bin DIR [--full --data DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import distances
import jax_reference as reference

import jax
import numpy as np

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "mnist_convnet"
sys.path.insert(0, str(EXAMPLE))

import export as model  # noqa: E402
import optax  # noqa: E402, EXAMPLE is on the path

IMAGE = (13, 12, 1)
SHAPES = model.weight_shapes(IMAGE, channels=(20, 24), dense=(33, 17, 10))
BATCH = 24
STEPS = (0, 3)


def check(errors: list[str], what: str, value: float, bound: float) -> None:
    """Prints a figure and notes it when it is out of bounds."""
    print(f"{what}: {value:.3g} (at most {bound:g})", flush=True)
    if not value <= bound:
        errors.append(what)


def first_state(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Leaves of the initial state."""
    params = model.init_params(3, shapes)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((params, optax.adam(model.LEARNING_RATE).init(params)))]


def board_step(tools: Path, exe: Path, folder: Path, arrays: list[np.ndarray], *options: str) -> list[np.ndarray]:
    """One step on the board."""
    subprocess.run([str(tools / "tpuboard"), "run", str(exe), *reference.save_inputs(folder, arrays),
                    "--out-dir", str(folder), *options], check=True, stdout=subprocess.DEVNULL)
    return [np.load(folder / f"{index}.npy") for index in range(len(arrays) - 1)]


def compare(errors: list[str], what: str, ours: list[np.ndarray], theirs: list[np.ndarray],
            bound: float = 1e-3) -> None:
    """All outputs of a step; the loss is the last one."""
    gaps = [distances.relative_l2(a, b) for a, b in zip(ours[:-1], theirs[:-1], strict=True)]
    worst = int(np.argmax(gaps))
    check(errors, f"{what}: largest relative L2 of {len(gaps)} outputs (number {worst})", gaps[worst], bound)
    check(errors, f"{what}: loss", abs(float(ours[-1]) / float(theirs[-1]) - 1), 1e-4)


def check_small(errors: list[str], tools: Path, folder: Path, cores: int) -> None:
    """Single steps from equal state."""
    rng = np.random.default_rng(cores)
    program = model.export_train_step(cores, "cpu", shapes=SHAPES, image=IMAGE, batch=BATCH)
    folder.mkdir()
    graph, exe = folder / "step.mlirbc", folder / "step.tpuexe"
    graph.write_bytes(program.mlir_module_serialized)
    subprocess.run([str(tools / "tpuc"), str(graph), "-o", str(exe)], check=True)
    state = first_state(SHAPES)
    on_cpu = reference.runner(program, round_dots=True)
    for step in range(max(STEPS) + 1):
        arrays = [*state, rng.random((BATCH, *IMAGE), dtype=np.float32), rng.integers(0, 10, BATCH).astype(np.int32)]
        theirs = on_cpu(arrays)
        if step in STEPS:
            compare(errors, f"{cores} cores, step {step}", board_step(tools, exe, folder, arrays, "--check"), theirs)
        state = theirs[:-1]


def adam_update(params: list[np.ndarray], mean: list[np.ndarray], square: list[np.ndarray]) -> list[np.ndarray]:
    """Parameters after Adam's first step, from the moments after it."""
    return [p - model.LEARNING_RATE * (m / (1 - 0.9)) / (np.sqrt(v / (1 - 0.999)) + 1e-8)
            for p, m, v in zip(params, mean, square, strict=True)]


def check_full(errors: list[str], tools: Path, folder: Path, data: Path) -> None:
    """The example's own graph of 8 cores against its function on one CPU device: the mean over the cores is the mean
    over the batch. Adam's first step is lr times the sign of the gradient: of 38 million gradients some are so near 0
    that the last bit decides. So the moments are compared with JAX, and the parameters with Adam from our moments.
    The second convolution makes 29 million values in front of its relu, with sums that differ by about 1e-6 of their
    size from JAX's order: some 50 of them change sign, and each decides over one of 15 million terms of all gradients
    in front of it, sqrt(50 / 15e6) = 0.002 of their norm. Hence 5e-3 for the moments here.
    """
    images = np.load(data / "images.npy")[: model.BATCH].reshape(model.BATCH, *model.IMAGE)
    labels = np.load(data / "labels.npy")[: model.BATCH]
    state = first_state(model.weight_shapes())
    arrays = [*state, images, labels]
    exe = folder / "train_step.tpuexe"
    subprocess.run([str(tools / "tpuc"), str(EXAMPLE / "train_step.mlirbc"), "-o", str(exe)], check=True)
    ours = board_step(tools, exe, folder, arrays)
    theirs = reference.run(model.export_train_step(1, "cpu"), arrays, round_dots=True)
    count = (len(state) - 1) // 3
    compare(errors, "the example's moments", ours[count + 1 :], theirs[count + 1 :], 5e-3)
    moments = [leaf.astype(np.float64) for leaf in ours[count + 1 : -1]]
    wanted = adam_update(state[:count], moments[:count], moments[count:])
    gap = max(distances.relative_l2(a, b) for a, b in zip(ours[:count], wanted, strict=True))
    check(errors, "the example's parameters: largest relative L2 to Adam of its moments", gap, 1e-5)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        if args.full:
            check_full(errors, args.bin, Path(name), args.data)
        else:
            for cores in (1, model.CORES):
                check_small(errors, args.bin, Path(name) / str(cores), cores)
    for error in errors:
        print(f"FAILED {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
