"""Exports the MNIST multilayer perceptron as StableHLO portable artifacts: train_step.mlirbc and eval_step.mlirbc.

784-512-256-10, relu, softmax cross-entropy, Adam (optax), data parallel with jax.shard_map over 8 devices and
lax.pmean of loss and gradients. Global batch 200 = 25 examples a core.

Train program: arguments = leaves of (params, Adam state), images f32[200,784], labels i32[200];
results = new leaves in the same order, then the loss f32[].
Evaluation program: arguments = leaves of params, images f32[200,784], labels i32[200], mask f32[200];
results = number of correct predictions among masked-in examples f32[], sum of their losses f32[].

Needs jax, jaxlib and optax of requirements.txt beside this file. Usage: export.py [--out DIR]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

# Source locations in the artifact: names without the folders of one machine, so that every export is the same.
jax.config.update("jax_hlo_source_file_canonicalization_regex", r"^.*/(site-packages|examples)/")

LAYERS = (784, 512, 256, 10)
CORES = 8
BATCH = 200
LEARNING_RATE = 1e-3

Params = list[dict[str, jax.Array]]


def init_params(seed: int) -> Params:
    """He-normal weights and zero biases (used by tests; the board initialises its own)."""
    rng = np.random.default_rng(seed)
    return [
        {"b": jnp.zeros((n,), jnp.float32),
         "w": jnp.asarray(rng.normal(0.0, (2.0 / m) ** 0.5, (m, n)), jnp.float32)}
        for m, n in zip(LAYERS[:-1], LAYERS[1:], strict=True)
    ]


def logits_of(params: Params, images: jax.Array) -> jax.Array:
    """Forward pass: f32[n,784] -> f32[n,10]."""
    x = images
    for layer in params[:-1]:
        x = jnp.maximum(x @ layer["w"] + layer["b"], 0.0)
    return x @ params[-1]["w"] + params[-1]["b"]


def losses_of(params: Params, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy of each example, with one-hot labels by iota and compare; and the logits."""
    logits = logits_of(params, images)
    one_hot = (labels[:, None] == lax.broadcasted_iota(jnp.int32, logits.shape, 1)).astype(jnp.float32)
    log_probs = jax.nn.log_softmax(logits)
    return -jnp.sum(one_hot * log_probs, axis=-1), logits


def make_train_step(mesh: jax.sharding.Mesh):
    """One data-parallel training step: (params, state, images, labels) -> (params, state, loss)."""
    optimizer = optax.adam(LEARNING_RATE)

    def step(params, state, images, labels):
        def mean_loss(p):
            return jnp.mean(losses_of(p, images, labels)[0])

        loss, grads = jax.value_and_grad(mean_loss)(params)
        loss, grads = lax.pmean((loss, grads), "data")
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P("data"), P("data")),
                         out_specs=(P(), P(), P()), check_vma=False)


def make_eval_step(mesh: jax.sharding.Mesh):
    """Counts correct predictions: (params, images, labels, mask) -> (correct, sum of losses)."""

    def step(params, images, labels, mask):
        losses, logits = losses_of(params, images, labels)
        best = jnp.max(logits, axis=-1, keepdims=True)
        digit = lax.broadcasted_iota(jnp.int32, logits.shape, 1)
        predicted = jnp.min(jnp.where(logits == best, digit, logits.shape[1]), axis=-1)
        correct = jnp.where(predicted == labels, mask, 0.0)
        return lax.psum((jnp.sum(correct), jnp.sum(losses * mask)), "data")

    return jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data"), P("data"), P("data")),
                         out_specs=(P(), P()), check_vma=False)


def export_programs() -> dict[str, bytes]:
    """Artifact bytes by file name."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:CORES]), ("data",))
    params = init_params(0)
    state = optax.adam(LEARNING_RATE).init(params)
    images = jax.ShapeDtypeStruct((BATCH, LAYERS[0]), jnp.float32)
    labels = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    mask = jax.ShapeDtypeStruct((BATCH,), jnp.float32)
    spec = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (params, state))
    train = jax.export.export(jax.jit(make_train_step(mesh), donate_argnums=(0, 1)), platforms=["tpu"])(
        *spec, images, labels)
    evaluate = jax.export.export(jax.jit(make_eval_step(mesh)), platforms=["tpu"])(spec[0], images, labels, mask)
    return {"train_step.mlirbc": train.mlir_module_serialized, "eval_step.mlirbc": evaluate.mlir_module_serialized}


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
