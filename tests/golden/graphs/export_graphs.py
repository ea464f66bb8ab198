"""Exports the graphs of tests/golden: every collective between eight cores, and training steps of small networks.

Collectives take one row a core, [8, n], and give the rows of all cores: what each core has afterwards is part of the
result. Sizes are chosen for the ways of an all-reduce (docs/numerics.md): `small` doubles, `halves` is a rest above
64 KiB, `pieces` has whole pieces of 512 KiB and rests of several values that travel together.

Needs the packages of tests/requirements.txt. Usage: export_graphs.py [--out DIR]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent.parent / "examples" / "mnist_convnet"))

import export as convnet  # noqa: E402

# Source locations in the artifact: names without the folders of one machine, so that every export is the same.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/")

CORES = 8
SMALL, HALVES, PIECES = 1021, 30011, 300007
ODD_GROUPS = [[0, 1, 3, 6], [2, 4, 5, 7]]  # not closed under exchange
RING = [(core, (core + 3) % CORES) for core in range(CORES)]
FLAT, TWO_BY_FOUR, FOUR_BY_TWO = {"d": 8}, {"a": 2, "b": 4}, {"a": 4, "b": 2}
CONVNET = {"image": (9, 10, 1), "shapes": convnet.weight_shapes((9, 10, 1), channels=(24, 40), dense=(120, 20, 10)),
           "batch": 16}

Value = tuple[int, jnp.dtype]  # elements a core, type


def _sum(axes: str | tuple[str, ...]) -> Callable:
    return lambda *values: lax.psum(values, axes)


def _scatter(axes: str) -> Callable:
    return lambda *values: tuple(lax.psum_scatter(v, axes, scatter_dimension=1, tiled=True) for v in values)


def _moves(*values: jax.Array) -> tuple[jax.Array, ...]:
    """Of every value: gathered, exchanged, sent in a ring."""
    return tuple(moved for v in values for moved in (
        lax.all_gather(v, "d", axis=1, tiled=True), lax.all_to_all(v, "d", 1, 1, tiled=True), lax.ppermute(v, "d", RING)))  # noqa: E501, the artifacts hold line numbers


def collectives() -> dict[str, tuple[Callable, dict[str, int], list[Value]]]:
    """Body, mesh and values of every graph of collectives."""
    f32, bf16, i64 = jnp.float32, jnp.bfloat16, jnp.int64
    return {
        "sum_small": (_sum("d"), FLAT, [(SMALL, f32)]),
        "sum_halves": (_sum("d"), FLAT, [(HALVES, f32)]),
        "sum_pieces": (_sum("d"), FLAT, [(PIECES, f32), (SMALL, f32), (HALVES, f32)]),
        "sum_bf16_small": (_sum("d"), FLAT, [(SMALL, bf16)]),
        "sum_bf16_pieces": (_sum("d"), FLAT, [(PIECES, bf16)]),
        "sum_i64": (_sum("d"), FLAT, [(SMALL, i64), (HALVES, i64)]),
        "sum_odd_groups": (lambda v: lax.psum(v, "d", axis_index_groups=ODD_GROUPS), FLAT, [(SMALL, f32)]),
        "sum_minor_small": (_sum("b"), TWO_BY_FOUR, [(SMALL, f32)]),
        "sum_minor_halves": (_sum("b"), TWO_BY_FOUR, [(HALVES, f32)]),
        "sum_major_small": (_sum("a"), FOUR_BY_TWO, [(SMALL, f32)]),
        "sum_major_pieces": (_sum("a"), FOUR_BY_TWO, [(PIECES, f32)]),
        "sum_both_axes": (_sum(("b", "a")), FOUR_BY_TWO, [(HALVES, f32)]),
        "sums_of_two_axes": (lambda v: (lax.psum(v, "a"), lax.psum(v, "b")), FOUR_BY_TWO, [(SMALL, f32)]),
        "scatter": (_scatter("d"), FLAT, [(8 * 129, f32), (8 * 2003, bf16), (8 * 17, i64)]),
        "scatter_minor": (_scatter("b"), TWO_BY_FOUR, [(4 * 1033, f32)]),
        "moves": (_moves, FLAT, [(8 * 131, f32), (8 * 257, bf16), (8 * 33, i64)]),
    }


def export_collectives(body: Callable, axes: dict[str, int], values: list[Value]) -> jax.export.Exported:
    """The program of eight cores; core c has row c."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]).reshape(tuple(axes.values())), tuple(axes))
    rows = P(tuple(axes))
    function = jax.shard_map(body, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
    shapes = [jax.ShapeDtypeStruct((CORES, count), dtype) for count, dtype in values]
    return jax.export.export(jax.jit(function), platforms=["tpu"])(*shapes)


def export_programs() -> dict[str, bytes]:
    """Artifact bytes by file name."""
    with jax.enable_x64(True):
        made = {name: export_collectives(*graph) for name, graph in collectives().items()}
    made["convnet_step"] = convnet.export_train_step(CORES, **CONVNET)
    return {f"{name}.mlirbc": exported.mlir_module_serialized for name, exported in made.items()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    for name, data in export_programs().items():
        (args.out / name).write_bytes(data)
        print(f"{args.out / name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
