"""Functions that say themselves how they are cut over the devices (jax.experimental.custom_partitioning).

The plugin asks JAX while it compiles, as XLA's partitioner does. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

FOLDER = tempfile.TemporaryDirectory()
os.environ["TPUBOARD_CACHE"] = FOLDER.name  # before JAX loads the plugin

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental.custom_partitioning import custom_partitioning  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
X = np.random.default_rng(0).integers(-9, 9, (32, 16)).astype(np.float32)


def on(*spec: object, mesh: Mesh = MESH) -> NamedSharding:
    return NamedSharding(mesh, P(*spec))


def rows_alone(shape: jax.ShapeDtypeStruct) -> NamedSharding:
    """The last dimension whole."""
    spec = tuple(shape.sharding.spec)[:len(shape.shape) - 1]
    return on(*spec, None, mesh=shape.sharding.mesh)


def by_rows(function: Callable, asked: list, rule: str | None = "i j -> i j", **more: object) -> Callable:
    """The function, which works along rows, on rows as they are cut; notes how arrays lay."""
    def partition(mesh: Mesh, arg_shapes: tuple, result_shape: jax.ShapeDtypeStruct) -> tuple:
        asked.append((arg_shapes[0].sharding.spec, result_shape.sharding.spec))
        return mesh, function, rows_alone(arg_shapes[0]), (rows_alone(arg_shapes[0]),)

    cut = custom_partitioning(lambda x: function(x))
    cut.def_partition(partition, **({"sharding_rule": rule} if rule else {}), **more)
    return cut


def elementwise(function: Callable, rule: str | None = "... -> ...") -> Callable:
    """The function on the parts that there are."""
    def partition(mesh: Mesh, arg_shapes: tuple, result_shape: jax.ShapeDtypeStruct) -> tuple:
        del result_shape
        return mesh, function, arg_shapes[0].sharding, (arg_shapes[0].sharding,)

    cut = custom_partitioning(lambda x: function(x))
    cut.def_partition(partition, sharding_rule=rule)
    return cut


def sums(x: jax.Array) -> jax.Array:
    return jnp.cumsum(x, axis=1)


def rules() -> None:
    """Shardings go through the op by its rule, and `partition` is asked with them, once."""
    asked = []
    function = by_rows(sums, asked)
    program = jax.jit(lambda x: function(x * 2) + 1, in_shardings=on("x", "y"), out_shardings=on("x"))
    np.testing.assert_array_equal(np.asarray(program(X)), np.cumsum(X * 2, axis=1) + 1)
    assert asked == [(P("x", "y"), P("x", "y"))], asked
    asked.clear()
    compiled = jax.jit(function, in_shardings=on("x"), out_shardings=on("x")).lower(X).compile()
    assert "all_gather" not in compiled.as_text() and "all-gather" not in compiled.as_text()
    assert asked == [(P("x", None), P("x", None))], asked
    asked.clear()
    result = jax.jit(lambda x: function(x), in_shardings=on("y"))(X)
    assert result.sharding.spec[0] == "y" and asked == [(P("y", None), P("y", None))], (result.sharding, asked)
    np.testing.assert_array_equal(np.asarray(result), np.cumsum(X, axis=1))
    # a mesh of other axes: what it cuts is said by those of the program
    other = Mesh(MESH.devices.reshape(2, 4), ("a", "b"))
    for spec in ((("b", "a"), None), ("a", "b"), (None, "a")):
        cut = on(*spec, mesh=other)
        function = answering(lambda _, cut=cut: (cut.mesh, lambda x: x * 2, cut, (cut,)))
        np.testing.assert_array_equal(np.asarray(jax.jit(function, in_shardings=on("x"))(X)), X * 2)
    # without a rule nothing goes through, and the answer says how the result lies
    asked.clear()
    result = jax.jit(by_rows(sums, asked, None), in_shardings=on("x"))(X)
    assert result.sharding.spec[0] == "x" and asked == [(P("x", None), P(None, None))], (result.sharding, asked)
    np.testing.assert_array_equal(np.asarray(result), np.cumsum(X, axis=1))


def shapes() -> None:
    """Whole arrays, scalars, other types, arrays that the cores cannot cut into equal parts."""
    twice = elementwise(lambda x: x * 2)
    np.testing.assert_array_equal(np.asarray(jax.jit(twice, in_shardings=on())(X)), X * 2)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: twice(jnp.ones_like(x)) + x, in_shardings=on("x"))(X)),
                                  X + 2)
    total = custom_partitioning(lambda x, s: x.sum() * s)

    def partition(mesh: Mesh, arg_shapes: tuple, result_shape: jax.ShapeDtypeStruct) -> tuple:
        del result_shape
        cut = arg_shapes[0].sharding
        axes = tuple(axis for axis in cut.spec if axis is not None)
        return (mesh, lambda x, s: jax.lax.psum(x.sum(), axes) * s, on(mesh=mesh), (cut, on(mesh=mesh)))

    total.def_partition(partition, sharding_rule="i j,  -> ", reduction_factors=("i", "j"))
    for spec in (("x", "y"), ("y",), (None, "x")):
        assert float(jax.jit(total, in_shardings=(on(*spec), on()))(X, np.float32(3))) == X.sum() * 3
    with jax.enable_x64(True):
        for dtype in (np.int64, np.uint8, jnp.bfloat16, np.bool_):
            x = X.astype(dtype)
            flipped = elementwise(lambda x: ~x if x.dtype == bool else x + x)
            np.testing.assert_array_equal(np.asarray(jax.jit(flipped, in_shardings=on("x", "y"))(x)),
                                          ~x if x.dtype == bool else x + x)
    # 30 rows on 4 cores: the array stays whole
    odd = jax.jit(lambda x: twice(jax.lax.with_sharding_constraint(x[:30], on("x"))), in_shardings=on())
    np.testing.assert_array_equal(np.asarray(odd(X)), X[:30] * 2)
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: twice(x[:0]), in_shardings=on())(X)), X[:0])


def fourier() -> None:
    """The example of JAX's documentation: transforms of rows, which are not gathered."""
    x = (X + 1j * X[::-1]).astype(np.complex64)
    asked = []
    transform = by_rows(jnp.fft.fft, asked, "...i -> ...i")
    wanted = np.fft.fft(x)

    def distance(result: jax.Array, of: np.ndarray) -> float:
        return float(np.abs(np.asarray(result) - of).max() / np.abs(of).max())

    rows = jax.jit(transform, in_shardings=on("x"), out_shardings=on("x"))
    assert distance(rows(x), wanted) < 1e-6
    assert "all_gather" not in rows.lower(x).compile().as_text()
    assert distance(jax.jit(transform, in_shardings=on(None, "x"), out_shardings=on(None, "x"))(x), wanted) < 1e-6
    line = x.reshape(-1)
    assert distance(jax.jit(transform, in_shardings=on("x"), out_shardings=on("x"))(line), np.fft.fft(line)) < 1e-6
    # real in, complex out, and the gradient of what is around it
    real = by_rows(jnp.fft.rfft, [], "i j -> i k")
    assert distance(jax.jit(lambda x: real(x) * 2, in_shardings=on("x"))(X), np.fft.rfft(X) * 2) < 1e-6
    back = by_rows(lambda x: jnp.fft.irfft(x, n=16), [], "i j -> i k")
    assert distance(jax.jit(lambda x: back(real(x)), in_shardings=on("x"))(X), X) < 1e-6


def collectives() -> None:
    """A contraction that adds up over the mesh itself, with the place of the core, and several results."""
    asked = []

    def partition(mesh: Mesh, arg_shapes: tuple, result_shape: tuple) -> tuple:
        del result_shape
        asked.append(tuple(shape.sharding.spec for shape in arg_shapes))

        def lower(a: jax.Array, b: jax.Array) -> tuple:
            place = jax.lax.axis_index("y") + 10 * jax.lax.axis_index("x")
            return jax.lax.psum(a @ b, "y"), jnp.full((1, 1), place), jax.lax.all_gather(a, "x", tiled=True)

        return (mesh, lower, (on("x", None, mesh=mesh), on("x", "y", mesh=mesh), on(None, "y", mesh=mesh)),
                (on("x", "y", mesh=mesh), on("y", None, mesh=mesh)))

    @custom_partitioning
    def product(a: jax.Array, b: jax.Array) -> tuple:
        return a @ b, jnp.arange(4)[:, None] * 10 + jnp.arange(2), a

    product.def_partition(partition, sharding_rule="i k, k j -> i j, p q, i l", reduction_factors=("k",))
    b = np.random.default_rng(1).integers(-9, 9, (16, 8)).astype(np.float32)
    with jax.default_matmul_precision("highest"):
        out, places, same = jax.jit(product, in_shardings=(on("x"), on()))(X, b)
        # what is summed over is cut in both operands
        jax.jit(lambda a, b: product(a, b * 2)[0], in_shardings=(on("x", "y"), None))(X, b)
    np.testing.assert_array_equal(np.asarray(out), X @ b)
    np.testing.assert_array_equal(np.asarray(places), np.arange(4)[:, None] * 10 + np.arange(2))
    np.testing.assert_array_equal(np.asarray(same), X)
    assert out.sharding.is_equivalent_to(on("x"), 2)
    assert asked == [(P("x", None), P(None, None)), (P("x", "y"), P("y", None))], asked


def within() -> None:
    """In loops and branches, under jax.grad of a custom_vjp, and where shard_map has some axes."""
    function = by_rows(sums, [])

    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (function(c) % 7, c.sum()), x, length=3)

    carry, totals, want = X, [], jax.jit(loop, in_shardings=on("x"))(X)
    for _ in range(3):
        totals.append(carry.sum())
        carry = np.cumsum(carry, axis=1) % 7
    np.testing.assert_array_equal(np.asarray(want[0]), carry)
    np.testing.assert_array_equal(np.asarray(want[1]), totals)
    either = jax.jit(lambda c, x: jax.lax.cond(c, function, lambda x: x, x), in_shardings=(on(), on("x")))
    np.testing.assert_array_equal(np.asarray(either(True, X)), np.cumsum(X, axis=1))
    np.testing.assert_array_equal(np.asarray(either(False, X)), X)

    scaled = jax.custom_vjp(function)
    scaled.defvjp(lambda x: (function(x), None), lambda _, g: (function(g[:, ::-1])[:, ::-1],))
    grad = jax.jit(jax.grad(lambda x: (scaled(x) * X).sum()), in_shardings=on("x"))(X)
    np.testing.assert_array_equal(np.asarray(grad), np.cumsum(X[:, ::-1], axis=1)[:, ::-1])

    some = jax.shard_map(lambda x: function(x) + jax.lax.axis_index("x"), mesh=MESH, in_specs=P("x"), out_specs=P("x"),
                         axis_names={"x"})
    with warnings.catch_warnings(action="ignore"), MESH:  # JAX gives `partition` no mesh without
        result = np.asarray(jax.jit(some)(X))
    np.testing.assert_array_equal(result, np.cumsum(X, axis=1) + np.repeat(np.arange(4), 8)[:, None])
    every = jax.shard_map(function, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    np.testing.assert_array_equal(np.asarray(jax.jit(every)(X)), np.cumsum(X, axis=1))


@contextlib.contextmanager
def same_ids() -> Iterator[None]:
    """JAX names such a function in the program by the address of an object; here two have one."""
    from jax._src import custom_partitioning as module

    module.id = lambda _: 7
    try:
        yield
    finally:
        del module.id


def anew() -> None:
    """What `partition` does is not part of the program: no cache may know it."""
    with same_ids():
        texts = set()
        for factor in (1, 2, 3):
            program = jax.jit(elementwise(lambda x, factor=factor: x * factor), in_shardings=on("x"))
            texts.add(program.lower(X).as_text())
            for _ in range(2):
                np.testing.assert_array_equal(np.asarray(program(X)), X * factor)
            jax.clear_caches()
    assert len(texts) == 1
    assert not list(Path(FOLDER.name).rglob("*.tpuexe")), list(Path(FOLDER.name).rglob("*"))
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x * 5, in_shardings=on("x"))(X)), X * 5)
    assert [path for path in Path(FOLDER.name).rglob("*") if path.is_file()]  # others are kept


def threads() -> None:
    """Programs that are compiled by several threads at once, and two by one function."""
    failures = []

    def work(n: int) -> None:
        try:
            for k in range(3):
                function = elementwise(lambda x, n=n, k=k: x * (n + 10 * k))
                program = jax.jit(lambda x, function=function: function(x) + 1, in_shardings=on("x"))
                np.testing.assert_array_equal(np.asarray(program(X)), X * (n + 10 * k) + 1)
                program.lower(X).compile().as_text()
        except Exception as error:
            failures.append(error)

    started = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failures, failures


def gspmd() -> None:
    """Without Shardy, whose callbacks for shardings are not asked."""
    jax.config.update("jax_use_shardy_partitioner", False)
    asked = []
    function = by_rows(sums, asked, None, infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding)
    program = jax.jit(lambda x: function(x) * 2, in_shardings=on("x"), out_shardings=on("x"))
    np.testing.assert_array_equal(np.asarray(program(X)), np.cumsum(X, axis=1) * 2)
    assert len(asked) == 1 and asked[0][0][0] == "x", asked


def refused(function: Callable, *parts: str, at: str = "x") -> None:
    try:
        jax.block_until_ready(jax.jit(function, in_shardings=on(at))(X))
    except jax.errors.JaxRuntimeError as error:
        for part in parts:
            assert part in str(error), f"'{part}' is not in\n{error}"
    else:
        raise AssertionError(parts)


def answering(answer: Callable) -> Callable:
    function = custom_partitioning(lambda x: x)
    function.def_partition(lambda mesh, arg_shapes, result_shape: answer(mesh), sharding_rule="i j -> i j")
    return function


def errors() -> None:
    """An exception of `partition`, and what its answer may not be."""
    def fails(mesh: Mesh) -> tuple:
        raise ValueError("no way to cut this")

    refused(answering(fails), "INVALID_ARGUMENT", "partitioning_test.py", "stablehlo.custom_call", "no way to cut this",
            "in fails")

    def lower_fails(mesh: Mesh) -> tuple:
        def lower(x: jax.Array) -> jax.Array:
            raise KeyError("inside of the function of a part")
        return mesh, lower, on("x", mesh=mesh), (on("x", mesh=mesh),)

    refused(answering(lower_fails), "INVALID_ARGUMENT", "inside of the function of a part")
    refused(answering(lambda mesh: (mesh, lambda x: x[:3], on("x", mesh=mesh), (on("x", mesh=mesh),))),
            "INVALID_ARGUMENT", "Mismatch in result shapes")
    refused(answering(lambda mesh: None), "INVALID_ARGUMENT", "TypeError")
    refused(answering(lambda mesh: (mesh, jnp.linalg.eigvals, on(mesh=mesh), (on(mesh=mesh),))), "INVALID_ARGUMENT")
    refused(lambda x: answering(lambda mesh: (mesh, lambda x: x, on("x", mesh=mesh), (on("x", mesh=mesh),)))(x[:30]),
            "30")
    # the device works on
    np.testing.assert_array_equal(np.asarray(jax.jit(elementwise(lambda x: x + 1), in_shardings=on("x"))(X)), X + 1)


def ways() -> None:
    """However JAX finds the plugin: by TPU_LIBRARY_PATH, as a plugin of its own, or by an entry point."""
    library = os.environ["TPU_LIBRARY_PATH"]
    program = [sys.executable, __file__, "--case", "rules"]
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("TPU_LIBRARY_PATH", "JAX_PLATFORMS")}
    subprocess.run(program, env=environment | {"PJRT_NAMES_AND_LIBRARY_PATHS": f"tpu:{library}"}, check=True)
    subprocess.run(program, env=environment | {"PJRT_NAMES_AND_LIBRARY_PATHS": f"tpuboard:{library}",
                                               "TPUBOARD_PLATFORM": "tpuboard"}, check=True)
    folder = Path(FOLDER.name) / "packages" / "jax_plugins" / "board"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import os\ndef initialize():\n"
                                        f"    os.environ['TPU_LIBRARY_PATH'] = {library!r}\n")
    subprocess.run(program, env=environment | {"PYTHONPATH": str(folder.parents[1])}, check=True)


def exported() -> None:
    """Nobody answers for a program in a file."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "python"))
    import tpuboard

    from jax._src.interpreters import mlir

    program = jax.jit(elementwise(lambda x: x * 2), in_shardings=on("x")).lower(X)
    try:
        tpuboard.compile(mlir.module_to_bytecode(program.compiler_ir()))
    except tpuboard.TpuError as error:
        for part in ("'CustomSPMDPartitioning'", "partitioning_test.py", "inside of jax.shard_map over all axes"):
            assert part in str(error), error
    else:
        raise AssertionError("no error")


CASES = {case.__name__: case
         for case in (rules, shapes, fourier, collectives, within, anew, threads, gspmd, errors, ways, exported)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()
