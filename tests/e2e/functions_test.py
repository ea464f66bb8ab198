"""Single functions of JAX, one program each, compiled for the board and compared with the CPU backend.

Usage: functions_test.py --bin DIR [--every N] [--only SUBSTRING] [--keep DIR]
"""

from __future__ import annotations

import sys
from pathlib import Path

import case_runner
import function_cases
import jax_reference as reference


def run(case: case_runner.Case, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None. What JAX itself cannot lower is a failure of this function alone."""
    try:
        return case_runner.run_case(case, tools, folder)
    except Exception as error:  # noqa: BLE001 - JAX has no common class of errors
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def main() -> int:
    """Command line."""
    parser = case_runner.parser(__doc__)
    parser.add_argument("--every", type=int, default=1, help="run only every N-th function")
    args = parser.parse_args()
    reference.compile_fast()
    return case_runner.run_all(function_cases.all_cases()[:: args.every], args, run)


if __name__ == "__main__":
    sys.exit(main())
