"""Exports the cases of a module like op_cases.py, runs them through tpuc and `tpuboard run`, compares with JAX.

Usage: op_matrix_test.py --bin DIR [--cases MODULE] [--only SUBSTRING] [--check] [--x64] [--group NAME] [--keep DIR]
"""

from __future__ import annotations

import importlib
import sys

import case_runner
import jax_reference as reference

import jax


def main() -> int:
    """Command line."""
    parser = case_runner.parser(__doc__)
    parser.add_argument("--cases", default="op_cases", help="module with the cases")
    parser.add_argument("--x64", action="store_true", help="64-bit types as jax_enable_x64 makes them")
    parser.add_argument("--check", action="store_true", help="with the checker of unsynchronised accesses")
    parser.add_argument("--group", default="", help="a function of the module; without it, all of its cases")
    args = parser.parse_args()
    reference.compile_fast()
    jax.config.update("jax_enable_x64", args.x64)
    module = importlib.import_module(args.cases)
    options = ["--check"] if args.check else []
    return case_runner.run_all(getattr(module, args.group or "all_cases")(), args,
                               lambda case, tools, folder: case_runner.run_case(case, tools, folder, *options))


if __name__ == "__main__":
    sys.exit(main())
