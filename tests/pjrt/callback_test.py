"""Programs of unmodified JAX that call the host while they run, on the plugin, against JAX's own CPU backend.

Values, order, errors behind which the client goes on, and simulated time that does not depend on the host's.
TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import checkify, io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

CPU = jax.devices("cpu")[0]
DEVICES = np.array(jax.devices("tpu"))
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def same(name: str, function: Callable, *args: object) -> None:
    """The same values and calls on both backends."""
    seen: list[list[object]] = []
    results = []
    for device in (DEVICES[0], CPU):
        calls: list[object] = []
        with jax.default_device(device):
            results.append(jax.tree.map(np.asarray, jax.jit(lambda *a, c=calls: function(c, *a))(*args)))
        jax.effects_barrier()
        seen.append(calls)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b, err_msg=name), *results)
    assert len(seen[0]) == len(seen[1]), f"{name}: {len(seen[0])} calls, {len(seen[1])} on the CPU"
    for a, b in zip(*seen, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def note(calls: list[object], tag: int = 0) -> Callable:
    """A callback that keeps what it gets."""
    return lambda *values: calls.append(np.concatenate([[tag], *(np.ravel(v).astype(np.float64) for v in values)]))


def doubled(a: np.ndarray) -> np.ndarray:
    """On the host."""
    return np.asarray(a) * 2


def ask(a: jax.Array, **options: object) -> jax.Array:
    """A pure callback on `a`."""
    return jax.pure_callback(doubled, jax.ShapeDtypeStruct(a.shape, a.dtype), a, **options)


def flat() -> None:
    """At top level: kinds, types, several arrays, none."""
    same("pure", lambda _, a: ask(a) + 1, X)
    for dtype in (np.int32, np.uint8, np.int8, jnp.bfloat16, np.uint32):
        same(f"pure {dtype}", lambda _, a: ask(a), X.astype(dtype))
    same("boolean", lambda _, a: jax.pure_callback(np.logical_not, jax.ShapeDtypeStruct(a.shape, a.dtype), a), X > 3)
    same("scalar", lambda _, a: ask(a[0, 1]) * a, X)
    jax.config.update("jax_enable_x64", True)  # of all threads
    same("64 bits", lambda _, a: ask(a) + 1, np.array([2**40 + 1, -3], np.int64))
    jax.config.update("jax_enable_x64", False)
    two = (jax.ShapeDtypeStruct((4,), np.float32), jax.ShapeDtypeStruct((), np.int32))
    same("two of two", lambda _, a, b: jax.pure_callback(lambda x, y: (np.sum(x, 0), np.int32(y.sum())), two, a, b), X,
         np.arange(3, dtype=np.int32))
    same("ordered", lambda c, a: (io_callback(note(c, 1), None, a, ordered=True),
                                  io_callback(note(c, 2), None, a[0], ordered=True)), X)
    same("unordered", lambda c, a: io_callback(note(c), None, a * 2), X)
    same("debug", lambda c, a: (jax.debug.callback(note(c), a), a + 1)[1], X)
    same("no operands", lambda c: io_callback(note(c, 3), None, ordered=True))
    same("empty result", lambda _, a: jax.pure_callback(lambda x: x[:0], jax.ShapeDtypeStruct((0, 4), a.dtype), a), X)
    large = np.arange(3 << 20, dtype=np.float32).reshape(3, -1)
    same("large", lambda _, a: ask(a + 1) - 1, large)


def control() -> None:
    """In loops and branches, batched, differentiated."""
    same("scan", lambda c, a: jax.lax.scan(
        lambda s, r: (s + ask(r), io_callback(note(c), None, s, ordered=True)), jnp.zeros(4), a)[0], X)
    same("while", lambda c, a: jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, ask(s[1])), (0, a)), X)
    same("fori", lambda c, a: jax.lax.fori_loop(
        0, 3, lambda i, s: (io_callback(note(c), None, i, s[0], ordered=True), s * 2)[1], a), X)
    for sign in (1, -1):
        same("cond", lambda c, a, s: jax.lax.cond(
            s > 0, lambda v: ask(v), lambda v: (io_callback(note(c), None, v, ordered=True), v - 1)[1], a),
            X, np.float32(sign))
    same("vmap", lambda _, a: jax.vmap(lambda r: ask(r, vmap_method="sequential"))(a), X)
    same("vmap at once", lambda _, a: jax.vmap(lambda r: ask(r, vmap_method="expand_dims"))(a), X)

    @jax.custom_jvp
    def f(a: jax.Array) -> jax.Array:
        return ask(a)

    f.defjvp(lambda p, t: (f(p[0]), ask(t[0] * p[0])))
    same("jvp", lambda _, a: jax.jvp(f, (a,), (a,)), X)
    same("grad", lambda c, a: jax.grad(lambda v: (jax.debug.callback(note(c), v), (v * v).sum())[1])(a), X)
    same("hundred", lambda c, a: jax.lax.fori_loop(
        0, 100, lambda i, s: (io_callback(note(c), None, i, ordered=True), ask(s) * 0.5)[1], a), X)
    checked = jax.jit(checkify.checkify(lambda a: (checkify.check(a[0] > 3, "too small: {}", a[0]), a)[1]))
    assert "too small: 0" in str(checked(np.zeros(3, np.float32))[0].get())


def prints() -> None:
    """jax.debug.print."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        jax.jit(lambda a: [jax.debug.print("row {} is {}", i, a[i], ordered=True) for i in range(3)])(X)
        jax.effects_barrier()
    assert text.getvalue().splitlines() == [f"row {i} is {X[i]}" for i in range(3)], text.getvalue()


def sharded() -> None:
    """One call for whole arrays, one a core inside of shard_map."""
    mesh = Mesh(DEVICES, "x")
    a = np.arange(32, dtype=np.float32).reshape(8, 4)
    placed = jax.device_put(a, NamedSharding(mesh, P("x")))
    calls: list[object] = []
    whole = jax.jit(lambda v: (jax.debug.callback(note(calls), v), ask(v + 1) * 2)[1])(placed)
    jax.effects_barrier()
    np.testing.assert_array_equal(np.asarray(whole), (a + 1) * 4)
    assert len(calls) == 1, calls
    np.testing.assert_array_equal(calls[0][1:], a.ravel())

    calls.clear()
    each = jax.jit(jax.shard_map(lambda v: (jax.debug.callback(note(calls), v), ask(v) + jax.lax.psum(v, "x"))[1],
                                 mesh=mesh, in_specs=P("x"), out_specs=P("x")))(placed)
    jax.effects_barrier()
    np.testing.assert_array_equal(np.asarray(each), a * 2 + a.sum(0))
    np.testing.assert_array_equal(sorted(c[1] for c in calls), a[:, 0])

    steps: list[tuple[int, int]] = []

    def ordered(i: jax.Array, v: jax.Array) -> jax.Array:
        io_callback(lambda n, w: steps.append((int(w[0, 0]) // 4, int(n))), None, i, v, ordered=True)
        return io_callback(lambda w: np.asarray(w) + 1, jax.ShapeDtypeStruct(v.shape, v.dtype), v, ordered=True)

    counted = jax.jit(jax.shard_map(lambda v: jax.lax.fori_loop(0, 3, ordered, v), mesh=mesh, in_specs=P("x"),
                                    out_specs=P("x"), check_vma=False))(placed)
    jax.effects_barrier()
    np.testing.assert_array_equal(np.asarray(counted), a + 3)
    for core in range(8):
        assert [n for c, n in steps if c == core] == [0, 1, 2], steps

    looped = jax.jit(lambda v: jax.lax.fori_loop(0, 5, lambda _, s: ask(s) * 0.5 + 1, v))(placed)
    np.testing.assert_array_equal(np.asarray(looped), a + 5)


def failing() -> None:
    """An exception of a callback is the error of its step, and the client goes on."""

    def bad(a: np.ndarray) -> np.ndarray:
        raise ValueError("no such row")

    failing = jax.jit(lambda a: jax.pure_callback(bad, jax.ShapeDtypeStruct(a.shape, a.dtype), a) + 1)
    for _ in range(2):
        try:
            jax.block_until_ready(failing(X))
        except jax.errors.JaxRuntimeError as error:
            assert "no such row" in str(error), error
        else:
            raise AssertionError("no error")
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: ask(a) + 1)(X)), X * 2 + 1)
    here = jax.block_until_ready(jax.device_put(X, DEVICES[0]))
    add = jax.jit(lambda a: a + 1)

    def waits(function: Callable) -> jax.Array:
        return jax.jit(lambda a: jax.pure_callback(
            lambda v: (function(), v)[1], jax.ShapeDtypeStruct(a.shape, a.dtype), a))(X)

    for name, function in {"read": lambda: np.asarray(here), "wait": lambda: add(here).block_until_ready()}.items():
        try:
            jax.block_until_ready(waits(function))
        except jax.errors.JaxRuntimeError as error:
            assert "FAILED_PRECONDITION: a callback must not read arrays of the board" in str(error), (name, error)
        else:
            raise AssertionError(f"no error: {name}")
    begun: list[jax.Array] = []
    jax.block_until_ready(waits(lambda: (here.block_until_ready(), begun.append(add(here)))))
    np.testing.assert_array_equal(begun[0], X + 1)
    wrong = jax.jit(lambda a: jax.pure_callback(lambda v: v[:1], jax.ShapeDtypeStruct(a.shape, a.dtype), a))
    try:
        jax.block_until_ready(wrong(X))
    except jax.errors.JaxRuntimeError as error:
        assert "Incorrect output shape" in str(error), error
    else:
        raise AssertionError("no error")


def timed() -> None:
    """Simulated time does not depend on how long the host takes."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    import tpuboard

    step = jax.jit(lambda a, wait: jax.lax.fori_loop(
        0, 3, lambda _, s: jax.pure_callback(lambda v, w: (time.sleep(float(w)), doubled(v))[1],
                                             jax.ShapeDtypeStruct(a.shape, a.dtype), s, wait), a))
    cycles = []
    jax.block_until_ready(step(X, np.float32(0)))
    for wait in (0.0, 0.0, 0.02):
        arguments = jax.block_until_ready(jax.device_put((X, np.float32(wait))))
        tpuboard.board().synchronize()
        before = tpuboard.board().cycles
        jax.block_until_ready(step(*arguments))
        tpuboard.board().synchronize()
        cycles.append(tpuboard.board().cycles - before)
    assert len(set(cycles)) == 1, cycles


def main() -> None:
    """Runs the named cases."""
    cases = {f.__name__: f for f in (flat, control, prints, sharded, failing, timed)}
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=list(cases), action="append")
    for name in parser.parse_args().case or cases:
        cases[name]()
        print(name, "ok")


if __name__ == "__main__":
    main()
