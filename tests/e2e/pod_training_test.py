"""The convnet example trains on v3_32, data parallel with a global batch of 800: `tpuboard train` beside JAX on 32 CPU
devices, which runs the same graph with operands of dots and convolutions rounded to bf16.

Each step sees all 800 examples, in an order that differs by step, which changes the rounding of the sums alone. The
losses must be equal within 1e-4 at first, and the last must be lower than the first: a run whose boards do not exchange
their gradients learns from a quarter of the batch. The network is a small variant of the example's.

Usage: pod_training_test.py --bin DIR [--steps N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=32"

import convnet_step_test as convnet
import jax_reference as reference

import numpy as np

BOARD, CORES, BATCH = "v3_32", 32, 800
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


def train(tools: Path, folder: Path, graph: bytes, state: list[np.ndarray], steps: int) -> dict:
    """run.json of the board's run."""
    (folder / "step.mlirbc").write_bytes(graph)
    subprocess.run([tools / "tpuc", folder / "step.mlirbc", "--board", BOARD, "-o", folder / "step.tpuexe"], check=True)
    leaves = [folder / f"leaf{i}.npy" for i in range(len(state))]
    for path, leaf in zip(leaves, state, strict=True):
        np.save(path, leaf)
    config = folder / "train.toml"
    config.write_text(CONFIG.format(folder=folder, leaves=", ".join(f'"file:{leaf}"' for leaf in leaves), batch=BATCH,
                                    steps=steps))
    subprocess.run([tools / "tpuboard", "train", config, "--board", BOARD, "--out", folder / "out"], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads((folder / "out" / "run.json").read_text())


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    images, labels = digits()
    program = convnet.model.export_train_step(CORES, "cpu", shapes=convnet.SHAPES, image=convnet.IMAGE, batch=BATCH)
    state = convnet.first_state(convnet.SHAPES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "images.npy", images)
        np.save(folder / "labels.npy", labels)
        run = train(args.bin, folder, program.mlir_module_serialized, state, args.steps)
    ours = run["losses"]
    theirs = []
    step = reference.runner(program, round_dots=True)
    for _ in range(args.steps):
        *state, loss = step([*state, images, labels])
        theirs.append(float(loss))
    print(f"board {ours}\nJAX   {theirs}")
    off = [abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)]
    good = max(off[:FIRST]) <= MOST_OFF and max(off) <= MOST_OFF_LATER and ours[-1] < ours[0]
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
