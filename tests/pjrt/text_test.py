"""The text of compiled programs: `compiled.as_text()` reads, names what the cores exchange, and computes the same.

The plugin gives the program of one core as StableHLO, of which jaxlib makes HLO. Programs of one core are compiled from
that again for the CPU, and their results compared. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jaxlib import _jax as jaxlib

CPU = jax.devices("cpu")[0]
X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
Y = X @ X.T + 8 * np.eye(8, dtype=np.float32)
ROWS = np.arange(8, dtype=np.int32) * 3 % 8
IMAGE = np.random.default_rng(1).normal(size=(2, 9, 9, 4)).astype(np.float32)
KERNEL = np.random.default_rng(2).normal(size=(3, 3, 4, 5)).astype(np.float32)


def convolved(image: jax.Array, kernel: jax.Array) -> jax.Array:
    """Strides, dilation and padding that differ by dimension."""
    return lax.conv_general_dilated(image, kernel, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                                    rhs_dilation=(1, 2), precision="highest")


def pooled(image: jax.Array) -> jax.Array:
    """Its gradient is a select_and_scatter."""
    return lax.reduce_window(image, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()


def constants() -> tuple:
    """Booleans, which have a text of their own, empty ones, and each width."""
    return (np.array([[True, False], [True, True]]), np.array(True), np.array([True, False]), np.zeros((2, 0), bool),
            np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, -2], np.int8), jnp.zeros((0, 3)),
            jnp.full((2, 2), 1.5, jnp.bfloat16), np.array([1, 2**31], np.uint32))


# Name: function and arguments.
PROGRAMS: dict[str, tuple] = {
    "compare": (lambda x, i: (x > 1, i < 3, x == x, jnp.where(x > 1, x, 0)), X, ROWS),
    "reduce": (lambda x: (x.sum(), x.max(1), jnp.argmax(x, 1), (x > 0).all()), X),
    "elementwise": (lambda x, i: (jnp.arctan2(x, x + 1), jnp.cbrt(x), jnp.expm1(x), jnp.log1p(x * x), jnp.round(x),
                                  jnp.sign(x), lax.erf(x), jnp.isfinite(x), i << 1, i >> 1, lax.population_count(i),
                                  lax.clamp(-0.5, x, 0.5), lax.reduce_precision(x, 5, 10), x.astype(jnp.bfloat16),
                                  lax.bitcast_convert_type(x, jnp.int32)), X, ROWS),
    "moved": (lambda x: (x[::-1, 1:5:2], x.T, jnp.concatenate([x, x], 1), x.reshape(64), jnp.pad(x, ((1, 2), (0, 0)))),
              X),
    "products": (lambda x: (jnp.einsum("ij,kj->ik", x, x, precision="highest"),
                            jnp.einsum("bij,bjk->bik", x[None], x[None], precision="highest")), X),
    "convolution": (convolved, IMAGE, KERNEL),
    "convolution gradient": (jax.grad(lambda k, i: convolved(i, k).sum()), KERNEL, IMAGE),
    "pooling": (jax.grad(pooled), IMAGE),
    "cumulative": (lambda x: jnp.cumsum(x, 0), X),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0), lax.top_k(x, 3)), X),
    "gather": (lambda x, i: (x[i], jnp.take_along_axis(x, i[:, None], 1)), X, ROWS),
    "scatter": (lambda x, i: x.at[i].add(1.0).at[0, 1].set(3), X, ROWS),
    "windows": (lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i[1], i[2]), (2, 3)), (i[0], i[1])),
                X, ROWS),
    "scan": (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c.sum()), x[0], x), X),
    "while": (lambda x: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] * 1.5), (0, x)), X),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X),
    "switch": (lambda x, i: lax.switch(i[2], [jnp.sin, jnp.cos, jnp.abs], x), X, ROWS),
    "random": (lambda: (jax.random.bits(jax.random.key(0), (3,)), jax.random.normal(jax.random.key(1), (4,))),),
    "factors": (lambda y, x: (jnp.linalg.cholesky(y), lax.linalg.triangular_solve(y, x, lower=True, left_side=True)),
                Y, X),
    "constants": (constants,),
}
MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))


def mapped(function: Callable, out: P) -> Callable:
    """On 4x2 cores, each with a part of both dimensions."""
    return jax.shard_map(function, mesh=MESH, in_specs=P("a", "b"), out_specs=out, check_vma=False)


# Collective of the text: function of an array that lies as P("a", "b").
EXCHANGES: dict[str, Callable] = {
    "all-reduce(": mapped(lambda x: lax.psum((x, x * 2), "a"), P(None, "b")),
    "collective-permute(": mapped(lambda x: lax.ppermute(x, "a", [(0, 1), (1, 0)]), P("a", "b")),
    "all-to-all(": mapped(lambda x: lax.all_to_all(x, "a", 0, 0, tiled=True), P("a", "b")),
    "reduce-scatter(": mapped(lambda x: lax.psum_scatter(x, "a", tiled=True), P("a", "b")),
    "all-gather(": mapped(lambda x: lax.all_gather(x, "a", tiled=True), P(None, "b")),
    "partition-id(": mapped(lambda x: x + lax.axis_index("b"), P("a", "b")),
}


def computed_by_cpu(compiled: jax.stages.Compiled, arguments: tuple) -> list[np.ndarray]:
    """Results of the program that the text says."""
    hlo = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    code = jaxlib.mlir.hlo_to_stablehlo(hlo)
    there = CPU.client.compile_and_load(code, [CPU], jaxlib.CompileOptions())
    kept = [jax.device_put(arguments[i], CPU) for i in sorted(compiled._executable._kept_var_idx)]
    return [np.asarray(part) for part in there.execute(kept)]


def close(name: str, got: list, expected: list) -> None:
    """Integers equal, floats within 2e-5 of the largest."""
    assert len(got) == len(expected), name
    for a, b in zip(got, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{name}: {a.dtype}{a.shape}, {b.dtype}{b.shape}"
        if a.dtype.kind in "iub":
            np.testing.assert_array_equal(a, b, err_msg=name)
        elif a.size:
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max(), err_msg=name)


def main() -> None:
    for name, (function, *arguments) in PROGRAMS.items():
        compiled = jax.jit(function).lower(*arguments).compile()
        assert compiled.as_text().startswith("HloModule jit_"), name
        close(name, computed_by_cpu(compiled, tuple(arguments)), jax.tree.leaves(compiled(*arguments)))
    x = jax.device_put(np.ones((16, 8), np.float32), NamedSharding(MESH, P("a", "b")))
    for name, function in EXCHANGES.items():
        text = jax.jit(function).lower(x).compile().as_text()
        assert name in text and "num_partitions=8" in text and "f32[4,4]" in text, f"{name}\n{text}"
    # What sharding makes of a plain product: shapes of one core, and one sum.
    text = jax.jit(lambda a: jnp.sin(a).sum()).lower(x).compile().as_text()
    assert text.count("all-reduce(") == 1 and "sine(" in text and "text_test.py" in text, text
    # Where PyTorch/XLA learns how the results of a step lie.
    program = jax.jit(lambda a: (a * 2, a.sum(), a.sum(1))).lower(x).compile()
    module = program.runtime_executable().hlo_modules()[0]
    outputs = [list(each.tile_assignment_dimensions) for each in module.spmd_output_sharding.tuple_shardings]
    assert outputs == [[4, 2], [], [4, 2]], outputs  # the last in two copies
    parameters = [list(each.tile_assignment_dimensions) for each in module.spmd_parameters_shardings]
    assert parameters == [[4, 2]], parameters
    called = jax.jit(lambda a: jax.pure_callback(np.sin, jax.ShapeDtypeStruct(a.shape, a.dtype), a) + 1)
    text = called.lower(X).compile().as_text()
    assert 'custom_call_target="SendToHost"' in text and 'custom_call_target="RecvFromHost"' in text, text
    donated = jax.jit(lambda a: a + 1, donate_argnums=0).lower(X).compile().as_text()
    assert "input_output_alias={ {}: (0" in donated, donated
    print("passed")


if __name__ == "__main__":
    main()
