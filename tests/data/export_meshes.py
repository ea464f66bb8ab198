#!/usr/bin/env python3
"""Exports the artifacts of this folder whose meshes and shardings are unusual: several meshes of one program, parts of
axes, and GSPMD's language in place of Shardy's.

Usage: export_meshes.py [--out-dir DIR]. Needs what export_graphs.py needs.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import export_graphs  # noqa: F401 - sets what JAX reads from the environment

import jax
import numpy as np
from jax import lax
from jax._src.interpreters import mlir
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _jax
from jaxlib.mlir import ir


def constrained(meshes: str, shardings: list[str]) -> bytes:
    """A program of Shardy's text: one argument f32[8,8] under one constraint after the other."""
    t = "tensor<8x8xf32>"
    ops = "".join(f"  %{i + 1} = sdy.sharding_constraint %{i} <{s}> : {t}\n" for i, s in enumerate(shardings))
    text = (f"module @m attributes {{mhlo.num_partitions = 8 : i32}} {{\n{meshes}\n"
            f"func.func public @main(%arg: {t}) -> {t} {{\n  %0 = stablehlo.negate %arg : {t}\n{ops}"
            f"  return %{len(shardings)} : {t}\n}}\n}}")
    with mlir.make_ir_context():
        return _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), "1.8.0", True)


def grouped(second: str) -> bytes:
    """A program of Shardy's text whose arguments, the first of which is cut, should lie alike."""
    t = "tensor<8x8xf32>"
    args = f'%a: {t} {{sdy.sharding = #sdy.sharding<@grid, [{{"a"}}, {{"b"}}]>}}, %b: {second}'
    text = ("module @m attributes {mhlo.num_partitions = 8 : i32} {\n"
            'sdy.mesh @grid = <["a"=4, "b"=2]>\n'
            f"func.func public @main({args}) -> {second} {{\n"
            f"  sdy.sharding_group %a group_id=5 : {t}\n  sdy.sharding_group %b group_id=5 : {second}\n"
            f"  return %b : {second}\n}}\n}}")
    with mlir.make_ir_context():
        return _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), "1.8.0", True)


def along_axes(*groups: tuple[str, list[str]]) -> bytes:
    """Plain StableHLO: one all_gather after the other, in groups along axes of a mesh."""
    ops, size = "", 2
    for i, (mesh, axes) in enumerate(groups):
        refs = ", ".join(f"#stablehlo.axis_ref<name = {axis}>" for axis in axes)
        ops += (f'  %{i + 1} = "stablehlo.all_gather"(%{i}) <{{all_gather_dim = 0 : i64, replica_groups = '
                f"#stablehlo.replica_group_mesh_axes<mesh = @{mesh}, axes = [{refs}]>, use_global_device_ids, "
                "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}> "
                f": (tensor<{size}xf32>) -> tensor<{size * 2 ** len(axes)}xf32>\n")
        size *= 2 ** len(axes)
    text = ("module @m attributes {mhlo.num_partitions = 8 : i32} {\n"
            'sdy.mesh @grid = <["a"=4, "b"=2]>\n'
            'sdy.mesh @cube = <["c"=2, "d"=2, "e"=2], device_ids=[0, 2, 1, 3, 4, 6, 5, 7]>\n'
            'sdy.mesh @rows = <["across"=2, "column"=2, "k"=2]>\n'
            f"func.func public @main(%0: tensor<2xf32>) -> tensor<{size}xf32> {{\n{ops}"
            f"  return %{len(groups)} : tensor<{size}xf32>\n}}\n}}")
    with mlir.make_ir_context():
        file = io.BytesIO()
        ir.Module.parse(text.replace("%0", "%arg0")).operation.write_bytecode(file, 6)
        return file.getvalue()


def own_partitioning() -> dict[str, bytes]:
    """A call that a framework partitions itself, and a program of one core for its parts."""
    t = "tensor<8x6xf32>"
    whole = ("module @m attributes {mhlo.num_partitions = 8 : i32} {\n"
             'sdy.mesh @grid = <["a"=4, "b"=2]>\n'
             f'func.func public @main(%x: {t} {{sdy.sharding = #sdy.sharding<@grid, [{{"a"}}, {{}}]>}}) -> {t} {{\n'
             f'  %0 = stablehlo.custom_call @CustomSPMDPartitioning(%x) {{backend_config = "key"}} : ({t}) -> {t}\n'
             f"  return %0 : {t}\n}}\n}}")
    t = "tensor<2x6xf32>"
    part = (f"module @part {{\nfunc.func public @main(%x: {t}) -> {t} {{\n"
            f"  %0 = stablehlo.negate %x : {t}\n  return %0 : {t}\n}}\n}}")
    with mlir.make_ir_context():
        return {name: _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), "1.8.0", True)
                for name, text in {"own_partitioning": whole, "own_partitioning_part": part}.items()}


def shardy() -> dict[str, bytes]:
    grid = 'sdy.mesh @grid = <["a"=4, "b"=2]>\n'
    turned = 'sdy.mesh @turned = <["c"=2, "d"=4], device_ids=[0, 2, 4, 6, 1, 3, 5, 7]>\n'
    none = 'sdy.mesh @none = <[]>\nsdy.mesh @last = <[], device_ids=[7]>\n'
    return {
        "groups_along_axes": along_axes(("grid", ['"b"', '"a", sub_axis_info = (1)2']), ("cube", ['"d"'])),
        # A string of a good artifact replaced by another: MLIR checks what it writes.
        "bad_groups_axis_twice": along_axes(("rows", ['"across"', '"column"'])).replace(b"column\0", b"across\0"),
        "mesh_parts": constrained(grid, ['@grid, [{"a":(1)2}, {"b", "a":(2)2}]', '@grid, [{?}, {"b"}p1]']),
        "mesh_several": constrained(grid + turned + none, [
            '@grid, [{"a"}, {"b"}]', '@turned, [{"d"}, {"c"}]',
            'mesh<["x"=8]>, [{"x"}, {}]', '@none, [{}, {}]', '@last, []']),
        "mesh_of_another_order": constrained(
            'sdy.mesh @ring = <["a"=8], device_ids=[0, 1, 2, 3, 6, 7, 4, 5]>\n', ['@ring, [{"a"}, {}]']),
        "mesh_two_orders": constrained(
            grid + 'sdy.mesh @ring = <["c"=8], device_ids=[0, 1, 2, 3, 6, 7, 4, 5]>\n',
            ['@grid, [{"a"}, {}]', '@ring, [{"c"}, {}]']),
        "bad_mesh_size": constrained('sdy.mesh @half = <["a"=4]>\n', ['@half, [{"a"}, {}]']),
        # Strings of good artifacts replaced by others: MLIR checks what it writes.
        "bad_mesh_axis": constrained(
            'sdy.mesh @gridA = <["rows"=8]>\nsdy.mesh @gridB = <["x"=4, "y"=2]>\n',
            ['@gridA, [{"rows"}, {}]', '@gridB, [{"x"}, {}]']).replace(b"gridB\0", b"gridA\0"),
        "bad_mesh_axis_twice": constrained(
            'sdy.mesh @grid = <["rows"=4, "cols"=2]>\n',
            ['@grid, [{"rows"}, {"cols"}]']).replace(b"cols\0", b"rows\0"),
        "mesh_unreduced": constrained(grid, [
            '@grid, [{"a"}, {}], unreduced={"b"}', '@grid, [{}, {}], unreduced={"a":(2)2, "b"}']),
        "sharding_group": grouped("tensor<8x8xf32>"),
        "bad_sharding_group": grouped("tensor<8x4xf32>"),
    }


def gspmd_shard_map(x, w):
    """All axes manual; some axes; an op between them."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))

    def both(a, b):
        return lax.psum(a @ b, "model"), b + 1

    y, v = jax.shard_map(both, mesh=mesh, in_specs=(P("data", "model"), P("model")),
                         out_specs=(P("data"), P("model")))(x, w)
    some = jax.shard_map(lambda a: lax.psum(a, "data"), mesh=mesh, in_specs=P("data"), out_specs=P(),
                         axis_names={"data"})
    z = lax.with_sharding_constraint(y, NamedSharding(mesh, P("data", P.UNCONSTRAINED)))
    return some(z), v


def gspmd() -> dict[str, bytes]:
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))

        def arg(shape: tuple[int, ...], spec: P) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))

        f = jax.jit(gspmd_shard_map)
        args = arg((16, 8), P("data", "model")), arg((8, 4), P(None, "model"))
        return {"gspmd_shard_map": jax.export.export(f)(*args).mlir_module_serialized}
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    args.out_dir.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    for name, content in {**shardy(), **own_partitioning(), **gspmd()}.items():
        (args.out_dir / f"{name}.mlirbc").write_bytes(content)


if __name__ == "__main__":
    main()
