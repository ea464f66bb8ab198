"""Cases of op_matrix_test.py: collectives between the eight cores as jax.shard_map makes them, on one and two axes."""

from __future__ import annotations

from dataclasses import replace

from case_runner import Case

import jax.numpy as jnp
import numpy as np
from jax import lax

RING = [(i, (i + 1) % 8) for i in range(8)]


def _whole(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    """Whole numbers: sums are exact in any order."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def flat() -> list[Case]:
    """Bodies over the axis "d" of eight cores; inputs and results are split along their first dimension."""
    x, y = _whole(16, 24), _whole(8, 16, 40, seed=1)
    groups = [[0, 3], [1, 2], [4, 7], [5, 6]]
    odd = [[0, 1, 3, 6], [2, 4, 5, 7]]
    cases = [
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
    return [replace(case, mesh={"d": 8}) for case in cases]


def meshes() -> list[Case]:
    """Bodies over the axes "a" (2) and "b" (4); inputs are split along their first dimension by both."""
    x, medium, large = _whole(16, 24), _whole(2048, 80), _whole(2048, 640)

    def both(v):
        return lax.psum(v, "a"), lax.psum(v * 2, "b"), lax.pmax(v, ("a", "b"))

    cases = [
        Case("mesh_medium_sums", both, (medium,)),
        Case("mesh_large_sums", both, (large,)),
        Case("mesh_large_sum_of_sum", lambda v: lax.psum(lax.psum(v, "a") + v, "b"), (large,)),
        Case("mesh_mixed", lambda v: (*both(v), lax.all_gather(v, "a"), lax.psum_scatter(v, "b", tiled=True),
                                      lax.all_to_all(v, "b", 0, 1, tiled=True)), (medium,)),
        Case("mesh_gather_a", lambda v: lax.all_gather(v, "a", axis=1, tiled=True), (x,)),
        Case("mesh_gather_b", lambda v: lax.all_gather(v, "b", axis=1, tiled=True), (x,)),
        Case("mesh_gather_ba", lambda v: lax.all_gather(v, ("b", "a"), axis=1, tiled=True), (x,)),
        Case("mesh_scatter_a", lambda v: lax.psum_scatter(v, "a", scatter_dimension=1, tiled=True), (x,)),
        Case("mesh_to_all_b", lambda v: lax.all_to_all(v, "b", 1, 0, tiled=True), (x,)),
        Case("mesh_permute_a", lambda v: lax.ppermute(v, "a", [(0, 1), (1, 0)]), (x,)),
        Case("mesh_sums", lambda v: lax.psum(v, "a") + lax.pmax(v, "b"), (x,)),
    ]
    return [replace(case, mesh={"a": 2, "b": 4}) for case in cases]


def wide() -> list[Case]:
    """Bodies over "d" on 64-bit integers (run with --x64): sums carry and wrap, extremes look at both words."""
    random = np.random.default_rng(3)
    x = random.integers(-(2**63), 2**63, (16, 24), dtype=np.int64) >> random.integers(0, 64, (16, 24))
    u = x.view(np.uint64)
    pairs, odd = [[0, 3], [1, 2], [4, 7], [5, 6]], [[0, 1, 3, 6], [2, 4, 5, 7]]

    def reduced(v):
        return lax.psum(v, "d"), lax.pmax(v, "d"), lax.pmin(v, "d")

    def grouped(v):
        return lax.psum(v, "d", axis_index_groups=pairs), lax.psum(v, "d", axis_index_groups=odd)

    def scattered(v):
        return (lax.psum_scatter(v, "d", scatter_dimension=1, tiled=True),
                lax.psum_scatter(v, "d", scatter_dimension=1, axis_index_groups=pairs, tiled=True))

    def moved(v):
        return lax.all_gather(v, "d"), lax.all_to_all(v, "d", 1, 0, tiled=True), lax.ppermute(v, "d", RING)

    bodies = {"reduced": reduced, "grouped": grouped, "scattered": scattered, "moved": moved}
    cases = [Case(f"{value.dtype}_{name}", body, (value,)) for name, body in bodies.items() for value in (x, u)]
    cases.append(Case("large_sum", lambda v: lax.psum(v, "d"), (np.tile(x, (1, 50)),)))
    return [replace(case, mesh={"d": 8}) for case in cases]


def all_cases() -> list[Case]:
    """Everything that needs no 64-bit types."""
    return [*flat(), *meshes()]
