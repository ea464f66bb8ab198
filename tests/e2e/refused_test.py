"""Programs that tpuc must refuse: exit code 1, the operation, the line that asked for it, what to do; no output.

Usage: refused_test.py --bin DIR [--only SUBSTRING]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import case_runner

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax


@dataclass(frozen=True)
class Case:
    """A program of one lambda, in one line together with the operation that is refused; or a module as text, with
    that operation in its third line."""

    name: str
    words: tuple[str, ...]  # all must be in the message
    function: Callable | str
    inputs: tuple = ()
    options: tuple[str, ...] = ()
    cores: int = 1  # more: the function is the body of a shard_map
    has_line: bool = True
    absent: tuple[str, ...] = ()  # none may be in the message


BOARDS = Path(__file__).resolve().parents[1] / "data" / "boards"
VECTOR = np.arange(8, dtype=np.float32)
MATRIX = np.arange(64, dtype=np.float32).reshape(8, 8)


def _text(line: str, result: str, kind: str) -> str:
    """A module of one argument, f32[8], with `line` as its third line; `result` of it is returned."""
    return "\n".join(["module {", f"func.func public @main(%a: tensor<8xf32>) -> tensor<{kind}> {{", line,
                      f"return {result} : tensor<{kind}>", "}", "}"])


def from_jax() -> list[Case]:
    """Operations and types that JAX programs ask for."""
    huge = jax.ShapeDtypeStruct((2, 3_000_000), np.float32), jax.ShapeDtypeStruct((1100,), np.int32)
    return [
        Case("in_library", ("f16", "called from"), lambda m: optax.tree.cast(m, jnp.float16), (MATRIX,)),
        Case("custom_call", ("custom_call", "lapack", "platforms=['tpu']"), lambda m: jnp.linalg.inv(m), (MATRIX,)),
        Case("two_things", ("2 things", "stablehlo.convert: element type f16", "stablehlo.convert: element type f8"),
             lambda v: (v.astype(jnp.float16), v.astype(jnp.float8_e5m2)), (VECTOR,)),
        Case("f16", ("f16", "bfloat16"), lambda v: v.astype(jnp.float16), (VECTOR,)),
        Case("f8", ("f8", "bfloat16"), lambda v: v.astype(jnp.float8_e4m3fn), (VECTOR,)),
        # Where the type comes from, not what follows from it: the call that returns it, the sum, the comparison.
        Case("in_calls", ("stablehlo.convert: element type f16 is not supported by the TPU; use bfloat16",),
             lambda v: (lambda u: u + u > u)(jax.jit(lambda u: u.astype(jnp.float16))(v)), (VECTOR,),
             absent=("things", "stablehlo.call", "stablehlo.add")),
        Case("i4", ("i4", "standard integer"), lambda v: v.astype(jnp.int4), (VECTOR,)),
        Case("scatter_rounds", ("scatter", "1024 passes", "smaller windows"),
             lambda v, i: v.at[i].add(jnp.ones((1100, 3_000_000))), huge),
        Case("more_cores", ("runs on 8 cores", "has 4", "smaller mesh"), lambda v: lax.psum(v, "d"), (VECTOR,),
             ("--board", str(BOARDS / "four_mxus.toml")), cores=8, has_line=False),
        # 2,000 updates of one element meet in a list that a small vector memory cannot hold.
        Case("vector_memory", ("stablehlo.scatter", "smallest tile", "VMEM (16 KiB)", "f32[16000]", "in parts"),
             lambda v, i: v.at[i].add(jnp.ones((2000, 8))),
             (np.zeros((30001, 8), np.float32), np.zeros(2000, np.int32)),
             ("--set", "core.vmem_kib=16")),
    ]


def from_text() -> list[Case]:
    """StableHLO operations that JAX does not make, or makes of custom calls."""
    number = "%s = stablehlo.constant dense<1.0> : tensor<f32> "
    count = "%n = stablehlo.constant dense<4> : tensor<1xi64> "

    def call(target: str) -> str:
        return _text(f"%0 = stablehlo.custom_call @{target}(%a) : (tensor<8xf32>) -> tensor<8xf32>", "%0", "8xf32")

    calls = [Case(f"call_{target}", ("stablehlo.custom_call", f"'{target}'", word), call(target), (VECTOR,))
             for target, word in (("tpu_custom_call", "keras.config.disable_flash_attention()"),
                                  ("xla_python_cpu_callback", "jax.debug.print"), ("my_kernel", "jax.numpy"),
                                  ("InspectSharding", "outside of jax.jit"), ("mhlo.fusion", "jax.numpy"),
                                  ("mhlo.topk", "the attribute k"),
                                  ("dce_sink", "with results"))]
    return calls + [
        Case(f"text_{name}_{word.split()[0]}", (f"stablehlo.{name}", word), _text(line, result, kind), (VECTOR,))
            for name, word, line, result, kind in (
        ("custom_call", "use memory_kind='device', 'pinned_host' or 'unpinned_host'",
         "%0 = stablehlo.custom_call @annotate_device_placement(%a) {has_side_effect = true, "
         'mhlo.frontend_attributes = {_xla_buffer_placement = "tpu_sram"}} : (tensor<8xf32>) -> tensor<8xf32>',
         "%0", "8xf32"),
        ("remainder", "not supported on complex64", "%z = stablehlo.complex %a, %a : tensor<8xcomplex<f32>> "
         "%r = stablehlo.remainder %z, %z : tensor<8xcomplex<f32>> "
         "%0 = stablehlo.real %r : (tensor<8xcomplex<f32>>) -> tensor<8xf32>", "%0", "8xf32"),
        ("send", "jax.lax.ppermute",
         "%t = stablehlo.create_token : !stablehlo.token %u = \"stablehlo.send\"(%a, %t) "
         "{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, is_host_transfer = false} "
         ": (tensor<8xf32>, !stablehlo.token) -> !stablehlo.token", "%a", "8xf32"),
        ("outfeed", "pass arguments",
         "%t = stablehlo.create_token : !stablehlo.token %u = \"stablehlo.outfeed\"(%a, %t) "
         "{outfeed_config = \"\"} : (tensor<8xf32>, !stablehlo.token) -> !stablehlo.token", "%a", "8xf32"),
        ("dynamic_pad", "constants and of shapes",
         number + count + "%i = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xi64> "
         "%j = stablehlo.slice %i [0:1] : (tensor<8xi64>) -> tensor<1xi64> "
         "%0 = stablehlo.dynamic_pad %a, %s, %j, %n, %n : (tensor<8xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, "
         "tensor<1xi64>) -> tensor<44xf32>", "%0", "44xf32"),
        ("dynamic_pad", "f32[48]",
         number + count + "%m = stablehlo.add %n, %n : tensor<1xi64> "
         "%0 = stablehlo.dynamic_pad %a, %s, %m, %n, %n : (tensor<8xf32>, tensor<f32>, "
         "tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<43xf32>", "%0", "43xf32"),
        ("einsum", "another letter",
         '%0 = stablehlo.einsum %a, %a, config = "i,j->ii" : (tensor<8xf32>, tensor<8xf32>) -> tensor<8x8xf32>',
         "%0", "8x8xf32"),
        ("set_dimension_size", "slice or mask",
         "%n = stablehlo.constant dense<4> : tensor<i32> %0 = stablehlo.set_dimension_size %a, %n, dim = 0 "
         ": (tensor<8xf32>, tensor<i32>) -> tensor<8xf32>", "%0", "8xf32"),
        ("convert", "use bfloat16", "%d = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xf16> "
         "%0 = stablehlo.is_finite %d : (tensor<8xf16>) -> tensor<8xi1>", "%0", "8xi1"),
        ("fft", "complex128 is not supported by the TPU; use complex64",
         "%d = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xf64> "
         "%f = stablehlo.fft %d, type = RFFT, length = [8] : (tensor<8xf64>) -> tensor<5xcomplex<f64>> "
         "%r = stablehlo.real %f : (tensor<5xcomplex<f64>>) -> tensor<5xf64> "
         "%0 = stablehlo.convert %r : (tensor<5xf64>) -> tensor<5xf32>", "%0", "5xf32"),
        ("reduce_precision", "at least 48", "%d = stablehlo.convert %a : (tensor<8xf32>) -> tensor<8xf64> "
         "%r = stablehlo.reduce_precision %d, format = e11m30 : tensor<8xf64> "
         "%0 = stablehlo.convert %r : (tensor<8xf64>) -> tensor<8xf32>", "%0", "8xf32"),
        ("reduce", "before it", number + "%n = stablehlo.constant dense<> : tensor<0xi64> "
         "%0 = stablehlo.reduce(%a init: %s) across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32> "
         "reducer(%p: tensor<f32>, %q: tensor<f32>) { %r = stablehlo.rng %p, %q, %n, distribution = UNIFORM "
         ": (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32> stablehlo.return %r : tensor<f32> }",
         "%0", "f32"))]


def check(case: Case, tools: Path, folder: Path) -> str | None:
    """Text of a failure, or None."""
    exported = case_runner.export(case.function, case.inputs, {"d": case.cores} if case.cores > 1 else None)
    program, executable = folder / "p.mlirbc", folder / "p.tpuexe"
    program.write_bytes(exported.mlir_module_serialized)
    done = subprocess.run([str(tools / "tpuc"), str(program), "-o", str(executable), *case.options],
                          capture_output=True,
                          text=True, check=False, timeout=60)
    if done.returncode != 1:
        return f"exit code {done.returncode}: {done.stderr.strip()}"
    line = "-:3:" if isinstance(case.function,
                                str) else f"{Path(__file__).name}:{case.function.__code__.co_firstlineno}:"
    if any(word in done.stderr for word in case.absent):
        return f"the message has one of {case.absent}: {done.stderr.strip()}"
    missing = [word for word in (*((line,) if case.has_line else ()), *case.words) if word not in done.stderr]
    if missing:
        return f"the message lacks {missing}: {done.stderr.strip()}"
    return "an executable was written" if executable.exists() else None


if __name__ == "__main__":
    sys.exit(case_runner.run_all(from_jax() + from_text(), case_runner.parser(__doc__).parse_args(), check))
