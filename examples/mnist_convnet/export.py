"""Exports the convnet of the TPU guide on MNIST as StableHLO portable artifacts, for 8 cores and for 1 core.

Conv2D(256, 3, relu), Conv2D(256, 3, relu), Flatten, Dense(256, relu), Dense(128, relu), Dense(10) on images of
[28, 28, 1]; convolutions without padding, glorot-uniform weights, zero biases, Adam, sparse categorical cross-entropy
of integer labels, global batch 200. For 8 cores it is data parallel with jax.shard_map: 25 examples a core, lax.pmean
of loss and gradients. 38 million parameters, nearly all in the first dense layer.

train_step.mlirbc, train_step_1core.mlirbc: arguments = leaves of (params, Adam state), images f32[200,28,28,1],
labels i32[200]; results = new leaves in the same order, then the loss f32[]. State is donated.
eval_step.mlirbc, eval_step_1core.mlirbc: arguments = leaves of params, images f32[200,28,28,1], labels i32[200],
mask f32[200]; results = number of correct predictions among masked-in examples f32[], sum of their losses f32[].

Needs jax, jaxlib and optax of requirements.txt beside this file. Usage: export.py [--out DIR]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine, so that every export is the same.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|examples)/")

IMAGE = (28, 28, 1)
WINDOW = 3
CHANNELS = (256, 256)
DENSE = (256, 128, 10)
CORES = 8
BATCH = 200
LEARNING_RATE = 1e-3

Params = list[dict[str, jax.Array]]


def weight_shapes(image: tuple[int, int, int] = IMAGE, channels: tuple[int, ...] = CHANNELS,
                  dense: tuple[int, ...] = DENSE) -> list[tuple[int, ...]]:
    """Shapes of the weights, first layer first: convolutions [height, width, in, out], then dense layers [in, out]."""
    height, width, features = image
    shapes: list[tuple[int, ...]] = []
    for size in channels:
        shapes.append((WINDOW, WINDOW, features, size))
        height, width, features = height - WINDOW + 1, width - WINDOW + 1, size
    features *= height * width
    for size in dense:
        shapes.append((features, size))
        features = size
    return shapes


def init_params(seed: int, shapes: list[tuple[int, ...]] | None = None) -> Params:
    """Glorot-uniform weights and zero biases (used by tests; the board initialises its own)."""
    rng = np.random.default_rng(seed)
    params = []
    for shape in shapes or weight_shapes():
        receptive_field = int(np.prod(shape[:-2]))
        limit = (6.0 / (receptive_field * (shape[-2] + shape[-1]))) ** 0.5
        params.append({"b": jnp.zeros(shape[-1:], jnp.float32),
                       "w": jnp.asarray(rng.uniform(-limit, limit, shape), jnp.float32)})
    return params


def logits_of(params: Params, images: jax.Array) -> jax.Array:
    """Forward pass: f32[n,h,w,c] -> f32[n,classes]."""
    x = images
    for index, layer in enumerate(params):
        if layer["w"].ndim == 4:
            x = lax.conv_general_dilated(x, layer["w"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        else:
            x = x.reshape(x.shape[0], -1) @ layer["w"]
        x = x + layer["b"]
        if index < len(params) - 1:
            x = jax.nn.relu(x)
    return x


def losses_of(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sparse categorical cross-entropy of each example; and the logits. The label picks its logarithm by iota, compare
    and select, as on TPUs, which have no fast gather of single elements."""
    logits = logits_of(params, images)
    chosen = labels[:, None] == lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    return -jnp.sum(jnp.where(chosen, jax.nn.log_softmax(logits), 0.0), axis=-1), logits


def make_train_step(mesh: jax.sharding.Mesh | None):
    """One training step: (params, state, images, labels) -> (params, state, loss). Data parallel over `mesh`; without
    one it is a program of one core."""
    optimizer = optax.adam(LEARNING_RATE)

    def step(params, state, images, labels):
        def mean_loss(p):
            return jnp.mean(losses_of(p, images, labels)[0])

        loss, grads = jax.value_and_grad(mean_loss)(params)
        if mesh is not None:
            loss, grads = lax.pmean((loss, grads), "data")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    if mesh is None:
        return step
    return jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")),
                         out_specs=(P(), P(), P()), check_vma=False)


def make_eval_step(mesh: jax.sharding.Mesh | None):
    """Counts correct predictions: (params, images, labels, mask) -> (correct, sum of losses)."""

    def step(params, images, labels, mask):
        losses, logits = losses_of(params, images, labels)
        best = jnp.max(logits, axis=-1, keepdims=True)
        digit = lax.broadcasted_iota(jnp.int32, logits.shape, 1)
        predicted = jnp.min(jnp.where(logits == best, digit, logits.shape[1]), axis=-1)
        correct = jnp.where(predicted == labels, mask, 0.0)
        sums = (jnp.sum(correct), jnp.sum(losses * mask))
        return sums if mesh is None else lax.psum(sums, "data")

    if mesh is None:
        return step
    return jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data"), P("data"), P("data")),
                         out_specs=(P(), P()), check_vma=False)


def argument_shapes(shapes: list[tuple[int, ...]] | None = None, image: tuple[int, int, int] = IMAGE,
                    batch: int = BATCH) -> tuple:
    """Shapes of params, Adam state, images, labels and mask."""
    params = [{"b": jax.ShapeDtypeStruct(shape[-1:], jnp.float32), "w": jax.ShapeDtypeStruct(shape, jnp.float32)}
              for shape in shapes or weight_shapes()]
    state = jax.eval_shape(optax.adam(LEARNING_RATE).init, params)
    return (params, state, jax.ShapeDtypeStruct((batch, *image), jnp.float32),
            jax.ShapeDtypeStruct((batch,), jnp.int32), jax.ShapeDtypeStruct((batch,), jnp.float32))


def make_mesh(cores: int) -> jax.sharding.Mesh | None:
    """The mesh of `cores` devices; none for one core."""
    return None if cores == 1 else jax.sharding.Mesh(np.array(jax.devices()[:cores]), ("data",))


def export_train_step(cores: int, platform: str = "tpu", **sizes) -> jax.export.Exported:
    """The training step for `cores` cores; `sizes` as in argument_shapes."""
    params, state, images, labels, _ = argument_shapes(**sizes)
    step = jax.jit(make_train_step(make_mesh(cores)), donate_argnums=(0, 1), keep_unused=True)
    return jax.export.export(step, platforms=[platform])(params, state, images, labels)


def export_programs() -> dict[str, bytes]:
    """Artifact bytes by file name."""
    programs = {}
    params, _, images, labels, mask = argument_shapes()
    for cores, suffix in ((CORES, ""), (1, "_1core")):
        evaluate = jax.export.export(jax.jit(make_eval_step(make_mesh(cores)), keep_unused=True), platforms=["tpu"])(
            params, images, labels, mask)
        programs[f"train_step{suffix}.mlirbc"] = export_train_step(cores).mlir_module_serialized
        programs[f"eval_step{suffix}.mlirbc"] = evaluate.mlir_module_serialized
    return programs


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    args = parser.parse_args()
    for name, data in export_programs().items():
        (args.out / name).write_bytes(data)
        print(f"{args.out / name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
