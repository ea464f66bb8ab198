"""Arrays whose dimensions lie in device memory in another order than theirs (jax.experimental.layout).

TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Format, Layout, with_layout_constraint
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

DEVICES = np.array(jax.devices("tpu"))
ONE = SingleDeviceSharding(DEVICES[0])


def order_of(x: jax.Array) -> tuple[int, ...]:
    return x.format.layout.major_to_minor


def orders() -> None:
    """Every order of three dimensions, in types of every size: put, program, results, back to the host."""
    for dtype in (np.float32, jnp.bfloat16, np.int8, np.bool_):
        x = np.random.default_rng(0).integers(0, 2 if dtype == np.bool_ else 99, (3, 5, 8)).astype(dtype)
        for order in permutations(range(3)):
            wanted = Format(Layout(order), ONE)
            there = jax.device_put(x, wanted)
            assert order_of(there) == order, (order, there.format)
            np.testing.assert_array_equal(np.asarray(there), x)
            np.testing.assert_array_equal(np.asarray(there[1]), x[1])
            turned = jax.jit(lambda a: a.transpose(2, 0, 1), out_shardings=Format(Layout(order[::-1]), ONE))(there)
            assert order_of(turned) == order[::-1]
            np.testing.assert_array_equal(np.asarray(turned), x.transpose(2, 0, 1))
            copy = jax.device_put(there, DEVICES[3])
            np.testing.assert_array_equal(np.asarray(copy), x)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    auto = jax.jit(lambda a: a @ a.T, in_shardings=Format(Layout.AUTO), out_shardings=Format(Layout.AUTO))
    program = auto.lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    assert program.input_formats[0][0].layout.major_to_minor == (0, 1), program.input_formats
    inside = jax.jit(lambda a: with_layout_constraint(a * 2, Layout((1, 0))) + 1)
    np.testing.assert_array_equal(np.asarray(inside(x)), x * 2 + 1)


def shards() -> None:
    """Orders of arrays that are cut over the cores."""
    mesh = Mesh(DEVICES.reshape(4, 2), ("a", "b"))
    x = np.arange(8 * 6, dtype=np.float32).reshape(8, 6)
    cut = NamedSharding(mesh, P("a", "b"))
    there = jax.device_put(x, Format(Layout((1, 0)), cut))
    assert order_of(there) == (1, 0)
    np.testing.assert_array_equal(np.asarray(there), x)
    for shard in there.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), x[shard.index])
    out = jax.jit(lambda a: (a.sum(0), a.T), out_shardings=(None, Format(Layout((1, 0)), NamedSharding(mesh, P("b")))))
    total, turned = out(there)
    np.testing.assert_array_equal(np.asarray(total), x.sum(0))
    np.testing.assert_array_equal(np.asarray(turned), x.T)
    assert order_of(turned) == (1, 0) and turned.sharding.spec == P("b")


def donated() -> None:
    """A step that keeps its state in place, in the order that it has."""
    wanted = Format(Layout((1, 0)), ONE)
    step = jax.jit(lambda a: a * 2 + 1, in_shardings=wanted, out_shardings=wanted, donate_argnums=0)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    state, want = jax.device_put(x, wanted), x
    for _ in range(3):
        old, state, want = state, step(state), want * 2 + 1
        assert old.is_deleted() and order_of(state) == (1, 0)
    np.testing.assert_array_equal(np.asarray(state), want)
    square = jax.jit(lambda a: a @ a, in_shardings=wanted, out_shardings=wanted)
    s = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(np.asarray(square(jax.device_put(s, wanted))), s @ s)


def errors() -> None:
    """Tiles are refused by what they are, and arrays that lie otherwise than a program was compiled for."""
    try:
        jax.block_until_ready(jax.device_put(np.ones((16, 256), np.float32),
                                             Format(Layout((0, 1), tiling=((8, 128),)), ONE)))
    except jax.errors.JaxRuntimeError as error:
        assert "UNIMPLEMENTED" in str(error) and "tiles" in str(error) and "dense" in str(error), error
    else:
        raise AssertionError("tiles")
    program = jax.jit(lambda a: a + 1).lower(jax.ShapeDtypeStruct((3, 4), jnp.float32)).compile()
    other = jax.device_put(np.ones((3, 4), np.float32), Format(Layout((1, 0)), ONE))
    try:
        jax.block_until_ready(program(other))
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        assert "ayout" in str(error), error
    else:
        raise AssertionError("another layout than that of the program")


CASES = {"orders": orders, "shards": shards, "donated": donated, "errors": errors}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()
