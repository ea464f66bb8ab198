"""Parts that models of several families share (flax.linen). Activations have the type `dtype`.

Attention and Mlp take their sizes as fields; `spec_of_layers` says how a tensor-parallel program shards their weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from .program import AXIS

Cache = tuple[jax.Array, jax.Array]  # keys and values, [batch, length, key heads, features of a head] each


def rotate(x: jax.Array, positions: jax.Array, base: float) -> jax.Array:
    """Rotary embedding of [batch, length, heads, features]: pairs of the first and the second half of the features."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * jnp.asarray(base ** (-np.arange(half) / half), jnp.float32)
    sin, cos = jnp.sin(angles)[:, None], jnp.cos(angles)[:, None]
    low, high = x[..., :half].astype(jnp.float32), x[..., half:].astype(jnp.float32)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(x.dtype)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    """Softmax attention, [batch, length, heads, features]; groups of query heads share a key head. `bias` is added to
    the scores [batch, key heads, group, queries, keys] in f32."""
    batch, queries, heads, features = q.shape
    grouped = q.reshape(batch, queries, k.shape[2], heads // k.shape[2], features) * features**-0.5
    scores = jnp.einsum("bqhgd,bkhd->bhgqk", grouped, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(scores if bias is None else scores + bias).astype(v.dtype)
    return jnp.einsum("bhgqk,bkhd->bqhgd", weights, v).reshape(batch, queries, heads, v.shape[-1])


def causal(queries: int, keys: int, first: jax.Array | int = 0, window: int | None = None) -> jax.Array:
    """Bias of a query at `first` + its place, which may see the keys up to there, at most `window` of them."""
    at = first + lax.broadcasted_iota(jnp.int32, (queries, keys), 0)
    key = lax.broadcasted_iota(jnp.int32, (queries, keys), 1)
    seen = key <= at if window is None else (key <= at) & (key > at - window)
    return jnp.where(seen, 0.0, -1e30)


class Attention(nn.Module):
    """Projections to queries, keys and values, attention, projection back. With `rotary` positions rotate queries and
    keys. With a cache it writes keys and values at `first`, and attends to what is there up to its own tokens: over the
    whole cache where `first` is a value of the program."""

    heads: int
    features: int  # of a head
    key_heads: int | None = None
    dtype: Any = jnp.bfloat16
    param_dtype: Any = jnp.float32
    use_bias: bool = False
    rotary: float | None = None  # base of the frequencies

    @nn.compact
    def __call__(self, x: jax.Array, context: jax.Array | None = None, bias: jax.Array | None = None,
                 cache: Cache | None = None, first: jax.Array | int = 0) -> tuple[jax.Array, Cache]:
        """[batch, length, features] to the same, and the keys and values."""
        dense = partial(nn.DenseGeneral, dtype=self.dtype, param_dtype=self.param_dtype, use_bias=self.use_bias)
        context = x if context is None else context
        key_heads = self.key_heads or self.heads
        q = dense((self.heads, self.features), name="query")(x)
        k = dense((key_heads, self.features), name="key")(context)
        v = dense((key_heads, self.features), name="value")(context)
        if self.rotary is not None:
            positions = (first + jnp.arange(x.shape[1])).astype(jnp.float32)
            q, k = rotate(q, positions, self.rotary), rotate(k, positions, self.rotary)
        if cache is not None:
            k, v = (lax.dynamic_update_slice(kept, new, (0, first, 0, 0))
                    for kept, new in zip(cache, (k, v), strict=True))
        seen = first + x.shape[1] if cache is not None and isinstance(first, int) else k.shape[1]
        y = attend(q, k[:, :seen], v[:, :seen], bias)
        return dense(x.shape[-1], axis=(-2, -1), name="out")(y), (k, v)


class Mlp(nn.Module):
    """Two dense layers; `gated` multiplies what is inside by a third one."""

    inside: int
    activation: Callable = nn.gelu
    gated: bool = False
    dtype: Any = jnp.bfloat16
    param_dtype: Any = jnp.float32
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., features] to the same."""
        dense = partial(nn.Dense, dtype=self.dtype, param_dtype=self.param_dtype, use_bias=self.use_bias)
        y = self.activation(dense(self.inside, name="up")(x))
        if self.gated:
            y = y * dense(self.inside, name="gate")(x)
        return dense(x.shape[-1], name="down")(y)


class ConvNorm(nn.Module):
    """Convolution, batch norm and activation. `training` takes the statistics of the batch."""

    features: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    activation: Callable | None = nn.relu
    training: bool = True
    dtype: Any = jnp.bfloat16

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, height, width, features]."""
        padding = ((self.kernel - 1) // 2,) * 2
        x = nn.Conv(self.features, (self.kernel, self.kernel), (self.stride, self.stride), [padding, padding],
                    feature_group_count=self.groups, use_bias=False, dtype=self.dtype)(x)
        x = nn.BatchNorm(use_running_average=not self.training, momentum=0.9, epsilon=1e-5, dtype=self.dtype)(x)
        return x if self.activation is None else self.activation(x)


# Dimension of a weight that a tensor-parallel program splits, counted from the end of its path.
SPLIT = ((r"(query|key|value)/kernel$", 1), (r"out/kernel$", 0), (r"(up|gate|head)/kernel$", 1), (r"down/kernel$", 0),
         (r"embedding$", 0))


def spec_of_layers(path: str, shape: tuple[int, ...]) -> P:
    """Heads, what is inside of a dense part and the vocabulary are split over the cores."""
    for pattern, dimension in SPLIT:
        if re.search(pattern, path):
            return P(*[None] * dimension, AXIS)
    return P()
