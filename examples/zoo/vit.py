"""ViT-L/16: a training step of images of 224 x 224, AdamW (benchmarks/bert.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import bert

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from .layers import Attention, Mlp
from .program import CORES, Input, Program, Size, training


@dataclass(frozen=True, kw_only=True)
class Config:
    """Sizes of the network and of its images."""

    layers: int = 24
    features: int = 1024
    heads: int = 16
    inside: int = 4096
    image: int = 224
    patch: int = 16
    classes: int = 1000
    dtype: Any = jnp.bfloat16


SMALL = {"layers": 2, "features": 64, "heads": 2, "inside": 128, "image": 32, "patch": 8, "classes": 10}


class Vit(nn.Module):
    """Patches and a token for the class, blocks of attention and dense layers behind layer norms, dense layer."""

    config: Config

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits in f32."""
        c = self.config
        norm = partial(nn.LayerNorm, dtype=c.dtype)
        x = nn.Conv(c.features, (c.patch, c.patch), (c.patch, c.patch), "VALID", dtype=c.dtype)(images)
        x = x.reshape(x.shape[0], -1, c.features)
        token = self.param("token", nn.initializers.normal(0.02), (1, 1, c.features))
        x = jnp.concatenate([jnp.broadcast_to(token, (x.shape[0], 1, c.features)).astype(c.dtype), x], axis=1)
        places = self.param("places", nn.initializers.normal(0.02), (1, x.shape[1], c.features))
        x = x + places.astype(c.dtype)
        for _ in range(c.layers):
            x = x + Attention(c.heads, c.features // c.heads, dtype=c.dtype, use_bias=True)(norm()(x))[0]
            x = x + Mlp(c.inside, dtype=c.dtype)(norm()(x))
        return nn.Dense(c.classes, dtype=c.dtype)(norm()(x)[:, 0]).astype(jnp.float32)


def vit(size: Size) -> Program:
    """32 images a core."""
    config = Config(**size.pick(SMALL, {}), dtype=size.dtype)
    model, shape = Vit(config), (config.image, config.image, 3)

    def loss_of(params, key, images, labels):
        logits = model.apply({"params": params}, images)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, labels))

    count = CORES * size.pick(1, 32)
    return training(loss_of, lambda key: model.init(key, jnp.zeros((1, *shape), size.dtype))["params"],
                    bert.make_optimizer(), (Input((count, *shape), size.dtype), Input((count,), below=config.classes)))


PROGRAMS = {"vit_l16": vit}
