"""The demo's training step on the board against JAX on the CPU.

Single steps from the same state after 0, 10 and 49 steps: every output within relative L2 1e-3 and the loss within
1e-4 of the same graph with dot operands rounded to bf16. The first step against plain f32: loss 0.5 %, weight
matrices 1 %. 50 free steps of `tpuboard train`: mean loss within 3 % of JAX's 50 steps on the same batches (whose
order is drawn anew here from the generator that docs/training.md describes).

The bounds come from measurements of a correct implementation: bf16 rounding alone moves single gradients by up to 4 %
and Adam flips the sign of near-zero bias updates, so trajectories drift apart; single steps from equal state do not.

Usage: train_step_test.py --bin DIR --data DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import distances
import jax_reference as reference
import philox

import jax
import numpy as np

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "mnist_mlp"
sys.path.insert(0, str(EXAMPLE))

import export as model  # noqa: E402, EXAMPLE is on the path
import optax  # noqa: E402

SPLIT_SEED, RUN_SEED, EVAL_COUNT = 7, 1, 1000
STEPS = 50


def exported_step() -> jax.export.Exported:
    """The example's training step, for the CPU."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: model.CORES]), ("data",))
    params = model.init_params(0)
    state = optax.adam(model.LEARNING_RATE).init(params)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (params, state))
    images = jax.ShapeDtypeStruct((model.BATCH, model.LAYERS[0]), np.float32)
    labels = jax.ShapeDtypeStruct((model.BATCH,), np.int32)
    return jax.export.export(jax.jit(model.make_train_step(mesh)), platforms=["cpu"])(*shapes, images, labels)


def batches(images: np.ndarray, labels: np.ndarray, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The batches that `tpuboard train` takes."""
    split = philox.permutation(SPLIT_SEED, philox.SPLIT, 0, len(labels))
    training = split[: len(labels) - EVAL_COUNT]
    result, epoch = [], 0
    while len(result) < count:
        order = philox.permutation(SPLIT_SEED, philox.EPOCH, epoch, len(training))
        for start in range(0, len(training) - model.BATCH + 1, model.BATCH):
            pick = [training[i] for i in order[start : start + model.BATCH]]
            result.append((images[pick], labels[pick]))
        epoch += 1
    return result[:count]


def board_step(tools: Path, exe: Path, folder: Path, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """One step on the board."""
    subprocess.run([str(tools / "tpuboard"), "run", str(exe), *reference.save_inputs(folder, arrays),
                    "--out-dir", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return [np.load(folder / f"{index}.npy") for index in range(len(arrays) - 1)]


def check(errors: list[str], what: str, value: float, bound: float) -> None:
    """Prints a figure and notes it when it is out of bounds."""
    print(f"{what}: {value:.3g} (at most {bound:g})")
    if not value <= bound:
        errors.append(what)


def check_single_steps(errors: list[str], tools: Path, exe: Path, folder: Path, program, state, data) -> list[float]:
    """Teacher-forced steps; returns JAX's losses of all steps (bf16 operands)."""
    losses = []
    on_cpu = reference.runner(program, round_dots=True)
    for step, (images, labels) in enumerate(data):
        arrays = [*state, images, labels]
        expected = on_cpu(arrays)
        if step in (0, 10, 49):
            ours = board_step(tools, exe, folder, arrays)
            gaps = [distances.relative_l2(a, b) for a, b in zip(ours[:-1], expected[:-1], strict=True)]
            check(errors, f"step {step}: largest relative L2 of {len(gaps)} outputs", max(gaps), 1e-3)
            check(errors, f"step {step}: loss", abs(float(ours[-1]) / float(expected[-1]) - 1), 1e-4)
        if step == 0:
            plain = reference.run(program, arrays, round_dots=False)
            check(errors, "first step against f32: loss", abs(float(ours[-1]) / float(plain[-1]) - 1), 5e-3)
            weights = [distances.relative_l2(ours[i], plain[i]) for i in (1, 3, 5)]
            check(errors, "first step against f32: weight matrices", max(weights), 1e-2)
        losses.append(float(expected[-1]))
        state = expected[:-1]
    return losses


def check_free_run(errors: list[str], tools: Path, exe: Path, folder: Path, state, data_dir: Path,
                   losses: list[float]) -> None:
    """`tpuboard train` for 50 steps from the same state."""
    init = []
    for index, leaf in enumerate(state):
        np.save(folder / f"leaf{index}.npy", leaf)
        init.append(f'"file:{folder / f"leaf{index}.npy"}"')
    config = folder / "train.toml"
    config.write_text(f"""
[program]
train = "{exe}"
[state]
seed = {RUN_SEED}
init = [{", ".join(init)}]
[data]
images = "{data_dir / "images.npy"}"
labels = "{data_dir / "labels.npy"}"
split_seed = {SPLIT_SEED}
eval_count = {EVAL_COUNT}
[run]
batch = {model.BATCH}
epochs = 100
""")
    subprocess.run([str(tools / "tpuboard"), "train", str(config), "--steps", str(STEPS), "--out", str(folder / "free"),
                    "--json", str(folder / "free.json")], check=True, stdout=subprocess.DEVNULL)
    ours = json.loads((folder / "free.json").read_text())["losses"]
    check(errors, "50 free steps: number of losses off", abs(len(ours) - STEPS), 0)
    check(errors, "50 free steps: mean loss", abs(float(np.mean(ours)) / float(np.mean(losses)) - 1), 0.03)
    check(errors, "50 free steps: first loss", abs(ours[0] / losses[0] - 1), 1e-4)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    images, labels = np.load(args.data / "images.npy"), np.load(args.data / "labels.npy")
    params = model.init_params(3)
    state = [np.asarray(leaf) for leaf in jax.tree.leaves((params, optax.adam(model.LEARNING_RATE).init(params)))]
    errors: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exe = folder / "train_step.tpuexe"
        subprocess.run([str(args.bin / "tpuc"), str(EXAMPLE / "train_step.mlirbc"), "-o", str(exe)], check=True)
        data = batches(images, labels, STEPS)
        losses = check_single_steps(errors, args.bin, exe, folder, exported_step(), state, data)
        check_free_run(errors, args.bin, exe, folder, state, args.data, losses)
    for error in errors:
        print(f"FAILED {error}", file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
