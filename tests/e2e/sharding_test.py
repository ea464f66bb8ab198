"""Programs of sharding_cases.py and parallel_cases.py on the board, compared with the same function on one device, and
the collectives that they came to.

Usage: sharding_test.py --bin DIR --group GROUP [--sample N]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import case_runner
import distances
import jax_reference  # noqa: F401 - sets what JAX reads from the environment
import parallel_cases
import sharding_cases

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

KINDS = ("all_reduce", "all_gather", "all_to_all", "reduce_scatter", "collective_permute")


def export(case: sharding_cases.ShardedCase) -> jax.export.Exported:
    """The program with the shardings of its arguments, and of its results if they are given."""
    mesh = sharding_cases.mesh_of(case.mesh)

    def place(tree: object) -> object:
        return jax.tree.map(lambda spec: NamedSharding(mesh, spec), tree, is_leaf=lambda x: isinstance(x, P))

    options = {"out_shardings": place(case.results)} if case.results is not None else {}
    function = jax.jit(case.function, in_shardings=place(case.specs), keep_unused=True, **options)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), case.inputs)
    return jax.export.export(function, platforms=["cpu"])(*shapes)


def axes_of(group: str, mesh: dict[str, int]) -> str:
    """The axes along which the cores of a group differ: "data", "data+model"."""
    places = np.unravel_index([int(core) for core in group.split(",")], tuple(mesh.values()))
    return "+".join(axis for axis, place in zip(mesh, places, strict=True) if len({*place.tolist()}) > 1)


def collectives(case: sharding_cases.ShardedCase, tools: Path, folder: Path) -> Counter:
    """How many of each kind the graph of one core has, by axes if the case says so."""
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "--dump-after=partition"], check=True,
                          capture_output=True, text=True).stdout
    if not any(" " in kind for kind in case.moves):
        return Counter(kind for kind in re.findall(r"= (\w+) ", text) if kind in KINDS)
    found = re.findall(r"= (\w+) %.*?groups=\[\[([\d,]+)\]", text)
    return Counter(f"{kind} {axes_of(group, case.mesh)}" for kind, group in found if kind in KINDS)


def run(case: sharding_cases.ShardedCase, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""

    def differ(_: object, ours: object, theirs: object) -> str | None:
        return distances.difference(ours, theirs, 0, None if case.exact else case.l2)

    whole = case_runner.export(case.oracle or case.function, case.inputs)
    problem = case_runner.against_jax(export(case), case.inputs, tools, folder, (), not case.exact, differ, whole)
    if problem:
        return problem
    moves = collectives(case, tools, folder)
    if moves != Counter(case.moves):
        return f"collectives {dict(moves)}, expected {case.moves}"
    return None


GROUPS = {**sharding_cases.GROUPS, "parallel": parallel_cases.CASES}

if __name__ == "__main__":
    parser = case_runner.parser(__doc__)
    parser.add_argument("--group", choices=GROUPS, required=True)
    args = parser.parse_args()
    sys.exit(case_runner.run_all(GROUPS[args.group], args, run))
