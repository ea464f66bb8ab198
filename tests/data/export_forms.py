#!/usr/bin/env python3
"""Writes the artifacts of this folder that say one program (tuples, sizes as operands, a private function) in several
forms: of the newest StableHLO, of the oldest one, and as StableHLO's own bytecode.

Usage: export_forms.py [--out-dir DIR]. Needs what export_graphs.py needs.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import export_graphs  # noqa: F401 - sets what JAX reads from the environment

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

PROGRAM = """
module @forms {
func.func private @twice(%x: tensor<3x4xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.add %x, %x : tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
func.func private @step(%s: tuple<tensor<i32>, tensor<3x4xf32>>) -> tuple<tensor<i32>, tensor<3x4xf32>> {
  %i = stablehlo.get_tuple_element %s[0] : (tuple<tensor<i32>, tensor<3x4xf32>>) -> tensor<i32>
  %a = stablehlo.get_tuple_element %s[1] : (tuple<tensor<i32>, tensor<3x4xf32>>) -> tensor<3x4xf32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %b = stablehlo.tanh %a : tensor<3x4xf32>
  %n = stablehlo.tuple %j, %b : tuple<tensor<i32>, tensor<3x4xf32>>
  return %n : tuple<tensor<i32>, tensor<3x4xf32>>
}
func.func public @main(%x: tensor<3x4xf32> loc("x"), %t: tuple<tensor<3x4xf32>, tuple<tensor<i32>>> loc("t"))
    -> (tensor<3x8xf32>, tuple<tensor<i32>, tensor<3x4xf32>>) {
  %0 = func.call @twice(%x) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %1 = stablehlo.get_tuple_element %t[0] : (tuple<tensor<3x4xf32>, tuple<tensor<i32>>>) -> tensor<3x4xf32>
  %2 = stablehlo.get_tuple_element %t[1] : (tuple<tensor<3x4xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>
  %3 = stablehlo.get_tuple_element %2[0] : (tuple<tensor<i32>>) -> tensor<i32>
  %4 = stablehlo.tuple %3, %1 : tuple<tensor<i32>, tensor<3x4xf32>>
  %5 = func.call @step(%4) : (tuple<tensor<i32>, tensor<3x4xf32>>) -> tuple<tensor<i32>, tensor<3x4xf32>>
  %6 = stablehlo.get_dimension_size %x, dim = 1 : (tensor<3x4xf32>) -> tensor<i32>
  %7 = stablehlo.reshape %6 : (tensor<i32>) -> tensor<1xi32>
  %8 = stablehlo.constant dense<0> : tensor<1xi32>
  %9 = stablehlo.concatenate %8, %7, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %10 = stablehlo.constant dense<0> : tensor<2xi32>
  %11 = stablehlo.constant dense<1.0> : tensor<f32>
  %12 = stablehlo.dynamic_pad %0, %11, %10, %9, %10
      : (tensor<3x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<3x8xf32>
  return %12, %5 : tensor<3x8xf32>, tuple<tensor<i32>, tensor<3x4xf32>>
}
}
"""


def portable(version: str) -> bytes:
    with mlir.make_ir_context():
        return stablehlo.serialize_portable_artifact(ir.Module.parse(PROGRAM), version)


def plain(version: int) -> bytes:
    """StableHLO's own bytecode, of a version of MLIR's bytecode."""
    with mlir.make_ir_context():
        file = io.BytesIO()
        ir.Module.parse(PROGRAM).operation.write_bytecode(file, version)
        return file.getvalue()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().out_dir
    for name, data in {"forms": portable("1.15.0"), "forms_0_9": portable("0.9.0"), "forms_plain": plain(6),
                       "forms_plain_first": plain(0)}.items():
        (folder / f"{name}.mlirbc").write_bytes(data)


if __name__ == "__main__":
    main()
