"""Runs lists of small programs on the board and compares each with JAX: what the tests over case modules share.

A case is a JAX function, or a StableHLO module as text where JAX makes no such graph, with its inputs. Results are
equal to the bit, within a number of units in the last place, or within a relative L2 distance.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import distances
import jax_reference as reference  # sets up JAX's environment

import jax
import numpy as np
from jax.sharding import PartitionSpec as P


@dataclass(frozen=True)
class Case:
    """One program to compile, run and compare."""

    name: str
    function: Callable | str
    inputs: tuple
    ulp: int = 0
    l2: float | None = None  # compare by relative L2 instead (sums, dots)
    mesh: dict[str, int] | None = None  # the body of a shard_map: first dimensions are split over all axes
    oracle: Callable | None = None  # what JAX runs instead of `function`
    platform: str = "cpu"  # that the program is exported for; of another one than the CPU JAX needs an oracle


def export(function: Callable | str, inputs: Sequence, mesh: dict[str, int] | None = None,
           donate: tuple[int, ...] = (), platform: str = "cpu") -> jax.export.Exported:
    """The program that the board compiles. With `mesh`, inputs and results are split along their first dimension."""
    if isinstance(function, str):
        return reference.from_text(function, inputs)
    if mesh is not None:
        names = tuple(mesh)
        devices = np.array(jax.devices()[: int(np.prod([*mesh.values()]))]).reshape(tuple(mesh.values()))
        function = jax.shard_map(function, mesh=jax.sharding.Mesh(devices, names), in_specs=P(names),
                                 out_specs=P(names),
                                 check_vma=False)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tuple(inputs))
    return jax.export.export(jax.jit(function, keep_unused=True, donate_argnums=donate), platforms=[platform])(*shapes)


def against_jax(exported: jax.export.Exported, inputs: Sequence, tools: Path, folder: Path, options: Sequence[str],
                round_dots: bool, differ: Callable[[int, np.ndarray, np.ndarray], str | None],
                oracle: jax.export.Exported | None = None) -> str | None:
    """Compiles, runs with `options`, compares every result with JAX (of `oracle`, if given) by `differ(number, ours,
    theirs)`. Text of a failure, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(inputs)]
    failure = reference.compile_and_run(tools, folder, exported, arrays, *options)
    if failure:
        return failure
    for index, theirs in enumerate(reference.run(oracle or exported, arrays, round_dots)):
        problem = differ(index, np.load(folder / f"{index}.npy"), theirs)
        if problem:
            return f"result {index}: {problem}"
    return None


def run_case(case: Case, tools: Path, folder: Path, *options: str) -> str | None:
    """Text of a failure, or None."""
    program = export(case.function, case.inputs, case.mesh, platform=case.platform)
    oracle = export(case.oracle, case.inputs, case.mesh) if case.oracle else None
    return against_jax(program, case.inputs, tools, folder, options, case.l2 is not None,
                       lambda _, ours, theirs: distances.difference(ours, theirs, case.ulp, case.l2), oracle)


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every test over cases."""
    result = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--bin", type=Path, required=True)
    result.add_argument("--only", default="", help="run only cases with this in their names")
    result.add_argument("--sample", type=int, default=1, metavar="N", help="run one in N of the cases")
    result.add_argument("--keep", type=Path, help="keep the files of every case below this folder")
    return result


def run_all(cases: Sequence, args: argparse.Namespace, run: Callable[[Any, Path, Path], str | None],
            name_of: Callable[[Any], str] = attrgetter("name")) -> int:
    """Runs `run(case, tools, folder)` for every chosen case and prints the failures. The exit code: 0 if all passed."""
    names = [name_of(case) for case in cases]
    assert len(set(names)) == len(names), "case names must be unique"
    chosen = [case for case in cases if args.only in name_of(case)][::args.sample]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in chosen:
            folder = (args.keep or Path(scratch)) / name_of(case).replace("/", "_")
            folder.mkdir(parents=True, exist_ok=True)
            problem = run(case, args.bin, folder)
            if problem:
                failed += 1
                print(f"FAILED {name_of(case)}: {problem}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed or not chosen else 0
