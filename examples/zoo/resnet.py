"""ResNet-18 and ResNet-50: a training step of images of 224 x 224, SGD with momentum (benchmarks/resnet50.py)."""

from __future__ import annotations

from functools import partial

import resnet50

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from .program import AXIS, CORES, Input, Program, Size


class BasicBlock(nn.Module):
    """Two 3x3 convolutions; projected shortcut where the shape changes."""

    features: int
    stride: int
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """One block."""
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=self.dtype)
        strides = (self.stride, self.stride)
        y = nn.relu(norm()(conv(self.features, (3, 3), strides)(x)))
        y = norm()(conv(self.features, (3, 3))(y))
        if x.shape != y.shape:
            x = norm()(conv(self.features, (1, 1), strides)(x))
        return nn.relu(x + y)


def image_training(model: nn.Module, batch: int, image: int) -> Program:
    """The step of a network with batch norm and `classes`; `batch` images a core.
    (params, momentum, statistics, images, labels) -> (params, momentum, statistics, loss)."""
    optimizer = optax.sgd(0.1, momentum=0.9)

    def state(key: jax.Array) -> tuple:
        variables = model.init(key, jnp.zeros((1, image, image, 3), model.dtype))
        params = variables["params"]
        return params, optimizer.init(params), variables["batch_stats"]

    images = Input((CORES * batch, image, image, 3), model.dtype, spec=P(AXIS))
    labels = Input((CORES * batch,), below=model.classes, spec=P(AXIS))
    return Program(resnet50.make_step(model, optimizer), state, (images, labels), donated=(0, 1, 2), moments=1)


def resnet(size: Size, stages: tuple[int, ...], block: type[nn.Module]) -> Program:
    """128 images a core."""
    model = resnet50.ResNet(size.pick((1, 1), stages), size.pick(10, resnet50.CLASSES), size.dtype, block)
    return image_training(model, size.pick(2, 128), size.pick(32, 224))


PROGRAMS = {"resnet18": lambda size: resnet(size, (2, 2, 2, 2), BasicBlock),
            "resnet50": lambda size: resnet(size, resnet50.STAGES, resnet50.Bottleneck)}
