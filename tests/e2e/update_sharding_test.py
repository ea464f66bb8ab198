"""Training steps with sharded updates against plain ones: equal bits of all results after several steps.

Arrays are of odd sizes, several pieces long. Every optimizer is compiled with `--update-sharding=on` and `off`, run
with the happens-before checker, and must give the same files; which of them can be sharded is part of the test.

Usage: update_sharding_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=32"

import case_runner
import jax_reference as reference
import train_cases

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

LAYERS = (131, 1103, 257, 10)  # two weight arrays of more than 512 KiB
STEPS = 3
BATCH = 2  # examples a core
POD = 32  # cores
POD_LAYERS = (64, 513, 10)  # one weight array of more than a piece of POD_BOARD, which is 32 KiB
POD_BOARD = ["--board", "v3_32", "--set", "core.vmem_kib=1024"]
# Optimizer: is its update sharded? "mixed": 16-bit gradients and weights, 32-bit state. "bf16_adam": 16-bit gradients
# for 32-bit weights, whose pieces are twice as large as those of the sum. "clip", "lamb": behind norms of whole arrays.
# "pod_": on all cores of a pod.
OPTIMIZERS = {"adam": True, "adamw": True, "momentum": True, "nesterov": True, "rmsprop": True, "polynomial": True,
              "decay": True, "lion": True, "mixed": True, "bf16_adam": True, "clip": True, "lamb": True,
              "pod_momentum": True, "pod_bf16_momentum": True, "pod_clip": True, "pod_bf16_clip": True}


def mixed_precision_step() -> tuple[jax.export.Exported, tuple]:
    """Momentum SGD on 16-bit weights, with momentum and the weights themselves in 32 bits in the optimizer's state."""
    _, (parameters, _, x, labels) = train_cases.TrainCase("", layers=LAYERS, batch=BATCH).build()
    master = [layer["w"] for layer in parameters]
    momentum = [0.1 * w for w in master]
    weights = [np.asarray(jnp.asarray(w, jnp.bfloat16)) for w in master]

    def step(weights, state, x, labels):
        def loss_of(ws):
            y = x.astype(jnp.bfloat16)
            for w in ws[:-1]:
                y = jnp.tanh(y @ w)
            return train_cases.LOSSES["logsumexp"]((y @ ws[-1]).astype(jnp.float32), jax.nn.one_hot(labels, LAYERS[-1]))

        loss, gradients = lax.pmean(jax.value_and_grad(loss_of)(weights), "data")
        momentum = [0.9 * m + g.astype(jnp.float32) for m, g in zip(state["momentum"], gradients, strict=True)]
        master = [w - 0.1 * m for w, m in zip(state["master"], momentum, strict=True)]
        return [w.astype(jnp.bfloat16) for w in master], {"momentum": momentum, "master": master}, loss

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))
    sharded = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")), out_specs=P(), check_vma=False)
    arguments = (weights, {"momentum": momentum, "master": master}, x, labels)
    return case_runner.export(sharded, arguments, donate=(0, 1)), arguments


def training_step(name: str) -> tuple[jax.export.Exported, tuple]:
    """The exported step and its arguments."""
    if name == "mixed":
        return mixed_precision_step()
    exchange = jnp.bfloat16 if "bf16_" in name else jnp.float32
    optimizer = name.removeprefix("pod_").removeprefix("bf16_")
    on_pod = name.startswith("pod_")
    case = train_cases.TrainCase(name, layers=POD_LAYERS if on_pod else LAYERS, batch=BATCH, optimizer=optimizer,
                                 exchange=exchange, mesh=(POD if on_pod else 8,))
    function, arguments = case.build()
    return case_runner.export(function, arguments, donate=(0, 1)), arguments


def outputs(tools: Path, folder: Path, mode: str, inputs: list[str], board: list[str]) -> tuple[int, list[bytes]]:
    """Gradient bytes with a sharded update, and the contents of the result files."""
    exe, out = folder / f"{mode}.tpuexe", folder / mode
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "-o", exe, "-v", f"--update-sharding={mode}",
                           *board], check=True, capture_output=True, text=True).stdout
    sharded = re.search(r"update sharding of (\d+) gradient bytes", text)
    subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", out, "--launches", str(STEPS), "--check",
                    *board],
                   check=True, capture_output=True, text=True)
    files = sorted(out.glob("*.npy"), key=lambda path: int(path.stem))
    return int(sharded[1]) if sharded else 0, [path.read_bytes() for path in files]


def run_case(name: str, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    exported, arguments = training_step(name)
    (folder / "p.mlirbc").write_bytes(exported.mlir_module_serialized)
    inputs = reference.save_inputs(folder, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)])
    board = POD_BOARD if name.startswith("pod_") else []
    try:
        plain_bytes, plain = outputs(tools, folder, "off", inputs, board)
        sharded_bytes, sharded = outputs(tools, folder, "on", inputs, board)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} exited {error.returncode}: {error.stderr[-400:]}"
    if plain_bytes != 0 or (sharded_bytes > 0) != OPTIMIZERS[name]:
        return f"{plain_bytes} bytes sharded when off, {sharded_bytes} when on"
    different = [i for i, (a, b) in enumerate(zip(plain, sharded, strict=True)) if a != b]
    return f"results {different} differ" if different or not plain else None


if __name__ == "__main__":
    sys.exit(case_runner.run_all(list(OPTIMIZERS), case_runner.parser(__doc__).parse_args(), run_case, str))
