"""MobileNet-v2: a training step of images of 224 x 224, SGD with momentum."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from .layers import ConvNorm
from .program import Program, Size
from .resnet import image_training

# Expansion, features, blocks and stride of the first one.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
SMALL = ((1, 8, 1, 1), (3, 16, 2, 2))


class InvertedResidual(nn.Module):
    """1x1 to more features, 3x3 of each feature, 1x1 to fewer without an activation; added where the shape stays."""

    features: int
    expansion: int
    stride: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """One block."""
        inside = x.shape[-1] * self.expansion
        y = x if self.expansion == 1 else ConvNorm(inside, activation=nn.relu6, dtype=self.dtype)(x)
        y = ConvNorm(inside, 3, self.stride, inside, nn.relu6, dtype=self.dtype)(y)
        y = ConvNorm(self.features, activation=None, dtype=self.dtype)(y)
        return x + y if x.shape == y.shape else y


class MobileNet(nn.Module):
    """3x3/2, blocks, 1x1, mean over the image, dense layer."""

    stages: tuple[tuple[int, ...], ...]
    first: int
    last: int
    classes: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits in f32."""
        x = ConvNorm(self.first, 3, 2, activation=nn.relu6, dtype=self.dtype)(x)
        for expansion, features, blocks, stride in self.stages:
            for block in range(blocks):
                x = InvertedResidual(features, expansion, stride if block == 0 else 1, self.dtype)(x)
        x = ConvNorm(self.last, activation=nn.relu6, dtype=self.dtype)(x)
        return nn.Dense(self.classes, dtype=self.dtype)(jnp.mean(x, axis=(1, 2))).astype(jnp.float32)


def mobilenet(size: Size) -> Program:
    """128 images a core."""
    model = MobileNet(size.pick(SMALL, STAGES), size.pick(8, 32), size.pick(32, 1280), size.pick(10, 1000), size.dtype)
    return image_training(model, size.pick(2, 128), size.pick(32, 224))


PROGRAMS = {"mobilenet_v2": mobilenet}
