"""Eight threads on one client for some seconds: each draws what it does next, and knows what must come of it.

Programs of one core and of all, transfers, copies between cores, donation, deletion of what is in use, errors and new
compilations run beside each other. TPU_LIBRARY_PATH names the plugin.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import threading
import time
from collections import Counter

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

DEVICES = np.array(jax.devices("tpu"))
MESH = Mesh(DEVICES, ("x",))
ROWS = NamedSharding(MESH, P("x"))
SUM = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=MESH, in_specs=P("x"), out_specs=P()))
STEP = jax.jit(lambda state, a: state * 2 + a, donate_argnums=0)


def compute(draw: random.Random, x: np.ndarray, device: object) -> None:
    """A program that may be a new one; its argument is deleted while it runs."""
    factor = draw.randrange(12)
    argument = jax.device_put(x, device)
    result = jax.jit(lambda a: (a * factor).sum(0))(argument)
    if draw.random() < 0.5:
        argument.delete()
    np.testing.assert_array_equal(np.asarray(result), (x * factor).sum(0))
    assert result.devices() == {device}


def donate(draw: random.Random, x: np.ndarray, device: object) -> None:
    """Steps that are queued behind each other."""
    state = jax.device_put(x, device)
    expected = x
    for _ in range(draw.randrange(1, 6)):
        old, state = state, STEP(state, x)
        expected = expected * 2 + x
        assert old.is_deleted()
    np.testing.assert_array_equal(np.asarray(state), expected)


def exchange(draw: random.Random, x: np.ndarray, device: object) -> None:
    """A sum over all cores, or an array that goes from core to core."""
    if draw.random() < 0.5:
        parts = np.stack([x + i for i in range(8)])
        total = SUM(jax.device_put(parts, ROWS))
        np.testing.assert_array_equal(np.asarray(total)[0], parts.sum(0))
        return
    array = jax.device_put(x, device)
    for other in draw.sample(list(DEVICES), 3):
        array = jax.device_put(array, other)
    np.testing.assert_array_equal(np.asarray(array), x)


def fail(draw: random.Random, x: np.ndarray, device: object) -> None:
    """Errors of the caller, of the compiler and of the plugin."""
    array = jax.device_put(x, device)
    calls = [lambda: STEP(array, array), lambda: jax.jit(lambda a: a * 2)(x.astype(np.float16)),
             lambda: jax.jit(lambda a: a.astype(jax.numpy.float8_e5m2).astype(a.dtype))(array)]
    try:
        draw.choice(calls)()
    except jax.errors.JaxRuntimeError:
        return
    raise AssertionError("no error")


def work(seed: int, end: float, done: Counter, wrong: list) -> None:
    """One thread."""
    draw = random.Random(seed)
    while time.monotonic() < end and not wrong:
        action = draw.choice((compute, compute, donate, exchange, fail))
        x = np.float32(draw.randrange(100)) + np.arange(24, dtype=np.float32).reshape(4, 6)
        try:
            action(draw, x, DEVICES[draw.randrange(8)])
        except BaseException as error:  # noqa: BLE001
            wrong.append((action.__name__, repr(error)))
        done[action.__name__, seed] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    seconds = parser.parse_args().seconds
    faulthandler.dump_traceback_later(seconds + 120, exit=True)  # a hang says where
    done: Counter = Counter()
    wrong: list = []
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=work, args=(seed, end, done, wrong)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert len({seed for _, seed in done}) == 8, done
    print(f"{done.total()} actions of 8 threads in {seconds:g} s")


if __name__ == "__main__":
    main()
