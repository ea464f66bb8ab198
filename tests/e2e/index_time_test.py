"""Columns of an array take about the time of its rows and of the transposes that make them rows.

Compiles both without data and compares the estimates; the bar of each pair is part of the test.
Usage: index_time_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp

# Columns, rows, shape of the array of columns, records, most cycles of columns for one of rows.
PAIRS: dict[str, tuple[Callable, Callable, tuple[int, ...], int, float]] = {
    "read": (lambda v, i: v[:, i], lambda v, i: v[i], (1000, 1000), 3000, 5),
    "read_few": (lambda v, i: v[:, i], lambda v, i: v[i], (64, 512), 128, 2),
    "read_inner": (lambda v, i: v[:, :, i], lambda v, i: v[i], (6, 224, 1000), 500, 5),
    "add": (lambda v, i: v.at[:, i].add(v[:, :1]), lambda v, i: v.at[i].add(v[:1]), (1000, 1000), 3000, 5),
    "set": (lambda v, i: v.at[:, i].set(v[:, :1]), lambda v, i: v.at[i].set(v[:1]), (1000, 1000), 3000, 5),
}


def _estimate(tools: Path, folder: Path, function: Callable, shape: tuple[int, ...], records: int) -> int:
    graph = folder / "graph.mlirbc"
    inputs = jax.ShapeDtypeStruct(shape, jnp.float32), jax.ShapeDtypeStruct((records,), jnp.int32)
    graph.write_bytes(case_runner.export(function, inputs).mlir_module_serialized)
    done = subprocess.run([str(tools / "tpuc"), str(graph), "-o", str(folder / "graph.tpuexe"), "-v"], check=True,
                          capture_output=True, text=True)
    found = re.search(r"about (\d+) cycles", done.stdout + done.stderr)
    if found is None:
        raise SystemExit(f"tpuc -v printed no estimate: {done.stderr}")
    return int(found[1])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, required=True)
    tools = parser.parse_args().bin
    errors = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, (columns, rows, shape, records, bar) in PAIRS.items():
            slow = _estimate(tools, Path(temporary), columns, shape, records)
            fast = _estimate(tools, Path(temporary), rows, (*shape[-1:], *shape[:-1]), records)
            print(f"{name}: {slow} cycles by columns, {fast} by rows, {slow / fast:.2f}")
            if slow > bar * fast:
                errors.append(f"{name}: expected at most {bar} times the cycles of rows, found {slow / fast:.2f}")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
