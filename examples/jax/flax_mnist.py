"""Trains a convnet on MNIST digits with flax and optax, data parallel over all devices that JAX has.

Usage: flax_mnist.py --data DIR. DIR holds images.npy f32[n,784] in 0..1 and labels.npy i32[n]
(sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec as P

BATCH = 200


class Convnet(nn.Module):
    """Two convolutions with pooling, and a dense layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for features in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3), padding="VALID")(x)), (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))


def main() -> None:
    """Trains, prints the loss of each epoch and the accuracy on digits that were held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--digits", type=int, default=4000, help="for training")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    order = np.random.default_rng(0).permutation(5000)
    images = np.load(options.data / "images.npy").reshape(-1, 28, 28, 1)[order]
    labels = np.load(options.data / "labels.npy")[order]

    model, optimiser = Convnet(), optax.adam(1e-3)
    params = model.init(jax.random.key(1), jnp.zeros((1, 28, 28, 1)))
    state = params, optimiser.init(params)
    mesh = Mesh(np.asarray(jax.devices()), ("data",))

    @partial(jax.jit, donate_argnums=0)
    @partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
    def train_step(state, x, y):
        def loss_of(params):
            losses = optax.softmax_cross_entropy_with_integer_labels(model.apply(params, x), y)
            return jax.lax.pmean(losses.mean(), "data")

        params, moments = state
        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, moments = optimiser.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), loss

    for epoch in range(1, options.epochs + 1):
        losses = []
        for first in range(0, options.digits, BATCH):
            batch = slice(first, first + BATCH)
            state, loss = train_step(state, images[batch], labels[batch])
            losses.append(loss)
        print(f"epoch {epoch} loss {np.mean([float(loss) for loss in losses]):.4f}", flush=True)
    guesses = jax.jit(lambda params, x: model.apply(params, x).argmax(-1))
    accuracy = np.mean([np.asarray(guesses(state[0], images[i:i + BATCH])) == labels[i:i + BATCH]
                        for i in range(4000, 5000, BATCH)])
    print(f"accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
