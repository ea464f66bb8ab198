"""See why your TPU waits: one training step in three ways, measured on the board. docs/jax.md explains the figures.

Usage: see_why_it_waits.py (with the package tpuboard installed)
"""

from __future__ import annotations

from functools import partial

import tpuboard

import jax
import jax.numpy as jnp
import numpy as np

SIZES = (784, 1024, 1024, 10)
EXAMPLES = 8192
RATE = 1e-2


def init() -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases of a perceptron."""
    keys = jax.random.split(jax.random.key(0), len(SIZES))
    return [(jax.random.normal(key, (rows, columns)) * rows**-0.5, jnp.zeros(columns))
            for key, rows, columns in zip(keys, SIZES, SIZES[1:], strict=False)]


def loss_of(params: list, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    for weights, biases in params[:-1]:
        x = jax.nn.relu(x @ weights + biases)
    logits = x @ params[-1][0] + params[-1][1]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


@partial(jax.jit, donate_argnums=0)
def step(params: list, x: jax.Array, y: jax.Array) -> tuple[list, jax.Array]:
    """One step of gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), loss


@partial(jax.jit, donate_argnums=0)
def steps(params: list, xs: jax.Array, ys: jax.Array) -> tuple[list, jax.Array]:
    """As many steps as `xs` has batches, in one call."""
    return jax.lax.scan(lambda state, batch: step(state, *batch), params, (xs, ys))


def batches(x: np.ndarray, y: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """[examples, ..] as [batches, size, ..]"""
    return x.reshape(-1, size, x.shape[1]), y.reshape(-1, size)


def from_the_host(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """Each batch is uploaded, trained on, and its loss read before the next one."""
    params, _ = step(init(), x[0], y[0])  # compiled outside of the measured block
    with tpuboard.measure(name, ops=3):
        for each in range(len(x)):
            params, loss = step(params, x[each], y[each])
            float(loss)


def from_the_device(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """The batches are uploaded once; one call trains on all of them."""
    held = jax.device_put((x, y))
    params, _ = steps(init(), *held)
    with tpuboard.measure(name, ops=3):
        params, losses = steps(params, *held)
        np.asarray(losses)


def main() -> None:
    """The same examples in three ways."""
    random = np.random.default_rng(0)
    x = random.standard_normal((EXAMPLES, SIZES[0])).astype(np.float32)
    y = random.integers(0, SIZES[-1], EXAMPLES).astype(np.int32)
    from_the_host("1. batches of 64 from the host", *batches(x, y, 64))
    from_the_host("2. batches of 1,024 from the host", *batches(x, y, 1024))
    from_the_device("3. batches of 1,024, all in one call", *batches(x, y, 1024))


if __name__ == "__main__":
    main()
