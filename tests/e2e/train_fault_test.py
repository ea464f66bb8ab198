"""A training run whose sixth step never ends: the state of that step is lost, the checkpoint before it stands, is named
by the message, and a run with a mended program goes on from there as one that never failed.

Usage: train_fault_test.py --bin DIR
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

BATCH, PIXELS, BAD_STEP, STEPS = 8, 4, 5, 8

CONFIG = """
[program]
train = "{folder}/{program}.mlirbc"
[state]
seed = 1
init = ["zeros", "he_normal"]
[data]
images = "{folder}/images.npy"
labels = "{folder}/labels.npy"
split_seed = 7
eval_count = 0
classes = 3
[run]
batch = 8
epochs = 4
checkpoint = "checkpoint"
"""


def step(count: jax.Array, weights: jax.Array, images: jax.Array, labels: jax.Array) -> tuple:
    """One step of a linear model."""
    def loss_of(weights: jax.Array) -> jax.Array:
        return jnp.mean((images @ weights - labels.astype(jnp.float32)) ** 2)
    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return count + 1.0, weights - 0.1 * gradient, loss


def endless_step(count: jax.Array, *rest: jax.Array) -> tuple:
    """The same with a loop that does not end in step BAD_STEP."""
    endless = lax.while_loop(lambda x: x < 1e6, lambda x: jnp.where(count == BAD_STEP, x * 1.0, x + 1e6),
                             jnp.float32(0))
    new, weights, loss = step(count, *rest)
    return new + 0.0 * endless, weights, loss


def train(tools: Path, folder: Path, program: str, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    """One run of tpuboard."""
    config = folder / f"{program}.toml"
    config.write_text(CONFIG.format(folder=folder, program=program))
    return subprocess.run([tools / "tpuboard", "train", config, "--out", folder / out, "--set", "mgmt.watchdog_us=50",
                           *options],
                          capture_output=True, text=True, check=False)


def goes_on(tools: Path, folder: Path) -> str | None:
    """Text of what is wrong, or None."""
    random = np.random.default_rng(1)
    np.save(folder / "images.npy", random.normal(size=(2 * BATCH, PIXELS)).astype(np.float32))
    np.save(folder / "labels.npy", random.integers(0, 3, 2 * BATCH).astype(np.int32))
    arguments = (np.float32(0), np.zeros(PIXELS, np.float32), np.zeros((BATCH, PIXELS), np.float32),
                 np.zeros(BATCH, np.int32))
    for name, function in (("good", step), ("endless", endless_step)):
        (folder / f"{name}.mlirbc").write_bytes(case_runner.export(function, arguments,
                                                                   donate=(0, 1)).mlir_module_serialized)
    bare = train(tools, folder, "endless", "bare")
    if bare.returncode != 1 or "this run wrote no checkpoint before; --checkpoint-every N" not in bare.stderr:
        return f"without checkpoints: exit code {bare.returncode}: {bare.stderr}"
    failed = train(tools, folder, "endless", "cut", "--checkpoint-every", "2")
    advice = f"the state after step 4 is in {folder}/cut/checkpoint; continue with --resume"
    if failed.returncode != 1 or advice not in failed.stderr:
        return f"exit code {failed.returncode}: {failed.stderr}"
    if "DeviceFault" not in failed.stderr:
        return f"the fault is not told: {failed.stderr}"
    refused = train(tools, folder, "good", "cut", "--resume")
    if refused.returncode != 1 or "the file of program.train holds another program" not in refused.stderr:
        return f"another program is not refused: exit code {refused.returncode}: {refused.stderr}"
    for out, options in (("cut", ("--resume", "--accept-changes")), ("whole", ())):
        run = train(tools, folder, "good", out, *options)
        if run.returncode != 0:
            return f"{out}: exit code {run.returncode}: {run.stderr}"
    cut, whole = (json.loads((folder / out / "run.json").read_text()) for out in ("cut", "whole"))
    different = [key for key in ("losses", "digest", "epochs", "steps") if cut[key] != whole[key]]
    return f"{different} differ" if different or whole["steps"] != STEPS else None


if __name__ == "__main__":
    sys.exit(case_runner.run_all([goes_on], case_runner.parser(__doc__).parse_args(), lambda test, tools,
                                 folder: test(tools, folder),
                                 lambda test: test.__name__))
