"""Exports a training step of SSD with ResNet-34 on 300x300 images (flax) as a StableHLO portable artifact.

The network of MLPerf training v0.5's TPU submissions (ssd_architecture.py, ssd_model.py there): three stages of
ResNet-34, the third without a stride, five pairs of further convolutions, heads of classes and boxes on six maps: 8,732
boxes of 81 classes. bf16 activations, f32 parameters; batch norm with the statistics of each core's batch. Loss: smooth
L1 of the boxes that hold an object, cross entropy of those and of three times as many of the others, the worst, by two
sorts; L2 5e-4 on all parameters, SGD with momentum 0.9. Gradients are averaged over 8 cores.

Arguments: leaves of (params, momentum, running statistics), images bf16[8*batch,300,300,3], boxes f32[8*batch,8732,4],
classes i32[8*batch,8732], boxes with an object f32[8*batch]; results: the new leaves, loss f32[]. State is donated.

Needs tests/requirements.txt. Usage: ssd.py --out FILE.mlirbc [--batch N]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from data_parallel import AXIS, CORES, export_step  # sets up JAX

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

IMAGE, CLASSES, BOXES = 300, 81, 8732
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 1))  # features, blocks, stride
# Features inside, features, stride and padding of the pairs behind the stages.
FURTHER = ((256, 512, 2, "SAME"), (256, 512, 2, "SAME"), (128, 256, 2, "SAME"), (128, 256, 1, "VALID"),
           (128, 256, 1, "VALID"))
BOXES_OF_MAP = (4, 6, 6, 6, 4, 4)  # at each point
NEGATIVES = 3  # boxes without an object in the loss, for each with one
WEIGHT_DECAY = 5e-4


class Block(nn.Module):
    """Two 3x3 convolutions, the first with the stride; projected shortcut where the stage begins with one."""

    features: int
    stride: int
    project: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """One block."""
        conv = partial(nn.Conv, self.features, use_bias=False, dtype=jnp.bfloat16, padding=1)
        norm = partial(nn.BatchNorm, use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=jnp.bfloat16)
        y = nn.relu(norm()(conv((3, 3), self.stride)(x)))
        y = norm(scale_init=nn.initializers.zeros)(conv((3, 3))(y))
        if self.project:
            x = norm()(conv((1, 1), self.stride, padding=0)(x))
        return nn.relu(x + y)


class Ssd(nn.Module):
    """Images to logits [batch, 8732, 81] and boxes [batch, 8732, 4], both f32."""

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Forward pass."""
        conv = partial(nn.Conv, dtype=jnp.bfloat16)
        x = conv(64, (7, 7), 2, padding=3, use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=False, momentum=0.9, epsilon=1e-5, dtype=jnp.bfloat16)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, (features, blocks, stride) in enumerate(STAGES):
            for block in range(blocks):
                x = Block(features, 1 if block else stride, stage > 0 and block == 0)(x)
        maps = [x]
        for inside, features, stride, padding in FURTHER:
            y = nn.relu(conv(inside, (1, 1))(maps[-1]))
            maps.append(nn.relu(conv(features, (3, 3), stride, padding)(y)))

        def head(width: int) -> jax.Array:
            parts = []
            for one, boxes in zip(maps, BOXES_OF_MAP, strict=True):
                y = conv(boxes * width, (3, 3))(one).astype(jnp.float32)
                y = y.reshape(*y.shape[:3], boxes, width).transpose(0, 3, 1, 2, 4)
                parts.append(y.reshape(y.shape[0], -1, width))
            return jnp.concatenate(parts, axis=1)

        return head(CLASSES), head(4)


def detection_loss(logits: jax.Array, found: jax.Array, boxes: jax.Array, classes: jax.Array,
                   matched: jax.Array) -> jax.Array:
    """Mean over the images; `matched` boxes of each hold an object."""
    positive = (classes > 0).astype(jnp.float32)
    box_loss = jnp.sum(jnp.sum(optax.huber_loss(found, boxes), axis=2) * positive, axis=1)
    entropy = optax.softmax_cross_entropy_with_integer_labels(logits, classes)
    rank = jnp.argsort(jnp.argsort(-entropy * (1 - positive), axis=1), axis=1)
    wanted = jnp.minimum(matched.astype(jnp.int32) * NEGATIVES, BOXES)
    negative = (rank < wanted[:, None]).astype(jnp.float32)
    return jnp.mean((box_loss + jnp.sum(entropy * (positive + negative), axis=1)) / matched)


def make_step(model: Ssd, optimizer: optax.GradientTransformation):
    """(params, momentum, statistics, images, boxes, classes, matched) -> (params, momentum, statistics, loss), of one
    core."""

    def step(params, momentum, statistics, images, boxes, classes, matched):
        def loss_of(p):
            (logits, found), updated = model.apply({"params": p, "batch_stats": statistics}, images,
                                                   mutable=["batch_stats"])
            decay = sum(jnp.sum(w * w) for w in jax.tree.leaves(p))
            loss = detection_loss(logits, found, boxes, classes, matched) + 0.5 * WEIGHT_DECAY * decay
            return loss, updated["batch_stats"]

        (loss, updated), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        loss, grads = lax.pmean((loss, grads), AXIS)
        updates, momentum = optimizer.update(grads, momentum, params)
        return optax.apply_updates(params, updates), momentum, updated, loss

    return step


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=128, help="images a core")
    args = parser.parse_args()
    model, optimizer, batch = Ssd(), optax.sgd(0.01, momentum=0.9), CORES * args.batch
    images = jax.ShapeDtypeStruct((batch, IMAGE, IMAGE, 3), jnp.bfloat16)
    one = jax.ShapeDtypeStruct((1, *images.shape[1:]), images.dtype)
    variables = jax.eval_shape(model.init, jax.random.key(0), one)
    state = (variables["params"], jax.eval_shape(optimizer.init, variables["params"]), variables["batch_stats"])
    targets = (jax.ShapeDtypeStruct((batch, BOXES, 4), jnp.float32), jax.ShapeDtypeStruct((batch, BOXES), jnp.int32),
               jax.ShapeDtypeStruct((batch,), jnp.float32))
    exported = export_step(make_step(model, optimizer), state, (images, *targets))
    args.out.write_bytes(exported.mlir_module_serialized)
    print(f"{args.out}: {len(exported.mlir_module_serialized)} bytes")


if __name__ == "__main__":
    main()
