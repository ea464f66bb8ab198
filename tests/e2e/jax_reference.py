"""Runs an exported program with JAX on the CPU: as it is (f32), or with dot operands rounded to bf16 and f32 sums.

This is the oracle of the comparison tests: the very StableHLO graph that the board compiles, with a reduce_precision
put in front of every f32 operand of dot_general and convolution when the board's operand precision is wanted.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import _jax
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo
from jax.sharding import NamedSharding, PartitionSpec as P

# One context for all programs of a process: JAX makes one for each, a seventh of the time of a small program.
jax_mlir.make_ir_context = functools.cache(jax_mlir.make_ir_context)

gc.freeze()  # what JAX's modules hold is no garbage: to look through it at the end takes half as long as the import

# Element types of StableHLO that the board takes.
DTYPES = {"f32": np.float32, "bf16": jnp.bfloat16, "i1": np.bool_, "i8": np.int8, "ui8": np.uint8, "i16": np.int16,
          "ui16": np.uint16, "i32": np.int32, "ui32": np.uint32, "i64": np.int64, "ui64": np.uint64}


def compile_fast(older_emitters: bool = False) -> None:
    """XLA spends less on the code for the CPU. Before the first array: XLA reads its flags then. Its older emitters
    write the least for LLVM, but compute some functions to fewer digits: for tests with bounds on whole arrays."""
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"
    if older_emitters:
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"


def _round_dots(block: ir.Block) -> None:
    """Inserts reduce_precision<8, 7> before the f32 operands of each contraction of default precision below `block`."""
    for op in list(block.operations):
        attributes = op.operation.attributes
        precision = str(attributes["precision_config"]) if "precision_config" in attributes else ""
        if op.operation.name in ("stablehlo.dot_general", "stablehlo.convolution") and "HIGH" not in precision:
            with ir.InsertionPoint(op), op.operation.location:
                for index, operand in enumerate(op.operation.operands):
                    if str(ir.RankedTensorType(operand.type).element_type) == "f32":
                        rounded = hlo.reduce_precision(operand, exponent_bits=ir.IntegerAttr.get(
                            ir.IntegerType.get_signless(32), 8), mantissa_bits=ir.IntegerAttr.get(
                            ir.IntegerType.get_signless(32), 7))
                        op.operation.operands[index] = rounded
        for region in op.operation.regions:
            for inner in region.blocks:
                _round_dots(inner)


def _portable(module: ir.Module) -> bytes:
    version = hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_4)
    return _jax.mlir.serialize_portable_artifact(jax_mlir.module_to_bytecode(module), version, True)


def with_bf16_dots(exported: jax.export.Exported) -> jax.export.Exported:
    """The same program with dot operands rounded to bf16."""
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(exported.mlir_module())
        _round_dots(module.body)
        data = _portable(module)
    return dataclasses.replace(exported, mlir_module_serialized=data)


def from_text(text: str, inputs: Sequence[np.ndarray]) -> jax.export.Exported:
    """A program of one core from a StableHLO module as text, with a function main."""
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        main = next(op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
        results = [ir.RankedTensorType(result) for result in ir.FunctionType(main.type).results]
        shapes = [(tuple(r.shape), DTYPES[str(r.element_type)]) for r in results]
        data = _portable(module)
    # The frame of the artifact: a function of the same arguments and results.
    frame = jax.jit(lambda *_: tuple(jnp.zeros(*shape) for shape in shapes), keep_unused=True)
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
    exported = jax.export.export(frame, platforms=["cpu"])(*types)
    return dataclasses.replace(exported, mlir_module_serialized=data)


def runner(exported: jax.export.Exported, round_dots: bool) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Gives results in flattened order for arguments in flattened order; what it calls again is compiled once."""
    program = with_bf16_dots(exported) if round_dots else exported
    call = jax.jit(program.call)

    def results_of(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        arguments = list(arrays)
        if exported.nr_devices > 1:
            mesh = jax.sharding.Mesh(np.array(jax.devices()[: exported.nr_devices]), ("data",))
            arguments = [jax.device_put(a, NamedSharding(mesh, P())) for a in arrays]
        args, kwargs = jax.tree.unflatten(program.in_tree, arguments)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(call(*args, **kwargs))]

    return results_of


def run(exported: jax.export.Exported, arrays: Sequence[np.ndarray], round_dots: bool) -> list[np.ndarray]:
    """Results in flattened order for arguments in flattened order."""
    return runner(exported, round_dots)(arrays)


def save_inputs(folder: Path, arrays: Sequence[np.ndarray]) -> list[str]:
    """Writes in0.npy, in1.npy, ... and returns the --in options of `tpuboard run`. bf16 becomes raw 2-byte items."""
    folder.mkdir(parents=True, exist_ok=True)
    options: list[str] = []
    for index, array in enumerate(arrays):
        path = folder / f"in{index}.npy"
        raw = np.asarray(array)
        np.save(path, raw.view("V2") if raw.dtype.name == "bfloat16" else raw)
        options += ["--in", f"{index}={path}"]
    return options


def compile_and_run(tools: Path, folder: Path, exported: jax.export.Exported, inputs: Sequence[np.ndarray],
                    *options: str) -> str | None:
    """Compiles with tpuc and runs with `tpuboard run` and `options`; 0.npy, 1.npy, ... lie in `folder` then. Text of
    a failure, or None."""
    (folder / "p.mlirbc").write_bytes(exported.mlir_module_serialized)
    commands = [[str(tools / "tpuc"), str(folder / "p.mlirbc"), "-o", str(folder / "p.tpuexe")],
                [str(tools / "tpuboard"), "run", str(folder / "p.tpuexe"), *save_inputs(folder, inputs),
                 "--out-dir", str(folder), *options]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode != 0:
            return f"{Path(command[0]).name} exited {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}"
    return None
