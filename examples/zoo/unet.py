"""The UNet of Stable Diffusion 1.5: noise of latents of 64 x 64 with a text of 77 tokens, inference in bf16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from .dit import waves
from .layers import Attention
from .program import CORES, Input, Program, Size, inference


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its inputs."""

    features: tuple[int, ...] = (320, 640, 1280, 1280)  # of each level
    attention: tuple[bool, ...] = (True, True, True, False)
    blocks: int = 2
    heads: int = 8
    groups: int = 32
    latent: int = 64
    tokens: int = 77
    text: int = 768
    dtype: Any = jnp.bfloat16

    @property
    def kind(self) -> dict[str, Any]:
        """Types of a layer."""
        return {"dtype": self.dtype, "param_dtype": self.dtype}


SMALL = {"features": (16, 32), "attention": (True, False), "blocks": 1, "heads": 2, "groups": 4, "latent": 8,
         "tokens": 5, "text": 24}


class Residual(nn.Module):
    """Two convolutions behind group norms; the time is added between them."""

    features: int
    config: Config

    @nn.compact
    def __call__(self, x: jax.Array, time: jax.Array) -> jax.Array:
        """Keeps the image's size."""
        c = self.config
        norm = partial(nn.GroupNorm, c.groups, epsilon=1e-5, **c.kind)
        conv = partial(nn.Conv, self.features, (3, 3), **c.kind)
        y = conv()(nn.silu(norm()(x))) + nn.Dense(self.features, **c.kind)(nn.silu(time))[:, None, None]
        y = conv()(nn.silu(norm()(y)))
        return y + (x if x.shape == y.shape else nn.Conv(self.features, (1, 1), **c.kind)(x))


class Transformer(nn.Module):
    """Self-attention over the pixels, attention to the text, dense layers with gated GELU."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array, text: jax.Array) -> jax.Array:
        """Keeps the shape."""
        c, features = self.config, x.shape[-1]
        norm = partial(nn.LayerNorm, epsilon=1e-5, **c.kind)
        attention = partial(Attention, c.heads, features // c.heads, **c.kind)
        y = nn.Dense(features, **c.kind)(nn.GroupNorm(c.groups, epsilon=1e-6, **c.kind)(x))
        y = y.reshape(x.shape[0], -1, features)
        y = y + attention()(norm()(y))[0]
        y = y + attention()(norm()(y), text)[0]
        inside, gate = jnp.split(nn.Dense(8 * features, **c.kind)(norm()(y)), 2, axis=-1)
        y = y + nn.Dense(features, **c.kind)(inside * nn.gelu(gate, approximate=False))
        return x + nn.Dense(features, **c.kind)(y).reshape(x.shape)


class Unet(nn.Module):
    """Levels down, the middle, and the same levels up with what each of them had on the way down."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array, time: jax.Array, text: jax.Array) -> jax.Array:
        """[batch, side, side, 4] to the same."""
        c = self.config
        conv = partial(nn.Conv, kernel_size=(3, 3), **c.kind)
        time = waves(time, c.features[0]).astype(c.dtype)
        time = nn.Dense(4 * c.features[0], **c.kind)(nn.silu(nn.Dense(4 * c.features[0], **c.kind)(time)))
        x = conv(c.features[0])(x)
        skipped = [x]
        for level, (features, attention) in enumerate(zip(c.features, c.attention, strict=True)):
            for _ in range(c.blocks):
                x = Residual(features, c)(x, time)
                x = Transformer(c)(x, text) if attention else x
                skipped.append(x)
            if level + 1 < len(c.features):
                x = conv(features, strides=(2, 2), padding=1)(x)
                skipped.append(x)
        x = Residual(x.shape[-1], c)(Transformer(c)(Residual(x.shape[-1], c)(x, time), text), time)
        for level in reversed(range(len(c.features))):
            for _ in range(c.blocks + 1):
                x = Residual(c.features[level], c)(jnp.concatenate([x, skipped.pop()], axis=-1), time)
                x = Transformer(c)(x, text) if c.attention[level] else x
            if level > 0:
                x = conv(c.features[level])(jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2))
        return conv(4)(nn.silu(nn.GroupNorm(c.groups, epsilon=1e-5, **c.kind)(x)))


def unet(size: Size) -> Program:
    """Two images a core: one with its text and one without."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, count = Unet(config), CORES * 2
    latents, text = (config.latent, config.latent, 4), (config.tokens, config.text)

    def init(key: jax.Array) -> dict:
        zeros = (jnp.zeros((1, *shape), config.dtype) for shape in (latents, text))
        return model.init(key, next(zeros), jnp.zeros((1,), jnp.int32), next(zeros))

    return inference(model.apply, init, (Input((count, *latents), config.dtype), Input((count,), below=1000),
                                         Input((count, *text), config.dtype)))


PROGRAMS = {"sd15_unet": unet}
