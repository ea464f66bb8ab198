#!/usr/bin/env python3
"""Exports the artifacts of this folder whose interface JAX does not write by itself: programs of several replicas (also
as PyTorch/XLA writes them, without the number of replicas), and arrays in an order of dimensions of their own.

Usage: export_replicas.py [--out-dir DIR]. Needs what export_graphs.py needs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# Two replicas of two partitions. The weights are cut over the partitions; the replicas add their gradients.
REPLICA_GRID = """module @replica_grid attributes {mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 2 : i32} {
func.func @main(%w: tensor<4xf32> {mhlo.sharding = "{devices=[2]<=[2]}", tf.aliasing_output = 0 : i32},
                %x: tensor<f32>) -> (tensor<4xf32>, tensor<ui32>) {
  %b = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %g = stablehlo.multiply %w, %b : tensor<4xf32>
  %s = "stablehlo.all_reduce"(%g) ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.add %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  %i = stablehlo.replica_id : tensor<ui32>
  return %s, %i : tensor<4xf32>, tensor<ui32>
}
}"""

# Every strategy of the specification, three replicas of two partitions.
PROCESS_GROUPS = """module @process_groups attributes {mhlo.num_replicas = 3 : i32, mhlo.num_partitions = 2 : i32} {
func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2xf32>, tensor<2xf32>) {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.maximum %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }) {replica_groups = dense<[[2, 0], [1, -1]]> : tensor<2x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
  %1 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0], [1], [2]]> : tensor<3x1xi64>,
    channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<2xf32>) -> tensor<4xf32>
  %2 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 3], [5, 1], [2, 4]]>
    : tensor<3x2xi64>, use_global_device_ids, channel_handle = #stablehlo.channel_handle<handle = 2, type = 0>}
    : (tensor<2xf32>) -> tensor<4xf32>
  %3 = "stablehlo.collective_broadcast"(%x) {replica_groups = dense<[[1]]> : tensor<1x1xi64>,
    channel_handle = #stablehlo.channel_handle<handle = 3, type = 0>} : (tensor<2xf32>) -> tensor<2xf32>
  %4 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 2]]> : tensor<1x2xi64>}
    : (tensor<2xf32>) -> tensor<2xf32>
  return %0, %1, %2, %3, %4 : tensor<2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<2xf32>, tensor<2xf32>
}
}"""

LAYOUT_MODES = """module @layout_modes {
func.func @main(%x: tensor<2x3x4xf32> {mhlo.layout_mode = "{0,2,1}"}, %y: tensor<4xf32> {mhlo.layout_mode = "default"})
    -> (tensor<4x2xf32> {mhlo.layout_mode = "{0,1}"}, tensor<2x3xf32> {mhlo.layout_mode = "auto"}) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
  %b = stablehlo.broadcast_in_dim %y, dims = [0] : (tensor<4xf32>) -> tensor<4x2xf32>
  %r = stablehlo.add %t, %b : tensor<4x2xf32>
  %u = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [2]
      : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %r, %u : tensor<4x2xf32>, tensor<2x3xf32>
}
}"""

TWO_REPLICAS = "{mhlo.num_replicas = 2 : i32}"

REPLICA_NEGATE = """module @replica_negate {
func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {
  %y = stablehlo.negate %x : tensor<256xf32>
  return %y : tensor<256xf32>
}
}"""


def replica_step(name: str, reduction: str, elements: int) -> str:
    """A step of training whose gradients all replicas reduce; the number of replicas is not stated."""
    array = f"tensor<{elements}xf32>"
    return f"""module @{name} {{
func.func @main(%w: {array} {{tf.aliasing_output = 0 : i32}}, %x: {array}) -> ({array}, tensor<f32>) {{
  %g = stablehlo.multiply %w, %x : {array}
  %s = "stablehlo.all_reduce"(%g) ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>):
    %r = stablehlo.{reduction} %p, %q : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }}) {{replica_groups = dense<> : tensor<0x0xi64>}} : ({array}) -> {array}
  %n = stablehlo.subtract %w, %s : {array}
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.reduce(%g init: %z) applies stablehlo.add across dimensions = [0]
      : ({array}, tensor<f32>) -> tensor<f32>
  return %n, %l : {array}, tensor<f32>
}}
}}"""


def replica_rank(rank: int, of: int = 4) -> str:
    """What PyTorch/XLA's replica of that rank compiles: the rank as a constant (0 and 1) or as an argument, as padding
    (all_gather by all_reduce), as the start of a slice, in an array."""
    array, wide = "tensor<4xf32>", f"tensor<{4 * of}xf32>"
    argument = "" if rank < 2 else "%k: tensor<f32>, "
    constant = f"%k = stablehlo.constant dense<{rank}.0> : tensor<f32>" if rank < 2 else ""
    return f"""module @replica_rank {{
func.func @main({argument}%x: {array} {{tf.aliasing_output = 1 : i32}}) -> ({wide}, {array}) {{
  {constant}
  %c = stablehlo.constant dense<[{rank}.5, {rank}.5, 1.0, 1.0]> : {array}
  %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<f32>) -> {array}
  %y = stablehlo.add %x, %b : {array}
  %m = stablehlo.multiply %y, %c : {array}
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.pad %m, %z, low = [{4 * rank}], high = [{4 * (of - 1 - rank)}], interior = [0]
      : ({array}, tensor<f32>) -> {wide}
  %s = "stablehlo.all_reduce"(%p) ({{
  ^bb0(%a: tensor<f32>, %d: tensor<f32>):
    %r = stablehlo.add %a, %d : tensor<f32>
    stablehlo.return %r : tensor<f32>
  }}) {{replica_groups = dense<> : tensor<0x0xi64>}} : ({wide}) -> {wide}
  %o = stablehlo.slice %s [{4 * rank}:{4 * rank + 4}] : ({wide}) -> {array}
  return %s, %o : {wide}, {array}
}}
}}"""


def artifact(text: str) -> bytes:
    with mlir.make_ir_context(), ir.Location.unknown():
        return stablehlo.serialize_portable_artifact(ir.Module.parse(text), "1.13.0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    out = parser.parse_args().out_dir
    for name, text in (("replica_grid", REPLICA_GRID), ("process_groups", PROCESS_GROUPS),
                       ("layout_modes", LAYOUT_MODES),
                       ("layout_modes_replicas", LAYOUT_MODES.replace("{", f"attributes {TWO_REPLICAS} {{", 1)),
                       ("replica_negate", REPLICA_NEGATE),
                       ("replica_step", replica_step("replica_step", "add", 256)),
                       ("replica_step_max", replica_step("replica_step_max", "maximum", 256)),
                       ("replica_step_large", replica_step("replica_step_large", "add", 1 << 20)),
                       *((f"replica_rank_{rank}", replica_rank(rank)) for rank in range(4))):
        (out / f"{name}.mlirbc").write_bytes(artifact(text))


if __name__ == "__main__":
    main()
