"""Bad programs and bad calls through unmodified JAX: what each error says, and that the client goes on behind it.

One process: every case finds the client as the one before it left it. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _jax as jaxlib

os.environ["TPUBOARD_TIME_LIMIT"] = "1"  # seconds that a launch may take without ending a step
DEVICES = np.array(jax.devices("tpu"))
X = np.arange(64, dtype=np.float32).reshape(8, 8)


def expect(name: str, call: Callable[[], object], *parts: str) -> None:
    """`call` raises an error that has all `parts`; afterwards programs and transfers work as before."""
    try:
        jax.block_until_ready(call())
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        for part in parts:
            assert part in str(error), f"{name}: '{part}' is not in\n{error}"
    else:
        raise AssertionError(f"{name}: no error")
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: a.T + 1)(X)), X.T + 1, err_msg=f"behind {name}")


def line(function: Callable, of: str) -> str:
    """`FILE:LINE` of the first line of `function` that has the text `of`."""
    first = function.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"{Path(__file__).name}:{next(i for i in range(first, len(lines)) if of in lines[i]) + 1}"


def compile_text(body: str, partitions: int = 1, options: object = None) -> object:
    """Compiles StableHLO that JAX itself would not write."""
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    options = options or jaxlib.CompileOptions()
    options.executable_build_options.num_partitions = partitions
    with mlir.make_ir_context():
        module = ir.Module.parse(f"module @m attributes {{mhlo.num_partitions = {partitions} : i32}} {{\n{body}\n}}")
        code = mlir.module_to_bytecode(module)
    return DEVICES[0].client.compile_and_load(code, list(DEVICES[:partitions]), options)


def mapped(mesh: Mesh) -> object:
    """A sum over the cores of `mesh`."""
    return jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))(X)


def operations_and_types() -> None:
    """What the board lacks: all of it at once, each with its line and what to do."""

    def several(a: jax.Array) -> tuple:
        small = a.astype(jnp.float8_e5m2)
        half = a.astype(jnp.float16)
        return small, half

    expect("several", lambda: jax.jit(several)(X), "UNIMPLEMENTED", "things in this program are not supported",
           line(several, "float8") + ":", "f8", line(several, "float16") + ":", "f16", "use bfloat16")
    expect("f16", lambda: jax.jit(lambda a: a * 2)(X.astype(np.float16)), "UNIMPLEMENTED", "errors_test.py:",
           "use bfloat16")
    small = jax.device_put(X.astype(jnp.float8_e4m3fn))
    expect("f8", lambda: small.astype(jnp.float32), "UNIMPLEMENTED", "errors_test.py:", "f8")
    expect("i4", lambda: jax.device_put(X.astype(jnp.int4)).astype(jnp.int32), "UNIMPLEMENTED", "i4")
    with jax.enable_x64(True):
        expect("f64", lambda: jax.jit(lambda a: jax.lax.reduce_precision(a, 11, 30))(X.astype(np.float64)),
               "UNIMPLEMENTED", "errors_test.py:", "at most 23 bits of mantissa")
        expect("complex128", lambda: jax.jit(lambda a: a * 2)(X.astype(np.complex128)), "UNIMPLEMENTED",
               "errors_test.py:", "complex128", "use complex64")

    def twice(source: object, target: object) -> None:
        target[...] = source[...] * 2

    def kernel(a: jax.Array) -> jax.Array:
        return pallas.pallas_call(twice, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32))(a)

    expect("Pallas", lambda: jax.jit(kernel)(jnp.ones((8, 128))), "UNIMPLEMENTED", line(kernel, "pallas_call") + ":",
           "'tpu_custom_call'", "MLIR of the Mosaic compiler", "interpret=True",
           "keras.config.disable_flash_attention()")
    expect("dynamic shape", lambda: compile_text("""func.func public @main(%a: tensor<?xf32>) -> tensor<?xf32> {
        %0 = stablehlo.add %a, %a : tensor<?xf32>
        return %0 : tensor<?xf32> }"""), "UNIMPLEMENTED", "dynamic shapes", "fixed sizes")


def buffers() -> None:
    """Donation and deletion."""
    both = jax.jit(lambda a, b: a + b, donate_argnums=0)
    x = jax.device_put(X)
    expect("donated and used", lambda: both(x, x), "INVALID_ARGUMENT",
           "argument 0 (a) and argument 1 (b) are the same buffer", "argument 0 (a) is donated", "pass a copy")
    y = jax.device_put(X)
    both(y, X)
    assert y.is_deleted()
    expect("donated", lambda: both(X, y), "deleted")
    z = jax.device_put(X)
    z.delete()
    expect("deleted", lambda: z + 1, "deleted")
    expect("deleted, read", lambda: np.asarray(z), "deleted")
    expect("donated to another type", lambda: compile_text(
        """func.func public @main(%a: tensor<8xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
        %0 = stablehlo.slice %a [0:4] : (tensor<8xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32> }"""), "INVALID_ARGUMENT", "argument 0 is donated to a result of another type")


def memory() -> None:
    """More than a core has, at compile: the largest arrays are listed."""

    def large(a: jax.Array) -> tuple:
        b = jnp.broadcast_to(a[:, None, None], (8, 16384, 65536))
        return b, a

    expect("32 GiB", lambda: jax.jit(large)(X[0]), "RESOURCE_EXHAUSTED", "GiB), a core has 16 GiB", "out_shardings",
           "34359738368 bytes: result 0 (result[0])")

    def inside(n: int) -> jax.Array:
        x = jnp.ones((n, n), jnp.bfloat16)
        x = jax.nn.softmax(x @ x) + x.sum(0)
        return (x @ x)[0, 0]

    for n in (10**5, 10**6):
        expect(f"{n} x {n}", lambda n=n: jax.jit(inside, static_argnums=0).lower(n).compile(), "RESOURCE_EXHAUSTED",
               "the program needs at least", "a core has 16 GiB", f"{2 * n * n} bytes: bf16[{n},{n}] of",
               line(inside, "softmax"))
    for n in (10**9, 3 * 10**9):  # the bytes of the last one have more than 63 bits
        expect(f"{n} x {n}", lambda n=n: jax.jit(inside, static_argnums=0).lower(n).compile(), "RESOURCE_EXHAUSTED",
               f"an array of type bf16[{n},{n}] is too large", line(inside, "ones"))


def meshes() -> None:
    """Device lists and shardings that cannot be."""
    expect("a device twice", lambda: mapped(Mesh(DEVICES[[0, 1, 1, 2]], ("x",))), "INVALID_ARGUMENT",
           "names device 1 twice", "a mesh has each device once")
    halves = [NamedSharding(Mesh(DEVICES[i:i + 4], ("x",)), P("x")) for i in (0, 4)]
    expect("two meshes", lambda: jax.jit(lambda a, b: a + b)(*(jax.device_put(X, half) for half in halves)),
           "incompatible devices")
    add = """func.func public @main(%a: tensor<16xf32> {mhlo.sharding = "SHARDING"}) -> tensor<16xf32> {
        %0 = stablehlo.add %a, %a : tensor<16xf32>
        return %0 : tensor<16xf32> }"""
    for sharding, part in (("{devices=[4]<=[8]}", "must have as many tiles as the program has devices: expected 8"),
                           ("{devices=[8]0,0,1,2,3,4,5,6}", "must name each device 0..7 once")):
        expect(sharding, lambda s=sharding: compile_text(add.replace("SHARDING", s), 8), "INVALID_ARGUMENT",
               "argument 0", sharding, part)
    cut = """sdy.mesh @mesh = <["x"=8]>
        func.func public @main(%a: tensor<SIZEx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>GSPMD}) -> tensor<SIZEx8xf32> {
        %0 = stablehlo.add %a, %a : tensor<SIZEx8xf32>
        return %0 : tensor<SIZEx8xf32> }"""  # noqa: E501
    expect("two languages", lambda: compile_text(
        cut.replace("SIZE", "16").replace("GSPMD", ', mhlo.sharding = "{devices=[1,8]<=[8]}"'), 8),
           "INVALID_ARGUMENT", "argument 0", "'{devices=[1,8]<=[8]}' contradict each other", "give one of them")
    compile_text(cut.replace("SIZE", "16").replace("GSPMD", ', mhlo.sharding = "{devices=[8,1]<=[8]}"'), 8)
    expect("unequal parts", lambda: compile_text(cut.replace("SIZE", "12").replace("GSPMD", ""), 8),
           "INVALID_ARGUMENT", "argument 0", "dimension 0 of f32[12,8] cannot be sharded into 8 equal parts")
    expect("16 devices", lambda: compile_text("""sdy.mesh @mesh = <["x"=16]>
        func.func public @main(%a: tensor<16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<16xf32> {
        return %a : tensor<16xf32> }""", 16), "INVALID_ARGUMENT", "16 cores", "v3_8 has 8")


def options() -> None:
    """An option of the compiler that there is not; those of XLA are without effect."""
    expect("option", lambda: jax.jit(lambda a: a + 2, compiler_options={"fast_math": True})(X), "INVALID_ARGUMENT",
           "No such compile option: 'fast_math'")
    expect("value", lambda: jax.jit(lambda a: a + 2, compiler_options={"xla_embed_ir_in_executable": "maybe"})(X),
           "INVALID_ARGUMENT", "xla_embed_ir_in_executable", "'maybe' is not a valid bool value.")
    for value in ({"xla_tpu_enable_latency_hiding_scheduler": True}, {"xla_embed_ir_in_executable": "true"},
                  {"xla_tpu_enable_async_all_gather": "AUTO"}, {"xla_dump_to": "/nowhere"},
                  {"xla_backend_optimization_level": "2"}):
        hinted = jax.jit(lambda a: a + 2, compiler_options=value)
        np.testing.assert_array_equal(np.asarray(hinted(X)), X + 2)


def endless() -> None:
    """A step that does not end: core, operation, line; what lies on the board stays."""
    kept = jax.device_put(X)

    def spin(a: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda s: s[0, 1] > 0, lambda s: s * 1.0, a)

    result = jax.jit(spin)(jax.device_put(X, DEVICES[3]))
    expect("endless", lambda: result, "DEADLINE_EXCEEDED", "TPUBOARD_TIME_LIMIT", "TPU:3", "[op ",
           line(spin, "while_loop"))
    expect("made from it", lambda: jax.jit(lambda a: a + 1)(result), "TPU:3", line(spin, "while_loop"))
    np.testing.assert_array_equal(np.asarray(kept), X)


if __name__ == "__main__":
    for group in (operations_and_types, buffers, memory, meshes, options, endless):
        group()
    print("passed")
