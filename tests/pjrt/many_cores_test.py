"""A board or pod of many chips in one process: JAX sees all of its cores as devices, and programs over all of them
equal those on as many devices of its CPU backend. Collectives over all devices and over groups are exact; a jitted
training step stays within the bound of one bf16 pass of the matrix units.

TPU_LIBRARY_PATH names the plugin, TPUBOARD_BOARD the board. Usage: many_cores_test.py [CHIPS OF A ROW, ROWS]
"""

from __future__ import annotations

import os
import sys

TORUS = tuple(int(size) for size in sys.argv[1:]) or (4, 4)
CORES = 2 * TORUS[0] * TORUS[1]
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={CORES}"

import jax  # noqa: E402, reads the environment
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

BF16 = 2.0**-7  # as in jax_test.py


def devices_of_the_board() -> None:
    """Ids, coordinates and kinds."""
    devices = jax.devices()
    assert len(devices) == jax.local_device_count() == CORES, devices
    assert [d.id for d in devices] == list(range(CORES))
    places = [(d.coords[0], d.coords[1], d.core_on_chip) for d in devices]
    assert places == [(x, y, core) for y in range(TORUS[1]) for x in range(TORUS[0]) for core in range(2)], places


def collectives(kind: str) -> list[np.ndarray]:
    """Of all devices of a backend, of groups of 4, and of groups of the others."""
    mesh = Mesh(np.array(jax.devices(kind)).reshape(CORES // 4, 4), ("a", "b"))
    random = np.random.default_rng(1)

    def body(v: jax.Array) -> list[jax.Array]:
        out = []
        for axes, size in ((("a", "b"), CORES), ("a", CORES // 4), ("b", 4)):
            out += [lax.psum(v, axes), lax.pmax(v, axes), lax.all_gather(v, axes, axis=1, tiled=True),
                    lax.psum_scatter(v, axes, scatter_dimension=1, tiled=True),
                    lax.all_to_all(v, axes, 1, 0, tiled=True),
                    lax.ppermute(v, axes, [(i, (i + 3) % size) for i in range(size - 1)])]
        return out

    both = P(("a", "b"))
    whole = random.integers(-9, 9, (2 * CORES, 3 * CORES)).astype(np.float32)
    step = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=both, out_specs=both, check_vma=False))
    return [np.asarray(v) for v in step(jax.device_put(whole, NamedSharding(mesh, both)))]


def sums(kind: str) -> list[np.ndarray]:
    """Of arrays that are halved, in whole pieces and a rest, on devices in any order; of 64-bit integers."""
    random = np.random.default_rng(3)
    order = random.permutation(CORES)
    out = []
    for devices in (np.array(jax.devices(kind)), np.array(jax.devices(kind))[order]):
        mesh = Mesh(devices, ("d",))
        split = NamedSharding(mesh, P("d"))
        add = jax.jit(jax.shard_map(lambda v: lax.psum(v[0], "d"), mesh=mesh, in_specs=P("d"), out_specs=P()))
        for dtype, length in ((np.float32, 270_000), (jnp.bfloat16, 300_000), (np.int64, 1000)):
            whole = random.integers(-1, 2, (CORES, length)) * (2**40 if dtype is np.int64 else 1)
            with jax.enable_x64(dtype is np.int64):
                out.append(np.asarray(add(jax.device_put(whole.astype(dtype), split))))
    return out


def training(kind: str) -> list[np.ndarray]:
    """Three steps of a perceptron, data parallel, with the loss of each."""
    mesh = Mesh(np.array(jax.devices(kind)), ("data",))
    random = np.random.default_rng(2)
    sizes = (96, 160, 10)
    params = [random.normal(size=shape).astype(np.float32) / 10 for shape in zip(sizes[:-1], sizes[1:], strict=True)]
    params = jax.device_put(params, NamedSharding(mesh, P()))
    rows = NamedSharding(mesh, P("data"))
    images = jax.device_put(random.normal(size=(8 * CORES, sizes[0])).astype(np.float32), rows)
    labels = jax.device_put(random.integers(0, sizes[-1], 8 * CORES).astype(np.int32), rows)

    def loss_of(params: list[jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
        scores = jax.nn.relu(images @ params[0]) @ params[1]
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1).mean()

    @jax.jit
    def step(params: list[jax.Array], images: jax.Array, labels: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        return [p - 0.5 * g for p, g in zip(params, gradients, strict=True)], loss

    losses = []
    for _ in range(3):
        params, loss = step(params, images, labels)
        losses.append(np.asarray(loss))
    assert losses[2] < losses[0], losses
    return [*losses, *(np.asarray(p) for p in params)]


def main() -> None:
    """All checks."""
    devices_of_the_board()
    board = jax.devices()[0].platform
    for got, expected in zip(collectives(board), collectives("cpu"), strict=True):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(sums(board), sums("cpu"), strict=True):
        np.testing.assert_array_equal(got, expected)
    for got, expected in zip(training(board), training("cpu"), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=BF16 * np.abs(expected).max())
    print(f"{CORES} devices: collectives equal, three steps within the bound")


if __name__ == "__main__":
    main()
