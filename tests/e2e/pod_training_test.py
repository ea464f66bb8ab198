"""The convnet example trains on v3_32, data parallel with a global batch of 800: `tpuboard train` beside JAX on 32 CPU
devices, which runs the same graph with operands of dots and convolutions rounded to bf16.

Each step sees all 800 examples, in an order that differs by step, which changes the rounding of the sums alone. The
losses must be equal within 1e-4 at first, and the last must be lower than the first: a run whose boards do not exchange
their gradients learns from a quarter of the batch. The network is a small variant of the example's.

--spread: `train` and `bench` with the boards in several processes have the losses, digest and cycles of one process;
`all`: each combination of processes, transport and host threads twice, 20 runs.

Usage: pod_training_test.py --bin DIR [--steps N] [--spread some|all]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=32"

import convnet_step_test as convnet
import jax_reference as reference
import pod_processes_test as processes_test

import jax
import numpy as np

BOARD, CORES, BATCH = "v3_32", 32, 800
SPREAD_STEPS = 2
FIRST, MOST_OFF, MOST_OFF_LATER = 8, 1e-4, 2e-2  # of the losses; later what relu decides has changed here and there

CONFIG = """
[program]
train = "{folder}/step.tpuexe"
[state]
seed = 1
init = [{leaves}]
[data]
images = "{folder}/images.npy"
labels = "{folder}/labels.npy"
split_seed = 7
eval_count = 0
[run]
batch = {batch}
epochs = {steps}
"""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: noise with a bright place that tells the class."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 10, BATCH).astype(np.int32)
    images = rng.random((BATCH, *convnet.IMAGE), dtype=np.float32)
    images[np.arange(BATCH), labels, labels] += 3
    return images, labels


def prepare(tools: Path, folder: Path, steps: int) -> tuple[jax.export.Exported, list[np.ndarray], list[np.ndarray]]:
    """The step, the first state and the batch; in the folder what trains it: a configuration, and step.tpuexe."""
    images, labels = digits()
    program = convnet.model.export_train_step(CORES, "cpu", shapes=convnet.SHAPES, image=convnet.IMAGE, batch=BATCH)
    state = convnet.first_state(convnet.SHAPES)
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
    (folder / "step.mlirbc").write_bytes(program.mlir_module_serialized)
    subprocess.run([tools / "tpuc", folder / "step.mlirbc", "--board", BOARD, "-o", folder / "step.tpuexe"], check=True)
    leaves = [folder / f"leaf{i}.npy" for i in range(len(state))]
    for path, leaf in zip(leaves, state, strict=True):
        np.save(path, leaf)
    (folder / "train.toml").write_text(CONFIG.format(
        folder=folder, leaves=", ".join(f'"file:{leaf}"' for leaf in leaves), batch=BATCH, steps=steps))
    return program, state, [images, labels]


def train(tools: Path, folder: Path, *options: str) -> dict:
    """run.json of the board's run."""
    subprocess.run([tools / "tpuboard", "train", folder / "train.toml", "--board", BOARD, "--out", folder / "out",
                    *options], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "out" / "run.json").read_text())


# What a spread training runs with: processes over shared memory or workers over TCP, and host threads of each.
SPREAD = (("local", 1, 1), ("local", 1, 8), ("local", 2, 1), ("local", 4, 1), ("local", 4, 8), ("tcp", 2, 1),
          ("tcp", 4, 1))
SPREAD_ALL = (*SPREAD, ("local", 2, 8), ("tcp", 2, 8), ("tcp", 4, 8)) * 2


def check_spread(tools: Path, folder: Path, runs: Sequence[tuple[str, int, int]]) -> list[str]:
    """What differs between runs whose boards are in 1, 2 and 4 processes."""
    prepare(tools, folder, SPREAD_STEPS)
    found = []
    for kind, count, threads in runs:
        if kind == "local":
            figures = train(tools, folder, "--processes", str(count), "--threads", str(threads))
        else:
            with processes_test.workers_of(tools, folder, BOARD, kind, count, "--threads", str(threads)) as connect:
                figures = train(tools, folder, *connect)
        found.append((f"{kind}, processes {count}, threads {threads}", figures))
    wrong = []
    _, expected = found[0]
    for run, figures in found:
        print(f"train {run}: {figures['sim_cycles']} cycles, {figures['digest']}, losses {figures['losses']}")
        if any(figures[key] != expected[key] or not expected[key] for key in ("sim_cycles", "digest", "losses")):
            wrong.append(f"train {run}: {figures['sim_cycles']} cycles, {figures['digest']}")
    times = {}
    for processes in (1, 4):
        subprocess.run([tools / "tpuboard", "bench", folder / "step.tpuexe", "--board", BOARD, "--launches", "3",
                        "--processes", str(processes), "--json", folder / "bench.json"], check=True,
                       stdout=subprocess.DEVNULL)
        times[processes] = json.loads((folder / "bench.json").read_text())["sim_us_per_launch"]["value"]
    print(f"bench: {times} us")
    return wrong if len(set(times.values())) == 1 else [*wrong, f"bench: {times} us"]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--spread", choices=("some", "all"), help="over processes, instead of beside JAX")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.spread:
            wrong = check_spread(args.bin, folder, SPREAD_ALL if args.spread == "all" else SPREAD)
            for problem in wrong:
                print(f"FAILED {problem}", file=sys.stderr)
            return 1 if wrong else 0
        program, state, batch = prepare(args.bin, folder, args.steps)
        run = train(args.bin, folder)
    ours = run["losses"]
    theirs = []
    step = reference.runner(program, round_dots=True)
    for _ in range(args.steps):
        *state, loss = step([*state, *batch])
        theirs.append(float(loss))
    print(f"board {ours}\nJAX   {theirs}")
    off = [abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)]
    good = max(off[:FIRST]) <= MOST_OFF and max(off) <= MOST_OFF_LATER and ours[-1] < ours[0]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
