"""Exports training of Xception for 8 cores: 299 x 299 images by default, any smaller network by options.

Chollet, "Xception: Deep Learning with Depthwise Separable Convolutions", figure 5 (arXiv:1610.02357): an entry flow, 8
times the middle block, an exit flow; 36 convolution layers, 34 of them depthwise 3x3 and pointwise 1x1, with residuals;
batch norm as in Keras (0.99, 1e-3), over the images of a core. 22.9 million parameters. bf16 activations, f32
parameters; SGD with momentum 0.9, softmax cross-entropy. Without the paper's dropout.

Writes train_step.mlirbc and eval_step.mlirbc, data parallel over 8 cores with jax.shard_map. With --digits also
images.npy and labels.npy (MNIST, enlarged, in three channels) and train.toml (train.toml.in with the numbers of the
network) for `tpuboard train`.

train_step: leaves of (params, running statistics, momentum), images u8[8*batch,299,299,3], labels i32[8*batch] ->
new leaves, loss f32[]. eval_step: leaves of (params, running statistics), images, labels, mask f32[8*batch] -> number
of correct predictions, sum of losses.

Usage: xception.py [--out DIR] [--batch N] [--image N] [--middle N] [--width N] [--classes N] [--digits DIR]
DIR of --digits holds images.npy f32[n,784] in 0..1 and labels.npy (sim_scripts/fetch_mnist.py).
"""

from __future__ import annotations

import argparse
import os
import string
from functools import partial
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_PLATFORMS"] = "cpu"

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|examples)/")

CORES = 8
LEARNING_RATE = 0.045  # the paper's on ImageNet


class Xception(nn.Module):
    """Logits in f32 of images in 0..1. `width` is what the paper's 728 features are; all others go with it."""

    classes: int = 1000
    middle: int = 8  # blocks of the middle flow
    width: int = 728
    dtype: jnp.dtype = jnp.bfloat16  # of activations
    train: bool = True

    def features(self, count: int) -> int:
        """The paper's number of features, made narrower with `width`, 8 at least."""
        return max(8, count * self.width // 728)

    def norm(self, x: jax.Array) -> jax.Array:
        """Batch norm, by the batch of a core in training and by running statistics otherwise."""
        return nn.BatchNorm(use_running_average=not self.train, momentum=0.99, epsilon=1e-3, dtype=self.dtype)(x)

    def conv(self, x: jax.Array, count: int, window: int, stride: int = 1, padding: str = "SAME") -> jax.Array:
        """Convolution and batch norm."""
        return self.norm(nn.Conv(self.features(count), (window, window), (stride, stride), padding, use_bias=False,
                                 dtype=self.dtype)(x))

    def separable(self, x: jax.Array, count: int) -> jax.Array:
        """Each feature's own 3x3, then 1x1 over the features, then batch norm."""
        x = nn.Conv(x.shape[-1], (3, 3), feature_group_count=x.shape[-1], use_bias=False, dtype=self.dtype)(x)
        return self.conv(x, count, 1)

    def reduction(self, x: jax.Array, counts: tuple[int, int], first_relu: bool = True) -> jax.Array:
        """Two separable convolutions and a max pool, which halve the image, beside a 1x1 convolution of stride 2."""
        y = self.separable(nn.relu(x) if first_relu else x, counts[0])
        y = self.separable(nn.relu(y), counts[1])
        return nn.max_pool(y, (3, 3), (2, 2), "SAME") + self.conv(x, counts[1], 1, 2)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Entry flow, middle flow, exit flow."""
        x = nn.relu(self.conv(x, 32, 3, 2, "VALID"))
        x = nn.relu(self.conv(x, 64, 3, 1, "VALID"))
        x = self.reduction(x, (128, 128), first_relu=False)
        x = self.reduction(x, (256, 256))
        x = self.reduction(x, (728, 728))
        for _ in range(self.middle):
            y = x
            for _ in range(3):
                y = self.separable(nn.relu(y), 728)
            x = x + y
        x = self.reduction(x, (728, 1024))
        x = nn.relu(self.separable(x, 1536))
        x = nn.relu(self.separable(x, 2048))
        x = jnp.mean(x, axis=(1, 2))
        return nn.Dense(self.classes, dtype=self.dtype)(x).astype(jnp.float32)


def scaled(images: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Pixels u8 as -1 .. 1."""
    return images.astype(dtype) / 127.5 - 1


def losses_of(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Softmax cross-entropy of each example."""
    return optax.softmax_cross_entropy(logits, jax.nn.one_hot(labels, logits.shape[1]))


def make_train_step(model: Xception, optimizer: optax.GradientTransformation):
    """(params, statistics, momentum, images, labels) -> (params, statistics, momentum, loss), of one core."""

    def step(params, statistics, momentum, images, labels):
        def loss_of(p):
            logits, updated = model.apply({"params": p, "batch_stats": statistics}, scaled(images, model.dtype),
                                          mutable=["batch_stats"])
            return jnp.mean(losses_of(logits, labels)), updated["batch_stats"]

        (loss, statistics), grads = jax.value_and_grad(loss_of, has_aux=True)(params)
        loss, grads, statistics = lax.pmean((loss, grads, statistics), "data")
        updates, momentum = optimizer.update(grads, momentum, params)
        return optax.apply_updates(params, updates), statistics, momentum, loss

    return step


def make_eval_step(model: Xception):
    """(params, statistics, images, labels, mask) -> (correct, sum of losses)."""

    def step(params, statistics, images, labels, mask):
        logits = model.apply({"params": params, "batch_stats": statistics}, scaled(images, model.dtype))
        correct = jnp.where(jnp.argmax(logits, axis=-1) == labels, mask, 0.0)
        return lax.psum((jnp.sum(correct), jnp.sum(losses_of(logits, labels) * mask)), "data")

    return step


def first_state(model: Xception, image: int) -> tuple:
    """Shapes of (params, running statistics, momentum)."""
    variables = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, image, image, 3), model.dtype))
    params, statistics = variables["params"], variables["batch_stats"]
    return params, statistics, jax.eval_shape(optax.sgd(LEARNING_RATE, momentum=0.9).init, params)


def export_steps(model: Xception, batch: int, image: int, rate: float = LEARNING_RATE,
                 platform: str = "tpu") -> tuple[jax.export.Exported, jax.export.Exported]:
    """Training and evaluation step of 8 cores with `batch` images each."""
    params, statistics, momentum = first_state(model, image)
    images = jax.ShapeDtypeStruct((CORES * batch, image, image, 3), jnp.uint8)
    labels = jax.ShapeDtypeStruct((CORES * batch,), jnp.int32)
    mask = jax.ShapeDtypeStruct((CORES * batch,), jnp.float32)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    shard = partial(jax.shard_map, mesh=mesh, out_specs=P(), check_vma=False)
    train = shard(make_train_step(model, optax.sgd(rate, momentum=0.9)),
                  in_specs=(P(), P(), P(), P("data"), P("data")))
    evaluate = shard(make_eval_step(model.copy(train=False)), in_specs=(P(), P(), P("data"), P("data"), P("data")))
    return (jax.export.export(jax.jit(train, donate_argnums=(0, 1, 2), keep_unused=True), platforms=[platform])(
                params, statistics, momentum, images, labels),
            jax.export.export(jax.jit(evaluate, keep_unused=True), platforms=[platform])(
                params, statistics, images, labels, mask))


def init_rules(state: tuple) -> str:
    """Rules of [state] for the leaves in their order."""
    params, statistics, momentum = state
    rules = {"kernel": "he_normal", "scale": "ones", "var": "ones", "mean": "zeros", "bias": "zeros"}
    names = [path[-1].key for path, _ in jax.tree_util.tree_leaves_with_path((params, statistics))]
    every = [*(rules[name] for name in names), f"zeros*{len(jax.tree.leaves(momentum))}"]
    return ", ".join(f'"{rule}"' for rule in every)


def write_digits(digits: Path, out: Path, image: int) -> None:
    """MNIST's digits, each pixel as often as it takes: u8[n,image,image,3], and labels u8[n]."""
    pixels = np.rint(np.load(digits / "images.npy") * 255).astype(np.uint8).reshape(-1, 28, 28)
    nearest = np.arange(image) * 28 // image
    large = pixels[:, nearest[:, None], nearest[None, :]]
    np.save(out / "images.npy", np.repeat(large[..., None], 3, axis=-1))
    np.save(out / "labels.npy", np.load(digits / "labels.npy").astype(np.uint8))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/xception"))
    parser.add_argument("--batch", type=int, default=16, help="images a core")
    parser.add_argument("--image", type=int, default=299, help="height and width")
    parser.add_argument("--middle", type=int, default=8, help="blocks of the middle flow")
    parser.add_argument("--width", type=int, default=728, help="features of the middle flow")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--digits", type=Path, help="folder of MNIST's digits")
    args = parser.parse_args()
    model = Xception(args.classes, args.middle, args.width)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, program in zip(("train_step", "eval_step"), export_steps(model, args.batch, args.image), strict=True):
        (args.out / f"{name}.mlirbc").write_bytes(program.mlir_module_serialized)
    state = first_state(model, args.image)
    print(f"{args.out}: {sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(state[0])):,} parameters")
    if args.digits:
        write_digits(args.digits, args.out, args.image)
        template = string.Template((Path(__file__).resolve().parent / "train.toml.in").read_text(encoding="utf-8"))
        (args.out / "train.toml").write_text(template.substitute(
            leaves=len(jax.tree.leaves(state)), kept=len(jax.tree.leaves(state[:2])), init=init_rules(state),
            classes=args.classes, batch=CORES * args.batch), encoding="utf-8")


if __name__ == "__main__":
    main()
