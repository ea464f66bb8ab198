"""Collectives between the eight cores as jax.shard_map makes them, on one and two mesh axes, against JAX.

Usage: collective_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from op_matrix_test import compare  # sets up JAX's environment
import jax_reference as reference

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from op_cases import Case

RING = [(i, (i + 1) % 8) for i in range(8)]


def _whole(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    """Whole numbers: sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def flat_cases() -> list[Case]:
    """Bodies over the axis "d" of eight cores; inputs and results are split along their first dimension."""
    x, y = _whole(16, 24), _whole(8, 16, 40, seed=1)
    groups = [[0, 3], [1, 2], [4, 7], [5, 6]]
    odd = [[0, 1, 3, 6], [2, 4, 5, 7]]
    return [
        Case("all_gather", lambda v: lax.all_gather(v, "d"), (x,)),
        Case("all_gather_tiled", lambda v: lax.all_gather(v, "d", tiled=True), (x,)),
        Case("all_gather_axis1", lambda v: lax.all_gather(v, "d", axis=1, tiled=True), (x,)),
        Case("all_gather_groups", lambda v: lax.all_gather(v, "d", axis_index_groups=groups), (x,)),
        Case("all_gather_bf16", lambda v: lax.all_gather(v.astype(jnp.bfloat16), "d", tiled=True), (x,)),
        Case("all_gather_bool", lambda v: lax.all_gather(v > 0, "d", axis=1, tiled=True), (x,)),
        Case("all_gather_large", lambda v: lax.all_gather(v, "d", axis=1, tiled=True), (_whole(1600, 300),)),
        Case("psum_scatter", lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True), (x,)),
        Case("psum_scatter_new", lambda v: lax.psum_scatter(v, "d", scatter_dimension=1), (_whole(16, 8, 3),)),
        Case("psum_scatter_groups",
             lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, axis_index_groups=groups, tiled=True), (x,)),
        Case("psum_scatter_i32", lambda v: lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
             (_whole(16, 24, dtype=np.int32),)),
        Case("psum_odd_groups", lambda v: lax.psum(v, "d", axis_index_groups=odd), (x,)),
        Case("pmax_odd_groups", lambda v: lax.pmax(v, "d", axis_index_groups=odd), (x,)),
        Case("all_to_all", lambda v: lax.all_to_all(v, "d", split_axis=1, concat_axis=2, tiled=True), (y,)),
        Case("all_to_all_same", lambda v: lax.all_to_all(v, "d", split_axis=1, concat_axis=1, tiled=True), (y,)),
        Case("all_to_all_new", lambda v: lax.all_to_all(v, "d", split_axis=1, concat_axis=0), (_whole(16, 8, 5),)),
        Case("all_to_all_groups", lambda v: lax.all_to_all(v, "d", 1, 2, axis_index_groups=odd, tiled=True), (y,)),
        Case("ring", lambda v: lax.ppermute(v, "d", RING), (x,)),
        Case("shift_with_hole", lambda v: lax.ppermute(v, "d", RING[:-1]), (x,)),
        Case("one_pair", lambda v: lax.ppermute(v, "d", [(5, 2)]), (x,)),
        Case("swap_and_stay", lambda v: lax.ppermute(v, "d", [(0, 1), (1, 0), (2, 2)]), (x,)),
        Case("pshuffle", lambda v: lax.pshuffle(v, "d", [3, 1, 0, 2, 7, 6, 5, 4]), (x,)),
        Case("ring_sum",
             lambda v: sum((lax.ppermute(v, "d", [(i, (i + k) % 8) for i in range(8)]) for k in range(8)), v), (x,)),
        Case("gathered_mean", lambda v: v - lax.all_gather(v, "d").mean(0), (x,), l2=1e-6),
    ]


def mesh_cases() -> list[Case]:
    """Bodies over the axes "a" (2) and "b" (4); inputs are split along their first dimension by both."""
    x = _whole(16, 24)
    return [
        Case("mesh_gather_a", lambda v: lax.all_gather(v, "a", axis=1, tiled=True), (x,)),
        Case("mesh_gather_b", lambda v: lax.all_gather(v, "b", axis=1, tiled=True), (x,)),
        Case("mesh_gather_ba", lambda v: lax.all_gather(v, ("b", "a"), axis=1, tiled=True), (x,)),
        Case("mesh_scatter_a", lambda v: lax.psum_scatter(v, "a", scatter_dimension=1, tiled=True), (x,)),
        Case("mesh_to_all_b", lambda v: lax.all_to_all(v, "b", 1, 0, tiled=True), (x,)),
        Case("mesh_permute_a", lambda v: lax.ppermute(v, "a", [(0, 1), (1, 0)]), (x,)),
        Case("mesh_sums", lambda v: lax.psum(v, "a") + lax.pmax(v, "b"), (x,)),
    ]


def sharded(case: Case) -> Callable:
    """The body of the case over all eight devices."""
    shape, names = ((2, 4), ("a", "b")) if case.name.startswith("mesh_") else ((8,), ("d",))
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(shape), names)
    return jax.shard_map(case.function, mesh=mesh, in_specs=P(names), out_specs=P(names), check_vma=False)


def run_case(case: Case, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None. With the checker of unsynchronised accesses."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in case.inputs]
    exported = jax.export.export(jax.jit(sharded(case)), platforms=["cpu"])(*shapes)
    failure = reference.compile_and_run(tools, folder, exported, list(case.inputs), "--check")
    if failure:
        return failure
    for index, theirs in enumerate(reference.run(exported, list(case.inputs), round_dots=False)):
        problem = compare(case, np.load(folder / f"{index}.npy"), theirs)
        if problem:
            return f"result {index}: {problem}"
    return None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    cases = [case for case in flat_cases() + mesh_cases() if args.only in case.name]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            problem = run_case(case, args.bin, (args.keep or Path(scratch)) / case.name)
            if problem:
                failed += 1
                print(f"FAILED {case.name}: {problem}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
