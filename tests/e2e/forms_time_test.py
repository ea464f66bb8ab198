"""Forms of an operation take about the time of the form that is the fastest.

Columns of an array, against its rows: the operand is transposed first. Depthwise convolutions with several features a
channel, and their gradients, against those with as many channels. The first elements of sorted rows, against all.
Zeros between the elements of rows, against zeros between rows. Compiles both and compares the estimates; the bar of
each pair is part of the test.
Usage: forms_time_test.py --bin DIR
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp
from jax import lax

F32, I32 = jnp.float32, jnp.int32


@dataclass(frozen=True)
class Form:
    """A function of arrays of these shapes, of indices if there is but one dimension."""

    function: Callable
    shapes: tuple[tuple[int, ...], ...]


def _columns(function: Callable, by_rows: Callable, shape: tuple[int, ...], records: int) -> tuple[Form, Form]:
    return (Form(function, (shape, (records,))),
            Form(by_rows, ((*shape[-1:], *shape[:-1]), (records,))))


def _depthwise(groups: int) -> Callable:
    return lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                                 feature_group_count=groups)


def _gradient(groups: int, argument: int) -> Callable:
    return lambda x, w, y: jax.vjp(_depthwise(groups), x, w)[1](y)[argument]


SMALL, LARGE, KERNEL, WIDE = (8, 32, 32, 32), (8, 32, 32, 64), (3, 3, 1, 64), (512, 1000)
# The slower form, the faster one, most cycles of the first for one of the second.
PAIRS: dict[str, tuple[Form, Form, float]] = {
    "read": (*_columns(lambda v, i: v[:, i], lambda v, i: v[i], (1000, 1000), 3000), 5),
    "read_few": (*_columns(lambda v, i: v[:, i], lambda v, i: v[i], (64, 512), 128), 2),
    "read_inner": (*_columns(lambda v, i: v[:, :, i], lambda v, i: v[i], (6, 224, 1000), 500), 5),
    "add": (*_columns(lambda v, i: v.at[:, i].add(v[:, :1]), lambda v, i: v.at[i].add(v[:1]), (1000, 1000), 3000), 2),
    "set": (*_columns(lambda v, i: v.at[:, i].set(v[:, :1]), lambda v, i: v.at[i].set(v[:1]), (1000, 1000), 3000), 2),
    "depthwise": (Form(_depthwise(32), (SMALL, KERNEL)), Form(_depthwise(64), (LARGE, KERNEL)), 1.5),
    "depthwise_dx": (Form(_gradient(32, 0), (SMALL, KERNEL, LARGE)), Form(_gradient(64, 0), (LARGE, KERNEL, LARGE)),
                     4),  # transposes for the sum over two channels
    "depthwise_dw": (Form(_gradient(32, 1), (SMALL, KERNEL, LARGE)), Form(_gradient(64, 1), (LARGE, KERNEL, LARGE)),
                     1.5),
    "top_1": (Form(lambda x: lax.top_k(x, 1), (WIDE,)), Form(lambda x: jnp.argmax(x, 1), (WIDE,)), 1.5),
    "top_8": (Form(lambda x: lax.top_k(x, 8), (WIDE,)), Form(lambda x: lax.top_k(x, 1000), (WIDE,)), 0.25),
    "apart": (Form(lambda x: lax.pad(x, 0.0, ((0, 0, 0), (0, 1, 1))), ((1000, 500),)),
              Form(lambda x: lax.pad(x, 0.0, ((0, 1, 1), (0, 0, 0))), ((500, 1000),)), 4),
    "strided_dx": (Form(jax.grad(lambda x: (x[:, ::2] ** 2).sum()), ((1000, 1000),)),
                   Form(jax.grad(lambda x: (x[::2] ** 2).sum()), ((1000, 1000),)), 4),
    "sort_first": (Form(lambda x: jnp.sort(x)[:, :8], (WIDE,)), Form(jnp.sort, (WIDE,)), 0.25),
}


def _estimate(tools: Path, folder: Path, form: Form) -> int:
    graph = folder / "graph.mlirbc"
    inputs = tuple(jax.ShapeDtypeStruct(shape, F32 if len(shape) > 1 else I32) for shape in form.shapes)
    graph.write_bytes(case_runner.export(form.function, inputs).mlir_module_serialized)
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
        for name, (slower, faster, bar) in PAIRS.items():
            slow, fast = (_estimate(tools, Path(temporary), form) for form in (slower, faster))
            print(f"{name}: {slow} and {fast} cycles, {slow / fast:.2f}")
            if slow > bar * fast:
                errors.append(f"{name}: expected at most {bar} times the cycles, found {slow / fast:.2f}")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
