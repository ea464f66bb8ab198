"""Programs of sharding_cases.py on the board, compared with the same function on one device, and the collectives that
they came to.

Usage: sharding_test.py --bin DIR --group GROUP
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
import sharding_cases

import jax
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


def collectives(tools: Path, folder: Path) -> Counter:
    """How many of each kind the graph of one core has."""
    text = subprocess.run([tools / "tpuc", folder / "p.mlirbc", "--dump-after=partition"], check=True,
                          capture_output=True, text=True).stdout
    return Counter(kind for kind in re.findall(r"= (\w+) ", text) if kind in KINDS)


def run(case: sharding_cases.ShardedCase, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""

    def differ(_: object, ours: object, theirs: object) -> str | None:
        return distances.difference(ours, theirs, 0, None if case.exact else case.l2)

    whole = case_runner.export(case.oracle or case.function, case.inputs)
    problem = case_runner.against_jax(export(case), case.inputs, tools, folder, (), not case.exact, differ, whole)
    if problem:
        return problem
    moves = collectives(tools, folder)
    if moves != Counter(case.moves):
        return f"collectives {dict(moves)}, expected {case.moves}"
    return None


if __name__ == "__main__":
    parser = case_runner.parser(__doc__)
    parser.add_argument("--group", choices=sharding_cases.GROUPS, required=True)
    args = parser.parse_args()
    sys.exit(case_runner.run_all(sharding_cases.GROUPS[args.group], args, run))
