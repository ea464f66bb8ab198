"""A program with too many instructions when it is written out: by default its equal layers become a loop.

`--roll-layers=off` rejects it, `auto` makes the executable that `on` makes, and its result is JAX's.

Usage: too_long_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import case_runner
import distances
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, BATCH = 110, 512, 256
BOARD = ["--set", "core.vmem_kib=128"]  # more tiles
FAR = 0.03  # relative distance from JAX, which rounds products at other places


def run(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    """Layers with a sort each, which takes thousands of instructions."""
    for w in weights:
        x = x + jnp.tanh(jnp.sort((x @ w * 64).astype(jnp.int32)).astype(jnp.float32) / 64)
    return x


def compiled(tools: Path, folder: Path, mode: str | None) -> tuple[Path, subprocess.CompletedProcess]:
    """The executable, and what the compiler said; without a mode that of the command line's default. From a pipe."""
    exe = folder / f"{mode}.tpuexe"
    option = [] if mode is None else [f"--roll-layers={mode}"]
    done = subprocess.run([tools / "tpuc", "/dev/stdin", "-o", exe, "-v", *option, *BOARD], capture_output=True,
                          input=(folder / "p.mlirbc").read_bytes(), check=False)
    return exe, subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_case(_: str, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    rng = np.random.default_rng(7)
    arrays = [(rng.standard_normal((WIDTH, WIDTH)) / WIDTH).astype(np.float32) for _ in range(LAYERS)]
    x = rng.standard_normal((BATCH, WIDTH)).astype(np.float32)
    exported = case_runner.export(run, (arrays, x))
    (folder / "p.mlirbc").write_bytes(exported.mlir_module_serialized)
    _, off = compiled(tools, folder, "off")
    if off.returncode == 0 or "grows beyond 1048576 instructions" not in off.stderr:
        return f"off: {off.returncode} {off.stderr[-300:]}"
    exe, auto = compiled(tools, folder, None)
    if auto.returncode != 0 or re.findall(r"layers: (\d+) equal ones", auto.stdout) != [str(LAYERS)]:
        return f"auto: {auto.returncode} {auto.stdout[-300:]} {auto.stderr[-300:]}"
    on, _ = compiled(tools, folder, "on")
    if exe.read_bytes() != on.read_bytes():
        return "auto and on differ"
    inputs = reference.save_inputs(folder, [*arrays, x])
    done = subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", folder, *BOARD], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        return f"tpuboard exited {done.returncode}: {done.stderr[-300:]}"
    return distances.difference(np.load(folder / "0.npy"), reference.run(exported, [*arrays, x], round_dots=True)[0],
                                l2=FAR)


if __name__ == "__main__":
    sys.exit(case_runner.run_all(["too_long"], case_runner.parser(__doc__).parse_args(), run_case, str))
