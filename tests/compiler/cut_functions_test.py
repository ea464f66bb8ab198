#!/usr/bin/env python3
"""Functions of JAX with arguments cut over eight cores: partitioned by the compiler, run on all cores by the graph
interpreter or, with --bin, by the simulated board, and compared with JAX on the CPU, which runs them whole.

Usage: cut_functions_test.py --tool GRAPH_INTERPRET | --bin DIR [--all] [--group GROUP] [--only SUBSTRING] [--cut NAME]
[--report]. Without --all one function in SAMPLE runs, with one way to cut its arguments. Exits with 77 (skipped)
without JAX. --report prints what each program moves between cores.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

try:
    import ml_dtypes
    TESTS = Path(__file__).resolve().parent.parent
    sys.path[:0] = [str(TESTS / "e2e")]
    import cut_cases
    import distances
    import jax_reference as reference  # sets up JAX's environment

    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SAMPLE = 6
BOARD_BOUND = 2e-3  # relative L2: operands of dots are rounded to bf16, after sums in another order
SIZES = {"a": 2, "b": 2, "c": 2}
DTYPES = {**reference.DTYPES, "bf16": ml_dtypes.bfloat16}


def cut(shape: tuple[int, ...], wanted: list[tuple[str, ...]]) -> P:
    """Dimension i by the axes wanted[i] where that gives equal parts."""
    def fits(size: int, axes: tuple[str, ...]) -> bool:
        return bool(axes) and size % int(np.prod([SIZES[a] for a in axes])) == 0
    return P(*(axes if fits(size, axes) else None for size, axes in zip(shape, wanted, strict=False)))


ALL = ("a", "b", "c")
CUTS: dict[str, Callable[[int, tuple[int, ...]], P]] = {  # of (number of the argument, shape)
    "rows": lambda _, shape: cut(shape, [ALL]),
    "columns": lambda _, shape: cut(shape, [()] * (len(shape) - 1) + [ALL]),
    "grid": lambda _, shape: cut(shape, [("a", "b"), ("c",)]),
    "mixed": lambda i, shape: cut(shape, [("a",), ("c", "b")] if i % 2 else [("b",), (), ("a",)]),
    "one": lambda i, shape: cut(shape, [ALL] if i == 0 else []),
}


def array(word: str, rng: np.random.Generator) -> np.ndarray:
    """What a word of a case says."""
    shape = tuple(int(d) for d in word[1:].split(","))
    if word[0] == "i":
        return rng.integers(0, 4, shape, dtype=np.int32)
    if word[0] == "u":
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    if word[0] == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    values = rng.uniform(0.1, 0.9, shape).astype(np.float32)
    return values if word[0] == "p" else values * rng.choice(np.float32([-1, 1]), shape)


def interpret(tool: Path, folder: Path, program: bytes, arrays: list[np.ndarray]) -> tuple[list[np.ndarray], str]:
    """Results on eight cores, and the collectives of the program."""
    (folder / "program.mlirbc").write_bytes(program)
    for i, value in enumerate(arrays):
        (folder / f"in{i}.bin").write_bytes(np.ascontiguousarray(value).tobytes())
    done = subprocess.run([tool, folder / "program.mlirbc", folder, "--unrounded", "--lowered", "--collectives",
                           *(folder / f"in{i}.bin" for i in range(len(arrays)))], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    results = []
    for i, line in enumerate(done.stdout.splitlines()):
        elem, dims = line.rstrip("]").split("[")
        shape = [int(d) for d in dims.split(",")] if dims else []
        results.append(np.frombuffer((folder / f"{i}.bin").read_bytes(), DTYPES[elem]).reshape(shape))
    return results, done.stderr.strip()


def export(function: Callable, arrays: list[np.ndarray], name: str) -> jax.export.Exported:
    """The program whose arguments are cut as CUTS[name] says; of one core without such a name."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(tuple(SIZES.values())), tuple(SIZES))
    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype,
                                   sharding=NamedSharding(mesh, CUTS[name](i, x.shape)) if name in CUTS else None)
              for i, x in enumerate(arrays)]
    return jax.export.export(jax.jit(function), platforms=["cpu"])(*shapes)


def run(args: argparse.Namespace, case: cut_cases.Case, name: str, arrays: list[np.ndarray],
        want: list[np.ndarray]) -> tuple[str | None, str]:
    """Text of a failure, or None; the collectives."""
    exported = export(case.function, arrays, name)
    arrays = [arrays[i] for i in exported.module_kept_var_idx]
    collectives = ""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if args.bin:
            problem = reference.compile_and_run(args.bin, folder, exported, arrays)
            got = [] if problem else [np.load(folder / f"{i}.npy") for i in range(len(want))]
        else:
            problem = None
            try:
                got, collectives = interpret(args.tool, folder, exported.mlir_module_serialized, arrays)
            except RuntimeError as error:
                problem = str(error)
    if problem:
        return problem, ""
    bound = max(case.bound, BOARD_BOUND) if args.bin else case.bound
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        difference = distances.difference(ours, theirs, l2=bound)
        if difference:
            return f"result {i}: {difference}", collectives
    return None, collectives


def whole(args: argparse.Namespace, case: cut_cases.Case, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What JAX gets on one device."""
    if args.bin:
        return reference.run(export(case.function, arrays, ""), arrays, round_dots=True)
    return [np.asarray(x) for x in jax.tree.leaves(jax.jit(case.function)(*arrays))]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    runs = parser.add_mutually_exclusive_group(required=True)
    runs.add_argument("--tool", type=Path, help="the graph interpreter")
    runs.add_argument("--bin", type=Path, help="folder of tpuc and tpuboard")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--group", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--cut", choices=[*CUTS, "none"], help="this way alone; none: a program of one core")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    ran, failed = 0, 0
    moved: collections.Counter[str] = collections.Counter()
    names = list(CUTS)
    cases = [(g, c) for g, list_ in cut_cases.groups().items() for c in list_
             if args.group in g and args.only in c.name]
    for number, (group, case) in enumerate(cases):
        if not (args.all or args.only or number % SAMPLE == 0):
            continue
        chosen = [args.cut] if args.cut else names if args.all else [names[number // SAMPLE % len(names)]]
        rng = np.random.default_rng(7)
        arrays = [array(word, rng) for word in case.arrays.split()]
        want = whole(args, case, arrays)
        for name in chosen:
            problem, collectives = run(args, case, name, arrays, want)
            ran += 1
            moved.update(collectives.split())
            if problem:
                failed += 1
                print(f"FAILED {group}: {case.name}, {name}: {problem}", flush=True)
            elif args.report and collectives:
                print(f"{group}: {case.name}, {name}: {collectives}")
    print(f"{ran - failed} passed, {failed} failed; " + ", ".join(f"{n} {kind}" for kind, n in sorted(moved.items())))
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
