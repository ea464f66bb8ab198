"""Exports a ResNet-50 training step (flax, version 1.5 of the network) as a StableHLO portable artifact.

224x224x3 images, 1,000 classes; bf16 activations, f32 parameters; batch norm with the statistics of each core's batch;
label smoothing 0.1, L2 1e-4 on the weights, SGD with momentum 0.9. Data parallel over --cores cores with jax.shard_map:
lax.pmean of loss, gradients and running statistics. 25.6 million parameters, 24.6 GFLOP an image.

With --recipe flax the step of flax's examples/imagenet, which is that of MLPerf training v0.5's TPU submissions, too:
no label smoothing, Nesterov momentum, each core keeps its own running statistics.

Arguments: leaves of (params, momentum, running statistics), images bf16[cores*batch,224,224,3], labels
i32[cores*batch]; results: the new leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: resnet50.py --out FILE.mlirbc [--batch N] [--image N] [--stages A,B,C,D]
[--recipe averaged|flax] [--cores N]
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from data_parallel import CORES, devices  # sets up JAX

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

CLASSES = 1000
STAGES = (3, 4, 6, 3)
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Recipe:
    """What a step does beside the network."""

    label_smoothing: float = 0.1
    nesterov: bool = False
    average_statistics: bool = True  # the running ones, over the cores


RECIPES = {"averaged": Recipe(), "flax": Recipe(0.0, True, False)}


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride), 1x1 to four times the features; projected shortcut where the shape changes."""

    features: int
    stride: int
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """One block."""
        conv = partial(nn.Conv, use_bias=False, dtype=self.dtype)
        norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=self.dtype)
        y = nn.relu(norm()(conv(self.features, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.features, (3, 3), (self.stride, self.stride))(y)))
        y = norm(scale_init=nn.initializers.zeros)(conv(4 * self.features, (1, 1))(y))
        if x.shape != y.shape:
            x = norm()(conv(4 * self.features, (1, 1), (self.stride, self.stride))(x))
        return nn.relu(x + y)


class ResNet(nn.Module):
    """7x7/2, max pool 3x3/2, stages of blocks with 64, 128, ... features, mean over the image, dense layer."""

    stages: tuple[int, ...] = STAGES
    classes: int = CLASSES
    dtype: jnp.dtype = jnp.bfloat16  # of activations
    block: type[nn.Module] = Bottleneck  # (features, stride, dtype)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits in f32."""
        x = nn.Conv(64, (7, 7), (2, 2), padding=[(3, 3), (3, 3)], use_bias=False, dtype=self.dtype)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=self.dtype)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, blocks in enumerate(self.stages):
            for block in range(blocks):
                x = self.block(64 << stage, 2 if stage > 0 and block == 0 else 1, self.dtype)(x)
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(self.classes, dtype=self.dtype)(x).astype(jnp.float32)


def make_step(model: ResNet, optimizer: optax.GradientTransformation, recipe: Recipe = RECIPES["averaged"]):
    """(params, momentum, statistics, images, labels) -> (params, momentum, statistics, loss), of one core."""

    def step(params, momentum, statistics, images, labels):
        def loss_of(p):
            logits, updated = model.apply({"params": p, "batch_stats": statistics}, images, mutable=["batch_stats"])
            target = optax.smooth_labels(jax.nn.one_hot(labels, model.classes), recipe.label_smoothing)
            decay = sum(jnp.sum(w * w) for w in jax.tree.leaves(p) if w.ndim > 1)
            loss = jnp.mean(optax.softmax_cross_entropy(logits, target)) + 0.5 * WEIGHT_DECAY * decay
            return loss, updated["batch_stats"]

        (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        if recipe.average_statistics:
            loss, grads, statistics = lax.pmean((loss, grads, statistics), "data")
        else:
            loss, grads = lax.pmean((loss, grads), "data")
        updates, momentum = optimizer.update(grads, momentum, params)
        return optax.apply_updates(params, updates), momentum, statistics, loss

    return step


def export_step(batch: int, image: int = 224, stages: tuple[int, ...] = STAGES, classes: int = CLASSES,
                platform: str = "tpu", dtype: jnp.dtype = jnp.bfloat16,
                recipe: Recipe = RECIPES["averaged"], cores: int = CORES) -> jax.export.Exported:
    """The training step of all cores with `batch` images each; `dtype` of the images and activations."""
    mesh = jax.sharding.Mesh(devices(cores), ("data",))
    model = ResNet(stages, classes, dtype)
    optimizer = optax.sgd(0.1, momentum=0.9, nesterov=recipe.nesterov)
    images = jax.ShapeDtypeStruct((cores * batch, image, image, 3), dtype)
    labels = jax.ShapeDtypeStruct((cores * batch,), jnp.int32)
    variables = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, image, image, 3), jnp.bfloat16))
    params, statistics = variables["params"], variables["batch_stats"]
    momentum = jax.eval_shape(optimizer.init, params)
    step = jax.shard_map(make_step(model, optimizer, recipe), mesh=mesh, in_specs=(P(), P(), P(), P("data"), P("data")),
                         out_specs=P(), check_vma=False)
    return jax.export.export(jax.jit(step, donate_argnums=(0, 1, 2), keep_unused=True), platforms=[platform])(
        params, momentum, statistics, images, labels)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128, help="images a core")
    parser.add_argument("--image", type=int, default=224, help="height and width")
    parser.add_argument("--stages", default=",".join(map(str, STAGES)), help="blocks of each stage")
    parser.add_argument("--recipe", choices=RECIPES, default="averaged")
    parser.add_argument("--cores", type=int, default=CORES, help="on which the step runs")
    args = parser.parse_args()
    exported = export_step(args.batch, args.image, tuple(map(int, args.stages.split(","))),
                           recipe=RECIPES[args.recipe], cores=args.cores)
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
