"""A detector of the class of YOLOv5s: boxes, objectness and classes on three grids of images of 640 x 640, inference.

A backbone of CSP blocks, spatial pyramid pooling, a path aggregation network, and three heads with three anchors each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from .layers import ConvNorm
from .program import CORES, Input, Program, Size, inference

ANCHORS = np.array([[[10, 13], [16, 30], [33, 23]], [[30, 61], [62, 45], [59, 119]],
                    [[116, 90], [156, 198], [373, 326]]], np.float32)  # of each grid: width, height
STRIDES = (8, 16, 32)


class Csp(nn.Module):
    """Two paths of half of the features, one of them through bottlenecks, joined."""

    features: int
    blocks: int
    conv: Any
    shortcut: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Keeps the image's size."""
        half = self.features // 2
        y, other = self.conv(half)(x), self.conv(half)(x)
        for _ in range(self.blocks):
            z = self.conv(half, 3)(self.conv(half)(y))
            y = y + z if self.shortcut else z
        return self.conv(self.features)(jnp.concatenate([y, other], axis=-1))


def double(x: jax.Array) -> jax.Array:
    """Each pixel four times."""
    return jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)


def boxes(x: jax.Array, anchors: np.ndarray, stride: int) -> tuple[jax.Array, jax.Array]:
    """[batch, height, width, 3 * (5 + classes)] to [batch, boxes, 4] in f32, center and size in pixels, and [batch,
    boxes, 1 + classes], objectness and classes."""
    batch, height, width, _ = x.shape
    x = jax.nn.sigmoid(x.reshape(batch, height, width, 3, -1).astype(jnp.float32))
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    grid = np.stack([columns, rows], axis=-1)[:, :, None].astype(np.float32)
    center = (x[..., :2] * 2 - 0.5 + grid) * stride
    extent = jnp.square(x[..., 2:4] * 2) * anchors
    where = jnp.concatenate([center, extent], axis=-1)
    return where.reshape(batch, -1, 4), x[..., 4:].reshape(batch, height * width * 3, -1)


class Yolo(nn.Module):
    """Backbone, neck and heads."""

    width: int  # features of the first convolution
    depth: int  # blocks of the shortest CSP
    classes: int
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """Boxes of all grids, and what is in them."""
        conv = partial(ConvNorm, activation=nn.silu, training=False, dtype=self.dtype)
        csp, w, d = partial(Csp, conv=conv), self.width, self.depth
        x = csp(2 * w, d)(conv(2 * w, 3, 2)(conv(w, 6, 2)(x)))
        fine = csp(4 * w, 2 * d)(conv(4 * w, 3, 2)(x))
        middle = csp(8 * w, 3 * d)(conv(8 * w, 3, 2)(fine))
        x = csp(16 * w, d)(conv(16 * w, 3, 2)(middle))
        pools = [conv(8 * w)(x)]
        for _ in range(3):
            pools.append(nn.max_pool(pools[-1], (5, 5), padding="SAME"))
        top = conv(8 * w)(conv(16 * w)(jnp.concatenate(pools, axis=-1)))
        join = partial(csp, blocks=d, shortcut=False)
        middle = conv(4 * w)(join(8 * w)(jnp.concatenate([double(top), middle], axis=-1)))
        fine = join(4 * w)(jnp.concatenate([double(middle), fine], axis=-1))
        middle = join(8 * w)(jnp.concatenate([conv(4 * w, 3, 2)(fine), middle], axis=-1))
        top = join(16 * w)(jnp.concatenate([conv(8 * w, 3, 2)(middle), top], axis=-1))
        heads = [nn.Conv(3 * (5 + self.classes), (1, 1), dtype=self.dtype)(each) for each in (fine, middle, top)]
        grids = [boxes(*each) for each in zip(heads, ANCHORS, STRIDES, strict=True)]
        return tuple(jnp.concatenate(parts, axis=1) for parts in zip(*grids, strict=True))


def yolo(size: Size) -> Program:
    """8 images a core."""
    model = Yolo(size.pick(4, 32), 1, size.pick(3, 80), size.dtype)
    side = size.pick(64, 640)
    images = Input((CORES * size.pick(1, 8), side, side, 3), size.dtype)
    return inference(model.apply, lambda key: model.init(key, jnp.zeros((1, side, side, 3), size.dtype)), (images,))


PROGRAMS = {"yolov5s": yolo}
