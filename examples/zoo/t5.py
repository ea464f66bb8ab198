"""T5-base: a training step of the encoder and decoder, AdamW (benchmarks/bert.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import bert

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .layers import Attention, Mlp, causal
from .program import CORES, Input, Program, Size, training

BUCKETS, FARTHEST = 32, 128  # of relative positions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its sequences."""

    layers: int = 12  # of the encoder, and of the decoder
    features: int = 768
    heads: int = 12
    inside: int = 3072
    vocabulary: int = 32128
    source: int = 512
    target: int = 114
    dtype: Any = jnp.bfloat16


SMALL = {"layers": 2, "features": 64, "heads": 2, "inside": 128, "vocabulary": 100, "source": 24, "target": 12}


def buckets(queries: int, keys: int, both_ways: bool) -> np.ndarray:
    """Number of the bucket of each pair: one for each near position, then logarithmic up to FARTHEST."""
    distance = np.arange(keys)[None] - np.arange(queries)[:, None]
    count = BUCKETS // 2 if both_ways else BUCKETS
    start = np.where(distance > 0, count, 0) if both_ways else 0
    distance = np.abs(distance) if both_ways else np.maximum(-distance, 0)
    near = count // 2
    far = near + (np.log(np.maximum(distance, 1) / near) / np.log(FARTHEST / near) * (count - near)).astype(int)
    return start + np.where(distance < near, distance, np.minimum(far, count - 1))


class Stack(nn.Module):
    """Encoder, or with `decode` decoder. The first layer's relative positions serve all."""

    config: Config
    decode: bool

    @nn.compact
    def __call__(self, x: jax.Array, encoded: jax.Array | None = None) -> jax.Array:
        """[batch, length, features] to the same."""
        c, length = self.config, x.shape[1]
        norm = partial(nn.RMSNorm, dtype=c.dtype)
        attention = partial(Attention, c.heads, c.features // c.heads, dtype=c.dtype)
        table = nn.Embed(BUCKETS, c.heads, name="positions")(jnp.asarray(buckets(length, length, not self.decode)))
        bias = jnp.moveaxis(table, -1, 0)[None, :, None]
        if self.decode:
            bias = bias + causal(length, length)
        for _ in range(c.layers):
            x = x + attention()(norm()(x), bias=bias)[0]
            if encoded is not None:
                x = x + attention()(norm()(x), encoded)[0]
            x = x + Mlp(c.inside, nn.relu, dtype=c.dtype, use_bias=False)(norm()(x))
        return norm()(x)


class T5(nn.Module):
    """Embedding, tied to the output; encoder and decoder."""

    config: Config

    @nn.compact
    def __call__(self, source: jax.Array, target: jax.Array) -> jax.Array:
        """Logits in f32 of each token of the target, from those before it."""
        c = self.config
        words = nn.Embed(c.vocabulary, c.features, dtype=c.dtype)
        encoded = Stack(c, False)(words(source))
        before = jnp.pad(target, ((0, 0), (1, 0)))[:, :-1]
        y = Stack(c, True)(words(before), encoded)
        return words.attend(y * c.features**-0.5).astype(jnp.float32)


def t5(size: Size) -> Program:
    """8 pairs a core."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, count = T5(config), CORES * size.pick(1, 8)
    pair = tuple(Input((count, length), below=config.vocabulary) for length in (config.source, config.target))

    def loss_of(params, key, source, target):
        logits = model.apply({"params": params}, source, target)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, target))

    return training(loss_of, lambda key: model.init(key, *(jnp.zeros((1, each.shape[1]), jnp.int32) for each in pair))[
        "params"], bert.make_optimizer(), pair)


PROGRAMS = {"t5_base": t5}
