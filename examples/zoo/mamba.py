"""Mamba-130m: logits of a sequence of 2,048 tokens by selective state spaces, inference.

The scan of a layer runs over chunks of the sequence; inside of a chunk it is an associative scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from .program import CORES, Input, Program, Size, inference


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its input."""

    layers: int = 24
    features: int = 768
    expand: int = 2
    state: int = 16
    window: int = 4  # of the convolution over time
    rank: int = 48  # of what makes the step width
    vocabulary: int = 50280
    length: int = 2048
    chunk: int = 128
    dtype: Any = jnp.bfloat16


SMALL = {"layers": 2, "features": 32, "state": 4, "rank": 4, "vocabulary": 80, "length": 32, "chunk": 8}


def selective_scan(u: jax.Array, width: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array, chunk: int) -> jax.Array:
    """h_t = exp(width_t a) h_(t-1) + width_t b_t u_t, y_t = c_t h_t. u, width [batch, length, inside], a [state,
    inside], b, c [batch, length, state]; all f32. The inside is the last dimension of the states: it fills vectors."""
    batch, length, inside = u.shape

    def cut(x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x.reshape(batch, length // chunk, chunk, -1), 1, 0)

    def join(first, second):
        return first[0] * second[0], first[1] * second[0] + second[1]

    def one_chunk(h, parts):
        u, width, b, c = parts
        decay = jnp.exp(width[:, :, None] * a)
        added = (width * u)[:, :, None] * b[..., None]
        decays, states = lax.associative_scan(join, (decay, added), axis=1)
        states = states + decays * h[:, None]
        return states[:, -1], jnp.einsum("btsi,bts->bti", states, c)

    start = jnp.zeros((batch, a.shape[0], inside), jnp.float32)
    _, y = lax.scan(one_chunk, start, (cut(u), cut(width), cut(b), cut(c)))
    return jnp.moveaxis(y, 0, 1).reshape(batch, length, inside)


class Mixer(nn.Module):
    """Projection to twice the inside, convolution over time, selective scan, gate, projection back."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[batch, length, features] to the same."""
        c = self.config
        inside = c.expand * c.features
        dense = partial(nn.Dense, dtype=c.dtype, param_dtype=c.dtype, use_bias=False)
        u, gate = jnp.split(dense(2 * inside)(x), 2, axis=-1)
        u = nn.silu(nn.Conv(inside, (c.window,), padding=[(c.window - 1, 0)], feature_group_count=inside,
                            dtype=c.dtype, param_dtype=c.dtype)(u))
        parts = dense(c.rank + 2 * c.state)(u)
        rank, b, out = jnp.split(parts, (c.rank, c.rank + c.state), axis=-1)
        width = nn.softplus(nn.Dense(inside, dtype=c.dtype, param_dtype=c.dtype)(rank).astype(jnp.float32))
        log_a = self.param("log_a", lambda key: jnp.log(jnp.broadcast_to(
            jnp.arange(1, c.state + 1, dtype=jnp.float32)[:, None], (c.state, inside))))
        skip = self.param("skip", nn.initializers.ones, (inside,))
        u32, b32, out32 = (part.astype(jnp.float32) for part in (u, b, out))
        y = selective_scan(u32, width, -jnp.exp(log_a), b32, out32, c.chunk) + u32 * skip
        return dense(c.features)(y.astype(c.dtype) * nn.silu(gate))


class Mamba(nn.Module):
    """Mixers behind RMS norms; the embedding is tied to the output."""

    config: Config

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits in f32 behind the last token."""
        c = self.config
        norm = partial(nn.RMSNorm, epsilon=1e-5, dtype=c.dtype, param_dtype=c.dtype)
        words = nn.Embed(c.vocabulary, c.features, dtype=c.dtype, param_dtype=c.dtype)
        x = words(tokens)
        for _ in range(c.layers):
            x = x + Mixer(c)(norm()(x))
        return words.attend(norm()(x[:, -1])).astype(jnp.float32)


def mamba(size: Size) -> Program:
    """One sequence a core."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, shape = Mamba(config), (1, config.length)
    tokens = Input((CORES, config.length), below=config.vocabulary)
    return inference(model.apply, lambda key: model.init(key, jnp.zeros(shape, jnp.int32)), (tokens,))


PROGRAMS = {"mamba_130m": mamba}
