"""The diffusion transformer DiT-XL/2: a denoising step of latents of 32 x 32 with guidance, inference in bf16."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from .layers import Attention, Mlp
from .program import CORES, Input, Program, Size, inference

GUIDANCE = 4.0
STEPS = 1000  # of the diffusion


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its latents."""

    layers: int = 28
    features: int = 1152
    heads: int = 16
    latent: int = 32
    channels: int = 4
    patch: int = 2
    classes: int = 1000
    dtype: Any = jnp.bfloat16


SMALL = {"layers": 2, "features": 64, "heads": 2, "latent": 8, "classes": 10}


def waves(time: jax.Array, features: int) -> jax.Array:
    """Cosines and sines of the time with geometric frequencies: f32[batch, features]."""
    rates = np.exp(-np.log(1e4) * np.arange(features // 2) / (features // 2)).astype(np.float32)
    angles = time[:, None].astype(jnp.float32) * rates
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)


class Block(nn.Module):
    """Attention and dense layers whose norms are shifted, scaled and gated by time and class."""

    config: Config

    @nn.compact
    def __call__(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        """[batch, tokens, features] to the same."""
        c = self.config
        kind = {"dtype": c.dtype, "param_dtype": c.dtype}
        norm = partial(nn.LayerNorm, use_bias=False, use_scale=False, dtype=c.dtype)
        parts = jnp.split(nn.Dense(6 * c.features, **kind)(nn.silu(condition))[:, None], 6, axis=-1)
        shift, scale, gate, shift2, scale2, gate2 = parts
        attention = Attention(c.heads, c.features // c.heads, use_bias=True, **kind)
        x = x + gate * attention(norm()(x) * (1 + scale) + shift)[0]
        return x + gate2 * Mlp(4 * c.features, **kind)(norm()(x) * (1 + scale2) + shift2)


class Dit(nn.Module):
    """Patches, blocks, and what each patch predicts: noise and its variance."""

    config: Config

    @nn.compact
    def __call__(self, latents: jax.Array, time: jax.Array, label: jax.Array) -> jax.Array:
        """[batch, side, side, channels] to twice the channels."""
        c = self.config
        kind = {"dtype": c.dtype, "param_dtype": c.dtype}
        side, patch = c.latent // c.patch, (c.patch, c.patch)
        x = nn.Conv(c.features, patch, patch, "VALID", **kind)(latents).reshape(latents.shape[0], -1, c.features)
        x = x + self.param("places", nn.initializers.normal(0.02), (1, side * side, c.features), c.dtype)
        condition = Mlp(c.features, nn.silu, **kind)(nn.Dense(c.features, **kind)(waves(time, 256)))
        condition = condition + nn.Embed(c.classes + 1, c.features, **kind)(label)
        for _ in range(c.layers):
            x = Block(c)(x, condition)
        shift, scale = jnp.split(nn.Dense(2 * c.features, **kind)(nn.silu(condition))[:, None], 2, axis=-1)
        x = nn.LayerNorm(use_bias=False, use_scale=False, dtype=c.dtype)(x) * (1 + scale) + shift
        x = nn.Dense(c.patch * c.patch * 2 * c.channels, **kind)(x)
        x = x.reshape(-1, side, side, c.patch, c.patch, 2 * c.channels).transpose(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, c.latent, c.latent, 2 * c.channels)


def dit(size: Size) -> Program:
    """8 images a core, each with and without its class: (params, latents, time, label) -> (latents, noise)."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, count = Dit(config), CORES * size.pick(1, 8)
    shape = (config.latent, config.latent, config.channels)

    def init(key: jax.Array) -> dict:
        zero = jnp.zeros((1,), jnp.int32)
        return model.init(key, jnp.zeros((1, *shape), config.dtype), zero, zero)

    def step(params, latents, time, label):
        twice = (jnp.concatenate([each, each]) for each in (latents.astype(config.dtype), time))
        labels = jnp.concatenate([label, jnp.full_like(label, config.classes)])
        noise = model.apply(params, *twice, labels)[..., : config.channels].astype(jnp.float32)
        with_class, without = jnp.split(noise, 2)
        noise = without + GUIDANCE * (with_class - without)
        # DDIM from `time` to the step before it, cosine schedule.
        angle, angle2 = ((t.astype(jnp.float32) * (0.5 * np.pi / STEPS))[:, None, None, None] for t in (time, time - 1))
        clean = (latents - jnp.sin(angle) * noise) / jnp.maximum(jnp.cos(angle), 1e-3)
        return jnp.cos(angle2) * clean + jnp.sin(angle2) * noise, noise

    return inference(step, init, (Input((count, *shape), jnp.float32), Input((count,), below=STEPS * 9 // 10),
                                  Input((count,), below=config.classes)))


PROGRAMS = {"dit_xl2": dit}
