"""Exports every case of a module like op_cases.py, compiles it with tpuc, runs it with `tpuboard run`, compares with JAX.

Usage: op_matrix_test.py --bin DIR [--cases MODULE] [--only SUBSTRING] [--check] [--x64] [--group NAME] [--keep DIR]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

import jax_reference as reference
import op_cases

import jax
import numpy as np


def ulp_distance(ours: np.ndarray, theirs: np.ndarray) -> int:
    """Largest distance in units in the last place; NaN equals NaN; subnormals count as zero."""
    if ours.size == 0:
        return 0
    a, b = ours.astype(np.float32), theirs.astype(np.float32)
    tiny = np.finfo(np.float32).tiny
    a, b = (np.where(np.abs(v) < tiny, np.copysign(np.float32(0), v), v) for v in (a, b))
    both_nan = np.isnan(a) & np.isnan(b)
    keys = [np.where(v.view(np.int32) < 0, np.int64(-(2**31)) - v.view(np.int32), v.view(np.int32).astype(np.int64))
            for v in (np.ascontiguousarray(a), np.ascontiguousarray(b))]
    return int(np.where(both_nan, 0, np.abs(keys[0].astype(np.int64) - keys[1].astype(np.int64))).max())


def compare(case: op_cases.Case, ours: np.ndarray, theirs: np.ndarray) -> str | None:
    """Text of a difference, or None."""
    if ours.dtype.kind == "V" and theirs.dtype.name == "bfloat16":
        ours = ours.view(theirs.dtype)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{ours.shape}, expected {theirs.dtype}{theirs.shape}"
    if case.l2 is not None:
        gap = reference.relative_l2(ours, theirs)
        return None if gap <= case.l2 else f"relative L2 {gap:.3g}, allowed {case.l2:.3g}"
    if theirs.dtype.kind == "f" or theirs.dtype.name == "bfloat16":
        gap = ulp_distance(ours, theirs)
        return None if gap <= case.ulp else f"{gap} ulp, allowed {case.ulp}"
    return None if np.array_equal(ours, theirs) else f"{int((ours != theirs).sum())} elements differ"


def run_case(case: op_cases.Case, tools: Path, folder: Path, *options: str) -> str | None:
    """Text of a failure, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = [jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in case.inputs]
    exported = jax.export.export(jax.jit(case.function, keep_unused=True), platforms=["cpu"])(*shapes)
    inputs = [np.asarray(x) for x in case.inputs]
    failure = reference.compile_and_run(tools, folder, exported, inputs, *options)
    if failure:
        return failure
    expected = reference.run(exported, inputs, round_dots=case.l2 is not None)
    for index, theirs in enumerate(expected):
        problem = compare(case, np.load(folder / f"{index}.npy"), theirs)
        if problem:
            return f"result {index}: {problem}"
    return None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--cases", default="op_cases", help="module with the cases")
    parser.add_argument("--x64", action="store_true", help="64-bit types as jax_enable_x64 makes them")
    parser.add_argument("--only", default="")
    parser.add_argument("--check", action="store_true", help="with the race checker")
    parser.add_argument("--group", default="")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", args.x64)
    module = importlib.import_module(args.cases)
    cases = getattr(module, args.group or "all_cases")()
    cases = [case for case in cases if args.only in case.name]
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            problem = run_case(case, args.bin, (args.keep or Path(scratch)) / case.name.replace("/", "_"),
                               *(["--check"] if args.check else []))
            if problem:
                failed += 1
                print(f"FAILED {case.name}: {problem}", flush=True)
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
