"""Exports every training step of train_cases.py, compiles, runs it with the happens-before checker, compares with JAX.

The reference is the same graph with dot operands rounded to bf16. Every result must be within the case's bound of
relative L2; results that are nearly zero everywhere, within 3e-6 of the reference.

Usage: train_matrix_test.py --bin DIR [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import case_runner
import distances
import train_cases

SMALL = 3e-6  # rounding of sums that cancel


def run_case(case: train_cases.TrainCase, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    function, arguments = case.build()
    exported = case_runner.export(function, arguments, donate=(0, 1) if case.donate else ())
    return case_runner.against_jax(exported, arguments, tools, folder, ["--check"], True, lambda ours, theirs:
                                   distances.difference(ours, theirs, l2=case.bound, slack=SMALL))


if __name__ == "__main__":
    sys.exit(case_runner.run_all(train_cases.all_cases(), case_runner.parser(__doc__).parse_args(), run_case))
