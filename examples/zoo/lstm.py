"""A translation model of LSTMs of the size of GNMT: four layers each of encoder and decoder, training, Adam.

The first layer of the encoder runs in both directions. The decoder's first layer attends to the encoder's results;
what it finds is added to the input of the other layers. Layers from the third on are added to their input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import bert

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from .layers import attend
from .program import CORES, Input, Program, Size, training


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its sentences."""

    layers: int = 4
    features: int = 1024
    vocabulary: int = 32000
    length: int = 50
    dtype: Any = jnp.bfloat16


SMALL = {"layers": 3, "features": 32, "vocabulary": 60, "length": 6}


class Translator(nn.Module):
    """Encoder and decoder."""

    config: Config

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        """Logits in f32 of each token of the target, from those before it."""
        c = self.config

        def lstm(x: jax.Array, **options: Any) -> jax.Array:
            return nn.RNN(nn.OptimizedLSTMCell(c.features, dtype=c.dtype), **options)(x)

        def rest(x: jax.Array, extra: jax.Array | None) -> jax.Array:
            for layer in range(1, c.layers):
                y = lstm(x if extra is None else jnp.concatenate([x, extra], axis=-1))
                x = x + y if layer > 1 else y
            return x

        x = nn.Embed(c.vocabulary, c.features, dtype=c.dtype)(source)
        encoded = rest(jnp.concatenate([lstm(x), lstm(x, reverse=True, keep_order=True)], axis=-1), None)
        before = jnp.pad(target, ((0, 0), (1, 0)))[:, :-1]
        y = lstm(nn.Embed(c.vocabulary, c.features, dtype=c.dtype)(before))
        keys = nn.Dense(c.features, dtype=c.dtype)(encoded)
        found = attend(y[:, :, None], keys[:, :, None], encoded[:, :, None])[:, :, 0]
        return nn.Dense(c.vocabulary, dtype=c.dtype)(rest(y, found)).astype(jnp.float32)


def lstm(size: Size) -> Program:
    """64 pairs of sentences a core."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, count = Translator(config), CORES * size.pick(1, 64)
    pair = (Input((count, config.length), below=config.vocabulary),) * 2
    one = jnp.zeros((1, config.length), jnp.int32)

    def loss_of(params, key, source, target):
        logits = model.apply({"params": params}, source, target)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, target))

    return training(loss_of, lambda key: model.init(key, one, one)["params"], bert.make_optimizer(), pair)


PROGRAMS = {"gnmt": lstm}
