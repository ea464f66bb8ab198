"""f64 under jax_enable_x64: buffers keep all bits, programs compute with 48 of them, on one device and on eight, with
donated arrays. TPU_LIBRARY_PATH names the plugin."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
CPU = jax.devices("cpu")[0]
X = np.random.default_rng(1).standard_normal((16, 24))
ANY = np.frombuffer(np.random.default_rng(2).bytes(8 * 600), np.uint64).view(np.float64)


def near(name: str, ours: jax.Array, theirs: jax.Array, bound: float = 1e-13) -> None:
    """Compares by the largest magnitude."""
    assert ours.dtype == theirs.dtype == np.float64, f"{name}: {ours.dtype}"
    a, b = np.asarray(ours), np.asarray(theirs)
    gap = np.max(np.abs(a - b)) / np.max(np.abs(b))
    assert gap <= bound, f"{name}: {gap}"


def check(name: str, function: object, *inputs: np.ndarray) -> None:
    """The same program on the board and on the CPU."""
    expected = jax.jit(function)(*(jax.device_put(x, CPU) for x in inputs))
    near(name, jax.jit(function)(*inputs), expected)


def buffers() -> None:
    """Arrays are binary64, and come back to the bit; so does what a program passes on."""
    for array in (X, ANY, np.float64(0.1), np.zeros((0, 3))):
        placed = jax.device_put(array)
        assert placed.dtype == np.float64
        assert np.asarray(placed).tobytes() == np.asarray(array).tobytes()
        assert np.asarray(jax.device_put(placed, jax.devices()[3])).tobytes() == np.asarray(array).tobytes()
    passed, _ = jax.jit(lambda x: (x, x + 1))(ANY)
    assert np.asarray(passed).tobytes() == ANY.tobytes()


def programs() -> None:
    """One device."""
    check("arithmetic", lambda x: (x * 3 + x / 7 - jnp.sqrt(jnp.abs(x))), X)
    check("functions", lambda x: jnp.exp(x) + jnp.sin(x) * jnp.tanh(x), X)
    check("sums", lambda x: x.sum(0), X)
    check("product", lambda x: x @ x.T, X)
    check("gradient", jax.grad(lambda x: jnp.sum(jnp.log(1 + x * x))), X)
    check("loop", lambda x: lax.fori_loop(0, 4, lambda _, v: v * 1.1 - 0.3, x), X)
    check("scalar", lambda x: x ** 3 / 7, np.float64(1.7))
    step = jax.jit(lambda x: x + 1 / 3, donate_argnums=0)
    state = jax.device_put(X)
    for _ in range(3):
        state = step(state)
    near("donated", state, X + 1)


def sharded() -> None:
    """Eight devices, cut by the compiler and by shard_map."""
    mesh = Mesh(np.array(jax.devices()), "i")
    placed = jax.device_put(X, NamedSharding(mesh, P("i")))
    near("sum", jax.jit(lambda x: jnp.sum(x * x))(placed), np.sum(X * X))
    near("elementwise", jax.jit(lambda x: x * 2 + 1)(placed), X * 2 + 1)
    total = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P()))
    near("psum", total(placed), X.reshape(8, 2, 24).sum(0))


def contractions() -> None:
    """Products over devices: rows, columns, terms; images, features; gradients."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    random = np.random.default_rng(3)
    a, b = random.standard_normal((64, 160)), random.standard_normal((160, 48))

    def on(array: np.ndarray, *spec: str | None) -> jax.Array:
        return jax.device_put(array, NamedSharding(mesh, P(*spec)))

    for left, right in ((("x", None), (None, "y")), ((None, "x"), ("x", None)), (("y", "x"), ("x", None))):
        near(f"product of {left} and {right}", jax.jit(jnp.matmul)(on(a, *left), on(b, *right)), a @ b)
    images, kernel = random.standard_normal((8, 12, 12, 8)), random.standard_normal((3, 3, 8, 16))

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(jnp.sin(lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")))

    step = jax.jit(jax.value_and_grad(loss, (0, 1)))
    value, (of_images, of_kernel) = step(jax.device_put(images, CPU), jax.device_put(kernel, CPU))
    for at, wt in ((("x",), ()), (("x", None, None, "y"), (None, None, "y")), ((None, "x"), (None, None, None, "y"))):
        ours, (g, h) = step(on(images, *at), on(kernel, *wt))
        near(f"loss at {at}, {wt}", ours, value)
        near(f"gradient at {at}, {wt}", g, of_images)
        near(f"gradient of the kernel at {at}, {wt}", h, of_kernel)


def cut_by_the_program() -> None:
    """jax.experimental.custom_partitioning: the function sees f64 arrays."""
    seen = []

    def partition(mesh: Mesh, arg_shapes: tuple, result_shape: jax.ShapeDtypeStruct) -> tuple:
        seen.append((arg_shapes[0].dtype, result_shape.dtype))
        return mesh, lambda x: x * 3 + 0.1, arg_shapes[0].sharding, (arg_shapes[0].sharding,)

    function = custom_partitioning(lambda x: x * 3 + 0.1)
    function.def_partition(partition, sharding_rule="i j -> i j")
    mesh = Mesh(np.array(jax.devices()), "i")
    placed = jax.device_put(X, NamedSharding(mesh, P("i")))
    near("custom_partitioning", jax.jit(lambda x: function(x - 1) / 7)(placed), ((X - 1) * 3 + 0.1) / 7)
    assert seen == [(np.float64, np.float64)], seen


def main() -> int:
    """All of them."""
    buffers()
    programs()
    sharded()
    contractions()
    cut_by_the_program()
    print("f64 passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
