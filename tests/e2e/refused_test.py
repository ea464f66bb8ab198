"""Programs that tpuc must refuse: exit code 1, the operation and the line of this file that asked for it, no output.

Usage: refused_test.py --bin DIR [--only SUBSTRING]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax_reference  # noqa: F401  (eight CPU devices; before JAX)

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Case:
    """A program of one lambda, which must stand in one line together with the operation that is refused."""

    name: str
    words: tuple[str, ...]  # all must be in the message
    function: Callable
    inputs: tuple
    sharded: bool = False  # the function is the body of a shard_map over 8 devices, its input and result split


VECTOR = np.arange(8, dtype=np.float32)
MATRIX = np.arange(64, dtype=np.float32).reshape(8, 8)


def cases() -> list[Case]:
    """Operations outside of multilayer perceptrons, unknown types, unsupported forms of supported operations."""
    return [
        Case("in_library", ("f16", "called from"), lambda m: optax.tree.cast(m, jnp.float16), (MATRIX,)),
        Case("rng", ("rng", "jax.random"), lambda v: lax.rng_uniform(v[0], v[1], (4,)), (VECTOR,)),
        Case("custom_call", ("custom_call", "lapack"), lambda m: jnp.linalg.inv(m), (MATRIX,)),
        Case("f16", ("f16", "bfloat16"), lambda v: v.astype(jnp.float16), (VECTOR,)),
        Case("f8", ("f8",), lambda v: v.astype(jnp.float8_e4m3fn), (VECTOR,)),
        Case("complex", ("complex",), lambda v: lax.complex(v, v), (VECTOR,)),
        Case("i4", ("i4",), lambda v: v.astype(jnp.int4), (VECTOR,)),
    ]


def check(case: Case, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    function = case.function
    if case.sharded:
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("data",))
        function = jax.shard_map(function, mesh=mesh, in_specs=P("data"), out_specs=P("data"), check_vma=False)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in case.inputs]
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*shapes)
    program, executable = folder / f"{case.name}.mlirbc", folder / f"{case.name}.tpuexe"
    program.write_bytes(exported.mlir_module_serialized)
    done = subprocess.run([str(tools / "tpuc"), str(program), "-o", str(executable)], capture_output=True, text=True,
                          check=False, timeout=60)
    if done.returncode != 1:
        return f"exit code {done.returncode}: {done.stderr.strip()}"
    place = f"{Path(__file__).name}:{case.function.__code__.co_firstlineno}:"
    missing = [word for word in (place, *case.words) if word not in done.stderr]
    if missing:
        return f"the message lacks {missing}: {done.stderr.strip()}"
    return "an executable was written" if executable.exists() else None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    chosen = [case for case in cases() if args.only in case.name]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in chosen:
            problem = check(case, args.bin, Path(scratch))
            if problem:
                failed += 1
                print(f"FAILED {case.name}: {problem}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
