#!/usr/bin/env python3
"""Exports one_op/: programs of one StableHLO op each, as an eager framework sends them to a compiler one by one.

Usage: export_one_op.py [--out-dir DIR]. Needs jax and jaxlib in the versions of tests/requirements.txt. The artifacts
are checked in; a test runs this script again and compares, when JAX is available.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

SHAPE = (64, 256)
F = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
I = jax.ShapeDtypeStruct(SHAPE, jnp.int32)  # noqa: E741
B = jax.ShapeDtypeStruct(SHAPE, jnp.bool_)
INDEX = jax.ShapeDtypeStruct((), jnp.int32)


def array(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def gather(x: jax.Array, rows: jax.Array) -> jax.Array:
    numbers = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    return lax.gather(x, rows, numbers, (1, SHAPE[1]), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def scatter_add(x: jax.Array, rows: jax.Array, updates: jax.Array) -> jax.Array:
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    return lax.scatter_add(x, rows, updates, numbers, mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def table() -> dict[str, tuple[Callable, tuple]]:
    """Name -> function and arguments; the names are those of StableHLO."""
    rows = jax.ShapeDtypeStruct((16, 1), jnp.int32)
    image = array(4, 16, 16, 8)
    unary = {
        "abs": lax.abs, "cbrt": lax.cbrt, "ceil": lax.ceil, "cosine": lax.cos, "exponential": lax.exp,
        "exponential_minus_one": lax.expm1, "floor": lax.floor, "is_finite": lax.is_finite, "log": lax.log,
        "log_plus_one": lax.log1p, "logistic": lax.logistic, "negate": lax.neg, "round": lax.round,
        "rsqrt": lax.rsqrt, "sign": lax.sign, "sine": lax.sin, "sqrt": lax.sqrt, "tanh": lax.tanh,
    }
    binary = {
        "add": lax.add, "atan2": lax.atan2, "compare": lax.lt, "divide": lax.div, "maximum": lax.max,
        "minimum": lax.min, "multiply": lax.mul, "power": lax.pow, "remainder": lax.rem, "subtract": lax.sub,
    }
    integer = {
        "and": lax.bitwise_and, "or": lax.bitwise_or, "shift_left": lax.shift_left,
        "shift_right_logical": lax.shift_right_logical, "xor": lax.bitwise_xor,
    }
    return {name: (fn, (F,)) for name, fn in unary.items()} | {
        name: (fn, (F, F)) for name, fn in binary.items()} | {
        name: (fn, (I, I)) for name, fn in integer.items()} | {
        "bitcast_convert": (lambda x: lax.bitcast_convert_type(x, jnp.int32), (F,)),
        "broadcast_in_dim": (lambda x: lax.broadcast_in_dim(x, SHAPE, (1,)), (array(SHAPE[1]),)),
        "clamp": (lax.clamp, (F, F, F)),
        "concatenate": (lambda x, y: lax.concatenate((x, y), 0), (F, F)),
        "convert": (lambda x: lax.convert_element_type(x, jnp.bfloat16), (F,)),
        "convolution": (
            lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            (image, array(3, 3, 8, 16))),
        "dot_general": (lax.dot, (F, array(SHAPE[1], 128))),
        "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, i), (8, 128)), (F, INDEX)),
        "dynamic_update_slice": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), (F, array(8, 128), INDEX)),
        "gather": (gather, (F, rows)),
        "iota": (lambda: lax.broadcasted_iota(jnp.int32, SHAPE, 1), ()),
        "not": (lax.bitwise_not, (I,)),
        "reshape": (lambda x: lax.reshape(x, (SHAPE[1], SHAPE[0])), (F,)),
        "scatter": (scatter_add, (F, rows, array(16, SHAPE[1]))),
        "select": (lax.select, (B, F, F)),
        "sort": (lambda x: lax.sort(x, dimension=0), (array(64),)),
        "transpose": (lambda x: lax.transpose(x, (1, 0)), (F,)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    folder = args.out_dir / "one_op"
    folder.mkdir(parents=True, exist_ok=True)
    # Locations name the script without its folder: artifacts must not depend on the machine.
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    for name, (fn, inputs) in table().items():
        exported = jax.export.export(jax.jit(fn))(*inputs)
        (folder / f"{name}.mlirbc").write_bytes(exported.mlir_module_serialized)


if __name__ == "__main__":
    main()
