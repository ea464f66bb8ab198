"""Exports every training step of train_cases.py, compiles and runs it with the happens-before checker, compares with JAX.

The reference is the same graph with dot operands rounded to bf16. Every result must be within the case's bound of
relative L2; results that are nearly zero everywhere, within 3e-6 of the reference.

Usage: train_matrix_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import jax_reference as reference
import train_cases

import jax
import numpy as np

SMALL = 3e-6  # rounding of sums that cancel


def compare(case: train_cases.TrainCase, ours: np.ndarray, theirs: np.ndarray) -> str | None:
    """Text of a difference, or None."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{ours.shape}, expected {theirs.dtype}{theirs.shape}"
    if theirs.dtype.kind != "f":
        return None if np.array_equal(ours, theirs) else "other integers"
    gap = reference.relative_l2(ours, theirs)
    if gap <= case.bound or np.abs(ours - theirs).max(initial=0) <= SMALL:
        return None
    return f"relative L2 {gap:.3g}, allowed {case.bound:.3g}"


def run_case(case: train_cases.TrainCase, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    function, arguments = case.build()
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arguments)
    step = jax.jit(function, keep_unused=True, donate_argnums=(0, 1) if case.donate else ())
    exported = jax.export.export(step, platforms=["cpu"])(*shapes)
    inputs = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    failure = reference.compile_and_run(tools, folder, exported, inputs, "--check")
    if failure:
        return failure
    for index, theirs in enumerate(reference.run(exported, inputs, round_dots=True)):
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
    cases = [case for case in train_cases.all_cases() if args.only in case.name]
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
