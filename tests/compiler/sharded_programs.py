"""Programs with shardings for hlo_forms_test.py: jax.shard_map in its forms, constraints, and arguments and results."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

# What PyTorch/XLA writes between enable_manual_sharding and disable_manual_sharding: no function.
MANUAL_PART = """
module attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<8x8xf32> {mhlo.sharding = "{devices=[1,8]<=[8]}"}, %scale: tensor<f32>)
      -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}
        : (tensor<8x8xf32>) -> tensor<8x1xf32>
    %1 = stablehlo.broadcast_in_dim %scale, dims = [] : (tensor<f32>) -> tensor<8x1xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<8x1xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{manual}"} : (tensor<8x1xf32>) -> tensor<8x1xf32>
    %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding = "{devices=[1,8]<=[8]}"}
        : (tensor<8x1xf32>) -> tensor<8x8xf32>
    return %4 : tensor<8x8xf32>
  }
}"""


def sharded(shardy: bool) -> Iterator[tuple[str, str]]:
    """Names and texts, in the language of GSPMD or of Shardy. Of results without GSPMD's: XLA writes those on
    instructions that nothing reads too, which its conversion from HLO does not keep."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental.shard_alike import shard_alike
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    jax.config.update("jax_use_shardy_partitioner", shardy)
    devices = np.array(jax.devices("cpu")[:8])
    mesh = Mesh(devices.reshape(2, 4), ("a", "b"))
    turned = Mesh(devices[[0, 2, 4, 6, 1, 3, 5, 7]].reshape(2, 4), ("a", "b"))
    x = jax.ShapeDtypeStruct((8, 16), jnp.float32)

    def on(*spec) -> NamedSharding:
        return NamedSharding(mesh, P(*spec))

    def double_sum(v):
        return jax.lax.psum(v, "b") * 2

    def place() -> jax.Array:
        return jax.lax.axis_index("a")[None].astype(jnp.float32)

    def nested(w):
        inner = jax.shard_map(double_sum, in_specs=P(None, "b"), out_specs=P(), axis_names={"b"})
        return inner(w * 2)

    programs = {
        "all_axes": (jax.shard_map(double_sum, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", None)), 1, {}),
        "other_order": (jax.shard_map(double_sum, mesh=turned, in_specs=P("a", "b"), out_specs=P("a", None)), 1, {}),
        "one_axis": (jax.shard_map(double_sum, mesh=mesh, in_specs=P(None, "b"), out_specs=P(), axis_names={"b"}),
                     1, {}),
        "several": (jax.shard_map(lambda v, w: (v + 1, w * 2), mesh=mesh, in_specs=(P("a", "b"), P(("b", "a"))),
                                  out_specs=(P("a", "b"), P(("b", "a")))), 2, {}),
        "no_operands": (lambda v: v + jax.shard_map(place, mesh=mesh, in_specs=(), out_specs=P("a"))().sum(), 1, {}),
        "nested": (lambda v: jax.shard_map(nested, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})(v),
                   1, {}),
        "constraint": (lambda v: jax.lax.with_sharding_constraint(v * 2, on("a", P.UNCONSTRAINED)), 1, {}),
        "alike": (lambda v, w: shard_alike(v * 2, w + 1), 2, {"in_shardings": (on("a", "b"), None)}),
        "borders": (lambda v, w: (v * 2, w + 1), 2,
                    {"in_shardings": (on("a", "b"), on()), "out_shardings": (on("b"), None)}),
        "one_array_thrice": (lambda v: (v, v * 2, v), 1,
                             {"in_shardings": (on("a", "b"),), "out_shardings": (on("b"), None, on())}),
    }
    for name, (function, arguments, options) in programs.items():
        if not shardy and "out_shardings" in options:
            continue
        lowered = jax.jit(function, **options).trace(*[x] * arguments).lower(lowering_platforms=("tpu",))
        yield f"sharded.{name}", str(lowered.compiler_ir("stablehlo"))
