"""`tpuboard train` with a sharded update against a plain one: losses, evaluations and checkpoints are equal to the bit.

The eval program takes all leaves of the state, the moments too, and its result depends on every one; it runs after
every epoch, so that state which its owners keep is put together and goes on. A second run starts from the first one's
checkpoint. A run that is cut in the middle of an epoch and resumed, by the other kind of program too, ends as one that
was not.

Usage: sharded_training_test.py --bin DIR
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import case_runner
import safetensors_file
import train_cases

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

CASE = train_cases.TrainCase("adam", layers=(131, 1103, 10), batch=2, optimizer="adam")
CORES, EPOCHS, EXAMPLES, EVAL = 8, 2, 48, 16  # two steps an epoch

CONFIG = """
[program]
train = "{exe}"
eval = "{folder}/eval.tpuexe"
[state]
seed = 1
init = [{leaves}]
[data]
images = "{folder}/images.npy"
labels = "{folder}/labels.npy"
split_seed = 7
eval_count = {eval}
[run]
batch = {batch}
epochs = {epochs}
eval_every = 1
checkpoint = "checkpoint"
"""


def evaluate(leaves: list, images: jax.Array, labels: jax.Array, mask: jax.Array) -> jax.Array:
    """In place of the number of right examples, one that depends on every element of the state."""
    examples = lax.psum(jnp.sum(mask) + 0 * jnp.sum(images) + 0 * jnp.sum(labels), "data")
    return examples + sum(jnp.sum(jnp.abs(leaf).astype(jnp.float32) * (i + 1)) for i, leaf in enumerate(leaves))


def compile_programs(tools: Path, folder: Path) -> list[np.ndarray]:
    """Writes off.tpuexe, on.tpuexe, eval.tpuexe and the data; the leaves of the first state."""
    function, arguments = CASE.build()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments[:2])]
    (folder / "train.mlirbc").write_bytes(case_runner.export(function, arguments, donate=(0, 1)).mlir_module_serialized)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    sharded = jax.shard_map(evaluate, mesh=mesh, in_specs=(P(), P("data"), P("data"), P("data")), out_specs=P(),
                            check_vma=False)
    batch = arguments[2:] + (np.ones(CASE.batch * CORES, np.float32),)
    (folder / "eval.mlirbc").write_bytes(case_runner.export(sharded, (leaves, *batch)).mlir_module_serialized)
    for name, mode in (("eval", "auto"), ("off", "off"), ("on", "on")):
        graph = folder / ("eval.mlirbc" if name == "eval" else "train.mlirbc")
        text = subprocess.run([tools / "tpuc", graph, "-o", folder / f"{name}.tpuexe", "-v",
                               f"--update-sharding={mode}"],
                              check=True, capture_output=True, text=True).stdout
        assert ("gradient bytes" in text) == (name == "on"), text
    random = np.random.default_rng(1)
    np.save(folder / "images.npy", random.normal(size=(EXAMPLES, CASE.layers[0])).astype(np.float32))
    np.save(folder / "labels.npy", random.integers(0, CASE.layers[-1], EXAMPLES).astype(np.int32))
    return leaves


def final_state(out: Path, leaves: int, step: int) -> list[np.ndarray]:
    """State leaves of the last checkpoint of a run."""
    tensors, metadata = safetensors_file.load(out / "checkpoint" / f"step{step}.safetensors")
    assert metadata["step"] == str(step) and len(tensors) == leaves + 1, (metadata, tensors.keys())
    return [tensors[f"state.{i}"] for i in range(leaves)]


def train(tools: Path, folder: Path, mode: str, leaves: list[Path], out: Path, *options: str) -> dict:
    """One run; what must be the same for every mode."""
    config = folder / f"{out.name}.toml"
    config.write_text(CONFIG.format(exe=folder / f"{mode}.tpuexe", folder=folder,
                                    leaves=", ".join(f'"file:{leaf}"' for leaf in leaves),
                                    eval=EVAL, batch=CASE.batch * CORES, epochs=EPOCHS))
    subprocess.run([tools / "tpuboard", "train", config, "--out", out, "--check", *options], check=True,
                   stdout=subprocess.DEVNULL)
    report = json.loads((out / "run.json").read_text())
    state = final_state(out, len(leaves), report["steps"])
    return {"losses": report["losses"], "evaluations": report["epochs"], "accuracy": report["test_accuracy"],
            "state": [leaf.tobytes() for leaf in state]}


def same(tools: Path, folder: Path) -> str | None:
    """Text of a difference between the modes, or None."""
    leaves = []
    for i, leaf in enumerate(compile_programs(tools, folder)):
        leaves.append(folder / f"leaf{i}.npy")
        np.save(leaves[-1], leaf)
    previous = {"off": leaves, "on": leaves}
    seen = []
    for run in ("first", "resumed"):
        results = {mode: train(tools, folder, mode, previous[mode], folder / f"{run}_{mode}") for mode in previous}
        for mode in previous:
            previous[mode] = [folder / f"{run}_{mode}_{i}.npy" for i in range(len(leaves))]
            for path, leaf in zip(previous[mode],
                                  final_state(folder / f"{run}_{mode}", len(leaves), len(results[mode]["losses"])),
                                  strict=True):
                np.save(path, leaf)
        off, on = results["off"], results["on"]
        different = [key for key in off if off[key] != on[key]]
        seen += [epoch["test_accuracy"] for epoch in on["evaluations"]]
        if different or len(off["losses"]) != EPOCHS * (EXAMPLES - EVAL) // (CASE.batch * CORES) or not off["state"]:
            return (f"{run} run: {different} differ; {off['losses']}, {on['losses']}; {off['evaluations']}, "
                    f"{on['evaluations']}")
        if run == "first":
            for begin, end in (("on", "on"), ("on", "off"), ("off", "on")):
                out = folder / f"cut_{begin}_{end}"
                train(tools, folder, begin, leaves, out, "--steps", "3")
                again = train(tools, folder, end, leaves, out, "--resume")
                different = [key for key in on if again[key] != on[key]]
                if different:
                    return f"cut with {begin}, resumed with {end}: {different} differ"
    return None if len(set(seen)) == 2 * EPOCHS else f"evaluations of different states are equal: {seen}"


if __name__ == "__main__":
    sys.exit(case_runner.run_all([same], case_runner.parser(__doc__).parse_args(), lambda test, tools,
                                 folder: test(tools, folder),
                                 lambda test: test.__name__))
