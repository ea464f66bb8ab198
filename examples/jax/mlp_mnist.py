"""Trains a perceptron on MNIST digits with JAX alone, data parallel over all devices that JAX has.

Usage: mlp_mnist.py --data DIR. DIR holds images.npy, f32[n,784] in 0..1 or u8[n,784], and labels.npy, i32[n] or u8[n]
(sim_scripts/fetch_mnist.py). `tpuboard demo --jax` runs it.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

BATCH, TRAINED = 200, 4000
LAYERS = (784, 512, 256, 10)
RATE, MOMENTUM = 0.1, 0.9


def logits_of(params: list[dict[str, jax.Array]], x: jax.Array) -> jax.Array:
    """f32[n,784] -> f32[n,10]."""
    for layer in params[:-1]:
        x = jnp.maximum(x @ layer["w"] + layer["b"], 0.0)
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_of(params: list[dict[str, jax.Array]], x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean cross-entropy."""
    chosen = jax.nn.one_hot(y, LAYERS[-1])
    return -(jax.nn.log_softmax(logits_of(params, x)) * chosen).sum(-1).mean()


def main() -> None:
    """Trains, prints the loss of each epoch and the accuracy on digits that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="of all epochs together; 0: all of them")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    images, labels = np.load(options.data / "images.npy"), np.load(options.data / "labels.npy").astype(np.int32)
    if images.dtype == np.uint8:
        images = images.astype(np.float32) / np.float32(255)
    order = rng.permutation(len(labels))
    images, labels = images[order], labels[order]

    devices = jax.devices()
    print(f"JAX {jax.__version__}: {len(devices)} devices of kind {devices[0].device_kind}: "
          f"{', '.join(str(device) for device in devices)}", flush=True)
    mesh = Mesh(np.asarray(devices), ("data",))
    whole, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
    params = [{"w": rng.normal(0.0, (2.0 / m) ** 0.5, (m, n)).astype(np.float32), "b": np.zeros(n, np.float32)}
              for m, n in zip(LAYERS[:-1], LAYERS[1:])]  # noqa: B905 (they differ by one)
    state = jax.device_put((params, jax.tree.map(np.zeros_like, params)), whole)

    @partial(jax.jit, donate_argnums=0, in_shardings=(whole, split, split), out_shardings=(whole, whole))
    def train_step(state, x, y):
        params, velocities = state
        loss, gradients = jax.value_and_grad(loss_of)(params, x, y)
        velocities = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocities, gradients)
        return (jax.tree.map(lambda p, v: p - RATE * v, params, velocities), velocities), loss

    @partial(jax.jit, in_shardings=(whole, split, split), out_shardings=whole)
    def correct(params, x, y):
        return (logits_of(params, x).argmax(-1) == y).sum()

    begin, done = time.perf_counter(), 0
    for epoch in range(1, options.epochs + 1):
        losses = []
        for first in range(0, TRAINED, BATCH):
            if not options.steps or done < options.steps:
                batch = slice(first, first + BATCH)
                state, loss = train_step(state, images[batch], labels[batch])
                losses.append(loss)
                done += 1
        if losses:
            print(f"epoch {epoch} loss {np.mean([float(loss) for loss in losses]):.4f}", flush=True)
    right = sum(int(correct(state[0], images[i:i + BATCH], labels[i:i + BATCH]))
                for i in range(TRAINED, len(labels) // BATCH * BATCH, BATCH))
    print(f"accuracy {right / (len(labels) // BATCH * BATCH - TRAINED):.3f}", flush=True)
    seconds = time.perf_counter() - begin
    print(f"{done} steps on {len(devices)} devices in {seconds:.1f} s of wall-clock time", flush=True)


if __name__ == "__main__":
    main()
