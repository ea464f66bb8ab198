"""Arrays in the host's memory (memory kinds pinned_host and unpinned_host), on the plugin.

Values, what HBM holds meanwhile, and the simulated time of the copies over PCIe. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

Space = jax.memory.Space
DEVICES = np.array(jax.devices("tpu"))
CPU = jax.devices("cpu")[0]
ONE = SingleDeviceSharding(DEVICES[0])
HOST = ONE.with_memory_kind("pinned_host")
MESH = Mesh(DEVICES.reshape(4, 2), ("a", "b"))
MEBI = 1 << 20
POLICY = jax.checkpoint_policies.save_and_offload_only_these_names(
    names_which_can_be_saved=[], names_which_can_be_offloaded=["out"], offload_src="device", offload_dst="pinned_host")
HOST_KINDS = ("pinned_host", "unpinned_host")
PCIE_BYTES_PER_SECOND = 15e9  # spec/board/v3_8.toml


def board() -> Any:
    """The board of this process."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
    import tpuboard

    return tpuboard.board()


def in_use(device: jax.Device = DEVICES[0]) -> int:
    """Bytes of HBM that are not free, when all work is over."""
    board().synchronize()
    return device.memory_stats()["bytes_in_use"]


def kinds() -> None:
    """What devices list."""
    for device in DEVICES:
        memories = device.addressable_memories()
        assert [memory.kind for memory in memories] == ["device", *HOST_KINDS], memories
        assert device.default_memory().kind == "device"
        assert all(memory.addressable_by_devices() == [device] for memory in memories)
    try:
        jax.device_put(np.zeros(2), ONE.with_memory_kind("host"))
    except ValueError as error:
        assert "can address the following memory kinds" in str(error), error
    else:
        raise AssertionError("a memory kind that does not exist")


def puts() -> None:
    """From numpy, between memories and devices and back, in types of every size; HBM does not have them."""
    values = np.random.default_rng(0).integers(0, 2, (3, 5, 8))
    for dtype in (np.float32, jnp.bfloat16, np.int8, np.bool_, np.complex64, np.float16):
        x = values.astype(dtype)
        for kind in HOST_KINDS:
            there = jax.device_put(x, ONE.with_memory_kind(kind))
            assert there.sharding.memory_kind == kind
            back = jax.device_put(there, ONE)
            again = jax.device_put(back, SingleDeviceSharding(DEVICES[3], memory_kind=kind))
            moved = jax.device_put(there, SingleDeviceSharding(DEVICES[2], memory_kind=kind))
            for array in (there, back, again, moved, jax.device_put(moved, DEVICES[1])):
                np.testing.assert_array_equal(np.asarray(array), x)
    for x in (np.float32(3), np.zeros((0, 4), np.float32), np.arange(24).reshape(4, 6).T[::-1]):
        np.testing.assert_array_equal(np.asarray(jax.device_put(x, HOST)), x)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    cut = NamedSharding(MESH, P("a", "b"), memory_kind="pinned_host")
    there = jax.device_put(x, cut)
    np.testing.assert_array_equal(np.asarray(jax.device_put(there, cut.with_memory_kind("device"))), x)
    for shard in there.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), x[shard.index])


def stats() -> None:
    """Arrays of the host are not in HBM, and are again when they come back; a copy outlives its source."""
    x = np.ones((MEBI,), np.float32)
    before = in_use()
    there = jax.device_put(x, HOST)
    assert in_use() == before
    back = jax.block_until_ready(jax.device_put(there, ONE))
    assert in_use() == before + 4 * MEBI
    off = jax.device_put(back, HOST)
    back.delete()
    there.delete()
    np.testing.assert_array_equal(np.asarray(off), x)
    assert in_use() == before
    double = jax.jit(lambda a: a * 2, in_shardings=HOST, out_shardings=HOST)
    np.testing.assert_array_equal(np.asarray(jax.block_until_ready(double(off))), x * 2)
    small = in_use() - before  # the program stays
    assert small < MEBI, small
    program = double.lower(off).compile().memory_analysis()
    assert program.host_argument_size_in_bytes == program.host_output_size_in_bytes == 4 * MEBI


def cycles_of(function: Callable, *args: jax.Array) -> int:
    """Simulated time of a second call."""
    jax.block_until_ready(function(*args))
    board().synchronize()
    before = board().cycles
    jax.block_until_ready(function(*args))
    board().synchronize()
    return board().cycles - before


def timed() -> None:
    """Copies take the time of PCIe: between programs, and within one."""
    x = jnp.ones((MEBI,), jnp.float32)
    least = 4 * MEBI / PCIE_BYTES_PER_SECOND * board().clock_hz
    there = jax.device_put(x, HOST)
    assert cycles_of(lambda a: jax.device_put(a, ONE), there) >= least
    assert cycles_of(lambda a: jax.device_put(a, HOST), x) >= least
    stays = jax.jit(lambda a: jnp.sin(a * 2))
    goes = jax.jit(lambda a: jnp.sin(jax.device_put(jax.device_put(a * 2, Space.Host), Space.Device)))
    np.testing.assert_array_equal(np.asarray(stays(x)), np.asarray(goes(x)))
    more = cycles_of(goes, x) - cycles_of(stays, x)
    assert 2 * least <= more < 4 * least, (more, least)


def programs() -> None:
    """Arguments and results of programs, with donation; placements within them."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    cut = NamedSharding(MESH, P("a", "b"))
    for device in (ONE, cut, NamedSharding(MESH, P("b")), NamedSharding(MESH, P())):
        host = device.with_memory_kind("pinned_host")
        there = jax.device_put(x, host)
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: a, out_shardings=device)(there)), x)  # noqa: B023
        sums = jax.jit(lambda a: (jax.device_put(a, device) + 1, a.shape[0]), out_shardings=(host, None))(there)  # noqa: B023
        assert sums[0].sharding.memory_kind == "pinned_host"
        np.testing.assert_array_equal(np.asarray(sums[0]), x + 1)
        step = jax.jit(lambda a, g: (jax.device_put(a, device) * 0.5 + g), donate_argnums=0, out_shardings=host)  # noqa: B023
        state = jax.device_put(x, host)
        for _ in range(3):
            old, state = state, step(state, jax.device_put(x, device))
            assert old.is_deleted()
        np.testing.assert_array_equal(np.asarray(state), x / 8 + x / 4 + x / 2 + x)


def donated() -> None:
    """The bytes of an array in the host's memory go with its donation, also while somebody has its handle."""
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    bump = jax.jit(lambda a: jax.device_put(a, ONE) + 1, donate_argnums=0, out_shardings=HOST)
    zeros = np.zeros(16 * MEBI, np.float32)  # 64 MiB
    handles = [jax.device_put(zeros, HOST)]
    handles.append(bump(handles[-1]))
    jax.block_until_ready(handles[-1])
    before = resident()
    for _ in range(6):
        handles.append(bump(handles[-1]))
        jax.block_until_ready(handles[-1])
    assert all(handle.is_deleted() for handle in handles[:-1])
    more = resident() - before
    assert more < 3 * zeros.nbytes, f"{more} bytes for handles of six donated arrays"


def offload() -> None:
    """Values that a program puts away and reads again, in all types and on all cores, in loops and branches."""
    def away(a: jax.Array) -> jax.Array:
        return jax.device_put(a, Space.Host)

    def back(a: jax.Array) -> jax.Array:
        return jax.device_put(a, Space.Device)

    for dtype in (np.float32, jnp.bfloat16, np.int8, np.bool_, np.complex64, np.uint32):
        x = np.random.default_rng(1).integers(0, 2, (5, 16)).astype(dtype)
        once = jax.jit(lambda a: (a, back(away(a[::-1])), back(away(a.T))))
        for got, wanted in zip(once(x), (x, x[::-1], x.T), strict=True):
            np.testing.assert_array_equal(np.asarray(got), wanted)
    x = np.arange(64, dtype=np.float32).reshape(8, 8)

    def loop(a: jax.Array) -> jax.Array:
        first = away(a + 1)
        return jax.lax.fori_loop(0, 3, lambda i, s: back(away(s * 2)) + back(first), a)

    for sharding in (ONE, NamedSharding(MESH, P("a", "b")), NamedSharding(MESH, P("b"))):
        there = jax.device_put(x, sharding)
        np.testing.assert_array_equal(np.asarray(jax.jit(loop)(there)), x * 8 + (x + 1) * 7)
        both = jax.jit(lambda a: jax.lax.cond(a[0, 0] < 1, lambda v: back(away(v)) * 3, lambda v: v, a))
        np.testing.assert_array_equal(np.asarray(both(there)), x * 3)
    rows = jax.jit(jax.shard_map(lambda a: back(away(a * 2)) + 1, mesh=MESH, in_specs=P("a", "b"),
                                 out_specs=P("a", "b")))
    np.testing.assert_array_equal(np.asarray(rows(x)), x * 2 + 1)


def layers(w: list[jax.Array], x: jax.Array) -> jax.Array:
    for each in w:
        x = checkpoint_name(jnp.tanh(x @ each), "out")
    return (x ** 2).sum()


def scanned(w: jax.Array, x: jax.Array) -> jax.Array:
    return (jax.lax.scan(lambda c, m: (checkpoint_name(jnp.tanh(c @ m), "out"), None), x, w)[0] ** 2).sum()


def hidden(w: jax.Array, x: jax.Array) -> jax.Array:
    """What is put away is read in the backward pass."""
    def layer(c: jax.Array, m: jax.Array) -> tuple[jax.Array, None]:
        return jnp.sin(checkpoint_name(jnp.tanh(c @ m), "out") @ m), None

    return (jax.lax.scan(jax.checkpoint(layer, policy=POLICY), x, w)[0] ** 2).sum()


def policies() -> None:
    """jax.checkpoint with offloaded activations, layers written out and in a scan; the optimiser's state."""
    keys = jax.random.split(jax.random.key(0), 4)
    w = [jax.random.normal(key, (16, 16)) / 4 for key in keys]
    x = jax.random.normal(keys[0], (8, 16))
    for model, weights in ((layers, w), (scanned, jnp.stack(w))):
        plain = jax.jit(jax.grad(model))(weights, x)
        offloaded = jax.jit(jax.grad(jax.checkpoint(model, policy=POLICY)))(weights, x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), offloaded, plain)
    stack = jnp.stack(w)
    with jax.default_device(CPU):
        wanted = jax.jit(jax.grad(hidden))(*jax.device_put((stack, x), CPU))
    for rows, whole in ((ONE, ONE), (NamedSharding(MESH, P("a")), NamedSharding(MESH, P()))):
        got = jax.jit(jax.grad(hidden))(jax.device_put(stack, whole), jax.device_put(x, rows))
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=0.05, atol=0.02)
    momentum = jax.device_put([jnp.zeros_like(m) for m in w], HOST)
    expected = [np.zeros((16, 16), np.float32) for _ in w]

    def step(w: list[jax.Array], m: list[jax.Array], x: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
        grads = jax.grad(layers)(w, x)
        m = jax.tree.map(lambda a, g: 0.5 * a + g, jax.device_put(m, ONE), grads)
        return jax.tree.map(lambda a, b: a - 0.25 * b, w, m), jax.device_put(m, HOST)

    train = jax.jit(step, donate_argnums=(0, 1))
    ours = jax.device_put(jax.tree.map(np.asarray, w), ONE)
    for _ in range(2):
        grads = jax.jit(jax.grad(layers))(ours, x)
        expected = [0.5 * e + np.asarray(g) for e, g in zip(expected, grads, strict=True)]
        ours, momentum = train(ours, momentum, x)
        assert all(m.sharding.memory_kind == "pinned_host" for m in momentum)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), momentum, expected)


def notes() -> None:
    """What stays in HBM, and what the core computes for the host, is said."""
    code = """
import jax, jax.numpy as jnp
from jax.experimental.compute_on import compute_on
def f(a):
    there = jax.device_put(a + 1, jax.memory.Space.Host)
    return jax.lax.scan(lambda c, x: (c, jax.device_put(x, jax.memory.Space.Device) + c), 1.0, there)[1]
print(float(jax.jit(f)(jnp.ones(4)).sum()))
@compute_on('device_host')
@jax.jit
def g(a):
    return a * 2
print(float(jax.jit(lambda a: g(a) + 1)(jnp.ones(4)).sum()))
"""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                              env={**os.environ, "TPUBOARD_LOG": str(log)})
        assert done.stdout.split() == ["12.0", "12.0"], done.stdout
        text = log.read_text(encoding="utf-8")
    assert "host memory: f32[4] placed in pinned_host at" in text, text
    assert "stays in HBM while the program runs: the operation" in text, text
    assert "for the host, computed on the core" in text, text


CASES = {case.__name__: case for case in (kinds, puts, stats, timed, programs, donated, offload, policies, notes)}


def main() -> None:
    """Runs one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, required=True)
    CASES[parser.parse_args().case]()


if __name__ == "__main__":
    main()
