"""Exports every training step of train_cases.py, compiles, runs it with the happens-before checker, compares with JAX.

The reference is the same graph with dot operands rounded to bf16. Parameters and state are compared by what the step
changes in them: the change must be within the case's bound of relative L2, and so must the loss.

Usage: train_matrix_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import case_runner
import distances
import jax_reference as reference
import train_cases

import jax
import numpy as np


def run_case(case: train_cases.TrainCase, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    function, arguments = case.build()
    exported = case_runner.export(function, arguments, donate=(0, 1) if case.donate else ())
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments[:2])]  # results come in the same order

    def differ(index: int, ours: np.ndarray, theirs: np.ndarray) -> str | None:
        return distances.difference(ours, theirs, l2=case.bound, before=before[index] if index < len(before) else None)

    return case_runner.against_jax(exported, arguments, tools, folder, ["--check"], True, differ)


if __name__ == "__main__":
    reference.compile_fast(older_emitters=True)
    sys.exit(case_runner.run_all(train_cases.all_cases(), case_runner.parser(__doc__).parse_args(), run_case))
