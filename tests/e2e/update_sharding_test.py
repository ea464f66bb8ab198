"""Training steps with sharded updates against plain ones: equal bits of all results after several steps.

Arrays are of odd sizes, several pieces long. Every optimizer is compiled with `--update-sharding=on` and `off`, run
with the happens-before checker, and must give the same files; which of them can be sharded is part of the test.

Usage: update_sharding_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jax_reference as reference
import train_cases

import jax
import numpy as np

LAYERS = (131, 1103, 257, 10)  # two weight arrays of more than 512 KiB
STEPS = 3
# Optimizer: is its update elementwise?
OPTIMIZERS = {"adam": True, "adamw": True, "momentum": True, "nesterov": True, "rmsprop": True, "polynomial": True,
              "decay": True, "lion": True, "clip": False, "lamb": False}


def outputs(tools: Path, folder: Path, mode: str, inputs: list[str]) -> tuple[int, list[bytes]]:
    """Gradient bytes with a sharded update, and the contents of the result files."""
    exe, out = folder / f"{mode}.tpuexe", folder / mode
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "-o", exe, "-v", f"--update-sharding={mode}"],
                          check=True, capture_output=True, text=True).stdout
    sharded = re.search(r"update sharding of (\d+) gradient bytes", text)
    subprocess.run([tools / "tpuboard", "run", exe, *inputs, "--out-dir", out, "--launches", str(STEPS), "--check"],
                   check=True, capture_output=True, text=True)
    files = sorted(out.glob("*.npy"), key=lambda path: int(path.stem))
    return int(sharded[1]) if sharded else 0, [path.read_bytes() for path in files]


def run_case(name: str, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    function, arguments = train_cases.TrainCase(name, layers=LAYERS, batch=2, optimizer=name).build()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arguments)
    step = jax.jit(function, keep_unused=True, donate_argnums=(0, 1))
    exported = jax.export.export(step, platforms=["cpu"])(*shapes)
    (folder / "p.mlirbc").write_bytes(exported.mlir_module_serialized)
    inputs = reference.save_inputs(folder, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)])
    try:
        plain_bytes, plain = outputs(tools, folder, "off", inputs)
        sharded_bytes, sharded = outputs(tools, folder, "on", inputs)
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} exited {error.returncode}: {error.stderr[-400:]}"
    if plain_bytes != 0 or (sharded_bytes > 0) != OPTIMIZERS[name]:
        return f"{plain_bytes} bytes sharded when off, {sharded_bytes} when on"
    different = [i for i, (a, b) in enumerate(zip(plain, sharded, strict=True)) if a != b]
    return f"results {different} differ" if different or not plain else None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    names = [name for name in OPTIMIZERS if args.only in name]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            problem = run_case(name, args.bin, (args.keep or Path(scratch)) / name)
            if problem:
                failed += 1
                print(f"FAILED {name}: {problem}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
